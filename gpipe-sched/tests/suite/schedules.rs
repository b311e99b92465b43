//! What the builders promise, for every size: bubble, memory, order and flows in flight.

use std::collections::HashMap;

use gpipe_sched::{
    Action, Costs, Direction, Op, Schedule, forward_only, gpipe, interleaved, one_f_one_b, simulate,
};

use crate::orders::{any_order, lanes, random};

const STAGES: usize = 16;
const MICRO_BATCHES: usize = 64;

/// All sizes that the builders are checked at, corners included: fewer micro-batches than stages,
/// one of either.
fn sizes() -> impl Iterator<Item = (usize, usize)> {
    (1..=STAGES).flat_map(|stages| (1..=MICRO_BATCHES).map(move |m| (stages, m)))
}

#[test]
fn the_bubble_is_the_closed_form() {
    let mut cases = 0;
    for make in [gpipe, one_f_one_b] {
        for (stages, micro_batches) in sizes() {
            let schedule = make(stages, micro_batches).unwrap();
            let timeline = simulate(&schedule, &Costs::even(stages, 1.0, 2.0)).unwrap();
            let slots = (micro_batches + stages - 1) as f64;
            // Sums of small whole numbers are exact.
            assert_eq!(
                timeline.makespan(),
                3.0 * slots,
                "K={stages} M={micro_batches}"
            );
            let bubble = (stages - 1) as f64 / slots;
            assert!(
                (timeline.bubble() - bubble).abs() < 1e-12,
                "K={stages} M={micro_batches}"
            );
            cases += 1;
        }
    }
    assert_eq!(cases, 2 * STAGES * MICRO_BATCHES);
}

#[test]
fn evaluation_fills_and_drains_once() {
    for (stages, micro_batches) in sizes() {
        let schedule = forward_only(stages, micro_batches).unwrap();
        let timeline = simulate(&schedule, &Costs::even(stages, 1.0, 2.0)).unwrap();
        assert_eq!(timeline.makespan(), (micro_batches + stages - 1) as f64);
        assert!(schedule.is_forward_only());
        assert!((0..stages).all(|stage| schedule.live(stage) == 0));
    }
}

#[test]
fn the_peak_of_live_micro_batches_is_the_papers() {
    for (stages, micro_batches) in sizes() {
        let fill_drain = gpipe(stages, micro_batches).unwrap();
        let alternating = one_f_one_b(stages, micro_batches).unwrap();
        for stage in 0..stages {
            assert_eq!(fill_drain.live(stage), micro_batches);
            assert_eq!(alternating.live(stage), micro_batches.min(stages - stage));
        }
    }
}

#[test]
fn both_ascend_on_one_stage_a_device() {
    for make in [gpipe, one_f_one_b] {
        for (stages, micro_batches) in sizes() {
            let schedule = make(stages, micro_batches).unwrap();
            assert!(schedule.is_ascending() && !schedule.is_forward_only());
            assert_eq!(
                (schedule.stages(), schedule.micro_batches()),
                (stages, micro_batches)
            );
            assert_eq!(schedule.device_of(), (0..stages).collect::<Vec<_>>());
            let of_stage = |stage| schedule.of_stage(stage).count();
            assert!((0..stages).all(|stage| of_stage(stage) == 2 * micro_batches));
        }
    }
}

#[test]
fn a_descending_schedule_is_valid_and_says_so() {
    let lane = |ops: &str| ops.split(' ').map(|text| text.parse().unwrap()).collect();
    let lanes = vec![lane("0F0 0F1 0B1 0B0"), lane("1F0 1F1 1B1 1B0")];
    let schedule = Schedule::new(vec![0, 1], 2, lanes).unwrap();
    assert!(!schedule.is_ascending());
}

/// The most flows in flight, from all that an action surely comes after: the definition, at a cost
/// that only tiny schedules can bear.
fn slots_by_definition(schedule: &Schedule, direction: Direction, taker: usize) -> usize {
    let stages = schedule.stages();
    let giver = match direction {
        Direction::Forward => taker - 1,
        Direction::Backward => (taker + 1).min(stages - 1),
    };
    let actions: Vec<Action> = schedule.lanes().iter().flatten().copied().collect();
    let index: HashMap<Action, usize> = actions.iter().copied().zip(0..).collect();
    let mut after = vec![0_u128; actions.len()];
    let backward = |stage, m| {
        let of = |op| index.get(&Action::new(stage, op, m)).copied();
        of(Op::Backward).or(of(Op::InputGrad)).unwrap()
    };
    let mut changed = true;
    while changed {
        changed = false;
        for lane in schedule.lanes() {
            for (position, action) in lane.iter().enumerate() {
                let mut past = after[index[action]];
                let mut follows = |i: usize| past |= after[i] | 1 << i;
                if position > 0 {
                    follows(index[&lane[position - 1]]);
                }
                if action.op == Op::Forward && action.stage > 0 {
                    follows(
                        index[&Action {
                            stage: action.stage - 1,
                            ..*action
                        }],
                    );
                }
                if action.op.is_backward() && action.stage + 1 < stages {
                    follows(backward(action.stage + 1, action.micro_batch));
                }
                changed |= past != after[index[action]];
                after[index[action]] = past;
            }
        }
    }
    let is_flow = |action: &Action| match (direction, giver == taker) {
        (Direction::Forward, _) | (Direction::Backward, true) => action.op == Op::Forward,
        (Direction::Backward, false) => action.op.is_backward(),
    };
    let takes = |action: &Action| {
        action.stage == taker
            && (action.op == Op::Forward) == (direction == Direction::Forward)
            && (action.op == Op::Forward || action.op.is_backward())
    };
    let in_flight = |&sender: &usize| {
        let past = |i: usize| i == sender || after[sender] & 1 << i != 0;
        let sent = (0..actions.len())
            .filter(|&i| past(i) && actions[i].stage == giver && is_flow(&actions[i]))
            .count();
        sent - (0..actions.len())
            .filter(|&i| past(i) && takes(&actions[i]))
            .count()
    };
    let senders = (0..actions.len()).filter(|&i| actions[i].stage == giver && is_flow(&actions[i]));
    senders
        .collect::<Vec<_>>()
        .iter()
        .map(in_flight)
        .max()
        .unwrap()
}

#[test]
fn slots_are_what_their_definition_says() {
    for make in [gpipe, one_f_one_b] {
        for (stages, micro_batches) in (1..=4).flat_map(|k| (1..=7).map(move |m| (k, m))) {
            let schedule = make(stages, micro_batches).unwrap();
            let slots = schedule.slots();
            for stage in 0..stages {
                let backward = slots_by_definition(&schedule, Direction::Backward, stage);
                assert_eq!(
                    slots.backward[stage], backward,
                    "K={stages} M={micro_batches}"
                );
                if stage + 1 < stages {
                    let forward = slots_by_definition(&schedule, Direction::Forward, stage + 1);
                    assert_eq!(
                        slots.forward[stage], forward,
                        "K={stages} M={micro_batches}"
                    );
                }
            }
            assert_eq!(slots.forward[stages - 1], 0);
        }
    }
}

#[test]
fn slots_are_never_too_few_where_devices_share_stages() {
    for device_of in [vec![0, 1, 1, 0], vec![0, 1, 0, 1], vec![0, 0, 1]] {
        for start in 0..20 {
            let mut choose = random(start);
            let order = any_order(
                device_of.len(),
                3,
                |_, m| m == 1,
                |_, m| m == 2,
                &mut choose,
            );
            let schedule = Schedule::new(device_of.clone(), 3, lanes(&device_of, &order)).unwrap();
            let slots = schedule.slots();
            for stage in 0..device_of.len() {
                let backward = slots_by_definition(&schedule, Direction::Backward, stage);
                assert!(slots.backward[stage] >= backward);
                if stage + 1 < device_of.len() {
                    let forward = slots_by_definition(&schedule, Direction::Forward, stage + 1);
                    assert!(slots.forward[stage] >= forward);
                }
            }
        }
    }
}

/// On one device nobody is late: what is in flight is what one walk of its lane counts.
#[test]
fn the_slots_of_many_stages_on_one_device_take_one_walk() {
    let schedule = interleaved(1, 2048, 8).unwrap();
    let last = schedule.stages() - 1;
    let (mut forward, mut backward) = (vec![(0_usize, 0); last + 1], vec![(0_usize, 0); last + 1]);
    let send = |link: &mut (usize, usize)| {
        link.0 += 1;
        link.1 = link.1.max(link.0);
    };
    for action in &schedule.lanes()[0] {
        match (action.op, action.stage) {
            (Op::Forward, stage) => {
                if stage > 0 {
                    forward[stage - 1].0 -= 1;
                }
                match stage < last {
                    true => send(&mut forward[stage]),
                    false => send(&mut backward[last]),
                }
            }
            (_, stage) => {
                backward[stage].0 -= 1;
                if stage > 0 {
                    send(&mut backward[stage - 1]);
                }
            }
        }
    }
    let most = |links: Vec<(usize, usize)>| links.iter().map(|link| link.1).collect::<Vec<_>>();
    let slots = schedule.slots();
    assert_eq!(
        (slots.forward, slots.backward),
        (most(forward), most(backward))
    );
}

#[test]
fn the_slots_of_known_schedules() {
    let slots = gpipe(4, 8).unwrap().slots();
    assert_eq!(
        (slots.forward, slots.backward),
        (vec![8, 8, 8, 0], vec![8, 8, 8, 8])
    );
    let slots = one_f_one_b(4, 8).unwrap().slots();
    assert_eq!(
        (slots.forward, slots.backward),
        (vec![4, 3, 2, 0], vec![4, 3, 2, 1])
    );
    let slots = forward_only(3, 5).unwrap().slots();
    assert_eq!(
        (slots.forward, slots.backward),
        (vec![5, 5, 0], vec![0, 0, 0])
    );
}
