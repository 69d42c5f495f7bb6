//! The fingerprint of an embedder: a hash of everything that decides what its vectors mean.

use serde::Serialize;

/// How an embedder computes its vectors.
///
/// Vectors of embedders whose recipes differ in any field must not be compared. Changing the fields of this struct
/// changes every fingerprint, so every user has to embed again.
#[derive(Debug, Serialize)]
pub(super) struct Recipe<'a> {
    /// Name in the catalogue, or `folder` for a model of the user, which its hashes identify.
    pub(super) model: &'a str,
    /// Hash of the model's graph and weights.
    pub(super) weights_hash: &'a str,
    pub(super) tokenizer_hash: &'a str,
    /// Number of components of a vector.
    pub(super) dimension: usize,
    /// How token vectors are combined: `mean` or `cls`.
    pub(super) pooling: &'a str,
    pub(super) query_prefix: &'a str,
    pub(super) passage_prefix: &'a str,
    /// Window in tokens, special ones included.
    pub(super) max_length: usize,
    /// Quantisation of weights and activations: `none`, `static`, `dynamic`.
    pub(super) quantisation: &'a str,
}

impl Recipe<'_> {
    /// Returns the fingerprint: 32 hex digits.
    pub(super) fn fingerprint(&self) -> String {
        let fields = serde_json::to_vec(self).expect("a struct of strings and numbers is always JSON");
        let mut digits = blake3::hash(&fields).to_hex().to_string();
        digits.truncate(32);
        digits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe() -> Recipe<'static> {
        Recipe {
            model: "m",
            weights_hash: "w",
            tokenizer_hash: "t",
            dimension: 384,
            pooling: "mean",
            query_prefix: "",
            passage_prefix: "",
            max_length: 256,
            quantisation: "none",
        }
    }

    #[test]
    fn fingerprint_changes_with_any_field() {
        let changed = [
            Recipe { model: "x", ..recipe() },
            Recipe { weights_hash: "x", ..recipe() },
            Recipe { tokenizer_hash: "x", ..recipe() },
            Recipe { dimension: 1, ..recipe() },
            Recipe { pooling: "cls", ..recipe() },
            Recipe { query_prefix: "x", ..recipe() },
            Recipe { passage_prefix: "x", ..recipe() },
            Recipe { max_length: 1, ..recipe() },
            Recipe { quantisation: "static", ..recipe() },
        ];
        let mut fingerprints: Vec<String> = changed.iter().map(Recipe::fingerprint).collect();
        fingerprints.push(recipe().fingerprint());
        fingerprints.sort();
        fingerprints.dedup();
        assert_eq!(fingerprints.len(), 10);
    }
}
