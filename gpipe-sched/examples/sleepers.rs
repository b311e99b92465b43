//! Stages that only sleep: the bubble that the papers predict, and the one that the executor has.
//!
//! `cargo run --release -p gpipe-sched --example sleepers`

use std::convert::Infallible;
use std::error::Error;
use std::thread::sleep;
use std::time::Duration;

use gpipe_sched::{Costs, Item, MicroBatch, Pipeline, Stage, Turn, gpipe, one_f_one_b, simulate};

const FORWARD: Duration = Duration::from_millis(8);

/// The median of these is printed: a busy machine wakes sleepers late.
const STEPS: usize = 3;

struct Sleeper;

impl Stage for Sleeper {
    type Flow = ();
    type Error = Infallible;

    fn begin(&mut self, _step: u64) -> Result<(), Infallible> {
        Ok(())
    }

    fn forward(&mut self, _m: &MicroBatch, _x: ()) -> Result<(), Infallible> {
        sleep(FORWARD);
        Ok(())
    }

    fn input_grad(&mut self, _m: &MicroBatch, _dy: ()) -> Result<Option<()>, Infallible> {
        sleep(FORWARD);
        Ok(Some(()))
    }

    fn weight_grad(&mut self, _m: &MicroBatch) -> Result<(), Infallible> {
        sleep(FORWARD);
        Ok(())
    }
}

struct NoLoss;

impl Turn<()> for NoLoss {
    type Target = ();
    type Error = Infallible;

    fn begin(&mut self, _step: u64) -> Result<(), Infallible> {
        Ok(())
    }

    fn turn(&mut self, _m: &MicroBatch, _y: (), _target: ()) -> Result<Option<()>, Infallible> {
        Ok(Some(()))
    }

    fn losses(&mut self) -> Vec<f64> {
        Vec::new()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("schedule  stages  micro-batches  predicted  measured  difference");
    for (name, make) in [("gpipe", gpipe as fn(_, _) -> _), ("1f1b", one_f_one_b)] {
        for (stages, micro_batches) in [(2, 8), (4, 4), (4, 8), (8, 2), (8, 8), (8, 24)] {
            let schedule = make(stages, micro_batches)?;
            let seconds = FORWARD.as_secs_f64();
            let predicted = simulate(&schedule, &Costs::even(stages, seconds, 2.0 * seconds))?;
            let mut pipeline = Pipeline::build(
                schedule,
                |_| Ok::<_, Infallible>(Sleeper),
                || Ok::<_, Infallible>(NoLoss),
            )?;
            let item = |index| Item {
                micro_batch: MicroBatch {
                    index,
                    samples: 0..1,
                    step: 0,
                    train: true,
                },
                input: (),
                target: (),
            };
            let step = |_| pipeline.step((0..micro_batches).map(item).collect());
            let mut steps = (0..STEPS).map(step).collect::<Result<Vec<_>, _>>()?;
            steps.sort_by(|a, b| a.timeline.bubble().total_cmp(&b.timeline.bubble()));
            let measured = &steps[STEPS / 2].timeline;
            let (ideal, bubble) = (predicted.bubble(), measured.bubble());
            println!(
                "{name:<8}  {stages:>6}  {micro_batches:>13}  {ideal:>9.4}  {bubble:>8.4}  {:>+10.4}",
                bubble - ideal
            );
            if (stages, micro_batches) == (4, 8) {
                print!("{}", measured.grid(100));
            }
        }
    }
    Ok(())
}
