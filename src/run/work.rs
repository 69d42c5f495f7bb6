//! Work on one node: inside, outside, or inside first and then outside for the aspects that stay open.
//!
//! ```text
//! internal ─▶ worker on the knowledge base ─▶ compress
//! web ──────▶ outward worker ─▶ compress, or background job ─▶ check its claims
//! mixed ────▶ worker on the knowledge base ─▶ open aspects? ─▶ outward worker or job ─▶ compress both at once
//!
//! a node that only concludes, on any route ─▶ compress what its dependencies found
//! ```

use super::background::{JobTask, verify};
use super::cache::normalised;
use super::desk::{Desk, Outward};
use super::event::RunRequest;
use super::node_source::Outside;
use super::outward::{CONTEXT_TOKENS, OutwardWork};
use super::outward_worker::{self, OutwardMethod};
use super::phase::Briefs;
use super::steps::{StepError, Steps};
use super::tree::{Clarified, RunState};
use crate::base::line::counted;
use crate::llm::call::{CallError, CallKey};
use crate::llm::model::ModelError;
use crate::research::branch::{Branch, BranchStop, Finding};
use crate::research::compress::{compress, conclude};
use crate::research::evidence::EvidenceId;
use crate::research::extract::extract;
use crate::research::memory::slice;
use crate::research::node::{Node, NodeId};
use crate::research::outward::OutwardTask;
use crate::research::pick::searched;
use crate::research::question::{Aspect, AspectId, Brief, Question};
use crate::research::route::{NoWay, Route, Way};
use crate::research::skim::{self, Answer, Skim};
use crate::research::task::{Conclusion, Conversation, Task, TaskAspect, WorkerLimits};
use crate::research::worker::{Gathered, gather};
use crate::source::{Documents, SourceError, Support};
use crate::traces::attach;

/// The input of work on a node.
pub(crate) struct Work {
    node: Node,
    /// The question with its context, which a worker inside is asked instead of the node's; `None` if that stands on
    /// its own.
    in_full: Option<String>,
    pub(crate) way: Way,
    brief: Brief,
    aspects: Vec<Aspect>,
    /// Questions of other nodes about the same aspects.
    beside: Vec<Question>,
    /// Its aspects that those nodes serve, too.
    shared_aspects: Vec<AspectId>,
    conclusions: Vec<(Node, Branch)>,
    context: String,
    /// The input of a conversation that faces outward.
    outward: OutwardWork,
    /// The user's request, as compared with other runs.
    asked: String,
    /// Whether the pages that a job cites are verified.
    verify_web: bool,
}

impl Work {
    /// Collects the input of a node: its question, the findings of its dependencies, and the relevant part of the
    /// summary. The input of conversations that face outward is separate, see [`OutwardWork`].
    pub(crate) fn of(state: &RunState, briefs: &Briefs, node: &Node, way: Way) -> Self {
        let found = node.depends_on.iter();
        let found = found.filter_map(|id| Some((state.tree.get(id)?.clone(), state.branches.get(id)?.clone())));
        let aspects = briefs.brief.aspects.iter().filter(|aspect| node.aspects.contains(&aspect.id));
        let topics: Vec<_> = aspects.clone().map(|aspect| aspect.text.as_str()).collect();
        let serves_one = |aspects: &[AspectId]| aspects.iter().any(|aspect| node.aspects.contains(aspect));
        let beside = state.tree.workers().filter(|other| other.id != node.id && serves_one(&other.aspects));
        let beside: Vec<_> = beside.collect();
        let is_shared = |aspect: &&AspectId| beside.iter().any(|other| other.aspects.contains(aspect));
        let global = &state.folded.memory.global.text;
        // A run that is not divided works on the user's own words. They may refer to an earlier run ("And who approves
        // it?") or to a clarification, and the task says to what. It may repeat the earlier answer, so it stays inside.
        let Brief { question, task, .. } = &briefs.brief;
        let is_short = node.question == *question && normalised(task) != normalised(question.as_str());
        Self {
            way,
            in_full: is_short.then(|| format!("{question} (in full: {task})")),
            aspects: aspects.cloned().collect(),
            shared_aspects: node.aspects.iter().filter(is_shared).cloned().collect(),
            beside: beside.iter().map(|other| other.question.clone()).collect(),
            brief: briefs.brief.clone(),
            conclusions: found.collect(),
            context: slice(global, &node.depends_on, node.question.as_str(), &topics, CONTEXT_TOKENS),
            outward: OutwardWork::of(state, node),
            asked: asked(state),
            verify_web: state.settings.request.verify_web,
            node: node.clone(),
        }
    }

    /// Returns the task of a worker inside.
    fn task(&self) -> Task<'_> {
        Task {
            id: &self.node.id,
            tools: &self.node.tools,
            output_schema: self.node.output_schema.as_ref().map(|schema| schema.to_string().into()),
            key: CallKey::of_node(&self.node.id),
            question: self.in_full.as_deref().unwrap_or(self.node.question.as_str()),
            aspects: self.aspects.iter().map(TaskAspect::from).collect(),
            conclusions: self.conclusions.iter().map(|(node, branch)| Conclusion::of(node, branch)).collect(),
            context: &self.context,
            limits: WorkerLimits::default(),
        }
    }

    /// Names the question in the texts of a branch as the user asked it.
    fn in_users_words(&self, branch: &mut Branch) {
        let Some(in_full) = &self.in_full else { return };
        for text in branch.report.open_questions.iter_mut().chain(&mut branch.notes) {
            *text = text.replace(in_full, self.node.question.as_str());
        }
    }

    /// Returns the answers that the skim found for its question.
    fn answers<'a>(&self, skim: Option<&'a Skim>) -> Option<Vec<&'a Answer>> {
        skim.map(|skim| skim.to(&self.node.aspects, &self.node.question, &self.beside))
    }
}

impl Steps {
    pub(crate) async fn look_into(&self, work: Work) -> Result<Branch, StepError> {
        // Words of an exported span have no spaces, see `traces/shape.rs`.
        attach::word("route", work.way.route.to_string().replace(", ", "_").replace(' ', "_"));
        attach::text("question", || work.node.question.to_string());
        let task = &work.outward.task;
        let mut branch = match (work.way.route, self.desk.as_deref()) {
            // First: whatever its route, such a node starts no job and asks no source.
            _ if work.node.only_concludes() => self.concluded(&work).await?,
            (Route::Internal, _) => self.inside(&work).await?,
            (Route::Web, _) | (Route::DeepResearch, None) => self.searched(&work, task).await?,
            (Route::DeepResearch, Some(desk)) => match self.researched(desk, &work, task).await {
                Err(error) if self.sources.can_search() && may_be_searched_instead(&error) => {
                    let mut branch = self.searched(&work, task).await?;
                    branch.notes.push(format!("the web was searched, since Deep Research was unavailable: {error}"));
                    branch
                }
                researched => researched?,
            },
            (Route::Mixed | Route::MixedDeepResearch, None) => self.both_by_rules(&work).await?,
            (Route::Mixed | Route::MixedDeepResearch, Some(desk)) => self.both(desk, &work).await?,
        };
        work.in_users_words(&mut branch);
        branch.notes.extend(work.way.without.map(|without| without.to_string()));
        match self.sources.shared.egress.withheld(&work.node.id) {
            0 => {}
            number => branch.notes.push(format!(
                "{} about `{}` withheld, because of text from your files",
                counted(number, "text"),
                work.node.question
            )),
        }
        Ok(branch)
    }

    /// Works on a node that looks nothing up.
    async fn concluded(&self, work: &Work) -> Result<Branch, StepError> {
        if let Some(jobs) = &self.jobs {
            // Older versions started a job for such a node. Its findings are not among those the node concludes from,
            // but while nothing polls it, it is charged at its cap.
            jobs.settle(&work.node.id).await?;
        }
        let Some(desk) = self.desk.as_deref() else {
            let conclusions: Vec<_> = work.conclusions.iter().map(|(_, branch)| branch).collect();
            let support = conclusions.iter().map(|branch| branch.support).max().unwrap_or(Support::None);
            let branch = Branch { support, ..Branch::without_findings(work.node.question.as_str()) };
            return Ok(built_on(branch, &conclusions));
        };
        // Findings that must not leave make those of this node internal as well, so it is shown all of them.
        let is_public = work.outward.conclusions.len() == work.conclusions.len();
        if work.way.route == Route::Web && is_public {
            return Ok(outward_worker::concluded(&Outward(desk), &work.node, &work.outward).await?);
        }
        Ok(conclude(desk, &work.task()).await?)
    }

    /// Works on a node in the knowledge base.
    async fn inside(&self, work: &Work) -> Result<Branch, StepError> {
        let Some(desk) = self.desk.as_deref() else { return self.extracted(work).await };
        let source = self.sources.inside_for_worker(&work.node.id).await?;
        let skim = self.skimmed(desk, work).await?;
        let task = work.task();
        let conversation = Conversation::inside(&task, &source, work.answers(skim)).sharing(&work.shared_aspects);
        let mut gathered = gather(desk, &conversation).await?;
        remark_all(&mut gathered, source.notes());
        Ok(compress(desk, &task, gathered).await?)
    }

    /// Returns what the skim of the knowledge base found. The first caller runs it; others wait for its result.
    #[tracing::instrument(level = "debug", name = "step", skip_all, fields(name = "skim"))]
    async fn skimmed(&self, desk: &Desk, work: &Work) -> Result<Option<&Skim>, StepError> {
        let skimmed = self.skim.get_or_try_init(|| async {
            // On the record of the root, whichever node comes first: the record must not depend on timing.
            let (root, brief) = (NodeId::numbered(1), &work.brief);
            let source = self.sources.inside(&root);
            let mut units = skim::units(&root, brief, &source, self.picker.as_ref()).await?;
            if let Some(earlier) = &self.earlier {
                // After the units, since a quote that overlaps one of them is left out.
                let offered = earlier.offered(brief, &source, &units).await?;
                units.extend(offered);
            }
            Ok::<_, StepError>(skim::skim(desk, brief, units).await?)
        });
        Ok(skimmed.await?.as_ref())
    }

    /// Works on a node in the knowledge base without a model.
    async fn extracted(&self, work: &Work) -> Result<Branch, StepError> {
        // Without tools of servers: only a model can choose one and word its arguments.
        let source = self.sources.inside(&work.node.id);
        let Node { id, question, aspects, .. } = &work.node;
        let branch = extract(id, aspects.first(), question, searched(question), &source, self.picker.as_ref()).await?;
        let conclusions: Vec<_> = work.conclusions.iter().map(|(_, branch)| branch).collect();
        Ok(built_on(branch, &conclusions))
    }

    /// Works on a node in the knowledge base, then outside for its open aspects, and compresses both together.
    async fn both(&self, desk: &Desk, work: &Work) -> Result<Branch, StepError> {
        let source = self.sources.inside_for_worker(&work.node.id).await?;
        let skim = self.skimmed(desk, work).await?;
        let task = work.task();
        let conversation = Conversation::inside(&task, &source, work.answers(skim)).sharing(&work.shared_aspects);
        let conversation = conversation.before_outside();
        let mut inside = gather(desk, &conversation).await?;
        remark_all(&mut inside, source.notes());
        if let Some(outward) = self.left_open(work, &inside) {
            match self.gathered_outside(desk, work, &outward).await {
                Ok(outside) => inside = inside.then(outside),
                Err(error) => inside.remark(kept_without(error, inside.is_empty())?),
            }
        }
        Ok(compress(desk, &task, inside).await?)
    }

    async fn gathered_outside(&self, desk: &Desk, work: &Work, task: &OutwardTask) -> Result<Gathered, StepError> {
        if work.way.route == Route::MixedDeepResearch {
            return Ok(Gathered::from_branch(self.researched(desk, work, task).await?));
        }
        let mut outside = self.outside(work, task)?;
        outside.servers = self.sources.public_tools(&work.node.id).await?;
        let mut gathered = outward_worker::gathered(&Outward(desk), &outside, &work.node, &work.outward, task).await?;
        remark_all(&mut gathered, &outside.notes());
        Ok(gathered)
    }

    /// Does the same without a model.
    async fn both_by_rules(&self, work: &Work) -> Result<Branch, StepError> {
        let inside = self.extracted(work).await?;
        let found = Gathered::from_branch(inside.clone());
        match self.left_open(work, &found) {
            Some(task) => joined(inside, self.searched(work, &task).await),
            None => Ok(inside),
        }
    }

    /// Returns the task for the aspects that the knowledge base left open; `None` if there are none. A page that the
    /// user named is read in any case.
    fn left_open(&self, work: &Work, inside: &Gathered) -> Option<OutwardTask> {
        let OutwardWork { task, has_own_ids, .. } = &work.outward;
        let open: Vec<AspectId> = inside.open_aspects(&work.aspects);
        let names_pages = self.outside(work, task).is_ok_and(|outside| outside.names_pages());
        // Evidence for every aspect may still support an answer only weakly: then the web is searched as well.
        let is_weak = inside.is_empty() || inside.support != Support::Strong;
        match () {
            () if open.is_empty() && !names_pages && !is_weak => None,
            // Aspects of another brief cannot be narrowed by the ids of the open ones.
            () if open.is_empty() || !has_own_ids => Some(task.clone()),
            () => Some(task.restricted(&open)),
        }
    }

    /// Returns the web for a node.
    fn outside(&self, work: &Work, task: &OutwardTask) -> Result<Outside, StepError> {
        let outside = self.sources.outside(&work.node.id, &task.question(), &work.outward.words);
        outside.ok_or(StepError::NoWay(NoWay::Nothing))
    }

    /// Works on a node of the web by searching.
    async fn searched(&self, work: &Work, task: &OutwardTask) -> Result<Branch, StepError> {
        let mut outside = self.outside(work, task)?;
        let Some(desk) = self.desk.as_deref() else {
            let method = OutwardMethod::Rules(self.picker.as_ref());
            let branch = outward_worker::searched(method, &outside, &work.node, &work.outward, task).await?;
            let conclusions: Vec<_> = work.outward.conclusions.iter().map(|(.., branch)| branch.as_branch()).collect();
            return Ok(built_on(branch, &conclusions));
        };
        outside.servers = self.sources.public_tools(&work.node.id).await?;
        let mut branch =
            outward_worker::searched(OutwardMethod::Model(Outward(desk)), &outside, &work.node, &work.outward, task)
                .await?;
        branch.notes.extend(outside.notes());
        Ok(branch)
    }

    /// Works on a node with a background job, and verifies its claims against the pages it cites.
    async fn researched(&self, desk: &Desk, work: &Work, task: &OutwardTask) -> Result<Branch, StepError> {
        let jobs = self.jobs.as_deref().ok_or(StepError::NoWay(NoWay::Nothing))?;
        let (id, shared) = (&work.node.id, &self.sources.shared);
        let instructions = task.instructions(desk);
        let job = JobTask { node: id, task, instructions, asked: &work.asked, day: &self.sources.day };
        let finished = jobs.report(&job, &shared.cache, &shared.egress).await?;
        let report = finished.report();
        if !finished.saw_internal() {
            // A provider's report on public pages is public, including their addresses.
            let addresses = report.citations.iter().map(|citation| citation.url.as_str());
            shared.egress.seen_in_public([report.text.as_str()].into_iter().chain(addresses));
        }
        let cited = self.sources.cited(id, &finished).filter(|_| work.verify_web);
        let pages = cited.as_ref().map(|pages| pages as &dyn Documents);
        let mut branch = verify::branch_of(id, &task.question(), &work.aspects, &finished, pages).await?;
        branch.notes.extend(finished.notes(&self.run, work.node.question.as_str()));
        Ok(branch)
    }
}

fn remark_all(gathered: &mut Gathered, notes: &[String]) {
    for note in notes {
        gathered.remark(note.clone());
    }
}

/// Returns a note on a failed outside phase.
///
/// # Errors
///
/// Returns the error if the run must stop, or if the inside phase found nothing either and the source itself did not
/// fail: the node may then succeed when the run is resumed.
fn kept_without(error: StepError, is_empty: bool) -> Result<String, StepError> {
    match error {
        StepError::Call(CallError::Cancelled | CallError::Journal { .. }) => Err(error),
        StepError::Source(failed) if failed.is_of_source() => Ok(failed.to_string()),
        StepError::Source(withheld @ SourceError::Withheld { .. }) => Ok(withheld.to_string()),
        error if is_empty => Err(error),
        error => Ok(format!("the web was not searched for what the files leave open: {error}")),
    }
}

/// Returns the user's request, as compared with other runs: question, clarification, required aspects and days.
fn asked(state: &RunState) -> String {
    let RunRequest { required, scope, .. } = &state.settings.request;
    let said = [state.question.to_string()].into_iter().chain(state.clarification.iter().map(Clarified::to_string));
    let texts = said.chain(required.iter().cloned()).map(|text| normalised(&text));
    // The days restrict the pages that count, which the words do not say.
    texts.chain([format!("{:?} {:?}", scope.since, scope.until)]).collect::<Vec<_>>().join("\n")
}

/// Returns whether to search the web instead of a failed job: not if the job may be in flight, or may succeed when the
/// run is resumed.
fn may_be_searched_instead(error: &StepError) -> bool {
    let StepError::Call(CallError::Model(error)) = error else { return false };
    match error {
        ModelError::Unknown { .. } => false,
        ModelError::Transient { .. }
        | ModelError::RateLimited { .. }
        | ModelError::ContextTooLong { .. }
        | ModelError::Refused { .. }
        | ModelError::InvalidOutput { .. }
        | ModelError::Quota
        | ModelError::Authentication
        | ModelError::Permanent { .. }
        | ModelError::NoResearch { .. } => true,
    }
}

/// Joins the findings from inside and outside without a model.
fn joined(mut inside: Branch, outside: Result<Branch, StepError>) -> Result<Branch, StepError> {
    let outside = match outside {
        Ok(outside) => outside,
        Err(error) => {
            inside.notes.push(kept_without(error, inside.evidence.is_empty())?);
            return Ok(inside);
        }
    };
    // The numbers of quotes continue those of the knowledge base.
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
    // The outside was given what stayed open inside, so only its open questions are left.
    inside.report.open_questions = outside.report.open_questions;
    inside.report.confidence = inside.report.confidence.max(outside.report.confidence);
    inside.support = inside.support.max(outside.support);
    inside.further.extend(outside.further);
    inside.notes.extend(outside.notes);
    inside.reported.extend(outside.reported);
    Ok(inside)
}

/// Gives a node without findings the first finding of each of its dependencies.
fn built_on(mut branch: Branch, conclusions: &[&Branch]) -> Branch {
    if branch.report.findings.is_empty() && !conclusions.is_empty() {
        let first = |branch: &&Branch| branch.report.findings.first().cloned();
        let findings: Vec<Finding> = conclusions.iter().filter_map(first).collect();
        if !findings.is_empty() {
            branch.report.summary = findings.iter().map(|finding| finding.text.as_str()).collect::<Vec<_>>().join(" ");
            branch.report.open_questions.clear();
            branch.report.stop_reason = BranchStop::Done;
            #[expect(clippy::cast_precision_loss, reason = "a handful of nodes")]
            let mean =
                conclusions.iter().map(|branch| branch.report.confidence).sum::<f32>() / conclusions.len() as f32;
            // Half: the findings answer the questions of other nodes.
            branch.report.confidence = mean / 2.0;
            branch.report.findings = findings;
        }
    }
    branch
}
