//! Chooses the units to show from those that match best.

use super::candidate::{SAME_WORDS, UnitCandidate, common, lines_of, overlap};
use super::features::{MARGIN, Weights, points};
use super::sought::Sought;
use super::{LONG_PARAGRAPH, MAX_LINES};
use crate::research::sentence::Sentence;

/// Maximum number of texts picked for one question. Consecutive units are one text.
const MAX_TEXTS: usize = 3;

/// Returns whether the best unit is usually enough: one of its sentences has every word of a question that one
/// sentence may answer, or it has the requested number. A single word may occur in any sentence, and all words of a
/// question for a definition in one that only uses the term.
pub(super) fn says_all(candidates: &[UnitCandidate<'_>], sought: &Sought<'_>, weights: &Weights) -> bool {
    let has_all = |sentence: &Sentence| {
        let words = sought.words_in(&sentence.plain);
        let has_value = sought.wanted.is_none_or(|wanted| wanted.is_in(&sentence.plain));
        let may_say = has_value && !points(&sentence.plain) && !sought.only_uses_term(&sentence.plain);
        may_say && weights.keys().all(|stem| words.contains(stem))
    };
    let says = |best: &UnitCandidate<'_>| {
        (sought.asks_for_one() && weights.len() > 1 && best.unit.sentences.iter().any(has_all))
            || best.has_exact(sought)
    };
    candidates.first().is_some_and(says)
}

/// Keeps the best units, dropping those that repeat a better one or do not fit on the screen. If the best is usually
/// enough, the others must be about as good.
pub(super) fn best(candidates: Vec<UnitCandidate<'_>>, is_said: bool) -> Vec<UnitCandidate<'_>> {
    let margin = if is_said { MARGIN / 4.0 } else { MARGIN };
    let least = candidates.first().map_or(0.0, |best| best.features.score() - margin);
    let mut kept: Vec<UnitCandidate<'_>> = Vec::new();
    let (mut lines, mut texts) = (0, 0);
    for candidate in candidates {
        if candidate.features.score() < least {
            break;
        }
        let continues = kept.iter().any(|better| better.touches(&candidate));
        if texts == MAX_TEXTS && !continues {
            continue;
        }
        let is_same = |better: &UnitCandidate<'_>| {
            let is_one =
                std::ptr::eq(better.reading, candidate.reading) && overlap(&better.unit.range, &candidate.unit.range);
            // The same list below two headings of a document describes two things.
            let is_of_one = std::ptr::eq(better.reading, candidate.reading);
            let is_about_same = if is_of_one {
                candidate.about.is_subset(&better.about)
            } else {
                // A long text has most words of any short one.
                let sizes = [better.words.len(), candidate.words.len()];
                sizes[0].max(sizes[1]) <= 2 * sizes[0].min(sizes[1])
            };
            is_one || (is_about_same && common(&better.words, &candidate.words) > SAME_WORDS)
        };
        let own = lines_of(&candidate, LONG_PARAGRAPH);
        // Skipped, not ended: a later unit may be short enough.
        if kept.iter().any(is_same) || (!kept.is_empty() && lines + own > MAX_LINES) {
            continue;
        }
        lines += own;
        texts += usize::from(!continues);
        kept.push(candidate);
    }
    kept
}
