//! A Node becomes a Route: where its evidence is looked for, and why there.

use serde::{Deserialize, Serialize};

use super::node::{Node, SourceHint};

/// Which way a node is looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// The knowledge base.
    Internal,
    /// The web, by a worker of our own.
    Web,
    /// The web, by a job at a provider's.
    DeepResearch,
    /// The knowledge base, then the web for what is missing.
    Mixed,
    /// The knowledge base, then a job for what is missing.
    MixedDeepResearch,
}

impl Route {
    /// Tells whether the knowledge base is asked.
    pub fn is_inside(self) -> bool {
        matches!(self, Self::Internal | Self::Mixed | Self::MixedDeepResearch)
    }

    /// Tells whether a job is started, or may be.
    pub fn has_job(self) -> bool {
        matches!(self, Self::DeepResearch | Self::MixedDeepResearch)
    }
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Internal => "internal",
            Self::Web => "web",
            Self::DeepResearch => "deep research",
            Self::Mixed => "mixed",
            Self::MixedDeepResearch => "mixed, with deep research",
        })
    }
}

/// Whether a job may be started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobWay {
    /// Nothing is set up for it.
    #[default]
    Closed,
    /// As many were started as may be.
    UsedUp,
    /// What would be set aside for one does not fit what is left of the money.
    TooDear,
    /// It may.
    Open,
}

/// The ways out there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// Whether the web can be searched.
    pub web: bool,
    /// Whether a job may be started.
    pub job: JobWay,
    /// Whether a node for the web waits in vain where neither is there; else the knowledge base is asked, which may have
    /// the answer, and says so where it has not.
    pub is_strict: bool,
}

/// Picks the way for a node, as its plan hints; nothing where there is none, with the reason.
///
/// # Errors
///
/// Returns why no way leads there.
pub fn route(node: &Node, ways: Ways) -> Result<(Route, &'static str), &'static str> {
    match (node.source_hint, ways) {
        (SourceHint::Internal, _) => Ok((Route::Internal, "planned for the knowledge base")),
        (SourceHint::Web, Ways { job: JobWay::Open, .. }) => {
            Ok((Route::DeepResearch, "planned for the web, by Deep Research"))
        }
        (SourceHint::Web, Ways { web: true, .. }) => Ok((Route::Web, "planned for the web")),
        (SourceHint::Web, Ways { is_strict: true, job, .. }) => Err(why_no_way(job)),
        (SourceHint::Web, _) => Ok((Route::Internal, "planned for the web, for which there is no source")),
        (SourceHint::Mixed, Ways { web: true, .. }) => {
            Ok((Route::Mixed, "planned for both: the knowledge base first, then what is missing"))
        }
        (SourceHint::Mixed, Ways { job: JobWay::Open, .. }) => Ok((
            Route::MixedDeepResearch,
            "planned for both: the knowledge base first, then Deep Research for the rest",
        )),
        (SourceHint::Mixed, Ways { job: JobWay::Closed, .. }) => {
            Ok((Route::Internal, "planned for both, and there is no source for the web"))
        }
        (SourceHint::Mixed, _) => Ok((Route::Internal, "planned for both, and no more jobs may be started")),
    }
}

/// Says why a node for the web goes nowhere where nothing can be searched.
fn why_no_way(job: JobWay) -> &'static str {
    match job {
        JobWay::UsedUp => "it is planned for the web, and as many jobs were started as may be (`--deep-research-max`)",
        JobWay::TooDear => {
            "it is planned for the web, and what is set aside for a job of Deep Research (`max_cost`) is more than is \
             left of the money (`--max-cost`)"
        }
        JobWay::Closed | JobWay::Open => "it is planned for the web, and no search engine or Deep Research is set up",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::node::NodeId;

    #[test]
    fn node_takes_the_way_its_plan_hints_where_there_is_a_source() {
        let mut node = Node::new(NodeId::numbered(2), None, "why?".parse().unwrap(), 1);
        let job = |may_start| if may_start { JobWay::Open } else { JobWay::Closed };
        let ways = |web, may_start, is_strict| Ways { web, job: job(may_start), is_strict };
        let all = [ways(true, true, true), ways(true, false, true), ways(false, true, true), ways(false, false, false)];
        let mut routes = |hint| {
            node.source_hint = hint;
            all.map(|ways| route(&node, ways).unwrap().0)
        };
        assert_eq!(routes(SourceHint::Internal), [Route::Internal; 4]);
        assert_eq!(routes(SourceHint::Web), [Route::DeepResearch, Route::Web, Route::DeepResearch, Route::Internal]);
        assert_eq!(routes(SourceHint::Mixed), [Route::Mixed, Route::Mixed, Route::MixedDeepResearch, Route::Internal]);
        node.source_hint = SourceHint::Web;
        assert!(route(&node, ways(false, false, true)).unwrap_err().contains("no search engine"));
        for (job, why) in [(JobWay::UsedUp, "--deep-research-max"), (JobWay::TooDear, "--max-cost")] {
            let ways = Ways { job, ..ways(false, false, true) };
            assert!(route(&node, ways).unwrap_err().contains(why));
            assert_eq!(route(&node, Ways { web: true, ..ways }).unwrap().0, Route::Web);
        }
    }
}
