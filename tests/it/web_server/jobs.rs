//! Background research jobs: start, poll, cancel, forget.

use serde_json::{Value, json};

use super::pages::{Article, articles, topic_of};
use super::{Fault, State, World, prompt, refused};
use crate::model_server::{Request, Response};
use crate::researcher::Words;
use dr::base::token::CountTokens;

/// Start of every report: a two-byte letter and one of two UTF-16 units, so that offsets in bytes, UTF-16 units and
/// characters differ.
const OPENING: &str = "## Überblick 🌱";

/// Tokens charged per page read.
const PAGE_TOKENS: usize = 3_000;

#[derive(Clone, Debug)]
pub(crate) struct JobRecord {
    pub(crate) id: String,
    /// The request that started it.
    pub(crate) body: Value,
    /// Number of polls so far.
    pub(crate) polls: usize,
    /// Status: `queued` or the final one.
    pub(crate) status: &'static str,
    /// Whether the server denies knowing the job.
    pub(crate) is_lost: bool,
    /// Its future final status.
    end: &'static str,
}

impl State {
    /// Makes the server forget a job permanently.
    pub(super) fn lose(&mut self, id: &str) {
        self.jobs.iter_mut().filter(|job| job.id == id).for_each(|job| job.is_lost = true);
    }

    fn job(&mut self, id: &str) -> Option<&mut JobRecord> {
        self.jobs.iter_mut().find(|job| job.id == id && !job.is_lost)
    }
}

impl World {
    pub(super) fn start_job(&self, request: &Request, fault: Option<&Fault>) -> Response {
        let mut state = self.state.lock().unwrap();
        let end = match fault {
            Some(Fault::FailedJob) => "failed",
            Some(Fault::IncompleteJob) => "incomplete",
            _ => "completed",
        };
        let job = JobRecord {
            id: format!("resp_fixture{:04}", state.jobs.len() + 1),
            body: request.json.clone(),
            polls: 0,
            status: "queued",
            is_lost: fault == Some(&Fault::LostJob),
            end,
        };
        let reply = job.reply(&self.origin);
        state.jobs.push(job);
        Response::json(200, &reply)
    }

    pub(super) fn ask_job(&self, id: &str) -> Response {
        let mut state = self.state.lock().unwrap();
        let Some(job) = state.job(id) else { return unknown(id) };
        job.polls += 1;
        if matches!(job.status, "queued" | "in_progress") {
            job.status = if job.polls > self.setup.polls { job.end } else { "in_progress" };
        }
        Response::json(200, &job.reply(&self.origin))
    }

    pub(super) fn cancel_job(&self, id: &str) -> Response {
        let mut state = self.state.lock().unwrap();
        let Some(job) = state.job(id) else { return unknown(id) };
        match job.status {
            "queued" | "in_progress" | "cancelled" => {
                job.status = "cancelled";
                Response::json(200, &job.reply(&self.origin))
            }
            status => refused(400, "invalid_request", &format!("Cannot cancel a {status} response.")),
        }
    }
}

fn unknown(id: &str) -> Response {
    refused(404, "not_found", &format!("Response with id '{id}' not found."))
}

impl JobRecord {
    /// Returns the current state of the job as the server reports it.
    fn reply(&self, origin: &str) -> Value {
        let asked = |name: &str| self.body.get(name).cloned().unwrap_or_default();
        let mut reply = json!({
            "id": self.id,
            "object": "response",
            "created_at": 1_770_757_617,
            "background": true,
            "status": self.status,
            "error": null,
            "incomplete_details": null,
            "model": asked("model"),
            "max_tool_calls": asked("max_tool_calls"),
            "metadata": asked("metadata"),
            "tools": asked("tools"),
            "output": [],
            "usage": null,
        });
        match self.status {
            "completed" => self.fill(&mut reply, origin),
            "incomplete" => {
                self.fill(&mut reply, origin);
                reply["incomplete_details"] = json!({ "reason": "max_output_tokens" });
            }
            "failed" => reply["error"] = json!({ "code": "server_error", "message": "The job ran into an error." }),
            _ => {}
        }
        reply
    }

    /// Adds the searches, pages and report of a finished job.
    fn fill(&self, reply: &mut Value, origin: &str) {
        let asked = prompt(&self.body);
        let topic = topic_of(&asked);
        let mut found = articles(&topic);
        let most = self.body["max_tool_calls"].as_u64().and_then(|most| usize::try_from(most).ok());
        let calls = tool_calls(&topic, &found, origin);
        let calls: Vec<_> = calls.into_iter().take(most.unwrap_or(usize::MAX)).collect();
        let number = |kind: &str| calls.iter().filter(|call| call["action"]["type"] == kind).count();
        let (searches, opened) = (number("search"), number("open_page"));
        // The report quotes the pages it read.
        found.truncate(opened);
        let (text, annotations) = written(&found, origin);
        let mut output =
            vec![reasoning(1, &format!("**Looking for {topic}**\n\nSearching, then reading what looks best."))];
        output.extend(calls);
        output.push(reasoning(2, ""));
        let output_tokens = Words.count(&text) + 900;
        let input_tokens = Words.count(&asked) + opened * PAGE_TOKENS;
        output.push(json!({
            "id": "msg_fixture1", "type": "message", "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "annotations": annotations, "logprobs": [], "text": text }],
        }));
        reply["output"] = output.into();
        reply["tool_usage"] = json!({ "web_search": { "num_requests": searches } });
        reply["usage"] = json!({
            "input_tokens": input_tokens,
            "input_tokens_details": { "cached_tokens": 0 },
            "output_tokens": output_tokens,
            "output_tokens_details": { "reasoning_tokens": 900 },
            "total_tokens": input_tokens + output_tokens,
        });
    }
}

fn reasoning(number: usize, summary: &str) -> Value {
    let summary: Vec<_> = Some(summary).filter(|text| !text.is_empty()).into_iter().collect();
    let summary: Vec<_> = summary.into_iter().map(|text| json!({ "type": "summary_text", "text": text })).collect();
    json!({ "id": format!("rs_fixture{number}"), "type": "reasoning", "summary": summary })
}

/// Returns the actions of a job: two searches, one opened page per article, and a search within one page.
fn tool_calls(topic: &str, found: &[Article], origin: &str) -> Vec<Value> {
    let search = |query: String| json!({ "type": "search", "query": query, "queries": [query] });
    let mut actions = vec![search(topic.to_owned()), search(format!("{topic} survey"))];
    for article in found {
        actions.push(json!({ "type": "open_page", "url": article.url(origin) }));
    }
    if let Some(article) = found.first() {
        actions.push(json!({ "type": "find_in_page", "pattern": topic, "url": article.url(origin) }));
    }
    let call = |(number, action): (usize, Value)| json!({ "id": format!("ws_fixture{}", number + 1), "type": "web_search_call", "status": "completed", "action": action });
    actions.into_iter().enumerate().map(call).collect()
}

/// Returns the text of a report and its citations, with positions in characters.
fn written(found: &[Article], origin: &str) -> (String, Vec<Value>) {
    let mut text = OPENING.to_owned();
    let mut annotations = Vec::new();
    let said = found.iter().flat_map(|article| article.sentences.iter().map(move |sentence| (article, sentence)));
    for (article, sentence) in said {
        let is_first = article.sentences.first() == Some(sentence);
        text.push_str(if is_first { "\n\n" } else { " " });
        let (url, site) = (article.url(origin), article.site());
        text.push_str(&format!("{sentence} "));
        let start = text.chars().count();
        text.push_str(&format!("([{site}]({url}))"));
        let end = text.chars().count();
        annotations.push(json!({
            "type": "url_citation", "start_index": start, "end_index": end, "title": article.title, "url": url,
        }));
    }
    (text, annotations)
}
