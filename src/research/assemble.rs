//! Assembles a draft from branch reports without a model: findings in tree order, comparisons last.

use std::collections::{BTreeMap, BTreeSet};

use super::branch::{Branch, Finding};
use super::memory::cited;
use super::node::{Node, NodeId, Tree};
use super::question::Brief;
use super::report::{Draft, Section};
use super::verdict::by_coverage;

/// Most claims of one node in the short answer; the others appear in its section.
const CLAIMS_IN_SHORT: usize = 2;

/// Assembles a draft from the branch reports.
///
/// A single node with findings yields an answer without sections. Several yield one section each and, unless a node
/// depends on the others and compares them, a closing section with the first claim of each.
pub(crate) fn draft_by_rules(brief: &Brief, tree: &Tree, branches: &BTreeMap<NodeId, Branch>) -> Draft {
    let found = found(tree, branches);
    let verdict = by_coverage(brief, tree, branches);
    let missing = verdict.missing_aspects.iter().filter_map(|id| brief.aspect(id)).map(|aspect| aspect.text.clone());
    let open = branches.values().flat_map(|branch| branch.report.open_questions.iter().cloned());
    Draft {
        answer: in_short(&found),
        sections: if found.len() > 1 { sections(&found, brief, tree) } else { Vec::new() },
        findings: without_repeats(found.iter().flat_map(|(_, findings)| findings.iter().cloned())),
        // Rules cannot tell whether two claims contradict each other.
        contradictions: Vec::new(),
        open_questions: distinct(missing.chain(open)),
        limitations: Vec::new(),
        confidence: verdict.overall_confidence,
        is_makeshift: false,
        output: None,
    }
}

/// Returns the nodes with checked findings: in tree order, nodes with dependencies last.
fn found<'a>(tree: &'a Tree, branches: &BTreeMap<NodeId, Branch>) -> Vec<(&'a Node, Vec<Finding>)> {
    let checked: BTreeSet<_> = branches
        .values()
        .flat_map(|branch| branch.evidence.iter().filter(|quote| quote.checked).map(|quote| &quote.id))
        .collect();
    let with_evidence = |finding: &Finding| {
        let evidence: Vec<_> = finding.evidence.iter().filter(|id| checked.contains(id)).cloned().collect();
        (!evidence.is_empty()).then(|| Finding { evidence, ..finding.clone() })
    };
    let findings = |node: &'a Node| {
        let findings: Vec<_> = branches.get(&node.id)?.report.findings.iter().filter_map(with_evidence).collect();
        (!findings.is_empty()).then_some((node, findings))
    };
    let mut found: Vec<_> = tree.workers().filter_map(findings).collect();
    found.sort_by_key(|(node, _)| !node.depends_on.is_empty());
    // In a comparison one sentence may describe several items and is repeated; otherwise it is printed once.
    if found.iter().all(|(node, _)| node.depends_on.is_empty()) {
        let mut said = BTreeSet::new();
        for (_, findings) in &mut found {
            findings.retain(|finding| said.insert(finding.text.clone()));
        }
        found.retain(|(_, findings)| !findings.is_empty());
    }
    found
}

fn in_short(found: &[(&Node, Vec<Finding>)]) -> String {
    let claims =
        |findings: &Vec<Finding>, most: usize| findings.iter().take(most).map(cited).collect::<Vec<_>>().join(" ");
    match found {
        [] => String::new(),
        [(_, findings)] => claims(findings, usize::MAX),
        // A node that depends on others compares them, so its claims are the answer.
        found => {
            let closing: Vec<_> = found.iter().filter(|(node, _)| !node.depends_on.is_empty()).collect();
            let said = if closing.is_empty() { found.iter().collect() } else { closing };
            said.into_iter().map(|(_, findings)| claims(findings, CLAIMS_IN_SHORT)).collect::<Vec<_>>().join("\n\n")
        }
    }
}

fn sections(found: &[(&Node, Vec<Finding>)], brief: &Brief, tree: &Tree) -> Vec<Section> {
    let of_aspects: Vec<_> = found.iter().map(|(node, _)| aspect_of(node, brief)).collect();
    let has_aspects = of_aspects.iter().any(Option::is_some);
    let titles: Vec<_> =
        titles(found).into_iter().zip(of_aspects).map(|(title, aspect)| aspect.unwrap_or(title)).collect();
    let lines = |findings: &[Finding]| {
        let lines: Vec<_> = findings.iter().map(|finding| format!("- {}", cited(finding))).collect();
        lines.join("\n")
    };
    let mut sections: Vec<Section> = Vec::new();
    for ((_, findings), title) in found.iter().zip(&titles) {
        // A node of a later round may serve the same aspect.
        match sections.iter_mut().find(|section| section.title == *title) {
            Some(section) => section.text = format!("{}\n{}", section.text, lines(findings)),
            None => sections.push(Section { title: title.clone(), text: lines(findings) }),
        }
    }
    let is_comparison = !has_aspects || tree.workers().any(|node| !node.depends_on.is_empty());
    if is_comparison && found.iter().all(|(node, _)| node.depends_on.is_empty()) {
        let first = |((_, findings), title): (&(&Node, Vec<Finding>), &String)| {
            format!("- {title}: {}", findings.first().map(cited).unwrap_or_default())
        };
        let text: Vec<_> = found.iter().zip(&titles).map(first).collect();
        sections.push(Section { title: "Side by side".to_owned(), text: text.join("\n") });
    }
    sections
}

/// Returns the text of the one aspect a node serves, unless that aspect is the whole question.
fn aspect_of(node: &Node, brief: &Brief) -> Option<String> {
    let [aspect] = node.aspects.as_slice() else { return None };
    let text = &brief.aspect(aspect)?.text;
    (brief.aspects.len() > 1 && node.depends_on.is_empty()).then(|| text.clone())
}

/// Returns section titles. Nodes that ask the same of different things (`How does A scale?`, `How does B scale?`) are
/// titled by the words that differ, others by their question.
fn titles(found: &[(&Node, Vec<Finding>)]) -> Vec<String> {
    let words: Vec<Vec<&str>> =
        found.iter().map(|(node, _)| node.question.as_str().split_whitespace().collect()).collect();
    let title = |(place, own): (usize, &Vec<&str>)| {
        let (node, _) = &found[place];
        let siblings: Vec<_> = (0..words.len())
            .filter(|other| *other != place && found[*other].0.depends_on.is_empty())
            .map(|other| &words[other])
            .filter(|other| asks_the_same(own, other))
            .collect();
        if siblings.is_empty() || !node.depends_on.is_empty() {
            return node.question.to_string();
        }
        let is_own = |word: &&&str| !siblings.iter().all(|other| other.iter().any(|known| bare(known) == bare(word)));
        let title = own.iter().filter(is_own).map(|word| trimmed(word)).collect::<Vec<_>>().join(" ");
        if title.is_empty() { node.question.to_string() } else { title }
    };
    words.iter().enumerate().map(title).collect()
}

/// Returns whether two questions share more than half of their words.
fn asks_the_same(own: &[&str], other: &[&str]) -> bool {
    let shared = own.iter().filter(|word| other.iter().any(|known| bare(known) == bare(word))).count();
    shared * 2 > own.len()
}

fn bare(word: &str) -> String {
    trimmed(word).to_lowercase()
}

fn trimmed(word: &str) -> &str {
    word.trim_matches(|letter: char| matches!(letter, '?' | '!' | ',' | ';' | ':' | '.' | '"' | '(' | ')'))
}

fn without_repeats(findings: impl Iterator<Item = Finding>) -> Vec<Finding> {
    let mut kept: Vec<Finding> = Vec::new();
    for finding in findings {
        match kept.iter_mut().find(|known| known.text == finding.text) {
            Some(known) => {
                let new: Vec<_> = finding.evidence.into_iter().filter(|id| !known.evidence.contains(id)).collect();
                known.evidence.extend(new);
            }
            None => kept.push(finding),
        }
    }
    kept
}

fn distinct(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    texts.filter(|text| seen.insert(text.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::scripted::{add_node, branch, brief};
    use crate::source::Label;

    #[test]
    fn one_node_gives_an_answer_without_sections() {
        let mut tree = Tree::of("What does it cost?".parse().unwrap());
        tree.nodes[0].status = crate::research::node::NodeStatus::Done;
        let found = branch(&tree.root, &["It costs nine.", "It is cheap."], Label::Internal);
        let draft =
            draft_by_rules(&brief("What does it cost?", &["cost"]), &tree, &[(tree.root.clone(), found)].into());
        assert_eq!(draft.answer, "It costs nine. [n1e1] It is cheap. [n1e2]");
        assert!(draft.sections.is_empty() && draft.findings.len() == 2);
    }

    #[test]
    fn comparison_has_a_section_per_item_and_a_closing_one() {
        let mut tree = Tree::of("Compare LanceDB and Qdrant".parse().unwrap());
        let ids =
            ["LanceDB", "Qdrant"].map(|name| add_node(&mut tree, &format!("How does {name} store its vectors?"), &[]));
        let mut branches: BTreeMap<_, _> = [
            (
                ids[0].clone(),
                branch(&ids[0], &["LanceDB keeps them in columns.", "It needs no server."], Label::Internal),
            ),
            (ids[1].clone(), branch(&ids[1], &["Qdrant keeps them in segments."], Label::Internal)),
        ]
        .into();
        branches.get_mut(&ids[1]).unwrap().report.open_questions = vec!["How large is a segment?".into()];
        let brief = brief("Compare LanceDB and Qdrant", &["columns", "elephants"]);
        let shown = |draft: &Draft| {
            let sections = draft.sections.iter().map(|section| format!("## {}\n{}", section.title, section.text));
            sections.collect::<Vec<_>>().join("\n")
        };
        let draft = draft_by_rules(&brief, &tree, &branches);
        insta::assert_snapshot!(shown(&draft), @r"
        ## LanceDB
        - LanceDB keeps them in columns. [n2e1]
        - It needs no server. [n2e2]
        ## Qdrant
        - Qdrant keeps them in segments. [n3e1]
        ## Side by side
        - LanceDB: LanceDB keeps them in columns. [n2e1]
        - Qdrant: Qdrant keeps them in segments. [n3e1]
        ");
        assert_eq!(draft.open_questions, ["elephants", "How large is a segment?"]);

        let last = add_node(&mut tree, "How do LanceDB and Qdrant differ?", &[&ids[0], &ids[1]]);
        branches.insert(last.clone(), branch(&last, &["One has columns, the other segments."], Label::Internal));
        let draft = draft_by_rules(&brief, &tree, &branches);
        assert_eq!(draft.answer, "One has columns, the other segments. [n4e1]");
        assert_eq!(draft.sections.last().unwrap().title, "How do LanceDB and Qdrant differ?");
        assert_eq!(draft.sections.len(), 3);
    }

    #[test]
    fn finding_without_a_checked_quote_is_not_in_the_draft() {
        let mut tree = Tree::of("What is A?".parse().unwrap());
        let id = add_node(&mut tree, "What is A?", &[]);
        let mut found = branch(&id, &["A is one.", "A is two."], Label::Internal);
        found.evidence[0].checked = false;
        let draft = draft_by_rules(&brief("What is A?", &["A"]), &tree, &[(id, found)].into());
        assert_eq!(draft.answer, "A is two. [n2e2]");
        assert_eq!(draft.findings.len(), 1);
    }
}
