//! The settings of Deep Research: which models, at which endpoint, within which limits.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::provider::ProviderKind;
use super::request::{JobRequest, McpServer};
use crate::base::environment::{Environment, KeyError};
use crate::base::http::{BaseUrl, ParseBaseUrlError, Secret, shown};
use crate::base::money::nanos;
use crate::base::outbound::Outbound;
use crate::llm::endpoint::{EndpointError, ModelEndpoint};
use crate::llm::openai::Effort;
use crate::llm::price::{Price, PriceTable};

/// Models that do research, in the order they are tried; what is shut down is passed over.
const MODELS: [&str; 6] =
    ["gpt-6.1-sol", "gpt-6-sol", "gpt-5.6-sol", "gpt-5.5", "o4-mini-deep-research", "o3-deep-research"];

/// Dollars one job may cost, where nothing else is set.
const MAX_COST: f64 = 3.0;

/// Most dollars one job may be allowed.
const MOST_COST: f64 = 10_000.0;

/// Jobs of one run, where nothing else is set.
const MAX_JOBS: usize = 3;

/// Most jobs one run may be allowed.
pub const MOST_JOBS: u16 = 100;

/// Longest name of a model, in bytes.
const MAX_MODEL: usize = 200;

/// Calls of tools a job may make, where nothing else is set.
const MAX_TOOL_CALLS: u32 = 30;

/// Tokens of a reply and the reasoning before it, where nothing else is set.
const MAX_OUTPUT_TOKENS: u32 = 60_000;

/// Minutes a job may take, where nothing else is set.
const TIMEOUT_MINUTES: u64 = 30;

/// Most minutes it may be allowed: a provider keeps a job no longer.
const MOST_MINUTES: u64 = 24 * 60;

/// Hosts a search can be kept to, or kept from.
const MAX_DOMAINS: usize = 100;

/// The table `[deep_research]`, every field optional.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeepResearchOptions {
    /// The models to use, the first that can be had.
    pub models: Option<Vec<String>>,
    /// Where the endpoint is.
    pub base_url: Option<String>,
    /// The variable its key is in.
    pub key_env: Option<String>,
    /// Whether the endpoint is one's own, so that it costs nothing.
    pub local: Option<bool>,
    /// How hard a model thinks that can be told so.
    pub effort: Option<Effort>,
    /// Whether summaries of the reasoning are asked for; some accounts may not have them.
    pub summaries: Option<bool>,
    /// Dollars set aside for one job.
    pub max_cost: Option<f64>,
    /// Jobs one run may start.
    pub max_jobs: Option<usize>,
    /// Calls of tools one job may make.
    pub max_tool_calls: Option<u32>,
    /// Tokens of one job's reply, reasoning included.
    pub max_output_tokens: Option<u32>,
    /// Hosts that are searched; all where there are none.
    pub allowed_domains: Option<Vec<String>>,
    /// Hosts that are not searched.
    pub blocked_domains: Option<Vec<String>>,
    /// Whether the model may run code of its own, at the provider's.
    pub code_interpreter: Option<bool>,
    /// A tool server that the provider may ask.
    pub mcp: Option<McpOptions>,
    /// Minutes one job may take.
    pub timeout_minutes: Option<u64>,
}

/// The table `[deep_research.mcp]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpOptions {
    /// What the model calls the server.
    pub label: String,
    /// Where it is; the provider must be able to reach it.
    pub url: String,
    /// The variable its authorization is in.
    pub key_env: Option<String>,
    /// The tools that may be used; all where there are none.
    #[serde(default)]
    pub allowed_tools: Vec<String>,
}

/// Settings of Deep Research cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DeepResearchError {
    /// There is no usable key.
    #[error("no key for Deep Research")]
    Key(#[from] KeyError),
    /// An address is none.
    #[error("{what} of Deep Research cannot be reached")]
    BadAddress {
        /// Whose: `endpoint`, `tool server`.
        what: &'static str,
        /// Why.
        #[source]
        source: ParseBaseUrlError,
    },
    /// There is no model to start a job with.
    #[error("`models` is empty, so no job can be started")]
    NoModels,
    /// The name of a model is none. It is not shown: nobody knows what it is.
    #[error("name {place} of `models` is not that of a model (expected up to 200 letters, digits and signs)")]
    BadModel {
        /// Which, from 1.
        place: usize,
    },
    /// A host is none.
    #[error("`{domain}` is not the name of a host")]
    BadDomain {
        /// The text.
        domain: String,
    },
    /// There are too many hosts.
    #[error("`{field}` has {count} hosts (expected at most 100)")]
    TooManyDomains {
        /// Which list.
        field: &'static str,
        /// How many.
        count: usize,
    },
    /// The label of a tool server cannot be used.
    #[error("`{label}` is not the label of a tool server (expected letters, digits, `_` and `-`)")]
    BadLabel {
        /// The text.
        label: String,
    },
    /// A limit is out of range.
    #[error("`{field}` is {value} (expected {expected})")]
    BadLimit {
        /// Which.
        field: &'static str,
        /// What it is.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
}

impl DeepResearchError {
    /// Returns what the user can do about this error, if there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Key(error @ KeyError::NotSet { .. }) => {
                Some(format!("{}, or take `key_env` out of the settings", error.hint()))
            }
            Self::Key(error) => Some(error.hint()),
            Self::BadAddress { .. } => Some("a key goes into a variable, named by `key_env`".into()),
            Self::NoModels => Some(
                "name a model, or leave `models` out; `max_jobs = 0` turns Deep Research off, and `--no-deep-research` \
                 for one run"
                    .into(),
            ),
            Self::BadModel { .. } => Some("write a name as `dr doctor` shows others, for example `gpt-6-sol`".into()),
            Self::BadDomain { .. } => Some("write hosts without `https://` and path, for example `example.org`".into()),
            Self::TooManyDomains { .. } | Self::BadLabel { .. } | Self::BadLimit { .. } => None,
        }
    }
}

/// Deep Research, as it is set up.
#[derive(Clone, Debug, PartialEq)]
pub struct DeepResearchSettings {
    /// Which provider runs the jobs.
    pub provider: ProviderKind,
    /// Where the endpoint is.
    pub address: BaseUrl,
    /// What it is presented with; nothing where it wants nothing.
    pub key: Option<Secret>,
    /// Whether it costs nothing unless it is priced.
    pub is_free: bool,
    /// The models to use, the first that can be had.
    pub models: Vec<String>,
    /// Whether the user named them.
    pub is_named: bool,
    /// How hard a model thinks that can be told so.
    pub effort: Effort,
    /// Whether summaries of the reasoning are asked for.
    pub summaries: bool,
    /// Billionths of a dollar set aside for one job.
    pub max_cost_nanos: u64,
    /// Jobs one run may start.
    pub max_jobs: usize,
    /// Calls of tools one job may make.
    pub max_tool_calls: u32,
    /// Tokens of one job's reply, reasoning included.
    pub max_output_tokens: u32,
    /// Hosts that are searched; all where there are none.
    pub allowed_domains: Vec<String>,
    /// Hosts that are not searched.
    pub blocked_domains: Vec<String>,
    /// Whether the model may run code of its own.
    pub code_interpreter: bool,
    /// A tool server that the provider may ask.
    pub mcp: Option<McpServer>,
    /// How long one job may take.
    pub timeout: Duration,
}

impl DeepResearchSettings {
    /// Resolves settings; nothing where there is neither a key nor an endpoint of its own, so that there is no Deep
    /// Research.
    ///
    /// # Errors
    ///
    /// Returns an error for settings that cannot be used, whether or not there is a key.
    pub fn resolve(
        options: &DeepResearchOptions,
        environment: &Environment,
    ) -> Result<Option<Self>, DeepResearchError> {
        let endpoint = ModelEndpoint::resolve(options.base_url.as_deref(), options.key_env.as_deref(), environment);
        let endpoint = endpoint.map_err(|error| match error {
            EndpointError::Address(source) => DeepResearchError::BadAddress { what: "endpoint", source },
            EndpointError::Key(source) => DeepResearchError::Key(source),
        })?;
        let is_openai = endpoint.is_openai();
        let ModelEndpoint { address, key } = endpoint;
        let max_jobs = max_jobs(options.max_jobs.unwrap_or(MAX_JOBS))?;
        let settings = Self {
            provider: ProviderKind::OpenAi,
            is_free: address.is_loopback() || options.local == Some(true),
            models: models(options.models.as_deref(), max_jobs)?,
            is_named: options.models.is_some(),
            effort: options.effort.clone().unwrap_or(Effort::High),
            summaries: options.summaries.unwrap_or(true),
            max_cost_nanos: max_cost(options.max_cost.unwrap_or(MAX_COST))?,
            max_jobs,
            max_tool_calls: at_least_one("max_tool_calls", options.max_tool_calls.unwrap_or(MAX_TOOL_CALLS))?,
            max_output_tokens: at_least_one(
                "max_output_tokens",
                options.max_output_tokens.unwrap_or(MAX_OUTPUT_TOKENS),
            )?,
            allowed_domains: domains("allowed_domains", options.allowed_domains.as_deref())?,
            blocked_domains: domains("blocked_domains", options.blocked_domains.as_deref())?,
            code_interpreter: options.code_interpreter.unwrap_or(false),
            mcp: options.mcp.as_ref().map(|options| mcp(options, environment)).transpose()?,
            timeout: timeout(options.timeout_minutes.unwrap_or(TIMEOUT_MINUTES))?,
            key,
            address,
        };
        let is_available = settings.key.is_some() || (options.base_url.is_some() && !is_openai);
        Ok(is_available.then_some(settings))
    }

    /// Returns the request that has `model` do what `instructions` say, within these settings.
    pub fn request(&self, model: &str, instructions: Outbound, metadata: BTreeMap<String, String>) -> JobRequest {
        JobRequest {
            model: model.to_owned(),
            instructions,
            effort: self.effort.clone(),
            summaries: self.summaries,
            max_tool_calls: self.max_tool_calls,
            max_output_tokens: self.max_output_tokens,
            allowed_domains: self.allowed_domains.clone(),
            blocked_domains: self.blocked_domains.clone(),
            code_interpreter: self.code_interpreter,
            mcp: self.mcp.clone(),
            metadata,
        }
    }

    /// Returns what a model costs here; none where nobody knows it.
    pub fn price(&self, model: &str, prices: &PriceTable) -> Option<Price> {
        prices.at(model, self.is_free, self.is_named)
    }
}

/// Returns what is set aside for one job in billionths of a dollar; none without a price, so that it cannot run under a
/// limit of money.
///
/// A job reads what it finds again and again, so no sum made beforehand bounds it. The user's cap stands in for one; what
/// a job costs above it is accounted for like the rest.
pub fn job_cap(settings: &DeepResearchSettings, price: Option<&Price>) -> Option<u64> {
    price.map(|price| if *price == Price::FREE { 0 } else { settings.max_cost_nanos })
}

fn max_cost(dollars: f64) -> Result<u64, DeepResearchError> {
    let is_usable = (0.0..=MOST_COST).contains(&dollars) && dollars > 0.0;
    let error = || bad_limit("max_cost", &dollars, "more than 0 and up to 10,000 dollars");
    if is_usable { Ok(nanos(dollars)) } else { Err(error()) }
}

/// Returns the models that are named, else those that do research; only where no job is wanted there need be none.
fn models(named: Option<&[String]>, max_jobs: usize) -> Result<Vec<String>, DeepResearchError> {
    let Some(named) = named else { return Ok(MODELS.map(str::to_owned).to_vec()) };
    if named.is_empty() && max_jobs > 0 {
        return Err(DeepResearchError::NoModels);
    }
    let is_name =
        |name: &String| (1..=MAX_MODEL).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    match named.iter().position(|name| !is_name(name)) {
        Some(at) => Err(DeepResearchError::BadModel { place: at + 1 }),
        None => Ok(named.to_vec()),
    }
}

fn max_jobs(jobs: usize) -> Result<usize, DeepResearchError> {
    if jobs <= usize::from(MOST_JOBS) { Ok(jobs) } else { Err(bad_limit("max_jobs", &jobs, "0 to 100")) }
}

fn at_least_one(field: &'static str, value: u32) -> Result<u32, DeepResearchError> {
    if value > 0 { Ok(value) } else { Err(bad_limit(field, &value, "1 or more")) }
}

fn timeout(minutes: u64) -> Result<Duration, DeepResearchError> {
    let is_usable = (1..=MOST_MINUTES).contains(&minutes);
    let error = || bad_limit("timeout_minutes", &minutes, "1 to 1,440");
    if is_usable { Ok(Duration::from_mins(minutes)) } else { Err(error()) }
}

fn bad_limit(field: &'static str, value: &dyn std::fmt::Display, expected: &'static str) -> DeepResearchError {
    DeepResearchError::BadLimit { field, value: value.to_string(), expected }
}

fn domains(field: &'static str, domains: Option<&[String]>) -> Result<Vec<String>, DeepResearchError> {
    let domains = domains.unwrap_or_default();
    if domains.len() > MAX_DOMAINS {
        return Err(DeepResearchError::TooManyDomains { field, count: domains.len() });
    }
    domains.iter().map(|domain| host(domain)).collect()
}

/// Returns the name of a host as a search takes it; nothing but letters, digits, dots and dashes is one.
fn host(text: &str) -> Result<String, DeepResearchError> {
    let host = text.trim().trim_end_matches('.').to_ascii_lowercase();
    let is_label = |label: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len()) && label.bytes().all(is_part)
    };
    let is_host = host.len() <= 253 && host.split('.').all(is_label);
    if is_host { Ok(host) } else { Err(DeepResearchError::BadDomain { domain: shown(text) }) }
}

fn mcp(options: &McpOptions, environment: &Environment) -> Result<McpServer, DeepResearchError> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !(1..=64).contains(&options.label.len()) || !options.label.bytes().all(is_part) {
        return Err(DeepResearchError::BadLabel { label: shown(&options.label) });
    }
    Ok(McpServer {
        label: options.label.clone(),
        url: options.url.parse().map_err(|source| DeepResearchError::BadAddress { what: "tool server", source })?,
        authorization: options.key_env.as_deref().map(|name| environment.key(name)).transpose()?,
        allowed_tools: options.allowed_tools.clone(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::base::environment::{OPENAI_BASE_URL, OPENAI_KEY};
    use crate::base::line::with_causes;
    use crate::llm::endpoint::OPENAI;

    const LOCAL: &str = "http://localhost:9999/v1";

    fn options(options: Value) -> DeepResearchOptions {
        serde_json::from_value(options).unwrap()
    }

    fn resolved(
        text: Value,
        base_url: Option<&str>,
        variables: &[(&str, &str)],
    ) -> Result<Option<DeepResearchSettings>, DeepResearchError> {
        let base_url = base_url.map(|address| (OPENAI_BASE_URL, address));
        let environment = Environment::of(variables.iter().copied().chain(base_url));
        DeepResearchSettings::resolve(&options(text), &environment)
    }

    fn prices() -> PriceTable {
        PriceTable::with(&BTreeMap::new()).unwrap()
    }

    const KEY: [(&str, &str); 2] = [(OPENAI_KEY, "sk-1"), ("MINE", "sk-2")];

    #[test]
    fn key_is_all_it_takes() {
        let settings = resolved(json!({}), None, &KEY).unwrap().unwrap();
        assert_eq!((settings.address.host(), &settings.key), ("api.openai.com", &Some("sk-1".parse().unwrap())));
        assert_eq!(settings.models[0], "gpt-6.1-sol");
        assert_eq!((settings.max_cost_nanos, settings.max_jobs, settings.max_tool_calls), (3_000_000_000, 3, 30));
        assert_eq!((settings.timeout, settings.effort.clone()), (Duration::from_mins(30), Effort::High));
        assert!(!settings.is_free && !settings.code_interpreter && settings.mcp.is_none());
        for model in &settings.models {
            let cap = job_cap(&settings, settings.price(model, &prices()).as_ref());
            assert_eq!(cap, Some(3_000_000_000), "{model} has a price");
        }
        assert!(settings.provider.connect(&settings).is_ok());
    }

    #[test]
    fn without_a_key_or_an_endpoint_there_is_none() {
        assert_eq!(resolved(json!({}), None, &[]).unwrap(), None);
        assert_eq!(resolved(json!({}), Some(LOCAL), &[]).unwrap(), None, "most local servers do no research");
        assert_eq!(resolved(json!({ "base_url": OPENAI }), None, &[]).unwrap(), None);
        assert!(resolved(json!({ "base_url": LOCAL }), None, &[]).unwrap().is_some());
    }

    #[test]
    fn key_goes_only_where_it_belongs() {
        let key = |text, base_url| resolved(text, base_url, &KEY).unwrap().unwrap().key;
        assert_eq!(key(json!({}), Some(LOCAL)), Some("sk-1".parse().unwrap()));
        assert_eq!(key(json!({ "base_url": LOCAL }), None), None);
        assert_eq!(key(json!({ "base_url": LOCAL, "key_env": "MINE" }), None), Some("sk-2".parse().unwrap()));
    }

    #[test]
    fn loopback_costs_nothing_unless_priced_and_a_stranger_elsewhere_has_no_price() {
        let cap = |text, model| {
            let settings = resolved(text, None, &KEY).unwrap().unwrap();
            job_cap(&settings, settings.price(model, &prices()).as_ref())
        };
        assert_eq!(cap(json!({ "base_url": LOCAL }), "mine"), Some(0));
        assert_eq!(
            cap(json!({ "base_url": LOCAL, "max_cost": 0.5, "models": ["gpt-6-sol"] }), "gpt-6-sol"),
            Some(500_000_000)
        );
        assert_eq!(cap(json!({ "base_url": LOCAL, "max_cost": 0.5 }), "gpt-6-sol"), Some(0), "nobody named it");
        assert_eq!(cap(json!({ "base_url": "https://gpu.example/v1" }), "mine"), None);
        assert_eq!(cap(json!({ "base_url": "https://gpu.example/v1", "local": true }), "mine"), Some(0));
    }

    #[test]
    fn everything_that_is_set_reaches_the_request() {
        let text = json!({
            "models": ["mine"], "effort": "xhigh", "summaries": false, "max_tool_calls": 7, "max_output_tokens": 900,
            "allowed_domains": [" Example.ORG. "], "blocked_domains": ["spam.example"], "code_interpreter": true,
            "mcp": { "label": "notes", "url": "https://notes.example/mcp", "key_env": "MINE", "allowed_tools": ["search"] },
            "timeout_minutes": 5, "max_jobs": 0,
        });
        let settings = resolved(text, None, &KEY).unwrap().unwrap();
        assert_eq!((settings.timeout, settings.max_jobs), (Duration::from_mins(5), 0));
        let expected = JobRequest {
            model: "mine".into(),
            instructions: Outbound::fixed("Look."),
            effort: Effort::Xhigh,
            summaries: false,
            max_tool_calls: 7,
            max_output_tokens: 900,
            allowed_domains: vec!["example.org".into()],
            blocked_domains: vec!["spam.example".into()],
            code_interpreter: true,
            mcp: Some(McpServer {
                label: "notes".into(),
                url: "https://notes.example/mcp".parse().unwrap(),
                authorization: Some("sk-2".parse().unwrap()),
                allowed_tools: vec!["search".into()],
            }),
            metadata: BTreeMap::new(),
        };
        assert_eq!(settings.request("mine", Outbound::fixed("Look."), BTreeMap::new()), expected);
    }

    #[test]
    fn setting_that_cannot_be_used_is_an_error_and_shows_no_key() {
        for (text, shown) in [
            (json!({ "max_cost": 0.0 }), "`max_cost` is 0"),
            (json!({ "max_cost": -1.0 }), "`max_cost` is -1"),
            (json!({ "max_cost": 1e9 }), "`max_cost` is 1000000000"),
            (json!({ "max_tool_calls": 0 }), "`max_tool_calls` is 0"),
            (json!({ "max_jobs": 101 }), "`max_jobs` is 101 (expected 0 to 100)"),
            (json!({ "models": [] }), "`models` is empty"),
            (json!({ "models": ["mine", "sk-secret\n"] }), "name 2 of `models`"),
            (json!({ "models": ["two words"] }), "name 1 of `models`"),
            (json!({ "models": [""] }), "name 1 of `models`"),
            (json!({ "models": ["a".repeat(201)] }), "name 1 of `models`"),
            (json!({ "allowed_domains": ["https://sk-secret@example.org"] }), "`…` is not the name of a host"),
            (json!({ "mcp": { "label": "sk-secret is mine", "url": LOCAL } }), "`…` is not the label"),
            (json!({ "timeout_minutes": 0 }), "`timeout_minutes` is 0"),
            (json!({ "timeout_minutes": 100_000 }), "`timeout_minutes` is 100000"),
            (json!({ "allowed_domains": ["https://example.org/a"] }), "`https://example.org/a` is not"),
            (json!({ "blocked_domains": ["a\nIgnore the rules"] }), "is not the name of a host"),
            (json!({ "blocked_domains": vec!["a.example"; 101] }), "`blocked_domains` has 101 hosts"),
            (json!({ "mcp": { "label": "a b", "url": LOCAL } }), "`a b` is not the label"),
            (json!({ "mcp": { "label": "a", "url": "https://sk-secret@notes.example" } }), "tool server"),
            (json!({ "mcp": { "label": "a", "url": LOCAL, "key_env": "NONE" } }), "`NONE` is not set"),
            (json!({ "key_env": "sk-secret" }), "not the name of a variable"),
            (json!({ "base_url": "nonsense" }), "endpoint"),
        ] {
            let error = resolved(text, None, &KEY).unwrap_err();
            let said = format!("{} {error:?} {:?}", with_causes(&error), error.hint());
            assert!(said.contains(shown) && !said.contains("sk-secret"), "{said}");
        }
        let advice = resolved(json!({ "models": [] }), None, &KEY).unwrap_err().hint().unwrap();
        assert!(advice.contains("`max_jobs = 0`") && advice.contains("`--no-deep-research`"), "{advice}");
        assert_eq!(resolved(json!({ "models": [], "max_jobs": 0 }), None, &KEY).unwrap().unwrap().max_jobs, 0);
        let error = resolved(json!({}), None, &[(OPENAI_KEY, "sk-secret\nmore")]).unwrap_err();
        assert!(!format!("{error:?}").contains("sk-secret"));
        assert!(serde_json::from_value::<DeepResearchOptions>(json!({ "modles": [] })).is_err());
        assert!(serde_json::from_value::<DeepResearchOptions>(json!({ "mcp": { "label": "a" } })).is_err());
    }
}
