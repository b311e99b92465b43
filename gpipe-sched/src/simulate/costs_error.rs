//! Errors of costs.

use crate::schedule::action::Action;
use crate::schedule::portal::Portal;

/// Costs that do not fit the schedule, or are not durations.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CostsError {
    /// A list has the wrong length.
    #[error("costs of {found} {what}, but the schedule has {expected}: give one for each")]
    Count {
        /// What the list holds.
        what: &'static str,
        /// The length of the list.
        found: usize,
        /// The length that fits the schedule.
        expected: usize,
    },
    /// The speed of a device is zero, negative, subnormal or not finite.
    #[error(
        "the speed of device {index} is {value}: use a finite number above 0, 1 for the reference speed"
    )]
    Speed {
        /// The device.
        index: usize,
        /// The speed.
        value: f64,
    },
    /// The step takes longer than a number holds.
    #[error("the costs add up to more than a number holds: give them in larger units")]
    Sum,
    /// A portal that passes no stage, or leads to one that does not exist.
    #[error("a portal from stage {} to stage {} of {stages}: give the taker at least 2 above the giver", .portal.from, .portal.to)]
    Portal {
        /// Its ends.
        portal: Portal,
        /// Stages of the schedule.
        stages: usize,
    },
    /// An addition to an action of a stage or a micro-batch that the schedule does not have.
    #[error(
        "an addition to {action}, but the schedule has {stages} stages and {micro_batches} micro-batches: leave it out"
    )]
    Addition {
        /// The action.
        action: Action,
        /// Stages of the schedule.
        stages: usize,
        /// Micro-batches of the schedule.
        micro_batches: usize,
    },
    /// A cost is negative or not finite.
    #[error("{what} {index} costs {value}: use a finite number, 0 or more")]
    Number {
        /// What the cost is of.
        what: &'static str,
        /// The index of the stage, link, micro-batch or update.
        index: usize,
        /// The cost.
        value: f64,
    },
}
