//! A Node becomes a Route: where its evidence is looked for, and why there.

use serde::{Deserialize, Serialize};

use super::node::{Node, SourceHint};

/// Which way a node is looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// The knowledge base.
    Internal,
    /// The web.
    Web,
    /// The knowledge base, then the web for what is missing.
    Mixed,
}

/// Picks the way for a node: as its plan hints, where there is a source for that.
///
/// The knowledge base is asked where the web cannot be: it may have the answer, and says so where it has not.
pub fn route(node: &Node, has_web: bool) -> (Route, &'static str) {
    match (node.source_hint, has_web) {
        (SourceHint::Internal, _) => (Route::Internal, "planned for the knowledge base"),
        (SourceHint::Web, true) => (Route::Web, "planned for the web"),
        (SourceHint::Mixed, true) => (Route::Mixed, "planned for both: the knowledge base first, then what is missing"),
        (SourceHint::Web, false) => (Route::Internal, "planned for the web, for which there is no source"),
        (SourceHint::Mixed, false) => (Route::Internal, "planned for both, and there is no source for the web"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::node::NodeId;

    #[test]
    fn node_takes_the_way_its_plan_hints_where_there_is_a_source() {
        let mut node = Node::new(NodeId::numbered(2), None, "why?".parse().unwrap(), 1);
        let ways = [SourceHint::Internal, SourceHint::Web, SourceHint::Mixed].map(|hint| {
            node.source_hint = hint;
            (route(&node, true).0, route(&node, false).0)
        });
        let (internal, web, mixed) = (Route::Internal, Route::Web, Route::Mixed);
        assert_eq!(ways, [(internal, internal), (web, internal), (mixed, internal)]);
    }
}
