//! The request for a run, checked before anything is indexed, written or charged.

use serde_json::Value;

use crate::kb::search::{Scope, SearchOptions};
use crate::llm::structured;
use crate::research::plan::SavedPlan;
use crate::research::question::{self, Brief, BriefError, Question, RequiredError};
use crate::run::event::RunRequest;

/// A question and how to answer it.
#[derive(Clone, Debug)]
pub(crate) struct AskRequest {
    pub(crate) question: Question,
    /// What the run records of the request.
    pub(crate) run: RunRequest,
    /// A plan to use instead of making one.
    pub(crate) plan: Option<SavedPlan>,
    /// The earlier run this question follows up, by its id or a prefix of it.
    pub(crate) follow: Option<String>,
    /// Most Deep Research jobs this run may start; `None` uses the settings.
    pub(crate) max_jobs: Option<usize>,
    /// Whether the question is asked again even if an earlier run answered it, with nothing that earlier runs found.
    pub(crate) fresh: bool,
}

/// A request is invalid.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The query of a search has no words.
    #[error("query has no words")]
    NoWords,
    /// The required aspects are invalid.
    #[error("required aspects: {0}")]
    Required(RequiredError),
    /// The output schema is not a JSON Schema.
    #[error("output schema is not a JSON Schema: {reason}")]
    Schema {
        /// Why it is invalid.
        reason: String,
    },
    /// The brief of a plan exceeds a limit.
    #[error(transparent)]
    Brief(BriefError),
    /// The range of days is empty.
    #[error("no day is on or after {since} and on or before {until}")]
    Days {
        /// The first day.
        since: String,
        /// The last day.
        until: String,
    },
    /// A path pattern is not a glob.
    #[error("`{glob}` is not a glob: {reason}")]
    Glob {
        /// The pattern.
        glob: String,
        /// Why it is invalid.
        reason: String,
    },
}

impl RequestError {
    /// Returns what the user can do about this error.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Days { .. } => Some("swap the two".into()),
            Self::Glob { .. } => Some("for example `docs/**/*.md`, quoted to keep the shell from expanding it".into()),
            Self::NoWords | Self::Required(_) | Self::Brief(_) | Self::Schema { .. } => None,
        }
    }
}

impl AskRequest {
    /// Returns a request for `question` with everything else left to the settings and the plan.
    pub(crate) fn new(question: Question) -> Self {
        Self { question, run: RunRequest::default(), plan: None, follow: None, max_jobs: None, fresh: false }
    }

    /// Validates the request as far as possible without an index, and joins each of its texts into one line.
    ///
    /// # Errors
    ///
    /// Returns an error for the first invalid part.
    pub(crate) fn checked(mut self) -> Result<Self, RequestError> {
        self.run.required = question::required(&self.run.required).map_err(RequestError::Required)?;
        check_scope(&self.run.scope)?;
        let brief = self.plan.as_ref().and_then(|plan| plan.brief.as_ref());
        brief.map_or(Ok(()), Brief::check).map_err(RequestError::Brief)?;
        self.run.output_schema.as_ref().map_or(Ok(()), check_output_schema)?;
        Ok(self)
    }
}

/// Checks that a query has words.
///
/// # Errors
///
/// Returns [`RequestError::NoWords`] if it has none.
pub(super) fn check_query(query: &str) -> Result<(), RequestError> {
    if query.chars().any(char::is_alphanumeric) { Ok(()) } else { Err(RequestError::NoWords) }
}

/// Validates a scope and returns search options for it.
///
/// # Errors
///
/// Returns an error for an empty range of days or a pattern that is not a glob.
pub(super) fn check_scope(scope: &Scope) -> Result<SearchOptions, RequestError> {
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

fn check_output_schema(schema: &Value) -> Result<(), RequestError> {
    structured::check_schema(schema).map_err(|error| RequestError::Schema { reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::base::line::with_causes;

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
            (scope(days), "no day is on or after 2026-03-02 and on or before 2026-03-01"),
            (scope(Scope { paths: vec!["a[".into()], ..Scope::default() }), "`a[` is not a glob: "),
        ] {
            let error = with_causes(&request.checked().unwrap_err());
            assert!(error.starts_with(said), "{error}");
        }
        assert_eq!(requiring("two\nlines").checked().unwrap().run.required, ["two lines"]);
    }
}
