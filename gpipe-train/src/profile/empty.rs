//! The overhead of an action, measured with stages that do nothing.

use std::time::Instant;

use gpipe_report::numbers;
use gpipe_sched::{Empty, one_f_one_b};

use crate::error::{Error, Result};

const MICRO_BATCHES: usize = 64;
const STEPS: u64 = 20;

/// Seconds of overhead per action with this number of workers.
pub fn action_seconds(workers: usize) -> Result<f64> {
    let schedule = one_f_one_b(workers, MICRO_BATCHES).map_err(Error::input)?;
    let mut pipeline = Empty::pipeline(schedule).map_err(Error::run)?;
    let mut seconds = Vec::new();
    for step in 0..STEPS {
        let batch = Empty::batch(MICRO_BATCHES, step);
        let start = Instant::now();
        pipeline.step(batch).map_err(Error::run)?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    // Each worker runs a forward and a backward action per micro-batch, in parallel with the others.
    Ok(numbers::median(&mut seconds) / (2 * MICRO_BATCHES) as f64)
}
