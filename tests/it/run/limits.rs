use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    ONE_ROUND, QUESTION, SMALL, TWO_ROUNDS, assert_nothing_stored_was_sent_again, at, calls, count, endpoint, outcome,
    stored, topics, topics_at, undisturbed,
};

/// Returns whether a model wrote the report of every node that is done. One that the limit refused is assembled by rules
/// and stays so, and the run would not end like an undisturbed one.
fn is_cut_between_nodes(report: &Value) -> bool {
    let mut nodes = report["tree"]["nodes"].as_array().unwrap().iter().skip(1);
    nodes.all(|node| node["status"] != "done" || node["confidence"] == 0.75)
}

/// Asks under the first of these limits that ends the run as wanted, raises the limit and resumes.
fn ends_and_goes_on(
    flag: &str,
    limits: &[&str],
    is_wanted: impl Fn(&Value) -> bool,
    stop_reason: &str,
    raised: [&str; 2],
) -> (Value, Value) {
    let asked = |limit: &&str| {
        let (server, world) = topics_at(endpoint(TWO_ROUNDS));
        world.set(SMALL);
        let asked = world.dr(["ask", "--json", flag, limit, QUESTION]);
        // Under a limit that pays for the report and not for its verdict, it ends `complete` and exits with 4 as well.
        let is_ended = asked.exit == Some(4) && asked.json()["stop_reason"] == stop_reason;
        (is_ended && is_wanted(&asked.json())).then_some((server, world, asked))
    };
    let (server, world, asked) = limits.iter().find_map(asked).expect("one of the limits ends the run");
    let partial = asked.json();
    assert!(!partial["evidence"].as_array().unwrap().is_empty(), "what was found is in the report");
    let run = world.run_ids()[0].clone();
    let hint = format!("note: `dr resume {run} {} ", raised[0]);
    assert!(asked.stderr.contains(&hint) && asked.stderr.contains("` continues this run"), "{asked}");
    let shown = world.dr(["replay"]);
    assert_eq!(shown.exit, Some(4));

    let (before, kept) = (server.count(), stored(&calls(&world)));
    assert_eq!(kept, (1..=before).collect::<BTreeSet<_>>(), "every request was answered");
    let resumed = world.dr(["resume", &run, "--json", raised[0], raised[1]]).succeeded().json();
    assert_nothing_stored_was_sent_again(&server, &kept, before);
    assert_eq!(count(&calls(&world), "replied"), server.count(), "every request is in the journal once");
    (partial, resumed)
}

#[test]
fn token_limit_ends_a_run_that_resumes_under_a_higher_one() {
    let (partial, resumed) = ends_and_goes_on(
        "--max-tokens",
        &["14500", "14000", "13500", "13000", "12500", "12000", "11500", "11000", "10500", "10000"],
        is_cut_between_nodes,
        "tokens_exceeded",
        ["--add-tokens", "1000000"],
    );
    let total = &partial["usage"]["total"];
    assert!(total["input_tokens"].as_u64().unwrap() + total["output_tokens"].as_u64().unwrap() <= 14_500);
    assert_eq!(resumed["stop_reason"], "complete");
    assert_eq!(resumed["tree"]["nodes"], undisturbed(TWO_ROUNDS, SMALL).0["tree"]["nodes"]);
}

#[test]
fn cost_limit_ends_a_run_that_resumes_under_a_higher_one() {
    let (partial, resumed) = ends_and_goes_on(
        "--max-cost",
        &["0.016", "0.015", "0.014", "0.013", "0.012", "0.011", "0.010"],
        |_| true,
        "budget_exceeded",
        ["--add-budget", "5"],
    );
    let cost = partial["usage"]["total"]["cost_usd"].as_f64().unwrap();
    assert!(0.0 < cost && cost <= 0.016, "{cost}");
    assert_eq!(resumed["stop_reason"], "complete");
    assert!(resumed["usage"]["total"]["cost_usd"].as_f64().unwrap() > cost);
}

#[test]
fn round_limit_ends_a_run_that_resumes_under_a_higher_one() {
    let (partial, resumed) =
        ends_and_goes_on("--max-rounds", &["1"], |_| true, "iterations_exceeded", ["--add-rounds", "1"]);
    assert_eq!(partial["tree"]["nodes"].as_array().unwrap().len(), 5);
    assert_eq!(outcome(resumed), undisturbed(TWO_ROUNDS, SMALL).0);
}

#[test]
fn report_names_the_limit_that_ended_the_run() {
    let (_server, world) = topics_at(endpoint(TWO_ROUNDS));
    world.set(SMALL);
    dr_snapshot!(world.dr(["ask", "--quiet", "--max-rounds", "1", QUESTION]));
}

#[test]
fn unpriced_model_is_refused_under_a_cost_limit_before_the_first_request() {
    let server = endpoint(ONE_ROUND);
    // This machine, under an address that is not recognised as loopback.
    let world = at(topics(), &server.url().replace("127.0.0.1", "0.0.0.0"));
    let run = world.dr(["ask", QUESTION]);
    assert_eq!((run.exit, server.count()), (Some(1), 0), "{run}");
    assert!(run.stderr.starts_with("error: price of `scripted` (planner) is not known"), "{run}");
    assert!(run.stderr.contains("hint: set `[prices.\"scripted\"]`") && run.stderr.contains("--max-cost inf"), "{run}");
    assert!(world.run_ids().is_empty());

    let report = world.dr(["ask", "--json", "--max-cost", "inf", QUESTION]).succeeded().json();
    assert_eq!(report["usage"]["total"]["cost_usd"], Value::Null, "an unknown cost is not zero");
}

#[test]
fn plan_without_a_cost_limit_resumes_without_one() {
    let server = endpoint(ONE_ROUND);
    let world = at(topics(), &server.url().replace("127.0.0.1", "0.0.0.0"));
    world.dr(["plan", "--max-cost", "inf", QUESTION]).succeeded();
    world.dr(["resume"]).succeeded();
}
