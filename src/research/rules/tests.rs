use proptest::prelude::*;

use super::*;
use crate::research::node::{Node, NodeId};
use crate::research::plan::{Plan, TreeLimits};

fn brief(question: &str) -> Brief {
    brief_by_rules(&question.parse().unwrap(), Mode::Auto, &[])
}

fn shape(question: &str) -> Shape {
    Shape::of(question, &WordSplitter::default())
}

/// Returns the things a question compares and what for, or nothing.
fn compared(question: &str) -> Option<(Vec<String>, String)> {
    match shape(question) {
        Shape::Comparison(Comparison { entities, topic, .. }) => Some((entities, topic)),
        Shape::Plain | Shape::Parts(_) | Shape::Survey(_) => None,
    }
}

fn parts(question: &str) -> Vec<String> {
    match shape(question) {
        Shape::Parts(parts) => parts,
        Shape::Plain | Shape::Comparison(_) | Shape::Survey(_) => Vec::new(),
    }
}

fn questions(draft: &PlanDraft) -> Vec<&str> {
    draft.new_nodes.iter().map(|node| node.question.as_str()).collect()
}

fn check(draft: &PlanDraft, tree: &Tree, brief: &Brief) -> Plan {
    draft.check(tree, brief, TreeLimits::default(), 1).unwrap()
}

#[test]
fn comparisons_are_told_by_their_wording() {
    let table: &[(&str, &[&str], &str)] = &[
        ("Compare PostgreSQL, MySQL and SQLite for small teams", &["PostgreSQL", "MySQL", "SQLite"], "for small teams"),
        ("Please compare A, B, and C in terms of cost.", &["A", "B", "C"], "in terms of cost"),
        ("compare the replication of PostgreSQL and MySQL", &["PostgreSQL", "MySQL"], "as to replication"),
        ("Compare PostgreSQL and MySQL replication", &["PostgreSQL", "MySQL"], "as to replication"),
        (
            "Compare PostgreSQL and MySQL replication for small teams",
            &["PostgreSQL", "MySQL"],
            "as to replication for small teams",
        ),
        ("Which of Vec and VecDeque is faster?", &["Vec", "VecDeque"], "as to what faster"),
        ("How is a mutex different from a semaphore?", &["mutex", "semaphore"], ""),
        ("Compare Box with Rc", &["Box", "Rc"], ""),
        ("Compare how Rust and Go handle errors", &["Rust", "Go"], "as to how they handle errors"),
        ("tokio vs async-std", &["tokio", "async-std"], ""),
        ("Rust vs. Go performance?", &["Rust", "Go"], "as to performance"),
        ("monolith versus modular monolith for us", &["monolith", "modular monolith"], "for us"),
        ("REST vs remote procedure calls", &["REST", "remote procedure calls"], ""),
        ("What is the difference between `Rc` and `Arc`?", &["`Rc`", "`Arc`"], ""),
        ("difference in memory use between A and B", &["A", "B"], "in memory use"),
        (
            "What are the differences between a mutex and a channel when sharing data?",
            &["mutex", "channel"],
            "when sharing data",
        ),
        (
            "What is the difference between `search and replace` and \"Rock and Roll\"?",
            &["`search and replace`", "\"Rock and Roll\""],
            "",
        ),
        ("Which is better, Vec or VecDeque?", &["Vec", "VecDeque"], ""),
        ("Which is better for queues, Vec or VecDeque?", &["Vec", "VecDeque"], "for queues"),
        ("Which is faster: HashMap or BTreeMap for small keys?", &["HashMap", "BTreeMap"], "for small keys"),
        ("Should we use Kafka or RabbitMQ for events?", &["Kafka", "RabbitMQ"], "for events"),
        ("What are the pros and cons of threads and async?", &["threads", "async"], ""),
        ("advantages and disadvantages of REST and gRPC for mobile", &["REST", "gRPC"], "for mobile"),
        ("How does Lance compare to Parquet for random access?", &["Lance", "Parquet"], "for random access"),
        ("How do String and &str differ?", &["String", "&str"], ""),
        ("Is BTreeMap faster than HashMap?", &["BTreeMap", "HashMap"], ""),
        ("What is the difference between A and B, and when should I use each?", &["A", "B"], ""),
        ("What is the difference between A and B, and when is each preferred?", &["A", "B"], ""),
        ("Compare A and B. Which one is cheaper?", &["A", "B"], ""),
    ];
    for (question, entities, topic) in table {
        let (found, for_what) = compared(question).unwrap_or_else(|| panic!("{question}: {:?}", shape(question)));
        assert_eq!(
            (found, for_what.as_str()),
            (entities.iter().map(ToString::to_string).collect(), *topic),
            "{question}"
        );
    }
}

#[test]
fn questions_of_several_parts_are_split_and_carry_their_subject_on() {
    let table: &[(&str, &[&str])] = &[
        ("How does Lance work, and what are its limits?", &["How does Lance work?", "What are Lance's limits?"]),
        (
            "What is the writer lock and how does it work?",
            &["What is the writer lock?", "How does the writer lock work?"],
        ),
        ("What is Raft? Who uses it?", &["What is Raft?", "Who uses Raft?"]),
        (
            "What does Tokio do? What does Rayon do with its threads?",
            &["What does Tokio do?", "What does Rayon do with its threads?"],
        ),
        ("How do we deploy; also how do we roll back?", &["How do we deploy?", "How do we roll back?"]),
        ("1. What is ownership? 2. What is borrowing?", &["What is ownership?", "What is borrowing?"]),
        ("(1) What is a trait (2) What is a generic", &["What is a trait?", "What is a generic?"]),
        (
            "What is an index, how is it built, and why is it fast?",
            &["What is an index?", "How is an index built?", "Why is an index fast?"],
        ),
        ("Explain how locks work and list common mistakes.", &["Explain how locks work", "List common mistakes"]),
        (
            "How are the quotas of tenants that grow quickly enforced, and what are their limits?",
            &[
                "How are the quotas of tenants that grow quickly enforced?",
                "What are their limits (as to: How are the quotas of tenants that grow quickly enforced)?",
            ],
        ),
    ];
    for (question, wanted) in table {
        assert_eq!(parts(question), *wanted, "{question}");
    }
}

#[test]
fn plain_questions_stay_whole() {
    let commas =
        format!("What do we know about {}?", (0..30).map(|n| format!("thing {n}")).collect::<Vec<_>>().join(", "));
    let long = format!("Why {}?", "is this so very long and winding ".repeat(100));
    let table = [
        "Who decides?",
        "Rock and roll history",
        "research and development budget",
        "What is the research and development budget?",
        "What does `a and b` mean?",
        "What is \"compare A and B\"?",
        "What are the rules for how and when we deploy?",
        "Who decides what and when?",
        "What are the pros and cons of async?",
        "Which services depend on Redis, and which of them?",
        "Should we use tabs?",
        "Do we use Kafka or RabbitMQ?",
        "Compare",
        "Compare it",
        "vs",
        "A vs",
        " vs b",
        "or",
        "Was ist der Unterschied zwischen A und B, und wann nimmt man es?",
        "Qu'est-ce que Lance ? Et comment ça marche ?",
        "¿Qué es Lance y cómo funciona?",
        "什么是所有权？借用又是什么？",
        "Compare, if you can find the time for it between all the other things that matter, the weather",
        &commas,
        &long,
    ];
    for question in table {
        assert_eq!(shape(question), Shape::Plain, "{question}");
    }
}

#[test]
fn many_things_are_put_together_and_none_is_lost() {
    let names: Vec<_> = (0..30).map(|number| format!("Thing{number}")).collect();
    let question = format!("Compare {} for speed", names.join(", "));
    let (entities, topic) = compared(&question).unwrap();
    assert_eq!((entities.len(), topic.as_str()), (8, "for speed"));
    assert!(names.iter().all(|name| entities.iter().any(|entity| entity.split(' ').any(|word| word == name))));
}

#[test]
fn a_comparison_is_one_node_a_thing_and_one_that_needs_them_all() {
    let brief = brief("Compare Vec, VecDeque and LinkedList for queues");
    assert_eq!(brief.mode, Mode::Deep);
    let aspects: Vec<_> = brief.aspects.iter().map(|aspect| format!("{}: {}", aspect.id, aspect.text)).collect();
    assert_eq!(aspects, ["a1: Vec for queues", "a2: VecDeque for queues", "a3: LinkedList for queues"]);
    let draft = plan_by_rules(&brief);
    assert_eq!(
        questions(&draft),
        [
            "What about Vec for queues?",
            "What about VecDeque for queues?",
            "What about LinkedList for queues?",
            "Compare Vec, VecDeque and LinkedList for queues",
        ]
    );
    let plan = check(&draft, &Tree::of(brief.question.clone()), &brief);
    let synthesis = plan.nodes.last().unwrap();
    assert_eq!(synthesis.depends_on, [2, 3, 4].map(NodeId::numbered));
    assert!(synthesis.optional_dependencies && synthesis.aspects.is_empty());
    assert_eq!(plan.nodes[1].aspects, [AspectId::numbered(2)]);
    let pros = plan_by_rules(&self::brief("What are the pros and cons of threads and async?"));
    assert_eq!(questions(&pros)[0], "What are the pros and cons of threads?");
}

#[test]
fn report_on_a_subject_is_asked_for_by_its_wording_and_looked_into_side_by_side() {
    for (question, subject) in [
        ("Write a comprehensive, well organised report about: 2022 Luzon earthquake", "2022 Luzon earthquake"),
        ("Give me an overview of our backup strategy.", "our backup strategy"),
        ("Tell me everything about ownership in Rust", "ownership in Rust"),
        ("Please write a report on `dr index`", "`dr index`"),
    ] {
        assert_eq!(shape(question), Shape::Survey(subject.into()), "{question}");
    }
    for question in [
        "What does the report on backups say?",
        "the summary of chapter 3",
        "How many reports about bugs are there?",
        "What is a page of memory?",
        "Write a report about",
    ] {
        assert_eq!(shape(question), Shape::Plain, "{question}");
    }
    let brief = brief("Write a report about tea");
    let plan = plan_by_rules(&brief);
    assert_eq!((brief.mode, brief.aspects.len(), plan.new_nodes.len()), (Mode::Deep, 6, 6));
    assert_eq!(questions(&plan)[0], "tea: background, origin and history");
}

#[test]
fn a_plain_question_is_the_root_alone() {
    let brief = brief("Who decides?");
    assert_eq!((brief.mode, brief.aspects[0].text.as_str()), (Mode::Quick, "Who decides"));
    assert!(check(&plan_by_rules(&brief), &Tree::of(brief.question.clone()), &brief).nodes.is_empty());
}

#[test]
fn a_mode_that_was_asked_for_is_kept() {
    let question: Question = "A vs B".parse().unwrap();
    for mode in [Mode::Quick, Mode::Iterative] {
        let brief = brief_by_rules(&question, mode, &[]);
        assert_eq!((brief.mode, brief.aspects.len()), (mode, 2));
        assert!(plan_by_rules(&brief).new_nodes.is_empty());
    }
    let deep = brief_by_rules(&"Who decides?".parse().unwrap(), Mode::Deep, &[]);
    assert_eq!((deep.mode, plan_by_rules(&deep).new_nodes.len()), (Mode::Deep, 0));
}

#[test]
fn what_the_caller_requires_is_an_aspect_and_a_node_of_its_own() {
    let required = ["what it costs".to_owned(), "who runs it".to_owned()];
    let brief = brief_by_rules(&"How do backups work?".parse().unwrap(), Mode::Auto, &required);
    let texts: Vec<_> = brief.aspects.iter().map(|aspect| aspect.text.as_str()).collect();
    assert_eq!((brief.mode, texts), (Mode::Deep, vec!["what it costs", "who runs it", "How do backups work"]));
    let plan = plan_by_rules(&brief);
    let served: Vec<_> = plan.new_nodes.iter().flat_map(|node| node.aspects.clone()).collect();
    assert_eq!(served, ["a1", "a2", "a3"]);
    assert!(questions(&plan)[0].contains("costs backups"), "{plan:?}");
}

#[test]
fn where_to_look_is_told_by_the_wording() {
    use SourceHint::{Internal, Mixed, Web};
    let table = [
        ("Who decides?", Internal),
        ("What did we decide about caching?", Internal),
        ("What is the latest version of Tokio?", Web),
        ("current state of vector databases", Web),
        ("How does our deployment compare with industry practice?", Mixed),
        ("What is `the latest` tag?", Internal),
        ("hours and flour", Internal),
        ("What does https://example.org/drip say of filters?", Mixed),
    ];
    for (question, hint) in table {
        assert_eq!(source_hint(question), hint, "{question}");
    }
    let root = plan_by_rules(&brief("What is the latest version of Tokio?"));
    assert_eq!((root.new_nodes.len(), root.updates[0].source_hint), (0, Some(Web)));
    let parts = plan_by_rules(&brief("What did we decide about caching? What are the latest caches?"));
    let hints: Vec<_> = parts.new_nodes.iter().map(|node| node.source_hint).collect();
    assert_eq!(hints, [Internal, Web]);
}

#[test]
fn aspects_that_rules_did_not_make_get_a_node_each() {
    let mut brief = brief("A vs B");
    brief.aspects.push(Aspect { id: AspectId::named("licence"), text: "the licence of it".into() });
    let draft = plan_by_rules(&brief);
    assert_eq!(questions(&draft), ["What is A?", "What is B?", "licence vs B", "A vs B"]);
    assert_eq!(draft.new_nodes[3].depends_on, ["thing1", "thing2", "thing3"]);
    check(&draft, &Tree::of(brief.question.clone()), &brief);
}

#[test]
fn a_missing_aspect_is_asked_in_other_words_and_only_once() {
    let brief = brief("How does the writer lock work? What happens at midnight?");
    let mut tree = Tree::of(brief.question.clone());
    tree.nodes.extend(check(&plan_by_rules(&brief), &tree, &brief).nodes);
    let missing = [AspectId::numbered(2), AspectId::named("ghost")];
    let draft = replan_by_rules(&brief, &tree, &missing);
    assert_eq!(questions(&draft), ["happens midnight writer lock work"]);
    assert_eq!(draft.new_nodes[0].aspects, ["a2"]);
    tree.nodes.extend(check(&draft, &tree, &brief).nodes);
    assert!(replan_by_rules(&brief, &tree, &missing).new_nodes.is_empty());
}

#[test]
fn a_root_that_was_asked_everything_at_once_is_asked_by_aspect() {
    let question: Question = "Compare Vec and LinkedList for queues".parse().unwrap();
    let brief = brief_by_rules(&question, Mode::Iterative, &[]);
    let mut tree = Tree::of(question);
    tree.nodes[0].status = crate::research::node::NodeStatus::Done;
    let draft = replan_by_rules(&brief, &tree, &[AspectId::numbered(2)]);
    assert_eq!(questions(&draft), ["LinkedList queues"]);
    tree.nodes.extend(check(&draft, &tree, &brief).nodes);
    assert!(replan_by_rules(&brief, &tree, &[AspectId::numbered(2)]).new_nodes.is_empty());
}

#[test]
fn a_plain_question_is_not_asked_again_in_the_same_words() {
    let brief = brief("How does the writer lock work?");
    let tree = Tree::of(brief.question.clone());
    assert!(replan_by_rules(&brief, &tree, &[AspectId::numbered(1)]).new_nodes.is_empty());
}

fn wordy() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        prop::sample::select(vec![
            "compare",
            "and",
            "or",
            "vs",
            "versus",
            "difference",
            "between",
            "which",
            "is",
            "better",
            ",",
            "?",
            ";",
            "how",
            "what",
            "its",
            "it",
            "they",
            "for",
            "in",
            "the",
            "pros and cons",
            "of",
            "1.",
            "2.",
            "`",
            "\"",
            "(",
            ")",
            "'",
            "also",
            "than",
            "faster",
            "to",
            "with",
            ":",
            "—",
            "our",
            "latest",
            "differ",
            "how do",
            "“",
            "”",
        ])
        .prop_map(ToString::to_string),
        "[A-Za-z]{1,8}",
        "\\PC{1,4}",
    ];
    prop::collection::vec((word, "[ ]{0,1}"), 1..40)
        .prop_map(|words| words.into_iter().map(|(word, gap)| word + &gap).collect::<String>())
}

proptest! {
    #[test]
    fn every_question_gets_a_brief_and_a_plan_that_checks(text in wordy(), deep in any::<bool>()) {
        let Ok(question) = text.parse::<Question>() else { return Ok(()) };
        let brief = brief_by_rules(&question, if deep { Mode::Deep } else { Mode::Auto }, &[]);
        prop_assert!((1..=8).contains(&brief.aspects.len()));
        prop_assert!(brief.mode != Mode::Auto);
        let mut tree = Tree::of(question);
        let plan = check(&plan_by_rules(&brief), &tree, &brief);
        prop_assert!(plan.nodes.len() <= 9);
        tree.nodes.extend(plan.nodes);
        let missing: Vec<_> = brief.aspects.iter().map(|aspect| aspect.id.clone()).collect();
        for _ in 0..3 {
            let more = check(&replan_by_rules(&brief, &tree, &missing), &tree, &brief).nodes;
            tree.nodes.extend::<Vec<Node>>(more);
        }
        prop_assert!(replan_by_rules(&brief, &tree, &missing).new_nodes.is_empty());
    }
}
