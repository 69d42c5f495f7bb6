//! The request of one question, derived once for all units and sentences.

use std::collections::HashSet;

use super::asked::{
    AnswerKind, LEAST_MEANT, aim, announces_events, asks_what_happens_then, contrasts, gives_reason, is_person, listed,
    names_person, states_condition,
};
use super::asks_whether;
use super::code_word::CodeWord;
use super::definition::Term;
use super::features::{Weights, share};
use super::negation::{asks_for_what_is_not, asks_why_not, is_negative, negates};
use super::permission::{asks_for_permission, permits};
use super::remedy::Remedy;
use super::subject::overview_of;
use super::value::{
    Wanted, asks_for_measure, counted, counts, has_measure, measures_length, names_default, names_recurring_day,
    recurring_period,
};
use super::wording::{has_phrase, has_word, words};
use crate::base::thesaurus::{Directions, Related};
use crate::base::word::{WordSplitter, language_of};
use crate::research::sentence::Sentence;
use crate::research::unit::{Unit, UnitKind};

/// Minimum share of the question's words in a sentence that denies what the question asks for.
const LEAST_DENIED: f32 = 0.5;

/// Minimum share of the question's words in a sentence that answers yes or no, with its headings and without them.
const LEAST_SAID: f32 = 0.6;
const LEAST_OWN: f32 = 0.25;

/// Words of a question for a default: phrases, verbs for setting a value, which the question negates, and words after
/// "leave", each at most this many words later.
const UNSET: [&str; 2] = ["omit", "out of the box"];
const SETTING: &str = "set|sets|setting|specify|specified|specifying|touch|touched|touching|change|changed|changing|configure|\
    configured|configuring";
const LEFT: &str = "out|alone|unset|empty|blank|unchanged";
const SET_WITHIN: usize = 2;
const LEFT_WITHIN: usize = 4;

/// Words in the header of a table that tells what things are.
const MEANINGS: &str = "definition|definitions|describes|description|descriptions|details|does|explanation|function|\
    meaning|meanings|notes|purpose|remarks|role|summary|term|terms|use|what";

/// Openings of a sentence that continues the one before.
const GOING_ON: [&str; 5] = ["However, ", "But ", "It ", "They ", "This "];

/// Words for the events that a history lists.
const EVENTS: &str = "released|introduced|added|launched|published|announced|available|supported|came|come|out";

/// The kind of statement that answers a question, whatever its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statement {
    Reason,
    /// What follows from a condition.
    Condition,
    /// What holds if a value is not set.
    Default,
}

impl Statement {
    fn of(question: &str, asked: AnswerKind) -> Option<Self> {
        let lower = question.trim_start().to_lowercase();
        match asked {
            AnswerKind::Time => Some(Self::Condition),
            _ if lower.starts_with("why") => Some(Self::Reason),
            _ if asks_what_happens_then(&lower) => Some(Self::Condition),
            _ => Some(Self::Default).filter(|_| asks_for_default(question)),
        }
    }
}

/// Whether a sentence has the requested value.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) enum Value {
    No,
    /// A value of that kind.
    Any,
    /// A number directly before the counted noun, or the requested abbreviation directly after its expansion.
    Exact,
}

/// A question with its words and the answer it requests.
pub(super) struct Sought<'a> {
    pub(super) question: &'a str,
    pub(super) splitter: &'a WordSplitter,
    /// The stems of its words, and its symbols.
    pub(super) stems: Vec<String>,
    related: Related,
    /// For the steps of a task, which may be described beside those that undo it.
    directions: Directions,
    /// Whether the question is negative: "which services can't be logged".
    is_negated: bool,
    /// Whether it is a yes-or-no question.
    pub(super) asks_whether: bool,
    pub(super) asked: AnswerKind,
    pub(super) wanted: Option<Wanted>,
    statement: Option<Statement>,
    /// Whether it asks for a default in other words: "if I don't set it".
    pub(super) asks_for_default: bool,
    /// Whether it asks for the day of something that recurs: "when is it cleaned each month".
    pub(super) recurs: bool,
    /// The stems of the alternative that something is compared with: "gas" of "when is oil a better choice than gas".
    rejected: HashSet<String>,
    /// Whether a remedy or a reason is requested.
    pub(super) asks_why: bool,
    /// Whether the reason for a denial is requested: "why can't I".
    asks_why_not: bool,
    /// Whether it asks what follows from a condition: "what happens if".
    pub(super) asks_what_happens: bool,
    asks_for_permission: bool,
    /// Whether a measure or a limit is requested, usually a number: "how long", "the maximum".
    is_measured: bool,
    /// The stem of the noun after "how many".
    counted: Option<String>,
    /// The stems of the noun of which a list is requested, and of the word before it: "which pump errors".
    pub(super) listed: Vec<String>,
    /// The stems of the question's words for people.
    people: HashSet<String>,
    /// Abbreviations whose meaning is requested.
    abbreviations: Vec<String>,
    pub(super) code_words: Vec<CodeWord>,
    /// The term whose definition is requested.
    term: Option<Term>,
}

impl<'a> Sought<'a> {
    pub(super) fn of(question: &'a str, splitter: &'a WordSplitter) -> Self {
        let counted = counted(question).map(|noun| splitter.stem(&noun));
        let (asked, is_measured) = (AnswerKind::of(question), asks_for_measure(question));
        let code_words = CodeWord::all(question, splitter);
        let mut stems = splitter.subject_stems(overview_of(question).unwrap_or(question));
        // The period in which something recurs is rarely said beside its day.
        let period =
            recurring_period(question).filter(|_| asked == AnswerKind::Time).map(|period| splitter.stem(&period));
        if stems.iter().any(|stem| Some(stem) != period.as_ref()) {
            stems.retain(|stem| Some(stem) != period.as_ref());
        }
        stems.extend(symbols(question));
        // Only if the question is about nothing else.
        let mut abbreviations = abbreviations(question);
        let is_short = |stem: &String| abbreviations.iter().any(|short| splitter.stem(short) == *stem);
        if asked != AnswerKind::Definition || !stems.iter().all(|stem| is_short(stem) || stem == "stand") {
            abbreviations.clear();
        }
        let wanted = Wanted::of(question);
        let related = Related::of(question, language_of(question));
        let directions = match asked {
            AnswerKind::Steps => Directions::of(&stems, &related, splitter),
            _ => Directions::default(),
        };
        let is_negated = asks_for_what_is_not(question);
        Self {
            question,
            splitter,
            stems,
            related,
            directions,
            is_negated,
            asks_whether: asks_whether(question),
            asked,
            wanted,
            statement: Statement::of(question, asked),
            asks_for_default: asks_for_default(question),
            recurs: period.is_some(),
            rejected: splitter.stems(rejected(&question.to_lowercase()).unwrap_or_default()),
            asks_why: Remedy::of(question).is_some() || question.trim_start().to_lowercase().starts_with("why"),
            asks_why_not: asks_why_not(question),
            asks_what_happens: asks_what_happens_then(&question.to_lowercase()),
            asks_for_permission: asks_for_permission(question),
            is_measured,
            counted,
            listed: listed(&question.to_lowercase())
                .map(|(before, noun)| before.into_iter().chain([noun]).map(|word| splitter.stem(word)).collect())
                .unwrap_or_default(),
            people: words(&question.to_lowercase())
                .filter(|word| is_person(word))
                .map(|word| splitter.stem(word))
                .collect(),
            abbreviations,
            code_words,
            term: Some(asked).filter(|asked| *asked == AnswerKind::Definition).and(Term::of(question, splitter)),
        }
    }

    /// Returns the index of the first sentence of a unit that defines the requested term. `text` is that of its
    /// document.
    pub(super) fn defining(&self, unit: &Unit, text: &str) -> Option<usize> {
        let term = self.term.as_ref().filter(|_| unit.kind != UnitKind::Code)?;
        let said: Vec<_> = unit.sentences.iter().map(|sentence| sentence.plain.as_str()).collect();
        // In a row, the cell beside the term tells its meaning only below a header that says so.
        let is_glossary = unit.kind != UnitKind::Table || has_word(&text[unit.head()].to_lowercase(), MEANINGS);
        let defines = |said: &str| term.is_defined_by(said, self.splitter);
        let is_defined = |at: usize| if is_glossary { defines(said[at]) } else { said[at].split(" — ").any(defines) };
        let is_below_label = |at: usize| at > 0 && term.is_named_by(said[at - 1], self.splitter);
        let is_introduced = |at: usize| term.is_introduced_by(&text[unit.sentences[at].range.clone()], self.splitter);
        (0..said.len()).find(|at| is_below_label(*at) || is_defined(*at) || is_introduced(*at))
    }

    /// Returns whether a sentence only uses the term being defined, as in "Fill it with the hand pump".
    pub(super) fn only_uses_term(&self, sentence: &str) -> bool {
        self.term.as_ref().is_some_and(|term| term.is_only_used_in(sentence, self.splitter))
    }

    /// Returns whether a heading is the term being defined, in a note whose title says that it is a glossary.
    pub(super) fn is_entry(&self, heading: &str, title: &str) -> bool {
        let title = title.to_lowercase();
        // "Terms of service" is not a glossary.
        let is_glossary = title.trim() == "terms" || has_word(&title, "glossary|terminology|definitions");
        is_glossary && self.term.as_ref().is_some_and(|term| term.is_named_by(heading, self.splitter))
    }

    /// Returns whether a number, a date or the like is requested.
    pub(super) fn asks_for_value(&self) -> bool {
        self.wanted.is_some() || self.is_measured
    }

    /// Returns whether a text has a value of the requested kind.
    pub(super) fn has_value(&self, text: &str) -> bool {
        self.wanted.map_or(self.is_measured && has_measure(text), |wanted| wanted.is_in(text))
    }

    /// Returns whether a sentence is the requested statement. `about` are the words of the question in its headings.
    pub(super) fn is_stated_by(
        &self,
        said: &[Sentence],
        at: usize,
        about: &HashSet<String>,
        weights: &Weights,
    ) -> bool {
        let sentence = said[at].plain.as_str();
        let is_on_subject = || share(weights, &self.words_in(sentence), about) >= LEAST_MEANT;
        match self.statement {
            // It may explain a rule in words of its own.
            Some(Statement::Reason) => {
                gives_reason(sentence)
                    && self.words_with_subject(said, at).iter().any(|word| weights.contains_key(word))
            }
            Some(Statement::Condition) => states_condition(sentence) && is_on_subject(),
            Some(Statement::Default) => names_default(sentence) && is_on_subject(),
            None => false,
        }
    }

    /// Returns whether a limit may answer: how many, how long, the maximum.
    pub(super) fn asks_for_limit(&self) -> bool {
        self.is_measured || matches!(self.asked, AnswerKind::Number | AnswerKind::Length)
    }

    /// Returns whether a text has key words, all of them words of the question.
    pub(super) fn has_all_of(&self, text: &str) -> bool {
        let words = self.splitter.key_stems(text);
        !words.is_empty() && words.iter().all(|word| self.stems.contains(word))
    }

    /// Returns whether one sentence may answer, and not only a list, its steps or both sides of a comparison.
    pub(super) fn asks_for_one(&self) -> bool {
        !matches!(self.asked, AnswerKind::List | AnswerKind::Steps | AnswerKind::Comparison)
    }

    /// Returns whether a sentence has the requested list in it, or contrasts the things compared.
    pub(super) fn says_whole(&self, sentence: &str, weights: &Weights) -> bool {
        let share = || share(weights, &self.words_in(sentence), &HashSet::new());
        let lists = || sentence.contains(':') || (sentence.matches(", ").count() > 1 && has_word(sentence, "and|or"));
        match self.asked {
            AnswerKind::List => lists() && share() >= LEAST_DENIED,
            AnswerKind::Comparison => contrasts(sentence) && share() >= 1.0 - f32::EPSILON,
            _ => false,
        }
    }

    /// Returns the weights without those of event words such as "released", if the question asks when something
    /// happened: each row of a history describes an event in its own words.
    pub(super) fn without_events(&self, weights: &Weights) -> Weights {
        if self.wanted != Some(Wanted::Day) && self.asked != AnswerKind::Time {
            return weights.clone();
        }
        // "Patch releases" is a noun.
        let lower = self.question.to_lowercase();
        let nouns: HashSet<_> =
            words(&lower).filter(|word| word.ends_with('s')).map(|word| self.splitter.stem(word)).collect();
        let events: HashSet<_> = EVENTS.split('|').map(|event| self.splitter.stem(event)).collect();
        without(weights, |stem| events.contains(stem) && !nouns.contains(stem))
    }

    /// Returns the weights without those of the alternative that something is compared with.
    pub(super) fn without_rejected(&self, weights: &Weights) -> Weights {
        without(weights, |stem| self.rejected.contains(stem))
    }

    /// Returns whether the question names alternatives: "in Berlin or Paris".
    pub(super) fn names_several(&self) -> bool {
        let lower = self.question.to_lowercase();
        [" or ", " and ", "/"].iter().any(|link| lower.contains(link))
    }

    /// Returns whether a sentence has the requested value.
    pub(super) fn value_in(&self, sentence: &Sentence) -> Value {
        if self.spells_out(&sentence.plain) || (self.recurs && names_recurring_day(&sentence.plain)) {
            return Value::Exact;
        }
        match (self.wanted, &self.counted) {
            (Some(wanted), _) if !wanted.is_in(&sentence.plain) => Value::No,
            (Some(_), Some(noun)) if counts(&sentence.plain, noun, self.splitter) => Value::Exact,
            (Some(_), _) => Value::Any,
            (None, _) => Value::No,
        }
    }

    /// Returns whether a unit is about the opposite of the question, given its subject, which is the heading and the
    /// first sentence. An answer to a negative question has a sentence that matches the question and contains a negation.
    pub(super) fn is_opposed_by(&self, subject: &str, unit: &Unit, weights: &Weights) -> bool {
        let denies_any =
            || self.denies(subject, weights) || unit.sentences.iter().any(|own| self.denies(&own.plain, weights));
        self.directions.are_opposed_by(&self.splitter.stems(subject)) || (self.is_negated && !denies_any())
    }

    /// Returns whether a list has what is optional, given a question for a list of what is required.
    pub(super) fn is_optional(&self, unit: &Unit) -> bool {
        const REQUIRED: &str = "must|need|needs|needed|require|required|requires|mandatory";
        let requires = |text: &str| has_word(&text.to_lowercase(), REQUIRED);
        // Not the month, nor "may not".
        let is_optional =
            |text: &str| has_word(text, "may|MAY|optional|optionally") && !is_negative(text) && !requires(text);
        self.asked == AnswerKind::List
            && requires(self.question)
            && matches!(unit.kind, UnitKind::List { .. } | UnitKind::Table)
            && unit.lead_in().is_some_and(|lead_in| is_optional(&lead_in.plain))
    }

    /// Returns whether a list has a title in bold that names the opposite of the task, given the text above its items:
    /// "**To disable …**" for a question about enabling. A sentence may mention both.
    pub(super) fn is_undone_by(&self, lead_in: &str) -> bool {
        lead_in.starts_with("**") && self.directions.are_opposed_by(&self.splitter.stems(lead_in))
    }

    /// Returns whether a text contains the negation that the question asks for.
    pub(super) fn denies(&self, text: &str, weights: &Weights) -> bool {
        let share = || share(weights, &self.words_in(text), &HashSet::new());
        self.is_negated && is_negative(text) && share() >= LEAST_DENIED
    }

    /// Returns whether a sentence denies what a yes-or-no question asks about, or says why not. Most yes-or-no
    /// questions are about a limit: of 36 on twelve folders, 26 are answered by a sentence with a negation. `about` are
    /// the words of the question in its headings.
    pub(super) fn says_no(&self, said: &[Sentence], at: usize, about: &HashSet<String>, weights: &Weights) -> bool {
        let sentence = said[at].plain.as_str();
        match () {
            () if self.asks_whether => negates(sentence) && self.is_on_subject(said, at, about, weights),
            () if self.asks_why_not => {
                let share = || share(weights, &self.words_in(sentence), about);
                negates(sentence) && gives_reason(sentence) && share() >= LEAST_MEANT
            }
            () => false,
        }
    }

    /// Returns whether the lead-in of a list names another task than the question ("To oil the wheel, follow these
    /// steps:") or announces what happens ("When the pump stops, the following happens:").
    pub(super) fn is_of_other_task(&self, unit: &Unit, weights: &Weights) -> bool {
        let is_list = matches!(unit.kind, UnitKind::List { .. }) && !unit.pieces.is_empty();
        let is_asked = is_list && self.asked == AnswerKind::Steps;
        let Some(lead_in) = unit.lead_in().filter(|_| is_asked) else { return false };
        let has_none = |aim: &str| self.words_in(aim).iter().all(|word| !weights.contains_key(word));
        // "To do this" and "To get started" name no task of their own.
        let names_task = |aim: &str| self.splitter.key_stems(aim).len() > 1 && !has_word(aim, "this|these|it|them");
        let is_titled = || {
            let heading = unit.headings.last().map_or_else(HashSet::new, |heading| self.words_in(heading));
            share(weights, &heading, &HashSet::new()) >= LEAST_DENIED
        };
        announces_events(&lead_in.plain)
            || aim(&lead_in.plain).is_some_and(|aim| names_task(aim) && has_none(aim) && !is_titled())
    }

    /// Returns whether a sentence says that something is allowed, if that is asked.
    pub(super) fn permits(&self, said: &[Sentence], at: usize, about: &HashSet<String>, weights: &Weights) -> bool {
        self.asks_for_permission && permits(&said[at].plain) && self.is_on_subject(said, at, about, weights)
    }

    /// Returns whether a sentence has enough words of a yes-or-no question to answer it. Those of the sentence before count
    /// for "However, it must not". Words for people count only if the sentence names others: "You can't connect"
    /// answers "Can people connect?".
    fn is_on_subject(&self, said: &[Sentence], at: usize, about: &HashSet<String>, weights: &Weights) -> bool {
        // A heading is about more than one of its sentences.
        if share(weights, &self.words_in(&said[at].plain), &HashSet::new()) < LEAST_OWN {
            return false;
        }
        let found = self.words_with_subject(said, at);
        let lower = said[at].plain.to_lowercase();
        let is_other = |word: &str| is_person(word) && !self.people.contains(&self.splitter.stem(word));
        let names_other = !has_word(&lower, "you") && words(&lower).any(is_other);
        let is_thing = |stem: &&String| names_other || !self.people.contains(*stem);
        let things: Weights = weights.keys().filter(is_thing).map(|stem| (stem.clone(), weights[stem])).collect();
        share(if things.len() > 1 { &things } else { weights }, &found, about) >= LEAST_SAID
    }

    /// Returns the words of the question in a sentence, and in the one before if it continues that.
    fn words_with_subject(&self, said: &[Sentence], at: usize) -> HashSet<String> {
        let mut found = self.words_in(&said[at].plain);
        if GOING_ON.iter().any(|opening| said[at].plain.starts_with(opening)) {
            found.extend(said[..at].last().map(|before| self.words_in(&before.plain)).unwrap_or_default());
        }
        found
    }

    /// Returns whether a sentence has the requested measure, person or reason.
    pub(super) fn measures(&self, sentence: &Sentence) -> bool {
        match self.asked {
            AnswerKind::Length => measures_length(&sentence.plain),
            AnswerKind::Person => names_person(&sentence.plain),
            _ if self.asks_for_default => names_default(&sentence.plain),
            // For "why", `is_stated_by` also checks that the reason is on the subject.
            _ if self.asks_why && self.statement != Some(Statement::Reason) => gives_reason(&sentence.plain),
            _ => self.is_measured && has_measure(&sentence.plain),
        }
    }

    /// Returns the stems of a text, the symbols of the question that occur in it, and the question's words that it
    /// has a synonym for.
    pub(super) fn words_in(&self, text: &str) -> HashSet<String> {
        let joins = |letter: Option<char>| letter.is_some_and(|letter| "=<>!&|+-*/%^~.:?@#$".contains(letter));
        let is_whole = |at: usize, sign: &str| {
            // The `..` of `..=` is another operator.
            !joins(text[..at].chars().next_back()) && !joins(text[at + sign.len()..].chars().next())
        };
        let is_found = |word: &&String| {
            !word.contains(char::is_alphanumeric)
                && text.match_indices(word.as_str()).any(|(at, sign)| is_whole(at, sign))
        };
        let mut found = self.splitter.stems(text);
        found.extend(self.splitter.parts_of_names(text));
        self.related.add_to(&mut found, text);
        found.extend(self.stems.iter().filter(is_found).cloned());
        found.extend(self.splitter.parts_in(text, self.stems.iter()));
        // "400 KB" says how many bytes.
        found.extend(self.counted.iter().filter(|noun| counts(text, noun, self.splitter)).cloned());
        found
    }

    /// Returns whether a text says what an abbreviation stands for: "request for help (RFH)".
    pub(super) fn spells_out(&self, text: &str) -> bool {
        self.abbreviations
            .iter()
            .any(|short| text.contains(&format!("({short})")) || text.contains(&format!("({short}s)")))
    }
}

/// Returns the weights without those of some stems, unless all are among them.
fn without(weights: &Weights, is_out: impl Fn(&String) -> bool) -> Weights {
    let is_left = |stem: &String| !is_out(stem);
    if !weights.keys().any(is_left) {
        return weights.clone();
    }
    weights.iter().filter(|(stem, _)| is_left(stem)).map(|(stem, weight)| (stem.clone(), *weight)).collect()
}

/// Returns whether a question asks for a default in other words: "if I don't set it", "when it is left out".
fn asks_for_default(question: &str) -> bool {
    let lower = question.to_lowercase();
    let all: Vec<_> = words(&lower).collect();
    let is_after =
        |at: usize, within: usize, wanted: &str| all[at + 1..].iter().take(within).any(|word| has_word(word, wanted));
    // "How long can I leave the gate alone?" asks for no default.
    let is_supposed = |at: usize| all[..at].iter().any(|word| has_word(word, "if|when|unless|while"));
    let is_unset = |at: usize| match all[at] {
        "without" => is_after(at, SET_WITHIN, SETTING),
        "t" | "not" | "never" => is_supposed(at) && is_after(at, SET_WITHIN, SETTING),
        "leave" | "leaves" | "left" => is_supposed(at) && is_after(at, LEFT_WITHIN, LEFT),
        _ => false,
    };
    has_phrase(question, &UNSET) || (0..all.len()).any(is_unset)
}

/// Returns the alternative that a question in lower case compares something with.
fn rejected(question: &str) -> Option<&str> {
    let (before, after) = question.split_once(" than ")?;
    has_word(before, "better|rather|prefer").then_some(after)
}

/// Returns the abbreviations in a question, in the singular.
fn abbreviations(question: &str) -> Vec<String> {
    let words = question.split(|letter: char| !letter.is_alphanumeric());
    let short = words.map(|word| word.trim_end_matches('s'));
    let is_short =
        |word: &&str| (2..=6).contains(&word.len()) && word.chars().all(|letter| letter.is_ascii_uppercase());
    short.filter(is_short).map(str::to_owned).collect()
}

/// Returns the operators and other symbols of a question, such as `..=`.
fn symbols(question: &str) -> Vec<String> {
    let is_sign = |word: &&str| {
        // A dash or an ellipsis is punctuation of the sentence.
        word.len() > 1
            && word.chars().all(|letter| letter.is_ascii_punctuation())
            && !word.trim_matches(['-', '.']).is_empty()
    };
    let words = question.split_whitespace().map(|word| word.trim_matches(['`', '"', '\'', ',', '?', ';', '(', ')']));
    words.filter(is_sign).map(str::to_owned).collect()
}
