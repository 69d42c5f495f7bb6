//! The settings with which assistants start this server, to be pasted into their configuration files.

use std::path::Path;

use serde_json::json;

/// An assistant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Client {
    Claude,
    Cursor,
    #[value(name = "vscode")]
    VsCode,
    Codex,
}

impl Client {
    /// Returns the settings that make the assistant start the server.
    ///
    /// Both paths are absolute: assistants have a different `PATH` from a shell, and start servers in a folder of their
    /// choice.
    pub(crate) fn settings(self, program: &Path, project: &Path) -> String {
        let program = program.to_string_lossy();
        let args = ["mcp".into(), "--project".into(), project.to_string_lossy()];
        let server = json!({ "command": program, "args": args });
        match self {
            Self::Claude | Self::Cursor => pretty(&json!({ "mcpServers": { "dr": server } })),
            Self::VsCode => {
                let server = json!({ "type": "stdio", "command": program, "args": args });
                pretty(&json!({ "servers": { "dr": server } }))
            }
            Self::Codex => {
                // By the TOML crate, since a Windows path has backslashes, which must be escaped in a TOML string.
                let text = |text: &str| toml::Value::from(text).to_string();
                let args: Vec<_> = args.iter().map(|arg| text(arg)).collect();
                format!("[mcp_servers.dr]\ncommand = {}\nargs = [{}]\n", text(&program), args.join(", "))
            }
        }
    }

    /// Returns the file that the settings belong in.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Claude => "`.mcp.json` of a project (Claude Code) or `claude_desktop_config.json` (Claude Desktop)",
            Self::Cursor => "`.cursor/mcp.json` of a project, or `~/.cursor/mcp.json`",
            Self::VsCode => "`.vscode/mcp.json` of a workspace",
            Self::Codex => "`~/.codex/config.toml`",
        }
    }
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_every_client_name_program_and_project() {
        let args = json!(["mcp", "--project", r"/home/me/a\b"]);
        for client in [Client::Claude, Client::Cursor, Client::VsCode, Client::Codex] {
            let settings = client.settings(r#"/opt/my "tools"/dr"#.as_ref(), r"/home/me/a\b".as_ref());
            let server = match client {
                Client::Codex => {
                    let settings: toml::Table = settings.parse().unwrap();
                    json!(settings["mcp_servers"]["dr"])
                }
                Client::VsCode => {
                    serde_json::from_str::<serde_json::Value>(&settings).unwrap()["servers"]["dr"].clone()
                }
                Client::Claude | Client::Cursor => {
                    serde_json::from_str::<serde_json::Value>(&settings).unwrap()["mcpServers"]["dr"].clone()
                }
            };
            assert_eq!(server["command"], r#"/opt/my "tools"/dr"#, "{client:?}");
            assert_eq!(server["args"], args, "{client:?}");
        }
    }
}
