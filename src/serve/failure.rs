//! Errors of requests, as JSON with a status.

use aide::OperationOutput;
use aide::generate::GenContext;
use aide::openapi::{Operation, Response as ApiResponse, StatusCode as ApiStatus};
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use crate::base::line::{shortened, with_causes};
use crate::engine::{EngineError, ErrorKind};
use crate::render::RenderError;

/// The reply to a request that failed.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Failure")]
pub(super) struct FailureReply {
    #[serde(skip)]
    status: StatusCode,
    /// What failed, with its causes.
    error: String,
    /// What can be done about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl FailureReply {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), hint: None }
    }

    pub(super) fn invalid(error: &str) -> Self {
        // It may echo a parameter, which can be of any length.
        Self::new(StatusCode::BAD_REQUEST, shortened(error))
    }

    pub(super) fn not_found(what: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("no {}", shortened(what)))
    }
}

impl IntoResponse for FailureReply {
    fn into_response(self) -> Response {
        (self.status, Json(self)).into_response()
    }
}

impl OperationOutput for FailureReply {
    type Inner = Self;

    fn operation_response(context: &mut GenContext, operation: &mut Operation) -> Option<ApiResponse> {
        Json::<Self>::operation_response(context, operation)
    }

    fn inferred_responses(
        context: &mut GenContext,
        operation: &mut Operation,
    ) -> Vec<(Option<ApiStatus>, ApiResponse)> {
        let response = Self::operation_response(context, operation);
        response
            .into_iter()
            // `None` stands for every other status: all errors have this form.
            .map(|response| (None, ApiResponse { description: "Not done".into(), ..response }))
            .collect()
    }
}

impl From<EngineError> for FailureReply {
    fn from(error: EngineError) -> Self {
        let status = match &error {
            // Before the kind, which for a missing resource is that of an ordinary failure.
            _ if error.is_missing() => StatusCode::NOT_FOUND,
            EngineError::TooManyRuns { .. } => StatusCode::TOO_MANY_REQUESTS,
            _ if error.is_conflict() => StatusCode::CONFLICT,
            _ => match error.kind() {
                ErrorKind::Usage | ErrorKind::Limit => StatusCode::UNPROCESSABLE_ENTITY,
                // The work of a request is cancelled only when the server stops.
                ErrorKind::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
                ErrorKind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
            },
        };
        Self { status, error: with_causes(&error), hint: error.hint() }
    }
}

impl From<RenderError> for FailureReply {
    fn from(error: RenderError) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, with_causes(&error))
    }
}
