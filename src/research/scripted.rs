//! Test doubles: a [`Caller`] and a [`Source`] that give scripted answers and record what they were asked.

use std::collections::VecDeque;
use std::sync::Mutex;

use futures::future::BoxFuture;
use serde_json::Value;

use super::branch::{Branch, BranchReport, BranchStop, Finding};
use super::evidence::{Evidence, EvidenceId};
use super::node::{Node, NodeId, NodeStatus, Tree};
use super::question::{Aspect, AspectId, Brief, Mode};
use crate::base::id::ContentHash;
use crate::llm::call::{CallError, CallKey, Caller, Limit};
use crate::llm::message::{Prompt, Reply, Role};
use crate::source::{Documents, Found, Label, Passage, Place, Source, SourceError, SourceFile, Support};

type ReplyFn = Box<dyn Fn(&CallKey, &Prompt) -> Result<String, CallError> + Send + Sync>;

/// A caller whose replies come from a closure.
pub(crate) struct Scripted {
    answer: ReplyFn,
    asked: Mutex<Vec<(CallKey, Prompt)>>,
    fails: Option<(usize, CallError)>,
    cuts: Option<usize>,
    input_limit: u64,
    output_limit: u32,
    is_tight: bool,
    pays_for: usize,
}

impl Scripted {
    /// Replies with the result of `answer`.
    pub(crate) fn new(answer: impl Fn(&CallKey, &Prompt) -> Result<String, CallError> + Send + Sync + 'static) -> Self {
        Self {
            answer: Box::new(answer),
            asked: Mutex::default(),
            fails: None,
            cuts: None,
            input_limit: 30_000,
            output_limit: 1_000,
            is_tight: false,
            pays_for: usize::MAX,
        }
    }

    /// Replies to every call with `value`.
    pub(crate) fn replying(value: Value) -> Self {
        Self::new(move |_, _| Ok(value.to_string()))
    }

    /// Replies with the value listed for a key, also to its repairs. A call with an unlisted key fails.
    pub(crate) fn by_key(script: Vec<(impl AsRef<str> + Send + Sync + 'static, Value)>) -> Self {
        Self::new(move |key, _| {
            let rungs = ["", "/repair", "/small"];
            let is_meant = |known: &str| rungs.iter().any(|rung| key.as_str() == format!("{known}{rung}"));
            match script.iter().find(|(known, _)| is_meant(known.as_ref())) {
                Some((_, Value::String(text))) => Ok(text.clone()),
                Some((_, value)) => Ok(value.to_string()),
                None => Err(broken(&format!("no reply to `{key}`"))),
            }
        })
    }

    /// Replies with each of `replies` in turn. Calls after the last are refused.
    pub(crate) fn in_turn(replies: &[&str]) -> Self {
        let replies = Mutex::new(replies.iter().map(ToString::to_string).collect::<VecDeque<_>>());
        Self::new(move |_, _| replies.lock().unwrap().pop_front().ok_or(CallError::Limit(Limit::Tokens)))
    }

    pub(crate) fn with_input_limit(mut self, tokens: u64) -> Self {
        self.input_limit = tokens;
        self
    }

    pub(crate) fn with_output_limit(mut self, tokens: u32) -> Self {
        self.output_limit = tokens;
        self
    }

    pub(crate) fn tight(mut self) -> Self {
        self.is_tight = true;
        self
    }

    /// Limits the budget to `number` prompts.
    pub(crate) fn paying_for(mut self, number: usize) -> Self {
        self.pays_for = number;
        self
    }

    /// Fails call `number`, counted from 1, and every later one.
    pub(crate) fn failing_at(mut self, number: usize, error: CallError) -> Self {
        self.fails = Some((number, error));
        self
    }

    /// Marks reply `number`, counted from 1, as cut off.
    pub(crate) fn cutting_off(mut self, number: usize) -> Self {
        self.cuts = Some(number);
        self
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|(key, _)| key.to_string()).collect()
    }

    pub(crate) fn prompts(&self) -> Vec<Prompt> {
        self.asked.lock().unwrap().iter().map(|(_, prompt)| prompt.clone()).collect()
    }

    /// Returns the user message of each prompt.
    pub(crate) fn tasks(&self) -> Vec<String> {
        self.prompts().into_iter().map(|prompt| prompt.messages[1].text.clone()).collect()
    }

    /// Returns the tokens of each prompt, including its schema.
    pub(crate) fn sizes(&self) -> Vec<u64> {
        let form = |prompt: &Prompt| prompt.schema.as_ref().map_or(0, |form| tokens(&form.schema.to_string()));
        self.prompts().iter().map(|prompt| super::prompt::size(self, prompt) + form(prompt)).collect()
    }
}

impl Caller for Scripted {
    fn call<'a>(&'a self, key: &'a CallKey, prompt: &'a Prompt) -> BoxFuture<'a, Result<Reply, CallError>> {
        let number = {
            let mut asked = self.asked.lock().unwrap();
            asked.push((key.clone(), prompt.clone()));
            asked.len()
        };
        let reply = match &self.fails {
            Some((at, error)) if number >= *at => Err(error.clone()),
            _ => (self.answer)(key, prompt),
        };
        let cut_off = self.cuts == Some(number);
        let reply = reply.map(|text| Reply { text, usage: None, cut_off, raw: Value::Null });
        Box::pin(std::future::ready(reply))
    }

    fn count(&self, _: Role, text: &str) -> u64 {
        tokens(text)
    }

    fn input_limit(&self, _: Role) -> u64 {
        self.input_limit
    }

    fn output_limit(&self, _: Role) -> u32 {
        self.output_limit
    }

    fn is_tight(&self, _: &CallKey) -> bool {
        self.is_tight
    }

    fn can_pay(&self, _: &CallKey, _: Role, prompts: &[u64]) -> bool {
        prompts.len() <= self.pays_for
    }
}

/// Counts 1.3 tokens per word.
pub(crate) fn tokens(text: &str) -> u64 {
    (text.split_whitespace().count() as u64 * 13).div_ceil(10)
}

/// Returns a permanent model failure.
pub(crate) fn broken(reason: &str) -> CallError {
    CallError::Model(crate::llm::model::ModelError::Permanent { reason: reason.to_owned() })
}

/// A source of a few files. Each paragraph is a passage that any of its words finds.
pub(crate) struct ScriptedSource {
    files: Vec<(&'static str, String)>,
    label: Label,
    fails: bool,
    /// Overrides the support of a search, and whether a reranker judged it.
    judged: Option<Found>,
    changed: bool,
    is_out_of_time: bool,
    /// Whether a paragraph is opened with what follows it, and not with the whole file.
    reads_on: bool,
    /// Text below that of an opened file.
    below: &'static str,
    /// Text in the place of that of an opened file, if it is not empty.
    digest: &'static str,
    pub(crate) queries: Mutex<Vec<String>>,
}

impl ScriptedSource {
    pub(crate) fn of(files: &[(&'static str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| (*path, (*text).to_owned())).collect();
        Self {
            files,
            label: Label::Internal,
            fails: false,
            judged: None,
            changed: false,
            is_out_of_time: false,
            reads_on: false,
            below: "",
            digest: "",
            queries: Mutex::default(),
        }
    }

    pub(crate) fn failing(mut self) -> Self {
        self.fails = true;
        self
    }

    /// Makes every search return this judgement.
    pub(crate) fn judging(mut self, judged: Found) -> Self {
        self.judged = Some(judged);
        self
    }

    /// Makes every file differ from its indexed text.
    pub(crate) fn changed(mut self) -> Self {
        self.changed = true;
        self
    }

    /// Makes opening a file fail because the time is up.
    pub(crate) fn out_of_time(mut self) -> Self {
        self.is_out_of_time = true;
        self
    }

    /// Shows links below opened files.
    pub(crate) fn linking(mut self, below: &'static str) -> Self {
        self.below = below;
        self
    }

    /// Shows a digest in the place of an opened file.
    pub(crate) fn digesting(mut self, digest: &'static str) -> Self {
        self.digest = digest;
        self
    }

    /// Opens a paragraph with what follows it.
    pub(crate) fn reading_on(mut self) -> Self {
        self.reads_on = true;
        self
    }

    fn passages(&self) -> Vec<Passage> {
        let mut passages = Vec::new();
        for (path, text) in &self.files {
            let mut line = 1;
            for (number, paragraph) in text.split("\n\n").enumerate() {
                let lines = u32::try_from(paragraph.lines().count()).unwrap();
                passages.push(self.passage(path, &format!("{path}#{number}"), paragraph, line, line + lines - 1));
                line += lines + 1;
            }
        }
        passages
    }

    pub(crate) fn passage(&self, path: &str, id: &str, text: &str, line_start: u32, line_end: u32) -> Passage {
        Passage {
            id: id.to_owned(),
            place: Place::Kb {
                collection: "kb".into(),
                path: path.to_owned(),
                title: path.trim_end_matches(".md").to_owned(),
                heading_path: Vec::new(),
                line_start,
                line_end,
                content_hash: ContentHash::of(b"x"),
                date: None,
            },
            label: self.label,
            text: text.to_owned(),
            snippet: text.to_owned(),
            score: 0.8,
        }
    }
}

impl Documents for ScriptedSource {
    fn open<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Passage, SourceError>> {
        if self.is_out_of_time {
            return Box::pin(std::future::ready(Err(SourceError::Stopped(CallError::Limit(Limit::Time)))));
        }
        let path = id.split('#').next().unwrap_or(id);
        let file = self.files.iter().find(|(known, _)| *known == path);
        let opened = file.map(|(_, text)| {
            let last = u32::try_from(text.lines().count()).unwrap();
            let (start, first) = match self.passages().into_iter().find(|known| self.reads_on && known.id == id) {
                Some(Passage { text: paragraph, place: Place::Kb { line_start, .. }, .. }) => {
                    (text.find(&paragraph).unwrap(), line_start)
                }
                _ => (0, 1),
            };
            let passage = self.passage(path, id, &text[start..], first, last);
            let shown = if self.digest.is_empty() { passage.text.as_str() } else { self.digest };
            Passage { snippet: format!("{shown}{}", self.below), ..passage }
        });
        Box::pin(std::future::ready(opened.ok_or_else(|| SourceError::NoSuchPassage { id: id.to_owned() })))
    }

    fn read<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, SourceFile> {
        let Place::Kb { path, .. } = place else { return Box::pin(std::future::ready(SourceFile::Gone)) };
        let text = self.files.iter().find(|(known, _)| known == path).map(|(_, text)| text.clone());
        let file = match text {
            _ if self.changed => SourceFile::AsIndexed("Something else stands here now.".into()),
            Some(text) => SourceFile::AsIndexed(text),
            None => SourceFile::Gone,
        };
        Box::pin(std::future::ready(file))
    }
}

impl Source for ScriptedSource {
    fn name(&self) -> &'static str {
        "kb"
    }

    fn scope(&self) -> String {
        format!("{} files of kb", self.files.len())
    }

    fn version(&self) -> String {
        "1".into()
    }

    fn has_links(&self) -> bool {
        !self.below.is_empty()
    }

    fn search<'a>(&'a self, query: &'a str, limit: usize) -> BoxFuture<'a, Result<Found, SourceError>> {
        self.queries.lock().unwrap().push(query.to_owned());
        let words: Vec<_> = query.split_whitespace().map(str::to_lowercase).collect();
        let mut passages = self.passages();
        passages.retain(|passage| words.iter().any(|word| passage.text.to_lowercase().contains(word.as_str())));
        passages.truncate(limit);
        let support = if passages.is_empty() { Support::None } else { Support::Strong };
        let judged = self.judged.clone().unwrap_or(Found { support, ..Found::default() });
        let found = Found { passages, ..judged };
        let failed = SourceError::Failed { name: "kb".into(), reason: "disk is gone".into() };
        Box::pin(std::future::ready(if self.fails { Err(failed) } else { Ok(found) }))
    }
}

pub(crate) fn brief(question: &str, aspects: &[&str]) -> Brief {
    let aspect = |(text, number): (&&str, u32)| Aspect { id: AspectId::numbered(number), text: (*text).to_owned() };
    Brief {
        question: question.parse().unwrap(),
        task: question.to_owned(),
        aspects: aspects.iter().zip(1..).map(aspect).collect(),
        mode: Mode::Deep,
    }
}

/// Adds a finished child of the root and returns its id.
pub(crate) fn add_node(tree: &mut Tree, question: &str, depends_on: &[&NodeId]) -> NodeId {
    let id = NodeId::numbered(tree.next_number());
    let mut node = Node::new(id.clone(), Some(tree.root.clone()), question.parse().unwrap(), 1);
    node.status = NodeStatus::Done;
    node.depends_on = depends_on.iter().map(|id| (*id).clone()).collect();
    tree.nodes.push(node);
    id
}

/// Returns a branch with one finding per text, each with a checked quote of the same words.
pub(crate) fn branch(node: &NodeId, texts: &[&str], label: Label) -> Branch {
    let mut evidence = Vec::new();
    let mut findings = Vec::new();
    for (text, number) in texts.iter().zip(1..) {
        let id = EvidenceId::new(node.clone(), number);
        let source = match label {
            Label::Internal => ScriptedSource::of(&[]).passage("a.md", "a.md#0", text, 1, 1).place,
            Label::Public => Place::unfetched("https://example.org/".into(), "web".into(), None),
        };
        evidence.push(Evidence {
            id: id.clone(),
            node: node.clone(),
            label,
            checked: true,
            stale: false,
            quote: (*text).to_owned(),
            score: 0.8,
            source,
        });
        findings.push(Finding { text: (*text).to_owned(), evidence: vec![id], aspect: None, is_emphasised: false });
    }
    let is_empty = texts.is_empty();
    Branch {
        report: BranchReport {
            summary: texts.join(" "),
            findings,
            confidence: if is_empty { 0.0 } else { 0.8 },
            open_questions: Vec::new(),
            output: None,
            stop_reason: if is_empty { BranchStop::NoEvidence } else { BranchStop::Done },
        },
        evidence,
        support: if is_empty { Support::None } else { Support::Strong },
        ..Branch::without_findings("")
    }
}
