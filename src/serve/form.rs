//! Forms of requests: parameters of the address and bodies. Unreadable ones are a [`Failure`] as any other.

use aide::OperationInput;
use aide::generate::GenContext;
use aide::openapi::Operation;
use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::failure::Failure;
use crate::base::line::shortened;

fn unreadable(status: StatusCode, reason: &str) -> Failure {
    Failure::new(status, shortened(reason))
}

/// Parameters after the `?` of an address.
pub(super) struct Parameters<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Query(value) = Query::from_request_parts(parts, state)
            .await
            .map_err(|error| unreadable(error.status(), &error.body_text()))?;
        Ok(Self(value))
    }
}

impl<T: JsonSchema> OperationInput for Parameters<T> {
    fn operation_input(context: &mut GenContext, operation: &mut Operation) {
        Query::<T>::operation_input(context, operation);
    }
}

/// Parts of the path of an address.
pub(super) struct InPath<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for InPath<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Path(value) = Path::from_request_parts(parts, state)
            .await
            .map_err(|error| unreadable(error.status(), &error.body_text()))?;
        Ok(Self(value))
    }
}

impl<T: JsonSchema> OperationInput for InPath<T> {
    fn operation_input(context: &mut GenContext, operation: &mut Operation) {
        Path::<T>::operation_input(context, operation);
    }
}

/// A body of JSON.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let Json(value) =
            Json::from_request(request, state).await.map_err(|error| unreadable(error.status(), &error.body_text()))?;
        Ok(Self(value))
    }
}

impl<T: JsonSchema> OperationInput for Body<T> {
    fn operation_input(context: &mut GenContext, operation: &mut Operation) {
        Json::<T>::operation_input(context, operation);
    }
}
