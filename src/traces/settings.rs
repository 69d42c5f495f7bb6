//! Whether and where traces are exported: the variables of the OpenTelemetry SDK, and the setting for texts.

use std::time::Duration;

use serde::Deserialize;

use crate::base::environment::Environment;
use crate::base::http::{BaseUrl, HttpError, ParseBaseUrlError, shown};

/// Address of the collector; `/v1/traces` is appended.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Address of the collector for traces, used unchanged. Takes precedence over [`ENDPOINT`].
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

const PATH: &str = "/v1/traces";

/// Variables of the protocol, the more specific first.
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];

const PROTOCOL: &str = "http/protobuf";

/// Variables of the timeout of a request, in milliseconds, the more specific first.
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];

/// The timeout that OpenTelemetry specifies.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Turns off OpenTelemetry as a whole.
const DISABLED: &str = "OTEL_SDK_DISABLED";

/// Lists exporters; `none` turns traces off.
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";

/// The table `[traces]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TraceOptions {
    /// Whether questions, prompts, replies, queries and addresses are exported too.
    #[serde(default)]
    pub(crate) texts: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceSettings {
    pub(crate) address: BaseUrl,
    pub(crate) timeout: Duration,
    /// Whether texts may be exported.
    pub(crate) has_texts: bool,
}

/// Traces are not exported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotExported {
    #[error("`{ENDPOINT}` is not set")]
    NoEndpoint,
    /// The user has turned them off.
    #[error("`{variable}` is `{value}`")]
    TurnedOff { variable: &'static str, value: String },
    #[error("dr is offline")]
    Offline,
    #[error("`{variable}` is `{value}`, but dr supports only `{PROTOCOL}`")]
    Protocol { variable: &'static str, value: String },
    #[error("`{variable}` cannot be used")]
    Address { variable: &'static str, source: ParseBaseUrlError },
    #[error("{reason}")]
    Exporter { reason: String },
    #[error(transparent)]
    Client(#[from] HttpError),
}

impl NotExported {
    /// Returns whether this is intended by the user, so that there is nothing to report.
    pub(crate) fn is_wanted(&self) -> bool {
        matches!(self, Self::NoEndpoint | Self::TurnedOff { .. })
    }
}

/// Returns whether this process was asked to export traces, judged only by its environment.
pub(super) fn is_requested() -> bool {
    [ENDPOINT, TRACES_ENDPOINT].iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

impl TraceSettings {
    /// Resolves the variables.
    ///
    /// # Errors
    ///
    /// Returns the reason why traces are not exported, which may be intended.
    pub(crate) fn resolve(
        options: &TraceOptions,
        environment: &Environment,
        is_offline: bool,
    ) -> Result<Self, NotExported> {
        let get = |name: &'static str| environment.get(name).map(|value| (name, value.trim()));
        let own = get(TRACES_ENDPOINT);
        let (variable, address) = own.or_else(|| get(ENDPOINT)).ok_or(NotExported::NoEndpoint)?;
        let off = |(variable, value): (&'static str, &str)| NotExported::TurnedOff { variable, value: shown(value) };
        // Before all other reasons: traces that the user has turned off are not worth a note.
        if let Some(disabled) = get(DISABLED).filter(|(_, value)| value.eq_ignore_ascii_case("true")) {
            return Err(off(disabled));
        }
        let is_otlp = |value: &str| value.split(',').any(|exporter| exporter.trim().eq_ignore_ascii_case("otlp"));
        if let Some(exporter) = get(EXPORTER).filter(|(_, value)| !is_otlp(value)) {
            return Err(off(exporter));
        }
        if is_offline {
            return Err(NotExported::Offline);
        }
        if let Some((variable, value)) = PROTOCOLS.into_iter().find_map(get).filter(|(_, value)| *value != PROTOCOL) {
            return Err(NotExported::Protocol { variable, value: shown(value) });
        }
        let parse = |address: &str| address.parse().map_err(|source| NotExported::Address { variable, source });
        let base: BaseUrl = parse(address)?;
        let address = if own.is_some() { base } else { parse(&base.with_path(PATH))? };
        let timeout = TIMEOUTS.into_iter().find_map(get).and_then(|(_, value)| value.parse().ok());
        let timeout = timeout.map_or(DEFAULT_TIMEOUT, Duration::from_millis);
        Ok(Self { address, timeout, has_texts: options.texts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::line::with_causes;

    fn resolved(variables: &[(&str, &str)]) -> Result<TraceSettings, String> {
        let environment = Environment::of(variables.iter().copied());
        TraceSettings::resolve(&TraceOptions::default(), &environment, false).map_err(|error| with_causes(&error))
    }

    #[test]
    fn address_for_traces_is_used_as_it_is_and_the_one_for_all_signals_has_a_path_appended() {
        let address = |variables: &[_]| resolved(variables).map(|settings| settings.address.to_string());
        assert_eq!(address(&[(ENDPOINT, "http://localhost:4318/")]).unwrap(), "http://localhost:4318/v1/traces");
        let both = [(ENDPOINT, "http://localhost:4318"), (TRACES_ENDPOINT, "https://collector.example/otel/v1/traces")];
        assert_eq!(address(&both).unwrap(), "https://collector.example/otel/v1/traces");
    }

    #[test]
    fn traces_are_not_exported_without_an_address_or_where_they_are_turned_off() {
        assert_eq!(resolved(&[]).unwrap_err(), "`OTEL_EXPORTER_OTLP_ENDPOINT` is not set");
        let with = |name, value| resolved(&[(ENDPOINT, "http://localhost:4318"), (name, value)]);
        assert_eq!(with(DISABLED, "TRUE").unwrap_err(), "`OTEL_SDK_DISABLED` is `TRUE`");
        assert_eq!(with(EXPORTER, "none").unwrap_err(), "`OTEL_TRACES_EXPORTER` is `none`");
        assert!(with(DISABLED, "false").is_ok() && with(EXPORTER, "console, otlp").is_ok());
        assert_eq!(
            with(PROTOCOLS[1], "grpc").unwrap_err(),
            "`OTEL_EXPORTER_OTLP_PROTOCOL` is `grpc`, but dr supports only `http/protobuf`"
        );
        assert!(with(PROTOCOLS[0], PROTOCOL).is_ok());
        let environment = Environment::of([(ENDPOINT, "http://localhost:4318")]);
        let offline = TraceSettings::resolve(&TraceOptions::default(), &environment, true);
        assert!(matches!(offline, Err(NotExported::Offline)));
    }

    #[test]
    fn address_with_a_password_is_refused_without_showing_it() {
        let error = resolved(&[(ENDPOINT, "https://me:hunter2@collector.example")]).unwrap_err();
        assert_eq!(
            error,
            "`OTEL_EXPORTER_OTLP_ENDPOINT` cannot be used: address of an endpoint has a password or a query in it"
        );
    }

    #[test]
    fn time_of_a_request_is_in_milliseconds() {
        let timeout = |name, value| {
            resolved(&[(ENDPOINT, "http://localhost:4318"), (name, value)]).map(|settings| settings.timeout)
        };
        assert_eq!(timeout(TIMEOUTS[1], "2500").unwrap(), Duration::from_millis(2_500));
        assert_eq!(timeout(TIMEOUTS[0], "soon").unwrap(), DEFAULT_TIMEOUT);
    }
}
