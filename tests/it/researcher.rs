//! A deterministic researcher: scripted model replies for each step of a run, and a source for it to read.
//!
//! Also included by the unit tests of the library and by the benchmark.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "unit tests, integration tests and the benchmark each use a part of it, and a panic is how they fail"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dr::base::clock::Clock;
use dr::base::id::ContentHash;
use dr::base::token::CountTokens;
use dr::llm::message::{Prompt, Reply, Usage};
use dr::llm::model::{Model, ModelError};
use dr::llm::roles::{Models, RoleModel};
use dr::research::extract::Pick;
use dr::research::node::NodeId;
use dr::research::pick::{DocumentHits, Picks};
use dr::research::plan::TreeLimits;
use dr::research::question::Question;
use dr::run::budget::{BudgetLimits, LimitsByPlan};
use dr::run::event::{InternalText, RunRequest, RunSettings};
use dr::run::orchestrator::{McpServers, Resources, Sources};
use dr::run::store::Store;
use dr::source::{Documents, Found, Label, Passage, Place, ProperName, Source, SourceError, SourceFile, Support};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Nodes from which a plan is large.
pub const MANY: usize = 20;

/// Groups of a large plan.
pub const GROUPS: usize = 8;

/// Produces the replies of a model.
#[derive(Clone, Copy, Debug)]
pub struct Researcher {
    /// Nodes of the first plan. The last depends on the first three. From [`MANY`] on, they are in eight groups, and their
    /// reports are long.
    pub nodes: usize,
    /// Nodes added by a second round. With 0, the judge accepts the first.
    pub more_nodes: usize,
}

impl Researcher {
    /// Replies to a prompt. `form` is the name of the requested schema, `words` the text of the prompt.
    pub fn say(&self, form: Option<&str>, words: &str) -> String {
        let value = match form {
            Some("clarification") => json!({ "need": false, "question": "", "verification": "clear" }),
            Some("brief") => json!({
                "task": "Say what is known of the topics.",
                "aspects": ["what the topics are", "how the topics work"],
                "mode": "deep",
            }),
            Some("plan") => self.plan(words),
            Some("skim") => json!({ "answers": [] }),
            Some("step") => step(words),
            Some("digest") => json!({ "summary": "It is described on the page.", "pieces": [1] }),
            Some("branch_report") => self.branch_report(words),
            Some("verdict") => self.verdict(words),
            Some("answer") => answer(words),
            Some("report") => report(words),
            Some("outline") => self.outline(words),
            Some("section") => json!({ "text": cited(words) }),
            _ => return folded(words),
        };
        value.to_string()
    }

    fn plan(&self, words: &str) -> Value {
        let first = self.nodes;
        let known = nodes(words).len();
        let numbers = if known < first { 1..=first } else { first + 1..=first + self.more_nodes };
        let node = |number: usize| {
            let depends_on: Vec<_> =
                if number == first && first > 3 { (1..=3).map(|n| format!("s{n}")).collect() } else { vec![] };
            json!({
                "id": format!("s{number}"),
                "parent": null,
                "question": format!("What is said of topic {number}?"),
                "aspects": [if number.is_multiple_of(2) { "a1" } else { "a2" }],
                "depends_on": depends_on,
                "optional_dependencies": false,
                "parallelizable": number != 2,
                "priority": 0,
                "group": self.group(number),
                "source_hint": "internal",
                "tools": [],
                "output_schema": null,
                "why": "every topic is looked into",
            })
        };
        json!({ "reasoning": "one node a topic", "new_nodes": numbers.map(node).collect::<Vec<_>>(), "updates": [] })
    }

    fn group(&self, number: usize) -> String {
        let of_two = if number.is_multiple_of(2) { "even" } else { "odd" };
        if self.nodes < MANY { of_two.to_owned() } else { format!("group {}", number % GROUPS) }
    }

    fn branch_report(&self, words: &str) -> Value {
        let ids = evidence(words);
        let more = if self.nodes < MANY { String::new() } else { " and so on and on as before".repeat(400) };
        let text = |id: &String| format!("Its source says so, see {}{more}.", block(words, id).unwrap_or_default());
        let finding = |id: &String| json!({ "text": text(id), "evidence": [id], "aspect": aspect(words) });
        json!({
            "summary": format!("It is known from {} quotes what is said of the topic.", ids.len()),
            "findings": ids.iter().map(finding).collect::<Vec<_>>(),
            "confidence": 0.75,
            "open_questions": [],
        })
    }

    fn outline(&self, words: &str) -> Value {
        let nodes = nodes(words);
        let number = if self.nodes < MANY { 1 } else { GROUPS };
        let found = |node: &String| block(words, node).map(|text| numbered(&text)).unwrap_or_default();
        let of = |section: usize| nodes.iter().skip(section).step_by(number).flat_map(found).collect::<Vec<_>>();
        let section = |at: usize| json!({ "title": if at == 0 { "All topics".into() } else { format!("More {at}") }, "findings": of(at) });
        json!({ "sections": (0..number).map(section).collect::<Vec<_>>() })
    }

    fn verdict(&self, words: &str) -> Value {
        let nodes = nodes(words);
        let is_complete = nodes.len() >= self.nodes + self.more_nodes;
        json!({
            "is_complete": is_complete,
            "recommend_more_iterations": !is_complete,
            "missing_aspects": if is_complete { vec![] } else { vec!["a2"] },
            "weak_evidence_areas": [],
            "overall_confidence": 0.8,
            "relied_on": nodes,
        })
    }
}

/// Searches, then notes the first passage and finishes.
fn step(words: &str) -> Value {
    let action = |tool: &str, query: Option<&str>, passage: Option<&str>, quote: Option<&str>| json!({ "tool": tool, "query": query, "passage": passage, "quote": quote, "text": quote, "aspect": aspect(words) });
    match block(words, "p1") {
        None => {
            let question = words.split("Sub-question: ").nth(1).and_then(|rest| rest.lines().next()).unwrap_or("topic");
            json!({ "thought": "nothing is known yet", "actions": [action("search", Some(question), None, None)], "done": false })
        }
        Some(passage) => {
            let quote = passage.lines().find(|line| line.contains("described here")).unwrap_or_default().trim();
            json!({ "thought": "that answers it", "actions": [action("note", None, Some("p1"), Some(quote))], "done": true })
        }
    }
}

fn answer(words: &str) -> Value {
    let finding = |(number, id): (usize, &String)| {
        json!({
            "text": format!("The topic is described and its source says so [{id}]."),
            "evidence": [id],
            "aspect": format!("a{}", number % 2 + 1),
        })
    };
    let ids = evidence(words);
    json!({
        "answer": cited(words),
        "findings": ids.iter().take(8).enumerate().map(finding).collect::<Vec<_>>(),
        "contradictions": [],
        "open_questions": [],
        "limitations": [],
        "confidence": 0.7,
    })
}

/// Returns an answer with one section.
fn report(words: &str) -> Value {
    let mut report = answer(words);
    report["sections"] = json!([{ "title": "All topics", "text": cited(words) }]);
    report
}

/// Returns the first aspect in the prompt.
fn aspect(words: &str) -> Option<String> {
    let user = task(words);
    words_like(user, |word| matches!(word, "a1" | "a2")).into_iter().next()
}

fn cited(words: &str) -> String {
    let sentence = |id: &String| format!("What is said of the topic is described in its source [{id}].");
    evidence(words).iter().map(sentence).collect::<Vec<_>>().join(" ")
}

/// Returns the start of each text to fold.
fn folded(words: &str) -> String {
    let ids = evidence(words);
    format!(
        "Of the topics it is known what their sources say. {}",
        ids.iter().map(|id| format!("One is described [{id}].")).collect::<Vec<_>>().join(" ")
    )
}

/// Returns the task part of a prompt.
pub(crate) fn task(words: &str) -> &str {
    words.rsplit("--- task ---").next().unwrap_or(words)
}

/// Returns the text of a data block.
fn block(words: &str, id: &str) -> Option<String> {
    let from = words.find(&format!("<data id=\"{id}\">"))?;
    let (_, rest) = words[from..].split_once('\n')?;
    Some(rest.split("\n</data>").next()?.to_owned())
}

/// Returns the numbers of a list, one item per line.
pub(crate) fn numbered(list: &str) -> Vec<usize> {
    list.lines().filter_map(|line| line.split_once(". ")?.0.parse().ok()).collect()
}

pub(crate) fn words_like(words: &str, is_one: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in words.split(|letter: char| !letter.is_ascii_alphanumeric()) {
        if is_one(word) && !found.iter().any(|known| known == word) {
            found.push(word.to_owned());
        }
    }
    found
}

/// Returns the evidence ids in order.
fn evidence(words: &str) -> Vec<String> {
    let user = task(words);
    words_like(user, |word| word.parse::<dr::research::evidence::EvidenceId>().is_ok())
}

/// Returns the node ids except the root.
pub(crate) fn nodes(words: &str) -> Vec<String> {
    let user = task(words);
    words_like(user, |word| word != "n1" && word.parse::<dr::research::node::NodeId>().is_ok())
}

/// Makes another reply of that of the researcher.
type Change = fn(&Prompt, String) -> String;

pub struct ScriptedModel {
    researcher: Researcher,
    delay: Duration,
    /// Changes every reply. The prompts are kept then.
    change: Option<Change>,
    /// Prompts received by a model that changes its replies.
    pub asked: Mutex<Vec<Prompt>>,
    /// Hash of every request received.
    pub sent: Mutex<BTreeMap<String, usize>>,
}

impl ScriptedModel {
    /// Returns a model that waits `delay` before every reply.
    pub fn new(researcher: Researcher, delay: Duration) -> Arc<Self> {
        Arc::new(Self { researcher, delay, change: None, asked: Mutex::default(), sent: Mutex::default() })
    }

    /// Returns a model that changes every reply and keeps its prompts.
    pub fn changing(researcher: Researcher, change: Change) -> Arc<Self> {
        let (asked, sent) = (Mutex::default(), Mutex::default());
        Arc::new(Self { researcher, delay: Duration::ZERO, change: Some(change), asked, sent })
    }

    /// Returns a configuration that uses this model for every role.
    pub fn models(self: &Arc<Self>) -> Models {
        Models::of(|_| role_model(Arc::clone(self) as Arc<dyn Model>))
    }
}

/// Returns a model with limits that its replies fit.
pub fn role_model(model: Arc<dyn Model>) -> RoleModel {
    RoleModel {
        model,
        counter: Arc::new(Words),
        max_input_tokens: 12_000,
        max_output_tokens: 1_000,
        endpoint: "here".into(),
        is_local: true,
    }
}

pub fn settings(limits: BudgetLimits) -> RunSettings {
    RunSettings {
        request: RunRequest::default(),
        keeps_public_apart: true,
        is_open: false,
        has_server_text: false,
        limits,
        by_plan: LimitsByPlan::default(),
        tree: TreeLimits::default(),
        parallel: 3,
        summary_tokens: 600,
        by_rules: false,
        models: BTreeMap::new(),
        searched: "many files of kb".into(),
        source_version: "1".into(),
        collections: BTreeSet::new(),
        follows: None,
        reuse: false,
        rerank: None,
        has_own_plan: false,
        outside: String::new(),
        servers: Vec::new(),
        instead: None,
    }
}

/// Returns the resources of a run that searches a [`ScriptedSource`].
pub fn resources(store: Store, clock: Arc<dyn Clock>, models: Models) -> Resources {
    Resources {
        store,
        clock,
        sources: Sources {
            internal: Arc::new(ScriptedSource),
            web: None,
            is_offline: false,
            servers: McpServers::default(),
        },
        picker: Arc::new(NoPick),
        embedder: None,
        recall: None,
        models: Some(models),
        listener: Arc::new(|_| {}),
        stop: CancellationToken::new(),
        seed: 7,
        jobs: None,
        set_aside_nanos: 0,
        internal_text: InternalText::default(),
    }
}

/// Counts 4/3 tokens per word.
pub struct Words;

impl CountTokens for Words {
    fn count(&self, text: &str) -> usize {
        text.split_whitespace().count() * 4 / 3 + 1
    }
}

impl Model for ScriptedModel {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn window_tokens(&self) -> u64 {
        100_000
    }

    fn count_input(&self, prompt: &Prompt) -> u64 {
        prompt.messages.iter().map(|message| Words.count(&message.text) as u64).sum()
    }

    fn max_output(&self, prompt: &Prompt) -> u64 {
        u64::from(prompt.max_output_tokens)
    }

    fn cost_nanos(&self, usage: &Usage) -> Option<u64> {
        Some(usage.input_tokens * 1_000 + usage.output_tokens * 4_000)
    }

    fn send<'a>(&'a self, prompt: &'a Prompt) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let hash = ContentHash::of(serde_json::to_string(prompt).unwrap().as_bytes()).as_str().to_owned();
        *self.sent.lock().unwrap().entry(hash).or_default() += 1;
        let words =
            prompt.messages.iter().map(|message| message.text.as_str()).collect::<Vec<_>>().join("\n--- task ---\n");
        let mut text = self.researcher.say(prompt.schema.as_ref().map(|form| form.name.as_str()), &words);
        if let Some(change) = self.change {
            self.asked.lock().unwrap().push(prompt.clone());
            text = change(prompt, text);
        }
        let usage = Usage {
            input_tokens: self.count_input(prompt),
            output_tokens: Words.count(&text) as u64,
            ..Usage::default()
        };
        let reply = Reply { text, usage: Some(usage), cut_off: false, raw: Value::Null };
        let delay = self.delay;
        Box::pin(async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            Ok(reply)
        })
    }
}

/// A picker that finds nothing, for runs in which a model takes the notes.
pub struct NoPick;

impl Pick for NoPick {
    fn pick<'a>(
        &'a self,
        _: &'a NodeId,
        _: &'a Question,
        _: &'a [ProperName],
        _: &'a [DocumentHits],
    ) -> BoxFuture<'a, Result<Picks, SourceError>> {
        Box::pin(async { Ok(Picks::default()) })
    }
}

/// A source with one file per topic, found by the first number in the query.
pub struct ScriptedSource;

fn file(number: &str) -> String {
    format!("Topic {number} is described here in full, as item {number} of many.\n\nIt works as all topics work.\n")
}

fn passage(number: &str) -> Passage {
    let text = file(number);
    Passage {
        id: format!("topic-{number}"),
        place: Place::Kb {
            collection: "kb".into(),
            path: format!("topic-{number}.md"),
            title: format!("Topic {number}"),
            heading_path: Vec::new(),
            line_start: 1,
            line_end: 3,
            content_hash: ContentHash::of(text.as_bytes()),
            date: None,
        },
        label: Label::Internal,
        snippet: text.clone(),
        text,
        score: 0.9,
    }
}

impl Documents for ScriptedSource {
    fn open<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Passage, SourceError>> {
        let number = id.trim_start_matches("topic-").to_owned();
        Box::pin(async move { Ok(passage(&number)) })
    }

    fn read<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, SourceFile> {
        let Place::Kb { path, .. } = place else { return Box::pin(async { SourceFile::Gone }) };
        let number = path.trim_start_matches("topic-").trim_end_matches(".md").to_owned();
        Box::pin(async move { SourceFile::AsIndexed(file(&number)) })
    }
}

impl Source for ScriptedSource {
    fn name(&self) -> &'static str {
        "kb"
    }

    fn scope(&self) -> String {
        "many files of kb".into()
    }

    fn version(&self) -> String {
        "1".into()
    }

    fn search<'a>(&'a self, query: &'a str, _: usize) -> BoxFuture<'a, Result<Found, SourceError>> {
        let mut numbers = query.split(|letter: char| !letter.is_ascii_digit()).filter(|number| !number.is_empty());
        let number = numbers.next().unwrap_or_default().to_owned();
        let passages = if number.is_empty() { Vec::new() } else { vec![passage(&number)] };
        let support = if passages.is_empty() { Support::None } else { Support::Strong };
        Box::pin(async move { Ok(Found { passages, support, ..Found::default() }) })
    }
}
