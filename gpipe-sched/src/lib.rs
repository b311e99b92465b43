#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod executor;
mod schedule;
mod schedule_kind;
mod simulate;

pub use executor::batch::{Item, ItemOf};
pub use executor::empty::Empty;
pub use executor::failure::{Part, PipelineError, Place};
pub use executor::inference::{CollectOutputs, InferenceError, InferenceStage};
pub use executor::loss_stage::LossStage;
pub use executor::pipeline::Pipeline;
pub use executor::stage::{MicroBatch, Ran, Stage};
pub use executor::step::Outcome;
pub use executor::watchdog::{Doing, Stuck};
pub use schedule::action::{Action, ActionError, Op};
pub use schedule::builders::alternating::{gpipe, one_f_one_b};
pub use schedule::builders::dualpipe_v::dualpipe_v;
pub use schedule::builders::forward_only::forward_only;
pub use schedule::builders::interleaved::interleaved;
pub use schedule::builders::looped_bfs::looped_bfs;
pub use schedule::builders::split::{zb_h1, zb_h2};
pub use schedule::builders::v_shape::{v_half, v_min};
pub use schedule::builders::zb_v::zb_v;
pub use schedule::csv::CsvError;
pub use schedule::data::Schedule;
pub use schedule::fault::{Cell, Fault, ScheduleError};
pub use schedule::slots::Slots;
pub use schedule::transfer::Direction;
pub use schedule_kind::{BuildScheduleError, ParseScheduleError, ScheduleKind};
pub use simulate::bubble_breakdown::{BubbleBreakdown, Cause, Gap};
pub use simulate::costs::{Costs, CostsError, LinkCosts, StageCosts};
pub use simulate::level::{Held, Level};
pub use simulate::shared::simulate_shared;
pub use simulate::simulator::{simulate, step_seconds};
pub use simulate::timeline::{Span, Timeline};
pub use simulate::zero_bubble::{ZeroBubbleError, zero_bubble};

// Old names, until gpipe-cli has moved.
#[doc(hidden)]
pub use simulate::bubble_breakdown::BubbleBreakdown as Spent;

#[doc(hidden)]
mod old_names {
    use std::error::Error;

    use crate::{BubbleBreakdown, LossStage, MicroBatch, Pipeline, PipelineError};
    use crate::{ScheduleError, Stage, Timeline};

    /// [`LossStage`], whose `loss` was named `turn`.
    pub trait Turn<F> {
        type Target: Send + 'static;
        type Error: Error + Send + Sync + 'static;
        fn begin(&mut self, step: u64) -> Result<(), Self::Error>;
        fn turn(&mut self, m: &MicroBatch, y: F, t: Self::Target)
        -> Result<Option<F>, Self::Error>;
        fn losses(&mut self) -> Result<Vec<f64>, Self::Error>;
    }

    impl<F, T: Turn<F>> LossStage<F> for T {
        type Target = T::Target;
        type Error = T::Error;

        fn begin(&mut self, step: u64) -> Result<(), T::Error> {
            Turn::begin(self, step)
        }

        fn loss(&mut self, m: &MicroBatch, y: F, t: T::Target) -> Result<Option<F>, T::Error> {
            Turn::turn(self, m, y, t)
        }

        fn losses(&mut self) -> Result<Vec<f64>, T::Error> {
            Turn::losses(self)
        }
    }

    impl<S: Stage + 'static, T: LossStage<S::Flow> + 'static> Pipeline<S, T> {
        /// [`Pipeline::with_loss_stage`].
        pub fn with_turn<R, E>(
            &mut self,
            visit: impl FnOnce(&mut T) -> Result<R, E> + Send + 'static,
        ) -> Result<R, PipelineError>
        where
            R: Send + 'static,
            E: Into<Box<dyn Error + Send + Sync>>,
        {
            self.with_loss_stage(visit)
        }
    }

    impl Timeline {
        /// [`Timeline::bubble_breakdown`].
        pub fn spent(
            &self,
            again: impl Fn(usize, usize) -> f64,
        ) -> Result<Vec<BubbleBreakdown>, ScheduleError> {
            self.bubble_breakdown(again)
        }
    }
}
#[doc(hidden)]
pub use old_names::Turn;
