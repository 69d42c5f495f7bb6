//! Counting tokens, without knowing whose.

/// Counts the tokens of a text as one particular model would.
///
/// Special tokens (`[CLS]`, `[SEP]` and the like) that a model puts around a whole input are not counted; whoever
/// fills a model's window leaves room for them.
pub trait CountTokens: Send + Sync {
    /// Returns the number of tokens of `text`, or a little more, never fewer.
    fn count(&self, text: &str) -> usize;
}
