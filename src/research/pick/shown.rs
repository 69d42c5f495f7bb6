//! Selects the parts of a unit to show: the best sentence, and the relevant items of a long list or table.

use std::collections::HashSet;
use std::ops::Range;

use super::asked::AnswerKind;
use super::candidate::{UnitCandidate, lines_in, opens_example, overlap, unescaped};
use super::features::{Weights, points, share};
use super::sought::{Sought, Value};
use super::{LEAST_WORDS, MAX_LINES, MAX_PIECES, SAYS_MOST};
use crate::base::line::bulleted_item;
use crate::research::lead_in::ends_open;
use crate::research::sentence::{Sentence, is_label};
use crate::research::unit::{UnitKind, is_code, items};

/// Number of lines or rows above which a list or table is cut to the items relevant to a question for a single value.
const VALUE_LINES: usize = 10;
const VALUE_ROWS: usize = 5;

/// Number of lines above which a table is cut to its relevant rows, however few it has.
const MAX_TABLE_LINES: usize = 24;

/// Number of lines above which code is cut.
const MAX_CODE_LINES: usize = 60;

/// Number of lines above which a requested list is cut as well.
const MAX_LIST_LINES: usize = 40;

/// Maximum score gap at which a sentence next to the best one is emphasised with it. In 189 units of ten folders, the
/// best sentence alone has the answer in 67 %, and together with the one next to it in 76 %; three of eight have such a
/// neighbour.
const NEAR: f32 = 0.2;

/// Lead over the other sentences from which the best one is emphasised, and over the other items of a list; less is
/// enough if it has this share of the question's words. In the first units of 109 answers on six folders, the best
/// sentence is right in 55; with these, 74 are emphasised and 44 of them right. Without questions for a list, for steps
/// or for a comparison it is 50 and 36.
const CLEAR: f32 = 0.1;
const CLEAR_ITEM: f32 = 0.3;
const SAYS_HALF: f32 = 0.5;

/// Openings of steps on the way to the one that answers, and of sentences that announce an example.
const LEADING: [&str; 9] = [
    "Sign in to ", "Log in to ", "Open the ", "In the navigation ", "Navigate to ", "Go to the ",
    "The following example", "For an example", "For more examples",
];

/// Openings of a sentence that names what the one before describes.
const POINTING_BACK: [&str; 6] = ["Such ", "This ", "These ", "That ", "Those ", "It "];

/// Weight of a sentence's match with the question, relative to its share of the question's words.
const MEANING: f32 = 3.0;

/// Score that the last sentence of a unit loses against the first: authors begin with what a text says. With this,
/// [`MEANING`] and [`rarer`] words the best sentence alone has the answer in 67 % of the units of [`NEAR`], not in 64 %.
const LATER: f32 = 0.3;

/// Score bonus for a number if the question asks for a measure. Not required: words can answer too.
const MEASURE: f32 = 0.3;

/// What stands between the cells of a row in Markdown, and the maximum number of words that its name is composed of.
const CELL_END: &str = " — ";
const MOST_PARTS: usize = 4;

/// Score that a sentence loses if it opens an example: the rule stands before it.
const EXAMPLE: f32 = 0.2;

/// The sentence of a unit that answers best.
pub(super) struct Deciding {
    /// The sentence without Markdown. In a paragraph, an adjacent one that is nearly as good is included.
    pub(super) text: String,
    /// Whether it clearly answers, and not another sentence of the unit.
    pub(super) is_clear: bool,
}

impl Deciding {
    /// Finds it among the sentences in the ranges `shown`. A requested list answers as a whole: its lead-in is returned,
    /// which does not prefer one of its items.
    pub(super) fn of(
        candidate: &UnitCandidate<'_>,
        shown: &[Range<usize>],
        sought: &Sought<'_>,
        weights: &Weights,
    ) -> Self {
        let head = candidate.unit.head();
        if answers_whole(candidate, sought, weights)
            && let Some(lead) = candidate.unit.sentences.iter().rfind(|sentence| sentence.range.end <= head.end)
        {
            return Self { text: lead.plain.clone(), is_clear: false };
        }
        // A unit that opens a note on the term being defined begins with the definition.
        let (at, sentences) = (candidate.defining.unwrap_or_default(), &candidate.unit.sentences);
        if let Some(defining) = sentences.get(at).filter(|_| candidate.is_definition(sought)) {
            // "Such machines are called pumps."
            let refers = POINTING_BACK.iter().any(|opening| defining.plain.starts_with(opening));
            let before = sentences[..at].last().filter(|_| refers);
            let text = before.into_iter().chain([defining]).map(|own| own.plain.as_str()).collect::<Vec<_>>().join(" ");
            return Self { text, is_clear: true };
        }
        best_sentence(candidate, shown, sought, weights)
    }
}

fn best_sentence(
    candidate: &UnitCandidate<'_>,
    shown: &[Range<usize>],
    sought: &Sought<'_>,
    weights: &Weights,
) -> Deciding {
    let is_text = |line: &&str| line.contains(char::is_alphanumeric) && !line.starts_with(['`', '~']);
    // Part 0 of the matches is the headings. They count for every sentence: one that repeats the subject
    // answers no better than one that calls it "it".
    let parts: Vec<_> = (1..)
        .zip(&candidate.unit.sentences)
        .filter(|(_, own)| shown.iter().any(|range| overlap(range, &own.range)))
        .collect();
    let words: Vec<_> = candidate.unit.sentences.iter().map(|own| sought.words_in(&own.plain)).collect();
    let (asked, weights) = (weights, &rarer(&sought.without_rejected(&sought.without_events(weights)), &words));
    let is_list = matches!(candidate.unit.kind, UnitKind::List { .. });
    // If an item repeats a word of the title, the other items are about something else.
    let items = candidate.text().lines().filter(|line| bulleted_item(line.trim_start()).is_some());
    let has_items = is_list || items.count() > 1;
    let is_shared = |stem: &&String| !has_items || !words.iter().any(|own| own.contains(*stem));
    let about: HashSet<String> = candidate.about.iter().filter(is_shared).cloned().collect();
    let headings = (about.len() == candidate.about.len()).then_some(0).into_iter();
    #[expect(clippy::cast_precision_loss, reason = "a unit has a few sentences")]
    let score = |(part, sentence): (usize, &Sentence)| {
        let matches = candidate.matches.as_ref().map_or(0.0, |matches| matches.max_sim(headings.clone().chain([part])));
        let own: HashSet<_> = words[part - 1].union(&about).cloned().collect();
        let said = &candidate.unit.sentences;
        let has_it = sought.measures(sentence)
            || sought.is_stated_by(said, part - 1, &candidate.about, asked)
            || sought.says_no(said, part - 1, &candidate.about, asked)
            || sought.permits(said, part - 1, &candidate.about, asked);
        let measure = if has_it { MEASURE } else { 0.0 };
        let later = (part - 1) as f32 / words.len() as f32;
        let example = if opens_example(&sentence.plain) { EXAMPLE } else { 0.0 };
        share(weights, &own, &HashSet::new()) + MEANING * matches + measure - LATER * later - example
    };
    let is_open = |sentence: &Sentence| sentence.plain.ends_with([':', '?']);
    let is_prose = candidate.unit.kind == UnitKind::Paragraph;
    let is_label = |sentence: &Sentence| is_prose && is_label(&sentence.plain);
    let leads_there = |sentence: &Sentence| LEADING.iter().any(|opening| sentence.plain.starts_with(opening));
    let denies = |sentence: &Sentence| sought.denies(&sentence.plain, asked);
    // A row may end with a pointer and still answer.
    let only_leads = |sentence: &Sentence| {
        candidate.unit.kind != UnitKind::Table && (leads_there(sentence) || points(&sentence.plain))
    };
    // "When it expires, the owner has to:" says what happens then, with the items below it.
    let leads_in = |part: usize| {
        sought.asks_what_happens
            && candidate.unit.sentences[part - 1].plain.ends_with(':')
            && sought.is_stated_by(&candidate.unit.sentences, part - 1, &candidate.about, asked)
    };
    let is_mute = |(part, sentence): (usize, &Sentence)| {
        (is_open(sentence) && !denies(sentence) && !leads_in(part))
            || is_label(sentence)
            || is_code(&sentence.plain)
            || only_leads(sentence)
    };
    // A row says nothing about the subject of another row.
    let is_table = candidate.unit.kind == UnitKind::Table;
    let named = if is_table { row_named(candidate, sought) } else { None };
    let is_row_of = |sentence: &Sentence| {
        let (text, words) = (sentence.plain.to_lowercase(), sought.splitter.stems(&sentence.plain));
        sought.code_words.iter().any(|word| word.is_in(&text, &words)) || named == Some(sentence)
    };
    let fits = |own: &Sentence| (is_table && is_row_of(own)) || denies(own);
    // "There are forty of them" answers "how many", though its neighbours have more words of the question.
    let rank = |own: &(usize, &Sentence)| (!is_mute(*own), fits(own.1), sought.value_in(own.1), score(*own));
    let ranks: Vec<Rank> = parts.iter().map(rank).collect();
    // The first among equals.
    let Some(best) = (0..parts.len()).reduce(|best, next| if ranks[next] > ranks[best] { next } else { best }) else {
        let text = candidate.text().lines().map(str::trim).find(is_text).unwrap_or_default().to_owned();
        return Deciding { text, is_clear: false };
    };
    let sentence = |at: usize| parts[at].1.plain.as_str();
    let other = beside(candidate, &parts, &ranks, best);
    let text = match other {
        Some(other) => format!("{} {}", sentence(best.min(other)), sentence(best.max(other))),
        None => sentence(best).to_owned(),
    };
    let next = (0..parts.len()).filter(|at| *at != best && Some(*at) != other).map(|at| ranks[at]);
    let is_like = |rank: &Rank| (rank.0, rank.1, rank.2) == (ranks[best].0, ranks[best].1, ranks[best].2);
    let next = next.filter(is_like).map(|rank| rank.3).fold(f32::MIN, f32::max);
    let lead = ranks[best].3 - next;
    let says_half = share(asked, &sought.words_in(&text), &HashSet::new()) >= SAYS_HALF;
    let is_clear = says_half || lead >= if is_list { CLEAR_ITEM } else { CLEAR };
    // Of a list, one item rarely says why; a sentence may list everything, or contrast both sides.
    let says_it = sought.asks_for_one() || (is_prose && sought.says_whole(&text, asked));
    Deciding { text, is_clear: is_clear && says_it && !(is_list && sought.asks_why) }
}

/// Returns the row of a table whose name, in its first cell, is in the question: several words, or one that is composed of
/// them. `None` if the names of other rows are in the question as well.
fn row_named<'a>(candidate: &'a UnitCandidate<'_>, sought: &Sought<'_>) -> Option<&'a Sentence> {
    let head = candidate.unit.head();
    let rows = candidate.unit.sentences.iter().filter(|own| own.range.start >= head.end);
    let words: Vec<_> = sought.question.split_whitespace().map(joined).collect();
    // "magic packet" for `MagicPacket`.
    let is_spelled = |name: &str| {
        let is_composed = name.chars().zip(name.chars().skip(1)).any(|(a, b)| a.is_lowercase() && b.is_uppercase());
        is_composed && (2..=MOST_PARTS).any(|count| words.windows(count).any(|run| run.concat() == joined(name)))
    };
    let named = rows.filter_map(|row| {
        let (name, _) = row.plain.split_once(CELL_END)?;
        let (has_all, is_spelled) = (sought.has_all_of(name), is_spelled(name));
        let has_several = || sought.splitter.key_stems(name).len() > 1;
        (has_all || is_spelled).then(|| (row, is_spelled || has_several()))
    });
    match named.take(2).collect::<Vec<_>>()[..] {
        [(row, true)] => Some(row),
        _ => None,
    }
}

/// Returns the letters and digits of a text in lower case.
fn joined(text: &str) -> String {
    text.chars().filter(|letter| letter.is_alphanumeric()).collect::<String>().to_lowercase()
}

/// Returns whether a unit is a requested list, whose items answer together. Steps are a numbered list. If some items of a
/// list longer than a screen have further words of the question, only those are requested.
fn answers_whole(candidate: &UnitCandidate<'_>, sought: &Sought<'_>, weights: &Weights) -> bool {
    let UnitKind::List { is_ordered } = candidate.unit.kind else { return false };
    let tells_apart = || {
        let mut known = sought.words_in(&candidate.reading.document.text[candidate.unit.head()]);
        known.extend(candidate.about.iter().cloned());
        sought.stems.iter().any(|stem| !known.contains(stem) && candidate.words.contains(stem))
    };
    match sought.asked {
        AnswerKind::Steps => is_ordered,
        AnswerKind::List if item_answers(candidate, sought, weights) => false,
        AnswerKind::List => lines_in(candidate.text()) <= MAX_LIST_LINES || !tells_apart(),
        _ => false,
    }
}

/// Returns whether one item of a list has most words of the question, no other has half of them, and the lead-in has few.
fn item_answers(candidate: &UnitCandidate<'_>, sought: &Sought<'_>, weights: &Weights) -> bool {
    let (unit, text) = (&candidate.unit, &candidate.reading.document.text);
    let says = |range: &Range<usize>| share(weights, &sought.words_in(&text[range.clone()]), &HashSet::new());
    let mut said: Vec<_> = unit.pieces.iter().map(says).collect();
    said.sort_by(|a, b| b.total_cmp(a));
    let is_only = matches!(said[..], [first, second, ..] if first >= SAYS_MOST && second < SAYS_HALF);
    weights.len() >= LEAST_WORDS && is_only && says(&unit.head()) < SAYS_HALF
}

/// Returns the lead-in of a list and as many of its items as fit on a screen; the whole list if all do.
fn first_screen(candidate: &UnitCandidate<'_>) -> Vec<Range<usize>> {
    let (unit, text) = (&candidate.unit, &candidate.reading.document.text);
    let (head, pieces) = (unit.head(), &unit.pieces);
    let fits = |piece: &&Range<usize>| lines_in(&text[head.start..piece.end]) <= MAX_LIST_LINES;
    let count = pieces.iter().take_while(fits).count().max(1);
    if count >= pieces.len() {
        return vec![unit.range.clone()];
    }
    let shown = pieces[0].start..pieces[count - 1].end;
    [head, shown].into_iter().filter(|range| !text[range.clone()].trim().is_empty()).collect()
}

/// Returns the first lines of a block of code with the sentence above it; all of them if they fit.
fn first_lines(candidate: &UnitCandidate<'_>) -> Range<usize> {
    let (text, start) = (candidate.text(), candidate.unit.range.start);
    start..start + text.split_inclusive('\n').take(MAX_CODE_LINES).map(str::len).sum::<usize>()
}

/// How well a sentence answers: whether it is a statement, is in a matching row or contains the negation that is asked
/// for, has the requested value; then its score.
type Rank = (bool, bool, Value, f32);

/// Returns the sentence of a paragraph next to the best one if it is nearly as good; the better of two.
fn beside(candidate: &UnitCandidate<'_>, parts: &[(usize, &Sentence)], ranks: &[Rank], best: usize) -> Option<usize> {
    let text = &candidate.reading.document.text;
    let goes_on = |first: usize| {
        let between = text.get(parts[first].1.range.end..parts[first + 1].1.range.start);
        between.is_some_and(|between| between.trim().is_empty() && !between.contains("\n\n"))
    };
    let is_near = |at: &usize| {
        let ((is_said, fits, value, score), best_rank) = (ranks[*at], ranks[best]);
        (is_said, fits, value) == (best_rank.0, best_rank.1, best_rank.2) && best_rank.3 - score < NEAR
    };
    let neighbours = [best.checked_sub(1), Some(best + 1).filter(|next| *next < parts.len())].into_iter().flatten();
    let near = neighbours.filter(|at| is_near(at) && goes_on(best.min(*at)));
    let better = |other, next| if ranks[next] > ranks[other] { next } else { other };
    near.filter(|_| candidate.unit.kind == UnitKind::Paragraph).reduce(better)
}

/// Returns the weights, each multiplied by the rarity of its word among the parts of a text. Of the rows that were all
/// added, the one that names Bahrain is asked for.
#[expect(clippy::cast_precision_loss, reason = "a table has some thousand rows at most")]
fn rarer(weights: &Weights, parts: &[HashSet<String>]) -> Weights {
    let rarity = |stem: &String| {
        let having = parts.iter().filter(|words| words.contains(stem)).count();
        (1.0 + (parts.len() as f32 + 0.5) / (having as f32 + 0.5)).ln()
    };
    weights.iter().map(|(stem, weight)| (stem.clone(), weight * rarity(stem))).collect()
}

/// Returns the ranges of a unit that are shown: all of it, or the head of a long list or table and its relevant
/// pieces.
pub(super) fn shown(candidate: &UnitCandidate<'_>, sought: &Sought<'_>, weights: &Weights) -> Vec<Range<usize>> {
    let (unit, text) = (&candidate.unit, &candidate.reading.document.text);
    let is_list = matches!(unit.kind, UnitKind::List { .. }) && !unit.pieces.is_empty();
    let (most_lines, most_rows) =
        if sought.asks_for_value() { (VALUE_LINES, VALUE_ROWS) } else { (MAX_LINES, MAX_PIECES) };
    let is_whole = answers_whole(candidate, sought, weights);
    let is_nested = is_list && !is_whole && lines_in(candidate.text()) > most_lines;
    let is_table = unit.kind == UnitKind::Table;
    // Of rows with long cells, few fit on a screen.
    let is_requested = sought.asked == AnswerKind::List && candidate.features.has_form();
    let is_long = is_table && !is_requested && unit.pieces.len() > 2 && lines_in(candidate.text()) > MAX_TABLE_LINES;
    // In a glossary, the item of the term.
    let defining = candidate.defining.and_then(|at| unit.sentences.get(at));
    let is_defining = |piece: &Range<usize>| defining.is_some_and(|defining| overlap(piece, &defining.range));
    let has_one = is_list && unit.pieces.iter().any(is_defining);
    let most = match () {
        () if is_long || has_one => 1,
        () if is_table && is_requested => MAX_LIST_LINES,
        () if is_table => most_rows,
        () => MAX_PIECES,
    };
    if unit.pieces.len() <= most && !is_nested {
        return vec![if unit.kind == UnitKind::Code { first_lines(candidate) } else { unit.range.clone() }];
    }
    if is_list && is_whole {
        return first_screen(candidate);
    }
    let pieces =
        if is_nested { items(text, unit) } else { unit.pieces.iter().map(|piece| (None, piece.clone())).collect() };
    let none = HashSet::new();
    let words: Vec<_> = pieces.iter().map(|(_, piece)| sought.words_in(&text[piece.clone()])).collect();
    // A question for alternatives wants the rows of each, also of the most frequent one.
    let weights = sought.without_events(weights);
    let mut weights = if sought.names_several() { weights } else { rarer(&weights, &words) };
    // A word that no piece has does not tell them apart.
    let is_said = |stem: &String| words.iter().any(|words| words.contains(stem));
    if weights.keys().any(is_said) {
        weights.retain(|stem, _| is_said(stem));
    }
    let weights = &weights;
    // Part 0 of the matches is the headings.
    let meant = |piece: &Range<usize>| {
        let Some(matches) = candidate.matches.as_ref().filter(|_| is_nested) else { return 0.0 };
        // Both are in the order of the text.
        let first = unit.sentences.partition_point(|own| own.range.end <= piece.start);
        let own = unit.sentences[first..].iter().take_while(|own| own.range.start < piece.end);
        own.zip(first + 1..).map(|(_, part)| matches.max_sim(part..=part)).fold(0.0, f32::max)
    };
    let leads_on = |piece: &Range<usize>| is_nested && ends_open(text[piece.clone()].trim_end());
    let bears = |piece: &Range<usize>, words: &HashSet<String>| {
        let unescaped = unescaped(&text[piece.clone()]);
        // The row of `db.t2.small` and not those of its family.
        let named = sought.code_words.iter().any(|word| word.is_in(&unescaped, words));
        // An item that only names the requested value comes after one that has it.
        let measure = if sought.has_value(&text[piece.clone()]) { MEASURE } else { 0.0 };
        share(weights, words, &none)
            + meant(piece)
            + measure
            + f32::from(u8::from(named) + u8::from(is_defining(piece)))
    };
    let scores = pieces.iter().zip(&words).map(|((_, piece), words)| bears(piece, words));
    let mut best: Vec<_> = scores.zip(0..).collect();
    best.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    // `MaxSim` is high even for unrelated texts.
    let part = if is_nested || has_one { 0.85 } else { 0.6 };
    let least = best.first().map_or(0.0, |(score, _)| score * part);
    let near = best.iter().filter(|(score, _)| *score >= least);
    let mut kept: Vec<usize> = near.take(MAX_PIECES).map(|(_, at)| *at).collect();
    let ranked: Vec<usize> = best.into_iter().map(|(_, at)| at).collect();
    // With the requested value, if another item has it. In one with few words of the question, it is another value.
    let says = |at: &usize| share(weights, &words[*at], &none);
    let most = (0..pieces.len()).map(|at| says(&at)).fold(0.0, f32::max);
    let has_value = |at: &usize| sought.has_value(&text[pieces[*at].1.clone()]) && says(at) * 2.0 >= most;
    if sought.asks_for_value() && !kept.iter().any(has_value) {
        kept.extend(ranked.into_iter().find(has_value));
    }
    // An item that introduces nested items is shown with them.
    let is_led = |at: &usize| pieces[*at].0.is_some_and(|above| kept.contains(&above) && leads_on(&pieces[above].1));
    let led: Vec<_> = (0..pieces.len()).filter(is_led).collect();
    kept.extend(led);
    // An item is read below the ones it is nested in.
    let mut at = 0;
    while let Some(own) = kept.get(at) {
        kept.extend(pieces[*own].0);
        at += 1;
    }
    kept.sort_unstable();
    kept.dedup();
    let head = Some(unit.head()).filter(|head| !text[head.clone()].trim().is_empty());
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for piece in kept.iter().map(|at| &pieces[*at].1) {
        match ranges.last_mut() {
            Some(last) if text[last.end..piece.start].trim().is_empty() => last.end = piece.end,
            _ => ranges.push(piece.clone()),
        }
    }
    match (head, ranges.as_mut_slice()) {
        // If only the end is left out, the head stays a range of its own: two ranges are shown with a note.
        (Some(head), [first, rest @ ..])
            if text[head.end..first.start].trim().is_empty() && (!rest.is_empty() || kept.len() == pieces.len()) =>
        {
            first.start = head.start;
        }
        (head, _) => ranges.splice(..0, head).for_each(drop),
    }
    ranges
}
