//! Copies that stay on their ranks until rank 0 writes them.

mod common;

use std::sync::{Arc, Barrier};
use std::thread;

use common::{Model, Outcome, Run};
use gpipe_layers::Loss;
use gpipe_remat::{Assembled, TrainingLoss, apply_update, copy_owned, lend_last, lend_owned};
use gpipe_sched::{InMemory, World, one_f_one_b};
use gpipe_tensor::{DType, DeviceId, Host, Tensor};

fn on_ranks(ranks: usize, run: impl Fn(Arc<World>) + Sync) {
    thread::scope(|scope| {
        let run = &run;
        for transport in InMemory::new(ranks) {
            scope.spawn(move || run(World::new(transport)));
        }
    });
}

fn run() -> Run {
    let model = Model {
        blocks: 3,
        tied: true,
        dropout: 0.0,
    };
    Run {
        stages: 4,
        ..Run::new(model, 5, 5)
    }
}

fn part(run: &Run, world: &Arc<World>) -> Assembled {
    let host = Host::new(1).unwrap();
    let end = |last, transit| TrainingLoss::new(Loss::CrossEntropy, last, transit);
    let assembly = run.assembly(one_f_one_b(4, 5).unwrap());
    assembly.build_over(&host, Some(world), end).unwrap()
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    let values = tensor.to_f32s().unwrap();
    values.into_iter().map(f32::to_bits).collect()
}

#[test]
fn a_rank_keeps_its_own_copies_while_training_goes_on() {
    let run = run();
    let mut whole = run.assemble_with(one_f_one_b(4, 5).unwrap());
    let mut outcome = Outcome::default();
    outcome.step(&mut whole, run.items(0), &run, 0, true);
    let device = whole.transit.clone();
    let expected = copy_owned(&mut whole.pipeline, &device).unwrap();
    let total: usize = expected
        .iter()
        .flat_map(|param| std::iter::once(&param.value).chain(&param.state))
        .map(Tensor::bytes)
        .sum();
    on_ranks(2, |world| {
        let mut part = part(&run, &world);
        let mut outcome = Outcome::default();
        outcome.step(&mut part, run.items(0), &run, 0, true);
        // Twice: the second time nothing of the first is left.
        for again in [false, true] {
            let copies = part.transit.host().device(DeviceId::Cpu).unwrap();
            let (lent, mut lender) = lend_owned(&mut part.pipeline, &copies).unwrap();
            let params = &lent.params;
            let own = copies.live_bytes() as usize;
            assert!(0 < own && own < total, "{own} of {total} bytes");
            if !again {
                outcome.step(&mut part, run.items(1), &run, 1, true);
            }
            if world.rank() == 0 {
                let names = params.iter().map(|param| &param.name);
                assert!(names.eq(expected.iter().map(|param| &param.name)));
                let mut largest = 0;
                let mut changed = false;
                for (param, expected) in params.iter().zip(&expected) {
                    let stored = std::iter::once(&param.value).chain(&param.state);
                    let wanted = std::iter::once(&expected.value).chain(&expected.state);
                    for (stored, wanted) in stored.zip(wanted) {
                        assert_eq!(stored.dtype(), DType::F32);
                        let tensor = stored.get().unwrap();
                        largest = largest.max(tensor.bytes());
                        changed |= bits(&tensor) != bits(wanted);
                    }
                }
                // As they were when they were lent, whatever was trained since.
                assert_eq!(changed, again);
                assert!(copies.peak_bytes() as usize <= own + largest);
            }
            drop(lent);
            lender.wait();
            assert_eq!(copies.live_bytes(), 0);
        }
    });
}

#[test]
fn after_the_last_step_nothing_is_copied() {
    let run = run();
    let mut whole = run.assemble_with(one_f_one_b(4, 5).unwrap());
    let mut outcome = Outcome::default();
    outcome.step(&mut whole, run.items(0), &run, 0, true);
    let copies = whole.transit.host().device(DeviceId::Cpu).unwrap();
    let expected = copy_owned(&mut whole.pipeline, &copies).unwrap();
    let copied = copies.live_bytes();
    let (lent, _) = lend_last(&mut whole.pipeline, &copies).unwrap();
    assert_eq!(copies.peak_bytes(), copied);
    assert_eq!(lent.params.len(), expected.len());
    for (param, expected) in lent.params.iter().zip(&expected) {
        assert_eq!(param.name, expected.name);
        let stored = std::iter::once(&param.value).chain(&param.state);
        let wanted = std::iter::once(&expected.value).chain(&expected.state);
        for (stored, wanted) in stored.zip(wanted) {
            assert_eq!(bits(&stored.get().unwrap()), bits(wanted));
        }
    }
    // A step that is made nevertheless does not change what is lent.
    whole.pipeline.step(run.items(1)).expect("no update");
    let error = apply_update(&mut whole.pipeline, &run.optimizer, 0.01, 1, 1.0);
    let error = error
        .expect_err("what is lent cannot be changed")
        .to_string();
    assert!(error.contains("still holds"), "{error}");
}

#[test]
fn a_rank_that_fails_ends_lending_and_fetching() {
    let run = run();
    for failing in [0, 1] {
        let fetched = Barrier::new(2);
        on_ranks(2, |world| {
            let mut part = part(&run, &world);
            let copies = part.transit.host().device(DeviceId::Cpu).unwrap();
            let (lent, mut lender) = lend_owned(&mut part.pipeline, &copies).unwrap();
            // Both have lent before one of them fails.
            assert!(!part.pipeline.any(false).unwrap());
            if world.rank() == failing {
                world.fail("a fault", 1);
            }
            let error = (world.rank() == 0 && failing == 1).then(|| {
                let fetched = lent.params.iter().map(|param| param.value.get());
                let error = fetched.filter_map(Result::err).next();
                error.map(|error| error.to_string()).unwrap_or_default()
            });
            // A rank that has failed would still give what it is asked for.
            fetched.wait();
            if let Some(error) = error {
                assert!(
                    error.contains("rank 1") && error.contains("a fault"),
                    "{error:?}"
                );
            }
            if world.rank() == failing {
                // What it holds would keep the other one lending: it fails without letting go.
                std::mem::forget(lent);
            }
            lender.wait();
        });
    }
}
