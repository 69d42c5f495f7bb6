//! Settings become Models: which model serves which role, where it is, and within what limits.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::endpoint::{EndpointError, ModelEndpoint};
use super::message::Role;
use super::model::Model;
use super::openai::{Api, Effort, OpenAiModel, OpenAiSettings, SchemaSupport, reasons};
use super::price::PriceTable;
use crate::base::environment::{Environment, KeyError, OPENAI_BASE_URL, OPENAI_KEY};
use crate::base::http::{BaseUrl, HttpError, ParseBaseUrlError, client_for};
use crate::base::token::{CountTokens, Encoding, TokenCounter};

/// Plans, judges and writes, with OpenAI and no other setting.
pub const STRONG_MODEL: &str = "gpt-6.1-sol";

/// Reads and summarises, with OpenAI and no other setting: most calls are of this kind.
pub const CHEAP_MODEL: &str = "gpt-6-luna";

/// Visible tokens of a reply, where nothing else is set.
const MAX_OUTPUT_TOKENS: u32 = 4_000;

/// Tokens a thinking model may think beside its reply, where nothing else is set.
const REASONING_TOKENS: u32 = 4_000;

/// Tokens of a prompt, where nothing else is set.
const MAX_INPUT_TOKENS: u64 = 32_000;

/// The window of a model nobody knows.
const WINDOW_TOKENS: u64 = 32_768;

/// A window has room for at least this much of a prompt.
const MIN_INPUT_TOKENS: u64 = 1_024;

/// How long one request may take, where nothing else is set.
const TIMEOUT: Duration = Duration::from_mins(5);

/// What can be set of a model, every field optional: for all roles, or for one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelOptions {
    /// The name the endpoint knows the model by.
    pub model: Option<String>,
    /// Where the endpoint is.
    pub base_url: Option<String>,
    /// How it is asked.
    pub api: Option<Api>,
    /// The variable its key is in.
    pub key_env: Option<String>,
    /// Tokens a prompt and its reply may have together.
    pub window_tokens: Option<u64>,
    /// Tokens a prompt may have.
    pub max_input_tokens: Option<u64>,
    /// Visible tokens a reply may have.
    pub max_output_tokens: Option<u32>,
    /// Tokens the model may think beside its reply.
    pub reasoning_tokens: Option<u32>,
    /// How hard it thinks.
    pub effort: Option<Effort>,
    /// How freely it chooses its words.
    pub temperature: Option<f32>,
    /// How the endpoint can be held to a form.
    pub schema: Option<SchemaSupport>,
    /// What its tokens are counted with.
    pub encoding: Option<Encoding>,
    /// Seconds one request may take.
    pub timeout_seconds: Option<u64>,
    /// Whether the endpoint is one's own, so that it costs nothing.
    pub local: Option<bool>,
}

impl ModelOptions {
    /// Returns these settings, and those of `other` where these say nothing.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            model: self.model.or(other.model),
            base_url: self.base_url.or(other.base_url),
            api: self.api.or(other.api),
            key_env: self.key_env.or(other.key_env),
            window_tokens: self.window_tokens.or(other.window_tokens),
            max_input_tokens: self.max_input_tokens.or(other.max_input_tokens),
            max_output_tokens: self.max_output_tokens.or(other.max_output_tokens),
            reasoning_tokens: self.reasoning_tokens.or(other.reasoning_tokens),
            effort: self.effort.or(other.effort),
            temperature: self.temperature.or(other.temperature),
            schema: self.schema.or(other.schema),
            encoding: self.encoding.or(other.encoding),
            timeout_seconds: self.timeout_seconds.or(other.timeout_seconds),
            local: self.local.or(other.local),
        }
    }
}

/// The table `[models]`: settings for all roles, and `[models.ROLE]` over them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelsOptions {
    /// For every role.
    pub all: ModelOptions,
    /// For one role.
    pub roles: BTreeMap<Role, ModelOptions>,
}

impl ModelsOptions {
    /// Returns every layer, that of all roles first.
    pub fn layers(&self) -> impl Iterator<Item = &ModelOptions> {
        std::iter::once(&self.all).chain(self.roles.values())
    }

    /// Sets the model of every role, whatever was set before.
    pub fn set_model(&mut self, model: &str) {
        self.all.model = Some(model.to_owned());
        self.roles.values_mut().for_each(|options| options.model = None);
    }
}

impl<'de> Deserialize<'de> for ModelsOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut table = serde_json::Map::deserialize(deserializer)?;
        let mut roles = BTreeMap::new();
        for role in Role::ALL {
            if let Some(options) = table.remove(role.name()) {
                let options = serde_json::from_value(options);
                roles.insert(role, options.map_err(|error| D::Error::custom(format!("{role}: {error}")))?);
            }
        }
        let all = serde_json::from_value(Value::Object(table)).map_err(D::Error::custom)?;
        Ok(Self { all, roles })
    }
}

/// Settings of models cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    /// The endpoint is known, and not what to ask for.
    #[error("no model is set for the {role} at `{address}`")]
    NoModel {
        /// Whose.
        role: Role,
        /// The endpoint.
        address: BaseUrl,
    },
    /// The endpoint needs a key, and there is no usable one.
    #[error("no key for the {role}")]
    Key {
        /// The role.
        role: Role,
        /// Why.
        source: KeyError,
    },
    /// `base_url` is not an address.
    #[error("endpoint of the {role} cannot be reached")]
    Address {
        /// The role.
        role: Role,
        /// Why.
        source: ParseBaseUrlError,
    },
    /// A reply leaves no room for a prompt.
    #[error("window of {window_tokens} tokens has no room for a prompt beside {output_tokens} tokens of reply")]
    WindowTooSmall {
        /// Whose.
        role: Role,
        /// The window.
        window_tokens: u64,
        /// The reply and the reasoning before it.
        output_tokens: u64,
    },
    /// The network client.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// A price.
    #[error(transparent)]
    Price(#[from] super::price::PriceError),
}

impl ModelsError {
    /// Returns what the user can do about this error.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoModel { .. } => Some("set `model = \"…\"` in your settings, or `DR_MODEL`".into()),
            Self::Key { source: source @ KeyError::NotSet { .. }, .. } => {
                Some(format!("{}, or give the role an endpoint of its own with `base_url`", source.hint()))
            }
            Self::Key { source, .. } => Some(source.hint()),
            Self::WindowTooSmall { .. } => Some("lower `max_output_tokens` or `reasoning_tokens`".into()),
            Self::Address { .. } => Some("a key goes into a variable, named by `key_env`".into()),
            Self::Http(_) | Self::Price(_) => None,
        }
    }
}

/// The model of one role.
#[derive(Clone)]
pub struct RoleModel {
    /// The model.
    pub model: Arc<dyn Model>,
    /// What its tokens are counted with.
    pub counter: Arc<dyn CountTokens>,
    /// Tokens a prompt of this role may have.
    pub max_input_tokens: u64,
    /// Visible tokens a reply of this role may have.
    pub max_output_tokens: u32,
    /// Where it is, for people.
    pub endpoint: String,
    /// Whether that is a machine of one's own.
    pub is_local: bool,
}

impl fmt::Debug for RoleModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.model.name(), self.endpoint)
    }
}

/// The models of every role.
#[derive(Clone, Debug)]
pub struct Models(BTreeMap<Role, RoleModel>);

impl Models {
    /// Returns models by what `model` says of each role.
    pub fn of(model: impl FnMut(Role) -> RoleModel) -> Self {
        Self(Role::ALL.into_iter().zip(Role::ALL.into_iter().map(model)).collect())
    }

    /// Resolves settings. Returns `None` if neither a key nor an endpoint is set: there is no model then.
    ///
    /// # Errors
    ///
    /// Returns an error for a role whose settings lack a model, a key, or room for a prompt.
    pub fn resolve(
        options: &ModelsOptions,
        environment: &Environment,
        prices: &PriceTable,
    ) -> Result<Option<Self>, ModelsError> {
        let has_endpoint = options.layers().any(|layer| layer.base_url.is_some() || layer.key_env.is_some());
        let has_variable = [OPENAI_BASE_URL, OPENAI_KEY].iter().any(|name| environment.get(name).is_some());
        if !has_endpoint && !has_variable {
            return Ok(None);
        }
        let mut models = BTreeMap::new();
        let mut clients = BTreeMap::new();
        for role in Role::ALL {
            let own = options.roles.get(&role).cloned().unwrap_or_default();
            let own = own.or(options.all.clone());
            let is_own = own.local == Some(true);
            let (settings, limits) = resolve_role(role, own, environment, prices)?;
            let client = match clients.entry(settings.address.clone()) {
                Entry::Occupied(client) => client.into_mut(),
                Entry::Vacant(place) => place.insert(client_for(&settings.address)?),
            };
            let model = RoleModel {
                endpoint: settings.address.to_string(),
                is_local: is_own || settings.address.is_loopback(),
                max_input_tokens: limits.max_input_tokens,
                max_output_tokens: limits.max_output_tokens,
                counter: Arc::new(settings.counter),
                model: Arc::new(OpenAiModel::new(settings, client.clone())),
            };
            models.insert(role, model);
        }
        Ok(Some(Self(models)))
    }

    /// Returns the model of a role.
    pub fn role(&self, role: Role) -> &RoleModel {
        self.0.get(&role).expect("every way to make one gives every role a model")
    }

    /// Returns roles whose model has no known price: they cannot run under a limit of money.
    pub fn unpriced(&self) -> Vec<(Role, String)> {
        let usage = super::message::Usage { input_tokens: 1, output_tokens: 1, ..Default::default() };
        let unpriced = self.0.iter().filter(|(_, role)| role.model.cost_nanos(&usage).is_none());
        unpriced.map(|(role, model)| (*role, model.model.name().to_owned())).collect()
    }

    /// Returns each model once, with the roles it has.
    pub fn distinct(&self) -> Vec<(Vec<Role>, &RoleModel)> {
        let mut distinct: Vec<(Vec<Role>, &RoleModel)> = Vec::new();
        for (role, model) in &self.0 {
            let same = |known: &&mut (Vec<Role>, &RoleModel)| {
                known.1.endpoint == model.endpoint && known.1.model.name() == model.model.name()
            };
            match distinct.iter_mut().find(same) {
                Some((roles, _)) => roles.push(*role),
                None => distinct.push((vec![*role], model)),
            }
        }
        distinct
    }
}

fn resolve_role(
    role: Role,
    options: ModelOptions,
    environment: &Environment,
    prices: &PriceTable,
) -> Result<(OpenAiSettings, Limits), ModelsError> {
    let endpoint = ModelEndpoint::resolve(options.base_url.as_deref(), options.key_env.as_deref(), environment);
    let endpoint = endpoint.map_err(|error| match error {
        EndpointError::Address(source) => ModelsError::Address { role, source },
        EndpointError::Key(source) => ModelsError::Key { role, source },
    })?;
    let is_openai = endpoint.is_openai();
    let ModelEndpoint { address, key } = endpoint;
    // An address that was set together with OpenAI's key stands in for OpenAI, its default models included.
    let stands_in = is_openai || (options.base_url.is_none() && options.key_env.is_none() && key.is_some());
    let model = options.model.clone().or_else(|| stands_in.then(|| default_model(role).to_owned()));
    let model = model.ok_or_else(|| ModelsError::NoModel { role, address: address.clone() })?;
    if key.is_none() && is_openai {
        return Err(ModelsError::Key { role, source: KeyError::NotSet { variable: OPENAI_KEY.to_owned() } });
    }
    let limits = Limits::resolve(role, &model, &options)?;
    let is_free = address.is_loopback() || options.local == Some(true);
    let price = prices.at(&model, is_free, options.model.is_some());
    let counter = options.encoding.map_or_else(|| TokenCounter::for_model(&model), TokenCounter::of);
    let settings = OpenAiSettings {
        api: options.api.unwrap_or(if is_openai { Api::Responses } else { Api::Chat }),
        key,
        schema: options.schema.unwrap_or_default(),
        window_tokens: limits.window_tokens,
        reasoning_tokens: limits.reasoning_tokens,
        reasons: reasons(&model),
        effort: options.effort,
        temperature: options.temperature,
        timeout: options.timeout_seconds.map_or(TIMEOUT, Duration::from_secs),
        counter,
        price,
        model,
        address,
    };
    Ok((settings, limits))
}

fn default_model(role: Role) -> &'static str {
    match role {
        Role::Planner | Role::Judge | Role::Writer | Role::Researcher => STRONG_MODEL,
        Role::Worker | Role::Summariser => CHEAP_MODEL,
    }
}

/// How the window of a model is divided.
#[expect(clippy::struct_field_names, reason = "units live in names")]
struct Limits {
    window_tokens: u64,
    max_input_tokens: u64,
    max_output_tokens: u32,
    reasoning_tokens: u32,
}

impl Limits {
    fn resolve(role: Role, model: &str, options: &ModelOptions) -> Result<Self, ModelsError> {
        let known = tiktoken_rs::model::get_context_size(model).and_then(|tokens| u64::try_from(tokens).ok());
        let window_tokens = options.window_tokens.or(known).unwrap_or(WINDOW_TOKENS);
        let thinks = if reasons(model) { REASONING_TOKENS } else { 0 };
        // In a small window, what nobody asked for gives way to the prompt.
        let share = |tokens: u32| tokens.min(u32::try_from(window_tokens / 4).unwrap_or(u32::MAX));
        let reasoning_tokens = options.reasoning_tokens.unwrap_or_else(|| share(thinks));
        let max_output_tokens = options.max_output_tokens.unwrap_or_else(|| share(MAX_OUTPUT_TOKENS));
        let output_tokens = u64::from(max_output_tokens) + u64::from(reasoning_tokens);
        let room = window_tokens.saturating_sub(output_tokens);
        if room < MIN_INPUT_TOKENS {
            return Err(ModelsError::WindowTooSmall { role, window_tokens, output_tokens });
        }
        let max_input_tokens = options.max_input_tokens.unwrap_or(MAX_INPUT_TOKENS).min(room);
        Ok(Self { window_tokens, max_input_tokens, max_output_tokens, reasoning_tokens })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::message::{Prompt, Usage};
    use super::*;
    use crate::base::line::with_causes;

    fn resolve(options: Value, variables: &[(&str, &str)]) -> Result<Option<Models>, ModelsError> {
        let options: ModelsOptions = serde_json::from_value(options).unwrap();
        let environment = Environment::of(variables.iter().copied());
        Models::resolve(&options, &environment, &PriceTable::with(&BTreeMap::new()).unwrap())
    }

    fn names(models: &Models) -> Vec<String> {
        Role::ALL.into_iter().map(|role| models.role(role).model.name().to_owned()).collect()
    }

    const LOCAL: &str = "http://localhost:11434/v1";

    #[test]
    fn without_key_and_endpoint_there_are_no_models() {
        assert!(resolve(json!({}), &[]).unwrap().is_none());
        assert!(resolve(json!({ "model": "gpt-5.4" }), &[]).unwrap().is_none());
    }

    #[test]
    fn key_alone_gives_a_strong_model_where_it_counts_and_a_cheap_one_elsewhere() {
        let models = resolve(json!({}), &[(OPENAI_KEY, "sk-1")]).unwrap().unwrap();
        let expected = [STRONG_MODEL, CHEAP_MODEL, CHEAP_MODEL, STRONG_MODEL, STRONG_MODEL];
        assert_eq!(names(&models), expected);
        assert!(models.unpriced().is_empty(), "the models of a first run have a price");
        assert_eq!(models.distinct().len(), 2);
        assert_eq!(models.role(Role::Planner).endpoint, "https://api.openai.com/v1");
    }

    #[test]
    fn setting_of_a_role_beats_that_of_all() {
        let options = json!({
            "model": "a", "base_url": LOCAL, "max_output_tokens": 500,
            "worker": { "model": "b" }, "writer": { "max_output_tokens": 900 },
        });
        let models = resolve(options, &[]).unwrap().unwrap();
        assert_eq!(names(&models), ["a", "b", "a", "a", "a"]);
        assert_eq!(models.role(Role::Worker).max_output_tokens, 500);
        assert_eq!(models.role(Role::Writer).max_output_tokens, 900);
    }

    #[test]
    fn setting_that_does_not_exist_is_named() {
        for (options, place) in [
            (json!({ "modle": "a" }), "modle"),
            (json!({ "worker": { "modle": "a" } }), "worker: unknown field `modle`"),
        ] {
            let error = serde_json::from_value::<ModelsOptions>(options).unwrap_err().to_string();
            assert!(error.contains(place), "{error}");
        }
    }

    #[test]
    fn endpoint_without_a_model_or_a_key_is_an_error_with_a_way_on() {
        let error = resolve(json!({ "base_url": LOCAL }), &[]).unwrap_err();
        assert!(matches!(error, ModelsError::NoModel { role: Role::Planner, .. }));
        assert!(error.hint().unwrap().contains("DR_MODEL"));
        let error = resolve(json!({ "worker": { "base_url": LOCAL, "model": "a" } }), &[]).unwrap_err();
        assert!(matches!(error, ModelsError::Key { role: Role::Planner, .. }), "only the worker is local");
        assert_eq!(with_causes(&error), "no key for the planner: `OPENAI_API_KEY` is not set");
        let error = resolve(json!({ "key_env": "MINE" }), &[]).unwrap_err();
        assert_eq!(with_causes(&error), "no key for the planner: `MINE` is not set");
    }

    #[test]
    fn key_is_never_part_of_an_error() {
        for (options, variables) in [
            (json!({ "key_env": "sk-secret" }), vec![]),
            (json!({ "key_env": "a1b2c3d4e5f6sk0secret" }), vec![]),
            (json!({}), vec![(OPENAI_KEY, "sk-secret\nand more")]),
            (json!({ "base_url": "http://sk-secret@localhost/v1", "model": "a" }), vec![]),
        ] {
            let error = resolve(options, &variables).unwrap_err();
            let shown = format!("{} {error:?} {:?}", with_causes(&error), error.hint());
            assert!(!shown.contains("secret"), "{shown}");
        }
    }

    #[test]
    fn loopback_costs_nothing_unless_priced_and_a_stranger_elsewhere_has_no_price() {
        let usage = Usage { input_tokens: 1_000, ..Usage::default() };
        let cost = |options: Value| {
            let models = resolve(options, &[]).unwrap().unwrap();
            models.role(Role::Worker).model.cost_nanos(&usage)
        };
        assert_eq!(cost(json!({ "base_url": LOCAL, "model": "qwen3:8b" })), Some(0));
        assert_eq!(cost(json!({ "base_url": LOCAL, "model": "gpt-5.4" })), Some(2_500_000));
        assert_eq!(cost(json!({ "base_url": "http://gpu:8000/v1", "model": "qwen3:8b" })), None);
        assert_eq!(cost(json!({ "base_url": "http://gpu:8000/v1", "model": "qwen3:8b", "local": true })), Some(0));
        let models = resolve(json!({ "base_url": "http://gpu:8000/v1", "model": "qwen3:8b" }), &[]).unwrap().unwrap();
        assert_eq!(models.unpriced().len(), 5);
    }

    #[test]
    fn small_window_is_shared_out_and_one_without_room_is_refused() {
        let local = |more: Value| {
            let mut options = json!({ "base_url": LOCAL, "model": "gpt-oss:20b" });
            options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            resolve(options, &[])
        };
        let models = local(json!({ "window_tokens": 4_096 })).unwrap().unwrap();
        let worker = models.role(Role::Worker);
        assert_eq!((worker.max_output_tokens, worker.max_input_tokens), (1_024, 2_048));
        let prompt = Prompt::new(Role::Worker, "", "", worker.max_output_tokens);
        assert_eq!(worker.model.max_output(&prompt) + worker.max_input_tokens, worker.model.window_tokens());
        let error = local(json!({ "window_tokens": 4_096, "max_output_tokens": 4_000 })).unwrap_err();
        assert!(matches!(error, ModelsError::WindowTooSmall { window_tokens: 4_096, .. }));
    }

    #[test]
    fn one_line_sets_every_role() {
        let mut options: ModelsOptions =
            serde_json::from_value(json!({ "worker": { "model": "b", "schema": "json" } })).unwrap();
        options.set_model("c");
        assert!(options.roles[&Role::Worker].schema.is_some());
        let environment = Environment::of([(OPENAI_BASE_URL, LOCAL)]);
        let prices = PriceTable::with(&BTreeMap::new()).unwrap();
        let models = Models::resolve(&options, &environment, &prices).unwrap().unwrap();
        assert_eq!(names(&models), ["c"; 5]);
    }
}
