//! What the executor, the checker and the simulator cost by themselves. Throughput is in actions:
//! the executor's budget is 10 microseconds for each.

use std::convert::Infallible;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gpipe_sched::{
    Costs, Item, MicroBatch, Pipeline, Schedule, Stage, Turn, gpipe, one_f_one_b, simulate,
};

struct Empty;

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

impl Turn<()> for Empty {
    type Target = ();
    type Error = Infallible;

    fn begin(&mut self, _step: u64) -> Result<(), Infallible> {
        Ok(())
    }

    fn turn(&mut self, _m: &MicroBatch, _y: (), _target: ()) -> Result<Option<()>, Infallible> {
        Ok(Some(()))
    }

    fn losses(&mut self) -> Result<Vec<f64>, Infallible> {
        Ok(Vec::new())
    }
}

fn items(micro_batches: usize) -> Vec<Item<(), ()>> {
    let micro_batch = |index| MicroBatch {
        index,
        samples: 0..1,
        step: 0,
        train: true,
    };
    (0..micro_batches)
        .map(|m| Item {
            micro_batch: micro_batch(m),
            input: (),
            target: (),
        })
        .collect()
}

fn actions(schedule: &Schedule) -> Throughput {
    Throughput::Elements(schedule.lanes().iter().map(Vec::len).sum::<usize>() as u64)
}

fn executor(c: &mut Criterion) {
    let mut group = c.benchmark_group("step of empty stages");
    for (name, make) in [("gpipe", gpipe as fn(_, _) -> _), ("1f1b", one_f_one_b)] {
        for (stages, micro_batches) in [(1, 32), (2, 32), (4, 32), (8, 32), (4, 4)] {
            let schedule: Schedule = make(stages, micro_batches).expect("a schedule");
            group.throughput(actions(&schedule));
            let make_stage = |_| Ok::<_, Infallible>(Empty);
            let mut pipeline = Pipeline::build(schedule, make_stage, || Ok::<_, Infallible>(Empty))
                .expect("a pipeline");
            group.bench_function(format!("{name} {stages}x{micro_batches}"), |b| {
                b.iter(|| pipeline.step(items(micro_batches)).expect("a step"));
            });
        }
    }
    group.finish();
}

fn paper(c: &mut Criterion) {
    let mut group = c.benchmark_group("on paper");
    group.sample_size(10);
    for (stages, micro_batches) in [(16, 64), (64, 512), (256, 1024)] {
        let schedule = one_f_one_b(stages, micro_batches).expect("a schedule");
        let costs = Costs::even(stages, 1.0, 2.0);
        group.throughput(actions(&schedule));
        group.bench_function(format!("check {stages}x{micro_batches}"), |b| {
            b.iter(|| one_f_one_b(stages, micro_batches).expect("a schedule"));
        });
        group.bench_function(format!("simulate {stages}x{micro_batches}"), |b| {
            b.iter(|| simulate(&schedule, &costs).expect("a timeline"));
        });
    }
    group.finish();
}

criterion_group!(benches, executor, paper);
criterion_main!(benches);
