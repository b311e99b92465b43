//! How long a step may take before it counts as hung.

use std::str::FromStr;
use std::time::Duration;

/// Seconds that any step may take: a machine that is busy with other things is slow for a while.
const LEAST: f64 = 60.0;

/// A multiple of what steps took so far, or no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watchdog(Option<f64>);

impl Watchdog {
    /// When a step is overdue, given how many seconds the slowest took that was measured.
    pub fn deadline(self, slowest: f64) -> Option<Duration> {
        let seconds = (self.0? * slowest).max(LEAST);
        // A limit that no clock can count to is none.
        Duration::try_from_secs_f64(seconds).ok()
    }
}

impl FromStr for Watchdog {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<f64>() {
            _ if text == "off" => Ok(Self(None)),
            Ok(factor) if factor.is_finite() && factor >= 1.0 => Ok(Self(Some(factor))),
            _ => Err(format!(
                "`{text}` is no limit: use off, or how many times as long as others a step may take, \
                 from 1 up"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_generous_or_off() {
        let watchdog = |text: &str| text.parse::<Watchdog>();
        assert_eq!(watchdog("off").unwrap().deadline(1e9), None);
        assert_eq!(
            watchdog("30").unwrap().deadline(0.5),
            Some(Duration::from_secs(60))
        );
        assert_eq!(
            watchdog("30").unwrap().deadline(10.0),
            Some(Duration::from_secs(300))
        );
        assert_eq!(watchdog("1e300").unwrap().deadline(10.0), None);
        for bad in ["", "0", "-1", "nan", "inf", "soon"] {
            assert!(watchdog(bad).is_err(), "{bad}");
        }
    }
}
