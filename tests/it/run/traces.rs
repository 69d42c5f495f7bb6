use std::collections::BTreeSet;
use std::net::TcpListener;
#[cfg(unix)]
use std::process::Stdio;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;
use serde_json::Value;

use super::{ABOUT_ONE, KEY, ONE_ROUND, QUESTION, endpoint, faulty, topics, topics_at, world_at};
use crate::common::{Run, World};
use crate::model_server::{ModelServer, Response};
use crate::outside::{self, greenhouse_at, searching};
use crate::reader;
use crate::web_server::{Kind, Setup};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// A collector: decodes what it receives with the official messages.
pub(crate) struct Collector(ModelServer);

impl Collector {
    pub(crate) fn start() -> Self {
        let accepted = vec![("Content-Type", "application/x-protobuf".to_owned())];
        Self(ModelServer::always(Response::Bytes { status: 200, headers: accepted, body: Vec::new() }))
    }

    pub(crate) fn address(&self) -> String {
        format!("http://{}", self.0.address())
    }

    fn messages(&self) -> Vec<ExportTraceServiceRequest> {
        let decode = |body: &[u8]| ExportTraceServiceRequest::decode(body).unwrap();
        self.0.requests().iter().map(|request| decode(&request.body)).collect()
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        let scopes = self.messages().into_iter().flat_map(|message| message.resource_spans);
        scopes.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
    }
}

fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let value = attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()?;
    Some(match value {
        Attribute::StringValue(text) => text.clone(),
        Attribute::BoolValue(is) => is.to_string(),
        Attribute::IntValue(number) => number.to_string(),
        Attribute::DoubleValue(number) => number.to_string(),
        Attribute::ArrayValue(values) => format!("{:?}", values.values),
        other => panic!("{key}: {other:?}"),
    })
}

fn of(span: &Span, key: &str) -> String {
    text(&span.attributes, key).unwrap_or_else(|| panic!("no `{key}` in {span:#?}"))
}

fn number(span: &Span, key: &str) -> f64 {
    of(span, key).parse().unwrap()
}

fn operation<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    let is = |span: &&Span| text(&span.attributes, "gen_ai.operation.name").as_deref() == Some(name);
    spans.iter().filter(is).collect()
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

fn parent<'a>(spans: &'a [Span], span: &Span) -> &'a Span {
    let parent = spans.iter().find(|known| known.span_id == span.parent_span_id);
    parent.unwrap_or_else(|| panic!("no parent of {span:#?}"))
}

fn failed(span: &Span) -> bool {
    span.status.as_ref().is_some_and(|status| status.code == StatusCode::Error as i32)
}

/// Asserts that no span has a text: names, ids and figures have no spaces in them.
pub(crate) fn assert_no_texts(spans: &[Span]) {
    assert!(!spans.is_empty());
    for span in spans {
        assert!(span.events.is_empty() && span.links.is_empty(), "{span:#?}");
        assert!(span.status.as_ref().is_none_or(|status| status.message.is_empty()), "{span:#?}");
        for KeyValue { key, value, .. } in &span.attributes {
            let value = value.as_ref().and_then(|value| value.value.clone());
            if let Some(Attribute::StringValue(text)) = value {
                assert!(!text.contains(char::is_whitespace), "{key}: {text}");
            }
        }
    }
}

/// Returns a collector, an endpoint, and a world that exports to the one and asks the other.
fn traced() -> (Collector, ModelServer, World) {
    let (collector, (server, world)) = (Collector::start(), topics_at(endpoint(ONE_ROUND)));
    let world = world.with_variable(ENDPOINT, collector.address());
    (collector, server, world)
}

/// Returns stdout without what differs between two runs of the same question.
fn answer(run: &Run) -> String {
    let varying = regex::Regex::new(r"[0-9a-f]{16}|\d+(\.\d+)? s\b").unwrap();
    varying.replace_all(&run.stdout, "*").into_owned()
}

#[test]
fn spans_of_a_run_have_the_parents_kinds_and_attributes_of_the_conventions() {
    let (collector, server, world) = traced();
    world.set("[prices.scripted]\ninput = 1.0\noutput = 4.0\n");
    let asked = world.dr(["ask", "--json", "--quiet", QUESTION]).succeeded();
    assert_eq!(asked.stderr, "");
    let (spans, report) = (collector.spans(), asked.json());

    let traces: BTreeSet<_> = spans.iter().map(|span| &span.trace_id).collect();
    assert_eq!(traces.len(), 1);
    let [run] = operation(&spans, "invoke_workflow")[..] else { panic!("{spans:#?}") };
    assert!(run.parent_span_id.is_empty() && run.name == "invoke_workflow dr");
    assert_eq!(of(run, "dr.run.id"), world.run_ids()[0]);
    assert_eq!((of(run, "dr.run.stop_reason"), of(run, "gen_ai.workflow.name")), ("complete".into(), "dr".into()));
    let cost = report["usage"]["total"]["cost_usd"].as_f64().unwrap();
    let nodes = report["tree"]["nodes"].as_array().unwrap().len();
    assert_eq!(of(run, "dr.run.nodes"), nodes.to_string(), "as `dr runs` and the report count them");
    assert!(cost > 0.0 && (number(run, "dr.run.cost_usd") - cost).abs() < 1e-9, "{cost} {run:#?}");

    let [round] = named(&spans, "round")[..] else { panic!("{spans:#?}") };
    assert_eq!((parent(&spans, round), of(round, "dr.round.number")), (run, "1".into()));
    let nodes = operation(&spans, "invoke_agent");
    let ids: BTreeSet<_> = nodes.iter().map(|node| of(node, "dr.node.id")).collect();
    assert_eq!(ids.into_iter().collect::<Vec<_>>(), ["n2", "n3", "n4", "n5"]);
    for node in nodes {
        assert_eq!((parent(&spans, node), of(node, "dr.node.route")), (round, "internal".into()));
        assert!(number(node, "dr.node.findings") > 0.0 && number(node, "dr.node.quotes") > 0.0);
    }
    for (step, within) in [("brief", run), ("plan", run), ("fold", round), ("write", round), ("judge", round)] {
        assert_eq!(parent(&spans, named(&spans, step)[0]), within, "{step}");
    }
    for step in named(&spans, "work").into_iter().chain(named(&spans, "compress")) {
        assert_eq!(parent(&spans, step).name, "invoke_agent worker");
    }

    let calls = operation(&spans, "chat");
    assert_eq!(calls.len(), server.count());
    let (mut dollars, mut tokens) = (0.0, 0.0);
    for call in calls {
        assert_eq!((call.name.as_str(), call.kind), ("chat scripted", SpanKind::Client as i32));
        assert!(of(parent(&spans, call), "dr.step.name").len() > 3);
        let known = [
            ("gen_ai.provider.name", "openai_compatible"),
            ("gen_ai.request.model", "scripted"),
            ("gen_ai.output.type", "json"),
            ("server.address", "127.0.0.1"),
            ("server.port", &server.address().port().to_string()),
        ];
        for (key, value) in known {
            assert_eq!(of(call, key), value);
        }
        assert!(of(call, "gen_ai.response.finish_reasons").contains("\"stop\""), "{call:#?}");
        assert!(number(call, "gen_ai.request.max_tokens") > 0.0 && !of(call, "dr.call.key").is_empty());
        tokens += number(call, "gen_ai.usage.input_tokens") + number(call, "gen_ai.usage.output_tokens");
        dollars += number(call, "dr.cost_usd");
        assert!(call.end_time_unix_nano > call.start_time_unix_nano && !failed(call));
    }
    assert!((dollars - cost).abs() < 1e-9, "{dollars} of {cost}");
    assert!((tokens - number(run, "dr.run.tokens")).abs() < 0.5, "{tokens}");

    let searches = named(&spans, "retrieval kb");
    assert!(!searches.is_empty());
    for search in searches {
        assert_eq!((of(search, "gen_ai.data_source.id"), search.kind), ("kb".into(), SpanKind::Client as i32));
        assert!(number(search, "dr.search.hits") > 0.0);
    }
}

#[test]
fn collector_learns_the_program_and_nothing_of_the_machine_and_headers_are_sent() {
    let (collector, _server, world) = traced();
    let world = world
        .with_variable("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=tenant-7")
        .with_variable("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test");
    world.dr(["ask", "--quiet", QUESTION]).succeeded();
    let request = &collector.0.requests()[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/traces"));
    let header = |name: &str| request.headers.get(name).map(String::as_str);
    assert_eq!((header("content-type"), header("x-tenant")), (Some("application/x-protobuf"), Some("tenant-7")));
    assert!(header("user-agent").unwrap().starts_with("dr/"), "{request:?}");
    let messages = collector.messages();
    let resource = &messages[0].resource_spans[0].resource.as_ref().unwrap().attributes;
    let mut keys: Vec<_> = resource.iter().map(|attribute| attribute.key.as_str()).collect();
    keys.sort_unstable();
    let telemetry = ["telemetry.sdk.language", "telemetry.sdk.name", "telemetry.sdk.version"];
    let own = ["deployment.environment.name", "service.name", "service.version"];
    assert_eq!(keys, [&own[..], &telemetry].concat());
    assert_eq!(text(resource, "service.name").unwrap(), "dr");
    let world = world.with_variable("OTEL_SERVICE_NAME", "handbook");
    world.dr(["ask", "--quiet", "--fresh", QUESTION]).succeeded();
    let last = collector.messages().pop().unwrap();
    assert_eq!(
        text(&last.resource_spans[0].resource.as_ref().unwrap().attributes, "service.name").unwrap(),
        "handbook"
    );
}

#[test]
fn no_text_of_question_files_replies_or_queries_is_exported() {
    let (collector, _server, world) = traced();
    // The log is on, since logged texts must not be exported.
    let world = world.with_variable("DR_LOG", "trace,dr=trace");
    world.dr(["ask", "--quiet", QUESTION]).succeeded();
    assert_no_texts(&collector.spans());
    let received = collector.0.received();
    for text in [QUESTION, "Topic 1", "described", "topic-1.md", "What is", KEY, &world.path("").display().to_string()]
    {
        assert!(!received.contains(text), "{text}");
    }
}

#[test]
fn of_the_web_the_names_of_hosts_are_exported_and_no_address_query_or_snippet() {
    let collector = Collector::start();
    let (server, world) = searching(Setup::new(reader::say));
    let world = world.with_variable(ENDPOINT, collector.address());
    let ask = ["ask", "--quiet", "--no-deep-research", "--source", "web", "--mode", "deep", outside::QUESTION];
    world.dr(ask).succeeded();
    let spans = collector.spans();
    assert_no_texts(&spans);
    let asked = |span: &&&Span| text(&span.attributes, "dr.source.asked").is_some();
    let searches = named(&spans, "retrieval web");
    assert_eq!(searches.iter().filter(asked).count(), outside::count(&server, Kind::SearxNg));
    let fetches = operation(&spans, "execute_tool");
    assert_eq!(fetches.iter().filter(asked).count(), outside::count(&server, Kind::Page));
    assert!(!fetches.is_empty() && fetches.iter().all(|fetch| of(fetch, "server.address") == "127.0.0.1"));
    let received = collector.0.received();
    for text in ["/articles", "greenhouse", "water", server.origin()] {
        assert!(!received.contains(text), "{text}");
    }
}

#[test]
fn background_job_is_a_span_with_its_model_and_id() {
    let collector = Collector::start();
    let (server, world) = greenhouse_at(Setup::new(reader::say).with_polls(0));
    let world = world.with_variable(ENDPOINT, collector.address());
    world.dr(["ask", "--quiet", "--mode", "deep", outside::QUESTION]).succeeded();
    let spans = collector.spans();
    assert_no_texts(&spans);
    let jobs = named(&spans, "invoke_agent deep_research");
    assert_eq!(jobs.len(), server.jobs().len());
    for job in jobs {
        assert_eq!((job.kind, parent(&spans, job).name.as_str()), (SpanKind::Client as i32, "invoke_agent worker"));
        assert!(of(job, "gen_ai.response.id").starts_with("resp_fixture"), "{job:#?}");
        assert!(number(job, "gen_ai.usage.output_tokens") > 0.0 && number(job, "dr.call.id") > 0.0);
        assert!(!of(job, "gen_ai.request.model").is_empty() && !of(job, "gen_ai.response.model").is_empty());
        assert!(of(job, "gen_ai.response.finish_reasons").contains("\"stop\""), "{job:#?}");
    }
}

#[test]
fn texts_are_exported_with_a_setting_of_the_user_that_a_project_may_not_set() {
    let (collector, _server, world) = traced();
    world.write("dr.toml", "[traces]\ntexts = true\n");
    let refused = world.dr(["ask", QUESTION]);
    assert_eq!(refused.exit, Some(2), "{refused}");
    assert!(refused.stderr.contains("`traces.texts`, which a project may not"), "{refused}");
    std::fs::remove_file(world.path("dr.toml")).unwrap();

    world.set("[traces]\ntexts = true\n");
    world.dr(["ask", "--quiet", QUESTION]).succeeded();
    let spans = collector.spans();
    let run = operation(&spans, "invoke_workflow")[0];
    assert_eq!(of(run, "dr.run.question"), QUESTION);
    for call in operation(&spans, "chat") {
        let input: Value = serde_json::from_str(&of(call, "gen_ai.input.messages")).unwrap();
        assert_eq!(input[0]["role"], "system");
        assert!(input[1]["parts"][0]["content"].as_str().unwrap().len() > 10, "{input:#}");
        let output: Value = serde_json::from_str(&of(call, "gen_ai.output.messages")).unwrap();
        assert_eq!((&output[0]["role"], &output[0]["finish_reason"]), (&"assistant".into(), &"stop".into()));
    }
    assert!(named(&spans, "retrieval kb").iter().all(|search| !of(search, "gen_ai.retrieval.query.text").is_empty()));
}

#[test]
fn texts_of_a_collection_that_is_local_only_reach_a_collector_on_this_machine_alone() {
    let (collector, server, world) = traced();
    world.set("[traces]\ntexts = true\n[collections.kb]\nlocal_only = true\n");
    world.dr(["ask", "--quiet", QUESTION]).succeeded();
    assert!(collector.0.received().contains(QUESTION));

    // A collector elsewhere, behind a proxy.
    let proxy = Collector::start();
    let world = world_at(&server).with_variable(ENDPOINT, "http://collector.example");
    let world = world.with_variable("HTTP_PROXY", proxy.address());
    world.set("[traces]\ntexts = true\n[collections.kb]\nlocal_only = true\n");
    world.dr(["ask", "--quiet", QUESTION]).succeeded();
    assert!(proxy.0.requests()[0].path.contains("collector.example"));
    assert_no_texts(&proxy.spans());

    let open = Collector::start();
    let world = world.with_variable("HTTP_PROXY", open.address());
    world.set("[traces]\ntexts = true\n");
    world.dr(["ask", "--quiet", "--fresh", QUESTION]).succeeded();
    assert!(open.0.received().contains(QUESTION));
}

#[test]
fn nothing_is_exported_offline_which_is_said_once_after_a_run() {
    let collector = Collector::start();
    let world = topics();
    let without = world.dr(["ask", "--offline", ABOUT_ONE]).succeeded();
    let world = world.with_variable(ENDPOINT, collector.address());
    let asked = world.dr(["ask", "--offline", "--fresh", ABOUT_ONE]).succeeded();
    assert_eq!(asked.stderr.matches("note: traces were not exported: dr is offline\n").count(), 1, "{asked}");
    assert_eq!(answer(&asked), answer(&without));
    let events = world.dr(["ask", "--offline", "--fresh", "--events", "jsonl", ABOUT_ONE]).succeeded().stderr;
    let last: Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_eq!((&last["kind"], &last["text"]), (&"note".into(), &"traces were not exported: dr is offline".into()));
    // Nothing was to be exported.
    let searched = world.dr(["search", "--offline", "topic"]).succeeded();
    assert!(!searched.stderr.contains("traces"), "{searched}");
    assert_eq!(collector.0.count(), 0);
}

#[test]
fn collector_that_is_down_slow_or_refuses_costs_a_note_and_changes_neither_answer_nor_exit_code() {
    let world = topics();
    let without = world.dr(["ask", ABOUT_ONE]).succeeded();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refusing = ModelServer::always(Response::text(503, "not now"));
    let redirecting = ModelServer::always(Response::text(307, "").with_header("Location", "http://127.0.0.1:9/"));
    let hanging = ModelServer::always(Response::Hang);
    for (address, why) in [
        (closed.to_string(), "no reply"),
        (refusing.address().to_string(), "replied with status 503"),
        (redirecting.address().to_string(), "replied with status 307"),
        (hanging.address().to_string(), "no reply in time"),
    ] {
        let mut command = world.command(["ask", "--fresh", ABOUT_ONE]);
        command.env(ENDPOINT, format!("http://{address}")).env("OTEL_EXPORTER_OTLP_TIMEOUT", "200");
        let asked = world.run_of(command.output().unwrap()).succeeded();
        assert_eq!(answer(&asked), answer(&without));
        let note = asked.stderr.lines().find(|line| line.starts_with("note: traces were not exported: "));
        let note = note.unwrap_or_else(|| panic!("{why}: {asked}"));
        assert!(note.contains(&address) && note.contains(why), "{note}");
        assert_eq!(asked.stderr.matches("not exported").count(), 1, "{asked}");
    }
    // Without a time-out of its own, the end of the command is bounded all the same.
    let mut command = world.command(["ask", "--fresh", ABOUT_ONE]);
    command.env(ENDPOINT, format!("http://{}", hanging.address()));
    let asked = world.run_of(command.output().unwrap()).succeeded();
    assert!(asked.stderr.contains("note: traces were not exported: the collector took longer than 3000 ms"), "{asked}");
}

#[cfg(unix)]
#[test]
fn signal_while_a_collector_is_waited_for_drops_the_traces_and_keeps_the_exit_code() {
    crate::signals::deliver_signals();
    let world = topics();
    for (question, exit) in [(ABOUT_ONE, 0), ("Who painted the ceiling of the chapel?", 3)] {
        let without = world.dr(["ask", "--fresh", question]);
        assert_eq!(without.exit, Some(exit), "{without}");
        let (collector, has_come) = crate::mcp::silent();
        let mut command = world.command(["ask", "--fresh", question]);
        // Nothing is sent before the end.
        command.env(ENDPOINT, format!("http://{}", collector.address())).env("OTEL_BSP_SCHEDULE_DELAY", "600000");
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        has_come.recv().unwrap();
        super::kills::send("INT", &child);
        let asked = world.run_of(child.wait_with_output().unwrap());
        assert_eq!((asked.exit, answer(&asked)), (Some(exit), answer(&without)), "{asked}");
        assert!(asked.stderr.contains("note: traces were not exported: interrupted\n"), "{asked}");
    }
}

#[test]
fn protocol_that_is_not_spoken_is_said_and_what_turns_traces_off_is_not() {
    let collector = Collector::start();
    let world = topics().with_variable(ENDPOINT, collector.address());
    for (variable, value, note) in [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "`OTEL_EXPORTER_OTLP_PROTOCOL` is `grpc`"),
        ("OTEL_SDK_DISABLED", "true", ""),
        ("OTEL_TRACES_EXPORTER", "none", ""),
    ] {
        let mut command = world.command(["ask", "--fresh", ABOUT_ONE]);
        let asked = world.run_of(command.env(variable, value).output().unwrap()).succeeded();
        assert_eq!(asked.stderr.contains("traces were not exported"), !note.is_empty(), "{asked}");
        assert!(asked.stderr.contains(note), "{asked}");
    }
    assert_eq!(collector.0.count(), 0);
}

#[test]
fn doctor_says_whether_traces_are_exported_and_where_to() {
    let world = World::indexed_text();
    let check = |world: &World, args: &[&str]| {
        let checked = world.dr(args).stdout;
        checked.lines().find(|line| line.contains(" traces ")).unwrap().to_owned()
    };
    assert!(check(&world, &["doctor"]).ends_with("not exported: `OTEL_EXPORTER_OTLP_ENDPOINT` is not set"));
    let world = world.with_variable(ENDPOINT, "http://localhost:4318");
    let exported = check(&world, &["doctor"]);
    assert!(exported.ends_with("exported to http://localhost:4318/v1/traces, without texts"), "{exported}");
    world.set("[traces]\ntexts = true\n");
    assert!(check(&world, &["doctor"]).ends_with("/v1/traces, with texts"));
    let offline = check(&world, &["doctor", "--offline"]);
    assert!(offline.starts_with("note ") && offline.ends_with("not exported: dr is offline"), "{offline}");
    let world = world.with_variable(ENDPOINT, "collector");
    let invalid = check(&world, &["doctor"]);
    assert!(invalid.starts_with("note ") && invalid.contains("`collector` is not a valid URL"), "{invalid}");
}

#[test]
fn resumed_run_continues_its_trace() {
    let (collector, _server, world) = traced();
    world.dr(["plan", "--quiet", QUESTION]).succeeded();
    let planned = collector.spans();
    world.dr(["resume", "--quiet"]).succeeded();
    let spans = collector.spans();
    assert!(spans.len() > planned.len());
    let traces: BTreeSet<_> = spans.iter().map(|span| &span.trace_id).collect();
    assert_eq!(traces.len(), 1);
    let [first, resumed] = operation(&spans, "invoke_workflow")[..] else { panic!("{spans:#?}") };
    assert!(first.parent_span_id.is_empty() && text(&first.attributes, "dr.run.resumed").is_none());
    assert_eq!((parent(&spans, resumed), of(resumed, "dr.run.resumed")), (first, "true".into()));
    assert_eq!(parent(&spans, named(&spans, "round")[0]), resumed);
    assert_eq!(of(first, "dr.run.id"), of(resumed, "dr.run.id"));
    let ids: BTreeSet<_> = spans.iter().map(|span| &span.span_id).collect();
    assert_eq!(ids.len(), spans.len());

    // Another run is another trace.
    world.dr(["ask", "--quiet", "--fresh", QUESTION]).succeeded();
    let traces: BTreeSet<_> = collector.spans().into_iter().map(|span| span.trace_id).collect();
    assert_eq!(traces.len(), 2);
}

#[test]
fn resumed_run_is_sampled_as_its_root_was() {
    let (collector, _server, world) = traced();
    for (sampler, ratio, is_kept) in [
        ("parentbased_traceidratio", "0", false),
        ("traceidratio", "0", false),
        ("parentbased_always_off", "", false),
        ("parentbased_traceidratio", "1", true),
    ] {
        let before = collector.spans().len();
        for args in [&["plan", "--quiet", QUESTION][..], &["resume", "--quiet"]] {
            let mut command = world.command(args);
            command.env("OTEL_TRACES_SAMPLER", sampler).env("OTEL_TRACES_SAMPLER_ARG", ratio);
            world.run_of(command.output().unwrap()).succeeded();
        }
        let new = &collector.spans()[before..];
        assert_eq!(operation(new, "invoke_workflow").len(), if is_kept { 2 } else { 0 }, "{sampler} {ratio}");
        assert_eq!(new.is_empty(), !is_kept, "{sampler} {ratio}");
    }
}

#[test]
fn failed_call_has_the_class_of_its_error_and_not_its_words() {
    let collector = Collector::start();
    let server = faulty(ONE_ROUND, |request| {
        (request.form() == Some("verdict")).then(|| Response::text(400, "the reactor is secret"))
    });
    let world = world_at(&server).with_variable(ENDPOINT, collector.address());
    world.dr(["ask", "--quiet", QUESTION]);
    let spans = collector.spans();
    let failures: Vec<_> = operation(&spans, "chat").into_iter().filter(|call| failed(call)).collect();
    assert!(!failures.is_empty());
    assert!(failures.iter().all(|call| of(call, "error.type") == "request_refused"), "{failures:#?}");
    assert_no_texts(&spans);
    assert!(!collector.0.received().contains("reactor"));
}
