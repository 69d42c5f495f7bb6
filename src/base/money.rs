//! Money as whole billionths of a US dollar, so that sums are exact.

/// One dollar. The cheapest price per token is a few billionths, so a coarser unit would round single tokens.
pub(crate) const NANOS: f64 = 1e9;

/// Converts dollars to billionths, rounding up. Negative amounts and NaN become zero.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float cast stops at the ends of u64")]
pub(crate) fn nanos(dollars: f64) -> u64 {
    (dollars * NANOS).ceil() as u64
}

/// Converts billionths to dollars.
#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 billionths, nine million dollars")]
pub(crate) fn dollars(nanos: u64) -> f64 {
    nanos as f64 / NANOS
}

/// Formats an amount for display: `$0.0042`, rounded; a positive amount below $0.0001 is never shown as zero.
pub(crate) fn dollars_text(nanos: u64) -> String {
    if 0 < nanos && nanos < 100_000 {
        return "under $0.0001".to_owned();
    }
    let hundredths_of_cents = nanos / 100_000 + u64::from(nanos % 100_000 >= 50_000);
    format!("${}.{:04}", hundredths_of_cents / 10_000, hundredths_of_cents % 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_are_exact_and_never_rounded_down_to_nothing() {
        assert_eq!(nanos(0.1), 100_000_000);
        assert_eq!(nanos(-1.0), 0);
        assert_eq!(dollars_text(12_345_600_000), "$12.3456");
        assert_eq!(dollars_text(0), "$0.0000");
        assert_eq!(dollars_text(7), "under $0.0001");
    }
}
