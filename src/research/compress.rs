//! What a worker noted becomes its Branch: a report that may drop what is said twice, but no source.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::action::{Desk, Note};
use super::branch::{Branch, BranchReport, BranchStop, Finding};
use super::evidence::{Evidence, EvidenceId};
use super::extract::without_texts;
use super::memory::branch_text;
use super::prompt::{Template, ends_run, failure, fitted, room, room_beside, shorten_longest};
use super::question::{Aspect, AspectId};
use super::report::strike;
use super::worker::{Named, Task, conclusions, notes};
use crate::base::line::one_line;
use crate::llm::call::{CallError, CallKey, Caller};
use crate::llm::message::{Prompt, Role};
use crate::llm::structured::{structured_checked, structured_value};
use crate::source::Support;

/// Why a worker stopped, and what people should know of it.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) stop: BranchStop,
    pub(super) remark: Option<String>,
}

impl Ending {
    pub(super) fn of(stop: BranchStop) -> Self {
        Self { stop, remark: None }
    }
}

/// A branch report, as a model says it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
struct ReportDraft {
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
    /// Returns the claim with those of its ids that are known.
    pub(super) fn known<'a>(
        &self,
        is_known: &dyn Fn(&EvidenceId) -> bool,
        mut aspects: impl Iterator<Item = &'a Aspect>,
    ) -> Finding {
        let mut evidence: Vec<EvidenceId> = Vec::new();
        for id in self.ids() {
            if is_known(&id) && !evidence.contains(&id) {
                evidence.push(id);
            }
        }
        let wanted = self.aspect.as_deref().map(|id| AspectId::named(id.trim()));
        let aspect = wanted.filter(|id| aspects.any(|aspect| aspect.id == *id));
        Finding { text: one_line(&strike(&self.text, is_known, "").0), evidence, aspect }
    }

    /// Returns the ids it names that can be ids at all.
    pub(super) fn ids(&self) -> impl Iterator<Item = EvidenceId> {
        self.evidence.iter().filter_map(|id| id.trim_matches(['[', ']', ' ']).parse().ok())
    }
}

/// Returns what a confidence comes to: from 0 to 1, and 0 where it is no number.
pub(super) fn confidence(said: f32) -> f32 {
    if said.is_nan() { 0.0 } else { said.clamp(0.0, 1.0) }
}

/// Makes a branch of what lies on the desk.
///
/// # Errors
///
/// Returns an error only where the run itself cannot go on.
pub(super) async fn compress(
    caller: &dyn Caller,
    task: &Task<'_>,
    desk: Desk<'_>,
    ending: Ending,
) -> Result<Branch, CallError> {
    let mut remarks = desk.remarks.clone();
    remarks.extend(ending.remark.map(|reason| format!("work on `{}` stopped early: {reason}", task.node.question)));
    let received = received(task, &desk.noted);
    let mut report = match ending.stop {
        _ if received.is_empty() => empty(task, ending.stop),
        BranchStop::BudgetExceeded | BranchStop::ModelFailed => by_rules(&desk.noted, ending.stop),
        stop => match asked(caller, task, &desk, &received).await {
            Ok(draft) => from_draft(&draft, task, &received, stop),
            Err(error) if ends_run(&error) => return Err(error),
            Err(CallError::Limit(_)) => by_rules(&desk.noted, BranchStop::BudgetExceeded),
            Err(error) => {
                remarks.push(format!("report on `{}` was written without a model: {error}", task.node.question));
                by_rules(&desk.noted, stop)
            }
        },
    };
    add_uncited(&mut report, &desk.noted);
    if report.findings.is_empty() {
        report = empty(task, report.stop_reason);
    } else if let Some(schema) = &task.node.output_schema {
        match output(caller, task, &report, schema).await {
            Ok(value) => report.output = Some(value),
            Err(error) if ends_run(&error) => return Err(error),
            Err(error) => remarks.push(format!("result of `{}` fails its schema: {error}", task.node.question)),
        }
    }
    Ok(branch(task, desk, report, remarks))
}

/// Returns the ids a report may cite: what was noted, and the checked quotes of the conclusions.
fn received(task: &Task<'_>, noted: &[Note]) -> BTreeSet<EvidenceId> {
    let own = noted.iter().map(|note| &note.evidence);
    let given = task.conclusions.iter().flat_map(|conclusion| &conclusion.branch.evidence);
    own.chain(given).filter(|quote| quote.checked).map(|quote| quote.id.clone()).collect()
}

async fn asked(
    caller: &dyn Caller,
    task: &Task<'_>,
    desk: &Desk<'_>,
    received: &BTreeSet<EvidenceId>,
) -> Result<ReportDraft, CallError> {
    let check = |draft: &ReportDraft| match () {
        () if !draft.summary.chars().any(char::is_alphanumeric) => Err("`summary` is empty".to_owned()),
        () if !draft.findings.iter().any(|finding| finding.ids().any(|id| received.contains(&id))) => {
            Err("no finding names an evidence id that was given".to_owned())
        }
        () => Ok(()),
    };
    let key = CallKey::new(format!("{}/report", task.node.id));
    structured_checked(caller, &key, &prompt(caller, task, desk), "branch_report", check).await.map_err(failure)
}

fn prompt(caller: &dyn Caller, task: &Task<'_>, desk: &Desk<'_>) -> Prompt {
    let render = |(notes, conclusions): &(Vec<Named>, Vec<Named>)| {
        let question = &task.node.question;
        Template::Compress.prompt(
            caller,
            json!({"question": question, "aspects": task.aspects, "notes": notes, "conclusions": conclusions}),
        )
    };
    let shrink = |(notes, conclusions): &mut (Vec<Named>, Vec<Named>)| {
        let count = |text: &str| caller.count(Role::Summariser, text);
        shorten_longest(conclusions.iter_mut().chain(notes).map(|named| &mut named.text), &count)
    };
    let room = room::<ReportDraft>(caller, Role::Summariser);
    fitted(caller, room, &mut (notes(desk), conclusions(task)), render, shrink)
}

fn from_draft(
    draft: &ReportDraft,
    task: &Task<'_>,
    received: &BTreeSet<EvidenceId>,
    stop_reason: BranchStop,
) -> BranchReport {
    let is_known = |id: &EvidenceId| received.contains(id);
    let findings = draft.findings.iter().map(|finding| finding.known(&is_known, task.aspects.iter().copied()));
    BranchReport {
        summary: strike(draft.summary.trim(), &is_known, "").0,
        findings: findings.filter(|finding| !finding.evidence.is_empty() && !finding.text.is_empty()).collect(),
        confidence: confidence(draft.confidence),
        open_questions: draft.open_questions.iter().map(|question| one_line(question)).collect(),
        output: None,
        stop_reason,
    }
}

/// Returns a report made of the notes as they are.
fn by_rules(noted: &[Note], stop_reason: BranchStop) -> BranchReport {
    let scores = noted.iter().map(|note| note.evidence.score).sum::<f32>();
    #[expect(clippy::cast_precision_loss, reason = "there are a handful of notes")]
    let mean = scores / noted.len().max(1) as f32;
    BranchReport {
        summary: noted.iter().map(|note| format!("{} [{}]", note.text, note.evidence.id)).collect::<Vec<_>>().join(" "),
        findings: Vec::new(),
        // Nobody has said how far it answers the question.
        confidence: mean / 2.0,
        open_questions: Vec::new(),
        output: None,
        stop_reason,
    }
}

/// Adds the notes that no finding cites, so that no source is lost.
fn add_uncited(report: &mut BranchReport, noted: &[Note]) {
    for note in noted {
        let id = &note.evidence.id;
        if !report.findings.iter().any(|finding| finding.evidence.contains(id)) {
            let (text, aspect) = (note.text.clone(), note.aspect.clone());
            report.findings.push(Finding { text, evidence: vec![id.clone()], aspect });
        }
    }
}

/// Returns the report of a worker that has nothing to cite; whatever its model said is not known.
fn empty(task: &Task<'_>, stop: BranchStop) -> BranchReport {
    BranchReport {
        summary: String::new(),
        findings: Vec::new(),
        confidence: 0.0,
        open_questions: vec![task.node.question.to_string()],
        output: None,
        stop_reason: if stop == BranchStop::BudgetExceeded { stop } else { BranchStop::NoEvidence },
    }
}

async fn output(
    caller: &dyn Caller,
    task: &Task<'_>,
    report: &BranchReport,
    schema: &Value,
) -> Result<Value, CallError> {
    let branch = Branch {
        report: report.clone(),
        evidence: Vec::new(),
        further: Vec::new(),
        support: Support::Strong,
        notes: Vec::new(),
        reported: Vec::new(),
    };
    let prompt = output_prompt(caller, task.node.question.as_str(), branch_text(&branch), schema);
    let key = CallKey::new(format!("{}/output", task.node.id));
    structured_value(caller, &key, &prompt, "result", schema).await.map_err(failure)
}

/// Returns the prompt that puts findings into a form, the findings cut to what fits.
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

fn branch(task: &Task<'_>, desk: Desk<'_>, report: BranchReport, notes: Vec<String>) -> Branch {
    let evidence: Vec<Evidence> = desk.noted.into_iter().map(|note| note.evidence).collect();
    let given = task.conclusions.iter().map(|conclusion| conclusion.branch.support).max().unwrap_or(Support::None);
    let support = match (report.findings.is_empty(), evidence.is_empty()) {
        (true, _) => desk.support,
        (false, true) => given,
        // A quote that somebody noted bears on the question, whatever the search thought of it.
        (false, false) => desk.support.max(Support::Weak),
    };
    let mut further: Vec<_> =
        desk.shown.into_iter().filter(|shown| !shown.is_opened).map(|shown| shown.passage).collect();
    further.sort_by(|a, b| b.score.total_cmp(&a.score));
    Branch { report, evidence, further: without_texts(further), support, notes, reported: Vec::new() }
}
