//! Admits requests that have the token and a `Host` of this machine, and that come from a page of this server or from
//! no page.
//!
//! The address that `dr serve` prints has the token. The page exchanges it for a cookie, so that it does not stay in
//! the address; programs send it as a bearer token. A page of another site cannot read the token, its requests come
//! without the cookie (`SameSite=Strict`) and with its own `Origin`, and a name rebound to this machine has
//! another `Host`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::mcp::{LOOPBACK_NAMES, bearer};

/// Parameter of the printed address.
const PARAMETER: &str = "token=";

/// Content security policy of the page: nothing from elsewhere, no script or style inside it, and no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Headers of every reply.
const HEADERS: [(header::HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Authenticates requests by `Host`, `Origin` and token.
#[derive(Clone, Debug)]
pub(super) struct PageCheck {
    port: u16,
    token: String,
}

impl PageCheck {
    pub(super) fn new(port: u16, token: String) -> Self {
        Self { port, token }
    }

    /// Returns the address that lets a browser in.
    pub(super) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/?{PARAMETER}{}", self.port, self.token)
    }

    /// Cookies are shared by all ports of a machine.
    fn cookie(&self) -> String {
        format!("dr_{}=", self.port)
    }

    /// Returns whether a token is that of this server. Hashes are compared in constant time.
    fn is_own(&self, token: &[u8]) -> bool {
        blake3::hash(token) == blake3::hash(self.token.as_bytes())
    }

    /// Returns whether a request has the token, in its cookie or as a bearer token.
    fn admits(&self, headers: &HeaderMap) -> bool {
        let name = self.cookie();
        let mut cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let has_cookie = cookies.any(|line| {
            line.split(';')
                .filter_map(|cookie| cookie.trim().strip_prefix(&name))
                .any(|value| self.is_own(value.as_bytes()))
        });
        has_cookie || bearer(headers).is_some_and(|token| self.is_own(token))
    }

    /// Returns whether a request names this machine as its host.
    fn is_for_this_machine(&self, headers: &HeaderMap) -> bool {
        // Exactly one: with two, it is unclear which one counts.
        let mut hosts = headers.get_all(header::HOST).iter();
        match (hosts.next().and_then(|host| host.to_str().ok()), hosts.next()) {
            (Some(host), None) => self.is_own_host(host),
            _ => false,
        }
    }

    fn is_own_host(&self, host: &str) -> bool {
        let port = format!(":{}", self.port);
        // Port 80 is left out by browsers.
        let name = host.strip_suffix(&port).unwrap_or(if self.port == 80 { host } else { "" });
        LOOPBACK_NAMES.contains(&name.trim_start_matches('[').trim_end_matches(']'))
    }

    /// Returns whether a request is from no page, or from one of this server.
    fn is_from_own_page(&self, headers: &HeaderMap) -> bool {
        let is_own = |origin: &HeaderValue| {
            origin
                .to_str()
                .ok()
                .and_then(|origin| origin.strip_prefix("http://"))
                .is_some_and(|host| self.is_own_host(host))
        };
        let site = headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
        // A browser names the site even if it sends no origin. `none` means that the user typed the address.
        headers.get_all(header::ORIGIN).iter().all(is_own)
            && site.is_none_or(|site| matches!(site, "same-origin" | "none"))
    }

    /// Returns the token in the address of a page.
    fn token_in(uri: &Uri) -> Option<&str> {
        (uri.path() == "/").then(|| uri.query()?.split('&').find_map(|part| part.strip_prefix(PARAMETER))).flatten()
    }
}

/// Checks a request before any other handler, and adds [`HEADERS`] to the reply.
pub(super) async fn check(State(gate): State<Arc<PageCheck>>, request: Request, next: Next) -> Response {
    let mut response = checked(&gate, request, next).await;
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    // Files of the page have their own rule. Everything else may contain text of the index.
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

async fn checked(gate: &PageCheck, request: Request, next: Next) -> Response {
    let headers = request.headers();
    if !gate.is_for_this_machine(headers) {
        return refused(StatusCode::MISDIRECTED_REQUEST, "this server is 127.0.0.1 or localhost\n");
    }
    // The printed address is opened from a terminal, which other sites can link to but not read.
    if let (&Method::GET, Some(token)) = (request.method(), PageCheck::token_in(request.uri())) {
        if !gate.is_own(token.as_bytes()) {
            return refused(StatusCode::UNAUTHORIZED, "the token is wrong: open the address that `dr serve` printed\n");
        }
        // For a year: the token is kept in a file and outlives the server.
        let cookie = format!("{}{}; Path=/; HttpOnly; SameSite=Strict; Max-Age=31536000", gate.cookie(), gate.token);
        // Not a redirect, which a browser attributes to the page that led here: `dr serve --open` opens a
        // file, which is another site.
        let next = (header::REFRESH, "0; url=/".to_owned());
        return ([(header::SET_COOKIE, cookie), next], "the page is at /\n").into_response();
    }
    if !gate.is_from_own_page(headers) {
        return refused(StatusCode::FORBIDDEN, "this request comes from a page of another site\n");
    }
    if request.uri().path() != "/healthz" && !gate.admits(headers) {
        return refused(
            StatusCode::UNAUTHORIZED,
            "the token is missing or wrong: open the address that `dr serve` printed\n",
        );
    }
    next.run(request).await
}

fn refused(status: StatusCode, why: &'static str) -> Response {
    tracing::info!(status = status.as_u16(), "request refused");
    (status, why).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn gate() -> PageCheck {
        PageCheck::new(7878, TOKEN.to_owned())
    }

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (header::HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn token_is_taken_from_the_cookie_of_this_port_and_from_a_bearer_header() {
        let bearer = format!("Bearer {TOKEN}");
        let cookie = format!("other=1; dr_7878={TOKEN}");
        assert!(gate().admits(&headers(&[("authorization", &bearer)])));
        assert!(gate().admits(&headers(&[("cookie", &cookie)])));
        for wrong in [format!("dr_7879={TOKEN}"), "dr_7878=".to_owned(), format!("dr_7878={}", &TOKEN[1..])] {
            assert!(!gate().admits(&headers(&[("cookie", &wrong)])), "{wrong}");
        }
        assert!(!gate().admits(&HeaderMap::new()));
    }

    #[test]
    fn name_that_was_rebound_and_page_of_another_site_are_refused() {
        for host in ["127.0.0.1:7878", "localhost:7878", "[::1]:7878"] {
            assert!(gate().is_for_this_machine(&headers(&[("host", host)])), "{host}");
        }
        for host in ["evil.example:7878", "127.0.0.1", "localhost:80", "localhost.evil.example:7878", ""] {
            assert!(!gate().is_for_this_machine(&headers(&[("host", host)])), "{host}");
        }
        assert!(
            gate()
                .is_from_own_page(&headers(&[("origin", "http://localhost:7878"), ("sec-fetch-site", "same-origin")]))
        );
        assert!(gate().is_from_own_page(&HeaderMap::new()));
        for (name, value) in [
            ("origin", "https://evil.example"),
            ("origin", "null"),
            ("origin", "http://localhost:7879"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert!(!gate().is_from_own_page(&headers(&[(name, value)])), "{name}: {value}");
        }
    }
}
