//! Settings, and where each one came from.
//!
//! Later wins: defaults, the user's file, the project's file (`dr.toml` beside `.dr/`), `DR_*` variables, flags. The
//! project's file travels with a folder that may be somebody else's, so it sets nothing that reaches out or costs: no
//! address of an index or of a model, no key, no price, no folder to load a model from.

mod limits;

mod complaint;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use etcetera::BaseStrategy;
use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml};
use figment::value::{Tag, Value};
use serde::{Deserialize, Serialize};

pub use crate::source::deep_research::MOST_JOBS;
use complaint::complaint;
pub use limits::{MAX_PARALLEL, dollars, duration};

use crate::base::clock::SystemClock;
use crate::base::environment::{Environment, KeyError, OPENAI_BASE_URL, OPENAI_KEY, is_variable};
use crate::base::http::{BaseUrl, shown};
use crate::base::money::dollars_text;
use crate::kb::embed::EmbedderChoice;
use crate::kb::search::SearchMode;
use crate::llm::price::{PriceError, PriceOptions, PriceTable};
use crate::llm::roles::{ModelOptions, Models, ModelsError, ModelsOptions};
use crate::source::deep_research::{DeepResearchError, DeepResearchOptions, DeepResearchSettings};
use crate::source::web::{DateRange, SearchEngine, WebAccess, WebEnvironment, WebOptions, WebSettingsError};

/// Name of the project's file.
pub const PROJECT_FILE: &str = "dr.toml";

/// Name of the file a key may be in, beside the project's.
const DOTENV_FILE: &str = ".env";

/// Settings that are one value, each also a variable `DR_…`.
const KEYS: [&str; 14] = [
    "index",
    "embedder",
    "offline",
    "threads",
    "mode",
    "limit",
    "model",
    "max_cost",
    "max_tokens",
    "max_time",
    "max_rounds",
    "max_depth",
    "parallel",
    "summary_tokens",
];

/// Settings that are tables.
const TABLES: [&str; 5] = ["models", "prices", "web", "deep_research", "collections"];

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
    /// The language model of every role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Most a run may cost, in US dollars; infinite lifts the limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "limits::money")]
    pub max_cost: Option<f64>,
    /// Most tokens a run may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Longest a run may work, as people write it: `15m`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "time")]
    pub max_time: Option<String>,
    /// Most rounds of research.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "limits::rounds")]
    pub max_rounds: Option<u32>,
    /// Deepest a tree of sub-questions may grow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<u32>,
    /// Sub-questions worked on at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "limits::parallel")]
    pub parallel: Option<usize>,
    /// Tokens of the rolling summary.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "limits::summary_tokens")]
    pub summary_tokens: Option<u64>,
    /// Everything else about language models, for all roles and for each.
    #[serde(default, skip_serializing)]
    pub models: ModelsOptions,
    /// What models cost, over the built-in prices.
    #[serde(default, skip_serializing)]
    pub prices: BTreeMap<String, PriceOptions>,
    /// How the web is searched, and which pages may be fetched.
    #[serde(default, skip_serializing)]
    pub web: WebOptions,
    /// Jobs of research at a provider's.
    #[serde(default, skip_serializing)]
    pub deep_research: DeepResearchOptions,
    /// What may become of the texts of a collection, by its name.
    #[serde(default, skip_serializing)]
    pub collections: BTreeMap<String, CollectionOptions>,
}

/// What may become of the texts of a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectionOptions {
    /// Whether only models on machines of one's own may see them.
    #[serde(default)]
    pub local_only: bool,
    /// Whether texts made of them may leave this machine.
    #[serde(default)]
    pub allow_egress: bool,
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
    /// Values set in `[models]` and `[prices]`, for people, and where each came from.
    tables: Vec<(String, String, String)>,
    /// Keys, and addresses that variables hold.
    environment: Environment,
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

    /// The table `[web]`, or a variable the web goes by, cannot be used.
    #[error("settings of {place} cannot be used")]
    Web {
        /// The table, and its file where there is one.
        place: String,
        /// What is wrong.
        #[source]
        source: WebSettingsError,
    },

    /// The table `[deep_research]`, or a variable it goes by, cannot be used.
    #[error("settings of {place} cannot be used")]
    DeepResearch {
        /// The table, and its file where there is one.
        place: String,
        /// What is wrong.
        #[source]
        source: DeepResearchError,
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
            Self::Web { source, .. } => source.hint(),
            Self::DeepResearch { source, .. } => source.hint(),
            Self::NoHome(_) | Self::NoCurrent(_) => None,
        }
    }

    /// Tells whether nothing but a key is missing, which is needed only where something is asked.
    fn is_missing_key(&self) -> bool {
        match self {
            Self::Web { source, .. } => {
                matches!(source, WebSettingsError::Key { source: KeyError::NotSet { .. }, .. })
            }
            Self::DeepResearch { source, .. } => {
                matches!(source, DeepResearchError::Key(KeyError::NotSet { .. }))
            }
            Self::Invalid { .. } | Self::NotForProjects { .. } | Self::NoHome(_) | Self::NoCurrent(_) => false,
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
        let variables =
            Env::prefixed("DR_").only(&KEYS).filter(|key| variable(&format!("DR_{key}").to_uppercase()).is_some());
        let last = Figment::from(variables).merge(Serialized::defaults(flags));
        let figment =
            Figment::new().merge(Toml::file(&paths.user_file)).merge(Toml::file(&project_file)).merge(last.clone());
        let mut options: Options = figment.extract().map_err(invalid)?;
        let origins: BTreeMap<_, _> = KEYS.into_iter().filter_map(|key| Some((key, origin(&figment, key)?))).collect();
        // One line sets all roles that say nothing else; as a variable or flag it has the last word.
        match options.model.clone() {
            Some(model) if last.contains("model") => options.models.set_model(&model),
            model => options.models.all.model = options.models.all.model.take().or(model),
        }
        let environment = Environment::read(&project.join(DOTENV_FILE));
        let tables = TABLES.into_iter().flat_map(|table| entries(&figment, table)).collect();
        Ok(Self { options, origins, paths, tables, environment })
    }

    /// Returns the language models in force; nothing where none is set up or `dr` is offline, so that it works by rules.
    ///
    /// # Errors
    ///
    /// Returns an error where settings do not make up a model for every role. Nothing is sent.
    pub fn models(&self) -> Result<Option<Models>, ModelsError> {
        if self.is_offline() {
            return Ok(None);
        }
        let prices = PriceTable::with(&self.options.prices)?;
        Models::resolve(&self.options.models, &self.environment, &prices)
    }

    /// Returns the web, as far as it is set up, with pages of `dates`; nothing where `dr` is offline.
    ///
    /// # Errors
    ///
    /// Returns an error for settings that cannot be used. Nothing is sent.
    pub fn web(&self, pages: PathBuf, dates: DateRange) -> Result<Option<WebAccess>, ConfigError> {
        if self.is_offline() { Ok(None) } else { self.web_as_set(pages, dates).map(Some) }
    }

    fn web_as_set(&self, pages: PathBuf, dates: DateRange) -> Result<WebAccess, ConfigError> {
        let clock = Arc::new(SystemClock);
        let web = self.options.web.resolve(WebEnvironment { environment: &self.environment, pages, dates, clock });
        web.map_err(|source| ConfigError::Web { place: self.place_of("web"), source })
    }

    /// Returns the jobs of research that may be started; nothing where there is no endpoint for them, or `dr` is offline.
    ///
    /// # Errors
    ///
    /// Returns an error for settings that cannot be used. Nothing is sent.
    pub fn deep_research(&self) -> Result<Option<DeepResearchSettings>, ConfigError> {
        if self.is_offline() { Ok(None) } else { self.deep_research_as_set() }
    }

    fn deep_research_as_set(&self) -> Result<Option<DeepResearchSettings>, ConfigError> {
        let jobs = DeepResearchSettings::resolve(&self.options.deep_research, &self.environment);
        jobs.map_err(|source| ConfigError::DeepResearch { place: self.place_of("deep_research"), source })
    }

    /// Looks at the tables of the ways out, whether or not `dr` is offline; a key that is missing does no harm there.
    ///
    /// # Errors
    ///
    /// Returns an error for settings that cannot be used. Nothing is sent.
    pub fn check_outside(&self) -> Result<(), ConfigError> {
        let web = self.web_as_set(PathBuf::new(), DateRange::default()).map(drop);
        let checked = [web, self.deep_research_as_set().map(drop)];
        let is_harmless = |error: &ConfigError| self.is_offline() && error.is_missing_key();
        checked.into_iter().find(|checked| checked.as_ref().is_err_and(|error| !is_harmless(error))).unwrap_or(Ok(()))
    }

    /// Returns a table for people, with the file it is in.
    fn place_of(&self, table: &str) -> String {
        let is_inside = |key: &str| key.strip_prefix(table).is_some_and(|rest| rest.starts_with('.'));
        match self.tables.iter().find(|(key, ..)| is_inside(key)) {
            Some((.., file)) => format!("`[{table}]` in `{file}`"),
            None => format!("`[{table}]`"),
        }
    }

    /// Returns what models cost.
    ///
    /// # Errors
    ///
    /// Returns an error for a price that is none.
    pub fn prices(&self) -> Result<PriceTable, PriceError> {
        PriceTable::with(&self.options.prices)
    }

    /// Tells whether the network may not be touched.
    pub fn is_offline(&self) -> bool {
        self.options.offline.unwrap_or(false)
    }

    /// Returns every setting with its value and where it came from. Of a key it says only whether there is one.
    pub fn explained(&self) -> Vec<(String, String, String)> {
        let Options { index, embedder, offline, threads, mode, limit, model, .. } = &self.options;
        let limits = self.options.limits();
        let shown_limit = |limit: Option<String>| limit.unwrap_or_else(|| "no limit".to_owned());
        let shown = |value: Option<String>, default: &str| value.unwrap_or_else(|| default.to_owned());
        let mode = mode.map(|mode| format!("{mode:?}").to_lowercase());
        let values = [
            ("index", shown(index.clone(), "nearest .dr")),
            ("embedder", shown(embedder.as_ref().map(ToString::to_string), "the one of the index, else builtin")),
            ("offline", shown(offline.map(|offline| offline.to_string()), "false")),
            ("threads", shown(threads.map(|threads| threads.to_string()), "all cores")),
            ("mode", shown(mode, "hybrid")),
            ("limit", shown(limit.map(|limit| limit.to_string()), "10")),
            ("model", shown(model.clone(), "by role")),
            ("max_cost", shown_limit(limits.cost_nanos.map(dollars_text))),
            ("max_tokens", shown_limit(limits.tokens.map(|tokens| tokens.to_string()))),
            ("max_time", shown_limit(limits.time.map(|time| format!("{} s", time.as_secs())))),
            ("max_rounds", shown_limit(limits.rounds.map(|rounds| rounds.to_string()))),
            ("max_depth", self.options.tree_limits().max_depth.to_string()),
            ("parallel", self.options.parallel().to_string()),
            ("summary_tokens", self.options.summary_tokens().to_string()),
        ];
        let origin = |key| self.origins.get(key).cloned().unwrap_or_else(|| "default".to_owned());
        let values = values.into_iter().map(|(key, value)| (key.to_owned(), value, origin(key)));
        values.chain(self.tables.iter().cloned()).chain(self.explained_variables()).collect()
    }

    fn explained_variables(&self) -> Vec<(String, String, String)> {
        let environment = &self.environment;
        let (key, origin) = match environment.get(OPENAI_KEY) {
            Some(_) if environment.has_dotenv_key() => ("set", DOTENV_FILE),
            Some(_) => ("set", OPENAI_KEY),
            None => ("not set", "default"),
        };
        let mut explained = vec![("key".to_owned(), key.to_owned(), origin.to_owned())];
        if let Some(base_url) = environment.get(OPENAI_BASE_URL) {
            let shown = without_secrets(".base_url", base_url);
            explained.push(("base_url".to_owned(), shown, OPENAI_BASE_URL.to_owned()));
        }
        // These variables set up a search engine by being set, so they are listed like settings.
        for engine in SearchEngine::all() {
            if let Some(value) = environment.get(engine.variable()) {
                let shown = if engine.has_key() { "set".to_owned() } else { without_secrets(".base_url", value) };
                explained.push((engine.variable().to_lowercase(), shown, engine.variable().to_owned()));
            }
        }
        explained
    }
}

/// Returns a variable that is set to something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns a value as it can be shown: a key that was put into the wrong place stays hidden.
fn without_secrets(key: &str, text: &str) -> String {
    let is_name = || is_variable(text) && !text.bytes().any(|byte| byte.is_ascii_lowercase());
    if matches!(key.rsplit('.').next(), Some("base_url" | "url")) {
        text.parse().map_or_else(|_| "not an address".to_owned(), |url: BaseUrl| url.to_string())
    } else if key.ends_with(".key_env") && !is_name() {
        "not the name of a variable".to_owned()
    } else if key == "deep_research.models" && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        // Names of models have dates and numbers in them, as keys have.
        text.to_owned()
    } else if key.starts_with("web.") || key.starts_with("deep_research.") {
        shown(text)
    } else {
        text.to_owned()
    }
}

/// Returns every value of a table, for people, and where it came from.
fn entries(figment: &Figment, table: &str) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    if let Ok(value) = figment.find_value(table) {
        flatten(table, &value, &mut found);
    }
    let place = |tag| figment.get_metadata(tag).map(|metadata| origin_of(metadata, table)).unwrap_or_default();
    found.into_iter().map(|(key, value, tag)| (key, value, place(tag))).collect()
}

fn flatten(key: &str, value: &Value, found: &mut Vec<(String, String, Tag)>) {
    match value {
        Value::Dict(_, members) => {
            for (name, member) in members {
                flatten(&format!("{key}.{name}"), member, found);
            }
        }
        Value::String(tag, text) => found.push((key.to_owned(), without_secrets(key, text), *tag)),
        other => {
            let json = other.deserialize::<serde_json::Value>().map(|value| without_secrets_inside(key, value));
            found.push((key.to_owned(), json.map(|value| value.to_string()).unwrap_or_default(), other.tag()));
        }
    }
}

/// Returns a list as it can be shown.
fn without_secrets_inside(key: &str, value: serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::String(text) => without_secrets(key, &text).into(),
        serde_json::Value::Array(values) => {
            values.into_iter().map(|value| without_secrets_inside(key, value)).collect()
        }
        other => other,
    }
}

fn check_project_file(file: &Path) -> Result<(), ConfigError> {
    let figment = Figment::from(Toml::file(file));
    let options: Options = figment.extract().map_err(invalid)?;
    let forbidden = |key| Err(ConfigError::NotForProjects { file: file.to_path_buf(), key });
    if options.index.is_some() {
        return forbidden("index");
    }
    if let Some(key) = options.models.layers().find_map(reaching_out) {
        return forbidden(key);
    }
    if !options.prices.is_empty() {
        return forbidden("prices");
    }
    if options.max_cost.is_some() {
        return forbidden("max_cost");
    }
    if options.web != WebOptions::default() {
        return forbidden("web");
    }
    if options.deep_research != DeepResearchOptions::default() {
        return forbidden("deep_research");
    }
    if options.collections.values().any(|options| options.allow_egress) {
        return forbidden("allow_egress");
    }
    match options.embedder {
        Some(EmbedderChoice::Fastembed(model)) if model.contains(['/', '\\', '.']) || Path::new(&model).exists() => {
            forbidden("embedder")
        }
        _ => Ok(()),
    }
}

/// Returns a setting that sends text or a key somewhere, or takes away the limit of its cost.
fn reaching_out(options: &ModelOptions) -> Option<&'static str> {
    let ModelOptions { base_url, key_env, local, .. } = options;
    let set = [("base_url", base_url.is_some()), ("key_env", key_env.is_some()), ("local", local.is_some())];
    set.into_iter().find(|(_, is_set)| *is_set).map(|(key, _)| key)
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
    let is_in_table = TABLES.iter().any(|table| error.path.first().is_some_and(|first| first == table));
    ConfigError::Invalid { origin, reason: complaint(error.kind, is_in_table) }
}

/// Reads a stretch of time, so that one that is none is said with its file.
fn time<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    duration(&text).map_err(serde::de::Error::custom)?;
    Ok(Some(text))
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
    use crate::llm::message::Role;
    use crate::llm::roles::STRONG_MODEL;

    fn resolve(user: &str, project: &str, flags: &Options) -> Result<Settings, ConfigError> {
        resolve_with_env(user, project, "", flags)
    }

    fn resolve_with_env(user: &str, project: &str, env: &str, flags: &Options) -> Result<Settings, ConfigError> {
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
        std::fs::write(folder.path().join("project/.env"), env).unwrap();
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

    const LOCAL: &str = "[models]\nbase_url = \"http://localhost:1234/v1\"\n";

    fn names(settings: &Settings) -> Vec<String> {
        let models = settings.models().unwrap().unwrap();
        Role::ALL.into_iter().map(|role| models.role(role).model.name().to_owned()).collect()
    }

    #[test]
    fn one_line_names_the_model_of_roles_that_name_none_and_a_flag_that_of_all() {
        let user = format!("model = \"a\"\n{LOCAL}[models.worker]\nmodel = \"b\"\n");
        let settings = resolve(&user, "", &Options::default()).unwrap();
        assert_eq!(names(&settings), ["a", "b", "a", "a", "a"]);
        let flags = Options { model: Some("c".into()), ..Options::default() };
        assert_eq!(names(&resolve(&user, "", &flags).unwrap()), ["c"; 5]);
    }

    #[test]
    fn offline_there_are_no_models_whatever_is_set() {
        let settings = resolve(&format!("offline = true\nmodel = \"a\"\n{LOCAL}"), "", &Options::default()).unwrap();
        assert!(settings.models().unwrap().is_none());
    }

    #[test]
    fn project_may_choose_a_model_and_not_where_it_is_what_it_is_shown_or_what_it_costs() {
        for (text, key) in [
            ("[models]\nbase_url = \"https://elsewhere.example\"", "base_url"),
            ("[models.judge]\nbase_url = \"https://elsewhere.example\"", "base_url"),
            ("[models.worker]\nkey_env = \"AWS_SECRET_ACCESS_KEY\"", "key_env"),
            ("[models]\nlocal = true", "local"),
            ("[prices.\"gpt-6-astra\"]\ninput = 0.0\noutput = 0.0", "prices"),
        ] {
            let error = resolve("", text, &Options::default()).unwrap_err();
            assert!(matches!(error, ConfigError::NotForProjects { key: found, .. } if found == key), "{text}: {error}");
        }
        let settings = resolve(LOCAL, "model = \"a\"\n[models]\nmax_output_tokens = 900", &Options::default()).unwrap();
        assert_eq!(names(&settings), ["a"; 5]);
        assert_eq!(settings.models().unwrap().unwrap().role(Role::Judge).max_output_tokens, 900);
    }

    #[test]
    fn env_file_of_a_project_gives_a_key_and_nothing_else() {
        let env = "OPENAI_BASE_URL=https://elsewhere.example\nDR_MODEL=x\nOPENAI_API_KEY=sk-from-env-file\n";
        let settings = resolve_with_env("", "", env, &Options::default()).unwrap();
        let models = settings.models().unwrap().unwrap();
        assert_eq!(models.role(Role::Writer).endpoint, "https://api.openai.com/v1");
        assert_eq!(models.role(Role::Writer).model.name(), STRONG_MODEL);
        let shown = format!("{settings:?} {:?}", settings.explained());
        assert!(!shown.contains("sk-from"), "{shown}");
    }

    #[test]
    fn every_setting_of_models_is_explained_and_no_key_is_shown() {
        let user = "[models]\nbase_url = \"http://sk-1@localhost\"\nkey_env = \"sk-1\"\ntemperature = 0.5\n\
                    [models.worker]\nmax_output_tokens = 900\n[prices.\"gpt-5.4\"]\ninput = 2\noutput = 3\n";
        let explained = resolve(user, "", &Options::default()).unwrap().explained();
        let value = |key: &str| explained.iter().find(|(name, ..)| name == key).map(|(_, value, _)| value.as_str());
        assert_eq!(value("models.worker.max_output_tokens"), Some("900"));
        assert_eq!(value("models.temperature"), Some("0.5"));
        assert_eq!(value("prices.gpt-5.4.input"), Some("2"));
        assert_eq!(value("models.key_env"), Some("not the name of a variable"));
        assert_eq!(value("models.base_url"), Some("not an address"));
        assert!(explained.iter().all(|(_, value, _)| !value.contains("sk-1")), "{explained:?}");
        let place = explained.iter().find(|(name, ..)| name == "models.temperature").unwrap();
        assert!(place.2.ends_with("config.toml"), "{place:?}");
    }

    #[test]
    fn misspelt_setting_of_a_model_is_named_with_its_file() {
        let error = resolve("[models.worker]\nmodle = \"a\"", "", &Options::default()).unwrap_err().to_string();
        assert!(error.contains("config.toml") && error.contains("modle"), "{error}");
    }
}
