//! Against plain loops and finite differences, and what is refused.

use super::*;
use crate::testing::{
    THREADS, assert_close, assert_same_bits_for_any_threads, bits, device, device_with, f64s,
    numeric_gradient, random,
};

/// One target a row, every fourth ignored.
fn targets(device: &crate::Device, shape: &[usize], classes: usize) -> Tensor {
    let target = |i: usize| {
        if i % 4 == 3 {
            IGNORE
        } else {
            (i * 31 % classes) as u32
        }
    };
    let all = (0..shape.iter().product()).map(target);
    Tensor::from_u32(device, shape, all.collect()).unwrap()
}

fn plain(logits: &[f64], targets: &[u32], divisor: f64) -> f64 {
    let classes = logits.len() / targets.len();
    let rows = logits.chunks(classes).zip(targets);
    let losses = rows
        .filter(|(_, target)| **target != IGNORE)
        .map(|(row, &target)| {
            let largest = row.iter().copied().fold(f64::MIN, f64::max);
            let sum: f64 = row.iter().map(|x| (x - largest).exp()).sum();
            largest + sum.ln() - row[target as usize]
        });
    losses.sum::<f64>() / divisor
}

#[test]
fn loss_and_gradient_equal_a_plain_loop_and_finite_differences() {
    let device = device();
    for (rows, classes) in [
        (vec![], 5),
        (vec![5], 1),
        (vec![2, 3], 2),
        (vec![5], 15),
        (vec![4], 16),
        (vec![3], 17),
        (vec![5], 33),
        (vec![2], 130),
    ] {
        let shape = [rows.as_slice(), &[classes]].concat();
        let logits = random(&device, shape.as_slice(), 1);
        let targets = targets(&device, &rows, classes);
        let (xs, ids) = (f64s(&logits), targets.u32s().unwrap());
        let wanted = plain(&xs, ids, 3.0);
        let alone = cross_entropy_loss(&logits, &targets, 3.0).unwrap();
        let (loss, gradient) = cross_entropy(logits, &targets, 3.0).unwrap();
        assert!(
            (loss - wanted).abs() <= 2e-7 * wanted.max(1.0),
            "{loss}, {wanted}"
        );
        assert_eq!(loss.to_bits(), alone.to_bits());
        let wanted = numeric_gradient(&xs, |x| plain(x, ids, 3.0));
        assert_close(&gradient, &wanted, 1e-7);
    }
}

#[test]
fn smoothing_shares_a_part_among_the_other_classes() {
    let device = device();
    for classes in [2, 5, 33] {
        let logits = random(&device, [4, classes], 1);
        let targets = targets(&device, &[4], classes);
        let (xs, ids) = (f64s(&logits), targets.u32s().unwrap());
        let smoothed = |xs: &[f64]| {
            let rows = xs.chunks(classes).zip(ids);
            let rows = rows.filter(|(_, target)| **target != IGNORE);
            let losses = rows.map(|(row, &target)| {
                let lse = row.iter().map(|x| x.exp()).sum::<f64>().ln();
                let cost = |(j, x): (usize, &f64)| match j == target as usize {
                    true => 0.9 * (lse - x),
                    false => 0.1 / (classes - 1) as f64 * (lse - x),
                };
                row.iter().enumerate().map(cost).sum::<f64>()
            });
            losses.sum::<f64>() / 3.0
        };
        let alone = smoothed_cross_entropy_loss(&logits, &targets, 0.1, 3.0).unwrap();
        let (loss, gradient) = smoothed_cross_entropy(logits, &targets, 0.1, 3.0).unwrap();
        let loss = loss.read().unwrap();
        assert_eq!(loss.to_bits(), alone.to_bits());
        assert!((loss - smoothed(&xs)).abs() < 1e-6, "{loss}");
        assert_close(&gradient, &numeric_gradient(&xs, smoothed), 1e-6);
    }
    // A single class is certain.
    let (one, first) = (random(&device, [4, 1], 1), targets(&device, &[4], 1));
    assert_eq!(
        smoothed_cross_entropy_loss(&one, &first, 0.1, 3.0).unwrap(),
        0.0
    );
    let (loss, gradient) = smoothed_cross_entropy(one, &first, 0.1, 3.0).unwrap();
    assert_eq!((loss.read().unwrap(), bits(&gradient)), (0.0, vec![0; 4]));
    let logits = random(&device, [4, 5], 1);
    let targets = targets(&device, &[4], 5);
    for wrong in [-0.1, 1.0, f32::NAN] {
        assert!(smoothed_cross_entropy(logits.clone(), &targets, wrong, 1.0).is_err());
    }
}

/// Weights that are exact in binary: each row equals one without a weight whose divisor is so much smaller.
#[test]
fn weights_scale_the_loss_and_the_gradient_of_their_row() {
    let device = device();
    let weights = [0.5, 0.0, 2.0, 0.25, 1.0];
    let logits = random(&device, [5, 7], 1);
    let ids = [3, 1, 0, IGNORE, 6];
    let targets = Tensor::from_u32(&device, [5], ids.to_vec()).unwrap();
    let all = Tensor::from_f32(&device, [5], weights).unwrap();
    for smoothing in [0.0, 0.1] {
        let weighted = weighted_cross_entropy(logits.clone(), &targets, &all, smoothing, 3.0);
        let (loss, gradient) = weighted.unwrap();
        let mut sum = 0.0;
        for (row, weight) in weights.into_iter().enumerate() {
            let got = &gradient.f32s().unwrap()[row * 7..][..7];
            if weight == 0.0 || ids[row] == IGNORE {
                assert_eq!(got, [0.0; 7]);
                continue;
            }
            let xs = &logits.f32s().unwrap()[row * 7..][..7];
            let alone = Tensor::from_f32(&device, [1, 7], xs).unwrap();
            let target = Tensor::from_u32(&device, [1], vec![ids[row]]).unwrap();
            let divisor = 3.0 / f64::from(weight);
            let alone = smoothed_cross_entropy(alone, &target, smoothing, divisor).unwrap();
            sum += alone.0.read().unwrap();
            assert_close(
                &alone.1,
                &got.iter().map(|&x| f64::from(x)).collect::<Vec<_>>(),
                1e-7,
            );
        }
        assert!((loss.read().unwrap() - sum).abs() < 1e-12);
        let ones = Tensor::from_f32(&device, [5], [1.0; 5]).unwrap();
        let of_ones = weighted_cross_entropy(logits.clone(), &targets, &ones, smoothing, 3.0);
        let plain = smoothed_cross_entropy(logits.clone(), &targets, smoothing, 3.0);
        assert_eq!(bits(&of_ones.unwrap().1), bits(&plain.unwrap().1));
    }
    let fewer = Tensor::from_f32(&device, [4], [1.0; 4]).unwrap();
    assert!(weighted_cross_entropy(logits, &targets, &fewer, 0.0, 3.0).is_err());
}

#[test]
fn threads_do_not_change_the_bits_with_weights() {
    assert_same_bits_for_any_threads(|device| {
        let weights = random(device, [700], 2).to_f32s().unwrap();
        let weights = weights.iter().map(|weight| weight.abs());
        let weights = Tensor::from_f32(device, [700], weights.collect::<Vec<_>>()).unwrap();
        let logits = random(device, [700, 100], 1);
        let targets = targets(device, &[700], 100);
        weighted_cross_entropy(logits, &targets, &weights, 0.1, 525.0)
            .unwrap()
            .1
    });
}

#[test]
fn many_classes_lose_no_digits() {
    let device = device();
    let logits = random(&device, [3, 50_257], 1);
    let targets = targets(&device, &[3], 50_257);
    let wanted = plain(&f64s(&logits), targets.u32s().unwrap(), 3.0);
    let loss = cross_entropy_loss(&logits, &targets, 3.0).unwrap();
    assert!((loss - wanted).abs() < 2e-7 * wanted);
    let (again, _) = cross_entropy(logits, &targets, 3.0).unwrap();
    assert_eq!(again.to_bits(), loss.to_bits());
}

#[test]
fn large_logits_do_not_overflow() {
    let logits = Tensor::from_f32(&device(), [2, 2], [3e38, -3e38, 1e4, 1e4]).unwrap();
    let targets = Tensor::from_u32(&device(), [2], vec![0, 1]).unwrap();
    let (loss, gradient) = cross_entropy(logits, &targets, 1.0).unwrap();
    assert!((loss - std::f64::consts::LN_2).abs() < 1e-12);
    assert_eq!(gradient.f32s().unwrap(), [0.0, 0.0, 0.5, -0.5]);
}

#[test]
fn ignored_rows_are_not_even_read() {
    let logits = Tensor::from_f32(&device(), [2, 2], [f32::NAN, 1.0, 0.0, 0.0]).unwrap();
    let targets = Tensor::from_u32(&device(), [2], vec![IGNORE, 0]).unwrap();
    assert_eq!(correct(&logits, &targets).unwrap(), 1);
    let (loss, gradient) = cross_entropy(logits, &targets, 1.0).unwrap();
    assert_eq!(loss, std::f64::consts::LN_2);
    assert_eq!(gradient.f32s().unwrap(), [0.0, 0.0, -0.5, 0.5]);
}

#[test]
fn a_batch_without_targets_has_no_loss_and_no_gradient() {
    let device = device();
    let targets = Tensor::from_u32(&device, [2], vec![IGNORE; 2]).unwrap();
    for divisor in [0.0, 1.0] {
        let logits = random(&device, [2, 3], 1);
        let alone = cross_entropy_loss(&logits, &targets, divisor).unwrap();
        let (loss, gradient) = cross_entropy(logits, &targets, divisor).unwrap();
        assert_eq!((loss, alone), (0.0, 0.0));
        assert_eq!(bits(&gradient), [0; 6]);
    }
}

#[test]
fn logits_are_overwritten_only_if_nothing_else_holds_them() {
    let device = device();
    let logits = random(&device, [2, 3], 1);
    let (kept, before) = (logits.clone(), bits(&logits));
    let targets = targets(&device, &[2], 3);
    let (_, gradient) = cross_entropy(logits, &targets, 1.0).unwrap();
    assert_eq!(bits(&kept), before);
    let place = gradient.f32s().unwrap().as_ptr();
    let (_, again) = cross_entropy(gradient, &targets, 1.0).unwrap();
    assert_eq!(again.f32s().unwrap().as_ptr(), place);
}

#[test]
fn correct_rows_are_counted() {
    let device = device();
    let logits = [
        0.0, 2.0, 1.0, 5.0, 5.0, 5.0, -1.0, -3.0, -2.0, 0.0, 0.0, 9.0,
    ];
    let logits = Tensor::from_f32(&device, [4, 3], logits).unwrap();
    for (targets, wanted) in [
        (vec![1, 0, 0, 2], 4),
        (vec![1, 1, 0, IGNORE], 2),
        (vec![0, 2, 1, 1], 0),
    ] {
        let targets = Tensor::from_u32(&device, [4], targets).unwrap();
        assert_eq!(correct(&logits, &targets).unwrap(), wanted);
    }
}

#[test]
fn threads_do_not_change_the_bits() {
    let run = |device: &crate::Device| {
        let logits = random(device, [700, 100], 1);
        cross_entropy(logits, &targets(device, &[700], 100), 525.0).unwrap()
    };
    assert_same_bits_for_any_threads(|device| run(device).1);
    for threads in THREADS {
        assert_eq!(
            run(&device_with(threads)).0.to_bits(),
            run(&device()).0.to_bits()
        );
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let device = device();
    let logits = || random(&device, [2, 3], 1);
    let targets = |all| Tensor::from_u32(&device, [2], all).unwrap();
    let message = cross_entropy(logits(), &targets(vec![0, 3]), 1.0).unwrap_err();
    assert_eq!(
        message.to_string(),
        "cross_entropy: index 3 is outside of 0..3"
    );
    assert!(correct(&logits(), &targets(vec![0, 3])).is_err());
    for divisor in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(cross_entropy_loss(&logits(), &targets(vec![0, 0]), divisor).is_err());
    }
    let longer = Tensor::from_u32(&device, [3], vec![0; 3]).unwrap();
    assert!(matches!(
        cross_entropy(logits(), &longer, 1.0),
        Err(Error::Shape { .. })
    ));
    let none = random(&device, [2, 0], 1);
    assert!(cross_entropy(none.clone(), &targets(vec![0, 0]), 1.0).is_err());
    assert_eq!(
        cross_entropy(none, &targets(vec![IGNORE; 2]), 1.0)
            .unwrap()
            .0,
        0.0
    );
}
