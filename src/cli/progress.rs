//! Progress of indexing: bars on a terminal, lines elsewhere.

use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{DecimalBytes, ProgressBar, ProgressStyle};

use super::ui::Ui;
use crate::base::line::{counted, printable};
use crate::base::money::dollars_text;
use crate::base::mutex::locked;
use crate::engine::{Downloading, IngestEvent, Rebuild, ToSend};

/// Shortest interval between two lines about the same step.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

const FILES: &str = "{spinner} reading   {bar:30} {pos}/{len} files, {msg}, {eta} left";
const CHUNKS: &str = "{spinner} embedding {bar:30} {pos}/{len} chunks, {per_sec}, {eta} left";
const BYTES: &str = "{spinner} {msg} {bar:30} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
const STEP: &str = "{spinner} {msg}";

/// Shows the progress of [`Engine::index`](crate::engine::Engine::index).
pub(crate) struct IngestProgress {
    bar: Option<ProgressBar>,
    tells: bool,
    location: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The file that is being downloaded.
    file: String,
    files: usize,
    chunks: usize,
    to_embed: usize,
    told: Option<Instant>,
}

impl IngestProgress {
    /// Draws on a terminal, prints lines elsewhere, and prints nothing with `--quiet`.
    pub(crate) fn new(ui: &Ui, location: String) -> Self {
        let bar = ui.can_draw().then(|| {
            let bar = ProgressBar::new(0);
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { tells: bar.is_none() && !ui.quiet, bar, location, state: Mutex::default() }
    }

    /// Updates the display.
    pub(crate) fn take(&self, event: &IngestEvent) {
        let mut state = locked(&self.state);
        match event {
            IngestEvent::Downloading(download) => self.take_download(&mut state, download),
            IngestEvent::Opened { is_new, rebuild } => {
                let verb = match rebuild {
                    _ if *is_new => "creating",
                    Rebuild::No => "using",
                    Rebuild::Text | Rebuild::Embedder | Rebuild::All => "rebuilding",
                };
                self.say(&format!("{verb} index `{}`", self.location));
                match rebuild {
                    Rebuild::Text => {
                        self.say("it was made by an earlier version; all files are read again, and vectors are kept");
                    }
                    Rebuild::Embedder => self.say("its vectors are from another embedder; all are computed again"),
                    Rebuild::No | Rebuild::All => {}
                }
            }
            IngestEvent::Compared { to_read: 0 } => {}
            IngestEvent::Compared { to_read } => {
                state.files = 0;
                self.start(FILES, *to_read, &format!("{} to read", counted(*to_read, "file")));
            }
            IngestEvent::Committed { files, chunks } => {
                state.files += files;
                state.chunks += chunks;
                let message = counted(state.chunks, "chunk");
                self.advance(state.files, &message);
                let line = format!("{} read, {}", counted(state.files, "file"), counted(state.chunks, "chunk"));
                self.tell_now_and_then(&mut state, &line);
            }
            IngestEvent::IndexingText => self.start(STEP, 0, "indexing text"),
            IngestEvent::EmbeddingStarted { chunks, to_send } => {
                state.to_embed = *chunks;
                state.told = None;
                let to_embed = format!("{} to embed", counted(*chunks, "chunk"));
                if let Some(ToSend { address, tokens, cost_nanos }) = to_send {
                    let cost = match cost_nanos {
                        Some(0) => String::new(),
                        Some(nanos) => format!(", up to {}", dollars_text(*nanos)),
                        None => ", at an unknown price".to_owned(),
                    };
                    self.say(&format!("{to_embed} at {address}: up to {tokens} tokens{cost}"));
                    self.draw(CHUNKS, *chunks, "");
                } else {
                    self.start(CHUNKS, *chunks, &to_embed);
                }
            }
            IngestEvent::Embedded { chunks } => {
                self.advance(*chunks, "");
                let line = format!("{chunks} of {} embedded", counted(state.to_embed, "chunk"));
                self.tell_now_and_then(&mut state, &line);
            }
            IngestEvent::PaidBeforeError { chunks, cost_nanos } => {
                let paid = dollars_text(*cost_nanos);
                self.say(&format!(
                    "{} embedded and kept before the error, at a cost of {paid}",
                    counted(*chunks, "chunk")
                ));
            }
            IngestEvent::IndexingVectors => self.start(STEP, 0, "indexing vectors"),
        }
    }

    fn take_download(&self, state: &mut State, download: &Downloading) {
        let Downloading { model, file, done, size } = download;
        let of = size.map_or_else(String::new, |size| format!(" of {}", DecimalBytes(size)));
        if state.file != *file {
            state.file.clone_from(file);
            state.told = Some(Instant::now());
            self.start(BYTES, 0, &format!("downloading {model}: {file}{}", of.replacen(" of", ",", 1)));
        }
        if let Some(bar) = &self.bar {
            bar.set_length(size.unwrap_or(*done));
            bar.set_position(*done);
            bar.set_message(format!("{model} {file}"));
        }
        self.tell_now_and_then(state, &format!("{file}: {}{of}", DecimalBytes(*done)));
    }

    /// Clears the display.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn start(&self, template: &str, length: usize, line: &str) {
        if self.bar.is_none() {
            self.tell(line);
        }
        self.draw(template, length, if template == STEP { line } else { "" });
    }

    /// Starts a bar anew, if there is one.
    fn draw(&self, template: &str, length: usize, message: &str) {
        if let Some(bar) = &self.bar {
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.reset();
            bar.set_length(length as u64);
            bar.set_message(message.to_owned());
        }
    }

    fn advance(&self, place: usize, message: &str) {
        if let Some(bar) = &self.bar {
            bar.set_position(place as u64);
            bar.set_message(message.to_owned());
        }
    }

    fn tell_now_and_then(&self, state: &mut State, line: &str) {
        let now = Instant::now();
        match state.told {
            // The step has just been announced on a separate line.
            None => state.told = Some(now),
            Some(told) if now.duration_since(told) < LINE_INTERVAL => {}
            Some(_) => {
                state.told = Some(now);
                self.tell(line);
            }
        }
    }

    /// Prints a line, above the bar if there is one.
    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(printable(line)),
            None => self.tell(line),
        }
    }

    fn tell(&self, line: &str) {
        if self.tells {
            // Ignored: a closed stderr must not end the indexing.
            let _ = writeln!(std::io::stderr(), "{}", printable(line));
        }
    }
}
