//! The scheduler in virtual time, for known durations.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use super::policy;
use crate::research::node::{NodeId, NodeStatus, Tree};

/// Result of a simulated run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Simulation {
    /// Time at which the last node finished.
    pub makespan: Duration,
    /// Start time of each node, in order of starting.
    pub(crate) starts: Vec<(NodeId, Duration)>,
}

/// Runs a tree in virtual time with up to `max_parallel` nodes at once. No node fails.
///
/// Nodes without a duration take no time. Nodes that can never run are not in the result.
pub fn simulate(tree: &Tree, durations: &BTreeMap<NodeId, Duration>, max_parallel: usize) -> Simulation {
    let mut tree = tree.clone();
    let mut running = BTreeSet::new();
    let mut ends = BinaryHeap::new();
    let mut simulation = Simulation::default();
    loop {
        let now = simulation.makespan;
        for id in policy::next(&tree, &running, max_parallel) {
            let duration = durations.get(&id).copied().unwrap_or_default();
            ends.push(Reverse((now.saturating_add(duration), id.clone())));
            running.insert(id.clone());
            simulation.starts.push((id, now));
        }
        let Some(Reverse((end, id))) = ends.pop() else { return simulation };
        simulation.makespan = end;
        running.remove(&id);
        if let Some(node) = tree.get_mut(&id) {
            node.status = NodeStatus::Done;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::research::node::Node;

    /// A pending tree and the duration of each node.
    #[derive(Clone, Debug)]
    pub(in crate::run::scheduler) struct Shape {
        pub(in crate::run::scheduler) tree: Tree,
        pub(in crate::run::scheduler) durations: BTreeMap<NodeId, Duration>,
    }

    impl Shape {
        fn work(&self) -> Duration {
            self.durations.values().sum()
        }

        /// Returns the duration of the longest chain of dependencies.
        fn critical_path(&self) -> Duration {
            let mut ends: BTreeMap<&NodeId, Duration> = BTreeMap::new();
            for node in self.tree.workers() {
                let start = node.depends_on.iter().map(|id| ends[id]).max().unwrap_or_default();
                ends.insert(&node.id, start + self.durations[&node.id]);
            }
            ends.into_values().max().unwrap_or_default()
        }

        fn random(random: &mut StdRng, nodes: u32, edges: f64, exclusive: f64) -> Self {
            let mut tree = Tree::of("why?".parse().unwrap());
            let mut durations = BTreeMap::new();
            for number in 2..nodes + 2 {
                let parent = NodeId::numbered(random.random_range(1..number));
                let depth = tree.get(&parent).unwrap().depth + 1;
                let parent = if depth > 3 { tree.root.clone() } else { parent };
                let depth = if depth > 3 { 1 } else { depth };
                let mut node = Node::new(NodeId::numbered(number), Some(parent), "why?".parse().unwrap(), depth);
                let near = number.saturating_sub(12).max(2)..number;
                node.depends_on = near.filter(|_| random.random_bool(edges)).map(NodeId::numbered).collect();
                node.parallelizable = !random.random_bool(exclusive);
                // About one node in seven takes ten times as long, like a Deep Research job.
                let seconds = random.random_range(1..60_u64) * if random.random_bool(0.15) { 10 } else { 1 };
                durations.insert(node.id.clone(), Duration::from_secs(seconds));
                tree.nodes.push(node);
            }
            Self { tree, durations }
        }
    }

    prop_compose! {
        pub(in crate::run::scheduler) fn shape()(
            seed in any::<u64>(),
            nodes in 1..40_u32,
            edges in 0.0..0.5_f64,
            exclusive in prop_oneof![Just(0.0), 0.0..0.4_f64],
        ) -> Shape {
            Shape::random(&mut StdRng::seed_from_u64(seed), nodes, edges, exclusive)
        }
    }

    #[test]
    fn a_node_starts_when_its_dependencies_finish() {
        let Shape { mut tree, .. } = Shape::random(&mut StdRng::seed_from_u64(1), 3, 0.0, 0.0);
        tree.nodes[3].depends_on = vec![NodeId::numbered(2)];
        let seconds = |number: u32, seconds| (NodeId::numbered(number), Duration::from_secs(seconds));
        let durations = BTreeMap::from([seconds(2, 1), seconds(3, 10), seconds(4, 2)]);
        let simulation = simulate(&tree, &durations, 2);
        assert_eq!(simulation.starts, [seconds(2, 0), seconds(3, 0), seconds(4, 1)]);
        assert_eq!(simulation.makespan, Duration::from_secs(10));
    }

    proptest! {
        #[test]
        fn makespan_stays_within_two_of_the_lower_bound(shape in shape(), max_parallel in 1..8_u32) {
            let mut shape = shape;
            for node in &mut shape.tree.nodes {
                node.parallelizable = true;
            }
            let makespan = simulate(&shape.tree, &shape.durations, max_parallel as usize).makespan;
            let lower = shape.critical_path().max(shape.work() / max_parallel);
            prop_assert!(makespan >= shape.critical_path());
            // Integer division of durations loses nanoseconds.
            let bound = lower * (2 * max_parallel - 1) / max_parallel + Duration::from_micros(1);
            prop_assert!(makespan <= bound, "{:?} above {:?}", makespan, bound);
        }

        #[test]
        fn every_node_runs_once_after_its_dependencies_and_alone_if_exclusive(shape in shape(), max_parallel in 1..8_usize) {
            let simulation = simulate(&shape.tree, &shape.durations, max_parallel);
            let starts: BTreeMap<_, _> = simulation.starts.iter().cloned().collect();
            prop_assert_eq!(starts.len(), simulation.starts.len());
            prop_assert_eq!(starts.len(), shape.tree.workers().count());
            let end = |id: &NodeId| starts[id] + shape.durations[id];
            for node in shape.tree.workers() {
                prop_assert!(node.depends_on.iter().all(|id| end(id) <= starts[&node.id]));
                let beside = shape.tree.workers().filter(|other| {
                    starts[&other.id] <= starts[&node.id] && starts[&node.id] < end(&other.id)
                });
                let beside = beside.count();
                prop_assert!(beside <= max_parallel);
            }
            for alone in shape.tree.workers().filter(|node| !node.parallelizable) {
                let (from, to) = (starts[&alone.id], end(&alone.id));
                let is_beside = |other: &&Node| other.id != alone.id && starts[&other.id] < to && from < end(&other.id);
                prop_assert_eq!(shape.tree.workers().filter(is_beside).count(), 0);
            }
        }
    }
}
