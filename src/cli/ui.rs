//! Terminal output: data on stdout, messages on stderr, colours.

use std::io::{IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

use crate::base::line::printable;

/// Locations.
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
    quiet: bool,
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

    /// Writes data to stdout, with a final newline.
    ///
    /// # Errors
    ///
    /// Returns an error if stdout is closed.
    pub(crate) fn print(&mut self, text: &str) -> std::io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            self.out.write_all(b"\n")?;
        }
        self.out.flush()
    }

    /// Writes bytes to stdout as they are.
    ///
    /// # Errors
    ///
    /// Returns an error if stdout is closed.
    #[expect(clippy::unused_self, reason = "the terminal is reached through `Ui` alone")]
    pub(crate) fn pass(&mut self, bytes: &[u8]) -> std::io::Result<()> {
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

    /// Returns whether a report is formatted for a terminal: stdout is one, or `--color always` is set.
    pub(crate) fn formats(&self) -> bool {
        Self::is_for_people() || self.color == Color::Always
    }

    /// Returns whether progress may be drawn: stderr is a terminal and `--quiet` is not set.
    pub(crate) fn can_draw(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }

    /// Returns whether `--quiet` is set.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }
}

/// Wraps `text` in the escape sequences of a style.
pub(crate) fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}
