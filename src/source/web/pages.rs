//! Stores fetched pages under the hash of their text, so that quotes can be checked after the page has changed.
//!
//! Pages are sealed: one with a changed text, address or time counts as missing.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::super::sealed::{SealedFolder, SealedFolderError};
use super::links::PageLink;
use super::url::WebUrl;
use crate::base::clock::Moment;
use crate::base::id::ContentHash;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WebPage {
    /// Canonical address after redirects.
    pub(crate) url: WebUrl,
    /// Canonical address that was requested.
    pub(crate) requested: WebUrl,
    /// Title on one line.
    pub(crate) title: String,
    /// Day of its publication as the page says, `YYYY-MM-DD`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) published: Option<String>,
    pub(crate) text: String,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) links: Vec<PageLink>,
    pub(crate) content_hash: ContentHash,
    pub(crate) fetched_at: Moment,
    /// Content type reported by the server, for example `text/html`.
    pub(crate) content_type: String,
}

/// A folder of pages: `pages/ab/<hash>.json` holds a page, `urls/cd/<hash of address>.json` the hash of the page last
/// fetched from an address.
#[derive(Clone, Debug)]
pub(crate) struct PageStore(SealedFolder);

impl PageStore {
    /// Returns a store in `folder`, which is created with the first page, as is the file `key`.
    pub(crate) fn new(folder: PathBuf, key: PathBuf) -> Self {
        Self(SealedFolder::new(folder, key))
    }

    /// Stores a page durably and returns its hash.
    ///
    /// If the same text is already stored, only its addresses are recorded.
    pub(crate) fn put(&self, page: &WebPage) -> Result<ContentHash, SealedFolderError> {
        let hash = ContentHash::of(page.text.as_bytes());
        let page = WebPage { content_hash: hash.clone(), ..page.clone() };
        if self.get(&hash).is_none() {
            self.0.write("pages", &hash, &page)?;
        }
        let note = WebPage { text: String::new(), ..page };
        // Last: after a kill before this, the page is stored, but cannot be found by its address.
        for url in [&note.url, &note.requested] {
            self.0.write("urls", &key(url), &note)?;
        }
        Ok(hash)
    }

    /// Returns a stored page, or `None` if it is missing, its text does not match the hash, or this user did not fetch
    /// it.
    pub(crate) fn get(&self, hash: &ContentHash) -> Option<WebPage> {
        let page: WebPage = self.0.read("pages", hash)?;
        // The seal covers the contents and not the name: a sealed file may have been moved in place of another.
        (ContentHash::of(page.text.as_bytes()) == *hash && page.content_hash == *hash).then_some(page)
    }

    /// Returns the page last fetched from an address.
    pub(crate) fn latest(&self, url: &WebUrl) -> Option<WebPage> {
        let url = url.canonical();
        let note: WebPage = self.0.read("urls", &key(&url))?;
        let is_of = note.url == url || note.requested == url;
        let text = self.get(&note.content_hash).filter(|_| is_of)?.text;
        Some(WebPage { text, ..note })
    }
}

fn key(url: &WebUrl) -> ContentHash {
    ContentHash::of(url.as_str().as_bytes())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::source::web) fn page(url: &str, text: &str) -> WebPage {
        let url: WebUrl = url.parse().unwrap();
        WebPage {
            requested: url.join("/old").unwrap(),
            url,
            title: "Beds".into(),
            published: None,
            text: text.into(),
            links: vec![PageLink { text: "more".into(), url: "https://example.org/more".parse().unwrap() }],
            content_hash: ContentHash::of(text.as_bytes()),
            fetched_at: Moment(5),
            content_type: "text/html".into(),
        }
    }

    #[test]
    fn page_comes_back_as_it_was_put_by_its_hash_and_both_addresses() {
        let folder = tempfile::tempdir().unwrap();
        let store = PageStore::new(folder.path().join("web"), folder.path().join("key"));
        let kept = page("https://example.org/beds", "Valves open at six.");
        let hash = store.put(&kept).unwrap();
        assert_eq!(store.get(&hash), Some(kept.clone()));
        for url in ["https://example.org/beds/?utm_source=x", "https://example.org/old"] {
            assert_eq!(store.latest(&url.parse().unwrap()), Some(kept.clone()), "{url}");
        }
        assert_eq!(store.latest(&"https://example.org/".parse().unwrap()), None);
        let copy = page("https://copy.example/", "Valves open at six.");
        assert_eq!(store.put(&copy).unwrap(), hash);
        assert_eq!(store.latest(&copy.url), Some(copy));
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_can_read_a_page() {
        use std::os::unix::fs::PermissionsExt;
        use std::path::Path;

        let folder = tempfile::tempdir().unwrap();
        let store = PageStore::new(folder.path().join("web"), folder.path().join("key"));
        let hash = store.put(&page("https://example.org/", "Beds.")).unwrap();
        let path = store.0.path("pages", &hash).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn page_that_was_tampered_with_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let store = PageStore::new(folder.path().to_owned(), folder.path().join("key"));
        let kept = page("https://example.org/", "Valves open at six.");
        let hash = store.put(&kept).unwrap();
        let path = store.0.path("pages", &hash).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        for wrong in [text.replace("six", "ten"), text[..text.len() / 2].to_owned(), String::new()] {
            std::fs::write(&path, wrong).unwrap();
            assert_eq!(store.get(&hash), None);
            assert_eq!(store.latest(&kept.url), None);
        }
        store.put(&kept).unwrap();
        assert_eq!(store.get(&hash), Some(kept), "putting it again mends it");
    }

    #[test]
    fn page_of_another_user_or_with_another_time_or_address_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let store = PageStore::new(folder.path().join("web"), folder.path().join("key"));
        let kept = page("https://example.org/", "Valves open at six.");
        let hash = store.put(&kept).unwrap();
        let path = store.0.path("urls", &key(&kept.url)).unwrap();
        let note = std::fs::read_to_string(&path).unwrap();
        for (was, is) in [("\"fetched_at\":5", "\"fetched_at\":253370764800000"), ("example.org", "trusted.example")] {
            assert!(note.contains(was), "{note}");
            std::fs::write(&path, note.replace(was, is)).unwrap();
            assert_eq!(store.latest(&kept.url), None, "{is}");
        }
        std::fs::write(&path, &note).unwrap();
        assert_eq!(store.latest(&kept.url), Some(kept));
        let other = PageStore::new(folder.path().join("web"), folder.path().join("other key"));
        assert_eq!(other.get(&hash), None, "another user has another key");
        assert!(!folder.path().join("other key").exists(), "reading creates no key");
        other.put(&page("https://example.org/b", "Other beds.")).unwrap();
        assert_eq!(other.get(&hash), None);
    }
}
