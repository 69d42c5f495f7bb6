//! The shape of a question, by its wording alone: plain, a comparison, or several parts.
//!
//! Wording is English; where a text is not, or where in doubt, the question is plain: one node too few costs less than
//! a question torn apart.

use super::comparison::{Comparison, comparison};
use super::parts::{complete, parts};
use super::survey::subject;
use crate::base::word::{WordSplitter, find_words};

/// Things compared, or parts, at most; more are put together.
const MAX_ITEMS: usize = 8;

/// What a question consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One thing is asked.
    Plain,
    /// The same is asked of several things.
    Comparison(Comparison),
    /// Several things are asked, each complete in itself.
    Parts(Vec<String>),
    /// All there is on a subject is asked.
    Survey(String),
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
        // What follows a comparison and refers to what is compared belongs to it.
        let is_about_first = parts.iter().skip(1).all(|part| part.has_word(BACK_WORDS));
        match comparison(first) {
            Some(comparison) if is_about_first => Self::Comparison(comparison),
            _ if parts.len() < 2 => match subject(span) {
                Some(subject) => Self::Survey(subject.to_owned()),
                None => Self::Plain,
            },
            _ => Self::Parts(grouped(&complete(&parts), " ")),
        }
    }
}

/// Words that refer to things named before.
const BACK_WORDS: &str = "each either one ones both which them they it these those";

/// Words a question starts with.
pub(super) const QUESTION_WORDS: &str = "how what why when where who which whose";

/// Words an order starts with.
pub(super) const ORDER_WORDS: &str =
    "explain describe list summarise summarize outline discuss recommend evaluate tell say name";

/// Words that say what their subject does; before them it ends.
pub(super) const VERBS: &str = "work works function operate behave happen scale start stop exist mean matter look handle handles \
    use uses store stores support supports manage make makes keep keeps decide choose implement read write run find \
    compare differ perform need needs solve help prevent avoid recover fail";

/// Fixed pairs, which are one thing.
const PAIRS: &str = "rock and roll|research and development|supply and demand|search and replace|find and replace|drag \
    and drop|trial and error|terms and conditions|copy and paste|cut and paste|black and white|command and \
    control|profit and loss|health and safety|questions and answers|question and answer|divide and conquer|mergers and \
    acquisitions|food and beverage|law and order|oil and gas|plug and play|back and forth|publish and \
    subscribe|science and technology|bread and butter|nuts and bolts|mark and sweep|compare and swap|fetch and \
    add|fire and forget|request and response|arts and crafts|war and peace|pros and cons";

/// A stretch of a question, and the same bytes with all that must not be cut hidden.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span<'a> {
    pub(super) text: &'a str,
    pub(super) mask: &'a str,
}

impl<'a> Span<'a> {
    pub(super) fn slice(self, from: usize, to: usize) -> Self {
        Self { text: &self.text[from..to], mask: &self.mask[from..to] }
    }

    pub(super) fn after(self, at: usize) -> Self {
        self.slice(at, self.text.len())
    }

    /// Drops white space and punctuation at both ends.
    pub(super) fn trim(self) -> Self {
        let is_edge = |letter: char| letter.is_whitespace() || ",.;:?!–—-".contains(letter);
        let start = self.mask.len() - self.mask.trim_start_matches(is_edge).len();
        let end = self.mask.trim_end_matches(is_edge).len();
        self.slice(start, end.max(start))
    }

    pub(super) fn strip(self, prefix: &str) -> Option<Self> {
        self.mask.starts_with(prefix).then(|| self.after(prefix.len()))
    }

    pub(super) fn strip_any(self, prefixes: &str) -> Option<Self> {
        prefixes.split('|').find_map(|prefix| self.strip(prefix))
    }

    pub(super) fn split_once(self, separator: &str) -> Option<(Self, Self)> {
        let at = self.mask.find(separator)?;
        Some((self.slice(0, at), self.after(at + separator.len())))
    }

    /// Finds whichever pattern comes first; of those at one place the longest.
    pub(super) fn first_of(self, patterns: &str) -> Option<(usize, &str)> {
        let found = patterns.split('|').filter_map(|pattern| Some((self.mask.find(pattern)?, pattern)));
        found.min_by_key(|(at, pattern)| (*at, std::cmp::Reverse(pattern.len())))
    }

    pub(super) fn words(self) -> impl Iterator<Item = &'a str> {
        self.mask.split(|letter: char| !letter.is_alphanumeric() && letter != '\'').filter(|word| !word.is_empty())
    }

    pub(super) fn starts_with_word(self, list: &str) -> bool {
        self.words().next().is_some_and(|word| is_in(word, list))
    }

    pub(super) fn has_word(self, list: &str) -> bool {
        self.words().any(|word| is_in(word, list))
    }
}

pub(super) fn is_in(word: &str, list: &str) -> bool {
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
pub(super) fn grouped(items: &[String], joint: &str) -> Vec<String> {
    let size = items.len().div_ceil(MAX_ITEMS).max(1);
    items.chunks(size).map(|items| items.join(joint)).collect()
}

/// Tells whether a word looks like a name: a capital, a digit, or code.
pub(super) fn is_name_like(word: &str) -> bool {
    word.contains(|letter: char| letter.is_uppercase() || letter.is_numeric() || "`\"“_".contains(letter))
}

/// Finds the first word of a list that does not open the span.
pub(super) fn first_word<'l>(span: Span<'_>, list: &'l str) -> Option<(usize, &'l str)> {
    let found = list.split_whitespace().filter_map(|word| Some((find_words(span.mask, word)?, word)));
    found.filter(|(at, _)| *at > 0).min()
}
