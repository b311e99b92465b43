//! The learning rate over the steps of a run.

use std::f64::consts::PI;

use crate::choice::choose;
use crate::{Error, Result};

/// The course of the learning rate after its warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LrSchedule {
    /// Constant.
    Constant,
    /// Half a cosine (arXiv:1608.03983) down to the floor at the last step.
    Cosine,
}

const SCHEDULES: [(&str, LrSchedule); 2] = [
    ("constant", LrSchedule::Constant),
    ("cosine", LrSchedule::Cosine),
];

impl std::str::FromStr for LrSchedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        choose("learning-rate schedule", text, &SCHEDULES)
    }
}

/// A learning rate that rises linearly over the warm-up and then follows its schedule.
///
/// The form is nanoGPT's: step `s` of a warm-up of `w` steps has the rate (s + 1)/(w + 1) of the peak,
/// so that no rate is 0 and the peak comes right after the warm-up.
///
/// ```
/// use gpipe_layers::{LearningRate, LrSchedule};
///
/// let lr = LearningRate { schedule: LrSchedule::Cosine, peak: 1.0, floor: 0.1, warmup: 3, steps: 13 };
/// assert_eq!([0, 1, 2, 3, 8, 13, 99].map(|s| lr.lr_at(s)), [0.25, 0.5, 0.75, 1.0, 0.55, 0.1, 0.1]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LearningRate {
    /// The course after the warm-up.
    pub schedule: LrSchedule,
    /// The highest rate.
    pub peak: f64,
    /// The rate from step `steps` on, under [`LrSchedule::Cosine`].
    pub floor: f64,
    /// Steps before the peak.
    pub warmup: u64,
    /// Steps of the run.
    pub steps: u64,
}

impl LearningRate {
    /// The rate of step `step`, counted from 0.
    pub fn lr_at(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.peak * (step as f64 + 1.0) / (self.warmup as f64 + 1.0);
        }
        match self.schedule {
            LrSchedule::Constant => self.peak,
            LrSchedule::Cosine if step >= self.steps => self.floor,
            LrSchedule::Cosine => {
                let done = (step - self.warmup) as f64 / (self.steps - self.warmup) as f64;
                self.floor + 0.5 * (1.0 + (PI * done).cos()) * (self.peak - self.floor)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSINE: LearningRate = LearningRate {
        schedule: LrSchedule::Cosine,
        peak: 3e-4,
        floor: 3e-5,
        warmup: 10,
        steps: 100,
    };

    #[test]
    fn it_rises_then_falls_and_never_leaves_its_bounds() {
        let rates: Vec<f64> = (0..120).map(|step| COSINE.lr_at(step)).collect();
        assert!(rates[..11].windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(rates[10], 3e-4);
        assert!(rates[10..101].windows(2).all(|pair| pair[0] > pair[1]));
        assert!(rates[100..].iter().all(|&rate| rate == 3e-5));
        assert!(rates[0] > 0.0);
    }

    #[test]
    fn a_constant_rate_stays_after_its_warm_up() {
        let constant = LearningRate {
            schedule: LrSchedule::Constant,
            ..COSINE
        };
        assert_eq!(constant.lr_at(4), COSINE.lr_at(4));
        assert!((10..200).all(|step| constant.lr_at(step) == 3e-4));
    }

    #[test]
    fn a_warm_up_beyond_the_end_only_rises() {
        let short = LearningRate { steps: 5, ..COSINE };
        let rates: Vec<f64> = (0..10).map(|step| short.lr_at(step)).collect();
        assert!(rates.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(short.lr_at(10), 3e-5);
    }

    #[test]
    fn schedules_have_names() {
        assert_eq!("cosine".parse::<LrSchedule>().unwrap(), LrSchedule::Cosine);
        let error = "linear".parse::<LrSchedule>().unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown learning-rate schedule `linear`: use constant or cosine"
        );
    }
}
