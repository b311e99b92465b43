//! The key `run.watchdog`: the time after which a step, an evaluation or a copy counts as hung.

use std::str::FromStr;
use std::time::Duration;

/// Minimum time limit in seconds, which tolerates delays by other programs.
const LEAST: f64 = 60.0;

/// The seconds that a step is taken to last until one has been made. Kernels of GPUs are compiled
/// before, when devices are opened.
const FIRST: f64 = 60.0;

/// A time limit as a multiple of the slowest step so far, or `off`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watchdog(Option<f64>);

impl Watchdog {
    /// The time limit of whatever waits for the workers, at least a minute, given the `slowest` step so
    /// far in seconds, if there is one.
    pub fn deadline(self, slowest: Option<f64>) -> Option<Duration> {
        let seconds = (self.0? * slowest.unwrap_or(FIRST)).max(LEAST);
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
        let deadline = |text: &str, slowest| watchdog(text).unwrap().deadline(slowest);
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(deadline("off", Some(1e9)), None);
        assert_eq!(deadline("off", None), None);
        assert_eq!(deadline("30", Some(0.5)), seconds(60));
        assert_eq!(deadline("30", Some(10.0)), seconds(300));
        assert_eq!(deadline("1e300", Some(10.0)), None);
        // The first step: half an hour by default, and the key raises it too.
        assert_eq!(deadline("30", None), seconds(1800));
        assert_eq!(deadline("100", None), seconds(6000));
        assert_eq!(deadline("1", None), seconds(60));
        for bad in ["", "0", "-1", "nan", "inf", "soon"] {
            assert!(watchdog(bad).is_err(), "{bad}");
        }
    }
}
