//! Makes a brief and a plan from the wording of a question, without a model.
//!
//! There are three kinds of question: plain (the root alone), a comparison (one node per entity, and one that depends
//! on them all), and several parts (one node per part). Everything here is a pure function of the user's words, so
//! retrieved text cannot reach a query.

mod shape;

use std::collections::BTreeSet;

use super::node::{Node, NodeStatus, SourceHint, Tree};
use super::plan::{NodeDraft, PlanDraft, UpdateDraft};
use super::question::{Aspect, AspectId, Brief, Mode, Question};
use crate::base::word::WordSplitter;
use shape::{QuestionPart, Shape, mask};

/// Phrases that ask for documents of the user's own organisation.
const INTERNAL_WORDS: &str = "our|ours|we decided|we decide|did we|do we|have we|we use|internal|internally|the notes\
    |my notes|the handbook|knowledge base|the docs";

/// Prefix of the reasoning of a rule-based plan.
pub(crate) const BY_RULES: &str = "by rules: ";

/// Phrases that ask for public sources.
const WEB_WORDS: &str = "latest|current state of|on the web|on the internet|online|industry|landscape|recent trends\
    |state of the art|best practice|best practices|recent developments|news|market";

/// Returns a brief with one aspect for each requirement, then one for each part of the question.
///
/// [`Mode::Auto`] becomes [`Mode::Quick`] if the question is plain and nothing is required, else [`Mode::Deep`].
pub fn brief_by_rules(question: &Question, mode: Mode, required: &[String]) -> Brief {
    let parts = Shape::of(question.as_str(), &WordSplitter::default()).parts;
    let is_plain = parts.is_empty();
    let asked: Vec<_> = match parts.as_slice() {
        [] => vec![question.as_str().trim_end_matches(['?', '.', '!', ' ']).to_owned()],
        parts => parts.iter().map(|part| part.aspect.clone()).collect(),
    };
    let aspects = Aspect::list(required, &asked);
    let mode = match mode {
        Mode::Auto if is_plain && aspects.len() == 1 => Mode::Quick,
        Mode::Auto => Mode::Deep,
        Mode::Quick | Mode::Iterative | Mode::Deep => mode,
    };
    Brief { question: question.clone(), task: question.to_string(), aspects, mode }
}

/// Returns one node for each aspect of a brief, and for a comparison one that depends on them all.
///
/// A plan without nodes leaves the question to the root.
pub fn plan_by_rules(brief: &Brief) -> PlanDraft {
    let splitter = WordSplitter::default();
    let hint = own_hint(brief.question.as_str());
    let shape = Shape::of(brief.question.as_str(), &splitter);
    if brief.mode != Mode::Deep || (shape.parts.is_empty() && brief.aspects.len() == 1) {
        return root_alone(hint);
    }
    let drafts = brief.aspects.iter().zip(1..).map(|(aspect, number)| {
        let is_same = |part: &&QuestionPart| Aspect::text_of(&part.aspect) == aspect.text;
        let question = match shape.parts.iter().find(is_same) {
            Some(part) => part.question.clone(),
            None => reworded(brief, aspect, &splitter),
        };
        // The entities of a comparison are looked up in the same place, whatever their names contain.
        let own = if shape.is_comparison { None } else { own_hint(&question) };
        draft(format!("part{number}"), question, Some(&aspect.id), own.or(hint), "a part of the question")
    });
    let mut new_nodes: Vec<NodeDraft> = drafts.collect();
    let what = if shape.is_comparison { "compares" } else { "asks" };
    let reasoning = format!("{BY_RULES}the question {what} {} things; each is searched separately", new_nodes.len());
    if shape.is_comparison {
        let depends_on = new_nodes.iter().map(|node| node.id.clone()).collect();
        let question = brief.question.to_string();
        let synthesis = draft("synthesis".into(), question, None, hint, "compares what was found of each");
        // Optional, so that the other entities are compared if nothing is found on one.
        new_nodes.push(NodeDraft { depends_on, optional_dependencies: true, ..synthesis });
    }
    PlanDraft { reasoning, new_nodes, updates: Vec::new() }
}

/// Returns one node for each missing aspect, in words that no node has used yet. An aspect without an unused wording
/// gets no node.
///
/// An aspect is first searched with the key words of the question, then alone.
pub(crate) fn replan_by_rules(brief: &Brief, tree: &Tree, missing: &[AspectId]) -> PlanDraft {
    let splitter = WordSplitter::default();
    let key = |text: &str| splitter.key_stems(text).into_iter().collect::<BTreeSet<_>>();
    // A root with children only gathers their findings; its question was not searched for.
    let has_asked = |node: &&Node| tree.has_worker(&node.id) || node.status != NodeStatus::Pending;
    let mut asked: BTreeSet<_> = tree.nodes.iter().filter(has_asked).map(|node| key(node.question.as_str())).collect();
    let mut new_nodes = Vec::new();
    for aspect in missing.iter().filter_map(|id| brief.aspect(id)) {
        let queries = [reworded(brief, aspect, &splitter), splitter.without_stop_words(&aspect.text)];
        let Some(query) = queries.into_iter().find(|query| asked.insert(key(query))) else { continue };
        let id = format!("gap{}", new_nodes.len() + 1);
        let hint = own_hint(&aspect.text).or_else(|| own_hint(brief.question.as_str()));
        let why = format!("nothing was found for aspect {}", aspect.id);
        new_nodes.push(draft(id, query, Some(&aspect.id), hint, &why));
    }
    PlanDraft { reasoning: format!("{BY_RULES}the missing aspects, reworded"), new_nodes, updates: Vec::new() }
}

/// Returns a plan without nodes. It sets the source of the root if the wording names one.
fn root_alone(hint: Option<SourceHint>) -> PlanDraft {
    let hint = hint.filter(|hint| *hint != SourceHint::default());
    let update = |hint| UpdateDraft { id: "n1".into(), source_hint: Some(hint), ..UpdateDraft::default() };
    let updates = hint.map(update).into_iter().collect();
    PlanDraft { reasoning: format!("{BY_RULES}the question has a single part"), new_nodes: Vec::new(), updates }
}

fn draft(id: String, question: String, aspect: Option<&AspectId>, hint: Option<SourceHint>, why: &str) -> NodeDraft {
    NodeDraft {
        id,
        parent: None,
        question,
        aspects: aspect.into_iter().map(ToString::to_string).collect(),
        depends_on: Vec::new(),
        optional_dependencies: false,
        parallelizable: true,
        priority: 0,
        group: None,
        source_hint: hint.unwrap_or_default(),
        tools: Vec::new(),
        output_schema: None,
        why: why.to_owned(),
    }
}

/// Returns the key words of an aspect, then those of the question that the aspect lacks.
fn reworded(brief: &Brief, aspect: &Aspect, splitter: &WordSplitter) -> String {
    let own = splitter.without_stop_words(&aspect.text);
    let mut known = splitter.stems(&own);
    let asked = splitter.without_stop_words(brief.question.as_str());
    let lacking = splitter.words(&asked).into_iter().filter(|word| known.insert(word.stem.clone()));
    let words: Vec<_> = std::iter::once(own.as_str()).chain(lacking.map(|word| &asked[word.range])).collect();
    words.join(" ")
}

/// Returns the source that a text asks for, by phrases outside quotes and code.
fn own_hint(text: &str) -> Option<SourceHint> {
    let mask = mask(text);
    let words: Vec<_> = mask.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let words = format!(" {} ", words.join(" "));
    let has = |phrases: &str| phrases.split('|').any(|phrase| words.contains(&format!(" {phrase} ")));
    // An address asks for that page; the rest of the question may still be about internal matters.
    if mask.contains("http://") || mask.contains("https://") {
        return Some(SourceHint::Mixed);
    }
    match (has(INTERNAL_WORDS), has(WEB_WORDS)) {
        (true, true) => Some(SourceHint::Mixed),
        (true, false) => Some(SourceHint::Internal),
        (false, true) => Some(SourceHint::Web),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests;
