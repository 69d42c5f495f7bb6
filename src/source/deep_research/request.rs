//! The request for a background job, independent of its provider.

use std::collections::BTreeMap;

use crate::base::http::{BaseUrl, Secret};
use crate::base::outbound::Outbound;
use crate::llm::openai::Effort;

/// The task of a job and its limits.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRequest {
    /// The model's name at the endpoint.
    pub model: String,
    /// The whole prompt; a background job cannot ask the user for details.
    pub instructions: Outbound,
    /// Reasoning effort, for models that accept one.
    pub effort: Effort,
    /// Whether to request reasoning summaries. Some accounts may not use them.
    pub summaries: bool,
    /// Most calls of all tools together. The model continues without tools after that.
    pub max_tool_calls: u32,
    /// Most tokens of the reply, reasoning included.
    pub max_output_tokens: u32,
    /// Hosts it may search, with their subdomains; empty for all hosts.
    pub allowed_domains: Vec<String>,
    /// Hosts it may not search, with their subdomains.
    pub blocked_domains: Vec<String>,
    /// Whether the model may run code on the provider's machines.
    pub code_interpreter: bool,
    /// A tool server of the user's choice.
    pub mcp: Option<McpServer>,
    /// The run and the node, by which the job can be found in the provider's console.
    pub metadata: BTreeMap<String, String>,
}

/// A tool server. The provider connects to it directly.
#[derive(Clone, Debug, PartialEq)]
pub struct McpServer {
    /// Its name in the model's tool list.
    pub label: String,
    /// Its address.
    pub url: BaseUrl,
    /// The authorization sent to it.
    pub authorization: Option<Secret>,
    /// The tools the model may call; empty for all.
    pub allowed_tools: Vec<String>,
}
