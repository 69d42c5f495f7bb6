use crate::common::World;

/// The first question's one file comes first; the second's two files, of grade 2 and 1, come second and first; the
/// third is not found; the fourth has no relevant file and does not count.
fn world() -> World {
    let world = World::indexed_text();
    let queries = [
        r#"{"id": "q1", "text": "mildew"}"#,
        r#"{"id": "q2", "text": "foo_bar readings siren_minutes", "note": "other fields do not matter"}"#,
        r#"{"id": "q3", "text": "quokka"}"#,
        r#"{"id": "q4", "text": "siren"}"#,
        r#"{"id": "q5", "text": "not judged"}"#,
    ];
    world.write("queries.jsonl", &queries.join("\n"));
    world
}

const JUDGED: [&str; 5] = [
    "q1\tguide/watering.md\t1",
    "q2\treference/settings.md\t1",
    "q2\tbom.md\t2",
    "q3\tREADME.md\t1",
    "q4\tREADME.md\t0",
];

#[test]
fn metrics_match_their_definitions() {
    let world = world();
    world.write("qrels.tsv", &JUDGED.join("\n"));
    let args = ["eval", "--queries", "queries.jsonl", "--qrels", "qrels.tsv", "--mode", "lexical"];
    let json = world.dr([&args[..], &["--json"]].concat()).succeeded().json();
    let figure = |name: &str| json[name].as_f64().unwrap();
    // q1: 1. q2: grade 1 first, grade 2 not found; the best order would have been 2, 1. q3: 0.
    let second = 1.0 / (2.0 + 1.0 / 3f64.log2());
    let expected = [
        ("ndcg_at_10", (1.0 + second) / 3.0),
        ("recall_at_10", (1.0 + 0.5) / 3.0),
        ("recall_at_100", (1.0 + 0.5) / 3.0),
        ("mrr", 2.0 / 3.0),
        ("hit_at_1", 2.0 / 3.0),
        ("hit_at_3", 2.0 / 3.0),
        ("hit_at_10", 2.0 / 3.0),
    ];
    assert_eq!(json["queries"], 3);
    for (name, value) in expected {
        assert!((figure(name) - value).abs() < 1e-12, "{name}: {} instead of {value}", figure(name));
    }
    dr_snapshot!(world.dr(args));
    dr_snapshot!(world.dr([&args[..], &["--json"]].concat()));
}

#[test]
fn judged_file_missing_from_the_index_is_an_error() {
    let world = world();
    world.write("qrels.tsv", "q1\tguide/watering.md\t1\nq1\tguide/nowhere.md\t1\n");
    dr_snapshot!(world.dr(["eval", "--queries", "queries.jsonl", "--qrels", "qrels.tsv", "--mode", "lexical"]));
}

#[test]
fn malformed_files_are_reported() {
    let world = world();
    world.write("qrels.tsv", "q1 guide/watering.md 1\n");
    dr_snapshot!(world.dr(["eval", "--queries", "queries.jsonl", "--qrels", "qrels.tsv"]));
    dr_snapshot!(world.dr(["eval", "--queries", "nowhere.jsonl", "--qrels", "qrels.tsv"]));
    dr_snapshot!(world.dr(["eval", "--queries", "qrels.tsv", "--qrels", "qrels.tsv"]));
    world.write("qrels.tsv", "q1\tguide/watering.md\t0\n");
    dr_snapshot!(world.dr(["eval", "--queries", "queries.jsonl", "--qrels", "qrels.tsv"]));
}
