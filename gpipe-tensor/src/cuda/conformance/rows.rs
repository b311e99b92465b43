//! Kernels that join the elements of rows or columns.

use super::memory::{Memory, near, random, rounded, same};
use super::reference::{SINGLE, floats, near_double, sums_of, tensor};
use super::{EDGES, Gpu, Outcome};
use crate::cuda::entry::Pointer;
use crate::ops::{self, IGNORE};
use crate::testing::device;
use crate::{DType, Shape, Tensor};

pub(super) fn softmax(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    for width in EDGES.into_iter().chain([1025]) {
        softmax_of(gpu, stored, 9, width, false)?;
    }
    for len in [0, 1, 2, 7, 8, 9, 31, 32, 33, 65] {
        softmax_of(gpu, stored, 2 * len, len, true)?;
    }
    Ok(())
}

fn softmax_of(gpu: &Gpu<'_>, stored: DType, rows: usize, width: usize, causal: bool) -> Outcome {
    use ops::softmax::kernels;
    let n = rows * width;
    let (mut x, dy) = (random(stored, n, 1), random(stored, n, 2));
    x.iter_mut().for_each(|x| *x = rounded(stored, *x * 20.0));
    // Nothing of what a row does not see may show.
    let shape = match causal {
        true => Shape::from([2, width, width]),
        false => Shape::from([rows, width]),
    };
    let [tx, tdy] = [&x, &dy].map(|values| tensor(shape.clone(), values));
    let [mx, mdy] = [&x, &dy].map(|values| Memory::floats(stored, values));
    let [my, mdx] = [0; 2].map(|_| Memory::room(stored, n));
    let y = match causal {
        true => ops::causal_softmax(&tx),
        false => ops::softmax(&tx),
    };
    let launch = kernels::forward(stored, mx.at(), my.at(), rows, width, causal);
    gpu.run([launch], [&mx, &my])?;
    near("softmax", stored, &my, floats(&y.expect("scores")), 2e-6)?;
    // From the very numbers that the kernel reads.
    let y = tensor(shape, &my.values(stored));
    let dx = match causal {
        true => ops::causal_softmax_grad(&y, &tdy),
        false => ops::softmax_grad(&y, &tdy),
    };
    let launch = kernels::backward(stored, my.at(), mdy.at(), mdx.at(), rows, width, causal);
    gpu.run([launch], [&my, &mdy, &mdx])?;
    near(
        "softmax_grad",
        stored,
        &mdx,
        floats(&dx.expect("scores")),
        2e-6,
    )
}

pub(super) fn layer_norm(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    for width in EDGES.into_iter().skip(1).chain([1024, 1025]) {
        for rows in [0, 1, 9, 33, 70] {
            layer_norm_of(gpu, stored, rows, width)?;
        }
    }
    // Several spans of rows, to the last but one of a span's rows.
    for width in [8, 33] {
        for rows in [257, 511] {
            layer_norm_of(gpu, stored, rows, width)?;
        }
    }
    Ok(())
}

fn layer_norm_of(gpu: &Gpu<'_>, stored: DType, rows: usize, width: usize) -> Outcome {
    use ops::layer_norm::kernels;
    use ops::sum::kernels::Spans;
    let (eps, n) = (1e-5, rows * width);
    let [x, dy] = [1, 2].map(|seed| random(stored, n, seed));
    let [gain, bias] = [3, 4].map(|seed| random(stored, width, seed));
    let [tx, tdy] = [&x, &dy].map(|values| tensor([rows, width], values));
    let [tgain, tbias] = [&gain, &bias].map(|values| tensor([width], values));
    let (y, stats) = ops::layer_norm(&tx, &tgain, &tbias, eps).expect("operands fit");
    let [mx, mdy, mgain, mbias] =
        [&x, &dy, &gain, &bias].map(|values| Memory::floats(stored, values));
    let [my, mdx] = [0; 2].map(|_| Memory::room(stored, n));
    let mstats = Memory::room(SINGLE, 2 * rows);
    let operands = [mx.at(), mgain.at(), mbias.at()];
    let launch = kernels::forward(stored, operands, my.at(), mstats.at(), rows, width, eps);
    gpu.run([launch], [&mx, &mgain, &mbias, &my, &mstats])?;
    // A short row may be nearly constant: its deviation is small, and so are its digits.
    let tolerance = if width < 8 { 1e-4 } else { 4e-6 };
    near("layer_norm", stored, &my, floats(&y), tolerance)?;
    let relative: Vec<f32> = mstats
        .values(SINGLE)
        .iter()
        .zip(floats(&stats))
        .map(|(a, b)| a / b)
        .collect();
    if !relative
        .iter()
        .skip(1)
        .step_by(2)
        .all(|x| (x - 1.0).abs() < 1e-4)
    {
        return Err("the deviations differ".into());
    }
    // The gradients from the very statistics that the kernel reads.
    let stats = tensor([rows, 2], &mstats.values(SINGLE));
    let (dx, dparams) =
        ops::layer_norm_grad(&tx, &stats, &tgain, &tdy, None).expect("operands fit");
    let around = random(stored, n, 6);
    let maround = Memory::floats(stored, &around);
    let input_grad = |onto| {
        let operands = kernels::InputGrad {
            x: mx.at(),
            stats: mstats.at(),
            gain: mgain.at(),
            dy: mdy.at(),
            onto,
            dx: mdx.at(),
        };
        let launch = kernels::input_grad(stored, operands, rows, width);
        gpu.run([launch], [&mx, &mstats, &mgain, &mdy, &maround, &mdx])
    };
    input_grad(Pointer::NULL)?;
    let tolerance = tolerance * 10.0;
    near("layer_norm_grad", stored, &mdx, floats(&dx), tolerance)?;
    let sum = sums_of(&mdx.values(stored), &around);
    input_grad(maround.at())?;
    same("layer_norm_grad onto another", stored, &mdx, &sum)?;
    let sums = random(SINGLE, 2 * width, 5);
    let msums = Memory::floats(SINGLE, &sums);
    let partials = Memory::room(SINGLE, Spans::new(stored, rows, width).count() * 2 * width);
    let launches = kernels::params_grad(
        stored,
        kernels::ParamsGrad {
            x: mx.at(),
            stats: mstats.at(),
            dy: mdy.at(),
            partials: partials.at(),
            dparams: msums.at(),
        },
        rows,
        width,
    );
    gpu.run(launches, [&mx, &mstats, &mdy, &msums, &partials])?;
    // What was there does not count.
    near(
        "gradients of gain and bias",
        SINGLE,
        &msums,
        floats(&dparams),
        // Roundings of both sums grow with the root of their terms.
        4e-6 * (rows as f32 / 64.0).sqrt().max(1.0),
    )
}

pub(super) fn cross_entropy(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    // The longest rows are kept in shared memory.
    for classes in EDGES.into_iter().skip(1).chain([1025, 9153, 16421]) {
        for rows in [0, 1, 6] {
            cross_entropy_of(gpu, stored, [rows, classes, classes], 0.0)?;
        }
        cross_entropy_of(gpu, stored, [6, classes, classes + 63], 0.0)?;
        if classes > 1 {
            cross_entropy_of(gpu, stored, [6, classes, classes + 7], 0.1)?;
        }
    }
    impossible_classes(gpu, stored)
}

/// A row of which some threads see no logit above -infinity.
fn impossible_classes(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    use ops::cross_entropy::kernels::{self, Wanted};
    const CLASSES: usize = 40;
    let mut logits = random(stored, CLASSES, 1);
    logits[..17].fill(f32::NEG_INFINITY);
    let host = tensor([1, CLASSES], &logits);
    let target = Tensor::from_u32(&device(), [1], vec![20]).expect("a target");
    let (memory, aims) = (Memory::floats(stored, &logits), Memory::indices(&[20]));
    let losses = Memory::unwritten(8);
    let pointers = [memory.at(), aims.at(), losses.at()];
    let distribution = Wanted::new(0.0, CLASSES);
    let sizes = [1, CLASSES, CLASSES];
    let launch = kernels::gradient(stored, pointers, sizes, distribution, 1.0, 0);
    gpu.run([launch], [&memory, &aims, &losses])?;
    let (loss, gradient) = ops::cross_entropy(host, &target, 1.0).expect("operands fit");
    near_double("loss", losses.doubles()[0], loss, 2e-6)?;
    near("gradient", stored, &memory, floats(&gradient), 1e-6)
}

fn cross_entropy_of(
    gpu: &Gpu<'_>,
    stored: DType,
    [rows, classes, stride]: [usize; 3],
    smoothing: f32,
) -> Outcome {
    use ops::cross_entropy::kernels::{self, Wanted};
    let mut logits = random(stored, rows * classes, 1);
    logits
        .iter_mut()
        .for_each(|x| *x = rounded(stored, *x * 20.0));
    let target = |row: usize| match row % 4 {
        3 => IGNORE,
        // The largest, so that some are right.
        2 => {
            let row = &logits[row * classes..(row + 1) * classes];
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            row.iter().position(|&x| x == largest).unwrap_or(0) as u32
        }
        _ => (row * 31 % classes) as u32,
    };
    let targets: Vec<u32> = (0..rows).map(target).collect();
    let host = tensor([rows, classes], &logits);
    let aims = Tensor::from_u32(&device(), [rows], targets.clone()).expect("a target a row");
    let sizes = [rows, classes, stride];
    let apart = |values: &[f32]| apart(values, sizes);
    let [memory, targets] = [
        Memory::floats(stored, &apart(&logits)),
        Memory::indices(&targets),
    ];
    let hits = Memory::unwritten(rows * 4);
    let launch = kernels::correct(stored, memory.at(), targets.at(), hits.at(), sizes);
    gpu.run([launch], [&memory, &targets, &hits])?;
    let got: u64 = hits.u32s().into_iter().map(u64::from).sum();
    let wanted = ops::correct(&host, &aims).expect("targets below the classes");
    if got != wanted {
        return Err(format!("correct: {got} rows, not {wanted}"));
    }
    let divisor = 5.0;
    let [losses, again] = [0; 2].map(|_| Memory::unwritten(rows * 8));
    let distribution = Wanted::new(smoothing, classes);
    let pointers = [memory.at(), targets.at(), losses.at()];
    let launch = kernels::losses(stored, pointers, sizes, distribution);
    gpu.run([launch], [&memory, &targets, &losses])?;
    let (loss, gradient) =
        ops::smoothed_cross_entropy(host, &aims, smoothing, divisor).expect("operands fit");
    let loss = loss.read().expect("a number");
    let got = losses.doubles().into_iter().sum::<f64>() / divisor;
    near_double("loss", got, loss, 2e-6)?;
    let of_kept = Memory::floats(stored, &apart(&logits));
    for (memory, shared) in [(&memory, 0), (&of_kept, 227 << 10)] {
        let pointers = [memory.at(), targets.at(), again.at()];
        let launch = kernels::gradient(stored, pointers, sizes, distribution, divisor, shared);
        gpu.run([launch], [memory, &targets, &again])?;
        if losses.doubles() != again.doubles() {
            return Err("the loss alone has other bits".into());
        }
    }
    if memory.content().ne(of_kept.content()) {
        return Err("rows that are kept have other bits".into());
    }
    let gradient = apart(floats(&gradient));
    near("gradient", stored, &memory, &gradient, 1e-6)?;
    let weights: Vec<f32> = (0..rows).map(|row| [0.5, 1.25, 0.0][row % 3]).collect();
    let of_rows = tensor([rows], &weights);
    let host = tensor([rows, classes], &logits);
    let (loss, gradient) = ops::weighted_cross_entropy(host, &aims, &of_rows, smoothing, divisor)
        .expect("operands fit");
    let loss = loss.read().expect("a number");
    let [memory, weights] = [
        Memory::floats(stored, &apart(&logits)),
        Memory::floats(SINGLE, &weights),
    ];
    let pointers = [memory.at(), targets.at(), weights.at(), again.at()];
    let shared = 227 << 10;
    let launch = kernels::weighted_gradient(stored, pointers, sizes, distribution, divisor, shared);
    gpu.run([launch], [&memory, &targets, &weights, &again])?;
    let got = again.doubles().into_iter().sum::<f64>() / divisor;
    near_double("weighted loss", got, loss, 2e-6)?;
    near(
        "weighted gradient",
        stored,
        &memory,
        &apart(floats(&gradient)),
        1e-6,
    )
}

/// Rows of values that are `stride` elements apart, with numbers between them that would spoil every sum.
fn apart(values: &[f32], [rows, width, stride]: [usize; 3]) -> Vec<f32> {
    let mut apart = vec![2f32.powi(100); rows * stride];
    for (to, from) in apart.chunks_mut(stride).zip(values.chunks(width)) {
        to[..width].copy_from_slice(from);
    }
    apart
}

pub(super) fn embedding(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    for width in EDGES {
        embedding_of(gpu, stored, 40, 7, width)?;
    }
    for positions in [0, 1, 255, 256, 257, 700] {
        embedding_of(gpu, stored, positions, 5, 40)?;
    }
    // One index alone, of more segments than a block has warps; segments of all lengths; few of many rows.
    embedding_of(gpu, stored, 300, 1, 33)?;
    embedding_of(gpu, stored, 97, 3, 300)?;
    embedding_of(gpu, stored, 60, 1000, 16)
}

fn embedding_of(
    gpu: &Gpu<'_>,
    stored: DType,
    positions: usize,
    rows: usize,
    width: usize,
) -> Outcome {
    use ops::embedding::kernels;
    use ops::embedding::segments::{Bounds, SEGMENT, segments};
    let ids: Vec<u32> = (0..positions)
        .map(|i| (i * 7919 % 1009 % rows) as u32)
        .collect();
    let (table, dy) = (
        random(stored, rows * width, 1),
        random(stored, positions * width, 2),
    );
    let grad = random(SINGLE, rows * width, 3);
    let tids = Tensor::from_u32(&device(), [positions], ids.clone()).expect("an id a position");
    let y = ops::embedding(&tids, &tensor([rows, width], &table)).expect("ids below the rows");
    let mut sums = tensor([rows, width], &grad);
    let rows_of_dy = tensor([positions, width], &dy);
    ops::embedding_grad(&tids, &rows_of_dy, &mut sums).expect("ids below the rows");
    let mids = Memory::indices(&ids);
    let [mtable, mdy] = [&table, &dy].map(|values| Memory::floats(stored, values));
    let my = Memory::room(stored, positions * width);
    let launch = kernels::forward(stored, mids.at(), mtable.at(), my.at(), positions, width);
    gpu.run([launch], [&mids, &mtable, &my])?;
    same("embedding", stored, &my, floats(&y))?;
    let mgrad = Memory::floats(SINGLE, &grad);
    let bounds = Bounds::new(positions, rows);
    let list = Memory::indices(&segments(&ids, bounds));
    let partials = Memory::room(SINGLE, bounds.sums * width);
    let at = kernels::Backward {
        list: list.at(),
        dy: mdy.at(),
        table: mgrad.at(),
        sums: partials.at(),
    };
    let launches = kernels::backward(stored, at, bounds, width);
    gpu.run(launches, [&list, &mdy, &mgrad, &partials])?;
    near("gradient of the table", SINGLE, &mgrad, floats(&sums), 5e-6)?;
    // An index of one segment is added as the processor adds it.
    let count = |row: usize| ids.iter().filter(|&&id| id as usize == row).count();
    for (row, got) in mgrad.values(SINGLE).chunks(width.max(1)).enumerate() {
        let wanted = &floats(&sums)[row * width..][..width];
        if count(row) <= SEGMENT && got != wanted {
            return Err(format!("gradient of row {row} of the table: other bits"));
        }
    }
    Ok(())
}
