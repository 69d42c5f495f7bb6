//! Sample reports for the tests of the renderers.

use crate::base::id::ContentHash;
use crate::research::branch::Finding;
use crate::research::evidence::Evidence;
use crate::research::node::{Node, NodeId, NodeStatus, SourceHint, Tree};
use crate::research::report::{
    FurtherReading, Outcome, Report, SCHEMA_VERSION, Section, StopReason, UsageTable, UsageTotals,
};
use crate::source::{Label, Place};

pub(super) fn file(path: &str, title: &str, heading: &str) -> Place {
    Place::Kb {
        collection: "kb".into(),
        path: path.into(),
        title: title.into(),
        heading_path: vec![title.into(), heading.into()],
        line_start: 11,
        line_end: 12,
        content_hash: ContentHash::of(b"a file"),
        date: None,
    }
}

pub(super) fn page(url: &str, title: &str, fetched_at: Option<u64>) -> Place {
    Place::Web { url: url.into(), title: title.into(), published: None, fetched_at, content_hash: None }
}

/// Returns a checked quote.
pub(super) fn quote(id: &str, quote: &str, source: Place) -> Evidence {
    let id: crate::research::evidence::EvidenceId = id.parse().unwrap();
    Evidence {
        node: id.node().clone(),
        id,
        label: if matches!(source, Place::Kb { .. }) { Label::Internal } else { Label::Public },
        checked: true,
        stale: false,
        quote: quote.into(),
        score: 0.8,
        source,
    }
}

/// Returns a claim with its quotes.
pub(super) fn finding(text: &str, evidence: &[&str]) -> Finding {
    let evidence = evidence.iter().map(|id| id.parse().unwrap()).collect();
    Finding { text: text.into(), evidence, aspect: None, is_emphasised: false }
}

/// Returns the report of a single search without a model.
pub(super) fn answer() -> Report {
    let mut tree = Tree::of("Why lithium?".parse().unwrap());
    tree.nodes[0].status = NodeStatus::Done;
    Report {
        schema_version: SCHEMA_VERSION,
        run_id: None,
        question: "Why lithium?".parse().unwrap(),
        outcome: Outcome::Answered,
        answer: "Lithium cells do not leak. [n1e1]".into(),
        sections: Vec::new(),
        findings: vec![finding("Lithium cells do not leak.", &["n1e1"])],
        evidence: vec![quote("n1e1", "Lithium cells do **not** leak.", file("battery.md", "Batteries", "Decision"))],
        contradictions: Vec::new(),
        open_questions: Vec::new(),
        limitations: Vec::new(),
        confidence: 0.75,
        stop_reason: StopReason::Complete,
        degraded: false,
        failed_nodes: Vec::new(),
        tree,
        usage: UsageTable::default(),
        reported: Vec::new(),
        passages: Vec::new(),
        output: None,
        elapsed_ms: 40,
    }
}

/// Returns the report of a run of several nodes, with every part present.
pub(super) fn run() -> Report {
    let mut unchecked = quote("n10e1", "Alkaline is cheaper.", page("https://example.org/b", "Prices", None));
    unchecked.checked = false;
    let mut stale = quote("n2e2", "They last | four years.", file("field_notes.md", "Field notes", "Winter"));
    stale.stale = true;
    Report {
        run_id: Some("4f1c09a2b7de5533".into()),
        question: "Compare lithium and alkaline cells".parse().unwrap(),
        answer: "Lithium is **better in the cold** [n2e1, n2e2].\n\n- It costs more [n3e1].\n- Who knows [n9e9]."
            .into(),
        sections: vec![Section {
            title: "In the cold".into(),
            text: "| cell | lasts |\n|---|---|\n| lithium | four years [n2e2] |".into(),
            ..Section::default()
        }],
        findings: vec![
            finding("Lithium cells do not leak.", &["n2e1"]),
            finding("They last four years [n2e2], but cost more [n2e1].", &["n2e2", "n3e1", "n9e9"]),
            finding("Alkaline is cheaper.", &["n10e1"]),
        ],
        evidence: vec![
            quote("n2e1", "Lithium cells do **not** leak.", file("battery.md", "Batteries", "Decision")),
            stale,
            quote("n3e1", "Two euros\nmore.", page("https://example.org/a", "Cells compared", Some(1_795_219_199_000))),
            unchecked,
        ],
        contradictions: vec!["One page has lithium cheaper [n2e1], one dearer.".into()],
        open_questions: vec!["How long do they last in heat?".into()],
        limitations: vec!["`What of heat?` failed: no source".into()],
        confidence: 0.62,
        stop_reason: StopReason::BudgetExceeded,
        degraded: true,
        failed_nodes: vec![NodeId::numbered(4)],
        tree: tree(),
        usage: usage(),
        passages: vec![FurtherReading {
            snippet: "Alkaline cells leaked in three of forty probes.".into(),
            source: file("battery.md", "Batteries", "Context"),
        }],
        elapsed_ms: 72_400,
        ..answer()
    }
}

/// Returns a report in which every untrusted text is `text`.
pub(super) fn all_saying(text: &str) -> Report {
    let mut report = run();
    let said = || text.to_owned();
    let question: crate::research::question::Question = text.parse().unwrap();
    report.question = question.clone();
    report.answer = said();
    report.run_id = Some(said());
    for section in &mut report.sections {
        *section = Section { title: said(), text: said(), ..Section::default() };
    }
    report.findings.iter_mut().for_each(|finding| finding.text = said());
    for evidence in &mut report.evidence {
        evidence.quote = said();
    }
    report.evidence[0].source = file(text, text, text);
    report.evidence[2].source = page(text, text, None);
    report.evidence[3].source = page(&format!("javascript:{text}"), text, None);
    for texts in [&mut report.contradictions, &mut report.open_questions, &mut report.limitations] {
        texts[0] = said();
    }
    for node in &mut report.tree.nodes {
        node.question = question.clone();
        node.summary = said();
        node.group = Some(said());
    }
    report.usage.by_node.insert(said(), UsageTotals::default());
    report.passages[0] = FurtherReading { snippet: said(), source: page(text, text, None) };
    report.output = Some(serde_json::json!({ text: text }));
    report
}

fn tree() -> Tree {
    let id = NodeId::numbered;
    let node = |number, parent: u32, question: &str, status| Node {
        status,
        confidence: 0.7,
        ..Node::new(id(number), Some(id(parent)), question.parse().unwrap(), 1)
    };
    let mut tree = Tree::of("Compare lithium and alkaline cells".parse().unwrap());
    tree.nodes[0].status = NodeStatus::Done;
    tree.nodes.push(node(2, 1, "What of lithium?", NodeStatus::Done));
    tree.nodes.push(node(3, 1, "What do cells cost?", NodeStatus::Done));
    tree.nodes.push(Node { summary: "no source".into(), ..node(4, 2, "What of heat?", NodeStatus::Failed) });
    tree.nodes.push(Node { depends_on: vec![id(2), id(3)], round: 2, ..node(10, 1, "Which is it?", NodeStatus::Done) });
    tree.nodes[2].source_hint = SourceHint::Web;
    tree
}

fn usage() -> UsageTable {
    let used = |calls, cost_usd| UsageTotals {
        calls,
        input_tokens: 1_200 * calls,
        cached_tokens: 200 * calls,
        output_tokens: 300 * calls,
        reasoning_tokens: 100 * calls,
        tool_calls: 2 * calls,
        cache_hits: 0,
        cost_usd,
    };
    let named = |usages: [(&str, UsageTotals); 3]| usages.map(|(name, usage)| (name.to_owned(), usage)).into();
    let mut by_node = named([("n2", used(3, Some(0.01))), ("n10", used(2, None)), ("plan", used(1, Some(0.02)))]);
    std::collections::BTreeMap::insert(&mut by_node, "n3".into(), used(1, Some(0.000_01)));
    UsageTable {
        total: used(7, None),
        by_role: named([("worker", used(5, None)), ("writer", used(1, Some(0.01))), ("planner", used(1, Some(0.02)))]),
        by_node,
    }
}
