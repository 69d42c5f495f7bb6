//! Environment variables, and the keys they hold.
//!
//! A key is never in a settings file: it is in a variable, and a setting (`key_env`) names that variable. OpenAI's
//! key may also be in the project's `.env` file, if the user trusts that folder. That file comes with a folder which
//! someone else may have made, so nothing else in it is read: no address, no setting.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use super::http::{Secret, shown};

/// The variable that holds OpenAI's key.
pub(crate) const OPENAI_KEY: &str = "OPENAI_API_KEY";

/// The variable that holds the address of an OpenAI-compatible endpoint for every role.
pub(crate) const OPENAI_BASE_URL: &str = "OPENAI_BASE_URL";

/// Largest `.env` file that is read, in bytes.
const MAX_BYTES: u64 = 64 * 1_024;

/// The variables of this process, as they were when it started. Empty ones count as not set.
#[derive(Clone, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<String, String>,
    /// Use of the key in the `.env` file.
    dotenv: Dotenv,
}

/// Use of OpenAI's key in the `.env` file of a project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dotenv {
    /// There is none, or a variable of the environment overrides it.
    #[default]
    Unused,
    Used,
    /// It would be used if the user trusted the folder.
    Ignored,
}

/// A setting names a variable that holds no usable key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text cannot be the name of a variable. It is not shown: it may be the key itself.
    #[error("`key_env` is not the name of a variable")]
    BadName,
    #[error("`{variable}` is not set")]
    NotSet { variable: String },
    #[error("`{variable}` has characters that cannot be sent")]
    Unsendable { variable: String },
}

impl KeyError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::BadName => "name the variable that holds the key, for example `key_env = \"MY_API_KEY\"`".to_owned(),
            Self::NotSet { variable } => format!("export `{variable}`"),
            Self::Unsendable { .. } => "a key is one word of letters, digits and signs".to_owned(),
        }
    }
}

impl Environment {
    /// Reads the variables of this process. If none holds OpenAI's key, it is taken from the file `dotenv` of a trusted
    /// folder.
    pub(crate) fn read(dotenv: &Path, is_trusted: bool) -> Self {
        Self::of_process().with_dotenv(dotenv, is_trusted)
    }

    /// Reads the variables of this process.
    pub(crate) fn of_process() -> Self {
        let text = |text: std::ffi::OsString| text.into_string().ok();
        // `std::env::vars` panics on a variable that is not UTF-8.
        Self::of(std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))))
    }

    /// Creates an environment from these variables.
    pub(crate) fn of<N: Into<String>, V: Into<String>>(variables: impl IntoIterator<Item = (N, V)>) -> Self {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        Self { variables: variables.filter(|(_, value)| !value.is_empty()).collect(), dotenv: Dotenv::Unused }
    }

    fn with_dotenv(mut self, file: &Path, is_trusted: bool) -> Self {
        if self.get(OPENAI_KEY).is_none()
            && let Some(key) = dotenv_value(file, OPENAI_KEY).filter(|key| key.parse::<Secret>().is_ok())
        {
            if is_trusted {
                self.variables.insert(OPENAI_KEY.to_owned(), key);
            }
            self.dotenv = if is_trusted { Dotenv::Used } else { Dotenv::Ignored };
        }
        self
    }

    /// Returns a variable that is set.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns how the key in the project's `.env` file is used.
    pub(crate) fn dotenv(&self) -> Dotenv {
        self.dotenv
    }

    /// Returns the key in a variable.
    ///
    /// # Errors
    ///
    /// Returns an error without a usable key. It never shows a key, not even one given in place of the name.
    pub(crate) fn key(&self, variable: &str) -> Result<Secret, KeyError> {
        if !is_variable(variable) {
            return Err(KeyError::BadName);
        }
        let key = self.get(variable).ok_or_else(|| KeyError::NotSet { variable: shown(variable) })?;
        key.parse().map_err(|_| KeyError::Unsendable { variable: shown(variable) })
    }

    /// Returns the key in the variable that settings name, if they name one.
    pub(crate) fn key_in(&self, variable: Option<&str>) -> Result<Option<Secret>, KeyError> {
        variable.map(|variable| self.key(variable)).transpose()
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Environment({} variables)", self.variables.len())
    }
}

/// Returns whether a text can be the name of a variable.
pub(crate) fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns the value of `name` in a `.env` file, unless it is empty.
fn dotenv_value(file: &Path, name: &str) -> Option<String> {
    // The folder may be someone else's: a pipe would block, and an endless file would fill the memory.
    let is_small = std::fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_BYTES);
    let text = is_small.then(|| std::fs::read_to_string(file).ok()).flatten()?;
    // As in a shell, the last line wins.
    text.lines().rev().find_map(|line| value_of(line, name)).filter(|value| !value.is_empty())
}

/// Reads `NAME=value`, with or without `export`, quotes, and a trailing comment.
fn value_of(line: &str, name: &str) -> Option<String> {
    let line = line.trim();
    let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
    let value = line.strip_prefix(name)?.trim_start().strip_prefix('=')?.trim();
    let quoted = ['"', '\''].into_iter().find_map(|quote| value.strip_prefix(quote)?.split_once(quote));
    let value = match quoted {
        Some((inside, _)) => inside,
        // Without a space before it, `#` is part of the value.
        None => value.split(" #").next().unwrap_or(value).trim_end(),
    };
    Some(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_read_in_every_usual_form() {
        for line in ["KEY=sk-1", " export KEY = sk-1 ", "KEY=\"sk-1\" # mine", "KEY='sk-1'", "KEY=sk-1 # mine"] {
            assert_eq!(value_of(line, "KEY").as_deref(), Some("sk-1"), "{line}");
        }
        for line in ["# KEY=sk-1", "KEYS=sk-1", "MY_KEY=sk-1", "KEY", ""] {
            assert_eq!(value_of(line, "KEY"), None, "{line}");
        }
    }

    #[test]
    fn last_line_wins_and_nothing_is_no_value() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(".env");
        assert_eq!(dotenv_value(&file, "KEY"), None);
        std::fs::write(&file, "KEY=a\nKEY=b\nOTHER=\n").unwrap();
        assert_eq!(dotenv_value(&file, "KEY").as_deref(), Some("b"));
        assert_eq!(dotenv_value(&file, "OTHER"), None);
    }

    #[test]
    fn dotenv_gives_the_key_of_openai_where_no_variable_does_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(".env");
        std::fs::write(&file, "OPENAI_API_KEY=sk-file\nOPENAI_BASE_URL=https://elsewhere.example\nMINE=k\n").unwrap();
        let environment = Environment::of([("OTHER", "x")]).with_dotenv(&file, true);
        assert_eq!(environment.key(OPENAI_KEY), Ok("sk-file".parse().unwrap()));
        assert_eq!(environment.dotenv(), Dotenv::Used);
        let untrusted = Environment::of([("OTHER", "x")]).with_dotenv(&file, false);
        assert_eq!((untrusted.get(OPENAI_KEY), untrusted.dotenv()), (None, Dotenv::Ignored));
        assert_eq!((environment.get(OPENAI_BASE_URL), environment.get("MINE")), (None, None));
        let environment = Environment::of([(OPENAI_KEY, "sk-own")]).with_dotenv(&file, true);
        assert_eq!(environment.key(OPENAI_KEY), Ok("sk-own".parse().unwrap()));
        assert_eq!(environment.dotenv(), Dotenv::Unused);
        let empty = Environment::of([(OPENAI_KEY, "")]);
        assert_eq!(empty.get(OPENAI_KEY), None, "an empty variable counts as not set");
    }

    #[test]
    fn error_about_a_key_shows_no_key_also_where_the_key_stands_for_the_name() {
        let environment = Environment::of([("MINE", "tvly-secret and more"), ("GOOD", "sk-1")]);
        for (name, expected) in [
            ("sk-secret", KeyError::BadName),
            ("", KeyError::BadName),
            ("a1b2c3d4e5f6secret", KeyError::NotSet { variable: "…".into() }),
            ("EXA_API_KEY", KeyError::NotSet { variable: "EXA_API_KEY".into() }),
            ("MINE", KeyError::Unsendable { variable: "MINE".into() }),
        ] {
            let error = environment.key(name).unwrap_err();
            assert_eq!(error, expected, "{name}");
            let said = format!("{error} {error:?} {} {environment:?}", error.hint());
            assert!(!said.contains("secret"), "{said}");
        }
        assert!(environment.key("GOOD").is_ok());
    }
}
