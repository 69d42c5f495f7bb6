use std::time::Duration;

use jiff::civil::{Date, date};
use serde_json::{Value, json};

use super::request::sample;
use super::*;
use crate::base::http::client_for;
use crate::base::retry::{Again, Failure};
use crate::llm::model::ModelError;
use crate::model_server::{ModelServer, Response};

const TODAY: Date = date(2026, 11, 21);

fn client(server: &ModelServer) -> OpenAiJobs {
    let address = server.url().parse().unwrap();
    let client = client_for(&address).unwrap();
    OpenAiJobs::new(address, Some("sk-test".parse().unwrap()), client, Duration::from_secs(20))
        .hiding(Some("mcp-secret".parse().unwrap()))
}

/// Returns whether the same request may be sent again.
fn is_passing(error: &JobError) -> bool {
    matches!(error.again(), Again::Later(_))
}

fn id() -> JobId {
    "resp_1".parse().unwrap()
}

fn body() -> Value {
    request_body(&sample("gpt-6-sol"))
}

fn job(status: &str) -> Value {
    json!({ "id": "resp_1", "object": "response", "background": true, "status": status, "error": null, "output": [] })
}

async fn created(response: Response) -> Result<Job, JobError> {
    let server = ModelServer::always(response);
    let outcome = client(&server).post(&body()).await;
    assert_eq!(server.count(), 1, "the request for a job is sent once");
    outcome
}

async fn retrieved(response: Response) -> Result<Job, JobError> {
    client(&ModelServer::always(response)).get(&id()).await
}

#[tokio::test]
async fn job_is_started_followed_and_read() {
    let server = ModelServer::start(|request| {
        let mut job = job(["queued", "queued", "in_progress", "completed"][request.number - 1]);
        if request.number == 4 {
            let part = json!({ "type": "output_text", "text": "Two euros.", "annotations": [] });
            job["output"] = json!([{ "type": "message", "content": [part] }]);
        }
        Response::json(200, &job)
    });
    let client = client(&server);
    let mut job = client.post(&body()).await.unwrap();
    assert_eq!((job.id.to_string().as_str(), &job.state), ("resp_1", &JobState::Queued));
    while !job.state.is_over() {
        job = client.get(&job.id).await.unwrap();
    }
    assert_eq!((parse(&job.raw).text.as_str(), job.state), ("Two euros.", JobState::Completed));

    let requests = server.requests();
    let asked: Vec<_> = requests.iter().map(|request| (request.method.as_str(), request.path.as_str())).collect();
    assert_eq!(asked[0], ("POST", "/v1/responses"));
    assert_eq!(asked[1..], [("GET", "/v1/responses/resp_1"); 3]);
    assert_eq!(requests[0].json, body());
    assert!(requests.iter().all(|request| request.headers["authorization"] == "Bearer sk-test"));
}

#[tokio::test]
async fn job_that_was_not_started_is_told_from_one_that_may_have_been() {
    let lost = |error: &JobError| matches!(error, JobError::OutcomeUnknown { .. }) && !is_passing(error);
    let truncated = Response::Truncated { body: r#"{"id": "resp_1", "sta"#.into() };
    for response in [
        Response::Drop,
        truncated,
        Response::text(200, r#"{"id": "resp_1", "sta"#),
        Response::text(200, ""),
        Response::json(200, &json!({ "object": "response", "status": "queued" })),
        Response::json(200, &json!({ "id": "../files", "status": "queued" })),
        Response::text(500, "oh"),
        Response::text(502, "<html>bad gateway</html>"),
        Response::text(504, ""),
    ] {
        let error = created(response.clone()).await.unwrap_err();
        assert!(lost(&error) && error.hint().is_some(), "{response:?} became {error:?}");
    }
    for (response, is_later) in [
        (Response::text(429, "slow down"), true),
        (Response::text(503, "<html>busy</html>"), true),
        (Response::json(429, &json!({ "error": { "code": "insufficient_quota" } })), false),
        (Response::text(400, "no"), false),
        (Response::text(401, "no"), false),
        (Response::text(307, ""), false),
        (Response::text(200, "<html>hello</html>"), false),
        (Response::json(200, &json!({ "choices": [] })), false),
        (Response::json(200, &json!({ "error": { "code": "rate_limit_exceeded", "message": "slow" } })), true),
    ] {
        let error = created(response.clone()).await.unwrap_err();
        assert!(matches!(error, JobError::Refused(_)), "{response:?} became {error:?}");
        assert_eq!(is_passing(&error), is_later, "{response:?} became {error:?}");
    }
}

#[tokio::test]
async fn refused_connection_means_that_no_job_was_started() {
    let server = ModelServer::always(Response::Drop);
    let client = client(&server);
    drop(server);
    let error = client.post(&body()).await.unwrap_err();
    assert!(matches!(error, JobError::Refused(ModelError::Transient { .. })), "{error:?}");
}

#[tokio::test]
async fn request_for_a_job_that_takes_too_long_may_have_started_one() {
    let server = ModelServer::always(Response::Hang);
    let address = server.url().parse().unwrap();
    let quick =
        OpenAiJobs::new(address, None, client_for(&server.url().parse().unwrap()).unwrap(), Duration::from_millis(300));
    assert!(matches!(quick.post(&body()).await, Err(JobError::OutcomeUnknown { .. })));
    assert!(matches!(quick.get(&id()).await, Err(JobError::NoAnswer { .. })));
}

#[tokio::test]
async fn endpoint_that_says_when_to_come_back_is_heard() {
    let busy = Response::text(429, "slow down").with_header("Retry-After", "7");
    for error in [created(busy.clone()).await.unwrap_err(), retrieved(busy).await.unwrap_err()] {
        assert_eq!(error.again(), Again::Later(Some(Duration::from_secs(7))));
    }
}

#[tokio::test]
async fn job_outlives_a_question_that_has_no_answer() {
    for response in [
        Response::Drop,
        Response::Truncated { body: r#"{"id": "resp_1", "status": "comp"#.into() },
        Response::text(200, r#"{"id": "resp_1", "status": "comp"#),
        Response::text(200, "[]"),
        Response::text(500, "oh"),
        Response::text(502, "<html>bad gateway</html>"),
        Response::text(429, ""),
    ] {
        let error = retrieved(response.clone()).await.unwrap_err();
        assert!(is_passing(&error), "{response:?} became {error:?}");
    }
    assert!(!is_passing(&retrieved(Response::text(401, "")).await.unwrap_err()));
}

#[tokio::test]
async fn every_end_of_a_job_is_a_state() {
    let mut failed = job("failed");
    failed["error"] = json!({ "code": "server_error", "message": "oh" });
    let mut incomplete = job("incomplete");
    incomplete["incomplete_details"] = json!({ "reason": "max_output_tokens" });
    let missing = json!({ "error": { "message": "Response with id 'resp_1' not found." } });
    for (response, expected) in [
        (Response::json(200, &failed), JobState::Failed { reason: "oh (server_error)".into() }),
        (Response::json(200, &incomplete), JobState::Incomplete { reason: "max_output_tokens".into() }),
        (Response::json(200, &job("cancelled")), JobState::Cancelled),
        (Response::json(404, &missing), JobState::Vanished),
    ] {
        let job = retrieved(response).await.unwrap();
        assert!(job.state == expected && job.state.is_over(), "{job:?}");
    }
}

#[tokio::test]
async fn job_is_called_off_as_often_as_one_likes() {
    let server = ModelServer::always(Response::json(200, &job("cancelled")));
    let client = client(&server);
    for _ in 0..2 {
        assert_eq!(client.call_off(&id()).await.unwrap().state, JobState::Cancelled);
    }
    assert_eq!(server.requests()[1].path, "/v1/responses/resp_1/cancel");
    assert_eq!(server.requests()[1].method, "POST");
}

#[tokio::test]
async fn job_that_is_over_is_not_called_off() {
    let server = ModelServer::start(|request| match request.method.as_str() {
        "POST" => Response::json(400, &json!({ "error": { "message": "Cannot cancel a completed response." } })),
        _ => Response::json(200, &job("completed")),
    });
    assert_eq!(client(&server).call_off(&id()).await.unwrap().state, JobState::Completed);
    let running = ModelServer::start(|request| match request.method.as_str() {
        "POST" => Response::text(400, "no"),
        _ => Response::json(200, &job("in_progress")),
    });
    assert!(matches!(client(&running).call_off(&id()).await, Err(JobError::Refused(ModelError::Permanent { .. }))));
    let gone = ModelServer::always(Response::text(404, ""));
    assert_eq!(client(&gone).call_off(&id()).await.unwrap().state, JobState::Vanished);
}

#[tokio::test]
async fn first_model_that_is_neither_unknown_nor_shut_down_is_taken() {
    let server = ModelServer::start(|request| match request.path.rsplit('/').next().unwrap() {
        "new" => Response::json(200, &json!({ "id": "new", "object": "model", "shutdown_date": "2027-01-14" })),
        "old" => Response::json(200, &json!({ "id": "old", "object": "model", "shutdown_date": "2026-11-21" })),
        "barred" => Response::json(403, &json!({ "error": { "code": "model_not_found" } })),
        "odd" => Response::json(200, &json!({ "object": "list", "data": [] })),
        _ => Response::json(404, &json!({ "error": { "code": "model_not_found" } })),
    });
    let client = client(&server);
    let models = ["", "..", "old", "barred", "odd", "org/gone", "new", "never"].map(str::to_owned);
    let choice = client.first_available(&models, TODAY).await.unwrap();
    assert_eq!(choice.model.as_deref(), Some("new"));
    let passed_over: Vec<_> = choice.passed_over.into_iter().map(|(_, status)| status).collect();
    let missing = ModelStatus::Missing;
    assert_eq!(passed_over, [missing, missing, ModelStatus::ShutDown { since: TODAY }, missing, missing, missing]);
    let until = Some(date(2027, 1, 14));
    assert_eq!(client.model_exists("new", TODAY).await.unwrap(), ModelStatus::Available { until });
    let paths: Vec<_> = server.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(paths[..2], ["/v1/models/old", "/v1/models/barred"]);
    assert!(paths.contains(&"/v1/models/org%2Fgone".to_owned()), "{paths:?}");

    let none = client.first_available(&models[..2], TODAY).await.unwrap();
    assert_eq!((none.model, none.passed_over.len()), (None, 2));
}

#[tokio::test]
async fn failing_endpoint_does_not_say_that_a_model_is_gone() {
    for response in [Response::Drop, Response::text(500, ""), Response::text(200, "<html>")] {
        let server = ModelServer::always(response.clone());
        assert!(is_passing(&client(&server).model_exists("new", TODAY).await.unwrap_err()), "{response:?}");
    }
    let server = ModelServer::always(Response::text(401, ""));
    let error = client(&server).model_exists("new", TODAY).await.unwrap_err();
    assert_eq!(error, JobError::Refused(ModelError::Authentication));
}

#[tokio::test]
async fn secrets_that_an_endpoint_repeats_are_taken_out() {
    let echo = |status| {
        ModelServer::start(move |request| {
            let said = format!("you sent {} and mcp-secret", request.headers["authorization"]);
            Response::json(status, &json!({ "id": "resp_1", "status": "queued", "error": { "message": said } }))
        })
    };
    let server = echo(400);
    let error = client(&server).post(&body()).await.unwrap_err();
    let shown = format!("{error:?} {:?}", client(&server));
    assert!(shown.contains("[key]") && !shown.contains("sk-test") && !shown.contains("mcp-secret"), "{shown}");
    let job = client(&echo(200)).get(&id()).await.unwrap();
    assert!(job.raw.contains("[key]") && !job.raw.contains("sk-test") && !job.raw.contains("mcp-secret"), "{job:?}");
}

#[tokio::test]
async fn endless_reply_is_not_read_to_its_end() {
    let endless = Response::text(200, &" ".repeat(crate::llm::openai::MAX_REPLY_BYTES + 1));
    assert!(matches!(created(endless.clone()).await, Err(JobError::OutcomeUnknown { .. })));
    assert!(matches!(retrieved(endless).await, Err(JobError::NoAnswer { .. })));
}

#[test]
fn error_keeps_its_cause_out_of_its_own_message() {
    let error = JobError::Refused(ModelError::Quota);
    let chain = format!("{:#}", anyhow::Error::from(error));
    assert_eq!(chain, "endpoint refused the request for a background job: quota of the model endpoint is exhausted");
}

#[tokio::test]
async fn account_that_may_not_have_summaries_is_told_from_one_that_may_have_no_job() {
    let message = "Your organization must be verified to generate reasoning summaries.";
    let said = |param: &str, message: &str| json!({ "error": { "message": message, "param": param } });
    for (body, is_about_summaries) in [
        (said("reasoning.summary", "Unsupported value"), true),
        (said("model", message), true),
        (said("model", "Your organization must be verified to use this model."), false),
        (json!("reasoning.summary"), false),
    ] {
        let error = created(Response::json(400, &body)).await.unwrap_err();
        assert_eq!(matches!(error, JobError::SummariesRefused { .. }), is_about_summaries, "{body} became {error:?}");
    }
}
