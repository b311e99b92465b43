//! How the time to make and to simulate a schedule grows with its actions, up to 1024 stages of 4096
//! micro-batches, on one core.
//!
//! `cargo run --release -p gpipe-sched --example growth`

use std::error::Error;
use std::fs;
use std::time::Instant;

use gpipe_sched::{Costs, one_f_one_b, simulate};

fn main() -> Result<(), Box<dyn Error>> {
    println!("stages  micro-batches   actions   made in  simulated in  an action  peak memory");
    for (stages, micro_batches) in [
        (64, 256),
        (128, 512),
        (256, 1024),
        (512, 2048),
        (1024, 4096),
    ] {
        let started = Instant::now();
        let schedule = one_f_one_b(stages, micro_batches)?;
        let made = started.elapsed().as_secs_f64();
        let started = Instant::now();
        let timeline = simulate(&schedule, &Costs::even(stages, 1.0, 2.0))?;
        let simulated = started.elapsed().as_secs_f64();
        let actions = timeline.spans().len();
        let nanoseconds = 1e9 * simulated / actions as f64;
        println!(
            "{stages:>6}  {micro_batches:>13}  {actions:>8}  {made:>6.2} s  {simulated:>10.2} s  \
             {nanoseconds:>6.0} ns  {:>11}",
            peak()
        );
    }
    Ok(())
}

/// The most memory that the process had, where the system tells.
fn peak() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or("unknown".to_owned(), |line| line.trim().to_owned())
}
