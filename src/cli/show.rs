//! `dr show`: shows parts of a run.

use std::fmt::Write;

use clap::Args;
use serde_json::json;

use super::completions;
use super::error::CliError;
use super::exit::Exit;
use super::ui::Ui;
use crate::base::line::one_line;
use crate::engine::{EgressRow, Engine, JobEntry, RunDetails, event_line};
use crate::render::figure::usage_lines;
use crate::render::json::versioned;
use crate::render::quote_lines;
use crate::render::tree::{TreeStyle, tree_lines};

/// Show a run: its tree, its usage, its events
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr show --usage                        calls, tokens and cost of the newest run
  dr show 4f1c09a2 --egress              what left this machine")]
pub(super) struct ShowArgs {
    /// Id of the run, or a prefix of it (default: the newest run)
    #[arg(value_name = "RUN", add = completions::runs())]
    run: Option<String>,

    /// Show the tree
    #[arg(long)]
    tree: bool,

    /// Show calls, tokens and cost, and the error of the token counts
    #[arg(long)]
    usage: bool,

    /// Show the quotes of its report in full, numbered as the report cites them
    #[arg(long)]
    quotes: bool,

    /// Show its events, one per line
    #[arg(long)]
    events: bool,

    /// Show every text that left this machine, and every text that was withheld
    #[arg(long)]
    egress: bool,

    /// Show the Deep Research jobs: searches, pages, reasoning and cost
    #[arg(long)]
    jobs: bool,

    /// Print the state of the run as JSON, with all its evidence
    #[arg(long)]
    json: bool,
}

pub(super) async fn show(ui: &mut Ui, engine: &Engine, args: ShowArgs) -> Result<Exit, CliError> {
    let shown = engine.show(args.run.as_deref()).await?;
    if args.json {
        let mut json = serde_json::to_value(&shown)?;
        if !args.events {
            json["events"] = json!(shown.events.len());
        }
        ui.print(&versioned(&json)?)?;
    } else {
        ui.print(text(&shown, &args).trim_start())?;
    }
    Ok(Exit::Done)
}

fn text(shown: &RunDetails, args: &ShowArgs) -> String {
    let all = !(args.tree || args.usage || args.quotes || args.events || args.egress || args.jobs);
    let mut text = String::new();
    if args.tree || all {
        text.push_str(&(tree_lines(&shown.tree, TreeStyle::default()).join("\n") + "\n"));
    }
    if args.usage || all {
        text.push_str(&format!("\n{}\n", usage_lines(&shown.usage).join("\n")));
        for (model, drift) in &shown.token_drift {
            let _ = writeln!(text, "tokens of `{model}` were counted {:+.1} % off", drift * 100.0);
        }
    }
    if args.quotes || all && !shown.report.is_refusal() {
        let _ = writeln!(text, "\n{}", quote_lines(&shown.report).join("\n"));
    }
    if args.events || all {
        text.push('\n');
        for record in &shown.events {
            let _ = writeln!(text, "{}", event_line(record));
        }
    }
    if args.egress || all && (shown.egress_is_altered || !shown.egress.is_empty()) {
        text.push_str(&egress_text(&shown.egress, shown.egress_is_altered));
    }
    if args.jobs || all && !shown.jobs.is_empty() {
        text.push_str(&jobs_text(&shown.jobs, args.jobs));
    }
    text
}

/// Formats texts that left and texts that were withheld, one per line. A text is untrusted, and could otherwise forge
/// a line.
fn egress_text(rows: &[EgressRow], is_altered: bool) -> String {
    let mut text = String::new();
    if is_altered {
        text.push_str("\nthis record was changed after it was written: do not rely on it\n");
    } else if rows.is_empty() {
        text.push_str("\nnothing left this machine but the prompts of its models\n");
    }
    for row in rows {
        let what = match &row.withheld {
            None => format!("sent to {}", row.target),
            Some(reason) => format!("withheld: {reason}"),
        };
        let _ = writeln!(text, "{} {}: {} ({})", row.node, row.kind, one_line(&row.text), one_line(&what));
    }
    text
}

/// Formats the outcome of each job and everything it did.
fn jobs_text(jobs: &[JobEntry], in_full: bool) -> String {
    let mut text = String::from(if jobs.is_empty() { "\nno job was started\n" } else { "\n" });
    for job in jobs {
        let cost = job.cost_usd.map_or_else(|| "at no known price".to_owned(), |cost| format!("${cost:.4}"));
        let (node, id) = (job.node.as_deref().unwrap_or("run"), job.job.as_deref().unwrap_or("no id"));
        let why = job.error.iter().map(|error| format!(": {error}")).collect::<String>();
        let line = format!("{node} job {id} of {}: {}{why}, {cost}", job.model, job.outcome);
        text.push_str(&(one_line(&line) + "\n"));
        let lists = [("searched for", &job.searches), ("opened", &job.opened), ("thought", &job.reasoning)];
        for (what, lines) in lists.into_iter().filter(|_| in_full) {
            for line in lines {
                let _ = writeln!(text, "  {what}: {}", one_line(line));
            }
        }
    }
    text
}
