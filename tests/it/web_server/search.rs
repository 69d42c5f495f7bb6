//! Search engines that return the pages of this server.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::pages::{Article, articles, forum};
use super::text;
use crate::model_server::{Request, Response};

/// Answers like `SearXNG`, in HTML unless JSON is requested.
pub(super) fn searxng(origin: &str, query: &BTreeMap<String, String>) -> Response {
    let words = &query["q"];
    if query.get("format").is_none_or(|format| format != "json") {
        return text("text/html; charset=utf-8", "<h1>Results are shown as JSON: add format=json</h1>");
    }
    let result = |(score, article): (f64, Article)| {
        let mut result = found(&article, origin, score);
        result["engine"] = "fixture".into();
        result["publishedDate"] = "2026-03-14T00:00:00".into();
        result
    };
    let results: Vec<_> = ranked(words).into_iter().map(result).collect();
    let body = json!({
        "query": words, "number_of_results": results.len(), "results": results,
        "answers": [], "corrections": [], "infoboxes": [], "suggestions": [], "unresponsive_engines": [],
    });
    Response::json(200, &body)
}

/// Answers like Tavily, which requires a key.
pub(super) fn tavily(origin: &str, request: &Request) -> Response {
    let has_key = request.headers.get("authorization").is_some_and(|value| value.starts_with("Bearer "));
    if !has_key {
        let said = json!({ "detail": { "error": "Unauthorized: missing or invalid API key." } });
        return Response::json(401, &said);
    }
    let Some(words) = request.json["query"].as_str().filter(|words| !words.trim().is_empty()) else {
        return Response::json(400, &json!({ "detail": { "error": "Query is missing." } }));
    };
    let most = request.json["max_results"].as_u64().and_then(|most| usize::try_from(most).ok()).unwrap_or(5);
    let result = |(score, article): (f64, Article)| {
        let mut result = found(&article, origin, score);
        result["raw_content"] = Value::Null;
        result
    };
    let results: Vec<_> = ranked(words).into_iter().take(most).map(result).collect();
    let body = json!({
        "query": words, "answer": null, "images": [], "follow_up_questions": null, "results": results,
        "response_time": 0.1, "request_id": "fixture",
    });
    Response::json(200, &body)
}

/// Returns the pages about a query, best first, the one with instructions last.
fn ranked(words: &str) -> Vec<(f64, Article)> {
    let found = articles(words).into_iter().chain([forum(words)]);
    [0.9, 0.8, 0.7, 0.4].into_iter().zip(found).collect()
}

fn found(article: &Article, origin: &str, score: f64) -> Value {
    json!({ "url": article.url(origin), "title": article.title, "content": article.sentences.join(" "), "score": score })
}
