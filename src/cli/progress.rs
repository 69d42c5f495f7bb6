//! Indexing drawn as bars on a terminal, or told as lines.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::ui::Ui;
use crate::kb::ingest::IngestEvent;

/// Lines about the same thing come at most this often.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

const FILES: &str = "{spinner} reading   {bar:30} {pos}/{len} files, {msg}, {eta} left";
const CHUNKS: &str = "{spinner} embedding {bar:30} {pos}/{len} chunks, {per_sec}, {eta} left";
const STEP: &str = "{spinner} {msg}";

/// Shows what [`crate::kb::ingest::ingest`] does.
pub struct IngestProgress {
    bar: Option<ProgressBar>,
    tells: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    files: usize,
    chunks: usize,
    to_embed: usize,
    told: Option<Instant>,
}

impl IngestProgress {
    /// Draws where that can be seen, tells lines elsewhere, and is silent when people want quiet.
    pub fn new(ui: &Ui) -> Self {
        let bar = ui.can_draw().then(|| {
            let bar = ProgressBar::new(0);
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { tells: bar.is_none() && !ui.is_quiet(), bar, state: Mutex::default() }
    }

    /// Takes note of an event.
    pub fn take(&self, event: &IngestEvent) {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match event {
            IngestEvent::Compared { to_read } => {
                state.files = 0;
                self.start(FILES, *to_read, &format!("{to_read} files to read"));
            }
            IngestEvent::Committed { files, chunks } => {
                state.files += files;
                state.chunks += chunks;
                let message = format!("{} chunks", state.chunks);
                self.advance(state.files, &message);
                let line = format!("{} files read, {} chunks", state.files, state.chunks);
                self.tell_now_and_then(&mut state, &line);
            }
            IngestEvent::IndexingText => self.start(STEP, 0, "indexing text"),
            IngestEvent::EmbeddingStarted { chunks } => {
                state.to_embed = *chunks;
                state.told = None;
                self.start(CHUNKS, *chunks, &format!("{chunks} chunks to embed"));
            }
            IngestEvent::Embedded { chunks } => {
                self.advance(*chunks, "");
                let line = format!("{chunks} of {} chunks embedded", state.to_embed);
                self.tell_now_and_then(&mut state, &line);
            }
            IngestEvent::IndexingVectors => self.start(STEP, 0, "indexing vectors"),
        }
    }

    /// Removes what was drawn.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn start(&self, template: &str, length: usize, line: &str) {
        match &self.bar {
            Some(bar) => {
                if let Ok(style) = ProgressStyle::with_template(template) {
                    bar.set_style(style);
                }
                bar.reset();
                bar.set_length(length as u64);
                bar.set_message(if template == STEP { line.to_owned() } else { String::new() });
            }
            None => self.tell(line),
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
            None => state.told = Some(now),
            Some(told) if now.duration_since(told) < LINE_INTERVAL => {}
            Some(_) => {
                state.told = Some(now);
                self.tell(line);
            }
        }
    }

    #[expect(clippy::print_stderr, reason = "this is where progress is told")]
    fn tell(&self, line: &str) {
        if self.tells {
            eprintln!("{line}");
        }
    }
}
