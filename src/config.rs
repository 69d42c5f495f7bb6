//! Settings and the origin of each value.
//!
//! Later layers win: defaults, the user's file, the project's file (`dr.toml` beside `.dr/`), `DR_*` variables, flags.
//! A project's file may come from a stranger with the folder, so it cannot set anything that contacts a server or loads
//! a file, and nothing that decides the price of a call unless the user trusts the folder.
//!
//! Every setting is one row of [`SETTINGS`], which defines its kind, bounds, default, variable, and who may set it. To
//! add one, add a row, and a field of the same name in [`Values`] or in the options of its table.

pub(crate) mod kind;
mod setting;
mod rows;
mod layers;
mod edit;
mod trust;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use etcetera::BaseStrategy;
use figment::Figment;
use figment::value::Value;
use pulldown_cmark::{Event as Markdown, Parser};
use serde::Deserialize;

pub use self::edit::EditError;
pub(crate) use self::edit::Written;
pub(crate) use self::kind::{dollars, duration};
pub use self::layers::Flags;
pub(crate) use self::rows::{SETTINGS, bounds};
pub use self::trust::TrustError;
pub(crate) use self::trust::{Trust, Trustable};

use self::kind::address_shown;
pub(crate) use self::layers::DEFAULT;
use self::layers::{FileOwner, ItemKind, Layer, complaint, find};
use self::setting::Setting;
use crate::base::clock::{Clock, SystemClock};
use crate::base::environment::{Dotenv, Environment, KeyError, OPENAI_BASE_URL, OPENAI_KEY};
use crate::base::money::nanos;
use crate::kb::about::About;
use crate::kb::embed::{
    CrossEncoder, DownloadError, EmbedderChoice, EndpointOptions, EndpointSettings, EndpointSettingsError, Hub,
    ModelStore,
};
use crate::kb::extract::Include;
use crate::kb::rerank::{RerankOptions, RerankSettingsError, Reranker};
use crate::kb::search::SearchMode;
use crate::llm::message::Usage;
use crate::llm::price::{PriceOptions, PriceTable};
use crate::llm::roles::{Models, ModelsError, ModelsOptions};
use crate::research::plan::TreeLimits;
use crate::run::background::{DeepResearchError, DeepResearchOptions, DeepResearchSettings};
use crate::run::budget::BudgetLimits;
use crate::source::mcp::{Answers, KnownTools, McpOptions, McpServers, McpSettingsError, ServerSettings};
use crate::source::web::{DateRange, PageStore, SearchEngine, WebAccess, WebOptions, WebSettingsError};
use crate::traces::{NotExported, TraceOptions, TraceSettings};

/// Name of the project's file.
pub(crate) const PROJECT_FILE: &str = "dr.toml";

/// File in the user's data folder with the key that seals fetched pages and tool results.
const PAGE_KEY: &str = "page-key";

/// Name of a file beside the project's that may hold OpenAI's key.
const DOTENV_FILE: &str = ".env";

/// The values of all settings, defaults included. The row of a setting documents its field.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Values {
    pub(crate) index: Option<String>,
    pub(crate) index_cache_mb: u64,
    pub(crate) embedder: Option<EmbedderChoice>,
    pub(crate) offline: bool,
    pub(crate) threads: Option<usize>,
    pub(crate) mode: SearchMode,
    pub(crate) limit: usize,
    pub(crate) model: Option<String>,
    max_cost: f64,
    max_tokens: u64,
    max_time: String,
    max_rounds: u32,
    max_depth: u32,
    pub(crate) parallel: usize,
    pub(crate) summary_tokens: u64,
    pub(crate) reuse: bool,
    #[serde(default)]
    pub(crate) models: ModelsOptions,
    #[serde(default)]
    pub(crate) prices: BTreeMap<String, PriceOptions>,
    #[serde(default)]
    pub(crate) web: WebOptions,
    #[serde(default)]
    embedding: EndpointOptions,
    #[serde(default)]
    pub(crate) rerank: RerankOptions,
    #[serde(default)]
    pub(crate) deep_research: DeepResearchOptions,
    #[serde(default)]
    pub(crate) mcp: BTreeMap<String, McpOptions>,
    #[serde(default)]
    traces: TraceOptions,
    #[serde(default)]
    pub(crate) collections: BTreeMap<String, CollectionOptions>,
}

/// The table `[collections.NAME]`: what a collection is, and who may receive its texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CollectionOptions {
    /// Whether only models on the user's own machines may see its texts.
    pub(crate) local_only: bool,
    /// Whether texts made from it may leave this machine.
    pub(crate) allow_egress: bool,
    /// Formats that are read beside Markdown and plain text.
    pub(crate) include: Option<Include>,
    /// Where its documents are published.
    pub(crate) url: Option<String>,
    /// A sentence for each folder, for readers of its passages.
    about: BTreeMap<String, String>,
}

/// Folders of the user, and the working directory.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    pub(crate) current: PathBuf,
    /// The user's settings.
    pub(crate) user_file: PathBuf,
    /// Models that earlier versions downloaded.
    pub(crate) models: PathBuf,
    /// Data of `dr`, such as its own copy of ONNX Runtime.
    pub(crate) data: PathBuf,
}

/// Resolved settings. Reading a table of them fails if it cannot be used, and sends and starts nothing.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) values: Values,
    pub(crate) paths: Paths,
    /// Name, value as it can be shown, and origin of every setting. No value if none is set, not even by default.
    explained: Vec<(String, Option<String>, String)>,
    /// Variables, which hold keys and addresses.
    environment: Environment,
}

/// Settings are invalid or cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file, variable or flag has an invalid value.
    #[error("{origin}: {reason}")]
    Invalid { origin: String, reason: String, hint: Option<String> },
    #[error("`{file}` sets `{key}`, which a project may not{}", only.map(|values| format!(", except for {values}")).unwrap_or_default())]
    NotForProjects { file: String, key: String, flag: Option<String>, only: Option<&'static str> },
    #[error("`{file}` sets `{key}`, which needs a trusted folder")]
    Untrusted { file: String, key: String, flag: Option<String> },
    #[error("settings of {place} cannot be used")]
    Table { place: String, source: Box<TableError> },
    #[error("home folder is not known")]
    NoHome(#[source] etcetera::HomeDirError),
    #[error("current folder cannot be read")]
    NoCurrent(#[source] std::io::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error(transparent)]
    Web(#[from] WebSettingsError),
    #[error(transparent)]
    Embedding(#[from] EndpointSettingsError),
    #[error(transparent)]
    Rerank(#[from] RerankSettingsError),
    #[error(transparent)]
    DeepResearch(#[from] DeepResearchError),
    #[error(transparent)]
    Mcp(#[from] McpSettingsError),
}

impl TableError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Web(error) => error.hint(),
            Self::Embedding(error) => error.hint(),
            Self::Rerank(error) => error.hint(),
            Self::DeepResearch(error) => error.hint(),
            Self::Mcp(error) => error.hint(),
        }
    }

    fn is_missing_key(&self) -> bool {
        matches!(
            self,
            Self::Web(WebSettingsError::Key { source: KeyError::NotSet { .. }, .. })
                | Self::Embedding(EndpointSettingsError::Key(KeyError::NotSet { .. }))
                | Self::Rerank(RerankSettingsError::Key(KeyError::NotSet { .. }))
                | Self::DeepResearch(DeepResearchError::Key(KeyError::NotSet { .. }))
                | Self::Mcp(McpSettingsError::Key { source: KeyError::NotSet { .. }, .. })
        )
    }
}

impl ConfigError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::NotForProjects { key, flag, .. } => {
                Some(format!("set `{key}` in your own settings{}", or_use(flag.as_ref())))
            }
            Self::Untrusted { file, key, flag } => {
                let folder = Path::new(file).parent().unwrap_or(Path::new("."));
                let folder = folder.display();
                Some(format!("run `dr trust {folder}`, set `{key}` in your own settings{}", or_use(flag.as_ref())))
            }
            Self::Invalid { hint: Some(hint), .. } => Some(hint.clone()),
            Self::Invalid { hint: None, .. } => {
                Some("`kb/reference/configuration.md` in dr's manual lists the settings".into())
            }
            Self::Table { source, .. } => source.hint(),
            Self::NoHome(_) => Some("set `HOME` to a folder that you can write to".into()),
            Self::NoCurrent(_) => None,
        }
    }

    /// Returns whether the only problem is a missing key, which does not matter offline.
    fn is_missing_key(&self) -> bool {
        matches!(self, Self::Table { source, .. } if source.is_missing_key())
    }
}

fn or_use(flag: Option<&String>) -> String {
    flag.map(|flag| format!(", or use `{flag}`")).unwrap_or_default()
}

impl Paths {
    /// Finds the folders of this user.
    pub(crate) fn find() -> Result<Self, ConfigError> {
        let base = etcetera::choose_base_strategy().map_err(ConfigError::NoHome)?;
        Ok(Self {
            current: std::env::current_dir().map_err(ConfigError::NoCurrent)?,
            user_file: base.config_dir().join("dr").join("config.toml"),
            models: base.cache_dir().join("dr").join("models"),
            data: base.data_dir().join("dr"),
        })
    }

    /// Returns the models of the catalogue that are on this machine.
    pub(crate) fn store(&self) -> ModelStore {
        ModelStore::of_user(&self.data, self.models.clone())
    }

    /// Returns the cache folder for indexes on object stores. It can be deleted at any time.
    pub(crate) fn stores(&self) -> PathBuf {
        self.models.with_file_name("stores")
    }

    /// Returns the notes about the folders that the user trusts.
    pub(crate) fn trust(&self) -> Trust {
        Trust::new(&self.data)
    }
}

impl Settings {
    /// Merges all layers. `project` is the folder that contains `.dr`.
    ///
    /// # Errors
    ///
    /// Returns an error for an invalid value or an unknown setting. It names the file, variable or flag.
    pub(crate) fn resolve(paths: Paths, project: &Path, flags: &Flags) -> Result<Self, ConfigError> {
        // First: whether a key in `.env` and some settings of the project count depends on it.
        let is_trusted = paths.trust().is_trusted(project);
        let environment = Environment::read(&project.join(DOTENV_FILE), is_trusted);
        let commanded = Layer::variables(&environment)?.into_iter().chain(Layer::flags(flags)?);
        // Apart from the files: a `model` of a command has another meaning than one of a file, see below.
        let commanded = commanded.fold(Figment::new(), Figment::merge);
        let (defaults, users) = (Layer::defaults()?, Layer::file(&paths.user_file, FileOwner::User)?);
        let place = FileOwner::Project { is_trusted };
        // Compared with files alone. Variables and flags are the user's and come later, so they may loosen.
        let projects = Layer::file(&project.join(PROJECT_FILE), place)?.no_looser_than(&[&defaults, &users]);
        let figment = Figment::from(defaults).merge(users).merge(projects).merge(commanded.clone());
        let mut values: Values = figment.extract().map_err(|error| unusable(error, &figment))?;
        // In a file, `model` applies to roles without a model of their own. As a variable or flag it overrides all.
        match values.model.clone() {
            Some(model) if commanded.contains("model") => values.models.set_model(&model),
            model => values.models.default_model(model.as_deref()),
        }
        Ok(Self { values, paths, explained: explained(&figment), environment })
    }

    /// Returns the user's sentences about folders.
    pub(crate) fn about(&self) -> About {
        About::new(self.values.collections.iter().map(|(name, options)| (name, &options.about)))
    }

    /// Returns the language models. `None` if none is configured, or offline; rule-based steps are used then.
    ///
    /// # Errors
    ///
    /// Returns an error for settings that lack a model, a key, or room for a prompt. Nothing is sent.
    pub(crate) fn models(&self) -> Result<Option<Models>, ModelsError> {
        if self.is_offline() {
            return Ok(None);
        }
        Models::resolve(&self.values.models, &self.environment, &self.prices())
    }

    /// Returns the configured access to the web, restricted to pages of `dates`. `None` offline.
    pub(crate) fn web(&self, pages: PathBuf, dates: DateRange) -> Result<Option<WebAccess>, ConfigError> {
        if self.is_offline() { Ok(None) } else { self.web_as_set(pages, dates).map(Some) }
    }

    fn web_as_set(&self, pages: PathBuf, dates: DateRange) -> Result<WebAccess, ConfigError> {
        let pages = self.pages(pages);
        let web = self.values.web.resolve(&self.environment, pages, dates, Arc::new(SystemClock));
        web.map_err(self.in_table("web"))
    }

    pub(crate) fn pages(&self, folder: PathBuf) -> PageStore {
        PageStore::new(folder, self.paths.data.join(PAGE_KEY))
    }

    /// Returns the server that embeds with `endpoint:MODEL`.
    pub(crate) fn embedding(&self, model: &str) -> Result<EndpointSettings, EndpointSettingsError> {
        let million = Usage { input_tokens: 1_000_000, ..Usage::default() };
        let price = self.prices().find(model).map(|price| price.cost_nanos(&million));
        self.values.embedding.resolve(model, &self.environment, price)
    }

    /// Returns where models are downloaded from.
    ///
    /// # Errors
    ///
    /// Returns an error for variables that cannot be used. Nothing is sent.
    pub(crate) fn hub(&self) -> Result<Hub, DownloadError> {
        Hub::of(&self.environment)
    }

    /// Checks the table `[embedding]` if it is set or needed.
    fn check_embedding(&self) -> Result<(), ConfigError> {
        let model = match &self.values.embedder {
            Some(EmbedderChoice::Endpoint(model)) => model.as_str(),
            _ if self.values.embedding == EndpointOptions::default() => return Ok(()),
            // The index may name the model.
            Some(EmbedderChoice::Builtin | EmbedderChoice::Fastembed(_)) | None => "",
        };
        match self.embedding(model) {
            Ok(_) => Ok(()),
            Err(EndpointSettingsError::NoDimensions { .. }) if model.is_empty() => Ok(()),
            Err(error) => Err(self.in_table("embedding")(error)),
        }
    }

    /// Returns the reranker, if one is configured.
    pub(crate) fn reranker(&self) -> Result<Option<Reranker>, ConfigError> {
        let here = |choice| CrossEncoder::new(choice, self.paths.store(), self.paths.data.clone(), self.values.threads);
        let reranker = self.values.rerank.resolve(&self.environment, Arc::new(SystemClock), here);
        reranker.map_err(self.in_table("rerank"))
    }

    /// Returns the settings of background jobs. `None` without an endpoint for them, or offline.
    pub(crate) fn deep_research(&self) -> Result<Option<DeepResearchSettings>, ConfigError> {
        if self.is_offline() { Ok(None) } else { self.deep_research_as_set() }
    }

    fn deep_research_as_set(&self) -> Result<Option<DeepResearchSettings>, ConfigError> {
        let jobs = DeepResearchSettings::resolve(&self.values.deep_research, &self.environment);
        jobs.map_err(self.in_table("deep_research"))
    }

    /// Returns where traces are exported to.
    ///
    /// # Errors
    ///
    /// Returns why they are not, which is the usual case.
    pub(crate) fn traces(&self) -> Result<TraceSettings, NotExported> {
        TraceSettings::resolve(&self.values.traces, &self.environment, self.is_offline())
    }

    /// Returns the settings of the user's own tool servers.
    pub(crate) fn servers(&self) -> Result<Vec<ServerSettings>, ConfigError> {
        let resolved = |(name, options): (&String, &McpOptions)| {
            let settings = ServerSettings::resolve(name, options, &self.environment, &self.paths.data);
            settings.map_err(self.in_table(&format!("mcp.{name}")))
        };
        self.values.mcp.iter().map(resolved).collect()
    }

    /// Returns the results of tools that are stored in a folder.
    pub(crate) fn answers(&self, folder: PathBuf) -> Answers {
        Answers::new(folder, self.paths.data.join(PAGE_KEY))
    }

    /// Sets up tool servers. Their results are kept in the folder `pages`.
    pub(crate) fn mcp_servers(&self, settings: Vec<ServerSettings>, pages: PathBuf) -> McpServers {
        let answers = self.answers(pages);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        McpServers::new(settings, &KnownTools::new(&self.paths.data), &answers, &clock)
    }

    /// Checks the settings of web, background jobs and servers, even offline, where a missing key is not an error.
    pub(crate) fn check_outside(&self) -> Result<(), ConfigError> {
        let web = self.web_as_set(PathBuf::new(), DateRange::default()).map(drop);
        let servers = self.servers().map(drop);
        let checked =
            [web, self.check_embedding(), self.reranker().map(drop), self.deep_research_as_set().map(drop), servers];
        let is_harmless = |error: &ConfigError| self.is_offline() && error.is_missing_key();
        checked.into_iter().find(|checked| checked.as_ref().is_err_and(|error| !is_harmless(error))).unwrap_or(Ok(()))
    }

    /// Adds to an error which table it is about.
    fn in_table<E: Into<TableError>>(&self, table: &str) -> impl FnOnce(E) -> ConfigError {
        let place = self.place_of(table);
        move |error| ConfigError::Table { place, source: Box::new(error.into()) }
    }

    /// Returns the name of a table, and the file that sets it.
    fn place_of(&self, table: &str) -> String {
        let is_inside = |key: &str| key.strip_prefix(table).is_some_and(|rest| rest.starts_with('.'));
        match self.explained.iter().find(|(key, _, origin)| is_inside(key) && origin != DEFAULT) {
            Some((.., file)) => format!("`[{table}]` in `{file}`"),
            None => format!("`[{table}]`"),
        }
    }

    pub(crate) fn prices(&self) -> PriceTable {
        PriceTable::with(&self.values.prices)
    }

    /// Returns whether a key in the project's `.env` file is ignored because the user does not trust the folder.
    pub(crate) fn ignores_key(&self) -> bool {
        self.environment.dotenv() == Dotenv::Ignored
    }

    /// Returns whether no socket may be opened.
    pub(crate) fn is_offline(&self) -> bool {
        self.values.offline
    }

    pub(crate) fn limits(&self) -> BudgetLimits {
        let Values { max_cost, max_tokens, max_time, max_rounds, .. } = &self.values;
        BudgetLimits {
            // `inf` lifts the limit.
            cost_nanos: max_cost.is_finite().then(|| nanos(*max_cost)),
            tokens: Some(*max_tokens),
            // Cannot fail: the row has validated it.
            time: Some(duration(max_time).unwrap_or(Duration::ZERO)),
            rounds: Some(*max_rounds),
        }
    }

    pub(crate) fn tree_limits(&self) -> TreeLimits {
        TreeLimits { max_depth: self.values.max_depth, ..TreeLimits::default() }
    }

    /// Returns whether any layer other than the defaults sets a setting.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.explained.iter().any(|(key, _, origin)| key == name && origin != DEFAULT)
    }

    /// Returns whether a file sets a setting, and no variable or flag does.
    pub(crate) fn is_in_file(&self, name: &str) -> bool {
        // The origin of a file is its full path, and that of a variable or flag a name.
        self.explained.iter().any(|(key, _, origin)| key == name && Path::new(origin).is_absolute())
    }

    /// Returns name, value and origin of every setting. A key is shown only as set or not set.
    pub(crate) fn explained(&self) -> Vec<(String, String, String)> {
        // Worded here: few commands print the settings, and every command resolves them.
        let worded = |(key, value, origin): &(String, Option<String>, String)| {
            let unset = || match find_named(key) {
                ItemKind::Setting(setting) => plain(&setting.unset_text()),
                ItemKind::Table | ItemKind::Unknown => String::new(),
            };
            (key.clone(), value.clone().unwrap_or_else(unset), origin.clone())
        };
        self.explained.iter().map(worded).chain(self.explained_variables()).collect()
    }

    pub(crate) fn knows(name: &str) -> bool {
        !matches!(find_named(name), ItemKind::Unknown)
    }

    /// Returns the purpose and the valid values of a setting, by its full name.
    pub(crate) fn description_of(key: &str) -> Option<String> {
        match find_named(key) {
            ItemKind::Setting(setting) => Some(setting.description()),
            ItemKind::Table | ItemKind::Unknown => None,
        }
    }

    fn explained_variables(&self) -> Vec<(String, String, String)> {
        let environment = &self.environment;
        let (key, origin) = match environment.get(OPENAI_KEY) {
            Some(_) if environment.dotenv() == Dotenv::Used => ("set", DOTENV_FILE),
            Some(_) => ("set", OPENAI_KEY),
            None if self.ignores_key() => ("ignored", DOTENV_FILE),
            None => ("not set", DEFAULT),
        };
        let mut explained = vec![("key".to_owned(), key.to_owned(), origin.to_owned())];
        if let Some(base_url) = environment.get(OPENAI_BASE_URL) {
            let shown = address_shown(base_url);
            explained.push(("base_url".to_owned(), shown, OPENAI_BASE_URL.to_owned()));
        }
        // Setting one of these variables configures a search engine, so they are listed like settings.
        for engine in SearchEngine::all() {
            let Some(variable) = engine.variable() else { continue };
            if let Some(value) = environment.get(variable) {
                let shown = if engine.has_key() { "set".to_owned() } else { address_shown(value) };
                explained.push((variable.to_lowercase(), shown, variable.to_owned()));
            }
        }
        explained
    }
}

/// Returns the top-level settings in the order of the rows, then those of tables: values that are set, then the defaults
/// of those that are not. Rows with a placeholder have no default to print.
fn explained(figment: &Figment) -> Vec<(String, Option<String>, String)> {
    let origin = |value: &Value| {
        let metadata = figment.get_metadata(value.tag());
        metadata.map_or_else(|| DEFAULT.to_owned(), |metadata| metadata.name.to_string())
    };
    let (mut explained, mut tables) = (Vec::new(), Vec::new());
    // Merged once: `find_value` merges and copies all of them at each call, and every command comes by here.
    let values = figment.find_value("").ok();
    let value_of = |name: &str| values.as_ref()?.find_ref(name);
    for setting in SETTINGS {
        match (setting.table(), value_of(setting.name)) {
            (Some(table), _) if tables.contains(&table) => {}
            (Some(table), _) => tables.push(table),
            (None, Some(value)) => {
                explained.push((setting.name.to_owned(), Some(setting.kind.shown(value)), origin(value)));
            }
            (None, None) => {
                explained.push((setting.name.to_owned(), None, DEFAULT.to_owned()));
            }
        }
    }
    for table in tables {
        if let Some(value) = value_of(table) {
            flatten(&[table.to_owned()], value, &mut |path, value| {
                if let ItemKind::Setting(setting) = find(path) {
                    explained.push((path.join("."), Some(setting.kind.shown(value)), origin(value)));
                }
            });
        }
        let is_unset = |setting: &&Setting| !explained.iter().any(|(key, ..)| key == setting.name);
        let rows = SETTINGS.iter().filter(|setting| setting.table() == Some(table) && !setting.has_placeholder());
        let unset: Vec<_> = rows.filter(is_unset).map(|row| (row.name.to_owned(), None, DEFAULT.to_owned())).collect();
        explained.extend(unset);
    }
    explained
}

/// Finds the item with this name, such as `web.fetch`.
fn find_named(name: &str) -> ItemKind {
    find(&name.split('.').map(str::to_owned).collect::<Vec<_>>())
}

/// Returns the text of a line of Markdown.
fn plain(line: &str) -> String {
    let mut plain = String::new();
    for event in Parser::new(line) {
        if let Markdown::Text(text) | Markdown::Code(text) = event {
            plain.push_str(&text);
        }
    }
    plain
}

/// Visits every value of a table.
fn flatten(path: &[String], value: &Value, visit: &mut impl FnMut(&[String], &Value)) {
    match value {
        Value::Dict(_, members) => {
            for (name, member) in members {
                let path: Vec<_> = path.iter().chain([name]).cloned().collect();
                flatten(&path, member, visit);
            }
        }
        value => visit(path, value),
    }
}

/// Converts an error of the merged settings. Each value was validated in its layer, so only a missing one is left.
fn unusable(error: figment::Error, figment: &Figment) -> ConfigError {
    let key = error.path.join(".");
    let file = figment.find_metadata(&key).map(|metadata| format!(" in `{}`", metadata.name)).unwrap_or_default();
    ConfigError::Invalid { origin: format!("`{key}`{file}"), reason: complaint(error.kind), hint: None }
}

#[cfg(test)]
mod tests {
    use super::kind::Kind;
    use super::setting::{Project, Setting};
    use super::*;
    use crate::llm::message::Role;
    use crate::llm::roles::STRONG_MODEL;

    fn resolve(user: &str, project: &str, flags: &Flags) -> Result<Settings, ConfigError> {
        resolve_with_env(user, project, "", flags)
    }

    fn resolve_with_env(user: &str, project: &str, env: &str, flags: &Flags) -> Result<Settings, ConfigError> {
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
        paths.trust().add(&folder.path().join("project")).unwrap();
        Settings::resolve(paths, &folder.path().join("project"), flags)
    }

    #[test]
    fn setting_of_the_search_engine_names_every_engine() {
        let row = SETTINGS.iter().find(|row| row.name == "web.provider").unwrap();
        for engine in SearchEngine::all() {
            assert!(row.doc.contains(&format!("`{engine}`")), "{engine}");
        }
    }

    #[test]
    fn flag_beats_project_beats_user_and_each_value_knows_its_origin() {
        let flags = Flags::default().set("limit", Some(3));
        let settings =
            resolve("limit = 5\nmode = \"vector\"\nthreads = 1\n", "limit = 4\nmode = \"lexical\"\n", &flags).unwrap();
        let Values { limit, mode, threads, .. } = settings.values;
        assert_eq!((limit, mode, threads), (3, SearchMode::Lexical, Some(1)));
        let explained = settings.explained();
        let origin = |key: &str| explained.iter().find(|(name, ..)| name == key).unwrap().2.as_str();
        assert_eq!((origin("limit"), origin("offline")), ("--limit", "default"));
        assert!(origin("mode").ends_with("dr.toml") && origin("threads").ends_with("config.toml"));
        assert!(settings.is_set("mode") && !settings.is_set("offline"));
    }

    #[test]
    fn table_that_no_file_sets_has_no_file_in_its_place() {
        let place = |user: &str| resolve(user, "", &Flags::default()).unwrap().place_of("web");
        assert_eq!(place(""), "`[web]`");
        assert!(place("[web]\nfetch = true\n").ends_with("config.toml`"));
    }

    #[test]
    fn project_may_tighten_what_the_user_has_restricted_and_not_loosen_it() {
        let strict = "offline = true\nmax_tokens = 1000\nmax_time = \"2m\"\n[collections.notes]\nlocal_only = true";
        let loose = "offline = false\nmax_tokens = 9000\nmax_time = \"1h\"\n[collections.notes]\nlocal_only = false";
        let in_force = |user: &str, project: &str| {
            let settings = resolve(user, project, &Flags::default()).unwrap();
            let BudgetLimits { tokens, time, .. } = settings.limits();
            let local_only = settings.values.collections["notes"].local_only;
            (settings.is_offline(), tokens, time.unwrap().as_secs(), local_only)
        };
        let strictest = (true, Some(1_000), 120, true);
        assert_eq!(in_force(strict, loose), strictest);
        assert_eq!(in_force(loose, strict), strictest);
        assert_eq!(in_force(strict, strict), strictest);
        // The defaults are limits too.
        let default = resolve("", "max_tokens = 9000000\nmax_rounds = 99", &Flags::default()).unwrap().limits();
        assert_eq!((default.tokens, default.rounds), (Some(300_000), Some(6)));
        let flags = Flags::default().set("offline", Some(false)).set("max_tokens", Some(7_000_000_u64));
        let settings = resolve(strict, strict, &flags).unwrap();
        assert_eq!((settings.is_offline(), settings.limits().tokens), (false, Some(7_000_000)));
    }

    #[test]
    fn embedding_costs_what_its_settings_say_else_the_table_of_prices() {
        let price = |text: &str, model: &str| {
            let settings = resolve(&format!("[embedding]\nlocal = false\n{text}"), "", &Flags::default()).unwrap();
            settings.embedding(model).map(|settings| settings.price())
        };
        let elsewhere = "base_url = \"https://embed.example/v1\"\n";
        assert_eq!(price(elsewhere, "text-embedding-3-small").unwrap(), Some(20_000_000));
        assert_eq!(price(elsewhere, "bge-m3").unwrap(), None);
        assert_eq!(price(&format!("{elsewhere}price = 0.5"), "bge-m3").unwrap(), Some(500_000_000));
        assert!(matches!(price("", "bge-m3"), Err(EndpointSettingsError::NoAddress)));
    }

    #[test]
    fn table_of_the_embedding_server_is_checked_also_if_the_index_names_the_model() {
        let checked = |text: &str| resolve(text, "", &Flags::default()).unwrap().check_outside();
        let server = "[embedding]\nbase_url = \"http://localhost:1/v1\"\n";
        assert!(checked(server).is_ok());
        let keyed = checked(&format!("{server}key_env = \"NOT_SET_ANYWHERE\"")).unwrap_err();
        assert!(matches!(&keyed, ConfigError::Table { place, .. } if place.contains("config.toml")), "{keyed:?}");
        let unknown = checked(&format!("embedder = \"endpoint:mine\"\n{server}")).unwrap_err();
        assert_eq!(
            crate::base::line::with_causes(&unknown).split(": ").last(),
            Some("dimensions of `mine` are not known")
        );
        assert!(checked("embedder = \"endpoint:bge-m3\"").is_err(), "no server is named");
    }

    const LOCAL: &str = "[models]\nbase_url = \"http://localhost:1234/v1\"\n";

    fn names(settings: &Settings) -> Vec<String> {
        let models = settings.models().unwrap().unwrap();
        Role::ALL.into_iter().map(|role| models.role(role).model.name().to_owned()).collect()
    }

    #[test]
    fn one_line_names_the_model_of_roles_that_name_none_and_a_flag_that_of_all() {
        let user = format!("model = \"a\"\n{LOCAL}[models.worker]\nmodel = \"b\"\n");
        let settings = resolve(&user, "", &Flags::default()).unwrap();
        assert_eq!(names(&settings), ["a", "b", "a", "a", "a"]);
        let flags = Flags::default().set("model", Some("c"));
        assert_eq!(names(&resolve(&user, "", &flags).unwrap()), ["c"; 5]);
    }

    #[test]
    fn project_may_choose_a_model_and_not_where_it_or_the_index_is_what_it_is_shown_or_what_it_costs() {
        for (text, key) in [
            ("index = \"s3://bucket/kb\"", "index"),
            ("embedder = \"fastembed:./model\"", "embedder"),
            ("embedder = \"endpoint:bge-m3\"", "embedder"),
            ("[models]\nbase_url = \"https://elsewhere.example\"", "models.base_url"),
            ("[models.judge]\nbase_url = \"https://elsewhere.example\"", "models.judge.base_url"),
            ("[models.worker]\nkey_env = \"AWS_SECRET_ACCESS_KEY\"", "models.worker.key_env"),
            ("[models]\nlocal = true", "models.local"),
            ("[prices.\"gpt-6-astra\"]\ninput = 0.0\noutput = 0.0", "prices.gpt-6-astra.input"),
            ("max_cost = 1", "max_cost"),
            ("[web]\nprovider = \"none\"", "web.provider"),
            ("[embedding]\nbase_url = \"https://elsewhere.example\"", "embedding.base_url"),
            ("[embedding]\nlocal = true", "embedding.local"),
            ("[deep_research]\nmax_jobs = 0", "deep_research.max_jobs"),
            ("[deep_research.mcp]\nlabel = \"a\"", "deep_research.mcp.label"),
            ("[mcp.tickets]\ncommand = [\"sh\"]", "mcp.tickets.command"),
            ("[mcp.tickets]\nlabel = \"internal\"", "mcp.tickets.label"),
            ("[collections.kb]\nallow_egress = true", "collections.kb.allow_egress"),
        ] {
            let error = resolve("", text, &Flags::default()).unwrap_err();
            assert!(
                matches!(&error, ConfigError::NotForProjects { key: found, .. } if found == key),
                "{text}: {error}"
            );
        }
        let harmless = "embedder = \"builtin\"\n[collections.kb]\nallow_egress = false\nlocal_only = true";
        assert!(resolve("", harmless, &Flags::default()).unwrap().values.collections["kb"].local_only);
        let settings = resolve(LOCAL, "model = \"a\"\n[models]\nmax_output_tokens = 900", &Flags::default()).unwrap();
        assert_eq!(names(&settings), ["a"; 5]);
        assert_eq!(settings.models().unwrap().unwrap().role(Role::Judge).max_output_tokens, 900);
    }

    #[test]
    fn project_decides_the_price_of_calls_only_in_a_folder_that_the_user_trusts() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let paths = Paths { current: at(""), user_file: at("config.toml"), models: at("models"), data: at("data") };
        for text in ["model = \"dear\"", "[models]\neffort = \"max\"", "[models.writer]\nreasoning_tokens = 90000"] {
            std::fs::write(at("dr.toml"), text).unwrap();
            let resolved = || Settings::resolve(paths.clone(), folder.path(), &Flags::default());
            let error = resolved().unwrap_err();
            assert!(error.to_string().ends_with("which needs a trusted folder"), "{error}");
            let hint = error.hint().unwrap();
            assert!(hint.starts_with(&format!("run `dr trust {}`, set `", folder.path().display())), "{hint}");
            let trusted = paths.trust().add(folder.path()).unwrap();
            assert!(resolved().is_ok(), "{text}");
            paths.trust().revoke(&trusted).unwrap();
        }
    }

    #[test]
    fn env_file_of_a_project_gives_a_key_and_nothing_else() {
        let env = "OPENAI_BASE_URL=https://elsewhere.example\nDR_MODEL=x\nOPENAI_API_KEY=sk-from-env-file\n";
        let settings = resolve_with_env("", "", env, &Flags::default()).unwrap();
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
        let explained = resolve(user, "", &Flags::default()).unwrap().explained();
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
    fn default_of_every_row_is_the_default_of_what_it_sets() {
        let settings = resolve("", "", &Flags::default()).unwrap();
        assert_eq!(settings.limits(), BudgetLimits::default());
        assert_eq!(settings.tree_limits(), TreeLimits::default());
        assert_eq!(settings.values.mode, SearchMode::default());
        assert_eq!(settings.values.models, ModelsOptions::default());
        let lifted = resolve("max_cost = inf", "", &Flags::default()).unwrap();
        assert_eq!(lifted.limits(), BudgetLimits { cost_nanos: None, ..BudgetLimits::default() });
    }

    /// Returns a file that sets one setting to `value`, and the other settings its table requires.
    fn file_with(setting: &Setting, value: &str) -> String {
        let beside = match setting.table() {
            Some("prices") => "prices.MODEL.input = 1\nprices.MODEL.output = 1\n",
            _ if setting.name.starts_with("deep_research.mcp.") => {
                "deep_research.mcp.label = \"a\"\ndeep_research.mcp.url = \"http://localhost\"\n"
            }
            _ => "",
        };
        let others = beside.lines().filter(|line| !line.starts_with(&format!("{} ", setting.name)));
        format!("{}\n{} = {value}\n", others.collect::<Vec<_>>().join("\n"), setting.name)
    }

    #[test]
    fn every_row_has_a_field_that_takes_its_example_and_every_word() {
        for setting in SETTINGS {
            let mut examples = vec![setting.example()];
            if let Kind::OneOf(words) = setting.kind {
                examples.extend(words.iter().map(|word| format!("\"{word}\"")));
            }
            for example in examples {
                let settings = resolve(&file_with(setting, &example), "", &Flags::default());
                let settings = settings.unwrap_or_else(|error| panic!("{} = {example}: {error}", setting.name));
                assert!(settings.is_set(setting.name), "{} = {example}", setting.name);
            }
        }
    }

    #[test]
    fn every_field_of_a_table_has_a_row() {
        for (table, options) in [
            ("models", serde_json::to_value(crate::llm::roles::ModelOptions::default())),
            ("web", serde_json::to_value(WebOptions::default())),
            ("deep_research", serde_json::to_value(DeepResearchOptions::default())),
            ("embedding", serde_json::to_value(EndpointOptions::default())),
            ("rerank", serde_json::to_value(RerankOptions::default())),
            ("prices.MODEL", serde_json::to_value(crate::llm::price::PriceOptions::default())),
            ("mcp.NAME", serde_json::to_value(McpOptions::default())),
        ] {
            let options = options.unwrap();
            let fields = options.as_object().filter(|fields| !fields.is_empty()).unwrap();
            for name in fields.keys().map(|key| format!("{table}.{key}")) {
                let is_of = |setting: &Setting| setting.name == name || setting.name.starts_with(&format!("{name}."));
                assert!(SETTINGS.iter().any(is_of), "`{name}` has no row");
            }
        }
    }

    #[test]
    fn no_value_out_of_bounds_passes_and_the_error_says_the_bounds_and_what_can_be_typed() {
        for setting in SETTINGS {
            let beyond = match setting.kind {
                Kind::Whole { least, most } => {
                    let above = (most < u64::MAX).then(|| (most + 1).to_string());
                    above.into_iter().chain(least.checked_sub(1).map(|below| below.to_string())).collect()
                }
                Kind::Dollars { .. } => vec!["-1".into(), "nan".into()],
                Kind::Number { .. } => vec!["nan".into(), "inf".into()],
                Kind::OneOf(_) | Kind::Checked { .. } | Kind::Time => vec!["\"magic\"".into()],
                Kind::Switch | Kind::Bool => vec!["2".into()],
                Kind::Text | Kind::Name | Kind::Address | Kind::Variable => vec!["1".into()],
                Kind::Texts | Kind::Names => vec!["\"x\"".into(), "[1]".into()],
                Kind::Separated => vec!["1".into(), "[1]".into()],
                Kind::SomeOf(_) => vec!["\"pdf\"".into(), "[\"x\"]".into(), "[1]".into()],
            };
            for value in beyond {
                let error = resolve(&file_with(setting, &value), "", &Flags::default());
                let error = error.err().unwrap_or_else(|| panic!("{} = {value} passes", setting.name));
                let (said, hint) = (error.to_string(), error.hint().unwrap());
                assert!(said.contains(&format!("`{}` in `", setting.name)) && said.contains("expected "), "{said}");
                assert!(said.contains(&setting.kind.bounds()), "{said}");
                assert_eq!(hint, format!("for example `{} = {}`", setting.name, setting.example()));
            }
        }
    }

    /// Returns the manual's table of rows.
    fn table<'a>(head: &[&str], rows: impl Iterator<Item = Vec<String>> + 'a) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let head: Vec<_> = head.iter().map(|cell| (*cell).to_owned()).collect();
        let rule = format!("|{}\n", "---|".repeat(head.len()));
        line(&head) + &rule + &rows.map(|cells| line(&cells)).collect::<String>()
    }

    /// Returns the tables of the manual, as the rows have them.
    fn tables() -> Vec<String> {
        let code = |name: &str| format!("`{name}`");
        let or_dash = |is_there: bool, name: String| if is_there { code(&name) } else { "–".to_owned() };
        let default = |setting: &Setting| setting.default.map_or_else(|| setting.unset_text(), code);
        let top = SETTINGS.iter().filter(|setting| setting.table().is_none()).map(|setting| {
            let flag = or_dash(setting.has_flag, setting.flag_name());
            let variable = or_dash(setting.has_variable, setting.variable_name());
            vec![code(setting.name), setting.description(), default(setting), flag, variable]
        });
        let mut tables = vec![table(&["setting", "values", "default", "flag", "variable"], top)];
        let mut names: Vec<_> = SETTINGS.iter().filter_map(Setting::table).collect();
        names.dedup();
        for name in names {
            let rows = SETTINGS.iter().filter(|setting| setting.table() == Some(name)).map(|setting| {
                let short = setting.name.trim_start_matches(&format!("{name}."));
                let short = short.trim_start_matches("MODEL.").trim_start_matches("NAME.");
                vec![code(short), setting.description(), default(setting)]
            });
            tables.push(table(&["setting", "values", "default"], rows));
        }
        tables
    }

    #[test]
    fn manual_has_every_row_as_it_is() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("kb/reference/configuration.md");
        let manual = std::fs::read_to_string(&file).unwrap();
        for table in tables() {
            assert!(manual.contains(&table), "{} should have this table:\n{table}", file.display());
        }
    }

    #[test]
    fn manual_says_what_a_project_may_not_set() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("kb/reference/configuration.md");
        let manual = std::fs::read_to_string(file).unwrap();
        let section = manual.split("## What a project file may not set").nth(1).unwrap().split("\n## ").next().unwrap();
        let (refused, rest) = section.split_once("A project file may only tighten").unwrap();
        let (tightened, rest) = rest.split_once("is in force").unwrap();
        let trusting =
            rest.split_once("you trust its folder").unwrap().1.split("A project file may set").next().unwrap();
        for setting in SETTINGS {
            let leaf = format!("`{}`", setting.name.rsplit('.').next().unwrap());
            let table = setting.table().map(|table| format!("`[{table}]`"));
            let is_refused = refused.contains(&leaf)
                || table
                    .as_ref()
                    .is_some_and(|table| refused.contains(table) && !refused.contains(&format!("in {table}")));
            let (refuses, tightens) = match setting.project {
                Project::May | Project::IfTrusted => (false, false),
                Project::Stricter(_) => (false, true),
                Project::MayNot | Project::Only(..) => (true, false),
            };
            assert_eq!(is_refused, refuses, "{}", setting.name);
            let needs_trust = trusting.contains(&leaf) || table.is_some_and(|table| trusting.contains(&table));
            let is_trusting = matches!(setting.project, Project::IfTrusted);
            assert_eq!(needs_trust && !is_refused, is_trusting, "{}", setting.name);
            assert_eq!(tightened.contains(&leaf), tightens, "{}", setting.name);
        }
    }
}
