//! Memory levels of devices, from the bytes that their stages count.

use crate::simulate::level::{Held, Level};
use crate::simulate::timeline::Timeline;

impl Timeline {
    /// The timeline with memory levels from the bytes held by its stages: `held[s]` starts with the
    /// bytes of stage `s` before its first action, followed by one entry for each of its actions,
    /// in order. The level of a device is the sum over its stages: the maximum during an action,
    /// and the rest between actions; [`u64::MAX`] for sums beyond it.
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
        let mut levels = Vec::with_capacity(3 * self.spans().len());
        let begin = self.start();
        for spans in self.spans().chunk_by(|a, b| a.device == b.device) {
            let device = spans[0].device;
            let mut stages: Vec<usize> = spans.iter().map(|span| span.action.stage).collect();
            stages.sort_unstable();
            stages.dedup();
            let own = stages.iter().filter_map(|&stage| now.get(stage));
            // A sum that saturated would forget what one stage leaves to the others.
            let mut sum: u128 = own.map(|&bytes| u128::from(bytes)).sum();
            let mut push = |time, bytes| {
                levels.push(Level {
                    device,
                    time,
                    bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
                })
            };
            push(begin, sum);
            for span in spans {
                let stage = span.action.stage;
                let Some(held) = rest.get_mut(stage).and_then(Iterator::next) else {
                    continue;
                };
                let others = sum - u128::from(now[stage]);
                push(span.start, others + u128::from(held.most));
                sum = others + u128::from(held.now);
                push(span.end, sum);
                now[stage] = held.now;
            }
        }
        self.with_levels(levels)
    }
}
