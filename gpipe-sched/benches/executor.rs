//! Overhead of the executor, the checker and the simulator. Throughput is in actions: the
//! executor's budget is 10 microseconds per action.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gpipe_sched::{Costs, Empty, Schedule, gpipe, one_f_one_b, simulate};

fn actions(schedule: &Schedule) -> Throughput {
    Throughput::Elements(schedule.lanes().iter().map(Vec::len).sum::<usize>() as u64)
}

fn executor(c: &mut Criterion) {
    let mut group = c.benchmark_group("step of empty stages");
    for (name, make) in [("gpipe", gpipe as fn(_, _) -> _), ("1f1b", one_f_one_b)] {
        for (stages, micro_batches) in [(1, 32), (2, 32), (4, 32), (8, 32), (4, 4)] {
            let schedule: Schedule = make(stages, micro_batches).expect("a schedule");
            group.throughput(actions(&schedule));
            let mut pipeline = Empty::pipeline(schedule).expect("a pipeline");
            group.bench_function(format!("{name} {stages}x{micro_batches}"), |b| {
                b.iter(|| {
                    pipeline
                        .step(Empty::batch(micro_batches, 0))
                        .expect("a step")
                });
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
