//! The comparison a question asks for: which things, and what they are compared for.

use super::shape::{ORDER_WORDS, QUESTION_WORDS, Span, VERBS, first_word, grouped, is_in, is_name_like};

/// Words a compared thing has, at most; more are no name.
const MAX_NAME_WORDS: usize = 6;

/// The same, asked of several things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    /// Names of the things.
    pub(super) entities: Vec<String>,
    /// What they are compared for, with its preposition; empty where nothing is said.
    pub(super) topic: String,
    /// Whether their pros and cons are asked for.
    pub(super) is_weighed: bool,
}

/// Reads a comparison, where the span is one.
pub(super) fn comparison(span: Span<'_>) -> Option<Comparison> {
    let span = without_courtesy(span.trim());
    let weighed = weighed(span).and_then(|list| Some(Comparison { is_weighed: true, ..listed(list, "", COMMON)? }));
    weighed
        .or_else(|| compared(span))
        .or_else(|| differing(span))
        .or_else(|| which(span))
        .or_else(|| chosen(span))
        .or_else(|| related(span))
        .or_else(|| measured(span))
        .or_else(|| versus(span))
}

pub(super) fn without_courtesy(mut span: Span<'_>) -> Span<'_> {
    const COURTESY: &str = "please |can you |could you |i want to |i want you to |i would like to |we want to \
        |give me |write |make |help me ";
    while let Some(rest) = span.strip_any(COURTESY) {
        span = rest;
    }
    span
}

/// What may stand between the things of any list.
const COMMON: &str = ", and |, or |, | and | or | & | vs | versus ";

/// What may stand between things that are to be compared.
const COMPARED: &str = ", and |, or |, | and | or | & | vs | versus | compared to | compared with | with | to \
    | against | and also ";

/// “Compare A, B and C for x”, “compare the x of A and B”.
fn compared(span: Span<'_>) -> Option<Comparison> {
    let rest = span.strip_any(
        "compare and contrast |compare |contrast |a comparison of \
            |a comparison between |comparison of |comparison between ",
    )?;
    if let Some((topic, list)) = rest.strip("the ").and_then(|rest| rest.split_once(" of ")) {
        let is_short = topic.words().count() <= 3 && !topic.mask.contains([',', ';']) && !topic.mask.contains(" and ");
        if is_short && !list.mask.contains(" of ") {
            return listed(list, &format!("as to {}", topic.text), COMPARED);
        }
    }
    if let Some(rest) = rest.strip_any("how |the way ") {
        let (at, _) = first_word(rest, VERBS)?;
        return listed(rest.slice(0, at), &format!("as to how they {}", rest.after(at).trim().text), COMPARED);
    }
    listed(rest, "", COMPARED)
}

/// “The difference (in x) between A and B”.
fn differing(span: Span<'_>) -> Option<Comparison> {
    let (at, word) = span.first_of("difference|differences|distinguish|differentiate|trade-offs|tradeoffs")?;
    let (topic, list) = span.after(at + word.len()).split_once("between ")?;
    let topic = topic.trim();
    (topic.words().count() <= 6).then(|| listed(list, topic.text, COMMON))?
}

/// “The pros and cons of A and B”.
fn weighed(span: Span<'_>) -> Option<Span<'_>> {
    // “pros and cons” is a fixed pair, so it is looked for in the text itself.
    let text = span.text.to_ascii_lowercase();
    let words = "pros and cons|advantages and disadvantages|strengths and weaknesses|\
        benefits and drawbacks|upsides and downsides";
    let end = words.split('|').find_map(|words| Some(text.find(words)? + words.len()))?;
    span.after(end).strip_any(" of using | of | between ")
}

/// “Which is better for x, A or B?”, “which of A and B is faster?”.
fn which(span: Span<'_>) -> Option<Comparison> {
    if let Some(rest) = span.strip("which of ") {
        let (at, word) = rest.first_of(" is | are | has | have | should | does | do ")?;
        let topic = rest.after(at + word.len()).trim().text;
        return listed(rest.slice(0, at), &format!("as to what {topic}"), COMMON);
    }
    let (at, _) = span.strip("which ").and(span.first_of(", |: | - | — | – "))?;
    let (asked, list) = (span.slice(0, at), span.after(at + 1));
    let topic = asked.split_once(" for ").map(|(_, topic)| format!("for {}", topic.text)).unwrap_or_default();
    let is_choice = list.mask.contains(" or ") || list.mask.contains(" and ");
    is_choice.then(|| listed(list, &topic, COMMON))?
}

/// “Should we use A or B?”.
fn chosen(span: Span<'_>) -> Option<Comparison> {
    let rest = span.strip_any("should we |should i |should one |shall we |would you ")?;
    let rest = rest.strip_any("use |choose |pick |prefer |adopt |take |go with |go for ")?;
    // Only a choice between the things is a comparison.
    (rest.mask.contains(" or ") && !rest.mask.contains(" and ")).then(|| listed(rest, "", COMMON))?
}

/// “How does A compare to B?”, “how do A and B differ in x?”.
fn related(span: Span<'_>) -> Option<Comparison> {
    let rest = span.strip_any("how does |how do |how is |how are ")?;
    let joints = " compare to | compare with | compare against | differ from | different from | different to ";
    if let Some((at, joint)) = rest.first_of(joints) {
        let (other, topic) = without_topic(rest.after(at + joint.len()));
        return pair(rest.slice(0, at), other, &topic);
    }
    let (at, end) = rest.first_of(" compare| different| differ")?;
    let tail = rest.after(at + end.len());
    let is_end = tail.mask.is_empty() || tail.mask.starts_with([' ', '?', ',', '.']);
    let (tail, topic) = without_topic(tail);
    let topic = if tail.trim().text.is_empty() { topic } else { String::new() };
    is_end.then(|| listed(rest.slice(0, at), &topic, COMMON))?
}

/// “Is A faster than B?”.
fn measured(span: Span<'_>) -> Option<Comparison> {
    let (thing, other) = span.strip_any("is |are ")?.split_once(" than ")?;
    let cut = thing.mask.rfind(' ')?;
    let (measure, thing) = (thing.after(cut + 1), thing.slice(0, cut));
    let is_measure = measure.mask.ends_with("er") || measure.mask == "worse" || thing.mask.ends_with(" more");
    let thing = thing.mask.strip_suffix(" more").map_or(thing, |short| thing.slice(0, short.len()));
    let (other, topic) = without_topic(other);
    is_measure.then(|| pair(thing, other, &topic))?
}

/// “A vs B for x”.
fn versus(span: Span<'_>) -> Option<Comparison> {
    let (at, _) = span.first_of(" vs | versus ")?;
    let start = span.slice(0, at);
    // What comes before the first thing: “what about A”, “which is better: A”.
    let cut = start.mask.rfind(": ").map_or(0, |at| at + 2);
    let mut start = start.after(cut);
    while let Some(rest) = start.strip_any("what about |what is |what are |the |should we use |is it ") {
        start = rest;
    }
    let span = span.after(at - start.text.len());
    listed(span, "", COMMON)
}

fn pair(thing: Span<'_>, other: Span<'_>, topic: &str) -> Option<Comparison> {
    let entities = vec![name(thing)?, name(other)?];
    are_distinct(&entities).then(|| Comparison { entities, topic: topic.to_owned(), is_weighed: false })
}

/// Reads a list of things, and what they are compared for where it follows them.
fn listed(list: Span<'_>, topic: &str, separators: &str) -> Option<Comparison> {
    const CLAUSES: &str = "? |; |. | — | – |, and which | and which |, which |, and say | and say | and how \
        | and what | and when | and why | and explain | and recommend | and tell |, then ";
    let list = list.first_of(CLAUSES).map_or(list, |(at, _)| list.slice(0, at));
    let (list, own_topic) = without_topic(list.trim());
    let mut rest = list;
    let mut things = Vec::new();
    while let Some((at, separator)) = rest.first_of(separators) {
        things.push(name(rest.slice(0, at))?);
        rest = rest.after(at + separator.len());
    }
    things.push(name(rest)?);
    let mut topic = if topic.is_empty() { own_topic } else { topic.to_owned() };
    if let Some(shared) = shared_ending(&mut things) {
        topic = ["as to", &shared, &topic].join(" ").trim_end().into();
    }
    let is_list = things.len() >= 2 && are_distinct(&things);
    is_list.then(|| Comparison { entities: grouped(&things, " and "), topic, is_weighed: false })
}

/// Splits off what things are compared for, with its preposition.
fn without_topic(list: Span<'_>) -> (Span<'_>, String) {
    const TOPICS: &str = " for | in terms of | regarding | with respect to | with regard to | when | based on \
        | concerning | in the context of | in | on | by | if | at | under | as to |: ";
    match list.first_of(TOPICS) {
        Some((at, ": ")) => (list.slice(0, at), format!("as to {}", list.after(at + 2).trim().text)),
        Some((at, _)) => (list.slice(0, at), list.after(at).trim().text.to_owned()),
        None => (list, String::new()),
    }
}

/// Takes what belongs to all things off the last of them: “A and B replication”.
///
/// Only where names look like names and what follows does not.
fn shared_ending(things: &mut [String]) -> Option<String> {
    let (last, others) = things.split_last_mut()?;
    let (name, ending) = last.split_once(' ')?;
    let is_plain = ending.split(' ').all(|word| !is_name_like(word));
    let are_names = others.iter().all(|other| other.split(' ').all(is_name_like));
    let is_split = is_name_like(name) && is_plain && are_names && !name.starts_with(['`', '"', '“']);
    let ending = ending.to_owned();
    is_split.then(|| {
        last.truncate(last.len() - ending.len() - 1);
        ending
    })
}

/// Returns a span as the name of a thing, where it can be one.
fn name(span: Span<'_>) -> Option<String> {
    const NO_NAMES: &str = "it them they these those this that others other each us we you i the both two all any some \
        more less me";
    let mut span = span.trim();
    while let Some(rest) = span.strip_any("the |a |an |both |either |between |and |or |using ") {
        span = rest.trim();
    }
    let count = span.text.split_whitespace().count();
    let is_name = (1..=MAX_NAME_WORDS).contains(&count)
        && span.text.chars().any(char::is_alphanumeric)
        && !span.starts_with_word(QUESTION_WORDS)
        && !(count > 1 && span.starts_with_word(ORDER_WORDS))
        && !span.words().all(|word| is_in(word, NO_NAMES));
    is_name.then(|| span.text.to_owned())
}

fn are_distinct(names: &[String]) -> bool {
    let lower: Vec<_> = names.iter().map(|name| name.to_lowercase()).collect();
    lower.iter().enumerate().all(|(at, name)| !lower[..at].contains(name))
}
