//! English words that mean much the same: a question rarely uses the words of a manual.
//!
//! Both are everyday words. Terms of a trade are left to the embedder, which reads them in context.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use super::word::{Word, WordSplitter};

/// Words that may stand for each other, a group a line.
const GROUPS: &str = "\
    delete remove erase terminate destroy discard\n\
    disable deactivate suspend\n\
    enable activate\n\
    stop halt end terminate\n\
    start begin launch boot\n\
    restart reboot\n\
    buy purchase\n\
    cost price fee charge pricing\n\
    pay charge bill\n\
    salary wage compensation\n\
    reimburse refund\n\
    change modify edit alter update adjust\n\
    increase grow enlarge expand\n\
    decrease reduce lower shrink\n\
    big bigger large larger\n\
    biggest largest maximum\n\
    longest maximum\n\
    highest maximum\n\
    smallest lowest least minimum\n\
    small smaller little\n\
    fast faster quick quickly speed\n\
    fix repair resolve solve solution\n\
    broken corrupt damaged\n\
    choose select pick\n\
    show display print\n\
    hide conceal\n\
    find locate discover search\n\
    send transmit deliver submit\n\
    allow permit\n\
    allowed permitted\n\
    forbid forbidden prohibit prohibited disallow\n\
    prevent protect protection avoid\n\
    reject refuse deny decline\n\
    keep retain preserve\n\
    lose lost loss\n\
    replace substitute\n\
    copy duplicate clone\n\
    move migrate transfer\n\
    join merge combine\n\
    split divide separate\n\
    connect attach\n\
    disconnect detach\n\
    limit maximum quota cap threshold\n\
    need require necessary\n\
    permission privilege\n\
    login username\n\
    tag label\n\
    server host machine computer\n\
    disk drive volume\n\
    folder directory\n\
    picture image photo\n\
    employee staff worker teammate colleague coworker\n\
    boss manager supervisor\n\
    customer client\n\
    holiday vacation\n\
    sick ill illness\n\
    car vehicle\n\
    job occupation profession\n\
    appoint designate assign nominate\n\
    won winner win victory\n\
    died deaths fatalities casualties\n\
    hurt injured injury injuries\n\
    build construct create make\n\
    make create generate produce\n\
    founded established\n\
    test check verify validate try\n\
    fake sample dummy mock\n\
    alert notification alarm warning\n\
    tell notify inform\n\
    answer reply respond response\n\
    help assist support\n\
    use utilize\n\
    run execute invoke\n\
    trigger invoke\n\
    wait pause delay\n\
    cause reason\n\
    result outcome outcomes\n\
    part component\n\
    kind type category\n\
    step procedure\n\
    rule policy guideline\n\
    danger risk hazard\n\
    secret private confidential\n\
    free gratis complimentary\n\
    close closed shut\n\
    reopen reopened\n\
    refurbishment renovation refurbish renovate renovations\n\
    ban banned disqualified disqualify expelled\n\
    percentage percent\n\
    exit quit\n\
    undo revert rollback\n\
    cancel revoke\n\
    expire lapse\n\
    restore recover recovery\n\
    upgrade update\n\
    uninstall remove\n\
    bonus incentive reward payout\n\
    phone telephone\n\
    website site\n\
    retry retries repeat\n\
    attempt try\n\
    skip ignore omit\n\
    empty blank\n\
    mistake accident accidental accidentally\n\
    guess estimate\n\
    happen occur";

/// Verbs with a particle, and words in their place.
const PHRASES: [(&str, &str, &str); 24] = [
    ("turn", "off", "disable stop suspend"),
    ("switch", "off", "disable stop"),
    ("shut", "down", "stop"),
    ("turn", "on", "enable activate"),
    ("switch", "on", "enable activate"),
    ("take", "over", "replace succeed"),
    ("took", "over", "replaced succeeded"),
    ("get", "rid", "delete remove"),
    ("get", "out", "cancel leave"),
    ("get", "back", "recover restore"),
    ("kick", "out", "disqualify ban expel"),
    ("kicked", "out", "disqualified banned expelled"),
    ("log", "in", "login"),
    ("sign", "in", "login"),
    ("set", "up", "configure install"),
    ("hook", "up", "attach connect"),
    ("plug", "in", "attach connect"),
    ("try", "out", "test"),
    ("look", "up", "find search"),
    ("go", "up", "increase"),
    ("go", "down", "decrease"),
    ("hand", "in", "submit"),
    ("put", "off", "postpone delay"),
    ("fill", "in", "complete"),
];

/// Words between a verb and its particle: "turn the alarm off". "In" and "up" stand right after it.
const BETWEEN: usize = 3;

/// Letters in which the form of a word may differ from the word: "deleting". "Organic" is no form of "organize".
const ENDING: usize = 3;

/// The groups by the stem of each of their words, with that word.
static BY_STEM: LazyLock<HashMap<String, Vec<(&str, &str)>>> = LazyLock::new(|| {
    let splitter = WordSplitter::default();
    let mut by_stem: HashMap<String, Vec<_>> = HashMap::new();
    for group in GROUPS.lines() {
        for word in group.split(' ') {
            by_stem.entry(splitter.stem(word)).or_default().push((word, group));
        }
    }
    by_stem
});

/// Returns the stems of an English question for which others may stand, each with those.
pub(crate) fn related(question: &str) -> Vec<(String, BTreeSet<String>)> {
    let splitter = WordSplitter::default();
    let words = splitter.words(question);
    let written: Vec<_> = words.iter().map(|word| question[word.range.clone()].to_lowercase()).collect();
    let of_phrase = |at: usize| {
        let reach = |particle: &str| if matches!(particle, "in" | "up") { 1 } else { BETWEEN };
        let has = |particle: &str| written[at + 1..].iter().take(reach(particle)).any(|word| word == particle);
        let here = PHRASES.iter().filter(|(verb, particle, _)| splitter.stem(verb) == words[at].stem && has(particle));
        here.flat_map(|(_, _, others)| others.split(' ')).collect::<Vec<_>>()
    };
    let of_word = |(at, word): (usize, &Word)| {
        let groups = BY_STEM.get(&word.stem).into_iter().flatten().filter(|(own, _)| is_form(&written[at], own));
        let group = groups.flat_map(|(_, group)| group.split(' '));
        let mut others: BTreeSet<_> = group.chain(of_phrase(at)).map(|other| splitter.stem(other)).collect();
        others.remove(&word.stem);
        (!others.is_empty()).then(|| (word.stem.clone(), others))
    };
    words.iter().enumerate().filter_map(of_word).collect()
}

/// Returns whether two words differ in a few letters at their end.
fn is_form(written: &str, word: &str) -> bool {
    let common = written.chars().zip(word.chars()).take_while(|(a, b)| a == b).count();
    written.chars().count() <= common + ENDING && word.chars().count() <= common + ENDING
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_has_those_of_its_groups_and_of_its_phrase_without_itself() {
        let found = |question: &str| -> Vec<String> {
            let related = related(question).into_iter();
            related.map(|(stem, others)| format!("{stem}: {}", Vec::from_iter(others).join(" "))).collect()
        };
        assert_eq!(found("May I reboot?"), ["reboot: restart"]);
        assert_eq!(found("Can I turn the alarm off?"), ["turn: disabl stop suspend", "alarm: alert notif warn"]);
        assert_eq!(found("Was it turned off?"), ["turn: disabl stop suspend"]);
        assert_eq!(
            found("Which log level is used in the appointment?"),
            ["use: util"],
            "no login, and nobody is appointed"
        );
    }
}
