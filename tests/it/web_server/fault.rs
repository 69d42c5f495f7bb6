//! Faults injected into calls.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::refused;
use crate::model_server::{Request, Response};

/// Uncompressed size of a decompression bomb, without the reply in it.
pub(crate) const BOMB_BYTES: usize = 12 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Status 429; the call is not executed.
    RateLimited {
        /// Value of the `Retry-After` header in seconds, if any.
        retry_after: Option<u32>,
    },
    /// Status 500 with a JSON error; the call is not executed.
    ServerError,
    /// Status 502 with an HTML page, as from a proxy; the call is not executed.
    BadGateway,
    /// The call is executed, but no reply is ever sent.
    TimeOut,
    /// The connection is reset before the call is executed.
    ResetBefore,
    /// The connection is reset after the call was executed: a provider would bill it.
    ResetAfter,
    /// The connection ends in the middle of the reply.
    Truncated,
    /// The reply is complete but not JSON.
    InvalidJson,
    /// The reply contains items of an unknown kind.
    UnknownItems,
    /// The reply is sent one byte at a time.
    Drip {
        /// Pause before each byte.
        pause: Duration,
    },
    /// Redirects to itself through ever new addresses.
    RedirectLoop,
    /// The compressed reply expands to [`BOMB_BYTES`] of blanks before the actual reply.
    GzipBomb,
    /// The server no longer knows the job that this call polls or started.
    LostJob,
    /// The job started by this call fails.
    FailedJob,
    /// The job started by this call ends at a limit.
    IncompleteJob,
    /// Jobs with summaries of the reasoning are refused.
    NoSummaries,
}

impl Fault {
    /// Returns the reaction that replaces the call, if it is not executed.
    pub(super) fn instead(&self, request: &Request) -> Option<Response> {
        match self {
            Self::RateLimited { retry_after } => {
                let response = refused(429, "rate_limit_exceeded", "Rate limit reached, slow down");
                let seconds = retry_after.map(|seconds| seconds.to_string());
                Some(seconds.into_iter().fold(response, |response, value| response.with_header("Retry-After", &value)))
            }
            Self::ServerError => Some(refused(500, "server_error", "The server had an error")),
            Self::BadGateway => {
                let page =
                    "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>";
                Some(Response::text(502, page).with_header("Content-Type", "text/html"))
            }
            Self::ResetBefore => Some(Response::Reset),
            Self::NoSummaries => {
                let message = "Your organization must be verified to generate reasoning summaries.";
                let wants_them = !request.json["reasoning"]["summary"].is_null();
                wants_them.then(|| refused(400, "unsupported_value", message))
            }
            Self::RedirectLoop => {
                let (path, hop) = request.path.split_once("hop=").unwrap_or((&request.path, "0"));
                let next = hop.parse::<u32>().unwrap_or(0) + 1;
                let joint = match path {
                    path if path.ends_with(['?', '&']) => "",
                    path if path.contains('?') => "&",
                    _ => "?",
                };
                Some(Response::text(302, "").with_header("Location", &format!("{path}{joint}hop={next}")))
            }
            Self::TimeOut
            | Self::ResetAfter
            | Self::Truncated
            | Self::InvalidJson
            | Self::UnknownItems
            | Self::Drip { .. }
            | Self::GzipBomb
            | Self::LostJob
            | Self::FailedJob
            | Self::IncompleteJob => None,
        }
    }

    /// Applies the fault to the reply of an executed call.
    pub(super) fn spoil(&self, response: Response) -> Response {
        let Response::Answer { status, headers, body } = response else { return response };
        match self {
            Self::TimeOut => Response::Hang,
            Self::ResetAfter => Response::Reset,
            Self::Truncated => Response::Truncated { body: half(&body) },
            Self::InvalidJson => Response::Answer { status, headers, body: half(&body) },
            Self::UnknownItems => Response::Answer { status, headers, body: with_unknown_items(&body) },
            Self::Drip { pause } => Response::Drip { headers, body, pause: *pause },
            Self::GzipBomb => {
                Response::Bytes { status, headers, body: bomb(&body) }.with_header("Content-Encoding", "gzip")
            }
            _ => Response::Answer { status, headers, body },
        }
    }
}

/// Returns the first half of a text; never the whole text.
fn half(text: &str) -> String {
    text.chars().take(text.chars().count() / 2).collect()
}

/// Compresses a reply behind `blanks` spaces, which are insignificant in JSON and HTML.
fn bomb(body: &str) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    let blanks = vec![b' '; 1 << 20];
    // Writing to memory does not fail.
    for _ in 0..BOMB_BYTES >> 20 {
        packed.write_all(&blanks).unwrap();
    }
    packed.write_all(body.as_bytes()).unwrap();
    packed.finish().unwrap()
}

/// Inserts items of an unknown kind into every list of a reply.
fn with_unknown_items(body: &str) -> String {
    let Ok(mut reply) = serde_json::from_str::<Value>(body) else { return body.to_owned() };
    reply["hologram"] = json!({ "version": 3 });
    let strange = |kind: &str| json!({ "type": kind, "id": "hg_1", "status": "completed", "frames": [1, 2, 3] });
    if let Some(items) = reply["output"].as_array_mut() {
        for item in items.iter_mut() {
            let part = item.get_mut("content").and_then(Value::as_array_mut).filter(|parts| !parts.is_empty());
            let Some(parts) = part else { continue };
            if let Some(annotations) = parts[0]["annotations"].as_array_mut() {
                annotations.insert(0, strange("hologram_citation"));
            }
            parts.push(strange("output_hologram"));
        }
        items.insert(0, strange("hologram_call"));
    }
    if let Some(results) = reply["results"].as_array_mut() {
        results.insert(0, strange("hologram_result"));
    }
    reply.to_string()
}
