//! Resources: documents of the index and reports of runs, by address.

use rmcp::ErrorData;
use rmcp::model::{
    ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource, ResourceContents, ResourceTemplate,
};

use super::answer::lines_from;
use super::failure::ToolError;
use super::passage::CutExcerpt;
use crate::base::id::RunId;
use crate::base::line::shortened;
use crate::engine::{DOCUMENTS, EngineError, Extent, Service, document_address};
use crate::render::{self, ReportFormat};

/// Number of resources per page of the list.
const PAGE: usize = 200;

const MARKDOWN: &str = "text/markdown";

const RUNS: &str = "dr://runs/";

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

/// Lists documents by collection and path, then runs, newest first, one page at a time. The cursor is the number of
/// resources before the page.
pub(super) async fn list(service: &Service, cursor: Option<&str>) -> Result<ListResourcesResult, ErrorData> {
    let invalid = |_| ErrorData::invalid_params("cursor is not one of this list", None);
    let start: usize = cursor.map(str::parse).transpose().map_err(invalid)?.unwrap_or(0);
    let documents = service.engine.documents().await.map_err(|error| failed(&error.into()))?;
    let end = start.saturating_add(PAGE);
    // Listing runs reads each of them, so this is done only for pages that contain some.
    let runs = if end > documents.len() {
        service.engine.served_runs().await.map_err(|error| failed(&error.into()))?
    } else {
        Vec::new()
    };
    // The runs are not read for a page that ends with the last document, so there may be more.
    let has_more = end <= documents.len() || end < documents.len() + runs.len();
    let documents = documents.iter().map(|document| {
        let name = format!("{}/{}", document.collection, document.path);
        Resource::new(document_address(&document.collection, &document.path), name)
            .with_title(shortened(&document.title))
    });
    let reports = runs.iter().map(|run| {
        Resource::new(format!("{RUNS}{}", run.id), format!("report {}", run.id)).with_title(shortened(&run.question))
    });
    let page = documents.chain(reports).skip(start).take(PAGE);
    let mut list = ListResourcesResult::with_all_items(page.map(|one| one.with_mime_type(MARKDOWN)).collect());
    list.next_cursor = has_more.then(|| end.to_string());
    Ok(list)
}

/// Reads a document or a report. A text longer than a result may be is cut, with a note at its end.
pub(super) async fn contents(service: &Service, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let unknown = || ErrorData::resource_not_found(format!("no resource `{}`", shortened(uri)), None);
    let text = if uri.starts_with(DOCUMENTS) {
        document(service, uri).await
    } else {
        // A whole id, as for the tools: a prefix could name a run that the client does not know.
        let run = uri.strip_prefix(RUNS).and_then(|run| run.parse().ok()).ok_or_else(unknown)?;
        report(service, &run).await
    };
    let text = text.map_err(|error| match &error {
        ToolError::Engine(engine) if engine.is_missing() => ErrorData::resource_not_found(error.told(), None),
        ToolError::Engine(engine) if engine.is_conflict() => ErrorData::invalid_params(error.told(), None),
        ToolError::Arguments { .. } | ToolError::Engine(EngineError::LocalOnly { .. }) => {
            ErrorData::invalid_params(error.told(), None)
        }
        _ => failed(&error),
    })?;
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(MARKDOWN)]))
}

async fn document(service: &Service, uri: &str) -> Result<String, ToolError> {
    let CutExcerpt { excerpt, note, .. } = CutExcerpt::read(service, "read", uri, Extent::Document).await?;
    Ok(noted(excerpt.text, note))
}

async fn report(service: &Service, run: &RunId) -> Result<String, ToolError> {
    let report = service.runs.report(&service.engine, run.as_str()).await?.report;
    let whole = render::report(&report, ReportFormat::Markdown)?;
    let (text, note) = lines_from(&whole, 1, report.run_id.as_deref());
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
