//! Reduces Markdown to what a reader sees.

use std::borrow::Cow;

use super::html::{without_comments, without_html};
use super::html_table::{as_markdown, html_tables};
use super::line::{has_fields, is_directive, is_field, is_tag};

/// Last words of a link's text that does not say where the link leads, and the maximum length of such a text in words.
const NAMELESS: [&str; 12] = [
    "channel", "document", "form", "here", "link", "page", "repo", "repository", "site", "spreadsheet", "this",
    "website",
];
const MAX_NAMELESS_WORDS: usize = 4;

/// Maximum length of an address that is shown, in bytes.
const MAX_ADDRESS: usize = 120;

/// Returns the Markdown of a unit as a reader sees it: without HTML, comments, template directives and images, except
/// those that fill a cell, and not indented. Links are reduced to their text, with the address if the text does not say
/// where they lead. A table in HTML becomes one in Markdown.
pub(crate) fn readable(markdown: &str) -> String {
    let (mut shown, mut from) = (Vec::new(), 0);
    for table in html_tables(markdown) {
        shown.push(readable_text(&markdown[from..table.start]));
        shown.push(as_markdown(&markdown[table.clone()]).trim_end().to_owned());
        from = table.end;
    }
    shown.push(readable_text(&markdown[from..]));
    shown.retain(|part| !part.is_empty());
    shown.join("\n\n")
}

/// [`readable`] of a text without tables in HTML.
fn readable_text(markdown: &str) -> String {
    let mut shown = String::new();
    let mut prose = String::new();
    let mut code: Option<(String, Vec<String>)> = None;
    let push = |shown: &mut String, text: &str| {
        if !text.trim().is_empty() {
            shown.push_str(text);
        }
        shown.push('\n');
    };
    for line in not_indented(&without_comments(markdown)) {
        let bare = line.trim();
        if let Some((mark, lines)) = &mut code {
            if !is_directive(bare) {
                lines.push(line.to_owned());
            }
            let closes = |letter: char| mark.starts_with(letter);
            if bare.len() >= mark.len() && bare.chars().all(closes) {
                // A code block that held directives alone is dropped with its fence.
                if lines.len() > 2 {
                    push(&mut shown, &lines.join("\n"));
                }
                code = None;
            }
            continue;
        }
        let marks = bare.len() - bare.trim_start_matches(['`', '~']).len();
        // With another backtick on the line it is a code span.
        if marks >= 3 && !bare[marks..].contains('`') {
            push(&mut shown, &shown_prose(&prose));
            prose.clear();
            code = Some((bare[..marks].to_owned(), vec![line.to_owned()]));
        } else if !is_directive(bare) && !is_tag(bare) && !is_callout_mark(bare) {
            // Collected, since a link or a tag may continue on the next line.
            prose.push_str(&without_callout_mark(line));
            prose.push('\n');
        }
    }
    push(&mut shown, &shown_prose(&prose));
    if let Some((mark, mut lines)) = code {
        // Cut inside a code block: the fence is closed, so that what follows is not taken for code.
        lines.push(mark);
        push(&mut shown, &lines.join("\n"));
    }
    let blank_lines_once = shown.lines().fold(Vec::<&str>::new(), |mut lines, line| {
        if !line.trim().is_empty() || lines.last().is_some_and(|last| !last.trim().is_empty()) {
            lines.push(line);
        }
        lines
    });
    blank_lines_once.join("\n").trim_end().to_owned()
}

/// Returns prose, which is text outside of code, as a reader sees it.
fn shown_prose(prose: &str) -> String {
    with_fields(&with_bold(&without_links(prose)))
}

/// Makes each field of a note an item of a list, so that it keeps its line.
fn with_fields(text: &str) -> String {
    let item = |line: &str| if is_field(line) { format!("- {line}") } else { line.to_owned() };
    let shown = |paragraph: &str| {
        if has_fields(paragraph) { paragraph.split_inclusive('\n').map(item).collect() } else { paragraph.to_owned() }
    };
    text.split("\n\n").map(shown).collect::<Vec<String>>().join("\n\n")
}

/// Makes lines such as `** Name **` bold, which the spaces inside the marks prevent.
fn with_bold(text: &str) -> String {
    let line = |line: &str| {
        let inner = line.trim().strip_prefix("** ").and_then(|rest| rest.strip_suffix(" **")).map(str::trim);
        match inner.filter(|inner| !inner.is_empty() && !inner.contains("**")) {
            Some(inner) => format!("**{inner}**\n"),
            None => line.to_owned(),
        }
    };
    text.split_inclusive('\n').map(line).collect()
}

/// Returns whether a line only names the kind of a callout: `> [!NOTE]`.
fn is_callout_mark(line: &str) -> bool {
    line.contains("[!") && without_callout_mark(line).trim_matches(['>', ' ']).is_empty()
}

/// Cuts the kind of a callout out of its first line: `> [!NOTE] Take care.`
fn without_callout_mark(line: &str) -> Cow<'_, str> {
    let text = line.trim_start_matches([' ', '>']);
    let before = &line[..line.len() - text.len()];
    // Outside of a quotation, only a line that has nothing else.
    match after_callout_mark(text).filter(|after| before.contains('>') || after.trim().is_empty()) {
        Some(after) => Cow::Owned(format!("{before}{}", after.trim_start())),
        None => Cow::Borrowed(line),
    }
}

/// Returns the text after a callout marker such as `[!NOTE]`.
pub(crate) fn after_callout_mark(text: &str) -> Option<&str> {
    let (kind, after) = text.strip_prefix("[!")?.split_once(']')?;
    kind.chars().all(char::is_alphabetic).then_some(after)
}

/// Returns the text after the box of a task: `[ ] Call Ann`.
pub(crate) fn after_task_box(text: &str) -> Option<&str> {
    ["[ ] ", "[x] ", "[X] "].iter().find_map(|mark| text.strip_prefix(mark))
}

/// Returns the lines of a unit without the indentation they share; the first has none.
fn not_indented(text: &str) -> Vec<&str> {
    let indent = |line: &&str| line.len() - line.trim_start_matches(' ').len();
    let rest = text.lines().skip(1).filter(|line| !line.trim().is_empty());
    // Below a list item, indentation is nesting.
    let shared = if text.starts_with(['-', '*', '+']) { 0 } else { rest.map(|line| indent(&line)).min().unwrap_or(0) };
    let cut = |(at, line): (usize, &'_ str)| if at == 0 { 0 } else { shared.min(indent(&line)) };
    text.lines().enumerate().map(|(at, line)| &line[cut((at, line))..]).collect()
}

/// Reduces wiki links, reference links, footnote marks, images and HTML to the text that a reader sees, outside code.
fn without_links(text: &str) -> String {
    let parts: Vec<_> = text.split('`').collect();
    // Backticks that do not pair are no code.
    if parts.len().is_multiple_of(2) {
        return without_links_in(&without_tags(text));
    }
    // Links may have code in their text, so code is put back after links are reduced.
    let is_code = |at: usize| at % 2 == 1;
    let held = |(at, part): (usize, &&str)| if is_code(at) { HELD.to_string() } else { without_tags(part) };
    let reduced = without_links_in(&parts.iter().enumerate().map(held).collect::<String>());
    let mut codes = parts.iter().enumerate().filter(|(at, _)| is_code(*at)).map(|(_, code)| code);
    let mut shown = String::with_capacity(reduced.len());
    for letter in reduced.chars() {
        match letter {
            HELD => shown.push_str(&codes.next().map(|code| format!("`{code}`")).unwrap_or_default()),
            letter => shown.push(letter),
        }
    }
    shown
}

/// Stands for a code span while links are reduced. A private character, so a text that has it loses no more than a
/// sign.
const HELD: char = '\u{f8fe}';

/// Removes images that are given as directives: `:::image source="a.png":::`.
fn without_image_directives(text: &str) -> String {
    let mut parts = text.split(":::image ");
    let first = parts.next().unwrap_or_default();
    let after = |part: &'_ str| part.split_once(":::").map_or(part, |(_, after)| after).to_owned();
    std::iter::once(first.to_owned()).chain(parts.map(after)).collect()
}

/// Removes struck-out text, with a space beside it, images and HTML tags. Text between tags stays.
fn without_tags(text: &str) -> String {
    let text = without_image_directives(text);
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text.as_str());
    while let Some((before, struck)) = rest.split_once("~~") {
        let Some((_, after)) = struck.split_once("~~") else { break };
        kept.push_str(before);
        rest = if before.ends_with(' ') { after.trim_start_matches(' ') } else { after };
    }
    kept.push_str(rest);
    without_html(&kept)
}

fn without_links_in(text: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(open) = rest.find('[') {
        let (before, after) = rest.split_at(open);
        let is_image = before.ends_with('!');
        let before = if is_image { &before[..before.len() - 1] } else { before };
        shown.push_str(before);
        match link(after) {
            // Code in the name of an image is kept: it is put back in order.
            Some((text, length)) if is_image => {
                shown.extend(text.chars().filter(|letter| *letter == HELD));
                rest = &after[length..];
                let is_cell =
                    shown.trim_end_matches(' ').ends_with('|') && rest.trim_start_matches(' ').starts_with('|');
                shown.push_str(if is_cell { image_name(text, &after[..length]) } else { "" });
                // Bold marks around an image alone.
                if shown.ends_with("**")
                    && let Some(after) = rest.strip_prefix("**")
                {
                    shown.truncate(shown.len() - 2);
                    rest = after;
                }
            }
            Some((text, length)) => {
                rest = &after[length..];
                // A footnote begins with its mark: `[^1]: Text`.
                let opens_line = || shown.rsplit('\n').next().is_some_and(|line| line.trim().is_empty());
                if after.starts_with("[^")
                    && opens_line()
                    && let Some(note) = rest.strip_prefix(':')
                {
                    rest = note.trim_start_matches(' ');
                }
                // The spaces of a link move beside it, once: "see [ the map ](map.md)."
                let (starts, ends) = (text.starts_with(char::is_whitespace), text.ends_with(char::is_whitespace));
                let is_apart = shown.is_empty() || shown.ends_with(char::is_whitespace);
                shown.push_str(if starts && !is_apart { " " } else { "" });
                shown.push_str(text.trim());
                if let Some(address) = address(text, &after[..length]) {
                    shown.push_str(&format!(" ({address})"));
                }
                shown.push_str(if ends && rest.starts_with(char::is_alphanumeric) { " " } else { "" });
            }
            None => {
                shown.push('[');
                rest = &after[1..];
            }
        }
    }
    shown + rest
}

/// Returns the text for an image that fills a table cell, such as a check mark: its description, otherwise the name of
/// its file.
fn image_name<'a>(description: &'a str, link: &'a str) -> &'a str {
    let says = description.contains(char::is_alphanumeric) && !description.to_lowercase().contains("not found");
    let file = link.rsplit(['/', '(']).next().unwrap_or_default();
    let stem = file.split(['.', ')', ' ', '?']).next().unwrap_or_default();
    let is_name = stem.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_'));
    match () {
        () if says => description,
        () if is_name => stem.strip_prefix("icon-").unwrap_or(stem),
        () => "",
    }
}

/// Returns the address of a link to the web if its text does not say where it leads: "[this form](https://…)".
fn address<'a>(text: &str, link: &'a str) -> Option<&'a str> {
    let last = text.trim().rsplit(|letter: char| !letter.is_alphanumeric()).next()?.to_lowercase();
    let is_nameless = NAMELESS.contains(&last.as_str()) && text.split_whitespace().count() <= MAX_NAMELESS_WORDS;
    let address = link.rsplit_once("](")?.1.strip_suffix(')')?;
    // Characters that are no markup.
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-.~:/?#=&%+,@;".contains(letter);
    let is_plain = address.len() <= MAX_ADDRESS && address.chars().all(is_plain) && !address.contains(text.trim());
    let is_web = address.starts_with("https://") || address.starts_with("http://");
    (is_nameless && is_plain && is_web).then_some(address)
}

/// Parses a link at the start of a text. Returns the text that a reader sees and the length of the link in bytes.
fn link(text: &str) -> Option<(&str, usize)> {
    if let Some(inner) = text.strip_prefix("[[") {
        let (inner, _) = inner.split_once("]]")?;
        let shown = inner.rsplit_once('|').map_or(inner, |(_, alias)| alias);
        return (!inner.contains(['[', '\n'])).then_some((shown, inner.len() + 4));
    }
    let (label, rest) = label(&text[1..])?;
    let own = label.len() + 2;
    if label.starts_with('^') {
        return Some(("", own));
    }
    for (open, close) in [('(', ')'), ('[', ']')] {
        if let Some(inner) = rest.strip_prefix(open)
            && let Some(inner) = closed(inner, open, close)
        {
            // A reference consists of one short name; `a[0][1]` is no link.
            let is_link =
                open == '(' || (!label.is_empty() && !label.chars().all(char::is_numeric) && inner.len() < 80);
            return is_link.then_some((label, own + inner.len() + 2));
        }
    }
    None
}

/// Splits a text after an open bracket where that is closed. A backslash may stand before another bracket.
fn label(text: &str) -> Option<(&str, &str)> {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            '[' if !is_escaped => return None,
            ']' if !is_escaped => return Some((&text[..at], &text[at + 1..])),
            _ => is_escaped = letter == '\\' && !is_escaped,
        }
    }
    None
}

/// Returns the part of a text before the bracket that closes it. An address may have brackets in pairs.
fn closed(text: &str, open: char, close: char) -> Option<&str> {
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if letter == open => depth += 1,
            _ if letter == close && depth == 0 => return Some(&text[..at]),
            _ if letter == close => depth -= 1,
            _ => {}
        }
    }
    // Brackets that do not pair: up to the first that closes.
    text.split_once(close).map(|(inner, _)| inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_a_link_may_have_brackets_and_the_mark_of_a_callout_is_not_shown() {
        assert_eq!(readable("See [t](https://e.org/a_(b)) and [u](v)."), "See t and u.");
        assert_eq!(readable("> [!NOTE]\n> Take care."), "> Take care.");
        assert_eq!(readable("[!NOTE]\n> Take care."), "> Take care.");
        assert_eq!(readable(r"It is. ![\[No image\]](a.png) [x \[1\]](b)"), r"It is.  x \[1\]");
        assert_eq!(readable("It is **![a](b.png)** so, **** or not."), "It is  so, **** or not.");
        assert_eq!(readable("> [!NOTE] **Take care.**\n> Now."), "> **Take care.**\n> Now.");
        assert_eq!(
            readable("```\na\n```Text\n\n```\nSo."),
            "```\na\n```Text\n\n```\nSo.",
            "a fence has no text behind it"
        );
        assert_eq!(
            readable("**See [ the map ](m).**\n\n ** [Edition](#e) **   <a name=\"e\"></a>"),
            "**See the map.**\n\n**Edition**"
        );
    }

    #[test]
    fn address_is_shown_if_the_text_of_a_link_does_not_say_where_it_leads() {
        let shown = readable("Ask by [this form](https://e.org/f-1?a=b), [here][h], or read [the page](page.md).");
        assert_eq!(shown, "Ask by this form (https://e.org/f-1?a=b), here, or read the page.");
        assert_eq!(readable("Read [the guide of Ann](https://e.org)."), "Read the guide of Ann.");
        assert_eq!(readable("[https://e.org/page](https://e.org/page)"), "https://e.org/page");
        assert_eq!(readable("[here](https://e.org/_a_/*b*)"), "here", "its marks would be markup");
    }

    #[test]
    fn image_that_fills_a_cell_is_shown_by_its_description_or_the_name_of_its_file() {
        let row = r"| a | ![\[Image NOT FOUND\]](http://e.org/icon-yes.png)  | ![No](n.svg) |![](x/done.png?v=1)| ![](a+b.png) |";
        assert_eq!(readable(row), "| a | yes  | No |done|  |");
        assert_eq!(readable("| a | see ![b](c.png) |"), "| a | see  |");
    }

    #[test]
    fn lines_of_a_cell_are_divided_where_their_text_does_not() {
        assert_eq!(readable("| a | 32 MB (x)<br><br>4 MB.<br>So. |"), "| a | 32 MB (x); 4 MB. So. |");
        assert_eq!(readable("It is<br>so."), "It is so.");
        assert_eq!(readable("| a :::image type=\"icon\" source=\"b.png\"::: c | 10<sup>6</sup> |"), "| a  c | 10^6 |");
    }

    #[test]
    fn reader_sees_no_comments_directives_targets_of_links_or_html_lines() {
        let text = "See [[notes/plan|the plan]], [[b]], [c](d.md), [e][f], `a[0][1]` and x[1].[^2] <!-- hidden -->\n\
            <Listing number=\"1\">\n\n```rust\n{{#rustdoc_include x}}\n```\n\n</Listing>\n![i](p.png)\n```\n[a][b]\n```";
        assert_eq!(readable(text), "See the plan, b, c, e, `a[0][1]` and x[1]. \n\n```\n[a][b]\n```");
        assert_eq!(readable("These parts[^2]: a lid.\n\n[^2]: The note."), "These parts: a lid.\n\nThe note.");
    }

    #[test]
    fn table_in_html_is_shown_as_one_in_markdown() {
        let text = "It <b>is</b>:\n\n<table>\n<tr><td>a</td><td><ul><li>b</li><li>c</li></ul></td></tr>\n</table>";
        assert_eq!(readable(text), "It is:\n\n| a | • b • c |\n|---|---|");
        assert_eq!(readable(&format!("{text}\n\nSo it is.")).lines().last(), Some("So it is."));
    }

    #[test]
    fn addresses_and_placeholders_in_angle_brackets_are_no_tags() {
        assert_eq!(readable("Ann <<ann@b.org>> <b>is</b> <Note kind=\"x\">here</Note>"), "Ann <<ann@b.org>> is here");
        assert_eq!(
            readable(r"from \<commit hash> of <add versions> to <name>"),
            r"from \<commit hash> of <add versions> to <name>"
        );
        assert_eq!(readable("incident.<unlink></unlink>io, <x></y>"), "incident.io, <x></y>");
        assert_eq!(readable(r"so \<x></x> is"), r"so \<x></x> is");
        assert_eq!(readable("<details open><summary>More</summary><my-box a>x</my-box>"), "Morex");
    }
}
