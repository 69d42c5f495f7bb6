//! Extractors for requests: parameters of the address, and bodies. An unreadable one is answered with a
//! [`FailureReply`] like any other error.

use aide::OperationInput;
use aide::generate::GenContext;
use aide::openapi::Operation;
use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::failure::FailureReply;
use crate::base::line::shortened;

/// Declares a wrapper of an `axum` extractor that turns rejections into a [`FailureReply`].
macro_rules! form {
    ($(#[$doc:meta])* $name:ident of $inner:ident by $from:ident($method:ident, $input:ty) $(+ $bound:ident)?) => {
        $(#[$doc])*
        pub(super) struct $name<T>(pub(super) T);

        impl<T: DeserializeOwned $(+ $bound)?, S: Send + Sync> $from<S> for $name<T> {
            type Rejection = FailureReply;

            async fn $method(input: $input, state: &S) -> Result<Self, FailureReply> {
                let read = $inner::$method(input, state).await;
                let $inner(value) =
                    read.map_err(|error| FailureReply::new(error.status(), shortened(&error.body_text())))?;
                Ok(Self(value))
            }
        }

        impl<T: JsonSchema> OperationInput for $name<T> {
            fn operation_input(context: &mut GenContext, operation: &mut Operation) {
                $inner::<T>::operation_input(context, operation);
            }
        }
    };
}

form! {
    /// Parameters after the `?` of an address.
    Parameters of Query by FromRequestParts(from_request_parts, &mut Parts)
}

form! {
    /// Parts of the path of an address.
    InPath of Path by FromRequestParts(from_request_parts, &mut Parts) + Send
}

form! {
    /// A body of JSON.
    Body of Json by FromRequest(from_request, Request)
}
