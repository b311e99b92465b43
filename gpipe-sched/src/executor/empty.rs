//! A stage and a loss stage that do nothing.

use std::convert::Infallible;

use crate::executor::batch::Item;
use crate::executor::failure::PipelineError;
use crate::executor::loss_stage::LossStage;
use crate::executor::pipeline::Pipeline;
use crate::executor::stage::{MicroBatch, Stage};
use crate::schedule::data::Schedule;

/// A stage and a loss stage that do nothing: the time of their step is the overhead of the
/// executor.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use gpipe_sched::{Empty, one_f_one_b};
///
/// let mut pipeline = Empty::pipeline(one_f_one_b(4, 8)?)?;
/// let step = pipeline.step(Empty::batch(8, 0))?;
/// println!("{:.1} µs per action of a worker", 1e6 * step.timeline.makespan() / 16.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Empty;

impl Empty {
    /// A pipeline of empty stages.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn pipeline(schedule: Schedule) -> Result<Pipeline<Self, Self>, PipelineError> {
        let make = || Ok::<_, Infallible>(Self);
        Pipeline::build(schedule, move |_stage| make(), make)
    }

    /// The micro-batches of step `step` (from 0), one sample each, for stages whose flow is `()`.
    pub fn batch(micro_batches: usize, step: u64) -> Vec<Item<(), ()>> {
        let item = |index| Item {
            micro_batch: MicroBatch::new(index, index as u64..index as u64 + 1, step, true),
            input: (),
            target: (),
        };
        (0..micro_batches).map(item).collect()
    }
}

impl Stage for Empty {
    type Flow = ();
    type Error = Infallible;

    fn begin(&mut self, _step: u64) -> Result<(), Infallible> {
        Ok(())
    }

    fn forward(&mut self, _m: &MicroBatch, _x: ()) -> Result<(), Infallible> {
        Ok(())
    }

    fn input_grad(&mut self, _m: &MicroBatch, _dy: ()) -> Result<Option<()>, Infallible> {
        Ok(Some(()))
    }

    fn weight_grad(&mut self, _m: &MicroBatch) -> Result<(), Infallible> {
        Ok(())
    }
}

impl LossStage<()> for Empty {
    type Target = ();
    type Error = Infallible;

    fn begin(&mut self, _step: u64) -> Result<(), Infallible> {
        Ok(())
    }

    fn loss(&mut self, _m: &MicroBatch, _y: (), _target: ()) -> Result<Option<()>, Infallible> {
        Ok(Some(()))
    }

    fn losses(&mut self) -> Result<Vec<f64>, Infallible> {
        Ok(Vec::new())
    }
}
