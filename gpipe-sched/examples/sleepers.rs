//! Stages that only sleep: predicted bubbles beside those of the executor.
//!
//! `cargo run --release -p gpipe-sched --example sleepers [MILLISECONDS] [--json]`: the duration of
//! an action, 20 by default; more on a busy machine, which wakes sleepers late.

use std::convert::Infallible;
use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use gpipe_sched::{
    Costs, Empty, MicroBatch, Pipeline, Schedule, ScheduleError, Stage, Timeline, ZeroBubbleError,
    dualpipe_v, gpipe, interleaved, looped_bfs, one_f_one_b, simulate, v_half, v_min, zb_h1, zb_h2,
    zb_v, zero_bubble,
};

/// Steps per measurement; the shortest counts, because a busy machine wakes sleepers late.
const STEPS: usize = 2;

/// Sleeps equally long for a forward pass and for each half of a backward pass.
struct Sleeper(Duration);

impl Stage for Sleeper {
    type Flow = ();
    type Error = Infallible;

    fn begin(&mut self, _step: u64) -> Result<(), Infallible> {
        Ok(())
    }

    fn forward(&mut self, _m: &MicroBatch, _x: ()) -> Result<(), Infallible> {
        sleep(self.0);
        Ok(())
    }

    fn input_grad(&mut self, _m: &MicroBatch, _dy: ()) -> Result<Option<()>, Infallible> {
        sleep(self.0);
        Ok(Some(()))
    }

    fn weight_grad(&mut self, _m: &MicroBatch) -> Result<(), Infallible> {
        sleep(self.0);
        Ok(())
    }
}

type Make = fn(usize, usize) -> Result<Schedule, ScheduleError>;

const SCHEDULES: [(&str, Make); 11] = [
    ("gpipe", gpipe),
    ("1f1b", one_f_one_b),
    ("interleaved", |devices, m| interleaved(devices, 2, m)),
    ("looped-bfs", |devices, m| looped_bfs(devices, 2, m)),
    ("zb-h1", zb_h1),
    ("zb-h2", zb_h2),
    ("zb-v", zb_v),
    ("v-half", v_half),
    ("v-min", v_min),
    ("dualpipe-v", dualpipe_v),
    ("zero-bubble", |devices, m| {
        let costs = Costs::even(devices, 1.0, 2.0);
        match zero_bubble(devices, m, &costs, |_| devices) {
            Ok(schedule) => Ok(schedule),
            Err(ZeroBubbleError::Schedule(error)) => Err(error),
            Err(_) => one_f_one_b(devices, m),
        }
    }),
];

fn main() -> Result<(), Box<dyn Error>> {
    let json = std::env::args().any(|argument| argument == "--json");
    let mut numbers = std::env::args().skip(1).filter(|text| text != "--json");
    let milliseconds = numbers.next().map_or(Ok(20), |text| text.parse())?;
    let work = Duration::from_millis(milliseconds);
    if !json {
        println!("schedule     devices  micro-batches  predicted  measured  difference");
    }
    let mut worst = 0.0_f64;
    for (name, make) in SCHEDULES {
        for (devices, micro_batches) in [(4, 8), (4, 24), (8, 8), (8, 24)] {
            let schedule = make(devices, micro_batches)?;
            let seconds = work.as_secs_f64();
            let costs = Costs::even(schedule.stages(), seconds, 2.0 * seconds);
            let ideal = simulate(&schedule, &costs)?.bubble();
            let bubble = measure(schedule, work)?;
            worst = worst.max((bubble - ideal).abs());
            if json {
                println!(
                    r#"{{"kind":"sleepers","schedule":"{name}","devices":{devices},"micro_batches":{micro_batches},"predicted":{ideal},"measured":{bubble}}}"#
                );
                continue;
            }
            println!(
                "{name:<11}  {devices:>7}  {micro_batches:>13}  {ideal:>9.4}  {bubble:>8.4}  {:>+10.4}",
                bubble - ideal
            );
        }
    }
    if !json {
        println!("largest difference {worst:.4}");
    }
    Ok(())
}

/// The bubble of the shortest step.
fn measure(schedule: Schedule, work: Duration) -> Result<f64, Box<dyn Error>> {
    let micro_batches = schedule.micro_batches();
    let make_stage = move |_| Ok::<_, Infallible>(Sleeper(work));
    let mut pipeline = Pipeline::build(schedule, make_stage, || Ok::<_, Infallible>(Empty))?;
    let mut best: Option<Timeline> = None;
    for _ in 0..STEPS {
        let timeline = pipeline.step(Empty::batch(micro_batches, 0))?.timeline;
        if best
            .as_ref()
            .is_none_or(|best| timeline.makespan() < best.makespan())
        {
            best = Some(timeline);
        }
    }
    Ok(best.map_or(f64::NAN, |timeline| timeline.bubble()))
}
