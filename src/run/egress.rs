//! Outgoing text: each passes the tripwire and is recorded before it is sent.
//!
//! One [`Egress`] is shared by all workers of a run. The type [`Outbound`] decides which text may leave at all; the
//! tripwire behind it learns every internal text that is read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde::Deserialize;

use super::journal::{EgressKind, EgressRow, LockedRun, Withheld};
use super::outward::{BeforeRetrieval, UserWords};
use super::tree::RunState;
use crate::base::clock::Clock;
use crate::base::line::one_line;
use crate::base::mutex::locked;
use crate::base::outbound::Outbound;
use crate::research::memory::branch_text;
use crate::research::node::NodeId;
use crate::research::skim::SkimPassage;
use crate::research::tripwire::Tripwire;
use crate::source::{Found, Label, Passage, Place, SourceError};

/// Who is sent the address of a page.
pub(crate) const OWN_SITE: &str = "the page's own site";

/// A text that is about to leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutgoingText<'a> {
    pub(crate) kind: EgressKind,
    pub(crate) text: &'a Outbound,
    /// The part that the tripwire checks: neither a template of this program nor a date.
    pub(crate) words: &'a Outbound,
}

impl<'a> OutgoingText<'a> {
    /// Returns a text that is no template.
    pub(crate) fn all(kind: EgressKind, text: &'a Outbound) -> Self {
        Self { kind, text, words: text }
    }
}

/// The stored result of a lookup of passages.
#[derive(Deserialize)]
#[serde(untagged)]
enum RecordedPassages {
    Found(Found),
    Opened(Passage),
    Recalled(Vec<SkimPassage>),
}

/// Records outgoing texts, and withholds those that trip the wire.
#[derive(Clone)]
pub(crate) struct Egress(Arc<Parts>);

struct Parts {
    run: LockedRun,
    clock: Arc<dyn Clock>,
    /// Whether the user allows all text to leave.
    is_open: bool,
    tripwire: Mutex<Tripwire>,
    withheld: Mutex<BTreeMap<NodeId, usize>>,
}

impl Egress {
    /// Returns an egress log without internal text. With `is_open`, nothing is withheld.
    pub(crate) fn new(run: LockedRun, clock: Arc<dyn Clock>, is_open: bool) -> Self {
        let (tripwire, withheld) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Parts { run, clock, is_open, tripwire, withheld }))
    }

    /// Returns whether the user allows all text to leave.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_open
    }

    /// Adds the stored passages that a run was shown before it was resumed.
    pub(crate) fn recall(&self, results: &[String]) {
        // The result of a job is the number of its call; the text of its report is in the branch of its node.
        for answer in results.iter().filter_map(|result| serde_json::from_str(result).ok()) {
            match answer {
                RecordedPassages::Found(found) => self.shown(&found.passages),
                RecordedPassages::Opened(passage) => self.shown(&[passage]),
                RecordedPassages::Recalled(excerpts) => {
                    for excerpt in excerpts {
                        self.shown(&[excerpt.passage]);
                    }
                }
            }
        }
    }

    /// Adds the texts of a run: those of the user and the first plan may leave; those of later plans, workers inside
    /// and summaries may not.
    pub(crate) fn learn(&self, state: &RunState) {
        let mut tripwire = locked(&self.0.tripwire);
        for text in UserWords::of(state).all() {
            tripwire.may_leave(text.as_str());
        }
        let before = BeforeRetrieval::of(state);
        if let Some(before) = before {
            let aspects = before.all_aspects().map(|aspect| aspect.text);
            let texts = aspects.chain(before.questions()).chain([before.task()]);
            texts.for_each(|text| tripwire.may_leave(text.as_str()));
        }
        // Questions that were worded after retrieval may repeat internal text.
        for node in state.tree.workers().filter(|node| before.is_none_or(|before| before.question(&node.id).is_none()))
        {
            tripwire.read(node.question.as_str());
        }
        let groups = state.folded.memory.groups.values();
        let summaries = groups.chain([&state.folded.memory.global]).filter(|summary| summary.label == Label::Internal);
        // The earlier answer may quote files, and the planner of this run was shown it.
        let earlier = state.settings.follows.iter().map(|followed| &followed.answer);
        summaries.map(|summary| &summary.text).chain(earlier).for_each(|text| tripwire.read(text));
        // `learn_branch` takes the lock again.
        drop(tripwire);
        state.branches.keys().for_each(|node| self.learn_branch(state, node));
    }

    /// Adds the result of a node: quotes by their label, and its own words as internal if it saw internal text.
    pub(crate) fn learn_branch(&self, state: &RunState, node: &NodeId) {
        let Some(branch) = state.branches.get(node) else { return };
        let mut tripwire = locked(&self.0.tripwire);
        for quote in &branch.evidence {
            learn(&mut tripwire, quote.label, &quote.quote, &quote.source);
        }
        for reported in &branch.reported {
            for text in [&reported.text, &reported.title, &reported.url] {
                if branch.saw_internal || !state.settings.keeps_public_apart {
                    tripwire.read(text);
                } else {
                    tripwire.may_leave(text);
                }
            }
        }
        if state.label(node) == Label::Internal {
            tripwire.read(&branch_text(&branch.report));
        }
    }

    /// Adds passages that a worker is shown.
    pub(crate) fn shown(&self, passages: &[Passage]) {
        let mut tripwire = locked(&self.0.tripwire);
        for passage in passages {
            // Links of an opened note stand below its text.
            let seen = if passage.snippet.len() > passage.text.len() { &passage.snippet } else { &passage.text };
            learn(&mut tripwire, passage.label, seen, &passage.place);
        }
    }

    /// Adds texts from the open web.
    pub(crate) fn seen_in_public<'a>(&self, texts: impl Iterator<Item = &'a str>) {
        let mut tripwire = locked(&self.0.tripwire);
        texts.for_each(|text| tripwire.may_leave(text));
    }

    /// Checks a text and records it; only if this succeeds may it be sent.
    ///
    /// # Errors
    ///
    /// Returns [`SourceError::Withheld`] for a text that trips the wire, and an error if the journal fails.
    pub(crate) async fn release(&self, node: &NodeId, target: &str, text: OutgoingText<'_>) -> Result<(), SourceError> {
        let OutgoingText { kind, text, words } = text;
        // Recorded below even if the user allows all text to leave.
        let checked = if self.0.is_open { Ok(()) } else { locked(&self.0.tripwire).check(words.as_str()) };
        let withheld = checked.err();
        let row = EgressRow {
            node: node.clone(),
            at: self.0.clock.now(),
            kind,
            target: one_line(target),
            text: text.to_string(),
            withheld: withheld.map(Withheld::Tripped),
        };
        // Before the caller sends it: a text that left is on record even if the process dies.
        self.0.run.record_egress(&row).await?;
        match withheld {
            None => Ok(()),
            Some(tripped) => {
                *locked(&self.0.withheld).entry(node.clone()).or_default() += 1;
                Err(SourceError::Withheld { reason: tripped.to_string() })
            }
        }
    }

    /// Returns how many texts of a node were withheld.
    pub(crate) fn withheld(&self, node: &NodeId) -> usize {
        locked(&self.0.withheld).get(node).copied().unwrap_or(0)
    }
}

fn learn(tripwire: &mut Tripwire, label: Label, text: &str, place: &Place) {
    // A worker is shown titles, headings and addresses with each passage, so they count as read.
    let names = std::iter::once(place.title()).chain(place.heading_path().iter().map(String::as_str));
    let address = match place {
        Place::Web { url, .. } => Some(url.as_str()),
        Place::Kb { .. } | Place::Mcp { .. } => None,
    };
    for text in names.chain([text]).chain(address) {
        match label {
            Label::Public => tripwire.may_leave(text),
            Label::Internal => tripwire.read(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::base::clock::ManualClock;
    use crate::base::id::{ContentHash, RunId};
    use crate::run::store::Store;

    #[test]
    fn tripwire_learns_each_kind_of_stored_result_when_a_run_is_resumed() {
        let passage = |text: &str| {
            let place = json!({
                "kind": "kb", "collection": "notes", "path": "a.md", "title": "A", "heading_path": [], "line_start": 1,
                "line_end": 1, "content_hash": ContentHash::of(b"a"), "byte_start": 0, "byte_end": 9,
            });
            json!({ "id": "c1", "label": "internal", "snippet": text, "text": text, "score": 1.0, "place": place })
        };
        let found =
            json!({ "passages": [passage("The customer pays 48,731 euros.")], "support": "strong", "notes": [] });
        let recalled = json!([{ "passage": passage("Write to ottoline@acme.example."), "origin": null }]);
        let results = [found, passage("Ticket CANARY-7f3a9c is open."), recalled, json!([]), json!(7)];
        let run = Store::in_memory().unwrap().lock(&RunId::random(1)).unwrap();
        let egress = Egress::new(run, Arc::new(ManualClock::default()), false);
        egress.recall(&results.map(|result| result.to_string()));
        for text in ["48731", "ottoline@acme.example", "CANARY-7f3a9c"] {
            assert!(locked(&egress.0.tripwire).check(text).is_err(), "{text}");
        }
    }
}
