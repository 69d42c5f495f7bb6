//! A Question becomes a Brief and a Plan without a model: by its wording, and nothing else.
//!
//! Pure functions of the user's own words and of what is made of them here, so nothing that was found can reach a
//! query. A comparison is one node a thing and one that puts them together; a question of several parts is one node a
//! part; a report on a subject is one node a side of it; all else is the root alone.

mod comparison;
mod parts;
mod shape;
mod survey;

use std::collections::BTreeSet;

use super::node::{Node, NodeStatus, SourceHint, Tree};
use super::plan::{NodeDraft, PlanDraft, UpdateDraft};
use super::question::{Aspect, AspectId, Brief, Mode, Question};
use crate::base::word::WordSplitter;
use comparison::Comparison;
use shape::Shape;

/// Longest question a rule makes, in characters; within what [`Question`] takes.
const MAX_CHARACTERS: usize = 1_000;

/// Wording that asks for what the asker's own people wrote.
const INTERNAL_WORDS: [&str; 16] = [
    "our",
    "ours",
    "we decided",
    "we decide",
    "did we",
    "do we",
    "have we",
    "we use",
    "internal",
    "internally",
    "in our docs",
    "the notes",
    "my notes",
    "the handbook",
    "knowledge base",
    "the docs",
];

/// Wording that asks for what the world outside says.
const WEB_WORDS: [&str; 14] = [
    "latest",
    "current state of",
    "on the web",
    "on the internet",
    "online",
    "industry",
    "landscape",
    "recent trends",
    "state of the art",
    "best practice",
    "best practices",
    "recent developments",
    "news",
    "market",
];

/// Returns what a question asks for, by its wording: one aspect a part, or a thing that is compared.
///
/// What the caller requires comes first, in the caller's words. [`Mode::Auto`] becomes [`Mode::Deep`] where there is
/// more than one aspect, else [`Mode::Quick`].
pub fn brief_by_rules(question: &Question, mode: Mode, required: &[String]) -> Brief {
    let asked = Asked::of(question, &WordSplitter::default());
    let aspects = Aspect::list(required, &asked.aspects(question));
    let mode = match mode {
        Mode::Auto if aspects.len() == 1 => Mode::Quick,
        Mode::Auto => Mode::Deep,
        Mode::Quick | Mode::Iterative | Mode::Deep => mode,
    };
    Brief { question: question.clone(), task: question.to_string(), aspects, mode }
}

/// Returns the nodes a brief needs; none where the root alone answers it.
///
/// Aspects the rules did not make, for example of a caller's requirements, get a node each.
pub fn plan_by_rules(brief: &Brief) -> PlanDraft {
    let splitter = WordSplitter::default();
    let hint = source_hint(brief.question.as_str());
    let asked = Asked::of(&brief.question, &splitter);
    let nodes = if brief.mode == Mode::Deep { planned(brief, &asked, hint, &splitter) } else { Vec::new() };
    if nodes.is_empty() {
        return root_alone(hint);
    }
    let what = if asked.is_comparison { "compares" } else { "asks" };
    PlanDraft {
        reasoning: format!("by rules: the question {what} {} things, each looked for by itself", nodes.len()),
        new_nodes: with_synthesis(nodes, brief, &asked, hint),
        updates: Vec::new(),
    }
}

/// Returns one node for each missing aspect, asked in other words; none where no other words are left.
///
/// First an aspect is asked with the key words of the question, then by itself.
pub fn replan_by_rules(brief: &Brief, tree: &Tree, missing: &[AspectId]) -> PlanDraft {
    let splitter = WordSplitter::default();
    let key = |text: &str| splitter.key_stems(text).into_iter().collect::<BTreeSet<_>>();
    // A root that only gathers what its children find has asked nothing itself.
    let has_asked = |node: &&Node| tree.has_worker(&node.id) || node.status != NodeStatus::Pending;
    let mut asked: BTreeSet<_> = tree.nodes.iter().filter(has_asked).map(|node| key(node.question.as_str())).collect();
    let mut new_nodes = Vec::new();
    for aspect in missing.iter().filter_map(|id| brief.aspect(id)) {
        let queries = [reworded(brief, aspect, &splitter), splitter.without_stop_words(&aspect.text)];
        let Some(query) = queries.iter().find(|query| asked.insert(key(query))) else { continue };
        let id = format!("gap{}", new_nodes.len() + 1);
        let hint = own_hint(&aspect.text).unwrap_or_else(|| source_hint(brief.question.as_str()));
        let why = format!("nothing was found for aspect {}", aspect.id);
        new_nodes.push(draft(id, query, vec![aspect.id.to_string()], hint, &why));
    }
    PlanDraft { reasoning: "by rules: what is missing, in other words".into(), new_nodes, updates: Vec::new() }
}

/// What a question falls into.
#[derive(Default)]
struct Asked {
    /// Each with the aspect it serves and what it asks; none for a plain question.
    nodes: Vec<(String, String)>,
    is_comparison: bool,
}

impl Asked {
    fn of(question: &Question, splitter: &WordSplitter) -> Self {
        match Shape::of(question.as_str(), splitter) {
            Shape::Plain => Self::default(),
            Shape::Comparison(comparison) => {
                let nodes = comparison.entities.iter().map(|entity| about(entity, &comparison)).collect();
                Self { nodes, is_comparison: true }
            }
            Shape::Parts(parts) => {
                let nodes = parts.into_iter().map(|part| (without_mark(&part), part)).collect();
                Self { nodes, is_comparison: false }
            }
            Shape::Survey(subject) => {
                let nodes = survey::sides(&subject).into_iter().map(|side| (side.clone(), side)).collect();
                Self { nodes, is_comparison: false }
            }
        }
    }

    fn aspects(&self, question: &Question) -> Vec<String> {
        match self.nodes.as_slice() {
            [] => vec![without_mark(question.as_str())],
            nodes => nodes.iter().map(|(aspect, _)| aspect.clone()).collect(),
        }
    }
}

/// Returns the aspect and the question of one thing of a comparison.
fn about(entity: &str, comparison: &Comparison) -> (String, String) {
    let topic = match comparison.topic.as_str() {
        "" => String::new(),
        topic => format!(" {topic}"),
    };
    let aspect = format!("{entity}{topic}");
    let question = match (comparison.is_weighed, topic.as_str()) {
        (true, topic) => format!("What are the pros and cons of {entity}{topic}?"),
        (false, "") => format!("What is {entity}?"),
        (false, topic) => format!("What about {entity}{topic}?"),
    };
    (aspect, question)
}

/// Returns a node for each thing asked, then one for each aspect that leaves unserved.
fn planned(brief: &Brief, asked: &Asked, hint: SourceHint, splitter: &WordSplitter) -> Vec<NodeDraft> {
    let id = |number: usize| format!("{}{number}", if asked.is_comparison { "thing" } else { "part" });
    let mut nodes: Vec<NodeDraft> = Vec::new();
    let mut served = BTreeSet::new();
    for (text, question) in &asked.nodes {
        let aspect =
            brief.aspects.iter().find(|aspect| aspect.text == Aspect::text_of(text)).map(|aspect| aspect.id.clone());
        served.extend(aspect.clone());
        let hint = if asked.is_comparison { hint } else { own_hint(question).unwrap_or(hint) };
        let aspects = aspect.iter().map(ToString::to_string).collect();
        nodes.push(draft(id(nodes.len() + 1), question, aspects, hint, "a part of the question"));
    }
    let unserved = brief.aspects.iter().filter(|aspect| !served.contains(&aspect.id));
    let alone = nodes.is_empty() && brief.aspects.len() == 1;
    for aspect in unserved.filter(|_| !alone) {
        let query = reworded(brief, aspect, splitter);
        let hint = own_hint(&aspect.text).unwrap_or(hint);
        nodes.push(draft(id(nodes.len() + 1), &query, vec![aspect.id.to_string()], hint, "an aspect by itself"));
    }
    nodes
}

/// Adds the node that puts the things of a comparison together: it asks the question as the user did.
fn with_synthesis(mut nodes: Vec<NodeDraft>, brief: &Brief, asked: &Asked, hint: SourceHint) -> Vec<NodeDraft> {
    if asked.is_comparison {
        let depends_on = nodes.iter().map(|node| node.id.clone()).collect();
        let why = "puts together what was found of each";
        let synthesis = draft("synthesis".into(), brief.question.as_str(), Vec::new(), hint, why);
        nodes.push(NodeDraft { depends_on, optional_dependencies: true, ..synthesis });
    }
    nodes
}

/// Returns a plan without nodes; it tells the root where to look, where that is not what it does anyway.
fn root_alone(hint: SourceHint) -> PlanDraft {
    let update = UpdateDraft { id: "n1".into(), source_hint: Some(hint), ..UpdateDraft::default() };
    let updates = Some(update).filter(|_| hint != SourceHint::default()).into_iter().collect();
    PlanDraft { reasoning: "by rules: one thing is asked".into(), new_nodes: Vec::new(), updates }
}

fn draft(id: String, question: &str, aspects: Vec<String>, source_hint: SourceHint, why: &str) -> NodeDraft {
    NodeDraft {
        id,
        parent: None,
        question: shortened(question),
        aspects,
        depends_on: Vec::new(),
        optional_dependencies: false,
        parallelizable: true,
        priority: 0,
        group: None,
        source_hint,
        tools: Vec::new(),
        output_schema: None,
        why: why.to_owned(),
    }
}

/// Returns an aspect without its little words, and with the key words of the question it lacks.
fn reworded(brief: &Brief, aspect: &Aspect, splitter: &WordSplitter) -> String {
    let own = splitter.without_stop_words(&aspect.text);
    let mut known: BTreeSet<_> = splitter.words(&own).into_iter().map(|word| word.stem).collect();
    let asked = splitter.without_stop_words(brief.question.as_str());
    let lacking = splitter.words(&asked).into_iter().filter(|word| known.insert(word.stem.clone()));
    let words: Vec<_> = std::iter::once(own.as_str()).chain(lacking.map(|word| &asked[word.range])).collect();
    words.join(" ")
}

fn without_mark(text: &str) -> String {
    text.trim_end_matches(['?', '.', '!', ' ']).to_owned()
}

/// Returns the start of a text, up to the end of a word.
fn shortened(text: &str) -> String {
    let Some((end, _)) = text.char_indices().nth(MAX_CHARACTERS) else { return text.to_owned() };
    let start = &text[..end];
    start.rsplit_once(' ').map_or(start, |(whole, _)| whole).to_owned()
}

/// Returns where a text asks to look; internal where it does not say.
fn source_hint(text: &str) -> SourceHint {
    own_hint(text).unwrap_or_default()
}

/// Returns where a text asks to look, by words that stand outside of quotes and code.
fn own_hint(text: &str) -> Option<SourceHint> {
    let mask = shape::mask(text);
    let words: Vec<_> = mask.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let words = format!(" {} ", words.join(" "));
    let has = |list: &[&str]| list.iter().any(|phrase| words.contains(&format!(" {phrase} ")));
    // A page that is named is to be read, whatever else bears on the question.
    if mask.contains("http://") || mask.contains("https://") {
        return Some(SourceHint::Mixed);
    }
    match (has(&INTERNAL_WORDS), has(&WEB_WORDS)) {
        (true, true) => Some(SourceHint::Mixed),
        (true, false) => Some(SourceHint::Internal),
        (false, true) => Some(SourceHint::Web),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests;
