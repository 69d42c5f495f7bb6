//! Recognises sentences that define the term of a question: "A scan is a way of …", "… is known as scanning".

use std::collections::HashSet;

use super::features::Weights;
use super::wording::{has_word, words};
use crate::base::word::WordSplitter;

/// Length of the opening of a text in letters, and words after "is" in a definition: "A scan is a way of …".
pub(super) const OPENING: usize = 80;
const DEFINING: &str = "a|an|the|one|any|how|what|when|where|part|another|used";
const ARTICLES: &str = "a|an|the";

/// Nouns that say of which kind a thing is, and may stand after its name: "A `Scan` operation reads …".
const KINDS: &str = "action|api|attribute|block|class|clause|cmdlet|command|component|crate|event|expression|feature|field|\
    file|function|instruction|interface|key|keyword|macro|method|module|object|operation|operator|option|package|parameter|\
    process|property|request|resource|service|statement|tool|trait|type|value";

/// Maximum number of words of the name of a maker before that of a product.
const MAX_MAKER_WORDS: usize = 2;

/// Maximum number of words of the expansion before an abbreviation in brackets: "A hand pump (HP) is …".
const MAX_EXPANSION: usize = 6;

/// Verbs that say what something is or does.
const VERBS: &str = "means|mean|refers|refer|stands|lets|let|allows|allow|provides|provide|extends|helps|help|enables|enable|\
    holds|hold|stores|store|contains|contain|describes|describe|represents|represent|defines|define|gives|give|makes|make";

/// Openings of a question for a definition, and words behind the term.
const ASKS: [&str; 11] = [
    "what is meant by ", "what do you mean by ", "what does ", "what is ", "what's ", "what are ", "what was ",
    "what exactly is ", "what exactly are ", "define ", "explain ",
];
const BEHIND: [&str; 8] = [" mean", " stand for", " in ", " on ", " for ", " used", " exactly", " called"];

/// Words after "is" or "are" in a definition, and words after "are" in a sentence that is not one: "Scans are not …".
const STATING: &str = "a|an|the|any|one|another";
const NOT_STATING: &str = "not|also|always|only|now|then|both|all|still|no|never|usually|often|typically|generally|more|less|the|\
    on|in|at|by|to|available|useful|similar|best|good|great|important|necessary|ideal|possible|different|subject|free|able|\
    unable|easy|hard|likely|due|ready|identical|unique|distinct|visible|safe|optional|common|rare";

/// Words before a term that they introduce: "… is known as scanning". "Here we call `scan`" calls a function.
const NAMING: [&str; 11] = [
    "called", "known as", "termed", "referred to as", "named", "which we call", "what we call", "we call this",
    "we call these", "we call it", "we call them",
];

/// Words before a term in italics that they introduce.
const INTRODUCING: &str = "is|are|was|were|called|termed|named|as|them|these|it";

/// Words before a thing that something is done with.
const USING: &str = "use|uses|used|using|with|without|via|call|calls|calling";

/// Words that may follow such a term; another noun would be part of it.
const AFTER_NAME: &str = "that|which|and|or|to|in|on|for|by|where|when|with|because|so|is|are|if";

/// A term whose definition is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    stems: Vec<String>,
}

impl Term {
    /// Returns the term of a question for a definition: "What is a scan in a mill?" asks for "scan".
    pub(super) fn of(question: &str, splitter: &WordSplitter) -> Option<Self> {
        let lower = question.to_lowercase();
        let asked = ASKS.iter().filter_map(|opening| Some((*opening, lower.split_once(opening)?.1)));
        let (_, rest) = asked.max_by_key(|(opening, _)| opening.len())?;
        let end = BEHIND.iter().filter_map(|behind| rest.find(behind)).min().unwrap_or(rest.len());
        let term = rest[..end].split(['?', ',', '.', ';']).next().unwrap_or_default();
        // As it is written, since capitals tell an acronym.
        let start = lower.len() - rest.len();
        let term = question.get(start..start + term.len()).filter(|_| lower.len() == question.len()).unwrap_or(term);
        let words = words(term).skip_while(|word| has_word(&word.to_lowercase(), ARTICLES));
        let stems: Vec<_> = words.map(|word| splitter.stem(word)).collect();
        (!stems.is_empty()).then_some(Self { stems })
    }

    /// Returns whether a sentence defines the term, wherever it stands.
    pub(super) fn is_defined_by(&self, sentence: &str, splitter: &WordSplitter) -> bool {
        let tokens: Vec<_> = sentence.split_whitespace().collect();
        let is_article = |at: &usize| tokens.get(*at).is_some_and(|word| has_word(&word.to_lowercase(), ARTICLES));
        let from = usize::from(is_article(&0));
        // "An I/O scan is …", "The Acme scan is …".
        let is_maker = |word: &&&str| word.starts_with(char::is_uppercase) && from > 0;
        let makers = tokens[from..].iter().take(MAX_MAKER_WORDS).take_while(is_maker).count();
        let is_opening = |from| {
            self.end_at(&tokens, from, splitter).is_some_and(|end| says_what(&tokens, after_clause(&tokens, end)))
        };
        // Behind its expansion: "A hand pump (HP) is …".
        let in_brackets = (from..tokens.len().min(from + MAX_EXPANSION)).find(|at| tokens[*at].starts_with('('));
        let opens = (from..=from + makers).chain(in_brackets.filter(|at| *at > from)).any(is_opening);
        let lower = sentence.to_lowercase();
        let is_named = |naming: &&str| {
            // "… a program called: `scan`."
            let named = lower.match_indices(naming).map(|(at, _)| &lower[at + naming.len()..]);
            let mut after = named.map(|after| after.strip_prefix(':').unwrap_or(after));
            let Some(after) = after.find(|after| after.starts_with(' ')) else { return false };
            let after: Vec<_> = after.split_whitespace().collect();
            let from = after.iter().take_while(|word| has_word(word, ARTICLES)).count();
            self.end_at(&after, from, splitter).is_some_and(|end| ends_name(&after, end))
        };
        opens || NAMING.iter().any(is_named) || self.is_explained(&tokens, splitter)
    }

    /// Returns whether a sentence in Markdown introduces the term, which is then in italics, or its distinctive part:
    /// "Pumps that can be moved are *mobile*."
    pub(super) fn is_introduced_by(&self, sentence: &str, splitter: &WordSplitter) -> bool {
        let is_part = |stems: &HashSet<String>| !stems.is_empty() && stems.iter().all(|own| self.stems.contains(own));
        let has_all = || {
            let said = splitter.stems(sentence);
            self.stems.iter().all(|own| said.contains(own))
        };
        let says = |before: &str| {
            let mut words = before.split_whitespace().rev().skip_while(|word| has_word(word, ARTICLES));
            words.next().is_some_and(|word| has_word(word, INTRODUCING))
        };
        italics(sentence).any(|(before, text)| says(before) && is_part(&splitter.stems(text))) && has_all()
    }

    /// Returns whether a sentence has the term only as what something is done with.
    pub(super) fn is_only_used_in(&self, sentence: &str, splitter: &WordSplitter) -> bool {
        let tokens: Vec<_> = sentence.split_whitespace().collect();
        // "What does a scan do?"
        let is_do = self.stems.last().is_some_and(|last| last == "do");
        let term = Self { stems: self.stems[..self.stems.len() - usize::from(is_do)].to_vec() };
        let is_used = |from: usize| {
            let mut before = tokens[..from].iter().rev().skip_while(|word| has_word(word, ARTICLES));
            before.next().is_some_and(|word| has_word(&word.to_lowercase(), USING))
        };
        let mut places = (0..tokens.len()).filter(|from| term.end_at(&tokens, *from, splitter).is_some()).peekable();
        places.peek().is_some() && places.all(is_used)
    }

    /// Returns whether a clause behind the term defines it: "… with a scan, which is a way of …".
    fn is_explained(&self, tokens: &[&str], splitter: &WordSplitter) -> bool {
        let ends_at = |from: usize| self.end_at(tokens, from, splitter).filter(|end| tokens[end - 1].ends_with(','));
        (0..tokens.len()).filter_map(ends_at).any(|end| tokens.get(end) == Some(&"which") && says_what(tokens, end + 1))
    }

    /// Returns whether a sentence is nothing but the term, as a label above its definition is.
    pub(super) fn is_named_by(&self, label: &str, splitter: &WordSplitter) -> bool {
        // Marks may be left of bold that has spaces inside them: "** Scan **".
        let is_word = |token: &&str| token.contains(char::is_alphanumeric);
        let tokens: Vec<_> = label.split_whitespace().filter(is_word).collect();
        self.end_at(&tokens, 0, splitter) == Some(tokens.len())
    }

    /// Returns the index after the term if it stands at `from`.
    fn end_at(&self, tokens: &[&str], from: usize, splitter: &WordSplitter) -> Option<usize> {
        let (mut at, mut stems) = (from, self.stems.iter().peekable());
        while stems.peek().is_some() {
            for word in words(tokens.get(at)?) {
                if splitter.stem(word) != *stems.next()? {
                    return None;
                }
            }
            at += 1;
        }
        Some(at)
    }
}

/// Returns the index after a clause about the term: "D3hot, which is often used, is …".
fn after_clause(tokens: &[&str], at: usize) -> usize {
    let opens = at > 0 && tokens[at - 1].ends_with(',') && tokens.get(at) == Some(&"which");
    let end = tokens.iter().skip(at).position(|word| word.ends_with(',')).filter(|_| opens);
    end.map_or(at, |end| at + end + 1)
}

/// Returns whether the words at an index say what the term before them is.
fn says_what(tokens: &[&str], at: usize) -> bool {
    // The term may have an abbreviation behind it, or a noun for its kind: "A `Scan` operation is …".
    let is_beside = |word: &&&str| word.starts_with('(') || has_word(&word.to_lowercase(), KINDS);
    let at = at + tokens[at..].iter().take(2).take_while(is_beside).count();
    let word = |at: usize| tokens.get(at).map(|word| word.to_lowercase()).unwrap_or_default();
    let (verb, next) = (word(at), word(at + 1));
    let is_label = || tokens[..at].last().is_some_and(|word| word.ends_with([':', '—', '–'])) && !next.is_empty();
    match verb.as_str() {
        "is" | "was" | "represents" | "represent" | "describes" => has_word(&next, STATING),
        "are" | "were" => has_word(&next, STATING) || !(next.ends_with("ed") || has_word(&next, NOT_STATING)),
        "refers" | "refer" => next == "to",
        "means" | "mean" => true,
        "—" | "–" | "-" => !next.is_empty(),
        _ => is_label(),
    }
}

/// Returns whether a name ends at an index, and not with a further noun.
fn ends_name(tokens: &[&str], at: usize) -> bool {
    let ends =
        |word: &str| word.ends_with(|letter: char| !letter.is_alphanumeric() && !matches!(letter, '*' | '_' | '`'));
    let is_last = tokens.get(at).is_none_or(|next| has_word(next, AFTER_NAME) || next.starts_with('('));
    is_last || tokens[..at].last().is_some_and(|word| ends(word))
}

/// Returns the texts between single stars or underscores, each with the text before it. An underscore within a word is
/// part of the word.
fn italics(sentence: &str) -> impl Iterator<Item = (&str, &str)> {
    let opens = move |at: usize| {
        let (before, after) = (&sentence[..at], &sentence[at + 1..]);
        !before.ends_with(|letter: char| letter.is_alphanumeric() || letter == '*')
            && after.starts_with(char::is_alphanumeric)
    };
    ["*", "_"].into_iter().flat_map(move |mark| {
        let starts = sentence.match_indices(mark).filter(move |(at, _)| opens(*at));
        starts.filter_map(move |(at, _)| Some((&sentence[..at], sentence[at + 1..].split_once(mark)?.0)))
    })
}

/// Returns the words after the subject of a question if a text opens with that: "is a way …" of "A scan is a way …". The
/// name of its maker may stand before it: "The Acme Scan".
fn after_subject(text: &str, subject: &Weights, splitter: &WordSplitter) -> Option<Vec<String>> {
    let opening: String = text.chars().take(OPENING).collect();
    let words = words(&opening);
    let words: Vec<_> = words.skip_while(|word| has_word(&word.to_lowercase(), ARTICLES)).collect();
    let names = words.iter().take(MAX_MAKER_WORDS).take_while(|word| word.starts_with(char::is_uppercase)).count();
    let is_subject = |from: &usize| {
        let own = words.get(*from..from + subject.len()).unwrap_or_default();
        let own: HashSet<_> = own.iter().map(|word| splitter.stem(word)).collect();
        !subject.is_empty() && subject.keys().all(|stem| own.contains(stem))
    };
    // "Time to first byte (TTFB) is …".
    let is_in_brackets =
        |at: &usize| subject.len() == 1 && is_subject(at) && text.contains(&format!("({})", words[*at]));
    let at = (0..=names).find(is_subject).or_else(|| (0..words.len()).find(is_in_brackets))?;
    Some(words[at + subject.len()..].iter().map(|word| word.to_lowercase()).collect())
}

/// Returns whether a text opens with a definition of the subject of a question.
pub(super) fn defines(text: &str, subject: &Weights, splitter: &WordSplitter) -> bool {
    let after = after_subject(text, subject, splitter).unwrap_or_default();
    match after.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["is" | "are" | "was" | "were", next, ..] => has_word(next, DEFINING),
        [verb, ..] => has_word(verb, VERBS),
        [] => false,
    }
}

/// Returns whether the opening of a note on the subject of a question defines it. "A scan operation reads …", "A scan
/// reads …" and "Scans are fast reads …" do, "Scan owners must …" and "A scan optimizer is …" do not.
pub(super) fn opens_with(text: &str, subject: &Weights, splitter: &WordSplitter) -> bool {
    let first = words(text).next().unwrap_or_default().to_lowercase();
    let after = after_subject(text, subject, splitter).unwrap_or_default();
    let is_kind = after.first().is_some_and(|next| has_word(next, KINDS));
    let after: Vec<_> = after.iter().skip(usize::from(is_kind)).map(String::as_str).collect();
    // A verb, by its ending: "reads".
    let is_verb = |word: &&str| word.len() > 3 && word.ends_with('s') && !word.ends_with("ss");
    let says = matches!(after.as_slice(), ["is" | "are" | "can" | "in" | "of" | "for" | "that" | "which", ..]);
    let has_article = has_word(&first, ARTICLES) && (is_kind || says || after.first().is_some_and(is_verb));
    let is_plural = first.ends_with('s') && after.first() == Some(&"are");
    has_article || is_plural || defines(text, subject, splitter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_that_is_the_term_names_it() {
        let splitter = WordSplitter::default();
        let term = Term::of("What is a hand pump?", &splitter).unwrap();
        assert!(term.is_named_by("** Hand pump **", &splitter) && !term.is_named_by("Hand pump parts", &splitter));
    }

    #[test]
    fn term_in_italics_is_introduced() {
        let splitter = WordSplitter::default();
        let term = Term::of("What is a mobile pump?", &splitter).unwrap();
        let introduces = |sentence: &str| term.is_introduced_by(sentence, &splitter);
        assert!(introduces("Pumps that can be moved are *mobile*.") && introduces("Call them _mobile pumps_."));
        for other in [
            "A mobile pump is *not* a toy.",
            "Choose **Mobile pump**.",
            "Never lift the *mobile* pump alone.",
            "mobile_pump_",
        ] {
            assert!(!introduces(other), "{other}");
        }
    }

    #[test]
    fn sentence_that_defines_a_term_is_told_from_others_about_it() {
        let splitter = WordSplitter::default();
        let defines = |question: &str, sentence: &str| {
            Term::of(question, &splitter).is_some_and(|term| term.is_defined_by(sentence, &splitter))
        };
        for (question, sentence) in [
            ("What is a pump?", "A pump is a machine that moves water."),
            ("What is a pump?", "An I/O pump is a machine that moves water."),
            ("What is a pump?", "The pump, which stands in the garden, is the machine that moves water."),
            ("What is a hand pump in a mill?", "Hand pumps are small machines."),
            ("What does scanning mean?", "Reading all rows is called *scanning*."),
            ("what is a shadow", "A shadow (SHD) is the last state of a lamp."),
            ("What is scan?", "The mill has a machine called: `scan`."),
            ("Define local resource.", "*Local resources* refer to the parts of a mill."),
            ("What is a join-key?", "The `join-key` field is a name."),
            ("What's a composite pump?", "Such machines are also known as composite pumps."),
            ("What is a valve?", "Valve: a part that lets water through."),
            ("What is an HP?", "A hand pump (HP) is a small machine."),
            ("What is a stopcock?", "Such a valve, which we call a stopcock, has a tap."),
            ("In mills, what exactly is a \"stopcock\"?", "A stopcock is a valve with a tap."),
            ("What is a valve?", "Each pump has a valve, which is a part that lets water through."),
        ] {
            assert!(defines(question, sentence), "{question} {sentence}");
        }
        for (question, sentence) in [
            ("What is a pump?", "These pumps provide the following parts."),
            ("What is lift?", "Here we call `lift` to move the water."),
            ("What is a pump?", "A pump is oiled daily."),
            ("What is a pump?", "Pumps are oiled daily."),
            ("What is a pump?", "Pumps are useful in dry years."),
            ("What is a pump?", "A pump owner is a miller."),
            ("What is the pump?", "The pump represents Ann's first try."),
            ("What is a pump?", "In this step you create a part called a pump handle."),
            ("What is the pump?", "Open the pump."),
        ] {
            assert!(!defines(question, sentence), "{question} {sentence}");
        }
    }
}
