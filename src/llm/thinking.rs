//! Strips the reasoning that some models print before their reply.

/// The pairs of marks around printed reasoning.
const MARKS: [(&str, &str); 3] = [("<think>", "</think>"), ("<thinking>", "</thinking>"), ("[THINK]", "[/THINK]")];

/// Returns `text` without leading reasoning.
///
/// Some endpoints omit the opening mark, because it is part of their template. Unterminated reasoning yields an empty
/// reply. Marks quoted in a reply stay.
pub(super) fn spoken(text: &str) -> &str {
    let mut text = text.trim();
    // A JSON value may quote anything.
    if text.starts_with(['{', '[']) && !text.starts_with("[THINK]") {
        return text;
    }
    for (open, close) in MARKS {
        let is_opened = text.starts_with(open);
        match text.find(close) {
            // A closing mark after an opening one, or after a backtick, is quoted in the reply.
            Some(end) if is_opened || !(text[..end].contains(open) || text[..end].ends_with('`')) => {
                text = text[end + close.len()..].trim_start();
            }
            None if is_opened => return "",
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_is_stripped_with_or_without_its_opening_mark() {
        for text in [
            "<think>hm {\"a\": 2}</think>\n{\"a\": 1}",
            "hm, {\"a\": 2} perhaps</think>{\"a\": 1}",
            "[THINK]hm[/THINK]{\"a\": 1}",
            "{\"a\": 1}",
        ] {
            assert_eq!(spoken(text), "{\"a\": 1}");
        }
        assert_eq!(spoken("<think>without end {\"a\": 1}"), "");
    }

    #[test]
    fn quoted_marks_stay() {
        let text = "{\"quote\": \"a </think> b\"}";
        assert_eq!(spoken(text), text);
        for text in ["`</think>` ends a thought.", "Between <think> and </think> is a thought."] {
            assert_eq!(spoken(text), text);
        }
    }
}
