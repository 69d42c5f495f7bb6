//! `dr completions` and `dr man`: the command line as a script for a shell, and as pages for `man`.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};
use clap_complete::{CompleteEnv, Shell};

use super::Cli;
use super::error::CliError;
use super::exit::Exit;
use super::ui::Ui;
use crate::base::line::cut;
use crate::engine::{Engine, Flags};

/// Print a completion script for a shell
///
/// In bash, zsh and fish it completes commands, flags and their values, and asks `dr` for the names of collections,
/// runs, settings and servers. Other shells complete static words only. Regenerate the script after updating `dr`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr completions bash > ~/.local/share/bash-completion/completions/dr
  dr completions zsh > ~/.zfunc/_dr                  with `fpath+=~/.zfunc` before compinit
  dr completions fish > ~/.config/fish/completions/dr.fish
  dr completions powershell >> $PROFILE")]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Write the manual pages of every command
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr man ~/.local/share/man/man1")]
pub(super) struct ManArgs {
    /// Folder to write them to
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Variable by which a script requests completions.
const ASKING: &str = "DR_COMPLETE";

/// Zsh loads a script from `fpath` at the first completion, and runs the script as the completion function.
const ZSH_FIRST: &str = "[[ $funcstack[1] != _dr ]] || _clap_dynamic_completer_dr\n";

/// Prints the script.
pub(super) fn completions(ui: &mut Ui, args: &CompletionsArgs) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    let mut asking = |shell: &dyn EnvCompleter| shell.write_registration(ASKING, "dr", "dr", "dr", &mut script);
    match args.shell {
        Shell::Bash => asking(&Bash)?,
        Shell::Fish => asking(&Fish)?,
        Shell::Zsh => {
            asking(&Zsh)?;
            script.extend_from_slice(ZSH_FIRST.as_bytes());
        }
        // The dynamic script for PowerShell would run `$(…)` in the line being typed.
        shell => clap_complete::generate(shell, &mut Cli::command(), "dr", &mut script),
    }
    ui.pass(&script)?;
    Ok(Exit::Done)
}

/// Prints completions if a script requests them. Returns whether one did.
pub(super) fn answered() -> bool {
    if std::env::var_os(ASKING).is_none() {
        return false;
    }
    // A panic would be printed over the line being typed.
    std::panic::set_hook(Box::new(|_| ()));
    let folder = std::env::current_dir().ok();
    let asked = CompleteEnv::with_factory(Cli::command).var(ASKING);
    let answer = AssertUnwindSafe(|| asked.try_complete(std::env::args_os(), folder.as_deref()));
    let answer = std::panic::catch_unwind(answer);
    // After a panic or an error too: the line is still being typed and must not be run.
    !matches!(answer, Ok(Ok(false)))
}

/// Completes the words that an argument accepts, if clap cannot derive them from its type.
pub(super) fn words(words: &'static [&'static str]) -> ArgValueCandidates {
    ArgValueCandidates::new(|| words.iter().map(CompletionCandidate::new).collect())
}

/// Completes ids of runs, with their questions.
pub(super) fn runs() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let runs = engine().map(|engine| engine.run_names()).unwrap_or_default();
        runs.into_iter().filter_map(|(run, question)| candidate(run.as_str(), Some(&question))).collect()
    })
}

/// Completes names of collections.
pub(super) fn collections() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (Some(engine), Ok(runtime)) = (engine(), runtime) else { return Vec::new() };
        let names = runtime.block_on(engine.collection_names());
        names.iter().filter_map(|name| candidate(name, None)).collect()
    })
}

/// Completes names of settings, with their purpose.
pub(super) fn settings() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let settings = engine().map(|engine| engine.explained_settings()).unwrap_or_default();
        settings.iter().filter_map(|setting| candidate(&setting.key, setting.description.as_deref())).collect()
    })
}

/// Completes names of models.
pub(super) fn models() -> ArgValueCandidates {
    ArgValueCandidates::new(|| Engine::model_names().iter().filter_map(|name| candidate(name, None)).collect())
}

/// Completes names of tool servers.
pub(super) fn servers() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let names = engine().map(|engine| engine.server_names()).unwrap_or_default();
        names.iter().filter_map(|name| candidate(name, None)).collect()
    })
}

/// Returns the engine for the line being typed, if one can be opened.
fn engine() -> Option<Engine> {
    // The shell passes the line being typed after `--`, not yet parsed.
    let mut words = std::env::args().skip_while(|word| word != "--");
    let mut index = None;
    while let Some(word) = words.next() {
        match word.strip_prefix("--index") {
            Some("") => index = words.next(),
            Some(joined) => index = joined.strip_prefix('=').map(str::to_owned),
            None => {}
        }
    }
    Engine::new(&Flags::default().set("index", index)).ok()
}

/// Maximum number of characters of a question or description shown by a shell.
const MAX_HELP: usize = 60;

/// Returns a name with its description. Names that a shell would not read as a single word are left out: they may
/// come from elsewhere, and are inserted into the line unescaped.
fn candidate(name: &str, help: Option<&str>) -> Option<CompletionCandidate> {
    let is_plain = |letter: char| letter.is_alphanumeric() || "._/-".contains(letter);
    let help = help.map(|help| cut(help, MAX_HELP)).filter(|help| !help.is_empty());
    (name.chars().all(is_plain) && !name.starts_with('-'))
        .then(|| CompletionCandidate::new(name).help(help.map(Into::into)))
}

/// Writes `dr.1` and one page per command.
pub(super) fn man(args: &ManArgs) -> Result<Exit, CliError> {
    let written =
        std::fs::create_dir_all(&args.folder).and_then(|()| clap_mangen::generate_to(Cli::command(), &args.folder));
    written.map_err(CliError::file("write", &args.folder))?;
    Ok(Exit::Done)
}
