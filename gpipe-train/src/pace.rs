//! The median step time.

use std::collections::VecDeque;

use gpipe_report::numbers::median;

/// Steps in the window of the median.
const WINDOW: usize = 50;
/// First steps, excluded because they warm up caches and memory pools.
const WARM_UP: usize = 2;

/// A window of step times.
#[derive(Default)]
pub struct Pace {
    seen: usize,
    seconds: VecDeque<f64>,
}

impl Pace {
    /// Adds the time of a step.
    pub fn add(&mut self, seconds: f64) {
        // A warm-up step counts only until the next one.
        if self.seen <= WARM_UP {
            self.seconds.clear();
        }
        self.seen += 1;
        if self.seconds.len() == WINDOW {
            self.seconds.pop_front();
        }
        self.seconds.push_back(seconds);
    }

    /// The median of the window in seconds; 0 before the first step.
    pub fn seconds(&self) -> f64 {
        median(&mut self.seconds.iter().copied().collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_leaves_out_the_first_steps_and_the_distant_past() {
        let mut pace = Pace::default();
        assert_eq!(pace.seconds(), 0.0);
        pace.add(9.0);
        assert_eq!(pace.seconds(), 9.0);
        for seconds in [9.0, 1.0, 3.0, 2.0] {
            pace.add(seconds);
        }
        assert_eq!(pace.seconds(), 2.0);
        for _ in 0..WINDOW {
            pace.add(5.0);
        }
        assert_eq!(pace.seconds(), 5.0);
    }
}
