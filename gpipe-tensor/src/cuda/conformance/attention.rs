//! The kernels of attention.

use super::memory::{Memory, near, random, rounded};
use super::{Gpu, Outcome, is_exam};
use crate::ops::attention::kernels::{Gradient, Sizes};
use crate::ops::attention::launches;
use crate::ops::attention::tensor_cores::TensorCores;
use crate::ops::dropout::kernels::Numbers;
use crate::ops::{self, Dropout, Heads};
use crate::philox::Key;
use crate::testing::device;
use crate::{DType, Tensor};

/// How the elements of heads are multiplied.
#[derive(Clone, Copy)]
struct Factors {
    stored: DType,
    cores: TensorCores,
}

/// The kernel for heads of any size.
pub(super) fn plain(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    let plain = Factors::of(stored);
    for len in [0, 1, 2, 31, 32, 33, 65] {
        attention_of(gpu, plain, [1, len, 2, 8], 2.into(), 0.0)?;
        attention_of(gpu, plain, [1, len, 1, 5], 1.into(), 0.3)?;
    }
    for (queries, groups, window) in [(6, 2, None), (2, 2, Some(1)), (4, 1, Some(40))] {
        let heads = Heads {
            queries,
            groups,
            window,
        };
        for len in [1, 33, 97] {
            attention_of(gpu, plain, [2, len, queries, 8], heads, 0.2)?;
        }
    }
    // Tiles of every size that there is room for, and several samples.
    for (size, len) in [
        (1, 129),
        (64, 33),
        (80, 40),
        (200, 17),
        (400, 9),
        (800, 5),
        (1500, 3),
        (2048, 2),
    ] {
        attention_of(gpu, plain, [1, len, 1, size], 1.into(), 0.0)?;
    }
    attention_of(gpu, plain, [3, 35, 3, 16], 3.into(), 0.2)
}

/// Samples, size of a head, length, heads of queries and of keys, window, and rate of dropout.
type Shape = (usize, usize, usize, usize, usize, Option<usize>, f32);

/// On tensor cores: tiles that are whole, cut, and several of them. Grouped queries and windows, heads as Llama, Phi, Qwen
/// and Mistral have them. Windows that end within a tile, leave out whole ones at the start of a block, or show
/// some rows nothing of a tile that others see.
const SHAPES: [Shape; 9] = [
    (1, 32, 70, 4, 2, None, 0.2),
    (1, 64, 1, 1, 1, None, 0.0),
    (1, 64, 129, 1, 1, None, 0.0),
    (1, 64, 40, 6, 2, Some(7), 0.3),
    (1, 80, 64, 1, 1, None, 0.0),
    (1, 96, 97, 2, 1, Some(31), 0.0),
    (1, 128, 33, 4, 2, None, 0.0),
    (1, 128, 133, 1, 1, Some(40), 0.1),
    (3, 32, 45, 4, 2, Some(20), 0.2),
];

/// More of them, for an exam.
const MORE_SHAPES: [Shape; 15] = [
    (1, 32, 200, 1, 1, None, 0.0),
    (2, 32, 33, 2, 2, None, 0.3),
    (1, 64, 70, 1, 1, None, 0.2),
    (1, 64, 133, 8, 1, None, 0.0),
    (1, 64, 200, 1, 1, Some(1), 0.0),
    (1, 64, 270, 2, 1, Some(33), 0.0),
    (1, 80, 140, 2, 2, Some(65), 0.0),
    (1, 96, 97, 1, 1, None, 0.0),
    (1, 96, 97, 4, 1, Some(96), 0.0),
    (1, 96, 150, 2, 1, Some(31), 0.0),
    (1, 128, 20, 2, 1, Some(64), 0.1),
    (1, 128, 33, 8, 2, None, 0.0),
    (1, 128, 133, 1, 1, None, 0.1),
    (1, 128, 161, 2, 1, Some(40), 0.0),
    (1, 128, 270, 1, 1, None, 0.0),
];

pub(super) fn on_tensor_cores(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    let single = stored == DType::F32;
    let cores = TensorCores {
        tf32: single,
        warpgroups: !single,
    };
    let more: &[Shape] = if is_exam() { &MORE_SHAPES } else { &[] };
    for factors in [Factors::of(stored), Factors { stored, cores }] {
        for &(samples, size, len, queries, groups, window, rate) in SHAPES.iter().chain(more) {
            let heads = Heads {
                queries,
                groups,
                window,
            };
            attention_of(gpu, factors, [samples, len, queries, size], heads, rate)?;
        }
    }
    Ok(())
}

impl Factors {
    /// By the instructions that every GPU with tensor cores has, without loss of precision.
    fn of(stored: DType) -> Self {
        let cores = TensorCores::default();
        Self { stored, cores }
    }

    /// The kernel of the forward pass that takes heads of this size.
    fn kernel(self, size: usize) -> String {
        let on_tensor_cores = [32, 64, 80, 96, 128].contains(&size);
        let by_warpgroups = self.cores.warpgroups && [64, 128].contains(&size);
        match (on_tensor_cores, self.stored, self.cores.tf32) {
            (false, stored, _) => format!("attention_{stored}"),
            (_, DType::BF16, _) if by_warpgroups => format!("attention_by_warpgroups_{size}_bf16"),
            (_, DType::F32, true) => format!("attention_tf32_{size}_f32"),
            (_, DType::F32, false) => format!("attention_tf32x3_{size}_f32"),
            (_, stored, _) => format!("attention_{size}_{stored}"),
        }
    }

    /// Relative and absolute error of results and gradients. Where tensor cores multiply bf16, probabilities and slopes are
    /// rounded to it before the second product, by half of 2⁻⁸ each; sums over a row of them err by less than that of
    /// the largest one, and products with the keys by as much as many of them. TF32 rounds all factors by half of 2⁻¹⁰, and
    /// what three products of it leave out is below 2⁻²².
    fn tolerances(self, kernel: &str) -> [f32; 2] {
        let [by_tf32, by_three] = ["_tf32_", "_tf32x3_"].map(|name| kernel.contains(name));
        match (self.stored, by_tf32, by_three) {
            (DType::F32, true, _) => [4e-3, 1e-2],
            (_, _, true) => [4e-6, 1e-5],
            (DType::BF16, ..) if kernel != "attention_bf16" => [4e-3, 1e-2],
            _ => [4e-6, 1e-5],
        }
    }
}

fn attention_of(
    gpu: &Gpu<'_>,
    factors: Factors,
    [samples, len, queries, size]: [usize; 4],
    heads: Heads,
    rate: f32,
) -> Outcome {
    let Factors { stored, cores } = factors;
    let single = DType::F32;
    let width = queries * size;
    let columns = width + 2 * heads.groups * size;
    let mut qkv = random(stored, samples * len * columns, 1);
    qkv.iter_mut().for_each(|x| *x = rounded(stored, *x * 2.0));
    let d_out = random(stored, samples * len * width, 2);
    let first = 11;
    let dropout = Dropout {
        rate,
        key: Key::new(5, "attn.drop", 2),
        samples: first..first + samples as u64,
    };
    let mask = dropout.mask("attention", samples).expect("a rate below 1");
    let sizes = Sizes {
        samples,
        len,
        heads: queries,
        groups: heads.groups,
        window: heads.window.unwrap_or(len).min(len),
        size,
        dropout: mask.map_or(Numbers::NONE, |mask| Numbers::new(mask, dropout.key, first)),
    };
    let host = |values: &[f32], columns: usize| {
        let shape = [samples, len, columns];
        Tensor::from_f32(&device(), shape, values).expect("as many values as elements")
    };
    let t_qkv = host(&qkv, columns);
    let (out, lse) = ops::attention(&t_qkv, heads, Some(&dropout)).expect("operands fit");
    let [m_qkv, m_d_out] = [&qkv, &d_out].map(|values| Memory::floats(stored, values));
    let m_out = Memory::room(stored, samples * len * width);
    let m_dqkv = Memory::room(stored, qkv.len());
    let [m_lse, m_means] = [0; 2].map(|_| Memory::room(single, samples * queries * len));
    let launch = launches::forward(stored, cores, m_qkv.at(), m_out.at(), m_lse.at(), sizes);
    let kernel = factors.kernel(size);
    let name = launch.as_ref().map(|launch| launch.form.name());
    assert_eq!(name.as_ref(), Some(&kernel));
    gpu.run(launch, [&m_qkv, &m_out, &m_lse])?;
    let [of_result, of_gradient] = factors.tolerances(&kernel);
    near(
        "out",
        stored,
        &m_out,
        out.f32s().expect("floats"),
        of_result,
    )?;
    // Rounded queries and keys make other scores.
    let of_sums = if cores.tf32 { of_result } else { 4e-6 };
    near("lse", single, &m_lse, lse.f32s().expect("floats"), of_sums)?;
    // The gradient from the very numbers that the kernels read.
    let out = host(&m_out.values(stored), width);
    let lse = Tensor::from_f32(&device(), lse.shape().clone(), m_lse.values(single));
    let lse = lse.expect("as many values as elements");
    let d_out = host(&d_out, width);
    let dqkv = ops::attention_grad(&t_qkv, &out, &lse, &d_out, heads, Some(&dropout));
    let at = Gradient {
        qkv: m_qkv.at(),
        out: m_out.at(),
        lse: m_lse.at(),
        means: m_means.at(),
        d_out: m_d_out.at(),
        dqkv: m_dqkv.at(),
    };
    let Some(launches) = launches::backward(stored, cores, at, sizes) else {
        assert!(size > 2000, "the gradient has no room for heads of {size}");
        return Ok(());
    };
    gpu.run(
        launches,
        [&m_qkv, &m_out, &m_lse, &m_means, &m_d_out, &m_dqkv],
    )?;
    let dqkv = dqkv.expect("operands fit");
    near(
        "dqkv",
        stored,
        &m_dqkv,
        dqkv.f32s().expect("floats"),
        of_gradient,
    )
}
