//! Simulated time adds up, and timelines measure it.

use gpipe_sched::{
    Action, Costs, CostsError, Direction, LinkCosts, Op, Schedule, Span, StageCosts, Timeline,
    gpipe, one_f_one_b, simulate, zb_h1,
};
use proptest::prelude::*;

use crate::common::{Plan, batch, build};
use crate::orders::{any_order, config, lanes, random};

const STAGE: StageCosts = StageCosts {
    forward: 2.0,
    input_grad: 3.0,
    weight_grad: 4.0,
    recompute: 5.0,
};

fn parse(row: &str) -> Vec<Action> {
    row.split_whitespace()
        .map(|text| text.parse().unwrap())
        .collect()
}

/// Start and end of an action.
fn times(timeline: &Timeline, text: &str) -> (f64, f64) {
    let action: Action = text.parse().unwrap();
    let span = timeline
        .spans()
        .iter()
        .find(|span| span.action == action)
        .unwrap();
    (span.start, span.end)
}

#[test]
fn every_kind_of_action_takes_its_own_time() {
    let lane = parse("0F0 0F1 0R0 0I0 0B1 0W0");
    let schedule = Schedule::new(vec![0], 2, vec![lane]).unwrap();
    let costs = Costs::new(vec![STAGE]);
    let timeline = simulate(&schedule, &costs).unwrap();
    // Nothing is recomputed: `R` has nothing to do.
    assert_eq!(times(&timeline, "0R0"), (4.0, 4.0));
    assert_eq!(times(&timeline, "0I0"), (4.0, 7.0));
    assert_eq!(times(&timeline, "0B1"), (7.0, 14.0));
    assert_eq!(times(&timeline, "0W0"), (14.0, 18.0));
    // Where there is an `R` it takes the time, elsewhere the backward pass does.
    let timeline = simulate(&schedule, &costs.with_recompute(2, |_, _| true)).unwrap();
    assert_eq!(times(&timeline, "0R0"), (4.0, 9.0));
    assert_eq!(times(&timeline, "0I0"), (9.0, 12.0));
    assert_eq!(times(&timeline, "0B1"), (12.0, 24.0));
    assert_eq!(timeline.makespan(), 28.0);
}

#[test]
fn only_the_micro_batches_of_the_table_are_recomputed() {
    let schedule = gpipe(2, 3).unwrap();
    let costs = Costs::new(vec![STAGE; 2]).with_recompute(3, |stage, m| (stage, m) == (1, 2));
    let timeline = simulate(&schedule, &costs).unwrap();
    for span in timeline
        .spans()
        .iter()
        .filter(|span| span.action.op == Op::Backward)
    {
        let again = (span.action.stage, span.action.micro_batch) == (1, 2);
        assert_eq!(span.end - span.start, if again { 12.0 } else { 7.0 });
    }
}

#[test]
fn smaller_micro_batches_take_less() {
    let schedule = gpipe(1, 2).unwrap();
    let costs = Costs::new(vec![STAGE]).with_sizes(vec![1.0, 0.5]);
    let timeline = simulate(&schedule, &costs).unwrap();
    assert_eq!(times(&timeline, "0F1"), (2.0, 3.0));
    assert_eq!(times(&timeline, "0B1"), (10.0, 13.5));
}

#[test]
fn transfers_overlap_work_and_follow_each_other() {
    let schedule = gpipe(2, 3).unwrap();
    let link = LinkCosts {
        latency: 1.0,
        forward: 6.0,
        backward: 0.5,
    };
    let costs = Costs::even(2, 2.0, 2.0).with_links(vec![link]);
    let timeline = simulate(&schedule, &costs).unwrap();
    // Stage 0 does not wait for its transfers.
    assert_eq!(times(&timeline, "0F2"), (4.0, 6.0));
    // They leave the link at 8, 14 and 20; latency comes on top, once for each.
    assert_eq!(times(&timeline, "1F0").0, 9.0);
    assert_eq!(times(&timeline, "1F1").0, 15.0);
    assert_eq!(times(&timeline, "1F2").0, 21.0);
    // The other way is free by then.
    assert_eq!(times(&timeline, "1B0"), (23.0, 25.0));
    assert_eq!(times(&timeline, "0B0").0, 26.5);
}

/// Several additions to one action add up, and one to an action that does not exist is refused.
#[test]
fn additions_belong_to_actions_of_the_schedule() {
    let schedule = gpipe(2, 3).unwrap();
    let with = |additions: &[(&str, f64)]| {
        let additions = additions
            .iter()
            .map(|&(action, seconds)| (action.parse().unwrap(), seconds));
        Costs::even(2, 1.0, 2.0).with_additions(additions.collect())
    };
    let seconds = |additions: &[(&str, f64)]| Ok(simulate(&schedule, &with(additions))?.makespan());
    let plain = seconds(&[]).unwrap();
    let added = seconds(&[("1F2", 2.0), ("0F0", 1.0), ("1F2", 0.5), ("0F0", 0.25)]);
    assert_eq!(added, Ok(plain + 3.75));
    for action in ["2F0", "0F3", "9B0"] {
        let refused = seconds(&[("0F0", 1.0), (action, 1.0)]);
        let error = CostsError::Addition {
            action: action.parse().unwrap(),
            stages: 2,
            micro_batches: 3,
        };
        assert_eq!(refused, Err(error));
    }
    let refused = seconds(&[("1F0", 1.0), ("0F0", -1.0)]);
    let error = CostsError::Number {
        what: "addition",
        index: 1,
        value: -1.0,
    };
    assert_eq!(refused, Err(error));
}

#[test]
fn costs_that_do_not_fit_are_refused() {
    let schedule = gpipe(2, 3).unwrap();
    let costs = || Costs::new(vec![STAGE; 2]);
    let count = |what, found, expected| CostsError::Count {
        what,
        found,
        expected,
    };
    for (costs, error) in [
        (Costs::new(vec![STAGE]), count("stages", 1, 2)),
        (
            costs().with_links(vec![LinkCosts::default(); 2]),
            count("links", 2, 1),
        ),
        (costs().with_sizes(vec![1.0]), count("micro-batches", 1, 3)),
        (
            costs().with_recompute(2, |_, _| true),
            count("recomputations", 4, 6),
        ),
    ] {
        assert_eq!(simulate(&schedule, &costs), Err(error));
    }
    for value in [-1.0, f64::INFINITY, f64::NAN] {
        let stage = StageCosts {
            weight_grad: value,
            ..STAGE
        };
        let link = LinkCosts {
            latency: value,
            ..LinkCosts::default()
        };
        for (costs, what, index) in [
            (Costs::new(vec![STAGE, stage]), "stage", 1),
            (costs().with_links(vec![link]), "link", 0),
            (costs().with_sizes(vec![1.0, 1.0, value]), "micro-batch", 2),
        ] {
            let text = format!("{what} {index} costs {value}: use a finite number, 0 or more");
            assert_eq!(simulate(&schedule, &costs).unwrap_err().to_string(), text);
        }
    }
}

#[test]
fn an_action_that_takes_no_time_precedes_what_begins_with_it_in_any_order_of_spans() {
    let schedule = zb_h1(3, 4).unwrap();
    let stage = StageCosts {
        weight_grad: 0.0,
        ..STAGE
    };
    let timeline = simulate(&schedule, &Costs::new(vec![stage; 3])).unwrap();
    for start in 0..20 {
        let mut choose = random(start);
        // Those without duration at one time keep their order.
        let mut apart: Vec<_> = timeline
            .spans()
            .chunk_by(|a, b| a.device == b.device && a.start == a.end && b.start == b.end)
            .collect();
        for end in (1..apart.len()).rev() {
            apart.swap(end, choose(end + 1));
        }
        let timeline = Timeline::new(3, apart.concat());
        assert_eq!(timeline.schedule().as_ref(), Ok(&schedule), "{start}");
    }
}

#[test]
fn a_timeline_measures() {
    let span = |device, text: &str, start, end| Span {
        device,
        action: text.parse().unwrap(),
        ready: start,
        start,
        end,
    };
    // Given in any order.
    let timeline = Timeline::new(
        2,
        vec![
            span(1, "1F0", 3.0, 5.0),
            span(0, "0F1", 3.0, 4.0),
            span(0, "0F0", 1.0, 3.0),
        ],
    );
    assert_eq!((timeline.start(), timeline.makespan()), (1.0, 4.0));
    assert_eq!((timeline.busy(0), timeline.busy(1)), (3.0, 2.0));
    assert_eq!(timeline.bubble(), 1.0 - 5.0 / 8.0);
    assert_eq!(timeline.of_device(0).len(), 2);
    assert_eq!(
        timeline.in_flight(Direction::Forward, 0),
        [(3.0, 0), (4.0, 1)],
    );
    let nothing = Timeline::new(3, Vec::new());
    assert_eq!(
        (nothing.devices(), nothing.makespan(), nothing.bubble()),
        (3, 0.0, 0.0)
    );
    assert!(
        nothing
            .in_flight(Direction::Backward, usize::MAX)
            .is_empty()
    );
}

fn most_in_flight(timeline: &Timeline, direction: Direction, link: usize) -> usize {
    timeline
        .in_flight(direction, link)
        .into_iter()
        .map(|(_, count)| count)
        .max()
        .unwrap_or(0)
}

pub fn assert_within_slots(schedule: &Schedule, timeline: &Timeline) {
    let slots = schedule.slots();
    for stage in 0..schedule.stages() {
        assert!(most_in_flight(timeline, Direction::Forward, stage) <= slots.forward[stage]);
        assert!(most_in_flight(timeline, Direction::Backward, stage) <= slots.backward[stage]);
    }
}

#[test]
fn a_measured_step_has_every_action_once_in_order_and_within_its_slots() {
    for make in [gpipe, one_f_one_b] {
        let schedule = make(4, 8).unwrap();
        let mut pipeline = build(schedule.clone(), &Plan::default()).unwrap();
        let timeline = pipeline.step(batch(0, 8, true)).unwrap().timeline;
        for (device, lane) in schedule.lanes().iter().enumerate() {
            let ran: Vec<Action> = timeline
                .of_device(device)
                .iter()
                .map(|span| span.action)
                .collect();
            assert_eq!(&ran, lane);
        }
        for span in timeline.spans() {
            assert!(span.start <= span.end);
            if span.action.op == Op::Forward && span.action.stage > 0 {
                let before = Action {
                    stage: span.action.stage - 1,
                    ..span.action
                };
                assert!(times(&timeline, &before.to_string()).1 <= span.start);
            }
        }
        assert!((0.0..1.0).contains(&timeline.bubble()));
        assert_within_slots(&schedule, &timeline);
    }
}

proptest! {
    #![proptest_config(config(300))]

    /// Nothing starts before what it needs, devices do one thing at a time, no action waits without
    /// a reason, and what is in flight fits the slots: for any costs.
    #[test]
    fn simulated_time_is_causal_and_tight(
        device_of in prop::sample::select(vec![vec![0, 1, 2], vec![0, 1, 1, 0], vec![0, 1, 0]]),
        seconds in prop::collection::vec(0.0_f64..9.0, 4 * 4),
        seed in any::<u64>(),
    ) {
        let mut choose = random(seed);
        let stages = device_of.len();
        let order = any_order(stages, 4, |s, m| (s + m) % 2 == 0, |_, m| m == 1, &mut choose);
        let schedule = Schedule::new(device_of.clone(), 4, lanes(&device_of, &order)).unwrap();
        let stage = |s: usize| StageCosts {
            forward: seconds[4 * s],
            input_grad: seconds[4 * s + 1],
            weight_grad: seconds[4 * s + 2],
            recompute: seconds[4 * s + 3],
        };
        let costs = Costs::new((0..stages).map(stage).collect()).with_recompute(4, |_, m| m == 1);
        let timeline = simulate(&schedule, &costs).unwrap();
        let end_of = |stage: usize, is: &dyn Fn(Op) -> bool, m: usize| {
            let found = |span: &&Span| {
                span.action.stage == stage && span.action.micro_batch == m && is(span.action.op)
            };
            timeline.spans().iter().find(found).map_or(0.0, |span| span.end)
        };
        for device in 0..timeline.devices() {
            let mut free = 0.0_f64;
            for span in timeline.of_device(device) {
                let Action { stage, op, micro_batch: m } = span.action;
                let arrival = match op {
                    Op::Forward if stage > 0 => end_of(stage - 1, &|op| op == Op::Forward, m),
                    Op::Backward | Op::InputGrad if stage + 1 < stages => {
                        end_of(stage + 1, &Op::is_backward, m)
                    }
                    _ => 0.0,
                };
                prop_assert_eq!(span.start, free.max(arrival));
                free = span.end;
            }
        }
        assert_within_slots(&schedule, &timeline);
    }
}
