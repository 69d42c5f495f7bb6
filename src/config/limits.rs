//! Settings that limit a run, and what they are when nobody says anything.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::Options;
use crate::base::money::nanos;
use crate::research::plan::TreeLimits;
use crate::run::budget::BudgetLimits;

/// Sub-questions worked on at the same time.
const PARALLEL: usize = 3;

/// Most sub-questions that may be.
pub const MAX_PARALLEL: u16 = 64;

/// Tokens of the rolling summary.
const SUMMARY_TOKENS: u64 = 4_000;

/// Tokens it may have: with fewer it says nothing, with more it is no summary.
const SUMMARY_RANGE: RangeInclusive<u64> = 200..=100_000;

impl Options {
    /// Returns what a run may spend; a limit of money that is infinite is none.
    pub fn limits(&self) -> BudgetLimits {
        let default = BudgetLimits::default();
        BudgetLimits {
            cost_nanos: match self.max_cost {
                Some(dollars) if dollars.is_infinite() => None,
                Some(dollars) => Some(nanos(dollars)),
                None => default.cost_nanos,
            },
            tokens: self.max_tokens.or(default.tokens),
            time: self.max_time.as_deref().and_then(|time| duration(time).ok()).or(default.time),
            rounds: self.max_rounds.or(default.rounds),
        }
    }

    /// Returns how large a tree may grow.
    pub fn tree_limits(&self) -> TreeLimits {
        let default = TreeLimits::default();
        TreeLimits { max_depth: self.max_depth.unwrap_or(default.max_depth), ..default }
    }

    /// Returns how many sub-questions are worked on at the same time.
    pub fn parallel(&self) -> usize {
        self.parallel.unwrap_or(PARALLEL)
    }

    /// Returns how long the rolling summary may be, in tokens.
    pub fn summary_tokens(&self) -> u64 {
        self.summary_tokens.unwrap_or(SUMMARY_TOKENS)
    }
}

/// Reads a stretch of time as people write it: `90s`, `15m`, `1h 30m`.
///
/// # Errors
///
/// Returns what is wrong with it, for people.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed: Result<jiff::SignedDuration, _> = text.parse();
    let parsed = parsed.map_err(|_| format!("`{text}` is not a time (for example `90s`, `15m`, `1h 30m`)"))?;
    Duration::try_from(parsed).map_err(|_| format!("`{text}` lies in the past"))
}

/// Reads an amount of dollars; `inf` lifts the limit.
///
/// # Errors
///
/// Returns what is wrong with it, for people.
pub fn dollars(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(dollars) if dollars >= 0.0 => Ok(dollars),
        _ => Err(format!("`{text}` is not an amount of dollars (for example `0.50`, or `inf` for no limit)")),
    }
}

/// Reads a limit of money, so that one that is none is said with its file.
pub(super) fn money<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let dollars = f64::deserialize(deserializer)?;
    let is_amount = dollars >= 0.0;
    let error = || D::Error::custom(format!("found `{dollars}`, expected dollars, 0 or more, or `inf` for no limit"));
    if is_amount { Ok(Some(dollars)) } else { Err(error()) }
}

/// Reads how many sub-questions are worked on at the same time.
pub(super) fn parallel<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    within(usize::deserialize(deserializer)?, 1..=usize::from(MAX_PARALLEL))
}

/// Reads how long the rolling summary may be.
pub(super) fn summary_tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    within(u64::deserialize(deserializer)?, SUMMARY_RANGE)
}

/// Reads how many rounds there may be.
pub(super) fn rounds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    match u32::deserialize(deserializer)? {
        0 => Err(D::Error::custom("found `0`, expected 1 or more")),
        rounds => Ok(Some(rounds)),
    }
}

fn within<T: PartialOrd + std::fmt::Display, E: Error>(value: T, range: RangeInclusive<T>) -> Result<Option<T>, E> {
    let error = || E::custom(format!("found `{value}`, expected {} to {}", range.start(), range.end()));
    if range.contains(&value) { Ok(Some(value)) } else { Err(error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_that_were_set_and_defaults_elsewhere() {
        let options = Options { max_cost: Some(0.5), max_time: Some("1h 30m".into()), ..Options::default() };
        let limits = options.limits();
        assert_eq!(limits.cost_nanos, Some(500_000_000));
        assert_eq!(limits.time, Some(Duration::from_mins(90)));
        assert_eq!(limits.rounds, BudgetLimits::default().rounds);
        let lifted = Options { max_cost: Some(f64::INFINITY), ..Options::default() };
        assert_eq!(lifted.limits().cost_nanos, None);
    }

    #[test]
    fn time_and_money_that_are_none_are_refused_in_words() {
        assert_eq!(duration("soon").unwrap_err(), "`soon` is not a time (for example `90s`, `15m`, `1h 30m`)");
        assert!(duration("-5m").is_err() && dollars("-1").is_err() && dollars("NaN").is_err());
        assert_eq!(dollars("inf"), Ok(f64::INFINITY));
    }
}
