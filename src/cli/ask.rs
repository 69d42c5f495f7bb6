//! `dr ask`: answer a question.

use std::path::PathBuf;

use clap::Args;
use futures::future::BoxFuture;

use super::completions;
use super::error::CliError;
use super::exit::Exit;
use super::limits::LimitArgs;
use super::live::{EventFormat, Live};
use super::plan::{print_plan, read_plan};
use super::prompt;
use super::question::QuestionArgs;
use super::report::ReportArgs;
use super::signal::interruptible;
use super::ui::Ui;
use crate::base::line::one_line;
use crate::engine::{AskRequest, Engine, RequestError};

/// Answer a question with checked citations
///
/// Plans sub-questions, researches them in parallel, and writes an answer from quotes that code has found in their
/// files. Without a model, the answer consists of the quotes themselves. If the sources do not support an answer, `dr`
/// refuses or prints the closest passages, and exits with 3; it never makes one up.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr ask --kb docs --offline \"Who may release?\"
  dr ask --max-cost 0.50 --max-time 10m \"Compare lithium and alkaline cells\"
  dr ask --format note -o notes/cells.md \"Why lithium cells?\"")]
pub(super) struct AskArgs {
    #[command(flatten)]
    pub(super) what: QuestionArgs,

    /// Use the plan in this file, written by `dr plan --save`
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,

    /// Print the plan and an estimate of its cost, then stop
    #[arg(long)]
    dry_run: bool,

    /// Follow up an earlier run, named by its id or a prefix of it
    #[arg(long, value_name = "RUN", add = completions::runs())]
    follow: Option<String>,

    /// Also answer in the form of this JSON Schema, in `output` of the JSON report
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,

    /// Start a new run even if an earlier one has answered the question, without quotes of earlier runs
    #[arg(long)]
    fresh: bool,

    /// Never ask for clarification
    #[arg(short, long)]
    yes: bool,

    /// Print events to stderr, as text or jsonl
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t, hide_possible_values = true)]
    pub(super) events: EventFormat,

    #[command(flatten)]
    report: ReportArgs,

    // Last, because its help heading applies to all arguments after it.
    #[command(flatten)]
    pub(super) limits: LimitArgs,
}

impl AskArgs {
    /// Returns the request, validated before anything is indexed or charged.
    fn request(&self) -> Result<AskRequest, CliError> {
        let plan = self.plan.as_deref().map(read_plan).transpose()?;
        let (follow, max_jobs) = (self.follow.clone(), self.limits.max_jobs());
        let mut request = AskRequest { plan, follow, max_jobs, fresh: self.fresh, ..self.what.request()? };
        request.run.output_schema = self.schema.as_deref().map(super::read_json).transpose()?;
        request.checked().map_err(|error| match (error, &self.schema) {
            (RequestError::Schema { reason }, Some(file)) => {
                CliError::Usage { message: format!("`{}` is not a JSON Schema: {reason}", file.display()), hint: None }
            }
            (error, _) => error.into(),
        })
    }
}

pub(super) async fn ask(ui: &mut Ui, engine: &Engine, args: AskArgs) -> Result<Exit, CliError> {
    // First, so that an unwritable file is detected before anything is paid for.
    args.report.check()?;
    let request = args.request()?;
    let Some(request) = args.what.updated(ui, engine, request).await? else { return Ok(Exit::Interrupted) };
    args.events.note_ignored_key(ui, engine);
    if !engine.has_model()? && !engine.is_offline() {
        args.events.note(ui, "no model is configured, so the answer is made of passages from its sources");
    }
    let stop = interruptible();
    let live = Live::new(ui, args.events);
    if args.dry_run {
        let planned = engine.plan(request, live.observer(), stop).await;
        live.finish();
        return print_plan(ui, &planned?, args.report.is_json());
    }
    let asks_back = !args.yes && prompt::can_ask();
    let ask_back = |question: String| -> BoxFuture<'static, Option<String>> {
        let pause = live.pause();
        Box::pin(async move {
            let answer = prompt::line(&format!("{}\n(empty to continue without) > ", one_line(&question))).await;
            drop(pause);
            answer
        })
    };
    let asked = engine.ask(request, asks_back.then_some(&ask_back as _), live.observer(), stop).await;
    live.finish();
    let asked = asked?;
    let exit = args.report.end(ui, engine, &asked.report).await?;
    if let (Exit::Interrupted | Exit::Partial, Some(run)) = (exit, &asked.resumable) {
        // Under the same limit, the resumed run would end at once.
        let limit = asked.report.stop_reason.limit();
        let raised = limit.map(|limit| format!(" {}", limit.raised_by())).unwrap_or_default();
        args.events.note(ui, &format!("`dr resume {run}{raised}` continues this run"));
    }
    Ok(exit)
}
