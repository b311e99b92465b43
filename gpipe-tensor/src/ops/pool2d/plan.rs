//! The sizes of a pool.

use crate::ops::window::{Images, Window};
use crate::{Error, Result, Shape};

/// The sizes of a pool, checked against each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub window: Window,
    pub input: Images,
    /// Height and width of the result.
    pub output: [usize; 2],
}

impl Plan {
    pub(crate) fn new(op: &'static str, x: &Shape, window: &Window) -> Result<Self> {
        let input = Images::of(op, x)?;
        let output = window.output(input.size)?;
        // Else a window could lie beside the image.
        let is_within = |axis: usize| window.padding[axis] <= window.kernel[axis] / 2;
        if !is_within(0) || !is_within(1) {
            return Err(Error::Argument {
                op,
                message:
                    "padding is more than half of the kernel: use a padding of at most half of it"
                        .into(),
            });
        }
        if input.size.contains(&0) {
            let [height, width] = input.size;
            let message = format!("images of {height} x {width}: use images of a pixel or more");
            return Err(Error::Argument { op, message });
        }
        // A batch without samples has no elements, however large an image is; loops count those of one, and GPUs its pixels in
        // 32 bits.
        for [height, width] in [input.size, output] {
            Shape::from([height, width, input.channels]).elements()?;
            if u32::try_from(height.saturating_mul(width)).is_err() {
                let message =
                    format!("images of {height} x {width}: use images of fewer than 2^32 pixels");
                return Err(Error::Argument { op, message });
            }
        }
        Ok(Self {
            window: *window,
            input,
            output,
        })
    }

    pub(super) fn result(&self) -> Shape {
        self.input.with(self.output, self.input.channels)
    }

    /// Elements of an image of the input.
    pub(super) fn image(&self) -> usize {
        self.input.pixels() * self.input.channels
    }

    /// Elements of an image of the result.
    pub(super) fn result_image(&self) -> usize {
        self.output[0] * self.output[1] * self.input.channels
    }

    pub(super) fn check_result(&self, op: &'static str, dy: &Shape) -> Result<()> {
        let result = self.result();
        if *dy == result {
            return Ok(());
        }
        let expected = format!("the gradient of a result of shape {result}");
        Err(Error::shape(op, expected, dy))
    }
}
