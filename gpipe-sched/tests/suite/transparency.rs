//! The executor changes nothing: losses and gradients are those of a plain loop, whatever the
//! schedule.

use gpipe_sched::{Action, Schedule, forward_only, gpipe, one_f_one_b};
use proptest::prelude::*;

use crate::common::{Failure, Plan, assert_transparent, batch, build, sequential};
use crate::orders::{any_order, config, lanes, random};

#[test]
fn every_size_computes_what_a_loop_computes() {
    for make in [gpipe, one_f_one_b] {
        for stages in 1..=6 {
            for micro_batches in [1, 2, 3, 5, 8] {
                let schedule = make(stages, micro_batches).unwrap();
                let mut pipeline = build(schedule, &Plan::default()).unwrap();
                for step in 0..3 {
                    assert_transparent(&mut pipeline, step);
                }
            }
        }
    }
}

/// Whether each stage adds its weight gradients from the first micro-batch to the last.
fn ascending(order: &[Action]) -> bool {
    let mut next = std::collections::HashMap::new();
    order.iter().filter(|a| a.op.adds_gradient()).all(|a| {
        let expected = next.entry(a.stage).or_insert(0);
        *expected += 1;
        *expected - 1 == a.micro_batch
    })
}

proptest! {
    #![proptest_config(config(200))]

    /// Several stages a device, in any arrangement, split or not, recomputed or not: whatever can
    /// run at all is accepted, runs, and computes the same losses; the same gradients too if it
    /// says that it ascends.
    #[test]
    fn any_valid_order_runs(
        device_of in prop::sample::select(vec![
            vec![0], vec![0, 1], vec![0, 0, 1], vec![0, 1, 1, 0], vec![0, 1, 0, 1], vec![2, 1, 0],
        ]),
        micro_batches in 1_usize..5,
        seed in any::<u64>(),
    ) {
        let mut random = random(seed);
        let stages = device_of.len();
        let (split, ahead) = (random(4), random(4));
        let order = any_order(
            stages,
            micro_batches,
            |stage, m| (stage + m) % 4 < split,
            |stage, m| (stage * 3 + m) % 4 < ahead,
            &mut random,
        );
        let schedule = Schedule::new(device_of.clone(), micro_batches, lanes(&device_of, &order));
        let schedule = schedule.expect("an order that can run");
        prop_assert_eq!(schedule.is_ascending(), ascending(&order));
        let ascends = schedule.is_ascending();
        let mut pipeline = build(schedule, &Plan::default()).unwrap();
        for step in 0..2 {
            let outcome = pipeline.step(batch(step, micro_batches, true)).unwrap();
            let gradients = pipeline.gather(|_, toy| Ok::<_, Failure>(toy.gradient)).unwrap();
            let expected = sequential(step, stages, micro_batches);
            prop_assert_eq!(outcome.losses, expected.0);
            if ascends {
                prop_assert_eq!(gradients, expected.1);
            }
        }
    }
}

#[test]
fn evaluation_takes_any_number_of_micro_batches() {
    let mut pipeline = build(one_f_one_b(3, 4).unwrap(), &Plan::default()).unwrap();
    for micro_batches in [1, 2, 9, 30] {
        let outcome = pipeline.forward(batch(5, micro_batches, false)).unwrap();
        assert_eq!(outcome.losses, sequential(5, 3, micro_batches).0);
        assert_eq!(outcome.timeline.spans().len(), 3 * micro_batches);
        assert_transparent(&mut pipeline, 6);
    }
}

#[test]
fn a_forward_only_schedule_steps_without_gradients() {
    let mut pipeline = build(forward_only(3, 4).unwrap(), &Plan::default()).unwrap();
    let outcome = pipeline.step(batch(1, 4, false)).unwrap();
    assert_eq!(outcome.losses, sequential(1, 3, 4).0);
}

#[test]
fn visits_see_every_stage_once_and_come_back_in_model_order() {
    // Stages 0 and 3 share a device.
    let order = any_order(4, 2, |_, _| false, |_, _| false, &mut |_| 0);
    let device_of = vec![0, 1, 1, 0];
    let schedule = Schedule::new(device_of.clone(), 2, lanes(&device_of, &order)).unwrap();
    let mut pipeline = build(schedule, &Plan::default()).unwrap();
    pipeline
        .each(|stage, toy| {
            toy.gradient = 10 + stage as i64;
            Ok::<_, Failure>(())
        })
        .unwrap();
    let seen = pipeline
        .gather(|stage, toy| {
            let thread = std::thread::current().name().unwrap_or_default().to_owned();
            Ok::<_, Failure>((stage, toy.gradient, thread))
        })
        .unwrap();
    let expected = [(0, 10, 0), (1, 11, 1), (2, 12, 1), (3, 13, 0)];
    assert_eq!(
        seen,
        expected.map(|(stage, value, device)| (stage, value, format!("gpipe-{device}")))
    );
    let thread = pipeline
        .with_loss_stage(|_| Ok::<_, Failure>(std::thread::current().name().map(str::to_owned)))
        .unwrap();
    assert_eq!(thread.as_deref(), Some("gpipe-0"));
}

#[test]
fn a_pipeline_is_send_even_if_its_stages_are_not() {
    fn is_send<T: Send>() {}
    is_send::<crate::common::ToyPipeline>();
}
