//! Scheduling policy: which nodes to start next, and which can never run.
//!
//! Pure functions of a tree, shared by live runs and simulations. Each takes one pass over nodes and dependencies.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use crate::research::node::{Node, NodeId, NodeStatus, Tree};

/// Returns the nodes to start now, in order of precedence, given those that are running.
///
/// A pending node is ready if all its dependencies are done, or at least settled if they are optional. The node with
/// the longest path of unsettled dependants goes first, since that path bounds the total time; ties are broken by
/// higher priority, lower depth, lower id. A node that must run alone starts only when no other runs. While it is first
/// in order, nothing behind it starts; otherwise a steady supply of parallel nodes would starve it.
pub(crate) fn next(tree: &Tree, running: &BTreeSet<NodeId>, max_parallel: usize) -> Vec<NodeId> {
    // A simulation does not mark its running nodes in the tree.
    let is_running = |node: &&Node| node.status == NodeStatus::Running || running.contains(&node.id);
    let busy: Vec<_> = tree.workers().filter(is_running).collect();
    // At least one: a setting of 0 would start no node at all.
    let places = max_parallel.max(1).saturating_sub(busy.len());
    if places == 0 || busy.iter().any(|node| !node.parallelizable) {
        return Vec::new();
    }
    let graph = Graph::of(tree);
    let is_ready = |at: &usize| graph.is_worker[*at] && graph.is_ready(*at) && !running.contains(&graph.nodes[*at].id);
    let mut ready: Vec<_> = (0..graph.nodes.len()).filter(is_ready).collect();
    let paths = graph.path_lengths();
    ready.sort_unstable_by_key(|at| {
        let node = graph.nodes[*at];
        (Reverse(paths[*at]), Reverse(node.priority), node.depth, node.id.number())
    });
    let mut started = Vec::new();
    for node in ready.into_iter().map(|at| graph.nodes[at]).take(places) {
        let is_alone = busy.is_empty() && started.is_empty();
        if node.parallelizable || is_alone {
            started.push(node.id.clone());
        }
        if !node.parallelizable {
            break;
        }
    }
    started
}

/// Returns the pending nodes that can never run, each with the reason, in tree order. Includes nodes that depend on
/// others in the list.
pub(crate) fn blocked(tree: &Tree) -> Vec<(NodeId, String)> {
    let graph = Graph::of(tree);
    let mut reasons: Vec<Option<String>> = vec![None; graph.nodes.len()];
    let order = graph.order();
    // In topological order, so that one pass carries a reason to all dependants.
    for at in &order {
        reasons[*at] = graph.why_never(*at, &reasons);
    }
    let is_ordered = order.into_iter().fold(vec![false; graph.nodes.len()], |mut is_ordered, at| {
        is_ordered[at] = true;
        is_ordered
    });
    let mut blocked = Vec::new();
    for (at, node) in graph.nodes.iter().enumerate() {
        let circle = || (!is_ordered[at]).then(|| "its dependencies form a cycle".to_owned());
        if node.status == NodeStatus::Pending && graph.is_worker[at] {
            blocked.extend(reasons[at].take().or_else(circle).map(|reason| (node.id.clone(), reason)));
        }
    }
    blocked
}

/// The dependencies of a tree in both directions, by node index.
struct Graph<'a> {
    nodes: Vec<&'a Node>,
    is_worker: Vec<bool>,
    /// Dependencies of all nodes, concatenated. `None` for an id that is not in the tree.
    needs: Vec<Option<usize>>,
    /// Offsets into `needs`: node `i` owns `starts[i]..starts[i + 1]`.
    starts: Vec<usize>,
    /// Dependants of each node.
    needed_by: Vec<Vec<usize>>,
}

impl<'a> Graph<'a> {
    fn of(tree: &'a Tree) -> Self {
        let nodes: Vec<_> = tree.nodes.iter().collect();
        let places: OnceCell<HashMap<u32, usize>> = OnceCell::new();
        let by_number = || nodes.iter().enumerate().map(|(at, node)| (node.id.number(), at)).collect();
        // Node `n3` is nearly always at index 2, so the map is built only for trees that leave numbers out.
        let place = |id: &NodeId| {
            let guess = (id.number() as usize).wrapping_sub(1);
            let is_right = nodes.get(guess).is_some_and(|node| node.id == *id);
            let look_up = || places.get_or_init(by_number).get(&id.number()).copied();
            if is_right { Some(guess) } else { look_up() }
        };
        let mut graph = Self {
            is_worker: nodes.iter().map(|node| tree.has_worker(&node.id)).collect(),
            needs: Vec::new(),
            starts: vec![0],
            needed_by: vec![Vec::new(); nodes.len()],
            nodes: Vec::new(),
        };
        for (at, node) in nodes.iter().enumerate() {
            for need in node.depends_on.iter().map(place) {
                graph.needs.push(need);
                if let Some(need) = need {
                    graph.needed_by[need].push(at);
                }
            }
            graph.starts.push(graph.needs.len());
        }
        Self { nodes, ..graph }
    }

    fn needs(&self, at: usize) -> &[Option<usize>] {
        &self.needs[self.starts[at]..self.starts[at + 1]]
    }

    fn is_ready(&self, at: usize) -> bool {
        let node = self.nodes[at];
        let allows = |need: &Option<usize>| match need.map(|need| self.nodes[need].status) {
            Some(NodeStatus::Done) => true,
            Some(NodeStatus::Failed | NodeStatus::Blocked) | None => node.optional_dependencies,
            Some(NodeStatus::Pending | NodeStatus::Running) => false,
        };
        node.status == NodeStatus::Pending && self.needs(at).iter().all(allows)
    }

    /// Returns the nodes in topological order. Nodes on a dependency cycle, or behind one, are left out.
    fn order(&self) -> Vec<usize> {
        let mut waits: Vec<_> = (0..self.nodes.len()).map(|at| self.needs(at).iter().flatten().count()).collect();
        let mut order: Vec<_> = (0..self.nodes.len()).filter(|at| waits[*at] == 0).collect();
        let mut done = 0;
        while let Some(at) = order.get(done).copied() {
            done += 1;
            for dependant in &self.needed_by[at] {
                waits[*dependant] -= 1;
                if waits[*dependant] == 0 {
                    order.push(*dependant);
                }
            }
        }
        order
    }

    /// Returns, for each node, the number of unsettled nodes on the longest path of dependants that starts with it.
    fn path_lengths(&self) -> Vec<u32> {
        let mut lengths = vec![0; self.nodes.len()];
        for at in self.order().into_iter().rev() {
            let behind = self.needed_by[at].iter().map(|dependant| lengths[*dependant]).max().unwrap_or(0);
            lengths[at] = if self.nodes[at].status.is_settled() { 0 } else { behind + 1 };
        }
        lengths
    }

    /// Returns the reason that a node can never run, given the reasons of its dependencies.
    fn why_never(&self, at: usize, reasons: &[Option<String>]) -> Option<String> {
        let node = self.nodes[at];
        let why = |(id, need): (&NodeId, &Option<usize>)| {
            let Some(need) = *need else {
                return (!node.optional_dependencies).then(|| format!("{id} is not in the tree"));
            };
            match self.nodes[need].status {
                // A divided root is answered by the report, after all nodes.
                NodeStatus::Pending if !self.is_worker[need] => {
                    Some(format!("{id} is the root, which is answered last"))
                }
                NodeStatus::Failed if !node.optional_dependencies => Some(format!("{id} failed")),
                NodeStatus::Blocked if !node.optional_dependencies => Some(format!("{id} is blocked")),
                NodeStatus::Pending if reasons[need].is_some() && !node.optional_dependencies => {
                    Some(format!("{id} is blocked"))
                }
                NodeStatus::Pending
                | NodeStatus::Running
                | NodeStatus::Done
                | NodeStatus::Failed
                | NodeStatus::Blocked => None,
            }
        };
        node.depends_on.iter().zip(self.needs(at)).find_map(why)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::super::simulation::tests::{Shape, shape};
    use super::*;
    use crate::research::node::NodeStatus::{Blocked, Done, Failed, Pending, Running};

    /// Returns a tree of the root and nodes from `n2` on, with the given dependencies.
    pub(in crate::run::scheduler) fn tree(needs: &[&[u32]]) -> Tree {
        let mut tree = Tree::of("why?".parse().unwrap());
        for (number, needs) in (2..).zip(needs) {
            let mut node = Node::new(NodeId::numbered(number), Some(tree.root.clone()), "why?".parse().unwrap(), 1);
            node.depends_on = needs.iter().copied().map(NodeId::numbered).collect();
            tree.nodes.push(node);
        }
        tree
    }

    fn node(tree: &mut Tree, number: u32) -> &mut Node {
        tree.get_mut(&NodeId::numbered(number)).unwrap()
    }

    fn next_of(tree: &Tree, max_parallel: usize) -> Vec<u32> {
        next(tree, &BTreeSet::new(), max_parallel).iter().map(NodeId::number).collect()
    }

    fn blocked_of(tree: &Tree) -> Vec<String> {
        blocked(tree).into_iter().map(|(id, reason)| format!("{id}: {reason}")).collect()
    }

    #[test]
    fn a_root_runs_only_if_it_has_no_children() {
        assert_eq!(next_of(&tree(&[]), 3), [1]);
        assert_eq!(next_of(&tree(&[&[]]), 3), [2]);
    }

    #[test]
    fn the_longest_path_goes_first_then_priority_depth_and_id() {
        let mut tree = tree(&[&[], &[], &[], &[], &[], &[6], &[7]]);
        node(&mut tree, 4).priority = 5;
        node(&mut tree, 5).depth = 0;
        assert_eq!(next_of(&tree, 9), [6, 4, 5, 2, 3]);
        assert_eq!(next_of(&tree, 2), [6, 4]);
    }

    #[test]
    fn settled_nodes_do_not_lengthen_a_path() {
        let mut tree = tree(&[&[], &[2], &[], &[4], &[5]]);
        assert_eq!(next_of(&tree, 9), [4, 2]);
        node(&mut tree, 5).status = Blocked;
        node(&mut tree, 6).status = Blocked;
        assert_eq!(next_of(&tree, 9), [2, 4]);
    }

    #[test]
    fn a_node_is_ready_when_its_dependencies_are_settled() {
        let mut tree = tree(&[&[], &[], &[2, 3]]);
        node(&mut tree, 2).status = Done;
        node(&mut tree, 3).status = Running;
        assert_eq!(next_of(&tree, 9), [0_u32; 0]);
        node(&mut tree, 3).status = Failed;
        assert_eq!(next_of(&tree, 9), [0_u32; 0]);
        node(&mut tree, 4).optional_dependencies = true;
        assert_eq!(next_of(&tree, 9), [4]);
        node(&mut tree, 3).status = Blocked;
        assert_eq!(next_of(&tree, 9), [4]);
    }

    #[test]
    fn running_nodes_take_places_whether_the_tree_or_the_caller_reports_them() {
        let mut tree = tree(&[&[], &[], &[], &[]]);
        node(&mut tree, 2).status = Running;
        let running = BTreeSet::from([NodeId::numbered(2), NodeId::numbered(3)]);
        assert_eq!(next(&tree, &running, 3), [NodeId::numbered(4)]);
        assert!(next(&tree, &running, 2).is_empty());
        assert!(next(&tree, &running, 0).is_empty());
        assert_eq!(next_of(&self::tree(&[&[], &[]]), 0), [2], "zero places would never end");
    }

    #[test]
    fn an_exclusive_node_waits_for_others_and_lets_none_start() {
        let mut tree = tree(&[&[], &[], &[]]);
        node(&mut tree, 3).parallelizable = false;
        assert_eq!(next_of(&tree, 3), [2], "no node overtakes the exclusive one");
        node(&mut tree, 2).status = Running;
        assert_eq!(next_of(&tree, 3), [0_u32; 0]);
        node(&mut tree, 2).status = Done;
        assert_eq!(next_of(&tree, 3), [3]);
        node(&mut tree, 3).status = Running;
        assert_eq!(next_of(&tree, 3), [0_u32; 0]);
        node(&mut tree, 3).status = Done;
        assert_eq!(next_of(&tree, 3), [4]);
    }

    #[test]
    fn dependants_of_a_failed_node_are_blocked_transitively() {
        let mut tree = tree(&[&[], &[2], &[3], &[4], &[]]);
        node(&mut tree, 2).status = Failed;
        assert_eq!(blocked_of(&tree), ["n3: n2 failed", "n4: n3 is blocked", "n5: n4 is blocked"]);
        node(&mut tree, 4).optional_dependencies = true;
        assert_eq!(blocked_of(&tree), ["n3: n2 failed"]);
        assert_eq!(next_of(&tree, 9), [6], "a node with optional dependencies waits until they are settled");
        node(&mut tree, 3).status = Blocked;
        assert_eq!(next_of(&tree, 9), [4, 6]);
    }

    #[test]
    fn nodes_on_a_cycle_or_behind_the_root_or_a_missing_node_are_blocked() {
        let mut tree = tree(&[&[3], &[2], &[1], &[9], &[2]]);
        node(&mut tree, 6).optional_dependencies = true;
        assert_eq!(
            blocked_of(&tree),
            [
                "n2: its dependencies form a cycle",
                "n3: its dependencies form a cycle",
                "n4: n1 is the root, which is answered last",
                "n5: n9 is not in the tree",
                "n6: its dependencies form a cycle",
            ]
        );
        assert_eq!(next_of(&tree, 9), [0_u32; 0]);
    }

    #[test]
    fn a_thousand_nodes_are_scheduled_in_order() {
        let needs: Vec<Vec<u32>> = (2..1_002).map(|number| (2..number).rev().skip(4).take(3).collect()).collect();
        let needs: Vec<&[u32]> = needs.iter().map(Vec::as_slice).collect();
        let mut tree = tree(&needs);
        for first in (2..1_002).step_by(5) {
            let batch: Vec<_> = (first..first + 5).collect();
            assert_eq!(next_of(&tree, 5), batch);
            assert!(blocked(&tree).is_empty());
            for number in batch {
                node(&mut tree, number).status = Done;
            }
        }
        assert_eq!(next_of(&tree, 5), [0_u32; 0]);
    }

    proptest! {
        #[test]
        fn starting_several_equals_starting_the_first_repeatedly(shape in shape(), max_parallel in 1..6_usize) {
            let Shape { mut tree, .. } = shape;
            let together = next(&tree, &BTreeSet::new(), max_parallel);
            let mut one_by_one = Vec::new();
            while one_by_one.len() < max_parallel {
                let best = next(&tree, &BTreeSet::new(), max_parallel);
                let Some(best) = best.first() else { break };
                tree.get_mut(best).unwrap().status = Running;
                one_by_one.push(best.clone());
            }
            prop_assert_eq!(together, one_by_one);
        }

        #[test]
        fn every_run_settles_every_node_whatever_fails(shape in shape(), fails in any::<u64>()) {
            let Shape { mut tree, .. } = shape;
            loop {
                for (id, _) in blocked(&tree) {
                    tree.get_mut(&id).unwrap().status = Blocked;
                }
                let best = next(&tree, &BTreeSet::new(), 3);
                let Some(best) = best.first() else { break };
                let has_failed = fails >> (best.number() % 64) & 1 == 1;
                tree.get_mut(best).unwrap().status = if has_failed { Failed } else { Done };
            }
            prop_assert!(tree.workers().all(|node| node.status != Pending));
        }
    }
}
