//! Everyday English verbs, adjectives and adverbs, which name nothing: that a folder lacks "big" or "took" says nothing
//! about its subject.
//!
//! Words that are nouns as well, such as *change*, *light* or *run*, are left out. Stop words, and those that phrase a
//! question, are in [`super::language`]. Stems would not do: a container and what it contains share one.

use std::collections::HashSet;
use std::sync::LazyLock;

/// Verbs, whose regular forms count as well.
const VERBS: &str = "accept achieve add affect agree allow appear apply argue arrive ask assume avoid become begin \
    behave believe belong bring buy carry catch come consider consist continue create depend deserve destroy die \
    disappear discuss eat enable encourage enjoy enter exceed expect fail find finish fix follow forget go \
    grow guess hate hide imagine improve include insist intend involve keep laugh lay lie live lose maintain \
    obtain occur perform prefer prepare pretend prevent protect prove provide put reach realise realize receive \
    recognise recognize reduce refer refuse reject remain remember remind remove replace require rise save see seem \
    sell send serve sit solve speak stay steal suffer suggest suppose survive tend thank think throw treat \
    try wear worry";

/// Adjectives, whose comparatives, superlatives and adverbs count as well.
const ADJECTIVES: &str = "angry bad beautiful big bright broad busy certain cheap clear clever close comfortable \
    common complete correct dangerous deep different difficult dirty dull early easy empty entire equal exact \
    expensive familiar famous far fast few free frequent full funny great happy hard heavy high hot huge important \
    impossible large late likely little long loud low lucky main major minor narrow near neat necessary nice normal \
    obvious odd old opposite poor popular previous proper proud quick quiet rapid rare ready real recent regular \
    relevant rich rough sad safe serious severe sharp short similar slight slow small smart smooth soft special steep \
    strange strict strong stupid successful sudden suitable sure tall thick thin tight tiny tired typical ugly unusual \
    useful usual vast warm weak wet wide wild wise wonderful wrong young";

/// Words for anything, irregular forms, other adverbs, and words whose other forms are nouns.
const OTHERS: &str = "anybody anyone everybody everyone nobody somebody someone stuff thing things across actually \
    ago almost alone along already alright always among annually anyway anywhere apart around ate available away \
    basically became began begun behind beside besides beyond bought broke broken brought built called came caught \
    currently despite drew drawn drove driven eaten else enough especially ever everywhere except fallen fell finally \
    flew flown forever forgot forgotten forward fought found gave generally given gone grew grown heard held helped \
    hence hidden however increased indeed instead kept knew known laid left less lost made maybe met mostly nearby \
    never nevertheless nowadays nowhere offered paid per perhaps permitted played possibly probably quite risen rose \
    said sang sat seen sent several shown simply since single sold somehow sometimes somewhere soon spent \
    specifically spoke spoken stole stolen stood stopped sung taken talked taught terrible terribly therefore thought \
    threw thrown today together told tomorrow took toward towards truly twice understood unless unlike until various \
    walked went whatever whenever wherever whether whole wholly won wore worn worse worst worth wrote written \
    yesterday yet";

static WORDS: LazyLock<[HashSet<&str>; 3]> =
    LazyLock::new(|| [VERBS, ADJECTIVES, OTHERS].map(|words| words.split(' ').collect()));

/// Returns whether a word is an everyday one. With a capital it may be a name.
pub(crate) fn is_everyday(word: &str) -> bool {
    let [verbs, adjectives, others] = &*WORDS;
    others.contains(word)
        || is_form(word, verbs, &["s", "es", "ed", "ing"])
        || is_form(word, adjectives, &["er", "est", "ly"])
}

/// Returns whether a word is one of `words`, as it is or with an ending.
fn is_form(word: &str, words: &HashSet<&str>, endings: &[&str]) -> bool {
    let is_base = |base: &str, ending: &str| {
        let (rest, is_doubled) = match base.char_indices().next_back() {
            Some((at, last)) => (&base[..at], base[..at].ends_with(last)),
            None => ("", false),
        };
        // Before a vowel, an "e" is dropped, and a consonant may be doubled: "larger", "biggest". "Seed" is no form of
        // "see", nor "loss" of "lose".
        let is_changed = || {
            ["ed", "ing", "er", "est"].contains(&ending)
                && (is_doubled && words.contains(rest)
                    || !base.ends_with('e') && words.contains(format!("{base}e").as_str()))
        };
        words.contains(base) || base.ends_with('i') && words.contains(format!("{rest}y").as_str()) || is_changed()
    };
    let mut bases = endings.iter().filter_map(|ending| Some((word.strip_suffix(ending)?, *ending)));
    words.contains(word) || bases.any(|(base, ending)| is_base(base, ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyday_words_are_known_in_their_forms() {
        for word in "big biggest took won lives carried easily larger never goes tried".split(' ') {
            assert!(is_everyday(word), "{word}");
        }
    }

    #[test]
    fn word_that_may_name_something_is_not_everyday() {
        let names = "weather parliamentary election kubernetes container seed loss building meeting setting light \
                     server news fairy family harvest led saw filling Big Go gp3";
        for word in names.split(' ').chain([""]) {
            assert!(!is_everyday(word), "{word}");
        }
    }

    #[test]
    fn each_word_is_listed_once() {
        let words: Vec<_> = [VERBS, ADJECTIVES, OTHERS].iter().flat_map(|words| words.split(' ')).collect();
        assert_eq!(words.iter().collect::<HashSet<_>>().len(), words.len());
    }
}
