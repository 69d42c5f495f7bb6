//! Writes the lines of pages as Markdown.
//!
//! Headers and footers, which pages repeat, are left out, and hyphenated words are rejoined. Line breaks are
//! otherwise kept, with a blank line after each paragraph as far as the layout shows its end.

use std::collections::{BTreeMap, HashSet};

use super::Extracted;
use crate::base::line::{cut, one_line};

/// Number of lines at the top and at the bottom of a page that may be repeated on other pages.
const EDGE_LINES: usize = 2;

/// A line is a header or footer if at least this many pages have it, and at least this fraction of all pages. Left
/// and right pages often have different ones, and the first page of a chapter has none.
const MIN_REPEATED: usize = 3;
const REPEATED_PART: usize = 4;

const MAX_TITLE_CHARS: usize = 200;

/// Distance between paragraphs, as a multiple of the ordinary line distance, and indentation of their first lines, in
/// ems.
const PARAGRAPH_GAP: f64 = 1.3;
const INDENT: f64 = 0.8;

/// Minimum distance of lines, in ems.
const LEADING: f64 = 1.2;

/// Lines whose sizes differ by more are of different kinds, such as a heading and text, or text and a note.
const SIZE_RATIO: f64 = 1.12;

/// A page, from 1.
#[derive(Debug)]
pub(super) struct PdfPage {
    pub(super) number: u32,
    /// In reading order.
    pub(super) lines: Vec<Line>,
}

/// A line of text. Coordinates grow to the right and upwards.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    /// Without white space at its ends.
    pub(super) text: String,
    pub(super) x: f64,
    pub(super) y: f64,
    /// Height of an em.
    pub(super) size: f64,
    /// Whether it runs from left to right, not upwards in a margin.
    pub(super) is_upright: bool,
}

fn heading(number: u32) -> String {
    format!("Page {number}")
}

pub(crate) fn page_of_heading(heading: &str) -> Option<u32> {
    heading.strip_prefix("Page ")?.parse().ok()
}

/// Writes pages. `title` is the one in the metadata of the file.
pub(super) fn written(mut pages: Vec<PdfPage>, title: &str) -> Extracted {
    let title = usable(title).or_else(|| largest(&pages)).unwrap_or_default();
    let furniture = repeated(&pages);
    for page in &mut pages {
        // Of the unchanged page: without its header, the lines below would be at the edge.
        let edges = edges(page);
        let mut at = 0..;
        page.lines
            .retain(|line| !(at.next().is_some_and(|at| edges.contains(&at)) && furniture.contains(&shape(line))));
    }
    let words = divided_words(&pages);
    let mut text = String::new();
    for page in pages.iter().filter(|page| !page.lines.is_empty()) {
        text += &format!("## {}\n\n", heading(page.number));
        for paragraph in paragraphs(&page.lines) {
            for line in joined(paragraph, &words) {
                text += &escaped(&line);
                text.push('\n');
            }
            text.push('\n');
        }
    }
    Extracted { title, published: None, text }
}

/// Returns the title in the metadata if a person wrote it: programs often put the file name there.
fn usable(title: &str) -> Option<String> {
    let title = one_line(title);
    let is_name = title.split_whitespace().count() < 2
        || title.starts_with("Microsoft ")
        || [".doc", ".docx", ".tex", ".dvi", ".pdf", ".indd", ".qxd"].iter().any(|end| title.ends_with(end))
        || title.contains(['\u{fffd}', '\\']);
    (!is_name).then(|| cut(&title, MAX_TITLE_CHARS))
}

/// Returns the largest lines of the first page if they are words, and larger than its text.
fn largest(pages: &[PdfPage]) -> Option<String> {
    let lines = || pages.first().into_iter().flat_map(|page| &page.lines).filter(|line| line.is_upright);
    let size = lines().map(|line| line.size).fold(0.0, f64::max);
    let is_large = |line: &&Line| line.size * SIZE_RATIO > size;
    let large: Vec<_> = lines().skip_while(|line| !is_large(line)).take_while(is_large).collect();
    let title = one_line(&large.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join(" "));
    let is_title = title.split_whitespace().count() > 1
        && title.chars().count() <= MAX_TITLE_CHARS
        && lines().any(|line| !is_large(&line))
        && !title.contains('\u{fffd}');
    is_title.then_some(title)
}

/// Returns a line with every number replaced by `#`, so that lines with different page numbers are equal.
fn shape(line: &Line) -> String {
    let mut shape = String::with_capacity(line.text.len());
    for letter in line.text.chars() {
        match letter {
            letter if letter.is_ascii_digit() => {
                if !shape.ends_with('#') {
                    shape.push('#');
                }
            }
            letter => shape.push(letter),
        }
    }
    shape
}

/// Returns the places of the lines at the upper and lower edge of a page.
fn edges(page: &PdfPage) -> HashSet<usize> {
    let mut upright: Vec<_> = page.lines.iter().enumerate().filter(|(_, line)| line.is_upright).collect();
    upright.sort_by(|(_, a), (_, b)| b.y.total_cmp(&a.y));
    let places = upright.iter().map(|(place, _)| *place);
    places.clone().take(EDGE_LINES).chain(places.rev().take(EDGE_LINES)).collect()
}

/// Returns the shapes of lines that many pages have at an edge.
fn repeated(pages: &[PdfPage]) -> HashSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for page in pages {
        // A set, so that a line that occurs twice on a page counts once.
        let shapes: HashSet<_> = edges(page).into_iter().map(|place| shape(&page.lines[place])).collect();
        for shape in shapes {
            *counts.entry(shape).or_default() += 1;
        }
    }
    let is_repeated = |count: usize| count >= MIN_REPEATED && count * REPEATED_PART >= pages.len();
    counts.into_iter().filter(|(_, count)| is_repeated(*count)).map(|(shape, _)| shape).collect()
}

/// Splits the lines of a page where paragraphs end.
fn paragraphs(lines: &[Line]) -> impl Iterator<Item = &[Line]> {
    let mut steps: Vec<_> = lines
        .windows(2)
        .filter(|pair| is_same_size(&pair[0], &pair[1]))
        .map(|pair| pair[0].y - pair[1].y)
        .filter(|step| *step > 0.0)
        .collect();
    steps.sort_by(f64::total_cmp);
    // Less than half of the lines end a paragraph.
    let step = steps.get(steps.len() / 2).copied().unwrap_or(f64::INFINITY);
    lines.chunk_by(move |line, next| continues(line, next, step))
}

fn is_same_size(line: &Line, next: &Line) -> bool {
    line.size < next.size * SIZE_RATIO && next.size < line.size * SIZE_RATIO
}

/// Returns whether a line and the next belong to one paragraph. `step` is the line distance.
fn continues(line: &Line, next: &Line, step: f64) -> bool {
    if !is_same_size(line, next) || line.is_upright != next.is_upright {
        return false;
    }
    let down = line.y - next.y;
    let has_ended = line.text.trim_end_matches(['"', '\'', ')', '”', '’']).ends_with(['.', '!', '?', ':']);
    if down < 0.0 {
        // The next column.
        return !has_ended && next.text.starts_with(char::is_lowercase);
    }
    let indent = next.x - line.x;
    // Titles are larger than the text, and so are their line distances.
    let step = step.max(line.size * LEADING);
    down <= step * PARAGRAPH_GAP && !(has_ended && indent > INDENT * line.size && indent < 5.0 * line.size)
}

/// Returns the words of all lines in lower case, to tell hyphens that belong to a word from hyphenation.
fn divided_words(pages: &[PdfPage]) -> HashSet<String> {
    let words = pages.iter().flat_map(|page| &page.lines).flat_map(|line| line.text.split_whitespace());
    words.filter(|word| !word.ends_with('-')).map(|word| bare(word).to_lowercase()).collect()
}

fn bare(word: &str) -> &str {
    word.trim_matches(|letter: char| !letter.is_alphanumeric())
}

/// Returns the lines of a paragraph with each hyphenated word rejoined at the end of its first line.
fn joined(lines: &[Line], words: &HashSet<String>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::with_capacity(lines.len());
    for line in lines {
        let mut text = line.text.as_str();
        let (end, rest) = text.split_once(' ').unwrap_or((text, ""));
        if let Some(whole) = joined.last().and_then(|before| put_together(before, end, words)) {
            joined.pop();
            joined.push(whole);
            text = rest;
        }
        if !text.is_empty() {
            joined.push(text.to_owned());
        }
    }
    joined
}

/// Returns a line with its last word completed, if that is hyphenated.
fn put_together(line: &str, end: &str, words: &HashSet<String>) -> Option<String> {
    let start = line.strip_suffix(['-', '\u{2010}'])?;
    let is_divided = start.ends_with(char::is_alphabetic) && end.starts_with(char::is_lowercase);
    if !is_divided {
        return None;
    }
    let first = start.rsplit(' ').next().unwrap_or_default();
    let known = |word: String| words.contains(&bare(&word).to_lowercase());
    // A word with another hyphen is a compound, and the hyphens of an address belong to it.
    let is_compound = known(format!("{first}-{end}")) || first.contains(['-', '@', '/']);
    let hyphen = if is_compound && !known(format!("{first}{end}")) { "-" } else { "" };
    Some(format!("{start}{hyphen}{end}"))
}

/// Returns a line that Markdown reads as text: only page headings are headings, and no fence, comment or table
/// swallows them.
fn escaped(line: &str) -> String {
    let is_rule = line.chars().all(|letter| matches!(letter, '=' | '-' | '_' | '*' | ' '));
    let is_markup = is_rule
        || line.starts_with(['#', '<', '|', '>'])
        || line.starts_with("```")
        || line.starts_with("~~~")
        || line.starts_with("[[");
    if is_markup { format!("\\{line}") } else { line.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a line of 10 points, at the vertical position given by its number.
    fn line(number: usize, text: &str) -> Line {
        let y = 700.0 - 12.0 * f64::from(u32::try_from(number).unwrap());
        Line { text: text.into(), x: 72.0, y, size: 10.0, is_upright: true }
    }

    fn page(number: u32, texts: &[&str]) -> PdfPage {
        PdfPage { number, lines: texts.iter().enumerate().map(|(at, text)| line(at, text)).collect() }
    }

    fn text(pages: Vec<PdfPage>) -> String {
        written(pages, "").text
    }

    #[test]
    fn each_page_with_text_has_its_number_above() {
        let text = text(vec![page(1, &["One."]), page(2, &[]), page(3, &["Three."])]);
        assert_eq!(text, "## Page 1\n\nOne.\n\n## Page 3\n\nThree.\n\n");
        assert_eq!(page_of_heading(&heading(7)), Some(7));
        assert_eq!(page_of_heading("Page one"), None);
    }

    #[test]
    fn headers_and_footers_are_left_out_and_repeated_text_is_not() {
        let pages = (1..=4).map(|number| {
            let (header, footer) = (format!("{number} A. Author"), format!("Journal 12, page {number}"));
            page(number, &[&header, "See Table 1.", "It holds.", "It holds.", "So it goes.", &footer])
        });
        let text = text(pages.collect());
        assert!(!text.contains("Author") && !text.contains("Journal"), "{text}");
        assert_eq!((text.matches("It holds.").count(), text.matches("## Page").count()), (8, 4));
        let few = super::written((1..=2).map(|number| page(number, &["A. Author", "x"])).collect(), "").text;
        assert_eq!(few.matches("A. Author").count(), 2, "two pages show no pattern");
    }

    #[test]
    fn divided_words_are_put_together_and_compounds_keep_their_hyphen() {
        let text = text(vec![page(
            1,
            &[
                "An exam-",
                "ple of a well-",
                "known, state-of-the-",
                "art method, Navier-",
                "Stokes, is well-known, 1990-",
                "1995.",
            ],
        )]);
        assert_eq!(
            text,
            "## Page 1\n\nAn example\nof a well-known,\nstate-of-the-art\nmethod, Navier-\nStokes, is well-known, 1990-\n1995.\n\n"
        );
    }

    #[test]
    fn paragraphs_end_at_gaps_at_indented_lines_and_at_other_sizes() {
        let mut lines = vec![
            line(0, "Heading"),
            line(1, "Text of it"),
            line(2, "ends here."),
            line(3, "New one"),
            line(6, "After."),
        ];
        lines[0].size = 14.0;
        lines[3].x += 12.0;
        let text = text(vec![PdfPage { number: 1, lines }]);
        assert_eq!(text, "## Page 1\n\nHeading\n\nText of it\nends here.\n\nNew one\n\nAfter.\n\n");
    }

    #[test]
    fn paragraph_goes_on_in_the_next_column() {
        let mut lines = vec![line(0, "A sentence"), line(1, "that goes"), line(0, "on here."), line(1, "And on.")];
        lines[2].x += 300.0;
        lines[3].x += 300.0;
        assert_eq!(
            text(vec![PdfPage { number: 1, lines }]),
            "## Page 1\n\nA sentence\nthat goes\non here.\nAnd on.\n\n"
        );
    }

    #[test]
    fn markup_in_the_text_is_text() {
        let text = text(vec![page(1, &["# Page 9", "```", "<!-- x", "=====", "| a |", "#2 wins"])]);
        let document = crate::kb::document::Document::parse("a.pdf", text.into_bytes()).unwrap();
        let headings: Vec<_> = crate::kb::chunk::headings(&document).map(|(_, _, heading)| heading).collect();
        assert_eq!(headings, ["Page 1"]);
    }

    #[test]
    fn title_is_that_of_the_file_or_its_largest_line_but_no_file_name() {
        let mut lines = vec![line(0, "arXiv:1"), line(1, "Attention Is"), line(2, "All You Need"), line(3, "Text.")];
        lines[1].size = 17.0;
        lines[2].size = 17.0;
        let pages = || vec![PdfPage { number: 1, lines: lines.clone() }];
        assert_eq!(written(pages(), "A Good Title").title, "A Good Title");
        for poor in ["", "paper", "Microsoft Word - x y.doc", "my paper.tex"] {
            assert_eq!(written(pages(), poor).title, "Attention Is All You Need", "{poor}");
        }
        assert_eq!(written(vec![page(1, &["All of one", "size here."])], "").title, "");
    }
}
