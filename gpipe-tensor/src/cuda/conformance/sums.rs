//! Kernels of sums, over whole tensors and over rows, and of the losses that are such sums.

use super::memory::{Memory, near, random, rounded, same};
use super::reference::{SINGLE, floats, near_double, tensor};
use super::{EDGES, Gpu, Outcome};
use crate::ops;
use crate::ops::sum::kernels::{CHUNK, Reduction};
use crate::testing::device;
use crate::{DType, Tensor};

pub(super) fn sum(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    for n in EDGES.into_iter().chain([CHUNK, CHUNK + 1, 2 * CHUNK + 300]) {
        whole_sums(gpu, stored, n)?;
    }
    for width in EDGES {
        for rows in [0, 1, 31, 32, 33, 65, 257] {
            rows_of(gpu, stored, rows, width)?;
        }
    }
    // Runs of several lengths.
    for rows in [65_601, 131_075] {
        rows_of(gpu, stored, rows, 3)?;
    }
    Ok(())
}

fn whole_sums(gpu: &Gpu<'_>, stored: DType, n: usize) -> Outcome {
    use ops::sum::kernels::reduce;
    let x = random(stored, n, 1);
    let (host, x) = (tensor([n], &x), Memory::floats(stored, &x));
    let parts = n.div_ceil(CHUNK);
    for (reduction, wanted) in [
        (Reduction::Sum, ops::sum(&host)),
        (Reduction::Squares, ops::sum_of_squares(&host)),
    ] {
        let partials = Memory::unwritten(parts * 8);
        gpu.run(
            [reduce(reduction, stored, x.at(), partials.at(), n)],
            [&x, &partials],
        )?;
        let got = partials.doubles().into_iter().sum();
        near_double("sum", got, wanted.expect("floats"), 1e-12)?;
    }
    for (place, special) in [
        (n / 2, f32::NAN),
        (n / 3, -2.5),
        (n - n.min(1), f32::INFINITY),
    ] {
        let mut x = floats(&host).to_vec();
        x.iter_mut().skip(place).take(1).for_each(|x| *x = special);
        let partials = Memory::unwritten(parts * 4);
        let memory = Memory::floats(stored, &x);
        let launch = reduce(Reduction::MaxAbs, stored, memory.at(), partials.at(), n);
        gpu.run([launch], [&memory, &partials])?;
        let got = f32::from_bits(partials.u32s().into_iter().max().unwrap_or(0));
        let wanted = ops::max_abs(&tensor([n], &x)).expect("floats");
        if got != wanted && !(got.is_nan() && wanted.is_nan()) {
            return Err(format!("max_abs: {got}, not {wanted}"));
        }
    }
    Ok(())
}

fn rows_of(gpu: &Gpu<'_>, stored: DType, rows: usize, width: usize) -> Outcome {
    use ops::sum::kernels::{Spans, sum_rows};
    let (x, sums) = (random(stored, rows * width, 1), random(SINGLE, width, 2));
    let mut wanted = tensor([width], &sums);
    if width > 0 {
        let x = tensor([rows, width], &x);
        ops::sum_rows_accumulate(&x, &mut wanted).expect("whole rows");
    }
    let (x, sums) = (Memory::floats(stored, &x), Memory::floats(SINGLE, &sums));
    let partials = Memory::room(SINGLE, Spans::new(stored, rows, width).count() * width);
    let launches = sum_rows(stored, x.at(), partials.at(), sums.at(), rows, width);
    gpu.run(launches, [&x, &sums, &partials])?;
    near("sum of rows", SINGLE, &sums, floats(&wanted), 5e-6)
}

pub(super) fn binary_cross_entropy(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    use ops::binary_cross_entropy::kernels;
    for n in EDGES.into_iter().chain([CHUNK + 1]) {
        let y: Vec<f32> = random(stored, n, 1)
            .into_iter()
            .map(|y| rounded(stored, y * 20.0))
            .collect();
        let target: Vec<f32> = random(SINGLE, n, 2)
            .into_iter()
            .map(|target| target.clamp(0.0, 1.0))
            .collect();
        let divisor = 7.0;
        let host = ops::binary_cross_entropy(tensor([n], &y), &tensor([n], &target), divisor);
        let (loss, dy) = host.expect("operands fit");
        let (y, target) = (Memory::floats(stored, &y), Memory::floats(SINGLE, &target));
        let partials = Memory::unwritten(n.div_ceil(CHUNK) * 8);
        let factor = (1.0 / divisor) as f32;
        let (at, to) = (y.at(), partials.at());
        let launch = kernels::binary_cross_entropy(stored, at, target.at(), to, n, factor);
        gpu.run([launch], [&y, &target, &partials])?;
        near("gradient", stored, &y, floats(&dy), 1e-6)?;
        let got = partials.doubles().into_iter().sum::<f64>() / divisor;
        near_double("loss", got, loss, 1e-6)?;
    }
    Ok(())
}

pub(super) fn squared_error(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    use ops::squared_error::kernels;
    for n in EDGES.into_iter().chain([CHUNK + 1]) {
        let (y, target) = (random(stored, n, 1), random(stored, n, 2));
        let divisor = 7.0;
        let host = ops::squared_error(tensor([n], &y), &tensor([n], &target), divisor);
        let (loss, dy) = host.expect("operands fit");
        let [y, target] = [&y, &target].map(|values| Memory::floats(stored, values));
        let partials = Memory::unwritten(n.div_ceil(CHUNK) * 8);
        let slope = (2.0 / divisor) as f32;
        let launch = kernels::squared_error(stored, y.at(), target.at(), partials.at(), n, slope);
        gpu.run([launch], [&y, &target, &partials])?;
        same("gradient", stored, &y, floats(&dy))?;
        let got = partials.doubles().into_iter().sum::<f64>() / divisor;
        near_double("loss", got, loss, 1e-6)?;
    }
    for (rows, width) in [(0, 3), (1, 1), (5, 7), (CHUNK / 4, 5)] {
        let (n, divisor) = (rows * width, 7.0);
        let y = random(stored, n, 1);
        let labels: Vec<u32> = (0..rows).map(|row| (row * 3 % width) as u32).collect();
        let classes = Tensor::from_u32(&device(), [rows], labels.clone()).expect("a label a row");
        let host = ops::one_hot_squared_error(tensor([rows, width], &y), &classes, divisor);
        let (loss, dy) = host.expect("operands fit");
        let (y, labels) = (Memory::floats(stored, &y), Memory::indices(&labels));
        let partials = Memory::unwritten(n.div_ceil(CHUNK) * 8);
        let slope = (2.0 / (divisor * width as f64)) as f32;
        let (at, to) = (y.at(), partials.at());
        gpu.run(
            [kernels::one_hot(
                stored,
                at,
                labels.at(),
                to,
                n,
                width,
                slope,
            )],
            [&y, &labels, &partials],
        )?;
        same("gradient", stored, &y, floats(&dy))?;
        let got = partials.doubles().into_iter().sum::<f64>() / (divisor * width as f64);
        near_double("loss", got, loss, 1e-6)?;
    }
    Ok(())
}
