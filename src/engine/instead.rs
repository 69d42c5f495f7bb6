//! When a question is answered without the models that are configured: they cannot be reached, a limit is too small for
//! one call, they failed on the way, or they noted nothing.

use futures::future::join_all;

use super::stored::Asked;
use super::{AskRequest, Engine, EngineError, Observer, RunEvent};
use crate::base::clock::{Clock, SystemClock};
use crate::base::folder::create_private;
use crate::base::id::ContentHash;
use crate::base::line::with_causes;
use crate::llm::call::CallError;
use crate::llm::roles::{Models, RoleModel};
use crate::research::node::{NodeStatus, SourceHint};
use crate::research::report::StopReason;
use crate::run::budget::BudgetLimits;
use crate::run::estimate::TooSmall;
use crate::run::event::Instead;
use crate::run::orchestrator::RunError;

/// Smallest window in which a worker has room for passages. In 2,048 tokens a step with its schema fills the prompt; in
/// 4,096 research works (tried with `tools/local-server`).
const MIN_WINDOW_TOKENS: u64 = 4_096;

/// File of the user's data folder with the models that were reached today: the day, then a hash of each.
const REACHED: &str = "reached";

/// Why the models do not answer.
pub(super) struct Obstacle {
    pub(super) instead: Instead,
    /// What the user can do.
    hint: String,
}

impl Obstacle {
    fn new(why: String, hint: impl Into<String>) -> Self {
        Self { instead: Instead { why, has_read: false, failed_run: None }, hint: hint.into() }
    }

    fn of_model(why: String) -> Self {
        let hint = "check `DR_MODEL` and `base_url`; `dr doctor --model` tests the endpoint, `--offline` asks no model";
        Self::new(why, hint)
    }

    pub(super) fn tell(&self, observer: &Observer) {
        observer(RunEvent::Instead { why: self.instead.why.clone(), hint: self.hint.clone() });
    }

    /// Returns why the outcome of a run with models is worth less than an answer without them; `None` if it is not, or
    /// if only the web was to be searched.
    pub(super) fn behind(asked: &Result<Asked, EngineError>, request: &AskRequest) -> Option<Self> {
        // Without a model, answers come from the knowledge base, which this request excludes.
        if request.run.source == Some(SourceHint::Web) {
            return None;
        }
        let report = match asked {
            Ok(asked) => &asked.report,
            Err(EngineError::Run(error @ RunError::Call { source: CallError::Model(_), .. })) => {
                return Some(Self::of_model(format!("the model failed: {}", with_causes(error))));
            }
            Err(_) => return None,
        };
        // An answer needs no other in its place, and a user who stopped the run wants none.
        if !report.is_refusal() || report.stop_reason == StopReason::Cancelled {
            return None;
        }
        if !report.stop_reason.is_natural() {
            let why = "the run reached its limit before the model had noted anything".to_owned();
            return Some(Self::new(why, "raise the limit, for example with `--max-tokens` or `--max-cost`"));
        }
        let mut failed = report.tree.nodes.iter().filter(|node| node.status == NodeStatus::Failed);
        if let Some(node) = failed.next() {
            return Some(Self::of_model(format!("the model failed on every sub-question: {}", node.summary)));
        }
        if !report.failed_nodes.is_empty() {
            // There was no source to search, which is not for the model to mend.
            return None;
        }
        let why = "the model noted nothing that answers the question".to_owned();
        let mut obstacle = Self::new(why, "ask in other words, or use another model with `--model`");
        obstacle.instead.has_read = true;
        Some(obstacle)
    }
}

impl Engine {
    /// Returns why models cannot work under some limits, as far as this is known before a run and costs nothing. Call
    /// it after every check that can refuse the request, because it sends something. The observer is told of models
    /// whose window is too small.
    pub(super) async fn obstacle(
        &self,
        models: &Models,
        limits: &BudgetLimits,
        observer: &Observer,
    ) -> Option<Obstacle> {
        if let Some(too_small) = TooSmall::of(models, limits) {
            return Some(Obstacle::new(too_small.to_string(), too_small.hint()));
        }
        self.unreachable(models, observer).await.map(Obstacle::of_model)
    }

    /// Returns why one of the models cannot be reached. Models that were reached today are not asked again, except
    /// those whose window is too small.
    async fn unreachable(&self, models: &Models, observer: &Observer) -> Option<String> {
        let distinct = models.distinct().into_iter().map(|(_, model)| (hash(model), model));
        let mut reached = self.reached_today();
        let new: Vec<_> = distinct.filter(|(hash, _)| !reached.contains(hash)).collect();
        // All at once: an endpoint that does not answer takes as long as its time limit.
        let results = join_all(new.iter().map(|(_, model)| model.model.reach())).await;
        for ((hash, model), result) in new.into_iter().zip(results) {
            match result {
                Err(error) => return Some(format!("`{}` at {}: {error}", model.model.name(), model.endpoint)),
                Ok(stated) => match window_trouble(model, stated) {
                    // Not kept as reached: the next run is told again.
                    Some((text, hint)) => observer(RunEvent::Note { text, hint: Some(hint) }),
                    None => reached.push(hash),
                },
            }
        }
        self.note_reached(&reached);
        None
    }

    fn reached_today(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.settings.paths.data.join(REACHED)).unwrap_or_default();
        let mut lines = text.lines().map(str::to_owned);
        // An endpoint that answered yesterday may be down today.
        if lines.next() == today() { lines.collect() } else { Vec::new() }
    }

    /// Notes the models that were reached. If this fails, they are asked again by the next run.
    fn note_reached(&self, reached: &[String]) {
        let Some(today) = today() else { return };
        let data = &self.settings.paths.data;
        let written = create_private(data)
            .and_then(|()| std::fs::write(data.join(REACHED), format!("{today}\n{}\n", reached.join("\n"))));
        // The note only saves a request, so the run goes on without it.
        if let Err(error) = written {
            tracing::debug!(%error, "models that were reached are not noted");
        }
    }
}

/// Returns the problem with the window of a model, and its remedy: the endpoint states a smaller one than is set, or it
/// is too small for research.
pub(super) fn window_trouble(model: &RoleModel, stated: Option<u64>) -> Option<(String, String)> {
    let (name, set) = (model.model.name(), model.model.window_tokens());
    let larger = "start its server with a larger context";
    match stated {
        Some(stated) if stated < set => {
            let text = format!("`{name}` has a context of {stated} tokens at {}, not of {set}", model.endpoint);
            Some((text, format!("set `window_tokens = {stated}` for this model, or {larger}")))
        }
        _ if set < MIN_WINDOW_TOKENS => {
            let text = format!(
                "a context of {set} tokens leaves `{name}` at {} no room for passages beside rules and schema",
                model.endpoint
            );
            Some((text, format!("{larger}, 8,192 tokens or more, and set `window_tokens` to it")))
        }
        _ => None,
    }
}

fn today() -> Option<String> {
    SystemClock.now().date()
}

fn hash(model: &RoleModel) -> String {
    let RoleModel { model, endpoint, .. } = model;
    // With another window set, the one that the endpoint states is compared again.
    let text = format!("{endpoint}\n{}\n{}", model.name(), model.window_tokens());
    ContentHash::of(text.as_bytes()).as_str().to_owned()
}
