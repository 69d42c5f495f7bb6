//! The table `[web]` and the environment become a [`WebSource`].

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    AllowedHost, Brave, DateRange, Exa, FetchOptions, Fetcher, FixtureProvider, PageStore, SearchProvider, SearxNg,
    Tavily, WebSource,
};
use crate::base::clock::Clock;
use crate::base::http::{BaseUrl, HttpError, ParseBaseUrlError, ParseSecretError, Secret, shown};

/// The variable the address of a search engine of one's own is in.
pub const SEARXNG_URL: &str = "SEARXNG_URL";

/// The variables that set up a search engine by being there.
pub const ENGINE_VARIABLES: [&str; 4] = [SEARXNG_URL, "TAVILY_API_KEY", "BRAVE_API_KEY", "EXA_API_KEY"];

/// What a provider that is a file begins with.
const FIXTURE: &str = "fixture:";

/// The table `[web]`, every field optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebOptions {
    /// The search engine: `searxng`, `tavily`, `brave`, `exa`, `fixture:FILE` or `none`.
    pub provider: Option<String>,
    /// Where it is, where that is not its own place.
    pub base_url: Option<String>,
    /// The variable its key is in, where that is not its own.
    pub key_env: Option<String>,
    /// Whether pages are fetched; else snippets are all there is, and nothing from the web is checked.
    pub fetch: Option<bool>,
    /// Machines of an intranet that may be asked: hosts, `host:port`, or networks.
    #[serde(default)]
    pub allowed_hosts: Vec<String>,
}

/// Settings of the web cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WebSettingsError {
    /// There is no such search engine.
    #[error("`{name}` is not a search engine")]
    UnknownProvider {
        /// What was named.
        name: String,
    },
    /// The engine wants a key.
    #[error("no key for `{provider}`: `{variable}` is not set")]
    NoKey {
        /// The engine.
        provider: String,
        /// Where the key should be.
        variable: String,
    },
    /// The name of the variable is none. It is not shown: it may be the key itself.
    #[error("`key_env` of `{provider}` is not the name of a variable")]
    BadKeyName {
        /// The engine.
        provider: String,
    },
    /// The key cannot be sent.
    #[error("key in `{variable}` cannot be used")]
    BadKey {
        /// Where it is.
        variable: String,
        /// Why.
        #[source]
        source: ParseSecretError,
    },
    /// The address is none.
    #[error("address of the search engine")]
    Address(#[from] ParseBaseUrlError),
    /// A host is none.
    #[error("`allowed_hosts` of the web")]
    Host(#[from] super::ParseAllowedHostError),
    /// `SearXNG` is a program of one's own, so it has no place of its own.
    #[error("address of SearXNG is not known")]
    NoAddress,
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
                Some("`searxng`, `tavily`, `brave`, `exa` and `fixture:FILE` are known".into())
            }
            Self::NoKey { variable, .. } => Some(format!("export `{variable}`, or name another engine in `[web]`")),
            Self::BadKeyName { .. } => Some("name the variable the key is in, for example `MY_API_KEY`".into()),
            Self::NoAddress => Some(format!("set `base_url` in `[web]`, or export `{SEARXNG_URL}`")),
            Self::BadKey { .. } => Some("a key is one word of letters, digits and signs".into()),
            Self::Host(error) => Some(error.hint()),
            Self::Address(_) | Self::Fixture(_) | Self::Http(_) => None,
        }
    }
}

/// What the environment adds to the settings.
pub struct WebEnvironment<'a> {
    /// Returns a variable that is set to something.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// Where models are, as the user's environment says; on this machine its pages may be fetched too.
    pub models_at: Option<String>,
    /// Where pages are kept.
    pub pages: PathBuf,
    /// The days of pages that are wanted, where their day is known.
    pub dates: DateRange,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// The web, as far as it is set up.
#[derive(Clone)]
pub struct WebAccess {
    /// Searches, and opens pages.
    pub source: Arc<WebSource>,
    /// Whether there is a search engine; else pages that somebody else named can be opened all the same.
    pub can_search: bool,
}

impl WebOptions {
    /// Sets the web up.
    ///
    /// # Errors
    ///
    /// Returns an error for settings that cannot be used. Nothing is sent.
    pub fn resolve(&self, environment: WebEnvironment<'_>) -> Result<WebAccess, WebSettingsError> {
        let provider = self.engine(&environment)?;
        let can_search = provider.is_some();
        let mut allowed_hosts =
            self.allowed_hosts.iter().map(|host| host.parse()).collect::<Result<Vec<AllowedHost>, _>>()?;
        allowed_hosts.extend(environment.models_at.as_deref().and_then(own_machine));
        let options = FetchOptions { allowed_hosts, ..FetchOptions::default() };
        let fetcher = match self.fetch {
            Some(false) => None,
            _ => Some(Arc::new(Fetcher::new(options, Arc::clone(&environment.clock))?)),
        };
        let provider = provider.unwrap_or_else(|| Arc::new(FixtureProvider::default()));
        let pages = PageStore::new(environment.pages);
        let source = WebSource::new(provider, fetcher, pages, environment.clock).with_dates(environment.dates);
        Ok(WebAccess { source: Arc::new(source), can_search })
    }

    /// Returns the search engine that is named, else the first the environment has an address or a key for.
    fn engine(&self, environment: &WebEnvironment<'_>) -> Result<Option<Arc<dyn SearchProvider>>, WebSettingsError> {
        let [_, tavily, brave, exa] = ENGINE_VARIABLES;
        let keyed = [("tavily", tavily), ("brave", brave), ("exa", exa)];
        let has = |name: &str| (environment.variable)(name).is_some();
        let name = match self.provider.as_deref() {
            Some("none") => return Ok(None),
            Some(name) => name,
            None if self.base_url.is_some() || has(SEARXNG_URL) => "searxng",
            None => match keyed.iter().find(|(_, variable)| has(variable)) {
                Some((name, _)) => name,
                None => return Ok(None),
            },
        };
        if let Some(file) = name.strip_prefix(FIXTURE) {
            return Ok(Some(Arc::new(FixtureProvider::from_file(file.as_ref())?)));
        }
        let address: Option<BaseUrl> = self.base_url.as_deref().map(str::parse).transpose()?;
        if name == "searxng" {
            let own = || (environment.variable)(SEARXNG_URL).map(|url| url.parse::<BaseUrl>()).transpose();
            let address = match address {
                Some(address) => Some(address),
                None => own()?,
            };
            return Ok(Some(Arc::new(SearxNg::new(address.ok_or(WebSettingsError::NoAddress)?)?)));
        }
        let Some((_, variable)) = keyed.iter().find(|(known, _)| *known == name) else {
            return Err(WebSettingsError::UnknownProvider { name: shown(name) });
        };
        let variable = self.key_env.clone().unwrap_or_else(|| (*variable).to_owned());
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if variable.is_empty() || !variable.bytes().all(is_part) {
            return Err(WebSettingsError::BadKeyName { provider: name.to_owned() });
        }
        let key = (environment.variable)(&variable)
            .ok_or_else(|| WebSettingsError::NoKey { provider: name.to_owned(), variable: shown(&variable) })?;
        let key: Secret =
            key.parse().map_err(|source| WebSettingsError::BadKey { variable: shown(&variable), source })?;
        Ok(Some(match name {
            "tavily" => Arc::new(Tavily::new(key, address)?),
            "brave" => Arc::new(Brave::new(key, address)?),
            _ => Arc::new(Exa::new(key, address)?),
        }))
    }
}

/// Returns the machine and port of an endpoint on this machine.
fn own_machine(address: &str) -> Option<AllowedHost> {
    let address = address.parse::<BaseUrl>().ok().filter(BaseUrl::is_loopback)?;
    address.authority().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;

    fn resolve(toml: &str, variables: &[(&str, &str)]) -> Result<WebAccess, WebSettingsError> {
        let options: WebOptions = serde_json::from_str(toml).unwrap();
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        options.resolve(WebEnvironment {
            variable: &variable,
            models_at: None,
            pages: std::env::temp_dir(),
            dates: DateRange::default(),
            clock: Arc::new(ManualClock::default()),
        })
    }

    fn scope(toml: &str, variables: &[(&str, &str)]) -> String {
        use crate::source::Source;
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

    fn error_of_key_name() -> WebSettingsError {
        resolve(r#"{"provider": "exa", "key_env": "sk-1"}"#, &[]).err().unwrap()
    }

    #[test]
    fn setting_that_cannot_be_used_is_an_error_that_says_what_to_do_and_shows_no_key() {
        let error = |toml: &str, variables: &[(&str, &str)]| resolve(toml, variables).err().unwrap();
        assert!(error(r#"{"provider": "gopher"}"#, &[]).hint().unwrap().contains("searxng"));
        assert_eq!(error(r#"{"provider": "exa"}"#, &[]).to_string(), "no key for `exa`: `EXA_API_KEY` is not set");
        assert!(matches!(error(r#"{"provider": "searxng"}"#, &[]), WebSettingsError::NoAddress));
        let error = error(r#"{"provider": "exa", "key_env": "MY"}"#, &[("MY", "two words")]);
        assert!(!error.to_string().contains("two words"), "{error}");
        let error = error_of_key_name();
        assert_eq!(error.to_string(), "`key_env` of `exa` is not the name of a variable");
        assert!(!error.hint().unwrap().contains("sk-1"));
    }
}
