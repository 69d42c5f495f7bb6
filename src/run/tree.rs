//! Events folded into the state of a run. A live run, a resumed one and a replay share this code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem::replace;
use std::ops::Deref;
use std::time::Duration;

use super::budget::LimitsByPlan;
use super::event::{Event, Record, RunSettings};
use super::phase::{Briefs, Ended, Folded, Judged, Phase, Rounds, Stage};
use crate::base::clock::Moment;
use crate::research::branch::{Branch, Finding};
use crate::research::brief::PublicBrief;
use crate::research::evidence::{Evidence, EvidenceId};
use crate::research::memory::{Memory, PublicBranch, label};
use crate::research::node::{Node, NodeId, NodeStatus, SourceHint, Tree};
use crate::research::plan::{Plan, Update};
use crate::research::question::{Brief, Question};
use crate::research::report::{Draft, StopReason};
use crate::research::route::Route;
use crate::research::verdict::Verdict;
use crate::source::Label;

/// Summary of a node that a plan has dropped.
const DROPPED: &str = "dropped by a later plan";

/// What the user was asked back, and the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clarified {
    /// The words of the model.
    pub(crate) question: String,
    /// The words of the user.
    pub(crate) answer: String,
}

impl fmt::Display for Clarified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.question, self.answer)
    }
}

/// State of a run, folded from its events and changed by nothing else: what it says of the user's words and of the first
/// plan may leave, see `run/outward/origin.rs`. [`Phase`] and [`Stage`] have the diagrams.
#[derive(Clone, Debug, PartialEq)]
pub struct RunState(RunFields);

impl Deref for RunState {
    type Target = RunFields;

    fn deref(&self) -> &RunFields {
        &self.0
    }
}

/// Fields of a [`RunState`].
#[derive(Clone, Debug, PartialEq)]
pub struct RunFields {
    pub(crate) question: Question,
    /// Settings of the run, with the limits that apply now.
    pub(crate) settings: RunSettings,
    /// The clarifying question and the user's answer.
    pub(crate) clarification: Option<Clarified>,
    pub(crate) phase: Phase,
    pub tree: Tree,
    /// Route of each node that was started.
    pub(crate) routes: BTreeMap<NodeId, Route>,
    pub(crate) branches: BTreeMap<NodeId, Branch>,
    /// Results of the rounds that have ended.
    pub(crate) folded: Folded,
    /// The draft of a run that ended `complete` before its verdict, until the run finds something new or is judged.
    unjudged: Option<Draft>,
    /// Active time up to the last event, summed over all processes.
    pub(crate) active: Duration,
    pub(crate) started: Moment,
    /// Time of the last event.
    pub(crate) last: Moment,
    seq: u64,
}

/// Returns the key by which a quote is new: the same words in the same place are not, even if another node finds them.
fn place_and_words(quote: &Evidence) -> (String, String) {
    (quote.source.for_people(), quote.quote.clone())
}

/// An event cannot follow from the events before it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FoldError {
    #[error("journal does not begin with the start of a run")]
    NotStarted,
    #[error("journal has event {found} where {expected} should be")]
    Order { expected: u64, found: u64 },
    #[error("event {seq} (`{name}`) does not fit the run: {reason}")]
    Unfit { seq: u64, name: &'static str, reason: String },
}

impl RunState {
    /// Folds all events of a run.
    ///
    /// # Errors
    ///
    /// Returns an error for events out of order, or about nodes that do not exist.
    pub(crate) fn of(records: &[Record]) -> Result<Self, FoldError> {
        let (first, rest) = records.split_first().ok_or(FoldError::NotStarted)?;
        let mut state = Self(RunFields::started(first)?);
        for record in rest {
            state.apply(record)?;
        }
        Ok(state)
    }

    /// Applies the next event.
    ///
    /// # Errors
    ///
    /// Returns an error for an event that cannot follow; the state is then of no use.
    pub(crate) fn apply(&mut self, record: &Record) -> Result<(), FoldError> {
        self.0.apply(record)
    }

    /// Returns its fields.
    pub(crate) fn into_fields(self) -> RunFields {
        self.0
    }

    #[cfg(test)]
    pub(crate) fn fields_mut(&mut self) -> &mut RunFields {
        &mut self.0
    }
}

impl RunFields {
    /// Returns the state after the first event.
    fn started(record: &Record) -> Result<Self, FoldError> {
        let Event::Started { question, settings } = &record.event else { return Err(FoldError::NotStarted) };
        if record.seq != 1 {
            return Err(FoldError::Order { expected: 1, found: record.seq });
        }
        Ok(Self {
            tree: Tree::of(question.clone()),
            question: question.clone(),
            settings: (**settings).clone(),
            clarification: None,
            phase: Phase::ASKED,
            routes: BTreeMap::new(),
            branches: BTreeMap::new(),
            folded: Folded::default(),
            unjudged: None,
            active: Duration::ZERO,
            started: record.at,
            last: record.at,
            seq: 1,
        })
    }

    /// Returns the draft that need not be written again: the one that has no verdict yet, or that of the round before,
    /// if nothing new was found since. A draft by rules is written again: the model may be back.
    pub(crate) fn draft_that_stands(&self) -> Option<&Draft> {
        // Under a higher limit, a draft that was short for lack of money would be written anew at length.
        if let Some(unjudged) = &self.unjudged {
            return Some(unjudged);
        }
        let draft = self.folded.draft.as_ref().filter(|draft| !draft.is_makeshift && !self.has_news())?;
        // A node that is tried again loses its branch, and with it quotes that the draft may cite.
        let is_quoted =
            |id: &EvidenceId| self.branches.values().flat_map(|branch| &branch.evidence).any(|e| e.id == *id);
        let mut cited = draft.findings.iter().flat_map(|finding| &finding.evidence);
        cited.all(is_quoted).then_some(draft)
    }

    /// Returns whether a branch that is not in the summaries yet has a new quote, or a new conclusion from quotes of other
    /// nodes. A claim about a known quote of its own node is not new, however it is worded.
    fn has_news(&self) -> bool {
        let folded = self.branches.iter().filter(|(id, _)| self.folded.nodes.contains(*id));
        let claims = folded.flat_map(|(_, branch)| &branch.report.findings).map(|finding| finding.text.as_str());
        let claims: BTreeSet<&str> = claims.collect();
        self.unfolded().any(|(node, branch)| {
            let is_new = |quote: &Evidence| !self.folded.quotes.contains(&place_and_words(quote));
            let concludes = |finding: &&Finding| finding.evidence.iter().any(|id| *id.node() != node.id);
            let mut conclusions = branch.report.findings.iter().filter(concludes);
            branch.evidence.iter().any(is_new) || conclusions.any(|finding| !claims.contains(finding.text.as_str()))
        })
    }

    /// Returns the label of a node's findings. Without [`RunSettings::keeps_public_apart`], all findings are internal.
    pub(crate) fn label(&self, node: &NodeId) -> Label {
        if self.settings.keeps_public_apart { label(&self.tree, &self.branches, node) } else { Label::Internal }
    }

    /// Returns the findings of a node if they are public.
    pub(crate) fn public_branch(&self, node: &NodeId) -> Option<PublicBranch> {
        PublicBranch::of(&self.tree, &self.branches, node).filter(|_| self.settings.keeps_public_apart)
    }

    /// Returns whether this round or a later one found a public quote that no round before it did. Workers outside are then
    /// shown more than they were in that round.
    pub(crate) fn has_public_news_since(&self, round: u32) -> bool {
        let quotes = |is_since: bool| {
            let nodes = self.tree.nodes.iter().filter(move |node| (node.round >= round) == is_since);
            let quotes = nodes.filter_map(|node| self.branches.get(&node.id)).flat_map(|branch| &branch.evidence);
            quotes.filter(|quote| quote.label == Label::Public).map(place_and_words)
        };
        let before: BTreeSet<_> = quotes(false).collect();
        quotes(true).any(|quote| !before.contains(&quote))
    }

    /// Returns the brief; `None` before it is fixed.
    pub(crate) fn brief(&self) -> Option<&Brief> {
        self.phase.stage().briefs().map(|briefs| &briefs.brief)
    }

    /// Returns the number of the round that was planned last; 0 before the first plan.
    pub(crate) fn round(&self) -> u32 {
        self.phase.stage().rounds().map_or(0, |rounds| rounds.number)
    }

    /// Returns how many rounds were judged.
    pub(crate) fn rounds_ended(&self) -> u32 {
        u32::try_from(self.phase.stage().verdicts().len()).unwrap_or(u32::MAX)
    }

    /// Returns why the run ended; `None` while it has not.
    pub(crate) fn stop_reason(&self) -> Option<StopReason> {
        match &self.phase {
            Phase::Ended(ended) => Some(ended.stop_reason),
            Phase::Open(_) => None,
        }
    }

    /// Returns the nodes on a route that may start a background job, and whether they are running.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = (&NodeId, bool)> {
        let is_running = |node: &NodeId| self.tree.get(node).is_some_and(|node| node.status == NodeStatus::Running);
        self.routes.iter().filter(|(_, route)| route.has_job()).map(move |(node, _)| (node, is_running(node)))
    }

    /// Returns the branches that are not in the summaries yet, in the order their nodes were planned.
    pub(crate) fn unfolded(&self) -> impl Iterator<Item = (&Node, &Branch)> {
        let new = self.tree.workers().filter(|node| !self.folded.nodes.contains(&node.id));
        new.filter_map(|node| Some((node, self.branches.get(&node.id)?)))
    }

    /// Returns the number of the next event.
    pub(crate) fn next_seq(&self) -> u64 {
        self.seq + 1
    }

    pub(crate) fn has_evidence(&self) -> bool {
        self.branches.values().any(|branch| !branch.evidence.is_empty())
    }

    /// Returns whether the run has ended for a reason that a resume would not change.
    pub(crate) fn is_over(&self) -> bool {
        self.stop_reason().is_some_and(StopReason::is_natural)
    }

    fn apply(&mut self, record: &Record) -> Result<(), FoldError> {
        let expected = self.next_seq();
        if record.seq != expected {
            return Err(FoldError::Order { expected, found: record.seq });
        }
        let unfit = |reason: String| FoldError::Unfit { seq: record.seq, name: record.event.name(), reason };
        match &record.event {
            Event::Started { .. } => return Err(unfit("it has started already".into())),
            Event::Resumed { limits, again, is_open } => {
                // In old journals the flag alone says that the run was open.
                let was_open = self.settings.is_open || self.settings.request.allow_egress;
                // Cleared if an older version set it for collections: with `is_open`, it would count as the flag.
                self.settings.request.allow_egress = self.settings.has_flag();
                // What was made while internal text could leave may repeat it. It is not public now.
                if was_open && !*is_open {
                    self.settings.keeps_public_apart = false;
                }
                self.settings.is_open = *is_open;
                // Limits that the user raised no longer follow the plan.
                if self.settings.limits != *limits {
                    self.settings.by_plan = LimitsByPlan::default();
                }
                self.settings.limits = *limits;
                self.reopen();
                self.try_again(again);
            }
            Event::Clarified { question, answer } => {
                self.clarification = Some(Clarified { question: question.clone(), answer: answer.clone() });
            }
            Event::Briefed { brief, outward } => self.fix_brief(brief, outward.as_deref()).map_err(unfit)?,
            Event::Planned { round, plan } => self.plan(*round, plan).map_err(unfit)?,
            Event::NodeStarted { node, route, .. } => {
                self.settle(node, NodeStatus::Running, "").map_err(unfit)?;
                self.routes.insert(node.clone(), *route);
            }
            Event::NodeFinished { node, branch } => self.finish(node, branch).map_err(unfit)?,
            Event::NodePaused { node } => self.settle(node, NodeStatus::Pending, "").map_err(unfit)?,
            Event::NodeFailed { node, error } => self.settle(node, NodeStatus::Failed, error).map_err(unfit)?,
            Event::NodeBlocked { node, reason } => self.settle(node, NodeStatus::Blocked, reason).map_err(unfit)?,
            Event::RoundEnded { round, memory, draft, verdict } => {
                self.end_round(*round, memory, draft, verdict).map_err(unfit)?;
            }
            Event::Ended { stop_reason, draft } => self.finish_run(*stop_reason, draft).map_err(unfit)?,
        }
        // The time between two processes, and while a question to the user is open, is not active time.
        if !matches!(record.event, Event::Resumed { .. } | Event::Clarified { .. }) {
            self.active += record.at.since(self.last);
        }
        self.last = record.at;
        self.seq = record.seq;
        Ok(())
    }

    fn fix_brief(&mut self, brief: &Brief, outward: Option<&PublicBrief>) -> Result<(), String> {
        let Phase::Open(Stage::Asked) = self.phase else { return Err(self.not_due()) };
        // The root answers the whole question, so it serves every aspect, with or without nodes below it.
        let root = self.tree.root.clone();
        if let Some(root) = self.tree.get_mut(&root) {
            root.aspects = brief.aspects.iter().map(|aspect| aspect.id.clone()).collect();
        }
        self.phase = Phase::Open(Stage::Briefed(Briefs { brief: brief.clone(), outward: outward.cloned() }));
        Ok(())
    }

    fn not_due(&self) -> String {
        format!("the run is {}", self.phase.name())
    }

    fn plan(&mut self, round: u32, plan: &Plan) -> Result<(), String> {
        // Taken apart to build the next phase. After an error the state is of no use in any case.
        let mut rounds = match replace(&mut self.phase, Phase::ASKED) {
            Phase::Open(Stage::Briefed(briefs)) => {
                let (reworded, dropped) = (BTreeSet::new(), BTreeSet::new());
                Rounds { briefs, reworded, dropped, number: 0, reasons: Vec::new(), verdicts: Vec::new() }
            }
            Phase::Open(Stage::Judged(judged)) => {
                let Judged { mut rounds, verdict, .. } = *judged;
                rounds.verdicts.push(verdict);
                rounds
            }
            phase @ (Phase::Open(Stage::Asked | Stage::Planned(_)) | Phase::Ended(_)) => {
                self.phase = phase;
                return Err(self.not_due());
            }
        };
        if round != rounds.number + 1 {
            return Err(format!("round {} is the next", rounds.number + 1));
        }
        let known: BTreeSet<_> = self.tree.nodes.iter().chain(&plan.nodes).map(|node| node.id.clone()).collect();
        // A journal may be damaged, so a plan is checked once more when it is folded.
        if known.len() != self.tree.nodes.len() + plan.nodes.len() {
            return Err("a node is planned twice".into());
        }
        if let Some(missing) = plan.nodes.iter().flat_map(|node| &node.depends_on).find(|id| !known.contains(*id)) {
            return Err(format!("there is no node `{missing}`"));
        }
        // Worded with retrieved text or an earlier answer in view, so the wording may not leave.
        if round > 1 || self.settings.follows.is_some() {
            let updated = plan.updates.iter().filter(|update| update.question.is_some()).map(|update| &update.id);
            rounds.reworded.extend(plan.nodes.iter().map(|node| &node.id).chain(updated).cloned());
        }
        for Update { id, question, priority, source_hint, drop } in &plan.updates {
            let node = self.tree.get_mut(id).ok_or_else(|| format!("there is no node `{id}`"))?;
            if node.status != NodeStatus::Pending {
                return Err(format!("node `{id}` is no longer pending"));
            }
            node.question = question.clone().unwrap_or_else(|| node.question.clone());
            node.priority = priority.unwrap_or(node.priority);
            node.source_hint = source_hint.unwrap_or(node.source_hint);
            if *drop {
                node.status = NodeStatus::Blocked;
                node.summary = DROPPED.into();
                rounds.dropped.insert(id.clone());
            }
        }
        self.tree.nodes.extend(plan.nodes.iter().cloned());
        if round == 1 {
            // A mixed node has a worker inside and one outside.
            let of = |node: &Node| if node.source_hint == SourceHint::Mixed { 2 } else { 1 };
            let workers = self.tree.workers().map(of).sum();
            self.settings.limits = self.settings.limits.planned(self.settings.by_plan, workers);
        }
        rounds.number = round;
        rounds.reasons.push(plan.reasoning.clone());
        self.phase = Phase::Open(Stage::Planned(Box::new(rounds)));
        Ok(())
    }

    /// Reverts the end of the run. Running nodes are pending again, and so is a root that only the end had settled.
    fn reopen(&mut self) {
        if let Phase::Ended(ended) = &mut self.phase {
            self.unjudged = ended.unjudged().or_else(|| self.unjudged.take());
            self.phase = Phase::Open(replace(&mut ended.before, Stage::Asked));
        }
        let root = self.tree.root.clone();
        let has_branch = self.branches.contains_key(&root);
        for node in &mut self.tree.nodes {
            // The end of a run settles a divided root by its answer, which will be written anew, and one whose work was
            // not done. A single root that failed is worked on again, too: the events of stored runs presuppose it.
            if node.status == NodeStatus::Running || node.id == root && !has_branch {
                node.status = NodeStatus::Pending;
                node.confidence = 0.0;
                node.summary.clear();
            }
        }
    }

    /// Resets nodes, and those they block, to pending. A judged round goes back to [`Stage::Planned`].
    fn try_again(&mut self, again: &[NodeId]) {
        // Back to before the verdict: the round is judged again with what these nodes find now.
        if let (Phase::Open(Stage::Judged(judged)), false) = (&self.phase, again.is_empty()) {
            self.folded = judged.before.clone();
            self.phase = Phase::Open(Stage::Planned(Box::new(judged.rounds.clone())));
        }
        if !again.is_empty() {
            self.unjudged = None;
        }
        let mut waiting: BTreeSet<NodeId> = again.iter().cloned().collect();
        for id in again {
            // Its calls and lookups are still on record, so repeating them costs nothing.
            self.branches.remove(id);
            self.folded.nodes.remove(id);
            let sections = self.folded.draft.iter_mut().flat_map(|draft| &mut draft.sections);
            sections.filter(|section| section.nodes.contains(id)).for_each(|section| section.nodes.clear());
            if let Some(node) = self.tree.get_mut(id) {
                node.status = NodeStatus::Pending;
                node.confidence = 0.0;
                node.summary.clear();
            }
        }
        let dropped = self.phase.stage().rounds().map(|rounds| rounds.dropped.clone()).unwrap_or_default();
        // A node may come before one it depends on, so this repeats until nothing changes.
        loop {
            let before = waiting.len();
            for node in &mut self.tree.nodes {
                let is_stuck = node.status == NodeStatus::Blocked
                    && !dropped.contains(&node.id)
                    && !self.branches.contains_key(&node.id)
                    && node.depends_on.iter().any(|id| waiting.contains(id));
                if is_stuck {
                    node.status = NodeStatus::Pending;
                    node.summary.clear();
                    waiting.insert(node.id.clone());
                }
            }
            if waiting.len() == before {
                break;
            }
        }
    }

    /// Changes the status of a node that is not settled.
    fn settle(&mut self, id: &NodeId, status: NodeStatus, summary: &str) -> Result<(), String> {
        let Phase::Open(Stage::Planned(_)) = self.phase else { return Err(self.not_due()) };
        let node = self.tree.get_mut(id).ok_or_else(|| format!("there is no node `{id}`"))?;
        if node.status.is_settled() {
            return Err(format!("node `{id}` is settled"));
        }
        node.status = status;
        summary.clone_into(&mut node.summary);
        Ok(())
    }

    fn finish(&mut self, id: &NodeId, branch: &Branch) -> Result<(), String> {
        let is_empty = branch.report.findings.is_empty();
        // Nodes that depend on it would have nothing to build on.
        let status = if is_empty { NodeStatus::Blocked } else { NodeStatus::Done };
        let summary = match branch.report.summary.as_str() {
            "" => "no relevant evidence was found",
            summary => summary,
        };
        self.settle(id, status, summary)?;
        if let Some(node) = self.tree.get_mut(id) {
            node.confidence = branch.report.confidence;
        }
        self.branches.insert(id.clone(), branch.clone());
        self.unjudged = None;
        Ok(())
    }

    fn end_round(&mut self, round: u32, memory: &Memory, draft: &Draft, verdict: &Verdict) -> Result<(), String> {
        let Phase::Open(Stage::Planned(rounds)) = &self.phase else { return Err(self.not_due()) };
        if round != rounds.number {
            return Err(format!("round {} is in progress", rounds.number));
        }
        // Kept for nodes of this round that are tried again: their workers must see what the first ones saw.
        let (before, has_news) = (self.folded.clone(), self.has_news());
        let quotes = self.branches.values().flat_map(|branch| &branch.evidence);
        self.folded.quotes.extend(quotes.map(place_and_words));
        self.folded.draft = Some(draft.clone());
        self.unjudged = None;
        self.folded.nodes = self.branches.keys().cloned().collect();
        self.folded.memory = memory.clone();
        self.folded.idle_rounds = if has_news { 0 } else { before.idle_rounds + 1 };
        let (rounds, draft, verdict) = (Rounds::clone(rounds), draft.clone(), verdict.clone());
        self.phase = Phase::Open(Stage::Judged(Box::new(Judged { rounds, draft, verdict, before })));
        Ok(())
    }

    fn finish_run(&mut self, stop_reason: StopReason, draft: &Draft) -> Result<(), String> {
        let Phase::Open(stage) = &mut self.phase else { return Err(self.not_due()) };
        let before = replace(stage, Stage::Asked);
        self.phase = Phase::Ended(Box::new(Ended { stop_reason, draft: draft.clone(), before }));
        let root = self.tree.root.clone();
        let has_answer = !draft.findings.is_empty() || !draft.answer.is_empty();
        // A root that was divided has no worker: the final answer is its result.
        if let Some(root) = self.tree.get_mut(&root).filter(|root| root.status == NodeStatus::Pending) {
            root.status = if has_answer { NodeStatus::Done } else { NodeStatus::Blocked };
            root.confidence = draft.confidence;
            root.summary.clone_from(&draft.answer);
        }
        Ok(())
    }
}
