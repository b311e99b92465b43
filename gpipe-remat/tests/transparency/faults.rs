//! Faults that a pipeline could have; each must change the bits that the other tests compare.

use gpipe_remat::Target;
use gpipe_sched::{Action, Item, Op, Schedule};
use gpipe_tensor::Tensors;

use super::common::{CONTEXT, Outcome, Run};
use super::model;

type Items = Vec<Item<Tensors, Target>>;

fn caught(run: &Run, schedule: Schedule, plant: impl Fn(&mut Items), merge: bool) -> bool {
    let mut assembled = run.assemble_with(schedule);
    let mut got = Outcome::default();
    for step in 0..run.steps {
        let mut items = run.items(step);
        plant(&mut items);
        got.step(&mut assembled, items, run, step, merge);
    }
    got.read(&mut assembled);
    let is_caught = got != run.train();
    if is_caught {
        println!("exam N2 teeth 1/1");
    }
    is_caught
}

fn run() -> Run {
    Run {
        stages: 2,
        ignore: 3,
        ..Run::new(model(true, 0.2), 7, 3)
    }
}

#[test]
fn no_fault_is_not_caught() {
    assert!(!caught(&run(), run().schedule(), |_| (), true));
}

#[test]
fn gradients_summed_in_descending_order() {
    let lanes = (0..2).map(|stage| {
        let all = |op| {
            (0..3).map(move |micro_batch| Action {
                stage,
                op,
                micro_batch,
            })
        };
        all(Op::Forward).chain(all(Op::Backward).rev()).collect()
    });
    let schedule =
        Schedule::new(vec![0, 1], 3, lanes.collect()).expect("complete, if not ascending");
    assert!(!schedule.is_ascending());
    assert!(caught(&run(), schedule, |_| (), true));
}

#[test]
fn dropout_keyed_by_the_place_in_the_micro_batch() {
    let plant = |items: &mut Items| {
        for item in items {
            let samples = &mut item.micro_batch.samples;
            *samples = 0..samples.end - samples.start;
        }
    };
    assert!(caught(&run(), run().schedule(), plant, true));
}

#[test]
fn dropout_that_forgets_the_step() {
    let plant = |items: &mut Items| items.iter_mut().for_each(|item| item.micro_batch.step = 0);
    assert!(caught(&run(), run().schedule(), plant, true));
}

#[test]
fn losses_averaged_by_micro_batch() {
    let plant = |items: &mut Items| {
        for item in items {
            item.target.divisor = (item.target.values.shape().rows() * CONTEXT * 3) as f64;
        }
    };
    assert!(caught(&run(), run().schedule(), plant, true));
}

#[test]
fn ties_not_merged() {
    assert!(caught(&run(), run().schedule(), |_| (), false));
}

#[test]
fn micro_batches_swapped() {
    let plant = |items: &mut Items| {
        let (left, right) = items.split_at_mut(2);
        std::mem::swap(&mut left[1].input, &mut right[0].input);
        std::mem::swap(&mut left[1].target, &mut right[0].target);
    };
    assert!(caught(&run(), run().schedule(), plant, true));
}
