//! Results as JSON with a stated schema version.

use serde::Serialize;

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
    serde_json::to_string_pretty(&Versioned { schema_version: SCHEMA_VERSION, value })
}

/// Returns a value as indented JSON as it is.
///
/// # Errors
///
/// Returns an error for a value JSON cannot say.
pub fn plain<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(value)
}
