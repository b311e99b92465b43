//! The kernels of Llama's blocks: normalization, positions and gates.

use super::memory::{Memory, as_good, near, random, rounded, same};
use super::reference::{SINGLE, floats, sums_of, tensor};
use super::{EDGES, Gpu, Outcome};
use crate::cuda::entry::Pointer;
use crate::ops::{self, Gain, Gate, RopeScaling};
use crate::{DType, Tensor};

pub(super) fn rms_norm(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    for width in EDGES.into_iter().skip(1).chain([1024, 1025]) {
        for rows in [1, 9, 33, 70] {
            rms_norm_of(gpu, stored, [rows, width], 0.0)?;
        }
    }
    rms_norm_of(gpu, stored, [257, 33], 1.0)?;
    rms_norm_of(gpu, stored, [511, 8], 0.0)?;
    Ok(())
}

fn rms_norm_of(gpu: &Gpu<'_>, stored: DType, [rows, width]: [usize; 2], base: f32) -> Outcome {
    use ops::rms_norm::kernels::{self, Gradient};
    use ops::sum::kernels::Spans;
    let (eps, n) = (1e-5, rows * width);
    let [x, dy] = [1, 2].map(|seed| random(stored, n, seed));
    let gain = random(stored, width, 3);
    let [tx, tdy] = [&x, &dy].map(|values| tensor([rows, width], values));
    let tgain = tensor([width], &gain);
    let whole = Gain {
        values: &tgain,
        base,
    };
    let (y, inverse) = ops::rms_norm(&tx, whole, eps).expect("operands fit");
    let [mx, mdy, mgain] = [&x, &dy, &gain].map(|values| Memory::floats(stored, values));
    let [my, mdx] = [0; 2].map(|_| Memory::room(stored, n));
    let minverse = Memory::room(SINGLE, rows);
    let launch = kernels::forward(
        stored,
        [mx.at(), mgain.at()],
        my.at(),
        minverse.at(),
        [rows, width],
        [base, eps],
    );
    gpu.run([launch], [&mx, &mgain, &my, &minverse])?;
    near("rms_norm", stored, &my, floats(&y), 4e-6)?;
    for (got, wanted) in minverse.values(SINGLE).iter().zip(floats(&inverse)) {
        if (got / wanted - 1.0).abs() > 1e-5 {
            return Err(format!("a factor of {got}, not {wanted}"));
        }
    }
    // The gradients from the very factors that the kernel reads.
    let inverse = tensor([rows], &minverse.values(SINGLE));
    let (dx, dgain) = ops::rms_norm_grad(&tx, &inverse, whole, &tdy, None).expect("operands fit");
    let partials = Memory::room(SINGLE, Spans::new(stored, rows, width).count() * width);
    let mdgain = Memory::floats(SINGLE, &vec![7.0; width]);
    let around = random(stored, n, 4);
    let maround = Memory::floats(stored, &around);
    let backward = |onto| {
        let at = Gradient {
            x: mx.at(),
            inverse: minverse.at(),
            gain: mgain.at(),
            base,
            dy: mdy.at(),
            onto,
            dx: mdx.at(),
            partials: partials.at(),
            dgain: mdgain.at(),
        };
        let used = [
            &mx, &minverse, &mgain, &mdy, &maround, &mdx, &partials, &mdgain,
        ];
        gpu.run(kernels::backward(stored, at, rows, width), used)
    };
    backward(Pointer::NULL)?;
    // A short row may be nearly 0: its gradient is large, and so are its roundings.
    let tolerance = if width < 8 { 1e-3 } else { 1e-5 };
    near("rms_norm_grad", stored, &mdx, floats(&dx), tolerance)?;
    let sum = sums_of(&mdx.values(stored), &around);
    backward(maround.at())?;
    same("rms_norm_grad onto another", stored, &mdx, &sum)?;
    near(
        "gradient of the gain",
        SINGLE,
        &mdgain,
        floats(&dgain),
        1e-5 * (rows as f32 / 64.0).sqrt().max(1.0),
    )
}

pub(super) fn rope(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    // Of a head of 130, pairs turn as they did, slower, and in between.
    let llama3 = RopeScaling::Llama3 {
        factor: 8.0,
        low_frequency: 1.0,
        high_frequency: 4.0,
        original_positions: 8192,
    };
    for (sizes, scaling) in [
        ([1, 1, 1, 1, 2], RopeScaling::Unscaled),
        ([2, 5, 3, 1, 6], RopeScaling::Linear { factor: 3.0 }),
        ([1, 33, 4, 2, 64], RopeScaling::Unscaled),
        ([3, 2, 2, 2, 130], llama3),
    ] {
        rope_of(gpu, stored, sizes, scaling)?;
    }
    Ok(())
}

fn rope_of(
    gpu: &Gpu<'_>,
    stored: DType,
    [samples, len, heads, groups, size]: [usize; 5],
    scaling: RopeScaling,
) -> Outcome {
    use ops::rope::angles::Angles;
    use ops::rope::kernels::{self, Sizes};
    let theta = 1e4_f64;
    let at = ops::Rope {
        size,
        theta,
        scaling,
        first: 70_000,
    };
    let sizes = Sizes {
        samples,
        len,
        heads,
        groups,
        size,
        angles: Angles::new(theta.powf(-2.0 / size as f64), scaling),
        first: at.first,
    };
    let rows = samples * len;
    let widths = [heads, groups, groups].map(|heads| heads * size);
    let parts: Vec<Vec<f32>> = (1..)
        .zip(widths)
        .map(|(seed, width)| random(stored, rows * width, seed))
        .collect();
    let host: Vec<Tensor> = parts
        .iter()
        .zip(widths)
        .map(|(part, width)| tensor([samples, len, width], part))
        .collect();
    let [q, k, v] = [0, 1, 2].map(|i| Memory::floats(stored, &parts[i]));
    let columns = widths.iter().sum::<usize>();
    let qkv = Memory::room(stored, rows * columns);
    let launch = kernels::forward(stored, [q.at(), k.at(), v.at()], qkv.at(), sizes);
    gpu.run([launch], [&q, &k, &v, &qkv])?;
    let wanted = ops::rope(&host[0], &host[1], &host[2], &at).expect("operands fit");
    same("rope", stored, &qkv, floats(&wanted))?;
    let dqkv = random(stored, rows * columns, 4);
    let wanted = ops::rope_grad(&tensor([samples, len, columns], &dqkv), groups, &at);
    let dqkv = Memory::floats(stored, &dqkv);
    let [dq, dk, dv] = widths.map(|width| Memory::room(stored, rows * width));
    let launch = kernels::backward(stored, dqkv.at(), [dq.at(), dk.at(), dv.at()], sizes);
    gpu.run([launch], [&dqkv, &dq, &dk, &dv])?;
    for (part, wanted) in [dq, dk, dv].iter().zip(&wanted.expect("operands fit")) {
        same("rope_grad", stored, part, floats(wanted))?;
    }
    Ok(())
}

pub(super) fn glu(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    for function in [Gate::Silu, Gate::GeluTanh] {
        glu_of(gpu, stored, function)?;
    }
    Ok(())
}

fn glu_of(gpu: &Gpu<'_>, stored: DType, function: Gate) -> Outcome {
    use ops::glu::kernels;
    for n in EDGES.into_iter().chain([3000]) {
        let mut gate = random(stored, n, 1);
        gate.iter_mut()
            .for_each(|x| *x = rounded(stored, *x * 20.0));
        let special = [1e30, -1e30, f32::NAN, 0.0, -0.0, 110.0, -110.0];
        gate.iter_mut()
            .zip(special)
            .for_each(|(x, special)| *x = rounded(stored, special));
        let [up, dy] = [2, 3].map(|seed| random(stored, n, seed));
        let mut host = [&gate, &up, &dy].map(|values| tensor([n], values));
        let memories = [&gate, &up, &dy].map(|values| Memory::floats(stored, values));
        let y = Memory::room(stored, n);
        let [mgate, mup, mdy] = &memories;
        let launch = kernels::forward(function, stored, mgate.at(), mup.at(), y.at(), n);
        gpu.run([launch], [mgate, mup, &y])?;
        let wanted = ops::glu(function, &host[0], &host[1]).expect("operands fit");
        as_good("glu", stored, &y, floats(&wanted))?;
        let launch = kernels::backward(function, stored, mgate.at(), mup.at(), mdy.at(), n);
        gpu.run([launch], [mgate, mup, mdy])?;
        let [hgate, hup, hdy] = &mut host;
        ops::glu_with_grad(function, hgate, hup, hdy).expect("operands fit");
        for (memory, wanted) in memories.iter().zip(&host) {
            as_good("glu_with_grad", stored, memory, floats(wanted))?;
        }
    }
    Ok(())
}
