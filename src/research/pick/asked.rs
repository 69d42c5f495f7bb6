//! Recognises what a question asks for by its English wording, and whether a unit suits it.

use super::features::Weights;
use crate::base::word::WordSplitter;
use crate::research::unit::{Unit, UnitKind};

/// Openings of a question that only a number answers, in digits or in words.
const ASKS_FOR_NUMBER: [&str; 9] = [
    "how many ",
    "how old ",
    "what version ",
    "which version ",
    "what percent",
    "what share ",
    "which port ",
    "what port ",
    "what amount ",
];

/// Openings of a question that only a day, a month or a year answers.
const ASKS_FOR_DAY: [&str; 9] = [
    "what year ",
    "which year ",
    "what date ",
    "which date ",
    "what day ",
    "which day ",
    "which month ",
    "when did ",
    "when was ",
];

/// Openings and words of a question that only an amount of money answers: both must be there.
const ASKS_FOR_AMOUNT: [&str; 14] = [
    "how much ",
    "what does ",
    "what do ",
    "what did ",
    "what is the price ",
    "what is the cost ",
    "what is the fee ",
    "what is the rent ",
    "what salary ",
    "what price ",
    "what fee ",
    "cuánto ",
    "combien ",
    "was kostet ",
];
const COSTS: &str = "cost|costs|price|prices|priced|salary|salaries|wage|wages|fee|fees|rent|charge|charges|cuesta|cuestan|precio|\
    precios|coûte|coûtent|prix|kostet|kosten|preis|preise|gehalt";

/// Signs and words of currencies, and words for nothing.
const CURRENCY_SIGNS: [char; 6] = ['$', '€', '£', '¥', '₹', '₽'];
const CURRENCIES: &str = "dollar|dollars|euro|euros|pound|pounds|cent|cents|usd|eur|gbp|chf|pln|jpy|yen|zł|kr|free|gratis|gratuit|\
    kostenlos|nothing";

/// Words that are numbers.
const NUMBERS: &str = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|fifty|sixty|\
    seventy|eighty|ninety|hundred|thousand|million|billion|dozen|half|once|twice|single|both|none|unlimited|infinite";

/// Words for a time. "May" is also another word, so it counts only beside a number.
const DAYS: &str = "monday|tuesday|wednesday|thursday|friday|saturday|sunday|mondays|tuesdays|wednesdays|thursdays|fridays|\
    saturdays|sundays|january|february|march|april|june|july|august|september|october|november|december|jan|feb|mar|apr|jun|\
    jul|aug|sep|sept|oct|nov|dec|yesterday|today|tomorrow|version|release";

/// The kind of value that a question asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Number,
    Day,
    Money,
}

impl Wanted {
    /// Returns the kind of value that a question asks for; `None` if other words may answer it.
    pub(super) fn of(question: &str) -> Option<Self> {
        let costs = || has_word(&question.to_lowercase(), COSTS);
        match () {
            () if has_phrase(question, &ASKS_FOR_AMOUNT) && costs() => Some(Self::Money),
            () if has_phrase(question, &ASKS_FOR_NUMBER) => Some(Self::Number),
            () if has_phrase(question, &ASKS_FOR_DAY) => Some(Self::Day),
            () => None,
        }
    }

    /// Returns whether a text has a value of this kind.
    pub(super) fn is_in(self, text: &str) -> bool {
        let text = text.to_lowercase();
        let has_digit = |word: &str| word.contains(|letter: char| letter.is_ascii_digit());
        let is_year = |word: &str| word.len() == 4 && word.parse().is_ok_and(|year: u16| (1000..2200).contains(&year));
        let is_may = |(a, b): (&str, &str)| (has_digit(a) && b == "may") || (a == "may" && has_digit(b));
        match self {
            Self::Number => words(&text).any(has_digit) || has_word(&text, NUMBERS),
            Self::Day => {
                has_word(&text, DAYS) || words(&text).any(is_year) || words(&text).zip(words(&text).skip(1)).any(is_may)
            }
            // Personal notes may leave the currency out.
            Self::Money => {
                text.contains(CURRENCY_SIGNS)
                    || has_word(&text, CURRENCIES)
                    || (words(&text).any(has_digit) && has_word(&text, COSTS))
            }
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric())
}

/// Returns whether a text in lower case has one of some words, which are divided by `|`.
fn has_word(text: &str, wanted: &str) -> bool {
    words(text).any(|word| !word.is_empty() && wanted.split('|').any(|wanted| wanted == word))
}

/// Returns whether a text has one of some phrases, each in lower case, at the start of a word.
fn has_phrase(text: &str, phrases: &[&str]) -> bool {
    let text = text.to_lowercase();
    let is_start = |at: usize| !text[..at].ends_with(char::is_alphanumeric);
    phrases.iter().any(|phrase| text.match_indices(phrase).any(|(at, _)| is_start(at)))
}

/// The kind of answer that a question asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Number,
    Time,
    Steps,
    List,
    Comparison,
    Definition,
    Other,
}

impl Asked {
    pub(super) fn of(question: &str) -> Self {
        let has = |phrases: &[&str]| has_phrase(question, phrases);
        match () {
            () if has(&[
                "how many ",
                "what version ",
                "which version ",
                "what percent",
                "how much ",
                "how long ",
                "how large ",
                "how big ",
                "what size ",
                "maximum ",
                "limit ",
            ]) =>
            {
                Self::Number
            }
            () if has(&[
                "compare ",
                "difference between ",
                "differences between ",
                "vs ",
                "vs. ",
                "versus ",
                "differ from ",
            ]) =>
            {
                Self::Comparison
            }
            () if has(&["when ", "how old "]) || has(&ASKS_FOR_DAY) => Self::Time,
            () if has(&["how do ", "how to ", "how can ", "how should ", "steps ", "what command"]) => Self::Steps,
            () if has(&[
                "what are ",
                "which ",
                "list ",
                "name the ",
                "what kinds ",
                "what types ",
                "types of ",
                "what options ",
                "what must ",
                "what should ",
                "what can ",
                "what do ",
                "what happens ",
            ]) =>
            {
                Self::List
            }
            () if has(&["what is ", "what's ", "define ", "what does ", "explain ", "who is ", "who was "]) => {
                Self::Definition
            }
            () => Self::Other,
        }
    }

    /// Returns whether a unit has the form that the question asks for: the list, the steps, the table of what is
    /// compared.
    pub(super) fn has_form(self, unit: &Unit, text: &str, weights: &Weights, splitter: &WordSplitter) -> bool {
        let own = &text[unit.range.clone()];
        // Any page has lists: one that is meant has a word of the question above its items.
        let is_meant = || {
            let above = format!("{} {}", unit.headings.join(" "), &text[unit.head()]);
            splitter.stems(&above).iter().any(|stem| weights.contains_key(stem))
        };
        match self {
            Self::Steps => matches!(unit.kind, UnitKind::Code | UnitKind::List { is_ordered: true }) && is_meant(),
            Self::List => matches!(unit.kind, UnitKind::List { .. } | UnitKind::Table) && is_meant(),
            // The table that names all that is compared.
            Self::Comparison => {
                let words = splitter.stems(own);
                unit.kind == UnitKind::Table && weights.keys().all(|stem| words.contains(stem))
            }
            Self::Number | Self::Time | Self::Definition | Self::Other => false,
        }
    }

    /// Returns whether a unit contains the kind of answer that the question asks for: a number, a time, a definition.
    pub(super) fn suits(self, unit: &Unit, text: &str, weights: &Weights, splitter: &WordSplitter) -> bool {
        let own = &text[unit.range.clone()];
        match self {
            Self::Number => Wanted::Number.is_in(own),
            Self::Time => Wanted::Number.is_in(own) || Wanted::Day.is_in(own),
            // The paragraph that begins with what is asked for.
            Self::Definition => {
                let opening: String = own.chars().take(80).collect();
                let words = splitter.stems(&opening);
                unit.kind == UnitKind::Paragraph && weights.keys().all(|stem| words.contains(stem))
            }
            Self::Steps | Self::List | Self::Comparison | Self::Other => false,
        }
    }
}
