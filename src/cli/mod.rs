//! The command line: one file per subcommand.
//!
//! The file of a subcommand has its flags and one function that calls the engine and prints through [`ui::Ui`]. It uses
//! `engine`, `render`, `config` and `base`, and none of the layers in between, so that other surfaces can share all
//! decisions; `mcp`, `serve` and `traces` are only started here. A test below enforces this.

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
use crate::config::Flags;
use crate::engine::{EmbedderChoice, Engine, SearchMode, answers_extraction, kill_programs};
use crate::render::json::versioned;
use crate::traces::Traces;

/// Answer research questions from a folder of Markdown
///
/// `dr index` reads a folder into an index, `dr search` finds passages in it, `dr ask` answers a question with
/// citations that code has checked. Everything works with no key, no server and no network.
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
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::{Path, PathBuf};

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

    /// Returns the modules of the crate that a text uses, including those in braces.
    fn modules_used(text: &str) -> BTreeSet<&str> {
        let name = |text: &'_ str| text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
        let mut used = BTreeSet::new();
        for (at, start) in text.match_indices("crate::") {
            let rest = &text[at + start.len()..];
            let Some(list) = rest.strip_prefix('{') else {
                used.insert(&rest[..name(rest)]);
                continue;
            };
            let mut depth = 1;
            let mut is_first = true;
            for (at, c) in list.char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    ',' if depth == 1 => is_first = true,
                    _ if is_first && c.is_alphabetic() => {
                        used.insert(&list[at..at + name(&list[at..])]);
                        is_first = false;
                    }
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
            }
        }
        used
    }

    #[test]
    fn modules_are_found_inside_of_braces() {
        let text = "use crate::{engine::{Engine, Mode}, kb};\nuse crate::base::line;\nfn f() -> crate::llm::Role {}";
        assert_eq!(modules_used(text).into_iter().collect::<Vec<_>>(), ["base", "engine", "kb", "llm"]);
    }

    /// The table of `ARCHITECTURE.md`: each layer, and the layers above it that it may use.
    const LAYERS: [(&str, &str); 13] = [
        ("base", ""),
        ("traces", "base"),
        ("kb", "base"),
        ("llm", "base"),
        ("source", "base traces kb llm"),
        ("research", "base kb llm source"),
        ("run", "base traces kb llm source research"),
        ("render", "base kb llm source research"),
        ("config", "base traces kb llm source research run"),
        ("engine", "base traces kb llm source research run render config"),
        ("mcp", "base render engine"),
        ("serve", "base render engine mcp"),
        ("cli", "base traces render config engine mcp serve"),
    ];

    /// Returns the code of a module without comments and tests.
    fn code_of(path: &Path) -> String {
        if path.is_dir() {
            let files = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
            // By the file name only: the checkout itself may be below a folder of tests.
            let is_code =
                |file: &PathBuf| !file.file_name().is_some_and(|name| name.to_string_lossy().contains("tests"));
            return files.filter(is_code).map(|file| code_of(&file)).collect();
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            return String::new();
        }
        // The folder or the file of a layer may be missing.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        code.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn each_layer_uses_only_the_layers_it_may() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let library = std::fs::read_to_string(source.join("lib.rs")).unwrap();
        let declared =
            library.lines().filter_map(|line| line.strip_suffix(';')?.rsplit_once("mod ").map(|(_, name)| name));
        let names = LAYERS.map(|(name, _)| name);
        assert_eq!(declared.take(names.len()).collect::<Vec<_>>(), names, "the order of `lib.rs`");
        for (layer, may_use) in LAYERS {
            let code = ["", ".rs"].map(|end| code_of(&source.join(format!("{layer}{end}")))).concat();
            assert!(code.contains("crate::") || layer == "base", "{layer} was read");
            for used in modules_used(&code).into_iter().filter(|used| names.contains(used) && *used != layer) {
                assert!(may_use.split(' ').any(|may| may == used), "`{layer}` uses `{used}`");
            }
        }
    }

    /// Returns the file behind each name that the module of a folder re-exports from one of `files`.
    fn reexported(folder: &Path, files: &BTreeSet<String>) -> BTreeMap<String, String> {
        let code = [folder.join("mod.rs"), folder.with_extension("rs")].map(|path| code_of(&path)).concat();
        let mut found = BTreeMap::new();
        for item in code.split("use ").skip(1).filter_map(|rest| rest.split(';').next()) {
            let item = item.strip_prefix("self::").unwrap_or(item);
            let Some((file, names)) = item.split_once("::").filter(|(file, _)| files.contains(*file)) else { continue };
            found.extend(words(names).map(|name| (name.to_owned(), file.to_owned())));
        }
        found
    }

    /// Returns the names that a file uses of its parent module, alone and in braces.
    fn names_of_parent(code: &str) -> BTreeSet<&str> {
        let item = |rest: &'_ str| match rest.strip_prefix('{') {
            Some(_) => rest.find("};").unwrap_or_default(),
            None => rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len()),
        };
        code.match_indices("super::")
            .flat_map(|(at, start)| {
                let rest = &code[at + start.len()..];
                words(&rest[..item(rest)])
            })
            .collect()
    }

    fn words(text: &str) -> impl Iterator<Item = &str> {
        text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
    }

    /// Returns the files of a folder that each of its files uses, by name or through what the module of the folder
    /// re-exports. That module itself is left out, since it declares them all.
    fn uses_within(folder: &Path) -> BTreeMap<String, BTreeSet<String>> {
        let name = |file: PathBuf| file.file_name().unwrap().to_str()?.strip_suffix(".rs").map(str::to_owned);
        let files = std::fs::read_dir(folder).unwrap().filter_map(|entry| name(entry.unwrap().path()));
        let files: BTreeSet<_> = files.filter(|name| name != "mod" && !name.contains("tests")).collect();
        let reexported = reexported(folder, &files);
        let uses = |file: &String| {
            let code = code_of(&folder.join(format!("{file}.rs"))).replace("super::super::", "");
            let names = names_of_parent(&code);
            let behind: BTreeSet<_> = names.iter().filter_map(|name| reexported.get(*name)).collect();
            let used = |other: &&String| behind.contains(other) || code.contains(&format!("super::{other}::"));
            files.iter().filter(|other| *other != file).filter(used).cloned().collect()
        };
        files.iter().map(|file| (file.clone(), uses(file))).collect()
    }

    #[test]
    fn files_of_a_folder_do_not_use_each_other_in_circles() {
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        let mut seen = 0;
        while let Some(folder) = folders.pop() {
            let inner = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
            folders.extend(inner.filter(|path| path.is_dir()));
            let mut uses = uses_within(&folder);
            seen += uses.values().map(BTreeSet::len).sum::<usize>();
            // Files that use none of those left are taken out, until all are, or the rest uses each other.
            while let Some(leaf) = uses.iter().find(|(_, used)| used.is_empty()).map(|(file, _)| file.clone()) {
                uses.remove(&leaf);
                for used in uses.values_mut() {
                    used.remove(&leaf);
                }
            }
            assert!(uses.is_empty(), "files in a circle (folders are not examined) in {}: {uses:?}", folder.display());
        }
        assert!(seen > 200, "{seen} uses were seen");
    }
}
