use serde_json::{Value, json};

use super::*;
use crate::llm::call::CallKey;
use crate::llm::call::Limit;
use crate::llm::model::ModelError;
use crate::research::node::{Node, NodeId, Tool, Tree};
use crate::research::prompt::size;
use crate::research::question::{Aspect, AspectId};
use crate::research::scripted::{Scripted, ScriptedSource, add_node, branch, broken};
use crate::research::skim::Answer;
use crate::research::task::{Conclusion, Conversation, TaskAspect, WorkerLimits};
use crate::research::worker::{WorkError, gather};
use crate::source::{Found, Label, Source, Support};

const LOCKS: &str = "The **writer lock** is a file.\nIt is held while\nwriting.\n\nReaders take no lock at all.";

fn node() -> Node {
    Node::new(NodeId::numbered(2), None, "How does the lock work?".parse().unwrap(), 1)
}

fn source() -> ScriptedSource {
    ScriptedSource::of(&[("locks.md", LOCKS)])
}

fn task<'a>(node: &'a Node, aspects: &'a [Aspect]) -> Task<'a> {
    Task {
        id: &node.id,
        tools: &node.tools,
        output_schema: node.output_schema.as_ref().map(|schema| schema.to_string().into()),
        key: CallKey::new(node.id.to_string()),
        question: node.question.as_str(),
        aspects: aspects.iter().map(TaskAspect::from).collect(),
        conclusions: Vec::new(),
        context: "",
        limits: WorkerLimits::default(),
    }
}

fn step(actions: &Value, done: bool) -> Value {
    json!({"thought": "THOUGHT", "actions": actions, "done": done})
}

fn search(query: &str) -> Value {
    json!({"tool": "search", "query": query})
}

fn note(passage: &str, quote: &str) -> Value {
    json!({"tool": "note", "passage": passage, "quote": quote, "text": format!("It says: {quote}"), "aspect": "a1"})
}

fn report(findings: &Value) -> Value {
    json!({"summary": "A file locks [n2e1] [n9e9].", "findings": findings, "confidence": 0.9, "open_questions": []})
}

fn finding(text: &str, ids: &[&str]) -> Value {
    json!({"text": text, "evidence": ids, "aspect": "a1"})
}

/// Returns a model that takes these steps, the last of which is done, and reports these findings.
fn acting<const STEPS: usize, const FINDINGS: usize>(actions: [Value; STEPS], findings: [Value; FINDINGS]) -> Scripted {
    let steps = actions.into_iter().zip(1..);
    let steps = steps.map(|(actions, at)| (format!("n2/step/{at}"), step(&actions, at == STEPS)));
    Scripted::by_key(steps.chain([("n2/report".to_owned(), report(&Vec::from(findings).into()))]).collect())
}

fn open(passage: &str) -> Value {
    json!({"tool": "open", "passage": passage})
}

/// Searches, notes one quote, reports it.
fn usual(quote: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("n2/step/1", step(&json!([search("lock")]), false)),
        ("n2/step/2", step(&json!([note("p1", quote)]), true)),
        ("n2/step/3", step(&json!([]), true)),
        ("n2/report", report(&json!([finding("A file locks.", &["n2e1"])]))),
    ]
}

async fn work(caller: &Scripted, source: &dyn Source, task: &Task<'_>) -> Result<Branch, WorkError> {
    work_from(caller, source, task, None).await
}

async fn work_from(
    caller: &Scripted,
    source: &dyn Source,
    task: &Task<'_>,
    answers: Option<Vec<&Answer>>,
) -> Result<Branch, WorkError> {
    let gathered = gather(caller, &Conversation::inside(task, source, answers)).await?;
    Ok(compress(caller, task, gathered).await?)
}

async fn worked(caller: &Scripted, task: &Task<'_>) -> Result<Branch, WorkError> {
    work(caller, &source(), task).await
}

/// Returns the branch of [`node`] without aspects.
async fn of_node(caller: &Scripted) -> Result<Branch, WorkError> {
    worked(caller, &task(&node(), &[])).await
}

#[tokio::test]
async fn quote_is_kept_in_the_words_of_the_source_and_cited_by_an_id_of_code() {
    let (node, aspects) = (node(), [Aspect { id: AspectId::numbered(1), text: "lock".into() }]);
    let caller = Scripted::by_key(usual("\"It is held while writing.\""));
    let branch = worked(&caller, &task(&node, &aspects)).await.unwrap();
    assert_eq!(branch.evidence[0].quote, "It is held while\nwriting.");
    assert_eq!(branch.evidence[0].source.for_people(), "locks.md:2-3");
    assert!(branch.evidence[0].checked);
    assert_eq!(branch.report.findings[0].evidence[0].to_string(), "n2e1");
    assert_eq!(branch.report.findings[0].aspect, Some(AspectId::numbered(1)));
    assert_eq!(branch.report.summary, "A file locks [n2e1].");
    assert_eq!(branch.report.stop_reason, BranchStop::Done);
    assert_eq!(branch.support, Support::Strong);
    assert!(branch.further.iter().all(|passage| passage.text.is_empty()));
    assert_eq!(caller.keys(), ["n2/step/1", "n2/step/2", "n2/report"]);
}

#[tokio::test]
async fn invented_quote_is_refused_with_its_reason_and_is_no_evidence() {
    let caller = Scripted::by_key(usual("The lock is made of steel."));
    let branch = of_node(&caller).await.unwrap();
    assert!(caller.tasks()[2].contains("these words do not stand in p1"), "{}", caller.tasks()[2]);
    assert_eq!(branch.report.stop_reason, BranchStop::NoEvidence);
    assert!(branch.evidence.is_empty() && branch.report.findings.is_empty() && branch.report.summary.is_empty());
}

#[tokio::test]
async fn quote_that_its_document_does_not_have_any_more_is_no_evidence() {
    let caller = Scripted::by_key(usual("Readers take no lock"));
    let branch = work(&caller, &source().changed(), &task(&node(), &[])).await.unwrap();
    assert_eq!(branch.report.stop_reason, BranchStop::NoEvidence);
}

#[tokio::test]
async fn without_evidence_nothing_is_found_whatever_the_model_says() {
    let caller = acting([json!([])], [finding("I know it from memory.", &["n2e1"])]);
    let branch = of_node(&caller).await.unwrap();
    assert_eq!(branch.report.stop_reason, BranchStop::NoEvidence);
    assert_eq!(branch.report.open_questions, ["How does the lock work?"]);
    assert_eq!(caller.keys(), ["n2/step/1"], "nothing is asked of nothing");
}

#[tokio::test]
async fn thoughts_and_errors_of_tools_never_become_findings() {
    let caller = Scripted::new(|_, _| Ok(step(&json!([search("lock")]), false).to_string()));
    let error = work(&caller, &source().failing(), &task(&node(), &[])).await.unwrap_err();
    assert!(caller.tasks()[1].contains("failed: source `kb` failed: disk is gone"));
    assert!(caller.tasks().iter().all(|task| !task.contains("THOUGHT")));
    assert_eq!(
        error.to_string(),
        "source `kb` failed: disk is gone",
        "a source that never answered has not found nothing"
    );
}

#[tokio::test]
async fn report_cites_only_what_was_received_and_loses_no_source() {
    let caller = acting(
        [json!([search("lock")]), json!([note("p1", "It is held while writing."), note("p2", "Readers take no lock")])],
        [finding("Held.", &["n2e1", "n3e1"]), finding("Made up.", &["n9e9", "p1"])],
    );
    let branch = of_node(&caller).await.unwrap();
    let shown: Vec<_> = branch
        .report
        .findings
        .iter()
        .map(|finding| {
            format!("{} {}", finding.text, finding.evidence.iter().map(ToString::to_string).collect::<String>())
        })
        .collect();
    assert_eq!(shown, ["Held. n2e1", "It says: Readers take no lock n2e2"]);
}

#[tokio::test]
async fn note_that_no_finding_names_is_one_beside_those_of_its_aspect() {
    let aspects = [1, 2].map(|number| Aspect { id: AspectId::numbered(number), text: "lock".into() });
    let other =
        json!({"tool": "note", "passage": "p2", "quote": "Readers take no lock", "text": "None.", "aspect": "a2"});
    let notes = || json!([note("p1", "It is held while writing."), other, note("p1", "The writer lock is a file.")]);
    let says = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let first = "It says: It is held while writing.";
    let third = "It says: The writer lock is a file.";
    let none = acting([json!([search("lock")]), notes()], []);
    let joined = acting([json!([search("lock")]), notes()], [finding("A file, held.", &["n2e1", "n2e3"])]);
    for (caller, expected) in [(none, says(&[first, third, "None."])), (joined, says(&["A file, held.", "None."]))] {
        let branch = worked(&caller, &task(&node(), &aspects)).await.unwrap();
        let texts: Vec<_> = branch.report.findings.iter().map(|finding| finding.text.clone()).collect();
        assert_eq!(texts, expected);
        assert_eq!(caller.keys(), ["n2/step/1", "n2/step/2", "n2/report"], "no finding is no fault");
        let told = caller.tasks().pop().unwrap();
        assert!(told.contains("file. (a1)\nFrom: the same place as n2e1\nQuote: "), "{told}");
    }
}

#[tokio::test]
async fn note_that_no_finding_names_stands_where_it_was_made_among_those_of_its_aspect() {
    let quotes = ["Oats are sown in May.", "Rye is sown in June.", "Oats are cut in July.", "Rye is cut in August."];
    let source = ScriptedSource::of(&[("a.md", quotes.join(" ").as_str())]);
    let aspects = [Aspect { id: AspectId::numbered(1), text: "sown".into() }];
    let notes = || json!(quotes.map(|quote| note("p1", quote)));
    let said = quotes.map(|quote| format!("It says: {quote}"));
    let [first, second, _, last] = said.each_ref().map(String::as_str);
    for (findings, expected) in [
        ([finding("July.", &["n2e3"]), finding("May.", &["n2e1"])], ["July.", last, "May.", second]),
        (
            [finding("July.", &["n2e3"]), finding("June, July.", &["n2e2", "n2e3"])],
            [first, "July.", "June, July.", last],
        ),
    ] {
        let caller = acting([json!([search("sown")]), notes()], findings);
        let branch = work(&caller, &source, &task(&node(), &aspects)).await.unwrap();
        let texts: Vec<_> = branch.report.findings.iter().map(|finding| finding.text.as_str()).collect();
        assert_eq!(texts, expected);
    }
}

#[tokio::test]
async fn actions_run_side_by_side_and_ids_follow_their_order() {
    let source = ScriptedSource::of(&[("a.md", "Apples are red."), ("b.md", "Pears are green.")]);
    let caller =
        acting([json!([search("pears"), search("apples"), search("are")]), json!([open("p1"), open("p7")])], []);
    work(&caller, &source, &task(&node(), &[])).await.unwrap();
    let shown = &caller.tasks()[1];
    let at = |text: &str| shown.find(text).unwrap_or_else(|| panic!("{text} in {shown}"));
    assert!(at("<data id=\"p1\">\nFrom: b.md › b\nPears") < at("<data id=\"p2\">\nFrom: a.md › a\nApples"));
    assert!(!shown.contains("p3"), "a passage found again keeps its id");
    assert_eq!(*source.queries.lock().unwrap(), ["pears", "apples", "are"]);
}

#[tokio::test]
async fn repeated_call_is_refused_with_a_hint_and_then_ends_the_work() {
    let caller = Scripted::new(|key, _| {
        let queries = ["lock", "Lock!", " lock ", "LOCK"];
        let number = key.as_str().chars().last().unwrap().to_digit(10).unwrap() as usize;
        Ok(step(&json!([search(queries[(number - 1) % 4])]), false).to_string())
    });
    let source = source();
    let branch = work(&caller, &source, &task(&node(), &[])).await.unwrap();
    assert_eq!(caller.keys().len(), 4);
    assert_eq!(source.queries.lock().unwrap().len(), 1);
    assert!(caller.tasks()[2].contains("you made this call before"));
    assert_eq!(branch.report.stop_reason, BranchStop::NoEvidence);
}

#[tokio::test]
async fn model_that_does_nothing_is_stopped() {
    let caller = Scripted::replying(step(&json!([]), false));
    of_node(&caller).await.unwrap();
    assert_eq!(caller.keys().len(), 3);
}

#[tokio::test]
async fn limits_of_steps_and_tokens_end_the_work_and_keep_what_was_noted() {
    let node = node();
    let caller = || {
        Scripted::new(|key, _| {
            Ok(match key.as_str() {
                "n2/step/1" => step(&json!([search("lock")]), false),
                "n2/step/2" => step(&json!([note("p1", "It is held while writing.")]), false),
                "n2/report" => report(&json!([finding("Held.", &["n2e1"])])),
                key => step(&json!([search(key)]), false),
            }
            .to_string())
        })
    };
    let mut limited = task(&node, &[]);
    limited.limits.max_steps = 4;
    let first = caller();
    let branch = worked(&first, &limited).await.unwrap();
    assert_eq!((branch.report.stop_reason, branch.evidence.len()), (BranchStop::StepsExceeded, 1));
    let tasks = first.tasks();
    assert!(tasks[3].contains("Wrap up") && !tasks[2].contains("Wrap up"), "only the last step says so");
    let last = "This is step 4 of at most 4. About 5";
    assert!(tasks[3].contains(last) && tasks[3].contains("Wrap up, because this is the last step: "), "{}", tasks[3]);
    assert!(tasks[0].contains("This is step 1 of at most 4. About 59000 tokens are left for"), "{}", tasks[0]);
    limited.limits = WorkerLimits { max_tokens: 2_500, ..WorkerLimits::default() };
    let second = caller();
    let branch = worked(&second, &limited).await.unwrap();
    assert_eq!((branch.report.stop_reason, branch.evidence.len()), (BranchStop::TokensExceeded, 1));
    assert!(second.sizes().iter().sum::<u64>() < 2_500 * 3);
    let reason = "because the tokens that are left barely cover another step";
    assert!(second.tasks().iter().any(|task| task.contains(reason)), "{:?}", second.tasks());
}

#[tokio::test]
async fn tokens_that_are_left_are_without_those_of_the_prompt_that_names_them() {
    let (node, caller) = (node(), Scripted::by_key(usual("It is held while writing.")));
    let mut limited = task(&node, &[]);
    limited.limits.max_tokens = 1_500;
    worked(&caller, &limited).await.unwrap();
    let sent = size(&caller, &caller.prompts()[0]);
    assert!((501..1_500).contains(&sent), "{sent}: a number above a thousand would be rounded");
    let told = format!("of at most 8. About {} tokens are left for", 1_500 - sent);
    assert!(caller.tasks()[0].contains(&told), "{told}: {}", caller.tasks()[0]);
}

#[tokio::test]
async fn tight_budget_tells_a_worker_that_has_seen_something_to_wrap_up() {
    let caller = Scripted::by_key(usual("It is held while writing.")).tight();
    of_node(&caller).await.unwrap();
    let tasks = caller.tasks();
    assert!(!tasks[0].contains("Wrap up"), "{tasks:?}");
    assert!(tasks[1].contains("Wrap up, because the whole research nears its limit: "), "{tasks:?}");
}

#[tokio::test]
async fn limit_of_the_run_at_any_call_keeps_what_was_noted() {
    let limit = CallError::Limit(Limit::Cost);
    for at in [1, 2] {
        let caller = Scripted::by_key(usual("It is held while writing.")).failing_at(at, limit.clone());
        // An empty notebook does not mean that there is no evidence: the node can wait for a raised limit.
        assert_eq!(of_node(&caller).await, Err(limit.clone().into()));
    }
    let caller = Scripted::by_key(usual("It is held while writing.")).failing_at(3, limit);
    let branch = of_node(&caller).await.unwrap();
    assert_eq!(branch.report.stop_reason, BranchStop::BudgetExceeded);
    assert_eq!((branch.evidence.len(), branch.report.findings.len()), (1, 1));
}

#[tokio::test]
async fn stopped_run_stops_the_worker_at_any_call() {
    for error in [CallError::Cancelled, CallError::Journal { reason: "disk full".into(), hint: None }] {
        for at in 1..=3 {
            let caller = Scripted::by_key(usual("It is held while writing.")).failing_at(at, error.clone());
            assert_eq!(of_node(&caller).await, Err(error.clone().into()));
        }
    }
}

#[tokio::test]
async fn failing_model_loses_nothing_that_was_noted() {
    let node = node();
    let early = Scripted::by_key(usual("It is held while writing.")).failing_at(2, broken("down"));
    assert_eq!(worked(&early, &task(&node, &[])).await, Err(broken("down").into()));
    let mut script = usual("It is held while writing.");
    script[1].1 = step(&json!([note("p1", "It is held while writing.")]), false);
    let branch = worked(&Scripted::by_key(script).failing_at(3, broken("down")), &task(&node, &[])).await.unwrap();
    assert_eq!(branch.report.stop_reason, BranchStop::ModelFailed);
    assert_eq!(branch.report.findings.len(), 1);
    let late = Scripted::by_key(usual("It is held while writing.")).failing_at(3, broken("down"));
    let branch = worked(&late, &task(&node, &[])).await.unwrap();
    assert_eq!(branch.report.stop_reason, BranchStop::Done);
    assert!(branch.notes[0].contains("written without a model"));
}

#[tokio::test]
async fn prompt_too_long_for_the_model_is_asked_once_more_without_old_results() {
    let too_long = CallError::Model(ModelError::ContextTooLong { reason: "9 tokens, more than 8".into() });
    let mut script = usual("It is held while writing.");
    script.push(("n2/step/2/shorter", script[1].1.clone()));
    let replies = Scripted::by_key(script);
    let caller = Scripted::new(move |key, prompt| match key.as_str() {
        "n2/step/2" => Err(too_long.clone()),
        _ => futures::executor::block_on(replies.call(key, prompt)).map(|reply| reply.text),
    });
    let branch = of_node(&caller).await.unwrap();
    assert_eq!(caller.keys(), ["n2/step/1", "n2/step/2", "n2/step/2/shorter", "n2/report"]);
    assert!(!caller.tasks()[2].contains("<data id=\"p1\">"));
    assert_eq!(branch.evidence.len(), 1, "ids stay valid");
}

#[tokio::test]
async fn every_prompt_fits_its_limit_however_much_is_found() {
    let node = node();
    let long: String = (0..60).map(|n| format!("Lock number {n} is {}.\n\n", "long ".repeat(150))).collect();
    let source = ScriptedSource::of(&[("long.md", long.as_str())]);
    let caller = Scripted::new(|key, _| {
        let number = key.as_str().chars().last().unwrap();
        let actions = json!([search(&format!("lock {number}")), {"tool": "open", "passage": format!("p{number}")}]);
        Ok(step(&actions, false).to_string())
    })
    .with_input_limit(4_000);
    let context = "Known is much. ".repeat(900);
    let mut task = task(&node, &[]);
    task.context = &context;
    work(&caller, &source, &task).await.unwrap();
    assert!(caller.sizes().len() == 8 && caller.sizes().iter().all(|size| *size <= 4_000), "{:?}", caller.sizes());
    assert!(caller.tasks()[7].contains("Lock number"), "what came last is shown");
    assert!(caller.tasks()[7].contains("left out here for length: p1"));
    for task in caller.tasks() {
        for (at, _) in task.match_indices(" above stands here)") {
            let id = task[..at].rsplit('(').next().unwrap();
            assert!(task[..at].contains(&format!("<data id=\"{id}\">")), "{id} is not above in {task}");
        }
    }
}

#[tokio::test]
async fn opened_section_shows_what_was_not_shown_and_names_the_rest() {
    let node = node();
    let sentence = |word: &str, number: usize| format!("The {word} lock of room {number} is held by one writer.");
    let paragraph = |word: &str| (1..=12).map(|number| sentence(word, number)).collect::<Vec<_>>().join("\n");
    let words = ["alpha", "beta", "gamma", "delta"];
    let text = words.map(paragraph).join("\n\n");
    let source = ScriptedSource::of(&[("locks.md", &*text)]);
    let caller = || {
        acting(
            [
                json!([search("alpha gamma")]),
                json!([open("p1")]),
                json!([note("p3", &sentence("gamma", 7)), note("p1", &sentence("alpha", 2))]),
                json!([search("delta"), open("p2")]),
                json!([note("p3", &sentence("delta", 9))]),
            ],
            [finding("Held.", &["n2e1"])],
        )
    };
    let first = caller();
    let branch = work(&first, &source, &task(&node, &[])).await.unwrap();
    let tasks = first.tasks();
    let opened = "… (p1 above stands here)\nThe beta lock of room 1";
    assert!(tasks[2].contains(opened) && tasks[2].contains("\n… (p2 above stands here)\nThe delta"), "{}", tasks[2]);
    for shown in words.iter().flat_map(|word| (1..=12).map(|number| sentence(word, number))) {
        assert_eq!(tasks[4].matches(&shown).count(), 1 + tasks[4].matches(&format!("It says: {shown}")).count());
    }
    assert!(tasks[4].contains("search for delta: 1 passage (shown above: p3)"), "{}", tasks[4]);
    let lines: Vec<_> = branch.evidence.iter().map(|quote| quote.source.for_people()).collect();
    assert_eq!(lines, ["locks.md:33", "locks.md:2", "locks.md:48"], "quotes are found in the whole section");
    let again = caller();
    assert_eq!(work(&again, &source, &task(&node, &[])).await.unwrap(), branch);
    assert_eq!(again.prompts(), first.prompts(), "a resumed worker makes the same requests");
}

/// Returns a file of eight paragraphs, of which about three fit into the prompts of [`narrow`].
fn long_locks() -> String {
    let long = "It is long. ".repeat(49);
    (1..=8).map(|number| format!("The k{number} lock. {}\n\n", long.trim_end())).collect()
}

/// Returns a worker with a small window that searches for each paragraph of [`long_locks`] in turn, and for `last` in
/// the last step but one.
fn narrow(last: &'static [&'static str]) -> Scripted {
    let caller = Scripted::new(move |key, _| {
        let number = key.as_str().chars().last().unwrap();
        let own = format!("k{number}");
        let queries = if number == '7' { last.to_vec() } else { vec![own.as_str()] };
        let actions: Vec<_> = queries.iter().map(|query| search(query)).collect();
        Ok(step(&json!(actions), false).to_string())
    });
    caller.with_input_limit(2_100)
}

#[tokio::test]
async fn passage_that_was_left_out_is_shown_again_once_for_all_searches_of_a_step() {
    let source = ScriptedSource::of(&[("locks.md", &*long_locks())]);
    let caller = narrow(&["about k1", "of k1"]);
    work(&caller, &source, &task(&node(), &[])).await.unwrap();
    let tasks = caller.tasks();
    assert!(!tasks[6].contains("<data id=\"p1\">"), "{}", tasks[6]);
    assert_eq!(tasks[7].matches("<data id=\"p1\">").count(), 1, "{}", tasks[7]);
    assert!(tasks[7].contains("search for of k1: 1 passage (shown above: p1)"), "{}", tasks[7]);
}

#[tokio::test]
async fn prompt_that_leaves_out_old_passages_makes_room_for_later_ones_to_begin_like_it() {
    let source = ScriptedSource::of(&[("locks.md", &*long_locks())]);
    let caller = narrow(&["k7"]);
    work(&caller, &source, &task(&node(), &[])).await.unwrap();
    let tasks = caller.tasks();
    assert!(tasks[7].contains("left out here for length: p1)"), "{}", tasks[7]);
    let begins_otherwise = |pair: &&[String]| !pair[1].starts_with(pair[0].split("\nThis is step").next().unwrap());
    let breaks = tasks.windows(2).filter(begins_otherwise).count();
    assert!((1..=2).contains(&breaks), "{breaks} of 7 prompts begin otherwise than the one before");
}

/// Returns a file of four paragraphs, each shown whole by a search and long enough to be named.
fn rooms() -> String {
    many_rooms(12)
}

/// Returns the same with paragraphs of `rooms` sentences.
fn many_rooms(rooms: usize) -> String {
    let sentence = |word: &str, number: usize| format!("The {word} lock of room {number} is held by one writer.");
    let paragraph = |word: &str| (1..=rooms).map(|number| sentence(word, number)).collect::<Vec<_>>().join("\n");
    ["alpha", "beta", "gamma", "delta"].map(paragraph).join("\n\n")
}

#[tokio::test]
async fn section_that_was_named_is_shown_once_the_one_that_contains_it_is_left_out() {
    let text = many_rooms(80);
    let source = ScriptedSource::of(&[("locks.md", &*text)]).reading_on();
    let replies =
        acting([json!([search("alpha beta gamma")]), json!([open("p1"), open("p3")]), json!([]), json!([])], []);
    let too_long = CallError::Model(ModelError::ContextTooLong { reason: "9 tokens, more than 8".into() });
    let caller = Scripted::new(move |key, prompt| match key.as_str() {
        "n2/step/3" => Err(too_long.clone()),
        "n2/step/3/shorter" => Ok(step(&json!([]), true).to_string()),
        _ => futures::executor::block_on(replies.call(key, prompt)).map(|reply| reply.text),
    });
    let node = node();
    let mut task = task(&node, &[]);
    (task.limits.snippet_tokens, task.limits.open_tokens) = (10_000, 10_000);
    work(&caller, &source, &task).await.unwrap();
    let tasks = caller.tasks();
    assert!(tasks[2].contains("open p3: opened (shown above: p4)\n</data>"), "{}", tasks[2]);
    assert!(!tasks[2].contains("<data id=\"p5\">"), "{}", tasks[2]);
    let shorter = &tasks[3];
    assert!(shorter.contains("open p3: opened\n</data>\n<data id=\"p5\">\n"), "{shorter}");
    assert!(!shorter.contains("<data id=\"p4\">") && shorter.contains("The gamma lock of room 1 is"), "{shorter}");
}

#[tokio::test]
async fn section_that_an_opened_one_contains_is_named_and_not_shown_again() {
    let source = ScriptedSource::of(&[("locks.md", &*rooms())]).reading_on();
    let actions =
        [json!([search("alpha beta gamma")]), json!([open("p1"), open("p2")]), json!([open("p3")]), json!([])];
    let caller = acting(actions, []);
    work(&caller, &source, &task(&node(), &[])).await.unwrap();
    let shown = &caller.tasks()[3];
    let named = "open p2: opened (shown above: p4)\n</data>";
    assert!(shown.contains(named) && !shown.contains("<data id=\"p5\">"), "opened in the same step: {shown}");
    assert!(shown.contains("open p3: opened (shown above: p4)"), "{shown}");
    for sentence in rooms().lines().filter(|line| !line.is_empty()) {
        assert_eq!(shown.matches(sentence).count(), 1, "{sentence}: {shown}");
    }
}

#[tokio::test]
async fn hit_in_a_section_that_was_opened_in_the_same_step_is_named_and_not_shown_as_an_empty_block() {
    let source = ScriptedSource::of(&[("locks.md", &*rooms())]);
    // More than the first bytes of a section count as shown.
    let actions = [json!([search("alpha")]), json!([open("p1"), search("delta"), search("of delta")]), json!([])];
    let caller = acting(actions, []);
    work(&caller, &source, &task(&node(), &[])).await.unwrap();
    let shown = &caller.tasks()[2];
    for query in ["delta", "of delta"] {
        let line = shown.lines().find(|line| line.starts_with(&format!("search for {query}: "))).unwrap();
        assert!(line.ends_with("p2)") && line.contains("(shown above: "), "{line}: {shown}");
        assert!(!line.contains("p3"), "an id that is not shown: {line}");
    }
    assert!(!shown.contains("<data id=\"p3\">"), "{shown}");
    for sentence in rooms().lines().filter(|line| !line.is_empty()) {
        assert_eq!(shown.matches(sentence).count(), 1, "{sentence}: {shown}");
    }
}

#[tokio::test]
async fn links_of_a_document_are_shown_once_whichever_of_its_sections_are_opened() {
    let source = ScriptedSource::of(&[("locks.md", &*rooms())]).reading_on();
    let source = source.linking("\n\nLinks of this page: `other.md` (Other)");
    let actions = [json!([search("alpha gamma")]), json!([open("p2")]), json!([open("p1")]), json!([])];
    let caller = acting(actions, []);
    work(&caller, &source, &task(&node(), &[])).await.unwrap();
    let shown = &caller.tasks()[3];
    assert!(shown.contains("\n… (p3 above stands here)\n</data>"), "{shown}");
    assert_eq!(shown.matches("Links of this page").count(), 1, "{shown}");
}

#[tokio::test]
async fn note_that_its_hit_has_whole_is_opened_for_its_links_alone() {
    let text = "The lock is held by one writer at a time. ".repeat(5);
    let source = ScriptedSource::of(&[("locks.md", text.trim())]);
    let source = source.linking("\n\nLinks of this page: `other.md` (Other)");
    let caller = acting([json!([search("lock")]), json!([open("p1")]), json!([])], []);
    work(&caller, &source, &task(&node(), &[])).await.unwrap();
    let shown = &caller.tasks()[2];
    assert!(shown.contains("\n… (p1 above stands here)\n\nLinks of this page: `other.md`"), "{shown}");
}

#[tokio::test]
async fn notes_of_a_step_are_acknowledged_in_one_line() {
    let notes = [
        note("p1", "It is held while writing."),
        note("p1", "The lock is made of steel."),
        note("p2", "Readers take no lock at all."),
        note("p1", "held while writing"),
    ];
    let caller = acting([json!([search("lock")]), json!(notes), json!([])], [finding("Held.", &["n2e1"])]);
    of_node(&caller).await.unwrap();
    let shown = &caller.tasks()[2];
    assert!(shown.contains("<data id=\"call\">\nnotes: noted as n2e1, n2e2\n</data>"), "{shown}");
    assert_eq!(shown.matches("note from").count(), 1, "the one that was refused: {shown}");
    let list = "Evidence you have noted:\n<data id=\"notes\">\nn2e1: It says: It is held while writing.\nn2e2: ";
    assert!(shown.contains(list), "{shown}");
}

#[tokio::test]
async fn quote_is_noted_once_for_each_aspect_that_it_serves() {
    let (node, text) = (node(), "lock".to_owned());
    let aspects = [1, 2].map(|number| Aspect { id: AspectId::numbered(number), text: text.clone() });
    let other =
        json!({"tool": "note", "passage": "p1", "quote": "It is held while writing.", "text": "So.", "aspect": "a2"});
    let own = note("p1", "It is held while writing.");
    let caller = acting([json!([search("lock")]), json!([own, other, own])], [finding("Held.", &["n2e1", "n2e2"])]);
    let gathered = gather(&caller, &Conversation::inside(&task(&node, &aspects), &source(), None)).await.unwrap();
    let noted: Vec<_> = gathered.notes.iter().map(Note::claim).collect();
    assert_eq!(noted, ["It says: It is held while writing. (a1)", "So. (a2)"]);
}

#[tokio::test]
async fn searches_of_one_step_share_its_passages() {
    let text: String = (0..20).map(|number| format!("The lock of door {number} is made of steel.\n\n")).collect();
    let source = ScriptedSource::of(&[("doors.md", &text)]);
    let shown = async |queries: &[&str]| {
        let actions: Vec<_> = queries.iter().map(|query| search(query)).collect();
        let caller = acting([json!(actions), json!([])], []);
        work(&caller, &source, &task(&node(), &[])).await.unwrap();
        caller.tasks()[1].matches("From: doors.md").count()
    };
    assert_eq!(shown(&["lock"]).await, 8);
    assert_eq!(shown(&["lock", "steel", "door", "made", "the"]).await, 4, "all find the same four");
}

#[tokio::test]
async fn node_that_draws_conclusions_together_may_cite_their_evidence_at_once() {
    let mut tree = Tree::of("Compare A and B".parse().unwrap());
    let first = add_node(&mut tree, "What is A?", &[]);
    let second = add_node(&mut tree, "How do they differ?", &[&first]);
    let found = branch(&first, &["A is made of wood."], Label::Internal);
    let caller = Scripted::by_key(vec![
        ("n3/step/1", step(&json!([]), true)),
        ("n3/report", report(&json!([finding("Only A is of wood.", &["n2e1"]), finding("So is B.", &["n2e2"])]))),
    ]);
    let mut task = task(tree.get(&second).unwrap(), &[]);
    task.conclusions = vec![Conclusion::of(tree.get(&first).unwrap(), &found)];
    let branch = worked(&caller, &task).await.unwrap();
    assert!(branch.evidence.is_empty());
    assert_eq!(branch.report.findings.len(), 1);
    assert_eq!(branch.support, Support::Strong);
}

#[tokio::test]
async fn result_has_the_form_the_plan_wants_or_people_are_told() {
    let mut node = node();
    node.output_schema = Some(json!({"type": "object", "required": ["lock"]}));
    for (said, has_output) in [(json!({"lock": "file"}), true), (json!({"key": "file"}), false)] {
        let mut script = usual("It is held while writing.");
        script.push(("n2/output", said));
        let branch = worked(&Scripted::by_key(script), &task(&node, &[])).await.unwrap();
        assert_eq!(branch.report.output.is_some(), has_output);
        assert_eq!(branch.notes.len(), usize::from(!has_output));
    }
}

#[tokio::test]
async fn tools_a_node_was_not_given_are_refused() {
    let mut node = node();
    node.tools = vec![Tool::Search];
    let caller = acting([json!([search("lock")]), json!([open("p1")]), json!([])], []);
    worked(&caller, &task(&node, &[])).await.unwrap();
    assert!(caller.tasks()[2].contains("refused: you may not open passages"));
    assert!(!caller.prompts()[0].messages[0].text.contains("`open`"));
}

#[tokio::test]
async fn passage_is_listed_for_reading_unless_it_was_opened_its_document_noted_or_its_search_had_no_answer() {
    let texts = ["The lock is old.", "A lock of hair.", "Locks of a canal."];
    let further = async |support, length: usize| {
        let texts = texts.map(|text| format!("{text} {}", "It is so. ".repeat(length)));
        let files = [("a.md", &*texts[0]), ("b.md", &*texts[1]), ("c.md", &*texts[2])];
        let source = ScriptedSource::of(&files).judging(Found { support, ..Found::default() });
        let caller = acting([json!([search("lock")]), json!([])], []);
        let branch = work(&caller, &source, &task(&node(), &[])).await.unwrap();
        (branch.further.len(), caller.tasks()[1].clone())
    };
    let (number, shown) = further(Support::None, 200).await;
    assert!(
        number == 0 && shown.contains("3 passages, none of which seems relevant; the first 2 are shown"),
        "{shown}"
    );
    assert!(shown.contains("lock of hair") && !shown.contains("canal"), "{shown}");
    assert_eq!(further(Support::Weak, 200).await.0, 3);
    assert_eq!(further(Support::Weak, 0).await.0, 3, "the user has not read what the model has");

    let long = format!("{} {}", texts[1], "It is so. ".repeat(200));
    let source = ScriptedSource::of(&[("a.md", texts[0]), ("b.md", &*long), ("c.md", texts[2])]);
    let look = json!([open("p2"), note("p1", "The lock is old.")]);
    let caller = acting([json!([search("lock")]), look, json!([])], [finding("Old.", &["n2e1"])]);
    let branch = work(&caller, &source, &task(&node(), &[])).await.unwrap();
    let left: Vec<_> = branch.further.iter().map(|passage| passage.id.as_str()).collect();
    assert_eq!(left, ["c.md#0"]);
}

#[tokio::test]
async fn worker_sees_its_task_and_nothing_else() {
    let caller = Scripted::by_key(usual("It is held while writing."));
    of_node(&caller).await.unwrap();
    insta::assert_snapshot!(caller.tasks()[1]);
}

#[tokio::test]
async fn steps_can_be_run_by_any_thread() {
    fn is_send<T: Send>(_: &T) {}
    let node = node();
    let (caller, source) = (acting([], []), source());
    let task = task(&node, &[]);
    is_send(&work(&caller, &source, &task));
    let brief = crate::research::scripted::brief("What is A?", &["a"]);
    let tree = Tree::of("What is A?".parse().unwrap());
    let (branches, memory) = (std::collections::BTreeMap::new(), crate::research::memory::Memory::default());
    let key = CallKey::new("k");
    is_send(&crate::research::memory::group_summaries(&caller, &key, &brief, &tree, &branches, 9));
    let draft = crate::research::report::Draft::default();
    is_send(&crate::research::verdict::judge(&caller, &key, &brief, &tree, &branches, &[], &draft));
    let material = crate::research::writer::WriterInput {
        brief: &brief,
        tree: &tree,
        branches: &branches,
        reasons: &[],
        memory: &memory,
        verdicts: &[],
        before: None,
        ledger: Vec::new(),
        nearest: &Vec::new(),
        is_last: false,
        on_section: &|_, _| {},
    };
    is_send(&crate::research::writer::draft(&caller, &key, &material));
}

#[tokio::test]
async fn what_was_noted_in_the_step_that_the_time_ended_is_kept() {
    let caller = Scripted::by_key(vec![
        ("n2/step/1", step(&json!([search("lock")]), false)),
        ("n2/step/2", step(&json!([open("p1"), note("p1", "It is held while writing.")]), false)),
        ("n2/report", report(&json!([finding("Readers take none.", &["n2e1"])]))),
    ]);
    let branch = work(&caller, &source().out_of_time(), &task(&node(), &[])).await.unwrap();
    assert_eq!(branch.evidence.len(), 1);
    assert_eq!(branch.report.stop_reason, BranchStop::BudgetExceeded);
}

#[tokio::test]
async fn notes_do_not_count_as_actions_and_what_is_left_out_is_named() {
    let node = node();
    let searches = (1..=10).map(|number| search(&format!("lock {number}")));
    let quotes = ["It is held while writing.", "Readers take no lock at all."];
    let (known, again) = (note("p1", quotes[0]), note("p1", "held while writing."));
    let actions: Vec<_> = searches.chain([known, again, note("p2", quotes[1])]).collect();
    let caller =
        acting([json!([search("lock")]), json!(actions)], [finding("Held.", &["n2e1"]), finding("None.", &["n2e2"])]);
    let source = source();
    let branch = work(&caller, &source, &task(&node, &[])).await.unwrap();
    assert_eq!(branch.evidence.iter().map(|quote| quote.quote.replace('\n', " ")).collect::<Vec<_>>(), quotes);
    assert_eq!(source.queries.lock().unwrap().len(), 9, "one, then eight of ten");
    assert_eq!(caller.keys(), ["n2/step/1", "n2/step/2", "n2/report"], "a quote noted again is not lost");

    let mut actions: Vec<_> = actions;
    actions.truncate(10);
    let caller = acting([json!(actions), json!([])], []);
    worked(&caller, &task(&node, &[])).await.unwrap();
    let shown = &caller.tasks()[1];
    assert!(shown.contains("left out: search for lock 9; search for lock 10"), "{shown}");
    assert!(caller.prompts()[0].messages[0].text.contains("at most 8 besides notes, and any number of notes"));
}

#[tokio::test]
async fn passage_is_shown_whole_up_to_its_limit_and_a_cut_is_marked_and_read_on() {
    let node = node();
    let sentence = |number: usize| format!("Lock number {number} is held by one writer at a time.");
    let paragraph = |from: usize, to: usize| (from..to).map(sentence).collect::<Vec<_>>().join("\n");
    let text = format!("{}\n\n{}", paragraph(0, 8), paragraph(8, 90));
    let source = ScriptedSource::of(&[("locks.md", &*text)]);
    let act = |tool: &str, passage: &str| json!({"tool": tool, "passage": passage});
    let caller = acting(
        [
            json!([search("lock")]),
            json!([act("open", "p1"), act("continue", "p1")]),
            json!([act("continue", "p3")]),
            json!([note("p4", &sentence(89))]),
        ],
        [finding("Held.", &["n2e1"])],
    );
    let mut task = task(&node, &[]);
    task.limits.open_tokens = 700;
    let branch = work(&caller, &source, &task).await.unwrap();
    let tasks = caller.tasks();
    assert!(tasks[1].contains(&paragraph(0, 8)) && tasks[1].contains("cut here; `open` with p2"), "{}", tasks[1]);
    assert!(!tasks[1].contains(&sentence(60)));
    assert!(tasks[2].contains("continue p1: refused: p1 is not opened: open it first"), "{}", tasks[2]);
    assert!(tasks[2].contains("cut here; `continue` with p3") && !tasks[2].contains(&sentence(89)));
    assert!(tasks[3].contains(&sentence(89)) && !tasks[3].contains("`continue` with p4"), "{}", tasks[3]);
    assert_eq!(branch.evidence[0].source.for_people(), "locks.md:91", "lines are those of the file");
    assert!(branch.evidence[0].checked);
}

#[tokio::test]
async fn page_that_was_shown_as_a_digest_is_read_on_from_its_start() {
    let source = ScriptedSource::of(&[("locks.md", LOCKS)]).digesting("In short: a file.");
    let read_on = json!([{"tool": "continue", "passage": "p2"}]);
    let caller = acting([json!([search("writer")]), json!([open("p1")]), read_on, json!([])], []);
    work(&caller, &source, &task(&node(), &[])).await.unwrap();
    let shown = &caller.tasks()[3];
    assert!(shown.contains("<data id=\"p2\">\nFrom: locks.md › locks\nIn short: a file.\n</data>"), "{shown}");
    assert!(shown.contains("continue p2: read on\n"), "{shown}");
    assert_eq!(shown.matches("Readers take no lock at all.").count(), 1, "{shown}");
}

#[tokio::test]
async fn hit_that_was_cut_is_read_whole_when_it_is_opened_although_its_section_is_no_longer() {
    let sentence = |number: usize| format!("Lock number {number} is held by one writer at a time.");
    let text = (0..40).map(sentence).collect::<Vec<_>>().join("\n");
    let source = ScriptedSource::of(&[("locks.md", &*text)]);
    let caller = acting(
        [json!([search("lock")]), json!([open("p1")]), json!([note("p1", &sentence(39))])],
        [finding("Held.", &["n2e1"])],
    );
    let branch = work(&caller, &source, &task(&node(), &[])).await.unwrap();
    let tasks = caller.tasks();
    assert!(tasks[1].contains("cut here; `open` with p1") && !tasks[1].contains(&sentence(39)), "{}", tasks[1]);
    assert!(tasks[2].contains(&sentence(39)), "{}", tasks[2]);
    assert!(branch.evidence[0].checked);
}

#[tokio::test]
async fn aspect_that_a_worker_calls_open_stays_open_although_it_noted_something_on_it() {
    let aspect = |number, text: &str| Aspect { id: AspectId::numbered(number), text: text.into() };
    let (node, aspects, source) = (node(), [aspect(1, "lock"), aspect(2, "readers"), aspect(3, "cost")], source());
    let noted = json!([note("p1", "It is held while writing.")]);
    for (open, left) in [(json!(["a1", "a9"]), vec![1, 2, 3]), (json!([]), vec![2, 3])] {
        let done = json!({"thought": "THOUGHT", "actions": noted, "done": true, "left_open": open});
        let caller = Scripted::by_key(vec![("n2/step/1", step(&json!([search("lock")]), false)), ("n2/step/2", done)]);
        let task = task(&node, &aspects);
        let conversation = Conversation::inside(&task, &source, None).before_outside();
        let gathered = gather(&caller, &conversation).await.unwrap();
        let left: Vec<_> = left.into_iter().map(AspectId::numbered).collect();
        assert_eq!(gathered.open_aspects(&aspects), left, "{open}");
    }
}

#[tokio::test]
async fn compressor_is_told_which_searches_found_nothing() {
    let note = note("p1", "It is held while writing.");
    let queries = json!([search("lock"), search("price\nlist")]);
    let caller = acting([queries, json!([note])], [finding("A file locks.", &["n2e1"])]);
    of_node(&caller).await.unwrap();
    let told = caller.tasks().pop().unwrap();
    assert!(
        told.contains("seem to have found nothing relevant:\n<data id=\"searches\">\nprice list\n</data>"),
        "{told}"
    );
}

#[tokio::test]
async fn passages_of_one_section_are_opened_once() {
    let caller =
        acting([json!([search("lock held")]), json!([open("p1"), open("p2"), search("lock readers")]), json!([])], []);
    of_node(&caller).await.unwrap();
    let shown = &caller.tasks()[2];
    assert!(shown.contains("open p2: opened (shown above: p3)"), "{shown}");
    assert!(shown.contains("search for lock readers: 2 passages (shown above: p1, p2)"), "{shown}");
    assert_eq!(shown.matches("Readers take no lock at all.").count(), 2, "once as a hit, once opened");
}

#[tokio::test]
async fn hit_that_stands_in_an_opened_passage_is_not_shown_again() {
    let caller = acting([json!([search("writer")]), json!([open("p1"), search("readers")]), json!([])], []);
    of_node(&caller).await.unwrap();
    let shown = &caller.tasks()[2];
    assert!(shown.contains("search for readers: 1 passage (shown above: p2)"), "{shown}");
    assert_eq!(shown.matches("Readers take no lock at all.").count(), 1, "{shown}");
}

#[tokio::test]
async fn node_that_only_concludes_asks_for_its_report_alone() {
    let mut tree = Tree::of("Compare A and B".parse().unwrap());
    let first = add_node(&mut tree, "What is A?", &[]);
    let second = add_node(&mut tree, "How do they differ?", &[&first]);
    tree.get_mut(&second).unwrap().tools = vec![Tool::Conclude];
    let found = branch(&first, &["A is made of wood."], Label::Internal);
    let caller = Scripted::by_key(vec![("n3/report", report(&json!([finding("Only A is of wood.", &["n2e1"])])))]);
    let mut task = task(tree.get(&second).unwrap(), &[]);
    task.conclusions = vec![Conclusion::of(tree.get(&first).unwrap(), &found)];
    let branch = conclude(&caller, &task).await.unwrap();
    assert_eq!((caller.keys(), branch.report.findings.len()), (vec!["n3/report".to_owned()], 1));
    assert!(caller.tasks()[0].contains("\nFrom a.md: n2e1"), "{}", caller.tasks()[0]);
}

#[tokio::test]
async fn every_step_begins_like_the_one_before_up_to_its_notes() {
    let (node, aspects) = (node(), [Aspect { id: AspectId::numbered(1), text: "lock".into() }]);
    let caller = acting(
        [
            json!([search("lock")]),
            json!([note("p1", "It is held while writing."), search("readers")]),
            json!([note("p2", "Readers take no lock"), search("writer")]),
            json!([]),
        ],
        [finding("Held.", &["n2e1"])],
    );
    worked(&caller, &task(&node, &aspects)).await.unwrap();
    let tasks = caller.tasks();
    for pair in tasks[..4].windows(2) {
        let tail = pair[0].find("\nEvidence you have noted:").or_else(|| pair[0].find("\nThis is step")).unwrap();
        assert!(pair[1].starts_with(&pair[0][..tail]), "{}\n---\n{}", pair[0], pair[1]);
    }
}

#[tokio::test]
async fn compressor_is_told_path_and_date_of_each_quote() {
    let caller = Scripted::by_key(usual("It is held while writing."));
    of_node(&caller).await.unwrap();
    let task = caller.tasks().pop().unwrap();
    assert!(task.contains("\nFrom: locks.md › locks\nQuote: It is held while\nwriting."), "{task}");
}

#[tokio::test]
async fn compressor_is_shown_a_quote_once_although_two_notes_have_it() {
    let aspects = [1, 2].map(|number| Aspect { id: AspectId::numbered(number), text: "lock".into() });
    let other = json!({"tool": "note", "passage": "p1", "quote": "It is held while writing.", "aspect": "a2"});
    let notes = json!([note("p1", "It is held while writing."), other]);
    let caller = acting([json!([search("lock")]), notes], [finding("Held.", &["n2e1", "n2e2"])]);
    worked(&caller, &task(&node(), &aspects)).await.unwrap();
    let task = caller.tasks().pop().unwrap();
    assert_eq!(task.matches("Quote: ").count(), 1, "{task}");
    assert!(task.contains("\nNot worded yet (a2)\nIts quote stands in n2e1 above.\n</data>"), "{task}");
}

/// Returns what the skim found in [`LOCKS`] for the first aspect.
fn skimmed(quote: &str) -> Answer {
    let unit = source().passage("locks.md", "locks.md#0", "It is held while\nwriting.", 2, 3);
    Answer { aspect: AspectId::numbered(1), unit, quote: quote.into() }
}

#[tokio::test]
async fn worker_begins_with_the_skimmed_units_and_their_quotes_as_notes() {
    let (node, aspects) = (node(), [Aspect { id: AspectId::numbered(1), text: "lock".into() }]);
    let (answer, part) = (skimmed("It is held"), skimmed("is held while"));
    let other = note("p1", "It is held while writing.");
    for actions in [json!([]), json!([other])] {
        let (caller, source) = (acting([actions], [finding("A file locks.", &["n2e1"])]), source());
        let answers = Some(vec![&answer, &part]);
        let branch = work_from(&caller, &source, &task(&node, &aspects), answers).await.unwrap();
        let shown = &caller.tasks()[0];
        assert!(shown.contains("skimmed for the whole task: noted before: n2e1 from p1 for a1\n</data>"), "{shown}");
        assert!(shown.contains("<data id=\"notes\">\nn2e1: It is held while writing. (a1)\n</data>"), "{shown}");
        assert_eq!((branch.evidence.len(), branch.support), (1, Support::Strong), "widened, and noted once");
        assert!(branch.evidence[0].checked && branch.evidence[0].quote == "It is held while\nwriting.");
        assert_eq!(branch.evidence[0].source.for_people(), "locks.md:2-3");
        assert_eq!(branch.report.stop_reason, BranchStop::Done);
        assert!(source.queries.lock().unwrap().is_empty());
        assert_eq!(caller.keys(), ["n2/step/1", "n2/report"], "a quote noted again is neither lost nor a repetition");
    }
}

#[tokio::test]
async fn skimmed_quote_that_no_model_words_is_a_finding_in_its_plain_words() {
    let (node, aspects) = (node(), [Aspect { id: AspectId::numbered(1), text: "lock".into() }]);
    let long = format!("The **lock** is a [file](a.md). {}", "It is _held_ while writing. ".repeat(40));
    let table = "| lock | **file** |\n\n";
    let text = format!("{table}{long}");
    let source = ScriptedSource::of(&[("locks.md", text.as_str())]);
    let unit = source.passage("locks.md", "locks.md#0", text.trim_end(), 1, 3);
    let answer = |quote: &str| Answer { aspect: AspectId::numbered(1), unit: unit.clone(), quote: quote.into() };
    let (row, prose) = (answer("lock | **file**"), answer(long.trim_end()));
    let caller = acting([json!([])], []);
    let branch = work_from(&caller, &source, &task(&node, &aspects), Some(vec![&row, &prose])).await.unwrap();
    let told = caller.tasks().pop().unwrap();
    assert!(told.contains("<data id=\"n2e1\">\nNot worded yet (a1)\nFrom: "), "{told}");
    assert_eq!(told.matches("**lock**").count(), 1, "{told}");
    let texts: Vec<_> = branch.report.findings.iter().map(|finding| finding.text.as_str()).collect();
    assert_eq!(texts[0], "lock — file");
    assert!(
        texts[1].starts_with("The lock is a file. It is held") && texts[1].ends_with("while writing."),
        "{texts:?}"
    );
    assert!((500..=600).contains(&texts[1].chars().count()), "{texts:?}");
}

#[tokio::test]
async fn skimmed_quote_is_left_to_the_worker_unless_its_document_has_it_for_an_aspect_of_this_node_alone() {
    let (node, aspects) = (node(), [Aspect { id: AspectId::numbered(1), text: "lock".into() }]);
    let (answer, task) = (skimmed("It is held"), task(&node, &aspects));
    let shared = vec![AspectId::numbered(1)];
    let cases = [(source().changed(), Vec::new(), false), (source(), shared, false), (source(), Vec::new(), true)];
    for (source, shared, goes_on_outside) in cases {
        let caller = acting([json!([])], []);
        let conversation = Conversation::inside(&task, &source, Some(vec![&answer])).sharing(&shared);
        let conversation = if goes_on_outside { conversation.before_outside() } else { conversation };
        let gathered = gather(&caller, &conversation).await.unwrap();
        assert!(gathered.is_empty());
        assert_eq!(gathered.open_aspects(&aspects), [AspectId::numbered(1)], "the web is searched for it");
        let shown = &caller.tasks()[0];
        assert!(shown.contains("p1 seems to answer a1\n</data>") && !shown.contains("noted before:"), "{shown}");
    }
}

#[tokio::test]
async fn skimmed_quote_is_filed_for_one_aspect_and_left_to_the_worker_for_another() {
    let (node, aspects) = (node(), [1, 2].map(|id| Aspect { id: AspectId::numbered(id), text: "lock".into() }));
    let first = skimmed("It is held");
    let second = Answer { aspect: AspectId::numbered(2), ..first.clone() };
    let (caller, task) = (acting([json!([])], []), task(&node, &aspects));
    let branch = work_from(&caller, &source(), &task, Some(vec![&first, &second])).await.unwrap();
    let shown = &caller.tasks()[0];
    assert!(shown.contains("noted before: n2e1 from p1 for a1; p1 seems to answer a2\n</data>"), "{shown}");
    assert_eq!(branch.report.findings.len(), 1, "{:?}", branch.report);
}

#[tokio::test]
async fn node_whose_worker_has_noted_nothing_waits_for_a_raised_limit_although_units_were_skimmed() {
    let (node, aspects) = (node(), [Aspect { id: AspectId::numbered(1), text: "lock".into() }]);
    let (answer, limit) = (skimmed("It is held"), CallError::Limit(Limit::Cost));
    let caller = acting([json!([])], []).failing_at(1, limit.clone());
    let task = task(&node, &aspects);
    let worked = work_from(&caller, &source(), &task, Some(vec![&answer])).await;
    assert_eq!(worked, Err(limit.clone().into()));
    // A quote that it notes again is a note of its own.
    let step = step(&json!([note("p1", "It is held while writing.")]), false);
    let caller = Scripted::by_key(vec![("n2/step/1", step)]).failing_at(2, limit);
    let gathered = gather(&caller, &Conversation::inside(&task, &source(), Some(vec![&answer]))).await.unwrap();
    assert_eq!((gathered.stop, gathered.notes.len()), (BranchStop::BudgetExceeded, 1));
    assert_eq!(gathered.notes[0].text, "It says: It is held while writing.");
}

#[tokio::test]
async fn skimmed_quotes_are_kept_if_the_model_fails_and_not_taken_for_an_answer_of_the_source() {
    let (node, aspects) = (node(), [Aspect { id: AspectId::numbered(1), text: "lock".into() }]);
    let (answer, task) = (skimmed("It is held"), task(&node, &aspects));
    let caller = acting([json!([])], []).failing_at(1, broken("down"));
    let branch = work_from(&caller, &source(), &task, Some(vec![&answer])).await.unwrap();
    assert_eq!((branch.report.stop_reason, branch.evidence.len()), (BranchStop::ModelFailed, 1));
    let caller = acting([json!([search("lock")]), json!([])], []);
    let failed = work_from(&caller, &source().failing(), &task, Some(vec![&answer])).await;
    assert!(matches!(failed, Err(WorkError::Source(_))), "{failed:?}");
}

#[tokio::test]
async fn quote_of_a_skimmed_unit_is_repeated_only_if_the_unit_is_cut_before_it() {
    let source = source();
    let long = format!("{}The key is under the mat.", "It is held while writing. ".repeat(80));
    let units = [long.as_str(), "Readers take no lock at all."];
    let places = [("locks.md#0", 1), ("locks.md#1", 5)];
    let unit = |at: usize| source.passage("locks.md", places[at].0, units[at], places[at].1, places[at].1);
    let answer = |at: usize, quote: &str| Answer { aspect: AspectId::numbered(1), unit: unit(at), quote: quote.into() };
    let answers = [answer(0, "The key is under the mat."), answer(1, "Readers take no lock"), answer(1, "no lock")];
    let caller = acting([json!([search("readers")]), json!([])], []);
    work_from(&caller, &source, &task(&node(), &[]), Some(answers.iter().collect())).await.unwrap();
    let tasks = caller.tasks();
    let (first, second) = (&tasks[0], &tasks[1]);
    let said = "p1 seems to answer a1: The key is under the mat.; p2 seems to answer a1; p2 seems to answer a1\n";
    assert!(first.contains(said), "{first}");
    assert!(second.contains("search for readers: 1 passage (shown above: p2)"), "{second}");
    assert_eq!(second.matches("Readers take no lock at all.").count(), 1, "{second}");
}

#[tokio::test]
async fn where_no_unit_answers_support_is_weak_until_every_aspect_has_a_note() {
    let (node, aspects) = (node(), [1, 2].map(|id| Aspect { id: AspectId::numbered(id), text: "lock".into() }));
    for (aspects, support) in [(&aspects[..], Support::Weak), (&aspects[..1], Support::Strong)] {
        let caller = Scripted::by_key(usual("It is held while writing."));
        let branch = work_from(&caller, &source(), &task(&node, aspects), Some(Vec::new())).await.unwrap();
        assert_eq!(branch.support, support);
    }
}

#[tokio::test]
async fn links_below_an_opened_note_are_shown_although_it_is_cut_and_open_in_turn() {
    let node = node();
    let long = format!("The lock is a file.\n\n{}", "It is held by one writer. ".repeat(200));
    let source = ScriptedSource::of(&[("locks.md", long.as_str()), ("other note.md", "A reader takes no lock.")])
        .linking("\n\nLinks of this page: `other note.md` (Other)");
    let caller = acting(
        [
            json!([search("file")]),
            json!([open("p1")]),
            json!([open("`other note.md`"), open("secret.md"), note("p2", "Links of this page")]),
            json!([note("p3", "A reader takes no lock.")]),
        ],
        [finding("Readers take none.", &["n2e1"])],
    );
    let mut task = task(&node, &[]);
    task.limits.open_tokens = 40;
    let branch = work(&caller, &source, &task).await.unwrap();
    assert_eq!(branch.evidence[0].source.for_people(), "other note.md:1");
    let tasks = caller.tasks();
    assert!(
        tasks[2].contains("`continue` with p2 reads on)\n\nLinks of this page: `other note.md` (Other)"),
        "{}",
        tasks[2]
    );
    assert!(tasks[3].contains("refused: `secret.md` was not shown as a link"), "{}", tasks[3]);
    assert!(tasks[3].contains("these words do not stand in p2"), "links are no words of the note: {}", tasks[3]);
}

#[tokio::test]
async fn job_that_was_cut_short_leaves_its_question_open_however_sure_the_model_is() {
    let (node, aspects) = (node(), [Aspect { id: AspectId::numbered(1), text: "lock".into() }]);
    let said = || Scripted::by_key(usual("\"It is held while writing.\""));
    let mut job = worked(&said(), &task(&node, &aspects)).await.unwrap();
    assert!(job.report.confidence > 0.8 && job.report.open_questions.is_empty(), "{:?}", job.report);
    job.report.stop_reason = BranchStop::BudgetExceeded;
    job.report.open_questions = vec!["What else locks?".into()];
    let both = Gathered::nothing().then(Gathered::from_branch(job));
    let branch = compress(&said(), &task(&node, &aspects), both).await.unwrap();
    assert!(branch.report.confidence <= 0.4, "{}", branch.report.confidence);
    assert_eq!(branch.report.open_questions, ["What else locks?"]);
}
