//! The tools: names, descriptions, schemas, and what each one calls.

use rmcp::RoleServer;
use rmcp::model::{CallToolResult, JsonObject, ToolAnnotations};
use rmcp::service::RequestContext;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::answer::AnswerResult;
use super::ask::ask;
use super::failure::ToolError;
use super::links::{Links, LinksArguments, links};
use super::passage::{FetchArguments, Fetched, ReadArguments, ReadText, fetch, read};
use super::research::{self, CancelArguments, ResultArguments, StartedRun, Status, StatusArguments};
use super::search::{Collections, SearchArguments, SearchResults, list_collections, search};
use crate::engine::{QuestionForm, ResumeForm, Service};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum McpTool {
    Search,
    Fetch,
    Read,
    Links,
    ListCollections,
    Ask,
    ResearchStart,
    ResearchStatus,
    ResearchResult,
    ResearchCancel,
    ResearchResume,
}

impl McpTool {
    /// Every tool, in the order in which clients list them.
    const ALL: [Self; 11] = [
        Self::Search,
        Self::Fetch,
        Self::Read,
        Self::Links,
        Self::ListCollections,
        Self::Ask,
        Self::ResearchStart,
        Self::ResearchStatus,
        Self::ResearchResult,
        Self::ResearchCancel,
        Self::ResearchResume,
    ];

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::Fetch => "fetch",
            Self::Read => "read",
            Self::Links => "links",
            Self::ListCollections => "list_collections",
            Self::Ask => "ask",
            Self::ResearchStart => "research_start",
            Self::ResearchStatus => "research_status",
            Self::ResearchResult => "research_result",
            Self::ResearchCancel => "research_cancel",
            Self::ResearchResume => "research_resume",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Search => "Search the knowledge base",
            Self::Fetch => "Fetch a search result",
            Self::Read => "Read a passage, a section or lines",
            Self::Links => "Links between documents",
            Self::ListCollections => "List collections",
            Self::Ask => "Answer a question with checked citations",
            Self::ResearchStart => "Start research",
            Self::ResearchStatus => "Progress of research",
            Self::ResearchResult => "Report of research",
            Self::ResearchCancel => "Stop research",
            Self::ResearchResume => "Continue research",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Search => {
                "Finds passages of the indexed documents by words and by meaning. Returns the best ones with an id, a title, \
                 the address with lines, and the part that matches."
            }
            Self::Fetch => "Returns the section around a search result, verbatim, by the id of the result.",
            Self::Read => {
                "Returns text of an indexed document, verbatim: a passage, its section, its document, or lines of a path \
                 (`path:12-40`)."
            }
            Self::Links => {
                "Returns where the links of a document lead and which documents link to it, with lines; without a document, \
                 the broken links of all."
            }
            Self::ListCollections => "Lists the collections of documents that can be searched.",
            Self::Ask => {
                "Researches a question in the indexed documents, and in the web where the server is set up for it, and \
                 returns a report whose every citation is a quote that was found verbatim in its source. Refuses where the \
                 sources do not support an answer. May take minutes and cost money: `offline` answers within seconds for \
                 free, and `research_start` does not keep you waiting."
            }
            Self::ResearchStart => {
                "Starts the research of `ask` in the background and returns its run id at once. Ask for its progress with \
                 `research_status` and for its report with `research_result`."
            }
            Self::ResearchStatus => {
                "Returns how far a run is: its state, sub-questions, tokens and cost so far, and its events after a number."
            }
            Self::ResearchResult => "Returns the report of a run that has ended or was stopped, as `ask` does.",
            Self::ResearchCancel => {
                "Stops a run that this server works on. What it has found is kept, and `research_resume` continues it."
            }
            Self::ResearchResume => {
                "Continues in the background a run that was stopped, or that a limit ended if you raise that limit. \
                 Returns its run id at once; nothing that was paid for is paid again."
            }
        }
    }

    fn annotations(self) -> ToolAnnotations {
        let reads = ToolAnnotations::with_title(self.title()).read_only(true).open_world(false);
        match self {
            Self::Search
            | Self::Fetch
            | Self::Read
            | Self::Links
            | Self::ListCollections
            | Self::ResearchStatus
            | Self::ResearchResult => reads,
            // A run is stored, may cost money, and may use the web.
            Self::Ask | Self::ResearchStart | Self::ResearchResume => {
                ToolAnnotations::with_title(self.title()).read_only(false).destructive(false).open_world(true)
            }
            // Findings are kept, and a second call changes nothing.
            Self::ResearchCancel => reads.read_only(false).destructive(false).idempotent(true),
        }
    }

    /// Returns all tools as announced to clients.
    pub(super) fn definitions() -> Vec<rmcp::model::Tool> {
        Self::ALL.into_iter().map(Self::definition).collect()
    }

    fn definition(self) -> rmcp::model::Tool {
        let tool = rmcp::model::Tool::new(self.name(), self.description(), JsonObject::new());
        let tool = match self {
            Self::Search => with_schemas::<SearchArguments, SearchResults>(tool),
            Self::Fetch => with_schemas::<FetchArguments, Fetched>(tool),
            Self::Read => with_schemas::<ReadArguments, ReadText>(tool),
            Self::Links => with_schemas::<LinksArguments, Links>(tool),
            Self::ListCollections => with_schemas::<NoArguments, Collections>(tool),
            Self::Ask => with_schemas::<QuestionForm, AnswerResult>(tool),
            Self::ResearchStart => with_schemas::<QuestionForm, StartedRun>(tool),
            Self::ResearchStatus => with_schemas::<StatusArguments, Status>(tool),
            Self::ResearchResult => with_schemas::<ResultArguments, AnswerResult>(tool),
            Self::ResearchCancel => with_schemas::<CancelArguments, Status>(tool),
            Self::ResearchResume => with_schemas::<ResumeForm, StartedRun>(tool),
        };
        tool.with_title(self.title()).with_annotations(self.annotations())
    }

    pub(super) async fn call(
        self,
        service: &Service,
        arguments: JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ToolError> {
        match self {
            Self::Search => result(&search(service, self.parsed(arguments)?).await?),
            Self::Fetch => result(&fetch(service, self.parsed(arguments)?).await?),
            Self::Read => result(&read(service, self.parsed(arguments)?).await?),
            Self::Links => result(&links(service, self.parsed(arguments)?).await?),
            Self::ListCollections => {
                // Parsed to refuse arguments: a client must not think that its filter was applied.
                let NoArguments {} = self.parsed(arguments)?;
                result(&list_collections(service).await?)
            }
            Self::Ask => result(&ask(service, self.parsed(arguments)?, context).await?),
            Self::ResearchStart => result(&research::start(service, self.parsed(arguments)?).await?),
            Self::ResearchStatus => result(&research::status(service, self.parsed(arguments)?).await?),
            Self::ResearchResult => result(&research::result(service, self.parsed(arguments)?).await?),
            Self::ResearchCancel => result(&research::cancel(service, self.parsed(arguments)?).await?),
            Self::ResearchResume => result(&research::resume(service, self.parsed(arguments)?).await?),
        }
    }

    fn parsed<T: DeserializeOwned>(self, arguments: JsonObject) -> Result<T, ToolError> {
        serde_json::from_value(serde_json::Value::Object(arguments))
            .map_err(|error| ToolError::arguments(self.name(), error))
    }
}

/// The arguments of a tool that has none.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoArguments {}

fn with_schemas<A: JsonSchema + 'static, R: JsonSchema + 'static>(tool: rmcp::model::Tool) -> rmcp::model::Tool {
    tool.with_input_schema::<A>().with_output_schema::<R>()
}

/// Returns a result as structured content, and the same JSON as text for clients that do not support structured
/// content.
fn result<T: Serialize>(value: &T) -> Result<CallToolResult, ToolError> {
    Ok(CallToolResult::structured(serde_json::to_value(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_schemas_of_objects_and_says_what_it_changes() {
        for (tool, definition) in McpTool::ALL.into_iter().zip(McpTool::definitions()) {
            let name = tool.name();
            assert_eq!(McpTool::named(name), Some(tool));
            assert_eq!(definition.input_schema["type"], "object", "{name}");
            assert_eq!(definition.input_schema["additionalProperties"], false, "{name}");
            let output = definition.output_schema.unwrap();
            assert_eq!(output["type"], "object", "{name}");
            jsonschema::validator_for(&serde_json::Value::Object((*output).clone())).unwrap();
            assert!(definition.annotations.unwrap().read_only_hint.is_some(), "{name}");
        }
        assert_eq!(McpTool::named("Search"), None);
    }

    #[test]
    fn search_and_fetch_take_what_the_contract_says() {
        let required = |tool: McpTool| tool.definition().input_schema["required"].clone();
        assert_eq!(required(McpTool::Search), serde_json::json!(["query"]));
        assert_eq!(required(McpTool::Fetch), serde_json::json!(["id"]));
    }
}
