//! What leaves the machine: each text is checked, then written down, and only then sent.
//!
//! ```text
//! knowledge base ─▶ Heard ──────────────────────▶ worker       its texts are kept in
//! web ─▶ Outgoing ─▶ Reader ─▶ on record? ─▶ Heard ─▶ worker   its texts may leave again; queries to it are checked
//! ```
//!
//! One [`Egress`] is shared by all workers of a run. It begins with the user's own words, the brief and the first plan,
//! which were made before anything was looked up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::budget::{Budget, Purpose};
use super::journal::{EgressKind, EgressRow, LockedRun};
use super::tree::RunState;
use crate::base::clock::Clock;
use crate::base::line::one_line;
use crate::llm::call::{CallError, Limit};
use crate::research::egress::Gate;
use crate::research::node::NodeId;
use crate::source::{Found, Label, Layer, Passage, Place, Source, SourceError};

/// A text that is to leave.
#[derive(Clone, Copy, Debug)]
pub struct Leaving<'a> {
    /// Its form.
    pub kind: EgressKind,
    /// All of it.
    pub text: &'a str,
    /// What of it somebody has said; the rest is part of this program, or the date.
    pub said: &'a str,
}

impl<'a> Leaving<'a> {
    /// Returns a text all of which somebody has said.
    pub fn all(kind: EgressKind, text: &'a str) -> Self {
        Self { kind, text, said: text }
    }
}

/// Decides what of a run may leave, and writes down what does.
#[derive(Clone)]
pub struct Egress(Arc<Parts>);

struct Parts {
    run: LockedRun,
    clock: Arc<dyn Clock>,
    /// Whether the user lets everything leave.
    is_open: bool,
    gate: Mutex<Gate>,
    withheld: Mutex<BTreeMap<NodeId, usize>>,
}

impl Egress {
    /// Lets nothing leave yet that anybody has found; `is_open` lets everything.
    pub fn new(run: LockedRun, clock: Arc<dyn Clock>, is_open: bool) -> Self {
        let (gate, withheld) = (Mutex::new(Gate::new()), Mutex::default());
        Self(Arc::new(Parts { run, clock, is_open, gate, withheld }))
    }

    /// Tells whether the user lets everything leave.
    pub fn is_open(&self) -> bool {
        self.0.is_open
    }

    /// Takes what a run knows so far, so that a resumed one is as careful as before.
    pub fn learn(&self, state: &RunState) {
        let mut gate = self.gate();
        for text in free_texts(state) {
            gate.may_leave(text);
        }
        for quote in state.branches.values().flat_map(|branch| &branch.evidence) {
            hear(&mut gate, quote.label, &quote.quote, &quote.source);
        }
        for text in derived_texts(state) {
            gate.keep_in(text);
        }
    }

    /// Returns how a query may be worded outside, with no word that came from inside; none where too little remains.
    pub fn wording(&self, query: &str) -> Option<String> {
        if self.0.is_open { Some(query.to_owned()) } else { self.gate().reduced(query) }
    }

    /// Checks what of a text is not part of this program, and writes all of it down; only where this succeeds may it be
    /// sent.
    ///
    /// # Errors
    ///
    /// Returns [`SourceError::Withheld`] for a text that must stay, and an error where it cannot be written down.
    pub async fn release(&self, node: &NodeId, target: &str, text: Leaving<'_>) -> Result<(), SourceError> {
        let Leaving { kind, text, said } = text;
        let checked = if self.0.is_open { Ok(()) } else { self.gate().check(said) };
        let withheld = checked.err().map(|withheld| withheld.to_string());
        let row = EgressRow {
            node: node.clone(),
            at: self.0.clock.now(),
            kind,
            target: one_line(target),
            text: text.to_owned(),
            withheld: withheld.clone(),
        };
        self.0.run.record_egress(&row).await?;
        match withheld {
            None => Ok(()),
            Some(reason) => {
                *self.counts().entry(node.clone()).or_default() += 1;
                Err(SourceError::Withheld { reason })
            }
        }
    }

    /// Takes texts from the open web: they may leave as they came.
    pub fn seen_in_public<'a>(&self, texts: impl Iterator<Item = &'a str>) {
        let mut gate = self.gate();
        texts.for_each(|text| gate.seen_in_public(text));
    }

    /// Returns how many texts of a node were kept back.
    pub fn withheld(&self, node: &NodeId) -> usize {
        self.counts().get(node).copied().unwrap_or(0)
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.0.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<NodeId, usize>> {
        self.0.withheld.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, passages: &[Passage]) {
        let mut gate = self.gate();
        for passage in passages {
            hear(&mut gate, passage.label, &passage.text, &passage.place);
        }
    }
}

/// Returns the texts that were there before anything was looked up: they may leave.
///
/// A run that follows up another one had that one's answer in its brief, so only the user's own words are free there.
fn free_texts(state: &RunState) -> Vec<&str> {
    let mut texts = vec![state.question.as_str()];
    texts.extend(state.clarification.as_deref());
    texts.extend(state.settings.required.iter().map(String::as_str));
    if state.settings.follows.is_none() {
        let brief = state.brief().into_iter();
        texts.extend(brief.clone().map(|brief| brief.task.as_str()));
        texts.extend(brief.flat_map(|brief| brief.aspects.iter().map(|aspect| aspect.text.as_str())));
        let first = state.tree.nodes.iter().filter(|node| node.round <= 1);
        texts.extend(first.map(|node| node.question.as_str()));
    }
    texts
}

/// Returns texts that were made of what was found inside.
fn derived_texts(state: &RunState) -> Vec<&str> {
    let mut texts = Vec::new();
    if state.folded.memory.global.label == Label::Internal {
        texts.push(state.folded.memory.global.text.as_str());
    }
    texts.extend(
        state
            .folded
            .memory
            .groups
            .values()
            .filter(|group| group.label == Label::Internal)
            .map(|group| group.text.as_str()),
    );
    texts.extend(state.settings.follows.iter().map(|followed| followed.answer.as_str()));
    texts
}

fn hear(gate: &mut Gate, label: Label, text: &str, place: &Place) {
    let names = std::iter::once(place.title()).chain(place.heading_path().iter().map(String::as_str));
    let names: Vec<_> = names.collect();
    match (label, place) {
        (Label::Public, Place::Web { url, .. }) => {
            names.into_iter().chain([text, url.as_str()]).for_each(|text| gate.seen_in_public(text));
        }
        (Label::Public, Place::Kb { .. }) => gate.seen_in_public(text),
        (Label::Internal, _) => names.into_iter().chain([text]).for_each(|text| gate.keep_in(text)),
    }
}

/// A source whose answers a run remembers the wording of: where they came from decides whether it may leave.
pub struct Heard {
    inner: Arc<dyn Source>,
    egress: Egress,
}

impl Heard {
    /// Listens to a source.
    pub fn new(inner: Arc<dyn Source>, egress: Egress) -> Self {
        Self { inner, egress }
    }
}

impl Layer for Heard {
    fn inner(&self) -> &dyn Source {
        self.inner.as_ref()
    }

    fn search<'a>(&'a self, query: &'a str, limit: usize) -> BoxFuture<'a, Result<Found, SourceError>> {
        Box::pin(async move {
            let found = self.inner.search(query, limit).await?;
            self.egress.hear(&found.passages);
            Ok(found)
        })
    }

    fn open<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Passage, SourceError>> {
        Box::pin(async move {
            let passage = self.inner.open(id).await?;
            self.egress.hear(std::slice::from_ref(&passage));
            Ok(passage)
        })
    }
}

/// A source outside: whatever is said to it has to be released first.
pub struct Outgoing {
    inner: Arc<dyn Source>,
    egress: Egress,
    node: NodeId,
    /// Whether who asks has seen what must stay, so that queries are put together from other words.
    is_reworded: bool,
    patience: Patience,
}

/// How long answers from outside are waited for.
#[derive(Clone)]
pub struct Patience {
    /// No longer than there is time in it.
    pub budget: Budget,
    /// No longer than until this is triggered.
    pub stop: CancellationToken,
}

impl Outgoing {
    /// Stands between a node and the outside.
    pub fn new(inner: Arc<dyn Source>, egress: Egress, node: NodeId, is_reworded: bool, patience: Patience) -> Self {
        Self { inner, egress, node, is_reworded, patience }
    }

    async fn in_time<T>(&self, answer: impl Future<Output = Result<T, SourceError>>) -> Result<T, SourceError> {
        tokio::select! {
            answer = answer => answer,
            () = self.patience.stop.cancelled() => Err(SourceError::Stopped(CallError::Cancelled)),
            () = self.patience.budget.time_up(Purpose::Research) => {
                Err(SourceError::Stopped(CallError::Limit(Limit::Time)))
            }
        }
    }
}

impl Layer for Outgoing {
    fn inner(&self) -> &dyn Source {
        self.inner.as_ref()
    }

    fn search<'a>(&'a self, query: &'a str, limit: usize) -> BoxFuture<'a, Result<Found, SourceError>> {
        Box::pin(async move {
            let reworded = if self.is_reworded { self.egress.wording(query) } else { Some(query.to_owned()) };
            // What cannot be worded otherwise is written down as what it was, and kept back.
            let query = reworded.unwrap_or_else(|| query.to_owned());
            self.egress.release(&self.node, &self.inner.scope(), Leaving::all(EgressKind::Query, &query)).await?;
            self.in_time(self.inner.search(&query, limit)).await
        })
    }

    fn open<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Passage, SourceError>> {
        Box::pin(async move {
            self.egress.release(&self.node, "the page's own site", Leaving::all(EgressKind::Address, id)).await?;
            self.in_time(self.inner.open(id)).await
        })
    }
}
