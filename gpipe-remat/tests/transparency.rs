//! The promise of the whole system: the same bits as on one device, whatever the number of
//! stages, the schedule, the rematerialization and the number of threads. And that this test can
//! fail: each fault planted in `transparency/faults.rs` breaks it.

mod common;
#[path = "transparency/faults.rs"]
mod faults;

use common::{Model, Order, Outcome, Run};
use gpipe_layers::{AdamW, Decay, Optimizer, Sgd};
use gpipe_remat::Policy;
use gpipe_sched::{Action, Op, Schedule};
use proptest::prelude::*;

const POLICIES: [Policy; 5] = [
    Policy::Keep,
    Policy::Stage,
    Policy::ExceptLast,
    Policy::Every(1),
    Policy::Every(2),
];

fn model(tied: bool, dropout: f32) -> Model {
    Model {
        blocks: 3,
        tied,
        dropout,
    }
}

/// Fails with the first difference and the configuration that made it.
fn assert_same(expected: &Outcome, run: &Run) {
    let got = run.train();
    assert_eq!(expected.losses, got.losses, "losses of {run:?}");
    assert_eq!(expected.norms, got.norms, "gradient norms of {run:?}");
    for (name, value) in &expected.values {
        assert_eq!(value, &got.values[name], "{name} of {run:?}");
        assert_eq!(
            expected.gradients[name], got.gradients[name],
            "gradient of {name} of {run:?}"
        );
    }
    assert_eq!(expected, &got, "{run:?}");
}

/// Every number of threads for each way in an exam, otherwise one of them by turns.
fn every_configuration(tied: bool, dropout: f32) {
    let is_exam = std::env::var_os("GPIPE_EXAM").is_some();
    let (mut ways, mut compared) = (0, 0);
    for (batch, micro_batches) in [(8, 4), (7, 3)] {
        let reference = Run::new(model(tied, dropout), batch, micro_batches);
        let expected = reference.train();
        for stages in [1, 2, 3, 4, 8] {
            for order in [Order::Gpipe, Order::OneFOneB] {
                let run = Run {
                    stages,
                    order,
                    ..reference.clone()
                };
                let budgets = run.budgets(&run.schedule());
                for policy in POLICIES.into_iter().chain(budgets) {
                    ways += 1;
                    let one = 1 + ways % 3;
                    for threads in if is_exam { 1..=3 } else { one..=one } {
                        let run = Run {
                            policy,
                            threads,
                            ..run.clone()
                        };
                        assert_same(&expected, &run);
                        compared += 1;
                    }
                }
            }
        }
    }
    println!("exam N2 {compared}/{compared}");
}

#[test]
fn tied_without_dropout() {
    every_configuration(true, 0.0);
}

#[test]
fn tied_with_dropout() {
    every_configuration(true, 0.2);
}

#[test]
fn untied_without_dropout() {
    every_configuration(false, 0.0);
}

#[test]
fn untied_with_dropout() {
    every_configuration(false, 0.2);
}

/// A number that may come out of a division: runs of no layers would compute nothing.
#[test]
fn runs_of_no_layers_count_as_runs_of_one() {
    let reference = Run::new(model(true, 0.1), 4, 2);
    let run = Run {
        stages: 2,
        policy: Policy::Every(0),
        ..reference.clone()
    };
    assert_same(&reference.train(), &run);
}

/// The sum over groups is the same whatever the cut and the schedule, and not that of one group.
#[test]
fn groups_give_their_own_bits_at_any_cut() {
    let one = Run::new(model(true, 0.1), 15, 7);
    let plain = one.train();
    for groups in [2, 3, 7] {
        let reference = Run {
            groups,
            ..one.clone()
        };
        let expected = reference.train();
        assert_ne!(expected.gradients, plain.gradients, "{groups} groups");
        for (stages, order, policy) in [
            (2, Order::OneFOneB, Policy::Stage),
            (5, Order::Gpipe, Policy::Every(1)),
        ] {
            assert_same(
                &expected,
                &Run {
                    stages,
                    order,
                    policy,
                    threads: 2,
                    ..reference.clone()
                },
            );
        }
    }
}

#[test]
fn threads_do_not_show() {
    // Wide enough that operations do cut their work.
    let reference = Run {
        steps: 2,
        ..Run::new(model(true, 0.1), 64, 2)
    };
    let expected = reference.train();
    for threads in [2, 3, 8] {
        for stages in [1, 2] {
            assert_same(
                &expected,
                &Run {
                    threads,
                    stages,
                    ..reference.clone()
                },
            );
        }
    }
}

#[test]
fn tied_places_stay_equal() {
    let reference = Run {
        steps: 100,
        ..Run::new(model(true, 0.1), 4, 2)
    };
    let expected = reference.train();
    let name = "transformer.wte.weight";
    assert_eq!(
        expected.values[name],
        expected.values[&format!("{name} (tied)")]
    );
    assert_same(
        &expected,
        &Run {
            stages: 4,
            order: Order::OneFOneB,
            policy: Policy::Stage,
            ..reference
        },
    );
}

/// Input and weight gradients taken apart, the latter late: the same bits as together.
#[test]
fn split_backward_is_the_fused_one() {
    let (stages, micro_batches) = (3, 4);
    let reference = Run::new(model(true, 0.1), 8, micro_batches);
    let expected = reference.train();
    let lanes = (0..stages).map(|stage| {
        let all = |op| {
            (0..micro_batches).map(move |micro_batch| Action {
                stage,
                op,
                micro_batch,
            })
        };
        all(Op::Forward)
            .chain(all(Op::Recompute))
            .chain(all(Op::InputGrad))
            .chain(all(Op::WeightGrad))
            .collect()
    });
    let schedule = Schedule::new((0..stages).collect(), micro_batches, lanes.collect())
        .expect("a valid schedule");
    let run = Run {
        stages,
        ..reference.clone()
    };
    for policy in POLICIES.into_iter().chain(run.budgets(&schedule)) {
        let run = Run {
            policy,
            ..run.clone()
        };
        let mut assembled = run.assemble_with(schedule.clone());
        let mut got = Outcome::default();
        for step in 0..run.steps {
            got.step(&mut assembled, run.items(step), &run, step, true);
        }
        got.read(&mut assembled);
        assert_eq!(expected, got, "{policy}");
    }
}

fn optimizers() -> impl Strategy<Value = Optimizer> {
    prop_oneof![
        Just(Optimizer::from(Sgd::default())),
        Just(Optimizer::from(Sgd {
            momentum: 0.9,
            weight_decay: 0.01,
            decay: Decay::Matrices,
            ..Sgd::default()
        })),
        Just(Optimizer::from(AdamW {
            beta2: 0.95,
            weight_decay: 0.1,
            decay: Decay::All,
            ..AdamW::default()
        })),
    ]
}

prop_compose! {
    fn runs()(
        blocks in 1usize..4,
        tied: bool,
        dropout in prop_oneof![Just(0.0f32), Just(0.3)],
        (batch, micro_batches) in (1usize..10).prop_flat_map(|b| (Just(b), 1..=b)),
        stages in 1usize..5,
        one_f_one_b: bool,
        policy in prop_oneof![
            Just(Policy::Keep), Just(Policy::Stage), Just(Policy::ExceptLast),
            (1usize..5).prop_map(Policy::Every),
        ],
        threads in 1usize..4,
        ignore in 0usize..4,
        optimizer in optimizers(),
    ) -> Run {
        Run {
            stages,
            order: if one_f_one_b { Order::OneFOneB } else { Order::Gpipe },
            policy,
            threads,
            ignore,
            optimizer,
            ..Run::new(Model { blocks, tied, dropout }, batch, micro_batches)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_run_gives_the_bits_of_one_stage(run in runs()) {
        let single = Run { stages: 1, order: Order::Gpipe, policy: Policy::Keep, threads: 1, ..run.clone() };
        assert_same(&single.train(), &run);
    }
}

/// Another number of micro-batches gives other bits but the same numbers: losses weigh targets,
/// not micro-batches, whether these are even or not and whatever is ignored.
#[test]
fn micro_batches_agree_to_rounding() {
    for ignore in [0, 2, 3] {
        let optimizer = Optimizer::from(Sgd::default());
        let whole = Run {
            ignore,
            steps: 1,
            optimizer,
            ..Run::new(model(true, 0.2), 7, 1)
        };
        let expected = whole.train();
        for micro_batches in 2..=7 {
            let got = Run {
                micro_batches,
                stages: 2,
                ..whole.clone()
            }
            .train();
            assert!(
                difference(&expected, &got) < 1e-5,
                "{micro_batches} micro-batches"
            );
        }
        // The same comparison sees a gradient that is wrong by one part in a thousand.
        let mut scaled = expected.clone();
        for bits in scaled.gradients.values_mut().flatten() {
            *bits = (f32::from_bits(*bits) * 1.001).to_bits();
        }
        assert!(difference(&expected, &scaled) > 1e-5);
    }
}

/// The largest difference of two runs' losses and gradients, relative to each tensor's largest.
fn difference(a: &Outcome, b: &Outcome) -> f64 {
    let loss = (f64::from_bits(a.losses[0]) - f64::from_bits(b.losses[0])).abs();
    a.gradients.iter().fold(loss, |worst, (name, expected)| {
        let float = |bits: &u32| f64::from(f32::from_bits(*bits));
        let scale = expected
            .iter()
            .map(|x| float(x).abs())
            .fold(1e-30, f64::max);
        let pairs = expected.iter().zip(&b.gradients[name]);
        pairs.fold(worst, |worst, (x, y)| {
            worst.max((float(x) - float(y)).abs() / scale)
        })
    })
}

#[test]
fn a_batch_without_targets_gives_nothing() {
    let run = Run {
        ignore: 1,
        steps: 1,
        stages: 2,
        ..Run::new(model(true, 0.1), 4, 2)
    };
    let outcome = run.train();
    assert_eq!(outcome.losses, [0f64.to_bits()]);
    assert_eq!(outcome.norms, [0f64.to_bits()]);
    assert!(
        outcome
            .gradients
            .values()
            .flatten()
            .all(|&bits| f32::from_bits(bits) == 0.0)
    );
}
