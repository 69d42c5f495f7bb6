//! Resolves the settings of models: which model serves which role, at which endpoint, within which limits.

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
use super::model::{Effort, Model};
use super::openai::{Api, OpenAiModel, OpenAiSettings, SchemaSupport, known, reasons};
use super::price::PriceTable;
use crate::base::environment::{Environment, KeyError, OPENAI_BASE_URL, OPENAI_KEY};
use crate::base::http::{BaseUrl, HttpError, ParseBaseUrlError, client_for};
use crate::base::token::{CountTokens, Encoding, TokenCounter};

/// Default model of OpenAI for planner, judge and writer.
pub(crate) const STRONG_MODEL: &str = "gpt-6.1-sol";

/// Default model of OpenAI for worker and summariser. Cheap, since they make most of the calls.
pub(crate) const CHEAP_MODEL: &str = "gpt-6-luna";

/// Default limit of visible tokens per reply.
pub(crate) const MAX_OUTPUT_TOKENS: u32 = 4_000;

/// Default allowance of reasoning tokens per reply, for models that reason.
pub(crate) const REASONING_TOKENS: u32 = 4_000;

/// Default limit of tokens per prompt. Models make poorer use of longer prompts, whatever their window: in RULER,
/// Llama 3.1 8B scores 95.5 at 4,096 tokens, 87.4 at 32,768 and 77.0 at 131,072.
pub(crate) const MAX_INPUT_TOKENS: u64 = 32_000;

/// Context window assumed for an unknown model, in tokens.
pub(crate) const WINDOW_TOKENS: u64 = 32_768;

/// Minimum number of prompt tokens a window must have room for.
const MIN_INPUT_TOKENS: u64 = 1_024;

/// Default timeout of a request.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(5);

/// One layer of model settings, for all roles or for one. The rows of the settings document the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelOptions {
    pub(crate) model: Option<String>,
    pub(crate) base_url: Option<String>,
    pub(crate) api: Option<Api>,
    pub(crate) key_env: Option<String>,
    pub(crate) window_tokens: Option<u64>,
    pub(crate) max_input_tokens: Option<u64>,
    pub(crate) max_output_tokens: Option<u32>,
    pub(crate) reasoning_tokens: Option<u32>,
    pub(crate) effort: Option<Effort>,
    pub(crate) temperature: Option<f32>,
    pub(crate) schema: Option<SchemaSupport>,
    pub(crate) encoding: Option<Encoding>,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) local: Option<bool>,
}

/// The table `[models]`, with `[models.ROLE]` overriding it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ModelsOptions {
    pub(crate) all: ModelOptions,
    /// Settings of single roles, with those of `all` where a role has none of its own.
    pub(crate) roles: BTreeMap<Role, ModelOptions>,
}

impl ModelsOptions {
    /// Returns the settings for all roles and those of single ones.
    fn each(&mut self) -> impl Iterator<Item = &mut ModelOptions> {
        std::iter::once(&mut self.all).chain(self.roles.values_mut())
    }

    /// Sets the model of every role.
    pub(crate) fn set_model(&mut self, model: &str) {
        self.each().for_each(|options| options.model = Some(model.to_owned()));
    }

    /// Sets the model of the roles that have none.
    pub(crate) fn default_model(&mut self, model: Option<&str>) {
        self.each().for_each(|options| options.model = options.model.take().or_else(|| model.map(str::to_owned)));
    }
}

impl<'de> Deserialize<'de> for ModelsOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // By hand: serde does not combine `flatten` with `deny_unknown_fields`, which catches misspelt settings.
        let mut table = serde_json::Map::deserialize(deserializer)?;
        let own = Role::ALL.map(|role| (role, table.remove(&role.to_string())));
        let all = serde_json::from_value(Value::Object(table.clone())).map_err(D::Error::custom)?;
        let mut roles = BTreeMap::new();
        for (role, own) in own.into_iter().filter_map(|(role, own)| Some((role, own?))) {
            let failed = |error| D::Error::custom(format!("{role}: {error}"));
            let own: serde_json::Map<String, Value> = serde_json::from_value(own).map_err(failed)?;
            let options = table.clone().into_iter().chain(own).collect();
            roles.insert(role, serde_json::from_value(Value::Object(options)).map_err(failed)?);
        }
        Ok(Self { all, roles })
    }
}

/// The model settings are invalid.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    #[error("no model is set for the {role} at `{address}`")]
    NoModel { role: Role, address: BaseUrl },
    #[error("no key for the {role}")]
    Key { role: Role, source: KeyError },
    #[error("invalid endpoint for the {role}")]
    Address { role: Role, source: ParseBaseUrlError },
    #[error("window of {window_tokens} tokens has no room for a prompt in addition to {output_tokens} reply tokens")]
    WindowTooSmall { role: Role, window_tokens: u64, output_tokens: u64 },
    #[error("`{model}` ({role}) does not take `{setting}`: {reason}")]
    NotTaken { role: Role, model: String, setting: &'static str, reason: String },
    #[error(transparent)]
    Http(#[from] HttpError),
}

impl ModelsError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::NoModel { .. } => Some("set `model = \"…\"` in your settings, or `DR_MODEL`".into()),
            Self::Key { source: source @ KeyError::NotSet { .. }, .. } => {
                Some(format!("{}, or give the role an endpoint of its own with `base_url`", source.hint()))
            }
            Self::Key { source, .. } => Some(source.hint()),
            Self::WindowTooSmall { .. } => Some("lower `max_output_tokens` or `reasoning_tokens`".into()),
            Self::NotTaken { setting, .. } => {
                Some(format!("change `{setting}`, or set it in `[models.ROLE]` for the roles whose model takes it"))
            }
            Self::Address { .. } => Some("a key goes into a variable, named by `key_env`".into()),
            Self::Http(_) => None,
        }
    }
}

#[derive(Clone)]
pub struct RoleModel {
    pub model: Arc<dyn Model>,
    pub counter: Arc<dyn CountTokens>,
    /// Maximum number of tokens in a prompt.
    pub max_input_tokens: u64,
    /// Maximum number of visible tokens in a reply.
    pub max_output_tokens: u32,
    /// Endpoint, as printed.
    pub endpoint: String,
    /// Whether the endpoint is local: on this machine, or marked `local` by the user.
    pub is_local: bool,
}

impl fmt::Debug for RoleModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.model.name(), self.endpoint)
    }
}

#[derive(Clone, Debug)]
pub struct Models(BTreeMap<Role, RoleModel>);

impl Models {
    /// Builds the models with one call of `model` per role.
    pub fn of(model: impl FnMut(Role) -> RoleModel) -> Self {
        Self(Role::ALL.into_iter().zip(Role::ALL.into_iter().map(model)).collect())
    }

    /// Resolves settings. Returns `None` if neither a key nor an endpoint is set: no model is configured then.
    ///
    /// # Errors
    ///
    /// Returns an error for a role whose settings lack a model, a key, or room for a prompt.
    pub(crate) fn resolve(
        options: &ModelsOptions,
        environment: &Environment,
        prices: &PriceTable,
    ) -> Result<Option<Self>, ModelsError> {
        // OpenAI, the default endpoint, cannot be used without a key.
        let mut layers = std::iter::once(&options.all).chain(options.roles.values());
        let has_endpoint = layers.any(|layer| layer.base_url.is_some() || layer.key_env.is_some());
        let has_variable = [OPENAI_BASE_URL, OPENAI_KEY].iter().any(|name| environment.get(name).is_some());
        if !has_endpoint && !has_variable {
            return Ok(None);
        }
        let mut models = BTreeMap::new();
        // Shared by address: roles at one endpoint use the same pool of connections.
        let mut clients = BTreeMap::new();
        for role in Role::ALL {
            let own = options.roles.get(&role).unwrap_or(&options.all).clone();
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

    pub(crate) fn role(&self, role: Role) -> &RoleModel {
        self.0.get(&role).expect("every way to make one gives every role a model")
    }

    /// Returns the roles whose model has no known price. They are rejected if a cost limit is set.
    pub(crate) fn unpriced(&self) -> Vec<(Role, String)> {
        // Any number of tokens will do: the cost is `None` only if the price is unknown.
        let usage = super::message::Usage { input_tokens: 1, output_tokens: 1, ..Default::default() };
        let unpriced = self.0.iter().filter(|(_, role)| role.model.cost_nanos(&usage).is_none());
        unpriced.map(|(role, model)| (*role, model.model.name().to_owned())).collect()
    }

    /// Returns the distinct models with their roles.
    pub(crate) fn distinct(&self) -> Vec<(Vec<Role>, &RoleModel)> {
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
) -> Result<(OpenAiSettings, WindowSplit), ModelsError> {
    let endpoint = ModelEndpoint::resolve(options.base_url.as_deref(), options.key_env.as_deref(), environment);
    let endpoint = endpoint.map_err(|error| match error {
        EndpointError::Address(source) => ModelsError::Address { role, source },
        EndpointError::Key(source) => ModelsError::Key { role, source },
    })?;
    let is_openai = endpoint.address.is_openai();
    let ModelEndpoint { address, key } = endpoint;
    // `OPENAI_BASE_URL` with OpenAI's key is a proxy for OpenAI and gets its default models.
    let stands_in = is_openai || (options.base_url.is_none() && options.key_env.is_none() && key.is_some());
    let model = options.model.clone().or_else(|| stands_in.then(|| default_model(role).to_owned()));
    let model = model.ok_or_else(|| ModelsError::NoModel { role, address: address.clone() })?;
    if key.is_none() && is_openai {
        return Err(ModelsError::Key { role, source: KeyError::NotSet { variable: OPENAI_KEY.to_owned() } });
    }
    let limits = WindowSplit::resolve(role, &model, &options)?;
    check_taken(role, &model, &options, &limits)?;
    let is_free = address.is_own(options.local);
    let price = prices.at(&model, is_free, options.model.is_some());
    let counter = options.encoding.map_or_else(|| TokenCounter::for_model(&model), TokenCounter::of);
    let settings = OpenAiSettings {
        // Only OpenAI is certain to have the Responses API; compatible servers have Chat Completions.
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

/// Rejects settings that a known OpenAI model does not accept: the provider would refuse every request.
fn check_taken(role: Role, model: &str, options: &ModelOptions, limits: &WindowSplit) -> Result<(), ModelsError> {
    let Some(known) = known(model) else { return Ok(()) };
    let not_taken =
        |setting, reason: String| Err(ModelsError::NotTaken { role, model: model.to_owned(), setting, reason });
    let is_set = options.max_output_tokens.is_some() || options.reasoning_tokens.is_some();
    let asked = limits.max_output_tokens.saturating_add(limits.reasoning_tokens);
    match known.max_output_tokens {
        Some(most) if is_set && asked > most => {
            let setting = if options.max_output_tokens.is_some() { "max_output_tokens" } else { "reasoning_tokens" };
            not_taken(setting, format!("its replies have at most {most} tokens, reasoning included, not {asked}"))
        }
        _ if !known.reasons && options.effort.is_some() => not_taken("effort", "it does not reason".into()),
        // With effort `none`, such a model does not reason and accepts a temperature.
        _ if known.reasons && options.temperature.is_some() && options.effort != Some(Effort::None) => {
            not_taken("temperature", "it reasons".into())
        }
        _ => Ok(()),
    }
}

fn default_model(role: Role) -> &'static str {
    match role {
        Role::Planner | Role::Judge | Role::Writer => STRONG_MODEL,
        Role::Worker | Role::Summariser => CHEAP_MODEL,
    }
}

/// Division of a context window.
#[expect(clippy::struct_field_names, reason = "units live in names")]
struct WindowSplit {
    window_tokens: u64,
    max_input_tokens: u64,
    max_output_tokens: u32,
    reasoning_tokens: u32,
}

impl WindowSplit {
    fn resolve(role: Role, model: &str, options: &ModelOptions) -> Result<Self, ModelsError> {
        let known = tiktoken_rs::model::get_context_size(model).and_then(|tokens| u64::try_from(tokens).ok());
        let window_tokens = options.window_tokens.or(known).unwrap_or(WINDOW_TOKENS);
        let thinks = if reasons(model) { REASONING_TOKENS } else { 0 };
        // In a small window, defaults shrink in favour of the prompt; explicit settings do not.
        let share = |tokens: u32| tokens.min(u32::try_from(window_tokens / 4).unwrap_or(u32::MAX));
        let reasoning_tokens = options.reasoning_tokens.unwrap_or_else(|| share(thinks));
        let max_output_tokens = options.max_output_tokens.unwrap_or_else(|| share(MAX_OUTPUT_TOKENS));
        let output_tokens = u64::from(max_output_tokens) + u64::from(reasoning_tokens);
        let room = window_tokens.saturating_sub(output_tokens);
        if room < MIN_INPUT_TOKENS {
            return Err(ModelsError::WindowTooSmall { role, window_tokens, output_tokens });
        }
        // Applied even to an explicit limit: the endpoint would refuse a prompt that leaves no room for its reply.
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
        Models::resolve(&options, &environment, &PriceTable::with(&BTreeMap::new()))
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
    fn setting_that_a_known_model_does_not_take_is_refused() {
        let refused = |model: &str, more: Value| {
            let mut options = json!({ "base_url": LOCAL, "model": model });
            options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            resolve(options, &[]).err().map(|error| error.to_string())
        };
        let cases = [
            ("gpt-4.1", json!({ "effort": "low" }), "`gpt-4.1` (planner) does not take `effort`: it does not reason"),
            ("openai/gpt-5.4", json!({ "temperature": 0.2 }), "does not take `temperature`: it reasons"),
            ("o3", json!({ "temperature": 0.2 }), "does not take `temperature`"),
            ("gpt-4o", json!({ "max_output_tokens": 20_000 }), "at most 16384 tokens, reasoning included, not 20000"),
        ];
        for (model, more, said) in cases {
            let error = refused(model, more).unwrap_or_default();
            assert!(error.contains(said), "{error}");
        }
        for (model, more) in [
            ("gpt-4.1", json!({ "temperature": 0.2, "max_output_tokens": 20_000 })),
            ("gpt-5.4", json!({ "effort": "low" })),
            ("gpt-5.4", json!({ "effort": "none", "temperature": 0.2 })),
            ("qwen3:8b", json!({ "effort": "low", "temperature": 0.2, "max_output_tokens": 12_000 })),
        ] {
            assert_eq!(refused(model, more), None);
        }
    }

    #[test]
    fn one_line_sets_every_role() {
        let mut options: ModelsOptions =
            serde_json::from_value(json!({ "worker": { "model": "b", "schema": "json" } })).unwrap();
        options.set_model("c");
        assert!(options.roles[&Role::Worker].schema.is_some());
        let environment = Environment::of([(OPENAI_BASE_URL, LOCAL)]);
        let prices = PriceTable::with(&BTreeMap::new());
        let models = Models::resolve(&options, &environment, &prices).unwrap().unwrap();
        assert_eq!(names(&models), ["c"; 5]);
    }
}
