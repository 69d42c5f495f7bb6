use proptest::prelude::*;

use super::*;
use crate::research::node::NodeStatus;
use crate::research::question::{Aspect, AspectId, Brief, Mode};

fn brief() -> Brief {
    let aspect = |number| Aspect { id: AspectId::numbered(number), text: format!("aspect {number}") };
    Brief {
        question: "what is it?".parse().unwrap(),
        task: "what is it?".into(),
        aspects: vec![aspect(1), aspect(2)],
        mode: Mode::Deep,
    }
}

fn tree() -> Tree {
    Tree::of(brief().question)
}

fn new(id: &str) -> NodeDraft {
    let json = serde_json::json!({ "id": id, "question": format!("what of {id}?") });
    serde_json::from_value(json).unwrap()
}

fn after(id: &str, dependencies: &[&str]) -> NodeDraft {
    NodeDraft { depends_on: dependencies.iter().map(ToString::to_string).collect(), ..new(id) }
}

fn draft(new_nodes: impl Into<Vec<NodeDraft>>) -> PlanDraft {
    PlanDraft { new_nodes: new_nodes.into(), ..PlanDraft::default() }
}

fn update(id: &str) -> UpdateDraft {
    UpdateDraft { id: id.into(), ..UpdateDraft::default() }
}

fn check(draft: &PlanDraft, tree: &Tree) -> Result<Plan, Vec<String>> {
    draft.check(tree, &brief(), TreeLimits::default(), 1, &|_| None)
}

fn complaints(draft: &PlanDraft, tree: &Tree) -> Vec<String> {
    check(draft, tree).unwrap_err()
}

/// Returns a tree whose nodes, from `n2` on, have these states; each depends on the one before it.
fn grown(states: &[NodeStatus]) -> Tree {
    let mut tree = tree();
    for (number, status) in (2..).zip(states) {
        let mut node = Node::new(NodeId::numbered(number), Some(tree.root.clone()), brief().question, 1);
        node.status = *status;
        node.depends_on = (number > 2).then(|| NodeId::numbered(number - 1)).into_iter().collect();
        tree.nodes.push(node);
    }
    tree
}

#[test]
fn node_that_would_ask_the_web_what_another_one_asks_is_refused() {
    let on = |aspects: &[&str], node| NodeDraft { aspects: aspects.iter().map(ToString::to_string).collect(), ..node };
    let web = |node| NodeDraft { source_hint: SourceHint::Web, ..node };
    let nodes = [
        web(on(&["a1", "a2"], new("first"))),
        web(on(&["a1"], new("less"))),
        web(on(&["a2", "a1"], after("later", &["first"]))),
        on(&["a1", "a2"], new("inside")),
        web(on(&["a2", "a1"], new("second"))),
    ];
    let plan = draft(nodes);
    let is_reworded = |node: &NodeDraft| Some(node.source_hint).filter(|hint| *hint == SourceHint::Web);
    let complaints = plan.check(&tree(), &brief(), TreeLimits::default(), 2, &is_reworded).unwrap_err();
    assert_eq!(
        complaints,
        [
            "`second` would ask the web what `first` asks, since both are worded from the same aspects; leave it out or change its source"
        ]
    );
    assert!(check(&plan, &tree()).is_ok(), "questions of a first plan are sent as they are");
}

#[test]
fn refused_node_takes_no_other_with_it() {
    let limits = TreeLimits::default();
    let is_web = |node: &NodeDraft| Some(node.source_hint).filter(|hint| *hint == SourceHint::Web);
    let check = |draft: &PlanDraft| draft.check(&tree(), &brief(), limits, 2, &is_web);
    let web =
        |id: &str, aspect: &str| NodeDraft { aspects: vec![aspect.into()], source_hint: SourceHint::Web, ..new(id) };
    let plan = draft([web("first", "a1"), web("same", "a1"), web("other", "a2"), new("inside")]);
    assert!(check(&plan).is_err());
    let questions = |plan: Plan| plan.nodes.iter().map(|node| node.question.to_string()).collect::<Vec<_>>();
    let kept = questions(plan.clone().passing(&check));
    assert_eq!(kept, ["what of first?", "what of other?", "what of inside?"]);
    let limits = TreeLimits { max_nodes: 3, ..limits };
    let check = |draft: &PlanDraft| draft.check(&tree(), &brief(), limits, 2, &|_| None);
    assert_eq!(questions(plan.passing(&check)), ["what of first?", "what of same?"], "more would not fit the tree");
}

#[test]
fn node_that_would_ask_the_web_what_a_finished_one_has_asked_is_refused() {
    let mut tree = grown(&[NodeStatus::Done, NodeStatus::Done, NodeStatus::Blocked]);
    for node in &mut tree.nodes[1..] {
        node.source_hint = SourceHint::Web;
        node.depends_on.clear();
        node.aspects = vec![AspectId::numbered(if node.id == NodeId::numbered(4) { 2 } else { 1 })];
    }
    let web = |id: &str, aspect: &str, depends_on: &[&str]| NodeDraft {
        aspects: vec![aspect.into()],
        source_hint: SourceHint::Web,
        ..after(id, depends_on)
    };
    let plan = draft([web("same", "a1", &[]), web("after", "a1", &["n2"]), web("again", "a2", &[])]);
    let complaints = |reworded: &[&str]| {
        let is_new = |id: &str| !["n2", "n3", "n4"].contains(&id);
        let is_reworded =
            |node: &NodeDraft| (is_new(&node.id) || reworded.contains(&&*node.id)).then_some(node.source_hint);
        plan.check(&tree, &brief(), TreeLimits::default(), 3, &is_reworded).err()
    };
    assert_eq!(
        complaints(&["n3", "n4"]).unwrap(),
        [
            "`same` would ask the web what `n3` asks, since both are worded from the same aspects; leave it out or change its source"
        ]
    );
    assert_eq!(complaints(&[]), None, "a question of the first plan was sent as it is");
}

#[test]
fn new_nodes_are_numbered_after_the_tree_and_names_follow() {
    let mut last = after("last", &["first", "n2", "first"]);
    last.parent = Some("first".into());
    let plan = check(&draft([last, new("first")]), &grown(&[NodeStatus::Done])).unwrap();
    let ids: Vec<_> = plan.nodes.iter().map(|node| node.id.to_string()).collect();
    assert_eq!(ids, ["n3", "n4"]);
    assert_eq!(plan.nodes[0].parent, Some(NodeId::numbered(4)));
    assert_eq!(plan.nodes[0].depends_on, [NodeId::numbered(4), NodeId::numbered(2)]);
    assert_eq!((plan.nodes[0].depth, plan.nodes[1].depth), (2, 1));
}

#[test]
fn omitted_fields_get_defaults() {
    let mut node = new("a");
    node.parent = Some(" ".into());
    node.output_schema = Some(String::new());
    node.group = Some(String::new());
    let plan = draft([node]).check(&tree(), &brief(), TreeLimits::default(), 3, &|_| None).unwrap();
    let mut wanted = Node::new(NodeId::numbered(2), Some(NodeId::numbered(1)), "what of a?".parse().unwrap(), 1);
    wanted.round = 3;
    assert_eq!(plan.nodes, [wanted]);
}

#[test]
fn an_empty_draft_is_an_empty_plan() {
    assert_eq!(check(&PlanDraft::default(), &tree()).unwrap(), Plan::default());
}

#[test]
fn names_must_be_safe_unique_and_new() {
    let long = "x".repeat(33);
    let drafts = draft([new("a"), new("a"), new("n1"), new("../b"), new(""), new(&long), new("c\u{1b}[2J")]);
    assert_eq!(
        complaints(&drafts, &tree()),
        [
            "`a` names more than one new node".to_owned(),
            "`n1` already exists; give the new node another name".into(),
            "`../b` is not a name for a node (1 to 32 letters, digits, `_` and `-`)".into(),
            "`` is not a name for a node (1 to 32 letters, digits, `_` and `-`)".into(),
            format!("`{long}` is not a name for a node (1 to 32 letters, digits, `_` and `-`)"),
            "`c [2J` is not a name for a node (1 to 32 letters, digits, `_` and `-`)".into(),
        ]
    );
}

#[test]
fn a_cycle_is_printed_in_full() {
    let circle = draft([after("a", &["b"]), after("b", &["c"]), after("c", &["b", "a"]), after("d", &["d"])]);
    assert_eq!(
        complaints(&circle, &tree()),
        [
            "`d` depends on itself",
            "dependencies form a cycle: `b` → `c` → `b`",
            "dependencies form a cycle: `a` → `b` → `c` → `a`",
        ]
    );
}

#[test]
fn parents_that_form_a_cycle_are_refused() {
    let under = |id: &str, parent: &str| NodeDraft { parent: Some(parent.into()), ..new(id) };
    let drafts = draft([under("a", "b"), under("b", "a"), under("c", "ghost")]);
    assert_eq!(
        complaints(&drafts, &tree()),
        ["parent `ghost` of `c` does not exist", "parents form a cycle: `a` → `b` → `a`"]
    );
}

#[test]
fn a_chain_of_any_length_does_not_overflow_the_stack() {
    let link = |at: usize| NodeDraft {
        parent: (at > 0).then(|| format!("x{}", at - 1)),
        ..after(&format!("x{at}"), &[&format!("x{}", (at + 1) % 20_000)])
    };
    let complaints = complaints(&draft((0..20_000).map(link).collect::<Vec<_>>()), &tree());
    let is_cycle = |text: &&String| text.starts_with("dependencies form a cycle: ");
    assert_eq!(complaints.iter().find(is_cycle).unwrap().matches(" → ").count(), 20_000);
    assert!(complaints.iter().any(|text| text.ends_with("is 20000 levels below the root (at most 3)")));
}

#[test]
fn depth_follows_the_parent_and_is_limited() {
    let under = |id: &str, parent: &str| NodeDraft { parent: Some(parent.into()), ..new(id) };
    let drafts = draft([under("d", "c"), under("c", "b"), under("b", "a"), new("a")]);
    assert_eq!(complaints(&drafts, &tree()), ["`d` is 4 levels below the root (at most 3)"]);
}

#[test]
fn limit_on_nodes_includes_existing_ones() {
    let limits = TreeLimits { max_nodes: 2, ..TreeLimits::default() };
    let complaints = draft([new("a"), new("b")]).check(&tree(), &brief(), limits, 1, &|_| None).unwrap_err();
    assert_eq!(complaints, ["tree would have 3 nodes (at most 2)"]);
}

#[test]
fn invalid_questions_are_reported_with_their_reason() {
    let drafts = draft([NodeDraft { question: " ?".into(), ..new("a") }]);
    assert_eq!(complaints(&drafts, &tree()), ["`a` has an invalid question: question has no words"]);
    let drafts = draft([NodeDraft { question: "why ".repeat(2_000), ..new("a") }]);
    assert!(complaints(&drafts, &tree())[0].ends_with("7999 characters (at most 4000)"));
}

#[test]
fn unknown_aspects_and_dependencies_are_reported() {
    let mut node = after("a", &["n9", "ghost"]);
    node.aspects = vec!["a1".into(), "a9".into()];
    assert_eq!(
        complaints(&draft([node]), &tree()),
        [
            "`a` depends on `n9`, which does not exist",
            "`a` depends on `ghost`, which does not exist",
            "`a` names aspect `a9`, which is not in the brief",
        ]
    );
}

#[test]
fn output_schema_must_be_a_schema_that_needs_no_network() {
    let with = |id: &str, schema: &str| NodeDraft { output_schema: Some(schema.into()), ..new(id) };
    let good = with("good", r#"{"type": "object", "properties": {"n": {"type": "integer"}}}"#);
    assert!(check(&draft([good.clone()]), &tree()).unwrap().nodes[0].output_schema.is_some());
    let remote = with("remote", r#"{"$ref": "https://example.com/schema.json"}"#);
    let local = with("local", r#"{"$ref": "file:///etc/passwd"}"#);
    let bad = [with("a", "{"), with("b", "[]"), with("c", r#"{"type": "thing"}"#), remote, local];
    let complaints = complaints(&draft(bad), &tree());
    let named: Vec<_> = complaints.iter().map(|text| text.split(" is not").next().unwrap_or_default()).collect();
    assert_eq!(named, ["a", "b", "c", "remote", "local"].map(|id| format!("`output_schema` of `{id}`")));
}

#[test]
fn only_pending_nodes_can_be_changed() {
    use NodeStatus::{Blocked, Done, Failed, Pending, Running};
    let tree = grown(&[Done, Running, Failed, Blocked, Pending]);
    let updates = ["n2", "n3", "n4", "n5", "n6", "n6", "n7", "x"].map(update).to_vec();
    assert_eq!(
        complaints(&PlanDraft { updates, ..PlanDraft::default() }, &tree),
        [
            "`n2` cannot be changed: it is done (only pending nodes can)",
            "`n3` cannot be changed: it is running (only pending nodes can)",
            "`n4` cannot be changed: it is failed (only pending nodes can)",
            "`n5` cannot be changed: it is blocked (only pending nodes can)",
            "`n6` is changed more than once",
            "`n7` cannot be changed: it does not exist",
            "`x` cannot be changed: it does not exist",
        ]
    );
}

#[test]
fn the_root_keeps_its_question_but_its_sources_may_change() {
    let asks = UpdateDraft { question: Some("other?".into()), ..update("n1") };
    let goes = UpdateDraft { drop: true, ..update("n1") };
    for update in [asks, goes] {
        let refused = complaints(&PlanDraft { updates: vec![update], ..PlanDraft::default() }, &tree());
        assert_eq!(refused, ["`n1` is the root: it can neither be dropped nor be given another question"]);
    }
    let looks = UpdateDraft { source_hint: Some(SourceHint::Web), ..update("n1") };
    let plan = check(&PlanDraft { updates: vec![looks], ..PlanDraft::default() }, &tree()).unwrap();
    assert_eq!(plan.updates[0].source_hint, Some(SourceHint::Web));
}

#[test]
fn node_that_others_need_is_dropped_only_together_with_them() {
    let tree = grown(&[NodeStatus::Pending, NodeStatus::Pending]);
    let goes = |id: &str| UpdateDraft { drop: true, ..update(id) };
    let one = PlanDraft { updates: vec![goes("n2")], ..PlanDraft::default() };
    assert_eq!(complaints(&one, &tree), ["`n2` cannot be dropped: `n3` needs it"]);
    let both = PlanDraft { updates: vec![goes("n2"), goes("n3")], ..PlanDraft::default() };
    assert_eq!(check(&both, &tree).unwrap().updates.len(), 2);
}

#[test]
fn node_that_can_never_run_is_refused() {
    let tree = grown(&[NodeStatus::Failed, NodeStatus::Blocked, NodeStatus::Pending]);
    let mut drafts = draft([after("a", &["n4"]), after("b", &["n2", "n3"]), after("c", &["n1"])]);
    drafts.updates = vec![UpdateDraft { drop: true, ..update("n4") }];
    assert_eq!(
        complaints(&drafts, &tree),
        [
            "`a` can never run: its dependency `n4` is dropped by this plan",
            "`b` can never run: its dependency `n2` failed",
            "`b` can never run: its dependency `n3` is blocked",
            "`c` can never run: its dependency `n1` is the root, which is answered last",
        ]
    );
    let without = NodeDraft { optional_dependencies: true, ..after("b", &["n2", "n3"]) };
    assert!(check(&draft([without]), &tree).is_ok());
    let under = NodeDraft { parent: Some("n4".into()), ..new("d") };
    let drafts = PlanDraft { new_nodes: vec![under], ..drafts };
    assert_eq!(complaints(&drafts, &tree), ["parent `n4` of `d` is dropped by this plan"]);
}

#[test]
fn node_that_repeats_a_finished_one_is_refused() {
    let mut tree = tree();
    let mut node = Node::new(NodeId::numbered(2), Some(tree.root.clone()), "What does A cost?".parse().unwrap(), 1);
    node.status = NodeStatus::Done;
    tree.nodes.push(node);
    let again = NodeDraft { question: "what does A cost".into(), ..new("a") };
    let complaint = "`a` asks what `n2` has already answered; ask something else or leave it out";
    assert_eq!(complaints(&draft([again.clone()]), &tree), [complaint]);
    let elsewhere = NodeDraft { source_hint: SourceHint::Web, ..again.clone() };
    assert!(check(&draft([elsewhere]), &tree).is_ok(), "other sources may have more");
    tree.nodes[1].status = NodeStatus::Failed;
    assert!(check(&draft([again]), &tree).is_ok(), "it has no answer");
}

#[test]
fn question_of_the_root_is_asked_again_only_if_the_root_had_no_worker() {
    let mut tree = tree();
    tree.nodes[0].status = NodeStatus::Done;
    let question = tree.nodes[0].question.as_str().to_owned();
    let again = NodeDraft { question, source_hint: tree.nodes[0].source_hint, ..new("a") };
    let complaint = "`a` asks what `n1` has already answered; ask something else or leave it out";
    assert_eq!(complaints(&draft([again.clone()]), &tree), [complaint]);
    let of_first_round = Node::new(NodeId::numbered(2), Some(tree.root.clone()), "Which?".parse().unwrap(), 1);
    tree.nodes.push(of_first_round);
    assert!(check(&draft([again]), &tree).is_ok());
}

prop_compose! {
    /// A draft whose nodes depend on and are children of earlier ones only, shuffled.
    fn valid_draft()(
        nodes in prop::collection::vec(
            (
                "[A-Za-z0-9_-]{0,20}",
                "[a-z]{1,8}( [a-zé`\"]{1,8}){0,5}",
                prop::collection::vec(any::<prop::sample::Index>(), 0..4),
                prop::option::of(any::<prop::sample::Index>()),
                (any::<bool>(), any::<bool>(), any::<i32>()),
                (prop::option::of("\\PC{0,12}"), "\\PC{0,20}"),
                0..3_usize,
            ),
            0..12,
        ),
        reasoning in "\\PC{0,40}",
        seed in any::<[u8; 12]>(),
        root_hint in 0..3_usize,
    ) -> PlanDraft {
        let mut drafts: Vec<NodeDraft> = Vec::new();
        for (at, (name, question, needs, parent, flags, (group, why), kind)) in nodes.into_iter().enumerate() {
            let earlier = |index: prop::sample::Index| (at > 0).then(|| drafts[index.index(at)].id.clone());
            drafts.push(NodeDraft {
                // The number makes it unique, the `x` different from the tree's `n1`.
                id: format!("x{name}-{at}"),
                parent: parent.filter(|_| at < 3).and_then(earlier),
                question,
                aspects: ["a1", "a2"].iter().take(kind).map(ToString::to_string).collect(),
                depends_on: needs.into_iter().filter_map(earlier).collect(),
                optional_dependencies: flags.0,
                parallelizable: flags.1,
                priority: flags.2,
                group,
                source_hint: [SourceHint::Internal, SourceHint::Web, SourceHint::Mixed][kind],
                tools: vec![Tool::Search; kind],
                output_schema: (kind == 1).then(|| r#"{"type":"object","required":["a"]}"#.to_owned()),
                why,
            });
        }
        let mut order: Vec<_> = (0..drafts.len()).collect();
        order.sort_by_key(|at| seed[*at]);
        let root = UpdateDraft { source_hint: [None, Some(SourceHint::Web), Some(SourceHint::Mixed)][root_hint], ..update("n1") };
        PlanDraft {
            reasoning,
            new_nodes: order.into_iter().map(|at| drafts[at].clone()).collect(),
            updates: root.source_hint.is_some().then_some(root).into_iter().collect(),
        }
    }
}

proptest! {
    #[test]
    fn a_tree_as_a_draft_grows_into_the_same_tree(draft in valid_draft()) {
        let plan = check(&draft, &tree()).unwrap();
        let mut grown = tree();
        grown.nodes.extend(plan.nodes.clone());
        grown.nodes[0].source_hint = plan.updates.first().and_then(|update| update.source_hint).unwrap_or_default();
        let saved = PlanDraft::from(&grown);
        let read: PlanDraft = serde_json::from_str(&serde_json::to_string(&saved).unwrap()).unwrap();
        prop_assert_eq!(&read, &saved);
        let again = check(&read, &tree()).unwrap();
        prop_assert_eq!(again.nodes, plan.nodes);
        prop_assert_eq!(again.updates, plan.updates);
    }

    #[test]
    fn a_checked_plan_has_no_dangling_names(draft in valid_draft()) {
        let plan = check(&draft, &tree()).unwrap();
        let known: Vec<_> = plan.nodes.iter().map(|node| node.id.clone()).chain([NodeId::numbered(1)]).collect();
        for node in &plan.nodes {
            prop_assert!(node.depends_on.iter().chain(&node.parent).all(|id| known.contains(id)));
            prop_assert!((1..=3).contains(&node.depth));
        }
    }
}
