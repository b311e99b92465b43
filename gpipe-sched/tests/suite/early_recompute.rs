//! Recomputation hides in waits, and nothing else changes.

use gpipe_sched::{
    Action, Costs, Op, Schedule, StageCosts, gpipe, one_f_one_b, simulate, v_half, zb_h1,
};

use crate::common::{Plan, assert_transparent, build};
use crate::orders::random;

fn any_costs(stages: usize, m: usize, choose: &mut impl FnMut(usize) -> usize) -> Costs {
    let mut part = || (1 + choose(9)) as f64;
    let stage = |_| StageCosts {
        forward: part(),
        input_grad: part(),
        weight_grad: part(),
        recompute: part(),
    };
    let costs = Costs::new((0..stages).map(stage).collect());
    costs.with_recompute(m, |stage, m| (stage + 2 * m) % 5 != 0)
}

fn is_recompute(action: &&Action) -> bool {
    action.op == Op::Recompute
}

#[test]
fn no_action_ends_later_and_every_recomputation_is_there_once() {
    let mut gained = 0;
    for case in 0..400 {
        let mut choose = random(case);
        let (devices, m) = (1 + choose(5), 1 + choose(9));
        let made = [gpipe, one_f_one_b, zb_h1, v_half][choose(4)](devices, m);
        let schedule: Schedule = made.unwrap();
        let costs = any_costs(schedule.stages(), m, &mut choose);
        let early = schedule.recompute_early(&costs).unwrap();
        let (before, after) = (
            simulate(&schedule, &costs).unwrap(),
            simulate(&early, &costs).unwrap(),
        );
        for span in before.spans() {
            let moved = after
                .spans()
                .iter()
                .find(|other| other.action == span.action)
                .unwrap();
            assert!(moved.end <= span.end, "case {case}: {}", span.action);
        }
        gained += u32::from(after.makespan() < before.makespan());
        let count = early.lanes().iter().flatten().filter(is_recompute).count();
        let cells = (0..schedule.stages()).flat_map(|stage| (0..m).map(move |m| stage + 2 * m));
        assert_eq!(
            count,
            cells.filter(|cell| cell % 5 != 0).count(),
            "case {case}"
        );
        // The order of everything else is as it was.
        for (lane, other) in schedule.lanes().iter().zip(early.lanes()) {
            let rest = other.iter().filter(|action| action.op != Op::Recompute);
            assert!(rest.eq(lane.iter()), "case {case}");
        }
        assert_eq!(early.slots(), schedule.slots(), "case {case}");
        // Once placed it stays.
        assert_eq!(early.recompute_early(&costs).unwrap(), early, "case {case}");
    }
    assert!(gained > 100, "only {gained} cases gain anything");
}

#[test]
fn a_stage_is_at_most_one_micro_batch_ahead() {
    let costs = Costs::even(4, 1.0, 2.0).with_recompute(8, |_, _| true);
    let early = gpipe(4, 8).unwrap().recompute_early(&costs).unwrap();
    for stage in 0..4 {
        let mut ahead = 0;
        for action in early.of_stage(stage) {
            ahead += i32::from(action.op == Op::Recompute) - i32::from(action.op.is_backward());
            assert!((0..=1).contains(&ahead), "stage {stage}");
        }
    }
    assert_transparent(&mut build(early, &Plan::default()).unwrap(), 0);
}

#[test]
fn where_nothing_is_computed_again_nothing_is_placed() {
    let schedule = one_f_one_b(3, 5).unwrap();
    let kept = Costs::even(3, 1.0, 2.0);
    assert_eq!(schedule.recompute_early(&kept).unwrap(), schedule);
    assert!(schedule.recompute_early(&Costs::even(2, 1.0, 2.0)).is_err());
}

#[test]
fn what_is_not_computed_ahead_is_computed_in_the_backward_pass() {
    let whole = Costs::even(4, 2.0, 4.0).with_recompute(8, |_, _| true);
    let part = whole.clone().with_left(vec![0.5; 4]);
    let schedule = gpipe(4, 8).unwrap();
    assert_eq!(simulate(&schedule, &part), simulate(&schedule, &whole));
    let early = schedule.recompute_early(&part).unwrap();
    let timeline = simulate(&early, &part).unwrap();
    let mut ahead = 0;
    for span in timeline.spans() {
        let seconds = match span.action.op {
            Op::Recompute => 1.5,
            Op::Forward => 2.0,
            _ => 4.5,
        };
        assert!(
            (span.end - span.start - seconds).abs() < 1e-9,
            "{}",
            span.action
        );
        ahead += usize::from(span.action.op == Op::Recompute);
    }
    assert_eq!(ahead, 32);
    // More than there is to do is all of it.
    let nothing = whole.clone().with_left(vec![9.0; 4]);
    assert_eq!(simulate(&schedule, &nothing), simulate(&schedule, &whole));
    let most = whole.clone().with_left(vec![f64::MAX; 4]);
    assert_eq!(simulate(&schedule, &most), simulate(&schedule, &whole));
    assert!(simulate(&schedule, &whole.with_left(vec![-1.0; 4])).is_err());
}
