//! Cost of an action by itself: steps of stages that do nothing.
//!
//! `cargo run --release -p gpipe-sched --example overhead [--json]`

use std::error::Error;
use std::time::Instant;

use gpipe_sched::{Empty, gpipe, one_f_one_b};

/// Steps per measurement, after one for warm-up; the median counts.
const STEPS: usize = 40;

fn main() -> Result<(), Box<dyn Error>> {
    let json = std::env::args().any(|argument| argument == "--json");
    for (name, make) in [("gpipe", gpipe as fn(_, _) -> _), ("1f1b", one_f_one_b)] {
        for (stages, micro_batches) in [(1, 32), (2, 32), (4, 32), (8, 32)] {
            let schedule = make(stages, micro_batches)?;
            let actions: usize = schedule.lanes().iter().map(Vec::len).sum();
            let mut pipeline = Empty::pipeline(schedule)?;
            let mut seconds = Vec::with_capacity(STEPS);
            for _ in 0..=STEPS {
                let batch = Empty::batch(micro_batches, 0);
                let start = Instant::now();
                pipeline.step(batch)?;
                seconds.push(start.elapsed().as_secs_f64() / actions as f64);
            }
            seconds.remove(0);
            seconds.sort_by(f64::total_cmp);
            let median = seconds[STEPS / 2];
            if json {
                println!(
                    r#"{{"kind":"overhead","schedule":"{name}","stages":{stages},"micro_batches":{micro_batches},"actions":{actions},"action_seconds":{median}}}"#
                );
            } else {
                println!(
                    "{name:<5} {stages} stages, {micro_batches:>3} micro-batches: {:.2} µs an action",
                    1e6 * median
                );
            }
        }
    }
    Ok(())
}
