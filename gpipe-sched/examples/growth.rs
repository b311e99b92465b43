//! Growth of the time to build and to simulate a schedule with its actions, up to 1024 stages of
//! 4096 micro-batches, on one core.
//!
//! `cargo run --release -p gpipe-sched --example growth [--json]`

use std::error::Error;
use std::fs;
use std::time::Instant;

use gpipe_sched::{Costs, one_f_one_b, simulate};

fn main() -> Result<(), Box<dyn Error>> {
    let json = std::env::args().any(|argument| argument == "--json");
    if !json {
        println!("stages  micro-batches   actions   made in  simulated in  an action  peak memory");
    }
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
        if json {
            let peak = peak_kib().map_or("null".to_owned(), |kib| (1024 * kib).to_string());
            println!(
                r#"{{"kind":"growth","stages":{stages},"micro_batches":{micro_batches},"actions":{actions},"made_seconds":{made},"simulated_seconds":{simulated},"peak_bytes":{peak}}}"#
            );
            continue;
        }
        println!(
            "{stages:>6}  {micro_batches:>13}  {actions:>8}  {made:>6.2} s  {simulated:>10.2} s  \
             {nanoseconds:>6.0} ns  {:>11}",
            peak()
        );
    }
    Ok(())
}

/// Peak memory of the process, where the system reports it.
fn peak() -> String {
    peak_kib().map_or("unknown".to_owned(), |kib| format!("{kib} kB"))
}

fn peak_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}
