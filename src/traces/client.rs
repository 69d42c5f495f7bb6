//! The HTTP client of the exporter: that of `dr`, without redirects, with limits on the size and duration of a reply.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use reqwest::Client;
use reqwest::header::USER_AGENT;
use tokio::runtime::{Builder, Runtime};

use super::settings::{NotExported, TraceSettings};
use crate::base::http::{BaseUrl, client_for, exchange};
use crate::base::line::with_causes;

/// Maximum size of a reply in bytes. At most, it states how many spans were refused.
const MAX_REPLY: usize = 64 * 1_024;

/// Sends requests to one collector.
pub(super) struct Collector {
    client: Client,
    address: BaseUrl,
    timeout: Duration,
    /// A separate one: computations of a command may keep every thread of the main one busy.
    runtime: Runtime,
    /// Reason of the first failed request.
    failure: Arc<OnceLock<String>>,
}

impl Collector {
    /// Sets up the client. No socket is opened before the first request.
    pub(super) fn new(settings: &TraceSettings, failure: Arc<OnceLock<String>>) -> Result<Self, NotExported> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| NotExported::Exporter { reason: error.to_string() })?;
        let TraceSettings { address, timeout, .. } = settings.clone();
        Ok(Self { client: client_for(&address)?, address, timeout, runtime, failure })
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let mut headers = parts.headers;
        // `dr`'s own is sent instead.
        headers.remove(USER_AGENT);
        let request = self.client.post(self.address.to_string()).headers(headers).body(body);
        let limit = Box::pin(tokio::time::sleep(self.timeout));
        let reply = exchange(request, MAX_REPLY, limit).await.inspect_err(|error| {
            self.note(format!("`{}`: {}", self.address, with_causes(error)));
        })?;
        if !reply.status.is_success() {
            self.note(format!("`{}` replied with status {}", self.address, reply.status.as_u16()));
        }
        let mut response = Response::builder().status(reply.status).body(Bytes::from(reply.body))?;
        *response.headers_mut() = reply.headers;
        Ok(response)
    }

    fn note(&self, failure: String) {
        let _ = self.failure.set(failure);
    }
}

impl HttpClient for Collector {
    fn send_bytes<'a, 'sent>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'sent>>
    where
        'a: 'sent,
        Self: 'sent,
    {
        // Polled only on the thread of the batches, which has nothing else to do.
        Box::pin(async move { self.runtime.block_on(self.send(request)) })
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collector at {}", self.address)
    }
}
