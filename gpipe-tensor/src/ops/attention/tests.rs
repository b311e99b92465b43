//! Attention against a plain loop, its gradient against finite differences, its bits on any threads.

use super::*;
use crate::Device;
use crate::philox::Key;
use crate::testing::{
    THREADS, assert_close, assert_same_bits_for_any_threads, bits, device, device_with, f64s,
    numeric_gradient, random,
};

/// The sizes (B, T, heads, elements of a head) that tests run through: one position, blocks that
/// end with the rows and do not, heads of one element.
const SIZES: [[usize; 4]; 8] = [
    [1, 1, 1, 1],
    [2, 3, 2, 1],
    [1, 17, 1, 5],
    [2, 64, 2, 3],
    [1, 65, 3, 2],
    [1, 150, 1, 4],
    [2, 97, 2, 20],
    [1, 70, 1, 64],
];

/// Sizes small enough for finite differences.
const SMALL: [[usize; 4]; 4] = [[1, 1, 1, 1], [2, 3, 2, 1], [1, 17, 1, 5], [1, 66, 1, 1]];

fn some_dropout(batch: usize) -> Dropout {
    Dropout {
        rate: 0.25,
        key: Key::new(3, "transformer.h.0.attn", 9),
        samples: 40..40 + batch as u64,
    }
}

fn factor(dropout: Option<&Dropout>, sample: usize, element: usize) -> f64 {
    let Some(dropout) = dropout else { return 1.0 };
    let stream = dropout.key.sample(dropout.samples.start + sample as u64);
    let dropped = f64::from(stream.bits(element as u64)) < f64::from(dropout.rate) * 2f64.powi(32);
    if dropped {
        0.0
    } else {
        1.0 / (1.0 - f64::from(dropout.rate))
    }
}

/// Results and logarithms of sums by the definition.
fn plain(qkv: &[f64], sizes: [usize; 4], dropout: Option<&Dropout>) -> (Vec<f64>, Vec<f64>) {
    plain_grouped(qkv, sizes, sizes[2].into(), dropout)
}

/// The same with fewer heads of keys and values, and within a window.
fn plain_grouped(
    qkv: &[f64],
    [batch, len, heads, size]: [usize; 4],
    Heads { groups, window, .. }: Heads,
    dropout: Option<&Dropout>,
) -> (Vec<f64>, Vec<f64>) {
    let width = heads * size;
    let mut out = vec![0.0; batch * len * width];
    let mut lse = Vec::new();
    for (b, head) in (0..batch).flat_map(|b| (0..heads).map(move |head| (b, head))) {
        let at = |part: usize, row: usize| {
            let column = match part {
                0 => head,
                _ => heads + (part - 1) * groups + head * groups / heads,
            };
            let start = ((b * len + row) * (heads + 2 * groups) + column) * size;
            &qkv[start..start + size]
        };
        for i in 0..len {
            let score = |j| {
                let products = at(0, i).iter().zip(at(1, j)).map(|(q, k)| q * k);
                products.sum::<f64>() / (size as f64).sqrt()
            };
            let first = (i + 1).saturating_sub(window.unwrap_or(len));
            let scores: Vec<f64> = (first..=i).map(score).collect();
            let sum: f64 = scores.iter().map(|s| s.exp()).sum();
            lse.push(sum.ln());
            let start = (b * len + i) * width + head * size;
            for (j, score) in (first..).zip(&scores) {
                let p = score.exp() / sum * factor(dropout, b, (head * len + i) * len + j);
                for (out, v) in out[start..start + size].iter_mut().zip(at(2, j)) {
                    *out += p * v;
                }
            }
        }
    }
    (out, lse)
}

fn input(device: &Device, [batch, len, heads, size]: [usize; 4]) -> Tensor {
    // Stretched, so that probabilities differ.
    let qkv = random(device, [batch, len, 3 * heads * size], 1);
    crate::ops::scale(&qkv, 2.0).unwrap()
}

#[test]
fn results_equal_the_definition() {
    for sizes in SIZES {
        let qkv = input(&device(), sizes);
        let drop = some_dropout(sizes[0]);
        for dropout in [None, Some(&drop)] {
            let (out, lse) = attention(&qkv, sizes[2], dropout).unwrap();
            let wanted = plain(&f64s(&qkv), sizes, dropout);
            assert_close(&out, &wanted.0, 2e-6);
            assert_close(&lse, &wanted.1, 1e-6);
        }
    }
}

#[test]
fn gradients_equal_finite_differences() {
    for sizes in SMALL {
        let [batch, len, heads, size] = sizes;
        let qkv = input(&device(), sizes);
        let d_out = random(&device(), [batch, len, heads * size], 2);
        let weights = f64s(&d_out);
        let drop = some_dropout(batch);
        for dropout in [None, Some(&drop)] {
            let (out, lse) = attention(&qkv, heads, dropout).unwrap();
            let dqkv = attention_grad(&qkv, &out, &lse, &d_out, heads, dropout).unwrap();
            let wanted = numeric_gradient(&f64s(&qkv), |qkv| {
                let (out, _) = plain(qkv, sizes, dropout);
                out.iter().zip(&weights).map(|(o, w)| o * w).sum()
            });
            assert_close(&dqkv, &wanted, 1e-5);
        }
    }
}

/// Heads of keys, and windows, of these numbers of heads.
fn grouped(heads: usize) -> impl Iterator<Item = Heads> {
    [(1, None), (heads, Some(1)), (heads, Some(20)), (1, Some(3))]
        .into_iter()
        .map(move |(groups, window)| Heads {
            queries: heads,
            groups,
            window,
        })
}

/// Queries, keys and values of fewer heads of keys.
fn grouped_input(device: &Device, [batch, len, _, size]: [usize; 4], heads: Heads) -> Tensor {
    let columns = (heads.queries + 2 * heads.groups) * size;
    crate::ops::scale(&random(device, [batch, len, columns], 1), 2.0).unwrap()
}

#[test]
fn groups_and_windows_equal_the_definition() {
    for sizes in [[2, 3, 2, 1], [1, 65, 3, 2], [1, 150, 4, 5]] {
        for heads in grouped(sizes[2]) {
            let qkv = grouped_input(&device(), sizes, heads);
            let drop = some_dropout(sizes[0]);
            for dropout in [None, Some(&drop)] {
                let (out, lse) = attention(&qkv, heads, dropout).unwrap();
                let wanted = plain_grouped(&f64s(&qkv), sizes, heads, dropout);
                assert_close(&out, &wanted.0, 2e-6);
                assert_close(&lse, &wanted.1, 1e-6);
            }
        }
    }
}

#[test]
fn gradients_of_groups_and_windows_equal_finite_differences() {
    for sizes in [[2, 3, 2, 1], [1, 9, 4, 2], [1, 68, 2, 1]] {
        let [batch, len, count, size] = sizes;
        for heads in grouped(count) {
            let qkv = grouped_input(&device(), sizes, heads);
            let d_out = random(&device(), [batch, len, count * size], 2);
            let weights = f64s(&d_out);
            let drop = some_dropout(batch);
            let (out, lse) = attention(&qkv, heads, Some(&drop)).unwrap();
            let dqkv = attention_grad(&qkv, &out, &lse, &d_out, heads, Some(&drop)).unwrap();
            let wanted = numeric_gradient(&f64s(&qkv), |qkv| {
                let (out, _) = plain_grouped(qkv, sizes, heads, Some(&drop));
                out.iter().zip(&weights).map(|(o, w)| o * w).sum()
            });
            assert_close(&dqkv, &wanted, 1e-5);
        }
    }
}

/// Every way to compute heads agrees with each other: on tiles of AVX2 and AVX-512, and by products.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[test]
fn tiles_agree_with_products() {
    use crate::InstructionSet;
    let device = device();
    for sizes in [
        [1, 150, 4, 40],
        [2, 97, 2, 64],
        [1, 33, 2, 12],
        [1, 65, 2, 80],
        [1, 7, 2, 33],
    ] {
        let [batch, len, count, size] = sizes;
        let drop = some_dropout(batch);
        for heads in grouped(count).chain([count.into()]) {
            let qkv = grouped_input(&device, sizes, heads);
            let d_out = random(&device, [batch, len, count * size], 2);
            for dropout in [None, Some(&drop)] {
                let run = |tiles| {
                    let plan = || {
                        let plan = Plan::new("attention", &qkv, heads, dropout).unwrap();
                        plan.with_tiles(tiles)
                    };
                    let (out, lse) = forward(plan(), &qkv).unwrap();
                    let dqkv = backward(plan(), &qkv, &out, &lse, &d_out).unwrap();
                    [out, lse, dqkv]
                };
                let wanted = run(None);
                for allowed in [InstructionSet::Avx2, InstructionSet::Best] {
                    let tiles = tiles::Instructions::of(allowed);
                    for (got, wanted) in run(tiles).iter().zip(&wanted) {
                        assert_close(got, &f64s(wanted), 1e-5);
                    }
                }
            }
        }
    }
}

#[test]
fn later_positions_do_not_reach_back() {
    let device = device();
    let qkv = input(&device, [1, 100, 2, 3]);
    let (out, _) = attention(&qkv, 2, None).unwrap();
    let mut changed = qkv.copy_to(&device).unwrap();
    changed.f32s_mut().unwrap()[70 * 18..].fill(5.0);
    let (other, _) = attention(&changed, 2, None).unwrap();
    assert_eq!(
        out.f32s().unwrap()[..70 * 6],
        other.f32s().unwrap()[..70 * 6]
    );
    assert_ne!(
        out.f32s().unwrap()[70 * 6..],
        other.f32s().unwrap()[70 * 6..]
    );
}

#[test]
fn samples_do_not_depend_on_the_micro_batch_they_are_in() {
    let device = device();
    let qkv = input(&device, [3, 70, 2, 4]);
    let drop = some_dropout(3);
    let (out, lse) = attention(&qkv, 2, Some(&drop)).unwrap();
    let dqkv = attention_grad(&qkv, &out, &lse, &out, 2, Some(&drop)).unwrap();
    let drop = Dropout {
        samples: 41..43,
        ..drop
    };
    let part = qkv.rows(1..3).unwrap();
    let (part_out, part_lse) = attention(&part, 2, Some(&drop)).unwrap();
    let grad = attention_grad(&part, &part_out, &part_lse, &part_out, 2, Some(&drop)).unwrap();
    assert_eq!(bits(&part_out), bits(&out.rows(1..3).unwrap()));
    assert_eq!(bits(&grad), bits(&dqkv.rows(1..3).unwrap()));
}

#[test]
fn large_scores_do_not_overflow() {
    let device = device();
    let qkv = Tensor::from_f32(&device, [1, 2, 3], [1e3, 1e3, 1.0, 1e3, -1e3, 2.0]).unwrap();
    let (out, lse) = attention(&qkv, 1, None).unwrap();
    assert_eq!(out.f32s().unwrap(), [1.0, 1.0]);
    assert_eq!(lse.f32s().unwrap(), [1e6, 1e6]);
    let dqkv = attention_grad(&qkv, &out, &lse, &out, 1, None).unwrap();
    assert!(dqkv.f32s().unwrap().iter().all(|x| x.is_finite()));
    // The size is no square, so that scores are rounded when they are scaled.
    for len in [20, 50] {
        let qkv = random(&device, [1, len, 3 * 5], 1);
        let qkv = crate::ops::scale(&qkv, 1e7).unwrap();
        let (out, lse) = attention(&qkv, 1, None).unwrap();
        let dqkv = attention_grad(&qkv, &out, &lse, &out, 1, None).unwrap();
        for results in [&out, &lse, &dqkv] {
            assert!(f64s(results).iter().all(|x| x.is_finite()), "{len}");
        }
    }
}

#[test]
fn scores_that_all_overflow_make_no_numbers() {
    let device = device();
    for len in [20, 33, 40] {
        let rows = [2e19, -2e19, 1.0].repeat(len);
        let qkv = Tensor::from_f32(&device, [1, len, 3], rows).unwrap();
        let (out, lse) = attention(&qkv, 1, None).unwrap();
        let dqkv = attention_grad(&qkv, &out, &lse, &out, 1, None).unwrap();
        for results in [&out, &lse, &dqkv] {
            assert!(f64s(results).iter().all(|x| x.is_nan()), "{len}");
        }
    }
}

#[test]
fn threads_do_not_change_the_bits() {
    let run = |device: &Device| {
        let qkv = input(device, [3, 100, 4, 8]);
        let drop = some_dropout(3);
        let (out, lse) = attention(&qkv, 4, Some(&drop)).unwrap();
        let dqkv = attention_grad(&qkv, &out, &lse, &out, 4, Some(&drop)).unwrap();
        (out, lse, dqkv)
    };
    assert_same_bits_for_any_threads(|device| run(device).0);
    assert_same_bits_for_any_threads(|device| run(device).1);
    assert_same_bits_for_any_threads(|device| run(device).2);
    assert_same_bits_for_any_threads(|device| {
        let heads = Heads {
            queries: 6,
            groups: 2,
            window: Some(70),
        };
        let qkv = grouped_input(device, [3, 100, 6, 8], heads);
        let (out, lse) = attention(&qkv, heads, None).unwrap();
        attention_grad(&qkv, &out, &lse, &out, heads, None).unwrap()
    });
}

#[test]
fn scratch_is_not_counted() {
    for threads in THREADS {
        let device = device_with(threads);
        let qkv = input(&device, [2, 100, 2, 8]);
        let before = device.live_bytes();
        device.reset_peak();
        let (out, lse) = attention(&qkv, 2, None).unwrap();
        let results = (out.bytes() + lse.bytes()) as u64;
        assert_eq!(device.peak_bytes(), before + results);
        let dqkv = attention_grad(&qkv, &out, &lse, &out, 2, None).unwrap();
        assert_eq!(device.peak_bytes(), before + results + dqkv.bytes() as u64);
    }
}

#[test]
fn no_elements_are_fine() {
    for (batch, len) in [(0, 5), (2, 0)] {
        let qkv = random(&device(), [batch, len, 6], 1);
        let (out, lse) = attention(&qkv, 2, None).unwrap();
        assert_eq!(out.shape().dims(), [batch, len, 2]);
        assert_eq!(lse.shape().dims(), [batch, 2, len]);
        let dqkv = attention_grad(&qkv, &out, &lse, &out, 2, None).unwrap();
        assert_eq!(dqkv.shape(), qkv.shape());
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let device = device();
    let qkv = random(&device, [2, 5, 12], 1);
    let message = attention(&qkv, 3, None).unwrap_err().to_string();
    assert_eq!(
        message,
        "attention: (B, T, 3d) with d a multiple of 3 heads, got [2, 5, 12]"
    );
    assert!(attention(&qkv, 0, None).is_err());
    for (groups, window) in [(0, None), (2, Some(0)), (3, None)] {
        let heads = Heads {
            queries: 2,
            groups,
            window,
        };
        assert!(attention(&qkv, heads, None).is_err(), "{heads:?}");
    }
    let without_queries = Heads {
        queries: 0,
        groups: 1,
        window: None,
    };
    assert!(attention(&qkv, without_queries, None).is_err());
    assert!(attention(&random(&device, [2, 5, 0], 1), 1, None).is_err());
    assert!(attention(&random(&device, [5, 12], 1), 2, None).is_err());
    assert!(attention(&qkv, 2, Some(&some_dropout(3))).is_err());
    let (out, lse) = attention(&qkv, 2, None).unwrap();
    let grad = |out, lse, d_out| attention_grad(&qkv, out, lse, d_out, 2, None);
    assert!(grad(&qkv, &lse, &out).is_err());
    assert!(grad(&out, &out, &out).is_err());
    assert!(grad(&out, &lse, &lse).is_err());
}
