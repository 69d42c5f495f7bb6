//! Lenient parsing of JSON written by a model: in fences, among prose, with small mistakes. Never invents content.

use llm_json::RepairOptions;
use serde_json::Value;

/// Deepest nesting that is repaired. No schema is that deep, and the repairing parser recurses without a limit.
const MAX_DEPTH: usize = 64;

/// Parses the JSON object or array that a reply consists of or contains.
///
/// # Errors
///
/// Returns a complaint to be sent back to the model. Text without an object or array, and one that is not closed, are
/// not repaired: the result would be the parser's invention.
pub(super) fn read(text: &str) -> Result<Value, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("the reply is empty".into());
    }
    let strict = match serde_json::from_str::<Value>(text) {
        Ok(value) if value.is_object() || value.is_array() => return Ok(value),
        Ok(_) => return Err("the reply is not a JSON object or list".into()),
        Err(error) => error,
    };
    if !text.contains(['{', '[']) {
        return Err("there is no JSON object or list in the reply".into());
    }
    // Valid parts come first: repairing one could only change it.
    let stretches = stretches(text);
    let mut valid = stretches.iter().filter_map(|stretch| serde_json::from_str(stretch).ok());
    if let Some(value) = valid.find(is_more_than_prose) {
        return Ok(value);
    }
    let longest = stretches.iter().max_by_key(|stretch| stretch.len()).ok_or("the JSON in the reply is not closed")?;
    // The default escapes a character above U+FFFF with five hex digits, which read back as two others.
    let options = RepairOptions { ensure_ascii: false, ..RepairOptions::default() };
    let repaired = (depth(longest) <= MAX_DEPTH).then(|| llm_json::loads(longest, &options).ok()).flatten();
    repaired.filter(is_filled).ok_or_else(|| format!("the reply is not valid JSON: {strict}"))
}

/// Returns the outermost balanced bracketed parts of `text`. Bytes suffice: no byte of a longer character is ASCII.
fn stretches(text: &str) -> Vec<&str> {
    let mut stretches = Vec::new();
    let (mut start, mut depth) = (0, 0_usize);
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            // Outside of brackets, a quotation mark belongs to the prose and may have no partner.
            b'"' if depth > 0 => is_quoted = !is_quoted,
            b'{' | b'[' if !is_quoted => {
                if depth == 0 {
                    start = at;
                }
                depth += 1;
            }
            b'}' | b']' if !is_quoted && depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    stretches.push(&text[start..=at]);
                }
            }
            _ => {}
        }
    }
    stretches
}

/// Returns whether a value has content, unlike a footnote: `[1]`, `{}`.
fn is_more_than_prose(value: &Value) -> bool {
    match value {
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => items.iter().any(Value::is_object),
        _ => false,
    }
}

/// Returns whether a repaired value has content. A brace in prose has none: `{this}` is repaired to `{"this": ""}`.
fn is_filled(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.values().any(|member| !member.is_null() && member != ""),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    }
}

/// Returns an upper bound on the nesting. Brackets in strings count: in malformed text, the end of a string is
/// uncertain.
fn depth(text: &str) -> usize {
    let mut deepest = 0_usize;
    let mut depth = 0_usize;
    for byte in text.bytes() {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_found_in_fences_and_prose() {
        for text in [
            r#"{"a": 1}"#,
            "```json\n{\"a\": 1}\n```",
            "Here {as asked} it is:\n\n```\n{\"a\": 1}\n```\nAnything else [1]?",
            "As [1] says: {\"a\": 1}",
        ] {
            assert_eq!(read(text).unwrap(), json!({ "a": 1 }), "{text}");
        }
    }

    #[test]
    fn small_mistakes_are_mended() {
        assert_eq!(read("{a: 'x', \"b\": [1, 2,],}").unwrap(), json!({ "a": "x", "b": [1, 2] }));
        assert_eq!(read("{'face': '🦀 – ü',}").unwrap(), json!({ "face": "🦀 – ü" }));
        assert_eq!(read("{a: [{\"b\": 1}], c: \"}\"}").unwrap(), json!({ "a": [{ "b": 1 }], "c": "}" }));
    }

    #[test]
    fn nothing_is_made_up_where_there_is_no_json() {
        for text in ["", "  \n", "I cannot do that.", "\"yes\"", "42", "see [1] and {this}", "{", "{\"a\": \"cut of"] {
            assert!(read(text).is_err(), "{text:?} became {:?}", read(text));
        }
    }

    #[test]
    fn fuzzed_reply_is_read_or_refused() {
        let replies = [
            "```json\n{\"enough\": true, \"missing\": [\"a\", null]}\n```",
            "Here you are: {'thought': 'I look', actions: [{do: \"search\", query: \"beds\"},],} // done",
            "{\"a\": {\"b\": [1, 2.5e3, -0, \"\\u00e9\"]}}",
        ];
        crate::fuzz::fuzz("reply", &replies.map(|reply| reply.as_bytes().to_vec()), |bytes| {
            let _ = read(&String::from_utf8_lossy(bytes));
        });
    }

    #[test]
    fn abyss_of_brackets_is_refused() {
        assert!(read(&"[".repeat(1_000_000)).is_err());
        assert!(read(&format!("{}{}", "[".repeat(500_000), "]".repeat(500_000))).is_err());
    }

    proptest! {
        #[test]
        fn valid_objects_come_back_as_they_are(members in prop::collection::btree_map("[a-z]{1,8}", ".*", 1..6)) {
            let value = json!(members);
            prop_assert_eq!(read(&value.to_string()).unwrap(), value.clone());
            prop_assert_eq!(read(&format!("```json\n{value:#}\n```")).unwrap(), value);
        }
    }
}
