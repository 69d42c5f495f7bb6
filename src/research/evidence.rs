//! Evidence: quotes that bear on a node, each checked against its source.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::lead_in::lead_ins;
use super::node::NodeId;
use super::unit::bold_question_above;
use crate::base::id::as_text;
use crate::kb::chunk::headings_above;
use crate::kb::document::Document;
use crate::source::{Label, Passage, Place, SourceFile, page_of};

/// Id of a quote within its run: its node and a number, for example `n2e1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EvidenceId {
    node: NodeId,
    number: u32,
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an evidence id (expected a node and a number, for example `n2e1`)")]
pub struct ParseEvidenceIdError(String);

impl EvidenceId {
    /// Returns the id of quote `number` of a node, counted from 1.
    pub(crate) fn new(node: NodeId, number: u32) -> Self {
        Self { node, number }
    }

    /// Returns the id `places` after this one, saturating at the largest.
    #[must_use]
    pub(crate) fn after(&self, places: usize) -> Self {
        let places = u32::try_from(places).unwrap_or(u32::MAX);
        Self { node: self.node.clone(), number: self.number.saturating_add(places) }
    }

    pub(crate) fn node(&self) -> &NodeId {
        &self.node
    }
}

impl fmt::Display for EvidenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}e{}", self.node, self.number)
    }
}

impl FromStr for EvidenceId {
    type Err = ParseEvidenceIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseEvidenceIdError(text.to_owned());
        let (node, number) = text.rsplit_once('e').ok_or_else(wrong)?;
        let node = node.parse().map_err(|_| wrong())?;
        // One spelling for each id: integers also parse from `+1` and `01`.
        let number = number.parse().ok().filter(|_| !number.starts_with(['0', '+'])).ok_or_else(wrong)?;
        Ok(Self { node, number })
    }
}

as_text!(EvidenceId);

/// A quote and its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Cited in answers as `[n2e1]`.
    pub(crate) id: EvidenceId,
    pub(crate) node: NodeId,
    /// Whether the quote is private to the knowledge base.
    pub(crate) label: Label,
    /// Set by [`Self::check`] if the quote occurs verbatim in its source. Only checked quotes may be cited.
    pub(crate) checked: bool,
    /// Whether the file was changed or removed after indexing. The quote is then the text kept in the index.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub(crate) stale: bool,
    /// Verbatim text of the source.
    pub(crate) quote: String,
    /// Relevance to the question, from 0 to 1.
    pub(crate) score: f32,
    /// File and lines, URL, or call of a tool.
    pub(crate) source: Place,
}

impl Evidence {
    /// Returns the id of the first quote above that has all words of this one. Nodes, and notes on several aspects, often
    /// quote the same sentence, and a prompt need not repeat it.
    pub(super) fn within<'a>(&self, above: &[&'a Self]) -> Option<&'a EvidenceId> {
        let has_it = |known: &&&Self| known.source.overlaps(&self.source) && known.quote.contains(self.quote.as_str());
        above.iter().find(has_it).map(|known| &known.id)
    }

    /// Returns a reference to the quote above that has all words of this one, as prompts show it.
    pub(super) fn reference(&self, above: &[&Self]) -> Option<String> {
        self.within(above).map(|known| format!("Its words stand in {known} above."))
    }

    /// Returns the source line of a quote in a prompt: document and date, or only the headings that differ if the quote
    /// above is from the same document. `None` if they are the same, too.
    pub(super) fn place_below(&self, above: Option<&Self>) -> Option<String> {
        let source = &self.source;
        // A page may have been read on two days.
        let is_same = |above: &&Self| above.source.is_same_document(source) && above.source.origin() == source.origin();
        match above.filter(is_same) {
            None => Some(format!("From: {}", source.provenance())),
            Some(above) => source.names_below(&above.source).map(|names| format!("› {names}")),
        }
    }

    /// Checks the quote against its source and sets [`Self::checked`] and [`Self::stale`].
    ///
    /// A quote of an unchanged file must occur in the lines it names. If the file changed after indexing, `passage`,
    /// the text kept in the index, is compared instead. The heading path of a checked quote is set to the headings
    /// above its first line: a passage may span several sections and carries the headings of its first one only. The
    /// lead-ins of the lists that the quote begins in follow them: the passage may have been cut below a lead-in.
    pub(crate) fn check(&mut self, file: &SourceFile, passage: &str) {
        // Pages and results of tools are stored as they were read; only files change.
        self.stale = matches!(self.source, Place::Kb { .. }) && !matches!(file, SourceFile::AsIndexed(_));
        // An empty quote would occur in every text.
        self.checked = !self.quote.trim().is_empty()
            && match (file, &self.source) {
                (SourceFile::AsIndexed(text), Place::Kb { line_start, line_end, .. }) => {
                    text[line_range(text, *line_start, *line_end)].contains(&self.quote)
                }
                (SourceFile::AsIndexed(text), Place::Web { .. } | Place::Mcp { .. }) => text.contains(&self.quote),
                (SourceFile::Changed | SourceFile::Gone, Place::Kb { .. }) => passage.contains(&self.quote),
                // A search engine's snippet may differ from the page, so without the stored text nothing is confirmed.
                (SourceFile::Changed | SourceFile::Gone, Place::Web { .. } | Place::Mcp { .. }) => false,
            };
        if let (true, SourceFile::AsIndexed(text)) = (self.checked, file) {
            self.name_headings(text);
        }
    }

    /// Sets the heading path of a checked quote, see [`Self::check`].
    fn name_headings(&mut self, text: &str) {
        let Place::Kb { path, line_start, line_end, heading_path, .. } = &mut self.source else { return };
        let Ok(document) = Document::parse(path, text.as_bytes().to_vec()) else { return };
        *heading_path = headings_above(&document, *line_start);
        // A name that ends with a colon is a lead-in.
        for heading in &mut *heading_path {
            heading.truncate(heading.trim_end_matches([':', '：']).len());
        }
        // The last heading of a PDF is its page.
        if page_of(path, heading_path).is_some() {
            return;
        }
        let lines = line_range(text, *line_start, *line_end);
        if let Some(at) = text[lines.clone()].find(&self.quote) {
            // Without the indentation of a nested item, which belongs to the item around it.
            let at = lines.start + at + indent(&self.quote);
            heading_path.extend(bold_question_above(text, at));
            heading_path.extend(lead_ins(text, at));
        }
    }
}

fn indent(text: &str) -> usize {
    text.len() - text.trim_start().len()
}

/// Groups items by the document of their quotes, in order of first appearance.
pub(crate) fn by_document<T>(items: impl IntoIterator<Item = T>, quote: impl Fn(&T) -> &Evidence) -> Vec<Vec<T>> {
    let mut documents: Vec<Vec<T>> = Vec::new();
    for item in items {
        let source = &quote(&item).source;
        match documents.iter_mut().find(|known| quote(&known[0]).source.is_same_document(source)) {
            Some(known) => known.push(item),
            None => documents.push(vec![item]),
        }
    }
    documents
}

/// Returns a line for each document: its place, its date, and the ids of the quotes from it.
pub(super) fn origins<'a>(quotes: impl IntoIterator<Item = &'a Evidence>) -> Vec<String> {
    let mut origins: Vec<(String, Vec<String>)> = Vec::new();
    for quote in quotes {
        let origin = quote.source.origin();
        match origins.iter_mut().find(|known| known.0 == origin) {
            Some((_, ids)) => ids.push(quote.id.to_string()),
            None => origins.push((origin, vec![quote.id.to_string()])),
        }
    }
    origins.into_iter().map(|(origin, ids)| format!("From {origin}: {}", ids.join(", "))).collect()
}

/// Returns the byte range of lines `first..=last` of a text, counted from 1, including their line endings.
pub(crate) fn line_range(text: &str, first: u32, last: u32) -> Range<usize> {
    let line_start = |line: u32| match line {
        0 | 1 => Some(0),
        line => text.match_indices('\n').nth(line as usize - 2).map(|(at, _)| at + 1),
    };
    let start = line_start(first).unwrap_or(text.len());
    let end = line_start(last.saturating_add(1)).unwrap_or(text.len());
    start..end.max(start)
}

impl Passage {
    /// Returns a range of this passage as evidence with its line numbers, not yet checked.
    pub(crate) fn quote(&self, range: Range<usize>, id: EvidenceId, score: f32) -> Evidence {
        let source = self.place_of(range.clone());
        Evidence {
            node: id.node().clone(),
            id,
            label: self.label,
            checked: false,
            stale: false,
            quote: self.text[range].trim_end().to_owned(),
            score: score.clamp(0.0, 1.0),
            source,
        }
    }

    /// Returns the place of a range of this passage.
    pub(super) fn place_of(&self, range: Range<usize>) -> Place {
        let mut place = self.place.clone();
        if let Place::Kb { line_start, line_end, .. } = &mut place {
            let first = *line_start;
            *line_start = first + count_lines(&self.text[..range.start]);
            // A line break at the end would count as one more line.
            let length = self.text[range.clone()].trim_end().len();
            *line_end = first + count_lines(&self.text[..range.start + length]);
        }
        place
    }
}

/// Returns the number of line breaks in a text.
pub(super) fn count_lines(text: &str) -> u32 {
    u32::try_from(text.matches('\n').count()).unwrap_or(u32::MAX)
}

/// Finds the citations in a text, `[n2e1]` or `[n2e1, n3e2]`: one entry per id, with the byte range of its brackets.
pub fn marks(text: &str) -> Vec<(Range<usize>, EvidenceId)> {
    let mut marks = Vec::new();
    let mut from = 0;
    while let Some(open) = text[from..].find('[').map(|at| from + at) {
        let Some(close) = text[open..].find(']').map(|at| open + at) else { break };
        let inner: Vec<_> = text[open + 1..close].split([',', ';']).map(|id| id.trim().parse::<EvidenceId>()).collect();
        from = open + 1;
        if inner.iter().all(Result::is_ok) {
            from = close + 1;
            marks.extend(inner.into_iter().flatten().map(|id| (open..close + 1, id)));
        }
    }
    marks
}

/// Removes unknown ids from a text and returns their number. Brackets left without any id are replaced by `instead`.
pub(crate) fn strike(text: &str, is_known: &dyn Fn(&EvidenceId) -> bool, instead: &str) -> (String, usize) {
    let mut brackets: Vec<(Range<usize>, Vec<EvidenceId>)> = Vec::new();
    for (range, id) in marks(text) {
        match brackets.last_mut().filter(|(last, _)| *last == range) {
            Some((_, ids)) => ids.push(id),
            None => brackets.push((range, vec![id])),
        }
    }
    let (mut kept, mut from, mut struck) = (String::with_capacity(text.len()), 0, 0);
    for (range, ids) in brackets {
        let known: Vec<_> = ids.iter().filter(|id| is_known(id)).map(ToString::to_string).collect();
        struck += ids.len() - known.len();
        kept.push_str(&text[from..range.start]);
        match (known.is_empty(), instead.is_empty()) {
            (false, _) => kept.push_str(&format!("[{}]", known.join(", "))),
            (true, false) => kept.push_str(instead),
            // Avoids `claim .` where `claim [n9e9].` stood.
            (true, true) => kept.truncate(kept.trim_end_matches(' ').len()),
        }
        from = range.end;
    }
    kept.push_str(&text[from..]);
    (kept, struck)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::ContentHash;

    #[test]
    fn evidence_id_parses_back_and_invalid_ids_are_refused() {
        let id = EvidenceId::new(NodeId::numbered(12), 3);
        assert_eq!(id.to_string(), "n12e3");
        assert_eq!("n12e3".parse::<EvidenceId>().unwrap(), id);
        for text in ["", "e1", "n1", "n1e0", "n01e1", "n1e+1", "n1e1e1", "1e1"] {
            assert!(text.parse::<EvidenceId>().is_err(), "{text}");
        }
    }

    #[test]
    fn quote_of_a_web_page_is_checked_against_the_fetched_page_only() {
        let url = "https://example.org/";
        let place = Place::unfetched(url.into(), "A page".into(), None);
        let passage = Passage::whole(url.into(), Label::Public, place, "Valves open at six.".into());
        let mut evidence = passage.quote(0..19, EvidenceId::new(NodeId::numbered(1), 1), 1.0);
        evidence.check(&SourceFile::Gone, &passage.text);
        assert!(!evidence.checked && !evidence.stale, "a snippet confirms nothing");
        evidence.check(&SourceFile::AsIndexed("Beds\n\nValves open at six.".into()), &passage.text);
        assert!(evidence.checked);
        evidence.check(&SourceFile::AsIndexed("Valves open at seven.".into()), &passage.text);
        assert!(!evidence.checked);
    }

    #[test]
    fn quote_from_a_list_names_its_lead_in_or_its_question_after_the_headings_even_if_its_passage_has_none() {
        let text = "# Keys\n\n## Modes\n\nOn-demand mode is a good option if:\n\n- loads are new\n- you have:\n  - \
            peaks\n\n**What is not sold?**\n\n- brass\n";
        let from = text.find("- loads").unwrap();
        let place = Place::Kb {
            collection: "kb".into(),
            path: "tables.md".into(),
            title: "Keys".into(),
            heading_path: vec!["Keys".into()],
            line_start: count_lines(&text[..from]) + 1,
            line_end: count_lines(text),
            content_hash: ContentHash::of(text.as_bytes()),
            date: None,
        };
        let passage = Passage::whole("p".into(), Label::Internal, place, text[from..].into());
        let source = |words: &str| {
            let start = passage.text.find(words).unwrap();
            let id = EvidenceId::new(NodeId::numbered(1), 1);
            let mut evidence = passage.quote(start..start + words.len(), id, 1.0);
            evidence.check(&SourceFile::AsIndexed(text.into()), &passage.text);
            assert!(evidence.checked, "{words}");
            evidence.source
        };
        assert_eq!(source("loads are new").names(), "Keys › Modes › On-demand mode is a good option if:");
        let nested = ["On-demand mode is a good option if:", "you have:"];
        assert_eq!(source("  - peaks").lead_ins(), nested);
        assert_eq!(source("brass").names(), "Keys › Modes › What is not sold?");
    }
}
