//! `dr search`: finds passages.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::completions;
use super::error::CliError;
use super::exit::Exit;
use super::expanded;
use super::ui::{MATCH, NOTE, PLACE, QUIET, Ui, file_address, linked, styled};
use crate::base::line::{below_title, counted, one_line, printable};
use crate::engine::{Engine, Hit, Neighbourhood, Scope, SearchMode, Searched, Snippet, Support, bounds};
use crate::render::json::{line, versioned};

/// Maximum number of lines of a section printed with a hit.
const MAX_SECTION_LINES: usize = 30;

/// Find passages in the index
///
/// Words and meaning are searched together. A phrase in double quotes must occur verbatim, ignoring case; names like
/// `foo_bar`, `2026.4.10` or `--no-rerank` are matched as written (put `--` before a query that starts with a dash).
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr search \"what if indexing is killed\" -k 3
  dr search --path 'docs/**/*.md' --tag adr '\"exact words\" write_lock'
  dr search --format files -k 50 batteries | xargs wc -w
  dr search --json batteries | jq -r '.hits[].path'")]
pub(super) struct SearchArgs {
    /// Words to search for
    #[arg(value_name = "QUERY", required = true)]
    query: Vec<String>,

    /// Search by `hybrid`, `lexical` or `vector` (default: hybrid)
    #[arg(long, value_name = "MODE", add = completions::words(SearchMode::NAMES))]
    pub(super) mode: Option<SearchMode>,

    /// Most hits to return (default: 10)
    #[arg(short = 'k', long = "limit", value_name = "N", value_parser = clap::value_parser!(u16).range(bounds("limit")))]
    pub(super) limit: Option<u16>,

    #[command(flatten)]
    filter: FilterArgs,

    /// Print the section of each hit, the outline of its document, and notes linked with it
    #[arg(long)]
    expand: bool,

    /// Show how each score is computed
    #[arg(long)]
    explain: bool,

    /// Print the result as text, json, jsonl, csv or files
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: SearchFormat,

    /// Short for `--format json`
    #[arg(long, conflicts_with_all = ["format", "jsonl"])]
    json: bool,

    /// Short for `--format jsonl`: one hit per line
    #[arg(long, conflicts_with = "format")]
    jsonl: bool,
}

/// Which documents are searched.
#[derive(Args, Debug, Default)]
pub(super) struct FilterArgs {
    /// Search only this collection; may be repeated
    #[arg(long = "collection", value_name = "NAME", add = completions::collections())]
    collections: Vec<String>,

    /// Search only paths that match this glob, for example `docs/**/*.md`; may be repeated
    #[arg(long = "path", value_name = "GLOB")]
    paths: Vec<String>,

    /// Search only documents with this tag; repeat the flag to require several tags
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,

    /// Search only documents dated on or after this day in their front matter, and web pages not known to be older
    #[arg(long, value_name = "DATE")]
    since: Option<jiff::civil::Date>,

    /// Search only documents dated on or before this day in their front matter, and web pages not known to be newer
    #[arg(long, value_name = "DATE")]
    until: Option<jiff::civil::Date>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum SearchFormat {
    /// Human-readable text
    #[default]
    Text,
    /// One object
    Json,
    /// One hit a line
    Jsonl,
    /// One hit a row, with a header
    Csv,
    /// The files of the hits, one a line, each once
    Files,
}

impl SearchArgs {
    fn format(&self) -> SearchFormat {
        match (self.json, self.jsonl) {
            (true, _) => SearchFormat::Json,
            (_, true) => SearchFormat::Jsonl,
            _ => self.format,
        }
    }
}

impl FilterArgs {
    /// Returns the documents that may be found.
    pub(super) fn scope(&self) -> Scope {
        Scope {
            collections: self.collections.clone(),
            paths: self.paths.clone(),
            tags: self.tags.clone(),
            since: self.since.map(|day| day.to_string()),
            until: self.until.map(|day| day.to_string()),
        }
    }
}

/// The result as JSON.
#[derive(Serialize)]
struct SearchOutput<'a> {
    query: &'a str,
    mode: SearchMode,
    support: Support,
    elapsed_ms: f64,
    hits: Vec<HitEntry<'a>>,
}

/// A hit as JSON.
#[derive(Serialize)]
struct HitEntry<'a> {
    #[serde(flatten)]
    hit: &'a Hit,
    /// Its context, with `--expand`.
    #[serde(flatten)]
    around: Option<&'a Neighbourhood>,
}

pub(super) async fn search(ui: &mut Ui, engine: &Engine, args: SearchArgs) -> Result<Exit, CliError> {
    let query = args.query.join(" ");
    let found = engine.search(&query, &args.filter.scope()).await?;
    if let Some((reason, hint)) = &found.without_vectors {
        ui.tell(&format!("note: {reason}, so only text was searched; {hint}"));
    }
    if let Some(reason) = &found.not_reranked {
        ui.tell(&format!("note: {reason}"));
    }
    for unknown in &found.unknown {
        ui.tell(&format!("note: {unknown}"));
    }
    let around = if args.expand { engine.neighbourhoods(&found.hits).await? } else { Vec::new() };
    let entries = || found.hits.iter().enumerate().map(|(at, hit)| HitEntry { hit, around: around.get(at) });
    match args.format() {
        SearchFormat::Json => {
            let (hits, Searched { mode, support, elapsed, .. }) = (entries().collect(), &found);
            let elapsed_ms = (elapsed.as_secs_f64() * 100_000.0).round() / 100.0;
            let result = SearchOutput { query: &query, mode: *mode, support: *support, elapsed_ms, hits };
            ui.print(&versioned(&result)?)?;
        }
        SearchFormat::Jsonl => {
            for hit in entries() {
                ui.print(&line(&hit)?)?;
            }
        }
        SearchFormat::Csv => ui.pass(&csv(&found.hits)?)?,
        SearchFormat::Files => {
            let folders = engine.folders().await;
            // Collection folders are stored with symbolic links resolved, so this one is resolved too.
            let current = std::env::current_dir().and_then(dunce::canonicalize).ok();
            let mut seen = HashSet::new();
            for hit in found.hits.iter().filter(|hit| seen.insert(&hit.document_id)) {
                let file = file_name(hit, &folders, current.as_deref());
                let (name, shown) = (file.as_os_str().as_encoded_bytes(), one_line(&file.to_string_lossy()));
                if Ui::is_for_people() {
                    ui.print(&shown)?;
                } else if name.contains(&b'\n') {
                    // A program would read two paths.
                    ui.tell(&format!("note: left out, its name has a line break: {shown}"));
                } else {
                    // Unchanged: a program opens the file by it.
                    ui.pass(&[name, b"\n"].concat())?;
                }
            }
        }
        // On stderr: a pipe that reads hits gets none. The other formats have their own empty form.
        SearchFormat::Text if found.hits.is_empty() => ui.tell("nothing found"),
        SearchFormat::Text => {
            let folders = if ui.shows_links() { engine.folders().await } else { BTreeMap::new() };
            ui.print(&text(entries(), args.explain, &folders))?;
            if found.support == Support::None {
                ui.tell("note: no hit is relevant to the query");
            }
        }
    }
    Ok(Exit::Done)
}

/// Returns the hits as CSV (RFC 4180, but for line ends).
fn csv(hits: &[Hit]) -> Result<Vec<u8>, CliError> {
    let mut rows = csv::Writer::from_writer(Vec::new());
    rows.write_record(["path", "line_start", "line_end", "score", "title", "heading", "snippet", "collection", "id"])
        .map_err(io::Error::from)?;
    for hit in hits {
        let lines = [hit.line_start.to_string(), hit.line_end.to_string(), hit.score.to_string()];
        let heading = hit.heading_path.join(" › ");
        let [first, last, score] = lines.each_ref().map(String::as_str);
        let [path, title, heading, snippet, collection] =
            [&hit.path, &hit.title, &heading, &hit.snippet.text, &hit.collection].map(|text| inert(text));
        let row = [&path, first, last, score, &title, &heading, &snippet, &collection, hit.id.as_str()];
        rows.write_record(row).map_err(io::Error::from)?;
    }
    Ok(rows.into_inner().map_err(csv::IntoInnerError::into_error)?)
}

/// Returns a text as a cell that is safe to show in a terminal and to open in a spreadsheet.
fn inert(text: &str) -> String {
    let text = printable(text);
    // A spreadsheet would evaluate it as a formula.
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t']);
    if is_formula { format!("'{text}") } else { text }
}

/// Returns the file of a hit, relative to the working directory `current` if it is inside; if the collection's folder
/// is unknown, relative to that folder.
fn file_name(hit: &Hit, folders: &BTreeMap<String, PathBuf>, current: Option<&Path>) -> PathBuf {
    let Some(folder) = folders.get(&hit.collection) else { return PathBuf::from(&hit.path) };
    let file = folder.join(&hit.path);
    let inside = current.and_then(|current| Some(file.strip_prefix(current).ok()?.to_path_buf()));
    inside.unwrap_or(file)
}

/// Returns the hits as text, with matched words highlighted. Places in collections with a folder are links. The
/// sentence about a folder is printed with its first hit.
fn text<'a>(entries: impl Iterator<Item = HitEntry<'a>>, explain: bool, folders: &BTreeMap<String, PathBuf>) -> String {
    let (mut text, mut said, mut seen) = (String::new(), HashSet::new(), HashSet::new());
    for HitEntry { hit, around } in entries {
        let place = format!("{}:{}-{}", hit.path, hit.line_start, hit.line_end);
        let place = styled(PLACE, &one_line(&place));
        let place = match folders.get(&hit.collection) {
            Some(folder) => linked(&file_address(&folder.join(&hit.path)), &place),
            None => place,
        };
        let _ = writeln!(text, "{place}  {}", styled(QUIET, hit.id.as_str()));
        let mut names = vec![hit.title.as_str()];
        names.extend(below_title(&hit.title, &hit.heading_path));
        let _ = writeln!(text, "  {}", styled(QUIET, &one_line(&names.join(" › "))));
        if let Some(about) = hit.about.as_deref().filter(|about| said.insert(*about)) {
            let _ = writeln!(text, "  {}", styled(NOTE, &one_line(about)));
        }
        let _ = writeln!(text, "  {}", marked(&hit.snippet));
        if explain {
            let _ = writeln!(text, "  {}", styled(NOTE, &explained(hit)));
        }
        if let Some(around) = around {
            text.push_str(&section(around));
            // Once for all hits of a document.
            if seen.insert(&hit.document_id) {
                text.push_str(&expanded::around(around, "  "));
            }
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
}

/// Returns the beginning of the section around a hit, indented.
fn section(around: &Neighbourhood) -> String {
    let Some(section) = &around.section else { return String::new() };
    let mut text = format!("  {}\n", styled(QUIET, &format!("lines {}-{}:", section.line_start, section.line_end)));
    let lines: Vec<_> = section.text.trim_end().lines().collect();
    for line in lines.iter().take(MAX_SECTION_LINES) {
        let _ = writeln!(text, "  │ {}", printable(line));
    }
    if let Some(left) = lines.len().checked_sub(MAX_SECTION_LINES).filter(|left| *left > 0) {
        let _ = writeln!(text, "  {}", styled(QUIET, &format!("│ … {}", counted(left, "more line"))));
    }
    text
}

fn marked(snippet: &Snippet) -> String {
    let part = |(text, is_match): (&str, bool)| if is_match { styled(MATCH, text) } else { text.to_owned() };
    snippet.parts().into_iter().map(part).collect()
}

fn explained(hit: &Hit) -> String {
    let leg = |name: &str, rank: Option<usize>, score: Option<f32>| match (rank, score) {
        (Some(rank), Some(score)) => format!("{name} #{rank} {score:.3}"),
        _ => format!("{name} –"),
    };
    let explain = &hit.explain;
    let relevance = explain.relevance.map(|relevance| format!(" = relevance {relevance:.3}")).unwrap_or_default();
    format!(
        "score {:.3}{relevance} = {}, {}",
        hit.score,
        leg("lexical", explain.lexical_rank, explain.lexical_score),
        leg("vector", explain.vector_rank, explain.vector_similarity),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_that_a_spreadsheet_would_evaluate_is_quoted() {
        for (text, cell) in [
            ("=cmd|calc", "'=cmd|calc"),
            ("\u{200b}\r=1", "'=1"),
            ("\t1", "'\t1"),
            ("- item", "'- item"),
            ("@SUM(1)", "'@SUM(1)"),
            ("1 + 1 = 2", "1 + 1 = 2"),
        ] {
            assert_eq!(inert(text), cell);
        }
    }
}
