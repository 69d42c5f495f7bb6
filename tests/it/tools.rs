//! Tools of the user's own servers, called by the workers of a run: shell scripts and `dr mcp` itself as servers.

/// Servers that hang, die, flood or fail, and tools that are not as they were.
mod trouble;

/// P5: what a public server is sent.
mod public;

/// Runs that are killed and resumed.
mod killed;

use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::common::World;
use crate::model_server::{ModelServer, Request, Response};
use crate::researcher::{Researcher, Words};
use dr::base::token::CountTokens;

const QUESTION: &str = "What is known of topic 1?";

/// One node, which is inside.
const ONE: Researcher = Researcher { nodes: 1, more_nodes: 0 };

/// What the server answers to a call.
const TICKET: &str = "Ticket 7 is described here: the siren sounds at noon.";

/// A server that speaks from the files in its folder: `tools.json`, `answer.json`, and `mode`. It notes each start and
/// each call, also in the pipe `called`, and keeps the pipe `alive` open as long as it lives.
const SCRIPT: &str = r#"
cd "$1" || exit 1
[ -p alive ] && exec 3>alive
echo "$$ ${TICKETS_TOKEN-} ${OPENAI_API_KEY-none}" >> started
say() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
while IFS= read -r line; do
    id=$(printf '%s\n' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
    case $line in
    *'"method":"initialize"'*)
        say '"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"t","version":"1"}}' ;;
    *'"method":"tools/list"'*) say "\"result\":{\"tools\":$(cat tools.json)}" ;;
    *'"method":"tools/call"'*)
        printf '%s\n' "$line" >> calls
        [ -p called ] && echo > called
        case $(cat mode) in
        answer) say "\"result\":$(cat answer.json)" ;;
        die) exit 1 ;;
        flood) head -c 6000000 /dev/zero | tr '\0' x ;;
        latin1) say '"result":{"content":[{"type":"text","text":"caf'"$(printf '\351')"'"}]}' ;;
        hang) sleep 1000 & ;;
        busy) sleep 1000 ;;
        esac ;;
    *'"id":'*) say '"error":{"code":-32601,"message":"no such method"}' ;;
    esac
done
"#;

/// A tool as its server lists it.
fn tool(name: &str, description: &str, is_read_only: bool) -> Value {
    let number = json!({ "type": "integer", "minimum": 1 });
    json!({
        "name": name,
        "description": description,
        "inputSchema": { "type": "object", "properties": { "number": number }, "required": ["number"] },
        "annotations": { "readOnlyHint": is_read_only },
    })
}

/// The folder of a server in the home folder of a world.
struct Script {
    folder: PathBuf,
}

impl Script {
    /// Returns a server that reads, lists and deletes tickets.
    fn new(world: &World, name: &str) -> Self {
        let script = Self { folder: world.home(name) };
        std::fs::create_dir_all(&script.folder).unwrap();
        script.write("server.sh", SCRIPT);
        let tools = [
            tool("read", "Reads a ticket.", true),
            tool("list", "Lists tickets.", true),
            tool("delete", "Deletes.", false),
        ];
        script.write("tools.json", &json!(tools).to_string());
        script.answers(TICKET);
        script
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.folder.join(file), text).unwrap();
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.join(file)).unwrap_or_default()
    }

    /// Makes every call return this text.
    fn answers(&self, text: &str) {
        self.write("mode", "answer");
        self.write("answer.json", &json!({ "content": [{ "type": "text", "text": text }] }).to_string());
    }

    /// Returns the arguments of the calls so far.
    fn calls(&self) -> Vec<Value> {
        let call = |line: &str| serde_json::from_str::<Value>(line).unwrap()["params"]["arguments"].clone();
        self.read("calls").lines().map(call).collect()
    }

    fn starts(&self) -> usize {
        self.read("started").lines().count()
    }

    fn command(&self) -> String {
        let path = |file: &str| self.folder.join(file).to_string_lossy().into_owned();
        json!(["/bin/sh", path("server.sh"), self.folder.to_string_lossy()]).to_string()
    }

    /// Returns a thread that ends with the server and all processes it started.
    fn life(&self) -> JoinHandle<()> {
        let alive = self.pipe("alive");
        std::thread::spawn(move || assert_eq!(std::fs::read(alive).unwrap(), b""))
    }

    fn pipe(&self, name: &str) -> PathBuf {
        let path = self.folder.join(name);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }
}

/// Returns a world with a file, whose models are at `server`.
fn world_at(server: &ModelServer) -> World {
    let world = World::of_notes(&[("topic-1.md", "Topic 1 is described here in full, as item 1 of many.\n")]);
    let world = world.with_variable("OPENAI_BASE_URL", server.url()).with_variable("OPENAI_API_KEY", "sk-test-key");
    world.with_variable("DR_MODEL", "scripted").with_variable("DR_MAX_COST", "inf")
}

/// Allows the tools of a server with a label.
fn set(world: &World, script: &Script, more: &str) {
    let command = script.command();
    crate::outside::set(
        world,
        &format!("[mcp.tickets]\ncommand = {command}\ntools = [\"read\", \"delete\"]\nlabel = \"internal\"\n{more}"),
    );
}

/// Returns models that have ticket 7 read, a world at them, and the server that has it, set up with `more`.
fn reading_ticket(more: &str) -> (ModelServer, World, Script) {
    calling(read_ticket(&json!({ "number": 7 })), more)
}

/// As [`reading_ticket`], with models that make these calls.
fn calling(calls: Value, more: &str) -> (ModelServer, World, Script) {
    let models = caller(calls);
    let world = world_at(&models);
    let script = Script::new(&world, "tickets");
    set(&world, &script, more);
    (models, world, script)
}

/// Starts models whose workers search and make `calls` in their first step, and then note descriptions.
fn caller(calls: Value) -> ModelServer {
    ModelServer::start(move |request| reply(request, &calls))
}

fn reply(request: &Request, calls: &Value) -> Response {
    let words = request.said();
    let text = match request.form() {
        Some("step") => step(&words, calls).to_string(),
        form => ONE.say(form, &words),
    };
    request.reply(&text, Words.count(&words) as u64, Words.count(&text) as u64)
}

fn step(words: &str, calls: &Value) -> Value {
    if words.contains("This is step 1 of") {
        let search = json!({ "tool": "search", "query": "topic 1 described" });
        let mut step = json!({ "thought": "look", "actions": [search], "done": false });
        if words.contains("`calls`") {
            step["calls"] = calls.clone();
        }
        return step;
    }
    let notes: Vec<_> = (1..=9)
        .filter_map(|number| {
            let id = format!("p{number}");
            let text = words.split_once(&format!("<data id=\"{id}\">"))?.1.split("</data>").next()?;
            let quote = text.lines().find(|line| line.contains("described here"))?.trim().to_owned();
            Some(json!({ "tool": "note", "passage": id, "quote": quote, "text": quote, "aspect": "a2" }))
        })
        .collect();
    json!({ "thought": "noted", "actions": notes, "done": true })
}

fn read_ticket(arguments: &Value) -> Value {
    json!([{ "tool": "tickets.read", "arguments": arguments.to_string() }])
}

fn from_tools(report: &Value) -> Vec<&Value> {
    let evidence = report["evidence"].as_array().unwrap();
    evidence.iter().filter(|quote| quote["source"]["kind"] == "mcp").collect()
}

/// Returns the words of the first step of a worker.
fn first_steps(server: &ModelServer) -> Vec<String> {
    let steps = server.requests().into_iter().filter(|request| request.form() == Some("step"));
    steps.map(|request| request.said()).filter(|words| words.contains("This is step 1 of")).collect()
}

#[test]
fn result_of_a_tool_is_quoted_checked_and_printed_and_its_server_is_gone_after_the_run() {
    let models = caller(read_ticket(&json!({ "number": 7 })));
    let world = world_at(&models).with_variable("TICKETS_TOKEN", "a-token-of-tickets");
    let script = Script::new(&world, "tickets");
    set(&world, &script, "key_env = \"TICKETS_TOKEN\"\n");
    let life = script.life();
    let run = world.dr(["ask", "--json", QUESTION]).succeeded();
    life.join().unwrap();
    let report = run.json();
    let [quote] = from_tools(&report)[..] else { panic!("{run}") };
    assert_eq!(
        (&quote["quote"], &quote["checked"], &quote["label"]),
        (&json!(TICKET), &json!(true), &json!("internal"))
    );
    let source = &quote["source"];
    assert_eq!(
        (&source["server"], &source["tool"], &source["arguments"]),
        (&json!("tickets"), &json!("read"), &json!(r#"{"number":7}"#))
    );
    assert_eq!(script.calls(), [json!({ "number": 7 })]);
    let started = script.read("started");
    assert!(started.trim_end().ends_with(" a-token-of-tickets none"), "no other key is passed on: {started}");

    let [words] = &first_steps(&models)[..] else { panic!("one worker") };
    assert!(words.contains("`tickets.read`:") && words.contains("Reads a ticket."), "{words}");
    assert!(!words.contains("tickets.list") && !words.contains("tickets.delete"), "{words}");
    let limitations = report["limitations"].to_string();
    assert!(limitations.contains("`tickets.delete` is not used: not marked read-only by its server"), "{limitations}");

    let printed = world.dr(["replay"]).succeeded().stdout;
    assert!(printed.contains("`mcp:tickets/read {\"number\":7}`, called on "), "{printed}");
    assert!(world.dr(["replay", "--format", "html"]).succeeded().stdout.contains("mcp:tickets&#x2f;read"));
    world.dr(["replay", "--format", "note", "-o", "note.md"]).succeeded();
    let verified = world.dr(["verify", "note.md"]).succeeded().stdout;
    assert!(verified.contains(", 1 tool quote not checked"), "{verified}");
    assert!(!world.dr(["show", "--egress"]).succeeded().stdout.contains("number"), "an internal server is not outside");
}

#[test]
fn dr_itself_is_a_server_over_stdio_and_over_http_with_a_token() {
    let other =
        World::of_notes(&[("sirens.md", "# Sirens\n\nThe siren of the mill is described here: it sounds at noon.\n")]);
    let other = other.with_variable("DR_MCP_TOKEN", "a-token-that-is-long-enough");
    let http = crate::mcp::HttpServer::start(&other, &["127.0.0.1:0"]);
    let arguments = json!({ "query": "siren of the mill" }).to_string();
    let calls = ["near", "far"].map(|name| json!({ "tool": format!("{name}.search"), "arguments": arguments }));
    let models = caller(json!(calls));
    let world = world_at(&models).with_variable("FAR_TOKEN", "a-token-that-is-long-enough");
    let project = other.path("").to_string_lossy().into_owned();
    // The other index was made by the other home, whose `dr` trusts it.
    let home = other.home("").to_string_lossy().into_owned();
    let serve = format!("HOME={home} exec {} mcp --project {project}", env!("CARGO_BIN_EXE_dr"));
    let command = json!(["/bin/sh", "-c", serve]);
    crate::outside::set(
        &world,
        &format!(
            "[mcp.near]\ncommand = {command}\ntools = [\"search\"]\nlabel = \"internal\"\n\
             [mcp.far]\nurl = \"{}\"\nkey_env = \"FAR_TOKEN\"\ntools = [\"search\"]\nlabel = \"internal\"\n",
            http.url()
        ),
    );
    let run = world.dr(["ask", "--json", QUESTION]).succeeded();
    let report = run.json();
    let mut servers: Vec<_> = from_tools(&report).iter().map(|quote| quote["source"]["server"].clone()).collect();
    servers.sort_by_key(ToString::to_string);
    assert_eq!(servers, ["far", "near"], "{run}");
    assert!(from_tools(&report).iter().all(|quote| quote["checked"] == true), "{run}");
}

#[test]
fn question_asked_again_on_the_same_day_calls_nothing_again() {
    let (_models, world, script) = reading_ticket("");
    let first = world.dr(["ask", "--json", QUESTION]).succeeded().json();
    script.answers("Ticket 7 is described here: it is closed.");
    let again = world.dr(["ask", "--json", "--fresh", QUESTION]).succeeded().json();
    assert_eq!(script.calls().len(), 1);
    assert_eq!(from_tools(&first)[0]["quote"], from_tools(&again)[0]["quote"]);
}

#[test]
fn call_whose_stored_result_is_missing_is_made_again_once() {
    let (_models, world, script) = reading_ticket("");
    world.dr(["ask", "--json", QUESTION]).succeeded();
    std::fs::remove_dir_all(world.path(".dr/pages/answers")).unwrap();
    let now = "Ticket 7 is described here: it is closed.";
    script.answers(now);
    for _ in 0..2 {
        let report = world.dr(["ask", "--json", "--fresh", QUESTION]).succeeded().json();
        assert_eq!(from_tools(&report)[0]["quote"], now);
        assert_eq!(script.calls().len(), 2);
    }
}

#[test]
fn run_without_a_model_starts_no_server_and_doctor_lists_what_is_offered_and_why_not() {
    let (_models, world, script) = calling(json!([]), "");
    world.dr(["ask", "--offline", "--json", "How is topic 1 described?"]).succeeded();
    world.dr(["doctor", "--offline"]);
    assert_eq!(script.starts(), 0);
    let checked = world.dr(["doctor"]).stdout;
    assert!(checked.contains("`tickets` (internal) at /bin/sh offers 1 tool: `read`"), "{checked}");
    assert!(checked.contains("not allowed of `tickets`: `list`"), "{checked}");
    assert!(checked.contains("`tickets.delete` is refused: not marked read-only by its server"), "{checked}");
    assert!(checked.contains("mcp.tickets.label"), "settings are listed: {checked}");
    script.write("tools.json", "[]");
    assert!(world.dr(["doctor"]).stdout.contains("`tickets` has no tool `read`"));
    script.write("server.sh", "exit 1");
    let broken = world.dr(["doctor"]);
    assert_eq!(broken.exit, Some(1), "{broken}");
    assert!(broken.stdout.contains("server `tickets` failed: "), "{broken}");
}

#[test]
fn server_in_a_projects_file_is_refused() {
    let world = World::indexed_text();
    world.write("dr.toml", "[mcp.tickets]\ncommand = [\"/bin/sh\", \"-c\", \"touch owned\"]\nlabel = \"internal\"\n");
    let run = world.dr(["ask", QUESTION]);
    assert_eq!(run.exit, Some(2), "{run}");
    assert!(run.stderr.contains("sets `mcp.tickets.command`, which a project may not"), "{run}");
    assert!(!world.path("owned").exists() && !world.home("owned").exists());
}

#[test]
fn internal_server_on_another_machine_is_not_asked_about_a_collection_for_this_machine_only() {
    let models = caller(json!([{ "tool": "away.read", "arguments": "{}" }]));
    let world = world_at(&models);
    let away = "[mcp.away]\nurl = \"http://mcp.invalid/mcp\"\ntools = [\"read\"]\nlabel = \"internal\"\n";
    crate::outside::set(&world, &format!("{away}[collections.kb]\nlocal_only = true\n"));
    let report = world.dr(["ask", "--json", QUESTION]).succeeded().json();
    let limitations = report["limitations"].to_string();
    assert!(!limitations.contains("away"), "it was not even reached: {limitations}");
    assert!(first_steps(&models).iter().all(|words| !words.contains("`calls`")));
}
