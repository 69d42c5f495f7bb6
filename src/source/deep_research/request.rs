//! What a job is asked to do, and within which limits.

use std::collections::BTreeMap;

use crate::base::http::{BaseUrl, Secret};
use crate::base::outbound::Outbound;
use crate::llm::openai::Effort;

/// What a job is to do, and within which limits.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRequest {
    /// The name the endpoint knows the model by.
    pub model: String,
    /// The whole prompt: no one is asked back.
    pub instructions: Outbound,
    /// How hard a model thinks that can be told so.
    pub effort: Effort,
    /// Whether summaries of its reasoning are asked for; some accounts may not have them.
    pub summaries: bool,
    /// Calls of all tools together, at most; the model goes on without those beyond.
    pub max_tool_calls: u32,
    /// Tokens of the reply, reasoning included.
    pub max_output_tokens: u32,
    /// Hosts it may search, their subdomains included; all where there are none.
    pub allowed_domains: Vec<String>,
    /// Hosts it may not search, their subdomains included.
    pub blocked_domains: Vec<String>,
    /// Whether it may run code of its own, at the provider's.
    pub code_interpreter: bool,
    /// A server of the user's choice that it may ask.
    pub mcp: Option<McpServer>,
    /// What the job is found by at the provider's: the run and the node.
    pub metadata: BTreeMap<String, String>,
}

/// A tool server that the provider reaches by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct McpServer {
    /// What the model calls it.
    pub label: String,
    /// Where it is.
    pub url: BaseUrl,
    /// What it is presented with.
    pub authorization: Option<Secret>,
    /// The tools that may be used; all where there are none.
    pub allowed_tools: Vec<String>,
}
