//! The kernels of packed rows: attention between positions of a segment, and positions counted within segments.

use super::memory::{Memory, near, random, rounded, same};
use super::reference::{SINGLE, tensor};
use super::{Gpu, Outcome};
use crate::ops::dropout::kernels::Numbers;
use crate::ops::segment_attention::kernels::{self, Gradient, Operands, Sizes};
use crate::ops::{self, Dropout, SegmentAttention};
use crate::philox::Key;
use crate::testing::device;
use crate::{DType, Tensor};

/// Runs of segments, padding among them, and one that is nowhere else.
fn segments(samples: usize, len: usize, step: usize) -> Vec<u32> {
    let segment = |i: usize| match (i % len / step + i / len) % 5 {
        4 => 0,
        3 => 90 + step as u32,
        segment => segment as u32 + 1,
    };
    (0..samples * len).map(segment).collect()
}

pub(super) fn segment_attention(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    for (sizes, causal, rate) in [
        ([1, 1, 1, 1, 1], false, 0.0),
        ([2, 5, 7, 2, 3], false, 0.0),
        ([2, 37, 37, 2, 33], true, 0.3),
        ([1, 3, 130, 3, 8], false, 0.3),
        ([1, 70, 9, 1, 100], false, 0.0),
    ] {
        attend(gpu, stored, sizes, causal, rate)?;
    }
    overflow(gpu, stored)
}

/// A query whose only score is no number has no result, and one that sees nothing has zeros.
fn overflow(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    for score in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let [q, kv] = [[score, 1.0], [1.0, 1.0]].map(|values| Memory::floats(stored, &values));
        let [of_queries, of_keys] = [vec![1, 2], vec![1]].map(|all| Memory::indices(&all));
        let (out, lse) = (Memory::room(stored, 2), Memory::room(SINGLE, 2));
        let from = Operands {
            q: q.at(),
            kv: kv.at(),
            of_queries: of_queries.at(),
            of_keys: of_keys.at(),
        };
        let sizes = Sizes {
            samples: 1,
            queries: 2,
            keys: 1,
            heads: 1,
            size: 1,
            causal: false,
            dropout: Numbers::NONE,
        };
        let launch = kernels::forward(stored, from, [out.at(), lse.at()], sizes);
        gpu.run(launch, [&q, &kv, &of_queries, &of_keys, &out, &lse])?;
        let (out, lse) = (out.values(stored), lse.values(SINGLE));
        let is_right = out[0].is_nan() && lse[0].is_nan() && out[1] == 0.0;
        if !is_right || lse[1] != f32::INFINITY {
            return Err(format!("a score of {score}: {out:?} and {lse:?}"));
        }
    }
    Ok(())
}

fn attend(
    gpu: &Gpu<'_>,
    stored: DType,
    [samples, queries, keys, heads, size]: [usize; 5],
    causal: bool,
    rate: f32,
) -> Outcome {
    let width = heads * size;
    let (first, key) = (11, Key::new(5, "attn", 2));
    let dropout = Dropout {
        rate,
        key,
        samples: first..first + samples as u64,
    };
    let mask = dropout.mask("attention", samples).expect("a rate below 1");
    let sizes = Sizes {
        samples,
        queries,
        keys,
        heads,
        size,
        causal,
        dropout: mask.map_or(Numbers::NONE, |mask| Numbers::new(mask, key, first)),
    };
    let of_queries = segments(samples, queries, queries.div_ceil(6));
    let of_keys = match causal {
        true => of_queries.clone(),
        false => segments(samples, keys, keys.div_ceil(5)),
    };
    let indices = |len, indices: &[u32]| {
        Tensor::from_u32(&device(), [samples, len], indices.to_vec()).expect("a segment each")
    };
    let settings = SegmentAttention {
        heads,
        causal,
        query_segments: &indices(queries, &of_queries),
        key_segments: &indices(keys, &of_keys),
        dropout: Some(&dropout),
    };
    let mut q = random(stored, samples * queries * width, 1);
    q.iter_mut().for_each(|x| *x = rounded(stored, *x * 2.0));
    let kv = random(stored, samples * keys * 2 * width, 2);
    let d_out = random(stored, q.len(), 3);
    let host = |values: &[f32]| tensor([samples, queries, width], values);
    let (t_q, t_kv) = (host(&q), tensor([samples, keys, 2 * width], &kv));
    let (out, lse) = ops::segment_attention(&t_q, &t_kv, &settings).expect("operands fit");
    let [m_q, m_kv, m_d_out] = [&q, &kv, &d_out].map(|values| Memory::floats(stored, values));
    let [m_of_queries, m_of_keys] = [&of_queries, &of_keys].map(|all| Memory::indices(all));
    let [m_out, m_dq] = [0; 2].map(|_| Memory::room(stored, q.len()));
    let m_dkv = Memory::room(stored, kv.len());
    let m_lse = Memory::room(SINGLE, samples * heads * queries);
    let from = Operands {
        q: m_q.at(),
        kv: m_kv.at(),
        of_queries: m_of_queries.at(),
        of_keys: m_of_keys.at(),
    };
    let operands = [&m_q, &m_kv, &m_of_queries, &m_of_keys, &m_out, &m_lse];
    let launch = kernels::forward(stored, from, [m_out.at(), m_lse.at()], sizes);
    gpu.run(launch, operands)?;
    near("out", stored, &m_out, out.f32s().expect("floats"), 4e-6)?;
    let sums = lse.f32s().expect("floats").iter();
    for (got, wanted) in m_lse.values(SINGLE).into_iter().zip(sums) {
        let close = (got - wanted).abs() <= 4e-6 * wanted.abs().max(1.0);
        if got != *wanted && !close {
            return Err(format!("lse: {got}, not {wanted}"));
        }
    }
    // The gradient from the very numbers that the kernels read.
    let out = host(&m_out.values(stored));
    let lse = tensor([samples, heads, queries], &m_lse.values(SINGLE));
    let grads = ops::segment_attention_grad([&t_q, &t_kv], &out, &lse, &host(&d_out), &settings);
    let (dq, dkv) = grads.expect("operands fit");
    let at = Gradient {
        out: m_out.at(),
        lse: m_lse.at(),
        d_out: m_d_out.at(),
        dq: m_dq.at(),
        dkv: m_dkv.at(),
    };
    let launches = kernels::backward(stored, from, at, sizes);
    let results = [&m_d_out, &m_dq, &m_dkv];
    gpu.run(
        launches.into_iter().flatten(),
        operands.into_iter().chain(results),
    )?;
    near("dq", stored, &m_dq, dq.f32s().expect("floats"), 1e-5)?;
    near("dkv", stored, &m_dkv, dkv.f32s().expect("floats"), 1e-5)
}

pub(super) fn sinusoid(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    use ops::sinusoid::{kernels, ratio};
    for ([samples, len, width], first) in [
        ([1, 1, 2], 0),
        ([2, 7, 66], 0),
        ([3, 40, 8], 300),
        ([1, 150, 130], 0),
    ] {
        // The last row is one segment, whose first position is many steps of a warp away.
        let mut ids = segments(samples, len, len.div_ceil(9));
        ids[(samples - 1) * len..].fill(3);
        let mut y = tensor(
            [samples, len, width],
            &random(stored, samples * len * width, 1),
        );
        let m_y = Memory::floats(stored, y.f32s().expect("floats"));
        let m_segments = Memory::indices(&ids);
        let ids = Tensor::from_u32(&device(), [samples, len], ids).expect("a segment each");
        ops::scale_and_add_positions(&mut y, &ids, first, 0.7).expect("operands fit");
        let launch = kernels::positions(
            stored,
            [m_y.at(), m_segments.at()],
            [samples * len, len, width],
            (first, ratio(width / 2)),
            0.7,
        );
        gpu.run([launch], [&m_y, &m_segments])?;
        same("positions", stored, &m_y, y.f32s().expect("floats"))?;
    }
    Ok(())
}
