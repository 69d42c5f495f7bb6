//! Untrusted text made safe and pleasant to print: no terminal escapes, no invisible characters, on one line where
//! needed.

/// Characters of a server's or library's message that are printed; enough for a sentence, not for a page of HTML.
const MAX_SHOWN: usize = 300;

/// Collapses each run of white space and control characters into one space and removes invisible characters.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.chars().filter(|letter| !is_invisible(*letter)) {
        if !letter.is_whitespace() && !letter.is_control() {
            line.push(letter);
        } else if !line.is_empty() && !line.ends_with(' ') {
            line.push(' ');
        }
    }
    line.truncate(line.trim_end().len());
    line
}

/// Returns [`one_line`] of `text`, cut to [`MAX_SHOWN`] characters.
pub(crate) fn shortened(text: &str) -> String {
    cut(text, MAX_SHOWN)
}

/// Returns [`one_line`] of `text`. If it has more than `most` characters, it is cut there and ends in `…`.
pub(crate) fn cut(text: &str, most: usize) -> String {
    let line = one_line(text);
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", line[..end].trim_end()),
        None => line,
    }
}

/// Returns the beginning of a text, at most `most` bytes, cut between characters.
pub(crate) fn beginning(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// Removes control and invisible characters other than line feeds and tabs.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|letter| is_printable(*letter)).collect()
}

/// Returns whether [`printable`] keeps a character.
pub(crate) fn is_printable(letter: char) -> bool {
    matches!(letter, '\n' | '\t') || !(letter.is_control() || is_invisible(letter))
}

/// Returns the innermost cause of an error. The outer ones mostly repeat the address.
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => innermost(cause),
        None => error.to_string(),
    }
}

/// Returns the error and its causes, joined by `: `. A cause is left out if the text before it already ends with it:
/// some libraries include the cause in their own message.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        source = cause.source();
    }
    text
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// Returns a number with its noun: `1 file`, `2 files`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Formats a number with thousands separators: `12,345`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Returns whether a character has no width or changes the direction of text.
pub fn is_invisible(letter: char) -> bool {
    // The last range is tags: characters that are invisible on screen, but that a language model reads.
    matches!(u32::from(letter), 0xAD | 0x61C | 0x115F | 0x180E | 0x3164 | 0x200B..=0x200F | 0x202A..=0x202E | 0x2060..=0x206F | 0xFEFF | 0xE0000..=0xE007F)
}

/// Returns the text of a numbered list item; `None` for any other line.
pub(crate) fn numbered_item(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let is_marker = rest.len() < line.len() && (rest.starts_with(". ") || rest.starts_with(") "));
    is_marker.then(|| &rest[2..])
}

/// Returns the text of an item of a bulleted list; `None` for any other line.
pub(crate) fn bulleted_item(line: &str) -> Option<&str> {
    ["- ", "* ", "+ "].iter().find_map(|bullet| line.strip_prefix(bullet))
}

/// Returns the headings below a title. The first heading of a note often repeats the title, in this or another letter
/// case.
pub(crate) fn below_title<'a>(title: &str, headings: &'a [String]) -> Vec<&'a str> {
    let title = title.to_lowercase();
    headings.iter().map(String::as_str).filter(|heading| heading.to_lowercase() != title).collect()
}

/// Returns whether a line is a directive of mdBook, Hugo, Jekyll or the like, or includes a file.
pub(crate) fn is_directive(line: &str) -> bool {
    let ends = [("{{", "}}"), ("{%", "%}"), (":::", "")];
    // With two of them, there is text between: "{% if a %}Ring twice.{% endif %}".
    let is_one =
        |open: &str, close: &str| line.starts_with(open) && line.ends_with(close) && line.matches(open).count() == 1;
    ends.iter().any(|(open, close)| is_one(open, close)) || includes_file(line)
}

/// Returns whether a line includes a file: `[!include[name](path)]`, but not `[!NOTE]`.
fn includes_file(line: &str) -> bool {
    let Some(directive) = line.strip_prefix("[!").filter(|rest| rest.ends_with(']')) else { return false };
    let rest = directive.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric() || letter == '-');
    rest.len() < directive.len() && rest.starts_with(['[', ' '])
}

/// Maximum length of the label of a field, in bytes and in words.
const MAX_LABEL: usize = 40;
const MAX_LABEL_WORDS: usize = 4;

/// Returns whether a line is a field of a note: a label and what it stands for, as in `**Owner:** Ann`.
pub(crate) fn is_field(line: &str) -> bool {
    let is_mark = |letter: char| matches!(letter, '*' | '_');
    let Some((label, value)) = line.trim_start_matches(is_mark).split_once(':') else { return false };
    let label = label.trim_end_matches(is_mark);
    let is_name = |letter: char| letter.is_alphanumeric() || " -_/&()'’.".contains(letter);
    label.len() <= MAX_LABEL
        && label.starts_with(char::is_uppercase)
        && label.chars().all(is_name)
        && !label.contains(". ")
        && label.split(' ').count() <= MAX_LABEL_WORDS
        && value.trim_start_matches(is_mark).starts_with(' ')
}

/// Last words of a line whose sentence goes on in the next one.
const GOING_ON: &str = "a|an|and|are|as|at|by|for|from|in|is|of|on|or|that|the|to|was|were|with";

/// Returns whether a paragraph consists of fields, each on a line of its own. A line that is not a field continues
/// the one above it.
pub(crate) fn has_fields(paragraph: &str) -> bool {
    let mut lines = paragraph.lines();
    let goes_on = |line: &str| {
        let last = line.trim_end().rsplit(' ').next().unwrap_or_default();
        last.ends_with(',') || GOING_ON.split('|').any(|word| word == last)
    };
    // Marks may be paired across lines, and other blocks may follow without an empty line.
    let is_whole = |line: &str| {
        let begins_block = line.trim_start().starts_with(['|', '>', '#', '-', '+', '~', '`']) || line.starts_with("* ");
        line.matches('`').count().is_multiple_of(2) && line.matches("**").count().is_multiple_of(2) && !begins_block
    };
    let is_cut = |pair: &[&str]| goes_on(pair[0]) && is_field(pair[1]);
    let all: Vec<_> = paragraph.lines().collect();
    lines.next().is_some_and(is_field)
        && lines.any(is_field)
        && all.iter().all(|line| is_whole(line))
        && !all.windows(2).any(is_cut)
}

/// Names of HTML elements that are written in Markdown.
const ELEMENTS: &str = "a abbr address article aside audio b blockquote body br button caption center cite code col \
    colgroup dd del details dfn div dl dt em embed fieldset figcaption figure font footer form g h1 h2 h3 h4 h5 h6 head \
    header hr html i iframe img input ins kbd label legend li link main mark math meta nav noscript object ol optgroup \
    option p path picture pre q rp rt ruby s samp script section select small source span strike strong style sub \
    summary sup svg table tbody td template textarea tfoot th thead time title tr track tt u ul var video wbr";

/// Returns whether a line consists of one HTML tag, including that of a custom element or component. `<name>` and
/// `<ann@b.org>` are text.
pub(crate) fn is_tag(line: &str) -> bool {
    line.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).is_some_and(|inner| {
        let name = inner.strip_prefix('/').unwrap_or(inner);
        let (name, attributes) =
            name.split_once(|letter: char| letter.is_whitespace() || letter == '/').unwrap_or((name, ""));
        let is_element = || {
            let is_component =
                name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase) && !name.contains('_');
            // Without attributes, it is as likely to be a placeholder.
            let is_custom = name.contains('-') && (!attributes.is_empty() || inner.starts_with('/'));
            is_component
                || is_custom
                || attributes.contains('=')
                || ELEMENTS.split(' ').any(|own| own.eq_ignore_ascii_case(name))
        };
        // Quoted values of attributes may contain anything.
        let outside_values = || inner.split('"').step_by(2);
        name.starts_with(char::is_alphabetic)
            && is_element()
            && inner.matches('"').count().is_multiple_of(2)
            && outside_values().all(|part| !part.contains(['<', '>']) && !part.contains("://"))
    })
}

/// Tells which lines of Markdown are in a code block. It ends at a line with as many marks as it began with, and no text.
#[derive(Debug, Default)]
pub(crate) struct CodeFence<'a> {
    /// The marks of the open block; empty outside of one.
    open: &'a str,
}

impl<'a> CodeFence<'a> {
    /// Takes the next line, and returns whether it is in a code block or one of its fences.
    pub(crate) fn takes(&mut self, line: &'a str) -> bool {
        let line = line.trim();
        let text = line.trim_start_matches(['`', '~']);
        let marks = &line[..line.len() - text.len()];
        match self.open {
            // With another backtick on the line it is a code span.
            "" if marks.len() < 3 || text.contains('`') => return false,
            "" => self.open = marks,
            open if text.is_empty() && marks.starts_with(open) => self.open = "",
            _ => {}
        }
        true
    }

    /// Returns whether the next line would be in a code block.
    pub(crate) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_that_includes_a_file_is_a_directive_and_a_callout_is_none() {
        for line in [
            "{{#include a.rs}}",
            ":::note",
            "[!include[Mills](../mills.md)]",
            "[!INCLUDE [mill](a.md)]",
            "[!code-c[Main](a.c)]",
        ] {
            assert!(is_directive(line), "{line}");
        }
        assert!(!is_directive("{% if a %}Ring twice.{% endif %}") && !is_directive(":::tip Ring twice:::"));
        assert!(["[!NOTE]", "[a](b)", "[!include[Mills](mills.md)] says more"].iter().all(|line| !is_directive(line)));
    }

    #[test]
    fn code_block_ends_at_a_fence_without_text() {
        let mut fence = CodeFence::default();
        let lines = ["a", "```sh", "", "```no", "~~~", "````", "```x``` b", "~~~", "```", "~~~", "c"];
        let code: Vec<_> = lines.into_iter().filter(|line| fence.takes(line)).collect();
        assert_eq!(code, ["```sh", "", "```no", "~~~", "````", "~~~", "```", "~~~"]);
    }

    #[test]
    fn fields_are_labels_with_values_on_lines_of_their_own() {
        assert!(has_fields("**Firm:** Mill & Co\n**Last contact**: in May,\nby Ann") && has_fields("A: b\nC: d"));
        for text in [
            "**Owner:** Ann",
            "It is so:\nOwner: Ann",
            "At 10:30\nAt 11:30",
            "See: it\nhttp://a.b",
            "Owner: A\n- B: c",
            "Call on\nMonday: at six",
            "Day: they meet on\nMonday: at six",
            "Owner: A\nFee: b\n| c | d |\n|---|---|",
            "Owner: `a\nFee: b`",
        ] {
            assert!(!has_fields(text), "{text}");
        }
    }

    #[test]
    fn line_has_no_breaks_controls_or_invisible_letters() {
        assert_eq!(one_line(" a\r\n\tb\u{1b}[31mc\u{202e}d\u{200b} "), "a b [31mcd");
        assert_eq!((cut("as it is", 8), cut("as \n it is", 3)), ("as it is".to_owned(), "as…".to_owned()));
        assert_eq!(printable("a\n\u{1b}]0;x\u{7}\tb\u{feff}"), "a\n]0;x\tb");
    }

    #[test]
    fn tag_may_have_anything_in_the_values_of_its_attributes() {
        assert!(is_tag("<Listing number=\"1\" caption=\"an `Arc<T>`, see https://a.b\">") && is_tag("</Listing>"));
        assert!(!is_tag("<https://a.b>") && !is_tag("<a> and <b>") && !is_tag("<a title=\"Arc<T>"));
    }
}
