//! Routes a node: selects the source of its evidence and gives the reason.

use serde::{Deserialize, Serialize};

use super::node::{Node, SourceHint};

/// The source of a node's evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// The knowledge base.
    Internal,
    /// The web, searched by a worker.
    Web,
    /// The web, by a background job.
    DeepResearch,
    /// The knowledge base, then the web for the aspects that stay open.
    Mixed,
    /// The knowledge base, then a job for the aspects that stay open.
    MixedDeepResearch,
}

impl Route {
    /// Returns whether a job is or may be started.
    pub(crate) fn has_job(self) -> bool {
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
pub(crate) enum JobWay {
    /// Deep Research is not configured, or not allowed.
    #[default]
    Closed,
    /// A limit of the run prevents it.
    Limited(NoJob),
    /// A job may be started.
    Open,
}

/// The limit that a job would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoJob {
    #[error("the limit of Deep Research jobs is reached (`--deep-research-max`)")]
    UsedUp,
    /// The cap of a job exceeds the remaining cost limit.
    #[error("the cap of a Deep Research job (`max_cost`) exceeds what is left of the cost limit (`--max-cost`)")]
    TooDear,
}

/// Availability of the sources for the web.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ways {
    /// Whether the web can be searched.
    pub(crate) web: bool,
    /// Whether a job may be started.
    pub(crate) job: JobWay,
    /// Whether `dr` is offline.
    pub(crate) is_offline: bool,
    /// Whether a node for the web is blocked if no source for the web is available. Otherwise it searches the knowledge
    /// base, which may have the answer, and the report says that the web was not searched.
    pub(crate) is_strict: bool,
}

/// The reason that the web is not searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoWay {
    #[error("`dr` is offline")]
    Offline,
    /// No source for the web is set up.
    #[error("no search engine is set up, and Deep Research is unavailable")]
    Nothing,
    /// There is no search engine, and a limit leaves no room for a job.
    #[error("no search engine is set up, and {0}")]
    NoJob(NoJob),
}

/// A planned means that is not available to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Without {
    #[error("the web was not searched: {0}")]
    Web(NoWay),
    /// A job: a worker searches the web instead.
    #[error("the web was searched without Deep Research: {0}")]
    Job(NoJob),
}

impl Ways {
    fn no_way(self) -> NoWay {
        match self.job {
            _ if self.is_offline => NoWay::Offline,
            JobWay::Limited(why) => NoWay::NoJob(why),
            JobWay::Closed | JobWay::Open => NoWay::Nothing,
        }
    }
}

/// The route of a node, with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) route: Route,
    /// The reason, as events print it.
    pub(crate) why: &'static str,
    /// The planned means that is not available, for the report.
    pub(crate) without: Option<Without>,
}

/// Why a node that only concludes takes its route.
const CONCLUDES: &str = "only concludes from what other nodes found";

/// Selects the route of a node by its source hint.
///
/// # Errors
///
/// Returns the reason if a node for the web alone has no source to search.
pub(crate) fn route(node: &Node, ways: Ways) -> Result<Way, NoWay> {
    let way = |route, why| Ok(Way { route, why, without: None });
    let inside = |why| Ok(Way { route: Route::Internal, why, without: Some(Without::Web(ways.no_way())) });
    match (node.source_hint, ways) {
        // First: it looks nothing up, so it starts no job, and a missing source does not block it.
        (SourceHint::Web, _) if node.only_concludes() => way(Route::Web, CONCLUDES),
        (SourceHint::Internal | SourceHint::Mixed, _) if node.only_concludes() => way(Route::Internal, CONCLUDES),
        (SourceHint::Internal, _) => way(Route::Internal, "planned for the knowledge base"),
        (SourceHint::Web, Ways { job: JobWay::Open, .. }) => {
            way(Route::DeepResearch, "planned for the web, by Deep Research")
        }
        (SourceHint::Web, Ways { web: true, job: JobWay::Limited(why), .. }) => {
            Ok(Way { route: Route::Web, why: "planned for the web", without: Some(Without::Job(why)) })
        }
        (SourceHint::Web, Ways { web: true, .. }) => way(Route::Web, "planned for the web"),
        (SourceHint::Web, Ways { is_strict: true, .. }) => Err(ways.no_way()),
        (SourceHint::Web, _) => inside("planned for the web, but no source for it is available"),
        (SourceHint::Mixed, Ways { web: true, .. }) => {
            way(Route::Mixed, "planned for both: the knowledge base first, then the web for what it leaves open")
        }
        (SourceHint::Mixed, Ways { job: JobWay::Open, .. }) => way(
            Route::MixedDeepResearch,
            "planned for both: the knowledge base first, then Deep Research for what it leaves open",
        ),
        (SourceHint::Mixed, _) => inside("planned for both, but no source for the web is available"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::research::node::{NodeId, Tool};

    #[test]
    fn node_takes_the_way_its_plan_hints_where_there_is_a_source() {
        let mut node = Node::new(NodeId::numbered(2), None, "why?".parse().unwrap(), 1);
        let job = |may_start| if may_start { JobWay::Open } else { JobWay::Closed };
        let ways = |web, may_start, is_strict| Ways { web, job: job(may_start), is_strict, is_offline: false };
        let all = [ways(true, true, true), ways(true, false, true), ways(false, true, true), ways(false, false, false)];
        let mut routes = |hint| {
            node.source_hint = hint;
            all.map(|ways| route(&node, ways).unwrap().route)
        };
        assert_eq!(routes(SourceHint::Internal), [Route::Internal; 4]);
        assert_eq!(routes(SourceHint::Web), [Route::DeepResearch, Route::Web, Route::DeepResearch, Route::Internal]);
        assert_eq!(routes(SourceHint::Mixed), [Route::Mixed, Route::Mixed, Route::MixedDeepResearch, Route::Internal]);
    }

    #[test]
    fn node_that_only_concludes_needs_no_source_and_starts_no_job() {
        let mut node = Node::new(NodeId::numbered(4), None, "how do they differ?".parse().unwrap(), 1);
        node.tools = vec![Tool::Conclude];
        for job in [JobWay::Open, JobWay::Limited(NoJob::UsedUp), JobWay::Closed] {
            let ways = Ways { web: false, job, is_offline: false, is_strict: true };
            let hints = [SourceHint::Internal, SourceHint::Web, SourceHint::Mixed];
            let taken = hints.map(|source_hint| {
                let way = route(&Node { source_hint, ..node.clone() }, ways).unwrap();
                assert_eq!(way.without, None);
                way.route
            });
            assert_eq!(taken, [Route::Internal, Route::Web, Route::Internal]);
        }
    }

    #[test]
    fn way_that_is_missing_is_named_with_its_reason() {
        let mut node = Node::new(NodeId::numbered(2), None, "why?".parse().unwrap(), 1);
        let limited = |why| (JobWay::Limited(why), false, NoWay::NoJob(why), Some(Without::Job(why)));
        for (job, is_offline, why, passed_over) in [
            (JobWay::Closed, false, NoWay::Nothing, None),
            limited(NoJob::UsedUp),
            limited(NoJob::TooDear),
            (JobWay::Closed, true, NoWay::Offline, None),
        ] {
            let ways = Ways { web: false, job, is_offline, is_strict: true };
            node.source_hint = SourceHint::Web;
            assert_eq!(route(&node, ways), Err(why));
            assert_eq!(route(&node, Ways { is_strict: false, ..ways }).unwrap().without, Some(Without::Web(why)));
            let searched = route(&node, Ways { web: true, ..ways }).unwrap();
            assert_eq!((searched.route, searched.without), (Route::Web, passed_over));
            node.source_hint = SourceHint::Mixed;
            assert_eq!(route(&node, ways).unwrap().without, Some(Without::Web(why)));
            assert_eq!(route(&node, Ways { web: true, ..ways }).unwrap().without, None, "it wants no job");
        }
    }
}
