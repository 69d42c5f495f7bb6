//! Settings of Deep Research: models, endpoint and limits.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ProviderKind;
use super::request::{JobRequest, JobTerms, McpServer};
use crate::base::environment::{Environment, KeyError};
use crate::base::http::{BaseUrl, ParseBaseUrlError, Secret, shown};
use crate::base::id::{JobId, RunId};
use crate::base::money::nanos;
use crate::base::outbound::Outbound;
use crate::llm::endpoint::{EndpointError, ModelEndpoint};
use crate::llm::model::Effort;
use crate::llm::price::{Price, PriceTable};
use crate::research::node::NodeId;
use crate::run::journal::JobEndpoint;

/// Longest name of a model, in bytes.
const MAX_MODEL: usize = 200;

/// Longest list of allowed or blocked hosts, set by OpenAI.
const MAX_DOMAINS: usize = 100;

/// The table `[deep_research]`. The rows of the settings document the fields, and check the bounds of the numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeepResearchOptions {
    pub(crate) provider: Option<ProviderKind>,
    pub(crate) models: Option<Vec<String>>,
    pub(crate) base_url: Option<String>,
    pub(crate) key_env: Option<String>,
    pub(crate) local: Option<bool>,
    pub(crate) effort: Option<Effort>,
    pub(crate) summaries: Option<bool>,
    pub(crate) max_cost: Option<f64>,
    pub(crate) max_jobs: Option<usize>,
    pub(crate) max_tool_calls: Option<u32>,
    pub(crate) max_output_tokens: Option<u32>,
    pub(crate) allowed_domains: Option<Vec<String>>,
    pub(crate) blocked_domains: Option<Vec<String>>,
    pub(crate) code_interpreter: Option<bool>,
    pub(crate) mcp: Option<JobMcpOptions>,
    pub(crate) timeout_minutes: Option<u64>,
}

/// Defaults, which the rows of the settings state.
impl DeepResearchOptions {
    pub(crate) const EFFORT: Effort = Effort::High;
    pub(crate) const SUMMARIES: bool = true;
    /// Dollars.
    pub(crate) const MAX_COST: u32 = 3;
    pub(crate) const MAX_JOBS: usize = 3;
    pub(crate) const MAX_TOOL_CALLS: u32 = 30;
    pub(crate) const MAX_OUTPUT_TOKENS: u32 = 60_000;
    pub(crate) const CODE_INTERPRETER: bool = false;
    pub(crate) const TIMEOUT_MINUTES: u64 = 30;
}

/// The table `[deep_research.mcp]`. The rows of the settings document the fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobMcpOptions {
    pub(crate) label: String,
    pub(crate) url: String,
    pub(crate) key_env: Option<String>,
    #[serde(default)]
    pub(crate) allowed_tools: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum DeepResearchError {
    #[error("no key for Deep Research")]
    Key(#[from] KeyError),
    #[error("invalid address for the {what} of Deep Research")]
    BadAddress { what: &'static str, source: ParseBaseUrlError },
    #[error("`models` is empty, so no job can be started")]
    NoModels,
    /// Entries count from 1. The error leaves the text out, because it may be a key put in the wrong place.
    #[error("entry {place} of `models` is not a model name (expected up to 200 letters, digits and signs)")]
    BadModel { place: usize },
    /// Anything that looks like a key is hidden.
    #[error("`{domain}` is not the name of a host")]
    BadDomain { domain: String },
    #[error("`{field}` has {count} hosts (expected at most 100)")]
    TooManyDomains { field: &'static str, count: usize },
    /// Anything that looks like a key is hidden.
    #[error("`{label}` is not the label of a tool server (expected letters, digits, `_` and `-`)")]
    BadLabel { label: String },
}

impl DeepResearchError {
    /// Returns what the user can do about this error, if there is something.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Key(error @ KeyError::NotSet { .. }) => {
                Some(format!("{}, or remove `key_env` from the settings", error.hint()))
            }
            Self::Key(error) => Some(error.hint()),
            Self::BadAddress { .. } => Some("a key goes into a variable, named by `key_env`".into()),
            Self::NoModels => Some(
                "name a model, or remove `models`; to turn Deep Research off, set `max_jobs = 0`, or pass \
                 `--no-deep-research` for one run"
                    .into(),
            ),
            Self::BadModel { .. } => Some("write a name as `dr doctor` shows others, for example `gpt-6-sol`".into()),
            Self::BadDomain { .. } => Some("write hosts without `https://` and path, for example `example.org`".into()),
            Self::TooManyDomains { .. } | Self::BadLabel { .. } => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DeepResearchSettings {
    /// Which provider runs the jobs.
    pub(crate) provider: ProviderKind,
    pub(crate) address: BaseUrl,
    /// Key of the endpoint; `None` sends no key.
    pub(crate) key: Option<Secret>,
    /// Whether models without a price are free here, as on the user's own server.
    pub(crate) is_free: bool,
    /// Models in order of preference; the first available one is used.
    pub(crate) models: Vec<String>,
    /// Whether the user named the models.
    pub(crate) is_named: bool,
    /// Limits and tools of every job.
    pub(crate) terms: JobTerms,
    /// Billionths of a dollar set aside for one job.
    pub(crate) max_cost_nanos: u64,
    /// Maximum number of jobs one run may start.
    pub(crate) max_jobs: usize,
    /// How long one job may take.
    pub(crate) timeout: Duration,
}

impl DeepResearchSettings {
    /// Resolves the settings. Returns `None` if neither a key nor an own endpoint is set: Deep Research is off then.
    ///
    /// # Errors
    ///
    /// Returns an error for settings that cannot be used, whether or not there is a key.
    pub(crate) fn resolve(
        options: &DeepResearchOptions,
        environment: &Environment,
    ) -> Result<Option<Self>, DeepResearchError> {
        let provider = options.provider.unwrap_or_default();
        let facts = provider.facts();
        let (endpoint, is_available) = (facts.endpoint)(options, environment).map_err(|error| match error {
            EndpointError::Address(source) => DeepResearchError::BadAddress { what: "endpoint", source },
            EndpointError::Key(source) => DeepResearchError::Key(source),
        })?;
        let ModelEndpoint { address, key } = endpoint;
        let max_jobs = options.max_jobs.unwrap_or(DeepResearchOptions::MAX_JOBS);
        let settings = Self {
            provider,
            is_free: address.is_own(options.local),
            models: models(options.models.as_deref(), facts.models, max_jobs)?,
            is_named: options.models.is_some(),
            terms: JobTerms {
                effort: options.effort.clone().unwrap_or(DeepResearchOptions::EFFORT),
                summaries: options.summaries.unwrap_or(DeepResearchOptions::SUMMARIES),
                max_tool_calls: options.max_tool_calls.unwrap_or(DeepResearchOptions::MAX_TOOL_CALLS),
                max_output_tokens: options.max_output_tokens.unwrap_or(DeepResearchOptions::MAX_OUTPUT_TOKENS),
                allowed_domains: domains("allowed_domains", options.allowed_domains.as_deref())?,
                blocked_domains: domains("blocked_domains", options.blocked_domains.as_deref())?,
                code_interpreter: options.code_interpreter.unwrap_or(DeepResearchOptions::CODE_INTERPRETER),
                mcp: options.mcp.as_ref().map(|options| mcp(options, environment)).transpose()?,
            },
            max_cost_nanos: nanos(options.max_cost.unwrap_or(f64::from(DeepResearchOptions::MAX_COST))),
            max_jobs,
            timeout: Duration::from_mins(options.timeout_minutes.unwrap_or(DeepResearchOptions::TIMEOUT_MINUTES)),
            key,
            address,
        };
        // Last, so that settings are checked whether or not there is a key.
        Ok(is_available.then_some(settings))
    }

    /// Returns where a job is polled under these settings, as its call stores it.
    pub(super) fn endpoint(&self, job: &JobId) -> JobEndpoint {
        let key = self.key.as_ref().map(|key| key.fingerprint(&job.to_string()));
        JobEndpoint { address: self.address.to_string(), key, is_web_only: self.terms.mcp.is_none() }
    }

    /// Returns a request for a job of `model` within the limits of these settings.
    pub(crate) fn request(&self, model: &str, instructions: Outbound, (run, node): (RunId, NodeId)) -> JobRequest {
        JobRequest { model: model.to_owned(), instructions, terms: self.terms.clone(), run, node }
    }

    /// Returns the price of a model at this endpoint; `None` if it is unknown.
    pub(crate) fn price(&self, model: &str, prices: &PriceTable) -> Option<Price> {
        prices.at(model, self.is_free, self.is_named)
    }
}

/// Returns the billionths of a dollar set aside for one job. Returns `None` if its price is unknown: such a job cannot
/// run under a cost limit.
///
/// A job rereads its findings in every step, so its cost has no useful upper bound beforehand. The user's cap takes the
/// place of one; a cost above the cap is charged when it becomes known.
pub(crate) fn job_cap(settings: &DeepResearchSettings, price: Option<&Price>) -> Option<u64> {
    price.map(|price| if *price == Price::FREE { 0 } else { settings.max_cost_nanos })
}

/// Returns the models the user named, else the `usual` ones. The list may be empty only if `max_jobs` is 0.
fn models(named: Option<&[String]>, usual: &[&str], max_jobs: usize) -> Result<Vec<String>, DeepResearchError> {
    let Some(named) = named else { return Ok(usual.iter().map(ToString::to_string).collect()) };
    // An empty list turns nothing off: `max_jobs = 0` does.
    if named.is_empty() && max_jobs > 0 {
        return Err(DeepResearchError::NoModels);
    }
    match named.iter().position(|name| !is_model_name(name)) {
        Some(at) => Err(DeepResearchError::BadModel { place: at + 1 }),
        None => Ok(named.to_vec()),
    }
}

pub(super) fn is_model_name(text: &str) -> bool {
    (1..=MAX_MODEL).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn domains(field: &'static str, domains: Option<&[String]>) -> Result<Vec<String>, DeepResearchError> {
    let domains = domains.unwrap_or_default();
    if domains.len() > MAX_DOMAINS {
        return Err(DeepResearchError::TooManyDomains { field, count: domains.len() });
    }
    domains.iter().map(|domain| host(domain)).collect()
}

/// Normalises the name of a host. It may contain only letters, digits, dots and dashes.
fn host(text: &str) -> Result<String, DeepResearchError> {
    // `example.org.` is the same host.
    let host = text.trim().trim_end_matches('.').to_ascii_lowercase();
    // Limits of DNS: 63 bytes for a label, 253 for a name.
    let is_label = |label: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len()) && label.bytes().all(is_part)
    };
    let is_host = host.len() <= 253 && host.split('.').all(is_label);
    if is_host { Ok(host) } else { Err(DeepResearchError::BadDomain { domain: shown(text) }) }
}

fn mcp(options: &JobMcpOptions, environment: &Environment) -> Result<McpServer, DeepResearchError> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !(1..=64).contains(&options.label.len()) || !options.label.bytes().all(is_part) {
        return Err(DeepResearchError::BadLabel { label: shown(&options.label) });
    }
    Ok(McpServer {
        label: options.label.clone(),
        url: options.url.parse().map_err(|source| DeepResearchError::BadAddress { what: "tool server", source })?,
        authorization: environment.key_in(options.key_env.as_deref())?,
        allowed_tools: options.allowed_tools.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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
        PriceTable::with(&BTreeMap::new())
    }

    const KEY: [(&str, &str); 2] = [(OPENAI_KEY, "sk-1"), ("MINE", "sk-2")];

    #[test]
    fn key_is_sufficient() {
        let settings = resolved(json!({}), None, &KEY).unwrap().unwrap();
        assert_eq!((settings.address.host(), &settings.key), ("api.openai.com", &Some("sk-1".parse().unwrap())));
        assert_eq!(settings.models[0], "gpt-6.1-sol");
        assert_eq!((settings.max_cost_nanos, settings.max_jobs, settings.terms.max_tool_calls), (3_000_000_000, 3, 30));
        assert_eq!((settings.timeout, settings.terms.effort.clone()), (Duration::from_mins(30), Effort::High));
        assert!(!settings.is_free && !settings.terms.code_interpreter && settings.terms.mcp.is_none());
        for model in &settings.models {
            let cap = job_cap(&settings, settings.price(model, &prices()).as_ref());
            assert_eq!(cap, Some(3_000_000_000), "{model} has a price");
        }
        assert!((settings.provider.facts().connect)(&settings).is_ok());
    }

    #[test]
    fn deep_research_is_off_without_a_key_and_an_endpoint() {
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
        assert_eq!(cap(json!({ "base_url": LOCAL, "max_cost": 0.5 }), "gpt-6-sol"), Some(0), "a default model");
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
        let terms = JobTerms {
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
        };
        let instructions = Outbound::fixed("Look.");
        let (run, node) = (RunId::random(1), NodeId::numbered(1));
        let name = (run.clone(), node.clone());
        let expected = JobRequest { model: "mine".into(), instructions: instructions.clone(), terms, run, node };
        assert_eq!(settings.request("mine", instructions, name), expected);
    }

    #[test]
    fn setting_that_cannot_be_used_is_an_error_and_shows_no_key() {
        for (text, shown) in [
            (json!({ "models": [] }), "`models` is empty"),
            (json!({ "models": ["mine", "sk-secret\n"] }), "entry 2 of `models`"),
            (json!({ "models": ["two words"] }), "entry 1 of `models`"),
            (json!({ "models": [""] }), "entry 1 of `models`"),
            (json!({ "models": ["a".repeat(201)] }), "entry 1 of `models`"),
            (json!({ "allowed_domains": ["https://sk-secret@example.org"] }), "`…` is not the name of a host"),
            (json!({ "mcp": { "label": "sk-secret is mine", "url": LOCAL } }), "`…` is not the label"),
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
