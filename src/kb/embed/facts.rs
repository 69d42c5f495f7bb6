//! Published facts about the models of the catalogue: languages, licence, size and search quality.
//!
//! Sizes are those of the weights, as published or by the number of parameters. Figures are given only for the
//! weights they were measured with, and only if the model card or the benchmark states them.

use serde::Serialize;

/// Published facts about a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Facts {
    pub(crate) languages: Languages,
    /// SPDX identifier, or the name of a licence that has none.
    pub(crate) licence: &'static str,
    /// Approximate size in megabytes.
    pub(crate) megabytes: u32,
    pub(crate) ndcg: Option<Published>,
}

/// The languages that a model reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Languages {
    /// The languages as listed.
    pub(crate) shown: &'static str,
    /// ISO 639-1 codes. Empty if it reads more languages than are told apart here.
    pub(super) codes: &'static [&'static str],
}

/// A published nDCG@10, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Published {
    pub(crate) value: f32,
    /// Name of the set of questions.
    pub(crate) set: &'static str,
    /// Publisher of the figure.
    pub(crate) source: &'static str,
}

impl Published {
    /// Returns whether two figures are of the same questions and source.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (self.set, self.source) == (other.set, other.source)
    }
}

const fn facts(languages: Languages, licence: &'static str, megabytes: u32) -> Facts {
    Facts { languages, licence, megabytes, ndcg: None }
}

impl Facts {
    /// Adds a figure on SciFact: 300 claims about 5,183 abstracts.
    const fn scifact(self, value: f32) -> Self {
        let published =
            Published { value, set: "scifact", source: "300 claims and 5,183 abstracts, as MTEB publishes it" };
        Self { ndcg: Some(published), ..self }
    }

    /// Adds the mean of the 15 sets that MTEB counts as retrieval in English.
    const fn mteb(self, value: f32, source: &'static str) -> Self {
        Self { ndcg: Some(Published { value, set: "mteb", source }), ..self }
    }
}

const ENGLISH: Languages = Languages { shown: "English", codes: &["en"] };
const CODE: Languages = Languages { shown: "English, code", codes: &["en"] };
// English occurs in Chinese texts, so these models read it as well.
const CHINESE: Languages = Languages { shown: "Chinese", codes: &["zh", "en"] };
const BOTH: Languages = Languages { shown: "English, Chinese", codes: &["en", "zh"] };
const FIFTY: Languages = Languages { shown: "about 50", codes: &[] };
const HUNDRED: Languages = Languages { shown: "about 100", codes: &[] };
const APACHE: &str = "Apache-2.0";
const MIT: &str = "MIT";
const ARCTIC: &str = "mean of the 15 English retrieval sets of MTEB, card of snowflake-arctic-embed";

/// The models by short name, embedders first.
const FACTS: &[(&str, Facts)] = &[
    ("builtin", facts(ENGLISH, APACHE, 23).scifact(0.645)),
    ("AllMiniLML12V2", facts(ENGLISH, APACHE, 133)),
    ("AllMiniLML12V2Q", facts(ENGLISH, APACHE, 34)),
    ("AllMiniLML6V2", facts(ENGLISH, APACHE, 90).scifact(0.645)),
    ("AllMiniLML6V2Q", facts(ENGLISH, APACHE, 23)),
    ("AllMpnetBaseV2", facts(ENGLISH, APACHE, 436)),
    ("BGEBaseENV15", facts(ENGLISH, MIT, 436).scifact(0.741)),
    ("BGEBaseENV15Q", facts(ENGLISH, MIT, 210)),
    ("BGELargeENV15", facts(ENGLISH, MIT, 1_340).mteb(0.543, ARCTIC)),
    ("BGELargeENV15Q", facts(ENGLISH, MIT, 670)),
    ("BGELargeZHV15", facts(CHINESE, MIT, 1_300)),
    ("BGEM3", facts(HUNDRED, MIT, 2_270)),
    ("BGESmallENV15", facts(ENGLISH, MIT, 133).scifact(0.713)),
    ("BGESmallENV15Q", facts(ENGLISH, MIT, 67)),
    ("BGESmallZHV15", facts(CHINESE, MIT, 96)),
    ("ClipVitB32", facts(ENGLISH, MIT, 250)),
    ("EmbeddingGemma300M", facts(HUNDRED, "Gemma", 1_230)),
    ("EmbeddingGemma300MQ", facts(HUNDRED, "Gemma", 310)),
    ("EmbeddingGemma300MQ4", facts(HUNDRED, "Gemma", 200)),
    ("GTEBaseENV15", facts(ENGLISH, APACHE, 550)),
    ("GTEBaseENV15Q", facts(ENGLISH, APACHE, 140)),
    ("GTELargeENV15", facts(ENGLISH, APACHE, 1_740)),
    ("GTELargeENV15Q", facts(ENGLISH, APACHE, 440)),
    ("JinaEmbeddingsV2BaseCode", facts(CODE, APACHE, 640)),
    ("JinaEmbeddingsV2BaseEN", facts(ENGLISH, APACHE, 520)),
    ("ModernBertEmbedLarge", facts(ENGLISH, APACHE, 1_580)),
    ("MultilingualE5Base", facts(HUNDRED, MIT, 1_110)),
    ("MultilingualE5Large", facts(HUNDRED, MIT, 2_240)),
    ("MultilingualE5Small", facts(HUNDRED, MIT, 470)),
    ("MxbaiEmbedLargeV1", facts(ENGLISH, APACHE, 1_340).mteb(0.544, ARCTIC)),
    ("MxbaiEmbedLargeV1Q", facts(ENGLISH, APACHE, 340)),
    ("NomicEmbedTextV1", facts(ENGLISH, APACHE, 550)),
    ("NomicEmbedTextV15", facts(ENGLISH, APACHE, 550)),
    ("NomicEmbedTextV15Q", facts(ENGLISH, APACHE, 140)),
    ("ParaphraseMLMiniLML12V2", facts(FIFTY, APACHE, 470)),
    ("ParaphraseMLMiniLML12V2Q", facts(FIFTY, APACHE, 220)),
    ("ParaphraseMLMpnetBaseV2", facts(FIFTY, APACHE, 1_110)),
    ("SnowflakeArcticEmbedL", facts(ENGLISH, APACHE, 1_340).mteb(0.560, ARCTIC)),
    ("SnowflakeArcticEmbedLQ", facts(ENGLISH, APACHE, 340)),
    ("SnowflakeArcticEmbedM", facts(ENGLISH, APACHE, 436).mteb(0.549, ARCTIC)),
    ("SnowflakeArcticEmbedMLong", facts(ENGLISH, APACHE, 550).mteb(0.548, ARCTIC)),
    ("SnowflakeArcticEmbedMLongQ", facts(ENGLISH, APACHE, 140)),
    ("SnowflakeArcticEmbedMQ", facts(ENGLISH, APACHE, 110)),
    ("SnowflakeArcticEmbedS", facts(ENGLISH, APACHE, 133).mteb(0.520, ARCTIC)),
    ("SnowflakeArcticEmbedSQ", facts(ENGLISH, APACHE, 34)),
    ("SnowflakeArcticEmbedXS", facts(ENGLISH, APACHE, 90).mteb(0.502, ARCTIC)),
    ("SnowflakeArcticEmbedXSQ", facts(ENGLISH, APACHE, 23)),
    ("BGERerankerBase", facts(BOTH, MIT, 1_110)),
    ("BGERerankerV2M3", facts(HUNDRED, APACHE, 2_270)),
    ("JINARerankerV1TurboEn", facts(ENGLISH, APACHE, 150)),
    ("JINARerankerV2BaseMultilingual", facts(HUNDRED, "CC-BY-NC-4.0", 1_110)),
];

/// Returns the facts about a model, by its short name.
pub(crate) fn facts_of(name: &str) -> Option<Facts> {
    FACTS.iter().find(|(known, _)| *known == name).map(|(_, facts)| *facts)
}

#[cfg(test)]
mod tests {
    use super::super::catalogue::{catalogue, rerankers};
    use super::*;

    #[test]
    fn every_model_of_the_catalogue_has_its_facts_and_no_other_has() {
        let embedders = catalogue().into_iter().map(|model| model.name);
        let mut names: Vec<_> = embedders.chain(rerankers().into_iter().map(|model| model.name)).collect();
        names.push("builtin".to_owned());
        for name in &names {
            assert!(facts_of(name).is_some(), "{name}");
        }
        assert_eq!(names.len(), FACTS.len());
    }
}
