//! Links between notes: where those of a document lead, what links to it, and which are broken.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use super::error::get::GetError;
use super::passage::{Located, Selector};
use super::search::check_collections;
use super::{Engine, EngineError};
use crate::base::id::DocumentId;
use crate::kb::index::Index;
use crate::kb::ingest::IngestError;
use crate::kb::links::{LinkMap, LinkedNote, Resolved};
use crate::kb::structure::{Link, LinkKind};
use crate::kb::walk::is_inside;

/// The links of a document and those to it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct DocumentLinks {
    pub(crate) collection: String,
    pub(crate) path: String,
    pub(crate) title: String,
    /// In the order of the file.
    pub(crate) links: Vec<LinkEntry>,
    pub(crate) backlinks: Vec<Backlink>,
}

/// A link and where it leads.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct LinkEntry {
    /// Line of the link, from 1.
    pub(crate) line: u32,
    pub(crate) kind: LinkKind,
    /// As it is written, without the text shown for it.
    pub(crate) written: String,
    pub(crate) state: LinkState,
    /// The note it leads to.
    pub(crate) note: Option<NoteName>,
    /// Line of the heading it names in that note; `None` if it names none, or one that is not there.
    pub(crate) heading_line: Option<u32>,
}

/// Whether a link leads somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LinkState {
    /// To a note of the index.
    Found,
    /// To a file or folder that is there and not in the index, or a page that is not made from a note.
    NotIndexed,
    /// Outside of the collection, which is not checked.
    Outside,
    /// The target does not exist: the link is broken.
    Missing,
}

/// A link to a document from another one.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Backlink {
    /// Id of the document.
    #[schemars(with = "String")]
    pub(crate) id: DocumentId,
    pub(crate) path: String,
    pub(crate) title: String,
    /// Line of the link, from 1.
    pub(crate) line: u32,
    pub(crate) kind: LinkKind,
}

/// The broken links of an index.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct LinkCheck {
    /// The collections that were checked.
    pub(crate) collections: Vec<String>,
    pub(crate) documents: usize,
    /// Links to notes.
    pub(crate) links: usize,
    pub(crate) broken: Vec<BrokenLink>,
}

/// A link without a target.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct BrokenLink {
    pub(crate) collection: String,
    pub(crate) path: String,
    /// Line of the link, from 1.
    pub(crate) line: u32,
    pub(crate) kind: LinkKind,
    /// As it is written, without the text shown for it.
    pub(crate) written: String,
}

/// Path and title of a note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct NoteName {
    /// Id of the document.
    #[schemars(with = "String")]
    pub(crate) id: DocumentId,
    /// Relative to the collection's root.
    pub(crate) path: String,
    pub(crate) title: String,
}

impl Engine {
    /// Returns where the links of a document lead, and what links to it.
    ///
    /// # Errors
    ///
    /// As [`Self::get`]. Also returns [`EngineError::NoLinks`] for an index that was written before links were stored.
    pub(crate) async fn links(&self, selector: &Selector) -> Result<DocumentLinks, EngineError> {
        let index = self.open_index().await?;
        let id = match self.located(&index, &self.resolved(selector).await?).await? {
            Located::Chunk(chunk) => chunk.document_id,
            Located::Document(row) => row.id,
        };
        let map = self.link_map().await?;
        let at = map.position(&id).ok_or_else(|| GetError::NoSuchId { id: id.to_string() })?;
        blocking(move || {
            let note = &map.notes[at];
            let root = index.root(&note.row.collection);
            let links = map.outgoing(at).map(|(link, to)| entry(&map, root.as_deref(), link, to)).collect();
            let backlink = |(from, link): (&LinkedNote, &Link)| Backlink {
                id: from.row.id.clone(),
                path: from.row.path.clone(),
                title: from.row.title.clone(),
                line: link.line,
                kind: link.kind,
            };
            let (collection, path, title) =
                (note.row.collection.clone(), note.row.path.clone(), note.row.title.clone());
            DocumentLinks { collection, path, title, links, backlinks: map.incoming(at).map(backlink).collect() }
        })
        .await
    }

    /// Returns the broken links of some collections, or of all that the audience may see.
    ///
    /// # Errors
    ///
    /// Returns an error for a collection that is not in the index or may not be shown, and as [`Self::links`].
    pub(crate) async fn check_links(&self, collections: &[String]) -> Result<LinkCheck, EngineError> {
        let index = self.open_index().await?;
        check_collections(&index, collections)?;
        collections.iter().try_for_each(|name| self.check_served(name))?;
        // As in a search, collections that may not be shown are left out unless they are named, which is an error.
        let is_asked = |name: &String| self.serves(name) && (collections.is_empty() || collections.contains(name));
        let asked: Vec<String> = index.manifest().collections.keys().filter(|name| is_asked(name)).cloned().collect();
        let map = self.link_map().await?;
        blocking(move || check(&index, &map, asked)).await
    }
}

/// Runs work that looks at files.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, EngineError> {
    Ok(tokio::task::spawn_blocking(work).await.map_err(IngestError::Task)?)
}

fn check(index: &Index, map: &LinkMap, collections: Vec<String>) -> LinkCheck {
    let mut check = LinkCheck { collections, documents: 0, links: 0, broken: Vec::new() };
    for (at, note) in map.notes.iter().enumerate() {
        if !check.collections.contains(&note.row.collection) {
            continue;
        }
        check.documents += 1;
        let root = index.root(&note.row.collection);
        for (link, to) in map.outgoing(at) {
            check.links += 1;
            if state(root.as_deref(), to) == LinkState::Missing {
                check.broken.push(BrokenLink {
                    collection: note.row.collection.clone(),
                    path: note.row.path.clone(),
                    line: link.line,
                    kind: link.kind,
                    written: link.written(),
                });
            }
        }
    }
    // The map orders notes for resolving links, short paths first.
    check.broken.sort_by(|a, b| (&a.collection, &a.path, a.line).cmp(&(&b.collection, &b.path, b.line)));
    check
}

fn entry(map: &LinkMap, root: Option<&Path>, link: &Link, to: &Resolved) -> LinkEntry {
    let (note, heading_line) = match to {
        Resolved::Note(at) => {
            let heading = link.fragment.as_ref().and_then(|fragment| map.heading(*at, fragment));
            (Some(NoteName::of(&map.notes[*at])), heading.map(|heading| heading.line))
        }
        Resolved::Outside | Resolved::Missing { .. } => (None, None),
    };
    let state = state(root, to);
    LinkEntry { line: link.line, kind: link.kind, written: link.written(), state, note, heading_line }
}

/// Returns whether a link leads somewhere. Of a path without a note, only whether it exists is looked at, and only
/// inside the root of the collection.
fn state(root: Option<&Path>, to: &Resolved) -> LinkState {
    match to {
        Resolved::Note(_) => LinkState::Found,
        Resolved::Outside => LinkState::Outside,
        Resolved::Missing { path: None } => LinkState::Missing,
        Resolved::Missing { path: Some(path) } => {
            let extension = Path::new(path).extension();
            // Pages are made when a site is built, so one that is not on disk is not a broken link.
            let is_page =
                extension.is_some_and(|own| own.eq_ignore_ascii_case("html") || own.eq_ignore_ascii_case("htm"));
            let is_there = || root.is_some_and(|root| is_inside(root, path));
            if is_page || is_there() { LinkState::NotIndexed } else { LinkState::Missing }
        }
    }
}

impl NoteName {
    pub(super) fn of(LinkedNote { row, .. }: &LinkedNote) -> Self {
        Self { id: row.id.clone(), path: row.path.clone(), title: row.title.clone() }
    }
}
