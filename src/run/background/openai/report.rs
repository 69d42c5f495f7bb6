//! Parses the raw reply of a job. Tolerates missing and unknown parts.
//!
//! Parsing never fails and never panics on an index: the provider's citation offsets are converted from characters to
//! bytes and clamped. The text is untrusted and not yet sanitised for prompts or terminals.

use std::ops::Range;

use reqwest::Url;
use serde_json::Value;

use super::state::state_of;
use crate::base::line::shortened;
use crate::llm::openai::{usage, whole};
use crate::run::background::job::JobState;
use crate::run::background::report::{JobCitation, JobReport};

/// Separator between the texts of two messages.
const GAP: &str = "\n\n";

/// Maximum number of citations, searches and opened pages kept, each. Far above the number in a long job.
const MAX_LISTED: usize = 2_000;

/// Longest URL kept, in bytes.
const MAX_URL_BYTES: usize = 4_096;

/// Longest citation mark, in bytes.
const MAX_MARKER_BYTES: usize = 2 * MAX_URL_BYTES;

/// Parses a raw reply. Returns an empty report if it is not JSON.
pub(super) fn parse(raw: &str) -> JobReport {
    let raw: Value = serde_json::from_str(raw).unwrap_or_default();
    let mut report = JobReport {
        usage: usage(&raw),
        web_searches: raw.pointer("/tool_usage/web_search/num_requests").and_then(whole),
        incomplete: match state_of(&raw) {
            JobState::Incomplete { reason } => Some(reason),
            _ => None,
        },
        // A reply repeats the tools of its request.
        had_server: list(&raw["tools"]).iter().any(|tool| tool["type"] == "mcp"),
        ..JobReport::default()
    };
    for item in list(&raw["output"]) {
        report.take(item);
    }
    report
}

impl JobReport {
    fn take(&mut self, item: &Value) {
        match item["type"].as_str().unwrap_or_default() {
            "message" => match &item["content"] {
                Value::String(text) => self.take_text(text, &Value::Null),
                content => list(content).iter().for_each(|part| self.take_part(part)),
            },
            "web_search_call" => self.take_action(&item["action"]),
            "reasoning" => {
                let summaries = list(&item["summary"]).iter().filter_map(|part| part["text"].as_str());
                self.reasoning.extend(summaries.filter(|text| !text.trim().is_empty()).map(str::to_owned));
            }
            "code_interpreter_call" => self.code_runs += 1,
            // The names and descriptions of tools are the server's text, too.
            "mcp_call" | "mcp_tool_call" | "mcp_list_tools" => self.had_server = true,
            _ => {}
        }
    }

    fn take_part(&mut self, part: &Value) {
        if let Some(refusal) = part["refusal"].as_str() {
            self.refusal.get_or_insert_with(|| shortened(refusal));
        } else if let Some(text) = part["text"].as_str() {
            self.take_text(text, &part["annotations"]);
        }
    }

    fn take_text(&mut self, text: &str, annotations: &Value) {
        if !self.text.is_empty() && !text.is_empty() {
            self.text.push_str(GAP);
        }
        let start = self.text.len();
        self.text.push_str(text);
        let annotations = list(annotations);
        if annotations.is_empty() {
            return;
        }
        let offsets = CharOffsets::of(text);
        let free = MAX_LISTED.saturating_sub(self.citations.len());
        let citations = annotations.iter().filter_map(|annotation| {
            let mut citation = citation(annotation, &offsets)?;
            citation.span = citation.span.map(|span| start + span.start..start + span.end);
            Some(citation)
        });
        self.citations.extend(citations.take(free));
    }

    fn take_action(&mut self, action: &Value) {
        let queries = list(&action["queries"]);
        let queries = if queries.is_empty() { std::slice::from_ref(&action["query"]) } else { queries };
        for query in queries.iter().filter_map(Value::as_str) {
            push_new(&mut self.searches, shortened(query));
        }
        if action["type"] == "open_page"
            && let Some(url) = action["url"].as_str().and_then(web_address)
        {
            push_new(&mut self.opened, url);
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn push_new(list: &mut Vec<String>, text: String) {
    if list.len() < MAX_LISTED && !text.is_empty() && !list.contains(&text) {
        list.push(text);
    }
}

fn citation(annotation: &Value, offsets: &CharOffsets<'_>) -> Option<JobCitation> {
    if annotation["type"] != "url_citation" {
        return None;
    }
    // Chat Completions nests the fields one level deeper, and some gateways mix the two formats.
    let cited = annotation.get("url_citation").unwrap_or(annotation);
    let said = cited["url"].as_str()?.trim();
    let index = |name: &str| cited[name].as_u64().and_then(|index| usize::try_from(index).ok());
    let span = index("start_index").zip(index("end_index")).and_then(|(start, end)| offsets.find(start, end, said));
    let title = cited["title"].as_str().map(shortened).unwrap_or_default();
    Some(JobCitation { url: web_address(said)?, title, span })
}

/// Normalises a URL. Returns `None` unless it is `http` or `https` and contains no credentials.
fn web_address(text: &str) -> Option<String> {
    let url = Url::parse(text).ok().filter(|_| text.len() <= MAX_URL_BYTES)?;
    let is_bare = url.username().is_empty() && url.password().is_none();
    (is_bare && url.has_host() && matches!(url.scheme(), "http" | "https")).then(|| url.into())
}

/// Byte offsets of the characters of a text.
struct CharOffsets<'a> {
    text: &'a str,
    /// Byte offset of each character, and the length of the text.
    letters: Vec<usize>,
    /// Byte offset of each UTF-16 unit, if that differs.
    units: Option<Vec<usize>>,
}

impl<'a> CharOffsets<'a> {
    fn of(text: &'a str) -> Self {
        let letters: Vec<_> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let by_unit = || text.char_indices().flat_map(|(at, letter)| std::iter::repeat_n(at, letter.len_utf16()));
        let units: Option<Vec<_>> =
            text.chars().any(|letter| letter.len_utf16() > 1).then(|| by_unit().chain([text.len()]).collect());
        Self { text, letters, units }
    }

    /// Converts the range of a citation mark to bytes. Returns `None` if it is outside the text.
    ///
    /// The provider counts Unicode characters with an exclusive end. Its specification says inclusive, and does not
    /// define "character". Among the possible readings the one that contains the URL and balanced brackets is chosen,
    /// as a citation mark does.
    fn find(&self, start: usize, end: usize, url: &str) -> Option<Range<usize>> {
        let tables = [Some(&self.letters), self.units.as_ref()].into_iter().flatten();
        let readings: Vec<_> =
            tables.flat_map(|table| [end, end.saturating_add(1)].map(|end| stretch(table, start, end))).collect();
        let has_url = |range: &&Range<usize>| {
            !url.is_empty() && range.len() <= MAX_MARKER_BYTES && self.text[(*range).clone()].contains(url)
        };
        let is_closed = |range: &&Range<usize>| {
            let count = |bracket| self.text[(*range).clone()].matches(bracket).count();
            has_url(range) && count('(') == count(')') && count('[') == count(']')
        };
        let known = || readings.iter().flatten();
        known().find(is_closed).or_else(|| known().find(has_url)).or(readings[0].as_ref()).cloned()
    }
}

/// Returns the byte range between two indexes of a table, with the end clamped to the text.
fn stretch(table: &[usize], start: usize, end: usize) -> Option<Range<usize>> {
    let last = table.len().saturating_sub(1);
    let range = *table.get(start)?..*table.get(end.min(last))?;
    (!range.is_empty()).then_some(range)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::llm::message::Usage;

    const URL: &str = "https://drip.example/costs";

    /// Returns the report of one message that cites `URL` at the given indexes.
    fn cited(text: &str, indexes: impl IntoIterator<Item = (i64, i64)>) -> JobReport {
        let annotations: Vec<_> = indexes
            .into_iter()
            .map(|(start, end)| json!({ "type": "url_citation", "url": URL, "title": "Costs", "start_index": start, "end_index": end }))
            .collect();
        let part = json!({ "type": "output_text", "text": text, "annotations": annotations });
        parse(&json!({ "output": [{ "type": "message", "content": [part] }] }).to_string())
    }

    fn marked(report: &JobReport) -> Vec<Option<&str>> {
        report.citations.iter().map(|citation| Some(&report.text[citation.span.clone()?])).collect()
    }

    fn letters(text: &str) -> i64 {
        i64::try_from(text.chars().count()).unwrap()
    }

    #[test]
    fn reply_of_a_job_is_parsed() {
        let marker = format!("([drip.example]({URL}))");
        let text = format!("Lines cost €2 a metre {marker}.");
        let start = letters("Lines cost €2 a metre ");
        let raw = json!({
            "id": "resp_1",
            "status": "completed",
            "output": [
                { "type": "reasoning", "summary": [{ "type": "summary_text", "text": "**Looking** for prices" }] },
                { "type": "web_search_call", "status": "completed", "action": {
                    "type": "search", "query": "drip line price", "queries": ["drip line price", "drip hose cost"],
                } },
                { "type": "web_search_call", "action": { "type": "search", "query": "drip line price" } },
                { "type": "web_search_call", "action": { "type": "open_page", "url": URL } },
                { "type": "web_search_call", "action": { "type": "find_in_page", "pattern": "metre", "url": URL } },
                { "type": "web_search_call", "action": { "type": "open_page", "url": "javascript:alert(1)" } },
                { "type": "web_search_call", "status": "in_progress" },
                { "type": "code_interpreter_call", "code": "2 * 3" },
                { "type": "mcp_list_tools" },
                { "type": "telepathy_call", "thought": {} },
                { "type": "message", "role": "assistant", "content": [
                    { "type": "output_text", "text": text, "annotations": [
                        { "type": "url_citation", "url": URL, "title": " Drip\nlines ", "start_index": start, "end_index": start + letters(&marker) },
                        { "type": "file_citation", "file_id": "file_1", "index": 3 },
                    ] },
                ] },
            ],
            "usage": {
                "input_tokens": 60_506, "input_tokens_details": { "cached_tokens": 500 },
                "output_tokens": 22_883, "output_tokens_details": { "reasoning_tokens": 20_416 },
            },
            "tool_usage": { "web_search": { "num_requests": 2 } },
        });
        let report = parse(&raw.to_string());
        assert_eq!(report.text, text);
        assert_eq!(marked(&report), [Some(marker.as_str())]);
        assert_eq!((report.citations[0].url.as_str(), report.citations[0].title.as_str()), (URL, "Drip lines"));
        assert_eq!(report.searches, ["drip line price", "drip hose cost"]);
        assert_eq!(report.opened, [URL]);
        assert_eq!(report.reasoning, ["**Looking** for prices"]);
        let usage = Usage { input_tokens: 60_506, cached_tokens: 500, output_tokens: 22_883, reasoning_tokens: 20_416 };
        assert_eq!((report.usage, report.web_searches), (Some(usage), Some(2)));
        assert_eq!((report.code_runs, report.refusal), (1, None));
        assert!(report.had_server);
    }

    #[test]
    fn job_that_was_offered_a_server_is_told_from_one_that_searched_the_web_alone() {
        let had_server = |reply: Value| parse(&reply.to_string()).had_server;
        let search = json!({ "type": "web_search_call", "action": { "type": "search", "query": "drip" } });
        let tools = json!([{ "type": "web_search" }, { "type": "mcp", "server_label": "notes" }]);
        assert!(had_server(json!({ "output": [search], "tools": tools })));
        assert!(had_server(json!({ "output": [search, { "type": "mcp_call", "name": "fetch" }] })));
        assert!(!had_server(json!({ "output": [search], "tools": [{ "type": "web_search" }] })));
    }

    #[test]
    fn citation_mark_is_found_by_characters_of_any_width() {
        let marker = format!("([drip.example]({URL}))");
        for before in ["", "Zwölf Schläuche ", "滴灌管的价格是 ", "🌱🚿 e\u{301} 👩‍🌾 "] {
            let text = format!("{before}{marker} 🌱.");
            let start = letters(before);
            let end = start + letters(&marker);
            let units = i64::try_from(before.encode_utf16().count()).unwrap();
            let readings = [(start, end), (start, end - 1), (units, units + letters(&marker))];
            assert_eq!(marked(&cited(&text, readings)), [Some(marker.as_str()); 3], "{before}");
        }
    }

    #[test]
    fn citation_mark_without_its_url_is_taken_at_its_offsets() {
        assert_eq!(
            marked(&cited("🌱 Lines are cheap.", [(2, 7), (2, 999)])),
            [Some("Lines"), Some("Lines are cheap.")]
        );
    }

    #[test]
    fn invalid_range_keeps_the_url() {
        let report = cited("Short.", [(90, 99), (6, 6), (5, 2), (-1, 3), (i64::MAX, i64::MAX)]);
        assert_eq!(marked(&report), [None; 5]);
        assert!(report.citations.iter().all(|citation| citation.url.as_str() == URL));
        let part =
            json!({ "type": "output_text", "text": "", "annotations": [{ "type": "url_citation", "url": URL }] });
        let report = parse(&json!({ "output": [{ "type": "message", "content": [part] }] }).to_string());
        assert_eq!((marked(&report), report.citations[0].title.as_str()), (vec![None], ""));
    }

    #[test]
    fn messages_are_joined_and_their_citation_marks_shifted() {
        let part = |text: &str, start: u32, end: u32| {
            let annotation = json!({ "type": "url_citation", "url": URL, "start_index": start, "end_index": end });
            json!({ "type": "output_text", "text": text, "annotations": [annotation] })
        };
        let raw = json!({ "output": [
            { "type": "message", "content": [part("Ein Öl.", 4, 6), { "type": "refusal", "refusal": "Not that." }] },
            { "type": "reasoning", "summary": [] },
            { "type": "message", "content": [part("", 0, 1), part("水と油", 2, 3)] },
            { "type": "message", "content": "plain" },
        ] });
        let report = parse(&raw.to_string());
        assert_eq!(report.text, "Ein Öl.\n\n水と油\n\nplain");
        assert_eq!(marked(&report), [Some("Öl"), None, Some("油")]);
        assert_eq!(report.refusal.as_deref(), Some("Not that."));
    }

    #[test]
    fn only_web_urls_are_kept() {
        for url in [
            "javascript:alert(1)",
            "file:///etc/passwd",
            "data:text/html,x",
            "//drip.example",
            "https://",
            "https://me:pass@drip.example/",
            "",
            &format!("https://drip.example/{}", "a".repeat(MAX_URL_BYTES)),
        ] {
            assert_eq!(web_address(url), None, "{url}");
        }
        assert_eq!(web_address("HTTPS://Drip.Example/a b\n").as_deref(), Some("https://drip.example/a%20b"));
    }

    #[test]
    fn long_lists_are_truncated() {
        let report = cited("Lines.", vec![(0, 3); MAX_LISTED + 9]);
        assert_eq!(report.citations.len(), MAX_LISTED);
        let queries: Vec<_> = (0..MAX_LISTED + 9).map(|number| number.to_string()).collect();
        let call = json!({ "type": "web_search_call", "action": { "type": "search", "queries": queries } });
        assert_eq!(parse(&json!({ "output": [call] }).to_string()).searches.len(), MAX_LISTED);
    }

    #[test]
    fn unusable_reply_is_an_empty_report() {
        for raw in ["", "<html>502</html>", "{\"output\": [", "null", "[]", "7", "{\"output\": {}, \"usage\": 3}"] {
            assert_eq!(parse(raw), JobReport::default(), "{raw}");
        }
    }

    proptest! {
        #[test]
        fn every_range_is_at_character_boundaries(
            texts in proptest::collection::vec("[a-zéß水🌱\u{301}()\\[\\] ]{0,24}", 1..4),
            indexes in proptest::collection::vec((-2_i64..40, -2_i64..40), 0..6),
            far in any::<(i64, i64)>(),
        ) {
            let parts: Vec<_> = texts.iter().map(|text| {
                let annotations: Vec<_> = indexes.iter().chain([&far]).map(|(start, end)| {
                    json!({ "type": "url_citation", "url": URL, "start_index": start, "end_index": end })
                }).collect();
                json!({ "type": "output_text", "text": text, "annotations": annotations })
            }).collect();
            let report = parse(&json!({ "output": [{ "type": "message", "content": parts }] }).to_string());
            prop_assert_eq!(report.citations.len(), texts.len() * (indexes.len() + 1));
            for span in report.citations.iter().filter_map(|citation| citation.span.clone()) {
                prop_assert!(report.text.get(span.clone()).is_some_and(|stretch| !stretch.is_empty()), "{:?}", span);
            }
        }
    }
}
