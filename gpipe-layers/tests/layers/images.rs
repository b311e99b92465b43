//! Layers of images, and their forward passes in double precision.

use gpipe_layers::Flow;
use gpipe_layers::layers::{BatchNorm, Conv2d, Pool2d};
use gpipe_tensor::ops::Window;
use gpipe_tensor::{Device, Shape, Tensor};

use super::cases::{Case, EPS, Sizes};

/// The pixel under each tap of each window, in scan order: (sample, output pixel, tap, pixel).
fn taps(shape: [usize; 4], window: &Window) -> Vec<(usize, usize, usize, Option<usize>)> {
    let [samples, height, width, _] = shape;
    let [h, w] = window.output([height, width]).unwrap();
    let mut all = Vec::new();
    for sample in 0..samples {
        for output in 0..h * w {
            for tap in 0..window.kernel[0] * window.kernel[1] {
                let row = output / w * window.stride[0] + tap / window.kernel[1];
                let column = output % w * window.stride[1] + tap % window.kernel[1];
                let row = row.checked_sub(window.padding[0]).filter(|&y| y < height);
                let column = column.checked_sub(window.padding[1]).filter(|&x| x < width);
                let pixel = row
                    .zip(column)
                    .map(|(y, x)| (sample * height + y) * width + x);
                all.push((sample, sample * h * w + output, tap, pixel));
            }
        }
    }
    all
}

/// The convolution, from its definition.
fn conv2d(
    x: &[f64],
    shape: [usize; 4],
    weight: &[f64],
    bias: &[f64],
    (outputs, groups): (usize, usize),
    window: &Window,
) -> Vec<f64> {
    let (channels, kernel) = (shape[3], window.kernel[0] * window.kernel[1]);
    let (inputs, group) = (channels / groups, outputs / groups);
    let taps = taps(shape, window);
    let mut y: Vec<f64> = Vec::new();
    for &(_, output, tap, pixel) in &taps {
        if tap == 0 {
            y.extend((0..outputs).map(|o| bias.get(o).copied().unwrap_or(0.0)));
        }
        let Some(pixel) = pixel else { continue };
        for o in 0..outputs {
            for c in 0..inputs {
                let x = x[pixel * channels + o / group * inputs + c];
                y[output * outputs + o] += x * weight[(o * kernel + tap) * inputs + c];
            }
        }
    }
    y
}

/// Each window's values of each channel, joined.
fn pool(x: &[f64], shape: [usize; 4], window: &Window, join: fn(&[f64]) -> f64) -> Vec<f64> {
    let (channels, kernel) = (shape[3], window.kernel[0] * window.kernel[1]);
    let mut y = Vec::new();
    for window in taps(shape, window).chunks(kernel) {
        for c in 0..channels {
            let pixels = window.iter().filter_map(|(.., pixel)| *pixel);
            let values: Vec<f64> = pixels.map(|pixel| x[pixel * channels + c]).collect();
            y.push(join(&values));
        }
    }
    y
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// Each channel of each of `groups` groups of rows at mean 0 and variance 1.
fn normalized(x: &[f64], channels: usize, groups: usize) -> Vec<f64> {
    let mut y = x.to_vec();
    for group in y.chunks_mut(x.len() / groups) {
        for c in 0..channels {
            let values: Vec<f64> = group.iter().copied().skip(c).step_by(channels).collect();
            let center = mean(&values);
            let squares: Vec<f64> = values.iter().map(|x| (x - center).powi(2)).collect();
            let deviation = (mean(&squares) + f64::from(EPS)).sqrt();
            let of_channel = group.iter_mut().skip(c).step_by(channels);
            of_channel.for_each(|x| *x = (*x - center) / deviation);
        }
    }
    y
}

/// The name of the layer that takes the largest of several values.
pub const LARGEST: &str = "max";

/// Values so far apart that the largest of a window stays the largest when one is moved a little.
pub fn far_apart(device: &Device, shape: &Shape) -> Tensor {
    let n = shape.elements().unwrap();
    let values = (0..n).map(|i| ((i * 7919) % n) as f32 * 0.25 - n as f32 / 8.0);
    Tensor::from_f32(device, shape.clone(), values.collect::<Vec<_>>()).unwrap()
}

/// Every layer of images, at these sizes.
pub fn all(s: Sizes) -> Vec<Case> {
    let shape = [s.batch, s.time + 2, 5, 2 * s.heads];
    let channels = shape[3];
    let input = || Flow::f32(shape);
    let (outputs, groups) = (4 * s.heads, s.heads);
    let windows = [
        ("conv3", Window::square(3, 1, 1), 1),
        ("conv1", Window::square(1, 1, 0), 1),
        ("downsample", Window::square(1, 2, 0), 1),
        ("strided", Window::square(3, 2, 1), groups),
    ];
    let convolutions = windows.into_iter().map(|(name, window, groups)| Case {
        layer: Box::new(
            Conv2d::new(name, channels, outputs, window)
                .in_groups(groups)
                .unwrap(),
        ),
        input: input(),
        reference: Box::new(move |p, x| conv2d(x, shape, &p[0], &p[1], (outputs, groups), &window)),
    });
    let unbiased = Window::square(2, 1, 0);
    let rest = [
        Case {
            layer: Box::new(Conv2d::new("unbiased", channels, 3, unbiased).without_bias()),
            input: input(),
            reference: Box::new(move |p, x| conv2d(x, shape, &p[0], &[], (3, 1), &unbiased)),
        },
        Case {
            layer: Box::new(BatchNorm::new("batch norm", channels)),
            input: input(),
            reference: Box::new(move |p, x| {
                let y = normalized(x, channels, 1).into_iter().enumerate();
                y.map(|(i, y)| y * p[0][i % channels] + p[1][i % channels])
                    .collect()
            }),
        },
        Case {
            layer: Box::new(Pool2d::max(LARGEST, Window::square(3, 2, 1))),
            input: input(),
            reference: Box::new(move |_, x| pool(x, shape, &Window::square(3, 2, 1), largest)),
        },
        Case {
            layer: Box::new(Pool2d::average("average", Window::square(2, 2, 1))),
            input: input(),
            reference: Box::new(move |_, x| pool(x, shape, &Window::square(2, 2, 1), mean)),
        },
        Case {
            layer: Box::new(Pool2d::whole_average("mean")),
            input: input(),
            reference: Box::new(move |_, x| {
                let whole = Window {
                    kernel: [shape[1], shape[2]],
                    ..Window::square(1, 1, 0)
                };
                pool(x, shape, &whole, mean)
            }),
        },
    ];
    convolutions.chain(rest).collect()
}
