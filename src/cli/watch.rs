//! `dr watch`: keeps the index up to date while folders change.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use clap::Args;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::OutputArgs;
use super::completions;
use super::error::CliError;
use super::exit::Exit;
use super::index::check_names;
use super::progress::IngestProgress;
use super::signal::interruptible;
use super::ui::Ui;
use crate::base::line::{counted, one_line, with_causes};
use crate::base::money::{dollars_text, nanos};
use crate::base::mutex::locked;
use crate::engine::{
    Engine, IndexWatch, IngestEvent, IngestSummary, SkippedFile, WatchEvent, WatchRequest, dollars, duration,
};
use crate::render::json::versioned_line;

/// Keep the index up to date while folders change
///
/// Indexes as `dr index` does, then again whenever files have changed, until it is interrupted. Prints a line each time
/// the index changes. A folder that disappears stays in the index, and is indexed again when it comes back.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr watch docs                        index a folder, then its changes
  dr watch                             all folders of the index
  dr watch --poll 1m ~/shared/wiki     a network file system, which reports no changes
  dr serve --watch                     watch while serving the page")]
pub(super) struct WatchArgs {
    /// Folders to watch
    #[arg(value_name = "PATH")]
    folders: Vec<PathBuf>,

    /// Name of the folder's collection; repeat once per folder (default: the folder's name)
    #[arg(long = "collection", value_name = "NAME", add = completions::collections())]
    collections: Vec<String>,

    /// Skip embedding; the text is searchable, and a later `dr index` adds the vectors
    #[arg(long)]
    no_embed: bool,

    /// Look for changes this often, for example `30s`, instead of asking the system to report them
    #[arg(long, value_name = "TIME", value_parser = interval)]
    poll: Option<Duration>,

    /// Limit in US dollars on embedding, in all, with a server that costs money; `inf` for no limit (default: 10)
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    pub(super) max_cost: Option<f64>,

    #[command(flatten)]
    output: OutputArgs,
}

/// Shortest interval of `--poll`.
const SHORTEST: Duration = Duration::from_secs(1);

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < SHORTEST { Err(format!("`{text}` is shorter than a second")) } else { Ok(interval) }
}

pub(super) async fn watch(ui: &mut Ui, engine: &Engine, args: WatchArgs) -> Result<Exit, CliError> {
    check_names(&args.collections, &args.folders)?;
    let request =
        WatchRequest { folders: args.folders, names: args.collections, embed: !args.no_embed, every: args.poll };
    let stop = interruptible();
    let mut watch = engine.watch(request).await?;
    let mut messages = Messages::default();
    // A watch normally ends by a signal. Only a signal that interrupts indexing leaves work undone.
    let mut exit = Exit::Done;
    while let Some(event) = next(ui, engine, &mut watch, !messages.has_begun, &stop).await? {
        let is_first = !messages.has_begun;
        if let Some(summary) = messages.take(ui, &watch, event).filter(|summary| is_first || summary.has_changes()) {
            let is_json = args.output.is_json();
            ui.print(&if is_json { versioned_line(&summary)? } else { text(&summary) })?;
            if summary.interrupted {
                exit = Exit::Interrupted;
            }
        }
    }
    Ok(if watch.is_behind() { Exit::Interrupted } else { exit })
}

/// Returns the next event. The first indexing shows its progress as `dr index` does, and later ones only if it can be
/// drawn.
async fn next(
    ui: &Ui,
    engine: &Engine,
    watch: &mut IndexWatch,
    is_first: bool,
    stop: &CancellationToken,
) -> Result<Option<WatchEvent>, CliError> {
    let progress = Mutex::new(None);
    let shown = || locked(&progress);
    let listener = |event: IngestEvent| {
        // Created when indexing begins, since nothing is drawn while folders are only watched.
        if matches!(event, IngestEvent::Opened { .. }) && (is_first || ui.can_draw()) {
            *shown() = Some(IngestProgress::new(ui, engine.index_address()));
        }
        if let Some(progress) = shown().as_ref().filter(|_| is_first || !matches!(event, IngestEvent::Opened { .. })) {
            progress.take(&event);
        }
    };
    let event = watch.next(&listener, stop).await;
    if let Some(progress) = shown().as_ref() {
        progress.finish();
    }
    Ok(event?)
}

/// Watches folders alongside a server until `stop`; all folders of the index if none are given. Messages go to
/// stderr.
pub(super) fn beside(ui: &Ui, engine: &Engine, folders: Vec<PathBuf>, stop: CancellationToken) -> JoinHandle<()> {
    let (mut ui, engine) = (ui.another(), engine.clone());
    tokio::spawn(async move {
        let request = WatchRequest { folders, embed: true, ..WatchRequest::default() };
        let watched = async {
            let mut watch = engine.watch(request).await?;
            let mut messages = Messages::default();
            while let Some(event) = watch.next(&|_| (), &stop).await? {
                if let Some(summary) = messages.take(&mut ui, &watch, event).filter(IngestSummary::has_changes) {
                    ui.tell(&format!("indexed: {}", text(&summary)));
                }
            }
            Ok::<_, CliError>(())
        };
        if let Err(error) = watched.await {
            ui.warn(&format!("no folder is watched\n{}", error.message()));
        }
    })
}

/// Messages on stderr while folders are watched.
#[derive(Default)]
struct Messages {
    has_begun: bool,
    /// Files with a problem, as of the latest indexing. They are named once.
    problems: BTreeSet<String>,
}

impl Messages {
    /// Prints an event, and returns the summary if folders were indexed.
    fn take(&mut self, ui: &mut Ui, watch: &IndexWatch, event: WatchEvent) -> Option<IngestSummary> {
        match event {
            WatchEvent::Indexed(summary) => {
                self.tell_problems(ui, &summary);
                if !std::mem::replace(&mut self.has_begun, true) && !summary.interrupted {
                    watch.folders().for_each(|folder| ui.tell(&format!("watching `{}`", folder.display())));
                }
                return Some(summary);
            }
            WatchEvent::Failed(error) => ui.warn(&CliError::from(error).message()),
            WatchEvent::Waiting { holder } => ui.tell(&format!("note: waiting, because {holder} writes the index")),
            WatchEvent::Gone(folder) => {
                ui.tell(&format!("note: folder `{}` is gone; the index keeps what it has of it", folder.display()));
            }
            WatchEvent::Back(folder) => ui.tell(&format!("note: folder `{}` is back", folder.display())),
            WatchEvent::Looking { every, why } => {
                let hint = why.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
                let (why, every) = (with_causes(&why), every.as_secs());
                ui.tell(&format!("note: {why}; looking for changes every {every} s instead{hint}"));
            }
        }
        None
    }

    fn tell_problems(&mut self, ui: &mut Ui, summary: &IngestSummary) {
        let lines = |what: &'static str, files: &[SkippedFile]| {
            let line = move |file: &SkippedFile| {
                let path = one_line(&format!("{}/{}", file.collection, file.path));
                format!("{what} {path}: {}", one_line(&file.reason))
            };
            files.iter().map(line).collect::<Vec<_>>()
        };
        let problems: BTreeSet<_> =
            [lines("skipped", &summary.skipped), lines("warning", &summary.warnings)].into_iter().flatten().collect();
        problems.difference(&self.problems).for_each(|problem| ui.tell(problem));
        self.problems = problems;
    }
}

/// Returns a summary as one line.
fn text(summary: &IngestSummary) -> String {
    let IngestSummary { added, changed, renamed, removed, unchanged, embedded, .. } = summary;
    let counts = [("added", added), ("changed", changed), ("renamed", renamed), ("removed", removed)];
    let mut parts: Vec<_> =
        counts.iter().filter(|(_, count)| **count > 0).map(|(what, count)| format!("{count} {what}")).collect();
    if parts.is_empty() {
        parts.push(format!("{unchanged} unchanged"));
    }
    if *embedded > 0 {
        parts.push(format!("{} embedded", counted(*embedded, "chunk")));
    }
    parts.extend(summary.cost_usd.filter(|cost| *cost > 0.0).map(|cost| dollars_text(nanos(cost))));
    let interrupted = if summary.interrupted { "interrupted after " } else { "" };
    parts.push(format!("{interrupted}{:.1} s", summary.seconds));
    parts.join(", ")
}
