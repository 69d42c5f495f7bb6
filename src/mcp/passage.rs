//! `fetch` and `read`: passages by name.
//!
//! A name is looked up in the index and never becomes a path: only documents in the index can be read, and a file only
//! if it is unchanged since it was indexed. `fetch` has the shape of OpenAI's contract, see [`super::search`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cut::{Rest, cut, heading_line};
use super::failure::{ToolError, check_length};
use crate::engine::{Excerpt, Extent, Neighbourhood, ParseSelectorError, Selector, Service};

/// Longest name of a passage, in bytes: the longest path of common systems.
const MAX_ID_BYTES: usize = 4 * 1_024;

/// Maximum number of tokens of an outline and the linked notes of its document, in addition to a text.
const MAX_OUTLINE_TOKENS: usize = 2_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FetchArguments {
    /// Id of a result of `search`, or the `rest` of an earlier `fetch`.
    id: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Fetched {
    /// The id as it was given.
    id: String,
    title: String,
    /// The section that the passage is in, verbatim.
    text: String,
    /// Address of the document, with the lines of the text.
    url: String,
    metadata: Metadata,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Metadata {
    collection: String,
    /// Path within the collection.
    path: String,
    /// Lines of the text in the document, from 1.
    lines: String,
    /// What was left out or is out of date.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// The id to fetch for the rest of a text that was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    rest: Option<String>,
}

pub(super) async fn fetch(service: &Service, FetchArguments { id }: FetchArguments) -> Result<Fetched, ToolError> {
    let CutExcerpt { excerpt, url, note, rest } = CutExcerpt::read(service, "fetch", &id, Extent::Section).await?;
    Ok(Fetched {
        id,
        title: heading_line(&excerpt.title, &excerpt.heading_path),
        url,
        metadata: Metadata {
            lines: format!("{}-{}", excerpt.line_start, excerpt.line_end),
            collection: excerpt.collection,
            path: excerpt.path,
            note,
            rest,
        },
        text: excerpt.text,
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadArguments {
    /// Id of a passage or document, a path as `search` shows it, lines of one (`handbook/api.md:12-40`), or the address
    /// of a result.
    id: String,
    /// How much around a passage: the passage itself (the default), its section (the default with `expand`), or its
    /// document. A path is read as a whole.
    extent: Option<Extent>,
    /// Also return the outline of the document and the notes linked with it.
    #[serde(default)]
    expand: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ReadText {
    collection: String,
    /// Path within the collection.
    path: String,
    title: String,
    /// Headings above the text, outermost first.
    headings: Vec<String>,
    /// First line, from 1.
    line_start: u32,
    /// Last line, inclusive.
    line_end: u32,
    url: String,
    /// Verbatim.
    text: String,
    /// What was left out or is out of date.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// The id to read for the rest of a text that was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    rest: Option<String>,
    /// The outline of the document and the notes linked with it, with `expand`.
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<Neighbourhood>,
}

pub(super) async fn read(
    service: &Service,
    ReadArguments { id, extent, expand }: ReadArguments,
) -> Result<ReadText, ToolError> {
    let extent = extent.unwrap_or(if expand { Extent::Section } else { Extent::Passage });
    let CutExcerpt { excerpt, url, note, rest } = CutExcerpt::read(service, "read", &id, extent).await?;
    let context = if expand {
        Some(service.engine.neighbourhood_within(&excerpt.document_id, MAX_OUTLINE_TOKENS).await?)
    } else {
        None
    };
    Ok(ReadText {
        context,
        collection: excerpt.collection,
        path: excerpt.path,
        title: excerpt.title,
        headings: excerpt.heading_path,
        line_start: excerpt.line_start,
        line_end: excerpt.line_end,
        url,
        text: excerpt.text,
        note,
        rest,
    })
}

/// Parses the name of a passage.
pub(super) fn selector(tool: &'static str, id: &str) -> Result<Selector, ToolError> {
    check_length(tool, "id", id, MAX_ID_BYTES)?;
    id.parse().map_err(|error: ParseSelectorError| ToolError::arguments(tool, error))
}

/// An excerpt, cut to the length of a result.
pub(super) struct CutExcerpt {
    pub(super) excerpt: Excerpt,
    url: String,
    pub(super) note: Option<String>,
    rest: Option<String>,
}

impl CutExcerpt {
    pub(super) async fn read(
        service: &Service,
        tool: &'static str,
        id: &str,
        extent: Extent,
    ) -> Result<Self, ToolError> {
        let excerpt = service.engine.get(&selector(tool, id)?, extent).await?;
        let addresses = service.engine.addresses().await?;
        let (excerpt, cut) = cut_short(excerpt);
        let notes: Vec<_> = excerpt.note().into_iter().chain(cut.as_ref().map(|cut| cut.note.as_str())).collect();
        Ok(Self {
            url: addresses.of(&excerpt.collection, &excerpt.path, (excerpt.line_start, excerpt.line_end)),
            note: (!notes.is_empty()).then(|| notes.join("; ")),
            rest: cut.and_then(|cut| cut.rest),
            excerpt,
        })
    }
}

/// The omitted part of a passage.
struct Omission {
    note: String,
    /// Name of the rest, if it has one.
    rest: Option<String>,
}

/// Cuts a passage to the length of a result.
fn cut_short(mut excerpt: Excerpt) -> (Excerpt, Option<Omission>) {
    let (kept, Some(Rest { after, is_line_cut })) = cut(&excerpt.text) else { return (excerpt, None) };
    let (kept, left_out) = (kept.len(), excerpt.text[kept.len()..].lines().count());
    excerpt.text.truncate(kept);
    let left_out = format!("the last {left_out} lines are left out");
    // The lines of the indexed text differ from those of the changed file.
    if excerpt.stale {
        let note = format!("{left_out}; the rest can be read once the file is indexed again");
        return (excerpt, Some(Omission { note, rest: None }));
    }
    let last = excerpt.line_end;
    excerpt.line_end = excerpt.line_start.saturating_add(u32::try_from(after - 1).unwrap_or(u32::MAX)).min(last);
    let end = excerpt.line_end;
    let rest = (end < last).then(|| format!("{}/{}:{}-{last}", excerpt.collection, excerpt.path, end + 1));
    let cut =
        if is_line_cut { format!("; line {end} is cut, and can only be read in the file") } else { String::new() };
    let more = rest.as_ref().map(|rest| format!("; `{rest}` is the rest")).unwrap_or_default();
    (excerpt, Some(Omission { note: format!("{left_out}{cut}{more}"), rest }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_after_one_that_fits_no_result_can_be_read() {
        let long = "word ".repeat(20_000);
        let (kept, cut) = cut_short(Excerpt::sample(format!("{long}\nlast\n"), 6));
        let Omission { note, rest } = cut.unwrap();
        assert_eq!((kept.line_end, rest.as_deref()), (5, Some("kb/a.md:6-6")));
        let line = "line 5 is cut, and can only be read in the file";
        assert_eq!(note, format!("the last 2 lines are left out; {line}; `kb/a.md:6-6` is the rest"));
        let (_, cut) = cut_short(Excerpt::sample(long, 5));
        let Omission { note, rest } = cut.unwrap();
        assert_eq!((note, rest), (format!("the last 1 lines are left out; {line}"), None));
    }
}
