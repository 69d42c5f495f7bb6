//! Removes HTML from Markdown.

use super::line::is_tag;

pub(crate) fn without_comments(text: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once("<!--") {
        shown.push_str(before);
        // An unclosed comment hides the rest, as in Markdown.
        rest = after.split_once("-->").map_or("", |(_, after)| after);
    }
    shown + rest
}

/// Removes HTML tags. Text between tags stays.
pub(crate) fn without_html(text: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(open) = rest.find('<') {
        shown.push_str(&rest[..open]);
        let is_escaped = rest[..open].ends_with('\\');
        let tag = rest[open..].split_once('>').filter(|(tag, _)| !is_escaped && is_tag(&format!("{tag}>")));
        match tag {
            Some((tag, after)) => {
                // Elements on separate lines, such as the items of a list in a cell, would otherwise run together.
                match tag.trim_start_matches(['<', '/']).to_ascii_lowercase().as_str() {
                    // "10^6", and the mark of a footnote: "Yes ^4". Not "21st".
                    "sup" if !tag.starts_with("</") && after.starts_with(|letter: char| letter.is_ascii_digit()) => {
                        shown.push('^');
                    }
                    "li" if !tag.starts_with("</") => shown.push_str(" • "),
                    "br" | "br/" | "br /" if ends_in_cell(&shown) => shown.push_str("; "),
                    "br" | "br/" | "br /" | "p" | "div" if !shown.ends_with([' ', '\n']) => shown.push(' '),
                    _ => {}
                }
                rest = after;
            }
            None => match after_empty_element(&rest[open..]).filter(|_| !is_escaped) {
                Some(after) => rest = after,
                None => {
                    shown.push('<');
                    rest = &rest[open + 1..];
                }
            },
        }
    }
    shown + rest
}

/// Returns the text after an element of any name without content, such as `<unlink></unlink>`. A placeholder has no end.
fn after_empty_element(text: &str) -> Option<&str> {
    let (name, after) = text.strip_prefix('<')?.split_once('>')?;
    let is_name = name.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
    after.strip_prefix("</")?.strip_prefix(name)?.strip_prefix('>').filter(|_| is_name)
}

/// Returns whether a text ends within a cell of a Markdown table, without punctuation at its end.
fn ends_in_cell(text: &str) -> bool {
    let is_row = text.rsplit('\n').next().is_some_and(|line| line.trim_start().starts_with('|'));
    is_row && text.ends_with(|letter: char| letter.is_alphanumeric() || matches!(letter, ')' | '"' | '`' | '*' | '%'))
}
