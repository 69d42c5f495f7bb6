//! Tests the language models: what each endpoint supports, and which setting to change if something is missing.

use std::fmt::Write;

use futures::future::join_all;

use super::Engine;
use super::doctor::Check;
use super::instead::window_trouble;
use crate::base::money::dollars;
use crate::kb::index::Index;
use crate::llm::message::Role;
use crate::llm::model::ModelError;
use crate::llm::probe::{Conformance, Probe, probe};
use crate::llm::roles::RoleModel;

impl Engine {
    /// Tests each configured language model with two short prompts. Offline, nothing is sent.
    pub(crate) async fn model_checks(&self) -> Vec<Check> {
        let models = match self.settings.models() {
            Ok(Some(models)) => models,
            Ok(None) if self.settings.is_offline() => {
                return vec![Check::note("model", "not asked, since dr is offline")];
            }
            Ok(None) => {
                let mend = "export OPENAI_API_KEY, or set `base_url` and `model` in `[models]`";
                return vec![Check::note("model", "none configured; rule-based steps are used").mend(mend)];
            }
            Err(error) => return vec![Check::failed("model", &error, error.hint())],
        };
        let distinct = models.distinct();
        let probes = join_all(distinct.iter().map(|(_, model)| probe(&*model.model))).await;
        let windows = join_all(distinct.iter().map(|(_, model)| model.model.reach())).await;
        let mut all = Vec::new();
        for (((roles, model), probe), window) in distinct.iter().zip(&probes).zip(windows) {
            all.extend(checks(roles, model, probe));
            if let Some((detail, mend)) = window_trouble(model, window.ok().flatten()) {
                all.push(Check::trouble("model window", detail).mend(mend));
            }
        }
        all
    }

    /// Has the server of the embedder embed a word, if a server embeds. Offline, nothing is sent.
    pub(crate) async fn embedder_answers(&self) -> Option<Check> {
        let index = Index::known(&self.location).await.ok()?;
        // An embedder that cannot be loaded is reported by `checkup`.
        let embedder = self.load_embedder(&self.embedder_choice(index.as_ref(), false)).await.ok()?;
        let address = embedder.server().filter(|_| !self.is_offline())?.address.to_string();
        let asked = tokio::task::spawn_blocking(move || embedder.embed_query("ready").map(|vector| vector.len()));
        Some(match asked.await.ok()? {
            Ok(dimensions) => Check::ok("embedder", format!("{address} answers with {dimensions} dimensions")),
            Err(error) => Check::failed("embedder", &error, error.hint()),
        })
    }
}

fn checks(roles: &[Role], model: &RoleModel, probe: &Probe) -> Vec<Check> {
    let roles = roles.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let who = format!("{} at {} ({roles})", model.model.name(), model.endpoint);
    if let Err(error) = &probe.plain {
        return vec![Check { mend: advice(error), ..Check::trouble("model", format!("{who}: {error}")) }];
    }
    let mut checks = vec![Check::ok("model", format!("{who} answers{}", cost(probe)))];
    checks.extend(form_check(probe));
    checks.push(usage_check(probe));
    // Without token counts, the cost is unknown whatever the price, and `usage_check` says so.
    if probe.cost_nanos.is_none() && probe.usage.is_some() {
        let name = model.model.name();
        let mend =
            format!("set `[prices.\"{name}\"]` with `input` and `output`, or `local = true` for your own server");
        checks.push(Check::note("model price", "unknown, so it cannot run under a cost limit").mend(mend));
    }
    checks
}

fn cost(probe: &Probe) -> String {
    let mut text = String::new();
    if let Some(usage) = probe.usage {
        let _ = write!(text, "; this took {} tokens", usage.tokens());
    }
    match probe.cost_nanos {
        None | Some(0) => text,
        Some(nanos) => text + &format!(" and ${:.6}", dollars(nanos)),
    }
}

fn form_check(probe: &Probe) -> Option<Check> {
    let name = "model schema";
    let looser = "set `schema = \"json\"` (or \"none\") for this model";
    let form = probe.form.as_ref()?;
    if let (Ok(_), Some(reason)) = (form, &probe.refused_schema) {
        let detail = format!("is not enforced and becomes part of the prompt: {reason}");
        return Some(Check::note(name, detail).mend(looser));
    }
    Some(match form {
        Ok(Conformance::Kept) => Check::ok(name, "replies keep to it"),
        Ok(Conformance::Wrong) => Check::note(name, "replies match the schema, but the answer is wrong")
            .mend("use a larger model; this one does not know the larger of two numbers"),
        Ok(Conformance::Mended) => Check::note(name, "replies need mending").mend(looser),
        Ok(Conformance::Ignored) => {
            Check::note(name, "is ignored, so more replies must be requested again").mend(looser)
        }
        Ok(Conformance::CutOff) => Check::trouble(name, "the reply was cut off: reasoning used up its tokens")
            .mend("raise `reasoning_tokens` for this model"),
        Err(error) => Check::trouble(name, error.to_string()).mend(advice(error).unwrap_or_else(|| looser.to_owned())),
    })
}

fn usage_check(probe: &Probe) -> Check {
    let name = "model tokens";
    match probe.counts {
        None => Check::note(name, "not reported by the endpoint, so reserved tokens count as spent"),
        Some((ours, theirs)) if probe.drifts() => {
            Check::note(name, format!("{theirs} where dr counts {ours}, so limits may be overrun"))
                .mend("set another `encoding`, or a smaller `max_input_tokens`")
        }
        Some((ours, theirs)) => Check::ok(name, format!("{theirs} where dr counts at most {ours}")),
    }
}

fn advice(error: &ModelError) -> Option<String> {
    let text = match error {
        ModelError::Authentication => "check the key, and which variable `key_env` names",
        ModelError::Quota => "add credit to the account of the key",
        ModelError::Transient { .. } => "check `base_url`, and that the server runs",
        ModelError::Unknown { .. } => "check the server, or raise `timeout_seconds`",
        ModelError::ContextTooLong { .. } => "give the server a larger context, and set `window_tokens` to it",
        _ => return None,
    };
    Some(text.to_owned())
}
