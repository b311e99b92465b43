//! Convolutions and pools.

use gpipe_tensor::Result;
use gpipe_tensor::ops::{self, Window};

use super::Bench;

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
    Ok(())
}
