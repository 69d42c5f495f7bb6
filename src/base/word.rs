//! Splits text into words and shortens them to stems, by the rules of their language and script.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::language::Language;
use super::script::{Script, breaks};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// Lower-cased, stemmed, without accents.
    pub(crate) stem: String,
    /// Position in the text, in bytes.
    pub(crate) range: Range<usize>,
}

/// Minimum number of letters of a part of a compound. Shorter ones are in many words by chance.
const LEAST_PART: usize = 5;

/// Splits text into words and stems them by the rules of one language.
#[derive(Clone)]
pub struct WordSplitter {
    language: &'static Language,
}

impl Default for WordSplitter {
    fn default() -> Self {
        Self::of(Language::english())
    }
}

impl WordSplitter {
    /// Returns the stems that are parts of compounds in a text: "Hauptversammlung" of "Jahreshauptversammlung". Empty
    /// for languages that do not [join words](Language::joins_words).
    pub(crate) fn parts_in<'a>(&self, text: &str, stems: impl Iterator<Item = &'a String>) -> Vec<String> {
        if !self.language.joins_words() {
            return Vec::new();
        }
        let lower = text.to_lowercase();
        stems.filter(|stem| stem.chars().count() >= LEAST_PART && lower.contains(stem.as_str())).cloned().collect()
    }

    /// Returns the stems of the parts of names in mixed case: "max", "concurrent" and "streams" of
    /// `maxConcurrentStreams`. In prose, a name that begins with a capital is a brand, whose parts mean something else:
    /// "PowerShell". Blocks of code are left out: they have so many names that most words occur in some.
    pub(crate) fn parts_of_names(&self, text: &str) -> Vec<String> {
        // Backticks that do not pair are no code.
        let has_code = text.matches('`').count().is_multiple_of(2);
        let parts = text.split('`').enumerate().flat_map(|(at, part)| {
            let is_code = has_code && at % 2 == 1;
            let part = if is_code && part.contains('\n') { "" } else { part };
            let names = runs(part).into_iter().map(move |range| &part[range]);
            let is_mixed = |name: &str| name.chars().skip(1).any(char::is_uppercase);
            let is_split = move |name: &&str| is_mixed(name) && (is_code || name.starts_with(char::is_lowercase));
            names.filter(is_split).flat_map(parts_of_name)
        });
        parts.map(|part| self.stem(&part.to_lowercase())).collect()
    }

    /// Returns a splitter for texts that are mostly in this language.
    pub(crate) fn of(language: &'static Language) -> Self {
        Self { language }
    }

    /// Returns all words of `text`, at the places that [`runs`] returns.
    pub fn words(&self, text: &str) -> Vec<Word> {
        let place = |range: Range<usize>| Word { stem: self.stem(&text[range.clone()]), range };
        runs(text).into_iter().map(place).collect()
    }

    pub(crate) fn stems(&self, text: &str) -> HashSet<String> {
        self.words(text).into_iter().map(|word| word.stem).collect()
    }

    /// Returns the distinct stems of `text` that are not stop words of its language, in order of appearance.
    ///
    /// Returns the stop words themselves if there is nothing else (`to be or not to be`).
    pub fn key_stems(&self, text: &str) -> Vec<String> {
        let key = self.stems_of(text, |language, word| !language.is_stop_word(word));
        if key.is_empty() { self.stems_of(text, |_, _| true) } else { key }
    }

    /// Returns the key stems of a question that name its subject; all key stems if every one of them only phrases it.
    pub(crate) fn subject_stems(&self, question: &str) -> Vec<String> {
        let all = lower_cased(question);
        let language = language(&all);
        let words: Vec<_> = all.iter().map(|(_, word)| &**word).collect();
        let framing = language.framing(&words);
        let names = |at: usize, word: &str| {
            !language.is_stop_word(word) && !language.is_phrasing(word) && !framing.contains(&at)
        };
        let subject = all.iter().enumerate().filter(|(at, (_, word))| names(*at, word));
        let subject = self.distinct(subject.map(|(_, (range, _))| &question[range.clone()]));
        if subject.is_empty() { self.key_stems(question) } else { subject }
    }

    /// Returns the distinct stems of the wanted words, in order of appearance.
    fn stems_of(&self, text: &str, is_wanted: impl Fn(&Language, &str) -> bool) -> Vec<String> {
        let words = lower_cased(text);
        let language = language(&words);
        self.distinct(words.into_iter().filter(|(_, word)| is_wanted(language, word)).map(|(range, _)| &text[range]))
    }

    fn distinct<'a>(&self, words: impl Iterator<Item = &'a str>) -> Vec<String> {
        let mut stems = Vec::new();
        for stem in words.map(|word| self.stem(word)) {
            if !stems.contains(&stem) {
                stems.push(stem);
            }
        }
        stems
    }

    /// Returns `text` without its stop words, as [`without_stop_words_of`] does, by the detected language.
    pub fn without_stop_words(&self, text: &str) -> String {
        without_stop_words_of(text, language(&lower_cased(text)))
    }

    /// Returns a word lower-cased, stemmed and without accents.
    pub(crate) fn stem(&self, word: &str) -> String {
        let word = if self.language.is_english() { singular(word) } else { word };
        // Stemmers compare letters as one character each: they would not recognise `ä` as an umlaut if it were a
        // letter and a mark.
        let word = self.language.lower_cased(&composed(word));
        let script = Script::of_word(&word);
        match self.language.stemmer_of(script) {
            Some(stemmer) => folded(&stemmer.stem(&word), script).into_owned(),
            None if self.language.has_tones() => word,
            None => folded(&word, script).into_owned(),
        }
    }
}

/// Acronyms that end in "u" and have another vowel.
const ACRONYMS: [&str; 6] = ["alu", "apdu", "ecu", "emu", "imu", "icu"];

/// Words that are not the plural of the same without "s": protocols, and a title.
const NO_PLURALS: [&str; 6] = ["dns", "ftps", "https", "mqtts", "mrs", "smtps"];

/// Returns an English acronym without the "s" of its plural, which the stemmer leaves after "u" and after consonants
/// alone. It is told by its capitals ("APDUs"), or by having no vowel but a last "u" ("vms", "cpus"). Most names that end
/// in "s", such as "AWS" and "TLS", lose it as well wherever they occur.
fn singular(word: &str) -> &str {
    let Some(one) = word.strip_suffix(['s', 'S']).filter(|one| one.len() > 1 && !one.ends_with(['s', 'S'])) else {
        return word;
    };
    let is_written = || word.ends_with('s') && one.bytes().all(|letter| letter.is_ascii_uppercase());
    let is_consonant = |letter: u8| letter.is_ascii_alphabetic() && !b"aeiouy".contains(&letter.to_ascii_lowercase());
    let is_one_of = |words: &[&str], own: &str| words.iter().any(|word| word.eq_ignore_ascii_case(own));
    let is_told = || one.strip_suffix(['u', 'U']).unwrap_or(one).bytes().all(is_consonant) || is_one_of(&ACRONYMS, one);
    if (is_written() || is_told()) && !is_one_of(&NO_PLURALS, word) { one } else { word }
}

/// Returns `text` without the stop words of a language, or unchanged if nothing else remains. No space is inserted
/// between words that had none.
pub(crate) fn without_stop_words_of(text: &str, language: &Language) -> String {
    let mut kept = String::new();
    let mut end = None;
    for (range, _) in lower_cased(text).iter().filter(|(_, word)| !language.is_stop_word(word)) {
        if end.is_some_and(|end| end != range.start) {
            kept.push(' ');
        }
        kept.push_str(&text[range.clone()]);
        end = Some(range.end);
    }
    if kept.is_empty() { text.to_owned() } else { kept }
}

/// Returns whether a text has a word that is not a stop word of its language.
pub(crate) fn has_key_word(text: &str) -> bool {
    let words = lower_cased(text);
    let language = language(&words);
    words.iter().any(|(_, word)| !language.is_stop_word(word))
}

/// Returns a text in Unicode normalization form KC, so that a letter has one spelling however it was typed, without
/// characters that only affect layout.
pub(crate) fn composed(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.nfkc().filter(|letter| !is_ignored(*letter)).collect())
}

/// Returns a lower-case word without accents, and with interchangeable letters unified.
pub(crate) fn folded(word: &str, script: Script) -> Cow<'_, str> {
    if word.is_ascii() {
        return Cow::Borrowed(word);
    }
    let is_letter = |letter: &char| !is_ignored(*letter) && (script.has_mark_letters() || !is_combining_mark(*letter));
    let mut plain = String::with_capacity(word.len());
    for letter in word.nfkd().filter(is_letter) {
        // These have no decomposition in Unicode, and are typed in more than one way.
        match letter {
            'ß' => plain.push_str("ss"),
            'æ' => plain.push_str("ae"),
            'œ' => plain.push_str("oe"),
            'þ' => plain.push_str("th"),
            'ø' => plain.push('o'),
            'đ' | 'ð' => plain.push('d'),
            'ł' => plain.push('l'),
            'ħ' => plain.push('h'),
            'ı' => plain.push('i'),
            'ς' => plain.push('σ'),
            // Alef, yeh and heh have forms that are used interchangeably in typing.
            'ٱ' => plain.push('ا'),
            'ى' | 'ی' => plain.push('ي'),
            'ة' => plain.push('ه'),
            'ک' => plain.push('ك'),
            letter => plain.push(letter),
        }
    }
    // Decomposition has also split Korean syllables.
    Cow::Owned(plain.nfc().collect())
}

/// Returns whether a character only affects layout: a joiner, a variation selector, a soft hyphen, an Arabic tatweel.
fn is_ignored(letter: char) -> bool {
    matches!(letter, '\u{AD}' | '\u{200B}'..='\u{200D}' | '\u{640}' | '\u{FE00}'..='\u{FE0F}')
}

/// Returns the language of a text, if detected.
pub(crate) fn language_of(text: &str) -> Option<&'static Language> {
    Language::of(lower_cased(text).iter().map(|(_, word)| &**word))
}

/// Returns the language of a document, if detected.
pub(crate) fn language_of_document(text: &str) -> Option<&'static Language> {
    let words = lower_cased(text);
    Language::of_document(words.iter().map(|(_, word)| &**word))
}

/// Returns the language of a paragraph of a document, given the places of its words.
pub(crate) fn language_of_paragraph(
    text: &str,
    words: &[Range<usize>],
    of_document: &'static Language,
) -> &'static Language {
    let words: Vec<_> = words.iter().map(|range| lower(&text[range.clone()])).collect();
    of_document.of_paragraph(words.iter().map(|word| &**word))
}

fn language(words: &[(Range<usize>, Cow<'_, str>)]) -> &'static Language {
    Language::of(words.iter().map(|(_, word)| &**word)).unwrap_or_else(Language::english)
}

fn lower_cased(text: &str) -> Vec<(Range<usize>, Cow<'_, str>)> {
    runs(text).into_iter().map(|range| (range.clone(), lower(&text[range]))).collect()
}

fn lower(word: &str) -> Cow<'_, str> {
    // Most words of a text are in lower case already.
    let is_lower = word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if is_lower { Cow::Borrowed(word) } else { Cow::Owned(composed(word).to_lowercase()) }
}

/// Returns the places of the words of a text: runs of letters and digits, cut by a dictionary if their script has no
/// spaces.
pub(crate) fn runs(text: &str) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    // The start of the open run, and whether it is in a script without spaces.
    let mut open: Option<(usize, bool)> = None;
    for (at, letter) in text.char_indices() {
        let is_unspaced = match open {
            _ if letter.is_ascii_alphanumeric() => false,
            Some((_, is_unspaced)) if continues(letter) => is_unspaced,
            _ if !letter.is_ascii() && letter.is_alphanumeric() => Script::of(letter).is_unspaced(),
            _ => {
                close(text, open.take(), at, &mut runs);
                continue;
            }
        };
        if open.is_none_or(|(_, before)| before != is_unspaced) {
            close(text, open.take(), at, &mut runs);
            open = Some((at, is_unspaced));
        }
    }
    close(text, open, text.len(), &mut runs);
    runs
}

/// Returns the parts of a name that begin with a capital, and the part before the first. A name in a single case has
/// none, and neither has "iPhone".
fn parts_of_name(name: &str) -> Vec<&str> {
    let letters: Vec<_> = name.char_indices().collect();
    let begins = |at: &usize| {
        let is_capital = |at: usize| letters.get(at).is_some_and(|(_, letter)| letter.is_uppercase());
        let is_small = |at: usize| letters.get(at).is_some_and(|(_, letter)| letter.is_lowercase());
        // `HTTPServer` has two parts.
        is_capital(*at) && (is_small(at - 1) || (is_capital(at - 1) && is_small(at + 1)))
    };
    let mut ends: Vec<_> = (1..letters.len()).filter(begins).map(|at| letters[at].0).collect();
    if ends.first().is_none_or(|first| *first < 2) {
        return Vec::new();
    }
    ends.push(name.len());
    let mut start = 0;
    ends.into_iter().map(|end| &name[std::mem::replace(&mut start, end)..end]).collect()
}

pub(crate) fn has_digit(word: &str) -> bool {
    word.contains(|letter: char| letter.is_ascii_digit())
}

/// English words that turn a statement into its opposite, or limit it to what they stand before.
const NEGATIONS: [&str; 12] =
    ["cannot", "except", "hardly", "neither", "never", "no", "none", "nor", "not", "nothing", "only", "without"];

/// English words that make a statement depend on another.
const CONDITIONS: [&str; 10] =
    ["after", "before", "if", "once", "provided", "unless", "until", "when", "whenever", "whether"];

/// Returns whether an English word turns a statement into its opposite or limits it: "not", "only", "doesn't".
pub(crate) fn is_negation(word: &str) -> bool {
    let word = bare(word);
    NEGATIONS.contains(&word.as_str()) || word.ends_with("n't") || word.ends_with("n’t")
}

/// Returns whether an English word makes a statement depend on another: "if", "unless".
pub(crate) fn is_condition(word: &str) -> bool {
    CONDITIONS.contains(&bare(word).as_str())
}

fn bare(word: &str) -> String {
    word.trim_matches(|letter: char| !letter.is_alphanumeric()).to_lowercase()
}

/// Returns whether a character other than a letter continues a word.
fn continues(letter: char) -> bool {
    !letter.is_ascii() && (is_combining_mark(letter) || is_ignored(letter))
}

/// Adds the words of a run that ends at `end`.
fn close(text: &str, run: Option<(usize, bool)>, end: usize, runs: &mut Vec<Range<usize>>) {
    match run {
        None => {}
        Some((start, false)) => runs.push(start..end),
        Some((start, true)) => {
            let breaks: Vec<_> = breaks(&text[start..end]).map(|offset| start + offset).collect();
            let words = breaks.windows(2).map(|pair| pair[0]..pair[1]);
            runs.extend(words.filter(|word| text[word.clone()].chars().any(char::is_alphanumeric)));
        }
    }
}

/// Counts the words of a text: runs between spaces, cut by a dictionary if their script has no spaces.
pub(crate) fn count_words(text: &str) -> usize {
    let count = |piece: &str| {
        let is_unspaced = piece.chars().any(|letter| Script::of(letter).is_unspaced());
        if is_unspaced { runs(piece).len().max(1) } else { 1 }
    };
    text.split_whitespace().map(count).sum()
}

/// Returns the first position of `words` in `text` at word boundaries, in bytes.
pub(crate) fn find_words(text: &str, words: &str) -> Option<usize> {
    text.match_indices(words).map(|(at, _)| at).find(|at| is_whole(text, *at..at + words.len()))
}

/// Returns whether a part of a text begins and ends at word boundaries. In a script without spaces, that is anywhere.
pub(crate) fn is_whole(text: &str, part: Range<usize>) -> bool {
    let joined = |before: Option<char>, after: Option<char>| {
        let joins = |letter: Option<char>| {
            letter.is_some_and(|letter| {
                (letter.is_alphanumeric() || is_combining_mark(letter)) && !Script::of(letter).is_unspaced()
            })
        };
        joins(before) && joins(after)
    };
    let inside = &text[part.clone()];
    !joined(text[..part.start].chars().next_back(), inside.chars().next())
        && !joined(inside.chars().next_back(), text[part.end..].chars().next())
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_mixed_case_have_parts_and_brands_in_prose_have_none() {
        let parts = |text: &str| WordSplitter::default().parts_of_names(text);
        assert_eq!(parts("maxOpenPumps or `HTTPServer`"), ["max", "open", "pump", "http", "server"]);
        assert!(parts("```sh\nrun --query myPump\n```\n").is_empty());
        assert!(parts("PowerShell on GitHub and iPhone: pump, PUMP, `pump_max` and `PUMP`").is_empty());
    }

    #[test]
    fn words_know_where_they_stand() {
        let words = WordSplitter::default().words("Don’t re-run: indexes!");
        let shown: Vec<_> = words.iter().map(|word| (word.stem.as_str(), word.range.start)).collect();
        assert_eq!(shown, [("don", 0), ("t", 6), ("re", 8), ("run", 11), ("index", 16)]);
    }

    #[test]
    fn scripts_without_spaces_are_cut_by_a_dictionary() {
        let shown =
            |text: &str| WordSplitter::default().words(text).into_iter().map(|word| word.stem).collect::<Vec<_>>();
        assert_eq!(shown("知识 base"), ["知识", "base"]);
        assert_eq!(shown("如何备份数据"), ["如何", "备份", "数据"]);
        assert_eq!(shown("ข้อมูลดี").len(), 2);
    }

    #[test]
    fn words_are_counted_with_and_without_spaces() {
        assert_eq!(["two words", "re-run `dr`", "如何备份数据。", "用 SSH 备份"].map(count_words), [2, 2, 3, 3]);
    }

    #[test]
    fn words_are_stemmed_and_folded_by_their_script_and_language() {
        let stem = |code: &str, word: &str| WordSplitter::of(Language::with_code(code).unwrap()).stem(word);
        assert_eq!([stem("en", "Naïve"), stem("en", "копии")], ["naiv", "коп"]);
        assert_eq!(
            ["APDUs", "apdus", "IDs", "VMs", "vms", "CPUs", "cpus"].map(|own| stem("en", own)),
            ["apdu", "apdu", "id", "vm", "vm", "cpu", "cpu"]
        );
        assert_eq!(
            ["DNS", "dns", "https", "CSS", "status"].map(|own| stem("en", own)),
            ["dns", "dns", "https", "css", "status"]
        );
        assert_eq!([stem("de", "Häusern"), stem("de", "Straße")], ["haus", "strass"]);
        assert_eq!([stem("tr", "IŞIK"), stem("vi", "Tệp")], ["isik", "tệp"]);
        assert_eq!([stem("he", "שָׁלוֹם"), stem("fa", "کتاب")], ["שלום", "كتاب"]);
        assert_eq!(stem("hi", "हिन्दी"), "हिन्दी", "vowel signs are letters");
    }

    #[test]
    fn key_stems_leave_out_stop_words_unless_there_is_nothing_else() {
        let splitter = WordSplitter::default();
        assert_eq!(splitter.key_stems("How are the budgets enforced, and budget what?"), ["budget", "enforc"]);
        assert_eq!(splitter.key_stems("to be or not to be"), ["to", "be", "or", "not"]);
        assert_eq!(splitter.without_stop_words("what is the writer lock"), "writer lock");
        assert_eq!(splitter.key_stems("Wie viele Urlaubstage habe ich?"), ["urlaubstag"]);
        assert_eq!(splitter.subject_stems("What happens on the first day?"), ["first", "day"]);
        assert_eq!(splitter.subject_stems("What works best?"), splitter.key_stems("What works best?"));
        assert_eq!(splitter.subject_stems("Since which release does the bell ring?"), ["releas", "bell", "ring"]);
        assert_eq!(splitter.subject_stems("How long does a pump trial last?"), ["pump", "trial"]);
        assert_eq!(splitter.subject_stems("What runs if I leave the lamp out of it?"), ["run", "lamp"]);
        assert_eq!(
            splitter.subject_stems("Who rang the last long bell early?"),
            ["rang", "last", "long", "bell", "earli"]
        );
        assert!(has_key_word("what is a lock") && !has_key_word("what is it for"));
    }
}
