//! Kinds of values: how each is parsed, validated, described and shown.

use std::time::Duration;

use figment::value::Value;

use crate::base::environment::is_variable;
use crate::base::http::{BaseUrl, shown};
use crate::base::money::{dollars_text, nanos};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Text, hidden if it looks like a key.
    Text,
    /// A name, never hidden: names of models contain dates and numbers, so they can look like keys.
    Name,
    Address,
    /// The name of a variable, hidden if it cannot be one, since users put keys here by mistake.
    Variable,
    /// Several [`Kind::Text`].
    Texts,
    /// Several [`Kind::Name`].
    Names,
    /// Several texts, separated by commas or as a list. Stored as one text.
    Separated,
    /// `true` or `false`, also written `1`, `yes` or `on`, as is common in variables.
    Switch,
    /// `true` or `false`.
    Bool,
    /// A whole number, bounds inclusive.
    Whole {
        least: u64,
        most: u64,
    },
    /// A number, bounds inclusive.
    Number {
        least: f64,
        most: f64,
    },
    Dollars {
        /// Whether it may be 0.
        zero: bool,
        /// The maximum, inclusive; infinite if `inf` lifts the limit.
        most: f64,
    },
    /// A span of time, for example `15m`.
    Time,
    OneOf(&'static [&'static str]),
    /// A list of some of these words, possibly empty.
    SomeOf(&'static [&'static str]),
    /// Text that passes a check.
    Checked {
        check: fn(&str) -> bool,
        /// The values that pass, for people.
        values: &'static str,
        /// One of them.
        example: &'static str,
    },
}

impl Kind {
    /// Any unsigned number.
    pub(super) const COUNT: Self = Self::Whole { least: 0, most: u64::MAX };

    /// Validates a value and returns it in its stored form.
    ///
    /// # Errors
    ///
    /// Returns a description of valid values if the value has the wrong kind or is out of bounds.
    pub(super) fn read(self, value: &Value) -> Result<Value, String> {
        let fits = match self {
            Self::Text | Self::Name | Self::Address | Self::Variable => value.as_str().is_some(),
            Self::Texts | Self::Names => {
                value.as_array().is_some_and(|items| items.iter().all(|item| item.as_str().is_some()))
            }
            Self::Separated => return separated(value).map(Value::from).ok_or_else(|| self.expected()),
            Self::Switch => return switch(value).map(Value::from).ok_or_else(|| self.expected()),
            Self::Bool => value.to_bool().is_some(),
            Self::Whole { least, most } => match whole(value) {
                Some(whole) if (i128::from(least)..=i128::from(most)).contains(&whole) => true,
                // The kind is right, so the bounds are enough.
                Some(_) => return Err(self.bounds()),
                None => false,
            },
            Self::Number { least, most } => number(value).is_some_and(|number| (least..=most).contains(&number)),
            Self::Dollars { zero, most } => {
                number(value).is_some_and(|dollars| (0.0..=most).contains(&dollars) && (zero || dollars > 0.0))
            }
            Self::Time => value.as_str().is_some_and(|text| duration(text).is_ok()),
            Self::OneOf(words) => value.as_str().is_some_and(|text| words.contains(&text)),
            Self::SomeOf(words) => value
                .as_array()
                .is_some_and(|items| items.iter().all(|item| item.as_str().is_some_and(|item| words.contains(&item)))),
            Self::Checked { check, .. } => value.as_str().is_some_and(check),
        };
        if fits { Ok(value.clone()) } else { Err(self.expected()) }
    }

    /// Describes valid values, for errors.
    fn expected(self) -> String {
        match self {
            Self::Text | Self::Name | Self::Address | Self::Variable => "text in quotes".to_owned(),
            Self::Texts | Self::Names => "a list in brackets".to_owned(),
            Self::Separated => "text in quotes, or a list of texts".to_owned(),
            Self::Time => "a time, for example `90s`, `15m` or `1h 30m`".to_owned(),
            Self::Whole { .. } => format!("a whole number, {}", self.bounds()),
            _ => self.bounds(),
        }
    }

    /// Describes the bounds, for errors and the manual. Empty if there are none.
    pub(super) fn bounds(self) -> String {
        match self {
            Self::Text
            | Self::Name
            | Self::Address
            | Self::Variable
            | Self::Texts
            | Self::Names
            | Self::Separated
            | Self::Time => String::new(),
            Self::Switch | Self::Bool => "`true` or `false`".to_owned(),
            // A bound that comes only from the type is not worth mentioning.
            Self::Whole { least, most } if most >= u64::from(u32::MAX) => format!("{least} or more"),
            Self::Whole { least, most } => format!("{least} to {most}"),
            Self::Number { most, .. } if most >= f64::from(f32::MAX) => "a number".to_owned(),
            Self::Number { least, most } => format!("a number, {least} to {most}"),
            Self::Dollars { zero, most } => match (zero, most.is_finite()) {
                (true, true) => format!("dollars, 0 to {most}"),
                (true, false) => "dollars, 0 or more, or `inf` for no limit".to_owned(),
                (false, true) => format!("dollars, more than 0 and up to {most}"),
                (false, false) => "dollars, more than 0".to_owned(),
            },
            Self::OneOf(words) => format!("one of {}", quoted(words)),
            Self::SomeOf(words) => format!("a list of {}", quoted(words)),
            Self::Checked { values, .. } => values.to_owned(),
        }
    }

    /// Returns a valid value, as TOML.
    pub(super) fn example(self) -> String {
        match self {
            Self::Text | Self::Separated => "\"text\"".to_owned(),
            Self::Name => "\"name\"".to_owned(),
            Self::Address => "\"http://localhost:8080/v1\"".to_owned(),
            Self::Variable => "\"MY_API_KEY\"".to_owned(),
            Self::Texts | Self::Names => "[\"first\", \"second\"]".to_owned(),
            Self::Switch | Self::Bool => "true".to_owned(),
            Self::Whole { least, .. } => least.max(1).to_string(),
            Self::Number { least, .. } => {
                if least > 0.0 {
                    least.to_string()
                } else {
                    "0.5".to_owned()
                }
            }
            Self::Dollars { .. } => "0.5".to_owned(),
            Self::Time => "\"15m\"".to_owned(),
            Self::SomeOf(words) => format!("[\"{}\"]", words.join("\", \"")),
            Self::OneOf(words) => format!("\"{}\"", words.first().copied().unwrap_or_default()),
            Self::Checked { example, .. } => format!("\"{example}\""),
        }
    }

    /// Formats a value for display. A key in the wrong place stays hidden.
    pub(super) fn shown(self, value: &Value) -> String {
        match (self, value.as_str()) {
            (Self::Text | Self::Separated, Some(text)) => shown(text),
            (Self::Address, Some(text)) => address_shown(text),
            (Self::Variable, Some(text))
                // Keys contain lowercase letters; names of variables by convention do not.
                if !is_variable(text) || text.bytes().any(|byte| byte.is_ascii_lowercase()) =>
            {
                "not the name of a variable".to_owned()
            }
            (Self::Names, _) => list(value, |text| {
                if text.bytes().all(|byte| byte.is_ascii_graphic()) { text.to_owned() } else { shown(text) }
            }),
            (Self::Texts, _) => list(value, shown),
            (Self::Time, Some(text)) => duration(text).map_or_else(|_| text.to_owned(), seconds),
            (Self::Dollars { .. }, None) => match number(value) {
                Some(dollars) if dollars.is_finite() => dollars_text(nanos(dollars)),
                _ => "no limit".to_owned(),
            },
            (_, Some(text)) => text.to_owned(),
            (_, None) => value.deserialize::<serde_json::Value>().map(|json| json.to_string()).unwrap_or_default(),
        }
    }
}

/// Formats an address for display, without credentials.
pub(super) fn address_shown(text: &str) -> String {
    text.parse().map_or_else(|_| "not an address".to_owned(), |url: BaseUrl| url.to_string())
}

/// Describes an invalid value for an error. Text in a table is not shown, since users put keys there by mistake.
pub(super) fn found(value: &Value, is_in_table: bool) -> String {
    match value {
        Value::String(_, text) if !is_in_table => format!("`{}`", shown(text)),
        Value::String(..) | Value::Char(..) => "text".to_owned(),
        Value::Bool(_, on) => format!("`{on}`"),
        Value::Num(..) => match (whole(value), number(value)) {
            (Some(whole), _) => format!("`{whole}`"),
            (None, Some(number)) => format!("`{number}`"),
            (None, None) => "a number".to_owned(),
        },
        Value::Empty(..) => "nothing".to_owned(),
        Value::Dict(..) => "a table".to_owned(),
        Value::Array(..) => "a list".to_owned(),
    }
}

/// Parses a span of time such as `90s`, `15m` or `1h 30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed: Result<jiff::SignedDuration, _> = text.parse();
    let parsed = parsed.map_err(|_| format!("`{text}` is not a time (for example `90s`, `15m`, `1h 30m`)"))?;
    Duration::try_from(parsed).map_err(|_| format!("`{text}` lies in the past"))
}

/// Parses an amount of dollars; `inf` means no limit.
pub(crate) fn dollars(text: &str) -> Result<f64, String> {
    match text.parse() {
        // Also refuses `nan`, which is not comparable.
        Ok(dollars) if dollars >= 0.0 => Ok(dollars),
        _ => Err(format!("`{text}` is not an amount of dollars (for example `0.50`, or `inf` for no limit)")),
    }
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

fn switch(value: &Value) -> Option<bool> {
    match (value.to_bool(), whole(value), value.as_str().map(str::to_ascii_lowercase).as_deref()) {
        (Some(on), ..) => Some(on),
        (None, Some(1), _) | (None, None, Some("true" | "yes" | "on" | "1")) => Some(true),
        (None, Some(0), _) | (None, None, Some("false" | "no" | "off" | "0")) => Some(false),
        _ => None,
    }
}

fn separated(value: &Value) -> Option<String> {
    let text = value.as_str().map(str::to_owned);
    let joined = || Some(value.as_array()?.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?.join(", "));
    text.or_else(joined)
}

/// Returns a whole number, however the file or the program wrote it.
pub(super) fn whole(value: &Value) -> Option<i128> {
    value.to_i128().or_else(|| value.to_u128().and_then(|whole| i128::try_from(whole).ok()))
}

#[expect(clippy::cast_precision_loss, reason = "an amount that was typed has few digits")]
fn number(value: &Value) -> Option<f64> {
    value.to_f64().or_else(|| whole(value).map(|whole| whole as f64))
}

fn list(value: &Value, show: impl Fn(&str) -> String) -> String {
    let items = value.as_array().unwrap_or_default().iter().filter_map(Value::as_str);
    serde_json::Value::from(items.map(show).collect::<Vec<_>>()).to_string()
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

#[cfg(test)]
mod tests {
    use figment::value::Num;

    use super::*;

    fn expected(kind: Kind, value: impl Into<Value>) -> String {
        kind.read(&value.into()).unwrap_err()
    }

    #[test]
    fn value_of_another_kind_or_out_of_bounds_is_refused_with_what_is_expected() {
        let parallel = Kind::Whole { least: 1, most: 64 };
        assert_eq!(expected(parallel, "many"), "a whole number, 1 to 64");
        assert_eq!(expected(parallel, 0), "1 to 64");
        assert_eq!(expected(parallel, -1), "1 to 64");
        assert_eq!(expected(parallel, 1.5), "a whole number, 1 to 64");
        assert_eq!(expected(Kind::COUNT, -1), "0 or more");
        let limit = Kind::Dollars { zero: true, most: f64::INFINITY };
        assert_eq!(expected(limit, f64::NAN), "dollars, 0 or more, or `inf` for no limit");
        let cap = Kind::Dollars { zero: false, most: 10.0 };
        assert_eq!(expected(cap, 0), "dollars, more than 0 and up to 10");
        assert_eq!(expected(cap, f64::INFINITY), "dollars, more than 0 and up to 10");
        assert_eq!(expected(Kind::OneOf(&["a", "b"]), "c"), "one of `a`, `b`");
        assert_eq!(expected(Kind::Bool, 1), "`true` or `false`");
        assert_eq!(expected(Kind::Texts, "x"), "a list in brackets");
        assert_eq!(expected(Kind::Time, "soon"), "a time, for example `90s`, `15m` or `1h 30m`");
        for (kind, value) in [
            (parallel, Value::from(64)),
            (limit, f64::INFINITY.into()),
            (limit, 5.into()),
            (cap, 10.into()),
            (Kind::Time, "1h 30m".into()),
            (Kind::Number { least: 0.0, most: 1e6 }, 2.into()),
        ] {
            assert_eq!(kind.read(&value).as_ref(), Ok(&value));
        }
    }

    #[test]
    fn switch_is_read_as_people_write_it() {
        for (value, on) in [
            (Value::from(true), true),
            (Num::from(1).into(), true),
            ("Yes".into(), true),
            ("off".into(), false),
            ("0".into(), false),
        ] {
            assert_eq!(Kind::Switch.read(&value), Ok(Value::from(on)));
        }
        assert_eq!(expected(Kind::Switch, "perhaps"), "`true` or `false`");
        assert_eq!(expected(Kind::Switch, 2), "`true` or `false`");
    }

    #[test]
    fn list_of_texts_is_stored_as_one_text() {
        for value in [Value::from("exa, brave"), vec!["exa", "brave"].into()] {
            assert_eq!(Kind::Separated.read(&value), Ok(Value::from("exa, brave")));
        }
        assert_eq!(expected(Kind::Separated, vec![1]), "text in quotes, or a list of texts");
    }

    #[test]
    fn key_in_the_wrong_place_is_shown_nowhere() {
        let secret = Value::from("sk-secret-0123456789");
        for kind in [Kind::Text, Kind::Address, Kind::Variable] {
            assert!(!kind.shown(&secret).contains("secret"), "{kind:?}");
        }
        let several = Value::from(vec!["sk-secret-0123456789 x"]);
        assert!(!Kind::Texts.shown(&several).contains("secret") && !Kind::Names.shown(&several).contains("secret"));
        assert_eq!((found(&secret, true), found(&secret, false)), ("text".to_owned(), "`…`".to_owned()));
        assert_eq!(Kind::Names.shown(&vec!["gpt-5.4-2026-03-05"].into()), "[\"gpt-5.4-2026-03-05\"]");
    }

    #[test]
    fn time_and_money_that_cannot_be_read_are_refused_with_an_example() {
        assert_eq!(duration("soon").unwrap_err(), "`soon` is not a time (for example `90s`, `15m`, `1h 30m`)");
        assert!(duration("-5m").is_err() && dollars("-1").is_err() && dollars("NaN").is_err());
        assert_eq!(dollars("inf"), Ok(f64::INFINITY));
    }
}
