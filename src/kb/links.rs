//! Resolves links between notes, in both directions.
//!
//! Links are resolved against the documents that are in the index now, within the collection of the linking note. A
//! target is only compared with names of documents; no file is opened, and a path that leads out of the
//! collection's root is [`Resolved::Outside`].

use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization;

use super::index::{DocumentRow, Index, IndexError};
use super::structure::{Heading, Link, LinkKind, Structure};
use crate::base::id::DocumentId;

/// Extensions that a link to a note may leave out.
const EXTENSIONS: [&str; 4] = ["md", "markdown", "mdx", "txt"];

/// Names of files that introduce their folder, in order of precedence.
pub(super) const FOLDER_NOTES: [&str; 3] = ["readme", "index", "_index"];

/// The notes of an index and the links between them, as of one snapshot.
pub(crate) struct LinkMap {
    /// Sorted by collection, then by path length.
    pub(crate) notes: Vec<LinkedNote>,
    by_id: HashMap<DocumentId, usize>,
    /// The target of each link of each note.
    resolved: Vec<Vec<Resolved>>,
    /// The links to each note from other notes.
    incoming: Vec<Vec<IncomingLink>>,
}

/// A document with its aliases, headings and links.
pub(crate) struct LinkedNote {
    pub(crate) row: DocumentRow,
    pub(crate) structure: Structure,
}

/// The target of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resolved {
    /// A note, by its position in the map.
    Note(usize),
    /// A path outside the root of the collection.
    Outside,
    /// A document that is not in the index. `path` is the path it names, relative to the collection's root; `None`
    /// for a name.
    Missing { path: Option<String> },
}

/// A link from another note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IncomingLink {
    /// Position of the note in the map.
    pub(crate) from: usize,
    /// Position of the link in the note.
    pub(crate) link: usize,
}

/// Notes by the names that links use, folded; each list with the best match first.
#[derive(Default)]
struct Names {
    paths: HashMap<String, Vec<usize>>,
    stems: HashMap<String, Vec<usize>>,
    titles: HashMap<String, Vec<usize>>,
}

impl LinkMap {
    /// Reads the links between all documents of an index, which are `rows`. Returns `None` if it was written before
    /// links were stored.
    pub(crate) async fn read(index: &Index, rows: Vec<DocumentRow>) -> Result<Option<Self>, IndexError> {
        let Some(mut structures) = index.structures(None).await? else { return Ok(None) };
        let with_structure = |row: DocumentRow| {
            let structure = structures.remove(&row.id).unwrap_or_default();
            LinkedNote { row, structure }
        };
        Ok(Some(Self::new(rows.into_iter().map(with_structure).collect())))
    }

    fn new(mut notes: Vec<LinkedNote>) -> Self {
        // The shortest path is the best match, as in Obsidian.
        notes.sort_by_cached_key(|LinkedNote { row, .. }| {
            (row.collection.clone(), row.path.matches('/').count(), row.path.len(), row.path.clone())
        });
        let mut names: HashMap<&str, Names> = HashMap::new();
        for (at, note) in notes.iter().enumerate() {
            names.entry(&note.row.collection).or_default().add(at, note);
        }
        let resolve = |note: &LinkedNote| match names.get(note.row.collection.as_str()) {
            Some(names) => note.structure.links.iter().map(|link| names.resolve(&notes, note, link)).collect(),
            None => Vec::new(),
        };
        let resolved: Vec<Vec<Resolved>> = notes.iter().map(resolve).collect();
        let mut incoming = vec![Vec::new(); notes.len()];
        for (from, links) in resolved.iter().enumerate() {
            for (link, resolved) in links.iter().enumerate() {
                match resolved {
                    Resolved::Note(to) if *to != from => incoming[*to].push(IncomingLink { from, link }),
                    Resolved::Note(_) | Resolved::Outside | Resolved::Missing { .. } => {}
                }
            }
        }
        let by_id = notes.iter().enumerate().map(|(at, note)| (note.row.id.clone(), at)).collect();
        Self { notes, by_id, resolved, incoming }
    }

    pub(crate) fn has_links(&self) -> bool {
        self.incoming.iter().any(|incoming| !incoming.is_empty())
    }

    pub(crate) fn position(&self, document: &DocumentId) -> Option<usize> {
        self.by_id.get(document).copied()
    }

    /// Returns the links of a note in order, with their targets.
    pub(crate) fn outgoing(&self, at: usize) -> impl Iterator<Item = (&Link, &Resolved)> {
        self.notes[at].structure.links.iter().zip(&self.resolved[at])
    }

    /// Returns the links that lead to a note from others.
    pub(crate) fn incoming(&self, at: usize) -> impl Iterator<Item = (&LinkedNote, &Link)> {
        let link = |IncomingLink { from, link }: &IncomingLink| {
            (&self.notes[*from], &self.notes[*from].structure.links[*link])
        };
        self.incoming[at].iter().map(link)
    }

    /// Returns the other notes that a note links to, each once, in the order of the links.
    pub(crate) fn linked(&self, at: usize) -> Vec<&LinkedNote> {
        let to = |resolved: &Resolved| match resolved {
            Resolved::Note(to) if *to != at => Some(*to),
            Resolved::Note(_) | Resolved::Outside | Resolved::Missing { .. } => None,
        };
        self.once(self.resolved[at].iter().filter_map(to))
    }

    /// Returns the other notes that link to a note, each once.
    pub(crate) fn linking(&self, at: usize) -> Vec<&LinkedNote> {
        self.once(self.incoming[at].iter().map(|incoming| incoming.from))
    }

    fn once(&self, notes: impl Iterator<Item = usize>) -> Vec<&LinkedNote> {
        let mut seen = std::collections::HashSet::new();
        notes.filter(|at| seen.insert(*at)).map(|at| &self.notes[at]).collect()
    }

    /// Returns the heading that a link names within a note.
    pub(crate) fn heading(&self, at: usize, fragment: &str) -> Option<&Heading> {
        let headings = &self.notes[at].structure.headings;
        // `[[Note#Part#Chapter]]` names a heading under another.
        let wanted = key(fragment.rsplit('#').next().unwrap_or_default());
        // The parser leaves the attributes of a heading in its text.
        let explicit = format!("{{#{fragment}}}");
        let text = |heading: &Heading| key(heading.text.split("{#").next().unwrap_or_default());
        let same = |wanted: &str| headings.iter().filter(|heading| text(heading) == wanted).collect::<Vec<_>>();
        let numbered = || {
            // Repeated headings are numbered from `-1` on.
            let (name, number) = fragment.rsplit_once('-')?;
            same(&key(name)).get(number.parse::<usize>().ok()?).copied()
        };
        let found = headings.iter().find(|heading| heading.text.contains(&explicit));
        found.or_else(|| same(&wanted).first().copied()).or_else(numbered)
    }
}

impl Names {
    fn add(&mut self, at: usize, LinkedNote { row, structure }: &LinkedNote) {
        let path = folded(&row.path);
        let name = path.rsplit('/').next().unwrap_or_default();
        self.stems.entry(stem(name).to_owned()).or_default().push(at);
        for title in std::iter::once(&row.title).chain(&structure.aliases) {
            let known = self.titles.entry(folded(title)).or_default();
            // An alias often repeats the title.
            if known.last() != Some(&at) {
                known.push(at);
            }
        }
        self.paths.entry(path).or_default().push(at);
    }

    fn resolve(&self, notes: &[LinkedNote], from: &LinkedNote, link: &Link) -> Resolved {
        let folder = from.row.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let is_relative = link.target.starts_with("./") || link.target.starts_with("../");
        match link.kind {
            LinkKind::Wikilink | LinkKind::Embed if !is_relative => {
                self.named(notes, &link.target).map_or(Resolved::Missing { path: None }, Resolved::Note)
            }
            LinkKind::Path | LinkKind::Wikilink | LinkKind::Embed => match joined(folder, &link.target) {
                None => Resolved::Outside,
                Some(path) => self.at(notes, &path).map_or(Resolved::Missing { path: Some(path) }, Resolved::Note),
            },
        }
    }

    /// Finds the note at a path, whose extension may be left out, or the note of a folder.
    fn at(&self, notes: &[LinkedNote], path: &str) -> Option<usize> {
        // Folded once: most broken links match none of the candidate paths, and folding takes the most time.
        let whole = folded(path);
        let find = |cut: &str, end: String| {
            let found = self.paths.get(&format!("{}{end}", whole.strip_suffix(cut)?))?;
            // On a case-sensitive file system, two files may differ only in case.
            let is_exact = |at: &&usize| {
                let written = path.strip_suffix(cut).and_then(|path| notes[**at].row.path.strip_prefix(path));
                written == Some(end.as_str())
            };
            found.iter().find(is_exact).or(found.first()).copied()
        };
        // Pages of a book are linked by their published names.
        let page = [".html", ".htm"].into_iter().find(|page| path.ends_with(page));
        let ends = || std::iter::once(String::new()).chain(EXTENSIONS.map(|extension| format!(".{extension}")));
        let files = [Some(""), page].into_iter().flatten().flat_map(|cut| ends().map(move |end| (cut, end)));
        let slash = if path.is_empty() { "" } else { "/" };
        let of_folder =
            FOLDER_NOTES.iter().flat_map(|name| EXTENSIONS.map(|extension| ("", format!("{slash}{name}.{extension}"))));
        files.chain(of_folder).find_map(|(cut, end)| find(cut, end))
    }

    /// Finds the note with a name: its path or the end of it, its title, or an alias.
    fn named(&self, notes: &[LinkedNote], target: &str) -> Option<usize> {
        let wanted = folded(target.trim_start_matches('/'));
        let ends_in = |at: &usize, wanted: &str| {
            let path = folded(&notes[*at].row.path);
            stem(&path).strip_suffix(wanted).is_some_and(|before| before.is_empty() || before.ends_with('/'))
        };
        let file = |wanted: &str| {
            let found = self.stems.get(wanted.rsplit('/').next()?)?;
            found.iter().find(|at| ends_in(at, wanted)).copied()
        };
        let first = |names: &HashMap<String, Vec<usize>>| names.get(&wanted)?.first().copied();
        // `[[Notes.md]]` could name `Notes.md.md`, but rarely does.
        first(&self.paths).or_else(|| file(stem(&wanted))).or_else(|| file(&wanted)).or_else(|| first(&self.titles))
    }
}

/// Returns the path that a relative target leads to from a folder, or `None` if it leads out of the root. A target that
/// begins with a slash starts at the root.
fn joined(folder: &str, target: &str) -> Option<String> {
    let mut path: Vec<&str> = if target.starts_with('/') { Vec::new() } else { components(folder).collect() };
    for part in components(target) {
        match part {
            ".." => drop(path.pop()?),
            part => path.push(part),
        }
    }
    Some(path.join("/"))
}

fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !matches!(*part, "" | "."))
}

/// Returns a name in the form in which names are compared: ignoring letter case and the encoding of accents.
fn folded(name: &str) -> String {
    if name.is_ascii() { name.to_ascii_lowercase() } else { name.nfc().collect::<String>().to_lowercase() }
}

/// Returns a folded path without the extension of a note.
fn stem(path: &str) -> &str {
    path.rsplit_once('.').filter(|(_, extension)| EXTENSIONS.contains(extension)).map_or(path, |(stem, _)| stem)
}

/// Returns the letters and digits of a heading, which are the same in its text and in the fragments made from it.
fn key(heading: &str) -> String {
    heading.chars().filter(|letter| letter.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::ContentHash;
    use crate::kb::document::Document;

    fn note(collection: &str, path: &str, text: &str) -> LinkedNote {
        let document = Document::parse(path, text.as_bytes().to_vec()).unwrap();
        let row = DocumentRow {
            id: DocumentId::new(collection, path),
            collection: collection.into(),
            path: path.into(),
            title: document.title.clone(),
            size: 0,
            modified_ns: None,
            content_hash: ContentHash::of(text.as_bytes()),
            chunks: 0,
        };
        LinkedNote { row, structure: Structure::of(&document) }
    }

    fn map(notes: &[(&str, &str)]) -> LinkMap {
        LinkMap::new(notes.iter().map(|(path, text)| note("kb", path, text)).collect())
    }

    /// Returns the targets of the links of a note: a path, `outside`, or `missing`.
    fn leads(map: &LinkMap, path: &str) -> Vec<String> {
        let at = map.position(&DocumentId::new("kb", path)).unwrap();
        let shown = |resolved: &Resolved| match resolved {
            Resolved::Note(to) => map.notes[*to].row.path.clone(),
            Resolved::Outside => "outside".to_owned(),
            Resolved::Missing { .. } => "missing".to_owned(),
        };
        map.outgoing(at).map(|(_, resolved)| shown(resolved)).collect()
    }

    /// Returns the targets of links in `from` among notes without links.
    fn resolved(from: &str, links: &str, others: &[&str]) -> Vec<String> {
        let notes: Vec<_> = others.iter().map(|path| (*path, "Text")).chain([(from, links)]).collect();
        leads(&map(&notes), from)
    }

    #[test]
    fn path_starts_at_the_folder_of_its_note() {
        let notes = ["a.md", "guide/a.md", "guide/deep/a.md", "guide/b c.md"];
        let links = "[](a.md) [](./a) [](../a.md) [](deep/a.md) [](/a.md) [](deep/../b%20c.md) [](b.md)";
        assert_eq!(
            resolved("guide/from.md", links, &notes),
            ["guide/a.md", "guide/a.md", "a.md", "guide/deep/a.md", "a.md", "guide/b c.md", "missing"]
        );
    }

    #[test]
    fn path_never_leaves_the_root() {
        let links =
            "[](../a.md) [](../../etc/passwd) [](x/../../a.md) [](/../a.md) [[../a]] [](%2e%2e/a.md) [](../kb/a.md)";
        assert_eq!(resolved("from.md", links, &["a.md"]), vec!["outside"; 7]);
        assert_eq!(resolved("from.md", "[](x/../a.md) [](..%5ca.md)", &["a.md"]), ["a.md", "missing"]);
    }

    #[test]
    fn folder_is_its_readme_or_index() {
        let notes = ["README.md", "a/README.md", "a/index.md", "b/index.md", "c/_index.md", "d/x.md"];
        let links = "[](a) [](a/) [](b/) [](c) [](d/) [](.) [](../sub/)";
        assert_eq!(
            resolved("from.md", "[](a) [](a/) [](b/) [](c) [](d/) [](.)", &notes),
            ["a/README.md", "a/README.md", "b/index.md", "c/_index.md", "missing", "README.md"]
        );
        assert_eq!(resolved("sub/README.md", links, &[]).last().unwrap(), "sub/README.md");
    }

    #[test]
    fn page_of_a_book_is_the_note_it_is_made_from() {
        assert_eq!(resolved("a.md", "[](ch01.html#x) [](ch02.html)", &["ch01.md"]), ["ch01.md", "missing"]);
    }

    #[test]
    fn name_is_found_ignoring_case_and_the_encoding_of_accents() {
        let links = "[[NOTE]] [[note.md]] [[cafe\u{301}]] [](CAFÉ.md)";
        assert_eq!(
            resolved("from.md", links, &["sub/Note.md", "café.md"]),
            ["sub/Note.md", "sub/Note.md", "café.md", "café.md"]
        );
        assert_eq!(resolved("from.md", "[](a.md) [](A.md)", &["A.md", "a.md"]), ["a.md", "A.md"], "the same case wins");
    }

    #[test]
    fn shortest_path_wins_where_a_name_is_ambiguous() {
        let notes = ["x/y/Note.md", "zz/Note.md", "a/Note.md", "x/Other.md"];
        let links = "[[Note]] [[y/Note]] [[x/y/Note]] [[zz/note]] [[q/Note]] [[Other]] [[/a/Note]] [[ote]]";
        assert_eq!(
            resolved("x/y/from.md", links, &notes),
            ["a/Note.md", "x/y/Note.md", "x/y/Note.md", "zz/Note.md", "missing", "x/Other.md", "a/Note.md", "missing"]
        );
    }

    #[test]
    fn title_and_alias_are_names_too_but_a_file_name_comes_first() {
        let map = map(&[
            ("a.md", "---\naliases: [Water, Boiler]\n---\n# Pump\n"),
            ("boiler.md", "# Heating\n"),
            ("from.md", "[[water]] [[pump]] [[Boiler]] [[heating]] ![[Water]]"),
        ]);
        assert_eq!(leads(&map, "from.md"), ["a.md", "a.md", "boiler.md", "boiler.md", "a.md"]);
    }

    #[test]
    fn link_stays_within_its_collection() {
        let map = LinkMap::new(vec![
            note("kb", "from.md", "[[Note]] [](note.md) [[other/note]] [](../other/note.md)"),
            note("other", "note.md", "Text"),
        ]);
        assert_eq!(leads(&map, "from.md"), ["missing", "missing", "missing", "outside"]);
    }

    #[test]
    fn each_note_knows_which_others_link_to_it() {
        let map = map(&[("a.md", "[[b]] [[b]]\n[[a]]"), ("b.md", "[[a]]"), ("c.md", "\n[[b#x]]")]);
        let b = map.position(&DocumentId::new("kb", "b.md")).unwrap();
        let incoming: Vec<_> = map.incoming(b).map(|(note, link)| (note.row.path.as_str(), link.line)).collect();
        assert_eq!(incoming, [("a.md", 1), ("a.md", 1), ("c.md", 2)]);
        let paths = |notes: Vec<&LinkedNote>| notes.iter().map(|note| note.row.path.clone()).collect::<Vec<_>>();
        assert_eq!(
            (paths(map.linking(b)), paths(map.linked(b))),
            (vec!["a.md".into(), "c.md".into()], vec!["a.md".into()])
        );
    }

    #[test]
    fn fragment_is_matched_with_a_heading_however_it_is_made() {
        let map = map(&[("a.md", "# Crash safety\n\n## Don't: `stop`\n\n## Usage\n\n## Usage\n\n## Set up {#own}\n")]);
        let line = |fragment: &str| map.heading(0, fragment).map(|heading| heading.line);
        assert_eq!(line("crash-safety"), Some(1));
        assert_eq!(line("Crash safety"), Some(1));
        assert_eq!(line("dont-stop"), Some(3));
        assert_eq!(line("Crash safety#Don't: stop"), Some(3));
        assert_eq!([line("usage"), line("usage-1"), line("usage-2")], [Some(5), Some(7), None]);
        assert_eq!(line("set-up"), Some(9));
        assert_eq!([line("own"), line("nothing"), line("-99999999999999999999")], [Some(9), None, None]);
    }
}
