//! Times of day as files and folders have them. A clock may be wrong in any way.

use std::time::{Duration, SystemTime};

/// The last second of the year 9999, the last year that can be written.
const LAST: Duration = Duration::from_secs(253_402_300_799);

/// A time of day in RFC 3339, UTC, in whole seconds. A clock before 1970 or after 9999 counts as the
/// first or the last second of those years.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let written = SystemTime::UNIX_EPOCH + since_1970(time).min(LAST);
    humantime::format_rfc3339_seconds(written).to_string()
}

/// The time since 1970; none before.
pub(crate) fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_clock_can_be_written() {
        let epoch = SystemTime::UNIX_EPOCH;
        let far = Duration::from_secs(1 << 40);
        for (time, written) in [
            (epoch - Duration::from_nanos(1), "1970-01-01T00:00:00Z"),
            (epoch - far, "1970-01-01T00:00:00Z"),
            (epoch + far, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(time), written);
        }
    }
}
