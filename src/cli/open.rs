//! `dr open`: opens a passage in an editor.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use clap::Args;

use super::error::CliError;
use super::exit::Exit;
use super::ui::{Ui, file_address};
use crate::engine::{Engine, FilePlace, Selector};

/// Open the file of a passage in your editor, at its line
///
/// A PDF or HTML file is opened in your browser, a PDF at its page. The editor is `$VISUAL`, else `$EDITOR`, with its
/// arguments. It is started directly, not through a shell. The line is passed to vim, emacs, nano, VS Code, Helix, Zed,
/// Sublime Text and compatible editors.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  dr open f2cb8db59abecbd4                  an id that `dr search` printed
  dr open concepts/journal.md:36            a line of a file
  dr open 'papers/locks.pdf, page 7'        a page, in the browser
  EDITOR='code --wait' dr open kb/concepts/journal.md")]
pub(super) struct OpenArgs {
    /// Id of a chunk or document, a path, `path:from-to`, or `path, page 7` of a PDF
    #[arg(value_name = "ID")]
    selector: Selector,
}

pub(super) async fn open(ui: &mut Ui, engine: &Engine, args: OpenArgs) -> Result<Exit, CliError> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let place = engine.file_place(&args.selector).await?;
    if place.stale {
        ui.tell(&format!("note: `{}` has changed since it was indexed; its lines may have moved", place.path));
    }
    if place.is_extracted {
        return browse(ui, &place);
    }
    let editor = variable("VISUAL").or_else(|| variable("EDITOR")).ok_or_else(|| CliError::Usage {
        message: "no editor is set".into(),
        hint: Some("export EDITOR=nano, or another editor".into()),
    })?;
    let command = editor_command(&editor, &place);
    let [program, arguments @ ..] = &command[..] else { return Ok(Exit::Failed) };
    let failed = |source| CliError::File { action: "start", path: program.to_string_lossy().into_owned(), source };
    // The editor owns the terminal until it ends.
    let status = Command::new(program).args(arguments).status().map_err(failed)?;
    if status.success() {
        Ok(Exit::Done)
    } else {
        ui.warn(&format!("error: editor `{}` failed: {status}", program.to_string_lossy()));
        Ok(Exit::Failed)
    }
}

/// Opens a PDF or HTML file in the browser; an editor cannot render it.
fn browse(ui: &mut Ui, place: &FilePlace) -> Result<Exit, CliError> {
    let page = place.page.map(|page| format!("#page={page}")).unwrap_or_default();
    let failed = |source| CliError::File { action: "open", path: place.path.clone(), source };
    webbrowser::open(&format!("{}{page}", file_address(&place.file))).map_err(failed)?;
    if let Some(page) = place.page {
        ui.tell(&format!("page {page} of `{}`", place.path));
    }
    Ok(Exit::Done)
}

/// Returns the program and its arguments that open a file at its line. A value of several words is a program with
/// arguments, unless the whole value is the path of a file.
fn editor_command(editor: &OsString, place: &FilePlace) -> Vec<OsString> {
    let mut command: Vec<OsString> = match editor.to_str() {
        Some(words) if !Path::new(words).is_file() => words.split_whitespace().map(OsString::from).collect(),
        _ => vec![editor.clone()],
    };
    let name = command.first().map(|program| Path::new(program).file_stem().unwrap_or_default().to_os_string());
    let name = name.unwrap_or_default().to_string_lossy().to_lowercase();
    let file = place.file.clone().into_os_string();
    let with_line = |line: u32| {
        let mut at = file.clone();
        at.push(format!(":{line}"));
        at
    };
    match (place.line, name.as_str()) {
        (
            Some(line),
            "vi" | "vim" | "nvim" | "gvim" | "mvim" | "view" | "vimx" | "nano" | "pico" | "emacs" | "emacsclient"
            | "kak" | "micro" | "mg" | "joe" | "jed" | "ne" | "gedit",
        ) => command.extend([format!("+{line}").into(), file]),
        (Some(line), "code" | "code-insiders" | "codium" | "vscodium" | "cursor" | "windsurf") => {
            command.extend(["--goto".into(), with_line(line)]);
        }
        (Some(line), "hx" | "helix" | "zed" | "zeditor" | "subl" | "sublime_text") => command.push(with_line(line)),
        _ => command.push(file),
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn editor_is_told_the_line_in_its_own_way_and_no_shell_is_used() {
        for (editor, expected) in [
            ("vim", vec!["vim", "+7", "/kb/a b.md"]),
            ("/usr/bin/nvim -R", vec!["/usr/bin/nvim", "-R", "+7", "/kb/a b.md"]),
            ("emacsclient -nw", vec!["emacsclient", "-nw", "+7", "/kb/a b.md"]),
            ("nano", vec!["nano", "+7", "/kb/a b.md"]),
            ("code --wait", vec!["code", "--wait", "--goto", "/kb/a b.md:7"]),
            ("codium", vec!["codium", "--goto", "/kb/a b.md:7"]),
            ("hx", vec!["hx", "/kb/a b.md:7"]),
            ("subl -w", vec!["subl", "-w", "/kb/a b.md:7"]),
            ("ed", vec!["ed", "/kb/a b.md"]),
            ("sh -c $(touch x);", vec!["sh", "-c", "$(touch", "x);", "/kb/a b.md"]),
        ] {
            let (file, path) = ("/kb/a b.md".into(), "a b.md".into());
            let place = FilePlace { file, path, line: Some(7), page: None, is_extracted: false, stale: false };
            assert_eq!(editor_command(&editor.into(), &place), expected, "{editor}");
            let whole = editor_command(&editor.into(), &FilePlace { line: None, ..place });
            assert_eq!(whole.last().unwrap(), "/kb/a b.md", "{editor}");
        }
    }
}
