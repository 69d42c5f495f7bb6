//! Settings, and where each one came from.
//!
//! Later wins: defaults, the user's file, the project's file (`dr.toml` beside `.dr/`), `DR_*` variables, flags. The
//! project's file travels with a folder that may be somebody else's, so it sets nothing that reaches out: no address of
//! an index, no folder to load a model from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml};
use serde::{Deserialize, Serialize};

use crate::kb::embed::EmbedderChoice;
use crate::kb::search::SearchMode;

/// Name of the project's file.
pub const PROJECT_FILE: &str = "dr.toml";

/// What can be set, every field optional: one layer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Where the index is: a folder, or the address of an object store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// Which embedder makes vectors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedder: Option<EmbedderChoice>,
    /// Whether the network may not be touched.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "yes_or_no")]
    pub offline: Option<bool>,
    /// Threads the embedder computes with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// How `dr search` searches unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<SearchMode>,
    /// Hits `dr search` returns unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Folders of this user, and the one the command was started in.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The folder the command was started in.
    pub current: PathBuf,
    /// The user's settings.
    pub user_file: PathBuf,
    /// Downloaded models.
    pub models: PathBuf,
    /// Where a library of `dr`'s own may lie.
    pub data: PathBuf,
}

/// Settings, resolved.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Values of all layers.
    pub options: Options,
    /// Where each value came from; what is not here has its default.
    pub origins: BTreeMap<&'static str, String>,
    /// Folders.
    pub paths: Paths,
}

/// Settings could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file, variable or flag has a value that cannot be used.
    #[error("{origin}: {reason}")]
    Invalid {
        /// The file, the variable or the flag, and the setting.
        origin: String,
        /// What is wrong with it.
        reason: String,
    },

    /// The project's file sets what only the user may.
    #[error("`{file}` sets `{key}`, which a project may not")]
    NotForProjects {
        /// The file.
        file: PathBuf,
        /// The setting.
        key: &'static str,
    },

    /// There is no home folder.
    #[error("home folder is not known")]
    NoHome(#[source] etcetera::HomeDirError),

    /// The current folder cannot be used.
    #[error("current folder cannot be read")]
    NoCurrent(#[source] std::io::Error),
}

impl ConfigError {
    /// Returns what the user can do about this error.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotForProjects { key, .. } => Some(format!("set `{key}` in your own settings, or by a flag")),
            Self::Invalid { .. } => Some("`kb/reference/configuration.md` in dr's manual lists the settings".into()),
            Self::NoHome(_) | Self::NoCurrent(_) => None,
        }
    }
}

impl Paths {
    /// Finds the folders of this user.
    pub fn find() -> Result<Self, ConfigError> {
        let base = etcetera::choose_base_strategy().map_err(ConfigError::NoHome)?;
        Ok(Self {
            current: std::env::current_dir().map_err(ConfigError::NoCurrent)?,
            user_file: base.config_dir().join("dr").join("config.toml"),
            models: base.cache_dir().join("dr").join("models"),
            data: base.data_dir().join("dr"),
        })
    }
}

impl Settings {
    /// Folds the layers; `project` is the folder that holds `.dr`.
    ///
    /// # Errors
    ///
    /// Returns an error that names the file or variable for a value that cannot be used or a setting that does not
    /// exist.
    pub fn resolve(paths: Paths, project: &Path, flags: &Options) -> Result<Self, ConfigError> {
        let project_file = project.join(PROJECT_FILE);
        check_project_file(&project_file)?;
        let variables = Env::prefixed("DR_").only(&["index", "embedder", "offline", "threads", "mode", "limit"]);
        let figment =
            Figment::new()
                .merge(Toml::file(&paths.user_file))
                .merge(Toml::file(&project_file))
                .merge(variables.filter(|key| {
                    std::env::var(format!("DR_{key}").to_uppercase()).is_ok_and(|value| !value.is_empty())
                }))
                .merge(Serialized::defaults(flags));
        let options: Options = figment.extract().map_err(invalid)?;
        let origins = ["index", "embedder", "offline", "threads", "mode", "limit"]
            .into_iter()
            .filter_map(|key| Some((key, origin(&figment, key)?)))
            .collect();
        Ok(Self { options, origins, paths })
    }

    /// Tells whether the network may not be touched.
    pub fn is_offline(&self) -> bool {
        self.options.offline.unwrap_or(false)
    }

    /// Returns every setting with its value and where it came from.
    pub fn explained(&self) -> Vec<(&'static str, String, String)> {
        let Options { index, embedder, offline, threads, mode, limit } = &self.options;
        let shown = |value: Option<String>, default: &str| value.unwrap_or_else(|| default.to_owned());
        let mode = mode.map(|mode| format!("{mode:?}").to_lowercase());
        let values = [
            ("index", shown(index.clone(), "nearest .dr")),
            ("embedder", shown(embedder.as_ref().map(ToString::to_string), "the one of the index, else builtin")),
            ("offline", shown(offline.map(|offline| offline.to_string()), "false")),
            ("threads", shown(threads.map(|threads| threads.to_string()), "all cores")),
            ("mode", shown(mode, "hybrid")),
            ("limit", shown(limit.map(|limit| limit.to_string()), "10")),
        ];
        let origin = |key| self.origins.get(key).cloned().unwrap_or_else(|| "default".to_owned());
        values.into_iter().map(|(key, value)| (key, value, origin(key))).collect()
    }
}

fn check_project_file(file: &Path) -> Result<(), ConfigError> {
    let figment = Figment::from(Toml::file(file));
    let options: Options = figment.extract().map_err(invalid)?;
    let forbidden = |key| Err(ConfigError::NotForProjects { file: file.to_path_buf(), key });
    if options.index.is_some() {
        return forbidden("index");
    }
    match options.embedder {
        Some(EmbedderChoice::Fastembed(model)) if model.contains(['/', '\\', '.']) || Path::new(&model).exists() => {
            forbidden("embedder")
        }
        _ => Ok(()),
    }
}

/// Returns where a value came from: a file, a variable, or a flag.
fn origin(figment: &Figment, key: &'static str) -> Option<String> {
    figment.find_metadata(key).map(|metadata| origin_of(metadata, key))
}

fn origin_of(metadata: &figment::Metadata, key: &str) -> String {
    match &metadata.source {
        Some(figment::Source::File(file)) => file.display().to_string(),
        _ if metadata.name.contains("environment") => format!("DR_{}", key.to_uppercase()),
        _ => format!("--{key}"),
    }
}

/// Says which setting of which layer is wrong, in the words of `dr`.
fn invalid(error: figment::Error) -> ConfigError {
    let key = error.path.join(".").to_lowercase();
    let source = error.metadata.as_ref().map(|metadata| origin_of(metadata, &key)).unwrap_or_default();
    let origin = if Path::new(&source).extension().is_some() && !key.is_empty() {
        format!("`{key}` in `{source}`")
    } else {
        format!("`{source}`")
    };
    let reason = match error.kind {
        figment::error::Kind::UnknownField(..) => "there is no such setting".to_owned(),
        kind => kind.to_string(),
    };
    ConfigError::Invalid { origin, reason }
}

/// Reads a switch as people write it: `true`, `1`, `yes`, `on`, and their opposites.
fn yes_or_no<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Switch {
        Bool(bool),
        Number(u8),
        Word(String),
    }
    let wrong = |found: &str| serde::de::Error::custom(format!("found `{found}`, expected `true` or `false`"));
    match Switch::deserialize(deserializer)? {
        Switch::Bool(on) => Ok(Some(on)),
        Switch::Number(number @ (0 | 1)) => Ok(Some(number == 1)),
        Switch::Number(number) => Err(wrong(&number.to_string())),
        Switch::Word(word) => match word.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Ok(Some(true)),
            "false" | "no" | "off" => Ok(Some(false)),
            _ => Err(wrong(&word)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(user: &str, project: &str, flags: &Options) -> Result<Settings, ConfigError> {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths {
            current: folder.path().to_path_buf(),
            user_file: folder.path().join("config.toml"),
            models: folder.path().join("models"),
            data: folder.path().join("data"),
        };
        std::fs::write(&paths.user_file, user).unwrap();
        std::fs::create_dir(folder.path().join("project")).unwrap();
        std::fs::write(folder.path().join("project/dr.toml"), project).unwrap();
        Settings::resolve(paths, &folder.path().join("project"), flags)
    }

    #[test]
    fn flag_beats_project_beats_user_and_each_value_knows_its_origin() {
        let flags = Options { limit: Some(3), ..Options::default() };
        let settings =
            resolve("limit = 5\nmode = \"vector\"\nthreads = 1\n", "limit = 4\nmode = \"lexical\"\n", &flags).unwrap();
        assert_eq!(settings.options.limit, Some(3));
        assert_eq!(settings.options.mode, Some(SearchMode::Lexical));
        assert_eq!(settings.options.threads, Some(1));
        assert_eq!(settings.origins["limit"], "--limit");
        assert!(settings.origins["mode"].ends_with("dr.toml"));
        assert!(settings.origins["threads"].ends_with("config.toml"));
        assert!(!settings.origins.contains_key("offline"));
    }

    #[test]
    fn project_may_not_say_where_the_index_is_or_which_file_to_load() {
        for text in ["index = \"s3://bucket/kb\"", "embedder = \"fastembed:./model\""] {
            let error = resolve("", text, &Options::default()).unwrap_err();
            assert!(matches!(error, ConfigError::NotForProjects { .. }), "{text}");
        }
        assert!(resolve("index = \"/srv/index\"", "embedder = \"builtin\"", &Options::default()).is_ok());
    }

    #[test]
    fn switch_is_read_as_people_write_it() {
        for (text, on) in [("true", true), ("1", true), ("\"yes\"", true), ("\"off\"", false), ("0", false)] {
            let settings = resolve(&format!("offline = {text}"), "", &Options::default()).unwrap();
            assert_eq!(settings.is_offline(), on, "{text}");
        }
        let error = resolve("offline = \"perhaps\"", "", &Options::default()).unwrap_err();
        assert!(error.to_string().ends_with("found `perhaps`, expected `true` or `false`"), "{error}");
    }

    #[test]
    fn misspelt_setting_is_named_with_its_file() {
        let error = resolve("", "limti = 3", &Options::default()).unwrap_err();
        let chain = format!("{:#}", anyhow::Error::from(error));
        assert!(chain.contains("limti") && chain.contains("dr.toml"), "{chain}");
    }
}
