//! The one variable that is read from a `.env` file.
//!
//! Such a file travels with a folder that may be somebody else's, so nothing in it but the key counts: no address, no
//! setting.

use std::path::Path;

/// Longest file that is read.
const MAX_BYTES: u64 = 64 * 1_024;

/// Returns what `name` is set to in a `.env` file; nothing where there is no file, or it is set to nothing.
pub(super) fn variable(file: &Path, name: &str) -> Option<String> {
    let is_small = std::fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_BYTES);
    let text = is_small.then(|| std::fs::read_to_string(file).ok()).flatten()?;
    // As in a shell, the last one wins.
    text.lines().rev().find_map(|line| value_of(line, name)).filter(|value| !value.is_empty())
}

/// Reads `NAME=value`, with or without `export`, quotes, and a comment behind it.
fn value_of(line: &str, name: &str) -> Option<String> {
    let line = line.trim();
    let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
    let value = line.strip_prefix(name)?.trim_start().strip_prefix('=')?.trim();
    let quoted = ['"', '\''].into_iter().find_map(|quote| value.strip_prefix(quote)?.split_once(quote));
    let value = match quoted {
        Some((inside, _)) => inside,
        None => value.split(" #").next().unwrap_or(value).trim_end(),
    };
    Some(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_read_in_every_usual_form() {
        for line in ["KEY=sk-1", " export KEY = sk-1 ", "KEY=\"sk-1\" # mine", "KEY='sk-1'", "KEY=sk-1 # mine"] {
            assert_eq!(value_of(line, "KEY").as_deref(), Some("sk-1"), "{line}");
        }
        for line in ["# KEY=sk-1", "KEYS=sk-1", "MY_KEY=sk-1", "KEY", ""] {
            assert_eq!(value_of(line, "KEY"), None, "{line}");
        }
    }

    #[test]
    fn last_line_wins_and_nothing_is_no_value() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(".env");
        assert_eq!(variable(&file, "KEY"), None);
        std::fs::write(&file, "KEY=a\nKEY=b\nOTHER=\n").unwrap();
        assert_eq!(variable(&file, "KEY").as_deref(), Some("b"));
        assert_eq!(variable(&file, "OTHER"), None);
    }
}
