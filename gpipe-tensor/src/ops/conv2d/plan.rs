//! The sizes of a convolution.

use super::gather::Gather;
use crate::ops::window::{Images, Window};
use crate::{Error, Result, Shape};

/// The sizes of a convolution, checked against each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) window: Window,
    pub(super) input: Images,
    /// Height and width of the result.
    pub(super) output: [usize; 2],
    pub(super) groups: usize,
    /// Inputs and outputs of a group.
    pub(super) inputs: usize,
    pub(super) outputs: usize,
}

impl Plan {
    pub(super) fn new(
        op: &'static str,
        x: &Shape,
        weight: &Shape,
        window: &Window,
    ) -> Result<Self> {
        let input = Images::of(op, x)?;
        let output = window.output(input.size)?;
        let misfit = || {
            let [height, width] = window.kernel;
            let expected = format!(
                "a weight (outputs, {height}, {width}, inputs a group) for {} channels",
                input.channels
            );
            Error::shape(op, expected, weight)
        };
        let [all_outputs, height, width, inputs] = *weight.dims() else {
            return Err(misfit());
        };
        let groups = input.channels.checked_div(inputs).unwrap_or(1);
        let fits = [height, width] == window.kernel
            && groups > 0
            && groups * inputs == input.channels
            && all_outputs.is_multiple_of(groups);
        if !fits {
            return Err(misfit());
        }
        Ok(Self {
            window: *window,
            input,
            output,
            groups,
            inputs,
            outputs: all_outputs / groups,
        })
    }

    /// Channels of the result.
    pub(super) fn channels(&self) -> usize {
        self.groups * self.outputs
    }

    /// The shape of the result.
    pub(super) fn result(&self) -> Shape {
        self.input.with(self.output, self.channels())
    }

    /// Elements of a window in one group.
    pub(super) fn window_width(&self) -> usize {
        self.window.kernel[0] * self.window.kernel[1] * self.inputs
    }

    /// Whether the convolution is a product of matrices as it stands.
    pub(super) fn is_product(&self) -> bool {
        self.groups == 1 && self.window == Window::square(1, 1, 0)
    }

    /// What the windows of a group read.
    pub(super) fn gather(&self, group: usize) -> Gather {
        let taken = (group * self.inputs, self.inputs);
        Gather::forward(&self.window, self.input, self.output, taken)
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
