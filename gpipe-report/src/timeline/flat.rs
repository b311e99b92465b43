//! Timelines as flat lists of whole numbers, which every script reads exactly.

use gpipe_sched::{Action, Level, Span, Timeline};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The longest time of a file, which scripts can hold exactly: about a hundred days.
const MOST_NANOSECONDS: u64 = 1 << 53;

/// When each action of a step runs, and the bytes that the devices hold. The actions are
/// those of the lanes of a [`Record`](crate::Record).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlatTimeline {
    /// For each device, three whole numbers of nanoseconds an action: from the end of the action
    /// before it until it could begin, until it began, until it ended.
    pub spans: Vec<Vec<u64>>,
    /// For each device, two whole numbers each time that its bytes change: nanoseconds since the
    /// last change, and the bytes from then on.
    pub levels: Vec<Vec<u64>>,
}

impl FlatTimeline {
    /// A timeline in whole nanoseconds.
    pub fn new(timeline: &Timeline) -> Self {
        let spans = (0..timeline.devices()).map(|device| {
            let mut now = 0;
            let mut flat = Vec::with_capacity(3 * timeline.of_device(device).len());
            for span in timeline.of_device(device) {
                for time in [span.ready, span.start, span.end] {
                    let time = nanoseconds(time).max(now);
                    flat.push(time - now);
                    now = time;
                }
            }
            flat
        });
        let levels = (0..timeline.devices()).map(|device| {
            let mut now = 0;
            let mut flat = Vec::with_capacity(2 * timeline.levels_of(device).len());
            for level in timeline.levels_of(device) {
                let time = nanoseconds(level.time).max(now);
                flat.extend([time - now, level.bytes]);
                now = time;
            }
            flat
        });
        Self {
            spans: spans.collect(),
            levels: levels.collect(),
        }
    }

    /// The timeline of these lanes, each the actions of a device such as `0F0 0F1 0B0 0B1`.
    ///
    /// # Errors
    /// [`Error::Record`] if there are not as many times as actions, or times are too long.
    pub fn timeline(&self, lanes: &[String]) -> Result<Timeline> {
        let devices = lanes.len();
        if self.spans.len() != devices || !(self.levels.is_empty() || self.levels.len() == devices)
        {
            return Err(fault(format!(
                "{devices} lanes need times of as many devices"
            )));
        }
        let mut spans = Vec::new();
        for (device, (lane, flat)) in lanes.iter().zip(&self.spans).enumerate() {
            let actions: Vec<&str> = lane.split(' ').filter(|word| !word.is_empty()).collect();
            if flat.len() != 3 * actions.len() {
                return Err(fault(format!(
                    "device {device} has {} actions, which need three times each",
                    actions.len()
                )));
            }
            let mut now = 0;
            for (word, three) in actions.iter().zip(flat.chunks_exact(3)) {
                let action: Action = word
                    .parse()
                    .map_err(|error| fault(format!("device {device}: {error}")))?;
                let ready = later(now, three[0])?;
                let start = later(ready, three[1])?;
                now = later(start, three[2])?;
                spans.push(Span {
                    device,
                    action,
                    ready: seconds(ready),
                    start: seconds(start),
                    end: seconds(now),
                });
            }
        }
        let mut levels = Vec::new();
        for (device, flat) in self.levels.iter().enumerate() {
            if flat.len() % 2 != 0 {
                return Err(fault(format!(
                    "device {device}: levels are pairs of time and bytes"
                )));
            }
            let mut now = 0;
            for pair in flat.chunks_exact(2) {
                now = later(now, pair[0])?;
                levels.push(Level {
                    device,
                    time: seconds(now),
                    bytes: pair[1],
                });
            }
        }
        Ok(Timeline::new(devices, spans).with_levels(levels))
    }

    /// The factor, at most 1, by which the times of a timeline are shortened to those that a file holds.
    pub(crate) fn shortening(timeline: &Timeline) -> f64 {
        let most = seconds(MOST_NANOSECONDS);
        let ends = timeline.spans().iter().map(|span| span.end);
        let times = ends.chain(timeline.levels().iter().map(|level| level.time));
        most / times.filter(|time| time.is_finite()).fold(most, f64::max)
    }
}

/// The timeline of devices that are slower by a factor.
pub(crate) fn stretched(timeline: &Timeline, factor: f64) -> Timeline {
    let spans = timeline.spans().iter().map(|span| Span {
        ready: factor * span.ready,
        start: factor * span.start,
        end: factor * span.end,
        ..*span
    });
    let levels = timeline.levels().iter().map(|level| Level {
        time: factor * level.time,
        ..*level
    });
    Timeline::new(timeline.devices(), spans.collect()).with_levels(levels.collect())
}

fn fault(fault: String) -> Error {
    Error::Record { fault }
}

fn later(now: u64, by: u64) -> Result<u64> {
    let sum = now.checked_add(by).filter(|&sum| sum <= MOST_NANOSECONDS);
    sum.ok_or_else(|| fault("a time is too long".to_owned()))
}

fn nanoseconds(seconds: f64) -> u64 {
    ((seconds * 1e9).round() as u64).min(MOST_NANOSECONDS)
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_to_the_nanosecond() {
        let lanes = ["0F0 0B0".to_owned()];
        let flat = FlatTimeline {
            spans: vec![vec![0, 5, 10, 0, 0, 20]],
            levels: vec![vec![5, 100, 30, 0]],
        };
        let timeline = flat.timeline(&lanes).unwrap();
        assert_eq!(timeline.spans()[1].end, 35e-9);
        assert_eq!(FlatTimeline::new(&timeline), flat);
    }

    #[test]
    fn times_that_do_not_fit_the_lanes_are_refused() {
        let lanes = ["0F0 0B0".to_owned()];
        let refused = |spans: Vec<Vec<u64>>, levels: Vec<Vec<u64>>, words: &str| {
            let error = FlatTimeline { spans, levels }.timeline(&lanes).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        };
        let good = vec![vec![0, 5, 10, 0, 0, 20]];
        refused(vec![], vec![], "as many devices");
        refused(good.clone(), vec![vec![]; 2], "as many devices");
        refused(vec![vec![0; 5]], vec![], "three times each");
        refused(vec![vec![u64::MAX; 6]], vec![], "too long");
        refused(vec![vec![1 << 52; 6]], vec![], "too long");
        refused(good, vec![vec![1]], "pairs of time and bytes");
    }
}
