//! Compresses the notes of a worker into its branch report, which may drop repetitions but no source.
//!
//! A note is a claim with an aspect already, so that the model writes only what rules cannot: the summary, and a finding
//! where several notes make one claim or one claims too much. Every other note becomes a finding as it stands; one that
//! is still without a claim, as a quote of the skim, in the plain words of its quote. In a run
//! of 60 notes, a model that wrote all findings only reworded 31 of them, in a reply near its limit. But it joined the
//! other 29 to 14 and saw that two sources differ, which is why it is still asked.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::action::Note;
use super::branch::{Branch, BranchReport, BranchStop, Finding};
use super::evidence::{Evidence, EvidenceId, strike};
use super::extract::without_texts;
use super::memory::branch_text;
use super::prompt::{Template, ends_run, failure, fitted, room, room_beside, shorten_longest};
use super::question::AspectId;
use super::task::Task;
use super::worker::{Gathered, PromptEntry, conclusions};
use crate::base::line::one_line;
use crate::base::step::Step;
use crate::llm::call::{CallError, Caller};
use crate::llm::message::{Prompt, Role};
use crate::llm::structured::{structured_checked, structured_value};
use crate::source::Support;

/// A branch report, as a model says it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(super) struct ReportDraft {
    /// The answer in short.
    summary: String,
    /// The answer claim by claim.
    findings: Vec<FindingDraft>,
    /// From 0 to 1.
    confidence: f32,
    /// What is still open.
    #[serde(default)]
    open_questions: Vec<String>,
}

/// A claim, as a model says it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(super) struct FindingDraft {
    /// What is claimed.
    pub(super) text: String,
    /// Ids of the evidence that bears it out.
    pub(super) evidence: Vec<String>,
    /// The id of the aspect it serves.
    #[serde(default)]
    pub(super) aspect: Option<String>,
}

impl FindingDraft {
    /// Returns the claim with its known ids.
    pub(super) fn known<'a>(
        &self,
        is_known: &dyn Fn(&EvidenceId) -> bool,
        mut aspects: impl Iterator<Item = &'a AspectId>,
    ) -> Finding {
        let mut evidence: Vec<EvidenceId> = Vec::new();
        for id in self.ids() {
            if is_known(&id) && !evidence.contains(&id) {
                evidence.push(id);
            }
        }
        let wanted = self.aspect.as_deref().map(AspectId::named);
        let aspect = wanted.filter(|id| aspects.any(|aspect| aspect == id));
        Finding { text: one_line(&strike(&self.text, is_known, "").0), evidence, aspect, is_emphasised: false }
    }

    /// Returns the well-formed ids it names.
    pub(super) fn ids(&self) -> impl Iterator<Item = EvidenceId> {
        // Models copy ids with the brackets of citations.
        self.evidence.iter().filter_map(|id| id.trim_matches(['[', ']', ' ']).parse().ok())
    }
}

/// Maximum confidence in what a background job that was cut short has found.
const CONFIDENCE_OF_UNFINISHED: f32 = 0.4;

/// Clamps a confidence to 0 to 1; NaN becomes 0.
pub(super) fn confidence(said: f32) -> f32 {
    if said.is_nan() { 0.0 } else { said.clamp(0.0, 1.0) }
}

/// Compresses the notes on a node into its branch.
///
/// # Errors
///
/// Returns an error only if the run itself cannot continue.
#[tracing::instrument(level = "debug", name = "step", skip_all, fields(name = "compress"))]
pub(crate) async fn compress<Q: ?Sized + AsRef<str> + Sync>(
    caller: &dyn Caller,
    task: &Task<'_, Q>,
    gathered: Gathered,
) -> Result<Branch, CallError> {
    let task = &task.plain();
    let mut remarks = gathered.remarks.clone();
    let received = received(task, &gathered.notes);
    let mut report = match gathered.stop {
        stop if received.is_empty() => empty(task, stop),
        // A model that has just failed is not asked again.
        stop @ BranchStop::ModelFailed => by_rules(&gathered.notes, stop),
        stop => match asked(caller, task, &gathered, &received).await {
            Ok(draft) => from_draft(&draft, task, &received, stop),
            Err(error) if ends_run(&error) => return Err(error),
            Err(CallError::Limit(_)) => by_rules(&gathered.notes, BranchStop::BudgetExceeded),
            Err(error) => {
                remarks.push(format!("report on `{}` was written without a model: {error}", task.question));
                by_rules(&gathered.notes, stop)
            }
        },
    };
    add_uncited(&mut report, &gathered.notes);
    if !gathered.unfinished.is_empty() {
        // The model was shown what there is, and cannot tell what the rest of the job would have said.
        report.confidence = report.confidence.min(CONFIDENCE_OF_UNFINISHED);
        report.open_questions.extend(gathered.unfinished.iter().cloned());
    }
    if report.findings.is_empty() {
        report = empty(task, report.stop_reason);
    } else if let Some(schema) = task.output_schema.as_deref().and_then(|text| serde_json::from_str(text).ok()) {
        match output(caller, task, &report, &schema).await {
            Ok(value) => report.output = Some(value),
            Err(error) if ends_run(&error) => return Err(error),
            Err(error) => remarks.push(format!("result of `{}` fails its schema: {error}", task.question)),
        }
    }
    Ok(branch(task, gathered, report, remarks))
}

/// Writes the branch of a node that only concludes, from the conclusions of the nodes it depends on.
///
/// # Errors
///
/// Returns an error only if the run itself cannot continue.
pub(crate) async fn conclude<Q: ?Sized + AsRef<str> + Sync>(
    caller: &dyn Caller,
    task: &Task<'_, Q>,
) -> Result<Branch, CallError> {
    compress(caller, task, Gathered::nothing()).await
}

/// Returns the ids that a report may cite: the notes, and the checked quotes of the dependencies.
fn received(task: &Task<'_>, noted: &[Note]) -> BTreeSet<EvidenceId> {
    let own = noted.iter().map(|note| &note.evidence);
    let given = task.conclusions.iter().flat_map(|conclusion| &conclusion.branch().evidence);
    own.chain(given).filter(|quote| quote.checked).map(|quote| quote.id.clone()).collect()
}

async fn asked(
    caller: &dyn Caller,
    task: &Task<'_>,
    gathered: &Gathered,
    received: &BTreeSet<EvidenceId>,
) -> Result<ReportDraft, CallError> {
    let check = |draft: &ReportDraft| match () {
        () if !draft.summary.chars().any(char::is_alphanumeric) => Err("`summary` is empty".to_owned()),
        // Notes become findings anyway; conclusions of other nodes do not.
        () if !gathered.notes.is_empty() => Ok(()),
        () if !draft.findings.iter().any(|finding| finding.ids().any(|id| received.contains(&id))) => {
            Err("no finding names an evidence id that was given".to_owned())
        }
        () => Ok(()),
    };
    let key = task.key.then(Step::Report);
    structured_checked(caller, &key, &prompt(caller, task, gathered), "branch_report", check).await.map_err(failure)
}

/// Returns the notes, each with its quote and provenance. A quote or a place that stands above is not repeated.
fn noted(notes: &[Note]) -> Vec<PromptEntry> {
    let mut above: Vec<&Evidence> = Vec::new();
    let mut places: Vec<(String, &EvidenceId)> = Vec::new();
    let mut noted = Vec::new();
    for note in notes {
        let Evidence { id, quote, source, .. } = &note.evidence;
        let quote = if let Some(known) = note.evidence.within(&above) {
            format!("Its quote stands in {known} above.")
        } else {
            let place = source.provenance();
            let from = match places.iter().find(|(known, _)| *known == place) {
                Some((_, known)) => format!("the same place as {known}"),
                None => {
                    places.push((place.clone(), id));
                    place
                }
            };
            format!("From: {from}\nQuote: {quote}")
        };
        above.push(&note.evidence);
        // The quote below it has its words.
        let claim = if note.is_worded { note.claim() } else { note.for_aspect("Not worded yet") };
        let text = format!("{claim}\n{quote}");
        noted.push(PromptEntry { id: id.to_string(), question: String::new(), text });
    }
    noted
}

fn prompt(caller: &dyn Caller, task: &Task<'_>, gathered: &Gathered) -> Prompt {
    let render = |(notes, conclusions): &(Vec<PromptEntry>, Vec<PromptEntry>)| {
        let question = task.question;
        Template::Compress.prompt(
            caller,
            json!({
                "question": question, "aspects": task.aspects, "open": gathered.open,
                "in_vain": gathered.in_vain, "notes": notes,
                "conclusions": conclusions,
            }),
        )
    };
    let shrink = |(notes, conclusions): &mut (Vec<PromptEntry>, Vec<PromptEntry>)| {
        let count = |text: &str| caller.count(Role::Summariser, text);
        shorten_longest(conclusions.iter_mut().chain(notes).map(|named| &mut named.text), &count)
    };
    let room = room::<ReportDraft>(caller, Role::Summariser);
    fitted(caller, room, &mut (noted(&gathered.notes), conclusions(task)), render, shrink)
}

fn from_draft(
    draft: &ReportDraft,
    task: &Task<'_>,
    received: &BTreeSet<EvidenceId>,
    stop_reason: BranchStop,
) -> BranchReport {
    let is_known = |id: &EvidenceId| received.contains(id);
    let findings =
        draft.findings.iter().map(|finding| finding.known(&is_known, task.aspects.iter().map(|aspect| aspect.id)));
    BranchReport {
        summary: strike(draft.summary.trim(), &is_known, "").0,
        findings: findings.filter(|finding| !finding.evidence.is_empty() && !finding.text.is_empty()).collect(),
        confidence: confidence(draft.confidence),
        open_questions: draft.open_questions.iter().map(|question| one_line(question)).collect(),
        output: None,
        stop_reason,
    }
}

/// Returns a report that lists the notes unchanged.
fn by_rules(noted: &[Note], stop_reason: BranchStop) -> BranchReport {
    let scores = noted.iter().map(|note| note.evidence.score).sum::<f32>();
    #[expect(clippy::cast_precision_loss, reason = "there are a handful of notes")]
    let mean = scores / noted.len().max(1) as f32;
    BranchReport {
        summary: noted.iter().map(|note| format!("{} [{}]", note.text, note.evidence.id)).collect::<Vec<_>>().join(" "),
        // [`add_uncited`] makes a finding of each note.
        findings: Vec::new(),
        // No model has rated the answer.
        confidence: mean / 2.0,
        open_questions: Vec::new(),
        output: None,
        stop_reason,
    }
}

/// Adds the notes that no finding cites, so that no source is lost.
fn add_uncited(report: &mut BranchReport, noted: &[Note]) {
    let findings = &mut report.findings;
    for (at, Note { evidence: Evidence { id, .. }, text, aspect, .. }) in noted.iter().enumerate() {
        if findings.iter().any(|finding| finding.evidence.contains(id)) {
            continue;
        }
        // Notes made of the quotes of one finding, as of a background job, share its words.
        if let Some(same) = findings.iter_mut().find(|finding| finding.text == *text && finding.aspect == *aspect) {
            same.evidence.push(id.clone());
            continue;
        }
        let place = place_after(&noted[..at], findings, aspect.as_ref());
        let (text, aspect) = (text.clone(), aspect.clone());
        findings.insert(place, Finding { text, evidence: vec![id.clone()], aspect, is_emphasised: false });
    }
}

/// Returns the place of a note among the findings of its aspect: after the one that cites the latest of the `earlier`
/// notes, since a worker notes in a row what a document says in a row.
fn place_after(earlier: &[Note], findings: &[Finding], aspect: Option<&AspectId>) -> usize {
    let of_aspect = || findings.iter().enumerate().filter(|(_, finding)| finding.aspect.as_ref() == aspect);
    let latest = |finding: &Finding| earlier.iter().rposition(|note| finding.evidence.contains(&note.evidence.id));
    let before = of_aspect().filter_map(|(place, finding)| Some((latest(finding)?, place))).max();
    match (before, of_aspect().next()) {
        (Some((_, place)), _) => place + 1,
        (None, Some((first, _))) => first,
        (None, None) => findings.len(),
    }
}

fn empty(task: &Task<'_>, stop: BranchStop) -> BranchReport {
    // Cut short, the search says nothing about what the sources contain.
    let is_cut = matches!(stop, BranchStop::BudgetExceeded | BranchStop::StepsExceeded | BranchStop::TokensExceeded);
    let stop = if is_cut { stop } else { BranchStop::NoEvidence };
    BranchReport::without_findings(task.question, stop)
}

async fn output(
    caller: &dyn Caller,
    task: &Task<'_>,
    report: &BranchReport,
    schema: &Value,
) -> Result<Value, CallError> {
    let prompt = output_prompt(caller, task.question, branch_text(report), schema);
    let key = task.key.then(Step::Output);
    structured_value(caller, &key, &prompt, "result", schema).await.map_err(failure)
}

/// Returns the prompt that converts findings to an output schema, truncating the findings to fit.
pub(super) fn output_prompt(caller: &dyn Caller, question: &str, mut findings: String, schema: &Value) -> Prompt {
    let room = room_beside(caller, Template::Output.role(), schema);
    fitted(
        caller,
        room,
        &mut findings,
        |findings| Template::Output.prompt(caller, json!({"question": question, "findings": findings})),
        |findings| {
            let count = |text: &str| caller.count(Template::Output.role(), text);
            shorten_longest(std::iter::once(findings), &count)
        },
    )
}

fn branch(task: &Task<'_>, gathered: Gathered, report: BranchReport, notes: Vec<String>) -> Branch {
    let evidence: Vec<Evidence> = gathered.notes.into_iter().map(|note| note.evidence).collect();
    let given = task.conclusions.iter().map(|conclusion| conclusion.branch().support).max().unwrap_or(Support::None);
    let support = match (report.findings.is_empty(), evidence.is_empty()) {
        (true, _) => gathered.support,
        // Concluded from dependencies alone: supported as well as the best of them.
        (false, true) => given,
        // A noted quote is relevant, whatever the scores of the search.
        (false, false) => gathered.support.max(Support::Weak),
    };
    let further = without_texts(gathered.further);
    let (reported, saw_internal) = (gathered.reported, gathered.saw_internal);
    Branch { report, evidence, further, support, notes, reported, saw_internal }
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
