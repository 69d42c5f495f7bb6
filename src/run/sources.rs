//! Where the evidence of a run comes from, put together for one node: cached, heard, and guarded on the way out.

use std::sync::Arc;

use super::cache::{Cache, normalised};
use super::egress::{Egress, Heard, Outgoing, Patience};
use super::journal::Lookup;
use super::named::Named;
use super::reader::{Reader, Reading};
use crate::research::node::{Node, NodeId};
use crate::research::question::Question;
use crate::research::route::Route;
use crate::source::deep_research::JobReport;
use crate::source::{Found, Label, MixedSource, Passage, Source, Support};

/// Where evidence can come from.
#[derive(Clone)]
pub struct Sources {
    /// The knowledge base.
    pub internal: Arc<dyn Source>,
    /// The web, where there is a search engine for it.
    pub web: Option<Arc<dyn Source>>,
    /// Pages of the web that somebody else names, where they may be fetched.
    pub pages: Option<Arc<dyn Source>>,
}

/// The sources of one run.
#[derive(Clone)]
pub struct RunSources {
    /// Where they come from.
    pub sources: Sources,
    /// What they have said.
    pub cache: Cache,
    /// What may be said to them.
    pub egress: Egress,
    /// See [`crate::run::event::RunSettings::source_version`].
    pub internal_version: String,
    /// What the user asked.
    pub question: Question,
    /// How long answers from outside are waited for.
    pub patience: Patience,
    /// How pages are read.
    pub reading: Reading,
    /// The day the run began: what the web said is used again on that day.
    pub day: String,
}

impl RunSources {
    /// Tells whether the web can be searched.
    pub fn can_search(&self) -> bool {
        self.sources.web.is_some()
    }

    /// Returns how a node is looked up among those that jobs were started for; `version` says what their reports depend on,
    /// and `asked` is all the user asked for: the same words mean the same only within that. A report on texts that
    /// somebody let leave is none for a run in which they may not.
    pub fn job_lookup(&self, node: &Node, asked: &str, version: &str) -> Lookup {
        Lookup {
            node: node.id.clone(),
            tool: "deep_research".to_owned(),
            query: format!("{}\n{asked}", normalised(node.question.as_str())),
            scope: "the web".to_owned(),
            label: Label::Public,
            version: format!("{version} {} {}", self.day, self.egress.is_open()),
        }
    }

    /// Returns the pages a job cites, for a node; only those it cites can be opened. They are for code to check, so they
    /// come whole.
    pub fn pages(&self, node: &Node, report: &JobReport) -> Option<Arc<dyn Source>> {
        let pages = self.sources.pages.as_ref()?;
        let cited = report.citations.iter();
        let cited = cited.map(|citation| Passage::unread(citation.url.clone(), citation.title.clone()));
        pages.recognise(&Found { passages: cited.collect(), support: Support::None, notes: Vec::new() });
        let outgoing =
            Outgoing::new(Arc::clone(pages), self.egress.clone(), node.id.clone(), false, self.patience.clone());
        let cached = self.cache.source(Arc::new(outgoing), node.id.clone(), self.version_today(pages));
        Some(Arc::new(Heard::new(Arc::new(cached), self.egress.clone())))
    }

    /// Returns what a node is looked into with; pages of the web are read for `question`, as who looks outside may see it.
    pub fn of_node(&self, route: Route, node: &Node, question: &Question) -> Arc<dyn Source> {
        match (route, &self.sources.web) {
            (Route::Web | Route::DeepResearch, Some(web)) => {
                Arc::new(Named::new(self.outside(web, &node.id, question, false), &self.question))
            }
            (Route::Mixed, Some(web)) => {
                let outside = self.outside(web, &node.id, question, true);
                let both = MixedSource::new(self.inside(&node.id), outside);
                Arc::new(Named::new(Arc::new(both), &self.question))
            }
            _ => self.inside(&node.id),
        }
    }

    fn inside(&self, node: &NodeId) -> Arc<dyn Source> {
        let internal = Arc::clone(&self.sources.internal);
        let cached = self.cache.source(internal, node.clone(), self.internal_version.clone());
        Arc::new(Heard::new(Arc::new(cached), self.egress.clone()))
    }

    /// Returns the web for a node; what a worker that has seen the knowledge base asks is worded anew.
    fn outside(
        &self,
        web: &Arc<dyn Source>,
        node: &NodeId,
        question: &Question,
        has_seen_inside: bool,
    ) -> Arc<dyn Source> {
        let outgoing =
            Outgoing::new(Arc::clone(web), self.egress.clone(), node.clone(), has_seen_inside, self.patience.clone());
        let reader = Reader::new(Arc::new(outgoing), self.reading.clone(), node.clone(), question.clone());
        let cached = self.cache.source(Arc::new(reader), node.clone(), self.version_today(web)).read_for(question);
        Arc::new(Heard::new(Arc::new(cached), self.egress.clone()))
    }

    fn version_today(&self, web: &Arc<dyn Source>) -> String {
        format!("{} {}", web.version(), self.day)
    }
}
