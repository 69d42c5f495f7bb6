//! The request for a background job, independent of its provider.

use crate::base::http::{BaseUrl, Secret};
use crate::base::id::RunId;
use crate::base::outbound::Outbound;
use crate::llm::model::Effort;
use crate::research::node::NodeId;

/// The task of a job and its limits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobRequest {
    /// The model's name at the endpoint.
    pub(crate) model: String,
    /// The whole prompt; a background job cannot ask the user for details.
    pub(crate) instructions: Outbound,
    /// Limits and tools.
    pub(crate) terms: JobTerms,
    /// With the node, the name of the job in the provider's console.
    pub(crate) run: RunId,
    pub(crate) node: NodeId,
}

/// Limits and tools of every job, from the settings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobTerms {
    /// Reasoning effort, for models that accept one.
    pub(crate) effort: Effort,
    /// Whether to request reasoning summaries. Some accounts may not use them.
    pub(crate) summaries: bool,
    /// Maximum number of calls of all tools together. The model continues without tools after that.
    pub(crate) max_tool_calls: u32,
    /// Maximum number of tokens of the reply, reasoning included.
    pub(crate) max_output_tokens: u32,
    /// Hosts it may search, with their subdomains; empty for all hosts.
    pub(crate) allowed_domains: Vec<String>,
    /// Hosts it may not search, with their subdomains.
    pub(crate) blocked_domains: Vec<String>,
    /// Whether the model may run code on the provider's machines.
    pub(crate) code_interpreter: bool,
    /// A tool server of the user's choice.
    pub(crate) mcp: Option<McpServer>,
}

/// A tool server. The provider connects to it directly.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct McpServer {
    /// Its name in the model's tool list.
    pub(crate) label: String,
    pub(crate) url: BaseUrl,
    pub(crate) authorization: Option<Secret>,
    /// The tools the model may call; empty for all.
    pub(crate) allowed_tools: Vec<String>,
}
