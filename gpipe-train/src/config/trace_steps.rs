//! The key `run.trace_steps`: the steps whose timelines are kept.

use std::ops::RangeInclusive;
use std::str::FromStr;

/// The steps whose timelines are kept: the last ones (`3`) or a list (`10,20..25`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceSteps {
    /// The last steps of the run, by number.
    Last(usize),
    /// Steps, counted from 1, within any of the ranges.
    Given(Vec<RangeInclusive<u64>>),
}

impl TraceSteps {
    /// Whether to keep a step for now: later steps displace the last ones.
    pub fn may_keep(&self, step: u64) -> bool {
        match self {
            Self::Last(count) => *count > 0,
            Self::Given(ranges) => ranges.iter().any(|range| range.contains(&step)),
        }
    }

    /// The maximum number of kept steps.
    pub fn most(&self) -> usize {
        match self {
            Self::Last(count) => *count,
            Self::Given(_) => usize::MAX,
        }
    }
}

impl FromStr for TraceSteps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = || {
            format!(
                "`{text}` is not a list of steps: use a number of last steps such as 3, or a list such as 10,20..25"
            )
        };
        let step = |text: &str| text.trim().parse::<u32>().map_err(|_| fault());
        if let Ok(count) = step(text) {
            return Ok(Self::Last(count as usize));
        }
        let range = |item: &str| {
            let (first, last) = item.split_once("..").unwrap_or((item, item));
            let (first, last) = (step(first)?, step(last)?);
            if first == 0 || first > last {
                return Err(fault());
            }
            Ok(u64::from(first)..=u64::from(last))
        };
        let items = text.split(',').filter(|item| !item.trim().is_empty());
        let ranges = items.map(range).collect::<Result<Vec<_>, _>>()?;
        if ranges.is_empty() {
            return Err(fault());
        }
        Ok(Self::Given(ranges))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_the_last_ones_or_a_list() {
        let kept = |text: &str| {
            let steps = text.parse::<TraceSteps>().unwrap();
            (1..=30)
                .filter(|&step| steps.may_keep(step))
                .collect::<Vec<u64>>()
        };
        assert_eq!("3".parse(), Ok(TraceSteps::Last(3)));
        assert!(kept("0").is_empty());
        assert_eq!(kept("7,"), [7]);
        assert_eq!(kept("10, 20..22"), [10, 20, 21, 22]);
        for bad in ["", ",", "-1", "0,3", "5..3", "1...3", "x", "99999999999"] {
            assert!(bad.parse::<TraceSteps>().is_err(), "{bad}");
        }
    }
}
