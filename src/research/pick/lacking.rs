//! Tells whether the picked units are on topic but lack what a question requests: a value of a kind, the thing counted, the
//! object of a task, a name.

use super::asked::{kind_of_thing, object_of_task};
use super::candidate::unescaped;
use super::code_word::CodeWord;
use super::features::only_points;
use super::sought::Sought;
use super::value::{
    LIMITS, Wanted, asks_for_dimension, asks_for_length, asks_for_percent, counted_words, has_figure, has_number,
    has_only_versions_of_others, has_only_years, has_unit_asked_for, measures_length, names_date, names_default,
    names_dimension, names_length, names_percent, numbers,
};
use super::wording::{has_phrase, has_word, words};
use super::{Picked, is_of};
use crate::base::html_table::html_tables;
use crate::base::language::Language;
use crate::base::readable::readable;
use crate::base::word::{WordSplitter, language_of};
use crate::kb::search::is_capitalised;
use crate::research::question::Question;
use crate::source::{Place, ProperName};

/// Openings of questions for a path, and openings of questions for a limit.
const ASKS_FOR_PATH: [&str; 8] = [
    "which folder", "what folder", "which directory", "what directory", "which path", "what path", "what is the path",
    "what's the path",
];
const ASKS_FOR_LIMIT: [&str; 2] = ["what is the ", "what's the "];

/// Words after a release that include all later ones.
const OPEN_ENDED: [&str; 8] =
    ["and later", "or later", "and newer", "or newer", "and higher", "or higher", "and above", "or above"];

/// Returns whether the units lack what a question requests, or the best one only links elsewhere.
pub(in crate::research) fn lacks_value(question: &Question, names: &[ProperName], picked: &[Picked]) -> bool {
    let splitter = WordSplitter::default();
    let said = texts(picked.iter().flat_map(Picked::said));
    let units = PickedUnits { sought: Sought::of(question.as_str(), &splitter), picked, said };
    units.points_elsewhere()
        || units.lacks_kind()
        || units.lacks_length()
        || units.lacks_dimension()
        || units.lacks_number()
        || units.lacks_object()
        || units.lacks_counted()
        || units.lacks_code_word()
        || units.lacks_name(names)
        || units.lacks_named()
        || units.is_of_other()
        || units.is_far_from_kind()
}

/// The units picked for a question, with all they quote.
struct PickedUnits<'a> {
    sought: Sought<'a>,
    picked: &'a [Picked],
    /// All quotes, with the names of their places.
    said: String,
}

impl<'a> PickedUnits<'a> {
    /// Returns the quotes with their places, without the text added for context, which was not picked for the question.
    fn said(&self) -> impl Iterator<Item = (&'a Place, &'a str)> {
        self.picked.iter().flat_map(Picked::said)
    }

    /// Returns the quotes of the best unit.
    fn best(&self) -> impl Iterator<Item = (&'a Place, &'a str)> {
        self.picked.iter().take(1).flat_map(Picked::said)
    }

    /// Returns the sentence that answers, or its row. A value in another unit, in another row or in code belongs to
    /// something else.
    fn deciding(&self) -> String {
        self.picked.first().map(|own| own.row().unwrap_or_else(|| own.text.clone())).unwrap_or_default()
    }

    /// Returns whether a text has one of some words, or a synonym.
    fn has_any(&self, text: &str, words: &[String]) -> bool {
        let said = self.sought.words_in(text);
        words.iter().any(|word| said.contains(&self.sought.splitter.stem(word)))
    }

    /// Returns the lines of the best unit that announce what follows.
    fn lead_ins(&self) -> String {
        let lines = self.best().flat_map(|(_, quote)| quote.lines());
        lines.filter(|line| line.trim_end().ends_with(':')).collect::<Vec<_>>().join(" ")
    }

    fn points_elsewhere(&self) -> bool {
        let asks_where = self.sought.question.trim_start().to_lowercase().starts_with("where");
        !asks_where && self.picked.first().is_some_and(|own| only_points(&own.text))
    }

    /// Returns whether there is no value of the requested kind. The number of another thing does not count.
    fn lacks_kind(&self) -> bool {
        let (question, text) = (self.sought.question, self.deciding());
        // "Four queue callbacks" are no queues. The lead-in of a list names what its items count.
        let near = || format!("{text} {}", self.lead_ins());
        let is_said = || counted_words(question).is_none_or(|words| self.has_any(&near(), &words[words.len() - 1..]));
        match self.sought.wanted {
            None => false,
            Some(Wanted::Number) => {
                !Wanted::Number.is_in(&text)
                    || (has_phrase(question, &["how many "]) && has_only_years(&text))
                    || !is_said()
                    || !has_unit_asked_for(&text, question)
                    || (asks_for_percent(question) && !names_percent(&text))
            }
            Some(Wanted::Version) => !Wanted::Version.is_in(&text) || has_only_versions_of_others(&text, question),
            Some(Wanted::Day) => {
                !Wanted::Day.is_in(&text) || (has_phrase(question, &["what date", "which date"]) && !names_date(&text))
            }
            Some(wanted) => !wanted.is_in(&text),
        }
    }

    /// Returns whether there is no length. Any figure in the best unit may be one, in a unit of measure that is not
    /// listed; in further units it usually counts something else. "A few hours" is one only in a sentence with most
    /// words of the question.
    fn lacks_length(&self) -> bool {
        let names_any = |quote: &str| has_figure(quote) || Wanted::Day.is_in(quote);
        // An address has figures and letters.
        let is_word = |word: &&str| !word.contains("://");
        let shown = |(_, quote)| readable(quote).split(' ').filter(is_word).collect::<Vec<_>>().join(" ");
        asks_for_length(self.sought.question)
            && !self.best().map(shown).any(|quote| names_any(&quote))
            && !self.said().map(shown).any(|quote| measures_length(&quote))
            && !self.picked.first().is_some_and(|own| own.is_decisive && names_length(&own.text))
    }

    fn lacks_dimension(&self) -> bool {
        asks_for_dimension(self.sought.question) && !names_dimension(&self.deciding())
    }

    /// Returns whether a number of the question, such as a release, occurs nowhere.
    fn lacks_number(&self) -> bool {
        let deciding = self.deciding().to_lowercase();
        let is_said =
            |number: &str| has_number(&self.said, number, self.sought.question) || self.is_included(number, &deciding);
        !numbers(self.sought.question).all(is_said)
    }

    /// Returns whether a text in lower case includes a release by naming an earlier one and all later ones: "Linen 4 and
    /// later" includes Linen 10. A name in place of the number, as in "Linen Vista and later", counts as an earlier one.
    fn is_included(&self, number: &str, text: &str) -> bool {
        let Sought { question, splitter, .. } = self.sought;
        let name = question.split(number).next().and_then(|before| words(before).last()).unwrap_or_default();
        // Not "on" of "on 10 volts".
        let is_name = splitter.key_stems(&format!("{name} the")) == [splitter.stem(name)];
        let is_earlier = |at: usize| {
            let first = text[..at].split_whitespace().last().and_then(|first| first.parse::<f64>().ok());
            first.is_none_or(|first| number.parse().is_ok_and(|number: f64| first <= number))
        };
        let mut ends = OPEN_ENDED.iter().flat_map(|phrase| text.match_indices(phrase)).map(|(at, _)| at);
        is_name && has_word(text, &name.to_lowercase()) && ends.any(is_earlier)
    }

    /// Returns whether the best steps are of a task on something else.
    fn lacks_object(&self) -> bool {
        let object = object_of_task(self.sought.question);
        !object.is_empty() && !self.has_any(&texts(self.best()), &object)
    }

    /// Returns whether the counted noun does not occur. A single noun may have a synonym in the text, as "members" for
    /// "people"; of several words, one must occur.
    fn lacks_counted(&self) -> bool {
        let splitter = self.sought.splitter;
        let is_counted = |words: &[String]| {
            let stems = splitter.stems(&self.said);
            words.iter().any(|word| stems.contains(&splitter.stem(word)))
        };
        // The amount may be in a sentence that names no price.
        self.sought.wanted != Some(Wanted::Money)
            && counted_words(self.sought.question).is_some_and(|words| !is_counted(&words))
    }

    /// Returns whether a question asks for a default, a path or a limit and no unit has one.
    fn lacks_named(&self) -> bool {
        let (lower, text) = (self.sought.question.to_lowercase(), self.said.to_lowercase());
        let is_unset = self.sought.asks_for_default && self.sought.asks_for_value();
        let lacks_default = || {
            has_word(&lower, "default|defaults") && !names_default(&text)
                || is_unset && !names_default(&self.deciding())
        };
        let lacks_path = || has_phrase(&lower, &ASKS_FOR_PATH) && !text.contains(['/', '\\']);
        let asks_for_limit = || has_phrase(&lower, &ASKS_FOR_LIMIT) && has_word(&lower, LIMITS);
        // A limit in another row belongs to something else.
        let best = || self.picked.first().and_then(Picked::row).unwrap_or_else(|| texts(self.best()));
        let lacks_limit = || asks_for_limit() && !names_dimension(&best());
        lacks_default() || lacks_path() || lacks_limit()
    }

    /// Returns whether a requested value is that of something else than the question names: it is in a row that has none
    /// of its names, or in a sentence without a name that other sentences of the text have. A name in the prose of the
    /// document is taken for the subject of the whole table.
    fn is_of_other(&self) -> bool {
        let is_asked = self.sought.wanted.is_some() || self.sought.asks_for_limit();
        let Some(best) = self.picked.first().filter(|_| is_asked) else { return false };
        let names = names_in(self.sought.question);
        if names.is_empty() {
            return false;
        }
        let around: String = self.best().map(|(source, _)| format!("{} ", source.names())).collect();
        let is_html = || self.best().any(|(_, quote)| !html_tables(quote).is_empty());
        if let Some(row) = best.row().or_else(|| is_html().then(|| best.text.clone())) {
            let prose = best.document.text.lines().filter(|line| !line.contains(['|', '<']));
            let near = format!("{around} {row} {}", prose.collect::<Vec<_>>().join(" "));
            return !names.iter().any(|name| is_named(name, &near));
        }
        let text: String = self.best().map(|(_, quote)| format!("{quote} ")).collect();
        let near = format!("{around} {}", best.text);
        let refers_back = words(&best.text.to_lowercase()).take(OPENING_WORDS).any(|word| has_word(word, PRONOUNS));
        let is_elsewhere = |name: &Vec<&str>| !is_named(name, &near) && text.contains(&name.join(" "));
        !refers_back && !names_in(&best.text).is_empty() && names.iter().any(is_elsewhere)
    }

    /// Returns whether nothing in the best unit is near the kind of thing that the question asks for by "which" or "what".
    fn is_far_from_kind(&self) -> bool {
        let far = self.picked.first().and_then(|best| best.far.as_ref());
        let is_far = |kind: &str| far.is_some_and(|far| far.iter().any(|word| word == kind));
        kind_of_thing(self.sought.question).is_some_and(is_far)
    }

    fn lacks_code_word(&self) -> bool {
        self.sought.code_words.iter().any(|word| word.has_sign && !self.has_word(word))
    }

    fn lacks_name(&self, names: &[ProperName]) -> bool {
        let mentions = |name: &ProperName| {
            self.said().any(|(source, _)| is_of(source, name))
                || self.has_word(&CodeWord::of_name(&name.word, self.sought.splitter))
        };
        !names.is_empty() && !names.iter().any(mentions)
    }

    fn has_word(&self, word: &CodeWord) -> bool {
        self.said().any(|(source, quote)| {
            let text = unescaped(&format!("{} {} {quote}", source.for_people(), source.names()));
            word.is_in(&text, &self.sought.splitter.stems(&text))
        })
    }
}

/// A pronoun among this many first words of a sentence refers to the sentence before.
const OPENING_WORDS: usize = 4;
const PRONOUNS: &str = "he|she|it|they|this|that|these|those|his|her|its|their|both|each";

/// Returns the names in an English text: capitalised words that follow each other, or one that is no ordinary word. Leaves
/// out words all in capitals that stand alone, which may be units, currencies or abbreviations, and the first word of a
/// sentence.
fn names_in(text: &str) -> Vec<Vec<&str>> {
    if !language_of(text).is_none_or(Language::is_english) {
        return Vec::new();
    }
    let mut names: Vec<Vec<&str>> = Vec::new();
    let (mut is_first, mut is_inside) = (true, false);
    for token in text.split_whitespace() {
        let word = token.trim_matches(|letter: char| !letter.is_alphanumeric());
        let is_plain = word.chars().count() > 1 && word.chars().all(char::is_alphanumeric);
        let is_name = !is_first && is_plain && word.starts_with(char::is_uppercase);
        match names.last_mut() {
            Some(last) if is_name && is_inside => last.push(word),
            _ if is_name => names.push(vec![word]),
            _ => {}
        }
        is_first = token.ends_with(['.', '?', '!', ':']);
        is_inside = is_name && token.ends_with(word);
    }
    let has_small = |word: &str| word.contains(char::is_lowercase);
    names.retain(|name| match name.as_slice() {
        [only] => has_small(only) && is_capitalised(text, only),
        several => several.iter().any(|word| has_small(word)),
    });
    names
}

/// Returns whether a text has a word of a name as it is written, but not as the end of another name: "Oil Mill" is not
/// "Wind Mill".
fn is_named(name: &[&str], text: &str) -> bool {
    let words: Vec<_> = words(text).collect();
    let singular = |word: &str| word.strip_suffix('s').unwrap_or(word).to_owned();
    let is_same = |a: &str, b: &str| singular(a) == singular(b);
    let is_of_other = |at: usize, place: usize| {
        let before = words[..at].last().filter(|before| place > 0 && before.starts_with(char::is_uppercase));
        before.is_some_and(|before| !is_same(before, name[place - 1]))
    };
    (0..words.len()).any(|at| {
        let place = name.iter().position(|own| is_same(own, words[at]));
        place.is_some_and(|place| !is_of_other(at, place))
    })
}

/// Returns quotes with the names of their places.
fn texts<'a>(said: impl Iterator<Item = (&'a Place, &'a str)>) -> String {
    said.map(|(source, quote)| format!("{} {quote}\n", source.names())).collect()
}
