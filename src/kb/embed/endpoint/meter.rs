//! Limits the spending of one operation at an embedding server: the worst case of every request is set aside before it
//! is sent.

use std::sync::{Arc, Mutex};

use crate::base::money::dollars_text;
use crate::base::mutex::locked;

/// Number of tokens a price refers to.
const TOKENS: u128 = 1_000_000;

/// Returns the cost of tokens at a price for a million of them, in billionths of a dollar, rounded up.
pub(in crate::kb::embed) fn cost_nanos(price: u64, tokens: u64) -> u64 {
    // The product of two `u64`.
    u64::try_from((u128::from(price) * u128::from(tokens)).div_ceil(TOKENS)).unwrap_or(u64::MAX)
}

/// The limit would be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("embedding costs up to {}, and the limit is {}", dollars_text(*needed), dollars_text(*limit))]
pub struct OverLimit {
    /// Spent, set aside and now needed, in billionths of a dollar.
    pub(super) needed: u64,
    pub(super) limit: u64,
}

/// Counts tokens and money.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Billionths of a dollar for a million tokens; `None` if unknown.
    price: Option<u64>,
    limit: Option<u64>,
    spent: Mutex<MeterReading>,
}

/// Tokens sent, and an upper bound on their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MeterReading {
    pub(super) tokens: u64,
    pub(super) nanos: u64,
}

/// Tokens and money set aside for a request in flight. They stay charged unless the actual cost is known: a lost
/// reply may have been paid for.
#[derive(Debug)]
pub(super) struct MeterHold {
    meter: Arc<Meter>,
    held: MeterReading,
}

impl Meter {
    pub(super) fn new(price: Option<u64>, limit: Option<u64>) -> Self {
        Self { price, limit, spent: Mutex::default() }
    }

    /// Returns whether `tokens` more tokens fit into the limit.
    pub(super) fn check(&self, tokens: u64) -> Result<(), OverLimit> {
        self.fits(&locked(&self.spent), tokens).map(|_| ())
    }

    /// Sets aside the highest cost of a request.
    ///
    /// # Errors
    ///
    /// Returns [`OverLimit`] if it does not fit into the limit.
    pub(super) fn hold(self: &Arc<Self>, tokens: u64) -> Result<MeterHold, OverLimit> {
        let mut spent = locked(&self.spent);
        let nanos = self.fits(&spent, tokens)?;
        spent.tokens = spent.tokens.saturating_add(tokens);
        spent.nanos = spent.nanos.saturating_add(nanos);
        Ok(MeterHold { meter: Arc::clone(self), held: MeterReading { tokens, nanos } })
    }

    pub(super) fn spent_so_far(&self) -> MeterReading {
        *locked(&self.spent)
    }

    fn fits(&self, spent: &MeterReading, tokens: u64) -> Result<u64, OverLimit> {
        let nanos = cost_nanos(self.price.unwrap_or(0), tokens);
        let needed = spent.nanos.saturating_add(nanos);
        match self.limit {
            Some(limit) if needed > limit => Err(OverLimit { needed, limit }),
            _ => Ok(nanos),
        }
    }
}

impl MeterHold {
    /// Charges the tokens that the server reports in place of those set aside.
    pub(super) fn settle(self, tokens: u64) {
        let nanos = cost_nanos(self.meter.price.unwrap_or(0), tokens);
        let mut spent = locked(&self.meter.spent);
        spent.tokens = spent.tokens.saturating_sub(self.held.tokens).saturating_add(tokens);
        spent.nanos = spent.nanos.saturating_sub(self.held.nanos).saturating_add(nanos);
    }

    /// Charges nothing, because the server did not carry out the request.
    pub(super) fn release(self) {
        self.settle(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_refused_that_could_pass_the_limit_beside_those_in_flight() {
        // Two cents for a million tokens: 20 billionths for one.
        let meter = Arc::new(Meter::new(Some(20_000_000), Some(100)));
        let first = meter.hold(3).unwrap();
        let second = meter.hold(2).unwrap();
        assert_eq!(meter.hold(1).unwrap_err(), OverLimit { needed: 120, limit: 100 });
        first.settle(1);
        assert_eq!(meter.spent_so_far(), MeterReading { tokens: 3, nanos: 60 });
        second.release();
        assert_eq!(meter.spent_so_far(), MeterReading { tokens: 1, nanos: 20 });
        drop(meter.hold(4).unwrap());
        assert_eq!(meter.spent_so_far(), MeterReading { tokens: 5, nanos: 100 }, "a lost reply may have been paid for");
        assert!(meter.check(1).is_err() && meter.check(0).is_ok());
    }

    #[test]
    fn cost_is_rounded_up_and_does_not_overflow() {
        assert_eq!([cost_nanos(20_000_000, 1), cost_nanos(1, 1), cost_nanos(0, 9)], [20, 1, 0]);
        assert_eq!(cost_nanos(u64::MAX, u64::MAX), u64::MAX);
    }
}
