//! Relevance feedback (Lavrenko and Croft 2001) within the hits of a search: a subject has parts that do not name it, and
//! the words of its best passages tell them.

use std::collections::{HashMap, HashSet};

use crate::base::word::WordSplitter;
use crate::source::Passage;

/// Number of hits whose words tell what belongs to a subject, and number of these words.
const TELLING: usize = 5;
const TELLING_WORDS: usize = 10;

/// Orders passages by their score and by how many words they share with the best.
#[expect(clippy::cast_precision_loss, reason = "there are some dozen hits")]
pub(super) fn prefer_related(passages: &mut [Passage], subject: &str) {
    let splitter = WordSplitter::default();
    let asked = splitter.stems(subject);
    let stems = |own: &Passage| splitter.key_stems(&own.text).into_iter().collect::<HashSet<_>>();
    let words: Vec<HashSet<String>> = passages.iter().map(stems).collect();
    let mut weights: HashMap<&str, f32> = HashMap::new();
    for word in words.iter().take(TELLING).flatten().filter(|word| !asked.contains(*word)) {
        let count = words.iter().filter(|own| own.contains(word)).count();
        // A word of one passage relates it to no other.
        if count > 1 {
            *weights.entry(word).or_default() += (words.len() as f32 / count as f32).ln();
        }
    }
    let mut weights: Vec<_> = weights.into_iter().collect();
    weights.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    weights.truncate(TELLING_WORDS);
    let all: f32 = weights.iter().map(|(_, weight)| weight).sum::<f32>().max(f32::EPSILON);
    let top = passages.iter().map(|own| own.score).fold(f32::EPSILON, f32::max);
    let related =
        |own: &HashSet<String>| weights.iter().filter(|(word, _)| own.contains(*word)).map(|word| word.1).sum::<f32>();
    let scores: Vec<f32> =
        passages.iter().zip(&words).map(|(own, words)| own.score / top + related(words) / all).collect();
    let mut order: Vec<usize> = (0..passages.len()).collect();
    // Stable: equals keep the order of the search.
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    let ordered: Vec<_> = order.into_iter().map(|at| passages[at].clone()).collect();
    passages.clone_from_slice(&ordered);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::scripted::ScriptedSource;

    #[test]
    fn passage_on_the_parts_of_a_subject_comes_before_one_that_shares_a_word_by_chance() {
        let source = ScriptedSource::of(&[]);
        let texts = [
            ("The mill has a red wheel and a sluice.", 1.0),
            ("Its sluice feeds the mill and the wheel.", 0.9),
            ("A mill of coffee stands in the kitchen.", 0.8),
            ("The sluice opens when the wheel is dry.", 0.7),
        ];
        let passage = |(at, (text, score)): (usize, (&str, f32))| {
            let passage = source.passage("a.md", &format!("a.md#{at}"), text, 1, 1);
            Passage { score, ..passage }
        };
        let mut passages: Vec<_> = texts.into_iter().enumerate().map(passage).collect();
        prefer_related(&mut passages, "mill");
        let order: Vec<_> = passages.iter().map(|own| own.id.as_str()).collect();
        assert_eq!(order, ["a.md#0", "a.md#1", "a.md#3", "a.md#2"]);
    }
}
