//! English near-synonyms: a question rarely uses the words of a manual.
//!
//! Only everyday words, clipped forms such as *repo*, and a few words of any manual, such as *function* and *method*.
//! Other technical terms are left to the embedder, which reads them in context.

use std::cell::LazyCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::LazyLock;

use super::language::Language;
use super::word::{Word, WordSplitter};

/// Groups of interchangeable words. A word of two meanings is in two groups, so synonyms of synonyms do not count:
/// "quit" is "exit" or "resign", and "exit" is not "resign".
const GROUPS: [&str; 165] = [
    "delete remove erase terminate destroy discard",
    "wipe clear erase delete",
    "disable deactivate suspend",
    "enable activate",
    "stop halt end terminate pause",
    "start begin launch boot",
    "restart reboot",
    "buy purchase",
    "cost price fee charge pricing",
    "pay charge bill",
    "salary wage compensation",
    "reimburse refund",
    "change modify edit alter update adjust",
    "increase grow enlarge expand scale",
    "decrease reduce lower shrink",
    "big bigger large larger",
    "biggest largest greatest maximum",
    "longest maximum",
    "highest maximum",
    "smallest lowest least minimum",
    "small smaller little",
    "fast faster quick speed",
    "fix repair resolve solve solution",
    "broken corrupt damaged",
    "choose select pick",
    "show display print",
    "hide conceal",
    "find locate discover search",
    "send transmit deliver submit",
    "allow permit",
    "forbid forbidden prohibit disallow",
    "prevent protect protection avoid",
    "reject refuse deny decline",
    "keep retain preserve",
    "lose lost loss",
    "replace substitute swap exchange",
    "copy duplicate clone",
    "move migrate transfer",
    "join merge combine",
    "split divide",
    "connect attach",
    "disconnect detach",
    "limit maximum quota cap threshold",
    "need require necessary forced mandatory",
    "permission privilege",
    "login username",
    "tag label",
    "server host machine computer",
    "disk drive volume",
    "folder directory",
    "picture image photo",
    "employee staff worker teammate colleague coworker",
    "boss manager supervisor",
    "customer client",
    "holiday vacation",
    "sick ill illness",
    "car vehicle",
    "job occupation profession",
    "appoint designate assign nominate",
    "won winner win victory",
    "died deaths killed fatalities casualties",
    "fail failure unsuccessful",
    "hurt injured injury",
    "build construct create make",
    "make create generate produce",
    "founded established",
    "test check verify validate try",
    "fake sample dummy mock",
    "alert notification alarm warning",
    "tell notify inform warn",
    "answer reply respond response",
    "help assist support",
    "use utilize",
    "run execute invoke",
    "trigger invoke",
    "wait pause delay",
    "cause reason",
    "result outcome",
    "part component",
    "kind type category",
    "step procedure",
    "rule policy guideline",
    "danger risk hazard",
    "secret private confidential",
    "free gratis complimentary",
    "close closed shut",
    "refurbishment renovation refurbish renovate renovations",
    "ban disqualify expel",
    "percentage percent",
    "exit quit",
    "quit resign leave",
    "press push",
    "screen monitor display",
    "watch monitor observe",
    "external outside",
    "internal inside",
    "acquire obtain",
    "talk communicate speak",
    "expose export",
    "furnish furniture",
    "drain discharge deplete",
    "link url",
    "throttle throttled limited",
    "undo undone revert rollback reverse reversible irreversible",
    "parallel simultaneous simultaneously concurrent concurrently",
    "older previous earlier",
    "newer newest recent later latest current",
    "cancel revoke",
    "expire lapse",
    "restore recover recovery",
    "upgrade update bump",
    "uninstall remove",
    "bonus incentive reward payout",
    "phone telephone",
    "website site",
    "retry repeat",
    "attempt try",
    "skip ignore omit",
    "put insert",
    "empty blank",
    "mistake accident accidental accidentally",
    "guess estimate",
    "happen occur",
    "provide offer supply ship",
    "function method routine",
    "parameter argument flag",
    "movie film",
    "shoot film filmed",
    "plane aircraft airplane airliner",
    "fly flight flown flew",
    "vacation pto",
    "password secret credential credentials",
    "debug debugging debugger",
    "approve approval authorize",
    "laptop computer",
    "mandatory obligatory compulsory required",
    "email mail",
    "doctor physician",
    "lawyer attorney",
    "road street highway",
    "attack assault",
    "law legislation",
    "firm company business",
    "kid child children",
    "pupil student",
    "tech technology technical",
    "admin administrator administrators administrative",
    "app application",
    "auth authentication",
    "config configuration",
    "db database",
    "dev development",
    "docs documentation",
    "env environment",
    "info information",
    "kubernetes k8s",
    "memory ram",
    "present gift",
    "prod production",
    "repo repository",
    "specs specification specifications",
    "stats statistics",
    "oldest earliest minimum",
    "rely depend",
    "idle inactive inactivity",
];

/// Verbs with a particle, and their synonyms.
const PHRASES: [(&str, &str, &str); 48] = [
    ("sign", "off", "approve approval"),
    ("power", "down", "suspend idle"),
    ("keep", "from", "prevent avoid"),
    ("pile", "up", "queue accumulate"),
    ("back", "up", "backup"),
    ("turn", "off", "disable deactivate stop suspend"),
    ("switch", "off", "disable stop"),
    ("shut", "down", "stop"),
    ("turn", "on", "enable activate"),
    ("switch", "on", "enable activate"),
    ("take", "over", "replace succeed"),
    ("took", "over", "replaced succeeded"),
    ("get", "rid", "delete remove uninstall"),
    ("get", "out", "cancel leave"),
    ("get", "back", "recover restore"),
    ("kick", "out", "disqualify ban expel"),
    ("kicked", "out", "disqualified banned expelled"),
    ("let", "go", "release close"),
    ("give", "back", "return release"),
    ("log", "in", "login"),
    ("sign", "in", "login"),
    ("set", "up", "configure install"),
    ("hook", "up", "attach connect"),
    ("plug", "in", "attach connect"),
    ("try", "out", "test"),
    ("look", "up", "find search"),
    ("go", "up", "increase"),
    ("go", "down", "decrease"),
    ("change", "name", "rename"),
    ("command", "line", "cli terminal shell"),
    ("same", "time", "parallel simultaneously concurrently"),
    ("hand", "in", "submit"),
    ("put", "off", "postpone delay"),
    ("fill", "in", "complete"),
    ("kick", "off", "terminate disconnect kill"),
    ("stop", "from", "prevent avoid"),
    ("by", "itself", "automatic automatically"),
    ("by", "themselves", "automatic automatically"),
    ("security", "hole", "vulnerability vulnerable"),
    ("no", "matter", "regardless always never"),
    ("no", "internet", "offline network"),
    ("lock", "down", "restrict restricted"),
    ("give", "up", "timeout abandon stop"),
    ("blow", "up", "fail error crash"),
    ("blow", "past", "exceed reach"),
    ("many", "allowed", "limit quota maximum"),
    ("many", "can", "limit quota maximum"),
    ("many", "may", "limit quota maximum"),
];

/// Words of one direction, and those of the other.
const OPPOSITES: [(&str, &str); 14] = [
    ("enable activate", "disable deactivate"),
    ("start begin resume", "stop halt pause"),
    ("include", "exclude omit"),
    ("allow permit", "deny forbid disallow prohibit block prevent"),
    ("add attach", "remove detach delete"),
    ("create", "delete"),
    ("install", "uninstall"),
    ("lock", "unlock"),
    ("mount", "unmount"),
    ("increase", "decrease reduce"),
    ("encrypt", "decrypt"),
    ("upgrade", "downgrade"),
    ("import", "export"),
    ("upload", "download"),
];

/// Maximum number of words between a verb and its particle: "turn the alarm off". "In" and "up" must follow it
/// directly.
const BETWEEN: usize = 3;

/// Maximum number of words from "how many" to the verb of a question about a limit: "how many groups am I allowed to
/// have".
const LIMITED_WITHIN: usize = 6;

/// Maximum number of final letters in which a form may differ from its word: "deleting". "Organic" is not a form of
/// "organize".
const ENDING: usize = 3;

/// Endings that make a word of another meaning with the same stem: a "terminal" terminates nothing, and an "executive"
/// executes nothing.
const STRANGE: [&str; 8] = ["l", "ls", "ive", "ives", "ity", "ities", "ate", "ates"];

/// The groups by the stem of each of their words, with that word.
static BY_STEM: LazyLock<HashMap<String, Vec<(&str, &str)>>> = LazyLock::new(|| {
    let splitter = WordSplitter::default();
    let mut by_stem: HashMap<String, Vec<_>> = HashMap::new();
    for group in GROUPS {
        for word in group.split(' ') {
            by_stem.entry(splitter.stem(word)).or_default().push((word, group));
        }
    }
    by_stem
});

/// The stems of a question that have synonyms, each with its synonyms and their stems.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Related(Vec<(String, BTreeSet<Synonym>)>);

/// The stem of a word, and the word.
type Synonym = (String, &'static str);

/// The stems of the directions that a question names, such as those for "disable", and of the opposite ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Directions(Vec<[HashSet<String>; 2]>);

impl Directions {
    /// Returns the directions of a question in English, given its stems. A question that names both
    /// directions of a pair counts as naming neither.
    pub(crate) fn of(stems: &[String], related: &Related, splitter: &WordSplitter) -> Self {
        let side = |words: &str| words.split(' ').map(|word| splitter.stem(word)).collect::<HashSet<_>>();
        let named: HashSet<&str> = stems.iter().map(String::as_str).chain(related.others()).collect();
        let is_named = |side: &HashSet<String>| side.iter().any(|stem| named.contains(stem.as_str()));
        let pairs = OPPOSITES.iter().map(|(one, other)| [side(one), side(other)]);
        let own_first = pairs.filter_map(|[one, other]| match (is_named(&one), is_named(&other)) {
            (true, false) => Some([one, other]),
            (false, true) => Some([other, one]),
            (true, true) | (false, false) => None,
        });
        Self(own_first.collect())
    }

    /// Returns whether a text, given its stems, names only the opposite direction.
    pub(crate) fn are_opposed_by(&self, stems: &HashSet<String>) -> bool {
        self.0.iter().any(|[own, opposite]| !opposite.is_disjoint(stems) && own.is_disjoint(stems))
    }
}

impl Related {
    /// Returns the synonyms of a question's words. Only English has any.
    pub(crate) fn of(question: &str, language: Option<&Language>) -> Self {
        // A question is often too short to tell its language, and most of those are in English.
        if language.is_none_or(Language::is_english) { Self(related(question)) } else { Self::default() }
    }

    /// Returns the stems of all synonyms, without duplicates.
    pub(crate) fn others(&self) -> BTreeSet<&str> {
        self.0.iter().flat_map(|(_, others)| others).map(|(stem, _)| stem.as_str()).collect()
    }

    /// Adds the stems of the question that have a synonym in a text, whose stems are `found`.
    pub(crate) fn add_to(&self, found: &mut HashSet<String>, text: &str) {
        let splitter = WordSplitter::default();
        // Split only if a stem matches: few texts have a synonym.
        let words = LazyCell::new(|| splitter.words(text));
        let is_written = |(stem, other): &Synonym| {
            let mut written = words.iter().filter(|word| word.stem == *stem);
            written.any(|word| is_same(&text[word.range.clone()].to_lowercase(), other))
        };
        let is_meant =
            |others: &BTreeSet<Synonym>| others.iter().any(|other| found.contains(&other.0) && is_written(other));
        let meant: Vec<_> =
            self.0.iter().filter(|(_, others)| is_meant(others)).map(|(stem, _)| stem.clone()).collect();
        found.extend(meant);
    }
}

fn related(question: &str) -> Vec<(String, BTreeSet<Synonym>)> {
    let splitter = WordSplitter::default();
    let words = splitter.words(question);
    let written: Vec<_> = words.iter().map(|word| question[word.range.clone()].to_lowercase()).collect();
    let of_phrase = |at: usize| {
        let reach = |verb: &str, particle: &str| match (verb, particle) {
            ("many", _) => LIMITED_WITHIN,
            // Further away it is a preposition: "which log level is used in …" does not ask about a login.
            (_, "in" | "up") => 1,
            _ => BETWEEN,
        };
        let has = |verb: &str, particle: &str| {
            written[at + 1..].iter().take(reach(verb, particle)).any(|word| word == particle)
        };
        let here =
            PHRASES.iter().filter(|(verb, particle, _)| splitter.stem(verb) == words[at].stem && has(verb, particle));
        here.flat_map(|(_, _, others)| others.split(' ')).collect::<Vec<_>>()
    };
    let of_word = |(at, word): (usize, &Word)| {
        // Words with different meanings may share a stem.
        let groups = BY_STEM.get(&word.stem).into_iter().flatten().filter(|(own, _)| is_form(&written[at], own));
        let group = groups.flat_map(|(_, group)| group.split(' '));
        let mut others: BTreeSet<_> = group.chain(of_phrase(at)).map(|other| (splitter.stem(other), other)).collect();
        others.retain(|(stem, _)| *stem != word.stem);
        (!others.is_empty()).then(|| (word.stem.clone(), others))
    };
    words.iter().enumerate().filter_map(of_word).collect()
}

/// Returns whether two words differ only in a few letters at the end.
fn is_form(written: &str, word: &str) -> bool {
    endings(written, word).iter().all(|ending| ending.chars().count() <= ENDING) && is_same(written, word)
}

/// Returns whether two words of one stem have one meaning.
fn is_same(written: &str, word: &str) -> bool {
    endings(written, word).iter().all(|ending| !STRANGE.contains(ending))
}

/// Returns what is left of two words without the letters that both begin with.
fn endings<'a>(one: &'a str, other: &'a str) -> [&'a str; 2] {
    let common: usize =
        one.chars().zip(other.chars()).take_while(|(a, b)| a == b).map(|(letter, _)| letter.len_utf8()).sum();
    [&one[common..], &other[common..]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_on_the_opposite_alone_opposes_a_direction() {
        let splitter = WordSplitter::default();
        let opposes = |question: &str, text: &str| {
            let stems: Vec<_> = splitter.key_stems(question);
            let directions = Directions::of(&stems, &Related::of(question, None), &splitter);
            directions.are_opposed_by(&splitter.stems(text))
        };
        assert!(opposes("How do I turn the alarm off?", "Enabling the alarm"));
        assert!(!opposes("How do I turn on dark mode?", "Dark mode is off by default."));
        assert!(!opposes("How do I turn the alarm off?", "Enabling and disabling the alarm"));
        assert!(!opposes("How do I turn the alarm off?", "The alarm is loud."));
        assert!(opposes("How do I exclude a bed?", "To include a bed, water it."));
    }

    #[test]
    fn word_has_those_of_its_groups_and_of_its_phrase_without_itself() {
        let found = |question: &str| -> Vec<String> {
            let related = related(question).into_iter();
            let stems = |others: BTreeSet<Synonym>| others.into_iter().map(|(stem, _)| stem).collect::<BTreeSet<_>>();
            related.map(|(stem, others)| format!("{stem}: {}", Vec::from_iter(stems(others)).join(" "))).collect()
        };
        assert_eq!(found("May I reboot?"), ["reboot: restart"]);
        assert_eq!(
            found("Can I turn the alarm off?"),
            ["turn: deactiv disabl stop suspend", "alarm: alert notif warn"]
        );
        assert_eq!(found("Was it turned off?"), ["turn: deactiv disabl stop suspend"]);
        assert_eq!(found("At the same time?"), ["same: concurr parallel simultan"]);
        assert_eq!(
            found("Which log level is used in the appointment?"),
            ["use: util"],
            "neither a login nor an appointed person"
        );
        assert_eq!(found("Which terminal?"), Vec::<String>::new(), "it terminates nothing");
    }

    #[test]
    fn word_that_shares_the_stem_of_a_synonym_is_none() {
        let has_stop = |text: &str, question: &str| {
            let mut found = WordSplitter::default().stems(text);
            Related::of(question, None).add_to(&mut found, text);
            found.contains("stop")
        };
        let question = "How do I stop the pump?";
        assert!(has_stop("It was terminated.", question) && !has_stop("It has a terminal.", question));
        let question = "How do I stop the pump from running?";
        assert!(has_stop("It prevents a start.", question));
    }
}
