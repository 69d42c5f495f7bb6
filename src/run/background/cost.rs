//! The cost of a job, as far as its reply reports it.

use super::report::JobReport;
use crate::llm::price::Price;

/// Cost of a job. Unknown parts are flagged, not counted as zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobCost {
    /// Sum of the known parts in billionths of a dollar; `None` if no part is known.
    pub(crate) nanos: Option<u64>,
    /// Whether a part is unknown, so that the actual cost is higher.
    pub(crate) has_unknown: bool,
}

impl JobCost {
    /// Computes the cost of a report at the price of its model.
    ///
    /// A job makes many requests and reports the sum of their tokens. If the price has a higher tier for long requests,
    /// the sum is charged as a single request, which never undercounts.
    pub(crate) fn of(report: &JobReport, price: Option<&Price>) -> Self {
        let Some(price) = price else { return Self { nanos: None, has_unknown: true } };
        if *price == Price::FREE {
            return Self { nanos: Some(0), has_unknown: false };
        }
        let tokens = report.usage.as_ref().map(|usage| price.cost_nanos(usage));
        let searches = report.web_searches.and_then(|searches| match searches {
            0 => Some(0),
            some => price.searches_nanos(some),
        });
        // Each code container is billed too, but replies do not report their number.
        let has_unknown = tokens.is_none() || searches.is_none() || report.code_runs > 0;
        let nanos = match (tokens, searches) {
            (None, None) => None,
            (tokens, searches) => Some(tokens.unwrap_or(0).saturating_add(searches.unwrap_or(0))),
        };
        Self { nanos, has_unknown }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::llm::message::Usage;
    use crate::llm::price::{PriceOptions, PriceTable};

    fn price(model: &str) -> Price {
        PriceTable::with(&BTreeMap::new()).find(model).unwrap()
    }

    fn report(usage: Option<Usage>, web_searches: Option<u64>) -> JobReport {
        JobReport { usage, web_searches, ..JobReport::default() }
    }

    const USAGE: Usage =
        Usage { input_tokens: 60_506, cached_tokens: 0, output_tokens: 22_883, reasoning_tokens: 20_416 };

    #[test]
    fn job_costs_its_tokens_and_its_searches() {
        let cost = JobCost::of(&report(Some(USAGE), Some(45)), Some(&price("o4-mini-deep-research")));
        let nanos = 60_506 * 2_000 + 22_883 * 8_000 + 45 * 10_000_000;
        assert_eq!(cost, JobCost { nanos: Some(nanos), has_unknown: false });
    }

    #[test]
    fn unknown_part_stays_unknown() {
        let price = price("gpt-6-sol");
        let tokens = price.cost_nanos(&USAGE);
        let coded = JobReport { code_runs: 2, ..report(Some(USAGE), Some(0)) };
        for (report, nanos) in [
            (report(Some(USAGE), None), Some(tokens)),
            (report(None, Some(2)), Some(20_000_000)),
            (report(None, None), None),
            (coded, Some(tokens)),
        ] {
            assert_eq!(JobCost::of(&report, Some(&price)), JobCost { nanos, has_unknown: true });
        }
        assert_eq!(JobCost::of(&report(Some(USAGE), Some(2)), None), JobCost { nanos: None, has_unknown: true });
    }

    #[test]
    fn search_without_a_price_has_an_unknown_cost_and_no_search_is_free() {
        let options: PriceOptions = serde_json::from_str(r#"{ "input": 1, "output": 1 }"#).unwrap();
        let price = Price::of(&options);
        assert!(JobCost::of(&report(Some(USAGE), Some(1)), Some(&price)).has_unknown);
        assert!(!JobCost::of(&report(Some(USAGE), Some(0)), Some(&price)).has_unknown);
    }

    #[test]
    fn free_model_has_a_known_cost_of_zero() {
        assert_eq!(
            JobCost::of(&report(None, None), Some(&Price::FREE)),
            JobCost { nanos: Some(0), has_unknown: false }
        );
    }
}
