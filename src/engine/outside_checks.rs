//! Checks the settings of everything that sends data from this machine. Sends nothing itself.

use super::Engine;
use super::doctor::Check;
use crate::base::line::{counted, with_causes};
use crate::base::money::dollars_text;
use crate::llm::message::Role;
use crate::run::background::{DeepResearchSettings, job_cap};
use crate::source::web::DateRange;

impl Engine {
    /// Checks models, prices, search engine and Deep Research.
    pub(super) fn outside_checks(&self) -> Vec<Check> {
        if self.settings.is_offline() {
            // Checked all the same: the next command may be online.
            let outside = match self.settings.check_outside() {
                Ok(()) => Check::ok("outside", "nothing is asked: dr is offline"),
                Err(error) => Check::failed("outside", &error, error.hint()),
            };
            return vec![outside, self.traces_check()];
        }
        let mut checks = vec![self.models_check(), self.web_check()];
        checks.extend(self.rerank_check());
        checks.push(self.deep_research_check());
        checks.push(Check::ok("prices", format!("built in as of {}", self.settings.prices().as_of)));
        checks.push(self.traces_check());
        checks
    }

    fn traces_check(&self) -> Check {
        match self.traces() {
            Ok(traces) => {
                let texts = if traces.has_texts { "with texts" } else { "without texts" };
                Check::ok("traces", format!("exported to {}, {texts}", traces.address))
            }
            Err(why) => {
                let said = format!("not exported: {}", with_causes(&why));
                if why.is_wanted() { Check::ok("traces", said) } else { Check::note("traces", said) }
            }
        }
    }

    fn models_check(&self) -> Check {
        match self.settings.models() {
            Ok(None) => Check::ok("endpoints", "none configured; rule-based steps are used"),
            Err(error) => Check::failed("endpoints", &error, error.hint()),
            Ok(Some(models)) => match models.unpriced().into_iter().next() {
                Some((role, model)) => {
                    let mend = format!("set `[prices.\"{model}\"]`, or ask with `--max-cost inf`");
                    Check::note("endpoints", format!("price of `{model}` ({role}) is not known")).mend(mend)
                }
                None => {
                    let writer = models.role(Role::Writer);
                    let distinct = models.distinct().len();
                    Check::ok("endpoints", format!("{distinct} in use, the writer at {}", writer.endpoint))
                }
            },
        }
    }

    /// Returns `None` if no reranker is configured.
    fn rerank_check(&self) -> Option<Check> {
        match self.settings.reranker() {
            Ok(Some(reranker)) if !reranker.is_here() => {
                let check = Check::trouble("rerank", format!("{reranker} is not on this machine"));
                Some(check.mend("run `dr model use NAME`, see `dr model list`"))
            }
            Ok(Some(reranker)) if reranker.is_of_run() => {
                Some(Check::ok("rerank", "hits of a run are reranked by its language model"))
            }
            Ok(reranker) => reranker.map(|reranker| Check::ok("rerank", format!("hits are reranked by {reranker}"))),
            Err(error) => Some(Check::failed("rerank", &error, error.hint())),
        }
    }

    fn web_check(&self) -> Check {
        // Nothing is fetched, so the folder of pages does not matter.
        match self.settings.web(std::path::PathBuf::new(), DateRange::default()) {
            Ok(Some(web)) if web.can_search => Check::ok("web", web.source.scope()),
            Ok(_) => Check::ok("web", "no search engine is set up"),
            Err(error) => Check::failed("web", &error, error.hint()),
        }
    }

    fn deep_research_check(&self) -> Check {
        let name = "deep research";
        match self.settings.deep_research() {
            Ok(None) => Check::ok(name, "no endpoint is set up for it"),
            Err(error) => Check::failed(name, &error, error.hint()),
            Ok(Some(settings)) if settings.max_jobs == 0 => Check::ok(name, "turned off: `max_jobs` is 0"),
            Ok(Some(settings)) => self.jobs_check(name, &settings),
        }
    }

    fn jobs_check(&self, name: &'static str, settings: &DeepResearchSettings) -> Check {
        if matches!(self.settings.models(), Ok(None)) {
            let detail = "set up, and never started: a run without a language model has no jobs";
            return Check::note(name, detail).mend("set up a language model in `[models]`");
        }
        let models = settings.models.join(", ");
        let prices = self.settings.prices();
        let is_priced = settings.models.iter().any(|model| settings.price(model, &prices).is_some());
        if self.settings.limits().cost_nanos.is_some() && !is_priced {
            let mend =
                "set `[prices.\"MODEL\"]`, `local = true` for a server of your own, or ask with `--max-cost inf`";
            let detail =
                format!("price of `{models}` is not known, so no job is started while the cost of a run is limited");
            return Check::note(name, detail).mend(mend);
        }
        // The first model that the provider has is used.
        let first = settings.models.first().and_then(|model| settings.price(model, &prices));
        let cost = match job_cap(settings, first.as_ref()) {
            Some(0) => "free".to_owned(),
            Some(cap) => format!("{} each set aside", dollars_text(cap)),
            None => "at an unknown price".to_owned(),
        };
        let jobs = counted(settings.max_jobs, "job");
        Check::ok(name, format!("up to {jobs} a run, {cost}, at {}: {models}", settings.address))
    }
}
