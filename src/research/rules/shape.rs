//! Recognises comparisons and questions with several parts by their English wording, and plain comparisons in German,
//! Spanish and French.
//!
//! In doubt a question is plain: searching it whole finds less than searching its parts, but pieces of a question that
//! was cut in the wrong place find nothing.

use std::collections::HashSet;

use crate::base::everyday::is_everyday;
use crate::base::word::{WordSplitter, has_key_word};

/// Maximum number of parts of a question; one with more is plain, since a brief takes no more aspects.
const MAX_PARTS: usize = 8;

/// Maximum number of words in the name of an entity; a longer text is a clause.
const MAX_NAME_WORDS: usize = 6;

const QUESTION_WORDS: &str = "how what why when where who which whose whom";
const PREPOSITIONS: &str = "by on in at to for from with within until till since after before during";
const ORDER_WORDS: &str = "compare explain describe list summarise summarize outline discuss recommend evaluate";

/// Verbs that open a question for yes or no. Those of the first list may instead continue the clause before them: "what
/// has a lid and is the largest".
const AUXILIARIES: &str = "do does did is are was were has have";
const MODALS: &str = "can could may might must shall should will would";

/// Words that are the subject of a question, and words that begin one.
const SUBJECTS: &str = "i we you he she it they there";
const ARTICLES: &str = "a an the this that these those my our your his her its their any";

/// Openings of a question that depends on the answer to the one before it.
const DEPENDING: &str = "if not, |if so, |if yes, |if no, |if it does, |if it doesn't, |if not |if so ";

const COURTESY: &str = "also |and |then |please |can you |could you |i want to |give me ";

/// Verbs at the end of a clause that asks for advice on the clause before it.
const SUGGESTING: &str = "advise advised recommend recommended recommends say says suggest suggested suggests think";

/// Words that ask for a value and name no topic.
const UNITS: &str = "day days week weeks month months year years hour hours minute minutes date dates time times number \
    amount long wide heavy big large high deep fast old";

/// Words that refer to entities named before.
const BACK_WORDS: &str = "it they them these those each either one ones both which";

/// Words that stand for something named before.
const PRONOUNS: &str = "it its they their them each ones other";

/// Words that compare with something named before: "packets that are bigger".
const COMPARATIVES: &str = "bigger larger smaller longer shorter higher lower faster slower older newer earlier later cheaper \
    more less fewer";

/// Words between the entities of a comparison.
const SEPARATORS: &str = ", and |, or |, | and | or | & | vs | versus | compared to | compared with | compare to \
    | compare with | differ from | different from | with | to | against ";

/// Openings of a comparison in German, Spanish and French, words between its entities, and articles before them.
const OTHER_OPENINGS: &str = "was ist der unterschied zwischen |unterschied zwischen |unterschiede zwischen |vergleiche \
    |qué diferencia hay entre |cuál es la diferencia entre |diferencia entre |diferencias entre |compara |comparar \
    |quelle est la différence entre |différence entre |différences entre |comparer ";
const OTHER_SEPARATORS: &str = " und | y | e | et ";
const OTHER_ARTICLES: &str = "el |la |los |las |un |una |le |les |une |der |die |das |dem |den ";

/// Beginnings of a clause after the entities of a comparison.
const CLAUSES: &str = "; |? |. | — | – | - |, what|, how |, which |, and which | and when | and how | and what | and why \
    |: what|: how|: which ";

/// Words that introduce the criteria of a comparison.
const TOPICS: &str = " for | in terms of | regarding | with respect to | when | in | on | as to ";

/// A part of a question that is searched separately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QuestionPart {
    /// The part in the user's words.
    pub(super) aspect: String,
    /// The same with what it refers to.
    pub(super) question: String,
}

/// The parts of a question: empty for a plain one, the entities for a comparison. Only the first if the second needs no search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) parts: Vec<QuestionPart>,
    pub(super) is_comparison: bool,
}

impl Shape {
    pub(super) fn of(question: &str, splitter: &WordSplitter) -> Self {
        let mask = mask(question);
        let parts = parts(MaskedText { text: question, mask: &mask });
        // “Which of them is cheaper?” belongs to the comparison before it.
        let is_one = parts[1..].iter().all(|part| part.words().any(|word| is_in(word, BACK_WORDS)));
        let compared = comparison(parts[0]).filter(|_| is_one);
        // The text that lists several things usually describes each.
        if let ([first, second], None) = (parts.as_slice(), &compared)
            && asks_of_each(*second, splitter)
        {
            return Self { parts: with_topic(&[*first], splitter), is_comparison: false };
        }
        let is_comparison = compared.is_some();
        let parts = compared.unwrap_or_else(|| with_topic(&parts, splitter));
        if (2..=MAX_PARTS).contains(&parts.len()) { Self { parts, is_comparison } } else { Self::default() }
    }
}

/// A substring of a question, and the same bytes masked.
#[derive(Clone, Copy, Debug)]
struct MaskedText<'a> {
    text: &'a str,
    mask: &'a str,
}

impl<'a> MaskedText<'a> {
    fn slice(self, from: usize, to: usize) -> Self {
        Self { text: &self.text[from..to], mask: &self.mask[from..to] }
    }

    fn trim(self) -> Self {
        let is_edge = |letter: char| letter.is_whitespace() || ",.;:?!¿¡–—-".contains(letter);
        let start = self.mask.len() - self.mask.trim_start_matches(is_edge).len();
        self.slice(start, self.mask.trim_end_matches(is_edge).len().max(start))
    }

    fn strip(self, prefixes: &str) -> Option<Self> {
        let prefix = prefixes.split('|').find(|prefix| self.mask.starts_with(prefix))?;
        Some(self.slice(prefix.len(), self.text.len()))
    }

    fn strip_all(self, prefixes: &str) -> Self {
        let span = self.trim();
        span.strip(prefixes).map_or(span, |rest| rest.strip_all(prefixes))
    }

    /// Splits at the pattern that comes first; of two at the same place, at the longer one.
    fn split_once(self, patterns: &str) -> Option<(Self, Self)> {
        let found = patterns.split('|').filter_map(|pattern| Some((self.mask.find(pattern)?, pattern.len())));
        let (at, length) = found.min_by_key(|(at, length)| (*at, std::cmp::Reverse(*length)))?;
        Some((self.slice(0, at), self.slice(at + length, self.text.len())))
    }

    fn split(self, patterns: &str) -> Vec<Self> {
        let mut parts = vec![self];
        while let Some((part, rest)) = parts.last().and_then(|last| last.split_once(patterns)) {
            parts.pop();
            parts.extend([part, rest]);
        }
        parts
    }

    fn words(self) -> impl Iterator<Item = &'a str> {
        self.mask.split(|letter: char| !letter.is_alphanumeric() && letter != '\'').filter(|word| !word.is_empty())
    }

    fn starts_with(self, words: &str) -> bool {
        // Without a verb that is joined to it: "what's".
        self.words().next().and_then(|word| word.split('\'').next()).is_some_and(|word| is_in(word, words))
    }

    fn asks(self) -> bool {
        let mut words = self.words();
        let opening = words.next().filter(|word| is_in(word, PREPOSITIONS)).and(words.next());
        // "By when", "within what time".
        opening.is_some_and(|word| is_in(word, QUESTION_WORDS))
            || self.starts_with(QUESTION_WORDS) && !self.states_when()
            || self.starts_with(ORDER_WORDS)
    }

    /// Returns whether a clause with "when" states a condition: "when a guard rings the bell". A question has its verb
    /// next.
    fn states_when(self) -> bool {
        let mut words = self.words();
        let is_verb = |word: &str| {
            is_in(word, AUXILIARIES) || is_in(word, MODALS) || is_in(word, "exactly to") || word.contains('\'')
        };
        words.next() == Some("when") && words.next().is_some_and(|next| !is_verb(next)) && words.next().is_some()
    }

    /// Returns whether a clause after `joint` asks for yes or no: "do I need it", "can the lamp be lit".
    fn asks_yes_or_no(self, joint: &str) -> bool {
        let mut words = self.words();
        let (verb, subject) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let is_clear = joint.starts_with(',') || is_in(verb, MODALS);
        (is_in(verb, AUXILIARIES) || is_in(verb, MODALS))
            && (is_in(subject, SUBJECTS) || (is_clear && is_in(subject, ARTICLES)))
    }
}

/// Returns `text` in lower case with quotes, code and brackets as one word each; every byte keeps its place.
pub(super) fn mask(text: &str) -> String {
    // ASCII only: other letters may change their length in lower case, and offsets must stay those of the text.
    let mut mask = text.to_ascii_lowercase();
    for (open, close) in [('`', '`'), ('"', '"'), ('“', '”'), ('(', ')')] {
        let mut from = 0;
        while let Some(start) = mask[from..].find(open).map(|at| from + at) {
            let inside = start + open.len_utf8();
            let Some(length) = mask[inside..].find(close) else { break };
            from = inside + length + close.len_utf8();
            mask.replace_range(start..from, &"x".repeat(from - start));
        }
    }
    // The period of an abbreviation does not end a sentence.
    mask.replace(" vs. ", " vs  ")
}

/// Splits a question into the sentences and clauses that ask something; never empty.
fn parts<'a>(span: MaskedText<'a>) -> Vec<MaskedText<'a>> {
    let opening = |part: MaskedText<'a>| {
        // The number of a list item: “2. What is borrowing?”
        let item = part.trim().split_once(". |) ");
        let item = item.filter(|(number, _)| number.text.chars().all(|letter| letter.is_ascii_digit()));
        item.map_or(part, |(_, rest)| rest).strip_all(COURTESY)
    };
    let sentences = span.split("?|;").into_iter().map(opening);
    let sentences: Vec<_> = sentences.filter(|sentence| has_key_word(sentence.text)).collect();
    // A remark among the sentences could belong to any of them.
    match sentences.as_slice() {
        [sentence] => clauses(*sentence),
        [_, ..] if sentences.iter().all(|sentence| sentence.asks()) => {
            sentences.into_iter().flat_map(clauses).collect()
        }
        _ => vec![span.strip_all(COURTESY)],
    }
}

/// Splits “how does X work, and what are its limits” where the second question begins.
fn clauses(span: MaskedText<'_>) -> Vec<MaskedText<'_>> {
    let is_whole = |part: MaskedText<'_>| {
        let last = part.words().last().unwrap_or_default();
        // Two words, as in "when async", share the verb of the other half.
        part.words().count() > 2 && !is_in(last, QUESTION_WORDS) && has_key_word(part.text)
    };
    let asks = |part: MaskedText<'_>, joint: &str| part.asks() || (joint == ", and " && part.asks_yes_or_no(joint));
    let halves = |(at, joint): (usize, &'static str)| {
        let (left, right) = (span.slice(0, at).strip_all(COURTESY), span.slice(at + joint.len(), span.text.len()));
        let depending = right.strip(DEPENDING);
        let right = depending.unwrap_or(right);
        // After a comma alone, “which” and “where” mostly start a relative clause. “What do you suggest” adds nothing.
        let suggests = right.words().last().is_some_and(|word| is_in(word, SUGGESTING));
        let is_new = !suggests && (joint != ", " || right.starts_with("how what why"));
        // In "how do I check whether X is on and is it red", both clauses are checked.
        let is_open = joint != ", " && !left.words().any(|word| word == "whether");
        let is_question = right.asks() || (is_open && right.asks_yes_or_no(joint));
        // "Does X have Y, and if so, …"
        let asks_first = || {
            asks(left, joint) || (depending.is_some() && (left.starts_with(AUXILIARIES) || left.starts_with(MODALS)))
        };
        (is_new && asks_first() && is_question && is_whole(left) && is_whole(right)).then_some((at, left, right))
    };
    // At the same place the first one wins, so the longer one comes first.
    let joints = [", and ", " and ", ", "];
    let found = joints.iter().flat_map(|joint| span.mask.match_indices(*joint).map(|(at, _)| (at, *joint)));
    match found.filter_map(halves).min_by_key(|(at, ..)| *at) {
        Some((_, left, right)) => std::iter::once(left).chain(clauses(right.trim())).collect(),
        None => vec![span],
    }
}

/// Appends the key words of the first part to each part that refers to them.
fn with_topic(parts: &[MaskedText<'_>], splitter: &WordSplitter) -> Vec<QuestionPart> {
    const GENERIC: &str = "work works happen happens mean means";
    let first = splitter.without_stop_words(parts[0].text);
    let known = splitter.stems(&first);
    let topic = first.split(' ').filter(|word| !is_in(word, GENERIC)).collect::<Vec<_>>().join(" ");
    let whole = |(place, part): (usize, &MaskedText<'_>)| {
        let mut letters = part.text.chars();
        let start = letters.next().into_iter().flat_map(char::to_uppercase);
        let aspect: String = start.chain(letters).collect();
        let mark = if part.starts_with(ORDER_WORDS) { "" } else { "?" };
        let is_open = place > 0 && refers_back(*part, &known, splitter);
        let about = if is_open { format!(" ({topic})") } else { String::new() };
        QuestionPart { question: format!("{aspect}{about}{mark}"), aspect }
    };
    parts.iter().enumerate().map(whole).collect()
}

/// Returns whether a part is about something named earlier: “its limits”, “the costs”, “when do I tell my manager”, or
/// only about a word of the first part, whose stems are `known`.
fn refers_back(part: MaskedText<'_>, known: &HashSet<String>, splitter: &WordSplitter) -> bool {
    let words: Vec<_> = part.words().collect();
    let pronoun = words.iter().position(|word| is_in(word, PRONOUNS) || is_in(word, COMPARATIVES));
    // "How do I raise that limit?" In "messages that are large", more words follow.
    let demonstrative = words.len().checked_sub(2).filter(|at| is_in(words[*at], "this that these those"));
    let one = words.windows(2).position(|pair| *pair == ["which", "one"]);
    let pronoun = pronoun.or(demonstrative).or(one);
    let own = splitter.without_stop_words(part.text);
    let names = |word: &&str| {
        let lower = word.to_lowercase();
        !word.is_empty() && !is_in(&lower, UNITS) && !is_everyday(&lower)
    };
    let own: Vec<_> = own.split(' ').filter(names).collect();
    let count = own.len();
    let is_known = matches!(own.as_slice(), [word] if known.contains(&splitter.stem(word)));
    let is_personal = words.iter().any(|word| is_in(word, "my our your")) && count <= 2;
    // "Do I need a licence?"
    let is_bare = part.asks_yes_or_no(",") && (count <= 1 || splitter.subject_stems(part.text).len() <= 1);
    let is_general =
        words.iter().any(|word| is_in(word, "the i we you")) && count == 1 || is_personal || is_known || is_bare;
    // "How many when I use the other one" omits the counted noun.
    let leaves_out = |rest: &[&str]| rest.first().is_some_and(|word| is_in(word, "when if in on by at from"));
    let is_elliptical = matches!(words.as_slice(), ["how", "many" | "much", rest @ ..] if leaves_out(rest));
    // A pronoun after a name in the same part refers to that name.
    let before = part.text.split_whitespace().take(pronoun.unwrap_or(words.len())).skip(1);
    let has_name = before.filter(|word| *word != "I").any(is_name_like);
    is_elliptical || !has_name && (pronoun.is_some() || is_general || count == 0)
}

/// Returns whether a part asks only for a description of each thing named before: "what does each one do".
fn asks_of_each(part: MaskedText<'_>, splitter: &WordSplitter) -> bool {
    let own = splitter.without_stop_words(part.text);
    part.words().any(|word| word == "each") && own.split(' ').filter(|word| !is_in(word, BACK_WORDS)).count() <= 1
}

/// Parses the entities that a question compares.
fn comparison(span: MaskedText<'_>) -> Option<Vec<QuestionPart>> {
    if let Some(list) = span.trim().strip(OTHER_OPENINGS) {
        let entity = |entity: MaskedText<'_>| {
            let aspect = name(entity.strip_all(OTHER_ARTICLES))?.to_owned();
            Some(QuestionPart { question: aspect.clone(), aspect })
        };
        let entities = list.trim().split(OTHER_SEPARATORS).into_iter().map(entity).collect::<Option<Vec<_>>>()?;
        // Of more than two, one may be a separate clause, which these patterns cannot tell.
        return (entities.len() == 2).then_some(entities);
    }
    // “A or B: what is different?”
    if let Some((list, asked)) = span.split_once(": ").filter(|(list, _)| list.mask.contains(" or ")) {
        return if asked.mask.contains("differ") { listed(list, "", "") } else { None };
    }
    let span = span.strip_all("what is |what's |what’s |whats |what are |what about |the ");
    if let Some(list) = span.strip("compare |compare and contrast |comparison of |comparison between ") {
        let of = list.strip("the ").and_then(|list| list.split_once(" of "));
        return match of.filter(|(topic, _)| topic.words().count() <= 3 && !topic.mask.contains(" and ")) {
            Some((topic, list)) => listed(list, topic.text, ""),
            None => listed(list, "", ""),
        };
    }
    if let Some(list) = span.strip("difference between |differences between ") {
        return listed(list, "", "");
    }
    if let Some(list) = span.strip("pros and cons of |advantages and disadvantages of ") {
        return listed(list, "pros and cons", "");
    }
    // “Which is better for queues, A or B?”, “should we use A or B?”
    let which = span.strip("which ").and_then(|rest| rest.split_once(", |: "));
    let topic = which.and_then(|(asked, _)| asked.split_once(" for ")).map(|(_, topic)| format!("for {}", topic.text));
    let choice = which.map(|(_, list)| list).or_else(|| span.strip("should we use |should i use "));
    if let Some(list) = choice.filter(|list| list.mask.contains(" or ")) {
        return listed(list, "", &topic.unwrap_or_default());
    }
    if let Some(rest) = span.strip("how does |how do |how is |how are ") {
        let (things, end) = rest.split_once(" differ| different| compare")?;
        return match end.words().next() {
            None => listed(things, "", ""),
            Some("in" | "for" | "when") => listed(things, "", end.text.trim()),
            Some("to" | "with" | "from") => listed(rest, "", ""),
            Some(_) => None,
        };
    }
    span.split_once(" vs | versus ").and_then(|_| listed(span, "", ""))
}

/// Splits a list of entities, and the criteria that may follow it. Each part is a name with the criterion, in the
/// user's words: `Leeds: offices`, `Vec for queues`.
fn listed(list: MaskedText<'_>, criterion: &str, condition: &str) -> Option<Vec<QuestionPart>> {
    let list = list.split_once(CLAUSES).map_or(list, |(list, _)| list).trim();
    let entities = list.split_once(TOPICS).map_or(list, |(entities, _)| entities);
    let own = list.slice(entities.text.len(), list.text.len()).trim();
    let own_criterion = own.strip("as to ").map_or("", |criterion| criterion.text);
    let own_condition = if own_criterion.is_empty() { own.text } else { "" };
    let mut names = entities.split(SEPARATORS).into_iter().map(name).collect::<Option<Vec<_>>>()?;
    names = paired(&names, entities).unwrap_or(names);
    let typed = format!(" {}", list.text);
    let whole = with_shared_noun(&names);
    if let Some(whole) = &whole {
        names[0] = whole;
    }
    let variant = variant(&names, &typed);
    let shared = if variant.is_none() { shared_ending(&mut names).unwrap_or_default() } else { "" };
    let said = |texts: &[&str], between| {
        texts.iter().copied().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(between)
    };
    let criteria = said(&[criterion, own_criterion], ", ");
    let conditions = said(&[condition, own_condition], " ");
    let is_place = conditions.starts_with("in ") && !conditions.starts_with("in terms ");
    let is_new = |(at, name): (usize, &&str)| !names[..at].iter().any(|other| other.eq_ignore_ascii_case(name));
    let part = |name: &&str| {
        let aspect = said(&[&said(&[&said(&[name, shared], " "), &criteria], ": "), &conditions], " ");
        // Without a criterion, entities are told apart by their definitions. A variant is seldom defined.
        let is_plain = criteria.is_empty() && (conditions.is_empty() || is_place) && variant.is_none();
        let verb = if name.ends_with('s') && !name.ends_with("ss") { "are" } else { "is" };
        // As typed: the notes define "a query", not "query". Of two with one noun, "a shared and an exclusive lock", the
        // first has its article before the adjective.
        let first = name.split(' ').next().unwrap_or_default();
        let article = ["a ", "an "].into_iter().find(|article| typed.contains(&format!(" {article}{first}")));
        let article = article.unwrap_or_default();
        let question = match variant {
            _ if is_plain => format!("What {verb} {article}{aspect}?"),
            Some((own, other)) if own == *name => format!("{aspect} ({other})"),
            _ => aspect.clone(),
        };
        QuestionPart { aspect, question }
    };
    (names.len() > 1 && names.iter().enumerate().all(is_new)).then(|| names.iter().map(part).collect())
}

/// Returns two names that have "and" in them: "stop and wait and stop and abandon". A word that occurs twice shows that
/// there are not four.
fn paired<'a>(names: &[&str], entities: MaskedText<'a>) -> Option<Vec<&'a str>> {
    const JOINT: &str = " and ";
    let joints: Vec<_> = entities.mask.match_indices(JOINT).map(|(at, _)| at).collect();
    let ([first, second, third, fourth], [_, middle, _]) = (names, joints.as_slice()) else { return None };
    let halves = [entities.slice(0, *middle), entities.slice(middle + JOINT.len(), entities.text.len())];
    let is_twice = first.eq_ignore_ascii_case(third) || second.eq_ignore_ascii_case(fourth);
    halves.into_iter().filter(|_| is_twice).map(name).collect::<Option<Vec<_>>>().filter(|names| !names.is_empty())
}

/// Returns the one of two names that stands for a variant of the other, and the other: "the EX version" after "Eval".
fn variant<'a>(names: &[&'a str], typed: &str) -> Option<(&'a str, &'a str)> {
    const KINDS: &str = "version variant form mode";
    let [first, second] = *names else { return None };
    let has = |article: &str, name: &str| typed.contains(&format!(" {article} {name}"));
    let last = |name: &str| name.rsplit(' ').next().map(str::to_lowercase).unwrap_or_default();
    let is_variant = |&(own, other): &(&str, &str)| {
        let kind = last(own);
        let is_own = match kind.as_str() {
            // Not "phase one".
            "one" => ["the", "a", "an"].into_iter().any(|article| has(article, own)),
            // In "the Windows and the Linux version" and "Windows and Linux version", both have the noun.
            _ => is_in(&kind, KINDS) && has("the", own) && !has("the", other),
        };
        is_own && own.contains(' ') && last(other) != kind
    };
    [(second, first), (first, second)].into_iter().find(is_variant)
}

/// Removes the ending shared by all names from the last one: “Rust and Go performance”.
fn shared_ending<'a>(names: &mut [&'a str]) -> Option<&'a str> {
    let (last, others) = names.split_last_mut()?;
    let (name, ending) = last.split_once(' ')?;
    let are_names = others.iter().flat_map(|other| other.split(' ')).chain([name]).all(is_name_like);
    let is_shared = are_names && !name.starts_with(['`', '"', '“']) && !ending.split(' ').any(is_name_like);
    is_shared.then(|| {
        *last = name;
        ending
    })
}

/// Returns the first of two names with the noun of the other: "a shared and an exclusive lock".
fn with_shared_noun(names: &[&str]) -> Option<String> {
    const ADJECTIVES: &str = "shared exclusive public private internal external static dynamic weak strong soft hard \
        shallow deep minor major primary secondary mutable immutable synchronous asynchronous direct indirect implicit \
        explicit local global weekly monthly active inactive inbound outbound incoming outgoing master member standard \
        enhanced basic advanced upstream downstream online offline temporary permanent";
    // "Read-only", "critical", and participles: "reserved and provisioned concurrency".
    const ENDINGS: [&str; 4] = ["-only", "ed", "ical", "ous"];
    let [first, second] = names else { return None };
    let (_, noun) = second.rsplit_once(' ')?;
    let lower = first.to_lowercase();
    let is_listed = is_in(&lower, ADJECTIVES);
    let is_adjective = is_listed || (!lower.contains(' ') && ENDINGS.iter().any(|ending| lower.ends_with(ending)));
    // The first word of a question has a capital in any case.
    let is_name = is_name_like(first.trim_start_matches(char::is_uppercase)) || (is_name_like(noun) && !is_listed);
    (is_adjective && !is_name).then(|| format!("{first} {noun}"))
}

fn name(span: MaskedText<'_>) -> Option<&str> {
    const NO_NAMES: &str = "it them they these those this that others other us we you i both two all";
    let span = span.strip_all("the |a |an |both |either |between |and |or |using ");
    let is_name = (1..=MAX_NAME_WORDS).contains(&span.text.split_whitespace().count())
        && span.text.chars().any(char::is_alphanumeric)
        && !span.asks()
        && !span.starts_with("one ones")
        && !span.words().all(|word| is_in(word, NO_NAMES));
    is_name.then_some(span.text)
}

fn is_in(word: &str, list: &str) -> bool {
    list.split(' ').any(|listed| listed == word)
}

/// Returns whether a word looks like a name: a capital, a digit, or code.
fn is_name_like(word: &str) -> bool {
    word.contains(|letter: char| letter.is_uppercase() || letter.is_numeric() || "`\"“_".contains(letter))
}
