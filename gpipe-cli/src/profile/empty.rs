//! What an action takes besides its layers: measured with stages that do nothing.

use std::convert::Infallible;
use std::time::Instant;

use gpipe_sched::{Item, MicroBatch, Pipeline, Stage, Turn, one_f_one_b};

use crate::fail::{Fail, Result};
use crate::output::median;

const MICRO_BATCHES: usize = 64;
const STEPS: usize = 20;

struct Nothing;

impl Stage for Nothing {
    type Flow = ();
    type Error = Infallible;

    fn begin(&mut self, _step: u64) -> std::result::Result<(), Infallible> {
        Ok(())
    }

    fn forward(&mut self, _m: &MicroBatch, (): ()) -> std::result::Result<(), Infallible> {
        Ok(())
    }

    fn input_grad(
        &mut self,
        _m: &MicroBatch,
        (): (),
    ) -> std::result::Result<Option<()>, Infallible> {
        Ok(Some(()))
    }

    fn weight_grad(&mut self, _m: &MicroBatch) -> std::result::Result<(), Infallible> {
        Ok(())
    }
}

impl Turn<()> for Nothing {
    type Target = ();
    type Error = Infallible;

    fn begin(&mut self, _step: u64) -> std::result::Result<(), Infallible> {
        Ok(())
    }

    fn turn(
        &mut self,
        _m: &MicroBatch,
        (): (),
        (): (),
    ) -> std::result::Result<Option<()>, Infallible> {
        Ok(Some(()))
    }

    fn losses(&mut self) -> std::result::Result<Vec<f64>, Infallible> {
        Ok(Vec::new())
    }
}

/// Seconds of an action of a worker among `workers`.
pub fn action_seconds(workers: usize) -> Result<f64> {
    let schedule = one_f_one_b(workers, MICRO_BATCHES).map_err(Fail::usage)?;
    let stage = |_| Ok::<_, Infallible>(Nothing);
    let turn = || Ok::<_, Infallible>(Nothing);
    let mut pipeline = Pipeline::build(schedule, stage, turn).map_err(Fail::run)?;
    let mut seconds = Vec::with_capacity(STEPS);
    for step in 0..STEPS as u64 {
        let item = |index| Item {
            micro_batch: MicroBatch {
                index,
                samples: 0..1,
                step,
                train: true,
            },
            input: (),
            target: (),
        };
        let batch = (0..MICRO_BATCHES).map(item).collect();
        let start = Instant::now();
        pipeline.step(batch).map_err(Fail::run)?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    // A forward and a backward pass of every micro-batch, on all workers at the same time.
    Ok(median(&mut seconds) / (2 * MICRO_BATCHES) as f64)
}
