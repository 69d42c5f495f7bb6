//! The request for a run, checked before anything is indexed, written or charged.

use std::fmt::Display;
use std::time::Duration;

use crate::base::line::shortened;
use crate::base::money::nanos;
use crate::kb::search::{Scope, SearchOptions};
use crate::llm::structured;
use crate::research::plan::SavedPlan;
use crate::research::question::{self, Brief, BriefError, Question, QuestionError, RequiredError};
use crate::run::budget::{BudgetLimits, LimitsByPlan};
use crate::run::event::RunRequest;

/// A question and how to answer it.
#[derive(Clone, Debug)]
pub(crate) struct AskRequest {
    pub(crate) question: Question,
    /// The part of the request that the run records.
    pub(crate) run: RunRequest,
    /// A plan to use instead of making one.
    pub(crate) plan: Option<SavedPlan>,
    /// The earlier run this question follows up, by its id or a prefix of it.
    pub(crate) follow: Option<String>,
    /// Most Deep Research jobs this run may start; `None` uses the settings.
    pub(crate) max_jobs: Option<usize>,
    /// Limits in place of those of the settings, and no higher.
    pub(crate) lower: Amounts,
    /// Whether the question is asked again even if an earlier run answered it, with nothing that earlier runs found.
    pub(crate) fresh: bool,
}

/// Amounts of each limit of a run, as a caller names them. `None` leaves a limit as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Amounts {
    /// US dollars.
    pub(crate) dollars: Option<f64>,
    pub(crate) tokens: Option<u64>,
    pub(crate) time: Option<Duration>,
    pub(crate) rounds: Option<u32>,
}

impl Amounts {
    /// Returns these amounts as limits, with `limits` where none is named.
    ///
    /// # Errors
    ///
    /// Returns [`RequestError::AboveLimit`] for the first amount above `limits`.
    pub(super) fn capped_by(&self, limits: BudgetLimits) -> Result<BudgetLimits, RequestError> {
        // Limits are billionths of a dollar, which a `Duration` of as many nanoseconds converts.
        let dollars = |nanos: u64| Duration::from_nanos(nanos).as_secs_f64();
        if self.dollars.is_some_and(|dollars| !(dollars.is_finite() && dollars >= 0.0)) {
            return Err(RequestError::NoAmount { name: MAX_COST });
        }
        let most = limits.cost_nanos.map(dollars);
        lower(MAX_COST, self.dollars, most, |dollars| format!("{dollars} dollars"))?;
        lower("max_tokens", self.tokens, limits.tokens, ToString::to_string)?;
        lower("max_seconds", self.time, limits.time, |time| format!("{} seconds", time.as_secs()))?;
        lower("max_rounds", self.rounds, limits.rounds, ToString::to_string)?;
        Ok(BudgetLimits {
            cost_nanos: self.dollars.map(nanos).or(limits.cost_nanos),
            tokens: self.tokens.or(limits.tokens),
            time: self.time.or(limits.time),
            rounds: self.rounds.or(limits.rounds),
        })
    }

    /// Raises `limits` to these amounts. A limit that is higher stays, and one that is not set stays unset.
    pub(super) fn raised_to(&self, limits: BudgetLimits) -> BudgetLimits {
        BudgetLimits {
            // `None` is no limit and yet the least `Option`: `and` keeps it from being replaced by an amount.
            cost_nanos: limits.cost_nanos.max(limits.cost_nanos.and(self.dollars.map(nanos))),
            tokens: limits.tokens.max(limits.tokens.and(self.tokens)),
            time: limits.time.max(limits.time.and(self.time)),
            rounds: limits.rounds.max(limits.rounds.and(self.rounds)),
        }
    }

    /// Raises `limits` by these amounts. A limit that is not set stays unset.
    pub(super) fn raised_by(&self, limits: BudgetLimits) -> BudgetLimits {
        let dollars = self.dollars.map(nanos).unwrap_or_default();
        BudgetLimits {
            cost_nanos: limits.cost_nanos.map(|limit| limit.saturating_add(dollars)),
            tokens: limits.tokens.map(|limit| limit.saturating_add(self.tokens.unwrap_or_default())),
            time: limits.time.map(|limit| limit.saturating_add(self.time.unwrap_or_default())),
            rounds: limits.rounds.map(|limit| limit.saturating_add(self.rounds.unwrap_or_default())),
        }
    }

    /// Returns which limits the plan still decides: those that the caller has not set.
    pub(super) fn over(&self, by_plan: LimitsByPlan) -> LimitsByPlan {
        LimitsByPlan {
            tokens: by_plan.tokens.filter(|_| self.tokens.is_none()),
            time: by_plan.time.filter(|_| self.time.is_none()),
        }
    }
}

const MAX_COST: &str = "max_cost";

fn lower<T: PartialOrd, S: Display>(
    name: &'static str,
    wanted: Option<T>,
    most: Option<T>,
    shown: impl Fn(&T) -> S,
) -> Result<(), RequestError> {
    match (wanted, most) {
        (Some(wanted), Some(most)) if wanted > most => {
            Err(RequestError::AboveLimit { name, wanted: shown(&wanted).to_string(), most: shown(&most).to_string() })
        }
        _ => Ok(()),
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("query has no words")]
    NoWords,
    /// The question is empty or too long.
    #[error("question: {0}")]
    Question(QuestionError),
    #[error("`max_rounds` must be at least 1")]
    NoRounds,
    #[error("required aspects: {0}")]
    Required(RequiredError),
    #[error("output schema is not a JSON Schema: {reason}")]
    Schema { reason: String },
    #[error("plan has no nodes")]
    EmptyPlan,
    /// The brief of a plan exceeds a limit.
    #[error(transparent)]
    Brief(BriefError),
    #[error("`{0}` is not a day")]
    Day(String),
    /// The range of days is empty.
    #[error("no day is on or after {since} and on or before {until}")]
    Days { since: String, until: String },
    #[error("`{name}` is {wanted}, and the limit is {most}")]
    AboveLimit { name: &'static str, wanted: String, most: String },
    #[error("`{name}` is not an amount")]
    NoAmount { name: &'static str },
    #[error("`{glob}` is not a glob: {reason}")]
    Glob { glob: String, reason: String },
}

impl RequestError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Day(_) => Some("write it as YYYY-MM-DD, for example 2026-02-03".into()),
            Self::Days { .. } => Some("swap the two".into()),
            Self::Glob { .. } => Some("for example `docs/**/*.md`, quoted to keep the shell from expanding it".into()),
            Self::AboveLimit { .. } => Some("ask for less, or raise the limit in the settings".into()),
            Self::NoAmount { .. } => Some("for example 0.5".into()),
            _ => None,
        }
    }
}

impl AskRequest {
    /// Returns a request for `question` with everything else left to the settings and the plan.
    pub(crate) fn new(question: Question) -> Self {
        Self {
            question,
            run: RunRequest::default(),
            plan: None,
            follow: None,
            max_jobs: None,
            lower: Amounts::default(),
            fresh: false,
        }
    }

    /// Validates the request as far as possible without an index, and joins each of its texts into one line.
    pub(crate) fn checked(mut self) -> Result<Self, RequestError> {
        self.run.required = question::required(&self.run.required).map_err(RequestError::Required)?;
        check_scope(&self.run.scope)?;
        let is_empty =
            |plan: &SavedPlan| plan.draft.new_nodes.is_empty() && plan.draft.updates.is_empty() && plan.brief.is_none();
        if self.plan.as_ref().is_some_and(is_empty) {
            return Err(RequestError::EmptyPlan);
        }
        let brief = self.plan.as_ref().and_then(|plan| plan.brief.as_ref());
        brief.map_or(Ok(()), Brief::check).map_err(RequestError::Brief)?;
        let schema = self.run.output_schema.as_ref().map_or(Ok(()), structured::check_schema);
        schema.map_err(|error| RequestError::Schema { reason: error.to_string() })?;
        Ok(self)
    }
}

pub(super) fn check_query(query: &str) -> Result<(), RequestError> {
    if query.chars().any(char::is_alphanumeric) { Ok(()) } else { Err(RequestError::NoWords) }
}

/// Validates a scope and returns search options for it.
///
/// # Errors
///
/// Returns an error for an invalid date, an empty range of days, or a pattern that is not a glob.
pub(super) fn check_scope(scope: &Scope) -> Result<SearchOptions, RequestError> {
    for day in scope.since.iter().chain(&scope.until) {
        // Only as it is stored: days are compared as text.
        let is_day = day.parse::<jiff::civil::Date>().is_ok_and(|date| date.to_string() == *day);
        if !is_day {
            return Err(RequestError::Day(shortened(day)));
        }
    }
    if let (Some(since), Some(until)) = (&scope.since, &scope.until)
        // Days are written `YYYY-MM-DD`, so they compare as text.
        && until < since
    {
        return Err(RequestError::Days { since: since.clone(), until: until.clone() });
    }
    scope.options().map_err(|error| RequestError::Glob {
        glob: error.glob().unwrap_or_default().to_owned(),
        reason: error.kind().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::base::line::with_causes;

    #[test]
    fn caller_lowers_a_limit_and_raises_none() {
        let settings = BudgetLimits { tokens: Some(150_000), time: None, ..BudgetLimits::default() };
        let lower = Amounts { dollars: Some(0.5), tokens: Some(150_000), ..Amounts::default() };
        let limits = lower.capped_by(settings).unwrap();
        assert_eq!(limits, BudgetLimits { cost_nanos: Some(500_000_000), ..settings });
        let time = Amounts { time: Some(Duration::from_hours(9)), ..Amounts::default() };
        assert_eq!(
            time.capped_by(settings).unwrap().time,
            Some(Duration::from_hours(9)),
            "there is no limit to exceed"
        );
        for (lower, said) in [
            (Amounts { dollars: Some(10.5), ..lower }, "`max_cost` is 10.5 dollars, and the limit is 10 dollars"),
            (Amounts { dollars: Some(-1.0), ..lower }, "`max_cost` is not an amount"),
            (Amounts { dollars: Some(f64::NAN), ..lower }, "`max_cost` is not an amount"),
            (Amounts { tokens: Some(150_001), ..lower }, "`max_tokens` is 150001, and the limit is 150000"),
            (Amounts { rounds: Some(7), ..lower }, "`max_rounds` is 7, and the limit is 6"),
        ] {
            assert_eq!(lower.capped_by(settings).unwrap_err().to_string(), said);
        }
    }

    #[test]
    fn limit_is_raised_by_an_amount_and_one_that_is_not_set_stays_unset() {
        let limits = BudgetLimits { cost_nanos: None, tokens: Some(10), rounds: Some(u32::MAX), ..BudgetLimits::NONE };
        let amounts = Amounts { dollars: Some(1.0), tokens: Some(5), time: None, rounds: Some(1) };
        assert_eq!(amounts.raised_by(limits), BudgetLimits { tokens: Some(15), ..limits });
        assert_eq!(Amounts::default().raised_by(limits), limits);
    }

    #[test]
    fn limit_is_raised_to_an_amount_and_one_that_is_higher_or_not_set_stays() {
        let limits = BudgetLimits { cost_nanos: None, tokens: Some(10), rounds: Some(3), ..BudgetLimits::NONE };
        let amounts = Amounts { dollars: Some(1.0), tokens: Some(20), rounds: Some(2), ..Amounts::default() };
        assert_eq!(amounts.raised_to(limits), BudgetLimits { tokens: Some(20), ..limits });
        assert_eq!(Amounts::default().raised_to(limits), limits);
    }

    #[test]
    fn request_that_cannot_be_carried_out_says_which_part_and_why() {
        let request = |run| AskRequest { run, ..AskRequest::new("Why?".parse().unwrap()) };
        let scope = |scope| request(RunRequest { scope, ..RunRequest::default() });
        let requiring = |text: &str| request(RunRequest { required: vec![text.to_owned()], ..RunRequest::default() });
        let schema = Some(json!({ "type": 1 }));
        let days = Scope { since: Some("2026-03-02".into()), until: Some("2026-03-01".into()), ..Scope::default() };
        for (request, said) in [
            (requiring("?!"), "required aspects: "),
            (request(RunRequest { output_schema: schema, ..RunRequest::default() }), "output schema is not"),
            (scope(Scope { since: Some("2026-02-30".into()), ..Scope::default() }), "`2026-02-30` is not a day"),
            (scope(Scope { until: Some("20260203".into()), ..Scope::default() }), "`20260203` is not a day"),
            (scope(days), "no day is on or after 2026-03-02 and on or before 2026-03-01"),
            (scope(Scope { paths: vec!["a[".into()], ..Scope::default() }), "`a[` is not a glob: "),
        ] {
            let error = with_causes(&request.checked().unwrap_err());
            assert!(error.starts_with(said), "{error}");
        }
        assert_eq!(requiring("two\nlines").checked().unwrap().run.required, ["two lines"]);
    }
}
