//! stdout for data, stderr for people; colour and width.

use std::io::{IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

use crate::base::line::printable;

/// Letters that may be added: titles, places, matched words.
pub const PLACE: Style = AnsiColor::Cyan.on_default();
/// Headings above a passage.
pub const QUIET: Style = Style::new().dimmed();
/// Words that matched.
pub const MATCH: Style = AnsiColor::Yellow.on_default().bold();
/// Something good.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Something to know.
pub const NOTE: Style = AnsiColor::Yellow.on_default();
/// Something bad.
pub const BAD: Style = AnsiColor::Red.on_default().bold();

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Where a command writes.
pub struct Ui {
    out: AutoStream<std::io::Stdout>,
    err: AutoStream<std::io::Stderr>,
    quiet: bool,
}

impl Ui {
    /// Opens both streams.
    pub fn new(color: Color, quiet: bool) -> Self {
        let choice = match color {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        };
        Self { out: AutoStream::new(std::io::stdout(), choice), err: AutoStream::new(std::io::stderr(), choice), quiet }
    }

    /// Writes data.
    ///
    /// # Errors
    ///
    /// Returns an error where nobody can read it any more.
    pub fn print(&mut self, text: &str) -> std::io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            self.out.write_all(b"\n")?;
        }
        self.out.flush()
    }

    /// Tells people something, unless they want quiet.
    pub fn tell(&mut self, text: &str) {
        if !self.quiet {
            self.warn(text);
        }
    }

    /// Tells people something they must know. A closed stderr cannot be told anything.
    pub fn warn(&mut self, text: &str) {
        let _ = writeln!(self.err, "{}", printable(text));
    }

    /// Tells people something in a style, unless they want quiet.
    pub fn tell_styled(&mut self, style: Style, text: &str) {
        if !self.quiet {
            let _ = writeln!(self.err, "{}", styled(style, &printable(text)));
        }
    }

    /// Tells whether people see what is printed, and not a file or a program.
    pub fn is_for_people(&self) -> bool {
        std::io::stdout().is_terminal()
    }

    /// Tells whether progress can be drawn.
    pub fn can_draw(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }

    /// Tells whether people want no news.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }
}

/// Returns `text` in a style.
pub fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}
