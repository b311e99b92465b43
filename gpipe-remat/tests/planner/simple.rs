//! Plans that are about as fast as each other.

use std::collections::BTreeMap;

use gpipe_remat::{Bytes, Policy};

use crate::small::{Random, Small, close, more_orders, orders};

/// Of all shapes, from the simplest on, the first whose best plan takes no longer than it may.
#[test]
fn the_simplest_plan_that_is_fast_enough_is_chosen() {
    const WORTH: f64 = 0.1;
    let policies = [Policy::Budget(Bytes(u64::MAX))];
    let parts = [2, 6];
    let all = || -> Vec<_> { orders().into_iter().chain(more_orders()).collect() };
    let (mut simpler, mut same) = (0, 0);
    for seed in 0..80 {
        let mut random = Random(0x51AB_0000 + seed);
        let count = 1 + random.below(3);
        let mut small = Small::new(&mut random, 6, count, true);
        small.workers.iter_mut().for_each(|w| w.memory = None);
        // By workers and by stages a worker.
        let bests = small.ask_of(all(), &parts, &policies, |mut planner| {
            let mut bests = BTreeMap::new();
            for (index, order) in all().iter().enumerate() {
                for workers in 1..=count as usize {
                    for parts in parts {
                        let found = planner.under(index, workers, parts).expect("an answer");
                        let best = bests
                            .entry((workers, order.chunks))
                            .or_insert(f64::INFINITY);
                        *best = found.map_or(*best, |(plan, _)| plan.seconds.min(*best));
                    }
                }
            }
            bests
        });
        let fastest = bests.values().copied().fold(f64::INFINITY, f64::min);
        let most = fastest / (1.0 - WORTH);
        let wanted = bests.into_iter().find(|(_, best)| *best <= most);
        let (shape, seconds) = wanted.expect("one is the fastest");
        let answer = small
            .ask_with(WORTH, all(), &parts, &policies, |planner| planner.answer())
            .expect("memory is not limited");
        let plan = &answer.plan;
        let workers = plan.workers.len();
        assert!(close(answer.fastest, fastest), "{seed}");
        assert_eq!((workers, plan.cut.len() / workers), shape, "{seed}");
        assert!(
            close(plan.seconds, seconds),
            "{seed}: {}, not {seconds}",
            plan.seconds
        );
        assert!(answer.bound <= fastest * (1.0 + 1e-9), "{seed}");
        match plan.seconds > fastest * (1.0 + 1e-9) {
            true => simpler += 1,
            false => same += 1,
        }
    }
    assert!(
        simpler > 5 && same > 5,
        "{simpler} are slower than the fastest, {same} are not"
    );
}
