//! The terms of the chunks of a document, for the text index.
//!
//! They begin with the words of the chunk in order, stemmed by the rules of their language, so that phrases can be found.
//! Then come the English stems of words in Latin letters, if the text is in another language, and the
//! [near forms](super::terms).

use std::collections::HashMap;
use std::ops::Range;

use super::schema::ChunkRow;
use super::terms::{characters_of, near_forms};
use crate::base::language::Language;
use crate::base::script::Script;
use crate::base::word::{WordSplitter, language_of_paragraph, runs};

/// Repetitions of a document's names, which are their weight in BM25F. Two was better than three, see
/// `kb/decisions/lancedb.md`.
const NAMES_WEIGHT: usize = 2;

/// Repetitions of the headings above a chunk.
const HEADINGS_WEIGHT: usize = 2;

/// A paragraph, the places of its words, and its language.
pub(crate) struct Paragraph<'a> {
    pub(crate) text: &'a str,
    words: Vec<Range<usize>>,
    pub(crate) language: &'static Language,
}

impl<'a> Paragraph<'a> {
    /// Reads a paragraph of a document in a language. A paragraph in another language, as on a half-translated page,
    /// gets the terms of that language.
    fn of(text: &'a str, document: &'static Language) -> Self {
        let words = runs(text);
        let language = language_of_paragraph(text, &words, document);
        Self { text, words, language }
    }
}

/// Returns the paragraphs of a text, given the language of the document.
pub(crate) fn paragraphs<'a>(text: &'a str, document: &'static Language) -> Vec<Paragraph<'a>> {
    let parts = text.split("\n\n").flat_map(|part| part.split("\r\n\r\n"));
    parts.map(|part| Paragraph::of(part, document)).collect()
}

/// Makes the terms of the chunks of one document. Most of its words occur again and again, and its names in each chunk,
/// so each word is stemmed and each name and heading is read once.
pub(crate) struct ChunkTerms {
    document: &'static Language,
    /// Stems by language and word.
    stems: HashMap<&'static str, HashMap<String, String>>,
    /// Terms of names and headings.
    named: HashMap<String, TextTerms>,
}

/// The terms of a text, each with a space after it.
#[derive(Default)]
struct TextTerms {
    in_order: String,
    english: String,
    near: String,
}

impl TextTerms {
    fn add(&mut self, other: &Self) {
        self.in_order.push_str(&other.in_order);
        self.english.push_str(&other.english);
        self.near.push_str(&other.near);
    }
}

impl ChunkTerms {
    /// Starts with no words read, for a document in a language.
    pub(crate) fn of(document: &'static Language) -> Self {
        Self { document, stems: HashMap::new(), named: HashMap::new() }
    }

    /// Returns the terms of a chunk: of names and headings, repeated by weight, and of the paragraphs of its text.
    ///
    /// BM25 over this column equals BM25F over the three fields: repeating a field multiplies its term frequencies and
    /// its length. A single column can be searched best first, while several columns have to be merged completely.
    pub(crate) fn of_chunk(&mut self, chunk: &ChunkRow, text: &[Paragraph<'_>]) -> String {
        let names = std::iter::repeat_n(&chunk.names, NAMES_WEIGHT).flatten();
        let headings = std::iter::repeat_n(&chunk.heading_path, HEADINGS_WEIGHT).flatten();
        self.of_texts(&names.chain(headings).map(String::as_str).collect::<Vec<_>>(), text)
    }

    fn of_texts(&mut self, named: &[&str], text: &[Paragraph<'_>]) -> String {
        let mut terms = TextTerms::default();
        for name in named {
            if !self.named.contains_key(*name) {
                let of_name = self.of_paragraph(&Paragraph::of(name, self.document));
                self.named.insert((*name).to_owned(), of_name);
            }
            terms.add(&self.named[*name]);
        }
        for paragraph in text {
            terms.add(&self.of_paragraph(paragraph));
        }
        let TextTerms { in_order, english, near } = terms;
        (in_order + &english + &near).trim_end().to_owned()
    }

    fn of_paragraph(&mut self, Paragraph { text, words, language }: &Paragraph<'_>) -> TextTerms {
        let mut terms = TextTerms::default();
        for word in words.iter().map(|range| &text[range.clone()]) {
            match characters_of(word) {
                Some(characters) => characters.for_each(|letter| terms.in_order.extend([letter, ' '])),
                None => self.push_stem(&mut terms.in_order, word, language),
            }
            if !language.is_english() && Script::of_word(word) == Script::Latin {
                self.push_stem(&mut terms.english, word, Language::english());
            }
        }
        // Most texts have none, and need no second look.
        if !language.is_english() || !text.is_ascii() {
            for form in near_forms(text, words, language) {
                terms.near.extend([&*form, " "]);
            }
        }
        terms
    }

    fn push_stem(&mut self, terms: &mut String, word: &str, language: &'static Language) {
        let known = self.stems.entry(language.code).or_default();
        if !known.contains_key(word) {
            known.insert(word.to_owned(), WordSplitter::of(language).stem(word));
        }
        terms.push_str(&known[word]);
        terms.push(' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_by(text: &str, code: &str) -> String {
        let language = Language::with_code(code).unwrap();
        ChunkTerms::of(language).of_texts(&[], &paragraphs(text, language))
    }

    #[test]
    fn english_is_found_by_its_stems_alone() {
        assert_eq!(found_by("Indexes, naïve re-runs of UTF-8", "en"), "index naiv re run of utf 8");
    }

    #[test]
    fn other_languages_are_found_by_stems_and_first_letters() {
        assert_eq!(found_by("les maisons", "fr"), "le maison les maison mais*");
        assert_eq!(found_by("Die Häuser am See", "de"), "die haus am see die hauser am see haus* ause* user*");
        assert_eq!(found_by("резервные копии", "ru"), "резервн коп резе* копи*");
        assert_eq!(found_by("백업을 복원", "ko"), "백업을 복원 백업* 복원*");
        assert_eq!(found_by("sao lưu tệp", "vi"), "sao lưu tệp sao luu tep sao* luu* sao*luu* tep* luu*tep*");
    }

    #[test]
    fn chinese_is_found_by_characters_and_pairs_across_words() {
        assert_eq!(found_by("备份数据库", "zh"), "备 份 数 据 库 备份* 份数* 数据* 据库*");
        assert_eq!(found_by("用 SSH 备份", "zh"), "用 ssh 备 份 ssh 备份*", "no pair across a space");
    }

    #[test]
    fn thai_is_cut_into_words() {
        let found = found_by("การสำรองข้อมูล", "th");
        assert!(found.split(' ').any(|word| word == "ข้อมูล"), "{found}");
    }

    #[test]
    fn paragraph_in_another_language_is_stemmed_by_its_own() {
        let page =
            "The houses are not for sale, and they were never meant to be.\n\nDie Häuser sind nicht für den Markt.";
        let found = found_by(page, "en");
        assert!(found.starts_with("the hous are"), "{found}");
        assert!(found.contains(" die haus sind "), "{found}");
        assert!(found.contains(" haus*") && !found.contains(" hous*"), "{found}");
        let languages: Vec<_> = paragraphs(page, Language::english()).iter().map(|own| own.language.code).collect();
        assert_eq!(languages, ["en", "de"]);
    }

    #[test]
    fn names_and_headings_weigh_more_than_the_text() {
        let text = paragraphs("the bell", Language::english());
        let mut terms = ChunkTerms::of(Language::english());
        for _ in 0..2 {
            assert_eq!(terms.of_texts(&["Bells", "Bells", "Ringing"], &text), "bell bell ring the bell");
        }
    }
}
