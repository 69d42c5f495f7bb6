//! `links`: the links of a note in both directions, and the broken links.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cut::Page;
use super::failure::ToolError;
use super::passage::selector;
use crate::base::line::counted;
use crate::engine::{DocumentLinks, LinkCheck, Service};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LinksArguments {
    /// Id of a passage or document, or a path, whose links to return. Without it, broken links are returned.
    id: Option<String>,
    /// Return the broken links of these collections only.
    #[serde(default)]
    collections: Vec<String>,
    /// Leave out this many links at the beginning: the `next` of an earlier result.
    #[serde(default)]
    from: usize,
}

/// Links, no more than a result may have.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(super) struct Links {
    /// The links of the document that was named, and those to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<DocumentLinks>,
    /// The broken links, if no document was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<LinkCheck>,
    /// What was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// Pass it as `from` for the rest of links that were cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<usize>,
}

pub(super) async fn links(service: &Service, arguments: LinksArguments) -> Result<Links, ToolError> {
    let LinksArguments { id, collections, from } = arguments;
    let mut page = Page::after(from);
    let links = match id {
        Some(_) if !collections.is_empty() => {
            let reason = "`collections` is for broken links, and `id` for the links of a document";
            return Err(ToolError::arguments("links", reason));
        }
        Some(id) => {
            let mut document = service.engine.links(&selector("links", &id)?).await?;
            page.keep(&mut document.links);
            page.keep(&mut document.backlinks);
            Links { document: Some(document), ..Links::default() }
        }
        None => {
            let mut check = service.engine.check_links(&collections).await?;
            page.keep(&mut check.broken);
            Links { check: Some(check), ..Links::default() }
        }
    };
    let note = (page.left_out > 0).then(|| format!("left out: {} more", counted(page.left_out, "link")));
    Ok(Links { next: note.is_some().then_some(page.end), note, ..links })
}
