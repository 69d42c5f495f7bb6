//! The context of a passage, as printed by `dr search --expand` and `dr get --expand`.

use std::fmt::Write;

use super::ui::{PLACE, QUIET, styled};
use crate::base::line::one_line;
use crate::engine::{Neighbourhood, NoteName};

/// Returns the outline of the document of a passage and the notes linked with it, each line after `indent`.
pub(super) fn around(found: &Neighbourhood, indent: &str) -> String {
    let Neighbourhood { outline, links, backlinks, .. } = found;
    let mut text = String::new();
    if !outline.is_empty() {
        let _ = writeln!(text, "{indent}Outline:");
    }
    let width = outline.iter().map(|heading| heading.line.to_string().len()).max().unwrap_or_default();
    // The top heading of a note need not have level 1.
    let top = outline.iter().map(|heading| heading.level).min().unwrap_or_default();
    for heading in outline {
        let deep = "  ".repeat(usize::from(heading.level - top));
        let line = styled(QUIET, &format!("{:>width$}", heading.line));
        let _ = writeln!(text, "{indent}  {line}  {deep}{}", one_line(&heading.text));
    }
    notes(&mut text, indent, "Links to:", links);
    notes(&mut text, indent, "Linked from:", backlinks);
    text
}

fn notes(text: &mut String, indent: &str, what: &str, notes: &[NoteName]) {
    if !notes.is_empty() {
        let _ = writeln!(text, "{indent}{what}");
    }
    for NoteName { path, title, .. } in notes {
        let _ = writeln!(text, "{indent}  {}  {}", styled(PLACE, &one_line(path)), styled(QUIET, &one_line(title)));
    }
}
