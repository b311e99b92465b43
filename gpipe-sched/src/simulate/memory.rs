//! How much each device holds, and when.

use crate::simulate::timeline::Timeline;

/// The bytes that a stage holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Held {
    /// At the end of an action.
    pub now: u64,
    /// The most since the end of the action before it.
    pub most: u64,
}

/// The bytes of a device from a moment on, until its next level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Whose.
    pub device: usize,
    /// Seconds since the step began.
    pub time: f64,
    /// How many.
    pub bytes: u64,
}

impl Timeline {
    /// The timeline with what its stages held: `held[s]` begins with what stage `s` holds before
    /// its first action and goes on with one entry for each of its actions, in order. A device
    /// holds what its stages hold together: during an action the most that this held, between
    /// actions what was left.
    #[must_use]
    pub fn with_held(self, held: &[Vec<Held>]) -> Self {
        if held.iter().all(Vec::is_empty) {
            return self;
        }
        let first = |stage: usize| held.get(stage).and_then(|list| list.first());
        let mut now: Vec<u64> = (0..held.len())
            .map(|stage| first(stage).map_or(0, |held| held.now))
            .collect();
        let mut rest: Vec<_> = held.iter().map(|list| list.iter().skip(1)).collect();
        let mut levels = Vec::with_capacity(2 * self.spans().len() + self.devices());
        let begin = self.start();
        for device in 0..self.devices() {
            let spans = self.of_device(device);
            let mut stages: Vec<usize> = spans.iter().map(|span| span.action.stage).collect();
            stages.sort_unstable();
            stages.dedup();
            let own = stages.iter().filter_map(|&stage| now.get(stage));
            let mut sum = own.fold(0, |sum: u64, &bytes| sum.saturating_add(bytes));
            let mut push = |time, bytes| {
                levels.push(Level {
                    device,
                    time,
                    bytes,
                })
            };
            push(begin, sum);
            for span in spans {
                let stage = span.action.stage;
                let Some(held) = rest.get_mut(stage).and_then(Iterator::next) else {
                    continue;
                };
                let others = sum - now[stage];
                push(span.start, others.saturating_add(held.most));
                sum = others.saturating_add(held.now);
                push(span.end, sum);
                now[stage] = held.now;
            }
        }
        self.with_levels(levels)
    }

    /// The timeline with what its devices held, as counted elsewhere. Levels that change nothing are
    /// left out.
    #[must_use]
    pub fn with_levels(mut self, mut levels: Vec<Level>) -> Self {
        levels.sort_by(|a, b| a.device.cmp(&b.device).then(a.time.total_cmp(&b.time)));
        levels.dedup_by(|next, level| next.device == level.device && next.bytes == level.bytes);
        self.levels = levels;
        self
    }

    /// What the devices held, by device and then by time; nothing where nobody counted.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// What one device held, by time.
    pub fn levels_of(&self, device: usize) -> &[Level] {
        let first = self.levels.partition_point(|level| level.device < device);
        let count = self.levels[first..].partition_point(|level| level.device == device);
        &self.levels[first..first + count]
    }
}
