//! Sources of evidence: the knowledge base, the web, background research, and tools of the user's own servers.
//!
//! A search returns passages with a snippet to show and the whole text for code to check quotes against; `open` returns
//! more of the document. A worker asks through the trait [`Source`], whose parameter is the type of its queries: the
//! knowledge base takes any text, the web only [`Outbound`](crate::base::outbound::Outbound) text, so that only a
//! worker that faces outward can search it.
//!
//! ```compile_fail,E0308
//! fn leak(web: &dyn dr::source::Source<dr::base::outbound::Outbound>) {
//!     drop(web.search("Ferreira", 5));
//! }
//! ```

mod kb;
mod sealed;
pub(crate) mod web;
pub(crate) mod mcp;

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub(crate) use self::mcp::OfferedTool;
use self::web::WebUrl;
use crate::base::breaker::{Guarded, Health, Open};
use crate::base::id::{ContentHash, as_word};
use crate::base::line::{below_title, one_line, shortened};
use crate::kb::extract::{Extractable, page_of_heading};
pub use crate::kb::search::{Odds, ProperName, Support};
use crate::llm::call::CallError;
pub(crate) use kb::{HeadingChunks, KbSource, read_file, read_place};

/// The audience of a text and of anything derived from it; the stricter label is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Label {
    /// From the open web.
    Public,
    /// From the knowledge base.
    Internal,
}

as_word!(Label);

/// The location of a passage or quote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
// Stored in journals and printed in reports: a new field needs a default.
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Place {
    /// A file of the knowledge base.
    Kb {
        collection: String,
        /// Its path, relative to the collection's root.
        path: String,
        /// Title from its front matter or level-1 heading, else its file name.
        title: String,
        /// Headings above it. Those of a quote are followed by the lead-ins of the lists it begins in: `Use it if:`.
        heading_path: Vec<String>,
        /// First line in the file as stored, from 1.
        line_start: u32,
        /// Last line, inclusive.
        line_end: u32,
        /// Hash of the file as indexed.
        content_hash: ContentHash,
        /// Date of the document, `YYYY-MM-DD`, from its front matter.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        date: Option<String>,
    },
    Web {
        url: String,
        /// Title of the page; empty if it has none.
        title: String,
        /// Day of its publication, `YYYY-MM-DD`, as given by the page or the search engine.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        published: Option<String>,
        /// When it was fetched, in milliseconds since 1970; `None` if it is only known from a report.
        fetched_at: Option<u64>,
        /// Hash of the stored text; `None` if it was never fetched.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        content_hash: Option<ContentHash>,
    },
    /// The result of a tool of one of the user's own servers.
    Mcp {
        /// Name of the server in the settings.
        server: String,
        /// The tool, by the name that the server gives it.
        tool: String,
        /// The arguments of the call, as JSON on one line.
        arguments: String,
        /// When the tool was called, in milliseconds since 1970.
        fetched_at: u64,
        /// Hash of the stored text.
        content_hash: ContentHash,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Passage {
    /// Identifies it within its source, for [`Documents::open`].
    pub id: String,
    pub place: Place,
    pub label: Label,
    /// The whole passage, verbatim.
    pub text: String,
    /// The excerpt that bears on the query. Of an opened passage, the part that is shown: its text or a digest,
    /// followed by its links.
    pub snippet: String,
    /// How well it bears on the query, from 0 to 1; comparable within one search only.
    pub score: f32,
}

impl Passage {
    /// Returns a passage whose text is shown whole.
    pub(crate) fn whole(id: String, label: Label, place: Place, text: String) -> Self {
        Self { id, place, label, snippet: text.clone(), text, score: 1.0 }
    }
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Best first.
    pub passages: Vec<Passage>,
    /// How well they bear on the query.
    pub support: Support,
    /// The odds that they answer, to be judged together with the unit picked from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub odds: Option<Odds>,
    /// Notes for the reader of the report, for example that vectors were left out.
    pub notes: Vec<String>,
    /// Whether a reranker has read the passages, which tells more than any words of theirs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_reranked: bool,
    /// Addresses of pages in the engine's form where that differs, by the id of the passage. Some sites respond only to
    /// that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub addresses: BTreeMap<String, String>,
    /// Notes on words of the query that the source does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
    /// The same if the passages turn out not to answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// The kind of query word that has no match and no synonym in the source.
    #[serde(default, skip_serializing_if = "Lack::is_none")]
    pub lacks: Lack,
    /// The words of the query that have no match and no synonym in the source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Words of the query that name documents of the source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<ProperName>,
    /// Whether its passages mention the document that the query names but are not about the query.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_of_others: bool,
    /// The query with misspelt words replaced, if it was searched instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected: Option<String>,
}

/// The kind of query word that is missing from a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lack {
    /// It has all words, or synonyms of them.
    #[default]
    None,
    Word,
    /// The target or the tool of a task: "forward it to syslog".
    Target,
    /// A proper name. A passage about another entity does not answer the question.
    Name,
}

impl Lack {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// The current state of the document behind a quote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceFile {
    /// It is unchanged since it was indexed.
    AsIndexed(String),
    /// It has changed since; only the index has the text that was searched.
    Changed,
    /// It cannot be read any more.
    Gone,
}

impl SourceFile {
    /// Returns a note for the reader about the file at `path`, if it is not as it was indexed.
    pub(crate) fn note(&self, path: &str) -> Option<String> {
        let what = match self {
            Self::AsIndexed(_) => return None,
            Self::Changed => "has changed",
            Self::Gone => "has gone",
        };
        Some(format!("`{path}` {what} since it was indexed; run `dr index` to bring the index up to date"))
    }
}

/// A source failed to answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SourceError {
    #[error("no passage `{id}`")]
    NoSuchPassage { id: String },
    #[error("not sent: {reason}")]
    Withheld { reason: String },
    /// The call of a tool is invalid, or not allowed any more in this run.
    #[error("{reason}")]
    Refused { reason: String },
    #[error("source `{name}` failed: {reason}")]
    Failed { name: String, reason: String },
    /// The source would fail for any request: it is down, over its quota, or rejects the key.
    #[error("source `{name}` failed: {reason}")]
    Down { name: String, reason: String },
    /// The run no longer asks the source.
    #[error(transparent)]
    GivenUp(#[from] Open),
    /// The run cannot continue.
    #[error(transparent)]
    Stopped(CallError),
}

impl SourceError {
    /// Returns the class of this error, for traces.
    pub(crate) fn class(&self) -> &'static str {
        match self {
            Self::NoSuchPassage { .. } => "no_such_passage",
            Self::Withheld { .. } => "withheld",
            Self::Refused { .. } => "request_refused",
            Self::Failed { .. } => "failed",
            Self::Down { .. } => "not_available",
            Self::GivenUp(_) => "given_up",
            Self::Stopped(error) => error.class(),
        }
    }

    /// Returns whether the caller must stop because the run is cancelled or its journal fails. At a limit it need not
    /// stop: earlier findings are kept.
    pub(crate) fn ends_run(&self) -> bool {
        matches!(self, Self::Stopped(CallError::Cancelled | CallError::Journal { .. }))
    }

    /// Returns whether the source itself failed, now or earlier.
    pub(crate) fn is_of_source(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Down { .. } | Self::GivenUp(_))
    }

    /// Returns the error in the wording that models are shown.
    ///
    /// Which workers still reach a source that is down, and which come too late to ask it, depends on timing. Prompts
    /// must not, so all of them have the same wording.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Down { name, .. } => format!("source `{name}` is not available"),
            Self::GivenUp(Open { name, .. }) => format!("{name} is not available"),
            _ => self.to_string(),
        }
    }
}

impl Guarded for SourceError {
    fn health(&self) -> Health {
        match self {
            // A source that refuses one request is not down.
            Self::Failed { .. } => Health::Up,
            Self::Down { .. } => Health::Down,
            _ => Health::Unknown,
        }
    }
}

/// Documents that can be opened, and against which quotes are checked.
pub trait Documents: Send + Sync {
    /// Reads more around a passage: its whole section or page.
    fn open<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Passage, SourceError>>;

    /// Reads the document behind a place as it is now, to check a quote against.
    fn read<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, SourceFile>;
}

/// A source that a worker searches; `Q` is the type of its queries.
pub trait Source<Q: ?Sized = str>: Documents {
    /// Returns its name in reports and journals: `kb`, `web`.
    fn name(&self) -> &'static str;

    /// Describes the searched content for reports: `12 files of handbook`.
    fn scope(&self) -> String;

    /// Returns the user's descriptions of the searched content, a sentence for each folder.
    fn about(&self) -> &[String] {
        &[]
    }

    /// Returns the version of everything that a result depends on besides the query, such as index and filters.
    ///
    /// A result on record is used again only under the same version.
    fn version(&self) -> String;

    fn search<'a>(&'a self, query: &'a Q, limit: usize) -> BoxFuture<'a, Result<Found, SourceError>>;

    /// Returns whether an opened page or note has links below its text, whose addresses can be opened like passages.
    fn has_links(&self) -> bool {
        false
    }

    /// Returns the tools of the user's own servers that can be called beside searching.
    fn tools(&self) -> &[OfferedTool] {
        &[]
    }

    /// Calls one of [`Self::tools`]. `arguments` are a JSON object.
    fn call<'a>(&'a self, tool: &'a str, arguments: &'a Q) -> BoxFuture<'a, Result<Passage, SourceError>> {
        let _ = arguments;
        let reason = format!("there is no tool `{tool}`");
        Box::pin(std::future::ready(Err(SourceError::Refused { reason })))
    }
}

/// Returns lines of a file for people: `path:from-to`.
pub(crate) fn lines_of(path: &str, first: u32, last: u32) -> String {
    if first == last { format!("{path}:{first}") } else { format!("{path}:{first}-{last}") }
}

/// Returns the place of a passage for people: lines of a file, or the page of a PDF.
pub(crate) fn place_of(path: &str, heading_path: &[String], first: u32, last: u32) -> String {
    page_of(path, heading_path).map_or_else(|| lines_of(path, first, last), |page| format!("{path}, page {page}"))
}

/// Returns the page of a PDF that a passage under these headings is on. A passage on two pages is on the first.
pub(crate) fn page_of(path: &str, heading_path: &[String]) -> Option<u32> {
    let is_pdf = Extractable::of(path) == Some(Extractable::Pdf);
    // Extraction makes a section of each page, under a heading with its number.
    heading_path.last().filter(|_| is_pdf).and_then(|heading| page_of_heading(heading))
}

impl Place {
    /// Returns a page that was found but not fetched.
    pub(crate) fn unfetched(url: String, title: String, published: Option<String>) -> Self {
        Self::Web { url, title, published, fetched_at: None, content_hash: None }
    }

    /// Returns the place for people: `path:from-to`, `path, page 7` of a PDF, or the address of a page.
    pub(crate) fn for_people(&self) -> String {
        match self {
            Self::Kb { path, line_start, line_end, heading_path, .. } => {
                place_of(path, heading_path, *line_start, *line_end)
            }
            Self::Web { url, .. } => url.clone(),
            Self::Mcp { arguments, .. } => format!("{} {}", self.beside_names(), shortened(arguments)),
        }
    }

    /// Returns [`Self::for_people`] without what [`Self::names`] says: for a call, its tool.
    pub(crate) fn beside_names(&self) -> String {
        match self {
            Self::Kb { .. } | Self::Web { .. } => self.for_people(),
            Self::Mcp { server, tool, .. } => format!("mcp:{server}/{tool}"),
        }
    }

    /// Returns a call with its arguments in full, which identify it; `None` for a place that is no call.
    pub(crate) fn call(&self) -> Option<String> {
        let Self::Mcp { arguments, .. } = self else { return None };
        Some(format!("{} {arguments}", self.beside_names()))
    }

    /// Returns whether two places share a line of a file, a page, or a call.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let lines = |place: &Self| match place {
            Self::Kb { line_start, line_end, .. } => (*line_start, *line_end),
            // They have no lines: any two places of the same page or call overlap.
            Self::Web { .. } | Self::Mcp { .. } => (0, 0),
        };
        let ((start, end), (first, last)) = (lines(self), lines(other));
        self.is_same_document(other) && start <= last && first <= end
    }

    /// Returns whether two places are in the same file, on the same page, or in results of the same call.
    pub(crate) fn is_same_document(&self, other: &Self) -> bool {
        self.document() == other.document()
    }

    /// Returns the parts that identify a document, beginning with its kind.
    pub(crate) fn document(&self) -> [&str; 4] {
        match self {
            Self::Kb { collection, path, .. } => ["kb", collection, path, ""],
            Self::Web { url, .. } => ["web", url, "", ""],
            Self::Mcp { server, tool, arguments, .. } => ["mcp", server, tool, arguments],
        }
    }

    /// Returns the title of the document and the headings above the place, on one line.
    pub(crate) fn names(&self) -> String {
        one_line(&self.each_name().join(" › "))
    }

    /// Returns the names from the first one that another place of the document does not have; `None` if all are the same.
    pub(crate) fn names_below(&self, above: &Self) -> Option<String> {
        let (own, above) = (self.each_name(), above.each_name());
        let shared = own.iter().zip(&above).take_while(|(own, above)| own == above).count();
        // A heading that is above the other one has no name of its own.
        let first = shared.min(own.len().saturating_sub(1));
        (own != above).then(|| one_line(&own[first..].join(" › ")))
    }

    fn each_name(&self) -> Vec<String> {
        let title = &self.title_for_people();
        let headings = below_title(title, self.heading_path());
        // A title that is the name of the file stands in the path already, which is shown beside these names.
        let is_of_path = !headings.is_empty() && matches!(self, Self::Kb { path, .. } if is_name_of(path, title));
        let title = if matches!(self, Self::Mcp { .. }) { shortened(title) } else { title.to_owned() };
        let headings = headings.into_iter().map(str::to_owned);
        (!is_of_path).then_some(title).into_iter().chain(headings).filter(|name| !name.is_empty()).collect()
    }

    /// Returns the provenance of a text as models are shown it: path, host or tool, date, title and headings, on one
    /// line.
    ///
    /// How far a text can be relied on depends on its source and date.
    pub(crate) fn provenance(&self) -> String {
        one_line(&format!("{} › {}", self.origin(), self.names()))
    }

    /// Returns the path, the host or the tool of the document, and its date, on one line.
    pub(crate) fn origin(&self) -> String {
        let (at, day) = match self {
            Self::Kb { path, date, .. } => (path.clone(), date.clone()),
            Self::Web { url, .. } => (host(url), self.days()),
            Self::Mcp { server, tool, .. } => (format!("mcp:{server}/{tool}"), self.days()),
        };
        let day = day.map(|day| format!(" ({day})")).unwrap_or_default();
        one_line(&format!("{at}{day}"))
    }

    /// Returns when a page was published, and when it was fetched or a tool was called, as far as this is known.
    pub(crate) fn days(&self) -> Option<String> {
        let (published, read) = match self {
            Self::Kb { .. } => return None,
            Self::Web { published, fetched_at, .. } => {
                (published.as_ref(), fetched_at.and_then(day).map(|day| format!("read on {day}")))
            }
            Self::Mcp { fetched_at, .. } => (None, day(*fetched_at).map(|day| format!("called on {day}"))),
        };
        let published = published.map(|day| format!("published on {day}"));
        let days: Vec<_> = published.into_iter().chain(read).collect();
        (!days.is_empty()).then(|| one_line(&days.join(", ")))
    }

    /// Returns the hash of the text it is from; `None` for a page that was never fetched.
    pub(crate) fn content_hash(&self) -> Option<&ContentHash> {
        match self {
            Self::Kb { content_hash, .. } | Self::Mcp { content_hash, .. } => Some(content_hash),
            Self::Web { content_hash, .. } => content_hash.as_ref(),
        }
    }

    /// Returns the title of the document; for a call, its arguments.
    pub(crate) fn title(&self) -> &str {
        match self {
            Self::Kb { title, .. } | Self::Web { title, .. } => title,
            Self::Mcp { arguments, .. } => arguments,
        }
    }

    /// Returns [`Self::title`] without the backslashes of Markdown, which a title in front matter may have.
    pub(crate) fn title_for_people(&self) -> String {
        let marks = if matches!(self, Self::Kb { .. }) { "_*[]<>#`" } else { "" };
        let title = self.title().to_owned();
        marks.chars().fold(title, |title, mark| title.replace(&format!("\\{mark}"), &mark.to_string()))
    }

    /// Returns whether it is cited by the page of a PDF.
    pub(crate) fn is_on_page(&self) -> bool {
        matches!(self, Self::Kb { path, heading_path, .. } if page_of(path, heading_path).is_some())
    }

    /// Returns the lead-ins at the end of [`Self::heading_path`], outermost first. A heading that ends with a colon
    /// there counts as one.
    pub(crate) fn lead_ins(&self) -> &[String] {
        let names = self.heading_path();
        let others = names.iter().rposition(|name| !name.ends_with([':', '：'])).map_or(0, |last| last + 1);
        &names[others..]
    }

    /// Returns the headings above it, with lead-ins; pages and results of tools have none.
    pub(crate) fn heading_path(&self) -> &[String] {
        match self {
            Self::Kb { heading_path, .. } => heading_path,
            Self::Web { .. } | Self::Mcp { .. } => &[],
        }
    }
}

/// Returns the UTC date of a moment in milliseconds since 1970.
fn day(millis: u64) -> Option<String> {
    let moment = Timestamp::from_millisecond(i64::try_from(millis).ok()?).ok()?;
    Some(moment.strftime("%Y-%m-%d").to_string())
}

/// Returns the host of an address, or the whole address if it has none.
fn host(url: &str) -> String {
    url.parse::<WebUrl>().map_or_else(|_| url.to_owned(), |url| url.host().to_owned())
}

/// Returns whether a title is the name of a file, without its extension.
pub(crate) fn is_name_of(path: &str, title: &str) -> bool {
    std::path::Path::new(path).file_stem().is_some_and(|stem| stem == title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provenance_names_path_or_host_with_date_and_headings() {
        let file = |date: Option<&str>| Place::Kb {
            collection: "kb".into(),
            path: "ops/backup.md".into(),
            title: "Backups".into(),
            heading_path: vec!["Backups".into(), "How\nlong".into()],
            line_start: 3,
            line_end: 4,
            content_hash: ContentHash::of(b"x"),
            date: date.map(str::to_owned),
        };
        assert_eq!(file(Some("2024-05-01")).provenance(), "ops/backup.md (2024-05-01) › Backups › How long");
        assert_eq!(file(None).provenance(), "ops/backup.md › Backups › How long");
        let mut deep = file(None);
        if let Place::Kb { heading_path, .. } = &mut deep {
            heading_path.push("Retention".into());
        }
        assert_eq!(deep.names_below(&file(None)).as_deref(), Some("Retention"));
        assert_eq!(file(None).names_below(&deep).as_deref(), Some("How long"));
        assert_eq!(deep.names_below(&deep), None);
        let mut unnamed = file(None);
        if let Place::Kb { title, .. } = &mut unnamed {
            "backup".clone_into(title);
        }
        assert_eq!(unnamed.names(), "Backups › How long", "the path says the name of the file");
        if let Place::Kb { heading_path, .. } = &mut unnamed {
            *heading_path = vec!["backup".into()];
        }
        assert_eq!(unnamed.names(), "backup", "there is no other name");
        let page = |url: &str, fetched_at: Option<u64>| Place::Web {
            url: url.into(),
            title: "Cells".into(),
            published: fetched_at.map(|_| "2026-06-10".into()),
            fetched_at,
            content_hash: None,
        };
        let read = page("https://user.example.org/a?b=c", Some(1_795_219_199_000));
        assert_eq!(read.provenance(), "user.example.org (published on 2026-06-10, read on 2026-11-20) › Cells");
        assert_eq!(page("no address", None).provenance(), "no address › Cells");
        assert_eq!(day(u64::MAX), None);
        let with = |tool: &str, arguments: &str| Place::Mcp {
            server: "tickets".into(),
            tool: tool.into(),
            arguments: arguments.into(),
            fetched_at: 1_795_219_199_000,
            content_hash: ContentHash::of(b"x"),
        };
        let called = |tool: &str| with(tool, r#"{"id":7}"#);
        assert_eq!(called("read").provenance(), r#"mcp:tickets/read (called on 2026-11-20) › {"id":7}"#);
        assert_eq!(called("read").for_people(), r#"mcp:tickets/read {"id":7}"#);
        let long = [0, 1].map(|last| with("read", &format!(r#"{{"text":"{}{last}"}}"#, "word ".repeat(1_000))));
        assert!(long.iter().all(|place| place.for_people().len() < 400 && place.names().len() < 400), "{long:?}");
        assert!(long[0].call() != long[1].call() && !long[0].is_same_document(&long[1]), "cut only where it is shown");
        assert!(called("read").overlaps(&called("read")) && !called("read").is_same_document(&called("find")));
    }
}
