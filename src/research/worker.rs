//! A worker: a model searches, opens passages and takes notes; code decides which notes are evidence.
//!
//! A worker sees its question, its aspects, the conclusions of its dependencies and a slice of the global summary. Its
//! notes are kept however it stops, and its branch records the reason.

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::abridged::Abridged;
use super::action::{
    ActionDraft, ActionResult, CallDraft, FEWEST_PASSAGES, MAX_ACTIONS, Note, Notebook, PASSAGES_PER_STEP, Shown, plain,
};
use super::branch::{Branch, BranchStop, Reported};
use super::evidence::{Evidence, origins};
use super::extract::is_contents;
use super::memory::branch_text;
use super::node::Tool;
use super::prompt::{Template, ends_run, failure, fitted, room, shorten_longest, size};
use super::question::{Aspect, AspectId};
use super::skim::Answer;
use super::task::{Conclusion, Conversation, Task, TaskAspect};
use crate::base::line::one_line;
use crate::base::step::Step;
use crate::llm::call::{CallError, CallKey, Caller};
use crate::llm::message::{Prompt, Role};
use crate::llm::model::ModelError;
use crate::llm::structured::{StructuredError, structured};
use crate::source::{OfferedTool, Passage, Place, Source, SourceError, Support};

/// Repeated calls after which a worker is stopped.
const MAX_REPEATS: u32 = 3;

/// Number of hits kept for further reading. The report lists three, of documents that it does not cite.
const MAX_FURTHER: usize = 12;

/// One step, as a model says it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct StepDraft {
    /// What is known and what is missing.
    #[serde(default)]
    thought: String,
    /// What to do now.
    #[serde(default)]
    actions: Vec<ActionDraft>,
    /// Whether there is nothing more to do.
    #[serde(default)]
    done: bool,
    /// Ids of the aspects that the notes answer only in part or not at all, once it is done.
    #[serde(default, alias = "open")]
    left_open: Vec<String>,
}

/// One step of a worker that has tools to call.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct CallingDraft {
    #[serde(flatten)]
    step: StepDraft,
    /// Tools to call now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls: Vec<CallDraft>,
}

/// An action and its result, as shown in later steps.
#[derive(Clone, Debug)]
struct StepResult {
    /// 0 for units that were skimmed before the first step.
    step: u32,
    call: String,
    outcome: String,
    /// Ids of passages above that it found again.
    known: Vec<String>,
    passages: Vec<PromptPassage>,
}

#[derive(Clone, Debug)]
struct PromptPassage {
    /// Position among all passages that were shown.
    at: usize,
    id: String,
    place: String,
    /// The text with references to passages above it.
    text: PassageText,
    /// Ids of these passages.
    named: Vec<String>,
    /// Whether that text has more than references and headings.
    has_new_text: bool,
    /// The text without references.
    plain: PassageText,
}

#[derive(Clone, Debug)]
struct PassageText {
    text: String,
    /// Byte of the passage up to which it is shown.
    end: usize,
}

impl PromptPassage {
    /// Returns the text to show below the passages with the ids `above`, and adds its own id to them. Returns the ids
    /// to name in its place as an error.
    fn shown_below<'a>(&'a self, above: &mut HashSet<&'a str>) -> Result<&'a PassageText, &'a [String]> {
        if let Some(ids) = self.stand_ins(above) {
            return Err(ids);
        }
        let text = self.below(above);
        above.insert(self.id.as_str());
        Ok(text)
    }

    /// Returns the text below passages with the ids `above`. A passage that no longer has room cannot be referred to.
    fn below(&self, above: &HashSet<&str>) -> &PassageText {
        if self.names_only(above) { &self.text } else { &self.plain }
    }

    fn names_only(&self, above: &HashSet<&str>) -> bool {
        self.named.iter().all(|id| above.contains(id.as_str()))
    }

    /// Returns the ids of the passages above that have all of its text, if there are any: they are named in its place.
    fn stand_ins(&self, above: &HashSet<&str>) -> Option<&[String]> {
        match () {
            () if self.has_new_text => None,
            () if above.contains(self.id.as_str()) => Some(std::slice::from_ref(&self.id)),
            () => Some(self.named.as_slice()).filter(|_| self.names_only(above)),
        }
    }
}

/// A text and its id.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PromptEntry {
    pub(super) id: String,
    pub(super) question: String,
    pub(super) text: String,
}

/// The parts of a prompt that can be shortened.
struct WorkerParts {
    results: Vec<StepResult>,
    context: String,
    conclusions: Vec<PromptEntry>,
    notes: Vec<PromptEntry>,
    /// Tokens that are left to the worker once the prompt is sent.
    tokens_left: u64,
}

/// The state of a worker.
struct Worker<'a, Q: ?Sized> {
    caller: &'a dyn Caller,
    conversation: &'a Conversation<'a, Q>,
    task: &'a Task<'a, Q>,
    source: &'a dyn Source<Q>,
    notebook: Notebook<'a, Q>,
    results: Vec<StepResult>,
    spent_tokens: u64,
    /// Tokens of the largest step so far, sent and received.
    largest: u64,
}

/// Work on a node failed without a result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum WorkError {
    #[error(transparent)]
    Call(#[from] CallError),
    /// Every request to the source failed.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// The result of a worker: checked evidence, and notes on how it was found.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// Evidence, in the order it was noted.
    pub(super) notes: Vec<Note>,
    /// Hits that it neither opened nor noted anything of, best first.
    pub(super) further: Vec<Passage>,
    /// Support of the best search for an answer.
    pub(crate) support: Support,
    /// Notes for the report.
    pub(super) remarks: Vec<String>,
    /// Claims of a background job that no fetched page confirms.
    pub(super) reported: Vec<Reported>,
    /// See [`Branch::saw_internal`].
    pub(super) saw_internal: bool,
    /// Aspects that the worker called open, although there may be notes on them.
    pub(super) open: Vec<AspectId>,
    /// Queries that seem to have found nothing relevant.
    pub(super) in_vain: Vec<String>,
    /// The reason it stopped.
    pub(super) stop: BranchStop,
    /// Questions that a background job which was cut short left open.
    pub(super) unfinished: Vec<String>,
}

impl Gathered {
    fn of<Q: ?Sized + AsRef<str>>(
        Conversation { task, answers, .. }: &Conversation<'_, Q>,
        notebook: Notebook<'_, Q>,
        ending: Ending,
    ) -> Self {
        let Ending { stop, remark, open } = ending;
        let question = task.question.as_ref();
        let mut remarks = notebook.remarks;
        remarks.extend(remark.map(|reason| format!("work on `{question}` stopped early: {reason}")));
        let further = further(&notebook.shown, &notebook.noted);
        let (notes, support, in_vain) = (notebook.noted, notebook.support, notebook.in_vain);
        let mut gathered = Self { notes, further, support, remarks, open, in_vain, stop, ..Self::nothing() };
        let is_served = |aspect: &TaskAspect<'_, Q>| gathered.serves(aspect.id);
        // A model has read the best units, which tells more than the scores of the search.
        gathered.support = match answers.as_deref() {
            None => support,
            Some([]) if task.aspects.is_empty() || !task.aspects.iter().all(is_served) => support.min(Support::Weak),
            Some(_) => Support::Strong,
        };
        gathered
    }

    /// Returns the result of a node that looked nothing up.
    pub(super) fn nothing() -> Self {
        Self {
            notes: Vec::new(),
            further: Vec::new(),
            support: Support::None,
            remarks: Vec::new(),
            reported: Vec::new(),
            saw_internal: false,
            open: Vec::new(),
            in_vain: Vec::new(),
            stop: BranchStop::Done,
            unfinished: Vec::new(),
        }
    }

    /// Recovers the findings of a branch, to compress them together with others.
    pub(crate) fn from_branch(branch: Branch) -> Self {
        let Branch { report, evidence, further, support, notes, reported, saw_internal } = branch;
        let note = |evidence: Evidence| {
            let finding = report.findings.iter().find(|finding| finding.evidence.contains(&evidence.id));
            let text = finding.map_or_else(|| plain(&evidence), |finding| finding.text.clone());
            let aspect = finding.and_then(|finding| finding.aspect.clone());
            Note { text, is_worded: finding.is_some(), aspect, evidence }
        };
        let found = evidence.into_iter().map(note).collect();
        let stop = report.stop_reason;
        let unfinished = if stop == BranchStop::BudgetExceeded { report.open_questions } else { Vec::new() };
        let rest = Self::nothing();
        Self { notes: found, further, support, remarks: notes, reported, saw_internal, stop, unfinished, ..rest }
    }

    /// Adds the findings from outside, numbering their evidence after the existing evidence.
    #[must_use]
    pub(crate) fn then(mut self, outside: Self) -> Self {
        let from = self.notes.len();
        self.notes.extend(outside.notes.into_iter().map(|mut note| {
            note.evidence.id = note.evidence.id.after(from);
            note
        }));
        self.further.extend(outside.further);
        self.support = self.support.max(outside.support);
        self.remarks.extend(outside.remarks);
        self.reported.extend(outside.reported);
        self.in_vain.extend(outside.in_vain);
        self.saw_internal |= outside.saw_internal;
        self.unfinished.extend(outside.unfinished);
        // A half that was cut short explains the gaps; otherwise the later half tells how the work ended.
        let cut_short = [self.stop, outside.stop].into_iter();
        let mut cut_short =
            cut_short.filter(|stop| matches!(stop, BranchStop::BudgetExceeded | BranchStop::ModelFailed));
        self.stop = cut_short.next().unwrap_or(outside.stop);
        self
    }

    /// Adds a note for the report.
    pub(crate) fn remark(&mut self, remark: String) {
        self.remarks.push(remark);
    }

    /// Assigns all evidence to one aspect.
    #[must_use]
    pub(crate) fn serving(mut self, aspect: Option<&AspectId>) -> Self {
        for note in &mut self.notes {
            note.aspect = aspect.cloned();
        }
        self
    }

    /// Returns whether there is no evidence.
    pub(crate) fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// Returns the aspects without evidence, and those that the worker called open.
    pub(crate) fn open_aspects(&self, aspects: &[Aspect]) -> Vec<AspectId> {
        let is_open = |aspect: &&Aspect| !self.serves(&aspect.id) || self.open.contains(&aspect.id);
        aspects.iter().filter(is_open).map(|aspect| aspect.id.clone()).collect()
    }

    fn serves(&self, aspect: &AspectId) -> bool {
        self.notes.iter().any(|note| note.aspect.as_ref() == Some(aspect))
    }
}

/// Returns the best hits of documents without a note, best first. The worker has read most of them, but the user has
/// not. Nothing of a section that was opened in vain is among them.
fn further(shown: &[Shown], noted: &[Note]) -> Vec<Passage> {
    let is_noted = |place: &Place| noted.iter().any(|note| note.evidence.source.is_same_document(place));
    let is_opened = |place: &Place| shown.iter().any(|shown| shown.is_opened && shown.passage.place.overlaps(place));
    let likely = shown.iter().filter(|shown| !shown.is_unlikely).map(|shown| &shown.passage);
    let is_left =
        |passage: &&Passage| !is_contents(&passage.text) && !is_noted(&passage.place) && !is_opened(&passage.place);
    let mut further: Vec<_> = likely.filter(is_left).cloned().collect();
    further.sort_by(|a, b| b.score.total_cmp(&a.score));
    further.truncate(MAX_FURTHER);
    further
}

/// The reason a worker stopped, and a note on it for the report.
#[derive(Debug)]
struct Ending {
    stop: BranchStop,
    remark: Option<String>,
    open: Vec<AspectId>,
}

impl Ending {
    fn of(stop: BranchStop) -> Self {
        Self { stop, remark: None, open: Vec::new() }
    }
}

/// Works on a node until it is done or reaches a limit.
///
/// # Errors
///
/// Returns an error if the run must stop, or if the model fails or a limit is reached before the first note; later
/// failures keep the notes. Also returns an error if every request to the source failed, since "nothing found" would
/// then describe a source that was never searched.
pub(crate) async fn gather<Q: ?Sized + AsRef<str> + Send + Sync>(
    caller: &dyn Caller,
    conversation: &Conversation<'_, Q>,
) -> Result<Gathered, WorkError> {
    let Conversation { task, source, .. } = *conversation;
    let (notebook, results) = (Notebook::new(conversation), Vec::new());
    let mut worker = Worker { caller, conversation, task, source, notebook, results, spent_tokens: 0, largest: 0 };
    let ending = worker.gather().await?;
    // With conclusions of its dependencies, a worker has a result without its source.
    if let (Some(error), true) = (worker.notebook.dead_source(), task.conclusions.is_empty()) {
        return Err(WorkError::Source(error.clone()));
    }
    Ok(Gathered::of(conversation, worker.notebook, ending))
}

impl<Q: ?Sized + AsRef<str> + Send + Sync> Worker<'_, Q> {
    /// Takes steps until it must stop.
    async fn gather(&mut self) -> Result<Ending, CallError> {
        let conversation = self.conversation;
        if let Some(answers) = conversation.answers.as_ref().filter(|answers| !answers.is_empty()) {
            let skimmed = self.skimmed(answers).await;
            self.results.push(skimmed);
        }
        for step in 1..=self.task.limits.max_steps {
            if let Some(ending) = self.step(step).await? {
                return Ok(ending);
            }
        }
        Ok(Ending::of(BranchStop::StepsExceeded))
    }

    /// Takes a step. Returns the ending if it was the last one.
    #[tracing::instrument(level = "debug", name = "step", skip_all, fields(name = "work", number = step))]
    async fn step(&mut self, step: u32) -> Result<Option<Ending>, CallError> {
        let prompt = self.prompt(step);
        let sent = size(self.caller, &prompt);
        if self.spent_tokens + sent > self.task.limits.max_tokens {
            return Ok(Some(Ending::of(BranchStop::TokensExceeded)));
        }
        let draft = match self.ask(step, prompt).await.map_err(failure) {
            Ok(draft) => draft,
            Err(error) => return self.broken_off(error).map(Some),
        };
        let taken = sent + self.received(&draft);
        let CallingDraft { step: mut draft, calls } = draft;
        draft.actions.extend(calls.into_iter().map(ActionDraft::from));
        self.spent_tokens += taken;
        self.largest = self.largest.max(taken);
        let outcomes = match self.notebook.act(&draft.actions).await {
            Ok(outcomes) => outcomes,
            Err(error) => return self.broken_off(error).map(Some),
        };
        let has_lost_note = outcomes.iter().any(|outcome| outcome.is_lost_note);
        for outcome in outcomes {
            let result = self.result(step, outcome);
            // Only appended: a prompt that begins like the one before is read from the cache of the provider.
            self.results.push(result);
        }
        // An idle step counts as a repetition, or a model that does nothing would use up all its steps.
        if draft.actions.is_empty() && !draft.done {
            self.notebook.repeats += 1;
        }
        Ok(match () {
            () if self.notebook.repeats >= MAX_REPEATS => Some(Ending::of(BranchStop::Repeated)),
            // The model may correct an invalid note.
            () if draft.done && !has_lost_note => {
                let open = draft.left_open.iter().map(|id| AspectId::named(id)).collect();
                Some(Ending { open, ..Ending::of(BranchStop::Done) })
            }
            () => None,
        })
    }

    /// Requests a step. If the endpoint rejects the prompt as too long, tries once more with a prompt that is a quarter
    /// shorter, without the older results.
    async fn ask(&mut self, step: u32, prompt: Prompt) -> Result<CallingDraft, StructuredError> {
        let key = self.key(step);
        match self.ask_once(&key, &prompt).await {
            Err(StructuredError::Call(CallError::Model(ModelError::ContextTooLong { .. }))) => {
                let most = size(self.caller, &prompt) * 3 / 4;
                let shorter = loop {
                    let older = self.results.len().div_ceil(2);
                    // For good, since later prompts would be too long as well.
                    self.results.drain(..older);
                    let shorter = self.prompt(step);
                    // Passages that named those of the older half are now shown whole.
                    if self.results.is_empty() || size(self.caller, &shorter) <= most {
                        break shorter;
                    }
                };
                self.ask_once(&key.then(Step::Shorter), &shorter).await
            }
            asked => asked,
        }
    }

    /// Requests a step. Only with tools does its schema have calls.
    async fn ask_once(&self, key: &CallKey, prompt: &Prompt) -> Result<CallingDraft, StructuredError> {
        if self.source.tools().is_empty() {
            let step = structured(self.caller, key, prompt, "step").await?;
            return Ok(CallingDraft { step, calls: Vec::new() });
        }
        structured(self.caller, key, prompt, "step").await
    }

    /// Converts a failed call into an ending that keeps the notes. Returns the error if there are none. At a limit, quotes
    /// of the skim do not count: they are on record, and the node can wait for a raised limit.
    fn broken_off(&self, error: CallError) -> Result<Ending, CallError> {
        match error {
            CallError::Limit(_) if self.notebook.has_own_notes => Ok(Ending::of(BranchStop::BudgetExceeded)),
            error @ CallError::Limit(_) => Err(error),
            error if ends_run(&error) || self.notebook.noted.is_empty() => Err(error),
            error => Ok(Ending { remark: Some(error.to_string()), ..Ending::of(BranchStop::ModelFailed) }),
        }
    }

    fn key(&self, step: u32) -> CallKey {
        self.task.key.then(Step::Work).at(step)
    }

    fn received(&self, draft: &CallingDraft) -> u64 {
        self.caller.count(Role::Worker, &serde_json::to_string(draft).unwrap_or_default())
    }

    /// Returns the prompt of a step, and marks the passages it had no room for and where it cut the others.
    fn prompt(&mut self, step: u32) -> Prompt {
        let room = if self.source.tools().is_empty() {
            room::<StepDraft>(self.caller, Role::Worker)
        } else {
            room::<CallingDraft>(self.caller, Role::Worker)
        };
        let mut most = room;
        while size(self.caller, &self.render(step, &self.view())) > most && leave_out_oldest(&mut self.results) {
            // For good, and more than this prompt needs, or every later prompt would begin otherwise than the one before.
            most = room / 4 * 3;
        }
        let mut view = self.view();
        let prompt = fitted(self.caller, room, &mut view, |view| self.render(step, view), |view| self.shrink(view));
        // The prompt's own tokens are known only now. A smaller number does not make it longer.
        view.tokens_left = view.tokens_left.saturating_sub(size(self.caller, &prompt));
        let prompt = self.render(step, &view);
        // A passage without room is shown again when a search finds it again.
        self.notebook.shown.iter_mut().for_each(|shown| shown.is_left_out = true);
        let mut above = HashSet::new();
        for passage in view.results.iter().flat_map(|result| &result.passages) {
            if let Ok(text) = passage.shown_below(&mut above) {
                let shown = &mut self.notebook.shown[passage.at];
                (shown.is_left_out, shown.end) = (false, Some(text.end));
            }
        }
        prompt
    }

    /// Returns a copy of the parts of a prompt, to be shortened for one step.
    fn view(&self) -> WorkerParts {
        WorkerParts {
            results: self.results.clone(),
            context: self.task.context.as_ref().to_owned(),
            conclusions: conclusions(&self.task.plain()),
            notes: noted(&self.notebook.noted),
            tokens_left: self.task.limits.max_tokens.saturating_sub(self.spent_tokens),
        }
    }

    fn render(&self, step: u32, view: &WorkerParts) -> Prompt {
        let max_steps = self.task.limits.max_steps;
        let task = self.task.plain();
        let may = |tool| task.tools.contains(&tool);
        let context = json!({
            "scope": self.source.scope(),
            "about": self.source.about().join("\n"),
            "may_search": may(Tool::Search),
            "may_open": may(Tool::Open),
            "has_links": self.source.has_links(),
            "tools": self.tools(),
            "question": task.question,
            "aspects": task.aspects,
            "conclusions": view.conclusions,
            "context": view.context,
            "notes": view.notes.iter().map(|note| format!("{}: {}", note.id, note.text)).collect::<Vec<_>>().join("\n"),
            "results": shown(&view.results),
            "step": step,
            "max_steps": max_steps,
            "max_actions": MAX_ACTIONS,
            "per_step": PASSAGES_PER_STEP,
            "fewest": FEWEST_PASSAGES,
            "limits": self.task.limits,
            "goes_on_outside": self.conversation.goes_on_outside,
            "tokens_left": rounded_down(view.tokens_left),
            "wrap_up": self.wraps_up(step),
        });
        Template::Work.prompt(self.caller, context)
    }

    /// Returns the tools as the prompt shows them.
    fn tools(&self) -> Vec<PromptEntry> {
        let shown = |tool: &OfferedTool| PromptEntry {
            id: tool.name.clone(),
            question: tool.description.clone(),
            text: tool.schema.to_string(),
        };
        self.source.tools().iter().map(shown).collect()
    }

    /// Returns why this step has to be the last one, if it has to.
    fn wraps_up(&self, step: u32) -> Option<&'static str> {
        // After this step there must be room for another one, which is as large and has new results.
        let next = 2 * self.largest + self.task.limits.open_tokens;
        let is_short = self.largest > 0 && self.spent_tokens + next > self.task.limits.max_tokens;
        // A worker that has seen nothing has nothing to note yet.
        let is_tight = !self.results.is_empty() && self.caller.is_tight(&self.key(step));
        match () {
            () if step >= self.task.limits.max_steps => Some("this is the last step"),
            () if is_short => Some("the tokens that are left barely cover another step"),
            () if is_tight => Some("the whole research nears its limit"),
            () => None,
        }
    }

    /// Shortens a prompt that has no passages of earlier steps any more: first the summary, then the passages of the last
    /// step and whole results, and last the conclusions and notes. Ids of omitted passages stay valid.
    fn shrink(&self, view: &mut WorkerParts) -> bool {
        let count = |text: &str| self.caller.count(Role::Worker, text);
        if shorten_longest(std::iter::once(&mut view.context), &count) {
            return true;
        }
        if let Some(longest) = view.results.iter_mut().max_by_key(|result| result.passages.len())
            && !longest.passages.is_empty()
        {
            leave_out(longest, longest.passages.len() - 1);
            return true;
        }
        if !view.results.is_empty() {
            view.results.remove(0);
            return true;
        }
        shorten_longest(view.conclusions.iter_mut().map(|conclusion| &mut conclusion.text), &count)
            || shorten_longest(view.notes.iter_mut().map(|note| &mut note.text), &count)
    }

    /// Returns the result of an action as later prompts show it. If passages above have all of a passage's text, later
    /// prompts name them in its place, for as long as they are shown.
    fn result(&mut self, step: u32, outcome: ActionResult) -> StepResult {
        let ActionResult { call, said, passages, known, .. } = outcome;
        // An earlier action of this step may have found it, too, and left it out because others have its text.
        let (named, known): (Vec<_>, Vec<_>) = known.into_iter().partition(|at| self.notebook.shown[*at].is_left_out);
        let mut shown = Vec::new();
        for at in named.into_iter().chain(passages) {
            let passage = self.passage(at);
            self.notebook.shown[at].is_left_out = !passage.has_new_text;
            shown.push(passage);
        }
        let known = known.into_iter().map(|at| format!("p{}", at + 1)).collect();
        StepResult { step, call, outcome: said, known, passages: shown }
    }

    /// Shows the units that the skim found to answer, and files their quotes as notes. The quote of an answer that is left
    /// to the worker is repeated only if its unit is cut before it.
    async fn skimmed(&mut self, answers: &[&Answer]) -> StepResult {
        let (mut placed, mut passages) = (Vec::new(), Vec::<PromptPassage>::new());
        for answer in answers {
            let (at, _) = self.notebook.place_of(answer.unit.clone(), false);
            if passages.iter().all(|known| known.at != at) {
                // The outcome says of each what it seems to answer.
                passages.push(PromptPassage { has_new_text: true, ..self.passage(at) });
            }
            placed.push((at, *answer));
        }
        let filed = self.notebook.file(&placed).await;
        let (mut noted, mut left) = (Vec::new(), Vec::new());
        for ((at, Answer { aspect, quote, .. }), id) in placed.iter().zip(filed) {
            let passage = format!("p{}", at + 1);
            if let Some(id) = id {
                let entry = format!("{id} from {passage} for {aspect}");
                // Of two answers, one may quote the sentence that the other quotes a part of.
                if !noted.contains(&entry) {
                    noted.push(entry);
                }
                continue;
            }
            let is_shown = self.notebook.shown[*at].seen().contains(quote.as_str());
            let quote = if is_shown { String::new() } else { format!(": {}", one_line(quote)) };
            left.push(format!("{passage} seems to answer {aspect}{quote}"));
        }
        if !noted.is_empty() {
            left.insert(0, format!("noted before: {}", noted.join(", ")));
        }
        let call = "skimmed for the whole task".to_owned();
        StepResult { step: 0, call, outcome: left.join("; "), known: Vec::new(), passages }
    }

    /// Returns a passage as later prompts show it, without what they show already. If it is too long, it is cut, with a
    /// note on how to read on.
    fn passage(&mut self, at: usize) -> PromptPassage {
        let (caller, limits) = (self.caller, self.task.limits);
        let count = |text: &str| caller.count(Role::Worker, text);
        let id = format!("p{}", at + 1);
        let shown = &self.notebook.shown[at];
        let Shown { passage, is_opened, .. } = shown;
        // What stands below the text of an opened passage is shown even if the text is cut.
        let below = shown.below();
        // A hit is shown as its passage; of an opened page there may be a digest.
        let whole = if *is_opened && below.is_empty() { &passage.snippet } else { &passage.text };
        let most = if *is_opened { limits.open_tokens } else { limits.snippet_tokens };
        let is_digest = *whole != passage.text;
        let form = |seen: &[(String, &str)], below: &str| {
            let Abridged { text, end, named, has_new_text } = Abridged::of(whole, seen, most, &count);
            // A passage that is shown again, after it was left out, refers to itself.
            let has_new_text = has_new_text || named.is_empty() || named.contains(&id);
            let has_new_text = has_new_text || !below.is_empty() || end < whole.trim_end().len();
            let note = match (end < whole.trim_end().len(), is_opened) {
                (false, _) => String::new(),
                (true, false) => format!("\n… (cut here; `open` with {id} reads the section)"),
                (true, true) => format!("\n… (cut here; `continue` with {id} reads on)"),
            };
            // A digest replaces the text of the page, so reading on begins at its start.
            let end = if is_digest && !passage.text.starts_with(&whole[..end]) { 0 } else { end };
            (PassageText { text: format!("{text}{note}{below}"), end }, named, has_new_text)
        };
        let seen = if is_digest { Vec::new() } else { self.notebook.seen_beside(at) };
        // Every section of a document has the same outline and links below it.
        let same_below = self.notebook.with_same_below(at);
        let (text, mut named, has_new_text) = form(&seen, if same_below.is_some() { "" } else { below });
        let (plain, ..) = form(&[], below);
        named.extend(same_below);
        let place = passage.place.provenance();
        self.notebook.shown[at].end = Some(text.end);
        PromptPassage { at, id, place, text, named, has_new_text, plain }
    }
}

/// Rounds a number of tokens down to thousands.
fn rounded_down(tokens: u64) -> u64 {
    if tokens < 1_000 { tokens } else { tokens / 1_000 * 1_000 }
}

/// Returns results as the template shows them.
fn shown(results: &[StepResult]) -> Vec<Value> {
    let mut above = HashSet::new();
    let mut shown = Vec::new();
    for StepResult { step, call, outcome, known, passages } in results {
        let (mut texts, mut known) = (Vec::new(), known.clone());
        for passage in passages {
            match passage.shown_below(&mut above) {
                Ok(text) => texts.push(json!({"id": passage.id, "place": passage.place, "text": text.text})),
                Err(ids) => known.extend_from_slice(ids),
            }
        }
        let mut seen = HashSet::new();
        known.retain(|id| seen.insert(id.clone()));
        let outcome =
            if known.is_empty() { outcome.clone() } else { format!("{outcome} (shown above: {})", known.join(", ")) };
        shown.push(json!({"step": step, "call": call, "outcome": outcome, "passages": texts}));
    }
    shown
}

/// Omits the passages of the oldest step that has any, except the last step. Returns `false` if there is none.
fn leave_out_oldest(results: &mut [StepResult]) -> bool {
    let last = results.last().map_or(0, |result| result.step);
    let oldest = results.iter_mut().find(|result| result.step < last && !result.passages.is_empty());
    oldest.map(|oldest| leave_out(oldest, 0)).is_some()
}

/// Omits the passages of a result from position `place` on, and adds a line that says so.
fn leave_out(result: &mut StepResult, place: usize) {
    let ids: Vec<_> = result.passages.drain(place..).map(|passage| passage.id).collect();
    result.outcome = format!("{} (left out here for length: {})", result.outcome, ids.join(", "));
}

/// Returns the conclusions of the dependencies, each with the documents its evidence comes from.
pub(super) fn conclusions(task: &Task<'_>) -> Vec<PromptEntry> {
    let named = |conclusion: &Conclusion<'_>| PromptEntry {
        id: conclusion.id().to_string(),
        question: conclusion.question().to_owned(),
        text: std::iter::once(branch_text(&conclusion.branch().report))
            .chain(origins(&conclusion.branch().evidence))
            .collect::<Vec<_>>()
            .join("\n"),
    };
    task.conclusions.iter().map(named).collect()
}

/// Returns notes as the prompt repeats them, below the lead-ins of their lists. Their quotes are in the results above.
fn noted(notes: &[Note]) -> Vec<PromptEntry> {
    let named = |note: &Note| {
        let lead_ins = note.evidence.source.lead_ins().iter().map(String::as_str);
        let text = lead_ins.chain([note.claim().as_str()]).collect::<Vec<_>>().join(" ");
        PromptEntry { id: note.evidence.id.to_string(), question: String::new(), text }
    };
    notes.iter().map(named).collect()
}
