//! JSON output with a schema version.

use serde::Serialize;

use crate::base::line::is_invisible;

/// Schema version of every JSON object printed by `dr` except the report, which has its own.
pub(crate) const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Versioned<'a, T> {
    schema_version: u32,
    #[serde(flatten)]
    value: &'a T,
}

/// Serialises a value as an indented JSON object with `schema_version` first.
///
/// # Errors
///
/// Returns an error for a value that is not an object.
pub(crate) fn versioned<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    Ok(escaped(&serde_json::to_string_pretty(&Versioned { schema_version: SCHEMA_VERSION, value })?))
}

/// As [`versioned`], on one line.
///
/// # Errors
///
/// Returns an error for a value that is not an object.
pub(crate) fn versioned_line<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    line(&Versioned { schema_version: SCHEMA_VERSION, value })
}

/// Serialises a value as indented JSON without a version.
///
/// # Errors
///
/// Returns an error for a value that JSON cannot represent.
pub(crate) fn plain<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    Ok(escaped(&serde_json::to_string_pretty(value)?))
}

/// Serialises a value as JSON on one line.
///
/// # Errors
///
/// Returns an error for a value that JSON cannot represent.
pub(crate) fn line<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    Ok(escaped(&serde_json::to_string(value)?))
}

/// Escapes control and invisible characters as `\u009b`, so that printing the JSON cannot control a terminal. They
/// occur only inside strings, so the result is the same JSON.
pub(crate) fn escaped(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for letter in json.chars() {
        // A line end is layout: JSON has escaped those in strings.
        if letter.is_control() && letter != '\n' || is_invisible(letter) {
            let units =
                letter.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
            safe.push_str(&units);
        } else {
            safe.push(letter);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_do_something_are_escaped_and_read_back_as_they_were() {
        let text = "a\u{9b}31m\u{7f}\u{202e}\u{e0041}\n\u{1b}é";
        let json = plain(&[text]).unwrap();
        assert_eq!(json, "[\n  \"a\\u009b31m\\u007f\\u202e\\udb40\\udc41\\n\\u001bé\"\n]");
        assert_eq!(serde_json::from_str::<[String; 1]>(&json).unwrap(), [text]);
    }
}
