//! The body of the request that starts a job, with the fields that its model accepts.

use serde_json::{Value, json};

use crate::llm::openai::reasons;
#[cfg(test)]
use crate::run::background::request::JobTerms;
use crate::run::background::request::{JobRequest, McpServer};

/// The tools of an MCP server that OpenAI's research models can call.
const RESEARCH_TOOLS: [&str; 2] = ["search", "fetch"];

/// The request fields a model accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Capabilities {
    /// Whether the model is dedicated to research. Such models accept neither an effort nor functions nor a schema.
    is_research_model: bool,
    /// Whether the model reasons and can summarise its reasoning.
    reasons: bool,
    /// Whether the search tool accepts a filter of hosts. For other models the prompt names the hosts.
    filters_domains: bool,
}

impl Capabilities {
    /// Derives the capabilities from the name of the model: the API does not report them.
    fn of(model: &str) -> Self {
        let is_research_model = model.contains("-deep-research");
        Self { is_research_model, reasons: is_research_model || reasons(model), filters_domains: !is_research_model }
    }
}

pub(super) fn request_body(request: &JobRequest) -> Value {
    let mut body = stored_body(request);
    let authorization = request.terms.mcp.as_ref().and_then(|server| server.authorization.as_ref());
    let tools = body["tools"].as_array_mut().into_iter().flatten();
    if let (Some(secret), Some(tool)) = (authorization, tools.into_iter().find(|tool| tool["type"] == "mcp")) {
        tool["authorization"] = secret.reveal().into();
    }
    body
}

/// Returns the body without the secret of the tool server.
fn stored_body(request: &JobRequest) -> Value {
    let capabilities = Capabilities::of(&request.model);
    let mut body = json!({
        "model": request.model,
        "input": [{ "type": "message", "role": "user", "content": told(request, capabilities) }],
        "background": true,
        // A run resumed a day later still has to fetch the reply.
        "store": true,
        // The API's only bound on what a job costs beside the length of its reply.
        "max_tool_calls": request.terms.max_tool_calls,
        "max_output_tokens": request.terms.max_output_tokens,
        "tools": tools(request, capabilities),
        "metadata": { "dr_run": request.run.to_string(), "dr_node": request.node.to_string() },
    });
    let mut reasoning = serde_json::Map::new();
    if capabilities.reasons && request.terms.summaries {
        reasoning.insert("summary".into(), "auto".into());
    }
    if capabilities.reasons && !capabilities.is_research_model {
        reasoning.insert("effort".into(), json!(request.terms.effort));
    }
    if !reasoning.is_empty() {
        body["reasoning"] = reasoning.into();
    }
    body
}

/// Returns the prompt. It names the hosts if the search tool has no filter for them.
fn told(request: &JobRequest, capabilities: Capabilities) -> String {
    let mut prompt = request.instructions.as_str().to_owned();
    if capabilities.filters_domains {
        return prompt;
    }
    if !request.terms.allowed_domains.is_empty() {
        prompt
            .push_str(&format!("\n\nUse only sources from these sites: {}.", request.terms.allowed_domains.join(", ")));
    }
    if !request.terms.blocked_domains.is_empty() {
        prompt.push_str(&format!("\n\nUse no source from these sites: {}.", request.terms.blocked_domains.join(", ")));
    }
    prompt
}

fn tools(request: &JobRequest, capabilities: Capabilities) -> Vec<Value> {
    let kind = if capabilities.is_research_model { "web_search_preview" } else { "web_search" };
    let mut search = json!({ "type": kind });
    if capabilities.filters_domains {
        for (name, domains) in
            [("allowed_domains", &request.terms.allowed_domains), ("blocked_domains", &request.terms.blocked_domains)]
        {
            if !domains.is_empty() {
                search["filters"][name] = json!(domains);
            }
        }
    }
    let mut tools = vec![search];
    if request.terms.code_interpreter {
        tools.push(json!({ "type": "code_interpreter", "container": { "type": "auto" } }));
    }
    tools.extend(request.terms.mcp.as_ref().map(|server| mcp_tool(server, capabilities)));
    tools
}

fn mcp_tool(server: &McpServer, capabilities: Capabilities) -> Value {
    let mut tool = json!({
        "type": "mcp",
        "server_label": server.label,
        "server_url": server.url.to_string(),
        // A background job cannot ask the user to approve a call.
        "require_approval": "never",
    });
    if !server.allowed_tools.is_empty() {
        tool["allowed_tools"] = json!(server.allowed_tools);
    } else if capabilities.is_research_model {
        tool["allowed_tools"] = json!(RESEARCH_TOOLS);
    }
    tool
}

#[cfg(test)]
pub(super) fn sample(model: &str) -> JobRequest {
    JobRequest {
        model: model.into(),
        instructions: crate::base::outbound::Outbound::fixed("Find out what drip lines cost."),
        terms: JobTerms {
            effort: crate::llm::model::Effort::High,
            summaries: true,
            max_tool_calls: 12,
            max_output_tokens: 9_000,
            allowed_domains: vec![],
            blocked_domains: vec![],
            code_interpreter: false,
            mcp: None,
        },
        run: "4f1c09a2b7de5533".parse().unwrap(),
        node: "n2".parse().unwrap(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::model::Effort;

    fn body(request: &JobRequest) -> Value {
        request_body(request)
    }

    #[test]
    fn reasoning_model_is_told_its_effort_and_searches_with_filters() {
        let mut request = sample("gpt-6.1-sol");
        request.terms.allowed_domains = vec!["example.org".into()];
        request.terms.blocked_domains = vec!["spam.example".into()];
        request.terms.effort = Effort::Xhigh;
        let expected = json!({
            "model": "gpt-6.1-sol",
            "input": [{ "type": "message", "role": "user", "content": "Find out what drip lines cost." }],
            "background": true,
            "store": true,
            "max_tool_calls": 12,
            "max_output_tokens": 9_000,
            "reasoning": { "effort": "xhigh", "summary": "auto" },
            "tools": [{
                "type": "web_search",
                "filters": { "allowed_domains": ["example.org"], "blocked_domains": ["spam.example"] },
            }],
            "metadata": { "dr_run": "4f1c09a2b7de5533", "dr_node": "n2" },
        });
        assert_eq!(body(&request), expected);
    }

    #[test]
    fn research_model_gets_no_effort_and_is_told_its_hosts_in_words() {
        let mut request = sample("o4-mini-deep-research-2025-06-26");
        request.terms.allowed_domains = vec!["example.org".into(), "example.com".into()];
        request.terms.blocked_domains = vec!["spam.example".into()];
        request.terms.code_interpreter = true;
        let body = body(&request);
        assert_eq!(body["reasoning"], json!({ "summary": "auto" }));
        let tools = json!([
            { "type": "web_search_preview" },
            { "type": "code_interpreter", "container": { "type": "auto" } },
        ]);
        assert_eq!(body["tools"], tools);
        let prompt = body["input"][0]["content"].as_str().unwrap();
        assert!(prompt.contains("only sources from these sites: example.org, example.com."), "{prompt}");
        assert!(prompt.contains("no source from these sites: spam.example."), "{prompt}");
        assert_eq!((body.get("text"), body.get("temperature")), (None, None));
    }

    #[test]
    fn model_that_does_not_reason_is_told_nothing_of_it() {
        assert_eq!(body(&sample("gpt-4.1")).get("reasoning"), None);
        let mut silent = sample("o3-deep-research");
        silent.terms.summaries = false;
        assert_eq!(body(&silent).get("reasoning"), None);
    }

    #[test]
    fn secret_of_a_tool_server_is_sent_and_not_stored() {
        let server = McpServer {
            label: "notes".into(),
            url: "https://notes.example/mcp".parse().unwrap(),
            authorization: Some("mcp-secret".parse().unwrap()),
            allowed_tools: vec![],
        };
        let mut request = sample("o3-deep-research");
        request.terms.mcp = Some(server);
        let mut sent = body(&request);
        let stored = stored_body(&request);
        assert_eq!(sent["tools"][1]["authorization"], "mcp-secret");
        assert_eq!(sent["tools"][1]["require_approval"], "never");
        assert_eq!(sent["tools"][1]["allowed_tools"], json!(["search", "fetch"]));
        assert!(!stored.to_string().contains("mcp-secret") && !format!("{request:?}").contains("mcp-secret"));
        sent["tools"][1].as_object_mut().unwrap().remove("authorization");
        assert_eq!(sent, stored);
    }
}
