//! The histogram rule against what Lingvo does, its defects included.

use gpipe_partition::{Error, balance, histogram, histogram_assignment, lingvo_logged_costs};

const SEVEN: [f64; 7] = [10.0, 40.0, 30.0, 10.0, 20.0, 50.0, 10.0];

/// One row: costs, stages, the sizes of the stages, their costs, the logged shares, the optimum.
struct Row {
    costs: Vec<u64>,
    parts: usize,
    sizes: Vec<usize>,
    loads: Vec<u64>,
    logged: Vec<f64>,
    optimum: u64,
}

fn equal(layers: usize, parts: usize, sizes: &[usize], logged: &[f64], optimum: u64) -> Row {
    Row {
        costs: vec![1; layers],
        parts,
        sizes: sizes.to_vec(),
        loads: sizes.iter().map(|&size| size as u64).collect(),
        logged: logged.to_vec(),
        optimum,
    }
}

fn uneven(costs: &[u64], sizes: &[usize], loads: &[u64], logged: &[f64], optimum: u64) -> Row {
    Row {
        costs: costs.to_vec(),
        parts: sizes.len(),
        sizes: sizes.to_vec(),
        loads: loads.to_vec(),
        logged: logged.to_vec(),
        optimum,
    }
}

fn rows() -> Vec<Row> {
    let (sixth, seventh, eighth) = (1.0 / 6.0, 1.0 / 7.0, 1.0 / 8.0);
    vec![
        uneven(
            &SEVEN.map(|c| c as u64),
            &[2, 3, 2],
            &[50, 60, 60],
            &[0.2941, 0.3529, 0.3529],
            60,
        ),
        equal(16, 4, &[3, 4, 4, 5], &[0.1875, 0.25, 0.25, 0.3125], 4),
        equal(6, 3, &[1, 2, 3], &[sixth, 2.0 * sixth, 0.5], 2),
        equal(
            24,
            8,
            &[2, 3, 3, 3, 3, 3, 3, 4],
            &[
                2.0 / 24.0,
                eighth,
                eighth,
                eighth,
                eighth,
                eighth,
                eighth,
                4.0 / 24.0,
            ],
            3,
        ),
        equal(
            7,
            7,
            &[0, 1, 1, 1, 1, 1, 2],
            &[
                1.0,
                seventh - 1.0,
                seventh,
                seventh,
                seventh,
                seventh,
                2.0 * seventh,
            ],
            1,
        ),
        uneven(&[100, 1, 1, 1], &[0, 4], &[0, 103], &[1.0, 0.0], 100),
        uneven(&[5, 90, 5], &[1, 0, 2], &[5, 0, 95], &[0.0, 0.05, 0.95], 90),
        uneven(
            &[1, 100, 1, 1],
            &[1, 0, 3],
            &[1, 0, 102],
            &[0.0, 0.0097, 0.9903],
            100,
        ),
    ]
}

#[test]
fn the_worked_example_layer_by_layer() {
    assert_eq!(
        histogram_assignment(&SEVEN, 3).unwrap(),
        [0, 0, 1, 1, 1, 2, 2]
    );
    let cut = histogram(&SEVEN, 3).unwrap();
    assert_eq!(cut.ranges().collect::<Vec<_>>(), [0..2, 2..5, 5..7]);
    let loads = cut.loads(&SEVEN.map(|c| c as u64)).unwrap();
    assert_eq!(loads.loads(), [50, 60, 60]);
    assert_eq!(loads.over_optimum(), 1.0);
    assert_eq!(loads.imbalance(), 60.0 / (170.0 / 3.0));
    assert_eq!(format!("{:.4}", loads.imbalance()), "1.0588");
}

#[test]
fn known_rows_with_their_empty_stages_and_logs() {
    for row in rows() {
        let costs: Vec<f64> = row.costs.iter().map(|&cost| cost as f64).collect();
        let assignment = histogram_assignment(&costs, row.parts).unwrap();
        let mut sizes = vec![0; row.parts];
        let mut loads = vec![0; row.parts];
        for (&part, cost) in assignment.iter().zip(&row.costs) {
            sizes[part] += 1;
            loads[part] += cost;
        }
        assert_eq!(sizes, row.sizes, "{costs:?}");
        assert_eq!(loads, row.loads, "{costs:?}");
        let logged = lingvo_logged_costs(&costs, row.parts).unwrap();
        assert_eq!(logged.len(), row.logged.len());
        for (got, want) in logged.iter().zip(&row.logged) {
            assert!(
                (got - want).abs() < 5e-5,
                "{costs:?}: logged {logged:?}, not {:?}",
                row.logged
            );
        }
        let best = balance(&row.costs, row.parts)
            .unwrap()
            .loads(&row.costs)
            .unwrap();
        assert_eq!(
            (best.bottleneck(), best.optimum()),
            (row.optimum, row.optimum)
        );

        match sizes.iter().position(|&size| size == 0) {
            Some(part) => {
                let parts = row.parts;
                assert_eq!(
                    histogram(&costs, parts),
                    Err(Error::EmptyPart { part, parts })
                );
            }
            None => assert_eq!(histogram(&costs, row.parts).unwrap().sizes(), sizes),
        }
    }
}

#[test]
fn equal_layers_starve_the_first_stage_and_crowd_the_last() {
    for parts in 2..=32 {
        for each in 2..=256 / parts {
            let layers = parts * each;
            let sizes = histogram(&vec![1.0; layers], parts).unwrap().sizes();
            assert_eq!(sizes[0], each - 1, "{layers} layers, {parts} stages");
            assert_eq!(
                sizes[parts - 1],
                each + 1,
                "{layers} layers, {parts} stages"
            );
        }
    }
}

#[test]
fn float_rounding_is_lingvos_own() {
    let mut different = Vec::new();
    for layers in 1..=256_usize {
        for parts in 1..=layers.min(32) {
            let float = histogram_assignment(&vec![1.0; layers], parts).unwrap();
            let exact = (1..=layers).map(|end| (end * parts / layers).min(parts - 1));
            if !exact.eq(float) {
                different.push((layers, parts));
            }
        }
    }
    assert_eq!(different.len(), 31);
    for pair in [(22, 22), (23, 23), (26, 26), (44, 22)] {
        assert!(different.contains(&pair), "{pair:?}");
    }
}

#[test]
fn what_lingvo_gets_wrong_is_refused() {
    let message = |costs: &[f64], parts| histogram(costs, parts).unwrap_err().to_string();
    assert_eq!(
        message(&[100.0, 1.0, 1.0, 1.0], 2),
        "the histogram rule gives stage 0 of 2 no layer: use balance, fewer stages, or explicit sizes"
    );
    assert_eq!(
        message(&[0.0; 3], 2),
        "the costs add up to 0: the histogram rule needs a layer that costs something, or use balance"
    );
    assert_eq!(
        message(&[1.0; 6], 8),
        "8 stages but 6 layers: use 6 or fewer"
    );
    assert_eq!(message(&[1.0; 6], 0), "0 stages: use at least 1");
    assert_eq!(
        message(&[], 1),
        "no layers to cut: a model needs at least 1"
    );
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0] {
        let error = histogram(&[1.0, bad, 1.0], 2).unwrap_err();
        assert!(matches!(error, Error::BadCost { layer: 1, .. }), "{error}");
    }
    let error = histogram(&[f64::MAX, f64::MAX, 1.0], 2).unwrap_err();
    assert!(matches!(error, Error::Overflow { layer: 1, .. }), "{error}");
}
