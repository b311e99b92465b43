//! The schedule that follows the costs: within its memory, never slower than 1F1B, and at the zero
//! bubble of the papers where that is in reach.

use gpipe_sched::{
    Costs, CostsError, LinkCosts, Schedule, StageCosts, ZeroBubbleError, one_f_one_b, simulate,
    zb_h1, zb_h2, zero_bubble,
};

use crate::common::{Plan, assert_transparent, build};
use crate::orders::random;

fn seconds(schedule: &Schedule, costs: &Costs) -> f64 {
    simulate(schedule, costs).unwrap().makespan()
}

/// Costs of any shape: some stages free, some much dearer than others, links and recomputation now
/// and then.
fn any_costs(
    stages: usize,
    micro_batches: usize,
    choose: &mut impl FnMut(usize) -> usize,
) -> Costs {
    let stage = |choose: &mut dyn FnMut(usize) -> usize| {
        let mut part = || (choose(10) * choose(10)) as f64;
        StageCosts {
            forward: part(),
            input_grad: part(),
            weight_grad: part(),
            recompute: part(),
        }
    };
    let costs = Costs::new((0..stages).map(|_| stage(choose)).collect());
    let costs = match choose(2) {
        0 => costs,
        _ => {
            let link = LinkCosts {
                latency: choose(5) as f64,
                forward: choose(5) as f64,
                backward: choose(5) as f64,
            };
            costs.with_links(vec![link; stages - 1])
        }
    };
    let salt = choose(4);
    let costs = costs.with_recompute(micro_batches, |stage, m| {
        salt > 1 && (stage + m) % salt == 0
    });
    let sizes = (0..micro_batches).map(|m| if m + 1 == micro_batches { 0.5 } else { 1.0 });
    costs.with_sizes(sizes.collect())
}

#[test]
fn any_costs_take_no_longer_than_under_1f1b_in_the_memory_allowed() {
    let (mut faster, cases) = (0, 1_500);
    for case in 0..cases {
        let mut choose = random(case);
        let mut choose = |n: usize| choose(n);
        let (stages, m) = (1 + choose(6), 1 + choose(10));
        let costs = any_costs(stages, m, &mut choose);
        let limit: Vec<usize> = (0..stages)
            .map(|stage| stages - stage + choose(4))
            .collect();
        let schedule = zero_bubble(stages, m, &costs, |stage| limit[stage]).unwrap();
        assert!(schedule.is_ascending(), "case {case}");
        assert!(
            (0..stages).all(|stage| schedule.live(stage) <= limit[stage]),
            "case {case}"
        );
        let alternating = seconds(&one_f_one_b(stages, m).unwrap(), &costs);
        let greedy = seconds(&schedule, &costs);
        assert!(
            greedy <= alternating,
            "case {case}: {greedy} > {alternating}"
        );
        faster += u32::from(greedy < alternating);
    }
    assert!(
        u64::from(faster) > cases / 2,
        "only {faster} of {cases} gain anything"
    );
}

#[test]
fn even_costs_reach_the_papers_schedules() {
    for (stages, m) in (1..=6).flat_map(|k| (1..=20).map(move |m| (k, m))) {
        let costs = Costs::even(stages, 1.0, 2.0);
        for (paper, held) in [
            (zb_h1(stages, m), stages),
            (zb_h2(stages, m), 2 * stages - 1),
        ] {
            let schedule = zero_bubble(stages, m, &costs, |_| held).unwrap();
            let paper = seconds(&paper.unwrap(), &costs);
            assert!(
                seconds(&schedule, &costs) <= paper,
                "K={stages} M={m} held {held}"
            );
        }
    }
}

#[test]
fn any_memory_from_one_micro_batch_up_will_do() {
    let costs = Costs::even(4, 1.0, 2.0);
    let mut before = f64::INFINITY;
    for held in [0, 1, 2, 3, 4, 7, usize::MAX] {
        let schedule = zero_bubble(4, 6, &costs, |_| held).unwrap();
        assert!((0..4).all(|stage| schedule.live(stage) <= held.max(1)));
        let now = seconds(&schedule, &costs);
        assert!(now <= before, "{held} held: {now} after {before}");
        before = now;
        assert_transparent(&mut build(schedule, &Plan::default()).unwrap(), 0);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let costs = Costs::even(2, 1.0, 2.0);
    let made = |stages, m, costs: &Costs| zero_bubble(stages, m, costs, |_| 2).unwrap_err();
    assert!(matches!(made(0, 1, &costs), ZeroBubbleError::Schedule(_)));
    assert!(matches!(made(2, 0, &costs), ZeroBubbleError::Schedule(_)));
    assert!(matches!(
        made(2, usize::MAX, &costs),
        ZeroBubbleError::Schedule(_)
    ));
    assert!(matches!(made(3, 1, &costs), ZeroBubbleError::Costs(_)));
    assert!(matches!(
        made(2, 1, &Costs::even(2, f64::NAN, 1.0)),
        ZeroBubbleError::Costs(_)
    ));
}

/// Times that add up to infinity would keep the search from ever ending.
#[test]
fn costs_beyond_all_numbers_are_refused() {
    let even = Costs::even(2, 1.0, 2.0);
    let far = LinkCosts {
        latency: 1e308,
        ..LinkCosts::default()
    };
    let slow = vec![1.0, f64::MIN_POSITIVE];
    let cases = [
        even.clone().with_links(vec![far]),
        even.clone().with_updates(vec![1e308, 1e308]),
        even.clone().with_sizes(vec![1e308; 4]),
        Costs::even(2, 1e300, 2.0).with_speeds(slow),
        Costs::even(2, 1e308, 2.0),
    ];
    for costs in cases {
        let refused = zero_bubble(2, 4, &costs, |_| 2);
        assert_eq!(refused, Err(ZeroBubbleError::Costs(CostsError::Sum)));
        let schedule = one_f_one_b(2, 4).unwrap();
        assert_eq!(
            simulate(&schedule, &costs).map(|t| t.makespan()),
            Err(CostsError::Sum)
        );
    }
    // Half as much is a number.
    let costs = Costs::even(2, 1e306, 2e306);
    assert!(zero_bubble(2, 4, &costs, |_| 2).is_ok());
}
