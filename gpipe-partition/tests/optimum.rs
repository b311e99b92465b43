//! `balance`, `balance_by` and `balance_parts` against brute force.

use std::cell::Cell;

use gpipe_partition::{Error, balance, balance_by, balance_parts, explicit};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Every way to cut `layers` layers into `parts` non-empty runs, as sizes.
fn every_cut(layers: usize, parts: usize) -> Vec<Vec<usize>> {
    if parts == 1 {
        return vec![vec![layers]];
    }
    (1..=layers - (parts - 1))
        .flat_map(|first| {
            every_cut(layers - first, parts - 1)
                .into_iter()
                .map(move |rest| {
                    let mut sizes = vec![first];
                    sizes.extend(rest);
                    sizes
                })
        })
        .collect()
}

/// The least bottleneck over all cuts, where `cost` takes a start and an end.
fn brute_force(
    layers: usize,
    parts: usize,
    cost: impl Fn(usize, usize) -> Option<u64>,
) -> Option<u64> {
    brute_force_parts(layers, parts, |_, start, end| cost(start, end))
}

/// [`brute_force`] where `cost` also takes the number of the part.
fn brute_force_parts(
    layers: usize,
    parts: usize,
    cost: impl Fn(usize, usize, usize) -> Option<u64>,
) -> Option<u64> {
    every_cut(layers, parts)
        .into_iter()
        .filter_map(|sizes| {
            let mut start = 0;
            let mut worst = 0;
            for (part, size) in sizes.into_iter().enumerate() {
                worst = worst.max(cost(part, start, start + size)?);
                start += size;
            }
            Some(worst)
        })
        .min()
}

/// Fails unless the cut of `costs` covers every layer once and no other cut is better.
fn check(costs: &[u64], parts: usize) {
    let cut = balance(costs, parts).unwrap();
    assert_eq!(cut.parts(), parts);
    assert_eq!(cut.layers(), costs.len());
    let covered: Vec<usize> = cut.ranges().flatten().collect();
    assert_eq!(covered, (0..costs.len()).collect::<Vec<_>>(), "{costs:?}");
    assert!(cut.ranges().all(|range| !range.is_empty()));

    let loads = cut.loads(costs).unwrap();
    let optimum = brute_force(costs.len(), parts, |start, end| {
        Some(costs[start..end].iter().sum())
    });
    assert_eq!(
        Some(loads.bottleneck()),
        optimum,
        "{costs:?} into {parts}: {cut}"
    );
    assert_eq!(Some(loads.optimum()), optimum, "{costs:?} into {parts}");
}

#[test]
fn every_small_case() {
    // All vectors of costs 0, 1, 2 and 5 of up to 6 layers, for every number of parts.
    const VALUES: [u64; 4] = [0, 1, 2, 5];
    for layers in 1..=6_u32 {
        for code in 0..4_usize.pow(layers) {
            let costs: Vec<u64> = (0..layers)
                .map(|layer| VALUES[code >> (2 * layer) & 3])
                .collect();
            for parts in 1..=costs.len() {
                check(&costs, parts);
            }
        }
    }
}

#[test]
fn huge_costs_do_not_wrap() {
    check(&[u64::MAX - 3, 1, 1, 1], 2);
    check(&[1, u64::MAX / 2, u64::MAX / 2], 3);
    let error = balance(&[u64::MAX, 0, 1], 2).unwrap_err();
    assert!(matches!(error, Error::Overflow { layer: 2, .. }), "{error}");
    let error = explicit(&[1, 2], 3)
        .unwrap()
        .loads(&[u64::MAX, 0, 1])
        .unwrap_err();
    assert!(matches!(error, Error::Overflow { layer: 2, .. }), "{error}");
}

#[test]
fn impossible_counts_are_refused() {
    let message = |costs: &[u64], parts| balance(costs, parts).unwrap_err().to_string();
    assert_eq!(message(&[1; 6], 8), "8 stages but 6 layers: use 6 or fewer");
    assert_eq!(message(&[1; 6], 0), "0 stages: use at least 1");
    assert_eq!(
        message(&[], 3),
        "no layers to cut: a model needs at least 1"
    );
    assert_eq!(
        message(&[1; 6], usize::MAX),
        format!("{} stages but 6 layers: use 6 or fewer", usize::MAX)
    );
    for (layers, parts) in [(6, 8), (6, 0), (0, 3)] {
        let refused = balance(&vec![1; layers], parts);
        assert_eq!(balance_by(layers, parts, |_| Some(1)), refused);
        assert_eq!(balance_parts(layers, parts, |_, _| 1), refused);
    }
}

#[test]
fn a_run_may_cost_more_than_its_layers() {
    // Each stage also pays for sending on: 7 a stage, and a stage holds at most 3 layers.
    let cost =
        |range: std::ops::Range<usize>| (range.len() <= 3).then_some(7 + 2 * range.len() as u64);
    assert_eq!(balance_by(8, 3, cost).unwrap().sizes(), [3, 2, 3]);
    assert_eq!(
        balance_by(8, 2, cost).unwrap_err().to_string(),
        "the layers do not fit 2 stages: use 3 or more"
    );
}

#[test]
fn a_layer_that_fits_nowhere_is_named() {
    let error = balance_by(4, 2, |range| (!range.contains(&2)).then_some(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "layer 2 alone does not fit a stage: make it smaller or the limit larger"
    );
}

#[test]
fn a_cost_that_falls_as_runs_grow_is_refused() {
    let cost_of_length = [0, 1, 2, 9, 3, 3, 3];
    let error = balance_by(6, 2, |range| Some(cost_of_length[range.len()])).unwrap_err();
    assert_eq!(error, Error::NotMonotone { start: 0, end: 3 });
    // A cut within 7 exists, and the boundary nearest to equal shares leaves a part of 8.
    let cost_of_length = [0, 4, 8, 5, 7, 7];
    let error = balance_by(5, 2, |range| Some(cost_of_length[range.len()])).unwrap_err();
    assert_eq!(error, Error::NotMonotone { start: 0, end: 2 });
}

#[test]
fn a_million_layers_over_a_thousand_stages() {
    let costs: Vec<u64> = (0..1_000_000_u64)
        .map(|layer| layer.wrapping_mul(2_654_435_761) % 1000)
        .collect();
    let cut = balance(&costs, 1000).unwrap();
    assert_eq!((cut.parts(), cut.layers()), (1000, 1_000_000));
    let loads = cut.loads(&costs).unwrap();
    assert_eq!(loads.bottleneck(), loads.optimum());
    assert!(loads.imbalance() < 1.01);
}

#[test]
fn an_oracle_that_settles_one_boundary_a_round_takes_no_quadratic_time() {
    // A run costs its last layer's number, and one more where it is not alone: the last layer
    // must be alone, then the last but one, and so on.
    let asked = Cell::new(0_u64);
    let cost = |range: std::ops::Range<usize>| {
        asked.set(asked.get() + 1);
        Some(range.end as u64 + u64::from(range.len() > 1))
    };
    let cut = balance_by(3001, 3000, cost).unwrap();
    assert_eq!(cut.sizes()[2900..], [1; 100]);
    assert!(asked.get() < 1_000_000, "{} questions", asked.get());
}

/// Costs of very different sizes, with many zeros and ties, and how many parts to cut them into.
fn cases() -> impl Strategy<Value = (Vec<u64>, usize)> {
    let cost = prop_oneof![
        2 => Just(0_u64),
        4 => 1_u64..4,
        4 => 1_u64..1000,
        1 => 1_u64 << 40..1 << 58,
    ];
    prop::collection::vec(cost, 1..=12).prop_flat_map(|costs| {
        let parts = 1..=costs.len();
        (Just(costs), parts)
    })
}

/// The same cases in every run, and no files written.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 10_000,
        rng_seed: RngSeed::Fixed(2019),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn balance_is_optimal((costs, parts) in cases()) {
        check(&costs, parts);
    }

    #[test]
    fn balance_by_is_optimal((costs, parts) in cases(), most in 1_usize..=12, rent in 0_u64..50) {
        // Not additive: the dearest layer counts double, there is a rent, and memory for `most`.
        let cost = |start: usize, end: usize| {
            let run = &costs[start..end];
            (run.len() <= most).then(|| run.iter().sum::<u64>() + run.iter().max().unwrap() + rent)
        };
        let cut = balance_by(costs.len(), parts, |range| cost(range.start, range.end));
        match brute_force(costs.len(), parts, cost) {
            Some(optimum) => {
                let worst = cut.unwrap().ranges().map(|range| cost(range.start, range.end).unwrap()).max();
                prop_assert_eq!(worst, Some(optimum));
            }
            None => {
                let needed = costs.len().div_ceil(most);
                prop_assert_eq!(cut, Err(Error::DoesNotFit { parts, needed }));
            }
        }
    }

    #[test]
    fn balance_parts_is_optimal((costs, parts) in cases(), factors in prop::collection::vec(1_u64..4, 12)) {
        let cost = |part: usize, start: usize, end: usize| {
            costs[start..end].iter().sum::<u64>() * factors[part]
        };
        let of = |part, range: std::ops::Range<usize>| cost(part, range.start, range.end);
        let cut = balance_parts(costs.len(), parts, of).unwrap();
        prop_assert_eq!((cut.parts(), cut.layers()), (parts, costs.len()));
        let loads = cut.loads_by(of);
        let optimum = brute_force_parts(costs.len(), parts, |part, start, end| Some(cost(part, start, end)));
        prop_assert_eq!(Some(loads.bottleneck()), optimum, "{:?} {}", factors, cut);
        prop_assert_eq!(Some(loads.optimum()), optimum);
    }

    #[test]
    fn no_oracle_makes_it_panic(layers in 1_usize..40, parts in 1_usize..40, seed: u64) {
        // Answers without rhyme or reason: an error or some cut, whose parts are never empty.
        let cost = |range: std::ops::Range<usize>| {
            let mixed = (seed ^ (range.start as u64) << 32 ^ range.end as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (mixed >> 61 != 0).then_some(mixed >> 40)
        };
        if let Ok(cut) = balance_by(layers, parts, cost) {
            prop_assert_eq!(cut.parts(), parts);
            prop_assert!(cut.ranges().all(|range| !range.is_empty()));
        }
    }
}
