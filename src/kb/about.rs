//! The user's descriptions of folders: a sentence each, shown with hits and to workers.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(crate) struct About(BTreeMap<String, BTreeMap<String, String>>);

impl About {
    /// Takes the sentences of each collection by folder or file, relative to the root; `.` is the whole collection.
    pub(crate) fn new<'a>(sentences: impl Iterator<Item = (&'a String, &'a BTreeMap<String, String>)>) -> Self {
        let of_collection = |folders: &BTreeMap<String, String>| {
            let folder = |path: &str| match path.trim_start_matches("./").trim_matches('/') {
                "." => String::new(),
                path => path.to_owned(),
            };
            folders.iter().map(|(path, sentence)| (folder(path), sentence.clone())).collect()
        };
        Self(sentences.map(|(collection, folders)| (collection.clone(), of_collection(folders))).collect())
    }

    /// Returns the sentence about a document: that of its path or of the nearest folder above.
    pub(crate) fn of(&self, collection: &str, path: &str) -> Option<&str> {
        let folders = self.0.get(collection)?;
        let mut above = path;
        loop {
            match folders.get(above) {
                Some(sentence) => return Some(sentence),
                None if above.is_empty() => return None,
                None => above = above.rsplit_once('/').map_or("", |(folder, _)| folder),
            }
        }
    }

    /// Lists the sentences about some collections, as `handbook/money: SENTENCE`.
    pub(crate) fn lines<'a>(&'a self, collections: &'a [String]) -> impl Iterator<Item = String> + 'a {
        let known = self.0.iter().filter(|(name, _)| collections.contains(name));
        known.flat_map(|(name, folders)| {
            let place = move |folder: &str| if folder.is_empty() { name.clone() } else { format!("{name}/{folder}") };
            folders.iter().map(move |(folder, sentence)| format!("{}: {sentence}", place(folder)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(folders: &[(&str, &str)]) -> About {
        let own = |(path, sentence): &(&str, &str)| ((*path).to_owned(), (*sentence).to_owned());
        About::new(std::iter::once((&"kb".to_owned(), &folders.iter().map(own).collect())))
    }

    #[test]
    fn nearest_folder_above_a_document_counts() {
        let about = about(&[(".", "all"), ("./adr/", "decisions"), ("adr/old.md", "outdated"), (".notes", "hidden")]);
        let of = |path| about.of("kb", path);
        assert_eq!(of("index.md"), Some("all"));
        assert_eq!(
            (of("adr/7.md"), of("adr/2024/8.md"), of("adr.md")),
            (Some("decisions"), Some("decisions"), Some("all"))
        );
        assert_eq!((of("adr/old.md"), of(".notes/a.md")), (Some("outdated"), Some("hidden")));
        assert_eq!(about.of("other", "adr/7.md"), None);
    }

    #[test]
    fn lines_name_the_folders_of_the_collections_that_are_searched() {
        let about = about(&[("", "all"), ("adr", "decisions")]);
        assert_eq!(about.lines(&["kb".to_owned()]).collect::<Vec<_>>(), ["kb: all", "kb/adr: decisions"]);
        assert_eq!(about.lines(&["other".to_owned()]).count(), 0);
    }
}
