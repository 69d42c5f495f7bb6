//! Digests a long page: a short summary, and the pieces relevant to the question.
//!
//! A model is shown numbered pieces and answers with numbers. Its own words are shown as a summary that cannot be
//! quoted, since quotes are verified against the page. Numbers without a piece are ignored.

use std::ops::Range;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::prompt::{Template, failure, fitted, room};
use crate::base::line::one_line;
use crate::base::outbound::Outbound;
use crate::llm::call::{CallError, CallKey, Caller};
use crate::llm::message::Prompt;
use crate::llm::structured::structured;
use crate::source::web::joined;

/// Maximum number of characters of a page shown to the model, if its prompt has room for them.
const MAX_READ_CHARACTERS: usize = 24_000;

/// Maximum number of words in a summary, as requested by the prompt.
const SUMMARY_WORDS: usize = 120;

/// Maximum number of characters shown of a summary.
const MAX_SUMMARY_CHARACTERS: usize = 1_200;

/// Maximum number of tokens in a reply.
const MAX_REPLY_TOKENS: u32 = 800;

/// Timeout for a digest.
const DIGEST_TIME: Duration = Duration::from_secs(30);

/// Line before a summary.
pub const SUMMARY: &str = "Summary of the page, which cannot be quoted:";

/// Line between a summary and text of the page itself.
pub const VERBATIM: &str = "From the page, word for word:";

/// The parts of a page relevant to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Digest {
    /// Summary in the words of a model, on one line.
    pub(crate) summary: String,
    /// The relevant pieces, most relevant first; never empty.
    pub(crate) pieces: Vec<Range<usize>>,
}

/// A digest, as a model says it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(super) struct DigestDraft {
    /// What the page says that bears on the question.
    summary: String,
    /// Numbers of the pieces that bear on it.
    pieces: Vec<i64>,
}

/// Digests a page for a question. `ranked` are its pieces, best first; as many are read as the prompt has room for.
///
/// Returns `None` if the model finds nothing relevant or names no existing piece.
pub(crate) async fn digest(
    caller: &dyn Caller,
    key: &CallKey,
    question: &Outbound,
    page: &str,
    ranked: &[Range<usize>],
) -> Result<Option<Digest>, CallError> {
    let (pieces, prompt) = read(caller, question, page, ranked);
    let draft: DigestDraft = structured(caller, key, &prompt, "digest").await.map_err(failure)?;
    Ok(Digest::of(&draft, &pieces))
}

/// Returns the pieces that are read, in page order, and the prompt that shows them.
fn read(caller: &dyn Caller, question: &Outbound, page: &str, ranked: &[Range<usize>]) -> (Vec<Range<usize>>, Prompt) {
    let mut left = MAX_READ_CHARACTERS;
    let fits = |piece: &&Range<usize>| {
        let rest = left.checked_sub(page[(*piece).clone()].chars().count());
        left = rest.unwrap_or_default();
        rest.is_some()
    };
    let mut pieces: Vec<_> = ranked.iter().take_while(fits).cloned().collect();
    let render = |pieces: &Vec<Range<usize>>| {
        // Shown in page order, to read as a text; kept by rank, to drop the least relevant piece first.
        let shown = in_order(pieces);
        let shown = shown
            .iter()
            .zip(1..)
            .map(|(piece, number)| json!({"id": number.to_string(), "text": &page[piece.clone()]}));
        let context = json!({"question": question, "most_words": SUMMARY_WORDS, "pieces": shown.collect::<Vec<_>>()});
        Template::Digest.prompt(caller, context)
    };
    let room = room::<DigestDraft>(caller, Template::Digest.role());
    let mut prompt = fitted(caller, room, &mut pieces, render, |pieces| pieces.len() > 1 && pieces.pop().is_some());
    prompt.max_output_tokens = prompt.max_output_tokens.min(MAX_REPLY_TOKENS);
    // Optional: without a digest in time, the ranked pieces are shown as they are.
    prompt.patience = Some(DIGEST_TIME);
    (in_order(&pieces), prompt)
}

/// Returns the pieces in page order.
fn in_order(pieces: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut pieces = pieces.to_vec();
    pieces.sort_by_key(|piece| piece.start);
    pieces
}

impl Digest {
    fn of(draft: &DigestDraft, pieces: &[Range<usize>]) -> Option<Self> {
        let mut named: Vec<Range<usize>> = Vec::new();
        for number in &draft.pieces {
            let place = usize::try_from(*number).ok().and_then(|number| number.checked_sub(1));
            if let Some(piece) = place.and_then(|place| pieces.get(place)).filter(|piece| !named.contains(piece)) {
                named.push(piece.clone());
            }
        }
        let summary = one_line(&draft.summary).chars().take(MAX_SUMMARY_CHARACTERS).collect::<String>();
        let has_words = summary.chars().any(char::is_alphanumeric);
        (has_words && !named.is_empty()).then_some(Self { summary, pieces: named })
    }

    /// Renders the summary, then the pieces word for word, in at most `max_characters`.
    pub(crate) fn shown(&self, page: &str, max_characters: usize) -> String {
        let head = format!("{SUMMARY} {}\n\n{VERBATIM}\n", self.summary);
        let left = max_characters.saturating_sub(head.chars().count());
        head + &joined(page, self.pieces.iter().cloned(), left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::scripted::{Scripted, broken};

    const PAGE: &str = "Cats sleep all day.\n\nValves open at six.\n\nWater flows until nine.";

    fn ranked() -> Vec<Range<usize>> {
        let piece = |text: &str| PAGE.find(text).map(|start| start..start + text.len()).unwrap();
        ["Valves open at six.", "Water flows until nine.", "Cats sleep all day."].map(piece).to_vec()
    }

    async fn digested(caller: &Scripted) -> Result<Option<Digest>, CallError> {
        let question = Outbound::fixed("When are the beds watered?");
        digest(caller, &CallKey::new("n2/page/1"), &question, PAGE, &ranked()).await
    }

    #[tokio::test]
    async fn pieces_are_numbered_as_they_stand_and_shown_word_for_word_after_the_summary() {
        let caller = Scripted::replying(json!({"summary": "From six\nto nine.", "pieces": [3, 2, 2, 0, -1, 4]}));
        let digest = digested(&caller).await.unwrap().unwrap();
        assert_eq!(
            digest.shown(PAGE, 1_000),
            format!("{SUMMARY} From six to nine.\n\n{VERBATIM}\nValves open at six.\n\nWater flows until nine.")
        );
        assert!(caller.tasks()[0].contains("<data id=\"1\">\nCats sleep all day.\n</data>"), "{}", caller.tasks()[0]);
        assert_eq!(caller.prompts()[0].max_output_tokens, MAX_REPLY_TOKENS);
    }

    #[test]
    fn piece_that_just_fits_is_read() {
        let page = "a".repeat(MAX_READ_CHARACTERS);
        let question = Outbound::fixed("When?");
        let caller = Scripted::replying(json!({}));
        let whole = 0..page.len();
        assert_eq!(read(&caller, &question, &page, std::slice::from_ref(&whole)).0, std::slice::from_ref(&whole));
    }

    #[tokio::test]
    async fn reply_that_names_no_piece_or_says_nothing_is_no_digest() {
        for (summary, pieces) in [("Nothing.", vec![]), ("All of it.", vec![9, -3]), (" … ", vec![1])] {
            let caller = Scripted::replying(json!({"summary": summary, "pieces": pieces}));
            assert_eq!(digested(&caller).await, Ok(None), "{summary}");
        }
    }

    #[tokio::test]
    async fn failure_is_an_error_and_a_reply_that_is_none_is_the_models() {
        let nonsense = Scripted::new(|_, _| Ok("I like pages.".into()));
        assert!(matches!(digested(&nonsense).await, Err(CallError::Model(_))));
        for error in [broken("no"), CallError::Cancelled, CallError::Limit(crate::llm::call::Limit::Cost)] {
            let caller = Scripted::replying(json!({})).failing_at(1, error.clone());
            assert_eq!(digested(&caller).await, Err(error));
        }
    }

    #[tokio::test]
    async fn page_too_long_for_the_prompt_loses_what_bears_on_the_question_least() {
        let page = format!("{}\n\nValves open at six.", "Cats sleep. ".repeat(400));
        let ranked = [page.len() - 19..page.len(), 0..page.len() - 21];
        let caller = Scripted::replying(json!({"summary": "At six.", "pieces": [1]})).with_input_limit(900);
        let question = Outbound::fixed("When?");
        let read = digest(&caller, &CallKey::new("n2/page/1"), &question, &page, &ranked).await.unwrap().unwrap();
        assert_eq!(read.pieces, ranked[..1]);
        assert!(!caller.tasks()[0].contains("Cats") && caller.sizes()[0] <= 900, "{:?}", caller.sizes());
        let shown = read.shown(&page, 120);
        assert!(shown.chars().count() <= 120 && shown.ends_with("Valves open at six."), "{shown}");
    }
}
