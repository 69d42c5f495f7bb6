//! Branches become a Draft without a model: their findings in tree order, the comparison of several last.

use std::collections::{BTreeMap, BTreeSet};

use super::branch::{Branch, Finding};
use super::memory::cited;
use super::node::{Node, NodeId, Tree};
use super::question::Brief;
use super::report::{Draft, Section};
use super::verdict::by_coverage;

/// Claims of one node that stand in the answer in short, at most; the rest is in the sections.
const CLAIMS_IN_SHORT: usize = 2;

/// Assembles the answer from the branch reports by code.
///
/// One node that found something gives an answer without sections. Several give a section each and, where no node draws
/// them together, a closing one with the first claim of each.
pub fn draft_by_rules(brief: &Brief, tree: &Tree, branches: &BTreeMap<NodeId, Branch>) -> Draft {
    let found = found(tree, branches);
    let verdict = by_coverage(brief, tree, branches);
    let missing = verdict.missing_aspects.iter().filter_map(|id| brief.aspect(id)).map(|aspect| aspect.text.clone());
    let open = branches.values().flat_map(|branch| branch.report.open_questions.iter().cloned());
    Draft {
        answer: in_short(&found),
        sections: if found.len() > 1 { sections(&found, brief, tree) } else { Vec::new() },
        findings: without_repeats(found.iter().flat_map(|(_, findings)| findings.iter().cloned())),
        // Whether two claims contradict each other is not for rules to say.
        contradictions: Vec::new(),
        open_questions: distinct(missing.chain(open)),
        limitations: Vec::new(),
        confidence: verdict.overall_confidence,
        is_makeshift: false,
        output: None,
    }
}

/// Returns the nodes that found something, with what has evidence: in tree order, those that draw others together last.
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
    // In a comparison the same sentence may be about several things; elsewhere it is said once.
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
        // What draws the others together is the answer; else the first claims of each are.
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
        // Later rounds look for the same from another side.
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

/// Returns the aspect a node serves, where it serves one that is not the whole question.
fn aspect_of(node: &Node, brief: &Brief) -> Option<String> {
    let [aspect] = node.aspects.as_slice() else { return None };
    let text = &brief.aspect(aspect)?.text;
    (brief.aspects.len() > 1 && node.depends_on.is_empty()).then(|| text.clone())
}

/// Returns what each section is about: the words of a question that its siblings do not have, where they ask the same of
/// something else; else the question.
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

/// Tells whether two questions have more than half of their words in common.
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
    fn comparison_has_a_section_for_each_thing_and_a_closing_one() {
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
    fn what_has_no_checked_quote_is_not_in_the_draft() {
        let mut tree = Tree::of("What is A?".parse().unwrap());
        let id = add_node(&mut tree, "What is A?", &[]);
        let mut found = branch(&id, &["A is one.", "A is two."], Label::Internal);
        found.evidence[0].checked = false;
        let draft = draft_by_rules(&brief("What is A?", &["A"]), &tree, &[(id, found)].into());
        assert_eq!(draft.answer, "A is two. [n2e2]");
        assert_eq!(draft.findings.len(), 1);
    }
}
