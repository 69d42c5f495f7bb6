//! Combines the rankings of the text and the vector leg: a convex combination of normalised scores.
//!
//! Text scores are divided by the best one, since BM25 has a natural zero. Vector similarities, which do not, are
//! scaled so that the worst becomes 0 and the best 1. This was better than reciprocal rank fusion on every set
//! measured, see `kb/decisions/fusion.md`.

use std::collections::HashMap;

use crate::base::id::{ChunkId, DocumentId};
use crate::kb::index::LegHit;

/// Weight of the vector leg; the text leg has the rest. Tuned on the sets in `kb/decisions/fusion.md`: with it, none of
/// them is more than .01 below the better leg.
pub(crate) const VECTOR_WEIGHT: f32 = 0.45;

/// Rank and score of a chunk in one leg.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LegPlace {
    /// Rank, from 1.
    pub(crate) rank: usize,
    /// BM25 score or cosine similarity.
    pub(crate) score: f32,
}

/// A chunk found by either leg.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) hit: LegHit,
    /// Rank and score in the text leg; `None` if that leg did not find the chunk.
    pub(crate) text: Option<LegPlace>,
    /// Rank and score in the vector leg; `None` if that leg did not find the chunk.
    pub(crate) vector: Option<LegPlace>,
    /// The combined score, from 0 to 1.
    pub(crate) score: f32,
}

/// Combines two legs, each sorted best first. The result is sorted best first, exact ties by chunk id.
///
/// If one leg is empty, the other has the full weight. `read` is how well the embedder reads the
/// query, from 0 to 1.
pub(crate) fn fuse(text: &[LegHit], vector: &[LegHit], read: f32) -> Vec<Candidate> {
    let vector_weight = match (text.is_empty(), vector.is_empty()) {
        (_, true) => 0.0,
        (true, _) => 1.0,
        _ => VECTOR_WEIGHT * read,
    };
    let mut candidates: HashMap<&ChunkId, Candidate> = HashMap::new();
    // Guards the division: a score of 0 divided by 0 would sort above all others.
    let best_text = text.first().map_or(1.0, |hit| hit.score.max(f32::MIN_POSITIVE));
    for (hit, rank) in text.iter().zip(1..) {
        let candidate = candidates.entry(&hit.chunk_id).or_insert_with(|| Candidate::new(hit));
        candidate.text = Some(LegPlace { rank, score: hit.score });
        candidate.score += (1.0 - vector_weight) * hit.score / best_text;
    }
    let (best, worst) = (vector.first().map_or(1.0, |hit| hit.score), vector.last().map_or(0.0, |hit| hit.score));
    let span = (best - worst).max(f32::EPSILON);
    for (hit, rank) in vector.iter().zip(1..) {
        let candidate = candidates.entry(&hit.chunk_id).or_insert_with(|| Candidate::new(hit));
        candidate.vector = Some(LegPlace { rank, score: hit.score });
        // A single hit is the worst as well as the best.
        let share = if vector.len() == 1 { 1.0 } else { (hit.score - worst) / span };
        candidate.score += vector_weight * share;
    }
    let mut candidates: Vec<_> = candidates.into_values().collect();
    sort(&mut candidates);
    candidates
}

/// Sorts best first, exact ties by chunk id, so that the order is the same on every machine.
pub(crate) fn sort(candidates: &mut [Candidate]) {
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.hit.chunk_id.cmp(&b.hit.chunk_id)));
}

/// Factor on the score of hits beyond a document's share.
const FURTHER_SHARE: f32 = 0.75;

/// Limit on the hits of one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerDocument {
    /// A hard limit.
    Only(usize),
    /// A soft limit: further hits have their score reduced, and stay if nothing else comes close.
    ///
    /// A hard limit was worse if a few long documents contain all the answers, see `kb/decisions/fusion.md`.
    First(usize),
}

/// Applies the limit per document to sorted candidates and sorts them again.
pub(crate) fn spread(candidates: &mut Vec<Candidate>, per_document: PerDocument) {
    let mut of_document: HashMap<DocumentId, usize> = HashMap::new();
    candidates.retain_mut(|candidate| {
        let count = of_document.entry(candidate.hit.document_id.clone()).or_default();
        *count += 1;
        match per_document {
            PerDocument::Only(most) => *count <= most,
            PerDocument::First(share) => {
                if *count > share {
                    candidate.score *= FURTHER_SHARE;
                }
                true
            }
        }
    });
    sort(candidates);
}

impl Candidate {
    fn new(hit: &LegHit) -> Self {
        Self { hit: hit.clone(), text: None, vector: None, score: 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::DocumentId;

    fn hit(name: &str, score: f32) -> LegHit {
        let document_id = DocumentId::new("kb", name);
        LegHit { row_id: 0, chunk_id: ChunkId::new(&document_id, "", name, 0), document_id, score }
    }

    fn order(candidates: &[Candidate], names: &[&str]) -> Vec<usize> {
        let ids: Vec<_> = names.iter().map(|name| hit(name, 0.0).chunk_id).collect();
        candidates.iter().map(|found| ids.iter().position(|id| *id == found.hit.chunk_id).unwrap()).collect()
    }

    #[test]
    fn chunk_in_both_legs_beats_chunks_in_one() {
        let fused = fuse(&[hit("a", 10.0), hit("b", 9.0)], &[hit("c", 0.9), hit("b", 0.8), hit("d", 0.1)], 1.0);
        assert_eq!(order(&fused, &["a", "b", "c", "d"]), [1, 0, 2, 3]);
        assert!((fused[0].score - ((1.0 - VECTOR_WEIGHT) * 0.9 + VECTOR_WEIGHT * 0.875)).abs() < 1e-6);
    }

    #[test]
    fn one_empty_leg_leaves_the_order_of_the_other() {
        let leg = [hit("a", 3.0), hit("b", 2.0), hit("c", 1.0)];
        assert_eq!(order(&fuse(&leg, &[], 1.0), &["a", "b", "c"]), [0, 1, 2]);
        assert_eq!(order(&fuse(&[], &leg, 1.0), &["a", "b", "c"]), [0, 1, 2]);
        assert!((fuse(&[], &leg, 1.0)[0].score - 1.0).abs() < 1e-6);
        assert!(fuse(&[], &[], 1.0).is_empty());
    }

    #[test]
    fn further_hits_of_a_document_make_room_for_others_that_are_nearly_as_good() {
        let other = |name: &str, score| {
            let document_id = DocumentId::new("kb", "other");
            LegHit { row_id: 0, chunk_id: ChunkId::new(&document_id, "", name, 0), document_id, score }
        };
        let document_id = DocumentId::new("kb", "same");
        let same = |name: &str, score| LegHit {
            row_id: 0,
            chunk_id: ChunkId::new(&document_id, "", name, 0),
            document_id: document_id.clone(),
            score,
        };
        let mut found =
            fuse(&[same("a", 10.0), same("b", 9.0), same("c", 8.0), other("d", 7.0), other("e", 5.0)], &[], 1.0);
        spread(&mut found, PerDocument::First(2));
        let scores: Vec<_> = found.iter().map(|found| (found.score * 100.0).round()).collect();
        assert_eq!(scores, [100.0, 90.0, 70.0, 60.0, 50.0], "the third of the same document stands behind the other");
        spread(&mut found, PerDocument::Only(1));
        assert_eq!(found.len(), 2, "the best of each");
    }

    #[test]
    fn exact_ties_are_in_order_of_chunk_id() {
        let fused = fuse(&[hit("a", 1.0), hit("b", 1.0), hit("c", 1.0)], &[], 1.0);
        assert!(fused.windows(2).all(|pair| pair[0].hit.chunk_id < pair[1].hit.chunk_id));
    }
}
