//! The table `[web]` and the environment become a [`WebSource`].

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::search_engine::SearchEngine;
use super::{
    AllowedHost, Brave, DateRange, Exa, FetchOptions, Fetcher, FixtureProvider, PageStore, SearchProvider, SearxNg,
    Tavily, WebSource,
};
use crate::base::clock::Clock;
use crate::base::environment::{Environment, KeyError, OPENAI_BASE_URL};
use crate::base::http::{BaseUrl, HttpError, ParseBaseUrlError, Secret, shown};

/// Prefix of a provider that is a file.
const FIXTURE: &str = "fixture:";

/// The table `[web]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebOptions {
    /// See [`Choice`].
    pub provider: Option<String>,
    /// Address of the engine, if it is not the engine's own.
    pub base_url: Option<String>,
    /// The variable that holds its key, if it is not the engine's own.
    pub key_env: Option<String>,
    /// Whether pages are fetched; without it snippets are all there is, and nothing from the web is checked.
    pub fetch: Option<bool>,
    /// Machines of an intranet that may be asked: hosts, `host:port`, or networks.
    #[serde(default)]
    pub allowed_hosts: Vec<String>,
}

/// What `provider` can name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Choice {
    /// `none`: the web is not searched.
    Off,
    /// `fixture:FILE`: a file of recorded results.
    Fixture(PathBuf),
    /// An engine by its name.
    Engine(SearchEngine),
}

/// Settings of the web cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WebSettingsError {
    /// There is no such search engine.
    #[error("`{name}` is not a search engine")]
    UnknownProvider {
        /// The name.
        name: String,
    },
    /// The engine needs a key, and there is no usable one.
    #[error("no key for `{engine}`")]
    Key {
        /// The engine.
        engine: SearchEngine,
        /// Why.
        source: KeyError,
    },
    /// `base_url`, or the variable that stands in for it, is not an address.
    #[error("address of the search engine")]
    Address(#[from] ParseBaseUrlError),
    /// An allowed host is neither a host nor a network.
    #[error("`allowed_hosts` of the web")]
    Host(#[from] super::ParseAllowedHostError),
    /// The engine has no public address.
    #[error("address of `{engine}` is not known")]
    NoAddress {
        /// The engine.
        engine: SearchEngine,
    },
    /// The file of a fixture.
    #[error(transparent)]
    Fixture(#[from] super::FixtureError),
    /// The network client.
    #[error(transparent)]
    Http(#[from] HttpError),
}

impl WebSettingsError {
    /// Returns what the user can do about this error.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownProvider { .. } => {
                let names: Vec<_> = SearchEngine::all().map(|engine| format!("`{engine}`")).collect();
                Some(format!("{} and `{FIXTURE}FILE` are known", names.join(", ")))
            }
            Self::Key { source: source @ KeyError::NotSet { .. }, .. } => {
                Some(format!("{}, or name another engine in `[web]`", source.hint()))
            }
            Self::Key { source, .. } => Some(source.hint()),
            Self::NoAddress { engine } => Some(format!("set `base_url` in `[web]`, or export `{}`", engine.variable())),
            Self::Host(error) => Some(error.hint()),
            Self::Address(_) | Self::Fixture(_) | Self::Http(_) => None,
        }
    }
}

/// What the settings are resolved with.
pub struct WebEnvironment<'a> {
    /// Keys, and addresses of engines. Pages of the machine in `OPENAI_BASE_URL` may be fetched if it is this one.
    pub environment: &'a Environment,
    /// The folder that keeps pages.
    pub pages: PathBuf,
    /// Pages of other days are dropped, as far as their day is known.
    pub dates: DateRange,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// The web, as far as it is set up.
#[derive(Clone)]
pub struct WebAccess {
    /// Searches, and opens pages.
    pub source: Arc<WebSource>,
    /// Whether there is a search engine. Without one, pages named elsewhere can still be opened.
    pub can_search: bool,
}

impl WebOptions {
    /// Sets the web up.
    ///
    /// # Errors
    ///
    /// Returns an error for settings that cannot be used. Nothing is sent.
    pub fn resolve(&self, setup: WebEnvironment<'_>) -> Result<WebAccess, WebSettingsError> {
        let provider = self.provider(setup.environment)?;
        let can_search = provider.is_some();
        let mut allowed_hosts =
            self.allowed_hosts.iter().map(|host| host.parse()).collect::<Result<Vec<AllowedHost>, _>>()?;
        allowed_hosts.extend(setup.environment.get(OPENAI_BASE_URL).and_then(own_machine));
        let options = FetchOptions { allowed_hosts, ..FetchOptions::default() };
        let fetcher = match self.fetch {
            Some(false) => None,
            Some(true) | None => Some(Arc::new(Fetcher::new(options, Arc::clone(&setup.clock))?)),
        };
        let provider = provider.unwrap_or_else(|| Arc::new(FixtureProvider::default()));
        let pages = PageStore::new(setup.pages);
        let source = WebSource::new(provider, fetcher, pages, setup.clock).with_dates(setup.dates);
        Ok(WebAccess { source: Arc::new(source), can_search })
    }

    /// Returns the search engine that is named, else the first that has its variable.
    ///
    /// Each engine is named in the match, so that a key goes to the engine it was resolved for and to no other.
    fn provider(&self, environment: &Environment) -> Result<Option<Arc<dyn SearchProvider>>, WebSettingsError> {
        let engine = match self.choice(environment)? {
            Choice::Off => return Ok(None),
            Choice::Fixture(file) => return Ok(Some(Arc::new(FixtureProvider::from_file(&file)?))),
            Choice::Engine(engine) => engine,
        };
        let own = self.base_url.as_deref().map(str::parse).transpose()?;
        let key = || self.key(engine, environment);
        Ok(Some(match engine {
            SearchEngine::SearxNg => Arc::new(SearxNg::new(own.map_or_else(|| address_in(engine, environment), Ok)?)?),
            SearchEngine::Tavily => Arc::new(Tavily::new(key()?, own)?),
            SearchEngine::Brave => Arc::new(Brave::new(key()?, own)?),
            SearchEngine::Exa => Arc::new(Exa::new(key()?, own)?),
        }))
    }

    fn choice(&self, environment: &Environment) -> Result<Choice, WebSettingsError> {
        let Some(name) = self.provider.as_deref() else {
            let mut engines = SearchEngine::all();
            return Ok(match engines.find(|engine| environment.get(engine.variable()).is_some()) {
                // An address without a name is that of the one engine that has no address of its own.
                _ if self.base_url.is_some() => Choice::Engine(SearchEngine::SearxNg),
                Some(engine) => Choice::Engine(engine),
                None => Choice::Off,
            });
        };
        if let Some(file) = name.strip_prefix(FIXTURE) {
            return Ok(Choice::Fixture(file.into()));
        }
        match SearchEngine::all().find(|engine| engine.name() == name) {
            Some(engine) => Ok(Choice::Engine(engine)),
            None if name == "none" => Ok(Choice::Off),
            None => Err(WebSettingsError::UnknownProvider { name: shown(name) }),
        }
    }

    fn key(&self, engine: SearchEngine, environment: &Environment) -> Result<Secret, WebSettingsError> {
        let variable = self.key_env.as_deref().unwrap_or(engine.variable());
        environment.key(variable).map_err(|source| WebSettingsError::Key { engine, source })
    }
}

/// Returns the address in the variable of an engine.
fn address_in(engine: SearchEngine, environment: &Environment) -> Result<BaseUrl, WebSettingsError> {
    let address = environment.get(engine.variable()).ok_or(WebSettingsError::NoAddress { engine })?;
    Ok(address.parse()?)
}

/// Returns machine and port of an endpoint on this machine.
fn own_machine(address: &str) -> Option<AllowedHost> {
    let address = address.parse::<BaseUrl>().ok().filter(BaseUrl::is_loopback)?;
    address.authority().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;
    use crate::base::line::with_causes;
    use crate::source::Source;

    const SEARXNG_URL: &str = "SEARXNG_URL";

    fn resolve(toml: &str, variables: &[(&str, &str)]) -> Result<WebAccess, WebSettingsError> {
        let options: WebOptions = serde_json::from_str(toml).unwrap();
        options.resolve(WebEnvironment {
            environment: &Environment::of(variables.iter().copied()),
            pages: std::env::temp_dir(),
            dates: DateRange::default(),
            clock: Arc::new(ManualClock::default()),
        })
    }

    fn scope(toml: &str, variables: &[(&str, &str)]) -> String {
        let access = resolve(toml, variables).ok().unwrap();
        if access.can_search { access.source.scope() } else { "none".to_owned() }
    }

    #[test]
    fn engine_is_the_one_that_is_named_else_the_first_the_environment_has() {
        assert_eq!(scope("{}", &[]), "none");
        assert_eq!(scope("{}", &[("BRAVE_API_KEY", "k")]), "the web (brave)");
        let both = [("BRAVE_API_KEY", "k"), (SEARXNG_URL, "http://localhost:8888")];
        assert_eq!(scope("{}", &both), "the web (searxng)");
        assert_eq!(scope(r#"{"provider": "brave"}"#, &both), "the web (brave)");
        assert_eq!(scope(r#"{"provider": "none"}"#, &both), "none");
    }

    #[test]
    fn each_engine_is_the_one_that_gets_its_key() {
        for engine in SearchEngine::all() {
            let text = if engine == SearchEngine::SearxNg { "http://localhost:8888" } else { "k" };
            let named = format!(r#"{{"provider": "{engine}"}}"#);
            let other = SearchEngine::all().find(|other| *other != engine).unwrap();
            for toml in ["{}", named.as_str()] {
                assert_eq!(scope(toml, &[(engine.variable(), text)]), format!("the web ({engine})"));
            }
            let error = resolve(&named, &[(other.variable(), "http://localhost:8888")]).err().unwrap();
            assert!(error.hint().unwrap().contains(engine.variable()), "{engine}: {error}");
        }
    }

    #[test]
    fn setting_that_cannot_be_used_is_an_error_that_says_what_to_do_and_shows_no_key() {
        let error = |toml: &str, variables: &[(&str, &str)]| resolve(toml, variables).err().unwrap();
        assert_eq!(
            error(r#"{"provider": "gopher"}"#, &[]).hint().unwrap(),
            "`searxng`, `tavily`, `brave`, `exa` and `fixture:FILE` are known"
        );
        assert_eq!(with_causes(&error(r#"{"provider": "exa"}"#, &[])), "no key for `exa`: `EXA_API_KEY` is not set");
        let no_address = error(r#"{"provider": "searxng"}"#, &[]);
        assert_eq!(no_address.to_string(), "address of `searxng` is not known");
        assert_eq!(no_address.hint().unwrap(), "set `base_url` in `[web]`, or export `SEARXNG_URL`");
        let unsendable = error(r#"{"provider": "exa", "key_env": "MY"}"#, &[("MY", "two words")]);
        assert!(!with_causes(&unsendable).contains("two words"), "{unsendable}");
        let error = error(r#"{"provider": "exa", "key_env": "sk-1"}"#, &[]);
        assert_eq!(with_causes(&error), "no key for `exa`: `key_env` is not the name of a variable");
        assert!(!error.hint().unwrap().contains("sk-1"));
    }
}
