//! Times of steps and their medians.

use gpipe_report::numbers::{after_warm_up, median};

/// Steps of the median that tells how fast a run is now.
const LATEST: usize = 50;

/// The times of all steps so far, in seconds.
#[derive(Default)]
pub struct Pace {
    seconds: Vec<f64>,
}

impl Pace {
    /// Adds the time of a step.
    pub fn add(&mut self, seconds: f64) {
        self.seconds.push(seconds);
    }

    /// The median of the latest steps; 0 before the first one.
    pub fn of_latest(&self) -> f64 {
        let seconds = after_warm_up(&self.seconds);
        let latest = seconds.len().saturating_sub(LATEST);
        median(&mut seconds[latest..].to_vec())
    }

    /// The median of all steps; 0 before the first one.
    pub fn of_all(&self) -> f64 {
        median(&mut after_warm_up(&self.seconds).to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_median_leaves_out_the_first_steps_and_the_distant_past() {
        let mut pace = Pace::default();
        assert_eq!((pace.of_latest(), pace.of_all()), (0.0, 0.0));
        pace.add(9.0);
        assert_eq!((pace.of_latest(), pace.of_all()), (9.0, 9.0));
        for seconds in [9.0, 1.0, 3.0, 2.0] {
            pace.add(seconds);
        }
        assert_eq!((pace.of_latest(), pace.of_all()), (2.0, 2.0));
        for _ in 0..2 * LATEST {
            pace.add(4.0);
        }
        for _ in 0..LATEST {
            pace.add(5.0);
        }
        assert_eq!((pace.of_latest(), pace.of_all()), (5.0, 4.0));
    }
}
