//! Kernels of convolutions and pools.

use super::memory::{Memory, random, same};
use super::reference::{computed, tensor};
use super::{Gpu, Outcome};
use crate::DType;
use crate::ops;
use crate::ops::concat::plan::Columns;
use crate::ops::conv2d::kernels::{self, Windows};
use crate::ops::pool2d::{self, plan::Plan};
use crate::ops::window::{Images, Window};

/// Images and windows: whole and partial strides, padding, windows larger than a side.
const CASES: [([usize; 4], Window); 6] = [
    ([2, 4, 6, 3], Window::square(2, 2, 0)),
    ([2, 5, 5, 2], Window::square(3, 2, 1)),
    ([1, 7, 6, 1], Window::square(3, 1, 1)),
    ([1, 9, 8, 33], Window::square(2, 3, 1)),
    (
        [2, 5, 3, 5],
        Window {
            kernel: [1, 3],
            stride: [2, 1],
            padding: [0, 1],
        },
    ),
    ([0, 4, 4, 2], Window::square(3, 1, 1)),
];

fn elements(shape: [usize; 4]) -> usize {
    shape.iter().product()
}

/// The index of each value of the gather in its images, if it is there; row by row.
fn gathered(windows: &Windows) -> Vec<Option<usize>> {
    let Images {
        samples,
        size: [height, width],
        channels,
    } = windows.images;
    let Windows { window, output, .. } = windows;
    let (first, taken) = windows.taken;
    let mut places = Vec::new();
    for row in 0..samples * output[0] * output[1] {
        let (sample, line) = (row / output[1] / output[0], row / output[1] % output[0]);
        for tap in 0..window.kernel[0] * window.kernel[1] {
            let y = line * window.stride[0] + tap / window.kernel[1];
            let x = row % output[1] * window.stride[1] + tap % window.kernel[1];
            let pixel = y.checked_sub(window.padding[0]).filter(|&y| y < height);
            let pixel = pixel.zip(x.checked_sub(window.padding[1]).filter(|&x| x < width));
            let at = pixel.map(|(y, x)| ((sample * height + y) * width + x) * channels + first);
            places.extend((0..taken).map(|c| at.map(|at| at + c)));
        }
    }
    places
}

pub(super) fn conv2d(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    for (shape, window) in CASES {
        let [samples, height, width, channels] = shape;
        let output = window.output([height, width]).expect("windows that fit");
        for taken in [(0, channels), (channels / 2, channels - channels / 2)] {
            let windows = Windows {
                images: Images {
                    samples,
                    size: [height, width],
                    channels,
                },
                window,
                output,
                taken,
            };
            let places = gathered(&windows);
            let x = random(stored, elements(shape), 1);
            let wanted: Vec<f32> = places.iter().map(|at| at.map_or(0.0, |at| x[at])).collect();
            let (from, rows) = (
                Memory::floats(stored, &x),
                Memory::room(stored, wanted.len()),
            );
            let launch = kernels::gather(stored, from.at(), rows.at(), &windows);
            gpu.run([launch], [&from, &rows])?;
            same("gathered windows", stored, &rows, &wanted)?;
            // The sums run over the taps in order, which is not that of the rows.
            let rows = random(DType::F32, wanted.len(), 2);
            let mut sums = x.clone();
            for sample in sums.chunks_mut(channels) {
                sample[taken.0..]
                    .iter_mut()
                    .take(taken.1)
                    .for_each(|sum| *sum = 0.0);
            }
            let row_width = windows.width();
            for within in 0..row_width {
                for row in 0..windows.rows() {
                    if let Some(at) = places[row * row_width + within] {
                        sums[at] += rows[row * row_width + within];
                    }
                }
            }
            let memory = Memory::floats(DType::F32, &rows);
            let launch = kernels::add(stored, memory.at(), from.at(), &windows);
            gpu.run([launch], [&memory, &from])?;
            same("sums over windows", stored, &from, &sums)?;
        }
    }
    Ok(())
}

pub(super) fn pool2d(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    let far_apart = Window {
        kernel: [2, 2],
        stride: [1 << 32, usize::MAX],
        padding: [0, 1],
    };
    for (shape, window) in CASES.into_iter().chain([([2, 5, 4, 3], far_apart)]) {
        let x = random(stored, elements(shape), 1);
        let host = tensor(shape, &x);
        let plan = Plan::new("pool2d", host.shape(), &window).expect("windows that fit");
        let largest = ops::max_pool2d(&host, &window);
        let result = largest.as_ref().expect("windows that fit").shape().clone();
        let n = result.elements().expect("a small result");
        let dy = random(stored, n, 2);
        let (x, y, dx) = (
            Memory::floats(stored, &x),
            Memory::room(stored, n),
            Memory::room(stored, elements(shape)),
        );
        let gradient = Memory::floats(stored, &dy);
        let dy = tensor(result, &dy);
        let launch = pool2d::kernels::max(stored, x.at(), y.at(), &plan);
        gpu.run([launch], [&x, &y])?;
        same("largest values", stored, &y, &computed(largest))?;
        let launch = pool2d::kernels::max_grad(stored, x.at(), gradient.at(), dx.at(), &plan);
        gpu.run([launch], [&x, &gradient, &dx])?;
        let wanted = computed(ops::max_pool2d_grad(&host, &dy, &window));
        same("gradient of largest values", stored, &dx, &wanted)?;
        let launch = pool2d::kernels::average(stored, x.at(), y.at(), &plan);
        gpu.run([launch], [&x, &y])?;
        same(
            "means",
            stored,
            &y,
            &computed(ops::avg_pool2d(&host, &window)),
        )?;
        let launch = pool2d::kernels::average_grad(stored, gradient.at(), dx.at(), &plan);
        gpu.run([launch], [&gradient, &dx])?;
        let wanted = computed(ops::avg_pool2d_grad(&dy, host.shape(), &window));
        same("gradient of means", stored, &dx, &wanted)?;
    }
    Ok(())
}

pub(super) fn pad2d(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    for (shape, offset, size) in [
        ([2, 4, 6, 3], [0, 0], [5, 7]),
        ([2, 5, 5, 2], [1, 1], [5, 5]),
        ([1, 7, 6, 33], [-2, 3], [9, 2]),
        ([0, 4, 4, 2], [0, 0], [5, 5]),
    ] {
        let [samples, height, width, channels] = shape;
        let images = Images {
            samples,
            size: [height, width],
            channels,
        };
        let x = random(stored, elements(shape), 1);
        let wanted = computed(ops::pad2d(&tensor(shape, &x), offset, size));
        let (x, y) = (
            Memory::floats(stored, &x),
            Memory::room(stored, wanted.len()),
        );
        let launch = ops::pad2d::kernels::pad(stored, x.at(), y.at(), images, offset, size);
        gpu.run([launch], [&x, &y])?;
        same("padded", stored, &y, &wanted)?;
    }
    Ok(())
}

pub(super) fn concat(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    for (rows, widths) in [(1, [1, 1]), (7, [5, 33]), (130, [64, 3]), (0, [4, 4])] {
        let of = |width: usize, seed| random(stored, rows * width, seed);
        let (a, b) = (of(widths[0], 1), of(widths[1], 2));
        let width = widths[0] + widths[1];
        let tensors = [tensor([rows, widths[0]], &a), tensor([rows, widths[1]], &b)];
        let wanted = computed(ops::concat(&[&tensors[0], &tensors[1]]));
        let y = Memory::room(stored, wanted.len());
        let mut at = 0;
        for (part, count) in [&a, &b].into_iter().zip(widths) {
            let part = Memory::floats(stored, part);
            let columns = Columns {
                rows,
                count,
                from: [count, 0],
                to: [width, at],
            };
            let launch = ops::concat::kernels::copy(stored, part.at(), y.at(), columns);
            gpu.run([launch], [&part, &y])?;
            at += count;
        }
        same("side by side", stored, &y, &wanted)?;
    }
    Ok(())
}
