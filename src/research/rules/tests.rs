use proptest::prelude::*;

use super::*;
use crate::research::node::NodeId;
use crate::research::plan::{Plan, TreeLimits};

fn brief(question: &str) -> Brief {
    brief_by_rules(&question.parse().unwrap(), Mode::Auto, &[])
}

/// Returns the entities of a comparison, or the parts of a question as they are searched, without the final mark.
/// Empty for a plain question.
fn parts(question: &str, is_comparison: bool) -> Vec<String> {
    let shape = Shape::of(question, &WordSplitter::default());
    assert!(shape.parts.is_empty() || shape.is_comparison == is_comparison, "{question}: {shape:?}");
    let searched = |part: QuestionPart| part.question.trim_end_matches('?').to_owned();
    shape.parts.into_iter().map(|part| if is_comparison { part.aspect } else { searched(part) }).collect()
}

fn questions(draft: &PlanDraft) -> Vec<&str> {
    draft.new_nodes.iter().map(|node| node.question.as_str()).collect()
}

fn check(draft: &PlanDraft, tree: &Tree, brief: &Brief) -> Plan {
    draft.check(tree, brief, TreeLimits::default(), 1, &|_| None).unwrap()
}

#[test]
fn comparison_has_an_aspect_for_each_entity_and_topic() {
    for (question, aspects) in [
        ("Please compare A, B, and C in terms of cost.", "A in terms of cost|B in terms of cost|C in terms of cost"),
        ("compare the replication of PostgreSQL and MySQL", "PostgreSQL: replication|MySQL: replication"),
        ("Rust vs. Go performance for games?", "Rust performance for games|Go performance for games"),
        ("monolith versus modular monolith", "monolith|modular monolith"),
        ("What is the difference between `search and replace` and \"Rock\"?", "`search and replace`|\"Rock\""),
        ("Which is better for queues, Vec or VecDeque?", "Vec for queues|VecDeque for queues"),
        ("compare Leeds and York as to offices", "Leeds: offices|York: offices"),
        ("Compare lithium cells and alkaline cells", "lithium cells|alkaline cells"),
        ("Should we use Kafka or RabbitMQ?", "Kafka|RabbitMQ"),
        ("What are the pros and cons of threads and async?", "threads: pros and cons|async: pros and cons"),
        ("How does Lance compare to Parquet for random access?", "Lance for random access|Parquet for random access"),
        ("How do String and &str differ?", "String|&str"),
        ("what's the difference between stop and wait and stop and drop", "stop and wait|stop and drop"),
        ("How is a mutex different from a semaphore?", "mutex|semaphore"),
        ("PutAll vs PutEach, what's the difference?", "PutAll|PutEach"),
        ("What is the difference between A and B, and when should I use each?", "A|B"),
        ("Compare A and B. Which one is cheaper?", "A|B"),
        ("What is the difference between a shared and an exclusive lock?", "shared lock|exclusive lock"),
        ("What is the difference between a critical and a major fault?", "critical fault|major fault"),
        ("What is the difference between a string and a byte array?", "string|byte array"),
        ("What is the difference between primary and secondary SSIDs?", "primary SSIDs|secondary SSIDs"),
        ("How do active and archived findings differ?", "active findings|archived findings"),
        ("What is the difference between docker and virtual machines?", "docker|virtual machines"),
        ("Event history vs a trail: what's the difference?", "Event history|trail"),
        ("round vs trunc: how do they differ?", "round|trunc"),
        (
            "Reserved vs provisioned rooms in Leeds - what's the difference?",
            "Reserved rooms in Leeds|provisioned rooms in Leeds",
        ),
        ("Compare A and B; which of them is cheaper?", "A|B"),
        ("V60 or AeroPress: what is different?", "V60|AeroPress"),
        ("¿Qué diferencia hay entre el gres y la porcelana?", "gres|porcelana"),
        ("Was ist der Unterschied zwischen Urlaub und Sonderurlaub?", "Urlaub|Sonderurlaub"),
        ("Quelle est la différence entre le grès et la porcelaine ?", "grès|porcelaine"),
    ] {
        assert_eq!(parts(question, true).join("|"), aspects, "{question}");
    }
}

#[test]
fn part_that_refers_to_an_earlier_one_keeps_its_topic() {
    for (question, aspects) in [
        ("How does Lance work, and what are its limits?", "How does Lance work|What are its limits (Lance)"),
        ("How do backups work? What are the costs?", "How do backups work|What are the costs (backups)"),
        ("What is Raft? Who uses it? What is Paxos?", "What is Raft|Who uses it (Raft)|What is Paxos"),
        (
            "What does Tokio do? What does Rayon do with its threads?",
            "What does Tokio do|What does Rayon do with its threads",
        ),
        ("1. What is ownership? 2. What is borrowing?", "What is ownership|What is borrowing"),
        ("How do we deploy; also how do we roll back?", "How do we deploy|How do we roll back"),
        (
            "How many weeks of parental leave are there, and when do I tell my manager?",
            "How many weeks of parental leave are there|When do I tell my manager (weeks parental leave)",
        ),
        (
            "How much does the pass cost, and by when must the receipts be handed in?",
            "How much does the pass cost|By when must the receipts be handed in",
        ),
        (
            "What is the limit of a message, and what happens to messages that are larger?",
            "What is the limit of a message|What happens to messages that are larger (limit message)",
        ),
        (
            "How many days are letters kept in York, and how many when they come from Leeds?",
            "How many days are letters kept in York|How many when they come from Leeds (days letters kept York)",
        ),
        (
            "How big can a header be, and how do I raise that limit?",
            "How big can a header be|How do I raise that limit (big header)",
        ),
        (
            "On which days is the bell rung, and where do I find out what was decided?",
            "On which days is the bell rung|Where do I find out what was decided (days bell rung)",
        ),
        (
            "When to oil the pump, and how do I clean its valves?",
            "When to oil the pump|How do I clean its valves (oil pump)",
        ),
        ("Which office is open and on what day?", "Which office is open|On what day (office open)"),
        (
            "Which letters may a key have, and how long can a key be?",
            "Which letters may a key have|How long can a key be (letters key)",
        ),
        ("Which lamps are sold, and what does each one do?", "Which lamps are sold"),
        ("Which lamps are sold, and which one is red?", "Which lamps are sold|Which one is red (lamps sold)"),
        (
            "Which lamps are sold in York, and which other colours can I pick?",
            "Which lamps are sold in York|Which other colours can I pick (lamps sold York)",
        ),
        (
            "Why do we refuse to guess, and how do others handle missing evidence?",
            "Why do we refuse to guess|How do others handle missing evidence",
        ),
        ("Explain how locks work and list common mistakes.", "Explain how locks work|List common mistakes"),
        (
            "How long does the firing take and where do the pots go?",
            "How long does the firing take|Where do the pots go (long firing take)",
        ),
        (
            "How many parts is a text cut into, and is the rest lost?",
            "How many parts is a text cut into|Is the rest lost (parts text cut)",
        ),
        ("How many letters may a sack hold, what does the guild suggest?", ""),
        ("Which lamps are sold in York, and which one do you recommend?", ""),
    ] {
        assert_eq!(parts(question, false).join("|"), aspects, "{question}");
    }
}

#[test]
fn topic_of_a_part_is_what_the_first_one_asks() {
    for (question, second) in [
        (
            "What compatible ID does an I2C HID device need, and how should its interrupt GPIO be configured?",
            "How should its interrupt GPIO be configured (compatible ID I2C HID device need)",
        ),
        ("What colour is the lamp, and what are its limits?", "What are its limits (colour lamp)"),
        ("Which formats can Lance read, and what are the costs?", "What are the costs (formats Lance read)"),
        ("What colour does the lamp have, and where is it listed?", "Where is it listed (colour lamp)"),
        ("Which lamps are sold in York, and what are their limits?", "What are their limits (lamps sold York)"),
        ("Which lamp is the largest, and what is its price?", "What is its price (lamp largest)"),
    ] {
        assert_eq!(parts(question, false).last().map(String::as_str), Some(second), "{question}");
    }
}

#[test]
fn question_is_split_after_a_contraction_and_before_a_question_for_yes_or_no() {
    for (question, aspects) in [
        (
            "What's the budget for my desk setup, and what approval do I need?",
            "What's the budget for my desk setup|What approval do I need",
        ),
        ("Who's the smith, and when's the fair in York?", "Who's the smith|When's the fair in York"),
        ("What is a badge, and do I need a permit?", "What is a badge|Do I need a permit (badge)"),
        (
            "How much does the pass cost and is it sold in York?",
            "How much does the pass cost|Is it sold in York (pass cost)",
        ),
        (
            "What is a lamp, and can the lid be closed, and how is it cleaned?",
            "What is a lamp|Can the lid be closed|How is it cleaned (lamp)",
        ),
        ("Does a lamp need oil, and if so, how do I fill it?", "Does a lamp need oil|How do I fill it (lamp need oil)"),
        ("How do I check whether a lamp is lit and is it red?", ""),
        ("Check whether the mill is open and is it free?", ""),
        ("What has a lid and is the largest of them?", ""),
    ] {
        assert_eq!(parts(question, false).join("|"), aspects, "{question}");
    }
}

#[test]
fn part_is_shown_in_the_words_of_the_user() {
    let shape = Shape::of("How does Lance work, and what are its limits?", &WordSplitter::default());
    assert_eq!(
        (&*shape.parts[1].aspect, &*shape.parts[1].question),
        ("What are its limits", "What are its limits (Lance)?")
    );
}

#[test]
fn entity_without_a_criterion_is_searched_by_what_it_is() {
    let searched = |question| {
        let shape = Shape::of(question, &WordSplitter::default());
        shape.parts.into_iter().map(|part| part.question).collect::<Vec<_>>()
    };
    assert_eq!(
        searched("What is the difference between mutexes and locks in Rust?"),
        ["What are mutexes in Rust?", "What are locks in Rust?"]
    );
    assert_eq!(searched("Compare A and B for queues"), ["A for queues", "B for queues"]);
}

#[test]
fn variant_of_the_other_entity_is_searched_with_its_name_and_neither_by_what_it_is() {
    let parts = |question: &str| Shape::of(question, &WordSplitter::default()).parts;
    let of_variant = parts("What is the difference between IOCTL_EVAL and the EX version?");
    let searched: Vec<_> = of_variant.iter().map(|part| part.question.as_str()).collect();
    assert_eq!(searched, ["IOCTL_EVAL", "EX version (IOCTL_EVAL)"]);
    assert_eq!(of_variant[1].aspect, "EX version", "in the words of the user");
    let plans = parts("What is the difference between the free plan and the paid one?");
    assert_eq!(plans[1].question, "paid one (free plan)");
    for shared in ["Kobo and Kindle version", "the Kobo and the Kindle version"] {
        let searched = parts(&format!("What is the difference between {shared}?"));
        assert_eq!(searched[0].question, "What is Kobo version?", "{shared}");
    }
    for own in ["user mode and the kernel mode", "phase one and phase two"] {
        let searched = parts(&format!("What is the difference between {own}?"));
        assert!(searched[0].question.starts_with("What is "), "{searched:?}");
    }
}

#[test]
fn plain_question_stays_whole() {
    let many: Vec<_> = (0..30).map(|number| format!("thing {number}")).collect();
    for question in [
        "Who decides what and when?",
        "When should I pick threads and when async?",
        "When a guard rings the bell, how soon must the gate be closed?",
        "What is the research and development budget?",
        "What does `a and b` mean?",
        "What are the pros and cons of async?",
        "Which services depend on Redis, and which of them?",
        "We have tenants that grow; how are quotas enforced?",
        "Do we use Kafka or RabbitMQ?",
        "Compare it",
        "How does the history of the module differ from the one built into the shell?",
        " vs b",
        "Was ist der Unterschied zwischen A und B, und wann nimmt man es?",
        "Qu'est-ce que Lance ? Et comment ça marche ?",
        &format!("Compare {}", many.join(", ")),
    ] {
        assert_eq!(parts(question, false), Vec::<String>::new(), "{question}");
    }
    let brief = brief("Who decides?");
    assert_eq!((brief.mode, brief.aspects[0].text.as_str()), (Mode::Quick, "Who decides"));
    assert!(check(&plan_by_rules(&brief), &Tree::of(brief.question.clone()), &brief).nodes.is_empty());
}

#[test]
fn comparison_is_a_node_for_each_entity_and_one_that_depends_on_them_all() {
    let mut brief = brief("Compare Vec and VecDeque for queues");
    brief.aspects.push(Aspect { id: AspectId::named("licence"), text: "the licence of it".into() });
    let draft = plan_by_rules(&brief);
    let asked = ["Vec for queues", "VecDeque for queues", "licence Compare Vec VecDeque queues"];
    assert_eq!(questions(&draft), [asked[0], asked[1], asked[2], "Compare Vec and VecDeque for queues"]);
    let plan = check(&draft, &Tree::of(brief.question.clone()), &brief);
    let synthesis = plan.nodes.last().unwrap();
    assert_eq!(synthesis.depends_on, [2, 3, 4].map(NodeId::numbered));
    assert!(synthesis.optional_dependencies && synthesis.aspects.is_empty());
    assert_eq!(plan.nodes[1].aspects, [AspectId::numbered(2)]);
}

#[test]
fn requested_mode_is_kept() {
    let question: Question = "A vs B".parse().unwrap();
    for mode in [Mode::Quick, Mode::Iterative] {
        let brief = brief_by_rules(&question, mode, &[]);
        assert_eq!((brief.mode, brief.aspects.len()), (mode, 2));
        assert!(plan_by_rules(&brief).new_nodes.is_empty());
    }
}

#[test]
fn requirement_of_the_caller_is_an_aspect_and_a_node_of_its_own() {
    let required = ["what it costs".to_owned(), "who runs it".to_owned()];
    let brief = brief_by_rules(&"How do backups work?".parse().unwrap(), Mode::Auto, &required);
    let plan = plan_by_rules(&brief);
    let served: Vec<_> = plan.new_nodes.iter().flat_map(|node| node.aspects.clone()).collect();
    assert_eq!((brief.mode, served), (Mode::Deep, ["a1", "a2", "a3"].map(str::to_owned).to_vec()));
    assert!(questions(&plan)[0].contains("costs backups"), "{plan:?}");
}

#[test]
fn wording_tells_where_to_look() {
    use SourceHint::{Internal, Mixed, Web};
    for (question, hint) in [
        ("Who decides?", None),
        ("What did we decide about caching?", Some(Internal)),
        ("What is the latest version of Tokio?", Some(Web)),
        ("How does our deployment compare with industry practice?", Some(Mixed)),
        ("What is `the latest` tag?", None),
        ("What does https://example.org/drip say of filters?", Some(Mixed)),
    ] {
        assert_eq!(own_hint(question), hint, "{question}");
    }
    let root = plan_by_rules(&brief("What is the latest version of Tokio?"));
    assert_eq!((root.new_nodes.len(), root.updates[0].source_hint), (0, Some(Web)));
    let parts = plan_by_rules(&brief("What did we decide about caching? What are the latest caches?"));
    assert_eq!(parts.new_nodes.iter().map(|node| node.source_hint).collect::<Vec<_>>(), [Internal, Web]);
}

#[test]
fn missing_aspect_is_asked_in_other_words_and_only_once() {
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

fn wordy() -> impl Strategy<Value = String> {
    let common = "compare and or vs difference between which is better , ? ; how what its they for the pros cons of 1. ` \
        \" ( ) also to with : — our latest differ “ ”";
    let word = prop_oneof![
        prop::sample::select(common.split(' ').collect::<Vec<_>>()).prop_map(ToString::to_string),
        "[A-Za-z]{1,8}",
        "\\PC{1,4}",
    ];
    prop::collection::vec((word, "[ ]{0,1}"), 1..40)
        .prop_map(|words| words.into_iter().map(|(word, gap)| word + &gap).collect::<String>())
}

proptest! {
    #[test]
    fn every_question_gets_a_brief_and_a_plan_that_passes_the_check(text in wordy(), deep in any::<bool>()) {
        let Ok(question) = text.parse::<Question>() else { return Ok(()) };
        let brief = brief_by_rules(&question, if deep { Mode::Deep } else { Mode::Auto }, &[]);
        prop_assert!((1..=8).contains(&brief.aspects.len()) && brief.mode != Mode::Auto);
        let mut tree = Tree::of(question);
        let plan = check(&plan_by_rules(&brief), &tree, &brief);
        prop_assert!(plan.nodes.len() <= 9);
        tree.nodes.extend(plan.nodes);
        let missing: Vec<_> = brief.aspects.iter().map(|aspect| aspect.id.clone()).collect();
        for _ in 0..3 {
            let more = check(&replan_by_rules(&brief, &tree, &missing), &tree, &brief).nodes;
            tree.nodes.extend(more);
        }
        prop_assert!(replan_by_rules(&brief, &tree, &missing).new_nodes.is_empty());
    }
}
