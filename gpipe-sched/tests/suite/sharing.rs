//! Devices that share the processors of one machine.

use std::slice::from_ref;

use gpipe_sched::{
    Costs, CostsError, LinkCosts, Span, StageCosts, Timeline, gpipe, one_f_one_b, simulate,
    simulate_shared, zb_h1,
};
use proptest::prelude::*;

use crate::orders::config;

const STAGE: StageCosts = StageCosts {
    forward: 2.0,
    input_grad: 3.0,
    weight_grad: 4.0,
    recompute: 5.0,
};

/// Costs on one processor, and on two that do `gain` times as much together.
fn on_two(stages: usize, gain: f64) -> [Costs; 2] {
    let costs = |forward: f64| Costs::even(stages, forward, 2.0 * forward);
    [costs(1.0), costs(1.0 / gain)]
}

#[test]
fn who_is_alone_uses_all_processors_and_who_joins_takes_half_of_them() {
    let seconds = |stages, micro_batches, gain| {
        let schedule = gpipe(stages, micro_batches).unwrap();
        let costs = on_two(stages, gain);
        simulate_shared(&schedule, &costs, 2).unwrap().makespan()
    };
    // One stage always has both processors.
    assert_eq!(seconds(1, 4, 2.0), 6.0);
    assert_eq!(seconds(1, 4, 1.0), 12.0);
    // F0 0..0.5 on both. Then F1 of the first stage and F0 of the second have one each, until 1.5. F1 of
    // the second stage is alone again, and then all backward passes, of one second each, go the same way
    // back.
    let schedule = gpipe(2, 2).unwrap();
    let timeline = simulate_shared(&schedule, &on_two(2, 2.0), 2).unwrap();
    let of = |device: usize| -> Vec<[f64; 2]> {
        let spans = timeline.of_device(device).iter();
        spans.map(|span| [span.start, span.end]).collect()
    };
    assert_eq!(of(0)[..2], [[0.0, 0.5], [0.5, 1.5]]);
    assert_eq!(of(1)[..2], [[0.5, 1.5], [1.5, 2.0]]);
    assert_eq!(timeline.schedule().unwrap(), schedule);
    // No gain from a second one: as if each stage had its own.
    let schedule = gpipe(2, 4).unwrap();
    let each = simulate(&schedule, &on_two(2, 1.0)[0]).unwrap();
    assert_eq!(seconds(2, 4, 1.0), each.makespan());
}

#[test]
fn what_runs_is_faster_as_soon_as_another_ends() {
    // Of two stages whose forward passes take 4 and 2 seconds on one of two processors, and half on
    // both: F0 0..2 on both. F1 and F0 of the second stage have one each until 4, when the latter is
    // done; the half of F1 that is left takes a second on both.
    let stage = |forward| StageCosts {
        forward,
        ..StageCosts::default()
    };
    let costs = |gain: f64| Costs::new(vec![stage(4.0 / gain), stage(2.0 / gain)]);
    let schedule = gpipe(2, 2).unwrap();
    let timeline = simulate_shared(&schedule, &[costs(1.0), costs(2.0)], 2).unwrap();
    let first: Vec<f64> = timeline.of_device(0).iter().map(|span| span.end).collect();
    assert_eq!(first[..2], [2.0, 5.0]);
    // F1 of the second stage is alone, and nothing comes back in no time.
    assert_eq!(timeline.makespan(), 6.0);
    // Of three processors, who began first has two.
    let timeline = simulate_shared(&schedule, &[costs(1.0), costs(2.0), costs(4.0)], 3).unwrap();
    let first: Vec<f64> = timeline.of_device(0).iter().map(|span| span.end).collect();
    assert_eq!(first[..2], [1.0, 3.0]);
}

/// Two stages whose forward passes take 4 and 2 seconds on one of two processors, and half on both, in three operations
/// and in one; flows arrive half a second after they are sent.
///
/// F0 0..2 on both. F1 follows on both; F0 of the second stage arrives at 2.5 and has one thread, while the first third
/// of F1 keeps its two: three threads on two processors, until 2.75. Then each has one, until the second stage is
/// done at 55/12. F1 is in its last operation by then, which has one thread to its end at 65/12, though it could have two.
#[test]
fn a_running_operation_keeps_its_threads() {
    let stage = |forward| StageCosts {
        forward,
        ..StageCosts::default()
    };
    let link = LinkCosts {
        latency: 0.5,
        ..LinkCosts::default()
    };
    let costs = |gain: f64, operations: &[f64]| {
        Costs::new(vec![stage(4.0 / gain), stage(2.0 / gain)])
            .with_links(vec![link])
            .with_operations(operations.to_vec())
    };
    let schedule = gpipe(2, 2).unwrap();
    let ends = |operations: &[f64]| {
        let by_share = [costs(1.0, operations), costs(2.0, operations)];
        let timeline = simulate_shared(&schedule, &by_share, 2).unwrap();
        let of = |device: usize| {
            let spans = &timeline.of_device(device)[..2];
            [spans[0].end, spans[1].end]
        };
        [of(0), of(1)]
    };
    let near = |found: [[f64; 2]; 2], expected: [[f64; 2]; 2]| {
        let pairs = found.as_flattened().iter().zip(expected.as_flattened());
        assert!(
            pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-9),
            "{found:?}"
        );
    };
    let late = [[2.0, 65.0 / 12.0], [55.0 / 12.0, 65.0 / 12.0 + 1.5]];
    near(ends(&[4.0 / 3.0, 2.0]), late);
    // Without operations threads come and go at once, and very short ones are nearly so.
    let at_once = [[2.0, 5.0], [4.5, 6.5]];
    near(ends(&[]), at_once);
    near(ends(&[0.0, 0.0]), at_once);
    let short = ends(&[4e-4, 2e-4]);
    let off = (short[1][1] - at_once[1][1]).abs();
    assert!(off > 0.0 && off < 1e-3, "{short:?}");
    let wrong = [costs(1.0, &[1.0])];
    let error = simulate_shared(&schedule, &wrong, 1).unwrap_err();
    assert!(
        error.to_string().contains("costs of 1 operations"),
        "{error}"
    );
    assert!(simulate_shared(&schedule, &[costs(1.0, &[1.0, -1.0])], 1).is_err());
}

#[test]
fn who_has_just_been_at_work_begins_before_those_that_wake_up() {
    let costs = |seconds: f64| {
        let stage = StageCosts {
            forward: seconds,
            input_grad: seconds,
            weight_grad: seconds,
            recompute: 0.0,
        };
        Costs::new(vec![stage; 2])
    };
    // F0, F1 and I1 on three processors until 1.5, which are no faster than two. Then the last stage goes
    // on with W1, on two, while the first one wakes up and begins I0 on one, until W1 is done.
    let schedule = zb_h1(2, 1).unwrap();
    let timeline = simulate_shared(&schedule, &[costs(1.0), costs(0.5)], 3).unwrap();
    let of = |device: usize| -> Vec<[f64; 2]> {
        let spans = timeline.of_device(device).iter();
        spans.map(|span| [span.start, span.end]).collect()
    };
    assert_eq!(of(1), [[0.5, 1.0], [1.0, 1.5], [1.5, 2.0]]);
    assert_eq!(of(0), [[0.0, 0.5], [1.5, 2.25], [2.25, 2.75]]);
}

#[test]
fn shares_need_costs() {
    let schedule = gpipe(2, 2).unwrap();
    let error = simulate_shared(&schedule, &[], 2).unwrap_err();
    assert!(
        matches!(error, CostsError::Count { found: 0, .. }),
        "{error}"
    );
    let wrong = [Costs::even(2, 1.0, 2.0), Costs::even(3, 1.0, 2.0)];
    assert!(simulate_shared(&schedule, &wrong, 2).is_err());
}

/// How many spans run at a moment, those that begin then counted and those that end not.
fn running(timeline: &Timeline, time: f64) -> usize {
    let runs = |span: &&Span| span.start <= time && time < span.end;
    timeline.spans().iter().filter(runs).count()
}

#[test]
fn one_processor_does_one_thing_at_a_time() {
    let schedule = one_f_one_b(4, 6).unwrap();
    let costs = Costs::new(vec![STAGE; 4]);
    let free = simulate(&schedule, &costs).unwrap();
    for processors in [4, 5, usize::MAX] {
        assert_eq!(
            simulate_shared(&schedule, from_ref(&costs), processors).unwrap(),
            free
        );
    }
    for processors in [0, 1] {
        let shared = simulate_shared(&schedule, from_ref(&costs), processors).unwrap();
        let work: f64 = (0..4).map(|device| free.busy(device)).sum();
        assert!((shared.makespan() - work).abs() < 1e-9);
        assert_eq!(shared.schedule().unwrap(), schedule);
        let spent = shared.bubble_breakdown(|_, _| 0.0).unwrap();
        assert!(spent.iter().all(|spent| spent.processor > 0.0));
    }
}

proptest! {
    #![proptest_config(config(100))]

    /// Every action runs once and in order, never more at once than there are processors, and
    /// nobody waits for one that is free.
    #[test]
    fn processors_are_shared_and_never_left_idle(
        which in 0_usize..3,
        seconds in prop::collection::vec(0.1_f64..5.0, 4),
        processors in 1_usize..4,
    ) {
        let schedule = [gpipe, one_f_one_b, zb_h1][which](4, 5).unwrap();
        let stage = |&forward: &f64| StageCosts { forward, ..STAGE };
        let costs = Costs::new(seconds.iter().map(stage).collect());
        let timeline = simulate_shared(&schedule, from_ref(&costs), processors).unwrap();
        prop_assert_eq!(timeline.schedule().unwrap(), schedule);
        for span in timeline.spans() {
            prop_assert!(span.ready <= span.start);
            prop_assert!(running(&timeline, span.start) <= processors);
            if span.ready < span.start {
                prop_assert_eq!(running(&timeline, span.ready), processors);
            }
        }
    }
}
