use serde_json::json;

use super::*;
use crate::llm::call::Limit;
use crate::research::scripted::{Scripted, add_node, branch, brief, broken};
use crate::source::Label;

struct World {
    brief: Brief,
    tree: Tree,
    branches: BTreeMap<NodeId, Branch>,
    memory: Memory,
    /// Quotes that are similar to every text.
    similar: Vec<EvidenceId>,
}

impl Nearest for Vec<EvidenceId> {
    fn nearest<'a>(&'a self, _: &'a str, _: &'a [NodeId]) -> BoxFuture<'a, Vec<EvidenceId>> {
        Box::pin(std::future::ready(self.clone()))
    }
}

impl World {
    /// Returns a tree in which each node found `claims` claims about apples.
    fn of(nodes: u32, claims: u32) -> Self {
        let mut tree = Tree::of("What of apples?".parse().unwrap());
        let mut branches = BTreeMap::new();
        for node in 0..nodes {
            let id = add_node(&mut tree, &format!("What of apple {node}?"), &[]);
            let texts: Vec<_> = (0..claims).map(|claim| format!("Apple {node} weighs {claim} stones.")).collect();
            let texts: Vec<_> = texts.iter().map(String::as_str).collect();
            branches.insert(id.clone(), branch(&id, &texts, Label::Internal));
        }
        Self {
            brief: brief("What of apples?", &["weight"]),
            tree,
            branches,
            memory: Memory::default(),
            similar: Vec::new(),
        }
    }

    fn material(&self) -> WriterInput<'_> {
        WriterInput {
            brief: &self.brief,
            tree: &self.tree,
            branches: &self.branches,
            reasons: &[],
            memory: &self.memory,
            verdicts: &[],
            before: None,
            ledger: self.branches.values().flat_map(|branch| &branch.evidence).collect(),
            nearest: &self.similar,
            is_last: true,
            on_section: &|_, _| {},
        }
    }

    async fn draft(&self, caller: &Scripted) -> Result<Draft, CallError> {
        draft(caller, &CallKey::new("write"), &self.material()).await
    }
}

fn answer(text: &str, findings: &serde_json::Value) -> serde_json::Value {
    json!({"answer": text, "findings": findings, "confidence": 0.7})
}

fn was_assembled(draft: &Draft) -> bool {
    draft.limitations.iter().any(|limitation| limitation.contains("assembled without a model"))
}

#[tokio::test]
async fn unknown_and_unchecked_ids_are_removed_and_counted() {
    let mut world = World::of(1, 3);
    world.branches.values_mut().next().unwrap().evidence[2].checked = false;
    let findings = json!([
        {"text": "Apple 0 weighs 0 stones.", "evidence": ["[n2e1]", "n9e9"], "aspect": "a1"},
        {"text": "Apples can fly.", "evidence": ["n2e3"], "aspect": "a9"},
    ]);
    let text = "Apple 0 weighs 0 stones [n2e1, n9e9]. Apples weigh 2 stones [n2e3].";
    let draft = world.draft(&Scripted::replying(answer(text, &findings))).await.unwrap();
    assert_eq!(draft.answer, "Apple 0 weighs 0 stones [n2e1]. Apples weigh 2 stones [unsupported].");
    assert_eq!(draft.findings.len(), 1);
    assert_eq!(
        draft.limitations,
        [
            "unsupported and left out of the findings: Apples can fly.",
            "4 citations removed: no checked quote has that id"
        ]
    );
}

#[tokio::test]
async fn placeholder_is_refused_and_retried_before_rules_assemble_the_answer() {
    let world = World::of(1, 2);
    let texts = [
        "test",
        "Apple 0 weighs 0 stones.",
        "Apple 0 weighs 0 stones [n7e7].",
        "Lorem ipsum apple weighs 0 stones [n2e1].",
        "TODO: apple 0 weighs stones [n2e1].",
        "Elephants migrate across vast savannahs every year [n2e1].",
        "Apple 0 weighs 0 stones [n2e1], see https://example.org/made-up.",
    ];
    for text in texts {
        let caller = Scripted::replying(answer(text, &json!([])));
        let draft = world.draft(&caller).await.unwrap();
        assert_eq!(caller.keys(), ["write/answer", "write/answer/repair", "write/answer/small"], "{text}");
        assert!(was_assembled(&draft), "{text}");
        assert_eq!(draft.answer, "### a\n\nApple 0 weighs 0 stones. [n2e1]\n\nApple 0 weighs 1 stones. [n2e2]");
    }
}

#[tokio::test]
async fn spanish_word_is_no_placeholder() {
    let world = World::of(1, 2);
    let caller = Scripted::replying(answer("En todo caso, apple 0 weighs 0 stones [n2e1].", &json!([])));
    world.draft(&caller).await.unwrap();
    assert_eq!(caller.keys(), ["write/answer"]);
}

#[tokio::test]
async fn findings_survive_a_writer_that_fails() {
    let world = World::of(2, 2);
    let draft = world.draft(&Scripted::replying(json!({})).failing_at(1, broken("time-out"))).await.unwrap();
    assert!(was_assembled(&draft));
    assert_eq!(draft.findings.len(), 4);
    // A limit is passed on: the run may still spend the budget it reserved for writing.
    for error in [CallError::Cancelled, CallError::Limit(Limit::Tokens)] {
        let caller = Scripted::replying(json!({})).failing_at(1, error.clone());
        assert_eq!(world.draft(&caller).await, Err(error));
    }
}

#[tokio::test]
async fn no_model_is_called_without_evidence() {
    let world = World::of(2, 0);
    let caller = Scripted::replying(answer("Apples are known to be round and red.", &json!([])));
    let draft = world.draft(&caller).await.unwrap();
    assert!(caller.keys().is_empty() && draft.answer.is_empty() && draft.findings.is_empty());
}

#[tokio::test]
async fn long_answer_is_outlined_and_written_by_section() {
    let mut world = World::of(3, 10);
    let caller = Scripted::by_key(vec![
        (
            "write/outline",
            json!({"sections": [
                {"title": "First", "findings": numbers(1..=10, &[-1, 0, 77])}, {"title": "Nothing", "findings": []},
            ]}),
        ),
        ("write/section/1", json!({"text": "Apple 0 weighs 3 stones [n2e4]."})),
        ("write/section/2", json!({"text": "Apple 2 weighs 3 stones [n4e4, n9e9]."})),
        // Findings are not requested.
        ("write/answer", json!({"answer": "Apples weigh up to 9 stones [n2e10].", "confidence": 0.7})),
    ])
    .with_input_limit(2_000);
    world.memory.global.text = "Apples weigh stones. ".repeat(2_000);
    world.branches.values_mut().next().unwrap().report.open_questions = vec!["How heavy is a pear?".into()];
    let heard = std::sync::Mutex::new(Vec::new());
    let hear = |call: &CallKey, section: &Section| {
        heard.lock().unwrap().push((call.to_string(), format!("{}: {}", section.title, section.text)));
    };
    let material = WriterInput { on_section: &hear, ..world.material() };
    let draft = draft(&caller, &CallKey::new("write"), &material).await.unwrap();
    assert_eq!(caller.keys(), ["write/outline", "write/section/1", "write/section/2", "write/answer"]);
    let shown: Vec<_> = draft.sections.iter().map(|section| format!("{}: {}", section.title, section.text)).collect();
    assert_eq!(shown, ["First: Apple 0 weighs 3 stones [n2e4].", "Further findings: Apple 2 weighs 3 stones [n4e4]."]);
    let (calls, heard): (Vec<_>, Vec<_>) = heard.into_inner().unwrap().into_iter().unzip();
    assert_eq!(heard, shown, "sections are shown as the report prints them");
    assert_eq!(calls, ["write/section/1", "write/section/2"]);
    assert!(caller.sizes().iter().all(|size| *size <= 2_000), "{:?}", caller.sizes());
    assert_eq!(draft.limitations, ["1 citation removed: no checked quote has that id"]);
    let last = caller.prompts().pop().unwrap();
    assert!(!last.messages[0].text.contains("`findings`"), "{}", last.messages[0].text);
    assert!(last.schema.unwrap().schema["properties"].get("findings").is_none());
    let found: Vec<_> = draft.findings.iter().map(|finding| finding.evidence[0].to_string()).collect();
    assert_eq!(found, ["n2e4", "n2e10", "n4e4"], "those that the text cites");
    let asked = caller.tasks();
    assert!(asked.last().unwrap().contains("How heavy is a pear?"), "{asked:?}");
}

#[tokio::test]
async fn section_that_the_next_outline_repeats_stays_as_it_was_unless_something_in_it_is_unsupported() {
    let world = World::of(3, 10);
    let mut before = world.draft(&writer_of_three()).await.unwrap();
    before.sections.retain(|section| section.title != "On n4");
    before.sections[0].text.push_str(" It is heavier than a pear. [unsupported]");
    let verdicts = [Verdict { weak_evidence_areas: vec!["pears".into()], ..Verdict::default() }];
    let material = WriterInput { before: Some(&before), verdicts: &verdicts, ..world.material() };
    let caller = writer_of_three();
    let draft = super::draft(&caller, &CallKey::new("write"), &material).await.unwrap();
    assert_eq!(caller.keys(), ["write/outline", "write/section/1", "write/section/3", "write/answer"]);
    assert_eq!(draft.sections[1], before.sections[1]);
    let asked = caller.tasks();
    let listed = "On n3 (findings 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)\n";
    assert!(asked[0].contains(listed) && !asked[0].contains("On n2 (findings"), "{}", asked[0]);
    assert!(asked[0].contains("Apple 1 weighs 3 stones [n3e4]."), "{}", asked[0]);
    assert!(asked.iter().all(|asked| asked.contains("weak: pears")), "{asked:#?}");
    let anew = WriterInput { before: None, ..material };
    let caller = writer_of_three();
    super::draft(&caller, &CallKey::new("write"), &anew).await.unwrap();
    assert_eq!(caller.keys().len(), 5);
}

#[tokio::test]
async fn section_that_compares_is_shown_the_quotes_of_others_no_open_questions_and_what_other_sections_answer() {
    let mut world = World::of(2, 13);
    let compared = add_node(&mut world.tree, "Which apple is heavier?", &[]);
    let mut comparison = branch(&compared, &["Both weigh 3 stones."], Label::Internal);
    comparison.evidence.clear();
    comparison.report.findings[0].evidence = ["n2e4", "n3e4"].map(|id| id.parse().unwrap()).into();
    comparison.report.open_questions = vec!["How heavy is a pear?".into()];
    world.branches.insert(compared, comparison);
    let caller = Scripted::by_key(vec![
        (
            "write/outline",
            json!({"sections": [
                {"title": "Compared", "findings": [27]}, {"title": "Each", "findings": numbers(1..=26, &[])},
            ]}),
        ),
        ("write/section/1", json!({"text": "Both weigh 3 stones [n2e4, n3e4]."})),
        ("write/section/2", json!({"text": "Apple 0 weighs 3 stones [n2e4]."})),
        ("write/answer", answer("Apples weigh up to 9 stones [n2e10].", &json!([]))),
    ]);
    world.draft(&caller).await.unwrap();
    let asked = &caller.tasks()[1];
    for shown in ["<data id=\"n2e4\">", "<data id=\"n3e4\">", "2. Each (What of apple 0? · What of apple 1?)"] {
        assert!(asked.contains(shown), "{shown}: {asked}");
    }
    assert!(!asked.contains("n2e5") && !asked.contains("pear"), "{asked}");
}

#[tokio::test]
async fn own_list_of_sources_is_refused() {
    let world = World::of(1, 1);
    for heading in ["## Sources", "**References:**", "Works cited"] {
        let text = format!("Apple 0 weighs 0 stones [n2e1].\n\n{heading}\n\n1. The Book of Apples");
        let caller = Scripted::replying(answer(&text, &json!([])));
        let draft = world.draft(&caller).await.unwrap();
        assert!(was_assembled(&draft) && draft.is_makeshift, "{heading}");
    }
}

#[tokio::test]
async fn reply_must_match_the_callers_schema() {
    let world = World::of(1, 1);
    let schema = json!({"type": "object", "required": ["stones"], "properties": {"stones": {"type": "integer"}}});
    let written = draft_by_rules(&world.brief, &world.tree, &world.branches);
    for (said, wanted) in [(json!({"stones": 0}), Some(json!({"stones": 0}))), (json!({"stones": "none"}), None)] {
        let caller = Scripted::by_key(vec![("output", said)]);
        let filled = output(&caller, &CallKey::new("output"), "how heavy?", &written, &schema).await;
        assert_eq!(filled.ok(), wanted);
    }
}

#[tokio::test]
async fn opening_line_is_supported_by_the_cited_claims_together_or_marked() {
    let world = World::of(1, 3);
    for (opening, is_supported) in [
        ("Apple 0 weighs several stones.", true),
        ("Apple 0 weighs 7 stones.", false),
        ("Elephants migrate across vast savannahs.", false),
    ] {
        let text = format!("{opening}\n\nApple 0 weighs 0 stones [n2e1] and then 1 stones [n2e2].");
        let draft = world.draft(&Scripted::replying(answer(&text, &json!([])))).await.unwrap();
        assert_eq!(!draft.answer.contains("[unsupported]"), is_supported, "{}", draft.answer);
    }
}

#[tokio::test]
async fn sentence_about_the_findings_becomes_an_open_question() {
    let world = World::of(1, 1);
    let text = "Apple 0 weighs 0 stones [n2e1]. The notes do not say what pears weigh.";
    let draft = world.draft(&Scripted::replying(answer(text, &json!([])))).await.unwrap();
    assert_eq!(draft.answer, "Apple 0 weighs 0 stones [n2e1].");
    assert_eq!(draft.open_questions, ["The notes do not say what pears weigh."]);
    assert!(draft.limitations.is_empty(), "{:?}", draft.limitations);
}

#[tokio::test]
async fn limitation_that_says_what_is_listed_as_open_is_left_out() {
    let world = World::of(1, 1);
    let mut said = answer("Apple 0 weighs 0 stones [n2e1].", &json!([]));
    said["open_questions"] = json!(["What do red pears weigh?"]);
    said["limitations"] = json!(["No source says what a red pear weighs.", "All sources are old."]);
    let draft = world.draft(&Scripted::replying(said)).await.unwrap();
    assert_eq!(draft.open_questions, ["What do red pears weigh?"]);
    assert_eq!(draft.limitations, ["All sources are old."]);
}

#[tokio::test]
async fn writer_is_shown_each_finding_once_and_once_where_the_quotes_of_a_document_are_from() {
    let mut world = World::of(2, 2);
    world.memory.global.text = "Apple 0 weighs 0 stones. [n2e1]".into();
    let caller = Scripted::replying(answer("Apple 0 weighs 0 stones [n2e1].", &json!([])));
    world.draft(&caller).await.unwrap();
    let task = &caller.tasks()[0];
    assert!(!task.contains("Summary of the research:"), "{task}");
    assert!(task.contains("<data id=\"n2e1\">\nFrom: a.md › a\nApple 0 weighs 0 stones.\n</data>"), "{task}");
    assert!(task.contains("<data id=\"n2e2\">\nApple 0 weighs 1 stones.\n</data>"), "{task}");
    assert_eq!(task.matches("Apple 0 weighs 0 stones.").count(), 2, "as a finding and as a quote");
}

#[tokio::test]
async fn long_answer_that_cannot_be_paid_for_is_not_begun() {
    let world = World::of(3, 10);
    let caller = Scripted::by_key(vec![("write/answer", answer("Apple 0 weighs 0 stones [n2e1].", &json!([])))]);
    let caller = caller.paying_for(4);
    assert_eq!(world.draft(&caller).await.unwrap().answer, "Apple 0 weighs 0 stones [n2e1].");
    assert_eq!(caller.keys(), ["write/answer"], "outline, three sections and the whole are five calls");
}

#[tokio::test]
async fn summary_of_sections_is_shown_where_their_quotes_are_from_and_only_quotes_that_none_cites() {
    let world = World::of(3, 10);
    let caller = writer_of_three();
    world.draft(&caller).await.unwrap();
    let task = caller.tasks().pop().unwrap();
    assert!(task.contains("<data id=\"sources\">\nFrom a.md: n2e4, n3e4, n4e4\n</data>"), "{task}");
    assert!(task.contains("<data id=\"n2e5\">") && !task.contains("<data id=\"n2e4\">"), "{task}");
}

/// Returns the numbers of findings as an outline names them.
fn numbers(range: std::ops::RangeInclusive<i64>, others: &[i64]) -> Vec<i64> {
    range.chain(others.iter().copied()).collect()
}

/// Returns a writer whose outline has a section for each of three nodes.
fn writer_of_three() -> Scripted {
    let section = |(node, first): (&str, i64)| {
        let findings = numbers(first..=first + 9, &[]);
        json!({"title": format!("On {node}"), "findings": findings})
    };
    Scripted::by_key(vec![
        ("write/outline", json!({"sections": ([("n2", 1), ("n3", 11), ("n4", 21)].map(section))})),
        ("write/section/1", json!({"text": "- Apple 0 weighs 3 stones [n2e4]. It is heavy."})),
        ("write/section/2", json!({"text": "Apple 1 weighs 3 stones [n3e4]."})),
        ("write/section/3", json!({"text": "Apple 2 weighs 3 stones [n4e4]."})),
        ("write/answer", json!({"answer": "Apples weigh up to 9 stones [n2e10].", "confidence": 0.7})),
    ])
}

#[tokio::test]
async fn sections_that_were_written_are_kept_though_the_limit_ends_the_writing() {
    let world = World::of(3, 10);
    let limit = CallError::Limit(Limit::Tokens);
    let draft = world.draft(&writer_of_three().failing_at(5, limit.clone())).await.unwrap();
    assert_eq!(draft.sections.len(), 3);
    let first = "Apple 0 weighs 3 stones [n2e4]. Apple 1 weighs 3 stones [n3e4]. Apple 2 weighs 3 stones [n4e4].";
    assert_eq!(draft.answer, first, "the first sentences stand in for the summary");
    assert!(draft.is_makeshift && draft.limitations[0].starts_with("the summary was put together without a model"));
    let earlier = WriterInput { is_last: false, ..world.material() };
    let caller = writer_of_three().failing_at(5, limit.clone());
    let refused = super::draft(&caller, &CallKey::new("write"), &earlier).await;
    assert_eq!(refused, Err(limit.clone()), "what is reserved for the report may still pay");
    let draft = world.draft(&writer_of_three().failing_at(3, limit.clone())).await.unwrap();
    assert_eq!(draft.sections[0].text, "- Apple 0 weighs 3 stones [n2e4]. It is heavy.");
    assert!(draft.sections[1].text.starts_with("- Apple 1 weighs 0 stones. [n3e1]\n- Apple 1 weighs 1 stones."));
    let missing = "the summary and 2 of 3 sections were put together without a model";
    assert!(draft.limitations[0].starts_with(missing), "{:?}", draft.limitations);
    // Nothing was written, so a short answer is tried.
    let caller = writer_of_three().failing_at(2, limit.clone());
    assert_eq!(world.draft(&caller).await, Err(limit));
    assert_eq!(caller.keys().last().unwrap(), "write/answer");
}

#[tokio::test]
async fn outline_whose_sections_cannot_be_paid_for_is_not_followed() {
    let world = World::of(3, 10);
    let section = |number: i64| json!({"title": format!("Part {number}"), "findings": [number]});
    let caller = Scripted::by_key(vec![
        ("write/outline", json!({"sections": ([1, 2, 3, 4, 5].map(section))})),
        ("write/answer", answer("Apple 0 weighs 0 stones [n2e1].", &json!([]))),
    ]);
    let caller = caller.paying_for(5);
    assert_eq!(world.draft(&caller).await.unwrap().answer, "Apple 0 weighs 0 stones [n2e1].");
    assert_eq!(caller.keys(), ["write/outline", "write/answer"]);
}

#[test]
fn section_has_words_by_its_quotes_and_by_the_number_of_sections() {
    assert_eq!(
        [(2, 3), (20, 3), (90, 3), (90, 8)].map(|(quotes, number)| words_of_section(quotes, number)),
        [120, 220, 350, 150]
    );
}

#[test]
fn open_question_in_other_words_is_asked_once() {
    let mut questions = vec!["In which months are pumps oiled, and from which date is the oil paid?".to_owned()];
    add_question(
        &mut questions,
        "No source found says in which month pumps are oiled or from which date oil is paid.".into(),
    );
    assert_eq!(questions.len(), 1);
    for other in ["Who oils the pumps?", "What does oil cost in 2023?", "What does oil cost in 2024?"] {
        add_question(&mut questions, other.into());
    }
    assert_eq!(questions.len(), 4);
}

#[tokio::test]
async fn section_whose_quotes_do_not_fit_is_shown_those_that_the_memory_finds_for_its_title() {
    let mut world = World::of(3, 10);
    let last: EvidenceId = "n2e10".parse().unwrap();
    world.similar = vec![last.clone()];
    let caller = Scripted::by_key(vec![
        ("write/outline", json!({"sections": [{"title": "All", "findings": numbers(1..=30, &[])}]})),
        ("write/section/1", json!({"text": "Apple 0 weighs 3 stones [n2e4]."})),
        ("write/answer", answer("Apples weigh up to 9 stones [n2e10].", &json!([]))),
    ])
    .with_input_limit(1_000);
    world.draft(&caller).await.unwrap();
    let asked = caller.tasks();
    let ids = asked[1].split("<data id=\"").skip(1).filter_map(|data| data.split('"').next()?.parse().ok());
    let shown: Vec<EvidenceId> = ids.collect();
    assert_eq!(shown[0], last, "{shown:?}");
    assert!(shown.len() < 30, "all fit");
}

#[tokio::test]
async fn section_is_shown_its_own_findings_and_of_the_others_the_titles() {
    let world = World::of(1, 30);
    let caller = Scripted::by_key(vec![
        (
            "write/outline",
            json!({"sections": [
                {"title": "Light", "findings": numbers(1..=5, &[])}, {"title": "Heavy", "findings": numbers(5..=29, &[])},
            ]}),
        ),
        ("write/section/1", json!({"text": "Apple 0 weighs 3 stones [n2e4]."})),
        ("write/section/2", json!({"text": "Apple 0 weighs 29 stones [n2e30]."})),
        ("write/answer", json!({"answer": "Apples weigh up to 29 stones [n2e30].", "confidence": 0.7})),
    ]);
    let draft = world.draft(&caller).await.unwrap();
    let asked = caller.tasks();
    let has = |task: &str, number: u32| {
        (task.contains(&format!("[n2e{number}]")), task.contains(&format!("<data id=\"n2e{number}\">")))
    };
    let of = |task: &str| (1..=30).filter(|number| has(task, *number) == (true, true)).collect::<Vec<_>>();
    assert_eq!(of(&asked[1]), (1..=5).collect::<Vec<_>>());
    assert_eq!(
        of(&asked[2]),
        (6..=30).collect::<Vec<_>>(),
        "a finding is in the first section that names it, or else by node"
    );
    assert!((1..=5).all(|number| has(&asked[2], number) == (false, false)), "{}", asked[2]);
    let titles = "<data id=\"titles\">\n1. Light\n2. Heavy\n</data>";
    assert!(asked[1].contains(titles), "without the question that both answer: {}", asked[1]);
    let own = |section: &Section| section.findings.values().map(BTreeSet::len).sum::<usize>();
    assert_eq!(draft.sections.iter().map(own).collect::<Vec<_>>(), [5, 25]);
    let shared = asked[1].bytes().zip(asked[2].bytes()).take_while(|(a, b)| a == b).count();
    assert!(asked[1][..shared].contains(titles), "what sections share comes first");
    let prompts = caller.prompts();
    assert_eq!(prompts[1].messages[0].text, prompts[2].messages[0].text);
}

#[test]
fn finding_that_no_section_names_is_placed_by_its_aspect_or_else_by_its_node() {
    let mut world = World::of(3, 3);
    let aspects = [Some("a1"), None, Some("a2")];
    for branch in world.branches.values_mut() {
        for (finding, aspect) in branch.report.findings.iter_mut().zip(aspects) {
            finding.aspect = aspect.map(crate::research::question::AspectId::named);
        }
    }
    let material = world.material();
    let (caller, key) = (Scripted::replying(json!({})), CallKey::new("write"));
    let all = Writer::new(&caller, &key, &material).all_findings();
    let draft: OutlineDraft = serde_json::from_value(json!({"sections": [
        {"title": "Cost", "findings": [1]}, {"title": "Rest of the first", "findings": [2]}, {"title": "", "findings": [3]},
    ]}))
    .unwrap();
    let placed: Vec<_> = headings(&draft, &all, &[]).into_iter().map(|heading| (heading.title, heading.own)).collect();
    // The last finding of the first node is placed by its node, and those on its aspect follow it.
    let wanted = [("Cost", vec![0_usize, 3, 4, 6, 7]), ("Rest of the first", vec![1, 2, 5, 8])];
    let wanted = wanted.map(|(title, own)| (title.to_owned(), BTreeSet::from_iter(own)));
    assert_eq!(placed, wanted);
}

#[test]
fn section_of_an_earlier_version_was_written_from_all_findings_of_its_nodes() {
    let world = World::of(2, 2);
    let material = world.material();
    let (caller, key) = (Scripted::replying(json!({})), CallKey::new("write"));
    let all = Writer::new(&caller, &key, &material).all_findings();
    let stored = json!({"title": "On n2", "text": "Apple 0 weighs 0 stones [n2e1].", "nodes": ["n2"]});
    let section: Section = serde_json::from_value(stored).unwrap();
    for (named, is_kept) in [(vec![], true), (vec![1], true), (vec![3], false)] {
        let sections = json!([{"title": "On n2", "findings": named}, {"title": "On n3", "findings": [2, 3, 4]}]);
        let draft: OutlineDraft = serde_json::from_value(json!({"sections": sections})).unwrap();
        let headings = headings(&draft, &all, &[&section]);
        assert_eq!(headings[0].kept.is_some(), is_kept, "{named:?}");
        let own: BTreeSet<usize> = if is_kept { (0..2).collect() } else { (0..3).collect() };
        assert_eq!(headings[0].own, own, "{named:?}");
    }
}

#[tokio::test]
async fn report_whose_findings_are_few_is_written_in_one_call() {
    let world = World::of(2, 15);
    let sections = json!([
        {"title": "First", "text": "Apple 0 weighs 3 stones [n2e4]. It is heavier than a pear of that year."},
        {"title": "Nothing", "text": " "},
        {"title": "Second", "text": "| apple | stones |\n|---|---|\n| 1 | 3 [n3e4, n9e9] |"},
    ]);
    let reply = json!({"answer": "Apples weigh up to 14 stones [n2e15].", "sections": sections, "confidence": 0.7});
    let caller = Scripted::by_key(vec![("write/answer", reply)]).with_output_limit(4_000);
    let heard = std::sync::Mutex::new(Vec::new());
    let hear = |call: &CallKey, section: &Section| {
        assert_eq!(call.as_str(), "write/answer");
        heard.lock().unwrap().push(section.clone());
    };
    let material = WriterInput { on_section: &hear, ..world.material() };
    let first = draft(&caller, &CallKey::new("write"), &material).await.unwrap();
    assert_eq!(caller.keys(), ["write/answer"]);
    let asked = caller.tasks().pop().unwrap();
    assert!(asked.ends_with("The sections together: at most about 1000 words."), "{asked}");
    assert!(asked.contains("<data id=\"n3e15\">"), "{asked}");
    assert_eq!(first.sections[1].text, "| apple | stones |\n|---|---|\n| 1 | 3 [n3e4] |");
    assert_eq!(heard.into_inner().unwrap(), first.sections);
    let found: Vec<_> = first.findings.iter().map(|finding| finding.evidence[0].to_string()).collect();
    assert_eq!(found, ["n2e4", "n2e15", "n3e4"], "those that the text cites");
    let own = |section: &Section| section.findings.iter().map(|(id, own)| (id.to_string(), own.len())).collect();
    let own: Vec<Vec<(String, usize)>> = first.sections.iter().map(own).collect();
    assert_eq!(own, [[("n2".to_owned(), 15_usize)], [("n3".to_owned(), 15)]], "also those that it left out");

    // The next round keeps the section in which nothing is unsupported.
    let outline = json!({"sections": [
        {"title": "First", "findings": numbers(1..=15, &[])}, {"title": "Second", "findings": []},
    ]});
    let caller = Scripted::by_key(vec![
        ("write/outline", outline),
        ("write/section/1", json!({"text": "Apple 0 weighs 3 stones [n2e4]."})),
        ("write/answer", json!({"answer": "Apples weigh up to 14 stones [n2e15].", "confidence": 0.7})),
    ])
    .with_output_limit(4_000);
    let material = WriterInput { before: Some(&first), ..world.material() };
    let second = draft(&caller, &CallKey::new("write"), &material).await.unwrap();
    assert_eq!(caller.keys(), ["write/outline", "write/section/1", "write/answer"]);
    assert_eq!(second.sections[1], first.sections[1]);
}

#[tokio::test]
async fn report_whose_findings_are_many_is_not_written_in_one_call() {
    let world = World::of(3, 300);
    let caller = writer_of_three().with_output_limit(4_000);
    world.draft(&caller).await.unwrap();
    assert_eq!(caller.keys()[0], "write/outline");
}

#[test]
fn quotes_of_a_document_stand_together_with_its_name_once_and_headings_where_they_change() {
    let mut world = World::of(1, 5);
    let quotes = &mut world.branches.values_mut().next().unwrap().evidence;
    let places = [("a.md", "Light"), ("b.md", "Light"), ("a.md", "Light"), ("a.md", "Heavy"), ("a.md", "Heavy")];
    for (quote, (file, heading)) in quotes.iter_mut().zip(places) {
        let crate::source::Place::Kb { path, title, heading_path, .. } = &mut quote.source else { unreachable!() };
        file.clone_into(path);
        "Apples".clone_into(title);
        *heading_path = ["Apples", "All", heading].map(str::to_owned).into();
    }
    let quotes: Vec<_> = quotes.iter().collect();
    let shown: Vec<_> = shown(&quotes).into_iter().map(|quote| format!("{}: {}", quote.id, quote.text)).collect();
    assert_eq!(
        shown,
        [
            "n2e1: From: a.md › Apples › All › Light\nApple 0 weighs 0 stones.",
            "n2e3: Apple 0 weighs 2 stones.",
            "n2e4: › Heavy\nApple 0 weighs 3 stones.",
            "n2e5: Apple 0 weighs 4 stones.",
            "n2e2: From: b.md › Apples › All › Light\nApple 0 weighs 1 stones.",
        ]
    );
}
