//! How well each word of a question is found in each part of a text.
//!
//! A mean over a passage hides the one sentence that answers. Comparing token with token finds it: `MaxSim` is the
//! mean, over the tokens of a question, of the best cosine among the tokens of a text (Khattab and Zaharia 2020,
//! `ColBERT`).

use std::ops::Range;

use super::{batch, cosine};

/// Unit vectors of the tokens of consecutive parts of one text, all from one pass of the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TokenVectors {
    dimension: usize,
    /// The vectors of all parts, one after the other.
    values: Vec<f32>,
    /// Where the vectors of each part end, in tokens.
    ends: Vec<usize>,
}

impl TokenVectors {
    /// Takes the token vectors of all parts and the number of tokens of each part.
    pub(super) fn new(dimension: usize, values: Vec<f32>, counts: impl IntoIterator<Item = usize>) -> Self {
        let ends = counts.into_iter().scan(0, |end, count| {
            *end += count;
            Some(*end)
        });
        Self { dimension, ends: ends.collect(), values }
    }

    fn part(&self, part: usize) -> impl Iterator<Item = &[f32]> {
        let start = part.checked_sub(1).map_or(0, |last| self.ends[last]);
        self.values[start * self.dimension..self.ends[part] * self.dimension].chunks_exact(self.dimension.max(1))
    }

    /// Returns the mean of all vectors as a unit vector; empty without vectors.
    fn direction(&self) -> Vec<f32> {
        batch::direction(self.values.chunks_exact(self.dimension.max(1))).unwrap_or_default()
    }
}

/// How well each token of a question is found in each part of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Matches {
    /// For each word of the question and each token of it, the best cosine in each part of the text, from 0 to 1.
    words: Vec<Vec<Vec<f32>>>,
    /// Cosine of the question and the text, each as a whole.
    similarity: f32,
}

impl Matches {
    /// Compares every token of a question, whose parts are its words, with every token of a text.
    pub(super) fn of_tokens(question: &TokenVectors, text: &TokenVectors) -> Self {
        let best = |token: &[f32], part| text.part(part).map(|own| cosine(token, own)).fold(0.0, f32::max);
        let of_token = |token| (0..text.ends.len()).map(|part| best(token, part)).collect();
        let words = (0..question.ends.len()).map(|word| question.part(word).map(of_token).collect()).collect();
        Self { words, similarity: cosine(&question.direction(), &text.direction()) }
    }

    /// Compares the vector of a question of `words` words with those of the parts of a text, for a model that yields
    /// one vector per text: every word gets the cosine of the whole question.
    pub(super) fn of_texts(words: usize, question: &[f32], parts: &[Vec<f32>]) -> Self {
        // An opposed vector counts as absent, like a part without tokens.
        let found: Vec<f32> = parts.iter().map(|part| cosine(question, part).max(0.0)).collect();
        let whole = batch::direction(parts.iter().map(Vec::as_slice)).unwrap_or_default();
        let similarity = cosine(question, &whole);
        Self { words: vec![vec![found]; words], similarity }
    }

    /// Returns the cosine of the question and the text, each as a whole, from 0 to 1.
    pub(crate) fn similarity(&self) -> f32 {
        self.similarity.max(0.0)
    }

    /// Returns the number of parts of the text.
    pub(crate) fn parts(&self) -> usize {
        self.words.iter().flatten().next().map_or(0, Vec::len)
    }

    /// Returns `MaxSim` of the whole question in some parts of the text, from 0 to 1.
    pub(crate) fn max_sim(&self, parts: impl Iterator<Item = usize>) -> f32 {
        let parts: Vec<_> = parts.collect();
        mean(self.words.iter().flatten().map(|token| best(token, &parts)))
    }

    /// Returns the best `MaxSim` of a few consecutive parts together with part 0, which holds the headings of the text.
    pub(crate) fn best_window(&self, size: usize) -> f32 {
        let of = |window: Range<usize>| self.max_sim((0..1).chain(window.start + 1..=window.end));
        windows(self.parts().saturating_sub(1), size).map(of).fold(0.0, f32::max)
    }

    /// Returns whether the words of the question were compared one by one, and not only the question as a whole.
    pub(crate) fn tells_words_apart(&self) -> bool {
        self.words.windows(2).any(|pair| pair[0] != pair[1])
    }

    /// Returns `MaxSim` of each word of the question in some parts of the text; 0 for one without tokens.
    pub(crate) fn by_word(&self, parts: impl Iterator<Item = usize>) -> Vec<f32> {
        let parts: Vec<_> = parts.collect();
        self.words.iter().map(|tokens| mean(tokens.iter().map(|token| best(token, &parts)))).collect()
    }
}

/// Returns every `size` consecutive parts; all of them if there are fewer.
pub(crate) fn windows(parts: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    (0..(parts + 1).saturating_sub(size).max(1)).map(move |start| start..(start + size).min(parts))
}

fn best(token: &[f32], parts: &[usize]) -> f32 {
    parts.iter().filter_map(|part| token.get(*part)).copied().fold(0.0, f32::max)
}

#[expect(clippy::cast_precision_loss, reason = "a question has some dozens of tokens")]
fn mean(values: impl Iterator<Item = f32>) -> f32 {
    let (sum, count) = values.fold((0.0, 0_usize), |(sum, count), value| (sum + value, count + 1));
    sum / count.max(1) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_is_found_in_the_part_that_has_its_tokens() {
        let question = TokenVectors::new(2, vec![1.0, 0.0, 0.0, 1.0], [1, 1]);
        let text = TokenVectors::new(2, vec![1.0, 0.0, 0.6, 0.8, 0.0, -1.0], [1, 1, 1, 0]);
        let found = Matches::of_tokens(&question, &text);
        assert!((found.max_sim(0..1) - 0.5).abs() < 1e-6);
        assert!((found.max_sim(0..2) - 0.9).abs() < 1e-6);
        assert_eq!(found.by_word(1..2), [0.6, 0.8]);
        // Opposed vectors count as absent, like a part without tokens.
        assert_eq!(found.by_word(2..4), [0.0, 0.0]);
        assert_eq!(found.by_word(3..9), [0.0, 0.0]);
        // Of (1, 1) and (1.6, -0.2).
        assert!((found.similarity() - 1.4 / (2.0_f32 * 2.6).sqrt()).abs() < 1e-6, "{}", found.similarity());
    }

    #[test]
    fn windows_overlap_and_a_short_text_has_one() {
        assert_eq!(windows(5, 3).collect::<Vec<_>>(), [0..3, 1..4, 2..5]);
        assert!(windows(2, 3).eq(std::iter::once(0..2)));
        assert!(windows(0, 3).eq(std::iter::once(0..0)));
    }

    #[test]
    fn best_window_includes_the_headings() {
        let question = TokenVectors::new(2, vec![1.0, 0.0, 0.0, 1.0], [1, 1]);
        let text = TokenVectors::new(2, vec![1.0, 0.0, 0.8, -0.6, 0.0, 1.0], [1, 1, 1]);
        assert!((Matches::of_tokens(&question, &text).best_window(1) - 1.0).abs() < 1e-6);
        let empty = TokenVectors::new(2, Vec::new(), []);
        assert!(Matches::of_tokens(&question, &empty).best_window(2).abs() < 1e-6);
    }

    #[test]
    fn model_without_token_vectors_finds_all_words_where_it_finds_the_question() {
        let found = Matches::of_texts(2, &[1.0, 0.0], &[vec![0.6, 0.8], vec![-1.0, 0.0]]);
        assert_eq!(found.by_word(0..1), [0.6, 0.6]);
        assert!(found.max_sim(1..2).abs() < 1e-6);
        let found = Matches::of_texts(1, &[0.0, 1.0], &[vec![0.6, 0.8], vec![-1.0, 0.0]]);
        // Of (0, 1) and (-0.4, 0.8).
        assert!((found.similarity() - 0.8 / 0.8_f32.sqrt()).abs() < 1e-6, "{}", found.similarity());
    }
}
