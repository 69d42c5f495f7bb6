//! LanceDB's service (`db://`): its address and key, and its failures.
//!
//! The service keeps the files of the tables. It updates their indexes, merges small files and drops old versions by
//! itself, so `maintain` leaves these to it. It has no conditional writes, on which the leases of an object store are
//! based, so an index may have only one writer at a time: a lock file keeps out others on this machine.

use std::error::Error;

use lancedb::connection::ConnectBuilder;

use crate::base::environment::{Environment, KeyError};
use crate::base::http::{BaseUrl, ParseBaseUrlError, Secret};

/// Scheme of the address of a database.
pub(super) const SCHEME: &str = "db://";

// The variables and the region of LanceDB's other clients.
const KEY: &str = "LANCEDB_API_KEY";
const REGION: &str = "LANCEDB_REGION";
const HOST: &str = "LANCEDB_HOST_OVERRIDE";
const DEFAULT_REGION: &str = "us-east-1";

/// Longest answer in an error message, in characters: a proxy may answer with a page.
#[cfg(feature = "remote")]
const MAX_ANSWER: usize = 300;

/// How a database is reached.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServiceAccess {
    key: Secret,
    region: String,
    /// The server, if the service is not LanceDB Cloud.
    host: Option<BaseUrl>,
}

/// The variables do not give the address or key of a database.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error("`{HOST}` cannot be used")]
    Host {
        #[from]
        source: ParseBaseUrlError,
    },
    /// The key and the text of the index would be sent unencrypted.
    #[error("`{HOST}` has no TLS, and `{host}` is another machine")]
    Plain { host: String },
}

impl AccessError {
    pub(super) fn hint(&self) -> String {
        match self {
            Self::Key(_) => format!("export {KEY}=…, a key of this database"),
            Self::Host { .. } => format!("for example {HOST}=https://lancedb.example.com; unset it for LanceDB Cloud"),
            Self::Plain { .. } => "use an `https://` address; `http://` is for servers on this machine".to_owned(),
        }
    }
}

impl ServiceAccess {
    /// Resolves the variables. A blank server or region counts as not set.
    pub(super) fn of(environment: &Environment) -> Result<Self, AccessError> {
        let set = |name| environment.get(name).filter(|value| !value.trim().is_empty());
        let host = set(HOST).map(str::parse::<BaseUrl>).transpose()?;
        if let Some(host) = host.as_ref().filter(|host| host.is_plain() && !host.is_loopback()) {
            return Err(AccessError::Plain { host: host.host().to_owned() });
        }
        let key = environment.key(KEY)?;
        Ok(Self { key, region: set(REGION).unwrap_or(DEFAULT_REGION).to_owned(), host })
    }

    #[cfg(feature = "remote")]
    pub(super) fn apply(&self, builder: ConnectBuilder) -> ConnectBuilder {
        let builder = builder.api_key(&self.key.reveal()).region(&self.region);
        match &self.host {
            Some(host) => builder.host_override(&host.to_string()),
            None => builder,
        }
    }

    /// Without the feature, an address of the service is refused earlier.
    #[cfg(not(feature = "remote"))]
    #[expect(clippy::unused_self, reason = "the build with the feature uses it")]
    pub(super) fn apply(&self, builder: ConnectBuilder) -> ConnectBuilder {
        builder
    }
}

/// The service did not fulfil a request.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error("the service answered {answer}")]
    Answered { status: u16, answer: String },
    #[error("the service cannot be reached")]
    Unreachable { source: Box<dyn Error + Send + Sync> },
}

impl ServiceError {
    pub(super) fn hint(&self) -> String {
        match self {
            Self::Answered { status: 401 | 403, .. } => format!("check `{KEY}`: it has to be a key of this database"),
            Self::Answered { .. } => "run the command again: what was committed is kept".to_owned(),
            Self::Unreachable { .. } => format!("check `{HOST}`, the name of the database and the network"),
        }
    }

    /// Returns the failure of the service that an error of LanceDB's client represents, or the error itself.
    #[cfg(feature = "remote")]
    pub(super) fn of(error: lancedb::Error) -> Result<Self, lancedb::Error> {
        match error {
            lancedb::Error::Http { source, status_code: Some(status), .. } => {
                let said: String = without_key(&source.to_string()).chars().take(MAX_ANSWER).collect();
                let answer = said.split_whitespace().collect::<Vec<_>>().join(" ");
                Ok(Self::Answered { status: status.as_u16(), answer })
            }
            lancedb::Error::Http { source, .. } => Ok(Self::Unreachable { source }),
            // Its message about retries would hide the last failure.
            lancedb::Error::Retry { source, .. } => match source.downcast::<lancedb::Error>() {
                Ok(last) => Self::of(*last),
                Err(source) => Ok(Self::Unreachable { source }),
            },
            other => Err(other),
        }
    }

    #[cfg(not(feature = "remote"))]
    pub(super) fn of(error: lancedb::Error) -> Result<Self, lancedb::Error> {
        Err(error)
    }
}

/// Returns an answer without the key, which a server may echo.
#[cfg(feature = "remote")]
fn without_key(answer: &str) -> String {
    Environment::of_process().key(KEY).map_or_else(|_| answer.to_owned(), |key| key.scrub(answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(variables: &[(&str, &str)]) -> Result<ServiceAccess, AccessError> {
        ServiceAccess::of(&Environment::of(variables.iter().copied()))
    }

    #[test]
    fn key_alone_reaches_the_cloud_in_the_default_region() {
        let found = access(&[(KEY, "abc"), (REGION, ""), (HOST, " ")]).unwrap();
        assert_eq!(found, ServiceAccess { key: "abc".parse().unwrap(), region: "us-east-1".into(), host: None });
        assert!(matches!(access(&[(REGION, "eu-west-1")]), Err(AccessError::Key(KeyError::NotSet { .. }))));
        assert!(matches!(access(&[(KEY, "a b")]), Err(AccessError::Key(KeyError::Unsendable { .. }))));
        assert!(!format!("{found:?}").contains("abc"));
    }

    #[test]
    fn key_is_sent_unencrypted_to_this_machine_only() {
        for host in ["http://127.0.0.1:8080/", "http://[::1]:8080", "http://localhost", "https://lancedb.example.com"] {
            let found = access(&[(KEY, "abc"), (HOST, host)]).unwrap();
            assert_eq!(found.host.unwrap().to_string(), host.trim_end_matches('/'));
        }
        for host in ["http://lancedb.example.com", "http://10.0.0.1:8080"] {
            assert!(matches!(access(&[(KEY, "abc"), (HOST, host)]), Err(AccessError::Plain { .. })), "{host}");
        }
        for host in ["lancedb.example.com", "https://me:secret@lancedb.example.com"] {
            assert!(matches!(access(&[(KEY, "abc"), (HOST, host)]), Err(AccessError::Host { .. })), "{host}");
        }
    }
}
