//! Work on one node: by a worker of our own, by a job, or both.

use std::sync::Arc;

use super::cache::normalised;
use super::desk::Desk;
use super::egress::Leaving;
use super::event::RunSettings;
use super::jobs::{Finished, Jobs};
use super::journal::EgressKind;
use super::outward::outward_task;
use super::steps::{StepError, Steps, estimate};
use super::tree::RunState;
use crate::base::line::counted;
use crate::base::outbound::Outbound;
use crate::llm::call::CallError;
use crate::llm::model::ModelError;
use crate::research::branch::{Branch, BranchStop, Finding};
use crate::research::evidence::EvidenceId;
use crate::research::extract::extract;
use crate::research::memory::{label, slice};
use crate::research::node::{Node, NodeId};
use crate::research::outward::OutwardTask;
use crate::research::question::Aspect;
use crate::research::reported;
use crate::research::route::Route;
use crate::research::worker::{self, Conclusion, Task, WorkerLimits};
use crate::source::{Label, Source, Support};

/// Tokens of the global summary a worker is shown.
const CONTEXT_TOKENS: u64 = 1_000;

/// Pages that are read to check what one job says of them.
const MAX_VERIFIED_PAGES: usize = 12;

/// Everything the worker of a node may see.
pub struct Work {
    node: Node,
    aspects: Vec<Aspect>,
    conclusions: Vec<(Node, Branch)>,
    context: String,
    route: Route,
    /// The node as who works on it outside may see it.
    outward: Node,
    /// What is wanted outside.
    outward_task: OutwardTask,
    /// All the user asked for, as it is compared with what others did.
    asked: String,
    /// Whether pages that are cited are read.
    verify_web: bool,
}

impl Work {
    /// Gathers what the worker of `id` may see of a run: what was asked, what the nodes it builds on found out, and the
    /// part of the summary that bears on it. Who looks outside sees nothing that came from inside.
    pub fn of(state: &RunState, id: &NodeId) -> Option<Self> {
        let node = state.tree.get(id)?.clone();
        let route = *state.routes.get(id)?;
        let eyes = if route.is_inside() { Label::Internal } else { Label::Public };
        let may_see = |id: &NodeId| label(&state.tree, &state.branches, id) <= eyes;
        let conclusions = node.depends_on.iter().filter(|id| may_see(id));
        let conclusions =
            conclusions.filter_map(|id| Some((state.tree.get(id)?.clone(), state.branches.get(id)?.clone())));
        let aspects = state.brief().into_iter().flat_map(|brief| &brief.aspects);
        let aspects = aspects.filter(|aspect| node.aspects.contains(&aspect.id));
        Some(Self {
            aspects: aspects.cloned().collect(),
            conclusions: conclusions.collect(),
            context: slice(state.folded.memory.global_for(eyes), node.question.as_str(), CONTEXT_TOKENS, &estimate),
            route,
            outward: outward(node.clone(), state),
            outward_task: outward_task(state, &node, &node.aspects),
            asked: asked(state),
            verify_web: state.settings.verify_web,
            node: if route.is_inside() { node } else { outward(node, state) },
        })
    }
}

impl Steps {
    /// Works on a node.
    pub async fn look_into(&self, work: Work) -> Result<Branch, StepError> {
        let source = self.sources.of_node(work.route, &work.node, &work.outward.question);
        let mut branch = match (work.route, self.desk.as_deref()) {
            (Route::DeepResearch, Some(desk)) => match self.researched(desk, &work).await {
                Err(error) if self.sources.can_search() && may_be_searched_instead(&error) => {
                    let mut branch = self.searched(&work, source.as_ref()).await?;
                    branch.notes.push(format!("the web was searched, since Deep Research could not be had: {error}"));
                    branch
                }
                researched => researched?,
            },
            (Route::MixedDeepResearch, Some(desk)) => {
                let inside = self.searched(&work, source.as_ref()).await?;
                // Only what the knowledge base leaves open goes out.
                if inside.support == Support::Strong && inside.report.open_questions.is_empty() {
                    inside
                } else {
                    joined(inside, self.researched(desk, &work).await)?
                }
            }
            _ => self.searched(&work, source.as_ref()).await?,
        };
        match self.sources.egress.withheld(&work.node.id) {
            0 => {}
            number => branch.notes.push(format!(
                "{} about `{}` not sent, because what the knowledge base says would have left with it",
                counted(number, "text"),
                work.node.question
            )),
        }
        Ok(branch)
    }

    /// Works on a node by a job at a provider's, and reads the pages that cites.
    async fn researched(&self, desk: &Desk, work: &Work) -> Result<Branch, StepError> {
        let Work { outward, outward_task, .. } = work;
        let instructions = outward_task.instructions(desk);
        let jobs = self.jobs.as_deref().ok_or(StepError::NoWay("no Deep Research is set up"))?;
        let Finished { run, report, without_summaries } = if jobs.has(&outward.id) {
            // Its own job comes before what other runs have had done since.
            jobs.finished(self.by_job(jobs, work, &instructions).await?, &instructions).await?
        } else {
            self.known_or_new(jobs, work, &instructions).await?
        };
        // What a provider says of public pages is public, their addresses among it.
        let addresses = report.citations.iter().map(|citation| citation.url.as_str());
        self.sources.egress.seen_in_public([report.text.as_str()].into_iter().chain(addresses));
        let pages = self.sources.pages(outward, &report).filter(|_| work.verify_web);
        let branch = reported::branch_of(outward, &work.aspects, &report, pages.as_deref(), MAX_VERIFIED_PAGES);
        let mut branch = branch.await?;
        if run != self.run {
            let question = &outward.question;
            branch
                .notes
                .push(format!("`{question}` was answered by Deep Research before, in run {run}: nothing was sent"));
        }
        if without_summaries {
            let note = "the account may not have summaries of the reasoning, so the job was started without them";
            branch.notes.push(note.to_owned());
        }
        Ok(branch)
    }

    /// Returns the report of a job that was started today for the same question, by this run or another one; else that of a
    /// new job. A report that was cut short answers only the run that paid for it.
    async fn known_or_new(&self, jobs: &Jobs, work: &Work, instructions: &Outbound) -> Result<Finished, StepError> {
        let mut version = jobs.research().version();
        loop {
            let lookup = self.sources.job_lookup(&work.outward, &work.asked, &version);
            let ask = async { Ok(self.by_job(jobs, work, instructions).await?.to_string()) };
            let call: Arc<str> = Box::pin(self.sources.cache.answer::<StepError, _>(lookup, ask)).await?;
            let call = call.parse().map_err(|_| StepError::Invalid(format!("`{call}` is the number of no call")))?;
            let finished = jobs.finished(call, instructions).await?;
            if finished.run == self.run || finished.report.incomplete.is_none() {
                return Ok(finished);
            }
            version.push_str(" again");
        }
    }

    /// Has instructions carried out by a job, where they may leave; returns the call that brought the report.
    async fn by_job(&self, jobs: &Jobs, work: &Work, instructions: &Outbound) -> Result<i64, StepError> {
        let Work { outward, outward_task, .. } = work;
        let release = async {
            let words = outward_task.words();
            let text = Leaving { kind: EgressKind::Job, text: instructions.as_str(), said: words.as_str() };
            Ok::<_, StepError>(self.sources.egress.release(&outward.id, "Deep Research", text).await?)
        };
        jobs.carry_out(&outward.id, instructions, release).await
    }

    /// Works on a node by searching.
    async fn searched(&self, work: &Work, source: &dyn Source) -> Result<Branch, StepError> {
        let Work { node, aspects, conclusions, context, .. } = work;
        let Some(desk) = self.desk.as_deref() else {
            let branch = extract(node, source, self.picker.as_ref()).await?;
            return Ok(built_on(branch, conclusions));
        };
        let conclusions = conclusions.iter().map(|(node, branch)| Conclusion { node, branch }).collect();
        let limits = WorkerLimits::default();
        let task = Task { node, aspects: aspects.iter().collect(), conclusions, context, limits };
        Ok(worker::work(desk, source, &task).await?)
    }
}

/// Returns all the user asked for, as it is compared with what others did: the question, what was said when asked back, what
/// must be covered, and the days.
fn asked(state: &RunState) -> String {
    let RunSettings { required, scope, .. } = &state.settings;
    let said = [state.question.as_str()].into_iter().chain(state.clarification.as_deref());
    let texts = said.chain(required.iter().map(String::as_str)).map(normalised);
    texts.chain([format!("{:?} {:?}", scope.since, scope.until)]).collect::<Vec<_>>().join("\n")
}

/// Returns a node as who looks outside may see it: planned after something was looked up, it asks for its aspects, which
/// were fixed before, in place of what its plan says.
fn outward(mut node: Node, state: &RunState) -> Node {
    let is_blind = node.round <= 1 && state.settings.follows.is_none();
    if is_blind || state.settings.allow_egress {
        return node;
    }
    let aspect = |id| state.brief().and_then(|brief| brief.aspect(id)).map(|aspect| aspect.text.clone());
    let aspects = node.aspects.iter().filter_map(aspect).filter(|_| state.settings.follows.is_none());
    let texts: Vec<_> = aspects.chain([state.question.to_string()]).collect();
    node.question = texts.join("; ").parse().unwrap_or_else(|_| state.question.clone());
    node
}

/// Tells whether a job that was not to be had leaves a search of one's own to try. What may be under way, or may be had
/// again when the run goes on, is waited for.
fn may_be_searched_instead(error: &StepError) -> bool {
    matches!(error, StepError::Call(CallError::Model(error)) if !matches!(error, ModelError::Unknown { .. }))
}

/// Joins what was found inside with what a job reports; what was found stays when that fails.
fn joined(mut inside: Branch, outside: Result<Branch, StepError>) -> Result<Branch, StepError> {
    let outside = match outside {
        Ok(outside) => outside,
        Err(StepError::Call(error @ (CallError::Cancelled | CallError::Journal { .. }))) => return Err(error.into()),
        Err(error) if inside.report.findings.is_empty() => return Err(error),
        Err(error) => {
            inside.notes.push(format!("the web was not asked for the rest: {error}"));
            return Ok(inside);
        }
    };
    // Quotes are numbered on from those of the knowledge base.
    let from = inside.evidence.len();
    let renumber = |id: &EvidenceId| id.after(from);
    for mut quote in outside.evidence {
        quote.id = renumber(&quote.id);
        inside.evidence.push(quote);
    }
    for mut finding in outside.report.findings {
        finding.evidence = finding.evidence.iter().map(renumber).collect();
        inside.report.findings.push(finding);
    }
    let summaries = [inside.report.summary, outside.report.summary];
    inside.report.summary = summaries.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
    if !inside.report.findings.is_empty() {
        inside.report.stop_reason = BranchStop::Done;
    }
    inside.report.open_questions = outside.report.open_questions;
    inside.report.confidence = inside.report.confidence.max(outside.report.confidence);
    inside.support = inside.support.max(outside.support);
    inside.further.extend(outside.further);
    inside.notes.extend(outside.notes);
    inside.reported.extend(outside.reported);
    Ok(inside)
}

/// Gives a node that found nothing itself the conclusions it was to build on.
fn built_on(mut branch: Branch, conclusions: &[(Node, Branch)]) -> Branch {
    if branch.report.findings.is_empty() && !conclusions.is_empty() {
        let first = |(_, branch): &(Node, Branch)| branch.report.findings.first().cloned();
        let findings: Vec<Finding> = conclusions.iter().filter_map(first).collect();
        if !findings.is_empty() {
            branch.report.summary = findings.iter().map(|finding| finding.text.as_str()).collect::<Vec<_>>().join(" ");
            branch.report.open_questions.clear();
            branch.report.stop_reason = BranchStop::Done;
            #[expect(clippy::cast_precision_loss, reason = "a handful of nodes")]
            let mean =
                conclusions.iter().map(|(_, branch)| branch.report.confidence).sum::<f32>() / conclusions.len() as f32;
            branch.report.confidence = mean / 2.0;
            branch.report.findings = findings;
        }
    }
    branch
}
