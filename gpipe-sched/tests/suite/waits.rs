//! Sequences of calls over ranks in which one could wait for another without end.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use gpipe_sched::{InMemory, Schedule, World, one_f_one_b};

use crate::common::Plan;
use crate::common::ranks::{join, step};

/// A rank that has no result after this time hangs.
const HANG: Duration = Duration::from_secs(60);

/// Runs the same on every rank, a thread each; the results in the order of the ranks, or a panic where one hangs.
fn on_ranks<R: Send + 'static>(
    ranks: usize,
    run: impl Fn(Arc<World>) -> R + Send + Sync + 'static,
) -> Vec<R> {
    let run = Arc::new(run);
    let threads = InMemory::new(ranks).into_iter().map(|end| {
        let (run, (done, result)) = (run.clone(), mpsc::channel());
        thread::spawn(move || done.send(run(World::new(end))));
        result
    });
    let results = threads.collect::<Vec<_>>().into_iter();
    let results = results.map(|result| result.recv_timeout(HANG).expect("neither panic nor hang"));
    results.collect()
}

fn schedule() -> Schedule {
    one_f_one_b(4, 5).expect("a valid size")
}

/// The new pipeline is built before the old one is dropped, and one that cannot be built leaves the old one as it was.
#[test]
fn a_pipeline_is_replaced_over_its_world() {
    on_ranks(2, |world| {
        let plan = Plan::default();
        let mut pipeline = join(schedule(), &plan, &world).unwrap();
        step(&mut pipeline, 0).unwrap();
        pipeline = join(schedule(), &plan, &world).unwrap();
        step(&mut pipeline, 1).unwrap();
        drop(join(schedule(), &plan, &world).unwrap());
        step(&mut pipeline, 2).unwrap();
    });
}
