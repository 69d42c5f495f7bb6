//! Layers of settings. Each is validated separately, so that an error names the file, variable or flag.

use std::path::Path;

use figment::error::Kind as Complaint;
use figment::providers::{Format, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Metadata, Profile, Provider};

use super::ConfigError;
use super::kind::found;
use super::rows::SETTINGS;
use super::setting::{Project, Setting, value_of_text};
use crate::base::environment::Environment;
use crate::base::file::read_text;
use crate::base::http::shown;
use crate::llm::message::Role;

/// Largest settings file that is read, in bytes.
pub(super) const MAX_FILE_BYTES: u64 = 1_000_000;

/// Origin of a value that was not set.
pub(crate) const DEFAULT: &str = "default";

/// Settings typed as flags.
#[derive(Clone, Debug, Default)]
pub struct Flags(Vec<(&'static str, Value)>);

impl Flags {
    /// Adds a setting if its flag was given.
    #[must_use]
    pub fn set<V: Into<Value>>(mut self, name: &'static str, value: Option<V>) -> Self {
        self.0.extend(value.map(|value| (name, value.into())));
        self
    }
}

/// The values of one origin: the defaults, a file, a variable, or a flag.
pub(super) struct Layer {
    origin: String,
    values: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.origin.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Map::from([(Profile::Default, self.values.clone())]))
    }
}

impl Layer {
    /// Returns the defaults of the rows.
    pub(super) fn defaults() -> Result<Self, ConfigError> {
        let lines = SETTINGS.iter().filter_map(|setting| Some(format!("{} = {}\n", setting.name, setting.default?)));
        let values = values_of(&Toml::string(&lines.collect::<String>()), DEFAULT)?;
        Self::checked(DEFAULT, values, LayerKind::Default)
    }

    /// Reads the user's file or that of a project, whether trusted or not. A missing file sets nothing.
    pub(super) fn file(path: &Path, place: FileOwner) -> Result<Self, ConfigError> {
        let origin = path.display().to_string();
        let text = match path.metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            // Reading a pipe could block.
            Ok(metadata) if !metadata.is_file() => Err(std::io::Error::other("not a regular file")),
            _ => read_text(path, MAX_FILE_BYTES),
        };
        let text = text.map_err(|error| ConfigError::Invalid {
            origin: format!("`{origin}`"),
            reason: error.to_string(),
            hint: None,
        })?;
        let values = values_of(&Toml::string(&text), &origin)?;
        Self::checked(&origin, values, LayerKind::File(place))
    }

    /// Drops values that are looser than those of the layers beneath, for settings where only a stricter value
    /// counts.
    pub(super) fn no_looser_than(mut self, beneath: &[&Self]) -> Self {
        // Including the defaults: a project cannot loosen a setting that the user has not set either.
        let users = |path: &[String]| beneath.iter().rev().find_map(|layer| at(&layer.values, path));
        retain(&[], &mut self.values, &|path, value| match (find(path), users(path)) {
            (ItemKind::Setting(setting), Some(users)) => !setting.keeps(users, value),
            _ => true,
        });
        self
    }

    /// Returns one layer per variable that is set.
    pub(super) fn variables(environment: &Environment) -> Result<Vec<Self>, ConfigError> {
        let settings = SETTINGS.iter().filter(|setting| setting.has_variable);
        let variables = settings.filter_map(|setting| {
            let name = setting.variable_name();
            let text = environment.get(&name)?;
            Some((name.clone(), setting.name.to_owned(), value_of_text(setting.kind, text)))
        });
        variables
            .map(|(name, key, value)| Self::checked(&name, Dict::from([(key, value)]), LayerKind::Variable))
            .collect()
    }

    /// Returns one layer per flag.
    pub(super) fn flags(flags: &Flags) -> Result<Vec<Self>, ConfigError> {
        let layer = |(name, value): &(&str, Value)| {
            let origin = format!("--{}", name.replace('_', "-"));
            Self::checked(&origin, Dict::from([((*name).to_owned(), value.clone())]), LayerKind::Flag)
        };
        flags.0.iter().map(layer).collect()
    }

    fn checked(origin: &str, values: Dict, place: LayerKind) -> Result<Self, ConfigError> {
        let values = LayerCheck { origin, place }.table(&[], values)?;
        Ok(Self { origin: origin.to_owned(), values })
    }
}

/// The item at a path in a file.
#[derive(Clone, Copy)]
pub(super) enum ItemKind {
    Setting(&'static Setting),
    Table,
    Unknown,
}

/// Finds the item at a path. A table `[models.ROLE]` has the settings of `[models]`.
pub(super) fn find(path: &[String]) -> ItemKind {
    let path: Vec<&str> = match path {
        [first, role, rest @ ..] if first == "models" && role.parse::<Role>().is_ok() => {
            std::iter::once("models").chain(rest.iter().map(String::as_str)).collect()
        }
        path => path.iter().map(String::as_str).collect(),
    };
    let is_free = |part: &str| matches!(part, "MODEL" | "NAME" | "PATH");
    let mut found = ItemKind::Unknown;
    for setting in SETTINGS {
        let mut parts = setting.name.split('.');
        if !path.iter().all(|part| parts.next().is_some_and(|known| known == *part || is_free(known))) {
            continue;
        }
        match parts.next() {
            None => return ItemKind::Setting(setting),
            Some(_) => found = ItemKind::Table,
        }
    }
    found
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FileOwner {
    User,
    Project { is_trusted: bool },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LayerKind {
    Default,
    File(FileOwner),
    Variable,
    Flag,
}

struct LayerCheck<'a> {
    origin: &'a str,
    place: LayerKind,
}

impl LayerCheck<'_> {
    fn table(&self, above: &[String], values: Dict) -> Result<Dict, ConfigError> {
        let checked = values.into_iter().map(|(name, value)| {
            let path: Vec<_> = above.iter().chain([&name]).cloned().collect();
            Ok((name, self.value(&path, value)?))
        });
        checked.collect()
    }

    fn value(&self, path: &[String], value: Value) -> Result<Value, ConfigError> {
        match (find(path), value) {
            (ItemKind::Table, Value::Dict(tag, values)) => Ok(Value::Dict(tag, self.table(path, values)?)),
            (ItemKind::Table, value) => {
                Err(self.invalid(path, format!("found {}, expected a table", found(&value, path.len() > 1)), None))
            }
            (ItemKind::Setting(setting), value) => self.setting(setting, path, &value),
            (ItemKind::Unknown, _) => Err(self.invalid(path, "there is no such setting".to_owned(), alike(path))),
        }
    }

    fn setting(&self, setting: &Setting, path: &[String], value: &Value) -> Result<Value, ConfigError> {
        let read = setting.kind.read(value).map_err(|expected| {
            let reason = format!("found {}, expected {expected}", found(value, path.len() > 1));
            self.invalid(path, reason, Some(self.example(setting, path)))
        })?;
        let LayerKind::File(FileOwner::Project { is_trusted }) = self.place else { return Ok(read) };
        if setting.is_open_to_projects(&read, is_trusted) {
            return Ok(read);
        }
        let (file, key) = (self.origin.to_owned(), typed(path));
        let flag = setting.has_flag.then(|| setting.flag_name());
        Err(match setting.project {
            Project::IfTrusted => ConfigError::Untrusted { file, key, flag },
            Project::Only(_, values) => ConfigError::NotForProjects { file, key, flag, only: Some(values) },
            Project::May | Project::MayNot | Project::Stricter(_) => {
                ConfigError::NotForProjects { file, key, flag, only: None }
            }
        })
    }

    fn example(&self, setting: &Setting, path: &[String]) -> String {
        let example = setting.example();
        match self.place {
            LayerKind::Default | LayerKind::File(_) => format!("for example `{} = {example}`", typed(path)),
            LayerKind::Variable => format!("for example `{}={}`", self.origin, example.trim_matches('"')),
            LayerKind::Flag => format!("for example `{} {}`", self.origin, example.trim_matches('"')),
        }
    }

    fn invalid(&self, path: &[String], reason: String, hint: Option<String>) -> ConfigError {
        let origin = match self.place {
            LayerKind::Default | LayerKind::File(_) => format!("`{}` in `{}`", typed(path), self.origin),
            LayerKind::Variable | LayerKind::Flag => format!("`{}`", self.origin),
        };
        ConfigError::Invalid { origin, reason, hint }
    }
}

fn at<'a>(values: &'a Dict, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    match (values.get(first)?, rest) {
        (value, []) => Some(value),
        (Value::Dict(_, values), rest) => at(values, rest),
        _ => None,
    }
}

/// Keeps the values for which a test of path and value passes.
fn retain(above: &[String], values: &mut Dict, is_kept: &impl Fn(&[String], &Value) -> bool) {
    values.retain(|name, value| {
        let path: Vec<_> = above.iter().chain([name]).cloned().collect();
        match value {
            Value::Dict(_, values) => {
                retain(&path, values, is_kept);
                true
            }
            value => is_kept(&path, value),
        }
    });
}

/// Formats a path as it is typed in a file. Parts that look like a key are hidden.
fn typed(path: &[String]) -> String {
    let is_bare = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    let part = |part: &String| match shown(part) {
        part if is_bare(&part) => part,
        part => format!("\"{part}\""),
    };
    path.iter().map(part).collect::<Vec<_>>().join(".")
}

/// Parses a file or text as TOML.
fn values_of(toml: &impl Provider, origin: &str) -> Result<Dict, ConfigError> {
    let values = toml.data().map_err(|error| ConfigError::Invalid {
        origin: format!("`{origin}`"),
        reason: complaint(error.kind),
        hint: None,
    })?;
    Ok(values.into_values().next().unwrap_or_default())
}

/// Returns the reason a file is invalid, without the line the parser quotes, which may contain a key.
pub(super) fn complaint(kind: Complaint) -> String {
    match kind {
        Complaint::MissingField(name) => format!("`{name}` is missing"),
        Complaint::Message(text) => match text.strip_prefix("TOML parse error at ") {
            Some(rest) => syntax(rest),
            None => "it cannot be read".to_owned(),
        },
        // Not reached: values were validated in their layer, so only a missing field is left.
        _ => "it cannot be used".to_owned(),
    }
}

/// Returns the position and reason of a syntax error.
fn syntax(text: &str) -> String {
    let place = text.lines().next().unwrap_or_default();
    // The parser draws the quoted line and the mark below it next to a bar.
    let is_quoted = |line: &str| {
        line.trim_start().trim_start_matches(|digit: char| digit.is_ascii_digit()).trim_start().starts_with('|')
    };
    let why: Vec<_> = text.lines().skip(1).filter(|line| !line.trim().is_empty() && !is_quoted(line)).collect();
    format!("not TOML at {place}: {}", why.join(", "))
}

/// Suggests the setting of the same table whose name is most similar to an unknown one.
fn alike(path: &[String]) -> Option<String> {
    let (name, above) = path.split_last()?;
    let known = SETTINGS.iter().filter_map(|setting| {
        let candidate = setting.name.rsplit('.').next()?;
        let path: Vec<_> = above.iter().cloned().chain([candidate.to_owned()]).collect();
        let is_there = matches!(find(&path), ItemKind::Setting(found) if found.name == setting.name);
        is_there.then(|| (strsim::levenshtein(name, candidate), candidate))
    });
    let (distance, best) = known.min()?;
    (distance <= 2).then(|| format!("did you mean `{best}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_name_that_is_like_a_known_one_is_taken_for_a_slip() {
        let alike = |path: &[&str]| alike(&path.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>());
        assert_eq!(alike(&["limti"]).unwrap(), "did you mean `limit`?");
        assert_eq!(alike(&["web", "fetsh"]).unwrap(), "did you mean `fetch`?");
        assert_eq!(alike(&["models", "worker", "modle"]).unwrap(), "did you mean `model`?");
        assert_eq!(alike(&["web", "modle"]), None, "`[web]` has no `model`");
        assert_eq!(alike(&["colour"]), None);
    }

    #[test]
    fn file_that_is_not_toml_is_said_without_the_line_it_quotes() {
        let quoted = "TOML parse error at line 2, column 5\n  |\n2 | key=sk-secret\n  |     ^\ninvalid string\nexpected `\"`, `'`\n";
        let said = complaint(Complaint::Message(quoted.into()));
        assert_eq!(said, "not TOML at line 2, column 5: invalid string, expected `\"`, `'`");
        assert_eq!(complaint(Complaint::Message("found sk-secret".into())), "it cannot be read");
    }
}
