//! Resources: documents of the index and reports of runs, by address.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use rmcp::ErrorData;
use rmcp::model::{
    ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource, ResourceContents, ResourceTemplate,
};

use super::cut::{MAX_TEXT_TOKENS, beginning};
use super::failure::ToolError;
use super::passage::Passage;
use super::server::Shared;
use crate::base::id::RunId;
use crate::base::line::shortened;
use crate::engine::{Extent, Selector, document_address};
use crate::render::{self, ReportFormat};

/// Resources in one page of the list.
const PAGE: usize = 200;

const MARKDOWN: &str = "text/markdown";

const DOCUMENTS: &str = "dr://documents/";

const RUNS: &str = "dr://runs/";

/// Returns the templates of all addresses.
pub(super) fn templates() -> ListResourceTemplatesResult {
    ListResourceTemplatesResult::with_all_items(vec![
        ResourceTemplate::new(format!("{DOCUMENTS}{{collection}}/{{+path}}"), "document")
            .with_title("Document")
            .with_description("An indexed document, by its collection and path")
            .with_mime_type(MARKDOWN),
        ResourceTemplate::new(format!("{RUNS}{{run_id}}"), "report")
            .with_title("Report")
            .with_description("The report of a run, by its id")
            .with_mime_type(MARKDOWN),
    ])
}

/// Lists documents by collection and path, one page at a time. The cursor is the number of resources before the page.
pub(super) async fn list(shared: &Shared, cursor: Option<&str>) -> Result<ListResourcesResult, ErrorData> {
    let invalid = |_| ErrorData::invalid_params("cursor is not one of this list", None);
    let start: usize = cursor.map(str::parse).transpose().map_err(invalid)?.unwrap_or(0);
    let documents = shared.engine.documents().await.map_err(|error| failed(&error.into()))?;
    let page = documents.iter().skip(start).take(PAGE);
    let resources: Vec<_> = page
        .map(|document| {
            let name = format!("{}/{}", document.collection, document.path);
            Resource::new(document_address(&document.collection, &document.path), name)
                .with_title(shortened(&document.title))
                .with_mime_type(MARKDOWN)
        })
        .collect();
    let next = start.saturating_add(resources.len());
    let mut list = ListResourcesResult::with_all_items(resources);
    list.next_cursor = (next < documents.len()).then(|| next.to_string());
    Ok(list)
}

/// Reads a document or a report. What is longer than a result may be is cut, which the text says.
///
/// # Errors
///
/// Returns an error for an address that names neither.
pub(super) async fn contents(shared: &Shared, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let unknown = || ErrorData::resource_not_found(format!("no resource `{}`", shortened(uri)), None);
    let text = if uri.starts_with(DOCUMENTS) {
        document(shared, &selector_of(uri).ok_or_else(unknown)?).await
    } else {
        let run = uri.strip_prefix(RUNS).and_then(|run| run.parse().ok()).ok_or_else(unknown)?;
        report(shared, &run).await
    };
    let text = text.map_err(|error| ErrorData::resource_not_found(error.told(), None))?;
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(MARKDOWN)]))
}

/// Returns what the address of a document names: the document, or lines of it. `None` for any other address.
pub(super) fn selector_of(uri: &str) -> Option<Selector> {
    let (name, fragment) = match uri.strip_prefix(DOCUMENTS)?.split_once('#') {
        Some((name, fragment)) => (name, Some(fragment)),
        None => (uri.strip_prefix(DOCUMENTS)?, None),
    };
    let line = |text: &str| text.strip_prefix('L')?.parse().ok().filter(|line| *line > 0);
    let lines = fragment.map(|lines| lines.split_once('-').unwrap_or((lines, lines)));
    let lines = lines.and_then(|(first, last)| Some((line(first)?, line(last)?)));
    Some(Selector::Path { path: decoded(name)?, lines: lines.filter(|(first, last)| first <= last) })
}

async fn document(shared: &Shared, selector: &Selector) -> Result<String, ToolError> {
    let Passage { excerpt, note, .. } = Passage::of(shared, selector, Extent::Document).await?;
    Ok(noted(excerpt.text, note))
}

async fn report(shared: &Shared, run: &RunId) -> Result<String, ToolError> {
    let report = shared.runs.report(&shared.engine, run.as_str()).await?.report;
    let whole = render::report(&report, ReportFormat::Markdown)?;
    let text = beginning(&whole, MAX_TEXT_TOKENS);
    let note = (text.len() < whole.len()).then(|| {
        let line = text.lines().count() + 1;
        format!("the rest is left out; the tool `research_result` with from_line {line} has it")
    });
    Ok(noted(text.to_owned(), note))
}

fn noted(mut text: String, note: Option<String>) -> String {
    if let Some(note) = note {
        text.push_str(&format!("\n\n[{note}]\n"));
    }
    text
}

pub(super) fn failed(error: &ToolError) -> ErrorData {
    ErrorData::internal_error(error.told(), None)
}

/// Decodes `%41` and the like. Returns `None` if the result is not text.
fn decoded(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_a_document_is_decoded_to_its_name() {
        for (collection, path) in [("notes", "a b/50% #1?.md"), ("a/b", "é.md"), ("notes", "%41.md")] {
            let uri = document_address(collection, path).to_string();
            let path = format!("{collection}/{path}");
            assert_eq!(selector_of(&uri), Some(Selector::Path { path: path.clone(), lines: None }));
            let lines = selector_of(&format!("{uri}#L3-L9"));
            assert_eq!(lines, Some(Selector::Path { path: path.clone(), lines: Some((3, 9)) }));
            for odd in ["#L0", "#L9-L3", "#top", "#"] {
                assert_eq!(
                    selector_of(&format!("{uri}{odd}")),
                    Some(Selector::Path { path: path.clone(), lines: None })
                );
            }
        }
        assert_eq!(selector_of("file:///etc/passwd"), None);
        assert_eq!(decoded("%ff"), None);
        assert_eq!(decoded("100%"), Some("100%".to_owned()));
        assert_eq!(decoded("%+1%"), Some("%+1%".to_owned()));
    }
}
