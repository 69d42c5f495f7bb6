//! `dr plan`: prints the plan of a run and an estimate of its cost.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::error::CliError;
use super::exit::Exit;
use super::limits::LimitArgs;
use super::live::{EventFormat, Live};
use super::question::QuestionArgs;
use super::signal::interruptible;
use super::ui::Ui;
use crate::base::line::one_line;
use crate::engine::{AskRequest, Engine, Planned, SavedPlan};
use crate::render::json::{plain, versioned};
use crate::render::tree::{TreeStyle, tree_lines};

/// Plan a run and estimate its cost
///
/// Prints the sub-questions and stops. `--save` writes the plan to a file that can be edited and passed to `dr ask
/// --plan`; `dr resume` runs the plan unchanged.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr plan --save plan.json \"Compare lithium and alkaline cells\"
  dr ask --plan plan.json \"Compare lithium and alkaline cells\"")]
pub(super) struct PlanArgs {
    #[command(flatten)]
    what: QuestionArgs,

    /// Write the plan to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,

    /// Print the plan as JSON
    #[arg(long)]
    json: bool,

    // Last, because its help heading applies to all arguments after it.
    #[command(flatten)]
    pub(super) limits: LimitArgs,
}

pub(super) async fn plan(ui: &mut Ui, engine: &Engine, args: PlanArgs) -> Result<Exit, CliError> {
    args.save.as_deref().map_or(Ok(()), super::output::check_writable)?;
    let request = AskRequest { max_jobs: args.limits.max_jobs(), ..args.what.request()? };
    let Some(request) = args.what.updated(ui, engine, request).await? else { return Ok(Exit::Interrupted) };
    EventFormat::Text.note_ignored_key(ui, engine);
    let live = Live::new(ui, EventFormat::Text);
    let planned = engine.plan(request, live.observer(), interruptible()).await;
    live.finish();
    let planned = planned?;
    if let Some(file) = &args.save {
        super::output::write(file, &(plain(&planned.plan)? + "\n"))?;
    }
    print_plan(ui, &planned, args.json)
}

/// Prints the tree and the estimate.
pub(super) fn print_plan(ui: &mut Ui, planned: &Planned, as_json: bool) -> Result<Exit, CliError> {
    let Planned { run, tree, plan, estimate } = planned;
    let aspects = plan.brief.iter().flat_map(|brief| &brief.aspects);
    if as_json {
        let aspects: Vec<_> = aspects.collect();
        let plan = SavedPlan { brief: None, ..plan.clone() };
        ui.print(&versioned(&json!({ "run_id": run, "aspects": aspects, "plan": plan, "estimate": estimate }))?)?;
        return Ok(Exit::Done);
    }
    let mut text = tree_lines(tree, TreeStyle::default()).join("\n");
    text.push_str("\n\nwhat the answer must cover\n");
    for aspect in aspects {
        text.push_str(&format!("  {} {}\n", aspect.id, one_line(&aspect.text)));
    }
    text.push_str(&format!("\nwhat it would take\n{estimate}"));
    ui.print(&text)?;
    ui.tell(&format!("note: `dr resume {run}` carries this plan out"));
    Ok(Exit::Done)
}

/// Reads a saved plan, which the user may have edited.
pub(super) fn read_plan(file: &Path) -> Result<SavedPlan, CliError> {
    let unusable = |reason: String| CliError::Usage {
        message: format!("`{}` is not a plan: {reason}", file.display()),
        hint: Some("`dr plan --save FILE` writes one".into()),
    };
    serde_json::from_value(super::read_json(file)?).map_err(|error| unusable(error.to_string()))
}
