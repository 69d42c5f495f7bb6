//! The contents of the index, for surfaces that list them: collections, documents, and addresses of passages.

use std::collections::BTreeMap;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use schemars::JsonSchema;
use serde::Serialize;

use super::audience::Audience;
use super::passage::{DOCUMENTS, Selector};
use super::{Engine, EngineError};
use crate::source::Place;

/// A collection of the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct CollectionEntry {
    pub(crate) name: String,
    /// Number of its documents.
    pub(crate) documents: usize,
    /// The user's description of the collection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) about: Option<String>,
    /// Whether only this machine, and models on it, may see it.
    pub(crate) local_only: bool,
    /// Whether it can be searched and read here.
    pub(crate) served: bool,
    /// Why it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

impl Engine {
    /// Lists the collections of the index by name, those included that the audience may not see.
    pub(crate) async fn list_collections(&self) -> Result<Vec<CollectionEntry>, EngineError> {
        let index = self.open_index().await?;
        // Starts with all collections at 0: one without documents is listed, too.
        let mut counts: BTreeMap<String, usize> =
            index.manifest().collections.keys().map(|name| (name.clone(), 0)).collect();
        for document in index.documents(None).await? {
            *counts.entry(document.collection).or_default() += 1;
        }
        let about = self.settings.about();
        let entry = |(name, documents): (String, usize)| {
            let reason = self.check_served(&name).err().map(|error| error.to_string());
            let about = about.of(&name, "").map(str::to_owned);
            CollectionEntry {
                documents,
                about,
                local_only: self.is_local_only(&name),
                served: reason.is_none(),
                reason,
                name,
            }
        };
        Ok(counts.into_iter().map(entry).collect())
    }

    /// Returns the base addresses of the collections: where each is published, else its folder on this machine.
    /// Clients on other machines do not see its folders, and get an address that [`document_address`] makes.
    pub(crate) async fn addresses(&self) -> Result<Addresses, EngineError> {
        let index = self.open_index().await?;
        let root = |name: &String| {
            let options = self.settings.values.collections.get(name);
            // The row of the setting has checked it.
            let published = options.and_then(|options| options.url.as_ref()?.parse().ok());
            // A path of this machine leads nowhere on another one.
            let folder = (self.audience == Audience::ThisMachine).then(|| index.root(name)).flatten();
            published.or_else(|| Url::from_directory_path(folder?).ok())
        };
        let roots = index.manifest().collections.keys().filter_map(|name| Some((name.clone(), root(name)?)));
        Ok(Addresses { roots: roots.collect() })
    }

    /// Returns the document and lines that an address of [`Self::addresses`] names, and any other selector as it is. An
    /// address is compared with those of the collections and becomes no path.
    pub(super) async fn resolved(&self, selector: &Selector) -> Result<Selector, EngineError> {
        match selector {
            Selector::Path { path, lines: None } if path.contains("://") => {
                Ok(self.addresses().await?.named(path).unwrap_or_else(|| selector.clone()))
            }
            _ => Ok(selector.clone()),
        }
    }
}

/// Makes the addresses of passages.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    /// Folder or web site of each collection that has one.
    roots: BTreeMap<String, Url>,
}

impl Addresses {
    /// Returns the absolute address of lines of a document.
    pub(crate) fn of(&self, collection: &str, path: &str, lines: (u32, u32)) -> String {
        let mut url = match self.roots.get(collection) {
            Some(root) => extended(root.clone(), path.split('/')),
            None => document_address(collection, path),
        };
        let (first, last) = lines;
        url.set_fragment(Some(&if first == last { format!("L{first}") } else { format!("L{first}-L{last}") }));
        url.into()
    }

    /// Returns the document and lines of an address that [`Self::of`] made; `None` for any other text.
    fn named(&self, address: &str) -> Option<Selector> {
        self.roots.iter().find_map(|(collection, root)| {
            let rest = address.strip_prefix(root.as_str().trim_end_matches('/'))?.strip_prefix('/')?;
            Selector::in_address(&format!("{}/{rest}", utf8_percent_encode(collection, NON_ALPHANUMERIC)))
        })
    }

    /// Returns the absolute address of a place; a call has none and is named as for people.
    pub(crate) fn of_place(&self, place: &Place) -> String {
        match place {
            Place::Kb { collection, path, line_start, line_end, .. } => {
                self.of(collection, path, (*line_start, *line_end))
            }
            Place::Web { url, .. } => url.clone(),
            Place::Mcp { .. } => place.for_people(),
        }
    }
}

/// Returns the address of a document within its index: `dr://documents/handbook/guide/a%20b.md`.
pub(crate) fn document_address(collection: &str, path: &str) -> Url {
    let base = Url::parse(DOCUMENTS).expect("the address is constant");
    extended(base, std::iter::once(collection).chain(path.split('/')))
}

fn extended<'a>(mut base: Url, segments: impl Iterator<Item = &'a str>) -> Url {
    if let Ok(mut path) = base.path_segments_mut() {
        // A base that ends in `/` has an empty last segment. `extend` encodes a `#` or `/` within a segment.
        path.pop_if_empty().extend(segments);
    }
    base
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_absolute_and_keeps_any_file_name() {
        let root = "file:///home/me/my%20notes/".parse::<Url>().unwrap();
        let addresses = Addresses { roots: [("notes".to_owned(), root)].into() };
        assert_eq!(
            addresses.of("notes", "a b/50% #1?.md", (3, 9)),
            "file:///home/me/my%20notes/a%20b/50%25%20%231%3F.md#L3-L9"
        );
        assert_eq!(addresses.of("a/b", "é.md", (4, 4)), "dr://documents/a%2Fb/%C3%A9.md#L4");
        for published in ["https://docs.example.com/handbook", "https://docs.example.com/handbook/"] {
            let addresses = Addresses { roots: [("notes".to_owned(), published.parse().unwrap())].into() };
            let address = addresses.of("notes", "a b/x.md", (3, 9));
            assert_eq!(address, "https://docs.example.com/handbook/a%20b/x.md#L3-L9");
            let named = Selector::Path { path: "notes/a b/x.md".into(), lines: Some((3, 9)) };
            assert_eq!(addresses.named(&address), Some(named));
            assert_eq!(addresses.named("https://docs.example.com/handbooks/x.md"), None);
        }
        let names = Addresses { roots: BTreeMap::new() };
        assert_eq!(names.of("notes", "x.md", (1, 2)), "dr://documents/notes/x.md#L1-L2", "no folder is named");
    }
}
