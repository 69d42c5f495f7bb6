//! Executes the actions a worker's model requests: searches, opened passages, tool calls, and notes whose quotes are
//! checked by code.
//!
//! The texts returned to the model become part of its next prompt and so of the request hash: changing one makes
//! `dr resume` repeat worker calls recorded by an older version.

use std::collections::HashSet;
use std::ops::Range;

use futures::future::join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cut::cut;
use super::evidence::{Evidence, EvidenceId, count_lines};
use super::extract::{check, has_text, is_hit};
use super::locate::{locate, sentences_at, shown_at, whole_sentences};
use super::node::Tool;
use super::question::AspectId;
use super::said::Said;
use super::skim::Answer;
use super::task::{Conversation, Task};
use crate::base::line::{counted, one_line};
use crate::base::word::count_words;
use crate::llm::call::CallError;
use crate::source::{Found, Passage, Place, Source, SourceError, Support};

/// Maximum number of searches and opened passages per step. Notes do not count.
pub(super) const MAX_ACTIONS: usize = 8;

/// Shortest quote, in words. A single word supports no claim.
const MIN_QUOTE_WORDS: usize = 2;

/// Longest quote, in bytes. A longer one copies the passage instead of selecting from it.
const MAX_QUOTE_BYTES: usize = 1_500;

/// Longest text of a note, in characters.
const MAX_NOTE_CHARACTERS: usize = 600;

/// Number of searches without a relevant passage that the report is told of.
const MAX_IN_VAIN: usize = 16;

/// Longest query or other call in a prompt, in characters: the model chose its length.
const MAX_CALL_CHARACTERS: usize = 200;

/// One action, as a model says it; each tool takes some of the fields.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct ActionDraft {
    /// What to do.
    pub(super) tool: ToolDraft,
    /// For `search`: the words to search for.
    #[schemars(with = "Option<String>")]
    pub(super) query: Option<Said>,
    /// For `open`, `continue` and `note`: the id of a passage; for `open` also the address of a link.
    pub(super) passage: Option<String>,
    /// For `note`: words of the passage.
    pub(super) quote: Option<String>,
    /// For `note`: what they show.
    pub(super) text: Option<String>,
    /// For `note`: the id of the aspect they serve.
    pub(super) aspect: Option<String>,
    /// For a call: the tool and its arguments. A [`CallDraft`] has them in the model's reply.
    #[serde(skip)]
    pub(super) call: Option<CallDraft>,
}

/// A call of a tool, as a model says it. Only workers with tools are told of this form.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct CallDraft {
    /// The name of the tool.
    pub(super) tool: String,
    /// Its arguments: a JSON object, as text.
    #[schemars(with = "String")]
    pub(super) arguments: Said,
}

impl From<CallDraft> for ActionDraft {
    fn from(call: CallDraft) -> Self {
        Self { tool: ToolDraft::Call, call: Some(call), ..Self::default() }
    }
}

/// What a worker can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ToolDraft {
    /// Search, and see snippets.
    #[default]
    Search,
    /// Read the section or page around a passage.
    Open,
    /// Read on where a passage was cut.
    Continue,
    /// Keep a quote as evidence.
    Note,
    /// Call a tool of one of the user's own servers.
    #[serde(skip)]
    Call,
}

/// Number of passages shared by the searches of one step, and the minimum for each. Every later prompt repeats them,
/// and the last passages of a search seldom contain the answer.
pub(super) const PASSAGES_PER_STEP: usize = 16;
pub(super) const FEWEST_PASSAGES: usize = 4;

/// Number of passages shown of a search without a relevant passage.
const MAX_UNLIKELY: usize = 2;

/// Bytes of an opened passage that every prompt shows. Stands in for [`Shown::end`] until the next prompt decides
/// where a passage opened in this step is cut.
const SURELY_SHOWN: usize = 2_000;

/// A passage shown to the worker. Its id is `p` and its position in [`Notebook::shown`], from 1.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) passage: Passage,
    /// Whether it was opened instead of found by a search.
    pub(super) is_opened: bool,
    /// Whether it was found only by searches that seem to have no answer.
    pub(super) is_unlikely: bool,
    /// Byte up to which its text is shown; `None` until it is shown.
    pub(super) end: Option<usize>,
    /// Whether the last prompt left it out, for lack of room or because passages above have all of its text.
    pub(super) is_left_out: bool,
}

impl Shown {
    /// Returns the byte at which its text was cut, if it was.
    fn cut_at(&self) -> Option<usize> {
        self.end.filter(|at| *at < self.passage.text.trim_end().len())
    }

    /// Returns the part of its text that the last prompt showed.
    pub(super) fn seen(&self) -> &str {
        let end = self.end.filter(|_| !self.is_left_out).unwrap_or(0);
        self.passage.text.get(..end).unwrap_or_default()
    }

    /// Returns whether its shown part contains all of another passage.
    fn has_shown(&self, other: &Passage) -> bool {
        let surely = if self.is_opened { SURELY_SHOWN } else { 0 };
        let seen = self.passage.text.get(..self.end.unwrap_or(surely).min(self.passage.text.len()));
        // Short words may stand elsewhere in the document, too.
        self.passage.place.overlaps(&other.place) && seen.is_some_and(|seen| seen.contains(other.text.trim()))
    }

    /// Returns the outline and the links below its text, which only an opened passage has.
    pub(super) fn below(&self) -> &str {
        let Passage { snippet, text, .. } = &self.passage;
        snippet.strip_prefix(text.as_str()).filter(|_| self.is_opened).unwrap_or_default()
    }
}

/// A quote and the claim that the worker bases on it.
#[derive(Clone, Debug)]
pub(super) struct Note {
    pub(super) evidence: Evidence,
    /// The claim: the words of the quote until a model has worded it.
    pub(super) text: String,
    pub(super) is_worded: bool,
    pub(super) aspect: Option<AspectId>,
}

impl Note {
    /// Returns whether it has this quote for this aspect. One quote may support a claim for each of several aspects.
    fn is_same(&self, quote: &Evidence, aspect: Option<&AspectId>) -> bool {
        self.has_quote(quote) && self.aspect.as_ref() == aspect
    }

    fn has_quote(&self, quote: &Evidence) -> bool {
        self.evidence.quote == quote.quote && self.evidence.source == quote.source
    }

    /// Returns the claim, with the aspect it serves.
    pub(super) fn claim(&self) -> String {
        self.for_aspect(&self.text)
    }

    /// Returns a text with the aspect that the note serves.
    pub(super) fn for_aspect(&self, text: &str) -> String {
        match &self.aspect {
            Some(aspect) => format!("{text} ({aspect})"),
            None => text.to_owned(),
        }
    }
}

/// Result of an action, as shown to the worker.
#[derive(Clone, Debug)]
pub(super) struct ActionResult {
    /// The action, such as `search for price`.
    pub(super) call: String,
    /// The result in words.
    pub(super) said: String,
    /// Passages to show: indexes into [`Notebook::shown`].
    pub(super) passages: Vec<usize>,
    /// Passages that it found again.
    pub(super) known: Vec<usize>,
    /// Whether it was a note that was refused.
    pub(super) is_lost_note: bool,
}

impl ActionResult {
    fn said(call: &str, said: String) -> Self {
        Self { call: call.to_owned(), said, passages: Vec::new(), known: Vec::new(), is_lost_note: false }
    }
}

/// A validated action.
enum Action<Q: ?Sized> {
    /// Searches for at most `limit` passages.
    Search { query: Box<Q>, limit: usize },
    /// Opens the section of a passage that was shown.
    Open(usize),
    /// The rest of a passage.
    Continue(Passage),
    /// Opens a page by its address. The source decides whether that address may be opened.
    Follow(String),
    /// Calls a tool of a server.
    Call { tool: String, arguments: Box<Q> },
    /// Repeats a note.
    Known(EvidenceId),
    /// Notes a quote, found at `range` of the passage.
    Note { at: usize, range: Range<usize>, text: String, aspect: Option<AspectId> },
    /// A note from a search engine's snippet. The page is fetched, since only its text can confirm the quote.
    NoteOfPage { at: usize, quote: String, text: String, aspect: Option<AspectId> },
}

/// Result of an action before passages and notes are numbered. Actions run in parallel, so numbers are assigned
/// afterwards, in the order of the actions.
enum UnnumberedResult {
    Found(Found),
    Opened(Passage),
    Noted(Note, Vec<String>),
    /// The rest of a passage that was cut.
    Continued(Passage),
    /// The quote was noted before, under this id.
    Known(EvidenceId),
    Refused(String),
    Failed(SourceError),
}

/// Result of an action after passages and notes are numbered.
enum NumberedResult {
    /// The quote is noted under this id, now or before.
    Noted(EvidenceId),
    Told(ActionResult),
}

/// The passages and notes of one worker.
pub(super) struct Notebook<'a, Q: ?Sized> {
    conversation: &'a Conversation<'a, Q>,
    source: &'a dyn Source<Q>,
    task: &'a Task<'a, Q>,
    made: HashSet<String>,
    /// Every passage shown, in order of first appearance.
    pub(super) shown: Vec<Shown>,
    /// Notes, in order.
    pub(super) noted: Vec<Note>,
    /// Whether the worker has noted anything itself, or noted a filed quote again.
    pub(super) has_own_notes: bool,
    /// Number of actions that repeated an earlier one.
    pub(super) repeats: u32,
    /// Best support of any search.
    pub(super) support: Support,
    /// Queries that seem to have found nothing relevant.
    pub(super) in_vain: Vec<String>,
    /// Limitations to print in the report.
    pub(super) remarks: Vec<String>,
    /// Whether any call to the source succeeded.
    has_answer: bool,
    /// Last failure of the source, or the fact that the run has given it up.
    failure: Option<SourceError>,
}

impl<'a, Q: ?Sized + Send + Sync> Notebook<'a, Q> {
    pub(super) fn new(conversation: &'a Conversation<'a, Q>) -> Self {
        let Conversation { task, source, .. } = conversation;
        Self {
            conversation,
            source: *source,
            task,
            made: HashSet::new(),
            shown: Vec::new(),
            noted: Vec::new(),
            has_own_notes: false,
            repeats: 0,
            support: Support::None,
            in_vain: Vec::new(),
            remarks: Vec::new(),
            has_answer: false,
            failure: None,
        }
    }

    /// Returns the failure of the source, if every call to it failed.
    pub(super) fn dead_source(&self) -> Option<&SourceError> {
        self.failure.as_ref().filter(|_| !self.has_answer)
    }

    /// Files the quotes of skimmed units as notes before the first step, each with the position of its unit. They pass
    /// the same checks as the worker's own notes and are numbered in the order given, so that a resumed run has the same
    /// ids. Returns the id of each, or `None` for one that is left to the worker: a quote is filed for one aspect only.
    pub(super) async fn file(&mut self, answers: &[(usize, &Answer)]) -> Vec<Option<EvidenceId>> {
        let draft = |(at, Answer { aspect, quote, .. }): &(usize, &Answer)| ActionDraft {
            tool: ToolDraft::Note,
            passage: Some(format!("p{}", at + 1)),
            quote: Some(quote.clone()),
            aspect: Some(aspect.to_string()),
            ..ActionDraft::default()
        };
        let drafts: Vec<_> = answers.iter().map(draft).collect();
        let is_own = |(at, answer): &(usize, &Answer)| {
            // Another node may be asked about it, and the page behind a search engine's snippet was not read. A quote
            // that no worker has judged must not keep the web from being searched for its aspect.
            self.is_of_task(&answer.aspect)
                && !self.conversation.goes_on_outside
                && !self.conversation.shared_aspects.contains(&answer.aspect)
                && !is_hit(&self.shown[*at].passage)
        };
        let actions = answers.iter().zip(&drafts).map(|(answer, draft)| {
            // Not among the calls that were made: a worker may note the same words again.
            if is_own(answer) { self.note(draft) } else { Err("it is left to the worker".to_owned()) }
        });
        let actions: Vec<_> = actions.collect();
        let done = join_all(actions.into_iter().map(|action| self.carry_out(action))).await;
        let (had_answer, mut filed) = (self.has_answer, Vec::new());
        for (draft, done) in drafts.iter().zip(done) {
            // Filed for two aspects, it would become two identical findings: the worker words the second.
            let is_of_another = |note: &Note| {
                let mut known = self.noted.iter();
                known.any(|known| known.has_quote(&note.evidence) && known.aspect != note.aspect)
            };
            if matches!(&done, UnnumberedResult::Noted(note, _) if is_of_another(note)) {
                filed.push(None);
                continue;
            }
            filed.push(match self.take(draft, done) {
                NumberedResult::Noted(id) => Some(id),
                NumberedResult::Told(_) => None,
            });
        }
        // A file was read for its quotes, which does not show that the source can be searched.
        self.has_answer = had_answer;
        filed
    }

    /// Returns the texts that the prompt shows from the document of a passage, each with its passage id.
    pub(super) fn seen_beside(&self, place: usize) -> Vec<(String, &str)> {
        let document = &self.shown[place].passage.place;
        let beside = self.shown.iter().zip(1..);
        let beside = beside.filter(|(shown, _)| shown.passage.place.is_same_document(document));
        // A search engine's snippet is not text of its page.
        let beside = beside.filter(|(shown, _)| !is_hit(&shown.passage));
        beside.map(|(shown, number)| (format!("p{number}"), shown.seen())).collect()
    }

    /// Returns the id of a passage above with the same outline and links below it as an opened passage.
    pub(super) fn with_same_below(&self, place: usize) -> Option<String> {
        let own = &self.shown[place];
        let is_same = |other: &Shown| {
            let is_here = other.end.is_some() && !other.is_left_out;
            is_here && other.below() == own.below() && other.passage.place.is_same_document(&own.passage.place)
        };
        let above = self.shown[..place].iter().position(is_same).filter(|_| !own.below().is_empty())?;
        Some(format!("p{}", above + 1))
    }

    /// Executes the actions of a step in parallel, up to [`MAX_ACTIONS`] besides notes. Ids are assigned and outcomes
    /// returned in the order of the actions, so that prompts do not depend on timing. All notes that were kept have one
    /// outcome: the prompt lists them.
    ///
    /// # Errors
    ///
    /// Returns an error if the run cannot continue. Notes of the other actions are kept.
    pub(super) async fn act(&mut self, drafts: &[ActionDraft]) -> Result<Vec<ActionResult>, CallError> {
        let mut looks = 0;
        let (now, left): (Vec<&ActionDraft>, Vec<&ActionDraft>) = drafts.iter().partition(|draft| {
            looks += usize::from(draft.tool != ToolDraft::Note);
            draft.tool == ToolDraft::Note || looks <= MAX_ACTIONS
        });
        let is_new_search =
            |draft: &&&ActionDraft| draft.tool == ToolDraft::Search && !self.made.contains(&identity(draft));
        let searches = now.iter().filter(is_new_search).count();
        let limit =
            (PASSAGES_PER_STEP / searches.max(1)).max(FEWEST_PASSAGES).min(self.task.limits.passages_per_search);
        let mut actions = Vec::new();
        for draft in &now {
            actions.push(if self.made.insert(identity(draft)) {
                self.action(draft, limit)
            } else {
                self.repeats += 1;
                Err("you made this call before: its result is above; try a different search, or finish".to_owned())
            });
        }
        // Executed concurrently but recorded in order: note ids must not depend on which action finishes first.
        let done = join_all(actions.into_iter().map(|action| self.carry_out(action))).await;
        let stopped = done.iter().find_map(|done| match done {
            UnnumberedResult::Failed(SourceError::Stopped(error)) => Some(error.clone()),
            _ => None,
        });
        let (mut outcomes, mut noted) = (Vec::new(), Vec::new());
        for (draft, done) in now.into_iter().zip(done) {
            match self.take(draft, done) {
                NumberedResult::Noted(id) if noted.contains(&id.to_string()) => {}
                NumberedResult::Noted(id) => noted.push(id.to_string()),
                NumberedResult::Told(outcome) => outcomes.push(outcome),
            }
        }
        if !noted.is_empty() {
            self.has_own_notes = true;
            outcomes.push(ActionResult::said("notes", format!("noted as {}", noted.join(", "))));
        }
        if !left.is_empty() {
            let calls: Vec<_> = left.into_iter().map(call).collect();
            let said = format!("a step has at most {MAX_ACTIONS} besides notes; left out: {}", calls.join("; "));
            outcomes.push(ActionResult::said("the rest", said));
        }
        stopped.map_or(Ok(outcomes), Err)
    }

    /// Validates an action; `limit` is the most passages of a search.
    fn action(&self, draft: &ActionDraft, limit: usize) -> Result<Action<Q>, String> {
        let is_allowed = |tool| self.task.tools.contains(&tool);
        match draft.tool {
            // A call counts as a search, because plans do not know the tools of servers.
            ToolDraft::Search | ToolDraft::Call if !is_allowed(Tool::Search) => Err("you may not search".to_owned()),
            ToolDraft::Open | ToolDraft::Continue if !is_allowed(Tool::Open) => {
                Err("you may not open passages".to_owned())
            }
            ToolDraft::Search => {
                let said = draft.query.as_ref().filter(|query| query.as_str().chars().any(char::is_alphanumeric));
                let query = self.conversation.worded(said.ok_or("`query` has no words")?.one_line());
                Ok(Action::Search { query, limit })
            }
            ToolDraft::Call => {
                let CallDraft { tool, arguments } = draft.call.clone().unwrap_or_default();
                Ok(Action::Call { tool: one_line(&tool), arguments: self.conversation.worded(arguments) })
            }
            ToolDraft::Open => match self.place(draft) {
                Ok(at) if matches!(self.shown[at].passage.place, Place::Mcp { .. }) => {
                    Err(format!("p{} is the result of a call: `continue` reads on where it was cut", at + 1))
                }
                Ok(at) => Ok(Action::Open(at)),
                Err(complaint) => match self.linked(draft) {
                    Some(address) => Ok(Action::Follow(address)),
                    None => Err(complaint),
                },
            },
            ToolDraft::Continue => {
                let at = self.place(draft)?;
                let why =
                    if self.shown[at].is_opened { "was shown to its end" } else { "is not opened: open it first" };
                self.rest(at).map(Action::Continue).ok_or_else(|| format!("p{} {why}", at + 1))
            }
            ToolDraft::Note => self.note(draft),
        }
    }

    /// Returns the rest of a passage, from where the prompt cut it.
    fn rest(&self, at: usize) -> Option<Passage> {
        let shown = &self.shown[at];
        let passage = &shown.passage;
        let (before, rest) = passage.text.split_at_checked(shown.cut_at()?)?;
        let mut place = passage.place.clone();
        if let Place::Kb { line_start, .. } = &mut place {
            *line_start += count_lines(before);
        }
        let text = rest.to_owned();
        Some(Passage { snippet: text.clone(), text, place, ..passage.clone() })
    }

    /// Returns the index of the passage an action names.
    fn place(&self, draft: &ActionDraft) -> Result<usize, String> {
        let id = one_line(draft.passage.as_deref().unwrap_or_default());
        let place = shown_at(&id).filter(|place| *place < self.shown.len());
        place.ok_or_else(|| format!("there is no passage `{id}`: name one you were shown"))
    }

    /// Returns the address an action names, if the source has links. The source knows which addresses it has shown.
    fn linked(&self, draft: &ActionDraft) -> Option<String> {
        let address = draft.passage.as_deref().unwrap_or_default().trim().trim_matches('`');
        let is_address = self.source.has_links() && !address.is_empty() && shown_at(address).is_none();
        is_address.then(|| address.to_owned())
    }

    /// Returns whether an aspect is one of the task.
    fn is_of_task(&self, aspect: &AspectId) -> bool {
        self.task.aspects.iter().any(|own| own.id == aspect)
    }

    fn note(&self, draft: &ActionDraft) -> Result<Action<Q>, String> {
        let at = self.place(draft)?;
        let quote = draft.quote.as_deref().unwrap_or_default();
        if count_words(quote) < MIN_QUOTE_WORDS || quote.len() > MAX_QUOTE_BYTES {
            return Err("`quote` is not a sentence or two".to_owned());
        }
        let passage = &self.shown[at].passage;
        let aspect = draft.aspect.as_deref().map(AspectId::named).filter(|id| self.is_of_task(id));
        let said = worded(draft);
        if is_hit(passage) {
            return Ok(Action::NoteOfPage { at, quote: quote.to_owned(), text: said, aspect });
        }
        let range = locate(&passage.text, quote).ok_or_else(|| {
            format!(
                "these words do not stand in p{}: copy the quote word for word, without leaving anything out",
                at + 1
            )
        })?;
        let range = whole_sentences(passage, range);
        let words = self.quote(at, &range);
        if let Some(known) = self.noted.iter().find(|note| note.is_same(&words, aspect.as_ref())) {
            return Ok(Action::Known(known.evidence.id.clone()));
        }
        Ok(Action::Note { at, range, text: said, aspect })
    }

    /// Returns a range of a passage as evidence with a provisional id.
    fn quote(&self, at: usize, range: &Range<usize>) -> Evidence {
        let passage = &self.shown[at].passage;
        passage.quote(range.clone(), EvidenceId::new(self.task.id.clone(), 0), passage.score)
    }

    async fn carry_out(&self, action: Result<Action<Q>, String>) -> UnnumberedResult {
        match action {
            Err(reason) => UnnumberedResult::Refused(reason),
            Ok(Action::Known(id)) => UnnumberedResult::Known(id),
            Ok(Action::Continue(rest)) => UnnumberedResult::Continued(rest),
            Ok(Action::Search { query, limit }) => {
                let found = self.source.search(&query, limit).await;
                found.map_or_else(UnnumberedResult::Failed, UnnumberedResult::Found)
            }
            Ok(Action::Open(at)) => {
                let known = &self.shown[at].passage;
                let opened = self.source.open(&known.id).await;
                // An opened section has no score of its own and inherits that of the passage it was opened for.
                opened.map_or_else(UnnumberedResult::Failed, |passage| {
                    UnnumberedResult::Opened(Passage { score: known.score, ..passage })
                })
            }
            Ok(Action::Follow(address)) => match self.source.open(&address).await {
                Ok(passage) => UnnumberedResult::Opened(passage),
                Err(SourceError::NoSuchPassage { .. }) => UnnumberedResult::Refused(format!(
                    "`{address}` was not shown as a link, or what it leads to is not part of what is searched here"
                )),
                Err(error) => UnnumberedResult::Failed(error),
            },
            Ok(Action::Call { tool, arguments }) => match self.source.call(&tool, &arguments).await {
                Ok(passage) => UnnumberedResult::Opened(passage),
                Err(SourceError::Refused { reason }) => UnnumberedResult::Refused(reason),
                Err(error) => UnnumberedResult::Failed(error),
            },
            Ok(Action::Note { at, range, text, aspect }) => {
                self.noted_from(&self.shown[at].passage, range, text, aspect).await
            }
            Ok(Action::NoteOfPage { at, quote, text, aspect }) => {
                let known = &self.shown[at].passage;
                let page = match self.source.open(&known.id).await {
                    Ok(page) => Passage { score: known.score, ..page },
                    Err(error) => return UnnumberedResult::Failed(error),
                };
                match locate(&page.text, &quote) {
                    Some(range) => {
                        let range = whole_sentences(&page, range);
                        self.noted_from(&page, range, text, aspect).await
                    }
                    None => UnnumberedResult::Refused(format!(
                        "the page behind p{} does not contain these words: open it, and quote from it",
                        at + 1
                    )),
                }
            }
        }
    }

    /// Returns a note on a range of a passage, or a refusal if the document no longer contains the quote.
    async fn noted_from(
        &self,
        passage: &Passage,
        range: Range<usize>,
        text: String,
        aspect: Option<AspectId>,
    ) -> UnnumberedResult {
        // `take` assigns the number once the notes before it are numbered.
        let mut evidence = passage.quote(range, EvidenceId::new(self.task.id.clone(), 0), passage.score);
        let mut remarks = Vec::new();
        check(&mut evidence, passage, self.source, &mut remarks).await;
        if evidence.checked {
            let is_worded = !text.is_empty();
            let text = if is_worded { text } else { plain(&evidence) };
            UnnumberedResult::Noted(Note { evidence, text, is_worded, aspect }, remarks)
        } else {
            UnnumberedResult::Refused("the document no longer contains this quote".to_owned())
        }
    }

    /// Records the result of an action and numbers new passages and notes.
    fn take(&mut self, draft: &ActionDraft, done: UnnumberedResult) -> NumberedResult {
        let is_lost_note =
            draft.tool == ToolDraft::Note && !matches!(done, UnnumberedResult::Noted(..) | UnnumberedResult::Known(_));
        // The rest of a passage and a known quote are served without the source.
        self.has_answer |=
            matches!(done, UnnumberedResult::Found(_) | UnnumberedResult::Opened(_) | UnnumberedResult::Noted(..));
        let (said, places) = match done {
            UnnumberedResult::Found(found) => {
                let query = draft.query.as_ref().map_or("", Said::as_str);
                self.take_found(query, found)
            }
            UnnumberedResult::Opened(passage) => ("opened".to_owned(), vec![self.place_of(passage, true)]),
            UnnumberedResult::Continued(rest) => ("read on".to_owned(), vec![self.place_of(rest, true)]),
            UnnumberedResult::Known(id) => {
                self.word(&id, draft);
                return NumberedResult::Noted(id);
            }
            UnnumberedResult::Noted(mut note, remarks) => {
                // Two notes of one step may have the same quote: neither was recorded when they were checked.
                let is_same = |known: &&Note| known.is_same(&note.evidence, note.aspect.as_ref());
                if let Some(id) = self.noted.iter().find(is_same).map(|known| known.evidence.id.clone()) {
                    self.word(&id, draft);
                    return NumberedResult::Noted(id);
                }
                self.remark(remarks);
                let number = u32::try_from(self.noted.len() + 1).unwrap_or(u32::MAX);
                let id = EvidenceId::new(self.task.id.clone(), number);
                note.evidence.id = id.clone();
                self.noted.push(note);
                return NumberedResult::Noted(id);
            }
            UnnumberedResult::Refused(reason) => (format!("refused: {reason}"), Vec::new()),
            UnnumberedResult::Failed(error) => {
                // The source failed, so trying the same action again is not a repetition.
                self.made.remove(&identity(draft));
                self.remark(vec![error.to_string()]);
                let said = format!("failed: {}", error.told());
                // Actions run in parallel, so it depends on timing which of them finds the source given up. That
                // failure is kept, whichever comes first. A tool that fails is not the source of the searches.
                let is_call = draft.tool == ToolDraft::Call;
                if error.is_of_source() && !is_call && !matches!(self.failure, Some(SourceError::GivenUp(_))) {
                    self.failure = Some(error);
                }
                (said, Vec::new())
            }
        };
        let (new, known): (Vec<_>, Vec<_>) = places.into_iter().partition(|(_, is_to_show)| *is_to_show);
        let [passages, known] = [new, known].map(|places| places.into_iter().map(|(place, _)| place).collect());
        NumberedResult::Told(ActionResult { call: call(draft), said, passages, known, is_lost_note })
    }

    /// Gives a note that is not worded yet the words of a draft that notes its quote again.
    fn word(&mut self, id: &EvidenceId, draft: &ActionDraft) {
        let text = worded(draft);
        let known = self.noted.iter_mut().find(|note| !note.is_worded && note.evidence.id == *id);
        if let Some(note) = known.filter(|_| !text.is_empty()) {
            note.text = text;
            note.is_worded = true;
        }
    }

    /// Records the result of a search. Returns it in words, and its passages, each with whether it has to be shown.
    fn take_found(&mut self, query: &str, mut found: Found) -> (String, Vec<(usize, bool)>) {
        found.passages.retain(|passage| is_hit(passage) || has_text(&passage.text));
        self.support = self.support.max(found.support);
        self.remark(found.notes);
        // Only the snippet of an unopened page is known, which says little about the page.
        let is_judged = !found.passages.iter().all(is_hit);
        let is_unlikely = is_judged && found.support == Support::None;
        let number = found.passages.len();
        if (number == 0 || is_unlikely) && self.in_vain.len() < MAX_IN_VAIN {
            self.in_vain.push(one_line(query).chars().take(MAX_CALL_CHARACTERS).collect());
        }
        // The judgement may be wrong, so the first few are still shown; only a few, since every later prompt repeats
        // them.
        let most = if is_unlikely { MAX_UNLIKELY } else { number };
        let known = self.shown.len();
        let passages = found.passages.into_iter().take(most);
        let places: Vec<_> = passages.map(|passage| self.place_of(passage, false)).collect();
        for (place, _) in &places {
            // A better search found it too, so it is likely after all.
            let shown = &mut self.shown[*place];
            shown.is_unlikely = is_unlikely && (*place >= known || shown.is_unlikely);
        }
        let mut said = match number {
            0 => "nothing found".to_owned(),
            _ if is_unlikely && number > most => {
                format!("{}, none of which seems relevant; the first {most} are shown", counted(number, "passage"))
            }
            _ if is_unlikely => format!("{}, none of which seems relevant", counted(number, "passage")),
            _ => counted(number, "passage"),
        };
        for unknown in found.unknown {
            said = format!("{said}; {unknown}");
        }
        (said, places)
    }

    /// Returns the index of a passage among those shown, adding it if it is new, and whether it has to be shown.
    pub(super) fn place_of(&mut self, passage: Passage, is_opened: bool) -> (usize, bool) {
        // A hit shows no outline and no links, so a passage is opened for them although its hit has all of its text.
        let has_below = is_opened && passage.snippet != passage.text;
        let is_known = |known: &Shown| {
            // Passages of one section open to the same text.
            let is_same = known.passage.id == passage.id || is_opened && known.is_opened;
            let is_same = is_same && known.passage.place == passage.place && known.passage.text == passage.text;
            // A page is read on from its start if a digest of it was shown.
            let is_digest = is_opened && known.is_opened && known.passage.snippet != passage.snippet;
            (known.is_opened || !has_below) && (is_same && !is_digest || known.has_shown(&passage))
        };
        if let Some(place) = self.shown.iter().position(is_known) {
            let known = &mut self.shown[place];
            // A section may be no longer than its hit, of which only the beginning was shown.
            let has_more = is_opened && !known.is_opened && known.cut_at().is_some() && !known.has_shown(&passage);
            known.is_opened |= has_more;
            // Another action of this step may find it, too.
            let was_left_out = std::mem::take(&mut known.is_left_out);
            return (place, was_left_out || has_more);
        }
        self.shown.push(Shown { passage, is_opened, is_unlikely: false, end: None, is_left_out: false });
        (self.shown.len() - 1, true)
    }

    fn remark(&mut self, remarks: Vec<String>) {
        for remark in remarks {
            if !self.remarks.contains(&remark) {
                self.remarks.push(remark);
            }
        }
    }
}

/// Returns the claim of a note in the words of the model; empty if it gave none.
fn worded(draft: &ActionDraft) -> String {
    one_line(draft.text.as_deref().unwrap_or_default()).chars().take(MAX_NOTE_CHARACTERS).collect()
}

/// Returns the words of a quote, without markup and the bars of tables, up to the last sentence that has room in a note.
pub(super) fn plain(evidence: &Evidence) -> String {
    let sentences = sentences_at(&evidence.source, &evidence.quote);
    let text = sentences.into_iter().map(|sentence| without_bars(&sentence.plain)).collect::<Vec<_>>().join(" ");
    let text = one_line(if text.trim().is_empty() { &evidence.quote } else { &text });
    let most = MAX_NOTE_CHARACTERS as u64;
    cut(&text, most, &|text: &str| text.chars().count() as u64).to_owned()
}

/// Returns the cells of a table row with dashes between them, and any other text as it is.
fn without_bars(text: &str) -> String {
    if !text.starts_with('|') && !text.contains(" | ") {
        return text.to_owned();
    }
    let cells = text.split('|').map(str::trim);
    // The line below a header has only dashes and colons.
    cells.filter(|cell| cell.contains(char::is_alphanumeric)).collect::<Vec<_>>().join(" — ")
}

/// Returns an action in words.
fn call(draft: &ActionDraft) -> String {
    let passage = draft.passage.as_deref().unwrap_or_default();
    let call = match draft.tool {
        ToolDraft::Search => format!("search for {}", draft.query.as_ref().map_or("", Said::as_str)),
        ToolDraft::Open => format!("open {passage}"),
        ToolDraft::Continue => format!("continue {passage}"),
        ToolDraft::Note => format!("note from {passage}"),
        ToolDraft::Call => {
            let CallDraft { tool, arguments } = draft.call.clone().unwrap_or_default();
            format!("call {tool} {}", arguments.as_str())
        }
    };
    call.chars().take(MAX_CALL_CHARACTERS).collect()
}

/// Returns a key that is equal for repeated actions: the tool and its arguments, ignoring case and punctuation except
/// in the arguments of a call.
fn identity(draft: &ActionDraft) -> String {
    let fields = match draft.tool {
        ToolDraft::Search => [draft.query.as_ref().map(Said::as_str), None, None],
        ToolDraft::Open | ToolDraft::Continue => [draft.passage.as_deref(), None, None],
        ToolDraft::Note => [draft.passage.as_deref(), draft.quote.as_deref(), draft.aspect.as_deref()],
        // Signs matter in arguments: 1 is not -1.
        ToolDraft::Call => return format!("{:?}", draft.call),
    };
    let words = |text: &str| {
        let text = text.to_lowercase();
        text.split(|letter: char| !letter.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let fields: Vec<_> = fields.into_iter().flatten().map(words).collect();
    format!("{:?} {}", draft.tool, fields.join(" | "))
}
