//! The phases of a run, each with the data that is known by then.

use std::collections::BTreeSet;

use crate::research::brief::PublicBrief;
use crate::research::memory::Memory;
use crate::research::node::NodeId;
use crate::research::question::Brief;
use crate::research::report::{Draft, StopReason};
use crate::research::verdict::Verdict;

/// Whether a run is open or has ended.
///
/// ```text
/// Open ─▶ Ended
///   ▲       │
///   └───────┘  at the stage before, when the run is resumed
/// ```
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Phase {
    /// In progress, or stopped before its end.
    Open(Stage),
    Ended(Box<Ended>),
}

/// How far a run has got. Each stage holds the data for the next step, so that no step can be taken without it.
///
/// ```text
/// Asked ─▶ Briefed ─▶ Planned ─▶ Judged
///                        ▲          │
///                        └──────────┘
/// ```
///
/// A resumed run goes from [`Self::Judged`] back to [`Self::Planned`] when nodes of its last round are tried again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stage {
    /// The question is known.
    Asked,
    /// The aspects that the answer must cover are fixed.
    Briefed(Briefs),
    /// The nodes of a round are worked on.
    Planned(Box<Rounds>),
    /// The round has a draft and a verdict.
    Judged(Box<Judged>),
}

/// The brief of a run, and in a run that follows another one, the brief for the web.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Briefs {
    pub(super) brief: Brief,
    /// A second brief, made without the earlier answer that the run follows up. Its aspects have their own ids. `None`
    /// if the run had no way out when it was briefed, and in a run that follows no other: its own brief may leave.
    pub(super) outward: Option<PublicBrief>,
}

/// The rounds up to the one that is under way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rounds {
    pub(crate) briefs: Briefs,
    /// Nodes whose questions a plan worded after something was retrieved.
    pub(crate) reworded: BTreeSet<NodeId>,
    /// Nodes that a plan has dropped. Unlike other nodes that are blocked, they do not wait again.
    pub(super) dropped: BTreeSet<NodeId>,
    /// The number of the round that was planned last, from 1.
    pub(crate) number: u32,
    /// Why the nodes were opened, one reason per round.
    pub(crate) reasons: Vec<String>,
    /// The verdicts on the rounds before.
    pub(crate) verdicts: Vec<Verdict>,
}

/// Results of the rounds that have ended, as the workers of the next round see them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Folded {
    pub(crate) memory: Memory,
    /// Rounds in a row that brought neither new evidence nor new conclusions.
    pub(crate) idle_rounds: u32,
    /// Nodes whose branches are in the summaries.
    pub(super) nodes: BTreeSet<NodeId>,
    /// The draft of the last round.
    pub(super) draft: Option<Draft>,
    /// Every quote, with its place.
    pub(super) quotes: BTreeSet<(String, String)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judged {
    pub(crate) rounds: Rounds,
    pub(crate) draft: Draft,
    pub(crate) verdict: Verdict,
    /// The summaries as they stood before the round was folded in, for nodes of it that are tried again.
    pub(super) before: Folded,
}

/// The end of a run, which a resume reverts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ended {
    pub(crate) stop_reason: StopReason,
    pub(crate) draft: Draft,
    /// How far the run had got.
    pub(super) before: Stage,
}

/// Begins the limitation of a report that ended `complete` without a verdict.
pub(super) const NOT_JUDGED: &str = "the report was not judged";

impl Ended {
    /// Returns the draft of a run that ended `complete` before its round was judged, without what its end added.
    pub(super) fn unjudged(&self) -> Option<Draft> {
        let is_unjudged = self.stop_reason == StopReason::Complete && matches!(self.before, Stage::Planned(_));
        is_unjudged.then(|| {
            let mut draft = Draft { is_makeshift: false, output: None, ..self.draft.clone() };
            draft.limitations.retain(|limitation| !limitation.starts_with(NOT_JUDGED));
            draft
        })
    }
}

impl Phase {
    /// The first phase.
    pub(super) const ASKED: Self = Self::Open(Stage::Asked);

    /// Returns the stage of the run, or the one in which it ended.
    pub(crate) fn stage(&self) -> &Stage {
        match self {
            Self::Open(stage) => stage,
            Self::Ended(ended) => &ended.before,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Open(Stage::Asked) => "asked",
            Self::Open(Stage::Briefed(_)) => "briefed",
            Self::Open(Stage::Planned(_)) => "planned",
            Self::Open(Stage::Judged(_)) => "judged",
            Self::Ended(_) => "ended",
        }
    }
}

impl Stage {
    /// Returns the briefs; `None` before they are fixed.
    pub(crate) fn briefs(&self) -> Option<&Briefs> {
        match self {
            Self::Asked => None,
            Self::Briefed(briefs) => Some(briefs),
            Self::Planned(rounds) => Some(&rounds.briefs),
            Self::Judged(judged) => Some(&judged.rounds.briefs),
        }
    }

    /// Returns the rounds; `None` before the first plan.
    pub(crate) fn rounds(&self) -> Option<&Rounds> {
        match self {
            Self::Asked | Self::Briefed(_) => None,
            Self::Planned(rounds) => Some(rounds),
            Self::Judged(judged) => Some(&judged.rounds),
        }
    }

    /// Returns the verdicts, one for each round that was judged.
    pub(crate) fn verdicts(&self) -> Vec<&Verdict> {
        let last = match self {
            Self::Judged(judged) => Some(&judged.verdict),
            Self::Asked | Self::Briefed(_) | Self::Planned(_) => None,
        };
        self.rounds().into_iter().flat_map(|rounds| &rounds.verdicts).chain(last).collect()
    }
}
