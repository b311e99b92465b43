//! Convolutions and pools.

use gpipe_tensor::Result;
use gpipe_tensor::ops::{self, ChannelNorm, Dropout, Window};
use gpipe_tensor::philox::Key;

use super::bench::Bench;

/// Images, outputs and groups of convolutions, and their windows: products, strides, groups, no channels.
const CONVOLUTIONS: [([usize; 4], usize, usize, Window); 7] = [
    ([2, 6, 5, 8], 7, 1, Window::square(3, 1, 1)),
    ([2, 6, 5, 8], 7, 1, Window::square(1, 1, 0)),
    ([1, 9, 8, 3], 4, 1, Window::square(7, 2, 3)),
    ([2, 7, 7, 4], 6, 1, Window::square(1, 2, 0)),
    ([2, 5, 6, 6], 4, 2, Window::square(3, 2, 1)),
    ([1, 4, 4, 5], 5, 5, Window::square(3, 1, 1)),
    ([0, 4, 4, 2], 3, 1, Window::square(3, 1, 1)),
];

const POOLS: [Window; 3] = [
    Window::square(2, 2, 0),
    Window::square(3, 2, 1),
    Window::square(3, 1, 1),
];

pub(super) fn images(b: &mut Bench) -> Result<()> {
    for (input, outputs, groups, window) in CONVOLUTIONS {
        let [height, width] = window.kernel;
        let shape = [outputs, height, width, input[3] / groups];
        let (x, weight, bias) = (b.random(input)?, b.random(shape)?, b.random([outputs])?);
        let y = ops::conv2d(&x, &weight, Some(&bias), &window)?;
        b.keep(&y)?;
        b.keep(&ops::conv2d(&x, &weight, None, &window)?)?;
        let dy = b.random(y.shape().clone())?;
        b.keep(&ops::conv2d_input_grad(&dy, &weight, x.shape(), &window)?)?;
        let mut dw = b.single(shape)?;
        ops::conv2d_weight_grad(&x, &dy, &mut dw, &window)?;
        b.keep(&dw)?;
    }
    for window in POOLS {
        let x = b.random([2, 7, 6, 5])?;
        let y = ops::max_pool2d(&x, &window)?;
        b.keep(&y)?;
        let dy = b.random(y.shape().clone())?;
        b.keep(&ops::max_pool2d_grad(&x, &dy, &window)?)?;
        b.keep(&ops::avg_pool2d(&x, &window)?)?;
        b.keep(&ops::avg_pool2d_grad(&dy, x.shape(), &window)?)?;
    }
    let x = b.random([2, 7, 6, 5])?;
    b.keep(&ops::pad2d(&x, [1, -1], [8, 6])?)?;
    let other = b.random([2, 7, 6, 3])?;
    let both = ops::concat(&[&other, &x, &other])?;
    b.keep(&both)?;
    b.keep(&ops::columns(&both, 2..9)?)?;
    let drop = Dropout {
        rate: 0.25,
        key: Key::new(7, "layer", 3),
        samples: 5..7,
    };
    b.keep(&ops::dropout_channels(x, &drop)?)?;
    for groups in [1, 2] {
        for shape in [[2, 3, 3, 5], [4, 8, 7, 33], [2, 1, 1, 70]] {
            channels(b, shape, groups)?;
        }
    }
    Ok(())
}

/// Normalization of channels, with and without gain and bias.
fn channels(b: &mut Bench, shape: [usize; 4], groups: usize) -> Result<()> {
    let (x, dy) = (b.random(shape)?, b.random(shape)?);
    let (gain, bias) = (b.random([shape[3]])?, b.random([shape[3]])?);
    let statistics = ops::channel_statistics(&x, groups)?;
    b.keep(&statistics)?;
    for gain_and_bias in [None, Some([&gain, &bias])] {
        let norm = ChannelNorm {
            mean: &statistics.rows(0..1)?,
            variance: &statistics.rows(1..2)?,
            gain_and_bias,
            // So much that the variance of a group of one row makes no number large.
            eps: 0.1,
        };
        b.keep(&ops::channel_norm(&x, &norm)?)?;
        let (dx, sums) = ops::channel_norm_grad(&x, &dy, &norm)?;
        b.keep(&dx)?;
        b.keep(&sums)?;
    }
    if groups == 1 {
        let (mut mean, mut variance) = (b.single([shape[3]])?, b.single([shape[3]])?);
        ops::merge_channel_statistics([&mut mean, &mut variance], 7, &statistics, 9)?;
        b.keep(&mean)?;
        b.keep(&variance)?;
        ops::moving_average(&mut variance, &mean, 0.1, 1.5)?;
        b.keep(&variance)?;
    }
    Ok(())
}
