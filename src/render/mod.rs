//! Renders a report as text.
//!
//! ```text
//! report ─▶ markdown ─▶ terminal
//!        ├▶ html
//!        └▶ json      json, note ─▶ saved: read back, to check the citations again
//! ```
//!
//! Text from notes, pages and models is untrusted: [`prose`] reduces it to the few forms a report may have, and every
//! renderer escapes the rest. Rendering is deterministic: a report always yields the same bytes.

pub(crate) mod figure;

pub(crate) mod tree;

mod citation;

mod prose;

#[cfg(test)]
mod sample;

pub(crate) mod json;

pub(crate) mod markdown;

pub(crate) mod saved;

pub(crate) mod links;

pub(crate) mod document;

pub(crate) mod html;

pub(crate) use citation::quote_lines;

use std::fmt;
use std::str::FromStr;

use crate::research::report::Report;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReportFormat {
    /// Markdown for reading.
    #[default]
    Markdown,
    /// Markdown with front matter, to save in a knowledge base.
    Note,
    /// One self-contained HTML page.
    Html,
    /// The report object.
    Json,
}

impl ReportFormat {
    /// Every format.
    pub(crate) const ALL: [Self; 4] = [Self::Markdown, Self::Note, Self::Html, Self::Json];

    /// Returns the name as it is written on a command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Markdown => "markdown",
            Self::Note => "note",
            Self::Html => "html",
            Self::Json => "json",
        }
    }

    /// Returns a short description for a help text.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Markdown => "Markdown, rendered on a terminal",
            Self::Note => "Markdown with front matter, to save in a knowledge base",
            Self::Html => "One self-contained page",
            Self::Json => "The report object",
        }
    }
}

impl fmt::Display for ReportFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no format of a report.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a format of a report (expected markdown, note, html or json)")]
pub struct ParseReportFormatError(String);

impl FromStr for ReportFormat {
    type Err = ParseReportFormatError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|format| format.name() == text);
        named.ok_or_else(|| ParseReportFormatError(text.to_owned()))
    }
}

/// A report could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    #[error("failed to write the report as JSON")]
    Json(#[from] serde_json::Error),
    /// As a page.
    #[error("failed to fill in the page of the report")]
    Html(#[from] minijinja::Error),
}

/// Returns a report in a format.
///
/// # Errors
///
/// Returns an error if the format cannot represent the report; Markdown always can.
pub fn report(report: &Report, format: ReportFormat) -> Result<String, RenderError> {
    match format {
        ReportFormat::Markdown => Ok(markdown::report(report)),
        ReportFormat::Note => Ok(saved::note(report)),
        ReportFormat::Html => html::report(report),
        ReportFormat::Json => Ok(json::plain(report)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_reads_back_by_its_name() {
        for format in ReportFormat::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        let error = "pdf".parse::<ReportFormat>().unwrap_err();
        assert_eq!(error.to_string(), "`pdf` is not a format of a report (expected markdown, note, html or json)");
    }

    #[test]
    fn report_as_json_reads_back() {
        let report = sample::run();
        let text = super::report(&report, ReportFormat::Json).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }
}
