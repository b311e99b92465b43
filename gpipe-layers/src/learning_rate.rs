//! The learning rate over the steps of a run.

use std::f64::consts::PI;

use crate::choice::choose;
use crate::{Error, Result};

/// What the learning rate does after its warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LrSchedule {
    /// It stays.
    Constant,
    /// It falls along half a cosine (arXiv:1608.03983) to its floor at the last step.
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
/// The form is nanoGPT's: step `s` of a warm-up of `w` steps gets (s + 1)/(w + 1) of the peak, so
/// that no step gets nothing and the peak comes right after the warm-up.
///
/// ```
/// use gpipe_layers::{LearningRate, LrSchedule};
///
/// let lr = LearningRate { schedule: LrSchedule::Cosine, peak: 1.0, floor: 0.1, warmup: 3, steps: 13 };
/// assert_eq!([0, 1, 2, 3, 8, 13, 99].map(|s| lr.lr_at(s)), [0.25, 0.5, 0.75, 1.0, 0.55, 0.1, 0.1]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LearningRate {
    /// What comes after the warm-up.
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
