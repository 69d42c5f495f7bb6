//! Selects the parts of a long page that are relevant to a query, verbatim.

use std::ops::Range;

use crate::base::word::{WordSplitter, has_key_word};
use crate::kb::embed::{EmbedError, Embedder, cosine};

/// Maximum length of a part in characters: about the window of the built-in embedder.
const MAX_PIECE_CHARS: usize = 900;

/// Limit on the parts that are embedded, which bounds the time per page. Those with most words of the query are kept.
const MAX_PIECES: usize = 160;

/// Returns the parts of a page by similarity to a query, best first. CPU-bound: call it on a blocking thread.
pub(crate) fn relevant(page_text: &str, query: &str, embedder: &dyn Embedder) -> Result<Vec<Range<usize>>, EmbedError> {
    let pieces = closest_in_words(page_text, query, pieces(page_text));
    let texts: Vec<_> = pieces.iter().map(|piece| &page_text[piece.clone()]).collect();
    let wanted = embedder.embed_query(query)?;
    let vectors = embedder.embed_passages(&texts)?;
    let similarity = |vector: &Vec<f32>| cosine(&wanted, vector);
    let mut ranked: Vec<_> = vectors.iter().map(similarity).zip(pieces).collect();
    ranked.sort_by(|(a, one), (b, other)| b.total_cmp(a).then(one.start.cmp(&other.start)));
    Ok(ranked.into_iter().map(|(_, piece)| piece).collect())
}

/// Keeps up to [`MAX_PIECES`] parts with the most words of the query, in the order of the page.
fn closest_in_words(text: &str, query: &str, mut pieces: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let splitter = WordSplitter::default();
    pieces.retain(|piece| has_key_word(&text[piece.clone()]));
    if pieces.len() > MAX_PIECES {
        let stems = splitter.key_stems(query);
        let shared = |piece: &Range<usize>| {
            let words = splitter.key_stems(&text[piece.clone()]);
            stems.iter().filter(|stem| words.contains(stem)).count()
        };
        pieces.sort_by_cached_key(|piece| std::cmp::Reverse(shared(piece)));
        pieces.truncate(MAX_PIECES);
        pieces.sort_by_key(|piece| piece.start);
    }
    pieces
}

/// Joins the best parts of a text in document order, at most `max_chars` characters, with an empty line between parts
/// that are not adjacent.
pub(crate) fn joined(text: &str, ranked: impl Iterator<Item = Range<usize>>, max_chars: usize) -> String {
    let mut kept: Vec<Range<usize>> = Vec::new();
    let mut left = max_chars;
    for piece in ranked {
        // Includes the empty line in front.
        let size = text[piece.clone()].chars().count() + 2;
        if size <= left + usize::from(kept.is_empty()) * 2 {
            left = left.saturating_sub(size);
            kept.push(piece);
        }
    }
    kept.sort_by_key(|piece| piece.start);
    let mut joined: Vec<Range<usize>> = Vec::new();
    for piece in kept {
        match joined.last_mut() {
            Some(last) if text[last.end..piece.start].trim().is_empty() && piece.start - last.end <= 2 => {
                last.end = piece.end;
            }
            _ => joined.push(piece),
        }
    }
    joined.into_iter().map(|piece| &text[piece]).collect::<Vec<_>>().join("\n\n")
}

/// Splits a text into paragraphs, and long paragraphs at the ends of lines or sentences.
fn pieces(text: &str) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for paragraph in text.split("\n\n") {
        cut(text, start..start + paragraph.len(), &mut pieces);
        start += paragraph.len() + 2;
    }
    pieces
}

fn cut(text: &str, mut paragraph: Range<usize>, pieces: &mut Vec<Range<usize>>) {
    loop {
        let rest = &text[paragraph.clone()];
        let rest = rest.trim_start();
        paragraph.start = paragraph.end - rest.len();
        let Some((limit, _)) = rest.char_indices().nth(MAX_PIECE_CHARS) else { break };
        let head = &rest[..limit];
        let ends = ["\n", ". ", "! ", "? ", "; ", " "];
        // An end in the first third would leave a fragment; the next weaker kind of end is taken then.
        let at = ends.iter().find_map(|end| head.rfind(end).filter(|at| *at > limit / 3).map(|at| at + end.len()));
        let at = at.unwrap_or(limit);
        pieces.push(paragraph.start..paragraph.start + head[..at].trim_end().len());
        paragraph.start += at;
    }
    let end = paragraph.start + text[paragraph.clone()].trim_end().len();
    if paragraph.start < end {
        pieces.push(paragraph.start..end);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kb::embed::builtin_for_tests;

    #[test]
    fn paragraphs_about_the_query_are_kept_word_for_word_and_in_order() {
        let others = "The cat sat on the mat and slept all day long in the sun.";
        let text = format!(
            "{others}\n\nThe irrigation valve opens at six.\n\n{others}\n\n{others}\n\nWater flows until nine o'clock."
        );
        let ranked = relevant(&text, "When is the garden watered?", &*builtin_for_tests()).unwrap();
        let short = joined(&text, ranked.into_iter(), 80);
        assert_eq!(short, "The irrigation valve opens at six.\n\nWater flows until nine o'clock.");
    }

    proptest! {
        #[test]
        fn whatever_is_kept_stands_in_the_page_and_fits(
            text in "([a-zé.]{1,30}( |\n|\n\n)){0,400}", order in any::<u64>(), max_chars in 1..3_000_usize
        ) {
            let mut pieces = pieces(&text);
            let words: usize = pieces.iter().map(|piece| text[piece.clone()].split_whitespace().count()).sum();
            let whole: usize = text.split_whitespace().count();
            prop_assert!(words == whole, "nothing is lost: {words} of {whole}");
            pieces.sort_by_key(|piece| (piece.start as u64).wrapping_mul(order | 1));
            let kept = joined(&text, pieces.into_iter(), max_chars);
            prop_assert!(kept.chars().count() <= max_chars);
            for part in kept.split("\n\n") {
                prop_assert!(text.contains(part));
            }
        }
    }
}
