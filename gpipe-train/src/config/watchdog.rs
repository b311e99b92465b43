//! The key `run.watchdog`: the time after which a step counts as hung.

use std::str::FromStr;
use std::time::Duration;

/// Minimum time limit in seconds, which tolerates delays by other programs.
const LEAST: f64 = 60.0;

/// A time limit as a multiple of the slowest step so far, or `off`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watchdog(Option<f64>);

impl Watchdog {
    /// The time limit of a step, at least a minute, given the `slowest` step so far in seconds.
    pub fn deadline(self, slowest: f64) -> Option<Duration> {
        let seconds = (self.0? * slowest).max(LEAST);
        // A limit beyond the range of `Duration` means no limit.
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
                "`{text}` is not a limit: use off, or a multiple of the slowest step so far, from 1 up"
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
