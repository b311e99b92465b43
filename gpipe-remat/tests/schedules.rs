//! Several stages a device, and backward passes in two halves: every schedule trains to the bits of
//! one stage, under every policy.

mod common;

use common::{Model, Outcome, Run};
use gpipe_remat::Policy;
use gpipe_sched::{
    Action, Costs, Op, Schedule, ScheduleError, StageCosts, dualpipe_v, gpipe, interleaved,
    looped_bfs, one_f_one_b, v_half, v_min, zb_h1, zb_h2, zb_v, zero_bubble,
};

const POLICIES: [Policy; 4] = [
    Policy::Keep,
    Policy::Stage,
    Policy::ExceptLast,
    Policy::Every(2),
];

fn model() -> Model {
    Model {
        blocks: 3,
        tied: true,
        dropout: 0.2,
    }
}

/// Every bit after some steps under a schedule.
fn train(run: &Run, schedule: Schedule) -> Outcome {
    let run = Run {
        stages: schedule.stages(),
        ..run.clone()
    };
    let mut assembled = run.assemble_with(schedule);
    let mut outcome = Outcome::default();
    for step in 0..run.steps {
        outcome.step(&mut assembled, run.items(step), &run, step, true);
    }
    outcome.read(&mut assembled);
    outcome
}

/// Trains under the schedules of one builder and compares with one stage: as many devices as
/// micro-batches, fewer, more, one of either, and numbers that do not divide each other.
///
/// The exam goes up to eight stages, and counts.
fn every_size(make: impl Fn(usize, usize) -> Result<Schedule, ScheduleError>) {
    let chunks = make(1, 1).expect("a valid size").stages();
    let most = match std::env::var_os("GPIPE_EXAM") {
        Some(_) => 8 / chunks,
        None => 4,
    };
    let mut tried = 0;
    for (batch, micro_batches) in [(8, 4), (7, 5), (5, 2), (3, 1)] {
        let reference = Run {
            steps: 2,
            ignore: 3,
            ..Run::new(model(), batch, micro_batches)
        };
        let expected = reference.train();
        for devices in 1..=most {
            let schedule = make(devices, micro_batches).expect("a valid size");
            let stages = schedule.stages();
            let run = Run {
                stages,
                ..reference.clone()
            };
            for policy in POLICIES.into_iter().chain(run.budgets(&schedule)) {
                let run = Run {
                    policy,
                    ..reference.clone()
                };
                assert_eq!(
                    expected,
                    train(&run, schedule.clone()),
                    "K={devices} M={micro_batches} {policy}"
                );
                tried += 1;
            }
        }
    }
    println!("exam N1 {tried}/{tried}");
}

#[test]
fn interleaved_trains_to_the_bits_of_one_stage() {
    every_size(|devices, m| interleaved(devices, 2, m));
}

#[test]
fn looped_bfs_trains_to_the_bits_of_one_stage() {
    every_size(|devices, m| looped_bfs(devices, 2, m));
}

#[test]
fn zb_h1_trains_to_the_bits_of_one_stage() {
    every_size(zb_h1);
}

#[test]
fn zb_h2_trains_to_the_bits_of_one_stage() {
    every_size(zb_h2);
}

#[test]
fn zb_v_trains_to_the_bits_of_one_stage() {
    every_size(zb_v);
}

#[test]
fn v_half_trains_to_the_bits_of_one_stage() {
    every_size(v_half);
}

#[test]
fn v_min_trains_to_the_bits_of_one_stage() {
    every_size(v_min);
}

#[test]
fn dualpipe_v_trains_to_the_bits_of_one_stage() {
    every_size(dualpipe_v);
}

/// Uneven costs, so that the search has something to follow.
fn uneven(stages: usize) -> Costs {
    let stage = |stage: usize| StageCosts {
        forward: 1.0 + (stage % 3) as f64,
        input_grad: 2.0,
        weight_grad: 1.5,
        recompute: 1.0,
    };
    Costs::new((0..stages).map(stage).collect())
}

#[test]
fn zero_bubble_trains_to_the_bits_of_one_stage() {
    every_size(|devices, m| {
        Ok(zero_bubble(devices, m, &uneven(devices), |_| devices).expect("costs that fit"))
    });
}

#[test]
fn recomputation_ahead_of_time_trains_to_the_bits_of_one_stage() {
    for make in [gpipe, one_f_one_b, v_half, zb_h1] {
        every_size(|devices, m| {
            let schedule = make(devices, m)?;
            let costs = uneven(schedule.stages()).with_recompute(m, |_, _| true);
            Ok(schedule.recompute_early(&costs).expect("costs that fit"))
        });
    }
}

/// A schedule of PyTorch, 4 ranks of 2 stages and 8 micro-batches.
macro_rules! pytorch {
    ($name:literal) => {
        Schedule::from_csv(include_str!(concat!(
            "../../gpipe-sched/tests/fixtures/",
            $name,
            ".csv"
        )))
        .expect("a schedule")
    };
}

#[test]
fn schedules_of_pytorch_train_to_the_bits_of_one_stage() {
    let run = Run {
        steps: 2,
        ..Run::new(model(), 8, 8)
    };
    let expected = run.train();
    for schedule in [
        pytorch!("zb_v"),
        pytorch!("dualpipe_v"),
        pytorch!("interleaved_zero_bubble"),
    ] {
        for policy in POLICIES {
            let run = Run {
                policy,
                ..run.clone()
            };
            assert_eq!(expected, train(&run, schedule.clone()), "{policy}");
        }
    }
}

/// Its looped BFS goes back from the last micro-batch: other bits, those of one stage that does so.
#[test]
fn a_descending_schedule_gives_the_bits_of_one_stage_in_its_order() {
    let run = Run {
        steps: 2,
        ..Run::new(model(), 8, 8)
    };
    let forward = (0..8).map(|m| Action::new(0, Op::Forward, m));
    let backward = (0..8).rev().map(|m| Action::new(0, Op::Backward, m));
    let lane = forward.chain(backward).collect();
    let descending = Schedule::new(vec![0], 8, vec![lane]).expect("a schedule");
    let looped = train(&run, pytorch!("looped_bfs"));
    assert_eq!(train(&run, descending), looped);
    assert_ne!(run.train(), looped);
    println!("exam N1 teeth 1/1");
}
