//! The routes of the API with their descriptions, from which the `OpenAPI` document is generated.

use std::sync::Arc;

use aide::axum::ApiRouter;
use aide::axum::routing::{get_with, post_with};
use aide::openapi::{Info, OpenApi, SecurityScheme};
use aide::transform::{TransformOperation, TransformResponse};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};

use super::app::App;
use super::failure::FailureReply;
use super::{events, links, question, runs, search};
use crate::engine::RunStatus;

/// Maximum size of a request body, in bytes: a question with an edited plan takes a few thousand.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// Returns the routes of the API, without authentication.
pub(super) fn routes(app: App) -> Router {
    let mut description = OpenApi {
        info: Info {
            title: "dr".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            description: Some("Search a folder of Markdown, and research questions with checked citations.".to_owned()),
            ..Info::default()
        },
        ..OpenApi::default()
    };
    let api = ApiRouter::new()
        .api_route("/about", get_with(question::about, said("What this server can do")))
        .api_route("/collections", get_with(search::collections, said("The collections of the index")))
        .api_route("/search", get_with(search::search, said("Passages that match a query")))
        .api_route("/passages", get_with(search::passage, said("A passage, its section or its document")))
        .api_route("/links", get_with(links::links, said("The links of a document and those to it")))
        .api_route("/links/broken", get_with(links::broken, said("The broken links")))
        .api_route("/plans", post_with(question::plan, said("Plan a question and estimate what it takes")))
        .api_route(
            "/runs",
            get_with(runs::list, said("The stored runs, newest first")).post_with(question::start, |route| {
                said("Ask a question")(route).response::<202, Json<question::StartReply>>()
            }),
        )
        .api_route(
            "/runs/{run}",
            get_with(runs::show, said("A run with what it has found and spent"))
                .delete_with(runs::remove, |route| said("Delete a run")(route).response::<204, ()>()),
        )
        .api_route(
            "/runs/{run}/events",
            get_with(events::events, |route| {
                let events =
                    "An event `state` for each change, with this data, and `doing` for what happens between two";
                said("The events of a run (server-sent events)")(route).response_with::<200, Json<RunStatus>, _>(
                    |reply| with_types(reply, &["text/event-stream"]).description(events),
                )
            }),
        )
        .api_route(
            "/runs/{run}/report",
            get_with(runs::report, |route| {
                let types = ["application/json", "text/markdown", "text/html"];
                said("The report of a run")(route).response_with::<200, String, _>(|reply| {
                    with_types(reply, &types).description("The report in the format")
                })
            }),
        )
        .api_route("/runs/{run}/quotes/{quote}", get_with(runs::quote, said("A quote in its document")))
        .api_route("/runs/{run}/cancel", post_with(runs::cancel, said("Stop a run; it can be resumed")))
        .api_route(
            "/runs/{run}/resume",
            post_with(runs::resume, |route| {
                said("Resume a run, with higher limits if asked for")(route)
                    .response::<202, Json<question::StartReply>>()
            }),
        );
    let token = SecurityScheme::Http {
        scheme: "bearer".to_owned(),
        bearer_format: None,
        description: Some("The token in the address that `dr serve` prints".to_owned()),
        extensions: std::iter::empty::<(String, serde_json::Value)>().collect(),
    };
    let api = ApiRouter::new()
        .nest_api_service(
            "/api/v1",
            api.fallback(async || FailureReply::not_found("such path")).with_state(app.clone()),
        )
        .finish_api_with(&mut description, |api| api.security_scheme("token", token).security_requirement("token"));
    let description = Arc::new(description);
    let document = get(move || async move { Json(description.as_ref().clone()) });
    let metrics = get(|State(app): State<App>| async move { text(app.metrics.text(app.runs.active())) });
    let own = Router::new().route("/metrics", metrics).with_state(app.clone());
    api.route("/api/openapi.json", document)
        .merge(own)
        // Answered without the token, see `gate`, so it reveals nothing about the index.
        .route("/healthz", get(|| async { "ok\n" }))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        // Outermost, so that replies of the other layers are counted too.
        .layer(middleware::from_fn_with_state(app, count))
}

/// Describes a route in a line.
fn said(summary: &'static str) -> impl for<'a> FnOnce(TransformOperation<'a>) -> TransformOperation<'a> {
    move |operation| operation.summary(summary)
}

/// Describes a reply as one of these types of content.
fn with_types<'r, R>(mut reply: TransformResponse<'r, R>, types: &[&str]) -> TransformResponse<'r, R> {
    let content = &mut reply.inner().content;
    if let Some((_, media)) = content.pop() {
        content.extend(types.iter().map(|kind| ((*kind).to_owned(), media.clone())));
    }
    reply
}

fn text(figures: String) -> Response {
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], figures).into_response()
}

/// Counts a request, and logs it by path and status. Its content is not logged.
async fn count(State(app): State<App>, request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let status = response.status().as_u16();
    app.metrics.answered(status);
    tracing::info!(%method, path, status, "request");
    response
}
