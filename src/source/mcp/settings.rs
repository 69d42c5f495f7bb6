//! Resolves the tables `[mcp.NAME]`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::environment::{Environment, KeyError, is_variable};
use crate::base::http::{BaseUrl, ParseBaseUrlError, Secret, shown};
use crate::base::id::ContentHash;
use crate::source::Label;

/// Longest name of a server, in bytes: it is part of the name of each tool.
const MAX_NAME: usize = 32;

/// Variables that every process needs. All others are kept from a server, since they may hold keys.
const INHERITED: [&str; 13] = [
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "APPDATA",
    "LOCALAPPDATA", "USERPROFILE",
];

/// A table `[mcp.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct McpOptions {
    /// The program and its arguments, for a server on stdin and stdout.
    pub(crate) command: Vec<String>,
    /// The address, for a server on HTTP.
    pub(crate) url: Option<String>,
    /// Label of its results, which decides which workers may call it.
    pub(crate) label: Option<Label>,
    /// Tools that may be called.
    pub(crate) tools: Vec<String>,
    /// The variable that holds its key.
    pub(crate) key_env: Option<String>,
    /// Variables that are passed to the program.
    pub(crate) environment: Vec<String>,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) max_calls: Option<u32>,
}

/// Defaults, which the rows of the settings state.
impl McpOptions {
    pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);
    pub(crate) const MAX_CALLS: u32 = 20;
}

/// How a server is reached.
#[derive(Clone, Debug)]
pub(crate) enum Reach {
    /// A child process, on stdin and stdout.
    Program {
        program: String,
        arguments: Vec<String>,
        /// All variables it is given.
        environment: Environment,
        /// Where it is started, if that is a folder: the home of the user. Never the project: a program may load code
        /// from its working directory.
        folder: Option<String>,
        /// Where it is started otherwise: the data folder of the user.
        fallback: PathBuf,
    },
    Http(BaseUrl),
}

/// A server that can be started.
#[derive(Clone, Debug)]
pub(crate) struct ServerSettings {
    pub(crate) name: String,
    pub(crate) reach: Reach,
    /// Its key: a program finds it in its variable, a server on HTTP in each request.
    pub(crate) key: Option<Secret>,
    pub(crate) label: Label,
    /// Tools that may be called.
    pub(crate) tools: BTreeSet<String>,
    /// Limit of the start, and of each call.
    pub(crate) timeout: Duration,
    pub(crate) max_calls: u32,
}

/// A server as a run records it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerNote {
    pub(crate) name: String,
    pub(crate) label: Label,
    /// Hash of everything but tool and arguments that its results depend on.
    pub(crate) version: String,
}

/// A table `[mcp.NAME]` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum McpSettingsError {
    #[error("`{name}` cannot be the name of a server")]
    Name { name: String },
    #[error("server `{name}` must set exactly one of `command` and `url` (found {found})")]
    Reach { name: String, found: &'static str },
    #[error("server `{name}` has no label")]
    Label { name: String },
    #[error("invalid address of server `{name}`")]
    Address { name: String, source: ParseBaseUrlError },
    #[error("no key for server `{name}`")]
    Key { name: String, source: KeyError },
    #[error("`environment` of server `{name}` has an entry that is not the name of a variable")]
    Variable { name: String },
}

impl McpSettingsError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Name { .. } => Some(format!("up to {MAX_NAME} lowercase letters, digits, `-` and `_`")),
            Self::Reach { .. } => {
                Some("set `command = [\"PROGRAM\", \"ARGUMENT\"]` or `url = \"https://…\"`".to_owned())
            }
            Self::Label { .. } => Some(
                "set `label = \"internal\"` if it may see what the knowledge base says, else `label = \"public\"`"
                    .to_owned(),
            ),
            Self::Key { source, .. } => Some(source.hint()),
            Self::Variable { .. } => Some("name variables, for example `environment = [\"NODE_PATH\"]`".to_owned()),
            Self::Address { .. } => None,
        }
    }
}

impl ServerSettings {
    /// Resolves the settings of one server.
    ///
    /// # Errors
    ///
    /// Returns an error for settings that cannot be used. Nothing is started or sent.
    pub(crate) fn resolve(
        name: &str,
        options: &McpOptions,
        environment: &Environment,
        data: &Path,
    ) -> Result<Self, McpSettingsError> {
        // The name is part of a file name and, before a dot, of the names of the server's tools.
        let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(is_part) {
            return Err(McpSettingsError::Name { name: shown(name) });
        }
        let name = name.to_owned();
        // No default: the label decides which texts the server may see, which only the user can know.
        let label = options.label.ok_or_else(|| McpSettingsError::Label { name: name.clone() })?;
        let key = environment.key_in(options.key_env.as_deref());
        let key = key.map_err(|source| McpSettingsError::Key { name: name.clone(), source })?;
        let reach = match (options.command.split_first(), options.url.as_deref()) {
            (Some((program, arguments)), None) => Reach::Program {
                program: program.clone(),
                arguments: arguments.to_vec(),
                environment: variables(&name, options, environment)?,
                folder: ["HOME", "USERPROFILE"].iter().find_map(|name| environment.get(name)).map(str::to_owned),
                fallback: data.to_owned(),
            },
            (None, Some(url)) => {
                let address = url.parse();
                Reach::Http(address.map_err(|source| McpSettingsError::Address { name: name.clone(), source })?)
            }
            (None, None) => return Err(McpSettingsError::Reach { name, found: "none" }),
            (Some(_), Some(_)) => return Err(McpSettingsError::Reach { name, found: "both" }),
        };
        Ok(Self {
            name,
            reach,
            key,
            label,
            tools: options.tools.iter().cloned().collect(),
            timeout: options.timeout_seconds.map_or(McpOptions::TIMEOUT, Duration::from_secs),
            max_calls: options.max_calls.unwrap_or(McpOptions::MAX_CALLS),
        })
    }

    /// Returns whether the server is a program or on this machine.
    pub(crate) fn is_local(&self) -> bool {
        match &self.reach {
            Reach::Program { .. } => true,
            Reach::Http(address) => address.is_loopback(),
        }
    }

    /// Returns where the server is, for people: the program or the address.
    pub(crate) fn place(&self) -> String {
        match &self.reach {
            Reach::Program { program, .. } => shown(program),
            Reach::Http(address) => address.to_string(),
        }
    }

    /// Returns its note for the record of a run, without keys, which are never kept.
    pub(super) fn note(&self) -> ServerNote {
        ServerNote { name: self.name.clone(), label: self.label, version: self.version() }
    }

    /// Returns a hash of everything but tool and arguments that its results depend on.
    pub(crate) fn version(&self) -> String {
        let reach = match &self.reach {
            Reach::Program { program, arguments, .. } => format!("{program}\0{}", arguments.join("\0")),
            Reach::Http(address) => address.to_string(),
        };
        let tools: Vec<_> = self.tools.iter().map(String::as_str).collect();
        let text = format!("{:?}\0{reach}\0\0{}", self.label, tools.join("\0"));
        ContentHash::of(text.as_bytes()).as_str()[..16].to_owned()
    }

    /// Removes the key of the server from one of its messages.
    pub(crate) fn scrub(&self, text: &str) -> String {
        self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.scrub(text))
    }
}

/// Returns the variables that a program is given.
fn variables(name: &str, options: &McpOptions, environment: &Environment) -> Result<Environment, McpSettingsError> {
    if !options.environment.iter().all(|name| is_variable(name)) {
        return Err(McpSettingsError::Variable { name: name.to_owned() });
    }
    let named = options.environment.iter().chain(&options.key_env).map(String::as_str);
    let named = INHERITED.into_iter().chain(named);
    Ok(Environment::of(named.filter_map(|name| Some((name, environment.get(name)?)))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::line::with_causes;

    fn resolve(name: &str, toml: &str) -> Result<ServerSettings, McpSettingsError> {
        let variables =
            [("PATH", "/bin"), ("HOME", "/home/me"), ("SECRET", "s"), ("NODE_PATH", "n"), ("TOKEN", "a-long-token")];
        ServerSettings::resolve(name, &toml::from_str(toml).unwrap(), &Environment::of(variables), Path::new("/data"))
    }

    #[test]
    fn program_is_given_the_variables_it_needs_and_those_that_are_named() {
        let toml = "command = [\"npx\", \"-y\"]\nlabel = \"internal\"\nenvironment = [\"NODE_PATH\", \"NONE\"]\n\
                    key_env = \"TOKEN\"";
        let settings = resolve("tickets", toml).unwrap();
        let Reach::Program { environment, folder, arguments, .. } = &settings.reach else { panic!("{settings:?}") };
        let names: Vec<_> = environment.all().map(|(name, _)| name).collect();
        assert_eq!(names, ["HOME", "NODE_PATH", "PATH", "TOKEN"]);
        assert!(!format!("{settings:?}").contains("a-long-token"), "{settings:?}");
        assert_eq!((folder.as_deref(), arguments.as_slice()), (Some("/home/me"), ["-y".to_owned()].as_slice()));
        assert!(settings.is_local());
    }

    #[test]
    fn server_that_cannot_be_used_is_an_error_that_says_what_to_do() {
        let label = "label = \"public\"\n";
        for (name, toml, said) in [
            ("tickets", "label = \"public\"", "exactly one of `command` and `url` (found none)"),
            (
                "tickets",
                "label = \"public\"\nurl = \"http://a\"\ncommand = [\"b\"]",
                "exactly one of `command` and `url` (found both)",
            ),
            ("tickets", "url = \"http://localhost\"", "has no label"),
            ("My Tickets", "url = \"http://localhost\"", "cannot be the name"),
            ("tickets", "label = \"public\"\nurl = \"localhost\"", "invalid address"),
            ("tickets", "label = \"public\"\nurl = \"http://a\"\nkey_env = \"NONE\"", "`NONE` is not set"),
            ("tickets", "label = \"public\"\ncommand = [\"b\"]\nenvironment = [\"A=1\"]", "not the name of a variable"),
        ] {
            let error = resolve(name, toml).unwrap_err();
            let said_here = with_causes(&error);
            assert!(said_here.contains(said), "{toml}: {said_here}");
        }
        let away = resolve("a", &format!("{label}url = \"https://mcp.example/mcp\"")).unwrap();
        assert!(!away.is_local());
        let near = resolve("a", &format!("{label}url = \"http://127.0.0.1:1/mcp\"")).unwrap();
        assert!(near.is_local() && near.version() != away.version());
    }
}
