//! `dr resume`: continues a run.

use std::time::Duration;

use clap::Args;

use super::completions;
use super::error::CliError;
use super::exit::Exit;
use super::live::{EventFormat, Live};
use super::report::ReportArgs;
use super::signal::interruptible;
use super::ui::Ui;
use crate::base::line::one_line;
use crate::engine::{Amounts, Engine, ResumeRequest, dollars, duration};

/// Continue a run that was interrupted or reached a limit
///
/// Stored replies are reused, so no finished call is charged again. Without a run, continues the newest one that has
/// not ended.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr resume                              the newest run that has not ended
  dr resume 4f1c09a2 --add-budget 1      raise the limit that ended it")]
pub(super) struct ResumeArgs {
    /// Id of the run, or a prefix of it (default: the newest run that has not ended)
    #[arg(value_name = "RUN", add = completions::runs())]
    run: Option<String>,

    /// Raise the cost limit by this many US dollars
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    add_budget: Option<f64>,

    /// Raise the token limit by this many tokens
    #[arg(long, value_name = "N")]
    add_tokens: Option<u64>,

    /// Raise the time limit by this much, for example `10m`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    add_time: Option<Duration>,

    /// Raise the limit of research rounds by this many
    #[arg(long, value_name = "N")]
    add_rounds: Option<u32>,

    /// Start a Deep Research job again if the outcome of its first start is unknown; both may be charged
    #[arg(long)]
    retry_unknown: bool,

    /// Use this model for every role, as the run did [env: `DR_MODEL`]
    #[arg(long, value_name = "MODEL")]
    pub(super) model: Option<String>,

    /// Print events to stderr, as text or jsonl
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t, hide_possible_values = true)]
    pub(super) events: EventFormat,

    #[command(flatten)]
    report: ReportArgs,
}

impl ResumeArgs {
    fn request(&self) -> ResumeRequest {
        let add =
            Amounts { dollars: self.add_budget, tokens: self.add_tokens, time: self.add_time, rounds: self.add_rounds };
        ResumeRequest { add, retry_unknown: self.retry_unknown, ..ResumeRequest::default() }
    }
}

pub(super) async fn resume(ui: &mut Ui, engine: &Engine, args: ResumeArgs) -> Result<Exit, CliError> {
    args.report.check()?;
    args.events.note_ignored_key(ui, engine);
    let request = args.request();
    let run = match &args.run {
        Some(run) => run.clone(),
        None => {
            let run = engine.resumable(&request).await?;
            args.events.note(ui, &format!("resuming run {}: {}", run.id, one_line(&run.question)));
            run.id.to_string()
        }
    };
    let live = Live::new(ui, args.events);
    let resumed = engine.resume(&run, request, live.observer(), interruptible()).await;
    live.finish();
    let resumed = resumed?;
    args.report.end(ui, engine, &resumed.report).await
}
