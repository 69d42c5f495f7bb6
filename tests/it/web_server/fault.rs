//! What goes wrong with a call.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::refused;
use crate::model_server::{Request, Response};

/// Bytes a bomb comes to when it is unpacked, on top of the reply that is in it.
pub(crate) const BOMB_BYTES: usize = 12 << 20;

/// Something that goes wrong with one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// 429; nothing was done.
    RateLimited {
        /// Seconds after which one may come back, where the server says so.
        retry_after: Option<u32>,
    },
    /// 500 with an error in JSON; nothing was done.
    ServerError,
    /// 502 with a page of HTML, by somebody in between; nothing was done.
    BadGateway,
    /// The reply is made, and nothing of it ever comes.
    TimeOut,
    /// The connection is reset before anything was done.
    ResetBefore,
    /// The connection is reset after the reply was made: it would be paid for.
    ResetAfter,
    /// The connection ends in the middle of the reply.
    Truncated,
    /// The reply is whole, and no JSON.
    InvalidJson,
    /// There are things in the reply of a kind nobody knows.
    UnknownItems,
    /// The reply comes one byte at a time.
    Drip {
        /// How long each byte takes.
        pause: Duration,
    },
    /// The address leads to itself, by way of ever new ones.
    RedirectLoop,
    /// The reply is small and unpacks to [`BOMB_BYTES`] of blanks in front of it.
    GzipBomb,
    /// The job that is asked after, or was started with this call, is not known to the server, now and later.
    LostJob,
    /// The job that is started with this call fails.
    FailedJob,
    /// The job that is started with this call ends at a limit.
    IncompleteJob,
}

impl Fault {
    /// Returns what comes instead of a reply, where none is made.
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

    /// Returns what becomes of a reply on its way.
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

/// Returns the first half of a text, which is never all of it.
fn half(text: &str) -> String {
    text.chars().take(text.chars().count() / 2).collect()
}

/// Packs a reply behind so many blanks, which mean nothing in JSON and HTML.
fn bomb(body: &str) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    let blanks = vec![b' '; 1 << 20];
    // What is written to memory arrives.
    for _ in 0..BOMB_BYTES >> 20 {
        packed.write_all(&blanks).unwrap();
    }
    packed.write_all(body.as_bytes()).unwrap();
    packed.finish().unwrap()
}

/// Puts things nobody knows wherever a reply has a list of things.
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
