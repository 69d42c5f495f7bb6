//! What a library says of a setting becomes what `dr` says: what was found, what was expected, and no key.

use figment::error::{Actual, Kind};

use crate::base::http::shown;

/// Returns what is wrong with a setting. Texts in tables are not shown: keys are put there by mistake.
pub(super) fn complaint(kind: Kind, is_in_table: bool) -> String {
    match kind {
        Kind::UnknownField(..) => "there is no such setting".to_owned(),
        Kind::InvalidType(actual, expected) | Kind::InvalidValue(actual, expected) => {
            format!("found {}, expected {}", found(&actual, is_in_table), wanted(&expected))
        }
        Kind::InvalidLength(length, expected) => format!("found {length} values, expected {}", wanted(&expected)),
        Kind::UnknownVariant(_, expected) if is_in_table => format!("expected {}", one_of(expected)),
        Kind::UnknownVariant(found, expected) => format!("found `{}`, expected {}", shown(&found), one_of(expected)),
        Kind::MissingField(name) => format!("`{name}` is missing"),
        Kind::DuplicateField(name) => format!("`{name}` is there twice"),
        Kind::Message(text) => message(&text),
        Kind::ISizeOutOfRange(_) | Kind::USizeOutOfRange(_) => "number is too large".to_owned(),
        Kind::Unsupported(actual) | Kind::UnsupportedKey(actual, _) => format!("found {}", found(&actual, is_in_table)),
    }
}

/// Returns what a parser says, without the line it quotes and without what it found.
fn message(text: &str) -> String {
    if let Some(rest) = text.strip_prefix("TOML parse error at ") {
        return syntax(rest);
    }
    let is_of_serde =
        ["invalid type: ", "invalid value: ", "unknown variant "].iter().any(|start| text.starts_with(start));
    match (text.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')), text.rsplit_once(", expected "))
    {
        (Some((name, _)), _) => format!("there is no such setting as `{}`", shown(name)),
        (None, Some((_, expected))) if is_of_serde => format!("expected {}", wanted(expected)),
        _ => text.to_owned(),
    }
}

/// Returns where a file is no TOML, and why.
fn syntax(text: &str) -> String {
    let place = text.lines().next().unwrap_or_default();
    // The line that is quoted, and the mark under it, are drawn beside a bar.
    let is_quoted = |line: &str| {
        line.trim_start().trim_start_matches(|digit: char| digit.is_ascii_digit()).trim_start().starts_with('|')
    };
    let why: Vec<_> = text.lines().skip(1).filter(|line| !line.trim().is_empty() && !is_quoted(line)).collect();
    format!("not TOML at {place}: {}", why.join(", "))
}

fn found(actual: &Actual, is_in_table: bool) -> String {
    match actual {
        Actual::Bool(on) => format!("`{on}`"),
        Actual::Unsigned(number) => format!("`{number}`"),
        Actual::Signed(number) => format!("`{number}`"),
        Actual::Float(number) => format!("`{number}`"),
        Actual::Str(text) if !is_in_table => format!("`{}`", shown(text)),
        Actual::Str(_) | Actual::Char(_) | Actual::Bytes(_) => "text".to_owned(),
        Actual::Seq => "a list".to_owned(),
        Actual::Map => "a table".to_owned(),
        _ => "something else".to_owned(),
    }
}

/// Returns what a type of Rust is to people.
fn wanted(expected: &str) -> String {
    match expected.trim_matches('`') {
        "usize" | "u8" | "u16" | "u32" | "u64" => "a whole number, 0 or more".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "`true` or `false`".to_owned(),
        "a string" | "string" => "text in quotes".to_owned(),
        "a sequence" => "a list in brackets".to_owned(),
        "a map" => "a table".to_owned(),
        text if text.starts_with("struct ") || text.contains("internally tagged") => "a table".to_owned(),
        _ => expected.to_owned(),
    }
}

fn one_of(names: &[&str]) -> String {
    format!("one of {}", names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_library_become_ours() {
        let text = || Actual::Str("many".into());
        for (kind, said) in [
            (Kind::InvalidType(text(), "usize".into()), "found `many`, expected a whole number, 0 or more"),
            (Kind::InvalidType(Actual::Unsigned(1), "a boolean".into()), "found `1`, expected `true` or `false`"),
            (Kind::InvalidType(Actual::Seq, "struct WebOptions".into()), "found a list, expected a table"),
            (Kind::InvalidValue(Actual::Signed(-1), "u32".into()), "found `-1`, expected a whole number, 0 or more"),
            (Kind::UnknownVariant("a".into(), &["b", "c"]), "found `a`, expected one of `b`, `c`"),
            (Kind::MissingField("url".into()), "`url` is missing"),
            (Kind::Message("`soon` is not a time".into()), "`soon` is not a time"),
            (Kind::Message("unknown field `modle`, expected `model`".into()), "there is no such setting as `modle`"),
        ] {
            assert_eq!(complaint(kind, false), said);
        }
    }

    #[test]
    fn text_in_a_table_is_not_shown_and_neither_is_a_key_elsewhere() {
        let key = || "sk-secret".to_owned();
        let quoted = "TOML parse error at line 2, column 5\n  |\n2 | key=sk-secret\n  |     ^\ninvalid string\nexpected `\"`, `'`\n";
        for (kind, is_in_table, said) in [
            (Kind::InvalidType(Actual::Str(key()), "f64".into()), true, "found text, expected a number"),
            (Kind::InvalidType(Actual::Str(key()), "f64".into()), false, "found `…`, expected a number"),
            (Kind::UnknownVariant(key(), &["b"]), true, "expected one of `b`"),
            (Kind::UnknownVariant(key(), &["b"]), false, "found `…`, expected one of `b`"),
            (
                Kind::Message("invalid type: string \"sk-secret\", expected u64".into()),
                true,
                "expected a whole number, 0 or more",
            ),
            (Kind::Message(quoted.into()), false, "not TOML at line 2, column 5: invalid string, expected `\"`, `'`"),
        ] {
            assert_eq!(complaint(kind, is_in_table), said);
        }
    }
}
