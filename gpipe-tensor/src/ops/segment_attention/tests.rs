//! Against a plain loop, gradients against finite differences, bits on any threads.

use super::*;
use crate::Device;
use crate::ops::Dropout;
use crate::philox::Key;
use crate::testing::{
    assert_close, assert_same_bits_for_any_threads, bits, device, f64s, numeric_gradient, random,
};

/// Sizes (B, T, S, heads, elements of a head) and whether later keys are hidden.
const CASES: [([usize; 5], bool); 6] = [
    ([1, 1, 1, 1, 1], false),
    ([2, 5, 7, 2, 3], false),
    ([2, 7, 7, 2, 1], true),
    ([1, 70, 9, 1, 2], false),
    ([1, 3, 130, 2, 1], false),
    ([1, 68, 68, 1, 2], true),
];

/// Segments of some rows: runs of different lengths, padding among them, and a segment that is nowhere else.
fn segments(device: &Device, [batch, len]: [usize; 2], step: usize) -> Tensor {
    let of = |i: usize| {
        let (row, place) = (i / len, i % len);
        match (place / step + row) % 5 {
            4 => 0,
            3 => 90 + step as u32,
            segment => segment as u32 + 1,
        }
    };
    Tensor::from_u32(device, [batch, len], (0..batch * len).map(of).collect()).unwrap()
}

struct Case {
    q: Tensor,
    kv: Tensor,
    query_segments: Tensor,
    key_segments: Tensor,
    dropout: Dropout,
}

impl Case {
    fn new(device: &Device, [batch, queries, keys, heads, size]: [usize; 5], causal: bool) -> Self {
        let width = heads * size;
        let query_segments = segments(device, [batch, queries], queries.div_ceil(6));
        Self {
            q: crate::ops::scale(&random(device, [batch, queries, width], 1), 2.0).unwrap(),
            kv: random(device, [batch, keys, 2 * width], 2),
            key_segments: match causal {
                true => query_segments.clone(),
                false => segments(device, [batch, keys], keys.div_ceil(5)),
            },
            query_segments,
            dropout: Dropout {
                rate: 0.25,
                key: Key::new(3, "decoder.layers.0.self_attn", 9),
                samples: 40..40 + batch as u64,
            },
        }
    }

    fn settings(&self, heads: usize, causal: bool, dropout: bool) -> SegmentAttention<'_> {
        SegmentAttention {
            heads,
            causal,
            query_segments: &self.query_segments,
            key_segments: &self.key_segments,
            dropout: dropout.then_some(&self.dropout),
        }
    }
}

/// Results and logarithms of sums by the definition.
fn plain(
    q: &[f64],
    kv: &[f64],
    [batch, queries, keys, heads, size]: [usize; 5],
    settings: &SegmentAttention<'_>,
) -> (Vec<f64>, Vec<f64>) {
    let width = heads * size;
    let (of_queries, of_keys) = (
        settings.query_segments.u32s().unwrap(),
        settings.key_segments.u32s().unwrap(),
    );
    let mut out = vec![0.0; batch * queries * width];
    let mut lse = Vec::new();
    for (b, head) in (0..batch).flat_map(|b| (0..heads).map(move |head| (b, head))) {
        for i in 0..queries {
            let segment = of_queries[b * queries + i];
            let query = &q[(b * queries + i) * width + head * size..][..size];
            let row = |j: usize, part: usize| {
                &kv[((b * keys + j) * 2 + part) * width + head * size..][..size]
            };
            let seen = |j: &usize| {
                segment != 0 && of_keys[b * keys + j] == segment && (!settings.causal || *j <= i)
            };
            let scores: Vec<(usize, f64)> = (0..keys)
                .filter(seen)
                .map(|j| {
                    let products = query.iter().zip(row(j, 0)).map(|(q, k)| q * k);
                    (j, products.sum::<f64>() / (size as f64).sqrt())
                })
                .collect();
            let sum: f64 = scores.iter().map(|(_, score)| score.exp()).sum();
            lse.push(if scores.is_empty() {
                f64::INFINITY
            } else {
                sum.ln()
            });
            for (j, score) in scores {
                let factor = settings.dropout.map_or(1.0, |dropout| {
                    let stream = dropout.key.sample(dropout.samples.start + b as u64);
                    let element = (head * queries + i) * keys + j;
                    match f64::from(stream.bits(element as u64)) < 0.25 * 2f64.powi(32) {
                        true => 0.0,
                        false => 1.0 / 0.75,
                    }
                });
                let start = (b * queries + i) * width + head * size;
                for (out, v) in out[start..start + size].iter_mut().zip(row(j, 1)) {
                    *out += score.exp() / sum * factor * v;
                }
            }
        }
    }
    (out, lse)
}

#[test]
fn results_equal_the_definition() {
    for (sizes, causal) in CASES {
        let case = Case::new(&device(), sizes, causal);
        for dropout in [false, true] {
            let settings = case.settings(sizes[3], causal, dropout);
            let (out, lse) = segment_attention(&case.q, &case.kv, &settings).unwrap();
            let wanted = plain(&f64s(&case.q), &f64s(&case.kv), sizes, &settings);
            assert_close(&out, &wanted.0, 2e-6);
            for (got, wanted) in f64s(&lse).into_iter().zip(wanted.1) {
                assert!(
                    got == wanted || (got - wanted).abs() < 2e-6,
                    "{got} {wanted}"
                );
            }
        }
    }
}

#[test]
fn gradients_equal_finite_differences() {
    for (sizes, causal) in CASES {
        let case = Case::new(&device(), sizes, causal);
        let d_out = random(&device(), case.q.shape().clone(), 3);
        let weights = f64s(&d_out);
        for dropout in [false, true] {
            let settings = case.settings(sizes[3], causal, dropout);
            let (out, lse) = segment_attention(&case.q, &case.kv, &settings).unwrap();
            let operands = [&case.q, &case.kv];
            let (dq, dkv) =
                segment_attention_grad(operands, &out, &lse, &d_out, &settings).unwrap();
            let [q, kv] = operands.map(f64s);
            let value = |q: &[f64], kv: &[f64]| {
                let (out, _) = plain(q, kv, sizes, &settings);
                out.iter().zip(&weights).map(|(o, w)| o * w).sum()
            };
            assert_close(&dq, &numeric_gradient(&q, |q| value(q, &kv)), 1e-5);
            assert_close(&dkv, &numeric_gradient(&kv, |kv| value(&q, kv)), 1e-5);
        }
    }
}

/// Every way to compute heads agrees with each other: on tiles of AVX2 and AVX-512, and by products.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[test]
fn tiles_agree_with_products() {
    use crate::InstructionSet;
    use crate::ops::attention::tiles;
    let device = device();
    let wide = [
        ([2, 97, 97, 2, 64], true),
        ([1, 130, 45, 2, 40], false),
        ([1, 20, 150, 1, 12], false),
    ];
    for (sizes, causal) in CASES.into_iter().chain(wide) {
        let case = Case::new(&device, sizes, causal);
        let operands = [&case.q, &case.kv];
        let d_out = random(&device, case.q.shape().clone(), 3);
        for dropout in [false, true] {
            let settings = case.settings(sizes[3], causal, dropout);
            let run = |tiles| {
                let plan = || {
                    let plan = Plan::new("attention", &case.q, &case.kv, &settings).unwrap();
                    plan.with_tiles(tiles)
                };
                let (out, lse) = forward(plan(), operands, &settings).unwrap();
                let results = [&out, &lse, &d_out];
                let (dq, dkv) = backward(plan(), operands, results, &settings).unwrap();
                let finite = |x: f64| if x == f64::INFINITY { 1e3 } else { x };
                let lse: Vec<f64> = f64s(&lse).into_iter().map(finite).collect();
                [f64s(&out), lse, f64s(&dq), f64s(&dkv)]
            };
            let wanted = run(None);
            for allowed in [InstructionSet::Avx2, InstructionSet::Best] {
                let got = run(tiles::Instructions::of(allowed));
                for (got, wanted) in got.iter().flatten().zip(wanted.iter().flatten()) {
                    assert!((got - wanted).abs() < 1e-5, "{sizes:?}: {got} {wanted}");
                }
            }
        }
    }
}

/// What padding holds, and what another segment holds, changes no bit of a result or a gradient.
#[test]
fn what_is_not_seen_does_not_reach_a_result() {
    let device = device();
    let case = Case::new(&device, [2, 5, 7, 2, 3], false);
    let settings = case.settings(2, false, false);
    let (out, lse) = segment_attention(&case.q, &case.kv, &settings).unwrap();
    let mut other = case.kv.copy_to(&device).unwrap();
    let segments = case.key_segments.u32s().unwrap().to_vec();
    let rows = other.f32s_mut().unwrap().chunks_mut(12).zip(&segments);
    let mut changed = 0;
    for (row, _) in rows.filter(|(_, segment)| ![1, 2, 3].contains(*segment)) {
        row.fill(7.0);
        changed += 1;
    }
    assert!(changed > 0);
    let (again, _) = segment_attention(&case.q, &other, &settings).unwrap();
    assert_eq!(bits(&out), bits(&again));
    let grads = segment_attention_grad([&case.q, &case.kv], &out, &lse, &out, &settings).unwrap();
    for (row, segment) in grads.1.f32s().unwrap().chunks(12).zip(&segments) {
        assert!(*segment != 0 || row.iter().all(|x| *x == 0.0));
    }
}

#[test]
fn queries_without_any_keys_see_nothing() {
    // By products, and on tiles.
    for queries in [5, 40] {
        let case = Case::new(&device(), [2, queries, 0, 3, 4], false);
        let settings = case.settings(3, false, false);
        let (out, lse) = segment_attention(&case.q, &case.kv, &settings).unwrap();
        assert_eq!(bits(&out), vec![0; 2 * queries * 12]);
        assert_eq!(lse.f32s().unwrap(), vec![f32::INFINITY; 2 * 3 * queries]);
        let (dq, dkv) =
            segment_attention_grad([&case.q, &case.kv], &out, &lse, &out, &settings).unwrap();
        assert_eq!(bits(&dq), bits(&out));
        assert_eq!(dkv.elements(), 0);
    }
}

#[test]
fn scores_that_all_overflow_make_no_numbers() {
    // By products, and on tiles.
    for len in [5, 40] {
        let case = Case::new(&device(), [1, len, len, 1, 1], false);
        let settings = case.settings(1, false, false);
        let fill = |values: &[f32]| {
            let values = values.repeat(len);
            Tensor::from_f32(&device(), [1, len, values.len() / len], values).unwrap()
        };
        let (q, kv) = (fill(&[2e19]), fill(&[-2e19, 1.0]));
        let (out, lse) = segment_attention(&q, &kv, &settings).unwrap();
        let (_, kept) = segment_attention(&case.q, &case.kv, &settings).unwrap();
        let results = out.f32s().unwrap().iter().zip(lse.f32s().unwrap());
        for ((x, sum), kept) in results.zip(kept.f32s().unwrap()) {
            match *kept == f32::INFINITY {
                true => assert_eq!((*x, *sum), (0.0, f32::INFINITY)),
                false => assert!(x.is_nan() && sum.is_nan(), "{len}: {x}, {sum}"),
            }
        }
    }
}

#[test]
fn threads_do_not_change_the_bits() {
    let run = |device: &Device, part: usize| {
        let case = Case::new(device, [3, 200, 200, 4, 16], true);
        let settings = case.settings(4, true, true);
        let (out, lse) = segment_attention(&case.q, &case.kv, &settings).unwrap();
        let (dq, dkv) =
            segment_attention_grad([&case.q, &case.kv], &out, &lse, &out, &settings).unwrap();
        [out, dq, dkv].into_iter().nth(part).unwrap()
    };
    for part in 0..3 {
        assert_same_bits_for_any_threads(|device| run(device, part));
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let device = device();
    let case = Case::new(&device, [2, 5, 7, 2, 3], false);
    let settings = case.settings(2, false, false);
    let refused = |q: &Tensor, settings: &SegmentAttention<'_>| {
        let error = segment_attention(q, &case.kv, settings).unwrap_err();
        error.to_string()
    };
    let causal = SegmentAttention {
        causal: true,
        ..settings
    };
    assert!(refused(&case.q, &causal).contains("T = S"));
    let heads = SegmentAttention {
        heads: 4,
        ..settings
    };
    assert!(refused(&case.q, &heads).contains("multiple of 4 heads"));
    let swapped = SegmentAttention {
        query_segments: &case.key_segments,
        ..settings
    };
    assert!(refused(&case.q, &swapped).contains("segments of shape [2, 5]"));
}
