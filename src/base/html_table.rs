//! Reads the rows of a table that is written in HTML, as many Markdown files have it.

use std::ops::Range;

use super::line::one_line;
use super::readable::without_html;

/// A row of a table: its bytes, and the text of its cells.
pub(crate) struct HtmlRow {
    pub(crate) range: Range<usize>,
    pub(crate) cells: Vec<String>,
}

/// Returns whether a text is one table in HTML, with no other in it.
pub(crate) fn is_html_table(text: &str) -> bool {
    let lower = text.trim().to_ascii_lowercase();
    lower.starts_with("<table") && lower.ends_with("</table>") && lower.matches("<table").count() == 1
}

/// Returns where the table in HTML begins that a text ends with.
pub(crate) fn html_table_in(text: &str) -> Option<usize> {
    let at = text.to_ascii_lowercase().find("<table")?;
    is_html_table(&text[at..]).then_some(at)
}

/// Returns the rows of a table in HTML that have text.
pub(crate) fn html_rows(table: &str) -> Vec<HtmlRow> {
    // ASCII, so that offsets are those of the text.
    let lower = table.to_ascii_lowercase();
    let rows = between(&lower, &["<tr"], &["</tr", "</table"]);
    let rows = rows.into_iter().map(|range| {
        let cells = between(&lower[range.clone()], &["<td", "<th"], &["</td", "</th"]);
        let text = |cell: Range<usize>| {
            let own = &table[range.start + cell.start..range.start + cell.end];
            one_line(&without_html(own.split_once('>').map_or("", |(_, text)| text)))
        };
        HtmlRow { cells: cells.into_iter().map(text).collect(), range }
    });
    rows.filter(|row| row.cells.iter().any(|cell| !cell.is_empty())).collect()
}

/// Returns a table in HTML as a table in Markdown; `None` if it has no rows.
pub(crate) fn as_markdown(table: &str) -> Option<String> {
    let rows = html_rows(table);
    let row = |row: &HtmlRow| {
        format!("| {} |\n", row.cells.iter().map(|cell| cell.replace('|', "\\|")).collect::<Vec<_>>().join(" | "))
    };
    let (head, rest) = rows.split_first()?;
    let rule = format!("|{}\n", "---|".repeat(head.cells.len()));
    Some([row(head), rule].into_iter().chain(rest.iter().map(row)).collect())
}

/// Returns the ranges from each of some tags to the next of them, or to a tag that closes it.
fn between(lower: &str, opening: &[&str], closing: &[&str]) -> Vec<Range<usize>> {
    let is_tag = |at: usize, tag: &str| {
        let after = lower[at + tag.len()..].chars().next();
        lower[at..].starts_with(tag) && after.is_some_and(|next| next == '>' || next.is_whitespace())
    };
    let starts = |tags: &[&str]| -> Vec<usize> {
        let places = lower.match_indices('<').map(|(at, _)| at);
        places.filter(|at| tags.iter().any(|tag| lower[*at..].starts_with(tag) && is_tag(*at, tag))).collect()
    };
    let (opens, closes) = (starts(opening), starts(closing));
    let end = |(at, start): (usize, &usize)| {
        let next = opens.get(at + 1).copied().unwrap_or(lower.len());
        closes.iter().copied().find(|close| close > start).map_or(next, |close| close.min(next))
    };
    opens.iter().enumerate().map(|(at, start)| *start..end((at, start))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "<table>\n <tr><th>Work</th><td>A <b>day</b>\n </td></tr>\n <TR>\n  <td>Points<td>1|2\n </TR>\n\
                         <tr><td></td></tr></table>";

    #[test]
    fn rows_have_the_text_of_their_cells() {
        assert!(is_html_table(TABLE) && !is_html_table("<table><tr><td><table></table></table>"));
        let rows = html_rows(TABLE);
        assert_eq!(rows.iter().map(|row| row.cells.join(",")).collect::<Vec<_>>(), ["Work,A day", "Points,1|2"]);
        assert!(TABLE[rows[1].range.clone()].starts_with("<TR>"));
        assert_eq!(as_markdown(TABLE).unwrap(), "| Work | A day |\n|---|---|\n| Points | 1\\|2 |\n");
        assert_eq!(as_markdown("<table><thead></thead></table>"), None);
    }
}
