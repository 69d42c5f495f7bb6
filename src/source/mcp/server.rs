//! One server: started with the first listing or call, asked one thing at a time.

use std::marker::PhantomData;
use std::sync::Arc;

use rmcp::model::Tool;
use tokio::sync::Mutex;

use super::answer::{Answers, text_of};
use super::connection::{Connection, ConnectionError, ToolPages};
use super::known::{KnownTools, KnownToolsError, ToolState};
use super::settings::ServerSettings;
use super::tool::{OfferedTool, is_read_only};
use crate::base::clock::Clock;
use crate::base::id::ContentHash;
use crate::base::line::{shortened, with_causes};
use crate::source::{Passage, Place, SourceError, SourceFile};
use crate::traces::attach;

/// One server. `Q` is the type of its arguments: any text for an internal one, outbound text for a public one.
pub(crate) struct Server<Q: ?Sized> {
    settings: ServerSettings,
    known: KnownTools,
    answers: Answers,
    clock: Arc<dyn Clock>,
    /// The lock makes calls wait for each other: many servers cannot do two things at once.
    connected: Mutex<Option<Connected>>,
    // A function type, since a server takes a `Q` and holds none.
    takes: PhantomData<fn(&Q)>,
}

struct Connected {
    connection: Connection,
    tools: Vec<ListedTool>,
    cut: Option<String>,
}

pub(crate) struct ToolList {
    pub(crate) tools: Vec<ListedTool>,
    /// Says that the server has more tools, if it has.
    pub(crate) note: Option<String>,
}

/// A tool of a server, and whether it is offered to workers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListedTool {
    pub(crate) tool: OfferedTool,
    pub(crate) state: ToolState,
}

/// A server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// It cannot be reached, or does not answer.
    #[error("server `{name}` failed: {reason}")]
    Failed { name: String, reason: String },
    #[error("server `{name}` is not used: `dr` is offline")]
    Offline { name: String },
    #[error(transparent)]
    Known(#[from] KnownToolsError),
}

impl<Q: ?Sized> Server<Q> {
    /// Sets up a server. Starts nothing.
    pub(super) fn new(settings: ServerSettings, known: KnownTools, answers: Answers, clock: Arc<dyn Clock>) -> Self {
        Self { settings, known, answers, clock, connected: Mutex::default(), takes: PhantomData }
    }

    pub(crate) fn settings(&self) -> &ServerSettings {
        &self.settings
    }

    /// Returns the name of this source in reports.
    pub(crate) fn source_name(&self) -> String {
        format!("mcp:{}", self.settings.name)
    }

    /// Lists the tools, starting the server if necessary.
    pub(crate) async fn tools(&self) -> Result<ToolList, ServerError> {
        let mut connected = self.connected.lock().await;
        let connected = self.connect(&mut connected).await.map_err(|error| self.failed(&error))?;
        Ok(self.list(connected))
    }

    fn list(&self, Connected { tools, cut, .. }: &Connected) -> ToolList {
        let said = |cut: &String| format!("tools of `{}` after the first {cut} are not listed", self.settings.name);
        ToolList { tools: tools.clone(), note: cut.as_ref().map(said) }
    }

    /// Accepts the allowed tools as they are described now.
    ///
    /// # Errors
    ///
    /// Returns an error if the server cannot be reached, or the accepted tools cannot be recorded.
    pub(crate) async fn accept(&self) -> Result<(), ServerError> {
        let mut connected = self.connected.lock().await;
        let Connected { tools, .. } = self.connect(&mut connected).await.map_err(|error| self.failed(&error))?;
        self.record(tools.iter_mut().filter(|listed| listed.state.can_be_accepted()))
    }

    fn record<'a>(&self, tools: impl Iterator<Item = &'a mut ListedTool>) -> Result<(), ServerError> {
        let tools: Vec<_> = tools.collect();
        self.known.accept(&self.settings.name, &tools.iter().map(|listed| &listed.tool).collect::<Vec<_>>())?;
        for listed in tools {
            listed.state = ToolState::Offered;
        }
        Ok(())
    }

    /// Lists the tools. The first use of an allowed tool accepts its description.
    pub(crate) async fn offered(&self) -> Result<ToolList, ServerError> {
        let mut connected = self.connected.lock().await;
        let connected = self.connect(&mut connected).await.map_err(|error| self.failed(&error))?;
        // Recorded before any of them is offered: if that fails, the next use would accept another description.
        let is_new = |listed: &ListedTool| listed.state == ToolState::New;
        if connected.tools.iter().any(is_new) {
            self.record(connected.tools.iter_mut().filter(|listed| is_new(listed)))?;
        }
        Ok(self.list(connected))
    }

    /// Calls a tool and keeps its result. `arguments` are a JSON object.
    ///
    /// # Errors
    ///
    /// Returns an error if the arguments do not follow the schema, the tool is not as it was offered, or the server
    /// fails or reports an error.
    pub(crate) async fn call(&self, tool: &OfferedTool, arguments: &Q) -> Result<Passage, SourceError>
    where
        Q: AsRef<str> + Sync,
    {
        let refused = |reason: String| SourceError::Refused { reason };
        let arguments = tool.arguments(arguments.as_ref()).await.map_err(refused)?;
        let said = serde_json::Value::Object(arguments.clone()).to_string();
        let mut connected = self.connected.lock().await;
        let result = async {
            let Connected { connection, tools, .. } = self.connect(&mut connected).await?;
            // Compared at each call: a server that was started again may describe its tools otherwise.
            let is_same = |listed: &ListedTool| listed.tool == *tool && listed.state == ToolState::Offered;
            if !tools.iter().any(is_same) {
                let why = "has changed its description since it was offered";
                return Ok(Err(refused(format!("`{}` {why}", tool.name))));
            }
            connection.call(tool.bare_name(), arguments).await.map(Ok)
        };
        let result = match result.await {
            Ok(result) => result?,
            Err(error) => {
                if !error.is_about_request() {
                    // A server that hangs would answer the next request with the reply to this one.
                    close(connected.take()).await;
                }
                return Err(self.source_error(&error));
            }
        };
        // The server is free for the next call while this result is stored.
        drop(connected);
        let text = self.settings.scrub(&text_of(&result));
        if result.is_error == Some(true) {
            attach::word("tool_error", "tool_error");
            return Err(self.source_failed(&text));
        }
        if text.trim().is_empty() {
            return Err(self.source_failed("its result has no text"));
        }
        self.kept(tool, said, text).await
    }

    /// Returns a result as a passage, once it is stored.
    async fn kept(&self, tool: &OfferedTool, arguments: String, text: String) -> Result<Passage, SourceError> {
        let place = Place::Mcp {
            server: self.settings.name.clone(),
            tool: tool.bare_name().to_owned(),
            arguments,
            fetched_at: self.clock.now().0,
            content_hash: ContentHash::of(text.as_bytes()),
        };
        let (answers, stored, kept) = (self.answers.clone(), place.clone(), text.clone());
        let put = tokio::task::spawn_blocking(move || answers.put(&stored, &kept)).await;
        put.map_err(|error| self.source_failed(&with_causes(&error)))?
            .map_err(|error| self.source_failed(&with_causes(&error)))?;
        Ok(Passage::whole(place.call().unwrap_or_default(), self.settings.label, place, text))
    }

    /// Returns the stored text behind a place.
    pub(crate) async fn read(&self, place: &Place) -> SourceFile {
        let (answers, place) = (self.answers.clone(), place.clone());
        tokio::task::spawn_blocking(move || answers.read(&place)).await.unwrap_or(SourceFile::Gone)
    }

    /// Ends the server if it was started.
    pub(crate) async fn end(&self) {
        close(self.connected.lock().await.take()).await;
    }

    async fn connect<'a>(&self, connected: &'a mut Option<Connected>) -> Result<&'a mut Connected, ConnectionError> {
        if connected.is_none() {
            let (connection, ToolPages { tools, cut }) = Connection::open(self.settings.clone()).await?;
            *connected = Some(Connected { connection, tools: self.listed(&tools), cut });
        }
        connected.as_mut().ok_or_else(|| ConnectionError::Request("no connection".to_owned()))
    }

    fn listed(&self, tools: &[Tool]) -> Vec<ListedTool> {
        let ServerSettings { name, tools: allowed, .. } = &self.settings;
        let offer = |tool: &Tool| {
            let offered = OfferedTool::new(name, tool);
            let state = match () {
                () if !allowed.contains(tool.name.as_ref()) => ToolState::NotAllowed,
                () if !is_read_only(tool) => ToolState::NotReadOnly,
                () => match offered.complaint() {
                    Some(why) => ToolState::Unusable { why },
                    None => self.known.compare(name, &offered),
                },
            };
            ListedTool { tool: offered, state }
        };
        tools.iter().map(offer).collect()
    }

    fn failed(&self, error: &ConnectionError) -> ServerError {
        let reason = shortened(&self.settings.scrub(&with_causes(error)));
        ServerError::Failed { name: self.settings.name.clone(), reason }
    }

    fn source_error(&self, error: &ConnectionError) -> SourceError {
        let (name, reason) = (self.source_name(), shortened(&self.settings.scrub(&with_causes(error))));
        if error.is_about_request() { SourceError::Failed { name, reason } } else { SourceError::Down { name, reason } }
    }

    fn source_failed(&self, reason: &str) -> SourceError {
        SourceError::Failed { name: self.source_name(), reason: shortened(&self.settings.scrub(reason)) }
    }
}

async fn close(connected: Option<Connected>) {
    if let Some(Connected { connection, .. }) = connected {
        connection.close().await;
    }
}
