//! The command line: one file per subcommand.
//!
//! The file of a subcommand has its flags and one function that calls the engine and prints through [`ui::Ui`]. It uses
//! `engine`, `render` and `base`, and none of the layers in between, so that other surfaces can share all decisions;
//! `mcp`, `serve` and `traces` are only started here. `layer_tests.rs` enforces this.

pub(crate) mod ui;
pub(crate) mod exit;
pub(crate) mod error;
pub(crate) mod progress;
mod completions;
mod output;
mod prompt;
mod signal;
mod allocator;
mod index;
mod watch;
mod expanded;
mod search;
mod get;
mod open;
mod extract;
mod links;
mod report;
mod limits;
mod live;
mod question;
mod plan;
mod ask;
mod resume;
mod replay;
mod recall;
mod verify;
mod show;
mod runs;
mod mcp;
mod serve;
mod eval;
mod config;
mod doctor;
mod model;
mod trust;

use std::io::IsTerminal;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use futures::FutureExt;
use tracing::Instrument;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use self::error::CliError;
use self::exit::Exit;
use self::live::EventFormat;
use self::ui::{Color, Ui};
use crate::base::file::read_text;
use crate::base::mutex::locked;
use crate::engine::{EmbedderChoice, Engine, Flags, SearchMode, answers_extraction, kill_programs};
use crate::render::json::versioned;
use crate::traces::Traces;

/// Answer research questions from a folder of Markdown
///
/// `dr index` reads a folder into an index, `dr search` finds passages in it, `dr ask` answers a question with
/// citations that code has checked. None of it needs a key, a server or a network.
#[derive(Debug, Parser)]
#[command(name = "dr", version, max_term_width = 100, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten, next_help_heading = "Options of every command")]
    global: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str =
    "Exit codes: 0 done, 1 failed, 2 usage, 3 no evidence or only closest passages, 4 partial, 130 interrupted";

/// Flags of every command.
#[derive(Args, Debug)]
struct GlobalArgs {
    /// Use the index at this folder or address (default: nearest .dr, upward from here) [env: `DR_INDEX`]
    #[arg(long, global = true, value_name = "URI")]
    index: Option<String>,

    /// Compute embeddings with `builtin`, `fastembed:MODEL`, `fastembed:FOLDER` or `endpoint:MODEL` [env:
    /// `DR_EMBEDDER`]
    #[arg(long, global = true, value_name = "EMBEDDER")]
    embedder: Option<EmbedderChoice>,

    /// Open no network socket [env: `DR_OFFLINE`]
    #[arg(long, global = true)]
    offline: bool,

    /// Print only results and errors
    #[arg(short, long, global = true)]
    quiet: bool,

    /// Colour the output
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN", hide_possible_values = true)]
    color: Color,
}

#[derive(Debug, Subcommand)]
enum Command {
    Index(index::IndexArgs),
    Watch(watch::WatchArgs),
    Search(search::SearchArgs),
    Get(get::GetArgs),
    Open(open::OpenArgs),
    Links(links::LinksArgs),
    Ask(ask::AskArgs),
    Plan(plan::PlanArgs),
    Resume(resume::ResumeArgs),
    Replay(replay::ReplayArgs),
    Recall(recall::RecallArgs),
    Verify(verify::VerifyArgs),
    Runs(runs::RunsArgs),
    Show(show::ShowArgs),
    Export(runs::ExportArgs),
    Rm(runs::RmArgs),
    Serve(serve::ServeArgs),
    Mcp(mcp::McpArgs),
    Eval(eval::EvalArgs),
    Doctor(doctor::DoctorArgs),
    Config(config::ConfigArgs),
    Model(model::ModelArgs),
    Trust(trust::TrustArgs),
    Completions(completions::CompletionsArgs),
    #[command(hide = true)]
    Man(completions::ManArgs),
    #[command(hide = true)]
    ExtractDocument(extract::ExtractArgs),
}

impl Command {
    /// Returns the format of messages on stderr.
    fn events(&self) -> EventFormat {
        match self {
            Self::Ask(args) => args.events,
            Self::Resume(args) => args.events,
            _ => EventFormat::Text,
        }
    }
}

/// Output format of commands that print text or JSON.
#[derive(Args, Debug)]
struct OutputArgs {
    /// Print the result as text or json
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: TextFormat,

    /// Short for `--format json`
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum TextFormat {
    /// Human-readable text
    #[default]
    Text,
    /// For programs
    Json,
}

impl OutputArgs {
    fn is_json(&self) -> bool {
        self.json || self.format == TextFormat::Json
    }

    /// Prints a result as JSON, or as the text returned by `text`.
    fn print<T: serde::Serialize>(
        &self,
        ui: &mut Ui,
        result: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), CliError> {
        Ok(ui.print(&if self.is_json() { versioned(result)? } else { text(result) })?)
    }
}

/// How long the end of a command waits for a collector of traces.
const TRACES: Duration = Duration::from_secs(3);

/// How long it waits after a signal, which ends the program soon after.
const TRACES_AFTER_SIGNAL: Duration = Duration::from_millis(300);

/// Parses the command line, runs the command, and returns the exit code.
pub fn run() -> ExitCode {
    // Before the arguments are parsed: the line is still being typed and may be invalid.
    if completions::answered() {
        return Exit::Done.into();
    }
    let parsed = Cli::command().try_get_matches().and_then(|mut matches| {
        let name = matches.subcommand_name().unwrap_or_default().to_owned();
        Ok((name, Cli::from_arg_matches_mut(&mut matches)?))
    });
    let (name, cli) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            // Help may be piped into a reader that closes early, which is not a usage error.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() };
        }
    };
    // Before the runtime, whose threads would not start under its limits.
    if let Command::ExtractDocument(args) = &cli.command {
        return extract::extract(args).into();
    }
    answers_extraction();
    if matches!(cli.command, Command::Index(_) | Command::Watch(_)) {
        allocator::give_memory_back();
    }
    let mut ui = Ui::new(cli.global.color, cli.global.quiet);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(source) => {
            ui.warn(&format!("error: failed to start: {source}"));
            return Exit::Failed.into();
        }
    };
    let traces = Traces::begin();
    start_log(traces.as_ref());
    let events = cli.command.events();
    let panic_place = note_panics();
    let span = tracing::info_span!("command", name, exit = tracing::field::Empty);
    let command = async {
        tracing::debug!("command started");
        Box::pin(dispatch(&mut ui, cli, traces.as_ref())).await
    };
    // The command owns the span, and its exit code is known only once it has ended.
    let log_span = span.clone();
    let command = command.instrument(span);
    let exit = match runtime.block_on(AssertUnwindSafe(command).catch_unwind()) {
        Err(panic) => {
            let place = locked(&panic_place);
            ui.warn(&error::panicked(panic.as_ref(), &place));
            Exit::Failed
        }
        Ok(Ok(exit)) => exit,
        Ok(Err(error)) if error.is_broken_pipe() => Exit::Done,
        Ok(Err(error)) => {
            ui.warn(&error.message());
            error.exit()
        }
    };
    log_span.record("exit", exit as u8);
    drop(log_span);
    // After the output, which must not wait for a collector.
    if let Some(traces) = traces {
        let patience = if exit == Exit::Interrupted { TRACES_AFTER_SIGNAL } else { TRACES };
        let stop = signal::ended(exit);
        if let Some(note) = traces.finish(patience, &runtime, &stop) {
            events.note(&mut ui, &note);
        }
    }
    // An aborted task that has started a program may not be dropped before the process ends.
    kill_programs();
    // Background tasks have nothing left to report.
    runtime.shutdown_background();
    exit.into()
}

/// Notes the place of the latest panic, which is part of the error message. With `DR_LOG`, panics are also printed.
fn note_panics() -> Arc<Mutex<String>> {
    let place = Arc::new(Mutex::new(String::new()));
    let (noted, print) = (Arc::clone(&place), std::panic::take_hook());
    let is_logged = std::env::var_os("DR_LOG").is_some();
    std::panic::set_hook(Box::new(move |panic| {
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        *locked(&noted) = location;
        if is_logged {
            print(panic);
        }
    }));
    place
}

async fn dispatch(ui: &mut Ui, cli: Cli, traces: Option<&Traces>) -> Result<Exit, CliError> {
    let flags = cli.global.flags();
    let engine = |flags: &Flags| {
        let engine = Engine::new(flags)?;
        if let Some(traces) = traces {
            // Only now do the settings say whether and where spans may be exported.
            traces.open(engine.traces());
        }
        Ok::<_, CliError>(engine)
    };
    match cli.command {
        Command::Index(args) => index::index(ui, &engine(&flags.set("max_cost", args.max_cost))?, args).await,
        Command::Watch(args) => watch::watch(ui, &engine(&flags.set("max_cost", args.max_cost))?, args).await,
        Command::Search(args) => {
            let flags = flags.set("mode", args.mode.map(SearchMode::name)).set("limit", args.limit);
            search::search(ui, &engine(&flags)?, args).await
        }
        Command::Get(args) => get::get(ui, &engine(&flags)?, args).await,
        Command::Open(args) => open::open(ui, &engine(&flags)?, args).await,
        Command::Links(args) => links::links(ui, &engine(&flags)?, args).await,
        Command::Ask(args) => ask::ask(ui, &engine(&args.limits.flags(flags))?, args).await,
        Command::Plan(args) => plan::plan(ui, &engine(&args.limits.flags(flags))?, args).await,
        Command::Resume(args) => resume::resume(ui, &engine(&flags.set("model", args.model.clone()))?, args).await,
        Command::Replay(args) => replay::replay(ui, &engine(&flags)?, args).await,
        Command::Recall(args) => recall::recall(ui, &engine(&flags.set("limit", args.limit))?, args).await,
        Command::Verify(args) => verify::verify(ui, &engine(&flags)?, args).await,
        Command::Runs(args) => runs::runs(ui, &engine(&flags)?, args).await,
        Command::Show(args) => show::show(ui, &engine(&flags)?, args).await,
        Command::Export(args) => runs::export(ui, &engine(&flags)?, args).await,
        Command::Rm(args) => runs::rm(ui, &engine(&flags)?, args).await,
        Command::Serve(args) => Box::pin(serve::serve(ui, engine(&args.limits.flags(flags))?, args)).await,
        Command::Mcp(args) => {
            args.enter_project()?;
            Box::pin(mcp::mcp(ui, engine(&args.limits.flags(flags))?, args)).await
        }
        Command::Eval(args) => {
            eval::eval(ui, &engine(&flags.set("mode", args.mode.map(SearchMode::name)))?, args).await
        }
        Command::Doctor(args) => doctor::doctor(ui, &engine(&flags)?, &args).await,
        Command::Config(args) => config::config(ui, &engine(&flags)?, &args),
        Command::Model(args) => model::model(ui, engine(&flags)?, args).await,
        // Before an engine, which is refused where this is needed.
        Command::Trust(args) => match &args.mcp {
            Some(server) => trust::trust_server(ui, &engine(&flags)?, server, &args).await,
            None => trust::trust(ui, &args).await,
        },
        Command::Completions(args) => completions::completions(ui, &args),
        Command::Man(args) => completions::man(&args),
        Command::ExtractDocument(args) => Ok(extract::extract(&args)),
    }
}

impl GlobalArgs {
    fn flags(&self) -> Flags {
        Flags::default()
            .set("index", self.index.clone())
            .set("embedder", self.embedder.as_ref().map(ToString::to_string))
            .set("offline", self.offline.then_some(true))
    }
}

/// Largest JSON file that is read, in bytes: a plan or a schema.
const MAX_JSON_BYTES: u64 = 1_000_000;

/// Reads a JSON file named by the user.
fn read_json(file: &std::path::Path) -> Result<serde_json::Value, CliError> {
    let text = read_text(file, MAX_JSON_BYTES).map_err(CliError::file("read", file))?;
    serde_json::from_str(&text)
        .map_err(|error| CliError::Usage { message: format!("`{}` is not JSON: {error}", file.display()), hint: None })
}

/// Logs to stderr if `DR_LOG` has a filter, and collects traces if they are exported. A span is logged when it closes,
/// with the counts recorded by then.
fn start_log(traces: Option<&Traces>) {
    let log = std::env::var("DR_LOG").ok().map(|filter| {
        // Without rmcp, which logs whole requests and replies, with texts of clients and of the knowledge base.
        let filter = tracing_subscriber::EnvFilter::new(format!("{filter},rmcp=off"));
        let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        let log = log.with_span_events(tracing_subscriber::fmt::format::FmtSpan::CLOSE);
        // A log redirected to a file is searched later, where escape sequences would be in the way.
        let log = log.with_ansi(std::io::stderr().is_terminal());
        // If stderr is closed, an error about writing to it could not be written either.
        log.log_internal_errors(false).with_filter(filter)
    });
    if log.is_some() || traces.is_some() {
        tracing_subscriber::registry().with(traces.map(Traces::layer)).with(log).init();
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use crate::config::SETTINGS;
    use crate::config::kind::Kind;

    #[test]
    fn help_of_a_flag_says_the_default_of_its_setting() {
        let mut seen = 0;
        for command in super::Cli::command().get_subcommands() {
            for setting in SETTINGS.iter().filter(|setting| setting.has_flag) {
                let flag = command.get_arguments().find(|arg| arg.get_long() == Some(&setting.flag_name()[2..]));
                let (Some(flag), Some(default)) = (flag, setting.default) else { continue };
                // `--mode` of `dr ask` is a different setting, and the default of a switch is always off.
                let is_other = setting.name == "mode" && ["ask", "plan"].contains(&command.get_name());
                if is_other || matches!(setting.kind, Kind::Switch) {
                    continue;
                }
                let help = flag.get_help().unwrap().to_string();
                let default = default.trim_matches('"');
                assert!(help.contains(&format!("(default: {default}")), "{} {}: {help}", command.get_name(), flag);
                seen += 1;
            }
        }
        assert!(seen > 10, "{seen} flags were looked at");
    }

    /// An engine opened in another way leaves the gate of the traces closed, so its runs are not exported.
    #[test]
    fn every_command_opens_its_engine_together_with_the_traces() {
        let (code, _) = include_str!("mod.rs").split_once("#[cfg(test)]").unwrap();
        assert_eq!(code.matches("Engine::new(").count(), 1);
    }
}
