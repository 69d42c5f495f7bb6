//! Terminal output: data on stdout, messages on stderr, colours.

use std::io::{IsTerminal, Write};
use std::path::Path;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use reqwest::Url;

use crate::base::line::printable;

/// Paths, lines and addresses.
pub(crate) const PLACE: Style = AnsiColor::Cyan.on_default();
/// Secondary text, such as the headings above a passage.
pub(crate) const QUIET: Style = Style::new().dimmed();
/// Matched words.
pub(crate) const MATCH: Style = AnsiColor::Yellow.on_default().bold();
/// Success.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// Notes and warnings.
pub(crate) const NOTE: Style = AnsiColor::Yellow.on_default();
/// Errors.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The output streams of a command.
pub(crate) struct Ui {
    out: AutoStream<std::io::Stdout>,
    err: AutoStream<std::io::Stderr>,
    color: Color,
    pub(crate) quiet: bool,
}

impl Ui {
    /// Opens stdout and stderr with the given colour choice.
    pub(crate) fn new(color: Color, quiet: bool) -> Self {
        let choice = match color {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        };
        let (out, err) = (AutoStream::new(std::io::stdout(), choice), AutoStream::new(std::io::stderr(), choice));
        Self { out, err, color, quiet }
    }

    /// Returns a handle on the same streams, for a background task.
    pub(crate) fn another(&self) -> Self {
        Self::new(self.color, self.quiet)
    }

    /// Writes data to stdout, with a final newline.
    pub(crate) fn print(&mut self, text: &str) -> std::io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            self.out.write_all(b"\n")?;
        }
        self.out.flush()
    }

    /// Writes bytes to stdout unchanged.
    #[expect(clippy::unused_self, reason = "the terminal is reached through `Ui` alone")]
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        // Not through `out`, which would remove escape sequences that are part of the data.
        let mut out = std::io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()
    }

    /// Prints a message to stderr, unless `--quiet` is set.
    pub(crate) fn tell(&mut self, text: &str) {
        if !self.quiet {
            self.warn(text);
        }
    }

    /// Prints a warning to stderr, even with `--quiet`. Failures are ignored: a closed stderr must not end a run.
    pub(crate) fn warn(&mut self, text: &str) {
        let _ = writeln!(self.err, "{}", printable(text));
    }

    /// Prints a styled message to stderr, unless `--quiet` is set.
    pub(crate) fn tell_styled(&mut self, style: Style, text: &str) {
        if !self.quiet {
            let _ = writeln!(self.err, "{}", styled(style, &printable(text)));
        }
    }

    /// Returns whether stdout is a terminal.
    pub(crate) fn is_for_people() -> bool {
        std::io::stdout().is_terminal()
    }

    /// Returns whether stdout is a terminal that is known to show hyperlinks (OSC 8). Others may print their escape
    /// sequences.
    pub(crate) fn shows_links(&self) -> bool {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self::is_for_people() && self.color != Color::Never && knows_links(&variable)
    }

    /// Returns whether a report is formatted for a terminal: stdout is one, or `--color always` is set.
    pub(crate) fn formats(&self) -> bool {
        Self::is_for_people() || self.color == Color::Always
    }

    /// Returns whether progress may be drawn: stderr is a terminal and `--quiet` is not set.
    pub(crate) fn can_draw(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }
}

/// Returns whether the terminal described by these variables shows hyperlinks. A terminal inside another that may not
/// show them does not count.
fn knows_links(variable: &dyn Fn(&str) -> Option<String>) -> bool {
    const PROGRAMS: [&str; 8] = ["iTerm.app", "WezTerm", "vscode", "ghostty", "WarpTerminal", "mintty", "rio", "Hyper"];
    const TERMS: [&str; 6] = ["xterm-kitty", "xterm-ghostty", "alacritty", "foot", "contour", "wezterm"];
    let term = variable("TERM").unwrap_or_default();
    let is_inside = variable("TMUX").is_some() || term.starts_with("screen") || term.starts_with("tmux");
    if variable("NO_COLOR").is_some() || term == "dumb" || is_inside {
        return false;
    }
    // Hyperlinks are shown from VTE 0.50 on.
    let is_new_vte =
        variable("VTE_VERSION").and_then(|version| version.parse().ok()).is_some_and(|version: u32| version >= 5_000);
    is_new_vte
        || variable("TERM_PROGRAM").is_some_and(|program| PROGRAMS.contains(&program.as_str()))
        || TERMS.iter().any(|known| term.starts_with(known))
        || ["KONSOLE_VERSION", "WT_SESSION", "KITTY_WINDOW_ID"].iter().any(|name| variable(name).is_some())
}

/// Returns the address of a file with an absolute path, for a link. Control characters, which could end the link, are
/// escaped.
pub(crate) fn file_address(file: &Path) -> String {
    Url::from_file_path(file).map(String::from).unwrap_or_default()
}

/// Returns `text` as a hyperlink to an address without control characters.
pub(crate) fn linked(address: &str, text: &str) -> String {
    format!("\u{1b}]8;;{address}\u{1b}\\{text}\u{1b}]8;;\u{1b}\\")
}

/// Wraps `text` in the escape sequences of a style.
pub(crate) fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_for_terminals_that_are_known_to_show_them() {
        for (variables, expected) in [
            (&[("TERM_PROGRAM", "WezTerm"), ("TERM", "xterm-256color")][..], true),
            (&[("TERM", "xterm-kitty")], true),
            (&[("VTE_VERSION", "7200")], true),
            (&[("VTE_VERSION", "4800")], false),
            (&[("WT_SESSION", "1")], true),
            (&[("TERM", "xterm-256color")], false),
            (&[("TERM", "xterm-kitty"), ("NO_COLOR", "1")], false),
            (&[("TERM", "dumb"), ("VTE_VERSION", "7200")], false),
            (&[("TERM", "tmux-256color"), ("VTE_VERSION", "7200")], false),
            (&[("TERM", "xterm-kitty"), ("TMUX", "/tmp/tmux")], false),
            (&[], false),
        ] {
            let variable =
                |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            assert_eq!(knows_links(&variable), expected, "{variables:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn name_of_a_file_cannot_end_its_link() {
        let address = file_address(Path::new("/kb/a b\u{1b}\\é;#?.md"));
        assert_eq!(address, "file:///kb/a%20b%1B%5C%C3%A9;%23%3F.md");
        assert_eq!(linked(&address, "a"), format!("\u{1b}]8;;{address}\u{1b}\\a\u{1b}]8;;\u{1b}\\"));
    }
}
