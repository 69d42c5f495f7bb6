//! Recognises the kind of answer a question requests by its English wording, and whether a unit has it.

use std::collections::HashSet;

use super::definition::{OPENING, defines};
use super::features::{Weights, share};
use super::wording::{has_digit, has_phrase, has_word, words};
use crate::base::word::{WordSplitter, has_key_word};
use crate::research::sentence::Sentence;
use crate::research::unit::{Unit, UnitKind, compared_by};

/// Openings of questions that only a number answers, in digits or in words.
const ASKS_FOR_NUMBER: [&str; 8] = [
    "how many ", "how old ", "what percent", "what share ", "how much memory", "how much storage", "how much disk",
    "how much ram ",
];

/// Nouns for which the answer is a number, up to [`NUMBERED_WITHIN`] words after "what" or "which": "which TCP
/// ports".
const NUMBERED: &str = "port|ports|percentage|amount|size";

/// Nouns after "what is the" for which the answer is a number. "The port to Windows" is none.
const NUMBERS_OF_SOMETHING: &str = "percentage|amount|size|score|number";
const VERSIONS: &str = "version|versions|release";
const NUMBERED_WITHIN: usize = 3;

/// Maximum number of words in a counted noun phrase; a longer text is a clause.
const MAX_COUNTED_WORDS: usize = 4;

/// Phrases and words that ask for a measure or a limit.
const ASKS_FOR_MEASURE: [&str; 11] = [
    "how long ", "how far ", "how big ", "how large ", "how high ", "how deep ", "how fast ", "how soon ",
    "how often ", "how wide ", "how heavy ",
];
const LIMITS: &str = "longest|shortest|largest|smallest|highest|lowest|maximum|minimum|limit|share|percent";

/// Phrases that ask for a length, mostly of time; units of length; and words for an unlimited one.
const ASKS_FOR_LENGTH: [&str; 3] = ["how long ", "longest time", "longest a "];
const LENGTHS: &str = "ms|millisecond|milliseconds|s|sec|secs|second|seconds|min|mins|minute|minutes|h|hr|hrs|hour|hours|\
    day|days|night|nights|wk|week|weeks|fortnight|mo|month|months|quarter|quarters|semester|semesters|yr|yrs|year|years|\
    decade|decades|century|centuries|letters|character|characters|symbols|bytes|words|lines|pages|meter|meters|metre|\
    metres|km|kilometer|kilometers|kilometre|kilometres|mile|miles|ft|feet|inch|inches|cm|mm";
const ONE: &str = "a|an|half|each|per|same|whole|full";
const ENDLESS: &str = "forever|indefinitely|indefinite|unlimited|infinite|overnight|lifetime|permanently|never|until|\
    throughout|midnight";

/// Openings of questions that only a day, a month or a year answers.
const ASKS_FOR_DAY: [&str; 9] = [
    "what year ", "which year ", "what date ", "which date ", "what day ", "which day ", "which month ", "when did ",
    "when was ",
];

/// Openings and words of questions that only an amount of money answers: both must occur.
const ASKS_FOR_AMOUNT: [&str; 10] = [
    "how much ", "what does ", "what do ", "what did ", "what salary ", "what price ", "what fee ", "cuánto ",
    "combien ", "was kostet ",
];
const COSTS: &str = "cost|costs|price|prices|priced|salary|salaries|wage|wages|fee|fees|rent|charge|charges|cuesta|cuestan|precio|\
    precios|coûte|coûtent|prix|kostet|kosten|preis|preise|gehalt";

/// Nouns after "what is the" for which the answer is an amount of money, and words after them.
const PRICES: &str = "price|cost|fee|rent|salary|wage";
const OF_NOUNS: [&str; 8] = ["of", "for", "per", "in", "to", "at", "on", "that"];

/// Words that make "how much" ask for money as well. "What does the plan pay for?" does not.
const PAYS: &str = "pay|pays|paid|payout|reward|rewards|bounty|bounties|bonus|spend|earn|earns|reimburse|reimbursed";

/// Words after "how much" that ask for something else.
const NO_MONEY: [&str; 4] = ["how much time", "how much space", "how much memory", "how much notice"];

/// Number of words within which an amount and a word for a cost belong together.
const AMOUNT_WITHIN: usize = 8;

/// Openings that name a currency.
const ASKS_FOR_CURRENCY: [&str; 6] =
    ["how many dollars", "how many euros", "how many pounds", "how many cents", "how much money", "how many usd"];

/// Signs and words of currencies, and words for nothing.
const CURRENCY_SIGNS: [char; 6] = ['$', '€', '£', '¥', '₹', '₽'];
const CURRENCIES: &str = "dollar|dollars|euro|euros|pound|pounds|cent|cents|usd|eur|gbp|chf|pln|jpy|yen|zł|kr";
const NOTHING: &str = "free|gratis|gratuit|kostenlos|nothing";

/// Number words. "Single", "both" and the like are left out: they rarely count anything.
const NUMBERS: &str = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|fifty|sixty|\
    seventy|eighty|ninety|hundred|thousand|million|billion|dozen|none|unlimited|infinite";

/// Words that count without a number, before a unit: "a few hours".
const VAGUE: &str = "few|several|couple";

/// Words of a question about a history of changes.
const CHANGES: &str = "when|new|newest|latest|version|versions|release|releases|released|since|history|added|introduced|removed|\
    deprecated|update|updates|change|changes|changed|changelog";

/// Words that deny something, and words for an exception.
const NEGATIONS: &str = "not|cannot|no|none|never|unsupported|unavailable|unable|excluded|excludes|banned|prohibited|\
    forbidden|refused|rejected|exempt|lack|lacks";
const EXCEPTIONS: &str = "without|except";

/// Units of data.
const DATA: &str = "byte|bytes|kilobyte|kilobytes|megabyte|megabytes|gigabyte|gigabytes|kb|mb|gb|tb|kib|mib|gib|tib";

/// Words for a time. "May" is also another word, so it counts only beside a number.
const DAYS: &str = "monday|tuesday|wednesday|thursday|friday|saturday|sunday|mondays|tuesdays|wednesdays|thursdays|fridays|\
    saturdays|sundays|january|february|march|april|june|july|august|september|october|november|december|jan|feb|mar|apr|jun|\
    jul|aug|sep|sept|oct|nov|dec|yesterday|today|tomorrow";

/// Words that make a number after them a release, which is a time as well: "since version 1.70".
const RELEASES: &str = "version|versions|release|releases|since";

/// Words for how often or how soon.
const PACE: &str = "daily|weekly|fortnightly|biweekly|monthly|quarterly|yearly|annually|hourly|nightly|every|once|twice|immediately|\
    second|seconds|minute|minutes|hour|hours|day|days|week|weeks|month|months|quarter|year|years";

/// Openings of a question for a time. "When" inside a clause ("what does it mean when …") asks for none.
const ASKS_FOR_TIME: [&str; 14] = [
    "when did ", "when was ", "when were ", "when do ", "when does ", "when is ", "when are ", "when will ",
    "when should ", "when can ", "when must ", "since when ", "until when ", "how old ",
];

/// Openings of a question for a pace.
const ASKS_FOR_PACE: [&str; 4] = ["how often ", "how soon ", "how fast ", "how quickly "];

/// Verbs that may follow a noun, as in "what statuses can …". They tell it from a verb, as in "what separates …".
const AUXILIARIES: &str =
    "can|could|are|were|do|does|did|must|should|shall|have|has|had|may|might|will|would|am|is|was";

/// Words that stand after a verb rather than after a noun.
const AFTER_VERBS: &str = "the|a|an|it|its|my|our|your|their|this|that|to|from|with|at|by";

/// Words for a failure, and words and phrases that ask for a remedy.
const FAILURES: &str = "error|errors|err|fail|fails|failed|failing|failure|exception|exceptions|warning|crash|crashes|crashed|\
    panics|panicked|breaks|broken|complains|unresolved|denied";
const REMEDIES: &str = "why|fix|solve|resolve|instead|wrong|missing|equivalent|workaround|means";
const ASKS_FOR_REMEDY: [&str; 5] = ["how do i ", "how can i ", "how to ", "does it mean", "what to do"];

/// Phrases that only a report of a failure has.
const REPORTS_FAILURE: [&str; 5] =
    ["what can i try", "what should i try", "what now", "keep getting ", "keeps failing"];

/// Words of headings above the remedy for a failure.
const REMEDY_HEADINGS: &str = "fix|fixes|fixing|solution|solutions|solve|workaround|workarounds|resolution|resolve|resolving|remedy|\
    remedies|cause|causes|do|mitigation|troubleshooting";

/// Words that ask for the difference between two things.
const TELLS_APART: [&str; 13] = [
    "compare ", "compared with ", "compared to ", "difference between ", "differences between ", "vs ", "vs. ",
    "versus ", "different from ", "what separates ", "what distinguishes ", "distinguish between ", "tell apart ",
];

/// Words that contrast two things in a sentence. A semicolon does as well.
const CONTRASTS: &str = "whereas|while|whilst|unlike|but|however|rather|than|versus|vs|differ|differs|contrast";

/// Returns whether a sentence contrasts things.
fn contrasts(sentence: &str) -> bool {
    !sentence.ends_with('?') && (sentence.contains(';') || has_word(&sentence.to_lowercase(), CONTRASTS))
}

/// Openings that precede the subject of an overview.
const OVERVIEWS: [&str; 12] = [
    "tell me about ",
    "tell me all about ",
    "tell me everything about ",
    "everything about ",
    "everything we know about ",
    "overview of ",
    "what do we know about ",
    "what do i know about ",
    "what do you know about ",
    "what do my notes say about ",
    "what do our notes say about ",
    "what do the notes say about ",
];

/// Openings of a request, names for an overview, and words between such a name and its subject: "Write a short report
/// about …".
const COURTESIES: [&str; 4] = ["please ", "can you ", "could you ", "would you "];
const ORDERS: [&str; 18] = [
    "write a ", "write an ", "write me a ", "write me an ", "give a ", "give an ", "give me a ", "give me an ",
    "prepare a ", "prepare an ", "create a ", "create an ", "make me a ", "draft a ", "produce a ", "compile a ",
    "i need a ", "i need an ",
];
const OVERVIEW_NAMES: &str = "report|overview|summary|introduction|article|essay|briefing";
const OVERVIEW_LINKS: [&str; 7] = ["about", "about:", "on", "on:", "of", "of:", "to"];

/// Maximum number of words between a request and the name for an overview, and words that must not be among them:
/// "Write a letter to the author of the report on pumps" asks for a letter.
const ADJECTIVES: usize = 6;
const NO_ADJECTIVES: &str = "the|to|for|who|whom|whose|what|which|when|where|why|how|that|of|on|in|my|our|your|their";

/// Words that open an embedded question, which is not a subject: "Tell me about how pumps are oiled".
const CLAUSES: &str = "who|whom|whose|what|which|when|where|why|how|whether|if";

/// Minimum share of the question's words in the opening of a paragraph that defines its subject.
const LEAST_DEFINED: f32 = 0.7;

/// Minimum share of the question's words above a list, table or code block for it to be the requested one.
const LEAST_MEANT: f32 = 0.34;

/// The kind of value a question requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Number,
    Version,
    Day,
    Money,
}

impl Wanted {
    /// Returns the kind of value a question requests; `None` if other text may answer it.
    pub(super) fn of(question: &str) -> Option<Self> {
        let lower = question.to_lowercase();
        let pays = has_phrase(question, &["how much "]) && has_word(&lower, PAYS) && !has_phrase(question, &NO_MONEY);
        let costs = has_phrase(question, &ASKS_FOR_AMOUNT) && has_word(&lower, COSTS) || asks_what_is(&lower, PRICES);
        match () {
            () if costs || pays || has_phrase(question, &ASKS_FOR_CURRENCY) => Some(Self::Money),
            () if has_phrase(question, &ASKS_FOR_NUMBER) || asks_for_figure(&lower) => Some(Self::Number),
            () if asks_for(&lower, VERSIONS) => Some(Self::Version),
            () if has_phrase(question, &ASKS_FOR_DAY) => Some(Self::Day),
            () => None,
        }
    }

    /// Returns whether a text has a value of this kind.
    pub(super) fn is_in(self, text: &str) -> bool {
        let written = text;
        // "Cost-effective" does not name a cost, and "at least one" does not say how many.
        let other = [
            "cost-effective", "at least one ", "one per ", "one of ", "one or more ", "in one ", "from one ", "to one ",
        ];
        let text = other.iter().fold(without_markers(&text.to_lowercase()), |text, other| text.replace(other, ""));
        let is_ordinal = |word: &str| {
            let figures = ["st", "nd", "rd", "th"].iter().find_map(|ending| word.strip_suffix(ending));
            figures.is_some_and(|figures| figures.parse::<u8>().is_ok())
        };
        let is_may = |(a, b): (&str, &str)| (has_digit(a) && b == "may") || (a == "may" && has_digit(b));
        let is_release = |(a, b): (&str, &str)| has_word(a, RELEASES) && has_digit(b);
        let mut pairs = words(&text).zip(words(&text).skip(1));
        // "S3" is not a number.
        let is_number = |word: &str| word.starts_with(|letter: char| letter.is_ascii_digit());
        let has_number = || words(&text).any(is_number) || has_word(&text, NUMBERS);
        match self {
            Self::Number => has_number(),
            Self::Version => names_version(written),
            Self::Day => {
                let is_time = |pair: (&str, &str)| is_may(pair) || is_release(pair);
                has_word(&text, DAYS)
                    || words(&text).any(|word| is_year(word) || is_ordinal(word))
                    || pairs.any(is_time)
            }
            // Personal notes may leave the currency out.
            Self::Money => {
                let words: Vec<_> = words(&text).filter(|word| !word.is_empty()).collect();
                let is_amount = |near: &[&str]| {
                    near.iter().any(|word| has_digit(word)) && near.iter().any(|word| has_word(word, COSTS))
                };
                text.contains(CURRENCY_SIGNS)
                    || has_word(&text, NOTHING)
                    || (has_word(&text, CURRENCIES) && has_number())
                    || words.chunks(AMOUNT_WITHIN).chain(words.windows(AMOUNT_WITHIN)).any(is_amount)
            }
        }
    }
}

/// Returns whether a question asks which things are not so: "which services can't be logged", "what can't I edit". What
/// happens if something is not done is asked for otherwise.
pub(super) fn asks_for_what_is_not(question: &str) -> bool {
    let lower = question.to_lowercase();
    let all: Vec<_> = words(&lower).filter(|word| !word.is_empty()).collect();
    let words = &all[..all.len().min(MAX_COUNTED_WORDS + 3)];
    // "Can't" is two words here. A noun stands before the verb.
    let denies = |pair: &[&str]| match pair {
        ["cannot", _] | [_, "cannot"] => true,
        [verb, "not" | "t"] => {
            has_word(verb, AUXILIARIES) || has_word(verb, "don|doesn|isn|aren|can|won|couldn|shouldn")
        }
        _ => false,
    };
    let asks = matches!(words.first(), Some(&"which" | &"what"));
    // "What is a pump not good for?", "What kinds of work is a pump not good for?"
    let is_clause = |word: &&&str| has_word(word, CLAUSES) || **word == "happens";
    let mut rest = all.iter().skip(1).take_while(|word| !is_clause(word));
    let is_apart = asks && rest.any(|word| matches!(*word, "is" | "are")) && rest.any(|word| *word == "not");
    let has_noun = words.get(1).is_some_and(|word| !has_word(word, AUXILIARIES) && *word != "happens");
    let pairs = words.get(1..).unwrap_or_default().windows(2);
    is_apart || asks && pairs.take(if has_noun { words.len() } else { 1 }).any(denies)
}

/// Words of a sentence that gives a reason.
const REASONS: &str =
    "because|therefore|reason|reasons|cause|causes|caused|due|avoid|avoids|prevent|prevents|otherwise";

/// Returns whether a sentence gives a reason.
pub(super) fn gives_reason(sentence: &str) -> bool {
    has_word(&sentence.to_lowercase(), REASONS)
}

/// Returns whether a text denies something, or makes an exception.
pub(super) fn is_negative(text: &str) -> bool {
    negates(text) || has_word(&text.to_lowercase(), EXCEPTIONS)
}

/// Returns whether a text denies something.
pub(super) fn negates(text: &str) -> bool {
    let lower = text.to_lowercase();
    has_word(&lower, NEGATIONS) || lower.contains("n't") || lower.contains("n’t")
}

/// Returns whether a question asks what is or was new.
pub(super) fn asks_for_changes(question: &str) -> bool {
    has_word(&question.to_lowercase(), CHANGES)
}

/// Returns whether a question in lower case asks for something that is written as a number: "which port", "what is the score of".
fn asks_for_figure(question: &str) -> bool {
    asks_for(question, NUMBERED) || asks_what_is(question, NUMBERS_OF_SOMETHING)
}

/// Returns whether a question in lower case asks for one of the nouns by "what is": "what is the hourly price of".
fn asks_what_is(question: &str, nouns: &str) -> bool {
    let words: Vec<_> = words(question).filter(|word| !word.is_empty()).collect();
    let is_opening = |words: &[&str]| matches!(words, ["what", "is" | "s", "the" | "my" | "our" | "your"]);
    let Some(at) = words.windows(3).position(is_opening) else { return false };
    let rest = &words[at + 3..];
    let noun = rest.iter().take(NUMBERED_WITHIN + 1).position(|word| has_word(word, nouns));
    noun.is_some_and(|noun| rest.get(noun + 1).is_none_or(|next| OF_NOUNS.contains(next)))
}

/// Returns whether a question asks how long something takes, lasts or is.
pub(super) fn asks_for_length(question: &str) -> bool {
    has_phrase(question, &ASKS_FOR_LENGTH)
}

/// Words that a text on a default has, openings of questions for a path, and openings of questions for a limit.
const DEFAULTS: &str =
    "default|defaults|defaulted|unless|otherwise|omit|omits|omitted|unspecified|initial|initially|absent";
const ASKS_FOR_PATH: [&str; 8] = [
    "which folder", "what folder", "which directory", "what directory", "which path", "what path", "what is the path",
    "what's the path",
];
const ASKS_FOR_LIMIT: [&str; 2] = ["what is the ", "what's the "];

/// Returns whether headings announce limits, which authors often list in one place.
pub(super) fn names_limits(headings: &str) -> bool {
    has_word(&headings.to_lowercase(), "limit|limits|quota|quotas")
}

/// Returns whether a question asks for a default, a path or a limit and the texts have none.
pub(super) fn lacks_named(question: &str, texts: &str) -> bool {
    let (lower, text) = (question.to_lowercase(), texts.to_lowercase());
    let lacks_default = || {
        has_word(&lower, "default|defaults")
            && !has_word(&text, DEFAULTS)
            && !has_phrase(&text, &["don't specify", "not specif", "not set", "isn't set", "isn't specif"])
    };
    let lacks_path = || has_phrase(&lower, &ASKS_FOR_PATH) && !text.contains(['/', '\\']);
    let asks_for_limit = || has_phrase(&lower, &ASKS_FOR_LIMIT) && has_word(&lower, LIMITS);
    let lacks_limit = || asks_for_limit() && !has_measure(&text) && !has_word(&text, ENDLESS);
    lacks_default() || lacks_path() || lacks_limit()
}

/// Openings of a question for the steps of a task, particles of its verb, words that end the object of the verb, and words
/// in an object that name nothing.
const ASKS_HOW: [&str; 9] = [
    "how do i ", "how do you ", "how do we ", "how can i ", "how can you ", "how can we ", "how should i ",
    "how would i ", "how to ",
];
const PARTICLES: &str = "on|off|up|out|down|in|away|back|over";
const ENDS_OBJECT: &str = "for|in|on|to|with|from|of|by|at|into|onto|using|without|through|via|between|under|during|across|\
    about|against|when|if|after|before|while|so|and|or|as|that|which|who|where|how|again|instead|only|is|are|than";
const NAMELESS: &str = "the|a|an|my|our|your|its|their|it|them|this|these|those|all|any|one|more|new|own|another|other|\
    multiple|several|certain|specific|what|whether";

/// Returns the words of what a task is done to: "appliance mode" of "How do I turn on appliance mode for a VPC?". Empty if
/// the question asks for no task.
pub(super) fn object_of_task(question: &str) -> Vec<String> {
    let lower = question.to_lowercase();
    let asked = ASKS_HOW.iter().find_map(|opening| lower.trim_start().strip_prefix(opening));
    let mut rest = words(asked.unwrap_or_default()).filter(|word| !word.is_empty()).skip(1).peekable();
    rest.next_if(|word| has_word(word, PARTICLES));
    let object = rest.take_while(|word| !has_word(word, ENDS_OBJECT));
    object.filter(|word| !has_word(word, NAMELESS) && !has_word(word, PEOPLE)).map(str::to_owned).collect()
}

/// Words for people and groups of them.
const PEOPLE: &str = "admin|admins|administrator|administrators|anybody|anyone|approver|approvers|author|authors|board|boss|\
    captain|chair|chairs|client|clients|collaborator|collaborators|committee|committer|committers|contractor|contractors|\
    contributor|contributors|customer|customers|developer|developers|director|directors|editor|editors|employee|employees|\
    engineer|engineers|everybody|everyone|expert|experts|founder|founders|group|groups|guest|guests|head|heads|lead|leads|\
    leader|leaders|maintainer|maintainers|manager|managers|member|members|moderator|moderators|nobody|officer|officers|\
    operator|operators|organizer|organizers|owner|owners|participant|participants|partner|partners|people|person|\
    president|principal|principals|recipient|recipients|releaser|releasers|representative|representatives|reviewer|\
    reviewers|role|roles|staff|supervisor|team|teams|user|users|vendor|vendors|volunteer|volunteers";

/// Words of a sentence that says who may do something.
const MAY: &str = "can|may|must|allowed|permission|permissions|permitted|authorized|responsible|only";

/// Returns whether a text names a person or a group of people.
pub(super) fn names_person(text: &str) -> bool {
    // Two words with a capital that do not begin a sentence, and a name on a site.
    let words: Vec<_> = text.split_whitespace().collect();
    let is_capital = |word: &str| word.starts_with(char::is_uppercase) && word.chars().skip(1).any(char::is_lowercase);
    let is_name = |at: usize| {
        !words[at - 1].ends_with(['.', ':', '?', '!']) && is_capital(words[at]) && is_capital(words[at + 1])
    };
    has_word(&text.to_lowercase(), PEOPLE)
        || (1..words.len().saturating_sub(1)).any(is_name)
        || words.iter().any(|word| word.trim_start_matches(['(', '[']).starts_with('@'))
}

/// Returns whether a text names a length: "7-day long", "up to 15 minutes", "an hour and a half", "until 2027".
pub(super) fn names_length(text: &str) -> bool {
    let text = without_markers(&text.to_lowercase());
    let words: Vec<_> = words(&text).filter(|word| !word.is_empty()).collect();
    let is_number =
        |word: &str| (has_digit(word) && !is_year(word)) || has_word(word, NUMBERS) || has_word(word, VAGUE);
    let is_unit = |word: &str| has_word(word.trim_start_matches(|letter: char| letter.is_ascii_digit()), LENGTHS);
    let is_length = |at: usize| {
        let near = &words[at..words.len().min(at + NUMBERED_WITHIN)];
        (is_number(words[at]) && near.iter().any(|word| is_unit(word)))
            || (has_word(words[at], ONE) && near.get(1).is_some_and(|word| is_unit(word)))
    };
    // The header of a table may have the unit.
    let is_row = text.contains(" — ") || text.contains('|');
    (0..words.len()).any(is_length)
        || has_word(&text, ENDLESS)
        || text.contains("as long as")
        || (is_row && words.iter().any(|word| is_unit(word)) && words.iter().any(|word| is_number(word)))
        || ["for the rest of", "for the whole of", "most of"].iter().any(|phrase| text.contains(phrase))
}

/// Returns whether a text names a version: "1.70", "v2", "C++17", "PowerShell 7", ">= 18", "3 or newer". Any number
/// beside a word for versions counts.
fn names_version(text: &str) -> bool {
    let is_figure = |letter: char| letter.is_ascii_digit();
    let is_dotted = |word: &str| {
        word.split_once('.').is_some_and(|(major, minor)| {
            major.ends_with(is_figure) && minor.starts_with(|letter: char| is_figure(letter) || letter == 'x')
        })
    };
    let is_joined = |word: &str| word.contains(is_figure) && word.starts_with(char::is_alphabetic);
    let lower = text.to_lowercase();
    let is_spoken =
        has_word(&lower, VERSIONS) || has_phrase(&lower, &["or newer", "or later", "or higher", "or above"]);
    let words: Vec<_> =
        text.split_whitespace().map(|word| word.trim_start_matches(['`', '"', '(', '*', '|'])).collect();
    let is_number = |word: &str| word.starts_with(is_figure);
    // The first word of a sentence has a capital in any case, so there only one within the word makes a name.
    let is_name = |at: usize| {
        let is_first = at == 0 || words[at - 1].ends_with(['.', ':', '?', '!']);
        words[at].chars().skip(usize::from(is_first)).any(char::is_uppercase)
            || words[at].ends_with(['>', '=', '≥'])
            || has_word(&words[at].to_lowercase(), RELEASES)
    };
    words.iter().any(|word| is_dotted(word) || is_joined(word) || (is_spoken && is_number(word)))
        || (1..words.len()).any(|at| is_number(words[at]) && is_name(at - 1))
}

/// Returns whether a question asks for a measure or a limit, which words may answer as well: "as long as you like".
pub(super) fn asks_for_measure(question: &str) -> bool {
    has_phrase(question, &ASKS_FOR_MEASURE) || has_word(&question.to_lowercase(), LIMITS)
}

/// Returns whether a text has a number that is no year.
pub(super) fn has_measure(text: &str) -> bool {
    let text = without_markers(&text.to_lowercase());
    words(&text).any(|word| has_digit(word) && !is_year(word)) || has_word(&text, NUMBERS)
}

/// Returns whether a question in lower case asks for one of some nouns, which are divided by `|`.
fn asks_for(question: &str, nouns: &str) -> bool {
    let words: Vec<_> = words(question).filter(|word| !word.is_empty()).collect();
    let asks = |at: usize| {
        matches!(words[at], "what" | "which")
            && words[at + 1..]
                .iter()
                .take(NUMBERED_WITHIN)
                .take_while(|word| !has_word(word, AUXILIARIES))
                .any(|word| has_word(word, nouns))
    };
    (0..words.len()).any(asks)
}

/// Returns the noun counted by "how many": the word after it.
pub(super) fn counted(question: &str) -> Option<String> {
    let lower = question.to_lowercase();
    let (_, after) = lower.split_once("how many ")?;
    words(after).next().filter(|word| !word.is_empty()).map(str::to_owned)
}

/// Returns the words of the noun phrase counted by "how many", if there are several: "story points".
pub(super) fn counted_words(question: &str) -> Option<Vec<String>> {
    let lower = question.to_lowercase();
    let (_, after) = lower.split_once("how many ")?;
    let own = words(after).filter(|word| !word.is_empty()).take_while(|word| !has_word(word, AUXILIARIES));
    let own: Vec<_> = own.map(str::to_owned).collect();
    (2..=MAX_COUNTED_WORDS).contains(&own.len()).then_some(own)
}

/// Returns whether a text has a number right before a word, given by its stem, or before the word that qualifies it:
/// "4 bytes", "five severity levels". Units of data are interchangeable: "400 KB".
pub(super) fn counts(text: &str, stem: &str, splitter: &WordSplitter) -> bool {
    let text = without_markers(&text.to_lowercase());
    let words: Vec<_> = words(&text).filter(|word| !word.is_empty()).collect();
    let is_number = |word: &str| has_digit(word) || has_word(word, NUMBERS);
    let counts_data = DATA.split('|').any(|unit| splitter.stem(unit) == stem);
    let is_unit = |word: &str| splitter.stem(word) == stem || (counts_data && has_word(word, DATA));
    let is_joined = |word: &str| is_unit(word.trim_start_matches(|letter: char| letter.is_ascii_digit()));
    let is_counted = |(at, word): (usize, &&str)| {
        (has_digit(word) && is_joined(word))
            || is_unit(word) && words[at.saturating_sub(2)..at].iter().any(|before| is_number(before))
    };
    words.iter().enumerate().any(is_counted)
}

/// Returns a text without the numbers of its list items, which count nothing.
fn without_markers(text: &str) -> String {
    let bare = |line: &str| {
        let own = line.trim_start_matches(|letter: char| letter.is_whitespace() || letter == '>');
        let rest = own.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let is_marker = rest.len() < own.len() && (rest.starts_with(". ") || rest.starts_with(") "));
        if is_marker { rest[2..].to_owned() } else { line.to_owned() }
    };
    text.lines().map(bare).collect::<Vec<_>>().join("\n")
}

fn is_year(word: &str) -> bool {
    word.len() == 4 && word.parse().is_ok_and(|year: u16| (1000..2200).contains(&year))
}

/// The way in which a question asks for the remedy for a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The question is the message: "error: no such pump".
    OfMessage,
    /// "It fails with … How do I fix it?"
    OfFailure,
}

impl Remedy {
    pub(super) fn of(question: &str) -> Option<Self> {
        let lower = question.to_lowercase();
        let asks = || has_word(&lower, REMEDIES) || has_phrase(question, &ASKS_FOR_REMEDY);
        match () {
            () if lower.trim_start().starts_with("error") => Some(Self::OfMessage),
            () if has_phrase(question, &REPORTS_FAILURE) || has_word(&lower, FAILURES) && asks() => {
                Some(Self::OfFailure)
            }
            () => None,
        }
    }
}

/// Returns whether a heading names the cause of a failure, which may be followed by the remedy.
pub(super) fn names_cause(heading: &str) -> bool {
    has_word(&heading.to_lowercase(), "cause|causes|reason|reasons")
}

/// Returns whether a heading announces the remedy for a failure: "How to Fix".
pub(super) fn names_remedy(heading: &str) -> bool {
    has_word(&heading.to_lowercase(), REMEDY_HEADINGS)
}

/// Returns whether a question in lower case asks what one thing does that another does not.
fn is_contrast(question: &str) -> bool {
    let negations = ["can't", "can’t", "cannot", "doesn't", "doesn’t", "does not", "don't", "don’t", "isn't", "isn’t"];
    let asked = question.split_once("what can ").or_else(|| question.split_once("what does "));
    asked.and_then(|(_, rest)| rest.split_once(" that ")).is_some_and(|(_, other)| has_phrase(other, &negations))
}

/// Returns whether a question in lower case begins with "what" or "which" and a noun in the plural: "what statuses can
/// …", "which office supplies …".
fn asks_for_several(question: &str) -> bool {
    let mut words = words(question).filter(|word| !word.is_empty());
    let opening = words.next();
    // "Class", "status" and "analysis" are not plurals.
    let is_plural =
        |word: &str| word.len() > 3 && word.ends_with('s') && !["ss", "us", "is"].iter().any(|end| word.ends_with(end));
    let noun: Vec<_> = words.by_ref().take(4).collect();
    let auxiliary = noun.iter().position(|word| has_word(word, AUXILIARIES));
    match opening {
        Some("what") => auxiliary.is_some_and(|at| at > 0 && is_plural(noun[at - 1])),
        Some("which") => match (auxiliary, noun.as_slice()) {
            (Some(at), _) => noun[..at].iter().any(|word| is_plural(word)),
            // "Which brass valves close", but "which process keeps the lock".
            (None, [first, second, third, ..]) => {
                is_plural(first) || (is_plural(second) && !has_word(third, AFTER_VERBS))
            }
            (None, _) => noun.iter().any(|word| is_plural(word)),
        },
        _ => false,
    }
}

/// Returns whether a question begins with "who is" and a name. "Who is allowed to …" asks for no definition.
fn asks_who_someone_is(question: &str) -> bool {
    match question.split_whitespace().collect::<Vec<_>>().as_slice() {
        [who, is, name, ..] => {
            who.eq_ignore_ascii_case("who") && ["is", "was"].contains(is) && name.starts_with(char::is_uppercase)
        }
        _ => false,
    }
}

/// Returns the subject of a requested overview: "Write a report about pumps". `None` for other questions.
pub(crate) fn overview_of(question: &str) -> Option<&str> {
    // ASCII, so that offsets are those of the question.
    let lower = question.to_ascii_lowercase();
    let mut asked = lower.trim_start();
    while let Some(rest) = COURTESIES.iter().find_map(|courtesy| asked.strip_prefix(courtesy)) {
        asked = rest.trim_start();
    }
    let opening = OVERVIEWS.iter().find_map(|opening| asked.strip_prefix(opening));
    let rest = opening.or_else(|| ORDERS.iter().find_map(|order| asked.strip_prefix(order)).and_then(after_name))?;
    let subject = question[question.len() - rest.len()..].trim().trim_end_matches(['.', '?', '!']).trim_end();
    let is_clause = words(rest).find(|word| !word.is_empty()).is_some_and(|word| has_word(word, CLAUSES));
    let is_subject = has_key_word(subject) && !is_clause && !has_phrase(subject, &TELLS_APART);
    is_subject.then_some(subject)
}

/// Returns the text after the name for an overview and the word that links it to its subject: "short report about …".
fn after_name(asked: &str) -> Option<&str> {
    let mut rest = asked;
    for _ in 0..=ADJECTIVES {
        let (word, after) = rest.trim_start().split_once(' ')?;
        if has_word(word, OVERVIEW_NAMES) {
            let (link, subject) = after.trim_start().split_once(' ')?;
            return OVERVIEW_LINKS.contains(&link).then_some(subject);
        }
        if has_word(word, NO_ADJECTIVES) {
            return None;
        }
        rest = after;
    }
    None
}

/// The kind of answer a question requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerKind {
    /// Sections on one subject.
    Overview,
    Number,
    /// How long.
    Length,
    Time,
    /// How often, or how soon.
    Pace,
    Steps,
    List,
    Comparison,
    Definition,
    /// Who does or may do something.
    Person,
    Other,
}

impl AnswerKind {
    pub(super) fn of(question: &str) -> Self {
        let has = |phrases: &[&str]| has_phrase(question, phrases);
        let lower = question.to_lowercase();
        let starts = |opening: &str| lower.trim_start().starts_with(opening);
        match () {
            () if overview_of(question).is_some() => Self::Overview,
            () if has(&["mean by ", "meant by ", "stand for"]) => Self::Definition,
            () if asks_for_length(question) => Self::Length,
            () if has(&["how many ", "what percent", "how much ", "how large ", "how big ", "maximum ", "limit "])
                || asks_for_figure(&lower)
                || asks_for(&lower, VERSIONS) =>
            {
                Self::Number
            }
            () if has(&TELLS_APART) || has_word(&lower, "differ|differs") || is_contrast(&lower) => Self::Comparison,
            () if has(&ASKS_FOR_PACE) => Self::Pace,
            () if starts("when ") || has(&ASKS_FOR_TIME) || has(&ASKS_FOR_DAY) => Self::Time,
            () if has(&["how do ", "how to ", "how can ", "how should ", "steps ", "what command"]) => Self::Steps,
            // "What are the default values of …" does not ask for a list.
            () if has_word(&lower, "default|defaults") => Self::Other,
            () if asks_for_several(&lower)
                || has(&[
                    "what are ", "which are ", "which of ", "list ", "name the ", "what kinds ", "what types ",
                    "types of ", "what options ", "what must ", "what should ", "what can ", "what do ",
                    "what happens ",
                ]) =>
            {
                Self::List
            }
            () if has(&["what is ", "what's ", "define ", "what does ", "explain "])
                || asks_who_someone_is(question) =>
            {
                Self::Definition
            }
            () if starts("who ") => Self::Person,
            () => Self::Other,
        }
    }

    /// Returns whether a unit has the requested form: the list, the steps, or the table of the compared entities.
    pub(super) fn has_form(self, unit: &Unit, text: &str, weights: &Weights, splitter: &WordSplitter) -> bool {
        let own = &text[unit.range.clone()];
        // Any page has lists: the requested one has a word of the question above its items.
        let is_meant = || {
            let above = format!("{} {}", unit.headings.join(" "), &text[unit.head()]);
            share(weights, &splitter.stems(&above), &HashSet::new()) >= LEAST_MEANT
        };
        match self {
            Self::Steps => matches!(unit.kind, UnitKind::Code | UnitKind::List { is_ordered: true }) && is_meant(),
            Self::List => matches!(unit.kind, UnitKind::List { .. } | UnitKind::Table) && is_meant(),
            // The table that names all compared entities, or a sentence that contrasts them.
            Self::Comparison => {
                let names_all = |text: &str| {
                    let words = splitter.stems(text);
                    weights.keys().all(|stem| words.contains(stem))
                };
                let contrasts = |said: &Sentence| contrasts(&said.plain) && names_all(&said.plain);
                unit.kind == UnitKind::Table && names_all(&compared_by(own)) || unit.sentences.iter().any(contrasts)
            }
            Self::Definition => unit.kind == UnitKind::Paragraph && defines(own, weights, splitter),
            // "Only owners can open it."
            Self::Person => unit.sentences.iter().any(|said| {
                let words = || share(weights, &splitter.stems(&said.plain), &HashSet::new());
                names_person(&said.plain) && has_word(&said.plain.to_lowercase(), MAY) && words() >= LEAST_MEANT
            }),
            Self::Overview | Self::Number | Self::Length | Self::Time | Self::Pace | Self::Other => false,
        }
    }

    /// Returns whether a unit contains the requested kind of answer: a number, a time, a definition.
    pub(super) fn suits(self, unit: &Unit, text: &str, weights: &Weights, splitter: &WordSplitter) -> bool {
        let own = &text[unit.range.clone()];
        match self {
            Self::Number => Wanted::Number.is_in(own),
            Self::Length => names_length(own),
            Self::Time => Wanted::Number.is_in(own) || Wanted::Day.is_in(own),
            Self::Pace => has_word(&own.to_lowercase(), PACE),
            Self::Person => names_person(own),
            // The paragraph that begins with the term being defined.
            Self::Definition => {
                let opening: String = own.chars().take(OPENING).collect();
                let words = splitter.stems(&opening);
                unit.kind == UnitKind::Paragraph && share(weights, &words, &HashSet::new()) >= LEAST_DEFINED
            }
            Self::Overview | Self::Steps | Self::List | Self::Comparison | Self::Other => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_of_answer_is_told_by_the_wording() {
        for (asked, questions) in [
            (
                AnswerKind::List,
                ["What statuses can a ticket have?", "Which words are reserved?", "What things am I able to do?"],
            ),
            (
                AnswerKind::Comparison,
                [
                    "What separates a critical fault from a minor one?",
                    "Which lamp is lighter compared with the old one?",
                    "What can a horn do that a bell can't?",
                ],
            ),
            (
                AnswerKind::Pace,
                ["How often are wages paid?", "How soon do you answer?", "How fast must a leak be closed?"],
            ),
            (
                AnswerKind::Time,
                ["When did it open?", "Who wrote it and when was it printed?", "Which year was the first?"],
            ),
            (
                AnswerKind::Definition,
                ["What does it mean when a lamp blinks?", "Who is Ada Lovelace?", "What do you mean by a red lamp?"],
            ),
            (AnswerKind::Other, ["Which lamp does a guard get?", "May a guard ring?", "Which process keeps the lock?"]),
            (AnswerKind::Person, ["Who is allowed to ring?", "Who rings?", "Who may the guard call?"]),
        ] {
            for question in questions {
                assert_eq!(AnswerKind::of(question), asked, "{question}");
            }
        }
    }

    #[test]
    fn overview_is_asked_for_by_an_order_and_a_subject() {
        for (question, subject) in [
            ("Write a comprehensive, well organised report about: the pumps of 2022", Some("the pumps of 2022")),
            ("Give me an overview of Brass Valves.", Some("Brass Valves")),
            ("Tell me about the mill?", Some("the mill")),
            ("What do we know about frost", Some("frost")),
            ("Can you please write me a short summary of the mill?", Some("the mill")),
            ("Who wrote the report on pumps?", None),
            ("Who may write the report on taxes?", None),
            ("What do I need to make the report on taxes?", None),
            ("I need a person who wrote a report on pumps", None),
            ("How long do I need to write a report about delays?", None),
            ("Give me the mass of the particle on the string", None),
            ("Does it say in the report on flights how long delays last?", None),
            ("Tell me about the difference between oak and elm", None),
            ("Tell me about how pumps are oiled", None),
            ("Tell me about it", None),
            ("Tell me about ?", None),
            ("How do I make a valve?", None),
        ] {
            assert_eq!(overview_of(question), subject, "{question}");
        }
        assert_eq!(AnswerKind::of("Tell me about the mill"), AnswerKind::Overview);
    }

    #[test]
    fn value_is_no_number_of_a_list_item_and_no_word_that_counts_nothing() {
        let is_in = |wanted: Wanted, texts: [&str; 3]| texts.map(|text| wanted.is_in(text));
        let none = ["1. Open it.\n2) Close it.", "Use single quotes on both sides.", "> 1. Open it."];
        assert_eq!(is_in(Wanted::Number, none), [false; 3]);
        assert_eq!(is_in(Wanted::Number, ["1. Open 2 valves.", "Twelve of them.", "In 1.70."]), [true; 3]);
        let none = ["It came in a later version.", "See the release.", "It costs 480."];
        assert_eq!(is_in(Wanted::Day, none), [false; 3]);
        assert_eq!(is_in(Wanted::Day, ["Since version 1.70.", "On the 5th business day.", "In 1994."]), [true; 3]);
        let none = [
            "1. Enter the agreed dollar amount.",
            "Four of them.",
            "It opens 2 lines to the garden in the morning. That reduces the costs.",
        ];
        assert_eq!(is_in(Wanted::Money, none), [false; 3]);
        assert_eq!(is_in(Wanted::Money, ["300 dollars", "$300", "It is free."]), [true; 3]);
        let of = |question: &str| Wanted::of(question);
        assert_eq!(of("How many dollars is a bounty?"), Some(Wanted::Money));
        assert_eq!(of("How much does the company pay for lunch?"), Some(Wanted::Money));
        assert_eq!(of("How much time do I have to pay?"), None);
        assert_eq!(of("What does the company pay for?"), None);
        assert_eq!(of("What's the phone number of the smith?"), Some(Wanted::Number));
        assert_eq!(of("What number formatting library do we use?"), None);
        assert_eq!(of("What is the port mapping?"), None);
    }

    #[test]
    fn length_has_a_unit_or_ends_at_a_date_or_never() {
        assert!(
            asks_for_length("For how long may it be stopped?") && asks_for_length("What's the longest time it runs?")
        );
        assert!(!asks_for_length("Which river is the longest?"));
        for text in [
            "For up to seven days.",
            "Each is 7-day long.",
            "30s",
            "6 business days",
            "It lasts an hour and a half.",
            "Until March 2027.",
            "| Time (seconds) |\n| 900 |",
            "At most 255 characters.",
            "It is valid for a few hours.",
        ] {
            assert!(names_length(text), "{text}");
        }
        for text in ["It costs 480.", "In 2019 it was new.", "In 2024 the year began.", "Two valves.", "A 3d print."] {
            assert!(!names_length(text), "{text}");
        }
    }

    #[test]
    fn version_is_a_dotted_number_or_one_beside_a_name_or_a_word_for_releases() {
        assert_eq!(Wanted::of("Which Rust version does the pump need?"), Some(Wanted::Version));
        for text in [
            "It needs 1.70.",
            "Since v2 it works.",
            "Use release 7 or later.",
            "It came with Pump 7.",
            "It needs iOS 15.",
            "The protocol version is 3.",
            "node >= 18",
            "Written in C++17.",
            "python 3 or newer",
            "| version | 18 |",
        ] {
            assert!(Wanted::Version.is_in(text), "{text}");
        }
        for text in ["It has 2 valves.", "Twelve are needed.", "Version two.", "The 12 valves. On 3 nights."] {
            assert!(!Wanted::Version.is_in(text), "{text}");
        }
    }

    #[test]
    fn remedy_is_asked_for_by_a_message_alone_or_by_a_failure_and_a_question_about_it() {
        assert_eq!(Remedy::of("error[E0432]: no pump"), Some(Remedy::OfMessage));
        for question in ["Why does the pump fail with 7?", "It crashes, how do I stop that?"] {
            assert_eq!(Remedy::of(question), Some(Remedy::OfFailure), "{question}");
        }
        for question in [
            "How do I open the valve?",
            "Which errors can the pump report?",
            "How many failed attempts lock the pump?",
            "How red is the warning lamp?",
        ] {
            assert_eq!(Remedy::of(question), None, "{question}");
        }
        assert!(names_remedy("How to Fix") && names_remedy("What to do") && !names_remedy("Dry tank"));
    }

    #[test]
    fn number_counts_what_stands_right_after_it() {
        let splitter = WordSplitter::default();
        let noun = splitter.stem(&counted("How many bytes has a letter?").unwrap());
        let is_counted = |text: &str| counts(text, &noun, &splitter);
        assert!(is_counted("It is 4 bytes in size.") && is_counted("It has four whole bytes."));
        assert!(is_counted("It has at most 400 KB.") && is_counted("It has 4KB."));
        assert!(
            !is_counted("It takes 4 days.")
                && !is_counted("Of bytes there are 4.")
                && !is_counted("1. Bytes are counted.")
        );
    }
}
