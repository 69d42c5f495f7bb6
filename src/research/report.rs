//! Nodes and their evidence become a Report: findings, each tied to quotes that were checked.

use std::collections::BTreeMap;

use serde::Serialize;

use super::evidence::{Evidence, EvidenceId, Source};
use super::node::{Node, NodeId, NodeStatus, SourceHint, Tree};
use super::question::Question;
use crate::base::line::counted;
use crate::kb::search::{Hit, Support};

/// Version of the report as JSON.
pub const SCHEMA_VERSION: u32 = 1;

/// Passages listed for further reading, at most.
const MAX_PASSAGES: usize = 8;

/// Passages listed beside a refusal, at most.
const MAX_NEAREST: usize = 3;

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The question is answered.
    Complete,
    /// Nothing was found that bears on it.
    NoEvidence,
}

/// A claim of the report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What is claimed.
    pub text: String,
    /// The quotes that bear it out.
    pub evidence: Vec<EvidenceId>,
    /// The aspect of the question it answers, where the question was split into aspects.
    pub aspect: Option<String>,
}

/// A passage worth reading beyond the quotes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Passage {
    /// Its collection.
    pub collection: String,
    /// Its path, relative to the collection's root.
    pub path: String,
    /// Title of its document.
    pub title: String,
    /// Headings above it.
    pub heading_path: Vec<String>,
    /// First line in the file as stored, from 1.
    pub line_start: u32,
    /// Last line, inclusive.
    pub line_end: u32,
    /// A stretch of it.
    pub snippet: String,
}

/// What model calls came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Usage {
    /// Calls of a model.
    pub calls: u64,
    /// Tokens sent.
    pub input_tokens: u64,
    /// Tokens received, reasoning included.
    pub output_tokens: u64,
    /// Price in US dollars.
    pub cost_usd: f64,
}

/// Usage as a whole, and by who caused it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UsageTable {
    /// All of it.
    pub total: Usage,
    /// By role of the model.
    pub by_role: BTreeMap<String, Usage>,
    /// By node of the tree.
    pub by_node: BTreeMap<String, Usage>,
}

/// The answer to a question, with everything needed to check it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The stored run; none where nothing was stored.
    pub run_id: Option<String>,
    /// What was asked.
    pub question: Question,
    /// The answer as one text.
    pub answer: String,
    /// The answer claim by claim.
    pub findings: Vec<Finding>,
    /// The quotes.
    pub evidence: Vec<Evidence>,
    /// Findings that cannot all be true.
    pub contradictions: Vec<String>,
    /// What is still open.
    pub open_questions: Vec<String>,
    /// What keeps the answer from being better.
    pub limitations: Vec<String>,
    /// How far it can be relied on, from 0 to 1.
    pub confidence: f32,
    /// Why the run ended.
    pub stop_reason: StopReason,
    /// Whether something was lost on the way.
    pub degraded: bool,
    /// Nodes that failed.
    pub failed_nodes: Vec<NodeId>,
    /// The nodes.
    pub tree: Tree,
    /// What the models cost.
    pub usage: UsageTable,
    /// Passages to read further, best first.
    pub passages: Vec<Passage>,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
}

/// What a report is made of when no model writes it.
#[derive(Clone, Debug)]
pub struct Material {
    /// What was asked.
    pub question: Question,
    /// What was found, best first.
    pub hits: Vec<Hit>,
    /// How well the hits bear on the question.
    pub support: Support,
    /// Quotes picked from the hits, checked or not.
    pub evidence: Vec<Evidence>,
    /// What was searched, for people: `12 files of collection kb`.
    pub searched: String,
    /// What the reader has to know, for example a file that has changed since.
    pub notes: Vec<String>,
}

impl Report {
    /// Puts a report together from quotes alone: each finding says what its quote says.
    ///
    /// A quote that was not found in its source is left out and the loss is said. Without support there is a refusal.
    pub fn extracted(material: Material) -> Self {
        let Material { question, hits, support, mut evidence, searched, mut notes } = material;
        let lost = evidence.iter().filter(|quote| !quote.checked).count();
        evidence.retain(|quote| quote.checked);
        if lost > 0 {
            notes.push(format!("{} not found in the source, and left out", counted(lost, "quote")));
        }
        if support == Support::None || evidence.is_empty() {
            return Self::refusal(question, &hits, &searched, notes);
        }
        if support == Support::Weak {
            notes.push("the knowledge base has passages related to the question, but may not answer it".to_owned());
        }
        let findings: Vec<_> = evidence.iter().map(Finding::of).collect();
        let answer = findings.iter().map(|finding| finding.text.as_str()).collect::<Vec<_>>().join(" ");
        let confidence = confidence(&evidence, support);
        Self {
            tree: single_node(&question, NodeStatus::Done, confidence, answer.clone()),
            passages: passages(&hits, MAX_PASSAGES),
            answer,
            findings,
            confidence,
            stop_reason: StopReason::Complete,
            degraded: lost > 0,
            limitations: notes,
            ..Self::empty(question, evidence)
        }
    }

    fn refusal(question: Question, hits: &[Hit], searched: &str, mut notes: Vec<String>) -> Self {
        let summary = format!("Nothing in the knowledge base answers this question (searched: {searched}).");
        notes.insert(0, summary.clone());
        Self {
            tree: single_node(&question, NodeStatus::Blocked, 0.0, summary),
            passages: passages(hits, MAX_NEAREST),
            stop_reason: StopReason::NoEvidence,
            open_questions: vec![question.to_string()],
            limitations: notes,
            ..Self::empty(question, Vec::new())
        }
    }

    fn empty(question: Question, evidence: Vec<Evidence>) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            run_id: None,
            answer: String::new(),
            findings: Vec::new(),
            evidence,
            contradictions: Vec::new(),
            open_questions: Vec::new(),
            limitations: Vec::new(),
            confidence: 0.0,
            stop_reason: StopReason::NoEvidence,
            degraded: false,
            failed_nodes: Vec::new(),
            tree: single_node(&question, NodeStatus::Blocked, 0.0, String::new()),
            question,
            usage: UsageTable::default(),
            passages: Vec::new(),
            elapsed_ms: 0,
        }
    }

    /// Returns the quote a finding refers to.
    pub fn quote(&self, id: &EvidenceId) -> Option<&Evidence> {
        self.evidence.iter().find(|evidence| evidence.id == *id)
    }
}

impl Finding {
    fn of(evidence: &Evidence) -> Self {
        Self { text: evidence.plain.clone(), evidence: vec![evidence.id.clone()], aspect: None }
    }
}

fn single_node(question: &Question, status: NodeStatus, confidence: f32, summary: String) -> Tree {
    let id = NodeId::numbered(1);
    let node = Node {
        id: id.clone(),
        parent: None,
        question: question.clone(),
        status,
        depends_on: Vec::new(),
        depth: 0,
        source_hint: SourceHint::Internal,
        group: None,
        confidence,
        summary,
    };
    Tree { root: id, nodes: vec![node] }
}

/// Returns the mean score of the quotes, halved where the support is weak.
#[expect(clippy::cast_precision_loss, reason = "there are a handful of quotes")]
fn confidence(evidence: &[Evidence], support: Support) -> f32 {
    let mean = evidence.iter().map(|quote| quote.score).sum::<f32>() / evidence.len().max(1) as f32;
    if support == Support::Strong { mean } else { mean / 2.0 }
}

fn passages(hits: &[Hit], limit: usize) -> Vec<Passage> {
    let passage = |hit: &Hit| Passage {
        collection: hit.collection.clone(),
        path: hit.path.clone(),
        title: hit.title.clone(),
        heading_path: hit.heading_path.clone(),
        line_start: hit.line_start,
        line_end: hit.line_end,
        snippet: hit.snippet.text.clone(),
    };
    hits.iter().take(limit).map(passage).collect()
}

impl Source {
    /// Returns the place for people: `path:from-to`.
    pub fn place(&self) -> String {
        let Self::Kb { path, line_start, line_end, .. } = self;
        place(path, *line_start, *line_end)
    }
}

impl Passage {
    /// Returns the place for people: `path:from-to`.
    pub fn place(&self) -> String {
        place(&self.path, self.line_start, self.line_end)
    }
}

fn place(path: &str, line_start: u32, line_end: u32) -> String {
    if line_start == line_end { format!("{path}:{line_start}") } else { format!("{path}:{line_start}-{line_end}") }
}
