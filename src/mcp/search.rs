//! `search` and `list_collections`.
//!
//! `search` follows the contract that OpenAI's connectors and Deep Research have for tools of this name: one query, and a
//! list `results` of `id`, `title` and `url`, each id one that `fetch` takes. The other arguments are additions that such a
//! client does not send.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cut::{MAX_TEXT_TOKENS, heading_line};
use super::failure::{ToolError, check_length};
use crate::engine::{CollectionEntry, Hit, Neighbourhood, Scope, SearchRequest, Service};

const DEFAULT_HITS: u8 = 10;

/// Maximum number of hits. Their snippets are short, so 50 are some 5,000 tokens.
const MAX_HITS: u8 = 50;

/// Longest query, in bytes. A query is embedded as a whole, and the embedder reads some 250 words.
const MAX_QUERY_BYTES: usize = 8 * 1_024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchArguments {
    /// What to search for, in words or as a question. Words and meaning are searched together; a phrase in double quotes
    /// must occur as it is.
    query: String,
    /// Search only these collections (see `list_collections`).
    #[serde(default)]
    collections: Vec<String>,
    /// Most results, from 1 to 50; 10 if not given.
    #[schemars(range(min = 1, max = 50))]
    limit: Option<u8>,
    /// Also return, with each result, its section, the outline of its document, and the notes linked with it, up to about
    /// 8,000 tokens in all. With few results there is room for more of each.
    #[serde(default)]
    expand: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SearchResults {
    /// Best first; empty if nothing was found.
    results: Vec<SearchResult>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SearchResult {
    /// Pass it to `fetch` for the section, or to `read`.
    id: String,
    /// Title of the document and the headings above the passage.
    title: String,
    /// Address of the document, with the lines of the passage.
    url: String,
    /// The part of the passage that matches best.
    text: String,
    /// What is around it, with `expand`.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Neighbourhood>,
}

pub(super) async fn search(service: &Service, arguments: SearchArguments) -> Result<SearchResults, ToolError> {
    let SearchArguments { query, collections, limit, expand } = arguments;
    check_length("search", "query", &query, MAX_QUERY_BYTES)?;
    let limit = limit.unwrap_or(DEFAULT_HITS);
    if !(1..=MAX_HITS).contains(&limit) {
        return Err(ToolError::arguments("search", format!("`limit` is {limit} (from 1 to {MAX_HITS})")));
    }
    let scope = Scope { collections, ..Scope::default() };
    let found = service.engine.find(&SearchRequest { query, scope, limit: Some(limit.into()) }).await?;
    let around =
        if expand { service.engine.neighbourhoods_within(&found.hits, MAX_TEXT_TOKENS).await? } else { Vec::new() };
    let addresses = service.engine.addresses().await?;
    let result = |(hit, context): (Hit, Option<Neighbourhood>)| SearchResult {
        context,
        // Never empty: ChatGPT cites only results that have an address.
        url: addresses.of(&hit.collection, &hit.path, (hit.line_start, hit.line_end)),
        title: heading_line(&hit.title, &hit.heading_path),
        id: hit.id.to_string(),
        text: hit.snippet.text,
    };
    let around = around.into_iter().map(Some).chain(std::iter::repeat(None));
    Ok(SearchResults { results: found.hits.into_iter().zip(around).map(result).collect() })
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Collections {
    /// Collections of the index, by name.
    collections: Vec<CollectionEntry>,
}

pub(super) async fn list_collections(service: &Service) -> Result<Collections, ToolError> {
    Ok(Collections { collections: service.engine.list_collections().await? })
}
