//! `dr ask`: answer a question.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use futures::future::BoxFuture;

use super::error::CliError;
use super::exit::Exit;
use super::limits::LimitArgs;
use super::plan::{print_plan, read_plan};
use super::report::ReportArgs;
use super::search::FilterArgs;
use super::signal::interruptible;
use super::ui::Ui;
use super::watch::{EventFormat, Watch};
use crate::base::line::one_line;
use crate::config::Options;
use crate::engine::{AskRequest, Engine, EngineError, IndexRequest};
use crate::kb::index::Index;
use crate::kb::search::{Scope, SearchMode};
use crate::llm::structured::check_schema;
use crate::research::node::SourceHint;
use crate::research::question::{Mode, Question, required};

/// Answer a question with checked citations
///
/// A question becomes a plan, its parts are looked into side by side, and the answer is written from quotes that code
/// has found in their files. Without a model the answer is made of the quotes themselves. Where nothing bears on the
/// question, `dr` says so and exits with 3; it never makes an answer up.
#[derive(Args, Debug)]
pub(super) struct AskArgs {
    #[command(flatten)]
    pub(super) what: QuestionArgs,

    /// Carry out the plan in this file, as `dr plan --save` writes it
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,

    /// Plan, say what it would take, and stop
    #[arg(long)]
    dry_run: bool,

    /// Follow up an earlier run, by its id or how that begins
    #[arg(long, value_name = "RUN")]
    follow: Option<String>,

    /// Answer in the form of this JSON Schema as well, under `output` of the report
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,

    /// Ask nothing back
    #[arg(short, long)]
    yes: bool,

    /// Tell what happens as text or jsonl, on stderr
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t, hide_possible_values = true)]
    events: EventFormat,

    #[command(flatten)]
    report: ReportArgs,

    // Last: its heading stands over whatever follows.
    #[command(flatten)]
    limits: LimitArgs,
}

/// A question and what may be searched for its answer.
#[derive(Args, Debug)]
pub(super) struct QuestionArgs {
    /// The question
    #[arg(value_name = "QUESTION", required = true)]
    question: Vec<String>,

    /// Bring the index up to date with this folder first, and answer from it alone
    #[arg(long, value_name = "PATH", conflicts_with = "collections")]
    kb: Option<PathBuf>,

    #[command(flatten)]
    filter: FilterArgs,

    /// Make sure the answer covers this; may be given up to 20 times
    #[arg(long, value_name = "TEXT")]
    cover: Vec<String>,

    /// Look for everything there: `internal`, `web` or `mixed` (default: as planned)
    #[arg(long, value_name = "WHERE", value_parser = source_hint)]
    source: Option<SourceHint>,

    /// Do not read the pages Deep Research cites: what it says of them stays unchecked
    #[arg(long)]
    no_verify_web: bool,

    /// Let texts made of the knowledge base leave this machine, in web queries and Deep Research prompts
    #[arg(long)]
    allow_egress: bool,

    /// How much to do: `quick`, `iterative`, `deep` or `auto` (by the question)
    #[arg(long, value_name = "MODE", default_value = "auto", hide_default_value = true)]
    mode: Mode,
}

impl AskArgs {
    /// Adds what these flags set to the flags of every command.
    pub(super) fn options(&self, options: Options) -> Options {
        self.limits.options(options)
    }
}

impl QuestionArgs {
    /// Returns the question.
    pub(super) fn question(&self) -> Result<Question, CliError> {
        let parsed = self.question.join(" ").parse();
        parsed.map_err(|error| CliError::Usage { message: format!("{error}"), hint: None })
    }

    /// Returns what the answer must cover.
    fn required(&self) -> Result<Vec<String>, CliError> {
        required(&self.cover).map_err(|error| CliError::Usage { message: format!("`--cover`: {error}"), hint: None })
    }

    /// Returns what is asked, once the index is up to date; nothing where the user stopped that.
    pub(super) async fn request(&self, ui: &mut Ui, engine: &Engine) -> Result<Option<AskRequest>, CliError> {
        let question = self.question()?;
        // What cannot be used is said before anything is indexed.
        self.filter.options()?;
        let required = self.required()?;
        let mut scope = self.filter.scope();
        if let Some(folder) = &self.kb {
            match update(ui, engine, folder).await? {
                Some(collection) => scope = Scope { collections: vec![collection], ..scope },
                None => return Ok(None),
            }
        }
        let (source, allow_egress, verify_web) = (self.source, self.allow_egress, !self.no_verify_web);
        Ok(Some(AskRequest {
            required,
            source,
            allow_egress,
            verify_web,
            ..AskRequest::new(question, scope, self.mode)
        }))
    }
}

/// Runs the command.
pub(super) async fn ask(ui: &mut Ui, engine: &Engine, args: AskArgs) -> Result<Exit, CliError> {
    args.report.check()?;
    let plan = args.plan.as_deref().map(read_plan).transpose()?;
    let output_schema = args.schema.as_deref().map(read_schema).transpose()?;
    let Some(request) = args.what.request(ui, engine).await? else { return Ok(Exit::Interrupted) };
    let request = AskRequest { plan, output_schema, follow: args.follow, ..request };
    if !engine.has_model()? && !engine.settings().is_offline() {
        args.events.note(ui, "no model is configured, so the answer is made of sentences from its sources");
    }
    let searcher = engine.searcher(SearchMode::Hybrid).await?;
    let stop = interruptible();
    let watch = Watch::new(ui, args.events);
    if args.dry_run {
        let planned = engine.plan(&searcher, request, watch.listener(), stop).await;
        watch.finish();
        return print_plan(ui, &planned?, args.report.is_json());
    }
    let asks_back = !args.yes && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let ask_back = |question: String| -> BoxFuture<'static, Option<String>> {
        let pause = watch.pause();
        Box::pin(async move {
            let answer = ask_back(&question).await;
            drop(pause);
            answer
        })
    };
    let asked = engine.ask(&searcher, request, asks_back.then_some(&ask_back as _), watch.listener(), stop).await;
    watch.finish();
    let asked = asked?;
    let exit = args.report.end(ui, &asked.report)?;
    if matches!(exit, Exit::Interrupted | Exit::Partial) && asked.is_kept && !asked.state.is_over() {
        args.events.note(ui, &format!("`dr resume {}` goes on with this run", asked.run));
    }
    Ok(exit)
}

fn source_hint(text: &str) -> Result<SourceHint, String> {
    match text {
        "internal" => Ok(SourceHint::Internal),
        "web" => Ok(SourceHint::Web),
        "mixed" => Ok(SourceHint::Mixed),
        _ => Err("expected `internal`, `web` or `mixed`".to_owned()),
    }
}

/// Asks the user a question on the terminal; nothing where there is no answer.
async fn ask_back(question: &str) -> Option<String> {
    let mut err = std::io::stderr();
    let question = one_line(question);
    write!(err, "{question}\n(empty to go on without) > ").and_then(|()| err.flush()).ok()?;
    // A thread of its own: nothing waits for it where the run is stopped before there is an answer.
    let (said, answer) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut answer = String::new();
        if std::io::stdin().read_line(&mut answer).is_ok() {
            let _ = said.send(answer);
        }
    });
    let answer = answer.await.ok()?.trim().to_owned();
    (!answer.is_empty()).then_some(answer)
}

/// Indexes a folder and returns its collection, or nothing where the user stopped it.
async fn update(ui: &mut Ui, engine: &Engine, folder: &Path) -> Result<Option<String>, CliError> {
    let request = IndexRequest { folders: vec![folder.to_path_buf()], embed: true, ..IndexRequest::default() };
    let summary = super::index::run(ui, engine, &request).await?;
    for skipped in &summary.skipped {
        ui.tell(&format!("note: `{}` is left out: {}", skipped.path, skipped.reason));
    }
    if summary.interrupted {
        return Ok(None);
    }
    let index = Index::open(engine.location()).await.map_err(EngineError::from)?;
    Ok(engine.collection_of(&index, folder)?)
}

/// Reads the form the answer must have, and refuses what is no JSON Schema before anything is paid for.
fn read_schema(file: &Path) -> Result<serde_json::Value, CliError> {
    let schema = super::read_json(file)?;
    match check_schema(&schema) {
        Ok(()) => Ok(schema),
        Err(error) => {
            Err(CliError::Usage { message: format!("`{}` is not a JSON Schema: {error}", file.display()), hint: None })
        }
    }
}
