//! Renders a report as Markdown with numbered citations.
//!
//! Text from sources and models is untrusted: quotes are put on one line, the writer's text is reduced to a few
//! forms, and all of it is escaped, so that it can change neither the structure of the report nor the state of a
//! terminal.

use std::collections::HashMap;
use std::fmt::Write;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::citation::{self, Numbers};
use super::figure;
use super::json::escaped;
use super::prose::{self, Block, Span, uncited};
use crate::base::line::one_line;
use crate::research::branch::Finding;
use crate::research::evidence::{Evidence, EvidenceId};
use crate::research::report::Report;
use crate::source::{Place, is_name_of};

/// Returns the report as Markdown for reading.
///
/// An answer made without a model is short: it consists of quotes. A report of a longer run has the beginning of
/// every quote next to its source, and one line on the course of the run; `dr show` has the rest.
pub(crate) fn report(report: &Report) -> String {
    let numbers = Numbers::of(report);
    let mut text = format!("# {}\n", line(report.question.as_str()));
    match (report.is_refusal(), figure::is_run(report)) {
        (true, false) => refusal(&mut text, report),
        (true, true) => {
            refusal(&mut text, report);
            further(&mut text, report);
            course(&mut text, report);
        }
        (false, false) => short(&mut text, report, &numbers),
        (false, true) => full(&mut text, report, &numbers),
    }
    text
}

/// Maximum number of parts of a cut unit whose lines are listed. The report as JSON has all.
const MAX_POSITIONS: usize = 4;

/// Appends an answer assembled without a model. It consists of units of the sources, so quotes are not repeated.
fn short(text: &mut String, report: &Report, numbers: &Numbers<'_>) {
    body(text, report, numbers, None);
    list(text, "Not answered", &report.open_questions);
    heading(text, "Sources");
    for (number, quotes) in (1..).zip(citation::sources(report)) {
        let _ = writeln!(text, "{number}. {}", unit(&quotes));
    }
    further(text, report);
    list(text, "Limitations", &report.limitations);
    let _ = writeln!(text, "\nSupport: {}. {}", figure::support(report), citation::checks(report));
}

fn full(text: &mut String, report: &Report, numbers: &Numbers<'_>) {
    body(text, report, numbers, Some("Executive summary"));
    // Sections repeat the findings.
    if report.sections.is_empty() && !report.findings.is_empty() {
        heading(text, "Key findings");
        for (finding, place) in report.findings.iter().zip(1..) {
            let _ = writeln!(text, "{place}. {}", claim(finding, numbers));
        }
    }
    if let Some(output) = &report.output {
        heading(text, "Result");
        blocks(text, &[Block::Code { text: escaped(&format!("{output:#}")) }]);
    }
    list(text, citation::UNCHECKED, &citation::reported(report));
    let contradictions = report.contradictions.iter();
    let contradictions = contradictions.map(|said| inline(&prose::line(said, &|id| numbers.get(id))));
    bullets(text, "Contradictions", contradictions);
    list(text, "Open questions", &report.open_questions);
    list(text, "Limitations", &report.limitations);
    heading(text, "Confidence");
    let _ = writeln!(text, "{:.2} of 1. {}", report.confidence, citation::checks(report));
    heading(text, "Sources");
    let claims = citation::claims(report);
    for (quotes, number) in citation::documents(report).iter().zip(1..) {
        document(text, &claims, number, quotes, numbers);
    }
    further(text, report);
    course(text, report);
}

/// Appends the reservation, the answer, below `title` if it has one, and the sections.
fn body(text: &mut String, report: &Report, numbers: &Numbers<'_>, title: Option<&str>) {
    let number = |id: &_| numbers.get(id);
    if let Some(reservation) = figure::reservation(report) {
        let _ = writeln!(text, "\n**{reservation}**");
    }
    let answer = prose::blocks(&report.answer, &number);
    if !answer.is_empty() {
        match title {
            Some(title) => heading(text, title),
            None => text.push('\n'),
        }
        blocks(text, &answer);
    }
    for section in &report.sections {
        heading(text, &line(&section.title));
        blocks(text, &prose::blocks(&section.text, &number));
    }
}

/// Appends a document with some words of each of its quotes. Several are lettered, each on a line.
fn document(
    text: &mut String,
    claims: &HashMap<EvidenceId, Vec<String>>,
    number: usize,
    quotes: &[(usize, &Evidence)],
    numbers: &Numbers<'_>,
) {
    let quoted = |evidence: &Evidence| {
        let claims = claims.get(&evidence.id).map_or(&[][..], Vec::as_slice);
        format!("“{}”", line(&citation::shortly_quoted(evidence, claims)))
    };
    if let [(_, evidence)] = quotes {
        let place = source(evidence);
        // A lead-in has its own.
        let colon = if place.ends_with([':', '：']) { "" } else { ":" };
        let _ = writeln!(text, "{number}. {place}{colon} {}", quoted(evidence));
        return;
    }
    let [(_, first), ..] = quotes else { return };
    let _ = writeln!(text, "{number}. {}", whole(&first.source));
    let mut said: Vec<&String> = Vec::new();
    for (_, evidence) in quotes {
        let letter = numbers.get(&evidence.id).map(citation::Mark::letter).unwrap_or_default();
        let position = citation::position(evidence).map(|position| code(&position));
        // Quotes from one list share its lead-in.
        let lead_ins: Vec<_> = evidence.source.lead_ins().iter().filter(|own| !said.contains(own)).collect();
        let place = position.into_iter().chain(lead_ins.iter().map(|lead_in| line(lead_in)));
        let parts: Vec<_> = std::iter::once(letter).chain(place).chain([quoted(evidence)]).collect();
        let note = citation::note(evidence).map(|note| format!(" ({note})"));
        let _ = writeln!(text, "   - {}{}", parts.join(" "), note.unwrap_or_default());
        said.extend(lead_ins);
    }
}

/// Returns a document without the position of a quote in it.
fn whole(source: &Place) -> String {
    match source {
        Place::Kb { path, title, .. } if is_name_of(path, title) => code(path),
        Place::Kb { path, title, .. } => format!("{} — {}", code(path), line(title)),
        Place::Web { .. } | Place::Mcp { .. } => place(source),
    }
}

/// Appends the refusal and its reason, then claims and limitations.
fn refusal(text: &mut String, report: &Report) {
    let mut limitations = report.limitations.iter();
    let why = limitations.next().map_or_else(|| "No relevant evidence was found.".into(), |why| line(why));
    let _ = writeln!(text, "\n**No answer.** {why}");
    list(text, citation::UNCHECKED, &citation::reported(report));
    list(text, "Limitations", limitations.as_slice());
    // Otherwise `report` appends them, since the course of the run comes last.
    if !figure::is_run(report) {
        further(text, report);
    }
}

/// Appends one line on the course of the run.
fn course(text: &mut String, report: &Report) {
    let rest =
        report.run_id.as_deref().map(|run| format!(" {} has the rest.", code(&format!("dr show {}", one_line(run)))));
    let _ = writeln!(text, "\n---\n\n{}{}", line(&figure::course(report)), rest.unwrap_or_default());
}

fn further(text: &mut String, report: &Report) {
    if report.passages.is_empty() {
        return;
    }
    heading(text, if report.is_refusal() { "Nearest passages" } else { "Read further" });
    for passage in &report.passages {
        let place = place(&passage.source);
        let _ = writeln!(text, "- {place}  \n  {}", inline(&prose::snippet(&passage.snippet)));
    }
}

fn heading(text: &mut String, title: &str) {
    let _ = writeln!(text, "\n## {title}\n");
}

/// Appends a list with a heading, or nothing if it is empty.
fn list(text: &mut String, title: &str, items: &[String]) {
    bullets(text, title, items.iter().map(|item| line(item)));
}

fn bullets(text: &mut String, title: &str, items: impl ExactSizeIterator<Item = String>) {
    if items.len() > 0 {
        heading(text, title);
    }
    for item in items {
        let _ = writeln!(text, "- {item}");
    }
}

/// Returns a claim with the numbers of its quotes, at the end unless the text cites them itself.
fn claim(finding: &Finding, numbers: &Numbers<'_>) -> String {
    let mut spans = prose::finding(finding, &|id| numbers.get(id));
    let citations = spans.iter().rev().take_while(|span| matches!(span, Span::Citation(_))).count();
    // A space separates appended numbers from the last word.
    if citations > 0 && citations < spans.len() {
        let end = spans.len() - citations;
        if !matches!(&spans[end - 1], Span::Text(text) if text.ends_with(' ')) {
            spans.insert(end, Span::Text(" ".into()));
        }
    }
    inline(&spans)
}

/// Returns the source of a unit. For a cut unit, it is the document with the lines of the parts, as a run cites its
/// quotes.
fn unit(quotes: &[(usize, &Evidence)]) -> String {
    let [(_, first), rest @ ..] = quotes else { return String::new() };
    let Place::Kb { path, .. } = &first.source else { return source(first) };
    if rest.is_empty() {
        return source(first);
    }
    let positions = quotes.iter().filter_map(|(_, evidence)| citation::position(evidence)).take(MAX_POSITIONS);
    let positions: Vec<_> = positions.map(|position| code(&position)).collect();
    let more = quotes.len().saturating_sub(MAX_POSITIONS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let note = citation::note(first).map(|note| format!(" ({note})")).unwrap_or_default();
    format!("{} — {}: {}{more}{note}", code(path), line(&first.source.names()), positions.join(", "))
}

fn source(evidence: &Evidence) -> String {
    let place = place(&evidence.source);
    match citation::note(evidence) {
        Some(note) if !evidence.checked => format!("{place} (*{note}*)"),
        Some(note) => format!("{place} ({note})"),
        None => place,
    }
}

/// Returns the location of a quote: a path or a call as code, or a web page as a link if that is safe.
fn place(place: &Place) -> String {
    let names = line(&place.names());
    let days = place.days().map(|days| format!(", {}", line(&days))).unwrap_or_default();
    match place {
        Place::Kb { .. } => format!("{} — {names}", code(&place.for_people())),
        Place::Web { url, .. } => {
            let link = citation::safe_url(url).map_or_else(|| code(url), |url| format!("<{url}>"));
            format!("{names} — {link}{days}")
        }
        Place::Mcp { .. } => format!("{}{days}", code(&place.for_people())),
    }
}

/// Escapes a text on one line. Only code spans remain markup: no links, images, HTML or headings, and no bracketed
/// number that could be mistaken for a citation.
fn line(text: &str) -> String {
    inline(&prose::line(text, &uncited))
}

/// Appends blocks separated by empty lines, except between one-paragraph items of a list.
fn blocks(text: &mut String, blocks: &[Block]) {
    let mut item_depth = None;
    let mut was_continued = false;
    for (block, at) in blocks.iter().zip(0..) {
        let depth = match block {
            // Indented by more than one level, an item would become a code block.
            Block::Item { depth, .. } => Some((*depth).min(item_depth.map_or(0, |before: usize| before + 1))),
            Block::Continued { depth, .. } => item_depth.map(|before| before.min(*depth)),
            _ => None,
        };
        let is_continued = matches!(block, Block::Continued { .. });
        if at > 0 && (is_continued || was_continued || depth.is_none() || item_depth.is_none()) {
            text.push('\n');
        }
        was_continued = is_continued;
        item_depth = depth;
        match block {
            Block::Heading { spans } => {
                let _ = writeln!(text, "### {}", within_line(spans));
            }
            Block::Paragraph { spans } => {
                let _ = writeln!(text, "{}", inline(spans));
            }
            Block::Item { number, spans, .. } => {
                let mark = number.map_or_else(|| "-".to_owned(), |number| format!("{number}."));
                // Four columns: with fewer, an item below `10.` would not be nested in it.
                let _ = writeln!(text, "{}{mark} {}", "    ".repeat(depth.unwrap_or(0)), inline(spans));
            }
            Block::Continued { spans, .. } => {
                let indent = depth.map_or(0, |depth| depth + 1);
                let _ = writeln!(text, "{}{}", "    ".repeat(indent), inline(spans));
            }
            Block::Code { text: code } => fenced(text, code),
            Block::Table { rows } => table(text, rows),
        }
    }
}

/// Appends a code block whose fence is longer than any run of backticks in it.
fn fenced(text: &mut String, code: &str) {
    // Longer than any run of backticks in the code, which would end the block.
    let longest = code.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let _ = writeln!(text, "{fence}\n{}\n{fence}", code.trim_end_matches('\n'));
}

fn table(text: &mut String, rows: &[Vec<Vec<Span>>]) {
    for (row, at) in rows.iter().zip(0..) {
        let cells: Vec<_> = row.iter().map(|spans| cell(spans)).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
        if at == 0 {
            let _ = writeln!(text, "|{}", "---|".repeat(cells.len()));
        }
    }
}

/// Returns a table cell. Vertical bars are escaped even in code, where they would end the cell as well.
fn cell(spans: &[Span]) -> String {
    let mut shown = String::new();
    let mut is_escaped = false;
    for letter in within_line(spans).chars() {
        if letter == '|' && !is_escaped {
            shown.push('\\');
        }
        shown.push(letter);
        is_escaped = letter == '\\' && !is_escaped;
    }
    shown
}

/// Returns spans as Markdown after other text on a line, where "2." does not begin an item.
fn within_line(spans: &[Span]) -> String {
    let before = "x ";
    let spans: Vec<_> = std::iter::once(Span::Text(before.to_owned())).chain(spans.iter().cloned()).collect();
    inline(&spans)[before.len()..].to_owned()
}

/// Returns spans as one line of Markdown. Escapes nothing if it reads back unchanged, else every special character,
/// except for lone stars and colons if none of them has a meaning there. The rest stays escaped, since other text may
/// follow.
fn inline(spans: &[Span]) -> String {
    let plain = joined(spans, &|shown, text| shown.push_str(text));
    if reads_back(&plain, spans) {
        return plain;
    }
    let escaped = joined(spans, &escape);
    // All at once: each attempt parses the line, and a hostile line may consist of stars.
    let relaxed = without_idle_escapes(&escaped);
    if reads_back(&relaxed, spans) { relaxed } else { escaped }
}

/// Returns a line without the escapes of stars between spaces, of colons, of [idle](is_idle) characters and of the
/// brackets around *unsupported*.
fn without_idle_escapes(line: &str) -> String {
    let line = line.replace("\\[unsupported\\]", "[unsupported]");
    let mut shown = String::with_capacity(line.len());
    let mut rest = line.as_str();
    while let Some((before, after)) = rest.split_once('\\') {
        shown.push_str(before);
        let is_alone = shown.ends_with(' ') && after.starts_with("* ");
        if !is_alone && !after.starts_with(':') && !is_idle(shown.chars().next_back(), after) {
            shown.push('\\');
        }
        // The escaped character may be a backslash itself.
        let (escaped, after) = after.split_at(after.chars().next().map_or(0, char::len_utf8));
        shown.push_str(escaped);
        rest = after;
    }
    shown + rest
}

fn joined(spans: &[Span], push: &dyn Fn(&mut String, &str)) -> String {
    let is_strong = |span: &Span| matches!(span, Span::Strong(_) | Span::StrongCode(_));
    let mut shown = String::new();
    // Code inside a strong text does not end it.
    for run in spans.chunk_by(|a, b| is_strong(a) && is_strong(b)) {
        match &run[0] {
            Span::Text(text) => push(&mut shown, text),
            Span::Code(text) => push_code(&mut shown, text),
            Span::Strong(_) | Span::StrongCode(_) => strong(&mut shown, run, push),
            Span::Emphasis(text) => weigh(&mut shown, "*", text, push),
            Span::Citation(number) => {
                let _ = write!(shown, "[{number}]");
            }
        }
    }
    shown
}

/// Appends a strong text. White space at its ends goes outside of the marks, which are not recognised next to it.
fn strong(shown: &mut String, run: &[Span], push: &dyn Fn(&mut String, &str)) {
    let is_empty = |span: &&Span| matches!(span, Span::Strong(text) if text.trim().is_empty());
    let (first, last) = (run.iter().position(|span| !is_empty(&span)), run.iter().rposition(|span| !is_empty(&span)));
    for (at, span) in run.iter().enumerate() {
        let (opens, closes) = (first == Some(at), last == Some(at));
        let (text, is_code) = match span {
            Span::StrongCode(text) => (text, true),
            Span::Strong(text) => (text, false),
            Span::Text(_) | Span::Emphasis(_) | Span::Code(_) | Span::Citation(_) => continue,
        };
        let start = if opens { text.len() - text.trim_start().len() } else { 0 };
        let end = if closes { text.trim_end().len() } else { text.len() };
        shown.push_str(&text[..start]);
        shown.push_str(if opens { "**" } else { "" });
        if is_code {
            push_code(shown, &text[start..end]);
        } else {
            push(shown, &text[start..end]);
        }
        shown.push_str(if closes { "**" } else { "" });
        shown.push_str(&text[end..]);
    }
}

#[cfg(test)]
thread_local! {
    /// Bytes that [`reads_back`] has parsed.
    static PARSED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Returns whether a line of Markdown is a paragraph of just these spans.
fn reads_back(line: &str, spans: &[Span]) -> bool {
    #[cfg(test)]
    PARSED.set(PARSED.get() + line.len());
    let mut read: Vec<(u8, String)> = Vec::new();
    let mut push = |kind: u8, text: &str| match read.last_mut() {
        Some((last, words)) if *last == kind => words.push_str(text),
        _ => read.push((kind, text.to_owned())),
    };
    let mut kind = 0;
    // Characters with a meaning next to other lines, or in other dialects of Markdown.
    let is_plain =
        !line.starts_with([' ', '=', '|', '#', '>', '+', '-']) && !has_bare(line, &['<', '~', '$', '\\', '&']);
    // With every extension, so that no other parser finds more markup in the line. Typographic quotes are no markup.
    for event in Parser::new_ext(line, Options::all() - Options::ENABLE_SMART_PUNCTUATION) {
        match event {
            Event::Start(Tag::Paragraph) | Event::End(TagEnd::Paragraph) => {}
            Event::Start(Tag::Strong) if kind == 0 => kind = 1,
            Event::Start(Tag::Emphasis) if kind == 0 => kind = 2,
            Event::End(TagEnd::Strong | TagEnd::Emphasis) => kind = 0,
            Event::Text(text) => push(kind, &text),
            Event::Code(text) => push(if kind == 1 { 4 } else { 3 }, &text),
            _ => return false,
        }
    }
    let mut wanted: Vec<(u8, String)> = Vec::new();
    for span in spans {
        let (kind, text) = match span {
            Span::Text(text) => (0, text.clone()),
            Span::Citation(number) => (0, format!("[{number}]")),
            Span::Strong(text) => (1, text.clone()),
            Span::Emphasis(text) => (2, text.clone()),
            Span::Code(text) => (3, text.clone()),
            Span::StrongCode(text) => (4, text.clone()),
        };
        match wanted.last_mut() {
            Some((last, words)) if *last == kind => words.push_str(&text),
            _ => wanted.push((kind, text)),
        }
    }
    is_plain && read == wanted
}

/// Returns whether one of `letters` is in a line without a backslash before it, outside code.
fn has_bare(line: &str, letters: &[char]) -> bool {
    let (mut is_escaped, mut is_code, mut before) = (false, false, None);
    for (at, letter) in line.char_indices() {
        if letter == '`' && !is_escaped {
            is_code = !is_code;
        }
        let opens_escape = letter == '\\' && !is_escaped && !is_code;
        let is_special = letters.contains(&letter) && letter != '\\' && !is_idle(before, &line[at..]);
        if !is_escaped && !is_code && is_special {
            return true;
        }
        if is_escaped && !letter.is_ascii_punctuation() {
            return true;
        }
        is_escaped = opens_escape;
        before = Some(letter);
    }
    is_escaped
}

/// Returns whether the first character of `rest` means nothing in Markdown after the one before it: `< 5`, `~200`.
fn is_idle(before: Option<char>, rest: &str) -> bool {
    let mut letters = rest.chars();
    match (letters.next(), letters.next()) {
        (Some('<'), Some(next)) => next.is_whitespace() || next.is_ascii_digit(),
        // It could only open struck-out text, and one that closes it is always escaped.
        (Some('~'), Some(next)) => before.is_none_or(char::is_whitespace) && (next.is_ascii_digit() || next == '$'),
        // An amount, which `escape` leaves as it is too.
        (Some('$'), Some(next)) => next.is_ascii_digit(),
        (Some('&'), _) => !is_entity(&rest[1..]),
        _ => false,
    }
}

/// Returns code between more backticks than any run in it.
pub(super) fn code(text: &str) -> String {
    let text = one_line(text);
    // Two backticks would be the beginning of other code.
    if text.is_empty() {
        return "` `".to_owned();
    }
    let most = text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    let marks = "`".repeat(most + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{marks}{space}{text}{space}{marks}")
}

/// Appends code. A space keeps its backticks apart from those of the code before it.
fn push_code(shown: &mut String, text: &str) {
    if shown.ends_with('`') {
        shown.push(' ');
    }
    shown.push_str(&code(text));
}

/// Appends emphasised text. White space goes outside of the marks, which are not recognised next to it.
fn weigh(shown: &mut String, mark: &str, text: &str, push: &dyn Fn(&mut String, &str)) {
    let (start, words) = text.split_at(text.len() - text.trim_start().len());
    let (words, end) = words.split_at(words.trim_end().len());
    shown.push_str(start);
    if !words.is_empty() {
        shown.push_str(mark);
        push(shown, words);
        shown.push_str(mark);
    }
    shown.push_str(end);
}

/// Appends text with every Markdown character escaped.
fn escape(shown: &mut String, text: &str) {
    // `[1](`, `[1][2]` and `[1]:` would be a link or a link definition.
    let mut is_after_bracket = shown.ends_with(']');
    let mut before = shown.chars().next_back().unwrap_or(' ');
    for (at, letter) in text.char_indices() {
        let rest = &text[at + letter.len_utf8()..];
        match letter {
            // An underscore inside a word is not markup.
            '_' if before.is_alphanumeric() && rest.starts_with(char::is_alphanumeric) => {}
            '\\' | '`' | '*' | '_' | '<' | '~' => shown.push('\\'),
            '(' | ':' | '[' if is_after_bracket => shown.push('\\'),
            // `[[a]]` is a link of a note.
            '[' if before == '[' || rest.starts_with('[') => shown.push('\\'),
            ']' if before == ']' || rest.starts_with(']') => shown.push('\\'),
            '&' if is_entity(rest) => shown.push('\\'),
            '#' | '>' | '-' | '+' | '|' | '=' if shown.is_empty() => shown.push('\\'),
            '.' | ')' if !shown.is_empty() && shown.chars().all(|shown| shown.is_ascii_digit()) => shown.push('\\'),
            _ => {}
        }
        shown.push(letter);
        before = letter;
        is_after_bracket = letter == ']';
    }
}

/// Returns whether the text after `&` makes it a character reference: `&lt;`, `&#91;`.
fn is_entity(rest: &str) -> bool {
    // Only up to the end of the name, or a line of `&` would be read once for each.
    let name = rest.strip_prefix('#').unwrap_or(rest);
    let end = name.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric());
    end.len() < name.len() && end.starts_with(';')
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_of_others_cannot_change_the_form_of_the_report() {
        assert_eq!(line("# not\na heading\u{1b}[31m"), r"\# not a heading [31m");
        assert_eq!(line("<script>x</script> *a* ~~b~~"), r"\<script>x\</script> \*a\* \~\~b\~\~");
        assert_eq!(
            line("![t](http://evil/t.png) [1](javascript:alert(1))"),
            r"![t]\(http://evil/t.png) (1)(javascript:alert(1))"
        );
        assert_eq!(line("1. an item, foo_bar and _this_"), r"1\. an item, foo_bar and \_this\_");
        assert_eq!(line("R&D; said &#91;1&#93; &lt;b>"), r"R\&D; said \&#91;1\&#93; \&lt;b>");
    }

    #[test]
    fn number_within_a_line_begins_no_item() {
        let text = |text: &str| vec![Span::Text(text.to_owned())];
        let mut shown = String::new();
        blocks(
            &mut shown,
            &[Block::Heading { spans: text("2. Adopt") }, Block::Table { rows: vec![vec![text("1) *a*")]] }],
        );
        assert_eq!(shown, "### 2. Adopt\n\n| 1) \\*a\\* |\n|---|\n");
    }

    #[test]
    fn further_paragraph_of_an_item_is_indented_below_it() {
        let mut shown = String::new();
        let list = "1. One.\n\n   More:\n   - a\n   - b\n\n   ```\n   code\n   ```\n   So.\n2. Two.\n";
        blocks(&mut shown, &prose::blocks(list, &uncited));
        let rest = "```\ncode\n```\n\nSo.\n\n2. Two.\n";
        assert_eq!(shown, format!("1. One.\n\n    More:\n\n    - a\n    - b\n\n{rest}"));
    }

    #[test]
    fn stars_and_colons_are_escaped_only_where_they_would_mean_something() {
        for (text, shown) in [
            ("2 * 3 < 7: so [it] is", "2 * 3 < 7: so [it] is"),
            ("*all* <some_thing ~5 (~6)", "\\*all\\* \\<some_thing ~5 (\\~6)"),
            ("PG&E costs ~$5 (< $6), &amp; *", "PG&E costs ~$5 (< $6), \\&amp; \\*"),
            ("~~5~~ ~6~", "\\~\\~5\\~\\~ ~6\\~"),
            ("it's a[b[, ...c]], 2 * 3", "it's a[b[, ...c]], 2 * 3"),
        ] {
            assert_eq!(line(text), shown);
        }
    }

    #[test]
    fn line_is_parsed_a_few_times_however_many_stars_it_has() {
        let text = format!("a <b {}b", "* ".repeat(50_000));
        PARSED.set(0);
        assert_eq!(line(&text), text.replace('<', r"\<"));
        assert!(PARSED.get() <= 3 * text.len(), "{} bytes of a line of {}", PARSED.get(), text.len());
    }

    #[test]
    fn report_of_a_run_lists_sources_before_one_line_on_its_course() {
        let mut report = sample::run();
        let mut more = report.evidence[0].clone();
        (more.id, more.quote) = ("n2e9".parse().unwrap(), "See [[cells|the cells]] and **more**.".into());
        report.evidence.push(more);
        let text = super::report(&report);
        let (_, sources) = text.split_once("## Sources").unwrap();
        let quotes = "   - a `:11-12` “Lithium cells do not leak.”\n   - b `:11-12` “See the cells and more.”";
        assert!(sources.contains(&format!("1. `battery.md` — Batteries\n{quotes}\n2. ")), "{sources}");
        assert!(text.contains("[1a]") && !text.contains("| for |"), "{text}");
        let last = text.trim_end().lines().last().unwrap();
        assert!(
            last.contains("`budget_exceeded`") && last.ends_with("`dr show 4f1c09a2b7de5533` has the rest."),
            "{last}"
        );
        assert!(!text.contains("## Key findings"), "the sample has sections");
    }

    #[test]
    fn quote_from_a_list_has_the_lead_in_of_the_list_before_it() {
        let mut report = sample::run();
        let lead_in = "Use them if:";
        let add = |quote: &mut Evidence| {
            let Place::Kb { heading_path, .. } = &mut quote.source else { panic!() };
            heading_path.push(lead_in.into());
        };
        add(&mut report.evidence[0]);
        let text = super::report(&report);
        assert!(text.contains("— Batteries › Decision › Use them if: “Lithium cells do not leak.”\n"), "{text}");
        let mut more = report.evidence[0].clone();
        (more.id, more.quote) = ("n2e9".parse().unwrap(), "It is cold.".into());
        report.evidence.push(more);
        let text = super::report(&report);
        assert!(text.contains("   - a `:11-12` Use them if: “Lithium cells do not leak.”\n"), "{text}");
        assert!(text.contains("   - b `:11-12` “It is cold.”\n"), "once for a list: {text}");
        let page = crate::render::html::body(&report).unwrap();
        assert!(page.contains("Decision › Use them if:"), "{page}");
    }

    #[test]
    fn sources_of_a_long_report_stand_once_with_a_line_for_each_quote() {
        let mut report = sample::run();
        let quote = "A probe that is read every ten minutes for four years drains a lithium cell by a fifth, as all who have \
            measured it in the cold and in the heat of the last four years say in their reports on the matter, and as \
            gardeners who have not will believe only after the first winter in which the probe in the far bed fell silent.";
        let cited = (1..=40).map(|number| {
            let source = sample::file(&format!("probe-{}.md", number % 5), "Probes", "Cells");
            sample::quote(&format!("n5e{number}"), quote, source)
        });
        report.evidence = cited.collect();
        let ids: Vec<_> = report.evidence.iter().map(|quote| format!("It is so [{}].", quote.id)).collect();
        report.answer = ids.join(" ");
        let text = super::report(&report);
        let (answer, sources) = text.split_once("## Sources").unwrap();
        let sources = sources.split("\n## ").next().unwrap();
        let lines: Vec<_> = sources.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(lines.len(), 5 + 40, "{sources}");
        let words = sources.split_whitespace().count();
        assert!(words < 43 * 40, "{words} words; whole quotes alone have {}", 40 * quote.split_whitespace().count());
        for (number, source) in (1..).zip(lines.chunks(9)) {
            assert!(source[0].starts_with(&format!("{number}. `probe-")), "{sources}");
            for (letter, line) in ('a'..='h').zip(&source[1..]) {
                assert!(answer.contains(&format!("[{number}{letter}]")), "{answer}");
                assert!(line.starts_with(&format!("   - {letter} `:11-12` “A probe that")), "{line}");
            }
        }
    }

    #[test]
    fn marks_of_a_strong_text_that_begins_or_ends_at_code_stand_beside_words() {
        let (code, strong) = (|text: &str| Span::Code(text.into()), |text: &str| Span::Strong(text.into()));
        let strong_code = |text: &str| Span::StrongCode(text.into());
        let spans = [code("dr"), strong(" ranks by "), strong_code("/rerank"), strong(" now "), code("x")];
        assert_eq!(inline(&spans), "`dr` **ranks by `/rerank` now** `x`");
        let read = |text: &str| {
            let [Block::Item { spans, .. }] = &prose::blocks(text, &uncited)[..] else { panic!("{text}") };
            inline(spans)
        };
        for text in ["**`dr` through `ask`**: runs", "**`dr`:** runs `x`", "`dr` **and** `ask`", "**`a` and `b`**"] {
            assert_eq!(read(&format!("- {text}")), text);
        }
    }

    #[test]
    fn code_with_backticks_stays_as_it_is() {
        for text in ["a `` `Rc` cannot be sent `` b", "a ``x`y`` b"] {
            let [Block::Paragraph { spans }] = &prose::blocks(text, &uncited)[..] else { panic!("{text}") };
            assert_eq!(inline(spans), text);
        }
    }

    #[test]
    fn code_is_kept_only_where_its_ends_are_plain() {
        assert_eq!(line("a `Vec<T>` <b>"), r"a `Vec<T>` \<b>");
        assert_eq!(line("` <img onerror=x>"), r"\` \<img onerror=x>");
        assert_eq!(line("`` <b> `x`"), r"\`\` \<b> \`x\`");
        assert_eq!(line("``` rust"), r"\`\`\` rust");
    }

    #[test]
    fn bar_does_not_end_a_cell() {
        let cells = [r"a | b", r"a \| b", "a `|` b", "| b"].map(|text| cell(&prose::line(text, &uncited)));
        assert_eq!(cells, [r"a \| b", r"a \\\| b", r"a `\|` b", r"\| b"]);
    }

    #[test]
    fn answer_of_one_search_is_short() {
        insta::assert_snapshot!(report(&sample::answer()), @r"
        # Why lithium?

        Lithium cells do not leak. [1]

        ## Sources

        1. `battery.md:11-12` — Batteries › Decision

        Support: some. Every quote was found verbatim in its file.
        ");
    }

    #[test]
    fn rows_of_a_cut_table_are_one_citation_and_one_source() {
        let mut report = sample::answer();
        let mut answer_of = |rows: usize| {
            let ids: Vec<_> = (1..=rows).map(|row| format!("n1e{row}")).collect();
            let cell = |id: &String| sample::quote(id, "| 1 |", sample::file("cells.md", "Cells", "Sizes"));
            report.evidence = ids.iter().map(cell).collect();
            report.findings[0].evidence = ids.iter().map(|id| id.parse().unwrap()).collect();
            report.answer = format!("| cells |\n|---|\n| 1 |\n\n[{}]", ids.join(", "));
            super::report(&report)
        };
        let text = answer_of(2);
        assert!(text.contains("\n[1]\n") && !text.contains("[2]"), "{text}");
        assert!(text.contains("\n1. `cells.md` — Cells › Sizes: `:11-12`, `:11-12`\n"), "{text}");
        assert!(answer_of(9).contains("`, `:11-12` and 5 more\n"));
    }

    #[test]
    fn run_shows_its_tree_its_cost_and_its_quotes() {
        insta::assert_snapshot!(report(&sample::run()));
    }

    #[test]
    fn refusal_says_why_and_what_was_tried() {
        let refused = Report {
            evidence: Vec::new(),
            limitations: vec!["Nothing answers this.".into(), "The web was not asked.".into()],
            ..sample::run()
        };
        let text = report(&refused);
        let headings: Vec<_> = text.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(headings, ["## Limitations", "## Nearest passages"]);
        assert!(text.contains("**No answer.** Nothing answers this.\n"), "{text}");
    }

    #[test]
    fn web_place_is_a_link_only_where_its_address_is_one() {
        let fetched = sample::page("https://example.org/a_b?c=d", "A [page](x)", Some(1_795_219_199_000));
        assert_eq!(place(&fetched), r"A [page]\(x) — <https://example.org/a_b?c=d>, read on 2026-11-20");
        assert_eq!(place(&sample::page("javascript:alert`1`", "Bad", None)), "Bad — `` javascript:alert`1` ``");
    }

    /// Returns everything in a report that a Markdown viewer would act on.
    fn live(text: &str) -> Vec<String> {
        let is_live = |event: &Event<'_>| match event {
            Event::Start(Tag::Link { dest_url, .. }) => !dest_url.starts_with("https://example.org/"),
            Event::Start(Tag::Image { .. } | Tag::HtmlBlock) | Event::Html(_) | Event::InlineHtml(_) => true,
            _ => false,
        };
        let options = Options::ENABLE_TABLES | Options::ENABLE_GFM | Options::ENABLE_FOOTNOTES;
        Parser::new_ext(text, options).filter(is_live).map(|event| format!("{event:?}")).collect()
    }

    const HOSTILE: &str = "[n2e1](javascript:alert(1)) <script>x</script> ![i](http://evil/i.png)\n\n[n2e1]: http://evil\n\n\
        [1]: http://evil 'x'\n<img src=x onerror=y>\n\n| <b> | `|` |\n|---|---|\n| [a](http://evil) | ]]> |\n\n    <i>\n\
        ```\n</pre><script>\n````\n<http://evil> \"quotes\" & 'more' [n2e1]:x -->";

    #[test]
    fn result_block_holds_no_character_that_controls_a_terminal() {
        let said = "a\u{9b}31m\u{202e}b";
        let text = report(&Report { output: Some(serde_json::json!({ "a": said })), ..sample::run() });
        let (_, block) = text.split_once("## Result").unwrap();
        let block = block.split("\n## ").next().unwrap();
        assert!(block.contains(r"a\u009b31m\u202eb"), "{block}");
        assert!(!block.chars().any(|letter| letter.is_control() && letter != '\n'), "{block}");
    }

    #[test]
    fn hostile_text_is_dead_wherever_it_stands() {
        let text = report(&sample::all_saying(HOSTILE));
        assert_eq!(live(&text), Vec::<String>::new(), "{text}");
    }

    proptest! {
        #[test]
        fn no_text_of_others_is_live(text in r"(\[n2e1\]|```|<b>|http://a|[-*_`\[\]()<>|#!:&;~a1 \n\\]){0,40}") {
            let mut run = sample::run();
            run.answer.clone_from(&text);
            run.findings[0].text.clone_from(&text);
            run.evidence[0].quote.clone_from(&text);
            let shown = report(&run);
            prop_assert_eq!(live(&shown), Vec::<String>::new(), "{}", shown);
        }
    }
}
