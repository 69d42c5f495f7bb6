//! Recognises the value a question requests, and whether a text has it: a number, a version, a day, an amount of money, a
//! length.

use super::wording::{AUXILIARIES, has_phrase, has_word, pieces, words};
use crate::base::line::numbered_item;
use crate::base::word::{WordSplitter, find_words, has_digit, is_whole};

/// Openings of questions that only a number answers, in digits or in words.
const ASKS_FOR_NUMBER: [&str; 4] = ["how many ", "how old ", "what percent", "what share "];

/// Nouns after "how much" for which the answer is a number of bytes: "how much diagnostic data".
const OF_DATA: &str = "data|memory|storage|space|disk|ram|traffic";

/// Nouns for which the answer is a number, up to [`NUMBERED_WITHIN`] words after "what" or "which": "which TCP
/// ports".
const NUMBERED: &str = "port|ports|percentage|amount|size";

/// Nouns after "what is the" for which the answer is a number. "Port" is not one: "the port to Windows".
const NUMBERS_OF_SOMETHING: &str = "percentage|amount|size|score|number|timeout|interval|duration|threshold";
const VERSIONS: &str = "version|versions|release";
const NUMBERED_WITHIN: usize = 3;

/// Maximum number of words in a counted noun phrase; a longer text is a clause.
const MAX_COUNTED_WORDS: usize = 4;

/// Phrases that ask for a size or a speed, and further phrases and words that ask for a measure or a limit.
const ASKS_FOR_DIMENSION: [&str; 7] =
    ["how big ", "how large ", "how high ", "how deep ", "how fast ", "how wide ", "how heavy "];
const ASKS_FOR_MEASURE: [&str; 4] = ["how long ", "how far ", "how soon ", "how often "];
pub(super) const LIMITS: &str =
    "longest|shortest|biggest|largest|greatest|smallest|highest|lowest|maximum|minimum|limit|share|percent";

/// Phrases that ask for a length, mostly of time; units of time and other units of length; and words for an unlimited
/// one.
const ASKS_FOR_LENGTH: [&str; 7] =
    ["how long ", "longest time", "longest a ", "how early ", "how far ahead", "how far in advance", "how much notice"];
const TIMES: &str = "ns|nanosecond|nanoseconds|µs|microsecond|microseconds|ms|millisecond|milliseconds|s|sec|secs|second|\
    seconds|min|mins|minute|minutes|h|hr|hrs|hour|hours|day|days|night|nights|wk|week|weeks|fortnight|mo|month|months|quarter|\
    quarters|semester|semesters|yr|yrs|year|years|decade|decades|century|centuries";
const EXTENTS: &str = "letters|character|characters|symbols|bytes|words|lines|pages|meter|meters|metre|metres|km|kilometer|\
    kilometers|kilometre|kilometres|mile|miles|ft|feet|inch|inches|cm|mm";
const ONE: &str = "a|an|half|each|per|same|whole|full";
const ENDLESS: &str = "forever|indefinitely|indefinite|unlimited|infinite|overnight|lifetime|permanently|until|throughout|\
    midnight";
/// Verbs after "never" that say how long something lasts.
const ENDS: &str = "cleared|close|closed|closes|deleted|discarded|end|ended|ends|erased|expire|expired|expires|finish|\
    finishes|lapse|lapses|purged|removed|rotated|stop|stops|time|times";

/// Openings of questions that only a day, a month or a year answers.
pub(super) const ASKS_FOR_DAY: [&str; 9] = [
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
const OF_NOUNS: [&str; 9] = ["of", "for", "per", "in", "to", "at", "on", "that", "behind"];

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

/// Words that end the noun phrase after "how many".
const LINKS: &str = "of|in|on|at|to|for|with|from|by|per|or|and|that|which|when|if|more|other";

/// Words that begin a clause on the counted things: "the number of queues a driver can use".
const SUBJECTS: &str = "a|an|the|my|our|your|its|their|i|you|we|it|they";

/// Units of data.
const DATA: &str = "byte|bytes|kilobyte|kilobytes|megabyte|megabytes|gigabyte|gigabytes|kb|mb|gb|tb|kib|mib|gib|tib";

/// Words for a time. "May" is also another word, so it counts only beside a number.
const DAYS: &str = "monday|tuesday|wednesday|thursday|friday|saturday|sunday|mondays|tuesdays|wednesdays|thursdays|fridays|\
    saturdays|sundays|yesterday|today|tomorrow";
const MONTHS: &str = "january|february|march|april|june|july|august|september|october|november|december|jan|feb|mar|apr|jun|\
    jul|aug|sep|sept|oct|nov|dec";

/// Words that make a number after them a release, which is a time as well: "since version 1.70".
const RELEASES: &str = "version|versions|release|releases|since";

/// Words that make a period recur, periods, and words that number a day within one.
const EACH: &str = "each|every|per";
const PERIODS: &str = "week|month|quarter|year";
const PLACES: &str = "first|second|third|fourth|last";

/// Words and phrases of a text on a default.
const DEFAULTS: &str =
    "default|defaults|defaulted|unless|otherwise|omit|omits|omitted|unspecified|initial|initially|absent|absence";
const UNSET: [&str; 10] = [
    "don't specify", "don't set", "don't change", "not specif", "not set", "isn't set", "isn't specif",
    "doesn't exist", "does not exist", "is missing",
];

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
            () if has_phrase(question, &ASKS_FOR_NUMBER) || asks_for_figure(&lower) || asks_for_data(&lower) => {
                Some(Self::Number)
            }
            () if asks_for_version(&lower) => Some(Self::Version),
            () if has_phrase(question, &ASKS_FOR_DAY) => Some(Self::Day),
            () => None,
        }
    }

    /// Returns whether a text has a value of this kind.
    pub(super) fn is_in(self, text: &str) -> bool {
        let (written, text) = (text, without_phrases(&IDLE, text));
        let is_release = |(a, b): (&str, &str)| has_word(a, RELEASES) && has_digit(b);
        let mut pairs = pieces(&text).zip(pieces(&text).skip(1));
        // "S3" is not a number.
        let is_number = |word: &str| word.starts_with(|letter: char| letter.is_ascii_digit());
        let has_number = || words(&text).any(is_number) || has_word(&text, NUMBERS);
        match self {
            Self::Number => has_number(),
            Self::Version => names_version(written),
            Self::Day => {
                let is_time = |pair: (&str, &str)| is_in_may(pair) || is_release(pair);
                names_day_or_month(&text)
                    || words(&text).any(|word| is_year(word) || is_ordinal(word))
                    || pairs.any(is_time)
            }
            // Personal notes may leave the currency out.
            Self::Money => {
                let words: Vec<_> = words(&text).collect();
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

/// Phrases with a word for a number or a cost that say neither: "at least one" does not say how many.
const IDLE: [&str; 9] = [
    "cost-effective", "at least one", "one per", "one of", "one or more", "two or more", "in one", "from one", "to one",
];

/// Phrases with a number that measure nothing.
const UNMEASURED: [&str; 2] = ["one time", "1:1"];

/// Returns a text in lower case without some phrases and the numbers of list items.
fn without_phrases(phrases: &[&str], text: &str) -> String {
    let mut text = without_markers(&text.to_lowercase());
    for phrase in phrases {
        while let Some(at) = find_words(&text, phrase) {
            text.replace_range(at..at + phrase.len(), "");
        }
    }
    text
}

/// Returns whether a text has a date, and not only the name of a day.
pub(super) fn names_date(text: &str) -> bool {
    let lower = text.to_lowercase();
    let all: Vec<_> = pieces(&lower).collect();
    let is_numbered = |three: &[&str]| three.iter().all(|piece| has_digit(piece));
    has_word(&lower, MONTHS)
        || words(&lower).any(is_year)
        || all.windows(3).any(is_numbered)
        || all.windows(2).any(|pair| is_in_may((pair[0], pair[1])))
}

fn names_day_or_month(text: &str) -> bool {
    has_word(text, DAYS) || has_word(text, MONTHS)
}

/// Returns whether two words that follow each other are "May" and a number.
fn is_in_may((a, b): (&str, &str)) -> bool {
    (has_digit(a) && b == "may") || (a == "may" && has_digit(b))
}

fn is_ordinal(word: &str) -> bool {
    let figures = ["st", "nd", "rd", "th"].iter().find_map(|ending| word.strip_suffix(ending));
    figures.is_some_and(|figures| figures.parse::<u8>().is_ok())
}

/// Returns the period of a question about what recurs: "month" of "when is it cleaned each month".
pub(super) fn recurring_period(question: &str) -> Option<String> {
    let lower = question.to_lowercase();
    let all: Vec<_> = words(&lower).collect();
    let mut pairs = all.windows(2);
    pairs.find(|pair| has_word(pair[0], EACH) && has_word(pair[1], PERIODS)).map(|pair| pair[1].to_owned())
}

/// Returns whether a text names the day of a period: "the 20th of each month", "the first Monday of the quarter".
pub(super) fn names_recurring_day(text: &str) -> bool {
    let lower = text.to_lowercase();
    let all: Vec<_> = words(&lower).collect();
    let is_place = |word: &str| is_ordinal(word) || has_word(word, PLACES);
    let has_period = |near: &[&str]| near.iter().any(|word| has_word(word, PERIODS));
    (0..all.len()).any(|at| is_place(all[at]) && has_period(&all[at + 1..all.len().min(at + 5)]))
        || all.windows(2).any(|pair| has_word(pair[0], EACH) && names_day_or_month(pair[1]))
}

/// Returns whether a text says what the default is.
pub(super) fn names_default(text: &str) -> bool {
    has_word(&text.to_lowercase(), DEFAULTS) || has_phrase(&text.replace('’', "'"), &UNSET)
}

/// Returns whether a question in lower case asks for an amount of data.
fn asks_for_data(question: &str) -> bool {
    question.split_once("how much ").is_some_and(|(_, after)| opens_with_noun(words(after), OF_DATA))
}

/// Returns whether one of some nouns, which are divided by `|`, is among the first words, before a verb.
fn opens_with_noun<'a>(words: impl Iterator<Item = &'a str>, nouns: &str) -> bool {
    let mut phrase = words.take(NUMBERED_WITHIN).take_while(|word| !has_word(word, AUXILIARIES));
    phrase.any(|word| has_word(word, nouns))
}

/// Returns whether a question in lower case asks for something that is written as a number: "which port", "what is the score of".
pub(super) fn asks_for_figure(question: &str) -> bool {
    asks_for(question, NUMBERED) || asks_what_is(question, NUMBERS_OF_SOMETHING)
}

/// Returns whether a question in lower case asks for a version: "which version", "what is the minimum version of".
pub(super) fn asks_for_version(question: &str) -> bool {
    asks_for(question, VERSIONS) || asks_what_is(question, VERSIONS)
}

/// Returns whether a question in lower case asks for one of the nouns by "what is": "what is the hourly price of".
fn asks_what_is(question: &str, nouns: &str) -> bool {
    let words: Vec<_> = words(question).collect();
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

/// Returns whether a title announces limits, which authors often list in a note of their own. A "quota-carrying"
/// employee is in sales.
pub(super) fn names_limits(title: &str) -> bool {
    let lower = title.to_lowercase();
    let all: Vec<_> = words(&lower).collect();
    let is_quota = |at: usize| all[at] == "quota" && all.get(at + 1).is_none_or(|next| OF_NOUNS.contains(next));
    has_word(&lower, "limit|limits|quotas") || (0..all.len()).any(is_quota)
}

/// Returns whether a text names a length: "7-day long", "up to 15 minutes", "an hour and a half", "until 2027", "a few
/// hours".
pub(super) fn names_length(text: &str) -> bool {
    has_length(text, VAGUE)
}

/// Returns whether a text names a length other than "a few hours", which is often no answer.
pub(super) fn measures_length(text: &str) -> bool {
    has_length(text, "")
}

/// Returns whether a text names a length. `vague` are words that count as numbers.
fn has_length(text: &str, vague: &str) -> bool {
    let text = without_possessives(&without_markers(&text.to_lowercase()));
    let words: Vec<_> = words(&text).collect();
    let is_number =
        |word: &str| (has_digit(word) && !is_year(word)) || has_word(word, NUMBERS) || has_word(word, vague);
    let is_unit = |word: &str| is_unit_of(word, TIMES) || is_unit_of(word, EXTENTS);
    let is_length = |at: usize| {
        let near = &words[at..words.len().min(at + NUMBERED_WITHIN)];
        (is_number(words[at]) && near.iter().any(|word| is_unit(word)))
            || (has_word(words[at], ONE) && near.get(1).is_some_and(|word| is_unit(word)))
    };
    // The header of a table may have the unit.
    let is_row = text.contains(" — ") || text.contains('|');
    (0..words.len()).any(is_length)
        || is_endless(&text)
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
    // Not an identifier: `PUMP_602`.
    let is_joined =
        |word: &str| word.contains(is_figure) && word.starts_with(char::is_alphabetic) && !word.contains('_');
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

/// Nouns for which the answer is a code or a number, after "what" or "which": "which event ID".
const CODES: &str = "id|code|number";

/// Openings of questions that ask for one thing and mention another: "How do I find out which version …".
const ASKS_OTHERWISE: [&str; 2] = ["how ", "why "];

/// Returns whether a question asks for a measure or a limit, which words may answer as well: "as long as you like".
pub(super) fn asks_for_measure(question: &str) -> bool {
    has_phrase(question, &ASKS_FOR_MEASURE)
        || asks_for_dimension(question)
        || has_word(&question.to_lowercase(), LIMITS)
        || asks_for(&question.to_lowercase(), CODES)
}

/// Returns whether a question asks for a share in percent.
pub(super) fn asks_for_percent(question: &str) -> bool {
    has_phrase(question, &["what percent", "which percent"])
}

/// Returns whether a text names a share of a whole.
pub(super) fn names_percent(text: &str) -> bool {
    text.contains('%') || has_word(&text.to_lowercase(), "percent|percentage|half|third|quarter|quarters")
}

/// Returns whether a text has a number that is no year.
pub(super) fn has_measure(text: &str) -> bool {
    has_figure(text) || has_word(&without_phrases(&UNMEASURED, text), NUMBERS)
}

/// Returns whether a text has a number in figures that is neither a year nor part of a name: "sha512sum", "npm@5.1".
pub(super) fn has_figure(text: &str) -> bool {
    let text = without_phrases(&UNMEASURED, text);
    let mut words = text.split(|letter: char| !letter.is_alphanumeric() && !['@', '.'].contains(&letter));
    words.any(|word| {
        let own = word.trim_matches(['@', '.']);
        let is_name = own.contains('@') || own.starts_with(char::is_alphabetic) && own.ends_with(char::is_alphabetic);
        has_digit(own) && !is_name && !is_year(own)
    })
}

/// Words before the year of a date.
const BEFORE_YEAR: &str = "in|since|until|of|from|by|before|after|during|january|february|march|april|may|june|july|august|\
    september|october|november|december";

/// Returns whether all numbers of a text are years of dates, which count nothing.
pub(super) fn has_only_years(text: &str) -> bool {
    let text = without_markers(&text.to_lowercase());
    let words: Vec<_> = words(&text).collect();
    let is_dated = |at: usize| is_year(words[at]) && at > 0 && has_word(words[at - 1], BEFORE_YEAR);
    let mut numbers = (0..words.len()).filter(|at| has_digit(words[*at])).peekable();
    numbers.peek().is_some() && numbers.all(is_dated) && !has_word(&text, NUMBERS)
}

/// Returns whether a question in lower case asks for one of some nouns, which are divided by `|`.
fn asks_for(question: &str, nouns: &str) -> bool {
    let words: Vec<_> = words(question).collect();
    let asks_otherwise = ASKS_OTHERWISE.iter().any(|opening| question.trim_start().starts_with(opening));
    let asks =
        |at: usize| matches!(words[at], "what" | "which") && opens_with_noun(words[at + 1..].iter().copied(), nouns);
    !asks_otherwise && (0..words.len()).any(asks)
}

/// Returns the noun counted by "how many" or "the number of": "sets" of "how many parameter sets can …", otherwise the
/// word after it; "bytes" of "how much memory".
pub(super) fn counted(question: &str) -> Option<String> {
    let lower = question.to_lowercase();
    if asks_for_data(&lower) {
        return Some("bytes".into());
    }
    if let Some(phrase) = numbered(&lower) {
        return phrase.last().map(|noun| (*noun).to_owned());
    }
    let (_, after) = lower.split_once("how many ")?;
    // A mark after "how many" begins a quotation, which is no noun.
    let first = pieces(after).next().filter(|word| !word.is_empty())?;
    let phrase: Vec<_> = words(after).take(MAX_COUNTED_WORDS).collect();
    let end = phrase.iter().position(|word| has_word(word, AUXILIARIES));
    let noun = end.and_then(|end| phrase[..end].last()).filter(|_| !phrase.iter().any(|word| has_word(word, LINKS)));
    Some((*noun.unwrap_or(&first)).to_owned())
}

/// Returns the noun phrase after "number of" in a question in lower case for a number.
fn numbered(question: &str) -> Option<Vec<&str>> {
    let (_, after) = question.split_once("number of ").filter(|_| asks_what_is(question, "number"))?;
    Some(phrase(after).take_while(|word| !has_word(word, SUBJECTS)).collect())
}

/// Returns the words of the noun phrase that a text begins with.
fn phrase(text: &str) -> impl Iterator<Item = &str> {
    words(text).take_while(|word| !has_word(word, AUXILIARIES) && !has_word(word, LINKS))
}

/// Openings of a question before the noun whose number or amount is requested.
const COUNTING: [&str; 4] = ["how many ", "how much is the ", "how much is a ", "how much are the "];

/// Returns the words of the noun phrase after "how many", "the number of" or "how much is the", if there are several:
/// "story points".
pub(super) fn counted_words(question: &str) -> Option<Vec<String>> {
    let lower = question.to_lowercase();
    let opening = COUNTING.iter().find_map(|opening| lower.split_once(opening));
    let of_many = || opening.map(|(_, after)| phrase(after).collect());
    let own: Vec<_> = numbered(&lower).or_else(of_many)?;
    (2..=MAX_COUNTED_WORDS).contains(&own.len()).then(|| own.into_iter().map(str::to_owned).collect())
}

/// Returns the numbers of a question in figures, such as a release or a year.
pub(super) fn numbers(question: &str) -> impl Iterator<Item = &str> {
    let is_number = |word: &&str| {
        word.contains(|letter: char| letter.is_ascii_digit())
            && word.chars().all(|letter| letter.is_ascii_digit() || letter == '.')
            // Not a day: "2019.11.21".
            && word.matches('.').count() < 2
    };
    let words = question.split_whitespace();
    words.map(|word| word.trim_matches(|letter: char| !letter.is_alphanumeric())).filter(is_number)
}

/// Returns whether a text has a number of a question, as a whole or at the beginning of a longer one: "20" in "20.1". If
/// the question has a name right before it, a release or a year right after another name does not count: "Brass 20".
pub(super) fn has_number(text: &str, number: &str, question: &str) -> bool {
    let is_apart = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_ascii_digit());
    let is_release = number.len() <= 2 || number.contains('.') || is_year(number);
    let asked = question.match_indices(number).map(|(at, _)| at).find(|at| is_whole(question, *at..*at + number.len()));
    let name = asked.filter(|_| is_release).and_then(|at| names_before(question, at).next());
    let is_of_other = |at: usize| {
        let mut before = names_before(text, at).peekable();
        name.is_some_and(|name| before.peek().is_some() && !before.any(|own| is_same_name(own, name)))
    };
    text.match_indices(number).any(|(at, _)| {
        is_apart(text[..at].chars().next_back())
            && is_apart(text[at + number.len()..].chars().next())
            && !is_of_other(at)
    })
}

/// Returns the capitalised words right before a place in a text, the last one first: "Server" and "Windows".
fn names_before(text: &str, at: usize) -> impl Iterator<Item = &str> {
    let before = &text[..at];
    let words = before.strip_suffix(' ').unwrap_or_default().rsplit(' ');
    let is_name = |word: &&str| {
        let lower = word.to_lowercase();
        word.starts_with(char::is_uppercase)
            && word.chars().all(char::is_alphanumeric)
            && !has_word(&lower, RELEASES)
            && !has_word(&lower, BEFORE_YEAR)
    };
    words.take_while(is_name)
}

/// Returns whether two words are the same name or begin alike: "Brasswork" and "Brassworks".
fn is_same_name(a: &str, b: &str) -> bool {
    /// Minimum number of letters at the beginning that names have in common.
    const LEAST: usize = 5;
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let common = a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    a == b || common >= LEAST
}

/// Returns whether each version in a text is right after the name of another thing than a question for a version names:
/// "Brass 8" says nothing of "which Linen version".
pub(super) fn has_only_versions_of_others(text: &str, question: &str) -> bool {
    let asked: Vec<_> = question.split_whitespace().collect();
    let is_asked = |pair: &&[&str]| has_word(&pair[1].to_lowercase(), VERSIONS);
    let name = asked.windows(2).find(is_asked).map(|pair| pair[0]);
    let is_name = |name: &&str| name.starts_with(char::is_uppercase) && !has_word(&name.to_lowercase(), "what|which");
    let Some(name) = name.filter(is_name) else { return false };
    let starts = text.char_indices().filter(|(at, letter)| {
        letter.is_ascii_digit() && text[..*at].ends_with(|before: char| !before.is_alphanumeric() && before != '.')
    });
    let mut versions = starts.map(|(at, _)| names_before(text, at).collect::<Vec<_>>()).peekable();
    let is_other = |names: Vec<&str>| !names.is_empty() && !names.iter().any(|own| is_same_name(own, name));
    versions.peek().is_some() && versions.all(is_other)
}

/// Returns a text without possessive endings: the "s" of "the guard's" is no unit of time.
fn without_possessives(text: &str) -> String {
    text.replace("’s ", " ").replace("'s ", " ")
}

/// Returns whether a word is one of some units, which are divided by `|`, or a number joined to one: "4KB". "01h" is a
/// number in another notation.
fn is_unit_of(word: &str, units: &str) -> bool {
    let unit = word.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let is_figure = unit.len() == word.len() || !word.starts_with('0');
    is_figure && has_word(unit, units)
}

/// Returns whether a text has a unit of the kind that a question names: of time for "how many days", of data or another
/// length for "what size in bytes". A question that names no unit is satisfied by any text.
pub(super) fn has_unit_asked_for(text: &str, question: &str) -> bool {
    let question = question.to_lowercase();
    let all: Vec<_> = words(&question).collect();
    let named = all.windows(2).find(|pair| pair[0] == "in" && has_word(pair[1], DATA)).map(|pair| pair[1].to_owned());
    // A table may have the unit of an amount of data in its header, or nowhere.
    let counted = counted(&question).filter(|_| !asks_for_data(&question));
    let Some(unit) = counted.or(named) else { return true };
    let lower = without_possessives(&text.to_lowercase());
    let has = |units: &str| words(&lower).any(|word| is_unit_of(word, units));
    match () {
        () if has_word(&unit, TIMES) => has(TIMES),
        () if has_word(&unit, DATA) || has_word(&unit, EXTENTS) => has(DATA) || has(EXTENTS),
        () => true,
    }
}

/// Returns whether a question asks how big or how fast something is, which only a measure answers.
pub(super) fn asks_for_dimension(question: &str) -> bool {
    has_phrase(question, &ASKS_FOR_DIMENSION)
}

/// Returns whether a text names a measure, or says that there is no limit.
pub(super) fn names_dimension(text: &str) -> bool {
    has_measure(text) || is_endless(&text.to_lowercase())
}

/// Returns whether a text in lower case says that something has no end.
fn is_endless(text: &str) -> bool {
    let pieces: Vec<_> = pieces(text).collect();
    let ends = |after: &[&str]| after.iter().take(2).any(|word| has_word(word, ENDS));
    has_word(text, ENDLESS) || (0..pieces.len()).any(|at| pieces[at] == "never" && ends(&pieces[at + 1..]))
}

/// Returns whether a text has a number right before a word, given by its stem, or before the word that qualifies it:
/// "4 bytes", "five severity levels". Units of data are interchangeable: "400 KB".
pub(super) fn counts(text: &str, stem: &str, splitter: &WordSplitter) -> bool {
    let text = without_markers(&text.to_lowercase());
    let words: Vec<_> = words(&text).collect();
    let is_number = |word: &str| has_digit(word) || has_word(word, NUMBERS);
    let counts_data = DATA.split('|').any(|unit| splitter.stem(unit) == stem);
    let is_unit = |word: &str| splitter.stem(word) == stem || (counts_data && has_word(word, DATA));
    let is_joined = |word: &str| is_unit(word.trim_start_matches(|letter: char| letter.is_ascii_digit()));
    let is_counted = |(at, word): (usize, &&str)| {
        (has_digit(word) && is_joined(word))
            || is_unit(word) && words[at.saturating_sub(2)..at].iter().any(|before| is_number(before))
    };
    // "Number of valves: 4", and a row of a table.
    let is_after = |(before, after): (&str, &str)| {
        let number = after.trim_matches([' ', '*', '_', '`']).split_whitespace().next();
        self::words(before).last().is_some_and(is_unit) && number.is_some_and(has_digit)
    };
    let parts: Vec<_> = text.split([':', '—', '|', '\n']).collect();
    words.iter().enumerate().any(is_counted) || parts.windows(2).any(|pair| is_after((pair[0], pair[1])))
}

/// Returns a text without the numbers of its list items, which count nothing.
fn without_markers(text: &str) -> String {
    let bare = |line| {
        let own = str::trim_start_matches(line, |letter: char| letter.is_whitespace() || letter == '>');
        numbered_item(own).unwrap_or(line)
    };
    text.lines().map(bare).collect::<Vec<_>>().join("\n")
}

fn is_year(word: &str) -> bool {
    word.len() == 4 && word.parse().is_ok_and(|year: u16| (1000..2200).contains(&year))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(of("What's the actual number behind `OIL_MAX`?"), Some(Wanted::Number));
        assert!(!Wanted::Version.is_in("It calls PUMP_602."));
        assert_eq!(of("What number formatting library do we use?"), None);
        assert_eq!(of("What is the port mapping?"), None);
        assert_eq!(of("How do I find out which version of the pump runs?"), None);
        assert!(names_limits("Quota of the mill") && !names_limits("Leave of quota-carrying millers"));
        assert!(asks_for_measure("Which event ID has it?") && !asks_for_measure("Which event IDs are there?"));
        assert_eq!(of("What is the default timeout for a pump?"), Some(Wanted::Number));
        assert_eq!(of("How much report data can a pump store?"), Some(Wanted::Number));
    }

    #[test]
    fn date_is_more_than_a_day_or_an_amount() {
        for date in ["4 March", "2025-05-02", "12.05.22", "3 May", "1994"] {
            assert!(names_date(date), "{date}");
        }
        assert!(!names_date("from Thursday night at 3,223 theatres") && !names_date("It may cost $249,660."));
    }

    #[test]
    fn length_has_a_unit_or_ends_at_a_date_or_never() {
        assert!(
            asks_for_length("For how long may it be stopped?") && asks_for_length("What's the longest time it runs?")
        );
        assert!(!asks_for_length("Which river is the longest?") && asks_for_length("How early must I tell him?"));
        assert!(!measures_length("It is valid for a few hours.") && measures_length("It is valid for two hours."));
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
            "It is never deleted.",
        ] {
            assert!(names_length(text), "{text}");
        }
        for text in [
            "It costs 480.",
            "In 2019 it was new.",
            "In 2024 the year began.",
            "Two valves.",
            "A 3d print.",
            "It is never shared.",
        ] {
            assert!(!names_length(text), "{text}");
        }
        assert!(has_figure("At most 4,000.") && has_figure("For EUR20.") && !has_figure("The sha512sum of lamp@5.1."));
    }

    #[test]
    fn version_is_a_dotted_number_or_one_beside_a_name_or_a_word_for_releases() {
        for question in ["Which Rust version does the pump need?", "What's the minimum Rust version for the pump?"] {
            assert_eq!(Wanted::of(question), Some(Wanted::Version), "{question}");
        }
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
    fn number_counts_what_stands_right_after_it() {
        let splitter = WordSplitter::default();
        let noun = splitter.stem(&counted("How many bytes has a letter?").unwrap());
        let is_counted = |text: &str| counts(text, &noun, &splitter);
        assert_eq!(counted("How many parameter sets can a pump have?").as_deref(), Some("sets"));
        assert_eq!(counted("How many people in the mill can ring?").as_deref(), Some("people"));
        assert_eq!(counted("What is the largest number of oil queues a pump can use?").as_deref(), Some("queues"));
        assert_eq!(counted("How much memory does a pump use?").as_deref(), Some("bytes"));
        assert!(is_counted("It is 4 bytes in size.") && is_counted("It has four whole bytes."));
        assert!(is_counted("It has at most 400 KB.") && is_counted("It has 4KB."));
        assert!(is_counted("Number of bytes: **4**") && is_counted("bytes — 4") && !is_counted("bytes: see page 4"));
        assert!(
            !is_counted("It takes 4 days.")
                && !is_counted("Of bytes there are 4.")
                && !is_counted("1. Bytes are counted.")
        );
    }
}
