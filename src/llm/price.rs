//! Prices of model calls: a dated table, and costs in whole billionths of a dollar.
//!
//! An unknown price is `None`, never zero. Fractions of a billionth are rounded up.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::message::Usage;
use crate::base::money::NANOS;

const TABLE: &str = include_str!("prices.toml");

/// Number of tokens that a price refers to.
const TOKENS: u128 = 1_000_000;

/// The price of a model as written in a file, in dollars per million tokens or per search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct PriceOptions {
    pub(crate) input: f64,
    /// Input tokens read from the provider's cache; defaults to `input`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cached: Option<f64>,
    /// Input tokens written to the provider's cache; defaults to `input`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cache_write: Option<f64>,
    /// Output tokens, including reasoning.
    pub(crate) output: f64,
    /// One web search; unknown if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) search: Option<f64>,
    /// Input tokens above which the whole request is charged at the long rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) long_above: Option<u64>,
    /// Factor on the input price of a long request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) long_input: Option<f64>,
    /// Factor on the output price of a long request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) long_output: Option<f64>,
}

/// The price of a model, in billionths of a dollar per million tokens or per search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Price {
    input: u64,
    cached: u64,
    output: u64,
    search: Option<u64>,
    long: Option<LongPrice>,
}

/// The surcharge on long requests; factors in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LongPrice {
    above_tokens: u64,
    input_factor: u64,
    output_factor: u64,
}

impl Price {
    /// The price of a local model.
    pub(crate) const FREE: Self = Self { input: 0, cached: 0, output: 0, search: Some(0), long: None };

    /// Converts a price as written in a file. The rows of the settings have checked its bounds.
    pub(crate) fn of(options: &PriceOptions) -> Self {
        // At most 10¹⁵, which both `f64` and `u64` represent exactly.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float cast stops at the ends")]
        let whole = |value: f64, unit: f64| (value * unit).round() as u64;
        let nanos = |value| whole(value, NANOS);
        let input = nanos(options.input);
        Self {
            // Whether a token is written to the cache is unknown before the call, and not always reported after it, so
            // the higher price is charged.
            input: options.cache_write.map_or(input, |written| nanos(written).max(input)),
            cached: options.cached.map_or(input, nanos),
            output: nanos(options.output),
            search: options.search.map(nanos),
            long: options.long_above.map(|above_tokens| LongPrice {
                above_tokens,
                input_factor: whole(options.long_input.unwrap_or(1.0), 1e3),
                output_factor: whole(options.long_output.unwrap_or(1.0), 1e3),
            }),
        }
    }

    /// Returns the cost of one request in billionths of a dollar, rounded up.
    pub(crate) fn cost_nanos(&self, usage: &Usage) -> u64 {
        // Counts come from endpoints: more cached than input tokens would underflow.
        let cached = usage.cached_tokens.min(usage.input_tokens);
        let fresh = usage.input_tokens - cached;
        // Tokens × price × factor in thousandths exceed 64 bits at about a million tokens.
        let input = u128::from(fresh) * u128::from(self.input) + u128::from(cached) * u128::from(self.cached);
        let output = u128::from(usage.output_tokens) * u128::from(self.output);
        let (input_factor, output_factor) = match self.long {
            Some(long) if usage.input_tokens > long.above_tokens => (long.input_factor, long.output_factor),
            _ => (1_000, 1_000),
        };
        let total = input * u128::from(input_factor) + output * u128::from(output_factor);
        // Saturates, since a cost that is too large for the type has to exceed every limit.
        u64::try_from(total.div_ceil(TOKENS * 1_000)).unwrap_or(u64::MAX)
    }

    /// Returns the cost of web searches in billionths of a dollar, or `None` if their price is unknown.
    pub(crate) fn searches_nanos(&self, searches: u64) -> Option<u64> {
        self.search.map(|search| search.saturating_mul(searches))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PriceTable {
    /// The date of the built-in prices.
    pub(crate) as_of: String,
    prices: BTreeMap<String, Price>,
    /// Models priced by the user.
    own: BTreeSet<String>,
}

#[derive(Deserialize)]
struct TableFile {
    as_of: String,
    models: BTreeMap<String, PriceOptions>,
}

impl PriceTable {
    /// Returns the built-in prices with the user's prices on top.
    pub(crate) fn with(overrides: &BTreeMap<String, PriceOptions>) -> Self {
        let file: TableFile = toml::from_str(TABLE).expect("the table is part of the program, and a test reads it");
        let options = file.models.iter().chain(overrides);
        Self {
            as_of: file.as_of.clone(),
            prices: options.map(|(model, options)| (model.clone(), Price::of(options))).collect(),
            own: overrides.keys().cloned().collect(),
        }
    }

    /// Returns the price of a model at an endpoint. `is_free` is set for an endpoint on this machine, `is_named` if the
    /// user configured the model by name.
    ///
    /// A named model costs its known price even at a local endpoint, which may be a proxy to a paid provider. A default
    /// model at a local endpoint costs only what the user set, or nothing.
    pub(crate) fn at(&self, model: &str, is_free: bool, is_named: bool) -> Option<Price> {
        let is_own = |name: &str| self.own.contains(name);
        let has_own = is_own(model) || without_date(model).is_some_and(is_own);
        let known = self.find(model).filter(|_| !is_free || is_named || has_own);
        known.or(is_free.then_some(Price::FREE))
    }

    /// Returns the price of a model. A snapshot (`gpt-5.4-2026-03-05`) has the price of its model.
    pub(crate) fn find(&self, model: &str) -> Option<Price> {
        let base = || without_date(model).and_then(|base| self.prices.get(base));
        self.prices.get(model).or_else(base).copied()
    }
}

/// Returns the name of a model without the date of its snapshot, or `None` if it has no date.
fn without_date(model: &str) -> Option<&str> {
    // A name may be any text, so the cut may fall inside a character.
    let (base, date) = model.split_at_checked(model.len().checked_sub("-2026-03-05".len())?)?;
    let is_date = date.bytes().enumerate().all(|(at, byte)| match at {
        0 | 5 | 8 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    is_date.then_some(base)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table() -> PriceTable {
        PriceTable::with(&BTreeMap::new())
    }

    fn usage(input_tokens: u64, cached_tokens: u64, output_tokens: u64) -> Usage {
        Usage { input_tokens, cached_tokens, output_tokens, reasoning_tokens: 0 }
    }

    #[test]
    fn call_costs_what_the_table_says_to_the_billionth() {
        let price = table().find("gpt-5.4-mini").unwrap();
        // 9,000 at $0.75, 1,000 at $0.075, 2,000 at $4.50 a million.
        assert_eq!(price.cost_nanos(&usage(10_000, 1_000, 2_000)), 6_750_000 + 75_000 + 9_000_000);
        assert_eq!(price.searches_nanos(3), Some(30_000_000));
    }

    #[test]
    fn part_of_a_billionth_is_rounded_up() {
        let options = PriceOptions { input: 0.0001, output: 0.0, ..gpt() };
        let price = Price::of(&options);
        assert_eq!(price.cost_nanos(&usage(1, 0, 0)), 1);
        assert_eq!(price.cost_nanos(&usage(11, 0, 0)), 2);
        assert_eq!(price.cost_nanos(&usage(0, 0, 0)), 0);
    }

    #[test]
    fn long_request_costs_more_as_a_whole() {
        let price = table().find("gpt-5.4").unwrap();
        let just = price.cost_nanos(&usage(272_000, 0, 1_000));
        assert_eq!(just, 272_000 * 2_500 + 1_000 * 15_000);
        let above = price.cost_nanos(&usage(272_001, 0, 1_000));
        assert_eq!(above, 2 * 272_001 * 2_500 + 3 * 1_000 * 15_000 / 2);
    }

    #[test]
    fn snapshot_costs_what_its_model_costs_and_a_stranger_has_no_price() {
        let table = table();
        assert_eq!(table.find("gpt-5.4-2026-03-05"), table.find("gpt-5.4"));
        assert!(table.find("gpt-5.4").is_some());
        for stranger in ["qwen3:8b", "gpt-5.4-turbo", "gpt-5.4-2026-03-05-x", "", "日本語日本語", "-2026-03-05"] {
            assert_eq!(table.find(stranger), None, "{stranger}");
        }
    }

    #[test]
    fn user_overrides_a_price_and_adds_others() {
        let overrides = BTreeMap::from([("gpt-5.4".into(), gpt()), ("mine".into(), gpt())]);
        let table = PriceTable::with(&overrides);
        assert_eq!(table.find("gpt-5.4-2026-03-05").unwrap().cost_nanos(&usage(1_000_000, 0, 0)), 1_000_000_000);
        assert_eq!(table.find("mine").unwrap().searches_nanos(1), None);
        assert_eq!(table.as_of.len(), "2026-11-21".len());
    }

    #[test]
    fn tokens_that_may_be_written_to_a_cache_are_charged_as_if_they_were() {
        let price = table().find("gpt-6.1-sol").unwrap();
        assert_eq!(price.cost_nanos(&usage(1_000_000, 0, 0)), 2_500_000_000 * 2);
        assert_eq!(price.cost_nanos(&usage(100_000, 0, 0)), 250_000_000);
    }

    fn gpt() -> PriceOptions {
        PriceOptions { input: 1.0, output: 2.0, ..PriceOptions::default() }
    }

    proptest! {
        /// The reservation covers a call, whatever part of it was cached.
        #[test]
        fn fewer_tokens_never_cost_more(input in 0_u64..2_000_000, output in 0_u64..200_000, cached in 0_u64..2_000_000, less in 0_u64..2_000_000) {
            let price = table().find("gpt-6.1-sol").unwrap();
            let worst = price.cost_nanos(&usage(input, 0, output));
            prop_assert!(price.cost_nanos(&usage(input.saturating_sub(less), cached, output)) <= worst);
        }
    }
}
