//! P5: internal text reaches the models alone, however hard a model tries to leak it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::{Value, json};

use super::{models_at, set};
use crate::common::{Run, World, kill};
use crate::model_server::Request;
use crate::reader;
use crate::researcher::{nodes, task};
use crate::web_server::{Fault, Setup, WebServer};

const QUESTION: &str = "What is known of project Heron, and how do others run such projects?";

/// Texts that must not leave: a code name, an address, nine common words in a row, a number, and a name.
const SECRETS: [&str; 5] = [
    "CANARY-7f3a9c",
    "ilse.marten@quillhaven.example",
    "the board agreed to buy the mill next spring",
    "4417-0982-5536",
    "Orvanthe Quillmarsh",
];

/// The secrets that trip the wire. A single name does not, so only the type keeps it inside.
const TRIPPING: [&str; 4] = [SECRETS[0], SECRETS[1], SECRETS[2], SECRETS[3]];

/// Question of the last round, which is about the web and names no secret.
const LAST: &str = "How do others end large projects?";

/// Actions of one step.
const PER_STEP: usize = 8;

/// A way to send a secret, and what one would see of it outside.
#[derive(Clone)]
struct Attempt {
    text: String,
    trace: String,
}

/// Returns secrets in every disguise.
fn attempts(known: &[&str]) -> Vec<Attempt> {
    let of = |secret: &str| {
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        let percent: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let dots: Vec<_> = secret.split("").filter(|letter| !letter.trim().is_empty()).collect();
        let dots = dots.join(".");
        let seen = [secret.to_owned(), dots, base64(secret.as_bytes()), hex, secret.chars().rev().collect()];
        let seen = seen.into_iter().map(|text| Attempt { trace: text.clone(), text });
        let turned = Attempt { text: rot13(secret), trace: rot13(secret) };
        let hidden = Attempt { text: percent, trace: secret.to_owned() };
        seen.chain([turned, hidden]).collect::<Vec<_>>()
    };
    known.iter().copied().flat_map(of).collect()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |three: &[u8]| {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | u32::from(*three.get(at).unwrap_or(&0)));
        let letter = |at: usize| char::from(LETTERS[(bits >> (18 - 6 * at) & 63) as usize]);
        (0..=three.len()).map(letter).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

fn rot13(text: &str) -> String {
    let turned = |letter: u8, first: u8| char::from((letter - first + 13) % 26 + first);
    text.bytes()
        .map(|letter| match letter {
            b'a'..=b'z' => turned(letter, b'a'),
            b'A'..=b'Z' => turned(letter, b'A'),
            _ => char::from(letter),
        })
        .collect()
}

/// Returns the secrets, or disguises of them, that a server received.
fn arrived(server: &WebServer) -> Vec<String> {
    let received = server.received_decoded();
    attempts(&SECRETS)
        .into_iter()
        .map(|attempt| attempt.trace)
        .filter(|trace| received.contains(trace.as_str()))
        .collect()
}

/// Makes a world with two notes that have all secrets.
fn heron() -> World {
    World::of_notes(&[
        (
            "heron.md",
            &format!(
                "# Heron\n\nThe code name of project Heron is {} to {}.\n\nWhoever asks about project Heron writes to {} first.\n",
                SECRETS[0], SECRETS[4], SECRETS[1]
            ),
        ),
        (
            "minutes.md",
            &format!(
                "# Minutes\n\nFor project Heron {} at the latest.\n\nThe vault of project Heron opens with {} alone.\n",
                SECRETS[2], SECRETS[3]
            ),
        ),
    ])
}

/// Starts the world outside, which has engine, pages and jobs, and no models.
fn outside() -> WebServer {
    Setup::new(|_| String::new()).with_polls(0).start()
}

/// Makes a world of two servers: models at one, everything else at the other.
fn between(models: &WebServer, outside: &WebServer) -> World {
    let world = models_at(heron(), models).with_variable("SEARXNG_URL", outside.origin());
    let host = outside.origin().trim_start_matches("http://");
    set(
        &world,
        &format!(
            "[web]\nallowed_hosts = [\"{host}\"]\n[deep_research]\nbase_url = \"{}\"\nmodels = [\"fixture\"]\n",
            outside.url()
        ),
    );
    world
}

/// Starts models that do what they can to send every secret they are shown to `collector`.
fn traitor(collector: String) -> WebServer {
    Setup::new(move |request| betray(request, &known(&request.said()), &collector)).start()
}

/// Returns the world outside, models that betray every secret, and a world between them.
fn betrayed() -> (WebServer, WebServer, World) {
    let outside = outside();
    let models = traitor(outside.origin().to_owned());
    let world = between(&models, &outside);
    (outside, models, world)
}

/// Returns the secrets that a prompt shows.
fn known(words: &str) -> Vec<&'static str> {
    SECRETS.into_iter().filter(|secret| words.contains(secret)).collect()
}

fn betray(request: &Request, known: &[&str], collector: &str) -> String {
    let words = request.said();
    let is_follow_up = words.contains("This follows up the question") || words.contains("Look up");
    let value = match request.form() {
        Some("brief") if is_follow_up => {
            json!({ "task": loud("Look up", known), "aspects": [loud("Look up", known), "what others do"], "mode": "deep" })
        }
        Some("brief") => {
            json!({ "task": QUESTION, "aspects": ["what is known of project Heron", "how others run such projects"], "mode": "deep" })
        }
        Some("plan") => plan(&words, known, is_follow_up),
        Some("verdict") => {
            let is_complete = words.contains(LAST);
            json!({
                "is_complete": is_complete, "recommend_more_iterations": !is_complete,
                "missing_aspects": if is_complete { vec![] } else { vec!["a2"] },
                "weak_evidence_areas": [], "overall_confidence": 0.8, "relied_on": nodes(&words),
            })
        }
        Some("step") if words.contains("the web (") => match step(&words, known, collector) {
            Some(step) => step,
            None => return reader::say(request),
        },
        // So wordy that a model has to keep the summary: claims that fit are strung together by code.
        Some("branch_report") => {
            let mut report: Value = serde_json::from_str(&reader::say(request)).unwrap();
            for finding in report["findings"].as_array_mut().into_iter().flatten() {
                let text = finding["text"].as_str().unwrap_or_default();
                finding["text"] = format!("{text}{}", ", as has been said before".repeat(15)).into();
            }
            report
        }
        // A call that keeps a summary repeats everything it was shown.
        None => return loud(&reader::say(request), known),
        _ => return reader::say(request),
    };
    value.to_string()
}

/// Returns some words and secrets as they are.
fn loud(words: &str, known: &[&str]) -> String {
    format!("{words} {}", known.join(", "))
}

fn plan(words: &str, known: &[&str], is_follow_up: bool) -> Value {
    let node = |id: &str, question: String, hint: &str, depends_on: Vec<&str>| {
        // The files answer the first aspect, so a mixed node goes out for the second.
        let aspects = match hint {
            "internal" => vec!["a1"],
            // The web is asked for aspects, so two nodes with the same ones would be one too many.
            "web" if id == "quiet" => vec!["a1"],
            "web" if id != "last" => vec!["a2"],
            _ => vec!["a1", "a2"],
        };
        json!({
            "id": id, "question": question, "aspects": aspects,
            "depends_on": depends_on, "optional_dependencies": true, "source_hint": hint, "why": "it is asked for",
        })
    };
    let is_later = words.starts_with("You continue the plan");
    let new_nodes = if words.contains(LAST) {
        vec![]
    } else if is_later && nodes(words).len() > 3 {
        // Its worker is shown what the summary says of the rounds before.
        vec![node("last", LAST.to_owned(), "web", vec![])]
    } else if is_later || is_follow_up {
        let disguised: Vec<_> = attempts(known).into_iter().map(|attempt| attempt.text).collect();
        let half = |at: usize| disguised.iter().skip(at).step_by(4).cloned().collect::<Vec<_>>().join(" ");
        vec![
            node("loud", loud("How do others deal with", known), "web", vec![]),
            node("both", loud("What is said elsewhere of", known), "mixed", vec![]),
            node("quiet", format!("What do others say of {}?", half(1)), "web", vec![]),
            // Its worker is shown the question of the other.
            node("quieter", format!("What do others say of {}?", half(2)), "web", vec!["loud"]),
        ]
    } else {
        vec![
            node("inside", "What is known of project Heron?".into(), "internal", vec![]),
            node("outside", "How do others run large projects?".into(), "web", vec!["inside"]),
            node("mixed", "How are large projects run elsewhere?".into(), "mixed", vec!["inside"]),
        ]
    };
    json!({ "reasoning": loud("It is missing:", known), "new_nodes": new_nodes, "updates": [] })
}

/// Sends the next few secrets; nothing where all were sent.
fn step(words: &str, known: &[&str], collector: &str) -> Option<Value> {
    let step: usize = task(words).split("This is step ").nth(1)?.split_whitespace().next()?.parse().ok()?;
    let action = |tool: &str, query: Option<String>, passage: Option<String>| json!({ "tool": tool, "query": query, "passage": passage, "quote": null, "text": null, "aspect": null });
    let search = |attempt: Attempt| action("search", Some(format!("{} elsewhere", attempt.text)), None);
    let innocent = Attempt { text: "how large projects are run".into(), trace: String::new() };
    let mut actions: Vec<_> = std::iter::once(innocent).chain(attempts(known)).map(search).collect();
    let page =
        |secret: &str| action("open", None, Some(format!("{collector}/collect?notes={}", secret.replace(' ', "+"))));
    actions.extend(known.iter().copied().map(page));
    let chunk: Vec<_> = actions.into_iter().skip((step - 1) * PER_STEP).take(PER_STEP).collect();
    (!chunk.is_empty()).then(|| json!({ "thought": "send it", "actions": chunk, "done": false }))
}

/// Runs a question to its report, whatever was lost on the way.
fn report(world: &World, flags: &[&str]) -> Run {
    let run = world.dr(["ask", "--quiet"].iter().chain(flags).chain(&[QUESTION]));
    assert!(matches!(run.exit, Some(0 | 4)), "{run}");
    run
}

/// Asserts that the models were shown every secret, and none in a call that the journal labels public; and that all calls
/// of workers on the web are among those.
fn assert_outward_prompts_are_clean(models: &WebServer, world: &World) {
    let requests = models.requests();
    let shown: BTreeSet<_> = requests.iter().flat_map(|request| known(&request.said())).collect();
    assert_eq!(shown.len(), SECRETS.len(), "the models were told");
    let lines = world.export(None);
    let is_public = |line: &&Value| line["kind"] == "call" && line["label"] == "public";
    // The server numbers its replies.
    let reply =
        |line: &Value| line["reply"]["raw"]["id"].as_str().map(|id| id.rsplit(['-', '_']).next().unwrap().to_owned());
    let public: BTreeSet<_> = lines.iter().filter(is_public).filter_map(reply).collect();
    let mut outward = 0;
    for request in &requests {
        let (words, is_public) = (request.said(), public.contains(&request.number.to_string()));
        assert!(!is_public || known(&words).is_empty(), "{words}");
        if words.contains("by searching the web (") {
            assert!(is_public, "{words}");
            outward += 1;
        }
    }
    assert!(outward > 0 && public.len() > outward, "summaries are public too: {public:?}");
}

/// What a run has sent, or would have: the node, the text, and whether it was withheld.
fn egress(world: &World) -> Vec<(String, String, bool)> {
    let shown = world.dr(["show", "--json"]).succeeded().json();
    let row = |row: &Value| {
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        (text("node"), text("text"), !row["withheld"].is_null())
    };
    shown["egress"].as_array().unwrap().iter().map(row).collect()
}

/// Returns the calls of the newest run that kept the summary for workers on the web. Such a call repeats everything it
/// was shown.
fn public_summaries(world: &World) -> Vec<String> {
    let lines = world.dr(["export"]).succeeded().stdout;
    let call = |line: &&str| line.contains("\"kind\":\"call\"") && line.contains("/public\"");
    lines.lines().filter(call).map(str::to_owned).collect()
}

/// Asserts that one node of each group has sent something, that nothing arrived which they should not know, and that the
/// tripwire had nothing to do with it.
fn assert_nothing_leaked(outside: &WebServer, world: &World, senders: &[&[&str]], run: &Run) {
    assert_eq!(arrived(outside), Vec::<String>::new(), "{run}");
    for call in public_summaries(world) {
        assert_eq!(known(&call), Vec::<&str>::new(), "{call}");
    }
    let rows = egress(world);
    for (node, text, is_withheld) in &rows {
        assert!(!is_withheld && known(text).is_empty(), "{node}: {text}");
    }
    for group in senders {
        let is_sender = |node: &str| group.contains(&node);
        assert!(rows.iter().any(|(node, ..)| is_sender(node)), "{group:?} sent nothing: {rows:#?}\n{run}");
    }
}

#[test]
fn no_secret_arrives_by_queries_or_addresses_of_a_mixed_or_a_replanned_node_and_nothing_has_to_be_withheld() {
    let outside = outside();
    let models = traitor(outside.origin().to_owned());
    let world = between(&models, &outside).with_variable("DR_SUMMARY_TOKENS", "200");
    let run = report(&world, &["--no-deep-research"]);
    // A web node and a mixed one that build on an internal one; then those of the second round. These run at the same
    // time and ask the same, so the first one to ask sends and the others are answered from the record.
    assert_nothing_leaked(&outside, &world, &[&["n3"], &["n4"], &["n5", "n6", "n7", "n8"]], &run);
    // The mixed one asks what the web node has asked, and is answered from the record.
    let lines = world.dr(["export"]).succeeded().stdout;
    let mixed = lines.lines().find(|line| line.contains("node_finished") && line.contains("\"node\":\"n6\""));
    assert!(mixed.unwrap().contains("\"label\":\"public\""), "{lines}");
    assert_outward_prompts_are_clean(&models, &world);
    // A worker on the web was shown the summary of the second round, and another one the question of a web node.
    assert!(!public_summaries(&world).is_empty(), "{lines}");
    let last = lines.lines().find(|line| line.contains("node_finished") && line.contains("\"node\":\"n9\""));
    assert!(last.unwrap().contains("\"label\":\"public\""), "{lines}");
    let said: Vec<_> = models.requests().iter().map(Request::said).collect();
    let mut outward = said.iter().filter(|words| words.contains("by searching the web ("));
    assert!(outward.any(|words| task(words).contains("<data id=\"n5\">")), "no web node builds on a web node");
    let names_pages =
        |words: &String| words.contains("by searching the web (") && words.contains("Read and quoted before: http");
    assert!(said.iter().any(names_pages), "pages read before are named");
    let egress = world.dr(["show", "--egress"]).succeeded().stdout;
    assert!(
        egress.contains("query: how large projects are run elsewhere (sent"),
        "queries leave as they are: {egress}"
    );
    assert!(!run.stdout.contains(" not sent, because"), "{egress}\n{run}");
}

#[test]
fn secret_that_a_model_knows_without_being_shown_trips_the_wire_and_the_report_says_so() {
    let outside = outside();
    let remembers = |request: &Request| match (request.form(), request.said()) {
        (Some("step"), words) if words.contains("the web (") => {
            let search = |secret: &str| json!({ "tool": "search", "query": format!("{secret} elsewhere") });
            json!({ "thought": "", "actions": TRIPPING.map(search), "done": true }).to_string()
        }
        _ => betray(request, &known(&request.said()), ""),
    };
    let models = Setup::new(remembers).start();
    let world = between(&models, &outside);
    let run = report(&world, &["--no-deep-research"]);
    let received = outside.received_decoded();
    assert!(TRIPPING.iter().all(|secret| !received.contains(secret)), "{run}");
    assert!(run.stdout.contains("withheld, because of text from your files"), "{run}");
    let egress = world.dr(["show", "--egress"]).succeeded().stdout;
    let kept: Vec<_> = egress.lines().filter(|line| line.contains("(withheld: ")).collect();
    assert!(TRIPPING.iter().all(|secret| kept.iter().any(|line| line.contains(secret))), "{kept:#?}");
}

#[test]
fn secrets_arrive_by_queries_where_the_user_lets_them() {
    let (outside, _models, world) = betrayed();
    let run = report(&world, &["--no-deep-research", "--allow-egress"]);
    let arrived = arrived(&outside);
    let lost = attempts(&SECRETS).into_iter().filter(|attempt| !arrived.contains(&attempt.trace));
    assert_eq!(lost.map(|attempt| attempt.text).collect::<Vec<_>>(), Vec::<String>::new(), "{run}");
    assert!(!outside.received_decoded().contains("/collect"), "no page is opened because a model names it");
}

#[test]
fn no_secret_arrives_in_what_a_job_is_told_unless_the_user_lets_it() {
    for (source, flags, is_open) in
        [("web", &[][..], false), ("mixed", &[], false), ("mixed", &["--allow-egress"], true)]
    {
        let outside = outside();
        let models = traitor(outside.origin().to_owned());
        // Without an engine, jobs do what the knowledge base leaves open.
        let world = between(&models, &outside).with_variable("SEARXNG_URL", "");
        let run = report(&world, &[&["--source", source, "--deep-research-max", "9"], flags].concat());
        let jobs = outside.jobs().len();
        assert!(jobs > 0, "{source}: {run}");
        let arrived = arrived(&outside);
        assert_eq!(!arrived.is_empty(), is_open, "{arrived:?}");
        if !is_open {
            assert_nothing_leaked(&outside, &world, &[], &run);
        }
    }
}

#[test]
fn no_secret_of_an_answer_arrives_by_the_question_that_follows_it_up_unless_the_user_lets_it() {
    let (outside, models, world) = betrayed();
    let first =
        world.dr(["ask", "--json", "--source", "internal", "--mode", "quick", "What is known of project Heron?"]);
    let first = first.succeeded().json();
    let answer = first["answer"].as_str().unwrap();
    assert!(SECRETS.iter().all(|secret| answer.contains(secret)), "{answer}");
    let follow = ["--follow", first["run_id"].as_str().unwrap(), "--deep-research-max", "1"];
    let run = report(&world, &follow);
    assert!(outside.count() > 0 && outside.jobs().len() == 1, "{run}");
    assert_nothing_leaked(&outside, &world, &[], &run);
    assert_outward_prompts_are_clean(&models, &world);
    report(&world, &[&follow[..], &["--allow-egress"]].concat());
    assert!(!arrived(&outside).is_empty(), "it would be seen");
}

#[test]
fn no_secret_of_an_answer_arrives_by_a_run_that_follows_it_up_and_gets_a_search_engine_when_it_is_resumed() {
    let outside = outside();
    let (sender, has_come) = channel();
    let is_killed = AtomicBool::new(false);
    let models = Setup::new(|request| betray(request, &known(&request.said()), "http://localhost"));
    let models = models.with_faults(move |call| {
        let is_first = call.request.form() == Some("plan") && !is_killed.swap(true, Ordering::SeqCst);
        is_first.then(|| {
            // A failed test has dropped the receiver.
            let _ = sender.send(());
            Fault::TimeOut
        })
    });
    let models = models.start();
    let world = models_at(heron(), &models);
    set(&world, "[deep_research]\nmax_jobs = 0\n");
    let first = ["ask", "--json", "--source", "internal", "--mode", "quick", "What is known of project Heron?"];
    let first = world.dr(first).succeeded().json();
    let follow = ["ask", "--quiet", "--mode", "deep", "--follow", first["run_id"].as_str().unwrap(), QUESTION];
    let child = world.command(follow).spawn().unwrap();
    has_come.recv_timeout(Duration::from_mins(1)).expect("it is planned");
    kill(child);
    let world = world.with_variable("SEARXNG_URL", outside.origin());
    let run = world.dr(["resume", "--quiet"]);
    assert!(matches!(run.exit, Some(0 | 4)) && outside.count() > 0, "{run}");
    assert_nothing_leaked(&outside, &world, &[], &run);
    let mut said: Vec<_> = models.requests().iter().map(Request::said).collect();
    said.retain(|words| words.contains("by searching the web ("));
    assert!(!said.is_empty() && said.iter().all(|words| known(words).is_empty()), "{said:#?}");
}

#[test]
fn secrets_of_a_collection_that_allows_it_arrive_and_of_no_other_nor_of_a_server() {
    let server = "[mcp.tickets]\ncommand = [\"tickets\"]\ntools = [\"find\"]\nlabel = \"internal\"\n";
    for (searched, more, is_open) in [
        (&["--collection", "kb"][..], "", true),
        (&["--collection", "other"], "", false),
        (&[], "", false),
        (&["--collection", "kb"], server, false),
    ] {
        let (outside, _models, world) = betrayed();
        for note in ["heron.md", "minutes.md"] {
            world.write_on_day(1, &format!("other/{note}"), &world.read(&format!("kb/{note}")));
        }
        world.dr(["index", "other", "--no-embed", "--quiet"]).succeeded();
        world.set_more(&format!("[collections.kb]\nallow_egress = true\n{more}"));
        let run = report(&world, &[&["--no-deep-research"], searched].concat());
        assert_eq!(!arrived(&outside).is_empty(), is_open, "{searched:?}: {:?}, {run}", arrived(&outside));
        let egress = world.dr(["show", "--egress"]).succeeded().stdout;
        assert_eq!(egress.contains(SECRETS[0]), is_open, "{egress}");
    }
}

#[test]
fn run_that_is_resumed_obeys_the_collections_and_settings_of_now() {
    type Change = fn(&World);
    let withdrawn: Change = |world| {
        let settings = std::fs::read_to_string(world.settings_file()).unwrap();
        world.set(&settings.replace("allow_egress = true", "allow_egress = false"));
    };
    let joined: Change = |world| {
        world.write_on_day(1, "other/mill.md", "# Mill\n\nThe mill of project Heron is old.\n");
        world.dr(["index", "other", "--no-embed", "--quiet"]).succeeded();
    };
    let nothing: Change = |_| ();
    let flag = &["--allow-egress"][..];
    for (flags, change, is_open) in [
        (&[][..], nothing, true),
        (&[], withdrawn, false),
        (&[], joined, false),
        (flag, withdrawn, true),
        (flag, joined, true),
    ] {
        let (outside, _models, world) = betrayed();
        world.set_more("[collections.kb]\nallow_egress = true\n");
        world.dr([&["plan", "--quiet", "--no-deep-research"], flags, &[QUESTION]].concat()).succeeded();
        change(&world);
        let run = world.dr(["resume", "--quiet"]);
        assert!(outside.count() > 0, "{run}");
        assert_eq!(!arrived(&outside).is_empty(), is_open, "{flags:?}: {:?}, {run}", arrived(&outside));
    }
}

#[test]
fn text_made_while_internal_text_could_leave_is_not_shown_outside_once_that_is_withdrawn() {
    for is_withdrawn in [false, true] {
        let (sender, has_come) = channel();
        let (outside, is_killed) = (outside(), AtomicBool::new(false));
        let collector = outside.origin().to_owned();
        let models = Setup::new(move |request| match (request.form(), request.said()) {
            // Workers outside find something, and repeat in its words what they were shown.
            (Some("step"), words) if !words.contains("This is step 1 ") => reader::say(request),
            (Some("branch_report"), words) => {
                let mut report: Value = serde_json::from_str(&reader::say(request)).unwrap();
                for finding in report["findings"].as_array_mut().into_iter().flatten() {
                    finding["text"] = loud("Others end large projects:", &known(&words)).into();
                }
                report.to_string()
            }
            (_, words) => betray(request, &known(&words), &collector),
        });
        // Killed when the last round is planned: workers outside have repeated what they were shown.
        let models = models.with_faults(move |call| {
            let words = call.request.said();
            let is_later = call.request.form() == Some("plan") && words.starts_with("You continue the plan");
            let is_last = is_later && nodes(&words).len() > 3;
            (is_last && !is_killed.swap(true, Ordering::SeqCst)).then(|| {
                // A failed test has dropped the receiver.
                let _ = sender.send(());
                Fault::TimeOut
            })
        });
        let models = models.start();
        let world = between(&models, &outside);
        let settings = || std::fs::read_to_string(world.settings_file()).unwrap();
        world.set(&settings().replace("models = [\"fixture\"]", "max_jobs = 0"));
        world.set_more("[collections.kb]\nallow_egress = true\n");
        let child = world.command(["ask", "--quiet", QUESTION]).spawn().unwrap();
        has_come.recv_timeout(Duration::from_mins(1)).expect("a third round is planned");
        kill(child);
        assert!(!arrived(&outside).is_empty(), "it may leave");
        if is_withdrawn {
            world.set(&settings().replace("allow_egress = true", "allow_egress = false"));
        }
        let before = models.requests().len();
        let run = world.dr(["resume", "--quiet"]);
        let prompts: Vec<_> = models.requests()[before..].iter().map(Request::said).collect();
        let outward: Vec<_> = prompts.iter().filter(|words| words.contains("by searching the web (")).collect();
        assert!(!outward.is_empty(), "the last round asks the web: {run}");
        assert_eq!(outward.iter().all(|words| known(words).is_empty()), is_withdrawn, "{outward:#?}");
    }
}

/// The note of a real leak, and strings of it that must not arrive.
const RENEWAL: &str = "# Acme\n\nThe customer pays 48,731 euros a year, says Ottoline Vasquez-Ferreira. The renewal is at \
                       risk because of late deliveries from Leipzig.\n";

const OF_RENEWAL: [&str; 7] =
    ["48,731", "48731", "Ottoline", "Vasquez", "Ferreira", "Leipzig", "renewal at risk because of late deliveries"];

#[test]
fn mixed_worker_asks_whole_questions_and_tells_the_engine_nothing_of_a_note_it_has_not_seen() {
    let outside = outside();
    let models = Setup::new(|request| {
        let words = request.said();
        if request.form() != Some("step") || !words.contains("the web (") {
            return reader::say(request);
        }
        // Whatever of the note is in the prompt is searched for.
        let seen = OF_RENEWAL.into_iter().filter(|text| words.contains(text));
        let queries =
            ["how do other companies keep customers who are unhappy with deliveries?"].into_iter().chain(seen);
        let searches: Vec<_> = queries.map(|query| json!({ "tool": "search", "query": query })).collect();
        json!({ "thought": "", "actions": searches, "done": true }).to_string()
    })
    .start();
    let world = World::of_notes(&[("acme.md", RENEWAL)]);
    let world = models_at(world, &models).with_variable("SEARXNG_URL", outside.origin());
    let question = "Why is the renewal of the customer at risk, and how do others keep such customers?";
    let ask = ["ask", "--quiet", "--no-deep-research", "--source", "mixed", "--mode", "deep", question];
    let run = world.dr(ask);
    assert!(models.received().contains("Ferreira"), "the worker inside has read the note: {run}");
    let received = outside.received_decoded();
    assert!(received.contains("how do other companies keep customers who are unhappy with deliveries?"), "{received}");
    for text in OF_RENEWAL {
        assert!(!received.contains(text), "{text}: {received}");
    }
}

#[test]
fn no_secret_of_a_closed_collection_arrives_by_following_its_answer_in_an_open_one() {
    let (outside, _models, world) = betrayed();
    world.write_on_day(1, "open/large.md", "# Large projects\n\nLarge projects are run in steps.\n");
    world.dr(["index", "open", "--no-embed", "--quiet"]).succeeded();
    world.set_more("[collections.open]\nallow_egress = true\n");
    let quick = ["ask", "--json", "--source", "internal", "--mode", "quick", "--collection", "kb"];
    let first = world.dr(quick.iter().chain(&["What is known of project Heron?"])).succeeded().json();
    let answer = first["answer"].as_str().unwrap();
    assert!(SECRETS.iter().all(|secret| answer.contains(secret)), "{answer}");
    let follow = ["--follow", first["run_id"].as_str().unwrap(), "--no-deep-research", "--collection", "open"];
    let run = report(&world, &follow);
    assert!(outside.count() > 0, "{run}");
    assert_eq!(arrived(&outside), Vec::<String>::new(), "{run}");
}

/// A company and a price, in a language whose words no list of rare tokens has.
const CHINESE: [&str; 2] = ["青岚精密仪器厂", "三千八百六十万元"];

#[test]
fn name_and_price_in_chinese_do_not_arrive_unless_the_user_lets_them() {
    for (flags, is_open) in [(&["--no-deep-research"][..], false), (&["--no-deep-research", "--allow-egress"], true)] {
        let outside = outside();
        let collector = outside.origin().to_owned();
        let said = |words: &str| CHINESE.into_iter().filter(|secret| words.contains(secret)).collect::<Vec<_>>();
        let models = Setup::new(move |request| betray(request, &said(&request.said()), &collector)).start();
        let world = between(&models, &outside);
        world.write(
            "kb/heron.md",
            &format!(
                "# Heron\n\nThe supplier of project Heron is {}.\n\nThe price of project Heron is {}.\n",
                CHINESE[0], CHINESE[1]
            ),
        );
        world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
        let run = report(&world, flags);
        let shown = models.requests().iter().any(|request| said(&request.said()).len() == CHINESE.len());
        assert!(shown && outside.count() > 0, "the models were told, and something left: {run}");
        let arrived = said(&outside.received_decoded());
        assert_eq!(arrived, if is_open { CHINESE.to_vec() } else { vec![] }, "{run}");
        let egress = world.dr(["show", "--egress"]).succeeded().stdout;
        assert!(!egress.contains("(withheld: "), "the types keep it in, not the tripwire: {egress}");
    }
}

/// A number of the note on the vault, and one that the user knows too.
const OF_VAULT: [&str; 2] = ["4417-0982-5536", "51234"];

/// Returns models for the vault: the worker inside is shown [`OF_VAULT`], notes something else, and reports a number of its
/// own; the planner words a second round with another. Workers on the web search for `numbers`.
fn remembering(numbers: &'static [&'static str]) -> Setup {
    let node = |id: &str, question: &str, hint: &str, depends_on: &[&str]| {
        json!({
            "id": id, "question": question, "aspects": [if hint == "internal" { "a1" } else { "a2" }],
            "depends_on": depends_on, "optional_dependencies": true, "source_hint": hint, "why": "it is asked for",
        })
    };
    let taken = AtomicUsize::new(0);
    Setup::new(move |request| {
        let words = request.said();
        let is_later = nodes(&words).len() > 2;
        let value = match request.form() {
            Some("brief") => {
                json!({ "task": VAULT, "aspects": ["what the vault is like", "how others lock vaults"], "mode": "deep" })
            }
            Some("plan") => {
                let new_nodes = match (words.starts_with("You continue the plan"), is_later) {
                    (false, _) => vec![
                        node("inside", "What is the vault like?", "internal", &[]),
                        node("outside", "How do others lock vaults?", "web", &["inside"]),
                    ],
                    (true, false) => vec![node("again", &format!("Who else has vaults of type {LATER}?"), "web", &[])],
                    (true, true) => vec![],
                };
                json!({ "reasoning": "", "new_nodes": new_nodes, "updates": [] })
            }
            Some("verdict") => json!({
                "is_complete": is_later, "recommend_more_iterations": !is_later,
                "missing_aspects": if is_later { vec![] } else { vec!["a2"] },
                "weak_evidence_areas": [], "overall_confidence": 0.8, "relied_on": nodes(&words),
            }),
            Some("step") if words.contains("by searching the web (") => {
                // Never the same query twice: that would be answered from the record.
                let take = taken.fetch_add(1, Ordering::SeqCst);
                let search = |number: &&str| json!({ "tool": "search", "query": format!("{number} take {take}") });
                // What a page of the first round has said is public in the second.
                let actions: Vec<_> =
                    numbers.iter().filter(|number| take > 0 || **number != LATER).map(search).collect();
                json!({ "thought": "", "actions": actions, "done": true })
            }
            Some("step") if words.contains("<data id=\"p1\">") => {
                let note = json!({
                    "tool": "note", "passage": "p1", "quote": "The vault is red.", "text": "It is red.", "aspect": "a1",
                });
                json!({ "thought": "", "actions": [note], "done": true })
            }
            Some("step") => {
                json!({ "thought": "", "actions": [{ "tool": "search", "query": "what is the vault like" }], "done": false })
            }
            Some("branch_report") => json!({
                "summary": "It weighs 90417 kilos.", "confidence": 0.8, "open_questions": [],
                "findings": [{ "text": "It is red and weighs 90417 kilos.", "evidence": ["n2e1"], "aspect": "a1" }],
            }),
            _ => return reader::say(request),
        };
        value.to_string()
    })
}

/// A number that only the second plan has.
const LATER: &str = "66218";

const VAULT: &str = "What is our vault like, of which I know 51234, and how do others lock vaults?";

fn vault() -> World {
    let world = World::empty();
    let note = format!("# Vault\n\nThe vault is red.\n\nIt opens with {} and not with {}.\n", OF_VAULT[0], OF_VAULT[1]);
    world.write_on_day(1, "kb/vault.md", &note);
    world.dr(["index", "kb", "--no-embed", "--quiet"]).succeeded();
    world
}

const ASK_OF_VAULT: [&str; 5] = ["ask", "--quiet", "--no-deep-research", "--mode", "deep"];

/// Returns the numbers a run has withheld, and those that arrived at the search engine.
fn of_queries(outside: &WebServer, world: &World, numbers: &[&'static str]) -> (Vec<&'static str>, Vec<&'static str>) {
    let (rows, received) = (egress(world), outside.received_decoded());
    let is_withheld = |number: &&&str| rows.iter().any(|(_, text, withheld)| *withheld && text.contains(**number));
    let withheld = numbers.iter().filter(is_withheld).copied().collect();
    (withheld, numbers.iter().filter(|number| received.contains(**number)).copied().collect())
}

#[test]
fn words_of_internal_findings_and_of_later_plans_trip_the_wire_and_those_of_the_user_do_not() {
    const NUMBERS: [&str; 5] = ["4417-0982-5536", "90417", LATER, "51234", "77551"];
    let (outside, models) = (outside(), remembering(&NUMBERS).start());
    let world = models_at(vault(), &models).with_variable("SEARXNG_URL", outside.origin());
    let run = world.dr(ASK_OF_VAULT.iter().chain(&[VAULT]));
    assert!(matches!(run.exit, Some(0 | 4)), "{run}");
    let (withheld, arrived) = of_queries(&outside, &world, &NUMBERS);
    assert_eq!(withheld, ["4417-0982-5536", "90417", LATER], "{run}");
    assert_eq!(arrived, ["51234", "77551"], "{run}");
}

#[cfg(unix)]
#[test]
fn text_that_was_read_and_not_quoted_before_a_run_was_resumed_still_trips_the_wire() {
    use crate::web_server::Kind;

    let (sender, has_come) = channel();
    let outside = outside();
    let is_first = AtomicBool::new(true);
    let models = remembering(&OF_VAULT).with_faults(move |call| {
        let is_outward = call.kind == Kind::Reply && call.request.said().contains("by searching the web (");
        (is_outward && is_first.swap(false, Ordering::SeqCst)).then(|| {
            // A failed test has dropped the receiver.
            let _ = sender.send(());
            Fault::TimeOut
        })
    });
    let models = models.start();
    let world = models_at(vault(), &models).with_variable("SEARXNG_URL", outside.origin());
    set(&world, "[deep_research]\nmax_jobs = 0\n");
    let child = world.command(ASK_OF_VAULT.iter().chain(&[VAULT])).spawn().unwrap();
    has_come.recv_timeout(Duration::from_mins(1)).expect("a worker faces outward");
    kill(child);
    let run = world.dr(["resume"]);
    assert!(matches!(run.exit, Some(0 | 4)), "{run}");
    assert_eq!(of_queries(&outside, &world, &OF_VAULT), (vec![OF_VAULT[0]], vec![OF_VAULT[1]]), "{run}");
}

#[test]
fn words_of_a_job_that_had_a_server_of_the_user_are_not_shown_outside() {
    // The report of the only job is shown to a worker on the web, unless a server may have told the job what it says.
    for (server, is_shown) in
        [("", true), ("[deep_research.mcp]\nlabel = \"notes\"\nurl = \"https://notes.example/mcp\"\n", false)]
    {
        let (outside, models, world) = betrayed();
        let host = outside.origin().trim_start_matches("http://");
        let jobs = format!("[deep_research]\nbase_url = \"{}\"\nmodels = [\"fixture\"]\n", outside.url());
        set(&world, &format!("[web]\nallowed_hosts = [\"{host}\"]\n{jobs}{server}"));
        let node = |id: &str, depends_on: &[&str]| {
            json!({
                "id": id, "question": "How do others run large projects?", "aspects": ["a2"], "source_hint": "web",
                "depends_on": depends_on, "why": "it is asked for",
            })
        };
        let plan = json!({ "new_nodes": [node("job", &[]), node("worker", &["job"])] });
        world.write("plan.json", &plan.to_string());
        let run = report(&world, &["--plan", "plan.json", "--deep-research-max", "1", "--max-rounds", "1"]);
        assert_eq!(outside.jobs().len(), 1, "{run}");
        let said: Vec<_> = models.requests().iter().map(Request::said).collect();
        let mut steps = said.iter().filter(|words| words.contains("by searching the web ("));
        assert_eq!(steps.any(|words| task(words).contains("<data id=\"n2\">")), is_shown, "{run}");
    }
}
