//! Folds branches into a memory: a global summary of bounded size, and one summary per group.
//!
//! Summaries guide planning and may omit facts; a report cites the evidence in the branches. Folding in one branch
//! costs about twice the limit, however many were folded before. Each fold has a counterpart by rules, which is used
//! without a model and if the model fails.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use futures::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::branch::{Branch, BranchReport, Finding};
use super::cut::{Count, cut, estimate, pieces};
use super::evidence::{marks, strike};
use super::node::{NodeId, SourceHint, Tree};
use super::prompt::{Template, ends_run, fitted, shorten_longest, size};
use super::question::Brief;
use crate::base::outbound::{EgressAllowed, Outbound};
use crate::base::word::{WordSplitter, is_condition, is_negation};
use crate::llm::call::{CallError, CallKey, Caller};
use crate::llm::message::{Prompt, Role};
use crate::source::Label;

/// Tokens of a fold prompt besides the summary and the branch.
const OVERHEAD_TOKENS: u64 = 1_000;

/// Words that do not change what a claim says. "Is" and "or" are not among them: two claims may differ by them alone.
const FILLERS: [&str; 8] = ["a", "also", "an", "that", "the", "these", "this", "those"];

/// Signs of figures, units and names, which stay with their words.
const SIGNS: &str = "%‰$€£¥°#+-<>=≤≥±~≈";

/// Most results of a group that are summarised in one call.
const MAX_BATCH: usize = 8;

/// A text derived from others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The text, with ids of quotes in brackets.
    pub(crate) text: String,
    /// The strictest label of its sources.
    pub(crate) label: Label,
}

impl Default for Summary {
    fn default() -> Self {
        Self { text: String::new(), label: Label::Public }
    }
}

/// The summaries of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Summary of all results.
    pub(crate) global: Summary,
    /// Summary of the public results, for workers that may not see internal text.
    pub(crate) global_public: PublicSummary,
    pub(crate) groups: BTreeMap<String, Summary>,
}

/// A summary that [`fold_public`] made of outbound text and public branches.
///
/// It is read back from journals, which anything may have written, so it is no [`Outbound`]: `run/outward/origin.rs`
/// makes it one, unless it may hold internal text, see `RunSettings::keeps_public_apart`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PublicSummary(String);

impl PublicSummary {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The findings of a node that rest on public sources alone, without its output, notes and further passages.
///
/// Conversations that face outward are shown no other branches.
#[derive(Clone, Debug)]
pub(crate) struct PublicBranch(Branch);

impl PublicBranch {
    /// Returns the findings of a node if they are public.
    pub(crate) fn of(tree: &Tree, branches: &BTreeMap<NodeId, Branch>, id: &NodeId) -> Option<Self> {
        let is_public = label(tree, branches, id) == Label::Public;
        branches.get(id).filter(|_| is_public).map(Self::findings)
    }

    /// Returns the findings of any node, once the user has allowed internal text to leave.
    pub(crate) fn allowed_by_user(_: EgressAllowed, branch: &Branch) -> Self {
        Self::findings(branch)
    }

    /// What a planner that had internal text in view may have worded is left out: notes may name a question, and the
    /// output has the form of a schema.
    fn findings(branch: &Branch) -> Self {
        let report = BranchReport { output: None, ..branch.report.clone() };
        Self(Branch { report, notes: Vec::new(), further: Vec::new(), ..branch.clone() })
    }

    pub(crate) fn as_branch(&self) -> &Branch {
        &self.0
    }
}

/// Returns the label of a node's findings: internal if it searched the knowledge base, cites it, may repeat other
/// internal text, or depends on such a node.
pub(crate) fn label(tree: &Tree, branches: &BTreeMap<NodeId, Branch>, id: &NodeId) -> Label {
    let mut open = vec![id];
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        // Internal in doubt: only text known to be public may leave.
        let Some(node) = tree.get(id) else { return Label::Internal };
        let is_internal =
            |branch: &Branch| branch.saw_internal || branch.evidence.iter().any(|quote| quote.label == Label::Internal);
        if branches.get(id).is_some_and(is_internal) || node.source_hint != SourceHint::Web {
            return Label::Internal;
        }
        open.extend(&node.depends_on);
    }
    Label::Public
}

/// The node of a branch, as shown to the summariser.
///
/// The public summary is made with outbound wording, since outward workers see it; the other summary with the wording
/// of the plan.
#[derive(Debug)]
pub(crate) struct FoldedNode<'a, Q: ?Sized = str> {
    pub(crate) task: &'a Q,
    pub(crate) id: &'a NodeId,
    pub(crate) question: &'a Q,
}

/// Folds a public branch into the public summary, see [`fold`].
///
/// # Errors
///
/// Returns an error only if the run itself cannot continue.
pub(crate) async fn fold_public(
    caller: Option<&dyn Caller>,
    key: &CallKey,
    node: FoldedNode<'_, Outbound>,
    g: &PublicSummary,
    branch: &PublicBranch,
    r_tokens: u64,
) -> Result<PublicSummary, CallError> {
    let node = FoldedNode { task: node.task.as_str(), id: node.id, question: node.question.as_str() };
    fold(caller, key, node, g.as_str(), branch.as_branch(), r_tokens).await.map(PublicSummary)
}

/// Folds a branch into a summary `g` and returns the new one, of at most `r_tokens` as the summariser counts.
///
/// As long as all claims fit, the summary is their concatenation and no model is called. Past that, the prompt has at
/// most 2 × `r_tokens` + 1,000 tokens. Without a model, or if it fails or the prompt does not fit, rules fold instead.
///
/// # Errors
///
/// Returns an error only if the run itself cannot continue.
pub(crate) async fn fold(
    caller: Option<&dyn Caller>,
    key: &CallKey,
    node: FoldedNode<'_>,
    g: &str,
    branch: &Branch,
    r_tokens: u64,
) -> Result<String, CallError> {
    let Some(caller) = caller else { return Ok(fold_by_rules(g, branch, r_tokens, &estimate)) };
    let count = |text: &str| caller.count(Role::Summariser, text);
    let whole = claims_after(g, branch).join("\n");
    if count(&whole) <= r_tokens {
        return Ok(whole);
    }
    let Some(prompt) = fold_prompt(caller, &node, g, branch, r_tokens) else {
        return Ok(fold_by_rules(g, branch, r_tokens, &count));
    };
    let asked = caller.call(key, &prompt).await;
    match asked.map(|reply| reply.text.trim().to_owned()) {
        Ok(text) if !text.is_empty() => Ok(cut(&text, r_tokens, &count).to_owned()),
        Err(error) if ends_run(&error) => Err(error),
        Ok(_) | Err(_) => Ok(fold_by_rules(g, branch, r_tokens, &count)),
    }
}

/// Returns the prompt of a fold with the branch truncated to fit; `None` if even the summary does not fit.
fn fold_prompt(caller: &dyn Caller, node: &FoldedNode<'_>, g: &str, branch: &Branch, r_tokens: u64) -> Option<Prompt> {
    let most = (2 * r_tokens + OVERHEAD_TOKENS).min(caller.input_limit(Role::Summariser));
    let render = |result: &str| {
        let context = json!({
            "task": node.task, "summary": g, "id": node.id, "question": node.question, "result": result,
            "most_words": words_in(r_tokens),
        });
        Template::Fold.prompt(caller, context)
    };
    let count = |text: &str| caller.count(Role::Summariser, text);
    let mut prompt = fitting(caller, most, &branch_text(&branch.report), &count, &render)?;
    prompt.max_output_tokens = prompt.max_output_tokens.min(u32::try_from(r_tokens).unwrap_or(u32::MAX));
    Some(prompt)
}

/// Returns the prompt with as much of `text` as fits; `None` if not even one sentence fits.
fn fitting(
    caller: &dyn Caller,
    most: u64,
    text: &str,
    count: Count<'_>,
    render: &dyn Fn(&str) -> Prompt,
) -> Option<Prompt> {
    let mut left = most.saturating_sub(size(caller, &render("")));
    loop {
        let text = cut(text, left, count);
        if text.is_empty() {
            return None;
        }
        let prompt = render(text);
        let tokens = size(caller, &prompt);
        if tokens <= most {
            return Some(prompt);
        }
        // A prompt can have more tokens than its parts together.
        left = left.saturating_sub(tokens - most);
    }
}

/// Estimates the number of words in `tokens`, rounding down.
fn words_in(tokens: u64) -> u64 {
    tokens * 7 / 10
}

/// Returns a branch report as text, with the evidence ids of its claims. A summary that only strings the claims
/// together, as rules make it, is left out.
pub(crate) fn branch_text(report: &BranchReport) -> String {
    let BranchReport { summary, findings, .. } = report;
    let bare = strike(summary, &|_| false, "").0;
    let rest = findings.iter().fold(bare, |rest, finding| rest.replace(&finding.text, ""));
    let summary = Some(summary.clone()).filter(|_| rest.contains(char::is_alphanumeric));
    summary.into_iter().chain([claims_text(report)]).collect::<Vec<_>>().join("\n")
}

/// Returns the claims of a branch report with their evidence ids, and its open questions.
pub(crate) fn claims_text(BranchReport { findings, open_questions, .. }: &BranchReport) -> String {
    let open = open_questions.iter().map(|question| format!("Open: {question}"));
    findings.iter().map(cited).chain(open).collect::<Vec<_>>().join("\n")
}

/// Returns a claim with its evidence ids: `It is so. [n2e1, n2e3]`.
pub(crate) fn cited(finding: &Finding) -> String {
    let ids: Vec<_> = finding.evidence.iter().map(ToString::to_string).collect();
    if ids.is_empty() { finding.text.clone() } else { format!("{} [{}]", finding.text, ids.join(", ")) }
}

/// Folds a branch into a summary without a model: appends its claims, without duplicates.
///
/// If the result is too long, the node with the most text loses its last claim until it fits, so that no node is
/// crowded out because of its place in the order.
pub(crate) fn fold_by_rules(g: &str, branch: &Branch, r_tokens: u64, count: Count<'_>) -> String {
    let claims = claims_after(g, branch);
    within(claims.iter().map(String::as_str).collect(), r_tokens, count)
}

/// Returns the sentences of a summary and the claims of a branch, without duplicates.
fn claims_after(g: &str, branch: &Branch) -> Vec<String> {
    let claims: Vec<_> = branch.report.findings.iter().map(cited).collect();
    let all = pieces(g).into_iter().chain(claims.iter().map(String::as_str));
    distinct(all).into_iter().map(str::to_owned).collect()
}

fn join_by_rules<'a>(claims: impl Iterator<Item = &'a str>, r_tokens: u64, count: Count<'_>) -> String {
    within(distinct(claims), r_tokens, count)
}

/// Joins claims. While they have more than `r_tokens`, the node with the most text loses its last claim.
fn within(mut lines: Vec<&str>, r_tokens: u64, count: Count<'_>) -> String {
    loop {
        let text = lines.join("\n");
        if count(&text) <= r_tokens {
            return text;
        }
        let Some(longest) = most_room(&lines, count) else { return cut(&text, r_tokens, count).to_owned() };
        lines.remove(longest);
    }
}

/// Returns the claims without duplicates.
fn distinct<'a>(claims: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let splitter = WordSplitter::default();
    let mut kept: Vec<(&str, Vec<String>)> = Vec::new();
    for claim in claims {
        let words = telling_words(claim, &splitter);
        if !words.is_empty() && !kept.iter().any(|(_, known)| says(known, &words)) {
            kept.push((claim, words));
        }
    }
    kept.into_iter().map(|(claim, _)| claim).collect()
}

/// Returns a claim without the ids it cites.
fn without_marks(claim: &str) -> String {
    strike(claim, &|_| false, " ").0
}

/// Returns the stems of a claim, without the ids it cites.
fn stems(claim: &str, splitter: &WordSplitter) -> HashSet<String> {
    splitter.stems(&without_marks(claim))
}

/// Returns the words that carry the sense of a claim, in order, without the ids it cites. Figures keep their signs: 1.5
/// is neither 15 nor 1 and 5, and >5 is not <5.
fn telling_words(claim: &str, splitter: &WordSplitter) -> Vec<String> {
    let is_mark = |letter: char| !letter.is_alphanumeric() && !SIGNS.contains(letter);
    let text = without_marks(claim);
    let words = text.split_whitespace().map(|word| word.trim_matches(is_mark).to_lowercase());
    let words = words.filter(|word| !word.is_empty() && word != "-" && !FILLERS.contains(&word.as_str()));
    // The stem of "only" is no English word.
    let is_form = |word: &str| word.chars().all(char::is_alphabetic) && !is_negation(word) && !is_condition(word);
    words.map(|word| if is_form(&word) { splitter.stem(&word) } else { word }).collect()
}

/// Returns whether a known claim begins with all words of another one and does not negate or limit them afterwards. Two
/// facts may differ in a single word: "per second", "per minute". Words before them may limit them: "In version 1".
fn says(known: &[String], words: &[String]) -> bool {
    let rest = known.strip_prefix(words);
    rest.is_some_and(|rest| !rest.iter().any(|word| is_negation(word) || is_condition(word)))
}

/// Returns the position of the last claim of the longest node; `None` if only one claim is left.
fn most_room(lines: &[&str], count: Count<'_>) -> Option<usize> {
    if lines.len() < 2 {
        return None;
    }
    let mut by_node: BTreeMap<Option<NodeId>, (u64, usize)> = BTreeMap::new();
    for (place, line) in lines.iter().enumerate() {
        let node = marks(line).first().map(|(_, id)| id.node().clone());
        let (tokens, last) = by_node.entry(node).or_default();
        *tokens += count(line);
        *last = place;
    }
    by_node.into_values().max_by_key(|(tokens, last)| (*tokens, *last)).map(|(_, last)| last)
}

/// A group and its nodes with findings, in tree order.
type Group<'a> = (&'a str, Vec<(&'a NodeId, &'a Branch)>);

fn groups<'a>(tree: &'a Tree, branches: &'a BTreeMap<NodeId, Branch>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for node in tree.workers() {
        let (Some(name), Some(branch)) = (node.group.as_deref(), branches.get(&node.id)) else { continue };
        if branch.report.findings.is_empty() {
            continue;
        }
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, members)) => members.push((&node.id, branch)),
            None => groups.push((name, vec![(&node.id, branch)])),
        }
    }
    groups
}

/// Summarises each group of nodes with findings, in at most `tokens` each.
///
/// A group that already fits needs no call. A large one is reduced in levels: batches that fit a prompt, then the
/// summaries of the batches. An unchanged group makes the same calls, whose replies are on record.
///
/// # Errors
///
/// Returns an error only if the run itself cannot continue.
pub(crate) async fn group_summaries(
    caller: &dyn Caller,
    key: &CallKey,
    brief: &Brief,
    tree: &Tree,
    branches: &BTreeMap<NodeId, Branch>,
    tokens: u64,
) -> Result<BTreeMap<String, Summary>, CallError> {
    let summaries = groups(tree, branches).into_iter().map(|(name, members)| async move {
        let label = joined_label(tree, branches, &members);
        let text = GroupSummary { caller, brief, name, tokens }.of(key, &members).await?;
        Ok((name.to_owned(), Summary { text, label }))
    });
    join_all(summaries).await.into_iter().collect()
}

/// Summarises each group without a model: its claims without duplicates, in at most `tokens`.
pub(crate) fn group_summaries_by_rules(
    tree: &Tree,
    branches: &BTreeMap<NodeId, Branch>,
    tokens: u64,
    count: Count<'_>,
) -> BTreeMap<String, Summary> {
    let summary = |(name, members): Group<'_>| {
        let claims: Vec<_> = members.iter().flat_map(|(_, branch)| branch.report.findings.iter().map(cited)).collect();
        let text = join_by_rules(claims.iter().map(String::as_str), tokens, count);
        (name.to_owned(), Summary { text, label: joined_label(tree, branches, &members) })
    };
    groups(tree, branches).into_iter().map(summary).collect()
}

fn joined_label(tree: &Tree, branches: &BTreeMap<NodeId, Branch>, members: &[(&NodeId, &Branch)]) -> Label {
    // The stricter label is the greater.
    members.iter().map(|(id, _)| label(tree, branches, id)).max().unwrap_or(Label::Internal)
}

#[derive(Clone, Copy)]
struct GroupSummary<'a> {
    caller: &'a dyn Caller,
    brief: &'a Brief,
    name: &'a str,
    /// Maximum number of tokens in it and in the summary of each batch.
    tokens: u64,
}

impl GroupSummary<'_> {
    fn count(&self, text: &str) -> u64 {
        self.caller.count(Role::Summariser, text)
    }

    /// Reduces the results of the members, level by level.
    async fn of(&self, key: &CallKey, members: &[(&NodeId, &Branch)]) -> Result<String, CallError> {
        let mut texts: Vec<(String, String)> =
            members.iter().map(|(id, branch)| (id.to_string(), branch_text(&branch.report))).collect();
        let whole = texts.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
        if self.count(&whole) <= self.tokens {
            return Ok(whole);
        }
        let mut level = 0;
        while texts.len() > 1 {
            let calls = self.batches(&texts).into_iter().enumerate().map(|(number, batch)| {
                // Keyed by the first node: a node is in one group only, while the name of a group may be any text.
                let key = key.at(&texts[0].0).at(level).at(number);
                async move { Ok((batch[0].0.clone(), self.of_batch(&key, batch).await?)) }
            });
            let next = join_all(calls).await.into_iter().collect::<Result<Vec<_>, CallError>>()?;
            texts = next;
            level += 1;
        }
        let count = |text: &str| self.count(text);
        Ok(texts.first().map(|(_, text)| cut(text, self.tokens, &count).to_owned()).unwrap_or_default())
    }

    /// Divides results into batches that fit one prompt. Each has at least two, so that every level is shorter.
    fn batches<'t>(&self, texts: &'t [(String, String)]) -> Vec<&'t [(String, String)]> {
        let limit = self.caller.input_limit(Role::Summariser);
        let mut batches = Vec::new();
        let mut rest = texts;
        while !rest.is_empty() {
            let fits = |end: &usize| size(self.caller, &self.prompt(&rest[..*end])) <= limit;
            let end = (2..=rest.len().min(MAX_BATCH)).rev().find(fits).unwrap_or(2).min(rest.len());
            batches.push(&rest[..end]);
            rest = &rest[end..];
        }
        batches
    }

    fn prompt(&self, texts: &[(String, String)]) -> Prompt {
        let Self { caller, brief, name, tokens } = *self;
        let results: Vec<_> = texts.iter().map(|(id, text)| json!({"id": id, "text": text})).collect();
        let context = json!({"task": brief.task, "group": name, "results": results, "most_words": words_in(tokens)});
        let mut prompt = Template::Group.prompt(caller, context);
        prompt.max_output_tokens = prompt.max_output_tokens.min(u32::try_from(tokens).unwrap_or(u32::MAX));
        prompt
    }

    /// Summarises one batch. If it does not fit, each of its results is truncated.
    async fn of_batch(&self, key: &CallKey, batch: &[(String, String)]) -> Result<String, CallError> {
        if let [(_, text)] = batch {
            return Ok(text.clone());
        }
        let mut texts = batch.to_vec();
        let limit = self.caller.input_limit(Role::Summariser);
        let count = |text: &str| self.count(text);
        let shorten = |texts: &mut Vec<_>| shorten_longest(texts.iter_mut().map(|(_, text)| text), &count);
        let prompt = fitted(self.caller, limit, &mut texts, |texts| self.prompt(texts), shorten);
        let asked = self.caller.call(key, &prompt).await;
        match asked.map(|reply| reply.text.trim().to_owned()) {
            Ok(text) if !text.is_empty() => Ok(cut(&text, self.tokens, &count).to_owned()),
            Err(error) if ends_run(&error) => Err(error),
            // From the whole results: those in the prompt may have been shortened.
            Ok(_) | Err(_) => Ok(join_by_rules(batch.iter().flat_map(|(_, text)| pieces(text)), self.tokens, &count)),
        }
    }
}

/// Returns the part of a summary that a worker is shown: the sentences that bear on its question and aspects, in their
/// original order, in at most `tokens`. Claims of `shown`, nodes whose findings are shown beside it, are left out.
pub(crate) fn slice(global: &str, shown: &[NodeId], question: &str, aspects: &[&str], tokens: u64) -> String {
    let rest = beside(pieces(global), shown).join("\n");
    nearest(pieces(&rest), question, aspects, tokens).join("\n")
}

/// Like [`slice()`], for the public summary.
pub(crate) fn public_slice(
    global: &Outbound,
    shown: &[NodeId],
    question: &Outbound,
    aspects: &[&Outbound],
    tokens: u64,
) -> Outbound {
    let rest = Outbound::lines(&beside(global.parts(pieces), shown));
    let aspects: Vec<_> = aspects.iter().map(|aspect| aspect.as_str()).collect();
    Outbound::lines(&nearest(rest.parts(pieces), question.as_str(), &aspects, tokens))
}

/// Returns the sentences that do not merely repeat claims of `shown`.
fn beside<T: AsRef<str>>(mut sentences: Vec<T>, shown: &[NodeId]) -> Vec<T> {
    sentences.retain(|sentence| {
        let marks = marks(sentence.as_ref());
        marks.is_empty() || marks.iter().any(|(_, id)| !shown.contains(id.node()))
    });
    sentences
}

/// Returns the sentences that bear most on a question and its aspects, in their original order, in at most `tokens`.
/// The best one on each aspect is taken first, so that an aspect with one fact is not crowded out by one with many.
///
/// The fewer sentences have a word, the more it counts. The name of a run's subject is in most of them: a sentence that
/// shares no other word is left out, unless no sentence does.
fn nearest<T: AsRef<str>>(all: Vec<T>, question: &str, aspects: &[&str], tokens: u64) -> Vec<T> {
    let splitter = WordSplitter::default();
    let said: Vec<_> = all.iter().map(|piece| stems(piece.as_ref(), &splitter)).collect();
    // In whole numbers, which are the same on every machine: prompts are told apart by their hash. 1 for a word that
    // more than half of the sentences have.
    let weight = |stem: &String| match said.iter().filter(|said| said.contains(stem)).count() {
        0 => 0,
        having => (2 * said.len() / having).ilog2(),
    };
    // Each sentence by the words it shares with a text: their weights together, the greatest, and its place.
    let ranked = |text: &str| {
        let wanted: Vec<_> = splitter.subject_stems(text).into_iter().map(|stem| (weight(&stem), stem)).collect();
        let rank = |(place, said): (usize, &HashSet<String>)| {
            let shared = wanted.iter().filter(|(_, stem)| said.contains(stem)).map(|(weight, _)| *weight);
            (shared.clone().sum::<u32>(), shared.max(), place)
        };
        said.iter().enumerate().map(rank).collect::<Vec<_>>()
    };
    let best_on = |aspect: &&str| {
        let telling = ranked(aspect).into_iter().filter(|(_, rarest, _)| *rarest > Some(1));
        telling.max_by_key(|(sum, _, place)| (*sum, Reverse(*place))).map(|(.., place)| place)
    };
    let first: BTreeSet<usize> = aspects.iter().filter_map(best_on).collect();
    let mut ranked = ranked(&[&[question][..], aspects].concat().join("\n"));
    let best = ranked.iter().map(|(sum, ..)| *sum).max().unwrap_or(0);
    ranked.retain(|(sum, rarest, _)| *sum > 0 && (*sum == best || *rarest > Some(1)));
    ranked.sort_by_key(|(sum, _, place)| (!first.contains(place), Reverse(*sum), *place));
    let mut kept: BTreeSet<usize> = BTreeSet::new();
    let text = |kept: &BTreeSet<usize>| kept.iter().map(|place| all[*place].as_ref()).collect::<Vec<_>>().join("\n");
    for (.., place) in ranked {
        kept.insert(place);
        // A shorter sentence may still fit.
        if estimate(&text(&kept)) > tokens {
            kept.remove(&place);
        }
    }
    all.into_iter().enumerate().filter(|(place, _)| kept.contains(place)).map(|(_, sentence)| sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::call::Limit;
    use crate::research::scripted::{Scripted, add_node, branch, brief, broken, tokens};
    use proptest::prelude::*;

    fn tree() -> Tree {
        Tree::of("Compare A and B".parse().unwrap())
    }

    #[tokio::test]
    async fn fold_costs_at_most_twice_the_limit_and_its_overhead_however_long_the_branch() {
        let caller = Scripted::new(|_, _| Ok("It goes on and on. ".repeat(900)));
        let (mut tree, r) = (tree(), 400);
        let id = add_node(&mut tree, "What is A?", &[]);
        let long: Vec<_> = (0..400).map(|n| format!("Claim number {n} says something new about {n}.")).collect();
        let found = branch(&id, &long.iter().map(String::as_str).collect::<Vec<_>>(), Label::Internal);
        let mut g = String::new();
        for round in 0..5 {
            let key = CallKey::new(format!("fold/{round}"));
            let node = FoldedNode { task: "Compare A and B", id: &id, question: "What is A?" };
            g = fold(Some(&caller), &key, node, &g, &found, r).await.unwrap();
            assert!(tokens(&g) <= r, "{}", tokens(&g));
            assert!(g.ends_with('.'), "a summary that is too long ends where a sentence does");
        }
        assert!(caller.sizes().iter().all(|size| *size <= 2 * r + 1_000), "{:?}", caller.sizes());
        assert!(caller.tasks()[1].contains("Claim number 0"));
    }

    const LONG: &str = "B is free. [n9e1] B is green and has many other properties that are of no use here. [n9e2]";

    #[tokio::test]
    async fn fold_goes_by_rules_where_the_model_fails_or_may_not_be_asked() {
        let id = add_node(&mut tree(), "What is A?", &[]);
        let found = branch(&id, &["A costs nine euros."], Label::Internal);
        let node = |id| FoldedNode { task: "Compare A and B", id, question: "What is A?" };
        for error in [broken("down"), CallError::Limit(Limit::Cost)] {
            let caller = Scripted::replying("".into()).failing_at(1, error);
            let g = fold(Some(&caller), &CallKey::new("f"), node(&id), LONG, &found, 20).await;
            assert_eq!(g.unwrap(), "B is free. [n9e1]\nA costs nine euros. [n2e1]");
            assert_eq!(caller.keys().len(), 1);
        }
        let caller = Scripted::replying("".into()).failing_at(1, CallError::Cancelled);
        let g = fold(Some(&caller), &CallKey::new("f"), node(&id), LONG, &found, 20).await;
        assert_eq!(g, Err(CallError::Cancelled));
    }

    #[tokio::test]
    async fn summary_is_the_concatenation_of_the_claims_without_a_call_while_they_fit() {
        let caller = Scripted::replying("".into());
        let mut tree = tree();
        let (first, second) = (add_node(&mut tree, "What is A?", &[]), add_node(&mut tree, "What is B?", &[]));
        let mut branches = BTreeMap::new();
        let mut g = String::new();
        for (id, claim) in [(first, "A costs nine euros."), (second, "B costs ten.")] {
            tree.get_mut(&id).unwrap().group = Some("prices".into());
            let found = branch(&id, &[claim], Label::Internal);
            let node = FoldedNode { task: "Compare A and B", id: &id, question: "What is it?" };
            g = fold(Some(&caller), &CallKey::new("f"), node, &g, &found, 400).await.unwrap();
            branches.insert(id, found);
        }
        let brief = brief("Compare A and B", &["a"]);
        let groups = group_summaries(&caller, &CallKey::new("g"), &brief, &tree, &branches, 400).await.unwrap();
        assert_eq!(g, "A costs nine euros. [n2e1]\nB costs ten. [n3e1]");
        assert_eq!(groups["prices"].text, g, "a sentence of a branch made by rules stands once");
        assert!(caller.keys().is_empty());
    }

    #[test]
    fn fold_by_rules_repeats_no_finding_and_keeps_room_for_each_node() {
        let (first, second) = (NodeId::numbered(2), NodeId::numbered(3));
        let many: Vec<_> = (0..30).map(|n| format!("Fact {n} of A is that it weighs {n} stones.")).collect();
        let many = branch(&first, &many.iter().map(String::as_str).collect::<Vec<_>>(), Label::Internal);
        let g = fold_by_rules("", &many, 10_000, &tokens);
        assert_eq!(fold_by_rules(&g, &many, 10_000, &tokens), g);
        let few = branch(&second, &["B has two wheels and a bell.", "B is blue, says the log."], Label::Internal);
        let g = fold_by_rules(&g, &few, 120, &tokens);
        assert!(g.contains("[n3e1]") && g.contains("[n3e2]") && g.contains("[n2e1]"), "{g}");
        assert!(tokens(&g) <= 120);
    }

    #[test]
    fn claims_are_the_same_only_if_no_word_that_matters_differs() {
        let known = "Requests to a table in the standard class cost 1.5 dollars per second, or 90 per minute. [n2e1]";
        for same in [
            known,
            "The requests to the table in a standard class cost 1.5 dollars per second, or 90 per minute [n3e1].",
            "Requests to this table in the *standard* class cost 1.5 dollars per second.",
        ] {
            assert_eq!(distinct([known, same].into_iter()), [known], "{same}");
        }
        for other in [
            known.replace("second", "hour"),
            known.replace("1.5", "15"),
            known.replace("1.5", "-1.5"),
            known.replace("cost", "do not cost"),
            known.replace("standard", "express"),
            known.replace(", or", ", and"),
            known.replace("per second", "per minute").replace("90 per minute", "90 per second"),
            known.replace("[n2e1]", "It is old. [n2e1]"),
        ] {
            assert_eq!(distinct([known, other.as_str()].into_iter()).len(), 2, "{other}");
        }
        let limited = "If it is cold, the pump runs. [n2e1]";
        assert_eq!(distinct([limited, "The pump runs. [n3e1]"].into_iter()).len(), 2, "always, or only then");
    }

    #[tokio::test]
    async fn group_of_many_is_reduced_in_a_tree_of_prompts_that_fit() {
        let caller = Scripted::new(|key, _| Ok(format!("Summary made by {key}."))).with_input_limit(700);
        let mut tree = tree();
        let mut branches = BTreeMap::new();
        for number in 0..20 {
            let id = add_node(&mut tree, &format!("What is thing {number}?"), &[]);
            tree.get_mut(&id).unwrap().group = Some("things".into());
            let text = format!("Thing {number} is {}", "long and wide ".repeat(30));
            branches.insert(id.clone(), branch(&id, &[&text], Label::Internal));
        }
        let brief = brief("Compare all things", &["a"]);
        let groups = group_summaries(&caller, &CallKey::new("groups"), &brief, &tree, &branches, 200).await.unwrap();
        assert_eq!(groups["things"].label, Label::Internal);
        assert!(caller.keys().len() > 3, "{:?}", caller.keys());
        assert!(caller.sizes().iter().all(|size| *size <= 700), "{:?}", caller.sizes());
        let by_rules = group_summaries_by_rules(&tree, &branches, 200, &tokens);
        assert!(tokens(&by_rules["things"].text) <= 200);
    }

    #[test]
    fn what_builds_on_internal_evidence_is_internal() {
        let mut tree = tree();
        let notes = add_node(&mut tree, "What do we say of A?", &[]);
        let web = add_node(&mut tree, "What does the web say of A?", &[]);
        let both = add_node(&mut tree, "How do they differ?", &[&notes, &web]);
        for id in [&web, &both] {
            tree.get_mut(id).unwrap().source_hint = SourceHint::Web;
        }
        let mut branches = BTreeMap::from([
            (notes.clone(), branch(&notes, &["A is ours."], Label::Internal)),
            (web.clone(), branch(&web, &["A is known."], Label::Public)),
        ]);
        let labels = |branches: &_| [&notes, &web, &both].map(|id| label(&tree, branches, id));
        assert_eq!(labels(&branches), [Label::Internal, Label::Public, Label::Internal]);
        let shown = [&notes, &web, &both].map(|id| PublicBranch::of(&tree, &branches, id).is_some());
        assert_eq!(shown, [false, true, false]);
        branches.get_mut(&web).unwrap().saw_internal = true;
        assert_eq!(labels(&branches), [Label::Internal; 3], "its words may repeat what it was told");
    }

    #[test]
    fn summary_beside_the_findings_of_nodes_leaves_their_claims_out() {
        let g = "A is red. [n2e1]\nB is blue. [n3e1] Both are old. [n2e2, n3e2] All of it is known.";
        assert_eq!(
            beside(pieces(g), &[NodeId::numbered(2)]).join("\n"),
            "B is blue. [n3e1]\nBoth are old. [n2e2, n3e2]\nAll of it is known."
        );
        assert_eq!(
            branch_text(&branch(&NodeId::numbered(2), &["A is red.", "B is."], Label::Public).report),
            "A is red. [n2e1]\nB is. [n2e2]"
        );
        let mut more = branch(&NodeId::numbered(2), &["A is red."], Label::Public);
        more.report.summary.push_str(" It is said to be old.");
        assert!(
            branch_text(&more.report).starts_with("A is red. It is said to be old.\n"),
            "a summary that says more is kept"
        );
    }

    #[test]
    fn slice_has_the_sentences_about_a_question_in_their_order() {
        let g =
            "Oranges are round. [n2e1]\nThe budget is enforced by a lock. [n3e1] The lock is a file. Pears are green.";
        assert_eq!(
            slice(g, &[], "How is the budget lock enforced?", &[], 100),
            "The budget is enforced by a lock. [n3e1]\nThe lock is a file."
        );
        assert_eq!(
            slice(g, &[], "How is the budget lock enforced?", &[], 15),
            "The budget is enforced by a lock. [n3e1]"
        );
        assert_eq!(slice(g, &[], "bicycles", &[], 100), "");
        let (g, question) = (Outbound::fixed(g), Outbound::fixed("How is the budget lock enforced?"));
        assert_eq!(public_slice(&g, &[NodeId::numbered(3)], &question, &[], 100).as_str(), "The lock is a file.");
    }

    #[test]
    fn slice_leaves_out_what_shares_only_the_subject_of_all_research_with_a_question() {
        let g = "The Kestrel pump is loud. [n2e1]\nThe Kestrel pump runs at night. [n2e2]\nA Kestrel is blue. [n3e1]\n\
                 The seal of the Kestrel pump costs nine euros. [n3e2]\nThe Kestrel pump has a seal. [n4e1]";
        assert_eq!(
            slice(g, &[], "What does a seal of the Kestrel pump cost?", &[], 100),
            "The seal of the Kestrel pump costs nine euros. [n3e2]\nThe Kestrel pump has a seal. [n4e1]"
        );
        assert_eq!(
            slice(g, &[], "What does a seal of the Kestrel pump cost?", &[], 20),
            "The seal of the Kestrel pump costs nine euros. [n3e2]",
            "the nearest comes first, whatever its place"
        );
        assert_eq!(
            slice(g, &[], "Who makes the Kestrel?", &[], 30),
            "The Kestrel pump is loud. [n2e1]\nThe Kestrel pump runs at night. [n2e2]",
            "none shares more"
        );
    }

    #[test]
    fn slice_has_the_best_sentence_on_each_aspect_before_others_that_share_more_words() {
        let g = "A seal costs nine euros. [n2e1]\nA seal set costs thirty euros. [n2e2]\nThe book has a page on costs. \
                 [n2e3]\nIts noise is forty decibels by day, in a test. [n3e1]\nRivers freeze. [n4e1]\nOats are sown.";
        let each = "A seal costs nine euros. [n2e1]\nIts noise is forty decibels by day, in a test. [n3e1]";
        let (question, aspects) = ("What does a seal cost?", ["What a seal costs", "How noise is measured"]);
        assert_eq!(slice(g, &[], question, &aspects, estimate(each)), each);
        assert!(!slice(g, &[], question, &aspects[..1], 100).contains("noise"), "no aspect of the node");
        let [g, question, aspect] = [g, question, aspects[1]].map(Outbound::fixed);
        assert!(public_slice(&g, &[], &question, &[&aspect], 100).as_str().contains("noise"));
    }

    #[test]
    fn sentence_that_shares_only_the_subject_of_all_research_with_an_aspect_is_not_its_best() {
        let g = "The red seal of a Kestrel pump leaks. [n2e1]\nThe Kestrel pump is loud. [n2e2]\n\
                 A seal costs nine euros by weight. [n3e1]";
        let question = "What does a seal cost in euros by weight, and is it red?";
        assert_eq!(
            slice(g, &[], question, &["Makers of the Kestrel pump"], 15),
            "A seal costs nine euros by weight. [n3e1]"
        );
    }

    proptest! {
        #[test]
        fn claim_with_another_word_is_never_dropped(
            words in prop::collection::vec("[b-p][a-z0-9.%]{0,5}[a-z0-9]", 1..12),
            other in "q[0-9]{3}",
            at in 0usize..12,
        ) {
            let mut changed = words.clone();
            let at = at % words.len();
            changed[at] = other;
            let (first, second) = (words.join(" "), changed.join(" "));
            prop_assert_eq!(distinct([first.as_str(), second.as_str(), first.as_str()].into_iter()), [&first, &second]);
        }

        #[test]
        fn fold_by_rules_never_passes_its_limit(
            claims in prop::collection::vec("([a-z0-9]{1,6} ){1,12}[.]", 0..20), g in "([a-z]{1,6}[ .]){0,60}", r in 0u64..80
        ) {
            let claims: Vec<_> = claims.iter().map(String::as_str).collect();
            let found = branch(&NodeId::numbered(2), &claims, Label::Internal);
            prop_assert!(tokens(&fold_by_rules(&g, &found, r, &tokens)) <= r);
        }
    }
}
