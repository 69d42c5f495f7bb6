//! Strips the reasoning that some models print in front of their reply.

/// The pairs of marks around printed reasoning.
const MARKS: [(&str, &str); 3] = [("<think>", "</think>"), ("<thinking>", "</thinking>"), ("[THINK]", "[/THINK]")];

/// Returns `text` without the reasoning in front of it.
///
/// Some endpoints leave out the opening mark, because it is part of their template. Reasoning that never ends leaves
/// nothing. Marks after the first word of a reply belong to the reply.
pub(super) fn spoken(text: &str) -> &str {
    let mut text = text.trim();
    // A JSON value may quote anything.
    if text.starts_with(['{', '[']) && !text.starts_with("[THINK]") {
        return text;
    }
    for (open, close) in MARKS {
        let is_opened = text.starts_with(open);
        match text.find(close) {
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
    fn thoughts_are_taken_off_with_or_without_their_opening_mark() {
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
