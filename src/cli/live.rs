//! Progress of a run: a live tree on a terminal, lines elsewhere, JSON Lines with `--events jsonl`.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::ui::Ui;
use crate::base::line::{cut, one_line, printable};
use crate::base::money::dollars_text;
use crate::base::mutex::locked;
use crate::engine::{
    BudgetLimits, CallNotice, Engine, Event, LINE_CHARACTERS, Observer, Progress, RunEvent, Section, Spent, event_line,
};
use crate::render::json::escaped;
use crate::render::tree::{TreeStyle, tree_lines};

/// Lines of a section shown as a preview.
const PREVIEW_LINES: usize = 6;

/// Redraw interval of the spinner.
const TICK: Duration = Duration::from_millis(120);

/// Format of the events of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum EventFormat {
    /// Human-readable text
    #[default]
    Text,
    /// One JSON object a line
    Jsonl,
}

impl EventFormat {
    /// Notes that a key in the project's `.env` is ignored, if there is one.
    pub(super) fn note_ignored_key(self, ui: &mut Ui, engine: &Engine) {
        if let Some(folder) = engine.ignored_key() {
            let (file, folder) = (folder.join(".env"), folder.display());
            self.note(ui, &format!("the key in `{}` is ignored; `dr trust {folder}` allows it", file.display()));
        }
    }

    /// Prints a note in the format of the events.
    pub(super) fn note(self, ui: &mut Ui, text: &str) {
        match self {
            Self::Text => ui.tell(&format!("note: {text}")),
            Self::Jsonl => say(&escaped(&json!({ "kind": "note", "text": text }).to_string())),
        }
    }
}

/// Displays the progress of a run.
pub(super) struct Live {
    shown: Arc<LiveState>,
}

struct LiveState {
    bar: Option<ProgressBar>,
    format: Option<EventFormat>,
    view: Mutex<LiveView>,
}

#[derive(Default)]
struct LiveView {
    progress: Option<Progress>,
    call: String,
    spent: Option<Spent>,
    /// Preview of the section written last.
    written: String,
}

impl Live {
    /// Draws on a terminal, prints lines elsewhere, and prints nothing with `--quiet`.
    pub(super) fn new(ui: &Ui, format: EventFormat) -> Self {
        let draws = ui.can_draw() && format == EventFormat::Text;
        let bar = draws.then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(TICK);
            bar
        });
        // Even with `--quiet`, a program gets the events that it requested.
        let tells = bar.is_none() && (!ui.quiet || format == EventFormat::Jsonl);
        Self { shown: Arc::new(LiveState { bar, format: tells.then_some(format), view: Mutex::default() }) }
    }

    /// Returns the observer to give to the engine.
    pub(super) fn observer(&self) -> Observer {
        let shown = Arc::clone(&self.shown);
        Arc::new(move |event| shown.take(event))
    }

    /// Frees the terminal for other output until the guard is dropped.
    pub(super) fn pause(&self) -> Pause {
        if let Some(bar) = &self.shown.bar {
            // Otherwise the next tick would draw over the answer being typed.
            bar.disable_steady_tick();
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        Pause(self.shown.bar.clone())
    }

    /// Clears the display.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.shown.bar {
            bar.finish_and_clear();
        }
    }
}

/// Guard that keeps the display hidden until it is dropped.
pub(super) struct Pause(Option<ProgressBar>);

impl Drop for Pause {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.enable_steady_tick(TICK);
        }
    }
}

impl LiveState {
    fn take(&self, event: RunEvent) {
        match self.format {
            Some(EventFormat::Jsonl) => say(&escaped(&json!(event).to_string())),
            Some(EventFormat::Text) => match &event {
                RunEvent::Event { event, progress } if is_worth_telling(progress) => say(&event_line(event)),
                RunEvent::Written { section } => say(&format!("written: {}", cut(&section.title, LINE_CHARACTERS))),
                RunEvent::Note { .. } | RunEvent::Instead { .. } => note(&event).iter().for_each(|note| say(note)),
                RunEvent::Event { .. } | RunEvent::Call { .. } => {}
            },
            None => {}
        }
        if let Some(bar) = &self.bar {
            if let Some(note) = note(&event) {
                bar.println(printable(&note));
            }
            let mut view = locked(&self.view);
            view.take(event);
            bar.set_message(view.text());
        }
    }
}

impl LiveView {
    fn take(&mut self, event: RunEvent) {
        match event {
            RunEvent::Event { event, progress } => {
                self.progress = Some(progress);
                // The mark of the node in the tree below already shows that.
                if !matches!(event.event, Event::NodeStarted { .. }) {
                    self.call = event_line(&event);
                }
            }
            RunEvent::Call { notice, spent } => {
                self.spent = Some(spent);
                self.call = match notice {
                    CallNotice::Sent(key, kind) => format!("calling {kind} ({key})"),
                    CallNotice::Retried(key, error) => format!("retrying {key}: {error}"),
                    CallNotice::Replied(key, kind) => format!("{kind} replied ({key})"),
                };
            }
            RunEvent::Written { section } => self.written = preview(&section),
            // Printed above the view.
            RunEvent::Note { .. } => {}
            // Printed above as well. The following events are of another run.
            RunEvent::Instead { .. } => *self = Self::default(),
        }
    }

    fn text(&self) -> String {
        let limits = self.progress.as_ref().map_or(BudgetLimits::NONE, |progress| progress.limits);
        let spent = self.spent.map(|spent| spent_text(spent, limits)).unwrap_or_default();
        let head = printable(&format!("{}{spent}", cut(&self.call, LINE_CHARACTERS)));
        let lines = self.progress.as_ref().map(|progress| tree_lines(&progress.tree, TreeStyle::default()));
        let tree = lines.unwrap_or_default().join("\n");
        format!("{head}\n{}{}", printable(&tree), printable(&self.written))
    }
}

/// Formats an event that is a note.
fn note(event: &RunEvent) -> Option<String> {
    let (text, hint) = match event {
        RunEvent::Note { text, hint } => (text.clone(), hint.as_deref()),
        RunEvent::Instead { why, hint } => (format!("answering without a model: {why}"), Some(hint.as_str())),
        RunEvent::Event { .. } | RunEvent::Call { .. } | RunEvent::Written { .. } => return None,
    };
    let hint = hint.map(|hint| format!("\nhint: {}", one_line(hint))).unwrap_or_default();
    Some(format!("note: {}{hint}", one_line(&text)))
}

/// Formats the amounts spent with their limits.
fn spent_text(spent: Spent, limits: BudgetLimits) -> String {
    let total = spent.total();
    let money = match limits.cost_nanos {
        Some(limit) => format!("{} of {}", dollars_text(total.cost_nanos), dollars_text(limit)),
        None => dollars_text(total.cost_nanos),
    };
    let tokens = limits.tokens.map(|limit| format!(" of {limit}")).unwrap_or_default();
    format!(" · {} tokens{tokens} · {money}", total.tokens)
}

/// Returns whether to print lines for a run. One without a model finishes too fast for them to be useful.
fn is_worth_telling(progress: &Progress) -> bool {
    progress.round > 0 && !progress.by_rules
}

fn preview(section: &Section) -> String {
    let lines = section.text.lines().filter(|line| !line.trim().is_empty()).take(PREVIEW_LINES);
    let lines: Vec<_> = lines.map(|line| format!("  {}", cut(line, LINE_CHARACTERS))).collect();
    format!("\n\nwriting: {}\n{}", cut(&section.title, LINE_CHARACTERS), lines.join("\n"))
}

fn say(line: &str) {
    // Ignored: a closed stderr must not end a run.
    let _ = writeln!(std::io::stderr(), "{}", printable(line));
}
