//! What a refusal says to change is enough.

use gpipe_remat::planner::{Described, Link, NamedOrder, Worker};
use gpipe_remat::{Bytes, Error, Policy};

use crate::small::{POLICIES, Random, Small, following, more_orders, orders};

const ALL: Policy = Policy::Budget(Bytes(u64::MAX));

/// Orders of one and of two stages a worker, and one that follows the costs, which may hold more micro-batches than that
/// of which the least memory is known.
fn order_lists() -> Vec<Vec<NamedOrder>> {
    let split = orders().remove(2);
    vec![vec![following()], more_orders(), vec![split], orders()]
}

#[test]
fn the_memory_of_a_refusal_is_enough() {
    let mut refused = 0;
    for seed in 0..60 {
        let mut random = Random(0x0DD5_EED5 + seed);
        let count = 1 + random.below(3);
        let mut small = Small::new(&mut random, 6, count, true);
        let parts = 1 + random.below(6) as usize;
        let whole = small.weights.of_stage(0..small.layers.len()).fixed();
        // Of a budget of its own that is too small, nothing is said where another policy remains.
        for policies in [
            &POLICIES[..2],
            &[ALL],
            &[Policy::Keep, Policy::Budget(Bytes(whole + 100))],
        ] {
            for list in 0..order_lists().len() {
                let mut answer = |memory: u64| {
                    for worker in &mut small.workers {
                        worker.memory = Some(memory);
                    }
                    let orders = order_lists().swap_remove(list);
                    small.ask_of(orders, &[parts], policies, |planner| planner.answer())
                };
                let Err(Error::DoesNotFit(fault)) = answer(whole / 2) else {
                    continue;
                };
                refused += 1;
                assert!(fault.needed > fault.limit, "{seed}: {fault}");
                let found = answer(fault.needed.0);
                assert!(found.is_ok(), "{seed}, list {list}, {policies:?}: {fault}");
            }
        }
    }
    assert!(refused > 300, "{refused}");
}

/// More memory, fewer workers or another schedule would not help.
#[test]
fn a_budget_that_is_too_small_is_named() {
    for memory in [None, Some(1 << 40)] {
        let mut small = Small::new(&mut Random(7), 6, 3, true);
        for worker in &mut small.workers {
            worker.memory = memory;
        }
        let answer = |budget: Bytes| {
            small.ask_of(orders(), &[4], &[Policy::Budget(budget)], |planner| {
                planner.answer()
            })
        };
        let said = answer(Bytes(1)).expect_err("a byte").to_string();
        let mend = said.split("`pipeline.remat = budget:").nth(1);
        let mend = mend.and_then(|mend| mend.split('`').next());
        let mend: Bytes = mend.expect("a mend").parse().expect("bytes");
        assert!(answer(mend).is_ok(), "{said}");
    }
}

#[test]
fn more_stages_than_layers_are_no_matter_of_workers() {
    let small = Small::new(&mut Random(3), 1, 1, true);
    let zb_v = || vec![more_orders().remove(2)];
    let answer = small.ask_of(zb_v(), &[2], &[Policy::Keep], |planner| planner.answer());
    let said = answer.expect_err("one layer").to_string();
    assert!(said.contains("fewer stages on a worker"), "{said}");
}

/// The worker that has the least holds one of 24 layers, and with twice as much two.
#[test]
fn more_memory_takes_none_from_a_worker_that_has_more() {
    let layer = Described {
        forward: 1.0,
        input_grad: 1.0,
        weight_grad: 1.0,
        parameters: 1000,
        saved: 1000,
        output: 100,
        ..Described::default()
    };
    for large in [None, Some(1 << 40)] {
        let mut small = Small::new(&mut Random(7), 6, 2, true);
        small.layers = vec![layer.clone(); 24];
        small.weights = Described::weights(&small.layers);
        small.link = Link::FREE;
        small.workers = [Some(5000), large]
            .map(|memory| Worker { speed: 1.0, memory })
            .to_vec();
        let answer = small.ask_of(orders(), &[4], &[Policy::Keep], |planner| planner.answer());
        let answer = answer.expect("a plan");
        let (memory, seconds) = answer.with_more.expect("a faster plan");
        assert!(memory.0 > 5000 && seconds < answer.plan.seconds);
    }
}
