//! The steps of a run, each performed by models or, without models, by rules.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::OnceCell;
use tracing::{Instrument, debug_span, instrument};

use super::background::Jobs;
use super::desk::{Desk, Outward};
use super::earlier::Earlier;
use super::journal::JournalError;
use super::outward::{UserWords, asked_before, egress_allowed, outward_brief, outward_task};
use super::phase::{Briefs, Judged, Rounds, Stage};
use super::recall::{EntryKind, Recall, RecallQuery, entries};
use super::sources::RunSources;
use super::tree::{Clarified, RunState};
use crate::base::id::RunId;
use crate::base::step::Step;
use crate::llm::call::{CallError, CallKey, Caller, Limit};
use crate::llm::message::Role;
use crate::llm::structured::StructuredError;
use crate::research::assemble;
use crate::research::brief::{BriefRequest, Clarification, PublicBrief, clarify, written};
use crate::research::cut::estimate;
use crate::research::evidence::{Evidence, EvidenceId};
use crate::research::extract::Pick;
use crate::research::memory::{
    FoldedNode, Memory, Summary, cited, fold, fold_by_rules, fold_public, group_summaries, group_summaries_by_rules,
};
use crate::research::node::{Node, NodeId, SourceHint};
use crate::research::plan::{NodeDraft, Plan, PlanDraft, Update};
use crate::research::planner::{self, PlanBounds};
use crate::research::question::{Brief, Mode};
use crate::research::report::{Draft, Section, StopReason, quotes_of};
use crate::research::route::{JobWay, NoJob, NoWay, Ways};
use crate::research::rules::{BY_RULES, plan_by_rules, replan_by_rules};
use crate::research::skim::Skim;
use crate::research::verdict::{Verdict, by_coverage, judge};
use crate::research::worker::WorkError;
use crate::research::writer::{self, Nearest, WriterInput};
use crate::source::{Label, SourceError};

/// Token limit of the summary of a group.
const GROUP_TOKENS: u64 = 800;

/// Maximum number of quotes shown to a writer; beyond it, those most similar to the question and its aspects are chosen.
const MAX_LEDGER: usize = 60;

/// Maximum number of quotes shown to the judge, unless the draft cites more.
const MAX_JUDGED: usize = 24;

/// Quotes retrieved for the question, and for each aspect.
const RECALLED: usize = 20;

/// Rank of quotes whose node was found by its summary: below any cosine, so behind the quotes that were found themselves.
const FOUND_BY_SUMMARY: f32 = -2.0;

/// Performs the steps of a run.
pub(crate) struct Steps {
    pub(crate) run: RunId,
    /// Makes model calls; `None` uses rules.
    pub(crate) desk: Option<Arc<Desk>>,
    /// Background research, if a provider is configured.
    pub(crate) jobs: Option<Arc<Jobs>>,
    pub(crate) sources: RunSources,
    pub(crate) picker: Arc<dyn Pick>,
    /// Result of the skim of the knowledge base, once it is done.
    pub(crate) skim: OnceCell<Option<Skim>>,
    pub(crate) recall: Option<Recall>,
    /// Quotes of earlier runs, if the run uses them.
    pub(crate) earlier: Option<Earlier>,
    /// Receives each section of a long answer as a model writes it.
    pub(crate) on_section: Arc<dyn Fn(&Section) + Send + Sync>,
}

/// The end of a round.
pub(crate) enum RoundEnd {
    /// Its summaries, its draft and the verdict on it.
    Judged(Box<(Memory, Draft, Verdict)>),
    /// A limit was reached before the verdict. If there is no draft, it was reached before that.
    Unjudged(Limit, Option<Box<Draft>>),
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum StepError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("model gave no usable reply: {0}")]
    Invalid(String),
    #[error(transparent)]
    Source(SourceError),
    #[error(transparent)]
    NoWay(NoWay),
}

impl StepError {
    /// Returns the class of this error, for traces.
    pub(crate) fn class(&self) -> &'static str {
        match self {
            Self::Call(error) => error.class(),
            Self::Invalid(_) => "invalid_reply",
            Self::Source(error) => error.class(),
            Self::NoWay(_) => "no_way_out",
        }
    }
}

impl From<SourceError> for StepError {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Stopped(error) => Self::Call(error),
            error => Self::Source(error),
        }
    }
}

impl From<StructuredError> for StepError {
    fn from(error: StructuredError) -> Self {
        match error {
            StructuredError::Call(error) => Self::Call(error),
            StructuredError::Invalid { complaint } => Self::Invalid(complaint),
            error @ StructuredError::Schema { .. } => Self::Invalid(error.to_string()),
        }
    }
}

impl From<JournalError> for StepError {
    fn from(error: JournalError) -> Self {
        Self::Call(error.into())
    }
}

impl From<WorkError> for StepError {
    fn from(error: WorkError) -> Self {
        match error {
            WorkError::Call(error) => Self::Call(error),
            WorkError::Source(error) => error.into(),
        }
    }
}

impl Steps {
    /// Returns the routes to the web that are available. A node whose route includes a job reserves one until it turns
    /// out not to need it.
    pub(crate) fn ways(&self, state: &RunState) -> Ways {
        let taken = |jobs: &Jobs| state.jobs().filter(|(node, is_running)| *is_running || jobs.has(node)).count();
        let job_way = |jobs: &Jobs| match () {
            () if jobs.research.settings.max_jobs <= taken(jobs) => JobWay::Limited(NoJob::UsedUp),
            () if !jobs.can_pay() => JobWay::Limited(NoJob::TooDear),
            () => JobWay::Open,
        };
        let job = self.jobs.as_deref().map(job_way).unwrap_or_default();
        Ways {
            // A job searches the whole web, and tools of servers what they have.
            web: self.sources.can_search() || self.sources.has_outside() && job != JobWay::Open,
            job,
            is_offline: self.sources.sources.is_offline,
            // Without models, a web node searches the files instead of being blocked, unless the user wants the web.
            is_strict: !state.settings.by_rules || state.settings.request.source == Some(SourceHint::Web),
        }
    }

    /// Decides whether to ask the user for clarification. Rules never ask.
    #[instrument(level = "debug", name = "step", skip_all, fields(name = "clarify"))]
    pub(crate) async fn clarify(&self, state: &RunState) -> Result<Option<Clarification>, StepError> {
        let Some(desk) = self.desk.as_deref() else { return Ok(None) };
        match clarify(desk, &state.question).await {
            Ok(clarification) => Ok(Some(clarification).filter(|clarification| clarification.need)),
            // Clarification is optional, so a failure is ignored.
            Err(StructuredError::Invalid { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    #[instrument(level = "debug", name = "step", skip_all, fields(name = "brief"))]
    pub(crate) async fn brief(&self, state: &RunState) -> Result<Brief, StepError> {
        let follows = state.settings.follows.as_ref().map(|followed| {
            format!("This follows up the question \"{}\", which was answered: {}", followed.question, followed.answer)
        });
        let more: Vec<_> = state.clarification.iter().map(Clarified::to_string).chain(follows).collect();
        let more = Some(more.join("\n")).filter(|more| !more.is_empty());
        let today = state.started.date();
        let caller = self.desk.as_deref().map(|desk| desk as &dyn Caller);
        let request = brief_request(state, more.as_ref(), &state.settings.request.required, today.as_deref());
        Ok(written(caller, &CallKey::of_run(Step::Brief), request).await?)
    }

    /// Makes a second brief for a follow-up run, without the earlier answer. Tasks for the web are worded from it.
    /// Other runs need none, since nothing is retrieved before their brief.
    pub(crate) async fn outward_brief(&self, state: &RunState) -> Result<Option<PublicBrief>, StepError> {
        let Some(asked_before) = asked_before(state) else { return Ok(None) };
        let ways = self.ways(state);
        // With egress allowed, tasks for the web are worded from the brief itself.
        if state.settings.is_open || !(ways.web || ways.job == JobWay::Open) {
            return Ok(None);
        }
        let required = UserWords::of(state).required;
        let today = state.started.date();
        let desk = self.desk.as_deref().map(Outward);
        let caller = desk.as_ref().map(|desk| desk as &dyn Caller);
        let request = brief_request(state, Some(&asked_before), &required, today.as_deref());
        let key = CallKey::of_run(Step::Brief).then(Step::Outward);
        let step = debug_span!("step", name = "brief");
        Ok(Some(PublicBrief::write(caller, &key, request).instrument(step).await?))
    }

    fn plan_bounds(&self, state: &RunState) -> PlanBounds {
        let ways = self.ways(state);
        let paid_for = self.desk.as_deref().and_then(Desk::nodes_paid_for);
        PlanBounds {
            limits: state.settings.tree,
            has_web: ways.web || ways.job == JobWay::Open,
            paid_for,
            has_tools: state.settings.servers.iter().any(|server| server.label == Label::Internal),
        }
    }

    /// Plans the first round, for the sources the user selected.
    #[instrument(level = "debug", name = "step", skip_all, fields(name = "plan"))]
    pub(crate) async fn plan(&self, state: &RunState, brief: &Brief) -> Result<Plan, StepError> {
        let plan = self.first_plan(state, brief).await?;
        Ok(directed(plan, state.settings.request.source, &state.tree.root))
    }

    /// A plan that cannot be repaired is replaced by a rule-based one, which notes that.
    async fn first_plan(&self, state: &RunState, brief: &Brief) -> Result<Plan, StepError> {
        let check = |draft: &PlanDraft| checked(draft, state, brief, 1);
        // An empty plan leaves the root, which is then worked on as a single node.
        let by_rules = || check(&plan_by_rules(brief)).unwrap_or_default();
        let Some(desk) = self.desk.as_deref() else { return Ok(by_rules()) };
        if brief.mode != Mode::Deep {
            // The root alone; its wording selects the source.
            return Ok(Plan { reasoning: String::new(), ..by_rules() });
        }
        let key = CallKey::of_run(Step::Plan).at(1);
        let complaint = |draft: &PlanDraft| check(draft).map(drop);
        match planner::plan(desk, &key, brief, &state.tree, self.plan_bounds(state), &complaint).await {
            Ok(draft) => check(&draft).map_err(StepError::Invalid),
            Err(StructuredError::Invalid { complaint }) => {
                let plan = by_rules();
                let reasoning = plan.reasoning.trim_start_matches(BY_RULES);
                let why = format!("the planner's plan was refused ({complaint}); planned by rules instead: ");
                Ok(Plan { reasoning: why + reasoning, ..plan })
            }
            // Nothing is found yet, so the run stops here and plans when it is resumed.
            Err(error) => Err(error.into()),
        }
    }

    /// Plans another round for the gaps in the last verdict. The plan is empty if there is nothing to do.
    #[instrument(level = "debug", name = "step", skip_all, fields(name = "replan"))]
    pub(crate) async fn replan(&self, state: &RunState, judged: &Judged) -> Result<Plan, StepError> {
        let mut plan = self.next_plan(state, judged).await?;
        direct(&mut plan, state.settings.request.source);
        Ok(plan)
    }

    async fn next_plan(&self, state: &RunState, judged: &Judged) -> Result<Plan, StepError> {
        let Judged { rounds: Rounds { briefs: Briefs { brief, .. }, number, .. }, verdict, .. } = judged;
        let round = number + 1;
        let check = |draft: &PlanDraft| checked(draft, state, brief, round);
        let by_rules = || replan_by_rules(brief, &state.tree, &verdict.missing_aspects).passing(&check);
        let Some(desk) = self.desk.as_deref() else { return Ok(by_rules()) };
        let key = CallKey::of_run(Step::Plan).at(round);
        let complaint = |draft: &PlanDraft| check(draft).map(drop);
        let bounds = self.plan_bounds(state);
        let memory = &state.folded.memory;
        match planner::replan(desk, &key, brief, &state.tree, &state.branches, verdict, memory, bounds, &complaint)
            .await
        {
            Ok(draft) => check(&draft).map_err(StepError::Invalid),
            // Unlike in the first round, there are findings, so a planner that cannot be reached does not end the run.
            Err(StructuredError::Invalid { .. } | StructuredError::Call(CallError::Model(_))) => Ok(by_rules()),
            Err(error) => Err(error.into()),
        }
    }

    /// Folds the findings of a round into the summaries, drafts an answer and judges it.
    pub(crate) async fn end_round(&self, state: &RunState, rounds: &Rounds) -> Result<RoundEnd, StepError> {
        let brief = &rounds.briefs.brief;
        // First, because writer and judge search what this adds.
        self.remember(state).await;
        let memory = self.folded(state, rounds).await?;
        let Some(desk) = self.desk.as_deref() else {
            let draft = assemble::draft_by_rules(brief, &state.tree, &state.branches);
            let verdict = by_coverage(brief, &state.tree, &state.branches);
            return Ok(RoundEnd::Judged(Box::new((memory, draft, verdict))));
        };
        // A quick run has one round, so the verdict of a model would be paid for and start no other.
        let is_judged = brief.mode != Mode::Quick;
        // A round that found nothing new does not buy the same draft again.
        let mut draft = match state.draft_that_stands() {
            Some(draft) => draft.clone(),
            None => {
                let key = CallKey::of_run(Step::Draft).at(rounds.number);
                match self.written(desk, &key, state, rounds, &memory).await {
                    Err(StepError::Call(CallError::Limit(limit))) if is_judged => {
                        return Ok(RoundEnd::Unjudged(limit, None));
                    }
                    written => written?,
                }
            }
        };
        let verdict = if is_judged {
            let key = CallKey::of_run(Step::Judge).at(rounds.number);
            let others = recalled(self.recall.as_ref(), &self.run, brief, state, MAX_JUDGED).await;
            let quotes = judged_quotes(state, &draft, others);
            let step = debug_span!("step", name = "judge");
            match judge(desk, &key, brief, &state.tree, &state.branches, &quotes, &draft).instrument(step).await {
                // The findings are worth more than a verdict: continue without the judge.
                Err(error @ (StructuredError::Invalid { .. } | StructuredError::Call(CallError::Model(_)))) => {
                    draft.made_do("the answer was judged", &error);
                    by_coverage(brief, &state.tree, &state.branches)
                }
                Err(StructuredError::Call(CallError::Limit(limit))) => {
                    return Ok(RoundEnd::Unjudged(limit, Some(Box::new(draft))));
                }
                done => done?,
            }
        } else {
            by_coverage(brief, &state.tree, &state.branches)
        };
        Ok(RoundEnd::Judged(Box::new((memory, draft, verdict))))
    }

    /// Folds the branches of this round into the summaries, in the order their nodes were planned.
    #[instrument(level = "debug", name = "step", skip_all, fields(name = "fold"))]
    async fn folded(&self, state: &RunState, rounds: &Rounds) -> Result<Memory, StepError> {
        let brief = &rounds.briefs.brief;
        let r = state.settings.summary_tokens;
        let caller = self.desk.as_deref().map(|desk| desk as &dyn Caller);
        let outward = self.desk.as_deref().map(Outward);
        let outward = outward.as_ref().map(|desk| desk as &dyn Caller);
        let mut memory = state.folded.memory.clone();
        // In the order of the tree and not of their ends: prompts must not depend on timing.
        for (node, branch) in state.unfolded().filter(|(_, branch)| !branch.report.findings.is_empty()) {
            let key = CallKey::of_run(Step::Fold).at(rounds.number).at(&node.id);
            let label = state.label(&node.id);
            if let Some(found) = state.public_branch(&node.id) {
                let (task, question) = (outward_brief(state), outward_task(state, node).question());
                let folded = FoldedNode { task: &task, id: &node.id, question: &question };
                let (public, key) = (&memory.global_public, key.then(Step::Public));
                memory.global_public = fold_public(outward, &key, folded, public, &found, r).await?;
            }
            // As long as everything is public, one summary serves all.
            let text = match (memory.global.label, label) {
                (Label::Public, Label::Public) => memory.global_public.as_str().to_owned(),
                (Label::Internal, _) | (_, Label::Internal) => {
                    let folded =
                        FoldedNode { task: brief.task.as_str(), id: &node.id, question: node.question.as_str() };
                    fold(caller, &key, folded, &memory.global.text, branch, r).await?
                }
            };
            memory.global = Summary { text, label: memory.global.label.max(label) };
        }
        memory.groups = match self.desk.as_deref() {
            // While all claims fit, they are the summary, and no call is made for it.
            Some(desk) if fits(desk, state, r) => {
                let count = |text: &str| desk.count(Role::Summariser, text);
                group_summaries_by_rules(&state.tree, &state.branches, r, &count)
            }
            Some(desk) => {
                // The key is the same in every round, so that the summary of an unchanged group is not bought again.
                let key = CallKey::of_run(Step::Group);
                group_summaries(desk, &key, brief, &state.tree, &state.branches, GROUP_TOKENS).await?
            }
            None => group_summaries_by_rules(&state.tree, &state.branches, GROUP_TOKENS, &estimate),
        };
        Ok(memory)
    }

    /// Adds the findings to the research memory. It can be rebuilt from the journal, so failures are ignored.
    async fn remember(&self, state: &RunState) {
        let Some(recall) = &self.recall else { return };
        let new = state.unfolded().flat_map(|(node, branch)| entries(&node.id, branch));
        if let Err(error) = recall.add(&self.run, new.collect()).await {
            // Without it, the writer is shown the first quotes in place of the nearest ones, see `recalled`.
            tracing::warn!(%error, "failed to update the research memory");
        }
    }

    /// Makes the final answer: `unjudged`, the draft of a round without a verdict, or that of the last round if it is up to
    /// date, else a new one.
    pub(crate) async fn final_draft(
        &self,
        state: &RunState,
        stop: StopReason,
        unjudged: Option<Draft>,
    ) -> Result<Draft, StepError> {
        let by_rules = |brief| assemble::draft_by_rules(brief, &state.tree, &state.branches);
        let (brief, mut draft) = match (state.phase.stage(), self.desk.as_deref()) {
            (Stage::Asked, _) => return Ok(Draft::default()),
            (Stage::Briefed(Briefs { brief, .. }), _) => (brief, by_rules(brief)),
            (Stage::Planned(rounds), desk) => {
                let brief = &rounds.briefs.brief;
                let draft = match (unjudged.or_else(|| state.draft_that_stands().cloned()), desk) {
                    (Some(draft), Some(_)) => draft,
                    // A stopped run makes no more calls: its report is assembled by rules.
                    (None, Some(desk)) if stop != StopReason::Cancelled && state.has_evidence() => {
                        // The last round was cut short, so its quotes are not in the memory yet.
                        self.remember(state).await;
                        let memory = folded_by_rules(state);
                        // Under the key of the round, whose draft may have been begun: what it paid for is on record.
                        let key = CallKey::of_run(Step::Draft).at(rounds.number);
                        self.written(desk, &key, state, rounds, &memory).await?
                    }
                    (_, None) | (None, Some(_)) => by_rules(brief),
                };
                (brief, draft)
            }
            (Stage::Judged(judged), _) => (&judged.rounds.briefs.brief, judged.draft.clone()),
        };
        let schema = state.settings.request.output_schema.as_ref().filter(|_| !draft.findings.is_empty());
        if let (None, Some(_)) = (self.desk.as_deref(), schema) {
            draft.is_makeshift = true;
            draft.limitations.push("the requested schema cannot be filled without a model".to_owned());
        }
        if let (Some(desk), Some(schema)) = (self.desk.as_deref(), schema) {
            let key = CallKey::of_run(Step::Output);
            match writer::output(desk, &key, brief.question.as_str(), &draft, schema).await {
                Ok(output) => draft.output = Some(output),
                // The end of the run could not be stored either.
                Err(error @ CallError::Journal { .. }) => return Err(error.into()),
                Err(error) => {
                    draft.is_makeshift = true;
                    draft.limitations.push(format!("the requested schema could not be filled: {error}"));
                }
            }
        }
        Ok(draft)
    }

    #[instrument(level = "debug", name = "step", skip_all, fields(name = "write"))]
    async fn written(
        &self,
        desk: &Desk,
        key: &CallKey,
        state: &RunState,
        Rounds { briefs: Briefs { brief, .. }, reasons, verdicts, .. }: &Rounds,
        memory: &Memory,
    ) -> Result<Draft, StepError> {
        let ledger = recalled(self.recall.as_ref(), &self.run, brief, state, MAX_LEDGER).await;
        // A draft that was begun before is replayed from the record, where its sections are not news.
        let on_section = |call: &CallKey, section: &Section| {
            if !desk.is_replayed(call) {
                (self.on_section)(section);
            }
        };
        let material = WriterInput {
            brief,
            reasons,
            memory,
            verdicts,
            before: state.folded.draft.as_ref(),
            tree: &state.tree,
            branches: &state.branches,
            ledger,
            nearest: self,
            is_last: desk.is_writing(),
            on_section: &on_section,
        };
        Ok(writer::draft(desk, key, &material).await?)
    }
}

/// Selects up to `most` quotes of a run: those most similar to the question and to each aspect, then those of the nodes
/// whose summaries are. They are in the order of the evidence ledger.
async fn recalled<'a>(
    recall: Option<&Recall>,
    run: &RunId,
    brief: &Brief,
    state: &'a RunState,
    most: usize,
) -> Vec<&'a Evidence> {
    let all: Vec<_> = state.branches.values().flat_map(|branch| &branch.evidence).collect();
    if all.len() <= most {
        return all;
    }
    let mut scores: BTreeMap<EvidenceId, f32> = BTreeMap::new();
    let queries =
        std::iter::once(brief.question.as_str()).chain(brief.aspects.iter().map(|aspect| aspect.text.as_str()));
    for text in queries {
        let quotes = RecallQuery { run: Some(run), ..RecallQuery::of(text, RECALLED) };
        for (id, score) in similar::<EvidenceId>(recall, quotes).await {
            let best = scores.entry(id).or_insert(score);
            *best = best.max(score);
        }
        // Quotes that answer in other words than the question's are missed by their vectors. The summary of their node
        // often has its words.
        let summary = RecallQuery { kind: EntryKind::Summary, limit: 1, ..quotes };
        for (node, _) in similar::<NodeId>(recall, summary).await {
            for quote in state.branches.get(&node).into_iter().flat_map(|branch| &branch.evidence) {
                scores.entry(quote.id.clone()).or_insert(FOUND_BY_SUMMARY);
            }
        }
    }
    // The memory failed or is incomplete; it is never needed for a report.
    if scores.is_empty() {
        return all.into_iter().take(most).collect();
    }
    let mut best: Vec<_> = all.iter().filter(|quote| scores.contains_key(&quote.id)).collect();
    best.sort_by(|a, b| scores[&b.id].total_cmp(&scores[&a.id]).then_with(|| a.id.cmp(&b.id)));
    let kept: Vec<_> = best.into_iter().take(most).map(|quote| &quote.id).collect();
    all.iter().filter(|quote| kept.contains(&&quote.id)).copied().collect()
}

/// Returns the entries that match a query by the ids of their quotes, or of the nodes they summarise, with their cosines,
/// most similar first. Empty without a memory, which a report never needs.
async fn similar<T: FromStr>(recall: Option<&Recall>, query: RecallQuery<'_>) -> Vec<(T, f32)> {
    let Some(recall) = recall else { return Vec::new() };
    let found = recall.search(&query).await;
    let found = found.inspect_err(|error| tracing::warn!(%error, "failed to search the research memory"));
    let scored = found.unwrap_or_default().into_iter();
    scored.filter_map(|found| Some((found.id.parse().ok()?, found.similarity))).collect()
}

impl Nearest for Steps {
    fn nearest<'a>(&'a self, text: &'a str, nodes: &'a [NodeId]) -> BoxFuture<'a, Vec<EvidenceId>> {
        let query = RecallQuery { run: Some(&self.run), nodes, ..RecallQuery::of(text, RECALLED) };
        Box::pin(async move {
            let found = similar::<EvidenceId>(self.recall.as_ref(), query).await;
            found.into_iter().map(|(id, _)| id).collect()
        })
    }
}

/// Returns the input of the planner for a brief of a run.
fn brief_request<'a, Q>(
    state: &'a RunState,
    answer: Option<&'a Q>,
    required: &'a [Q],
    today: Option<&'a str>,
) -> BriefRequest<'a, Q> {
    BriefRequest { question: &state.question, answer, mode: state.settings.request.mode, required, today }
}

/// Returns the quotes that a draft cites, in its order, and then others up to [`MAX_JUDGED`].
fn judged_quotes<'a>(state: &'a RunState, draft: &Draft, others: Vec<&'a Evidence>) -> Vec<&'a Evidence> {
    let mut quotes = quotes_of(draft, &state.branches);
    for quote in others {
        if quotes.len() < MAX_JUDGED && !quotes.iter().any(|known| known.id == quote.id) {
            quotes.push(quote);
        }
    }
    quotes
}

/// Returns the source of a node of a plan: the one the user selected. If that is both, a node planned for the
/// web alone stays there, since nothing about it is expected in the knowledge base.
fn directed_to(planned: SourceHint, source: Option<SourceHint>) -> SourceHint {
    source.filter(|hint| (*hint, planned) != (SourceHint::Mixed, SourceHint::Web)).unwrap_or(planned)
}

/// Sets the source of every node that a plan adds or changes, see [`directed_to`].
fn direct(plan: &mut Plan, source: Option<SourceHint>) {
    let changed = plan.updates.iter_mut().filter_map(|update| update.source_hint.as_mut());
    for hint in plan.nodes.iter_mut().map(|node| &mut node.source_hint).chain(changed) {
        *hint = directed_to(*hint, source);
    }
}

/// Sets the source of every node of the first plan, see [`direct`], and that of the root.
fn directed(mut plan: Plan, source: Option<SourceHint>, root: &NodeId) -> Plan {
    let Some(hint) = source else { return plan };
    direct(&mut plan, source);
    // The root is not among the nodes of a plan, and is worked on itself if the plan has none.
    match plan.updates.iter_mut().find(|update| update.id == *root) {
        Some(update) => update.source_hint = Some(hint),
        None => plan.updates.push(Update {
            id: root.clone(),
            question: None,
            priority: None,
            source_hint: Some(hint),
            drop: false,
        }),
    }
    plan
}

/// Returns whether the claims of all branches fit into the global summary as they are.
fn fits(caller: &dyn Caller, state: &RunState, r: u64) -> bool {
    let claims = state.branches.values().flat_map(|branch| &branch.report.findings).map(cited);
    caller.count(Role::Summariser, &claims.collect::<Vec<_>>().join("\n")) <= r
}

/// Folds the rest of an unfinished last round by rules, without a model call.
fn folded_by_rules(state: &RunState) -> Memory {
    let mut memory = state.folded.memory.clone();
    // The public summary is left as it is: it is for workers outside, and none follows.
    for (node, branch) in state.unfolded() {
        let label = state.label(&node.id);
        let r = state.settings.summary_tokens;
        let text = fold_by_rules(&memory.global.text, branch, r, &estimate);
        memory.global = Summary { text, label: memory.global.label.max(label) };
    }
    memory
}

/// Makes an answer from the findings by rules, without a model.
pub(crate) fn draft_by_rules(state: &RunState) -> Draft {
    match state.brief() {
        Some(brief) => assemble::draft_by_rules(brief, &state.tree, &state.branches),
        None => Draft::default(),
    }
}

/// Returns the plan, or all its problems as one text.
pub(super) fn checked(draft: &PlanDraft, state: &RunState, brief: &Brief, round: u32) -> Result<Plan, String> {
    // From then on the planner has seen internal text, so the questions of nodes for the web are worded anew.
    let is_late = (round > 1 || state.settings.follows.is_some()) && egress_allowed(state).is_none();
    let rounds = state.phase.stage().rounds();
    let reworded_for = |node: &NodeDraft| {
        let old = node.id.parse().ok().and_then(|id| state.tree.get(&id));
        // With more in view than a worker of that round had, the same task is worth asking again.
        let is_past = old.is_some_and(|old| {
            !rounds.is_some_and(|rounds| rounds.reworded.contains(&old.id)) || state.has_public_news_since(old.round)
        });
        let has_asked = |old: &Node| {
            // A mixed node whose files left nothing open has not asked the web.
            let found = state.branches.get(&old.id).map(|branch| &branch.evidence);
            old.source_hint == SourceHint::Web || found.into_iter().flatten().any(|quote| quote.label == Label::Public)
        };
        let is_asked = is_late && !is_past && old.is_none_or(has_asked);
        let source = directed_to(node.source_hint, state.settings.request.source);
        Some(source).filter(|source| is_asked && *source != SourceHint::Internal)
    };
    let checked = draft.check(&state.tree, brief, state.settings.tree, round, &reworded_for);
    checked.map_err(|complaints| complaints.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Moment;
    use crate::kb::embed::builtin_for_tests;
    use crate::research::node::Tree;
    use crate::research::scripted::{branch, brief};
    use crate::researcher::settings;
    use crate::run::budget::BudgetLimits;
    use crate::run::event::{Event, Record};

    #[tokio::test]
    async fn quote_in_other_words_than_the_question_is_shown_if_the_summary_of_its_node_has_them() {
        let question = "When do the valves open?";
        let settings = Box::new(settings(BudgetLimits::default()));
        let event = Event::Started { question: question.parse().unwrap(), settings };
        let mut state = RunState::of(&[Record { seq: 1, at: Moment(1), event }]).unwrap();
        let (run, folder) = (RunId::random(1), tempfile::tempdir().unwrap());
        let recall = Recall::open(folder.path(), builtin_for_tests(), Arc::new(|error| panic!("{error}"))).await;
        let recall = recall.unwrap();
        let numbered: Vec<_> = (1..=25).map(|bed| format!("The valves of bed {bed} open.")).collect();
        let numbered: Vec<_> = numbered.iter().map(String::as_str).collect();
        for (number, texts, summary) in [
            (2, &["Nobody may stay inside after dusk."][..], "The valves open when the sun has set."),
            (3, &numbered[..], "Beds have numbers, and tomatoes grow in some."),
        ] {
            let id = NodeId::numbered(number);
            let mut found = branch(&id, texts, Label::Internal);
            summary.clone_into(&mut found.report.summary);
            recall.add(&run, entries(&id, &found)).await.unwrap();
            state.fields_mut().branches.insert(id, found);
        }
        let shown = recalled(Some(&recall), &run, &brief(question, &[]), &state, 22).await;
        let of = |number| shown.iter().filter(|quote| quote.node == NodeId::numbered(number)).count();
        assert_eq!((of(2), of(3)), (1, RECALLED));
    }

    #[test]
    fn node_planned_for_the_web_stays_there_if_the_user_wants_both_sources() {
        let hints = [SourceHint::Internal, SourceHint::Mixed, SourceHint::Web];
        let tree = Tree::of("How do we water, and what do others do?".parse().unwrap());
        let node = |(hint, number)| {
            let node =
                Node::new(NodeId::numbered(number), Some(tree.root.clone()), "What do others do?".parse().unwrap(), 1);
            Node { source_hint: hint, ..node }
        };
        let change = Update {
            id: NodeId::numbered(9),
            question: None,
            priority: None,
            source_hint: Some(SourceHint::Web),
            drop: false,
        };
        let plan =
            Plan { nodes: hints.into_iter().zip(2..).map(node).collect(), updates: vec![change], ..Plan::default() };
        let directed_to = |source| -> Vec<_> {
            directed(plan.clone(), source, &tree.root).nodes.iter().map(|node| node.source_hint).collect()
        };
        assert_eq!(directed_to(Some(SourceHint::Mixed)), [SourceHint::Mixed, SourceHint::Mixed, SourceHint::Web]);
        assert_eq!(directed_to(Some(SourceHint::Internal)), [SourceHint::Internal; 3]);
        assert_eq!(directed_to(None), hints);
        let changed_to = |source| directed(plan.clone(), source, &tree.root).updates[0].source_hint.unwrap();
        assert_eq!(changed_to(Some(SourceHint::Internal)), SourceHint::Internal);
        assert_eq!(changed_to(Some(SourceHint::Mixed)), SourceHint::Web);
    }
}
