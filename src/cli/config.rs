//! `dr config`: prints the effective settings and their origins.

use std::fmt::Write;

use clap::Args;
use serde_json::json;

use super::OutputArgs;
use super::completions;
use super::error::CliError;
use super::exit::Exit;
use super::ui::{QUIET, Ui, styled};
use crate::base::line::one_line;
use crate::engine::{Engine, ExplainedSetting};
use crate::render::json::versioned;

/// Print the settings and the origin of each value
///
/// Without a name, the defaults of tables are left out. Each of these overrides those before it: defaults, your own
/// file, `dr.toml` beside `.dr/`, variables, flags. Keys are never shown. An invalid value is an error, even if only a
/// run would use it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr config
  dr config max_cost models              only these; a table with its defaults
  dr config --json | jq -r '.settings[] | select(.key == \"limit\").origin'")]
pub(super) struct ConfigArgs {
    /// Print only these settings, by name or the name of their table
    #[arg(value_name = "SETTING", add = completions::settings())]
    names: Vec<String>,

    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn config(ui: &mut Ui, engine: &Engine, args: &ConfigArgs) -> Result<Exit, CliError> {
    let settings = named(engine.explained_settings(), &args.names)?;
    if args.output.is_json() {
        ui.print(&versioned(&json!({ "settings": settings }))?)?;
    } else {
        ui.print(&table(&settings))?;
        if settings.is_empty() {
            ui.tell("no value is set");
        }
    }
    // Printed before the check, because the values help to understand its error.
    engine.check_settings()?;
    Ok(Exit::Done)
}

/// Returns the settings with one of these names, or in one of these tables; if no name is given, all that are listed.
fn named(settings: Vec<ExplainedSetting>, names: &[String]) -> Result<Vec<ExplainedSetting>, CliError> {
    let is_of = |key: &str, name: &String| {
        key.strip_prefix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let is_known =
        |name: &&String| Engine::knows_setting(name) || settings.iter().any(|setting| is_of(&setting.key, name));
    if let Some(name) = names.iter().find(|name| !is_known(name)) {
        let hint = Some("`dr config` lists them".to_owned());
        return Err(CliError::Usage { message: format!("no setting `{}`", one_line(name)), hint });
    }
    let is_wanted = |setting: &ExplainedSetting| match names {
        [] => setting.is_listed(),
        names => names.iter().any(|name| is_of(&setting.key, name)),
    };
    Ok(settings.into_iter().filter(is_wanted).collect())
}

/// Returns settings as a table: name, value, origin.
pub(super) fn table(settings: &[ExplainedSetting]) -> String {
    let mut text = String::new();
    let width = settings.iter().map(|setting| setting.key.chars().count()).max().unwrap_or(0) + 1;
    for setting in settings {
        let (key, value, origin) = (one_line(&setting.key), one_line(&setting.value), styled(QUIET, &setting.origin));
        let _ = writeln!(text, "{key:<width$} {value:<36} {origin}");
    }
    text
}
