//! Which superseded versions of a table are kept for readers that have them open.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lancedb::table::Version;

/// How long superseded versions, and a generation before a rebuild, are kept for readers that have them open.
pub(crate) const KEPT_VERSIONS: Duration = Duration::from_mins(10);

/// Returns the numbers of the versions of a table that readers may have open.
pub(super) fn kept_versions(versions: &[Version]) -> Vec<u64> {
    let (oldest_ms, _) = oldest_kept(versions);
    let is_kept = |version: &&Version| version.timestamp.timestamp_millis() >= oldest_ms;
    versions.iter().filter(is_kept).map(|version| version.version).collect()
}

/// Returns the time of the oldest version of a table to keep, and the present, in milliseconds.
pub(super) fn oldest_kept(versions: &[Version]) -> (i64, i64) {
    let made_ms: Vec<_> = versions.iter().map(|version| version.timestamp.timestamp_millis()).collect();
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let now_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
    (oldest_kept_ms(&made_ms, now_ms), now_ms)
}

/// Returns the time of the oldest version to keep: the one that was the latest [`KEPT_VERSIONS`] ago. Judged by
/// its own age, yesterday's version would be deleted as soon as it was superseded.
fn oldest_kept_ms(made_ms: &[i64], now_ms: i64) -> i64 {
    let kept_ms = i64::try_from(KEPT_VERSIONS.as_millis()).unwrap_or(i64::MAX);
    let limit = now_ms.saturating_sub(kept_ms);
    made_ms.iter().copied().filter(|made| *made <= limit).max().unwrap_or(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_kept_until_it_was_superseded_for_ten_minutes() {
        let minutes = |minutes: i64| minutes * 60_000;
        let made = [0, 5, 50, 58].map(minutes);
        for (now, oldest) in [(14, 0), (15, 5), (59, 5), (60, 50), (67, 50), (68, 58), (999, 58)] {
            assert_eq!(oldest_kept_ms(&made, minutes(now)), minutes(oldest), "after {now} minutes");
        }
        assert_eq!(oldest_kept_ms(&made[2..], minutes(55)), minutes(45), "all are younger");
    }
}
