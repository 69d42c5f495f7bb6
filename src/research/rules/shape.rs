//! The shape of a question, by its wording alone: plain, a comparison, or several parts.
//!
//! Wording is English; where a text is not, or where in doubt, the question is plain: one node too few costs less than
//! a question torn apart.

use crate::base::word::WordSplitter;

/// Things compared, or parts, at most; more are put together.
const MAX_ITEMS: usize = 8;

/// Words a compared thing has, at most; more are no name.
const MAX_NAME_WORDS: usize = 6;

/// What a question consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One thing is asked.
    Plain,
    /// The same is asked of several things.
    Comparison(Comparison),
    /// Several things are asked, each complete in itself.
    Parts(Vec<String>),
}

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

impl Shape {
    /// Returns the shape of a question on one line.
    pub(super) fn of(question: &str, splitter: &WordSplitter) -> Self {
        let mask = mask(question);
        let span = Span { text: question, mask: &mask };
        if !is_english(&mask) {
            return Self::Plain;
        }
        let parts = parts(span, splitter);
        let first = parts.first().copied().unwrap_or(span);
        // What follows a comparison and asks nothing new refers to what is compared.
        let is_about_first = parts.iter().skip(1).all(|part| !part.text.contains('?') && part.has_word(BACK_WORDS));
        if let Some(comparison) = comparison(first).filter(|_| is_about_first) {
            return Self::Comparison(comparison);
        }
        if let Some(comparison) = comparison(span).filter(|_| parts.len() < 2) {
            return Self::Comparison(comparison);
        }
        if parts.len() < 2 { Self::Plain } else { Self::Parts(grouped(complete(&parts), " ")) }
    }
}

/// Words that refer to things named before.
const BACK_WORDS: &str = "each either one ones both which them they it these those";

/// Words a question starts with.
const QUESTION_WORDS: &str = "how what why when where who which whose";

/// Words an order starts with.
const ORDER_WORDS: &str = "explain describe list summarise summarize outline discuss recommend evaluate tell say name";

/// Words between a question word and what is asked about.
const LEADING_WORDS: &str = "how what why when where who which whose is are was were do does did can could should will \
    would has have explain describe list outline discuss exactly";

/// Words that say what their subject does; before them it ends.
const VERBS: &str = "work works function operate behave happen scale start stop exist mean matter look handle handles \
    use uses store stores support supports manage make makes keep keeps decide choose implement read write run find \
    compare differ perform need needs solve help prevent avoid recover fail";

/// Words a subject does not reach beyond.
const PREPOSITIONS: &str = "in on for with when at from to by after before during if while as and or";

/// Fixed pairs, which are one thing.
const PAIRS: &str = "rock and roll|research and development|supply and demand|search and replace|find and replace|drag \
    and drop|trial and error|terms and conditions|copy and paste|cut and paste|black and white|command and \
    control|profit and loss|health and safety|questions and answers|question and answer|divide and conquer|mergers and \
    acquisitions|food and beverage|law and order|oil and gas|plug and play|back and forth|publish and \
    subscribe|science and technology|bread and butter|nuts and bolts|mark and sweep|compare and swap|fetch and \
    add|fire and forget|request and response|arts and crafts|war and peace|pros and cons";

/// A stretch of a question, and the same bytes with all that must not be cut hidden.
#[derive(Clone, Copy, Debug)]
struct Span<'a> {
    text: &'a str,
    mask: &'a str,
}

impl<'a> Span<'a> {
    fn slice(self, from: usize, to: usize) -> Self {
        Self { text: &self.text[from..to], mask: &self.mask[from..to] }
    }

    fn after(self, at: usize) -> Self {
        self.slice(at, self.text.len())
    }

    /// Drops white space and punctuation at both ends.
    fn trim(self) -> Self {
        let is_edge = |letter: char| letter.is_whitespace() || ",.;:?!–—-".contains(letter);
        let start = self.mask.len() - self.mask.trim_start_matches(is_edge).len();
        let end = self.mask.trim_end_matches(is_edge).len();
        self.slice(start, end.max(start))
    }

    fn strip(self, prefix: &str) -> Option<Self> {
        self.mask.starts_with(prefix).then(|| self.after(prefix.len()))
    }

    fn strip_any(self, prefixes: &[&str]) -> Option<Self> {
        prefixes.iter().find_map(|prefix| self.strip(prefix))
    }

    fn split_once(self, separator: &str) -> Option<(Self, Self)> {
        let at = self.mask.find(separator)?;
        Some((self.slice(0, at), self.after(at + separator.len())))
    }

    /// Finds whichever pattern comes first; of those at one place the longest.
    fn first_of<'p>(self, patterns: &[&'p str]) -> Option<(usize, &'p str)> {
        let found = patterns.iter().filter_map(|pattern| Some((self.mask.find(pattern)?, *pattern)));
        found.min_by_key(|(at, pattern)| (*at, std::cmp::Reverse(pattern.len())))
    }

    fn words(self) -> impl Iterator<Item = &'a str> {
        self.mask.split(|letter: char| !letter.is_alphanumeric() && letter != '\'').filter(|word| !word.is_empty())
    }

    fn starts_with_word(self, list: &str) -> bool {
        self.words().next().is_some_and(|word| is_in(word, list))
    }

    fn has_word(self, list: &str) -> bool {
        self.words().any(|word| is_in(word, list))
    }
}

fn is_in(word: &str, list: &str) -> bool {
    list.split_whitespace().any(|listed| listed == word)
}

/// Returns `text` in lower case, with quotes, code, brackets and fixed pairs as one word each; every byte keeps its
/// place.
pub(super) fn mask(text: &str) -> String {
    let mut mask = String::with_capacity(text.len());
    let mut hidden_to = 0;
    for (at, letter) in text.char_indices() {
        if at >= hidden_to {
            hidden_to = hidden_end(text, at, letter).unwrap_or(0);
        }
        if at < hidden_to {
            mask.extend(std::iter::repeat_n('x', letter.len_utf8()));
        } else {
            mask.push(letter.to_ascii_lowercase());
        }
    }
    // The point of an abbreviation ends no sentence.
    mask = mask.replace(" vs. ", " vs  ");
    for pair in PAIRS.split('|') {
        while let Some(at) = find_words(&mask, pair) {
            mask.replace_range(at..at + pair.len(), &"x".repeat(pair.len()));
        }
    }
    mask
}

/// Returns where what is hidden from `at` on ends, where something is.
fn hidden_end(text: &str, at: usize, letter: char) -> Option<usize> {
    let close = match letter {
        '`' => '`',
        '"' => '"',
        '“' => '”',
        '«' => '»',
        '(' => ')',
        '\'' if text[..at].chars().next_back().is_none_or(char::is_whitespace) => '\'',
        _ => return None,
    };
    let inside = &text[at + letter.len_utf8()..];
    let length = inside.find(close)?;
    let is_number = letter == '(' && inside[..length].chars().all(|letter| letter.is_ascii_digit());
    (!is_number).then(|| at + letter.len_utf8() + length + close.len_utf8())
}

/// Returns where words stand in a text, not as part of others.
fn find_words(text: &str, words: &str) -> Option<usize> {
    let is_edge = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric());
    let is_whole =
        |at: &usize| is_edge(text[..*at].chars().next_back()) && is_edge(text[at + words.len()..].chars().next());
    text.match_indices(words).map(|(at, _)| at).find(is_whole)
}

/// Tells whether a text may be English: its letters are, and it has no more little words of other languages than of
/// English.
fn is_english(mask: &str) -> bool {
    const ENGLISH: &str = "the is are was of to and or for how what why when where who which does do did we our it its \
        they their with between from by that this there should can a an in on be vs versus compare";
    const OTHER: &str = "der das und ist wie wer für mit nicht ein eine zwischen welche warum wird werden le les et est \
        une quel quelle comment pourquoi pour avec entre sont dans que el los las es y qué cómo para cuál cuáles por \
        una il gli che è perché della di o os um uma não como para de het een en hoe waarom och att är hur vad som och \
        jak co jest dlaczego";
    let letters = mask.chars().filter(|letter| letter.is_alphabetic());
    let (ascii, other): (Vec<_>, Vec<_>) = letters.partition(char::is_ascii);
    let span = Span { text: mask, mask };
    let english = span.words().filter(|word| is_in(word, ENGLISH)).count();
    let foreign = span.words().filter(|word| is_in(word, OTHER)).count();
    other.len() * 5 <= ascii.len() && (foreign == 0 || english > foreign)
}

/// Puts items together until there are few enough; none is lost.
fn grouped(items: Vec<String>, joint: &str) -> Vec<String> {
    let size = items.len().div_ceil(MAX_ITEMS).max(1);
    items.chunks(size).map(|items| items.join(joint)).collect()
}

// Comparisons.

/// Reads a comparison, where the span is one.
fn comparison(span: Span<'_>) -> Option<Comparison> {
    let span = without_courtesy(span.trim());
    let weighed = weighed(span).and_then(|list| Some(Comparison { is_weighed: true, ..listed(list, "", COMMON)? }));
    weighed
        .or_else(|| compared(span))
        .or_else(|| differing(span))
        .or_else(|| chosen(span))
        .or_else(|| measured(span))
        .or_else(|| versus(span))
}

fn without_courtesy(mut span: Span<'_>) -> Span<'_> {
    const COURTESY: [&str; 12] = [
        "please ",
        "can you ",
        "could you ",
        "i want to ",
        "i want you to ",
        "i would like to ",
        "we want to ",
        "give me ",
        "write ",
        "make ",
        "do ",
        "help me ",
    ];
    while let Some(rest) = span.strip_any(&COURTESY) {
        span = rest;
    }
    span
}

/// What may stand between the things of any list.
const COMMON: &[&str] = &[", and ", ", or ", ", ", " and ", " or ", " & ", " vs ", " versus "];

/// What may stand between things that are to be compared.
const COMPARED: &[&str] = &[
    ", and ",
    ", or ",
    ", ",
    " and ",
    " or ",
    " & ",
    " vs ",
    " versus ",
    " compared to ",
    " compared with ",
    " with ",
    " to ",
    " against ",
    " and also ",
];

/// “Compare A, B and C for x”, “compare the x of A and B”.
fn compared(span: Span<'_>) -> Option<Comparison> {
    let rest = span.strip_any(&[
        "compare and contrast ",
        "compare ",
        "contrast ",
        "a comparison of ",
        "a comparison between ",
        "comparison of ",
        "comparison between ",
    ])?;
    if let Some((topic, list)) = rest.strip("the ").and_then(|rest| rest.split_once(" of ")) {
        let is_short = topic.words().count() <= 3 && !topic.mask.contains([',', ';']) && !topic.mask.contains(" and ");
        if is_short && !list.mask.contains(" of ") {
            return listed(list, &format!("as to {}", topic.text), COMPARED);
        }
    }
    if let Some(rest) = rest.strip_any(&["how ", "the way "]) {
        let (at, _) = first_word(rest, VERBS)?;
        return listed(rest.slice(0, at), &format!("as to how they {}", rest.after(at).trim().text), COMPARED);
    }
    listed(rest, "", COMPARED)
}

/// “The difference (in x) between A and B”.
fn differing(span: Span<'_>) -> Option<Comparison> {
    let (at, word) =
        span.first_of(&["difference", "differences", "distinguish", "differentiate", "trade-offs", "tradeoffs"])?;
    let (topic, list) = span.after(at + word.len()).split_once("between ")?;
    let topic = topic.trim();
    (topic.words().count() <= 6).then(|| listed(list, topic.text, COMMON))?
}

/// “The pros and cons of A and B”.
fn weighed(span: Span<'_>) -> Option<Span<'_>> {
    // “pros and cons” is a fixed pair, so it is looked for in the text itself.
    let text = span.text.to_ascii_lowercase();
    let words = [
        "pros and cons",
        "advantages and disadvantages",
        "strengths and weaknesses",
        "benefits and drawbacks",
        "upsides and downsides",
    ];
    let end = words.iter().find_map(|words| Some(text.find(words)? + words.len()))?;
    span.after(end).strip_any(&[" of using ", " of ", " between "])
}

/// “Which is better for x, A or B?”, “should we use A or B?”.
fn chosen(span: Span<'_>) -> Option<Comparison> {
    if span.mask.starts_with("which ") {
        if let Some(rest) = span.strip("which of ") {
            let (at, word) = rest.first_of(&[" is ", " are ", " has ", " have ", " should ", " does ", " do "])?;
            return listed(
                rest.slice(0, at),
                &format!("as to what {}", rest.after(at + word.len()).trim().text),
                COMMON,
            );
        }
        let (at, _) = span.first_of(&[", ", ": ", " - ", " — ", " – "])?;
        let (asked, list) = (span.slice(0, at), span.after(at + 1));
        let (_, topic) = asked.split_once(" for ").map_or((asked, None), |(asked, topic)| (asked, Some(topic)));
        let topic = topic.map(|topic| format!("for {}", topic.text)).unwrap_or_default();
        return (list.mask.contains(" or ") || list.mask.contains(" and ")).then(|| listed(list, &topic, COMMON))?;
    }
    let rest = span.strip_any(&["should we ", "should i ", "should one ", "shall we ", "do we ", "would you "])?;
    let rest = rest.strip_any(&["use ", "choose ", "pick ", "prefer ", "adopt ", "take ", "go with ", "go for "])?;
    // Only a choice between the things is a comparison.
    (rest.mask.contains(" or ") && !rest.mask.contains(" and ")).then(|| listed(rest, "", COMMON))?
}

/// “How does A compare to B?”, “how do A and B differ in x?”, “is A faster than B?”.
fn measured(span: Span<'_>) -> Option<Comparison> {
    if let Some(rest) = span.strip_any(&["how does ", "how do ", "how is ", "how are "]) {
        let joints = [
            " compare to ",
            " compare with ",
            " compare against ",
            " differ from ",
            " different from ",
            " different to ",
        ];
        if let Some((at, joint)) = rest.first_of(&joints) {
            let (other, topic) = without_topic(rest.after(at + joint.len()));
            return pair(rest.slice(0, at), other, &topic);
        }
        let (at, end) = rest.first_of(&[" compare", " differ"])?;
        let tail = rest.after(at + end.len());
        let tail = tail.strip("ent").unwrap_or(tail);
        let is_end = tail.mask.is_empty() || tail.mask.starts_with([' ', '?', ',']);
        let (tail, topic) = without_topic(tail);
        return is_end
            .then(|| listed(rest.slice(0, at), if tail.trim().text.is_empty() { &topic } else { "" }, COMMON))?;
    }
    let rest = span.strip_any(&["is ", "are "])?;
    let (thing, other) = rest.split_once(" than ")?;
    let cut = thing.mask.rfind(' ')?;
    let (better, thing) = (thing.after(cut + 1), thing.slice(0, cut));
    let thing = thing.mask.strip_suffix(" more").map_or(thing, |short| thing.slice(0, short.len()));
    let (other, topic) = without_topic(other);
    let is_measure = better.mask.ends_with("er")
        || better.mask == "better"
        || better.mask == "worse"
        || thing.mask.ends_with(" more");
    is_measure.then(|| pair(thing, other, &topic))?
}

/// “A vs B for x”.
fn versus(span: Span<'_>) -> Option<Comparison> {
    let (at, _) = span.first_of(&[" vs ", " versus "])?;
    let start = span.slice(0, at);
    // What comes before the first thing: “what about A”, “which is better: A”.
    let cut = start.mask.rfind(": ").map_or(0, |at| at + 2);
    let mut start = start.after(cut);
    while let Some(rest) =
        start.strip_any(&["what about ", "what is ", "what are ", "the ", "should we use ", "is it "])
    {
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
fn listed(list: Span<'_>, topic: &str, separators: &[&str]) -> Option<Comparison> {
    const CLAUSES: [&str; 18] = [
        "? ",
        "; ",
        ". ",
        " — ",
        " – ",
        ", and which ",
        " and which ",
        ", which ",
        ", and say ",
        " and say ",
        " and how ",
        " and what ",
        " and when ",
        " and why ",
        " and explain ",
        " and recommend ",
        " and tell ",
        ", then ",
    ];
    let list = list.first_of(&CLAUSES).map_or(list, |(at, _)| list.slice(0, at));
    let (list, own_topic) = without_topic(list.trim());
    let mut rest = list;
    let mut things = Vec::new();
    while let Some((at, separator)) = rest.first_of(separators) {
        things.push(name(rest.slice(0, at))?);
        rest = rest.after(at + separator.len());
    }
    things.push(name(rest)?);
    let mut topic = if topic.is_empty() { own_topic } else { topic.to_owned() };
    if let Some(shared) = shared_ending(&mut things).filter(|_| topic.is_empty()) {
        topic = format!("as to {shared}");
    }
    let is_list = things.len() >= 2 && are_distinct(&things);
    is_list.then(|| Comparison { entities: grouped(things, " and "), topic, is_weighed: false })
}

/// Splits off what things are compared for, with its preposition.
fn without_topic(list: Span<'_>) -> (Span<'_>, String) {
    const TOPICS: [&str; 17] = [
        " for ",
        " in terms of ",
        " regarding ",
        " with respect to ",
        " with regard to ",
        " when ",
        " based on ",
        " concerning ",
        " in the context of ",
        " in ",
        " on ",
        " by ",
        " if ",
        " at ",
        " under ",
        " as to ",
        ": ",
    ];
    match list.first_of(&TOPICS) {
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
        *last = last[..last.len() - ending.len() - 1].to_owned();
        ending
    })
}

/// Tells whether a word looks like a name: a capital, a digit, or code.
fn is_name_like(word: &str) -> bool {
    word.contains(|letter: char| letter.is_uppercase() || letter.is_numeric() || "`\"“_".contains(letter))
}

/// Returns a span as the name of a thing, where it can be one.
fn name(span: Span<'_>) -> Option<String> {
    const NO_NAMES: &str = "it them they these those this that others other each us we you i the both two all any some \
        more less me";
    let mut span = span.trim();
    while let Some(rest) =
        span.strip_any(&["the ", "a ", "an ", "both ", "either ", "between ", "and ", "or ", "using "])
    {
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

// Parts.

/// Splits a question into the things it asks, as they stand.
fn parts<'a>(span: Span<'a>, splitter: &WordSplitter) -> Vec<Span<'a>> {
    let items = numbered_items(span);
    if items.len() >= 2 {
        return items;
    }
    let mut parts: Vec<Span<'a>> = Vec::new();
    let mut rest = span;
    while let Some(at) = rest.mask.find(['?', ';']) {
        parts.push(rest.slice(0, at + 1));
        rest = rest.after(at + 1);
    }
    parts.push(rest);
    parts.retain(|part| splitter.has_key_word(part.text));
    // A remark after the question belongs to it.
    let asks = |part: &Span<'_>| {
        let part = opening(*part);
        part.text.contains('?') || part.starts_with_word(QUESTION_WORDS) || part.starts_with_word(ORDER_WORDS)
    };
    if !parts.iter().all(asks) {
        parts = vec![span];
    }
    parts.into_iter().flat_map(|part| clauses(part, splitter)).collect()
}

/// Drops what only joins a part to the one before.
fn opening(span: Span<'_>) -> Span<'_> {
    let mut span = span.trim();
    while let Some(rest) =
        span.strip_any(&["also ", "also, ", "and ", "then ", "plus ", "please ", "finally ", "finally, "])
    {
        span = rest.trim();
    }
    span
}

/// Splits “how does X work, and what are its limits” where one question ends and the next begins.
fn clauses<'a>(span: Span<'a>, splitter: &WordSplitter) -> Vec<Span<'a>> {
    let mut clauses = Vec::new();
    let mut start = 0;
    let mut from = 0;
    while let Some((at, length)) = joint(span.after(from)).map(|(at, length)| (from + at, length)) {
        from = at + length;
        let (left, right) = (opening(span.slice(start, at)), span.after(from).trim());
        let asks = left.starts_with_word(QUESTION_WORDS) || left.starts_with_word(ORDER_WORDS);
        let is_whole = |part: Span<'_>| {
            let last = part.words().last().unwrap_or_default();
            part.words().count() >= 2 && !is_in(last, QUESTION_WORDS) && splitter.has_key_word(part.text)
        };
        // “… which of them” has its own question word, but nothing is said before it ends.
        if asks && is_whole(left) && is_whole(right) {
            clauses.push(span.slice(start, at));
            start = from;
        }
    }
    clauses.push(span.after(start));
    clauses
}

/// Finds the next place where a new question may begin: how much stands before it, and how long what joins it is.
fn joint(span: Span<'_>) -> Option<(usize, usize)> {
    let joints = [(", and ", true), (" and ", true), (", ", false)];
    let mut found: Option<(usize, usize)> = None;
    for (joint, is_and) in joints {
        let begins = |at: &usize| {
            let word = span.after(at + joint.len()).words().next().unwrap_or_default();
            // After a comma alone, “which” and “where” mostly go on with the same thought.
            let is_relative = is_in(word, "which where who whose when");
            is_in(word, QUESTION_WORDS) && (is_and || !is_relative)
                || is_and && is_in(word, ORDER_WORDS)
                || joint == ", and " && is_in(word, "is are does do can should")
        };
        if let Some(at) = span.mask.match_indices(joint).map(|(at, _)| at).find(begins) {
            let is_before = found.is_none_or(|(best, length)| (at, length) < (best, joint.len()));
            found = if is_before { Some((at, joint.len())) } else { found };
        }
    }
    found
}

/// Returns the items of a list “1. … 2. …”, where there is one.
fn numbered_items(span: Span<'_>) -> Vec<Span<'_>> {
    let mut items = Vec::new();
    let mut rest = span;
    let mut is_open = false;
    for number in 1.. {
        let marks = [format!("{number}. "), format!("{number}) "), format!("({number}) ")];
        let starts = |mark: &String| {
            let is_start = |at: &usize| rest.mask[..*at].is_empty() || rest.mask[..*at].ends_with([' ', '(']);
            rest.mask.match_indices(mark.as_str()).map(|(at, _)| at).find(is_start).map(|at| (at, mark.len()))
        };
        let Some((at, length)) = marks.iter().filter_map(starts).min() else { break };
        if is_open {
            items.push(rest.slice(0, at));
        }
        is_open = true;
        rest = rest.after(at + length);
    }
    if is_open {
        items.push(rest);
    }
    items.retain(|item| item.trim().text.chars().any(char::is_alphanumeric));
    items
}

/// Makes each part complete in itself: the subject of the first stands for “it” in the others.
fn complete(parts: &[Span<'_>]) -> Vec<String> {
    let first = opening(parts[0]);
    let subject = subject(first);
    let mut complete = vec![sentence(first, first.text)];
    for part in &parts[1..] {
        let part = opening(*part);
        let text = match (pronoun(part), &subject) {
            (Some((at, word)), Some(subject)) => {
                let name = if matches!(word, "its" | "their") { format!("{subject}'s") } else { subject.clone() };
                format!("{}{name}{}", &part.text[..at], &part.text[at + word.len()..])
            }
            (Some(_), None) => format!("{} (as to: {})", part.text, first.text),
            (None, _) => part.text.to_owned(),
        };
        complete.push(sentence(part, &text));
    }
    complete
}

/// Writes a part as a sentence of its own.
fn sentence(part: Span<'_>, text: &str) -> String {
    let mut letters = text.chars();
    let start = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    let starts_question =
        part.starts_with_word(QUESTION_WORDS) || part.starts_with_word("is are does do did can should");
    format!("{start}{}{}", letters.as_str(), if starts_question { "?" } else { "" })
}

/// Finds a word that stands for something an earlier part named.
fn pronoun(part: Span<'_>) -> Option<(usize, &'static str)> {
    const EXPLETIVES: &str = "that possible necessary advisable true important worth";
    let found = ["its", "it", "they", "their", "them"].into_iter().filter_map(|word| {
        let at = find_words(part.mask, word)?;
        let next = part.after(at + word.len());
        let is_expletive = word == "it" && next.starts_with_word(EXPLETIVES);
        (!is_expletive).then_some((at, word))
    });
    let (at, word) = found.min()?;
    // Another name before it is what it stands for.
    let names_other = part.text[..at].split_whitespace().skip(1).any(is_name_like);
    (!names_other).then_some((at, word))
}

/// Returns what a question is about, where that can be told.
fn subject(first: Span<'_>) -> Option<String> {
    let mut rest = first;
    while rest.starts_with_word(LEADING_WORDS) {
        let word = rest.words().next().unwrap_or_default();
        rest = rest.after(rest.mask.find(word)? + word.len()).trim();
    }
    let end = [first_word(rest, VERBS), first_word(rest, PREPOSITIONS)].into_iter().flatten().map(|(at, _)| at).min();
    let subject = end.map_or(rest, |end| rest.slice(0, end)).trim();
    let is_subject = (1..=5).contains(&subject.text.split_whitespace().count());
    let is_pronoun = subject.words().all(|word| is_in(word, "it its they them we i you this that there"));
    (is_subject && !is_pronoun && subject.text.chars().any(char::is_alphanumeric)).then(|| subject.text.to_owned())
}

/// Finds the first word of a list that does not open the span.
fn first_word<'l>(span: Span<'_>, list: &'l str) -> Option<(usize, &'l str)> {
    let found = list.split_whitespace().filter_map(|word| Some((find_words(span.mask, word)?, word)));
    found.filter(|(at, _)| *at > 0).min()
}
