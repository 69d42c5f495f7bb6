//! Citation numbers, and the notes printed with a quote and its source.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use serde::{Serialize, Serializer};

use super::figure;
use crate::base::line::{is_invisible, one_line};
use crate::base::readable::readable;
use crate::base::word::{WordSplitter, count_words, is_condition, is_negation};
use crate::research::branch::Finding;
use crate::research::cut::pieces;
use crate::research::evidence::{Evidence, EvidenceId, by_document, marks};
use crate::research::report::Report;
use crate::source::Place;

/// Number of characters shown of a longer quote in the list of sources: enough to find it in its document, and more
/// only if that shows more words of the claims that cite it. A quote of the latter length is shown whole.
const SHORT_QUOTE_CHARACTERS: usize = 180;
const LONG_QUOTE_CHARACTERS: usize = 240;

/// Minimum number of words between two citations that are a claim of their own.
const MIN_CLAIM_WORDS: usize = 3;

/// How a quote is cited: by the number of its document and, if several quotes of that document are cited, a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Position of the quote in the report, from 1.
    pub(super) quote: usize,
    /// Number of the document, from 1.
    pub(super) document: usize,
    /// Number of the quote among those of its document, from 1; 0 if it is the only one.
    pub(super) letter: usize,
}

impl Mark {
    /// Returns the mark as digits, for [`Self::decode`].
    pub(super) fn encode(self) -> String {
        format!("{} {} {}", self.quote, self.document, self.letter)
    }

    pub(super) fn decode(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ').map(|number| number.parse().ok());
        let mark = Self { quote: numbers.next()??, document: numbers.next()??, letter: numbers.next()?? };
        numbers.next().is_none().then_some(mark)
    }

    /// Returns the letter: `a` to `z`, then `aa`; empty for the only quote of a document.
    pub(super) fn letter(self) -> String {
        let (mut left, mut letters) = (self.letter, String::new());
        while left > 0 {
            left -= 1;
            letters.insert(0, char::from(b'a' + u8::try_from(left % 26).unwrap_or(0)));
            left /= 26;
        }
        letters
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.document, self.letter())
    }
}

impl Serialize for Mark {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields {
            quote: usize,
            label: String,
        }
        Fields { quote: self.quote, label: self.to_string() }.serialize(serializer)
    }
}

/// Marks by evidence id.
pub(super) struct Numbers<'a>(HashMap<&'a EvidenceId, Mark>);

impl<'a> Numbers<'a> {
    /// Returns the marks of a report. Quotes cut from one unit share a mark.
    pub(super) fn of(report: &'a Report) -> Self {
        let is_run = figure::is_run(report);
        let mut marks = HashMap::new();
        for (document, quotes) in (1..).zip(sources(report)) {
            for (at, (quote, evidence)) in quotes.iter().enumerate() {
                let mark = match is_run {
                    true if quotes.len() > 1 => Mark { quote: *quote, document, letter: at + 1 },
                    true => Mark { quote: *quote, document, letter: 0 },
                    false => Mark { quote: quotes[0].0, document, letter: 0 },
                };
                marks.insert(&evidence.id, mark);
            }
        }
        Self(marks)
    }

    /// Returns the mark of a quote, or `None` if the report does not contain it.
    pub(super) fn get(&self, id: &EvidenceId) -> Option<Mark> {
        self.0.get(id).copied()
    }
}

/// Returns the quotes of a report grouped by citation number, each with its position from 1. A group is a document,
/// or a unit in an answer that consists of quotes.
pub(super) fn sources(report: &Report) -> Vec<Vec<(usize, &Evidence)>> {
    if figure::is_run(report) { documents(report) } else { units(report) }
}

fn units(report: &Report) -> Vec<Vec<(usize, &Evidence)>> {
    let mut units: Vec<Vec<(usize, &Evidence)>> = Vec::new();
    for (number, evidence) in (1..).zip(&report.evidence) {
        let is_of = |unit: &[(usize, &Evidence)]| {
            let first = unit[0].1;
            let cites = |finding: &Finding| [first, evidence].iter().all(|quote| finding.evidence.contains(&quote.id));
            first.source.is_same_document(&evidence.source) && report.findings.iter().any(cites)
        };
        match units.last_mut().filter(|unit| is_of(unit)) {
            Some(unit) => unit.push((number, evidence)),
            None => units.push(vec![(number, evidence)]),
        }
    }
    units
}

/// Returns the quotes of a report by document, in order of first citation, each with its position from 1.
pub(super) fn documents(report: &Report) -> Vec<Vec<(usize, &Evidence)>> {
    by_document((1..).zip(&report.evidence), |(_, evidence)| evidence)
}

/// The location of a quote in its document, each part on one line.
#[derive(Serialize)]
pub(super) struct Locator {
    /// The file and the lines, as accepted by `dr get`; `None` for a place that is not a file.
    pub(super) lines: Option<String>,
    /// The heading above it, unless that is the title, and the lead-ins of its list.
    pub(super) heading: Option<String>,
}

impl Locator {
    /// Returns the location of a quote in its document.
    pub(super) fn of(evidence: &Evidence) -> Self {
        let source = &evidence.source;
        let lines = match source {
            Place::Kb { .. } => Some(one_line(&source.for_people())),
            Place::Web { .. } | Place::Mcp { .. } => None,
        };
        let (headings, lead_ins) =
            source.heading_path().split_at(source.heading_path().len() - source.lead_ins().len());
        let heading = headings.last().filter(|heading| *heading != source.title());
        let names: Vec<_> = heading.into_iter().chain(lead_ins).map(String::as_str).collect();
        Self { lines, heading: (!names.is_empty()).then(|| one_line(&names.join(" › "))) }
    }
}

/// Returns the visible text of a quote on one line: links reduced to their text, without emphasis. The
/// text of a page or a tool is not Markdown.
pub(super) fn quoted(evidence: &Evidence) -> String {
    if !matches!(evidence.source, Place::Kb { .. }) {
        return one_line(&evidence.quote);
    }
    // A part of a row may begin within code, and all code of the row would then be taken for text.
    let is_even = evidence.quote.matches('`').count().is_multiple_of(2);
    let markdown = if is_even { readable(&evidence.quote) } else { readable(&evidence.quote.replace('`', "")) };
    let mut shown = String::new();
    for event in Parser::new_ext(&markdown, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH) {
        match event {
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => shown.push_str(&text),
            Event::Code(text) => shown.extend(["`", &text, "`"]),
            Event::End(TagEnd::TableCell) => shown.push_str(" | "),
            Event::Start(Tag::TableRow) if shown.contains(char::is_alphanumeric) => {
                shown.truncate(shown.trim_end_matches([' ', '|']).len());
                shown.push_str("; ");
            }
            Event::End(TagEnd::Paragraph | TagEnd::Item | TagEnd::Heading(_) | TagEnd::CodeBlock)
            | Event::SoftBreak
            | Event::HardBreak => shown.push(' '),
            _ => {}
        }
    }
    // A row without its header is no table to the parser.
    one_line(shown.trim_matches([' ', '|']))
}

/// Returns the claims that cite each quote: the words before its citation, back to the citation before or the beginning
/// of the sentence, or the findings if no text cites it.
pub(super) fn claims(report: &Report) -> HashMap<EvidenceId, Vec<String>> {
    let texts = std::iter::once(&report.answer).chain(report.sections.iter().map(|section| &section.text));
    let mut claims: HashMap<EvidenceId, Vec<String>> = HashMap::new();
    for piece in texts.chain(&report.contradictions).flat_map(|text| pieces(text)) {
        let marks = marks(piece);
        for (range, id) in &marks {
            let ends = marks.iter().map(|(other, _)| other.end).filter(|end| *end <= range.start);
            let own = &piece[ends.max().unwrap_or(0)..range.start];
            // Citations side by side support the same words.
            let claim = if count_words(own) >= MIN_CLAIM_WORDS { own } else { &piece[..range.start] };
            claims.entry(id.clone()).or_default().push(claim.to_owned());
        }
    }
    for Evidence { id, .. } in &report.evidence {
        claims.entry(id.clone()).or_insert_with(|| {
            let citing = report.findings.iter().filter(|finding| finding.evidence.contains(id));
            citing.map(|finding| finding.text.clone()).collect()
        });
    }
    claims
}

/// Returns some words of [`quoted`]: those with the most words of the claims that cite it; of equals the first, if
/// possible from the beginning of a clause. No condition or negation before them is cut off.
pub(super) fn shortly_quoted(evidence: &Evidence, claims: &[String]) -> String {
    let quote = quoted(evidence);
    // A few more characters are better than a truncated end.
    if quote.chars().count() <= LONG_QUOTE_CHARACTERS {
        return quote;
    }
    let splitter = WordSplitter::default();
    let stems = |words: &str| splitter.key_stems(words).into_iter().collect::<HashSet<String>>();
    let wanted: HashSet<String> = claims.iter().flat_map(|claim| stems(claim)).collect();
    let shared = |words: &str| stems(words).intersection(&wanted).count();
    let begins_clause = |at: usize| at == 0 || quote[..at].trim_end().ends_with([',', ';', ':', '.', '!', '?']);
    let starts = starts(&quote);
    let best = |most: usize| {
        let windows = starts.iter().map(|at| (*at, first_words(&quote[*at..], most)));
        let windows = windows.map(|(at, words)| (shared(words), begins_clause(at), Reverse(at), words));
        // The words are last, so that they decide nothing.
        let (shared, _, Reverse(at), words) = windows.max().unwrap_or((0, true, Reverse(0), ""));
        (shared, at, words)
    };
    let [short, long] = [SHORT_QUOTE_CHARACTERS, LONG_QUOTE_CHARACTERS].map(best);
    let (_, at, words) = if long.0 > short.0 { long } else { short };
    let ellipsis = |is_cut: bool| if is_cut { "…" } else { "" };
    let (before, after) = (ellipsis(at > 0), ellipsis(at + words.len() < quote.len()));
    let words = if after.is_empty() { words } else { words.trim_end_matches([' ', ',', ';', ':', '.', '|']) };
    format!("{before}{words}{after}")
}

/// Words that begin a clause with a subject of its own, and such subjects: "…, and they last".
const JOINING: [&str; 5] = ["and", "but", "so", "while", "whereas"];
const SUBJECTS: [&str; 8] = ["it", "they", "we", "you", "this", "these", "those", "there"];

/// Returns where an excerpt of a text may begin: at a word with no condition before it in its sentence, and no negation
/// before it in its clause. Other commas end no clause: "It has no lamp, bell, or horn". Only English is recognised.
fn starts(text: &str) -> Vec<usize> {
    let begin = |piece: &str| piece.as_ptr().addr() - text.as_ptr().addr();
    let mut sentences = pieces(text).into_iter().map(begin).peekable();
    let (mut starts, mut is_conditional, mut is_negated, mut before) = (Vec::new(), false, false, "");
    let mut words = text.split(' ').peekable();
    while let Some(word) = words.next() {
        let at = begin(word);
        let mut is_new = before.ends_with(';');
        while sentences.next_if(|start| *start <= at).is_some() {
            is_new = true;
        }
        let has_subject = words.peek().is_some_and(|next| SUBJECTS.contains(next));
        let begins_clause = before.ends_with(',') && JOINING.contains(&word) && has_subject;
        is_conditional &= !is_new;
        is_negated &= !(is_new || begins_clause);
        if !(is_conditional || is_negated) {
            starts.push(at);
        }
        is_conditional |= is_condition(word);
        is_negated |= is_negation(word);
        before = word;
    }
    starts
}

/// Returns the first `most` characters of a text, up to the end of a word.
fn first_words(text: &str, most: usize) -> &str {
    let Some((end, _)) = text.char_indices().nth(most) else { return text };
    text[..end].rsplit_once(' ').map_or(&text[..end], |(words, _)| words)
}

/// Returns the position of a quote in its file, `:11-12` or `page 7`, on one line; `None` for a place that is not a
/// file.
pub(super) fn position(evidence: &Evidence) -> Option<String> {
    let Place::Kb { path, .. } = &evidence.source else { return None };
    let place = evidence.source.for_people();
    place.strip_prefix(path.as_str()).map(|position| one_line(position.trim_start_matches(", ")))
}

/// Returns the quotes of a report in full, each below the line that cites it.
pub(crate) fn quote_lines(report: &Report) -> Vec<String> {
    let numbers = Numbers::of(report);
    let lines = |evidence: &Evidence| {
        let mark = numbers.get(&evidence.id).map(|mark| mark.to_string()).unwrap_or_default();
        let note = note(evidence).map(|note| format!(" ({note})")).unwrap_or_default();
        let source = &evidence.source;
        let (place, names) = (source.beside_names(), source.names());
        let place = one_line(&format!("[{mark}] {} {place} — {names}{note}", evidence.id));
        [place, format!("    {}", quoted(evidence))]
    };
    documents(report).into_iter().flatten().flat_map(|(_, evidence)| lines(evidence)).collect()
}

/// Returns a caveat about a quote, if any.
pub(super) fn note(evidence: &Evidence) -> Option<&'static str> {
    match (evidence.checked, evidence.stale) {
        (false, _) => Some("reported, unchecked"),
        (true, true) => Some("as indexed; the file has changed since"),
        (true, false) => None,
    }
}

/// Returns one sentence on how the quotes were checked.
pub(super) fn checks(report: &Report) -> String {
    let checked: Vec<_> = report.evidence.iter().filter(|evidence| evidence.checked).collect();
    let is_file = |evidence: &&Evidence| matches!(evidence.source, Place::Kb { .. });
    let (source, sources) = if checked.iter().all(is_file) { ("file", "files") } else { ("source", "sources") };
    let copies = if checked.iter().any(|evidence| evidence.stale) {
        ", or in the indexed copy of a file that has changed"
    } else {
        ""
    };
    match (checked.len(), report.evidence.len()) {
        (0, _) => "The sources are as reported; none of the quotes was found in its source.".to_owned(),
        (found, all) if found == all => format!("Every quote was found verbatim in its {source}{copies}."),
        (found, all) => format!(
            "{found} of {all} quotes were found verbatim in their {sources}{copies}; the others are reported but unchecked."
        ),
    }
}

/// Heading of claims that a provider reported and that no fetched page confirms.
pub(super) const UNCHECKED: &str = "Reported by Deep Research, unchecked";

/// Returns the unconfirmed claims, each with the page it cites.
pub(super) fn reported(report: &Report) -> Vec<String> {
    report.reported.iter().map(|said| format!("{} ({}, {})", said.text, said.title, said.url)).collect()
}

/// Returns the address if it is safe as a link: HTTP or HTTPS, without characters that could end the link or hide part
/// of it.
pub(super) fn safe_url(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let is_odd = |letter: char| {
        letter.is_whitespace()
            || letter.is_control()
            || is_invisible(letter)
            || matches!(letter, '<' | '>' | '"' | '\'' | '`' | '\\')
    };
    (is_web && rest.starts_with(char::is_alphanumeric) && !url.contains(is_odd)).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use crate::base::id::ContentHash;

    #[test]
    fn quotes_of_one_document_share_its_number_and_differ_by_a_letter() {
        let mut report = sample::run();
        let mut more = report.evidence[0].clone();
        more.id = "n2e9".parse().unwrap();
        report.evidence.push(more);
        let numbers = Numbers::of(&report);
        let shown: Vec<_> = report.evidence.iter().map(|quote| numbers.get(&quote.id).unwrap().to_string()).collect();
        assert_eq!(shown, ["1a", "2", "3", "4", "1b"]);
        for (letter, shown) in [(0, ""), (1, "a"), (26, "z"), (27, "aa"), (53, "ba")] {
            let mark = Mark { quote: 7, document: 3, letter };
            assert_eq!(mark.letter(), shown);
            assert_eq!(Mark::decode(&mark.encode()), Some(mark));
        }
        assert_eq!(Mark::decode("1"), None);
    }

    #[test]
    fn arguments_of_a_call_stand_once_beside_its_tool() {
        let mut report = sample::run();
        report.evidence[0].source = Place::Mcp {
            server: "tickets".into(),
            tool: "read".into(),
            arguments: r#"{"number":7}"#.into(),
            fetched_at: 1_795_219_199_000,
            content_hash: ContentHash::of(b"x"),
        };
        assert_eq!(quote_lines(&report)[0], r#"[1] n2e1 mcp:tickets/read — {"number":7}"#);
        let page = crate::render::html::body(&report).unwrap();
        assert!(page.contains("<code>mcp:tickets&#x2f;read</code> {&quot;number&quot;:7}, called on"), "{page}");
    }

    #[test]
    fn short_quote_ends_with_a_word_and_full_one_stands_below_its_place() {
        let mut report = sample::run();
        report.evidence[0].quote =
            "Lithium cells are **so** good, in the cold of a winter night or in the heat of a glass house in July, and \
            in the rain of an autumn day at the edge of the bed, and they keep their charge in a drawer for many a \
            summer, and last four years in a probe that is read by radio every ten minutes."
                .into();
        let shortly = "Lithium cells are so good, in the cold of a winter night or in the heat of a glass house in \
                       July, and in the rain of an autumn day at the edge of the bed, and they keep their…";
        assert_eq!(shortly_quoted(&report.evidence[0], &[]), shortly);
        let claim = "A probe reads them by radio every ten minutes.".to_owned();
        let bearing = "…and they keep their charge in a drawer for many a summer, and last four years in a probe that is \
                       read by radio every ten minutes.";
        assert_eq!(shortly_quoted(&report.evidence[0], &[claim]), bearing);
        let far = "In a glass house, they are read by radio every ten minutes.".to_owned();
        let both = shortly_quoted(&report.evidence[0], &[far]);
        assert!(both.contains("glass house") && both.ends_with("every ten minutes."), "{both}");
        assert!(both.chars().count() <= LONG_QUOTE_CHARACTERS + 2, "{both}");
        assert_eq!(shortly_quoted(&report.evidence[1], &[]), "They last | four years.");
        for (table, shown) in [
            ("| A | 4 |", "A | 4"),
            ("|c|y|\n|-|-|\n|A|4|\n|B|5|", "c | y; A | 4; B | 5"),
            ("| | |\n|-|-|\n|A|4|", "A | 4"),
        ] {
            report.evidence[1].quote = table.into();
            assert_eq!(quoted(&report.evidence[1]), shown);
        }
        let lines = quote_lines(&report);
        assert_eq!(lines[0], "[1] n2e1 battery.md:11-12 — Batteries › Decision");
        assert_eq!(lines[1].trim(), quoted(&report.evidence[0]));
        assert_eq!(lines.len(), 2 * report.evidence.len());
    }

    #[test]
    fn excerpt_begins_where_no_condition_or_negation_of_its_own_is_cut_off() {
        let filler = "in the cold of a winter night or in the heat of a glass house in July and in the rain of an \
                      autumn day at the edge of the bed of a garden by the sea in May";
        let shown = |quote: &str, claim: &str| {
            let mut evidence = sample::run().evidence[0].clone();
            evidence.quote = quote.replace("FILLER", filler);
            shortly_quoted(&evidence, &[claim.to_owned()])
        };
        let claim = "Cells keep their charge and are read by radio.";
        for quote in [
            "If the lid is shut, FILLER, cells keep their charge and are read by radio every ten minutes of the day.",
            "It is not so that FILLER cells keep their charge and are read by radio every ten minutes of the day.",
            "Only with a lid, FILLER, cells keep their charge and are read by radio every ten minutes of the day.",
            "Unless it is dark FILLER, and they sleep, cells keep their charge and are read by radio all day long.",
            "It doesn’t hold, FILLER, that cells keep their charge and are read by radio every ten minutes of the day.",
        ] {
            let first = quote.split(' ').next().unwrap();
            assert!(shown(quote, claim).starts_with(first), "{}", shown(quote, claim));
        }
        for quote in [
            "It is not red. FILLER, cells keep their charge and are read by radio every ten minutes of the day.",
            "It is not red; FILLER, cells keep their charge and are read by radio every ten minutes of the day.",
            "It is not red FILLER, and they keep their charge and are read by radio every ten minutes of the day.",
        ] {
            let own = shown(quote, claim);
            assert!(own.starts_with('…') && own.contains("by radio"), "{own}");
        }
    }

    #[test]
    fn claim_is_what_stands_before_its_citation_or_else_a_finding() {
        let mut report = sample::run();
        report.answer = "The lead owns it [n2e1], and a messenger informs customers [n3e1][n2e1]. It ends.".into();
        report.sections.clear();
        report.contradictions.clear();
        let of = |report: &Report, id: &str| claims(report).remove(&id.parse().unwrap()).unwrap_or_default();
        let both = ["The lead owns it ", "The lead owns it [n2e1], and a messenger informs customers [n3e1]"];
        assert_eq!(of(&report, "n2e1"), both, "side by side, both citations support the same words");
        assert_eq!(of(&report, "n3e1"), [", and a messenger informs customers "]);
        report.answer.clear();
        report.findings.truncate(1);
        report.findings[0].evidence = vec!["n2e1".parse().unwrap()];
        assert_eq!(of(&report, "n2e1"), [report.findings[0].text.as_str()]);
    }

    #[test]
    fn only_plain_addresses_of_the_web_become_links() {
        for url in ["https://example.org/a?b=c#d", "HTTP://example.org", "https://例え.jp/"] {
            assert_eq!(safe_url(url), Some(url));
        }
        for url in [
            "javascript:alert(1)",
            "javascript://example.org/%0aalert(1)",
            "data:text/html,x",
            "file:///etc/passwd",
            "//example.org",
            "https://",
            "https:// example.org",
            "https://example.org/\"onmouseover=\"x",
            "https://example.org/><script>",
            "https://example.org/\u{202e}gro",
            " https://example.org",
        ] {
            assert_eq!(safe_url(url), None, "{url}");
        }
    }
}
