//! All settings, one row each. The rows drive parsing, bounds, `dr config`, the check of a project's file, and the tables
//! of `kb/reference/configuration.md`.

use std::ops::RangeInclusive;
use std::path::Path;

use figment::value::Value;
use reqwest::Url;
use serde_json::json;

use super::CollectionOptions;
use super::kind::Kind;
use super::setting::{Setting, Strictness};
use crate::kb::embed::{EmbedderChoice, EndpointOptions, Reads};
use crate::kb::rerank::{self, RerankApi};
use crate::kb::search::SearchMode;
use crate::llm::openai::SchemaSupport;
use crate::llm::roles;
use crate::run::background::DeepResearchOptions;
use crate::run::journal::ProviderKind;
use crate::source::mcp::McpOptions;
use crate::source::web::WebOptions;
use crate::traces::TraceOptions;

/// Hits of one search are bounded because all of them are held in memory.
const LIMIT: Kind = Kind::Whole { least: 1, most: 1_000 };

/// A shorter rolling summary is useless, and a longer one is no summary.
const SUMMARY_TOKENS: Kind = Kind::Whole { least: 200, most: 100_000 };

const COUNT_32: Kind = Kind::Whole { least: 0, most: u32::MAX as u64 };
const FROM_ONE_32: Kind = Kind::Whole { least: 1, most: u32::MAX as u64 };
const FROM_ONE: Kind = Kind::Whole { least: 1, most: u64::MAX };

/// Prices are US dollars for a million tokens; the bound keeps them exact in billionths.
const PRICE: Kind = Kind::Number { least: 0.0, most: 1e6 };

const ANY_NUMBER: Kind = Kind::Number { least: f64::MIN, most: f64::MAX };

const EFFORT: Kind = Kind::OneOf(&["none", "minimal", "low", "medium", "high", "xhigh", "max"]);

const EMBEDDER: Kind = Kind::Checked {
    check: |text| text.parse::<EmbedderChoice>().is_ok(),
    values: "`builtin`, `fastembed:MODEL`, `fastembed:FOLDER` or `endpoint:MODEL`",
    example: "builtin",
};

const PAGE: Kind = Kind::Checked {
    check: |text| text.parse().is_ok_and(|url: Url| ["http", "https"].contains(&url.scheme())),
    values: "an address of the web",
    example: "https://github.com/example/handbook/blob/main",
};

const LANGUAGES: Kind = Kind::Checked {
    check: |text| text.parse::<Reads>().is_ok(),
    values: "`all`, or codes such as `en` or `de, en`",
    example: "en",
};

/// Only the user decides which endpoint receives data, so a project's file may not set these.
const BASE_URL: &str = "address of the endpoint, with its `/v1`";
const KEY_ENV: &str = "name of the variable that holds the key";
const LOCAL: &str = "the endpoint is your own and costs nothing";

const fn row(name: &'static str, kind: Kind, doc: &'static str) -> Setting {
    Setting::new(name, kind, doc)
}

/// Returns a setting that only the user may set, without a default.
const fn own(name: &'static str, kind: Kind, doc: &'static str, unset: &'static str) -> Setting {
    row(name, kind, doc).unset(unset).user_only()
}

/// Every setting, in the order of the manual.
pub(crate) const SETTINGS: &[Setting] = &[
    row("index", Kind::Name, "a folder, or an address (`s3://`, `gs://`, `az://`, `db://`)")
        .unset("nearest .dr")
        .flag()
        .user_only(),
    row(
        "index_cache_mb",
        Kind::Whole { least: 0, most: 1 << 20 },
        "megabytes of an index on an [object store](../how-to/share-an-index.md#the-cache) that this machine keeps; 0 for none",
    )
    .default("1024")
    .variable()
    .user_only(),
    row("embedder", EMBEDDER, "embedder that makes the vectors")
        .unset("the one of the index, else builtin")
        .flag()
        .project_only(
            is_harmless_embedder,
            "names without `.`, `/` or `\\`; a folder to load a model from and a server are refused",
        ),
    row("offline", Kind::Switch, "open no network socket").default("false").flag().stricter(Strictness::True),
    row("threads", Kind::Whole { least: 1, most: 256 }, "threads the embedder uses").unset("all cores").variable(),
    row("mode", Kind::OneOf(SearchMode::NAMES), "how `dr search` searches").default("\"hybrid\"").flag(),
    row("limit", LIMIT, "hits of `dr search`, quotes of `dr recall`").default("10").flag(),
    row("model", Kind::Name, "the language model of every role").unset("by role").flag().if_trusted(),
    row(
        "max_cost",
        Kind::Dollars { zero: true, most: f64::INFINITY },
        "cost limit of a run, and of the vectors that `dr index` has made",
    )
    .default("10")
    .flag()
    .user_only(),
    row("max_tokens", Kind::COUNT, "token limit of a run; the [plan](../concepts/budget.md) lowers the default")
        .default("300000")
        .flag()
        .stricter(Strictness::Lower),
    row("max_time", Kind::Time, "limit of active time; the [plan](../concepts/budget.md) lowers the default")
        .default("\"30m\"")
        .flag()
        .stricter(Strictness::Lower),
    row("max_rounds", FROM_ONE_32, "most rounds of research").default("6").flag().stricter(Strictness::Lower),
    row("max_depth", COUNT_32, "most levels of sub-questions").default("3").flag().stricter(Strictness::Lower),
    row("parallel", Kind::Whole { least: 1, most: 64 }, "sub-questions researched in parallel").default("3").flag(),
    row("summary_tokens", SUMMARY_TOKENS, "tokens of the rolling summary").default("4000").variable(),
    row("reuse", Kind::Switch, "show a run what earlier runs quoted").default("false").variable(),
    row("models.model", Kind::Name, "name of the model at the endpoint")
        .unset("by role, with OpenAI only")
        .if_trusted(),
    own("models.base_url", Kind::Address, BASE_URL, "`OPENAI_BASE_URL`, else OpenAI"),
    row("models.api", Kind::OneOf(&["responses", "chat"]), "API of the endpoint")
        .unset("`responses` with OpenAI, else `chat`")
        .if_trusted(),
    own("models.key_env", Kind::Variable, KEY_ENV, "see [keys](#keys)"),
    row("models.window_tokens", Kind::COUNT, "context window, prompt and reply together")
        .in_force(|| json!(roles::WINDOW_TOKENS))
        .unset("known for common models, else {}")
        .if_trusted(),
    row("models.max_input_tokens", Kind::COUNT, "tokens a prompt may have")
        .in_force(|| json!(roles::MAX_INPUT_TOKENS))
        .unset("{}, or what the window leaves")
        .if_trusted(),
    row("models.max_output_tokens", COUNT_32, "visible tokens a reply may have")
        .in_force(|| json!(roles::MAX_OUTPUT_TOKENS))
        .unset("{}, or a quarter of the window")
        .if_trusted(),
    row("models.reasoning_tokens", COUNT_32, "reasoning tokens in addition to the reply")
        .in_force(|| json!(roles::REASONING_TOKENS))
        .unset("{} for models known to reason, else 0")
        .if_trusted(),
    row("models.effort", EFFORT, "reasoning effort").unset("the endpoint's default").if_trusted(),
    row("models.temperature", ANY_NUMBER, "sampling temperature").unset("the endpoint's default").if_trusted(),
    row(
        "models.schema",
        Kind::OneOf(&["strict", "json", "none"]),
        "replies enforced by JSON Schema, as any JSON, or by the prompt",
    )
    .in_force(|| json!(SchemaSupport::default()))
    .if_trusted(),
    row("models.encoding", Kind::OneOf(&["o200k", "o200k_harmony", "cl100k"]), "tokenizer for counting tokens")
        .unset("known for common models, else `o200k` and a fifth more")
        .if_trusted(),
    row("models.timeout_seconds", FROM_ONE, "seconds one request may take")
        .in_force(|| json!(roles::TIMEOUT.as_secs()))
        .if_trusted(),
    own("models.local", Kind::Bool, LOCAL, "only endpoints on this machine"),
    own("prices.MODEL.input", PRICE, "a million tokens sent", "needed"),
    own("prices.MODEL.output", PRICE, "a million tokens received, reasoning included", "needed"),
    own("prices.MODEL.cached", PRICE, "a million tokens read from the provider's cache", "as `input`"),
    own("prices.MODEL.cache_write", PRICE, "a million tokens written to the provider's cache", "as `input`"),
    own("prices.MODEL.search", PRICE, "one web search", "not known"),
    own("prices.MODEL.long_above", Kind::COUNT, "input tokens above which the whole request costs more", "never"),
    own("prices.MODEL.long_input", PRICE, "input price multiplier above `long_above`", "1"),
    own("prices.MODEL.long_output", PRICE, "output price multiplier above `long_above`", "1"),
    own(
        "web.provider",
        Kind::Separated,
        "`searxng`, `tavily`, `brave`, `exa`, `wikipedia`, `arxiv`, `openalex`, `crossref`, `europepmc`, or several of these, \
         separated by commas or as a list; `fixture:FILE`; `none`",
        "the first of these whose variable is set",
    ),
    own("web.base_url", Kind::Address, "address of the engine", "its own; that of SearXNG is in `SEARXNG_URL`"),
    own("web.key_env", Kind::Variable, KEY_ENV, "`TAVILY_API_KEY`, `BRAVE_API_KEY`, `EXA_API_KEY`, `OPENALEX_API_KEY`"),
    own(
        "web.contact",
        Kind::Text,
        "your mail address or web page, for engines that want to know who sends requests",
        "not sent",
    ),
    row("web.fetch", Kind::Bool, "whether pages are fetched; otherwise nothing from the web is verified")
        .in_force(|| json!(WebOptions::FETCH))
        .user_only(),
    own(
        "web.allowed_hosts",
        Kind::Texts,
        "machines of an intranet: `host`, `host:port`, or a network as `10.1.0.0/16`; no `*`, and no network wider than \
         `/8` (IPv6: `/7`)",
        "none",
    ),
    own(
        "embedding.base_url",
        Kind::Address,
        "address of a server with a route `/embeddings`, with its `/v1`",
        "needed with `endpoint:MODEL`",
    ),
    own("embedding.key_env", Kind::Variable, KEY_ENV, "`OPENAI_API_KEY` with OpenAI, else no key"),
    own(
        "embedding.dimensions",
        Kind::Whole { least: 1, most: 8_192 },
        "components of a vector",
        "known for common models, else needed",
    ),
    own(
        "embedding.shorten",
        Kind::OneOf(&["server", "here"]),
        "where vectors are truncated to `dimensions` (Matryoshka models)",
        "not truncated",
    ),
    own("embedding.query_prefix", Kind::Text, "prepended to queries", "known for common models, else none"),
    own("embedding.passage_prefix", Kind::Text, "prepended to passages", "known for common models, else none"),
    own(
        "embedding.window_tokens",
        Kind::Whole { least: 64, most: 32_768 },
        "tokens of the longest passage, its prefix included",
        "512, or less for models that read less",
    ),
    own("embedding.languages", LANGUAGES, "languages that the model reads", "known for common models, else `all`"),
    row("embedding.batch", Kind::Whole { least: 1, most: 2_048 }, "texts of one request")
        .in_force(|| json!(EndpointOptions::BATCH))
        .user_only(),
    row("embedding.concurrency", Kind::Whole { least: 1, most: 64 }, "requests in flight")
        .in_force(|| json!(EndpointOptions::CONCURRENCY))
        .user_only(),
    row("embedding.timeout_seconds", FROM_ONE, "seconds one request may take")
        .in_force(|| json!(EndpointOptions::TIMEOUT.as_secs()))
        .user_only(),
    own(
        "embedding.price",
        PRICE,
        "a million tokens",
        "that in the table of [prices](prices.md); 0 for a server of your own",
    ),
    own("embedding.local", Kind::Bool, LOCAL, "only servers on this machine"),
    own("rerank.base_url", Kind::Address, "address of a server with a route `/rerank`", "no server"),
    own(
        "rerank.model",
        Kind::Name,
        "`fastembed:MODEL` or `fastembed:FOLDER` for a model on this machine; `llm` for the language model of a run; \
         else its name at the server",
        "the only one of the server",
    ),
    row("rerank.api", Kind::OneOf(&["cohere", "tei"]), "form of the requests")
        .in_force(|| json!(RerankApi::default()))
        .user_only(),
    own("rerank.key_env", Kind::Variable, KEY_ENV, "no key"),
    row("rerank.candidates", Kind::Whole { least: 2, most: 100 }, "hits that are reranked")
        .in_force(|| json!(rerank::CANDIDATES))
        .user_only(),
    row("rerank.timeout_seconds", FROM_ONE, "seconds one request may take")
        .in_force(|| json!(rerank::TIMEOUT.as_secs()))
        .unset("{}; 30 on this machine and for `llm`")
        .user_only(),
    own("rerank.local", Kind::Bool, LOCAL, "only servers on this machine"),
    row("deep_research.provider", Kind::OneOf(ProviderKind::NAMES), "service that carries out the jobs")
        .in_force(|| json!(ProviderKind::default()))
        .user_only(),
    own(
        "deep_research.models",
        Kind::Names,
        "models, in order of preference; an empty list is an error unless `max_jobs` is 0",
        "[a list](../concepts/deep-research.md#one-job)",
    ),
    own("deep_research.base_url", Kind::Address, BASE_URL, "`OPENAI_BASE_URL`, else OpenAI"),
    own("deep_research.key_env", Kind::Variable, KEY_ENV, "as for [models](#keys)"),
    own("deep_research.local", Kind::Bool, LOCAL, "only endpoints on this machine"),
    row("deep_research.effort", EFFORT, "as for models; not sent to models dedicated to research")
        .in_force(|| json!(DeepResearchOptions::EFFORT))
        .user_only(),
    row("deep_research.summaries", Kind::Bool, "whether summaries of the reasoning are asked for")
        .in_force(|| json!(DeepResearchOptions::SUMMARIES))
        .user_only(),
    row("deep_research.max_cost", Kind::Dollars { zero: false, most: 10_000.0 }, "amount reserved for one job")
        .in_force(|| json!(DeepResearchOptions::MAX_COST))
        .user_only(),
    row("deep_research.max_jobs", Kind::Whole { least: 0, most: 100 }, "jobs one run may start; 0 for none")
        .in_force(|| json!(DeepResearchOptions::MAX_JOBS))
        .user_only(),
    row("deep_research.max_tool_calls", FROM_ONE_32, "searches and the like one job may make")
        .in_force(|| json!(DeepResearchOptions::MAX_TOOL_CALLS))
        .user_only(),
    row("deep_research.max_output_tokens", FROM_ONE_32, "tokens of a job's reply, reasoning included")
        .in_force(|| json!(DeepResearchOptions::MAX_OUTPUT_TOKENS))
        .user_only(),
    row("deep_research.timeout_minutes", Kind::Whole { least: 1, most: 1_440 }, "minutes one job may take")
        .in_force(|| json!(DeepResearchOptions::TIMEOUT_MINUTES))
        .user_only(),
    own("deep_research.allowed_domains", Kind::Texts, "hosts that are searched; up to 100", "all"),
    own("deep_research.blocked_domains", Kind::Texts, "hosts that are not searched; up to 100", "none"),
    row("deep_research.code_interpreter", Kind::Bool, "whether the model may run code, on the provider's machines")
        .in_force(|| json!(DeepResearchOptions::CODE_INTERPRETER))
        .user_only(),
    own("deep_research.mcp.label", Kind::Text, "name of a tool server in the model's tool list", "no server"),
    own("deep_research.mcp.url", Kind::Address, "address of the tool server", "needed with `label`"),
    own(
        "deep_research.mcp.key_env",
        Kind::Variable,
        "name of the variable that holds its authorization",
        "no authorization",
    ),
    own("deep_research.mcp.allowed_tools", Kind::Texts, "tools that may be used", "all"),
    own(
        "mcp.NAME.command",
        Kind::Names,
        "program and arguments of a server on stdin and stdout; started in your home folder, without a shell",
        "needed without `url`",
    ),
    own("mcp.NAME.url", Kind::Address, "address of a server on HTTP", "needed without `command`"),
    own(
        "mcp.NAME.label",
        Kind::OneOf(&["internal", "public"]),
        "whether the server may see what the knowledge base says",
        "needed",
    ),
    own("mcp.NAME.tools", Kind::Names, "tools that may be called, if their server marks them read-only", "none"),
    own("mcp.NAME.key_env", Kind::Variable, KEY_ENV, "no key"),
    own("mcp.NAME.environment", Kind::Names, "further variables that the program is given", "none"),
    row("mcp.NAME.timeout_seconds", FROM_ONE, "seconds its start and each call may take")
        .in_force(|| json!(McpOptions::TIMEOUT.as_secs()))
        .user_only(),
    row("mcp.NAME.max_calls", COUNT_32, "calls of one run")
        .in_force(|| json!(McpOptions::MAX_CALLS))
        .user_only(),
    row(
        "traces.texts",
        Kind::Bool,
        "whether [traces](../how-to/export-traces.md) have the texts of a run too: questions, prompts, replies, queries",
    )
    .in_force(|| json!(TraceOptions::default().texts))
    .user_only(),
    row("collections.NAME.local_only", Kind::Bool, "only models on your own machines may see it")
        .in_force(|| json!(CollectionOptions::default().local_only))
        .stricter(Strictness::True),
    row("collections.NAME.allow_egress", Kind::Bool, "texts derived from it may leave this machine")
        .in_force(|| json!(CollectionOptions::default().allow_egress))
        .project_only(|value| value.to_bool() == Some(false), "`false`"),
    own(
        "collections.NAME.url",
        PAGE,
        "where its documents are published, for the addresses that `dr mcp` returns",
        "none",
    ),
    row(
        "collections.NAME.include",
        Kind::SomeOf(&["pdf", "html"]),
        "formats that [are read](../how-to/read-pdf-and-html.md) beside Markdown and plain text",
    )
    .unset("those of the last `dr index --include`"),
    row(
        "collections.NAME.about.PATH",
        Kind::Text,
        "a sentence about a folder or file (`.` is the collection), shown with its hits and to workers that search it; \
         that of `.` in refusals, too",
    )
    .unset("none"),
];

/// Returns the bounds of an integer setting, for its flag.
///
/// # Panics
///
/// Panics for an unknown setting. The test of the help covers every caller.
pub(crate) fn bounds(name: &str) -> RangeInclusive<i64> {
    let kind = SETTINGS.iter().find(|setting| setting.name == name).map(|setting| setting.kind);
    let Some(Kind::Whole { least, most }) = kind else { unreachable!("`{name}` is a setting with bounds") };
    // clap takes ranges of `i64` for every type of integer.
    let clamped = |bound: u64| i64::try_from(bound).unwrap_or(i64::MAX);
    clamped(least)..=clamped(most)
}

/// Returns whether an embedder loads no file from the project.
fn is_harmless_embedder(value: &Value) -> bool {
    match value.as_str().unwrap_or_default().parse() {
        // Without these letters, a name may still be that of a folder in the working directory.
        Ok(EmbedderChoice::Fastembed(model)) => !model.contains(['/', '\\', '.']) && !Path::new(&model).exists(),
        Ok(EmbedderChoice::Builtin) => true,
        // It contacts a server, and may cost money.
        Ok(EmbedderChoice::Endpoint(_)) | Err(_) => false,
    }
}
