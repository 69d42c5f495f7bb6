//! Recognises the kind of answer a question requests by its English wording, and whether a unit has it.

use std::collections::HashSet;
use std::ops::Range;

use super::definition::{OPENING, defines};
use super::features::{Weights, lists_anchors, lists_links, only_points, share};
use super::subject::overview_of;
use super::value::{ASKS_FOR_DAY, LIMITS, Wanted, asks_for_figure, asks_for_length, asks_for_version, names_length};
use super::wording::{AUXILIARIES, CLAUSES, TELLS_APART, has_phrase, has_word, words};
use crate::base::word::WordSplitter;
use crate::research::sentence::Sentence;
use crate::research::unit::{Unit, UnitKind, compared_by};

/// Words of a question about a history of changes.
const CHANGES: &str = "when|new|newest|latest|version|versions|release|releases|released|since|history|added|introduced|removed|\
    deprecated|update|updates|change|changes|changed|changelog";

/// Words for how often or how soon.
const PACE: &str = "daily|weekly|fortnightly|biweekly|monthly|quarterly|yearly|annually|hourly|nightly|every|once|twice|immediately|\
    second|seconds|minute|minutes|hour|hours|day|days|week|weeks|month|months|quarter|year|years";

/// Openings of a question for a time. "When" inside a clause ("what does it mean when …") does not ask for one.
const ASKS_FOR_TIME: [&str; 14] = [
    "when did ", "when was ", "when were ", "when do ", "when does ", "when is ", "when are ", "when will ",
    "when should ", "when can ", "when must ", "since when ", "until when ", "how old ",
];

/// Words for a choice between things.
const PREFERRING: &str = "use|choose|prefer|pick|better";

/// Openings of a question for a pace.
const ASKS_FOR_PACE: [&str; 4] = ["how often ", "how soon ", "how fast ", "how quickly "];

/// Words that stand after a verb rather than after a noun.
const AFTER_VERBS: &str = "the|a|an|it|its|my|our|your|their|this|that|to|from|with|at|by";

/// Words that contrast two things in a sentence. A semicolon does as well.
const CONTRASTS: &str = "whereas|while|whilst|unlike|but|however|rather|than|versus|vs|differ|differs|contrast";

/// Returns whether a sentence contrasts things.
pub(super) fn contrasts(sentence: &str) -> bool {
    // A semicolon in brackets contrasts nothing.
    let mut outside = sentence.split('(').map(|part| part.rsplit(')').next().unwrap_or(part));
    !sentence.ends_with('?')
        && (outside.any(|part| part.contains(';')) || has_word(&sentence.to_lowercase(), CONTRASTS))
}

/// Minimum share of the question's words in the opening of a paragraph that defines its subject.
const LEAST_DEFINED: f32 = 0.7;

/// Minimum share of the question's words above a list, table or code block for it to be the requested one.
pub(super) const LEAST_MEANT: f32 = 0.34;

/// Minimum share of the question's words in a sentence that is the requested list.
const LEAST_LISTED: f32 = 0.5;

/// How well a list matches the requested form if only the title or a heading further up has words of the question.
const UNANNOUNCED: f32 = 0.5;

/// Maximum number of words from "following" to the noun that a lead-in announces: "the following build files:".
const MOST_ANNOUNCED: usize = 3;

/// How well code matches a request for steps: it may be one of several, and rarely explains itself.
const CODE_OF_TASK: f32 = 0.5;

/// Returns whether a list is numbered, also in the words of its items: "- **Step 1**: …".
fn is_ordered(unit: &Unit, text: &str) -> bool {
    let is_step = |piece: &Range<usize>| {
        let own = text[piece.clone()].trim_start_matches(|letter: char| !letter.is_alphanumeric());
        own.get(..5).is_some_and(|word| word.eq_ignore_ascii_case("step "))
            && own[5..].starts_with(|n: char| n.is_ascii_digit())
    };
    match unit.kind {
        UnitKind::List { is_ordered } => is_ordered || unit.pieces.first().is_some_and(is_step),
        UnitKind::Paragraph | UnitKind::Table | UnitKind::Code | UnitKind::Callout => false,
    }
}

/// Returns whether a unit is below a heading that asks for the same kind of answer, with words of the question: "How do I
/// get a letter?"
fn is_asked_above(asked: AnswerKind, unit: &Unit, weights: &Weights, splitter: &WordSplitter) -> bool {
    let is_told = matches!(unit.kind, UnitKind::List { .. } | UnitKind::Paragraph);
    let heading = unit.headings.last().filter(|heading| is_told && heading.ends_with('?'));
    let least = if unit.kind == UnitKind::Paragraph { LEAST_MEANT } else { f32::EPSILON };
    heading.is_some_and(|heading| {
        AnswerKind::of(heading) == asked && share(weights, &splitter.stems(heading), &HashSet::new()) >= least
    })
}

/// Returns whether a sentence is the requested list: "There are two states of a lamp: lit and dark." `listed` are the
/// stems of the noun that is asked for, with the word before it.
fn lists(sentence: &str, listed: &[String], weights: &Weights, splitter: &WordSplitter) -> bool {
    let parts = sentence.split_once(": ").or_else(|| sentence.split_once(" are "));
    let Some((lead_in, items)) = parts.filter(|_| !listed.is_empty()) else { return false };
    let is_announced = || {
        let named = splitter.stems(lead_in);
        listed.iter().all(|word| named.contains(word))
    };
    let is_said = || share(weights, &splitter.stems(sentence), &HashSet::new()) >= LEAST_LISTED;
    items.contains(", ") && has_word(items, "and|or") && is_announced() && is_said()
}

/// Words of a sentence that gives a reason.
const REASONS: &str = "because|therefore|thus|hence|reason|reasons|cause|causes|caused|due|avoid|avoids|prevent|\
    prevents|otherwise|implication|implications";

/// Returns whether a sentence gives a reason.
pub(super) fn gives_reason(sentence: &str) -> bool {
    has_word(&sentence.to_lowercase(), REASONS)
}

/// Returns whether a question asks for a change: its date, its version, its release.
pub(super) fn asks_for_changes(question: &str) -> bool {
    has_word(&question.to_lowercase(), CHANGES)
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

/// Returns the words of the object of a task: "night mode" of "How do I turn on night mode for a lamp?". Empty if the
/// question asks for no task.
pub(super) fn object_of_task(question: &str) -> Vec<String> {
    let lower = question.to_lowercase();
    let asked = ASKS_HOW.iter().find_map(|opening| lower.trim_start().strip_prefix(opening));
    let mut rest = words(asked.unwrap_or_default()).skip(1).peekable();
    rest.next_if(|word| has_word(word, PARTICLES));
    let object = rest.take_while(|word| !has_word(word, ENDS_OBJECT));
    object.filter(|word| !has_word(word, NAMELESS) && !is_person(word)).map(str::to_owned).collect()
}

/// Words for people and groups of them, in the singular.
const PEOPLE: &str = "admin|administrator|anybody|anyone|approver|author|board|boss|captain|chair|client|collaborator|\
    committee|committer|contractor|contributor|customer|developer|director|editor|employee|engineer|everybody|everyone|\
    expert|founder|guest|head|lead|leader|maintainer|manager|member|moderator|nobody|officer|operator|organizer|\
    owner|participant|partner|people|person|president|principal|recipient|releaser|representative|reviewer|staff|\
    supervisor|team|user|vendor|volunteer";

pub(super) fn is_person(word: &str) -> bool {
    has_word(word, PEOPLE) || word.strip_suffix('s').is_some_and(|one| has_word(one, PEOPLE))
}

/// Words of a sentence that says who may do something.
const MAY: &str = "can|may|must|allowed|permission|permissions|permitted|authorized|responsible|only";

/// Returns whether a text names a person or a group of people.
pub(super) fn names_person(text: &str) -> bool {
    // A proper name, two capitalised words in a row within a sentence, or a handle such as `@ann`.
    let words: Vec<_> = text.split_whitespace().collect();
    let is_capital = |word: &str| word.starts_with(char::is_uppercase) && word.chars().skip(1).any(char::is_lowercase);
    let is_name = |at: usize| {
        !words[at - 1].ends_with(['.', ':', '?', '!']) && is_capital(words[at]) && is_capital(words[at + 1])
    };
    self::words(&text.to_lowercase()).any(is_person)
        || (1..words.len().saturating_sub(1)).any(is_name)
        || words.iter().any(|word| word.trim_start_matches(['(', '[']).starts_with('@'))
}

/// Returns whether a question in lower case asks what one thing does that another does not.
fn is_contrast(question: &str) -> bool {
    let negations = ["can't", "can’t", "cannot", "doesn't", "doesn’t", "does not", "don't", "don’t", "isn't", "isn’t"];
    let asked = question.split_once("what can ").or_else(|| question.split_once("what does "));
    asked.and_then(|(_, rest)| rest.split_once(" that ")).is_some_and(|(_, other)| has_phrase(other, &negations))
}

/// Returns whether a question in lower case asks when one thing is better than another, rather than for a time: "When
/// should I use oil or grease?"
fn asks_when_to_choose(question: &str) -> bool {
    let names_other = || has_phrase(question, &["or ", "than ", "over ", "instead of "]);
    let asks = ["when should ", "when do ", "when would ", "when is ", "when are ", "when to "];
    has_phrase(question, &asks) && has_word(question, PREFERRING) && names_other()
}

/// Returns the plural noun after "what" or "which" at the beginning of a question in lower case, and the word before it:
/// "statuses" of "what statuses can …", "office supplies" of "which office supplies …".
pub(super) fn listed(question: &str) -> Option<(Option<&str>, &str)> {
    let mut words = words(question);
    let opening = words.next();
    // "Class", "status" and "analysis" are not plurals.
    let is_plural =
        |word: &str| word.len() > 3 && word.ends_with('s') && !["ss", "us", "is"].iter().any(|end| word.ends_with(end));
    let noun: Vec<_> = words.by_ref().take(4).collect();
    let auxiliary = noun.iter().position(|word| has_word(word, AUXILIARIES));
    let plural = |words: &[&'_ str]| words.iter().rposition(|word| is_plural(word));
    let at = match opening {
        Some("what") => auxiliary.and_then(|at| at.checked_sub(1)).filter(|at| is_plural(noun[*at])),
        Some("which") => match (auxiliary, noun.as_slice()) {
            (Some(at), _) => plural(&noun[..at]),
            // "Which brass valves close", but "which process keeps the lock".
            (None, [first, second, third, ..]) => {
                let is_second = is_plural(second) && !has_word(third, AFTER_VERBS);
                if is_second { Some(1) } else { Some(0).filter(|_| is_plural(first)) }
            }
            (None, _) => plural(&noun),
        },
        _ => None,
    };
    // "What happens if pumps can't start?"
    let is_clause =
        |word: &&str| has_word(word, CLAUSES) || has_word(word, CONDITIONS) || matches!(*word, "happens" | "that");
    let at = at.filter(|at| !noun[..*at].iter().any(is_clause))?;
    let before =
        at.checked_sub(1).map(|at| noun[at]).filter(|word| !has_word(word, CHOOSING) && !has_word(word, "of|the"));
    Some((before, noun[at]))
}

/// Nouns after "which" or "what" that say nothing of the answer.
const ANY_KIND: &str = "aspect|case|cases|else|happened|happens|kind|kinds|name|names|number|numbers|one|ones|part|parts|people|\
    role|sort|sorts|string|thing|things|type|types|value|values|way|ways";

/// Returns the noun after "which" or "what" in a question: "architect" of "Which architect built it?". Names in mixed
/// case before it are skipped: "Which `DrSearch` function …". After "what", a verb must follow the noun: "What causes it?"
/// has none.
pub(super) fn kind_of_thing(question: &str) -> Option<&str> {
    /// Number of words after the noun among which its verb is looked for.
    const VERB_WITHIN: usize = 4;
    let all: Vec<_> = question.split_whitespace().collect();
    let is_noun = |word: &str| {
        let lower = word.to_lowercase();
        !has_word(&lower, AUXILIARIES) && !has_word(&lower, ANY_KIND)
    };
    let has_verb = |at: usize| all[at + 1..].iter().take(VERB_WITHIN).any(|word| has_word(word, AUXILIARIES));
    let is_name = |word: &&str| {
        let has_capital = word.chars().skip(1).any(char::is_uppercase);
        has_capital && word.contains(char::is_lowercase) && !word.ends_with('s')
    };
    let asked = |at: usize| {
        let opening = all[at].to_lowercase();
        let noun = (at + 1..all.len()).find(|at| !is_name(&all[*at]))?;
        let asks = is_noun(all[noun]) && (opening == "which" || opening == "what" && has_verb(noun));
        asks.then_some(all[noun])
    };
    (0..all.len()).find_map(asked)
}

/// Words that open a condition.
const CONDITIONS: &str = "if|when|whenever|once|after|while|unless|until";

/// Returns whether a question in lower case asks for what follows from a condition: a statement, rather than a list of
/// events.
pub(super) fn asks_what_happens_then(question: &str) -> bool {
    question.split_once("what happens ").is_some_and(|(_, rest)| has_word(rest, CONDITIONS))
}

/// Returns whether a sentence states a condition.
pub(super) fn states_condition(sentence: &str) -> bool {
    has_word(&sentence.to_lowercase(), CONDITIONS)
}

/// Returns the aim that a sentence opens with: "oil the wheel" of "To oil the wheel, …".
pub(super) fn aim(sentence: &str) -> Option<&str> {
    sentence.strip_prefix("To ")?.split_once(", ").map(|(aim, _)| aim)
}

/// Returns whether the lead-in of a list announces what happens, and not what to do.
pub(super) fn announces_events(lead_in: &str) -> bool {
    lead_in.ends_with(':') && has_word(&lead_in.to_lowercase(), "occur|occurs|happen|happens")
}

/// Returns the noun that a lead-in in lower case announces: "files" of "It has the following build files:".
fn announced(lead_in: &str) -> Option<&str> {
    let words: Vec<_> = words(lead_in.trim_end().strip_suffix(':')?).collect();
    let (noun, before) = words.split_last()?;
    let mut near = before.iter().rev().take(MOST_ANNOUNCED);
    near.any(|word| matches!(*word, "following" | "these")).then_some(*noun)
}

/// Nouns of a question for a list, in the plural.
const LISTED: &str = "advantages|alternatives|arguments|attributes|benefits|bugs|categories|causes|characteristics|\
    commands|components|conditions|considerations|constraints|criteria|differences|disadvantages|drawbacks|effects|\
    elements|errors|examples|exceptions|factors|features|fields|flags|formats|functions|goals|guidelines|holidays|\
    hosts|hours|issues|kinds|limitations|limits|methods|modes|names|objectives|options|parameters|parts|permissions|\
    phases|practices|prerequisites|principles|problems|properties|reasons|recommendations|requirements|\
    responsibilities|restrictions|risks|roles|rules|settings|stages|states|statuses|steps|strategies|subcommands|\
    symptoms|tasks|times|tools|types|uses|values|variants|versions|ways";

/// Words that limit the noun after them: "common mistakes", "two wheels".
const CHOOSING: &str = "allowed|available|common|current|five|four|important|known|main|office|opening|possible|\
    public|recommended|required|seven|six|some|supported|three|two|typical|valid|working";

/// Maximum number of words of things that a question asks to define: "transit gateway attachments".
const MOST_DEFINED: usize = 3;

/// Returns whether a question in lower case asks what some things are: "what are prefix lists?". With other words it asks
/// which there are: "what are the lists?", "what are lists for?", "what are best practices?".
fn asks_what_things_are(question: &str) -> bool {
    let Some(things) = question.trim().strip_prefix("what are ") else { return false };
    let things: Vec<_> = things.split(' ').map(|word| word.trim_matches(['`', '?'])).collect();
    let is_word = |word: &&str| word.chars().all(|letter| letter.is_alphanumeric() || "-_".contains(letter));
    let is_plain = |word: &&str| is_word(word) && !has_word(word, NAMELESS) && !has_word(word, ENDS_OBJECT);
    let is_plural = |word: &&str| word.len() > 3 && word.ends_with('s') && !word.ends_with("ss");
    things.len() <= MOST_DEFINED
        && things.iter().all(is_plain)
        && things.last().is_some_and(|last| is_plural(last) && !has_word(last, LISTED))
        && !has_word(things[0], CHOOSING)
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

/// Returns whether a question in lower case asks what the largest, the shortest or the like is.
fn asks_for_extreme(question: &str) -> bool {
    let rest = ["what is the ", "what's the "].iter().find_map(|opening| question.trim_start().strip_prefix(opening));
    rest.and_then(|rest| words(rest).next()).is_some_and(|first| has_word(first, LIMITS))
}

/// Verbs for steps, after "what do I have to": "bring" asks for a list.
const DOING: &str = "adjust|change|click|configure|do|edit|enable|install|run|set|switch|type";

/// Returns whether a question in lower case asks for the steps of a task by "what do I have to change".
fn asks_what_to_do(question: &str) -> bool {
    let words: Vec<_> = words(question).collect();
    words.windows(6).any(|six| match six {
        ["what", "do", "i" | "we" | "you", "have" | "need", "to", verb] => has_word(verb, DOING),
        _ => false,
    })
}

/// Verbs for a choice, and words in the heading above one that was made.
const CHOICES: &str = "choose|chose|chosen|decide|decided|pick|picked|select|selected|settle|settled";
const DECISIONS: &str = "decision|decisions|conclusion|conclusions|outcome|resolution|verdict";

/// Returns whether a question asks for a choice that was made: "which pump did we choose".
pub(super) fn asks_for_decision(question: &str) -> bool {
    let lower = question.to_lowercase();
    has_word(&lower, CHOICES) && has_word(&lower, "did|have|was|were|chose|decided|picked|settled")
}

/// Returns whether a heading announces a choice that was made.
pub(super) fn names_decision(heading: &str) -> bool {
    has_word(&heading.to_lowercase(), DECISIONS)
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
                || asks_for_extreme(&lower)
                || asks_for_version(&lower) =>
            {
                Self::Number
            }
            () if has(&TELLS_APART)
                || has_word(&lower, "differ|differs")
                || is_contrast(&lower)
                || asks_when_to_choose(&lower) =>
            {
                Self::Comparison
            }
            () if has(&ASKS_FOR_PACE) => Self::Pace,
            () if starts("when ") || has(&ASKS_FOR_TIME) || has(&ASKS_FOR_DAY) => Self::Time,
            () if has(&["what do i do", "what do we do", "what should i do", "what should we do", "what can i do"])
                || asks_what_to_do(&lower) =>
            {
                Self::Steps
            }
            () if has(&["how do ", "how to ", "how can ", "how should ", "steps ", "what command"]) => Self::Steps,
            // "What are the default values of …" does not ask for a list.
            () if has_word(&lower, "default|defaults") => Self::Other,
            () if asks_what_things_are(&lower) => Self::Definition,
            () if listed(&lower).is_some()
                || starts("list ")
                || has(&[
                    "what are ", "which are ", "which of ", "name the ", "please list ", "can you list ",
                    "could you list ", "a list of ", "the list of ", "what kinds ", "what types ", "types of ",
                    "what options ", "what must ", "what should ", "what can ", "what do ", "what happens ",
                ]) && !asks_what_happens_then(&lower) =>
            {
                Self::List
            }
            () if (has(&["what is ", "what exactly is ", "what's ", "define ", "what does ", "explain "])
                && !has(&["mean for "]))
                || asks_who_someone_is(question) =>
            {
                Self::Definition
            }
            () if starts("who ") => Self::Person,
            () => Self::Other,
        }
    }

    /// Returns how well a unit matches the requested form, from 0 to 1: the list, the steps, or the table of the compared
    /// entities. `listed` are the stems of the noun that a question for a list names, with the word before it;
    /// `words_in` returns the stems in a text, and those of the question that it has a synonym for.
    pub(super) fn form(
        self,
        unit: &Unit,
        text: &str,
        listed: &[String],
        weights: &Weights,
        splitter: &WordSplitter,
        words_in: &dyn Fn(&str) -> HashSet<String>,
    ) -> f32 {
        let own = &text[unit.range.clone()];
        let flag = |is: bool| f32::from(u8::from(is));
        let above = || splitter.stems(&format!("{} {}", unit.headings.join(" "), &text[unit.head()]));
        // Any page has lists: the requested one has a word of the question above its items.
        let is_meant = || share(weights, &above(), &HashSet::new()) >= LEAST_MEANT;
        // Steps are no list of errors.
        let is_other = || {
            unit.kind == UnitKind::List { is_ordered: true }
                && listed.last().is_some_and(|noun| !above().contains(noun))
        };
        match self {
            Self::Steps => {
                // Any code of a program has some word of a question.
                let has_two =
                    || weights.len() < 3 || above().iter().filter(|stem| weights.contains_key(*stem)).count() > 1;
                // "For how to use the sample, see …" is no task.
                let is_pointed_to = || unit.sentences.last().is_some_and(|last| only_points(&last.plain));
                match () {
                    () if is_asked_above(self, unit, weights, splitter) => 1.0,
                    () if !is_meant() => 0.0,
                    () if is_ordered(unit, text) => 1.0,
                    () if unit.kind == UnitKind::Code && has_two() && !is_pointed_to() => CODE_OF_TASK,
                    () => 0.0,
                }
            }
            // A table of contents has the words of the question, but only points to the answer.
            Self::List => {
                let is_list = matches!(unit.kind, UnitKind::List { .. } | UnitKind::Table);
                let near = || format!("{} {}", unit.headings.last().map_or("", String::as_str), &text[unit.head()]);
                let is_announced = || {
                    let near = words_in(&near());
                    // "Structure name and type" announces no enclosure types.
                    let has_name = listed.iter().rev().skip(1).all(|word| near.contains(word));
                    has_name && share(weights, &near, &HashSet::new()) >= LEAST_MEANT
                };
                // "The bell has the following parts:" announces no bells.
                let announces_other = || {
                    let head = text[unit.head()].to_lowercase();
                    let noun = announced(&head).map(|noun| splitter.stem(noun));
                    noun.is_some_and(|noun| weights.contains_key(&noun) && !listed.contains(&noun))
                        && listed.last().is_some_and(|noun| !words_in(&near()).contains(noun))
                };
                let is_meant_list =
                    || is_list && is_meant() && !is_other() && !announces_other() && !lists_anchors(own);
                let is_said = || unit.sentences.iter().any(|own| lists(&own.plain, listed, weights, splitter));
                match () {
                    () if unit.kind == UnitKind::Paragraph && is_said() => 1.0,
                    () if !is_meant_list() => 0.0,
                    () if is_announced() => 1.0,
                    () => UNANNOUNCED,
                }
            }
            // The table or list that names all compared entities, or a sentence that contrasts them.
            Self::Comparison => {
                let has_all = |words: &HashSet<String>| weights.keys().all(|stem| words.contains(stem));
                let names_all = |text: &str| has_all(&splitter.stems(text));
                let contrasts = |said: &Sentence| contrasts(&said.plain) && names_all(&said.plain);
                let is_compared = match unit.kind {
                    UnitKind::Table => names_all(&compared_by(own)),
                    // "Reasons to choose oil, grease or wax:", or an item for each.
                    UnitKind::List { .. } => {
                        let is_of_one = |item: &Range<usize>| {
                            let words = splitter.stems(&text[item.clone()]);
                            weights.keys().any(|stem| words.contains(stem)) && !has_all(&words)
                        };
                        let has_each = || names_all(own) && unit.pieces.iter().all(is_of_one) && !lists_links(own);
                        names_all(&text[unit.head()]) || has_each()
                    }
                    UnitKind::Paragraph | UnitKind::Code | UnitKind::Callout => false,
                };
                flag(is_compared || unit.sentences.iter().any(contrasts))
            }
            Self::Definition => flag(unit.kind == UnitKind::Paragraph && defines(own, weights, splitter)),
            // "Only owners can open it."
            Self::Person => flag(unit.sentences.iter().any(|said| {
                let words = || share(weights, &splitter.stems(&said.plain), &HashSet::new());
                names_person(&said.plain) && has_word(&said.plain.to_lowercase(), MAY) && words() >= LEAST_MEANT
            })),
            Self::Overview | Self::Number | Self::Length | Self::Time | Self::Pace | Self::Other => 0.0,
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
    fn kind_of_thing_is_the_noun_after_which_or_what() {
        for (question, kind) in [
            ("Which architect built it?", Some("architect")),
            ("From what load size does it stop?", Some("load")),
            ("Which DrSearch function tells it?", Some("function")),
            ("What value do I give it?", None),
            ("Which GPUs support it?", Some("GPUs")),
            ("What is it, and which architect built it?", Some("architect")),
            ("What causes the leak?", None),
            ("What kind of lamp is it?", None),
            ("What is it?", None),
        ] {
            assert_eq!(kind_of_thing(question), kind, "{question}");
        }
        assert!(asks_what_happens_then("with pumps, what happens if i leave it out, and why?"));
        assert!(asks_what_to_do("what do i have to change?") && !asks_what_to_do("what do i need to bring?"));
    }

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
            (AnswerKind::Definition, ["What are prefix lists?", "What are `lamps`?", "What are oil lamp wicks?"]),
            (AnswerKind::List, ["What are the oil lamps?", "What are lamps for?", "What are best practices?"]),
            (AnswerKind::Other, ["Which lamp does a guard get?", "May a guard ring?", "Which process keeps the lock?"]),
            (AnswerKind::Other, ["If I list bells, do I get horns?", "May I list bells?", "Do they list bells?"]),
            (AnswerKind::Person, ["Who is allowed to ring?", "Who rings?", "Who may the guard call?"]),
            (AnswerKind::List, ["Give me a list of bells.", "Please list the bells.", "Can you list the bells?"]),
        ] {
            for question in questions {
                assert_eq!(AnswerKind::of(question), asked, "{question}");
            }
        }
        assert_eq!(AnswerKind::of("What does a red lamp mean for the guard?"), AnswerKind::Other);
    }
}
