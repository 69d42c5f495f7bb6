//! Which languages a model reads, by its name.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::base::id::as_text;
use crate::base::language::Language;
use crate::base::script::{Script, share_of};

/// How well a model reads a language in Latin script that is not one of its own, relative to its own. With this weight,
/// the vector leg of an English model helped in German and Romanian and cost little in Turkish, see
/// `kb/decisions/languages.md`.
const OTHER_LATIN: f32 = 0.4;

/// The languages that a model reads. It tokenizes other scripts letter by letter, which yields no meaning, and other
/// languages in Latin script in pieces, which yields some.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Reads {
    /// All languages, or unknown ones.
    #[default]
    All,
    /// These, by ISO 639-1 code.
    Only(Cow<'static, [&'static str]>),
}

pub(super) static ALL: Reads = Reads::All;
pub(super) static ENGLISH: Reads = Reads::Only(Cow::Borrowed(EN));

const EN: &[&str] = &["en"];
// English occurs in Chinese texts, so these models read it as well.
const ZH: &[&str] = &["zh", "en"];
const EVERY: &[&str] = &[];

/// Codes of the languages that well-known models read, by a part of the model's name in lower case; no codes stand for
/// all languages. The first match wins, so narrower names come first.
const KNOWN: &[(&str, &[&str])] = &[
    ("multilingual", EVERY),
    ("all-distilroberta", EN),
    ("all-minilm", EN),
    ("all-mpnet-base", EN),
    ("multi-qa", EN),
    ("arctic-embed2", EVERY),
    ("arctic-embed-m-v2", EVERY),
    ("arctic-embed-l-v2", EVERY),
    ("arctic-embed", EN),
    ("bge-small-zh", ZH),
    ("bge-base-zh", ZH),
    ("bge-large-zh", ZH),
    ("bge-small", EN),
    ("bge-base", EN),
    ("bge-large", EN),
    ("e5-small", EN),
    ("e5-base", EN),
    ("e5-large", EN),
    ("embed-english", EN),
    // The name in Ollama, where only this size reads other languages.
    ("granite-embedding:278m", EVERY),
    ("granite-embedding", EN),
    ("gte-small-zh", ZH),
    ("gte-base-zh", ZH),
    ("gte-large-zh", ZH),
    ("gte-small", EN),
    ("gte-base", EN),
    ("gte-large", EN),
    ("gte-modernbert", EN),
    ("jina-embeddings-v2-base-de", &["de", "en"]),
    ("jina-embeddings-v2-base-es", &["es", "en"]),
    ("jina-embeddings-v2-base-zh", ZH),
    ("jina-embeddings-v2", EN),
    ("modernbert-embed", EN),
    ("mxbai-embed-large", EN),
    ("mxbai-embed-xsmall", EN),
    ("nomic-embed-text-v2", EVERY),
    ("nomic-embed-text", EN),
];

/// The text does not name languages.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` does not name languages (expected `all`, or codes such as `en` or `de, en`)")]
pub struct ParseReadsError(String);

impl FromStr for Reads {
    type Err = ParseReadsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim() == "all" {
            return Ok(Self::All);
        }
        let codes: Option<Vec<_>> = text.split(',').map(|code| Some(Language::with_code(code.trim())?.code)).collect();
        codes.map(|codes| Self::Only(codes.into())).ok_or_else(|| ParseReadsError(text.to_owned()))
    }
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Only(codes) => f.write_str(&codes.join(", ")),
        }
    }
}

as_text!(Reads);

impl Reads {
    /// Returns the languages with these codes; without codes, all languages.
    pub(super) fn of_codes(codes: &'static [&'static str]) -> Self {
        if codes.is_empty() { Self::All } else { Self::Only(codes.into()) }
    }

    /// Returns the languages that a model reads, judged by its name: that of its files, of a hub or of a server. An
    /// unknown model reads all.
    pub(super) fn of_model(name: &str) -> Self {
        // Registries and folders come first: `nomic-ai/nomic-embed-text-v1.5`.
        let name = name.rsplit('/').next().unwrap_or_default().to_lowercase();
        let begins_word = |at: usize| !name[..at].ends_with(char::is_alphanumeric);
        let is_named = |part: &str| name.match_indices(part).any(|(at, _)| begins_word(at));
        let Some(&(_, codes)) = KNOWN.iter().find(|(part, _)| is_named(part)) else { return Self::All };
        // A model tuned for another language is often named after its base: `e5-base-en-ru`.
        let mut named = name.split(|letter: char| !letter.is_alphanumeric()).filter_map(Language::with_code);
        if named.any(|language| !codes.contains(&language.code)) { Self::All } else { Self::of_codes(codes) }
    }

    pub(crate) fn includes(&self, language: &Language) -> bool {
        match self {
            Self::All => true,
            Self::Only(codes) => codes.contains(&language.code),
        }
    }

    /// Returns how well a text is read, from 0 to 1, given its language or the likeliest one.
    pub(crate) fn share(&self, text: &str, language: &Language) -> f32 {
        match self {
            Self::All => 1.0,
            Self::Only(_) if self.includes(language) => share_of(text, &self.scripts()),
            // The tokenizer drops the accents, and with them the difference between the words.
            Self::Only(_) if language.has_tones() => 0.0,
            Self::Only(_) => OTHER_LATIN * share_of(text, &[Script::Latin]),
        }
    }

    /// Returns the names of the languages, for people; `None` for all.
    pub(crate) fn names(&self) -> Option<String> {
        let Self::Only(_) = self else { return None };
        Some(self.languages().map(|language| language.name).collect::<Vec<_>>().join(" and "))
    }

    fn languages(&self) -> impl Iterator<Item = &'static Language> {
        let codes: &[&str] = match self {
            Self::All => &[],
            Self::Only(codes) => codes,
        };
        codes.iter().filter_map(|code| Language::with_code(code))
    }

    fn scripts(&self) -> Vec<Script> {
        let mut scripts: Vec<_> = self.languages().map(|language| language.script).collect();
        // Japanese is written in Chinese characters too.
        if scripts.contains(&Script::Kana) {
            scripts.push(Script::Han);
        }
        scripts
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::catalogue;
    use super::super::facts::facts_of;
    use super::*;

    fn language(code: &str) -> &'static Language {
        Language::with_code(code).unwrap()
    }

    #[test]
    fn languages_of_well_known_models_are_told_by_any_of_their_names() {
        for (name, reads) in [
            ("all-minilm", "en"),
            ("all-minilm:latest", "en"),
            ("all-minilm:33m", "en"),
            ("sentence-transformers/all-mpnet-base-v2", "en"),
            ("nomic-ai/nomic-embed-text-v1.5", "en"),
            ("hf.co/nomic-ai/nomic-embed-text-v1.5-GGUF:Q8_0", "en"),
            ("text-embedding-nomic-embed-text-v1.5", "en"),
            ("nomic-embed-text-v2-moe", "all"),
            ("BAAI/bge-small-en-v1.5", "en"),
            ("bge-large:335m", "en"),
            ("BAAI/bge-large-zh-v1.5", "zh, en"),
            ("bge-m3", "all"),
            ("mxbai-embed-large:latest", "en"),
            ("deepset-mxbai-embed-de-large-v1", "all"),
            ("snowflake-arctic-embed:137m", "en"),
            ("Snowflake/snowflake-arctic-embed-m-long", "en"),
            ("snowflake-arctic-embed2", "all"),
            ("Snowflake/snowflake-arctic-embed-l-v2.0", "all"),
            ("thenlper/gte-base", "en"),
            ("thenlper/gte-large-zh", "zh, en"),
            ("Alibaba-NLP/gte-multilingual-base", "all"),
            ("intfloat/e5-base-v2", "en"),
            ("intfloat/multilingual-e5-base", "all"),
            ("me5-small", "all"),
            ("someone/e5-base-en-ru", "all"),
            ("granite-embedding:30m", "en"),
            ("granite-embedding:278m", "all"),
            ("jina-embeddings-v2-base-de", "de, en"),
            ("jina-embeddings-v2-base-code", "en"),
            ("jina-embeddings-v3", "all"),
            ("text-embedding-3-small", "all"),
            ("qwen3-embedding:0.6b", "all"),
            ("embeddinggemma:300m", "all"),
            ("mine", "all"),
            ("", "all"),
        ] {
            assert_eq!(Reads::of_model(name).to_string(), reads, "{name}");
        }
    }

    #[test]
    fn models_of_the_catalogue_read_the_same_languages_at_a_server() {
        for model in catalogue() {
            let (told, facts) = (Reads::of_model(model.repository()), facts_of(&model.name).unwrap());
            assert!(told == ALL || told == Reads::of_codes(facts.languages.codes), "{} as {told}", model.name);
        }
    }

    #[test]
    fn text_in_another_script_or_with_tones_is_not_read_and_one_in_latin_letters_in_part() {
        let near = |a: f32, b: f32| (a - b).abs() < 1e-6;
        for (reads, text, code, share) in [
            ("all", "ключи от ворот", "ru", 1.0),
            ("en", "the keys of the gate", "en", 1.0),
            ("en", "ключи от ворот", "ru", 0.0),
            ("en", "ключи", "en", 0.0),
            ("en", "die Schlüssel des Tors", "de", 0.4),
            ("en", "chìa khóa cổng", "vi", 0.0),
            ("de, en", "die Schlüssel des Tors", "de", 1.0),
            ("zh, en", "大门的钥匙", "zh", 1.0),
            ("zh, en", "the keys of the gate", "en", 1.0),
            ("zh, en", "门ab", "zh", 1.0),
            ("zh, en", "ゲートのかぎ", "ja", 0.0),
            ("ja", "門の鍵", "ja", 1.0),
        ] {
            let found = reads.parse::<Reads>().unwrap().share(text, language(code));
            assert!(near(found, share), "{reads}: {text} is read {found}, not {share}");
        }
    }

    #[test]
    fn languages_are_written_as_codes_and_unknown_ones_are_refused() {
        for text in ["all", "en", "zh, en"] {
            assert_eq!(text.parse::<Reads>().unwrap().to_string(), text);
        }
        assert_eq!("en-GB,DE".parse::<Reads>().unwrap().to_string(), "en, de");
        for text in ["", "english", "en,", "xx", "all, en"] {
            assert!(text.parse::<Reads>().is_err(), "{text}");
        }
        assert_eq!(Reads::of_codes(ZH).names().as_deref(), Some("Chinese and English"));
        assert_eq!((ENGLISH.names().as_deref(), ALL.names()), (Some("English"), None));
        assert!(ALL.includes(language("ar")) && ENGLISH.includes(language("en")) && !ENGLISH.includes(language("ar")));
    }
}
