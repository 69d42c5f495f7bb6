//! Links between documents.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::app::App;
use super::failure::FailureReply;
use super::form::Parameters;
use super::search::selector;
use crate::engine::{DocumentLinks, LinkCheck};

/// Default number of links in a list.
const LINKS: usize = 200;

/// Maximum number of links in a list.
const MAX_LINKS: usize = 1_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LinksQuery {
    /// Id of a passage or document, or a path as a search returns it.
    id: String,
    /// Leave out this many links at the beginning of each list.
    #[serde(default)]
    from: usize,
    /// Most links of each list, from 1 to 1000; 200 if not given.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<usize>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct LinksReply {
    #[serde(flatten)]
    document: DocumentLinks,
    /// Links after those that are listed.
    more_links: usize,
    /// Backlinks after those that are listed.
    more_backlinks: usize,
}

pub(super) async fn links(
    State(app): State<App>,
    Parameters(LinksQuery { id, from, limit }): Parameters<LinksQuery>,
) -> Result<Json<LinksReply>, FailureReply> {
    let limit = limit_of(limit)?;
    let mut document = app.engine.links(&selector(&id)?).await?;
    let more_links = page(&mut document.links, from, limit);
    let more_backlinks = page(&mut document.backlinks, from, limit);
    Ok(Json(LinksReply { document, more_links, more_backlinks }))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BrokenQuery {
    /// Only this collection.
    collection: Option<String>,
    /// Leave out this many links at the beginning.
    #[serde(default)]
    from: usize,
    /// Most links, from 1 to 1000; 200 if not given.
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<usize>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct BrokenReply {
    #[serde(flatten)]
    check: LinkCheck,
    /// Broken links after those that are listed.
    more_broken: usize,
}

pub(super) async fn broken(
    State(app): State<App>,
    Parameters(BrokenQuery { collection, from, limit }): Parameters<BrokenQuery>,
) -> Result<Json<BrokenReply>, FailureReply> {
    let limit = limit_of(limit)?;
    let collections: Vec<_> = collection.into_iter().collect();
    let mut check = app.engine.check_links(&collections).await?;
    let more_broken = page(&mut check.broken, from, limit);
    Ok(Json(BrokenReply { check, more_broken }))
}

fn limit_of(limit: Option<usize>) -> Result<usize, FailureReply> {
    let limit = limit.unwrap_or(LINKS);
    if (1..=MAX_LINKS).contains(&limit) {
        return Ok(limit);
    }
    Err(FailureReply::invalid(&format!("`limit` is {limit} (from 1 to {MAX_LINKS})")))
}

/// Cuts a list to one page, and returns how many elements follow.
fn page<T>(items: &mut Vec<T>, from: usize, limit: usize) -> usize {
    items.drain(..from.min(items.len()));
    let more = items.len().saturating_sub(limit);
    items.truncate(limit);
    more
}
