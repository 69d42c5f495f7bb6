//! Web addresses: parsing, and a canonical form by which duplicates are recognised.

use std::fmt;
use std::str::FromStr;

use reqwest::Url;
use reqwest::header::HeaderValue;
use serde::{Deserialize, Serialize};

use crate::base::id::as_text;

/// Maximum length of an address in bytes.
const MAX_URL_BYTES: usize = 2_048;

/// Query parameters that track the reader and do not affect the page. Those that begin with `utm_` are tracking, too.
const TRACKING: [&str; 18] = [
    "gclid", "gclsrc", "dclid", "gbraid", "wbraid", "fbclid", "msclkid", "yclid", "twclid", "ttclid", "igshid",
    "mc_cid", "mc_eid", "_ga", "_gl", "_hsenc", "_hsmi", "ref_src",
];

/// The address of a page: HTTP or HTTPS with a host, without user name, password or fragment.
///
/// Parsing does not decide whether the host may be contacted; [`super::Fetcher`] does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct WebUrl(Url);

/// The text is not the address of a page. The error leaves the text out, since it may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParseWebUrlError {
    /// Not an address, or one longer than the limit.
    #[error("not a web address")]
    NotAnAddress,
    #[error("address is neither `http` nor `https`")]
    WrongScheme,
    #[error("address has a user name or a password")]
    HasUser,
}

impl WebUrl {
    /// Returns the address as sent in requests.
    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str()
    }

    pub(super) fn url(&self) -> &Url {
        &self.0
    }

    /// Returns the host name or IP address, in lower case, without brackets and trailing dot.
    pub(crate) fn host(&self) -> &str {
        let host = self.0.host_str().unwrap_or_default();
        host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.')
    }

    /// Returns the port, explicit or default.
    pub(crate) fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or(80)
    }

    /// Returns the host without `www.`.
    pub(crate) fn domain(&self) -> &str {
        self.host().strip_prefix("www.").unwrap_or(self.host())
    }

    /// Returns scheme, host and port, for example `https://example.org`.
    pub(crate) fn origin(&self) -> String {
        self.0.origin().ascii_serialization()
    }

    /// Returns the canonical form by which duplicates are recognised: without tracking parameters and trailing slashes.
    #[must_use]
    pub(crate) fn canonical(&self) -> Self {
        let mut url = self.0.clone();
        let is_tracking = |name: &str| name.starts_with("utm_") || TRACKING.contains(&name);
        let name = |pair: &str| pair.split('=').next().unwrap_or_default().to_ascii_lowercase();
        // Not parsed: pairs that are encoded anew may be the address of another page.
        let query = url.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let kept = query.filter(|pair| !is_tracking(&name(pair))).collect::<Vec<_>>().join("&");
        url.set_query((!kept.is_empty()).then_some(&kept));
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        Self(url)
    }

    /// Resolves a reference relative to this page.
    pub(crate) fn join(&self, reference: &str) -> Result<Self, ParseWebUrlError> {
        Self::of(self.0.join(reference.trim()).map_err(|_| ParseWebUrlError::NotAnAddress)?)
    }

    /// Resolves the `Location` header of a redirect from this page.
    pub(super) fn redirected(&self, location: &HeaderValue) -> Result<Self, ParseWebUrlError> {
        self.join(&String::from_utf8_lossy(location.as_bytes()))
    }

    fn of(mut url: Url) -> Result<Self, ParseWebUrlError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(ParseWebUrlError::WrongScheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ParseWebUrlError::HasUser);
        }
        // A fragment is never sent, so it does not distinguish pages.
        url.set_fragment(None);
        let is_fit = url.as_str().len() <= MAX_URL_BYTES && url.host_str().is_some_and(|host| !host.is_empty());
        if is_fit { Ok(Self(url)) } else { Err(ParseWebUrlError::NotAnAddress) }
    }
}

/// Returns the web addresses in a text, verbatim.
pub(crate) fn named_in(text: &str) -> Vec<&str> {
    fn address(text: &str) -> &str {
        let is_end = |letter: char| letter.is_whitespace() || matches!(letter, '<' | '>' | '"' | '`' | '|' | '{' | '}');
        // A longer one is no address, and a text of nothing but addresses must not take quadratic time.
        let text = text[..text.floor_char_boundary(MAX_URL_BYTES + 1)]
            .split(is_end)
            .next()
            .unwrap_or_default()
            .trim_end_matches(['.', ',', ';', ':', '!', '?', '\'', ']', '*']);
        // A closing parenthesis belongs to the address only if the opening one does.
        if text.contains('(') { text } else { text.trim_end_matches(')') }
    }
    let starts = text.match_indices("http").map(|(at, _)| &text[at..]);
    let starts = starts.filter(|text| text.starts_with("http://") || text.starts_with("https://"));
    starts.map(address).filter(|text| text.parse::<WebUrl>().is_ok()).collect()
}

impl FromStr for WebUrl {
    type Err = ParseWebUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::of(Url::parse(text.trim()).map_err(|_| ParseWebUrlError::NotAnAddress)?)
    }
}

impl fmt::Display for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

as_text!(WebUrl);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn canonical(text: &str) -> String {
        text.parse::<WebUrl>().unwrap().canonical().to_string()
    }

    #[test]
    fn one_page_has_one_address() {
        for text in [
            "https://example.org/a?id=7",
            "HTTPS://Example.ORG:443/a/?utm_source=x&id=7&gclid=1#top",
            "https://example.org/b/../a?fbclid=9&id=7&UTM_Medium=mail",
            " https://example.org/a?&id=7& ",
        ] {
            assert_eq!(canonical(text), "https://example.org/a?id=7", "{text}");
        }
        assert_eq!(canonical("https://example.org?utm_source=x"), "https://example.org/");
        assert_ne!(canonical("https://example.org/a?id=7"), canonical("https://example.org/a?id=8"));
        assert_ne!(canonical("http://example.org:8080/"), canonical("http://example.org/"));
    }

    #[test]
    fn what_is_no_address_of_the_web_is_refused() {
        for (text, expected) in [
            ("file:///etc/passwd", ParseWebUrlError::WrongScheme),
            ("ftp://example.org/", ParseWebUrlError::WrongScheme),
            ("javascript:alert(1)", ParseWebUrlError::WrongScheme),
            ("https://me:hunter2@example.org/", ParseWebUrlError::HasUser),
            ("https://me@example.org/", ParseWebUrlError::HasUser),
            ("example.org", ParseWebUrlError::NotAnAddress),
            ("https://", ParseWebUrlError::NotAnAddress),
        ] {
            assert_eq!(text.parse::<WebUrl>(), Err(expected), "{text}");
        }
        assert!(format!("https://example.org/{}", "a".repeat(3_000)).parse::<WebUrl>().is_err());
    }

    #[test]
    fn redirect_is_read_from_where_it_stands_and_leads_nowhere_but_the_web() {
        let page: WebUrl = "https://example.org/a/b".parse().unwrap();
        assert_eq!(page.join("../c#d").unwrap().as_str(), "https://example.org/c");
        assert_eq!(page.join("//other.example/x").unwrap().host(), "other.example");
        for target in ["file:///etc/passwd", "data:text/html,x", "gopher://example.org", "http://a:b@example.org"] {
            assert!(page.join(target).is_err(), "{target}");
        }
    }

    #[test]
    fn domain_is_the_host_without_www() {
        assert_eq!("https://www.Example.org./x".parse::<WebUrl>().unwrap().domain(), "example.org");
        assert_eq!("http://[::1]:80/".parse::<WebUrl>().unwrap().host(), "::1");
    }

    #[test]
    fn addresses_are_found_in_a_question() {
        let found = named_in("Is https://example.org/a_(b) like (http://other.example/x?y=1)? Or httpd, https://?");
        assert_eq!(found, ["https://example.org/a_(b)", "http://other.example/x?y=1"]);
    }

    proptest! {
        #[test]
        fn canonical_form_stays_as_it_is(path in "[a-z/.?&=#%_]{0,40}") {
            if let Ok(url) = format!("https://example.org/{path}").parse::<WebUrl>() {
                let once = url.canonical();
                prop_assert_eq!(once.canonical(), once.clone());
                prop_assert_eq!(once.as_str().parse::<WebUrl>().unwrap(), once);
            }
        }
    }
}
