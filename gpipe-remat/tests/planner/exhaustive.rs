//! Every cut, every policy of each stage, every order of workers.

use gpipe_remat::{Bytes, Policy};

use crate::small::{POLICIES, Random, Small, close, following, more_orders, orders};

/// Fifty of them, in an exam a thousand.
#[test]
fn small_questions_are_answered_as_by_trying_everything() {
    let questions = match std::env::var_os("GPIPE_EXAM") {
        Some(_) => 1_000,
        None => 50,
    };
    let (mut fitting, mut limited) = (0, 0);
    for seed in 0..questions {
        let mut random = Random(0x9E37_79B9 + seed);
        let devices = 1 + random.below(4);
        let small = Small::new(&mut random, 8, devices, true);
        let parts = 1 + random.below(8) as usize;
        let devices = (devices as usize).min(small.layers.len());
        for (index, order) in orders().iter().enumerate() {
            let best = small.best(order, devices, parts);
            let found = small.ask(&[parts], &POLICIES, |mut planner| {
                planner.under(index, devices, parts).expect("an answer")
            });
            match (best, &found) {
                (Some(best), Some((plan, bound))) => {
                    let seconds = plan.seconds;
                    assert!(
                        close(best, seconds),
                        "{seed} {}: {seconds}, not {best}",
                        order.name
                    );
                    assert!(
                        *bound <= best * (1.0 + 1e-9),
                        "{seed}: {bound} above {best}"
                    );
                    let memory = small.workers[0].memory.unwrap_or(u64::MAX);
                    assert!(plan.peaks.iter().all(|&peak| peak <= memory));
                    fitting += 1;
                    limited += usize::from(small.workers[0].memory.is_some());
                }
                (None, None) => {}
                (best, found) => panic!("{seed} {}: {found:?} but {best:?}", order.name),
            }
            // The best of all choices is no worse than any rule.
            let budget = small.ask(
                &[parts],
                &[Policy::Budget(Bytes(u64::MAX))],
                |mut planner| planner.under(index, devices, parts).expect("an answer"),
            );
            if let Some((plan, _)) = found {
                let (budget, _) = budget.expect("fits, as a rule does");
                assert!(budget.seconds <= plan.seconds * (1.0 + 1e-9), "{seed}");
            }
        }
    }
    assert!(
        fitting > 75 && limited > 25,
        "{fitting} fit, {limited} of them a limit"
    );
    println!("exam A1 {fitting}/{fitting}");
}

#[test]
fn the_other_orders_are_answered_as_by_trying_everything() {
    let mut fitting = vec![0; more_orders().len()];
    for seed in 0..60 {
        let mut random = Random(0xABCD_EF01 + seed);
        let count = 1 + random.below(3);
        let small = Small::new(&mut random, 6, count, seed % 3 > 0);
        let parts = 1 + random.below(6) as usize;
        for (index, order) in more_orders().iter().enumerate() {
            let devices = (count as usize)
                .min(small.layers.len() / order.chunks)
                .max(1);
            if devices * order.chunks > small.layers.len() {
                continue;
            }
            let best = small.best(order, devices, parts);
            let found = small.ask_of(more_orders(), &[parts], &POLICIES, |mut planner| {
                planner.under(index, devices, parts).expect("an answer")
            });
            match (best, &found) {
                (Some(best), Some((plan, bound))) => {
                    let seconds = plan.seconds;
                    let name = &order.name;
                    assert!(close(best, seconds), "{seed} {name}: {seconds}, not {best}");
                    assert!(
                        *bound <= best * (1.0 + 1e-9),
                        "{seed}: {bound} above {best}"
                    );
                    fitting[index] += 1;
                }
                (None, None) => {}
                (best, found) => panic!("{seed} {}: {found:?} but {best:?}", order.name),
            }
        }
    }
    assert!(fitting.iter().all(|&fitting| fitting > 15), "{fitting:?}");
}

/// What follows the costs is no worse than 1F1B on the same cut, so not on the best cut either.
#[test]
fn an_order_that_follows_the_costs_gains_by_it() {
    let mut gained = 0;
    for seed in 0..60 {
        let mut random = Random(0x5EED_0000 + seed);
        let devices = 2 + random.below(3);
        let mut small = Small::new(&mut random, 8, devices, true);
        let devices = (devices as usize).min(small.layers.len());
        for worker in &mut small.workers {
            worker.memory = None;
        }
        let parts = 2 + random.below(7) as usize;
        let both = vec![following(), orders().remove(1)];
        small.ask_of(both, &[parts], &[Policy::Keep], |mut planner| {
            let mut under = |order| planner.under(order, devices, parts).expect("an answer");
            let (zero, bound) = under(0).expect("it fits");
            let (alternating, _) = under(1).expect("it fits");
            assert!(zero.seconds <= alternating.seconds * (1.0 + 1e-9), "{seed}");
            assert!(bound <= zero.seconds * (1.0 + 1e-9), "{seed}");
            gained += usize::from(zero.seconds < 0.99 * alternating.seconds);
        });
    }
    assert!(gained > 20, "{gained}");
}

/// Frozen first layers have no backward pass: in time, in bytes and in what is sent.
#[test]
fn frozen_layers_are_planned_as_by_trying_everything() {
    let mut differ = 0;
    for seed in 0..60 {
        let small = |freezes: bool| {
            let mut random = Random(0xF0F0_1234 + seed);
            let devices = 1 + random.below(3);
            let small = Small::new(&mut random, 8, devices, true);
            let (parts, frozen) = (1 + random.below(6), 1 + random.below(6));
            let devices = (devices as usize).min(small.layers.len());
            let small = match freezes {
                true => small.with_frozen(frozen as usize),
                false => small,
            };
            (small, devices, parts as usize)
        };
        let ((small, devices, parts), (whole, ..)) = (small(true), small(false));
        for (index, order) in orders().iter().enumerate() {
            let best = small.best(order, devices, parts);
            let found = small.ask(&[parts], &POLICIES, |mut planner| {
                planner.under(index, devices, parts).expect("an answer")
            });
            let found = found.map(|(plan, bound)| (plan.seconds, bound));
            match (best, found) {
                (Some(best), Some((seconds, bound))) => {
                    let name = &order.name;
                    assert!(close(best, seconds), "{seed} {name}: {seconds}, not {best}");
                    assert!(bound <= best * (1.0 + 1e-9), "{seed}: {bound} above {best}");
                    differ += usize::from(whole.best(order, devices, parts) != Some(best));
                }
                (None, None) => {}
                (best, found) => panic!("{seed} {}: {found:?} but {best:?}", order.name),
            }
        }
    }
    assert!(differ > 60, "{differ}");
}
