use serde_json::{Value, json};

use super::{ONE_ROUND, QUESTION, endpoint, topics_at};
use crate::common::World;
use crate::model_server::ModelServer;
use crate::researcher::Researcher;

const TWO_NODES: Researcher = Researcher { nodes: 2, more_nodes: 0 };

/// Returns the number of requests for a schema.
fn asked(server: &ModelServer, form: &str) -> usize {
    server.requests().iter().filter(|request| request.form() == Some(form)).count()
}

fn saved(world: &World) -> Value {
    world.dr(["plan", "--save", "plan.json", QUESTION]).succeeded();
    serde_json::from_str(&world.read("plan.json")).unwrap()
}

#[test]
fn file_that_cannot_be_written_is_known_before_the_plan_is_paid_for() {
    let (server, world) = topics_at(endpoint(TWO_NODES));
    let run = world.dr(["plan", "--save", "nowhere/plan.json", QUESTION]);
    assert!(run.exit == Some(1) && run.stderr.contains("failed to write `nowhere/plan.json`"), "{run}");
    assert_eq!((server.count(), server.probes(), world.run_ids().len()), (0, 0, 0));
}

#[test]
fn saved_and_edited_plan_is_executed() {
    let (server, world) = topics_at(endpoint(TWO_NODES));
    let mut plan = saved(&world);
    plan["new_nodes"][0]["question"] = json!("What is said of topic 5?");
    world.write("plan.json", &plan.to_string());
    let report = world.dr(["ask", "--json", "--plan", "plan.json", QUESTION]).succeeded().json();
    assert_eq!(report["tree"]["nodes"][1]["question"], "What is said of topic 5?");
    assert_eq!(asked(&server, "plan"), 1, "the plan that is given is not made again");
    let evidence = report["evidence"].as_array().unwrap();
    assert!(evidence.iter().any(|quote| quote["source"]["path"] == "topic-5.md"), "{evidence:#?}");
}

#[test]
fn cyclic_plan_is_refused_with_the_complaint() {
    let (server, world) = topics_at(endpoint(TWO_NODES));
    let mut plan = saved(&world);
    let ids = [0, 1].map(|at| plan["new_nodes"][at]["id"].clone());
    for at in [0, 1] {
        plan["new_nodes"][at]["depends_on"] = json!([ids[1 - at]]);
    }
    world.write("plan.json", &plan.to_string());
    let before = (server.count(), world.run_ids().len());
    let run = world.dr(["ask", "--plan", "plan.json", QUESTION]);
    assert_eq!((run.exit, run.stdout.as_str()), (Some(2), ""), "{run}");
    assert_eq!((server.count(), world.run_ids().len()), before, "nothing is asked or begun");
    let error = run.stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
    assert!(
        error.contains("plan cannot be used") && ids.iter().all(|id| error.contains(id.as_str().unwrap())),
        "{run}"
    );
    assert!(run.stderr.contains("hint: `dr plan --save FILE`"), "{run}");
}

#[test]
fn invalid_plan_file_is_refused_before_the_first_request() {
    let (server, world) = topics_at(endpoint(TWO_NODES));
    world.write("plan.json", r#"{"new_nodes": "all"}"#);
    let run = world.dr(["ask", "--plan", "plan.json", QUESTION]);
    assert_eq!((run.exit, server.count()), (Some(2), 0), "{run}");
    assert!(run.stderr.starts_with("error: `plan.json` is not a plan: "), "{run}");
}

#[test]
fn dry_run_requests_only_brief_and_plan_and_estimates_the_rest() {
    let (server, world) = topics_at(endpoint(ONE_ROUND));
    let run = world.dr(["ask", "--dry-run", QUESTION]).succeeded();
    let forms: Vec<_> = server.requests().iter().map(|request| request.form().unwrap().to_owned()).collect();
    assert_eq!(forms, ["brief", "plan"]);
    for line in ["  calls   ", "  tokens  ", "  cost    $0", "  time    ", "  limits  240000 tokens, $10.0000, 60 min"]
    {
        assert!(run.stdout.lines().any(|shown| shown.starts_with(line)), "no `{line}` in {run}");
    }
    assert!(run.stdout.contains("What is said of topic 4?"), "{run}");
}

#[test]
fn resume_without_a_name_continues_the_newest_run_that_has_not_ended_and_names_it() {
    let (_server, world) = topics_at(endpoint(ONE_ROUND));
    let planned = world.dr(["plan", "--json", QUESTION]).succeeded().json()["run_id"].as_str().unwrap().to_owned();
    world.dr(["ask", "--offline", "What is said of topic 1?"]).succeeded();
    let newest = world.run_ids()[0].clone();
    assert_ne!(newest, planned);
    let resumed = world.dr(["resume", "--json"]).succeeded();
    assert_eq!(resumed.json()["run_id"], json!(planned));
    assert!(resumed.stderr.starts_with(&format!("note: resuming run {planned}: {QUESTION}\n")), "{resumed}");
    let refused = world.dr(["resume"]);
    assert_eq!((refused.exit, refused.stdout.as_str()), (Some(1), ""), "{refused}");
    let said = format!(
        "error: no run can be resumed: all have ended\n\nhint: `dr replay` prints the newest report again; `dr resume \
         {newest} --add-rounds 1` continues that run\n"
    );
    assert_eq!(refused.stderr, said);
    // With a raised limit, the newest run can continue.
    let raised = world.dr(["resume", "--json", "--add-rounds", "1"]).succeeded();
    assert_eq!(raised.json()["run_id"], json!(newest));
}

#[test]
fn dry_run_is_executed_by_resume() {
    let (server, world) = topics_at(endpoint(ONE_ROUND));
    let planned = world.dr(["plan", "--json", QUESTION]).succeeded().json();
    assert_eq!(planned["plan"]["new_nodes"].as_array().unwrap().len(), 4);
    assert!(planned["estimate"]["calls"]["low"].as_u64() <= planned["estimate"]["calls"]["high"].as_u64());
    assert_eq!(server.count(), 2);
    let run = planned["run_id"].as_str().unwrap();
    let report = world.dr(["resume", run, "--json"]).succeeded().json();
    assert_eq!((&report["stop_reason"], &report["run_id"]), (&json!("complete"), &planned["run_id"]));
    assert_eq!((asked(&server, "brief"), asked(&server, "plan")), (1, 1));
    assert_eq!(world.run_ids(), [run]);
}

#[test]
fn plan_without_a_model_costs_nothing() {
    let world = World::indexed_text();
    let planned = world.dr(["plan", "--offline", "--json", "Compare basil and mint"]).succeeded().json();
    assert_eq!(planned["estimate"]["calls"], json!({ "low": 0, "high": 0 }));
    assert_eq!(planned["estimate"]["cost_nanos"], json!({ "low": 0, "high": 0 }));
}

#[test]
fn plan_made_with_an_earlier_answer_in_view_is_refused_without_that_run() {
    let (_server, world) = topics_at(endpoint(TWO_NODES));
    let first = world.dr(["ask", "--json", QUESTION]).succeeded().json();
    let run = first["run_id"].as_str().unwrap();
    let planned = world.dr(["ask", "--dry-run", "--json", "--follow", run, QUESTION]).succeeded().json();
    world.write("plan.json", &planned["plan"].to_string());
    let refused = world.dr(["ask", "--plan", "plan.json", QUESTION]);
    assert_eq!(refused.exit, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains(&format!("add `--follow {run}`")), "{}", refused.stderr);
    world.dr(["ask", "--plan", "plan.json", "--follow", run, QUESTION]).succeeded();
}
