//! What the constructor refuses is what cannot run, and nothing else.

use gpipe_sched::{Action, Fault, Op, Schedule, gpipe, one_f_one_b};
use proptest::prelude::*;

use crate::orders::{any_order, config, lanes, random};

/// Whether the lanes can run to their end, one action at a time, by the rules of the documentation
/// alone.
fn can_run(stages: usize, micro_batches: usize, lanes: &[Vec<Action>]) -> bool {
    let mut done = std::collections::HashSet::new();
    let mut positions = vec![0; lanes.len()];
    let mut moved = true;
    while moved {
        moved = false;
        for (lane, position) in lanes.iter().zip(&mut positions) {
            let Some(&action) = lane.get(*position) else {
                continue;
            };
            let Action {
                stage,
                op,
                micro_batch: m,
            } = action;
            let did = |stage, op| done.contains(&Action::new(stage, op, m));
            let back = |stage| did(stage, Op::Backward) || did(stage, Op::InputGrad);
            let planned = lane.contains(&Action::new(stage, Op::Recompute, m));
            let ready = match op {
                Op::Forward => stage == 0 || did(stage - 1, Op::Forward),
                Op::Recompute => did(stage, Op::Forward),
                Op::Backward | Op::InputGrad => {
                    did(stage, Op::Forward)
                        && (stage + 1 == stages || back(stage + 1))
                        && (!planned || did(stage, Op::Recompute))
                }
                Op::WeightGrad => did(stage, Op::InputGrad),
            };
            if ready {
                moved = true;
                *position += 1;
                done.insert(action);
            }
        }
    }
    let all = lanes
        .iter()
        .zip(&positions)
        .all(|(lane, &position)| position == lane.len());
    all && (0..stages)
        .all(|stage| (0..micro_batches).all(|m| done.contains(&Action::new(stage, Op::Forward, m))))
}

#[test]
fn every_swap_of_neighbours_is_judged_rightly() {
    let (mut accepted, mut refused) = (0, 0);
    for make in [gpipe, one_f_one_b] {
        for (stages, micro_batches) in [(1, 3), (2, 2), (3, 4), (4, 3), (4, 8)] {
            let good = make(stages, micro_batches).unwrap();
            for device in 0..stages {
                for position in 0..2 * micro_batches - 1 {
                    let mut lanes = good.lanes().to_vec();
                    lanes[device].swap(position, position + 1);
                    let can = can_run(stages, micro_batches, &lanes);
                    let result = Schedule::new((0..stages).collect(), micro_batches, lanes);
                    assert_eq!(result.is_ok(), can, "device {device}, position {position}");
                    if can { accepted += 1 } else { refused += 1 }
                }
            }
        }
    }
    assert!(
        accepted > 100 && refused > 20,
        "{accepted} accepted, {refused} refused"
    );
}

#[test]
fn every_loss_copy_and_move_is_refused() {
    let good = one_f_one_b(4, 5).unwrap();
    let devices = vec![0, 1, 2, 3];
    for device in 0..4 {
        for position in 0..10 {
            let action = good.lanes()[device][position];
            let plant = |change: &dyn Fn(&mut Vec<Vec<Action>>)| {
                let mut lanes = good.lanes().to_vec();
                change(&mut lanes);
                Schedule::new(devices.clone(), 5, lanes)
                    .unwrap_err()
                    .fault()
                    .clone()
            };
            let dropped = plant(&|lanes| lanes[device].retain(|other| *other != action));
            assert_eq!(dropped, Fault::Missing { action });
            let doubled = plant(&|lanes| lanes[device].push(action));
            assert_eq!(doubled, Fault::Twice { action });
            let other = (device + 1) % 4;
            let moved = plant(&|lanes| {
                let action = lanes[device].remove(position);
                lanes[other].insert(position, action);
            });
            assert_eq!(
                moved,
                Fault::WrongDevice {
                    action,
                    device: other,
                    owner: device
                }
            );
        }
    }
}

proptest! {
    #![proptest_config(config(2_000))]

    /// Two actions anywhere in a lane change places: accepted if and only if it can still run.
    #[test]
    fn a_swap_anywhere_is_judged_rightly(
        device_of in prop::sample::select(vec![vec![0, 1], vec![0, 1, 1, 0], vec![0, 1, 0], vec![0, 1, 0, 2]]),
        seed in any::<u64>(),
        swap in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        device in 0_usize..2,
    ) {
        let mut choose = random(seed);
        let stages = device_of.len();
        let order = any_order(stages, 3, |s, m| (s + m) % 2 == 0, |_, m| m == 1, &mut choose);
        let mut lanes = lanes(&device_of, &order);
        let length = lanes[device].len();
        lanes[device].swap(swap.0.index(length), swap.1.index(length));
        let can = can_run(stages, 3, &lanes);
        prop_assert_eq!(Schedule::new(device_of, 3, lanes).is_ok(), can);
    }

    /// Any list of actions at all: an answer, and only right ones are accepted.
    #[test]
    fn nothing_makes_the_checker_panic(
        lanes in prop::collection::vec(prop::collection::vec((0_usize..3, 0_usize..5, 0_usize..3), 0..8), 0..3),
        device_of in prop::collection::vec(0_usize..3, 0..3),
        micro_batches in 0_usize..3,
    ) {
        let action = |(stage, op, m)| Action::new(stage, Op::ALL[op], m);
        let lanes: Vec<Vec<Action>> =
            lanes.into_iter().map(|lane| lane.into_iter().map(action).collect()).collect();
        match Schedule::new(device_of.clone(), micro_batches, lanes.clone()) {
            Ok(_) => prop_assert!(can_run(device_of.len(), micro_batches, &lanes)),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn the_text_of_an_action_reads_back(stage: usize, op in 0_usize..5, micro_batch: usize) {
        let action = Action::new(stage, Op::ALL[op], micro_batch);
        prop_assert_eq!(action.to_string().parse(), Ok(action));
    }

    #[test]
    fn hostile_text_is_an_error(text in r"\PC*|[0-9]{0,30}[FBIWR]?[0-9+\-]{0,30}") {
        if let Ok(action) = text.parse::<Action>() {
            prop_assert_eq!(action.to_string().parse(), Ok(action));
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        }
    }
}
