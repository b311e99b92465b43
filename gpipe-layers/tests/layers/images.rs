//! Layers of images, and their forward passes in double precision.

use gpipe_layers::layers::{
    Activation, BatchNorm, Conv2d, Dropout, Function, InstanceNorm, Pad2d, PadConcat, Pool2d,
    Upsample2d,
};
use gpipe_layers::{Flow, Init, Layer, PassContext, check};
use gpipe_tensor::ops::Window;
use gpipe_tensor::{Device, Shape, Tensor, Tensors};

use super::cases::{Case, EPS, Reference, Sizes, cx, device, f64s, one};

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

/// Images of another size: each pixel is that of x at the place that `from` says, or 0 beyond it.
fn placed(
    x: &[f64],
    [samples, height, width, channels]: [usize; 4],
    [lines, columns]: [usize; 2],
    from: impl Fn(usize, usize) -> [usize; 2],
) -> Vec<f64> {
    let mut y = Vec::new();
    for pixel in 0..samples * lines * columns {
        let [row, column] = from(pixel / columns % lines, pixel % columns);
        let line = pixel / columns / lines * height + row;
        let inside = row < height && column < width;
        y.extend((0..channels).map(|c| match inside {
            true => x[(line * width + column) * channels + c],
            false => 0.0,
        }));
    }
    y
}

/// Dropout of channels is a product with factors that what it makes of ones shows: one for each channel of a
/// sample.
fn dropped(shape: [usize; 4]) -> Reference {
    let device = device();
    let mut ones = Tensor::empty(&device, shape).unwrap();
    ones.f32s_mut().unwrap().fill(1.0);
    let layer = Dropout::of_channels("dropped channels", 0.4).unwrap();
    let (factors, _) = layer.forward(&cx(shape[0]), one(ones)).unwrap();
    let factors = f64s(&factors[0]);
    let [_, height, width, channels] = shape;
    for sample in factors.chunks(height * width * channels) {
        assert!(
            sample
                .chunks(channels)
                .all(|pixel| *pixel == sample[..channels])
        );
    }
    Box::new(move |_, x| x.iter().zip(&factors).map(|(x, f)| x * f).collect())
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
            layer: Box::new(InstanceNorm::new("instance norm")),
            input: input(),
            reference: Box::new(move |_, x| normalized(x, channels, shape[0])),
        },
        Case {
            layer: Box::new(Activation::new("leaky", Function::LeakyRelu)),
            input: input(),
            reference: Box::new(|_, x| x.iter().map(|x| x.max(0.01 * x)).collect()),
        },
        Case {
            layer: Box::new(Dropout::of_channels("dropped channels", 0.4).unwrap()),
            input: input(),
            reference: dropped(shape),
        },
        Case {
            layer: Box::new(Upsample2d::new("twice")),
            input: input(),
            reference: Box::new(move |_, x| {
                let size = [2 * shape[1], 2 * shape[2]];
                placed(x, shape, size, |row, column| [row / 2, column / 2])
            }),
        },
        Case {
            layer: Box::new(Pad2d::new("padded", [1, 2])),
            input: input(),
            reference: Box::new(move |_, x| {
                let size = [shape[1] + 1, shape[2] + 2];
                placed(x, shape, size, |row, column| [row, column])
            }),
        },
        Case {
            layer: Box::new(Pad2d::shift("shifted", [1, 1])),
            input: input(),
            reference: Box::new(move |_, x| {
                let size = [shape[1], shape[2]];
                placed(x, shape, size, |row, column| [row + 1, column + 1])
            }),
        },
        Case {
            layer: Box::new(Pad2d::new("not padded", [0, 0])),
            input: input(),
            reference: Box::new(|_, x| x.to_vec()),
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

#[test]
fn an_image_grows_to_the_size_of_its_skip() {
    let device = device();
    let noise = |shape: [usize; 4], seed: usize| {
        let value = |i: usize| ((i * 7 + seed * 3) % 11) as f32 / 4.0 - 1.1;
        let values: Vec<f32> = (0..shape.iter().product()).map(value).collect();
        Tensor::from_f32(&device, shape, values).unwrap()
    };
    let cx = PassContext::training(0, 0, 0..2);
    let mut layer = PadConcat::new("skip");
    for (small, [height, width, channels]) in [
        ([2, 2, 3], [3, 4, 2]),
        ([2, 2, 1], [2, 3, 5]),
        ([2, 2, 3], [2, 2, 1]),
    ] {
        let [h, w, c] = small;
        let x = Tensors::from_iter([
            noise([2, h, w, c], 1),
            noise([2, height, width, channels], 2),
        ]);
        check::gradients(&mut layer, &cx, &x).unwrap();
        check::bytes(&mut layer, &cx, &x).unwrap();
        check::split(&mut layer, &cx, &x).unwrap();
        let (y, _) = layer.forward(&cx, x.clone()).unwrap();
        let (y, x, skip) = (f64s(&y[0]), f64s(&x[0]), f64s(&x[1]));
        for (place, both) in y.chunks(c + channels).enumerate() {
            let (row, column) = (place / width % height, place % width);
            let sample = place / (height * width);
            let from = ((sample * h + row) * w + column) * c;
            let grown = match row < h && column < w {
                true => x[from..from + c].to_vec(),
                false => vec![0.0; c],
            };
            assert_eq!(both[..c], grown);
            assert_eq!(both[c..], skip[place * channels..][..channels]);
        }
    }
    let flow = |shape: [usize; 4]| Flow::f32(shape);
    for bad in [
        vec![flow([2, 3, 3, 1]), flow([2, 2, 3, 1])],
        vec![flow([2, 2, 2, 1]), flow([3, 2, 2, 1])],
        vec![flow([2, 2, 2, 1])],
    ] {
        let refused = layer.cost(&bad).unwrap_err().to_string();
        assert!(refused.contains("skip"), "{refused}");
    }
}

/// The two may be set in any order: only weights that nobody chose follow the number of inputs.
#[test]
fn initial_weights_that_were_chosen_stay_in_groups() {
    let conv = || Conv2d::new("conv", 8, 4, Window::square(3, 1, 1));
    let inits = |mut layer: Conv2d| {
        let mut inits = Vec::new();
        layer.params(&mut |param| inits.push(param.init.clone()));
        inits
    };
    let chosen = Init::Normal(0.5);
    let before = conv().init(chosen.clone()).in_groups(2).unwrap();
    let after = conv().in_groups(2).unwrap().init(chosen.clone());
    let bound = Init::Uniform(1.0 / (3.0 * 3.0 * 4.0_f32).sqrt());
    for layer in [before, after] {
        assert_eq!(inits(layer), [chosen.clone(), bound.clone()]);
    }
    let default = inits(conv().in_groups(2).unwrap());
    assert_eq!(default, [bound.clone(), bound]);
}
