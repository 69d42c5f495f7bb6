//! Results as JSON with a stated schema version.

use serde::Serialize;

use crate::base::line::is_invisible;

/// Version of every JSON object `dr` prints, the report aside, which has its own.
pub const SCHEMA_VERSION: u32 = 1;

/// An object with the version of its form in front.
#[derive(Serialize)]
struct Versioned<'a, T> {
    schema_version: u32,
    #[serde(flatten)]
    value: &'a T,
}

/// Returns a value as an indented JSON object that states its schema version.
///
/// # Errors
///
/// Returns an error for a value that is not an object.
pub fn versioned<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    Ok(escaped(&serde_json::to_string_pretty(&Versioned { schema_version: SCHEMA_VERSION, value })?))
}

/// Returns a value as indented JSON as it is.
///
/// # Errors
///
/// Returns an error for a value JSON cannot say.
pub fn plain<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    Ok(escaped(&serde_json::to_string_pretty(value)?))
}

/// Returns the same JSON with letters that a terminal obeys or nobody sees as `\u009b`; they stand in strings alone.
fn escaped(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for letter in json.chars() {
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
