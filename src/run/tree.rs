//! Events folded into the state of a run; a live run, a resumed one and a replay share this code.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::event::{Event, Record, RunSettings};
use crate::base::clock::Moment;
use crate::research::branch::Branch;
use crate::research::memory::Memory;
use crate::research::node::{Node, NodeId, NodeStatus, Tree};
use crate::research::plan::{Plan, Update};
use crate::research::question::{Brief, Question};
use crate::research::report::{Draft, StopReason};
use crate::research::route::Route;
use crate::research::verdict::Verdict;

/// What is said of a node that a plan has dropped.
const DROPPED: &str = "dropped by a later plan";

/// Where a run stands.
///
/// ```text
/// started ─▶ briefed ─▶ planned ─▶ nodes … ─▶ round ended ─▶ ended
///                          ▲                      │
///                          └──────────────────────┘
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RunState {
    /// What was asked.
    pub question: Question,
    /// How the run is made.
    pub settings: RunSettings,
    /// What the user added when asked to.
    pub clarification: Option<String>,
    /// What the answer must cover, once that is fixed.
    pub brief: Option<Brief>,
    /// The brief of a run that follows another one as it was made without the earlier answer.
    pub outward_brief: Option<Brief>,
    /// Nodes whose questions a plan worded after something was retrieved.
    pub reworded: BTreeSet<NodeId>,
    /// The nodes.
    pub tree: Tree,
    /// Why the nodes were opened, round by round.
    pub reasons: Vec<String>,
    /// The round that was planned last; 0 before the first plan.
    pub round: u32,
    /// Which way each node that was started was looked into.
    pub routes: BTreeMap<NodeId, Route>,
    /// What the nodes found.
    pub branches: BTreeMap<NodeId, Branch>,
    /// The summaries as they stood when the last round ended: what workers of this round see.
    pub memory: Memory,
    /// Verdicts, one for each round that ended.
    pub verdicts: Vec<Verdict>,
    /// The answer so far.
    pub draft: Option<Draft>,
    /// Rounds in a row that brought no new evidence.
    pub idle_rounds: u32,
    /// Why the run ended, where it has.
    pub end: Option<StopReason>,
    /// Time a process was at work, up to the last event.
    pub active: Duration,
    /// What the rounds that ended have taken in.
    known: Known,
    /// How all this stood before the last round ended.
    before: Before,
    started: Moment,
    last: Moment,
    seq: u64,
}

/// What the rounds that ended have taken in.
#[derive(Clone, Debug, Default, PartialEq)]
struct Known {
    /// Nodes whose branches the summaries have.
    nodes: BTreeSet<NodeId>,
    /// Quotes, with where they stand.
    evidence: BTreeSet<(String, String)>,
}

/// How a run stood before its last round ended, so that the round can be taken up again.
#[derive(Clone, Debug, Default, PartialEq)]
struct Before {
    memory: Memory,
    known: Known,
    idle_rounds: u32,
}

/// An event cannot follow from the events before it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FoldError {
    /// There is no run before it has started.
    #[error("journal does not begin with the start of a run")]
    NotStarted,
    /// An event is missing or there twice.
    #[error("journal has event {found} where {expected} should be")]
    Order {
        /// The number that should be next.
        expected: u64,
        /// The number found.
        found: u64,
    },
    /// The event is about something that is not there.
    #[error("event {seq} (`{name}`) does not fit the run: {reason}")]
    Unfit {
        /// Its number.
        seq: u64,
        /// Its kind.
        name: &'static str,
        /// Why not.
        reason: String,
    },
}

impl RunState {
    /// Folds all events of a run.
    ///
    /// # Errors
    ///
    /// Returns an error for events that are no run: out of order, or about nodes that are not there.
    pub fn of(records: &[Record]) -> Result<Self, FoldError> {
        let (first, rest) = records.split_first().ok_or(FoldError::NotStarted)?;
        let mut state = Self::started(first)?;
        for record in rest {
            state.apply(record)?;
        }
        Ok(state)
    }

    /// Begins with the first event.
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
            brief: None,
            outward_brief: None,
            reworded: BTreeSet::new(),
            reasons: Vec::new(),
            round: 0,
            routes: BTreeMap::new(),
            branches: BTreeMap::new(),
            memory: Memory::default(),
            known: Known::default(),
            before: Before::default(),
            verdicts: Vec::new(),
            draft: None,
            idle_rounds: 0,
            end: None,
            active: Duration::ZERO,
            started: record.at,
            last: record.at,
            seq: 1,
        })
    }

    /// Returns the nodes that went a way on which a job may be started, and whether they are still on it.
    pub fn jobs(&self) -> impl Iterator<Item = (&NodeId, bool)> {
        let is_running = |node: &NodeId| self.tree.get(node).is_some_and(|node| node.status == NodeStatus::Running);
        self.routes.iter().filter(|(_, route)| route.has_job()).map(move |(node, _)| (node, is_running(node)))
    }

    /// Returns the branches that the summaries do not have yet, in the order their nodes were planned.
    pub fn unfolded(&self) -> impl Iterator<Item = (&Node, &Branch)> {
        let new = self.tree.workers().filter(|node| !self.known.nodes.contains(&node.id));
        new.filter_map(|node| Some((node, self.branches.get(&node.id)?)))
    }

    /// Returns the number of the next event.
    pub fn next_seq(&self) -> u64 {
        self.seq + 1
    }

    /// Tells whether anything was found.
    pub fn has_evidence(&self) -> bool {
        self.branches.values().any(|branch| !branch.evidence.is_empty())
    }

    /// Tells whether the run has ended in a way that going on changes nothing of.
    pub fn is_over(&self) -> bool {
        self.end.is_some_and(StopReason::is_natural)
    }

    /// Returns when the run began.
    pub fn started_at(&self) -> Moment {
        self.started
    }

    /// Returns when the last event happened.
    pub fn last_moment(&self) -> Moment {
        self.last
    }

    /// Returns the rounds that have ended.
    pub fn rounds_ended(&self) -> u32 {
        u32::try_from(self.verdicts.len()).unwrap_or(u32::MAX)
    }

    /// Takes the next event.
    ///
    /// # Errors
    ///
    /// Returns an error for an event that cannot follow; the state is then of no use.
    pub fn apply(&mut self, record: &Record) -> Result<(), FoldError> {
        let expected = self.next_seq();
        if record.seq != expected {
            return Err(FoldError::Order { expected, found: record.seq });
        }
        let unfit = |reason: String| FoldError::Unfit { seq: record.seq, name: record.event.name(), reason };
        match &record.event {
            Event::Started { .. } => return Err(unfit("it has started already".into())),
            Event::Resumed { limits, again } => {
                self.settings.limits = *limits;
                self.reopen();
                self.try_again(again);
            }
            Event::Clarified { question, answer } => self.clarification = Some(format!("{question} {answer}")),
            Event::Briefed { brief, outward } => {
                self.outward_brief = outward.as_deref().cloned();
                // The root serves all of them, whoever looks into it.
                let root = self.tree.root.clone();
                if let Some(root) = self.tree.get_mut(&root) {
                    root.aspects = brief.aspects.iter().map(|aspect| aspect.id.clone()).collect();
                }
                self.brief = Some(brief.clone());
            }
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
                if *round != self.round {
                    return Err(unfit(format!("round {} is the one under way", self.round)));
                }
                self.end_round(memory, draft, verdict);
            }
            Event::Ended { stop_reason, draft } => self.finish_run(*stop_reason, draft),
        }
        // Nobody is at work between two processes, or while the user is asked something.
        if !matches!(record.event, Event::Resumed { .. } | Event::Clarified { .. }) {
            self.active += record.at.since(self.last);
        }
        self.last = record.at;
        self.seq = record.seq;
        Ok(())
    }

    fn plan(&mut self, round: u32, plan: &Plan) -> Result<(), String> {
        if round != self.round + 1 {
            return Err(format!("round {} is the next", self.round + 1));
        }
        let known: BTreeSet<_> = self.tree.nodes.iter().chain(&plan.nodes).map(|node| node.id.clone()).collect();
        if known.len() != self.tree.nodes.len() + plan.nodes.len() {
            return Err("a node is planned twice".into());
        }
        if let Some(missing) = plan.nodes.iter().flat_map(|node| &node.depends_on).find(|id| !known.contains(*id)) {
            return Err(format!("there is no node `{missing}`"));
        }
        if round > 1 || self.settings.follows.is_some() {
            let updated = plan.updates.iter().filter(|update| update.question.is_some()).map(|update| &update.id);
            self.reworded.extend(plan.nodes.iter().map(|node| &node.id).chain(updated).cloned());
        }
        for Update { id, question, priority, source_hint, drop } in &plan.updates {
            let node = self.tree.get_mut(id).ok_or_else(|| format!("there is no node `{id}`"))?;
            if node.status != NodeStatus::Pending {
                return Err(format!("node `{id}` does not wait any more"));
            }
            node.question = question.clone().unwrap_or_else(|| node.question.clone());
            node.priority = priority.unwrap_or(node.priority);
            node.source_hint = source_hint.unwrap_or(node.source_hint);
            if *drop {
                node.status = NodeStatus::Blocked;
                node.summary = DROPPED.into();
            }
        }
        self.tree.nodes.extend(plan.nodes.iter().cloned());
        self.reasons.push(plan.reasoning.clone());
        self.round = round;
        Ok(())
    }

    /// Takes back that the run ended: what was running waits again, and so does a root that only the end had settled.
    fn reopen(&mut self) {
        self.end = None;
        let root = self.tree.root.clone();
        let has_branch = self.branches.contains_key(&root);
        for node in &mut self.tree.nodes {
            if node.status == NodeStatus::Running || node.id == root && !has_branch {
                node.status = NodeStatus::Pending;
                node.confidence = 0.0;
                node.summary.clear();
            }
        }
    }

    /// Has nodes wait again, and those that waited for them; the round is then not over any more.
    fn try_again(&mut self, again: &[NodeId]) {
        if !again.is_empty() && self.rounds_ended() == self.round && self.verdicts.pop().is_some() {
            let before = self.before.clone();
            (self.memory, self.known, self.idle_rounds) = (before.memory, before.known, before.idle_rounds);
        }
        let mut waiting: BTreeSet<NodeId> = again.iter().cloned().collect();
        for id in again {
            // What it found the other way comes again, off the record.
            self.branches.remove(id);
            self.known.nodes.remove(id);
            if let Some(node) = self.tree.get_mut(id) {
                node.status = NodeStatus::Pending;
                node.confidence = 0.0;
                node.summary.clear();
            }
        }
        // A node comes after those it builds on, or is found in a later turn.
        loop {
            let before = waiting.len();
            for node in &mut self.tree.nodes {
                let is_stuck = node.status == NodeStatus::Blocked
                    && node.summary != DROPPED
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

    /// Moves a node on, if it is not settled.
    fn settle(&mut self, id: &NodeId, status: NodeStatus, summary: &str) -> Result<(), String> {
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
        let status = if is_empty { NodeStatus::Blocked } else { NodeStatus::Done };
        let summary = match branch.report.summary.as_str() {
            "" => "nothing was found that bears on it",
            summary => summary,
        };
        self.settle(id, status, summary)?;
        if let Some(node) = self.tree.get_mut(id) {
            node.confidence = branch.report.confidence;
        }
        self.branches.insert(id.clone(), branch.clone());
        Ok(())
    }

    fn end_round(&mut self, memory: &Memory, draft: &Draft, verdict: &Verdict) {
        self.before = Before {
            memory: std::mem::replace(&mut self.memory, memory.clone()),
            known: self.known.clone(),
            idle_rounds: self.idle_rounds,
        };
        self.draft = Some(draft.clone());
        self.verdicts.push(verdict.clone());
        self.known.nodes = self.branches.keys().cloned().collect();
        // The same words in the same place are nothing new, whichever node finds them.
        let all = self.branches.values().flat_map(|branch| &branch.evidence);
        self.known.evidence.extend(all.map(|quote| (quote.source.for_people(), quote.quote.clone())));
        let has_new = self.known.evidence.len() > self.before.known.evidence.len();
        self.idle_rounds = if has_new { 0 } else { self.idle_rounds + 1 };
    }

    fn finish_run(&mut self, stop_reason: StopReason, draft: &Draft) {
        self.end = Some(stop_reason);
        self.draft = Some(draft.clone());
        let root = self.tree.root.clone();
        let has_answer = !draft.findings.is_empty() || !draft.answer.is_empty();
        if let Some(root) = self.tree.get_mut(&root).filter(|root| root.status == NodeStatus::Pending) {
            root.status = if has_answer { NodeStatus::Done } else { NodeStatus::Blocked };
            root.confidence = draft.confidence;
            root.summary.clone_from(&draft.answer);
        }
    }
}
