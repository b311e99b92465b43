//! Kernels that work element by element: the same bits as the processor's.

use super::memory::{Memory, as_good, random, rounded, same};
use super::reference::{computed, tensor};
use super::{EDGES, Gpu, Outcome};
use crate::DType;
use crate::cuda::entry::Pointer;
use crate::cuda::table::{CHUNK, Table};
use crate::ops::{self, Dropout, Gelu};
use crate::philox::Key;

pub(super) fn add(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    for (rows, width) in EDGES
        .map(|n| (3, n))
        .into_iter()
        .chain([(1, 257), (5, 1), (0, 4)])
    {
        let n = rows * width;
        let (a, b) = (random(stored, n, 1), random(stored, width, 2));
        let [ta, tb] = [tensor([rows, width], &a), tensor([width], &b)];
        let wanted = computed(ops::add(&ta, &tb));
        let [ma, mb] = [&a, &b].map(|values| Memory::floats(stored, values));
        let out = Memory::room(stored, n);
        let launch = ops::add::kernels::add(stored, ma.at(), mb.at(), out.at(), n, width);
        gpu.run([launch], [&ma, &mb, &out])?;
        same("a + repeated b", stored, &out, &wanted)?;
        // In place, and operands of the same size.
        let launch = ops::add::kernels::add(stored, out.at(), ma.at(), out.at(), n, n);
        gpu.run([launch], [&ma, &out])?;
        let sums: Vec<f32> = wanted.iter().map(|&x| rounded(stored, x)).collect();
        let wanted = computed(ops::add(&tensor([n], &sums), &tensor([n], &a)));
        same("out + a", stored, &out, &wanted)?;
        // A sum in single precision of anything.
        let sums = random(DType::F32, n, 3);
        let total = Memory::floats(DType::F32, &sums);
        gpu.run(
            [ops::add::kernels::accumulate(
                stored,
                total.at(),
                ma.at(),
                n,
            )],
            [&total, &ma],
        )?;
        let wanted = computed(ops::add(&tensor([n], &sums), &tensor([n], &a)));
        same("sum + a", DType::F32, &total, &wanted)?;
        let out = Memory::room(stored, n);
        gpu.run(
            [ops::add::kernels::repeat(
                stored,
                mb.at(),
                out.at(),
                n,
                width,
            )],
            [&mb, &out],
        )?;
        same("repeated b", stored, &out, &b.repeat(rows))?;
    }
    Ok(())
}

pub(super) fn scale(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    use ops::scale::kernels;
    for n in EDGES.into_iter().chain([1000]) {
        let x = random(stored, n, 1);
        let memory = Memory::floats(stored, &x);
        let out = Memory::room(stored, n);
        gpu.run(
            [kernels::scale(stored, memory.at(), out.at(), n, -0.3)],
            [&memory, &out],
        )?;
        same(
            "scaled",
            stored,
            &out,
            &computed(ops::scale(&tensor([n], &x), -0.3)),
        )?;
        gpu.run([kernels::fill(stored, out.at(), n, 0.1)], [&out])?;
        same("filled", stored, &out, &vec![0.1; n])?;
        zeros(gpu, n)?;
        let wide = Memory::room(DType::F32, n);
        gpu.run(
            [kernels::widen(stored, memory.at(), wide.at(), n)],
            [&memory, &wide],
        )?;
        same("widened", DType::F32, &wide, &x)?;
        // What no number of 16 bits is, ties included, and what is beyond or no number at all.
        let mut any = random(DType::F32, n, 2);
        let special = [
            f32::from_bits(0x3F80_8000),
            f32::from_bits(0x3F81_8000),
            f32::MAX,
            f32::INFINITY,
            f32::NAN,
            f32::from_bits(0x7F80_0001),
            -0.0,
            1e-40,
        ];
        any.iter_mut()
            .zip(special)
            .for_each(|(x, special)| *x = special);
        let memory = Memory::floats(DType::F32, &any);
        gpu.run(
            [kernels::narrow(stored, memory.at(), out.at(), n)],
            [&memory, &out],
        )?;
        same("narrowed", stored, &out, &any)?;
    }
    Ok(())
}

/// Of some tensors in one launch, of which the largest takes several blocks.
fn zeros(gpu: &Gpu<'_>, n: usize) -> Outcome {
    let sizes = [n, 0, CHUNK + n, 5];
    let made = sizes.map(|n| Memory::floats(DType::F32, &vec![7.0; n]));
    let mut table = Table::default();
    for (memory, n) in made.iter().zip(sizes) {
        table.push(&[memory.at()], n);
    }
    let rows = Memory::words(table.words());
    let launch = ops::scale::kernels::zeros(&table, rows.at());
    gpu.run([launch], made.iter().chain([&rows]))?;
    let mut all = made.iter().zip(sizes);
    all.try_for_each(|(memory, n)| same("zeros", DType::F32, memory, &vec![0.0; n]))
}

pub(super) fn relu(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    use ops::relu::kernels;
    for n in EDGES.into_iter().chain([1000]) {
        let (mut x, dy) = (random(stored, n, 1), random(stored, n, 2));
        let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        x.iter_mut()
            .zip(special)
            .for_each(|(x, special)| *x = special);
        let y = ops::relu(&tensor([n], &x)).expect("floats");
        let [mx, mdy] = [&x, &dy].map(|values| Memory::floats(stored, values));
        let [my, mdx] = [0; 2].map(|_| Memory::room(stored, n));
        gpu.run([kernels::forward(stored, mx.at(), my.at(), n)], [&mx, &my])?;
        same("relu", stored, &my, y.f32s().expect("floats"))?;
        let launch = kernels::backward(stored, my.at(), mdy.at(), mdx.at(), n);
        gpu.run([launch], [&my, &mdy, &mdx])?;
        let wanted = computed(ops::relu_grad(&y, &tensor([n], &dy)));
        same("relu_grad", stored, &mdx, &wanted)?;
        let slope = 0.01;
        let y = ops::leaky_relu(&tensor([n], &x), slope).expect("floats");
        let launch = kernels::leaky(stored, mx.at(), my.at(), n, slope);
        gpu.run([launch], [&mx, &my])?;
        same("leaky_relu", stored, &my, y.f32s().expect("floats"))?;
        let launch = kernels::leaky_grad(stored, my.at(), mdy.at(), mdx.at(), n, slope);
        gpu.run([launch], [&my, &mdy, &mdx])?;
        let wanted = computed(ops::leaky_relu_grad(&y, &tensor([n], &dy), slope));
        same("leaky_relu_grad", stored, &mdx, &wanted)?;
    }
    Ok(())
}

pub(super) fn gelu(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    for form in [Gelu::Tanh, Gelu::Erf] {
        for n in EDGES.into_iter().chain([3000]) {
            gelu_of(gpu, stored, form, 1, n)?;
            gelu_of(gpu, stored, form, 3, n)?;
        }
    }
    Ok(())
}

/// With a bias where there are several rows.
fn gelu_of(gpu: &Gpu<'_>, stored: DType, form: Gelu, rows: usize, width: usize) -> Outcome {
    use ops::gelu::kernels;
    let n = rows * width;
    let mut x = random(stored, n, 1);
    x.iter_mut().for_each(|x| *x = rounded(stored, *x * 9.0));
    let special = [1e30, -1e30, f32::INFINITY, f32::NAN, 0.0, -0.0, 14.5, -14.6];
    x.iter_mut()
        .zip(special)
        .for_each(|(x, special)| *x = rounded(stored, special));
    let (bias, dy) = (random(stored, width, 2), random(stored, n, 3));
    let [mx, mbias, mdy] = [&x, &bias, &dy].map(|values| Memory::floats(stored, values));
    let [my, mdx] = [0; 2].map(|_| Memory::room(stored, n));
    let (biased, at) = match rows {
        1 => (tensor([n], &x), Pointer::NULL),
        _ => {
            let sum = ops::add(&tensor([rows, width], &x), &tensor([width], &bias));
            (tensor([n], &computed(sum)), mbias.at())
        }
    };
    let launch = kernels::forward(form, stored, mx.at(), at, my.at(), n, width);
    gpu.run([launch], [&mx, &mbias, &my])?;
    as_good("gelu", stored, &my, &computed(ops::gelu(&biased, form)))?;
    let launch = kernels::backward(
        form,
        stored,
        kernels::Backward {
            x: mx.at(),
            bias: at,
            dy: mdy.at(),
            dx: mdx.at(),
        },
        n,
        width,
    );
    gpu.run([launch], [&mx, &mbias, &mdy, &mdx])?;
    let wanted = computed(ops::gelu_grad(&biased, &tensor([n], &dy), form));
    as_good("gelu_grad", stored, &mdx, &wanted)?;
    if rows > 1 {
        return Ok(());
    }
    // Over dy, with the bits of the two.
    let alone = Memory::room(stored, n);
    let launch = kernels::with_grad(form, stored, [mx.at(), alone.at(), mdy.at()], n);
    gpu.run([launch], [&mx, &alone, &mdy])?;
    same("gelu again", stored, &alone, &my.values(stored))?;
    same("gelu_with_grad", stored, &mdy, &mdx.values(stored))
}

pub(super) fn dropout(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    use ops::dropout::kernels::{self, Numbers};
    for width in EDGES.into_iter().chain([63, 64, 65, 1000]) {
        for (rate, first) in [(0.3, 0), (0.9, u64::from(u32::MAX) - 1)] {
            let samples = 3;
            let x = random(stored, samples * width, 1);
            let dropout = Dropout {
                rate,
                key: Key::new(7, "transformer.drop", 3),
                samples: first..first + samples as u64,
            };
            let wanted = computed(ops::dropout(tensor([samples, width], &x), &dropout));
            let mask = dropout.mask("dropout", samples).expect("a rate below 1");
            let by = Numbers::new(mask.expect("a rate above 0"), dropout.key, first);
            let memory = Memory::floats(stored, &x);
            let launch = kernels::dropout(stored, memory.at(), memory.at(), samples, width, by);
            gpu.run([launch], [&memory])?;
            same("dropout", stored, &memory, &wanted)?;
            let pixels = 2;
            let x = random(stored, samples * pixels * width, 2);
            let host = tensor([samples, pixels, width], &x);
            let wanted = computed(ops::dropout_channels(host, &dropout));
            let memory = Memory::floats(stored, &x);
            let extents = [samples, pixels, width];
            gpu.run(
                [kernels::channels(stored, memory.at(), extents, by)],
                [&memory],
            )?;
            same("dropout of channels", stored, &memory, &wanted)?;
        }
    }
    Ok(())
}
