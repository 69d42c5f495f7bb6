//! Resolves the table `[web]` and the environment into a [`WebSource`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::polite::{Contact, ParseContactError};
use super::search_engine::{EngineClient, SearchEngine};
use super::{AllowedHost, DateRange, FetchOptions, Fetcher, FixtureProvider, PageStore, SearchProvider, WebSource};
use crate::base::clock::Clock;
use crate::base::environment::{Environment, KeyError};
use crate::base::http::{BaseUrl, HttpError, ParseBaseUrlError, shown};

/// Prefix of `provider` for a file of recorded results.
const FIXTURE: &str = "fixture:";

/// The table `[web]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebOptions {
    /// Names of engines, separated by commas, `fixture:FILE` for recorded results, or `none`.
    pub(crate) provider: Option<String>,
    /// Address of the engine; `None` for its public one. Needs a single engine.
    pub(crate) base_url: Option<String>,
    /// The variable that holds its key; `None` for the engine's usual one. Needs a single engine.
    pub(crate) key_env: Option<String>,
    /// Where the operators of engines without a key can reach the user.
    pub(crate) contact: Option<String>,
    /// Whether pages are fetched. Without them a run has only snippets, so quotes from the web cannot be verified.
    pub(crate) fetch: Option<bool>,
    /// Intranet machines that pages may be fetched from: hosts, `host:port`, or networks.
    #[serde(default)]
    pub(crate) allowed_hosts: Vec<String>,
}

/// Settings in `[web]` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WebSettingsError {
    #[error("`{name}` is not a search engine")]
    UnknownProvider { name: String },
    #[error("no key for `{engine}`")]
    Key { engine: SearchEngine, source: KeyError },
    #[error("invalid address for the search engine")]
    Address(#[from] ParseBaseUrlError),
    #[error("invalid address in `{variable}`")]
    Variable { variable: &'static str, source: ParseBaseUrlError },
    #[error("invalid entry in `allowed_hosts` of `[web]`")]
    Host(#[from] super::ParseAllowedHostError),
    #[error("`{setting}` in `[web]` needs a single engine, but `provider` names several")]
    ForOne { setting: &'static str },
    #[error("invalid `contact` in `[web]`")]
    Contact(#[from] ParseContactError),
    #[error("no address for `{engine}`")]
    NoAddress { engine: SearchEngine },
    #[error(transparent)]
    Fixture(#[from] super::FixtureError),
    #[error(transparent)]
    Http(#[from] HttpError),
}

impl WebSettingsError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownProvider { .. } => {
                let names: Vec<_> = SearchEngine::all().map(|engine| format!("`{engine}`")).collect();
                Some(format!("{} and `{FIXTURE}FILE` are known", names.join(", ")))
            }
            Self::Key { source: source @ KeyError::NotSet { .. }, .. } => {
                Some(format!("{}, or name another engine in `[web]`", source.hint()))
            }
            Self::Key { source, .. } => Some(source.hint()),
            Self::NoAddress { engine } => {
                Some(format!("set `base_url` in `[web]`, or export `{}`", engine.variable().unwrap_or_default()))
            }
            Self::ForOne { .. } => Some("name one engine, or leave the others at their public addresses".into()),
            Self::Host(error) => Some(error.hint()),
            Self::Contact(_) | Self::Address(_) | Self::Variable { .. } | Self::Fixture(_) | Self::Http(_) => None,
        }
    }
}

#[derive(Clone)]
pub struct WebAccess {
    /// Searches and opens pages.
    pub source: Arc<WebSource>,
    /// Whether a search engine is set up. Without one, pages the user names can still be opened.
    pub can_search: bool,
}

impl WebOptions {
    /// Default of `fetch`, which its row states.
    pub(crate) const FETCH: bool = true;

    /// Resolves the settings. Pages are cached in the folder `pages`, and pages from outside `dates` are dropped.
    ///
    /// # Errors
    ///
    /// Returns an error for settings that cannot be used. Nothing is sent.
    pub(crate) fn resolve(
        &self,
        environment: &Environment,
        pages: PageStore,
        dates: DateRange,
        clock: Arc<dyn Clock>,
    ) -> Result<WebAccess, WebSettingsError> {
        let providers = self.providers(environment)?;
        let can_search = !providers.is_empty();
        let allowed_hosts =
            self.allowed_hosts.iter().map(|host| host.parse()).collect::<Result<Vec<AllowedHost>, _>>()?;
        let options = FetchOptions { allowed_hosts, ..FetchOptions::default() };
        let fetcher = self.fetch.unwrap_or(Self::FETCH).then(|| Fetcher::new(options, Arc::clone(&clock)));
        let fetcher = fetcher.transpose()?.map(Arc::new);
        let source = WebSource::new(providers, fetcher, pages, clock).with_dates(dates);
        Ok(WebAccess { source: Arc::new(source), can_search })
    }

    /// Returns the engines the settings name, else the first whose variable is set.
    fn providers(&self, environment: &Environment) -> Result<Vec<Arc<dyn SearchProvider>>, WebSettingsError> {
        if let Some(file) = self.provider.as_deref().and_then(|names| names.strip_prefix(FIXTURE)) {
            return Ok(vec![Arc::new(FixtureProvider::from_file(file.as_ref())?)]);
        }
        let engines = self.engines(environment)?;
        let for_one = [("base_url", &self.base_url), ("key_env", &self.key_env)];
        if let Some((setting, _)) = for_one.into_iter().find(|(_, text)| engines.len() > 1 && text.is_some()) {
            return Err(WebSettingsError::ForOne { setting });
        }
        engines.into_iter().map(|engine| self.provider(engine, environment)).collect()
    }

    /// Sets an engine up, with the key that was resolved for it.
    fn provider(
        &self,
        engine: SearchEngine,
        environment: &Environment,
    ) -> Result<Arc<dyn SearchProvider>, WebSettingsError> {
        let own: Option<BaseUrl> = self.base_url.as_deref().map(str::parse).transpose()?;
        let contact: Option<Contact> = self.contact.as_deref().map(str::parse).transpose()?;
        let key = match engine.variable().filter(|_| engine.has_key()) {
            // One with a pace answers without a key, too. A key that a setting names must be there.
            Some(usual) if engine.pace().is_some() && self.key_env.is_none() && environment.get(usual).is_none() => {
                None
            }
            Some(usual) => {
                let key = environment.key(self.key_env.as_deref().unwrap_or(usual));
                Some(key.map_err(|source| WebSettingsError::Key { engine, source })?)
            }
            None => None,
        };
        let address = match own.or_else(|| engine.public_address()) {
            Some(address) => address,
            None => address_in(engine, environment)?,
        };
        Ok(Arc::new(EngineClient::new(engine, address, key, contact.as_ref())?))
    }

    /// Returns the engines, each once. The list is empty if the web is not searched.
    fn engines(&self, environment: &Environment) -> Result<Vec<SearchEngine>, WebSettingsError> {
        let names = match self.provider.as_deref() {
            // `base_url` without `provider` can only mean SearXNG, the one engine without a public address.
            None if self.base_url.is_some() => return Ok(vec![SearchEngine::SearxNg]),
            None => {
                let is_set = |name| environment.get(name).is_some();
                let first = SearchEngine::all().find(|engine| engine.variable().is_some_and(is_set));
                return Ok(first.into_iter().collect());
            }
            Some("none") => return Ok(Vec::new()),
            Some(names) => names,
        };
        let mut engines = Vec::new();
        for name in names.split(',').map(str::trim) {
            let engine = SearchEngine::all().find(|engine| engine.name() == name);
            let engine = engine.ok_or_else(|| WebSettingsError::UnknownProvider { name: shown(name) })?;
            if !engines.contains(&engine) {
                engines.push(engine);
            }
        }
        Ok(engines)
    }
}

/// Returns the address in the variable of an engine that has no public one.
fn address_in(engine: SearchEngine, environment: &Environment) -> Result<BaseUrl, WebSettingsError> {
    let set = engine.variable().and_then(|variable| Some((variable, environment.get(variable)?)));
    let (variable, address) = set.ok_or(WebSettingsError::NoAddress { engine })?;
    address.parse().map_err(|source| WebSettingsError::Variable { variable, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;
    use crate::base::line::with_causes;

    const SEARXNG_URL: &str = "SEARXNG_URL";

    fn resolve(toml: &str, variables: &[(&str, &str)]) -> Result<WebAccess, WebSettingsError> {
        let options: WebOptions = serde_json::from_str(toml).unwrap();
        let environment = Environment::of(variables.iter().copied());
        let pages = PageStore::new(std::env::temp_dir(), std::env::temp_dir().join("key"));
        options.resolve(&environment, pages, DateRange::default(), Arc::new(ManualClock::default()))
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
        let variables = SearchEngine::all().filter_map(|engine| Some((engine, engine.variable()?)));
        for (engine, variable) in variables {
            let text = if engine == SearchEngine::SearxNg { "http://localhost:8888" } else { "k" };
            let named = format!(r#"{{"provider": "{engine}"}}"#);
            let other = SearchEngine::all().find(|other| *other != engine).and_then(SearchEngine::variable).unwrap();
            for toml in ["{}", named.as_str()] {
                assert_eq!(scope(toml, &[(variable, text)]), format!("the web ({engine})"));
            }
            if engine == SearchEngine::OpenAlex {
                continue;
            }
            let error = resolve(&named, &[(other, "http://localhost:8888")]).err().unwrap();
            assert!(error.hint().unwrap().contains(variable), "{engine}: {error}");
        }
    }

    #[test]
    fn engines_without_a_key_are_asked_if_they_are_named_alone_or_beside_others() {
        let names: Vec<_> = SearchEngine::all().filter(|engine| engine.variable().is_none()).collect();
        for engine in names.iter().chain([&SearchEngine::OpenAlex]) {
            assert_eq!(scope(&format!(r#"{{"provider": "{engine}"}}"#), &[]), format!("the web ({engine})"));
        }
        let several = r#"{"provider": "wikipedia, exa,wikipedia", "contact": "ada@example.org"}"#;
        assert_eq!(scope(several, &[("EXA_API_KEY", "k")]), "the web (wikipedia, exa)");
        let error = |toml: &str| with_causes(&resolve(toml, &[("EXA_API_KEY", "k")]).err().unwrap());
        let for_one = "`base_url` in `[web]` needs a single engine, but `provider` names several";
        assert_eq!(error(r#"{"provider": "wikipedia,exa", "base_url": "http://localhost:1"}"#), for_one);
        assert_eq!(error(r#"{"provider": "wikipedia,"}"#), "`` is not a search engine");
        assert!(error(r#"{"provider": "wikipedia", "contact": "me\r\nX: y"}"#).starts_with("invalid `contact`"));
    }

    #[test]
    fn setting_that_cannot_be_used_is_an_error_that_says_what_to_do_and_shows_no_key() {
        let error = |toml: &str, variables: &[(&str, &str)]| resolve(toml, variables).err().unwrap();
        assert_eq!(
            error(r#"{"provider": "gopher"}"#, &[]).hint().unwrap(),
            "`searxng`, `tavily`, `brave`, `exa`, `wikipedia`, `arxiv`, `openalex`, `crossref`, `europepmc` and `fixture:FILE` \
             are known"
        );
        assert_eq!(with_causes(&error(r#"{"provider": "exa"}"#, &[])), "no key for `exa`: `EXA_API_KEY` is not set");
        let no_address = error(r#"{"provider": "searxng"}"#, &[]);
        assert_eq!(no_address.to_string(), "no address for `searxng`");
        assert_eq!(no_address.hint().unwrap(), "set `base_url` in `[web]`, or export `SEARXNG_URL`");
        let nonsense = with_causes(&error("{}", &[(SEARXNG_URL, "nonsense")]));
        assert!(nonsense.starts_with("invalid address in `SEARXNG_URL`: `nonsense` is not"), "{nonsense}");
        let unsendable = error(r#"{"provider": "exa", "key_env": "MY"}"#, &[("MY", "two words")]);
        assert!(!with_causes(&unsendable).contains("two words"), "{unsendable}");
        let error = error(r#"{"provider": "exa", "key_env": "sk-1"}"#, &[]);
        assert_eq!(with_causes(&error), "no key for `exa`: `key_env` is not the name of a variable");
        assert!(!error.hint().unwrap().contains("sk-1"));
    }
}
