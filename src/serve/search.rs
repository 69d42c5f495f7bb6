//! Search, passages and collections.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::app::App;
use super::failure::FailureReply;
use super::form::Parameters;
use crate::engine::{
    CollectionEntry, Excerpt, Extent, Hit, Neighbourhood, Place, Quoted, Scope, SearchRequest, Searched, Selector,
    Support, lines_of,
};
use crate::render::document;

const MAX_HITS: usize = 100;

/// Maximum total tokens of the context around the hits of a search.
const MAX_CONTEXT_TOKENS: usize = 32_000;

/// Maximum number of tokens of an outline and the linked notes of its document.
const MAX_OUTLINE_TOKENS: usize = 8_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchQuery {
    /// Words to search for.
    q: String,
    /// Only this collection.
    collection: Option<String>,
    /// Only paths that match this glob, for example `guide/**`.
    path: Option<String>,
    /// Only documents with this tag.
    tag: Option<String>,
    /// Only documents dated on or after this day, `YYYY-MM-DD`.
    since: Option<String>,
    /// Only documents dated on or before this day.
    until: Option<String>,
    /// Most hits, from 1 to 100.
    #[schemars(range(min = 1, max = 100))]
    limit: Option<usize>,
    /// Also return, with each hit, its section, the outline of its document, and the notes linked with it.
    #[serde(default)]
    expand: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SearchReply {
    /// `hybrid`, `lexical` or `vector`.
    mode: &'static str,
    hits: Vec<HitReply>,
    /// How well the hits bear on the query.
    support: Support,
    /// How words missing from the index were handled, and why the search was degraded.
    notes: Vec<String>,
    /// Time of the search.
    milliseconds: f64,
}

/// A passage that was found.
#[derive(Debug, Serialize, JsonSchema)]
struct HitReply {
    /// Id of the passage.
    id: String,
    collection: String,
    /// Path within the collection.
    path: String,
    title: String,
    /// Headings above the passage, outermost first.
    headings: Vec<String>,
    /// First line, from 1.
    line_start: u32,
    /// Last line, inclusive.
    line_end: u32,
    /// The part that matches best. Matched words are marked.
    snippet: Vec<SnippetSpan>,
    /// The user's description of the document's folder.
    about: Option<String>,
    /// From 0 to 1, comparable within one search.
    score: f32,
    /// Ranks and scores that the score was made of.
    explain: serde_json::Value,
    /// What is around it, with `expand`.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Neighbourhood>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Part")]
struct SnippetSpan {
    text: String,
    is_match: bool,
}

pub(super) async fn search(
    State(app): State<App>,
    Parameters(query): Parameters<SearchQuery>,
) -> Result<Json<SearchReply>, FailureReply> {
    if let Some(limit) = query.limit.filter(|limit| !(1..=MAX_HITS).contains(limit)) {
        return Err(FailureReply::invalid(&format!("`limit` is {limit} (from 1 to {MAX_HITS})")));
    }
    let request = SearchRequest {
        query: query.q,
        scope: Scope {
            collections: query.collection.into_iter().collect(),
            paths: query.path.into_iter().collect(),
            tags: query.tag.into_iter().collect(),
            since: query.since,
            until: query.until,
        },
        limit: query.limit,
    };
    let Searched { mode, hits, support, unknown, without_vectors, not_reranked, elapsed } =
        app.engine.find(&request).await?;
    app.metrics.searched(elapsed);
    let around =
        if query.expand { app.engine.neighbourhoods_within(&hits, MAX_CONTEXT_TOKENS).await? } else { Vec::new() };
    // Padded, since `zip` drops the hits that have no partner.
    let around = around.into_iter().map(Some).chain(std::iter::repeat(None));
    let without_vectors = without_vectors.map(|(reason, hint)| format!("{reason}; {hint}"));
    Ok(Json(SearchReply {
        mode: mode.name(),
        hits: hits.into_iter().zip(around).map(|(hit, context)| HitReply { context, ..hit.into() }).collect(),
        support,
        notes: unknown.into_iter().chain(without_vectors).chain(not_reranked).collect(),
        milliseconds: elapsed.as_secs_f64() * 1_000.0,
    }))
}

impl From<Hit> for HitReply {
    fn from(hit: Hit) -> Self {
        let span = |(text, is_match): (&str, bool)| SnippetSpan { text: text.to_owned(), is_match };
        Self {
            id: hit.id.to_string(),
            explain: serde_json::to_value(hit.explain).unwrap_or_default(),
            collection: hit.collection,
            path: hit.path,
            title: hit.title,
            headings: hit.heading_path,
            line_start: hit.line_start,
            line_end: hit.line_end,
            snippet: hit.snippet.parts().into_iter().map(span).collect(),
            about: hit.about,
            score: hit.score,
            context: None,
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PassageQuery {
    /// Id of a passage or document, a path as a search returns it, or lines of one (`handbook/api.md:12-40`).
    id: String,
    /// How much around a passage; in a document, the passage is marked. A path is read as a whole.
    #[serde(default)]
    extent: Extent,
    /// Also return the outline of the document and the notes linked with it.
    #[serde(default)]
    expand: bool,
}

/// A text and where it is from.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct PassageReply {
    /// Where it is from, for people: `path:from-to`, or the address of a page.
    place: String,
    /// Name of the document, which is also an id; only of documents of the index.
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<String>,
    title: String,
    /// Headings above the text, outermost first.
    headings: Vec<String>,
    /// Verbatim.
    text: String,
    /// The text as HTML without scripts, images or styles. The passage is marked, and each block begins with its
    /// line number.
    html: String,
    /// A caveat about the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// Address of a page of the web.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// The outline of the document and the notes linked with it, with `expand`.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Neighbourhood>,
}

pub(super) async fn passage(
    State(app): State<App>,
    Parameters(PassageQuery { id, extent, expand }): Parameters<PassageQuery>,
) -> Result<Json<PassageReply>, FailureReply> {
    let selector = selector(&id)?;
    let (read, marked) = match extent {
        Extent::Passage | Extent::Section => (app.engine.get(&selector, extent).await?, None),
        Extent::Document => app.engine.in_document(&selector).await?,
    };
    let note = read.note().map(str::to_owned);
    let context =
        if expand { Some(app.engine.neighbourhood_within(&read.document_id, MAX_OUTLINE_TOKENS).await?) } else { None };
    let Excerpt { collection, path, title, heading_path, line_start, line_end, text, .. } = read;
    Ok(Json(PassageReply {
        place: format!("{collection}/{}", lines_of(&path, line_start, line_end)),
        document: Some(format!("{collection}/{path}")),
        context,
        title,
        headings: heading_path,
        html: document::markdown(&text, marked.as_ref()),
        text,
        note,
        url: None,
    }))
}

/// Parses the name of a passage.
pub(super) fn selector(id: &str) -> Result<Selector, FailureReply> {
    id.parse().map_err(|error| FailureReply::invalid(&format!("{error}")))
}

impl From<Quoted> for PassageReply {
    fn from(Quoted { evidence, text, at, note }: Quoted) -> Self {
        let place = &evidence.source;
        let (html, url) = match place {
            // Only files are Markdown. In other text, `*` and `#` are literal.
            Place::Kb { .. } => (document::markdown(&text, at.as_ref()), None),
            Place::Web { url, .. } => (document::plain(&text, at.as_ref()), Some(url.clone())),
            Place::Mcp { .. } => (document::plain(&text, at.as_ref()), None),
        };
        let document = match place {
            Place::Kb { collection, path, .. } => Some(format!("{collection}/{path}")),
            Place::Web { .. } | Place::Mcp { .. } => None,
        };
        Self {
            place: place.for_people(),
            document,
            context: None,
            title: place.title().to_owned(),
            headings: place.heading_path().to_vec(),
            html,
            url,
            note: note.map(str::to_owned),
            text,
        }
    }
}

pub(super) async fn collections(State(app): State<App>) -> Result<Json<Vec<CollectionEntry>>, FailureReply> {
    Ok(Json(app.engine.list_collections().await?))
}
