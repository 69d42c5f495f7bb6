//! Reads tables that are written in HTML, as many Markdown files have them.

use std::ops::Range;

use super::html::{without_comments, without_html};
use super::line::{CodeFence, one_line};

/// Maximum number of columns that a cell may span.
const MAX_SPAN: usize = 100;

pub(crate) struct HtmlRow {
    pub(crate) range: Range<usize>,
    pub(crate) cells: Vec<HtmlCell>,
}

pub(crate) struct HtmlCell {
    pub(crate) text: String,
    /// Columns and rows that it takes up.
    span: (usize, usize),
}

impl HtmlRow {
    /// Returns the cells as one text.
    pub(crate) fn plain(&self) -> String {
        self.cells.iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>().join(" – ")
    }
}

/// Returns whether a text is one table in HTML, with no other in it.
pub(crate) fn is_html_table(text: &str) -> bool {
    let lower = text.trim().to_ascii_lowercase();
    lower.starts_with("<table") && lower.ends_with("</table>") && lower.matches("<table").count() == 1
}

/// Returns the ranges of the tables in HTML in a text, outside of code. One that is cut ends with the text.
pub(crate) fn html_tables(text: &str) -> Vec<Range<usize>> {
    if !text.contains('<') {
        return Vec::new();
    }
    let (mut tables, mut open, mut at, mut fence) = (Vec::new(), None, 0, CodeFence::default());
    for line in text.split_inclusive('\n') {
        let lower = line.trim().to_ascii_lowercase();
        let indent = line.len() - line.trim_start_matches(' ').len();
        if open.is_none() && !fence.takes(line) && indent < 4 && lower.starts_with("<table") {
            open = Some(at);
        }
        if let Some(start) = open
            && lower.ends_with("</table>")
        {
            tables.push(start..at + line.trim_end().len());
            open = None;
        }
        at += line.len();
    }
    tables.extend(open.map(|start| start..text.len()));
    tables.retain(|table| !html_rows(&text[table.clone()]).is_empty());
    tables
}

pub(crate) fn html_rows(table: &str) -> Vec<HtmlRow> {
    // ASCII, so that offsets are those of the text.
    let lower = table.to_ascii_lowercase();
    let rows = between(&lower, &["<tr"], &["</tr", "</table"]).into_iter().map(|range| {
        // Without comments, which may have cells.
        let own = without_comments(&table[range.clone()]);
        let cells = between(&own.to_ascii_lowercase(), &["<td", "<th"], &["</td", "</th"]);
        HtmlRow { cells: cells.into_iter().map(|cell| cell_of(&own[cell])).collect(), range }
    });
    rows.filter(|row| row.cells.iter().any(|cell| !cell.text.is_empty())).collect()
}

/// Returns the cell that a text from its tag on has.
fn cell_of(text: &str) -> HtmlCell {
    let mut is_quoted = false;
    let end = text.char_indices().find(|(_, letter)| {
        is_quoted ^= *letter == '"';
        *letter == '>' && !is_quoted
    });
    let (tag, content) = end.map_or((text, ""), |(at, _)| (&text[..at], &text[at + 1..]));
    let tag = tag.to_ascii_lowercase();
    let span = |name: &str| {
        let digits = tag.split_once(name).map_or("", |(_, value)| value.trim_start_matches(['=', '"', '\'', ' ']));
        let digits = &digits[..digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len())];
        digits.parse().unwrap_or(1).clamp(1, MAX_SPAN)
    };
    HtmlCell { text: one_line(&without_html(content)), span: (span("colspan"), span("rowspan")) }
}

/// Returns a table in HTML as a table in Markdown. A cell that spans rows is repeated in each.
pub(crate) fn as_markdown(table: &str) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    // By column: the text of a cell above that spans further rows, and the number of these rows.
    let mut left: Vec<(String, usize)> = Vec::new();
    for row in html_rows(table) {
        let mut own = Vec::new();
        let fill = |own: &mut Vec<String>, left: &mut Vec<(String, usize)>| {
            while let Some((text, rows)) = left.get_mut(own.len()).filter(|(_, rows)| *rows > 0) {
                *rows -= 1;
                own.push(text.clone());
            }
        };
        for HtmlCell { text, span: (columns, rows) } in row.cells {
            fill(&mut own, &mut left);
            for column in 0..columns {
                let text = if column == 0 { text.replace('|', "\\|") } else { String::new() };
                left.resize(left.len().max(own.len() + 1), (String::new(), 0));
                left[own.len()] = (text.clone(), rows - 1);
                own.push(text);
            }
        }
        fill(&mut own, &mut left);
        rows.push(own);
    }
    let width = rows.iter().map(Vec::len).max().unwrap_or_default();
    let mut shown = String::new();
    for (at, mut row) in rows.into_iter().enumerate() {
        row.resize(width, String::new());
        shown.push_str(&format!("| {} |\n", row.join(" | ")));
        if at == 0 {
            shown.push_str(&format!("|{}\n", "---|".repeat(width)));
        }
    }
    shown
}

/// Returns the ranges from each of some tags to the next of them, or to a tag that closes it.
fn between(lower: &str, opening: &[&str], closing: &[&str]) -> Vec<Range<usize>> {
    let is_one = |at: usize, tag: &&str| {
        let after = lower[at..].strip_prefix(*tag).and_then(|rest| rest.chars().next());
        after.is_some_and(|next| next == '>' || next.is_whitespace())
    };
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut open = None;
    for (at, _) in lower.match_indices('<') {
        let opens = opening.iter().any(|tag| is_one(at, tag));
        if opens || closing.iter().any(|tag| is_one(at, tag)) {
            ranges.extend(open.take().map(|start| start..at));
            open = opens.then_some(at);
        }
    }
    ranges.extend(open.map(|start| start..lower.len()));
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TABLE: &str = "<table>\n <tr><th>Work</th><td title=\"a > b\">A <b>day</b><br>off\n </td></tr>\n <TR>\n  \
                         <td>Points<td>1|2\n </TR>\n<tr><td></td></tr></table>";

    #[test]
    fn rows_have_the_text_of_their_cells() {
        assert!(is_html_table(TABLE) && !is_html_table("<table><tr><td><table></table></table>"));
        let rows = html_rows(TABLE);
        assert_eq!(rows.iter().map(HtmlRow::plain).collect::<Vec<_>>(), ["Work – A day off", "Points – 1|2"]);
        assert!(TABLE[rows[1].range.clone()].starts_with("<TR>"));
        assert_eq!(as_markdown(TABLE), "| Work | A day off |\n|---|---|\n| Points | 1\\|2 |\n");
    }

    #[test]
    fn cells_that_span_others_keep_the_rest_in_its_column() {
        let table = "<table><tr><td colspan=\"3\">Sizes</td></tr><tr><td rowspan='2'>Linux</td><td>arm</td><td>21</td></tr>\
                     <tr><td>x86</td><td><!-- <td>no</td> -->25</td></tr><tr><td>all</td></tr></table>";
        let shown = "| Sizes |  |  |\n|---|---|---|\n| Linux | arm | 21 |\n| Linux | x86 | 25 |\n| all |  |  |\n";
        assert_eq!(as_markdown(table), shown);
    }

    #[test]
    fn tables_are_found_among_text_and_not_in_code() {
        let text = format!("Before.\n\n{TABLE}\n\nAfter.\n\n<table>\n<tr><td>cut</td></tr>\n");
        let tables = html_tables(&text);
        assert_eq!(tables.len(), 2);
        assert!(text[tables[0].clone()] == *TABLE && text[tables[1].clone()].contains("cut"));
        assert!(html_tables(&format!("```\n{TABLE}\n```\n")).is_empty());
        assert!(html_tables("    <table><tr><td>a</td></tr></table>\n").is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in r#"(<table>|</table>|<tr>|</tr>|<td colspan=9>|<td rowspan="3">|</td>|<!--|-->|["<>äİ| ]){0,60}"#) {
            for table in html_tables(&text) {
                let shown = as_markdown(&text[table]);
                let widths = shown.lines().map(|line| line.replace("\\|", "").matches('|').count());
                prop_assert!(widths.collect::<std::collections::BTreeSet<_>>().len() <= 1, "{shown}");
            }
        }
    }
}
