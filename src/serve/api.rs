//! The routes of the API, with the description of each, from which the `OpenAPI` document is made.

use std::sync::Arc;

use aide::axum::ApiRouter;
use aide::axum::routing::{get_with, post_with};
use aide::openapi::{Info, OpenApi};
use aide::transform::TransformOperation;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};

use super::app::App;
use super::{events, question, runs, search};

/// Longest body of a request, in bytes: a question with an edited plan takes a few thousand.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// Returns the routes of the API, without a check of who sends a request.
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
        .api_route("/plans", post_with(question::plan, said("Plan a question and estimate what it takes")))
        .api_route(
            "/runs",
            get_with(runs::list, said("The stored runs, newest first"))
                .post_with(question::start, said("Ask a question")),
        )
        .api_route(
            "/runs/{run}",
            get_with(runs::show, said("A run with what it has found and spent"))
                .delete_with(runs::remove, said("Delete a run")),
        )
        .api_route("/runs/{run}/events", get_with(events::events, said("The events of a run (server-sent events)")))
        .api_route("/runs/{run}/report", get_with(runs::report, said("The report of a run")))
        .api_route("/runs/{run}/quotes/{quote}", get_with(runs::quote, said("A quote in its document")))
        .api_route("/runs/{run}/cancel", post_with(runs::cancel, said("Stop a run; it can be resumed")))
        .api_route(
            "/runs/{run}/resume",
            post_with(runs::resume, said("Resume a run, with higher limits if asked for")),
        );
    let api = ApiRouter::new().nest_api_service("/api/v1", api.with_state(app.clone())).finish_api(&mut description);
    let description = Arc::new(description);
    let document = get(move || async move { Json(description.as_ref().clone()) });
    let metrics = get(|State(app): State<App>| async move { text(app.metrics.text(app.runs.active())) });
    let own = Router::new().route("/metrics", metrics).with_state(app.clone());
    api.route("/api/openapi.json", document)
        .merge(own)
        // Answered without the token, see `gate`, so it tells nothing of the index.
        .route("/healthz", get(|| async { "ok\n" }))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        // Outermost, so that replies of the other layers are counted, too.
        .layer(middleware::from_fn_with_state(app, count))
}

/// Describes a route in a line.
fn said(summary: &'static str) -> impl for<'a> FnOnce(TransformOperation<'a>) -> TransformOperation<'a> {
    move |operation| operation.summary(summary)
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
