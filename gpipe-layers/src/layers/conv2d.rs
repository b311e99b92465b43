//! Two-dimensional convolution.

use gpipe_tensor::ops::Window;
use gpipe_tensor::{Tensor, Tensors, ops};
use smallvec::smallvec;

use super::flow::{
    checked, floats, images, output, saved_input, single, times, trained, unexpected, unpack,
};
use crate::{
    Cost, Error, Flow, Init, Kind, Layer, Memory, Param, PassContext, Pending, Result, Saved,
    TensorSet,
};

/// Bytes that memory moves in the time of a gathered row besides its own: 30 ns at 50 GB/s, of narrow rows on a Zen 4.
const ROW: u64 = 1_500;

/// The convolution of images (samples, height, width, channels) with learned windows, as PyTorch's
/// `Conv2d` computes it. Pixels beyond the border are 0.
///
/// The weight is stored as (outputs, kernel height, kernel width, inputs / groups).
#[derive(Debug)]
pub struct Conv2d {
    name: String,
    inputs: usize,
    outputs: usize,
    window: Window,
    groups: usize,
    /// Initial weights other than PyTorch's, which follow the number of groups.
    init: Option<Init>,
    weight: Param,
    bias: Option<Param>,
}

impl Conv2d {
    /// A convolution with the parameters `{name}.weight` and `{name}.bias`, initialized as in PyTorch:
    /// uniform within 1/√(kernel height · kernel width · inputs).
    pub fn new(name: impl Into<String>, inputs: usize, outputs: usize, window: Window) -> Self {
        let name = name.into();
        let [weight, bias] = ["weight", "bias"].map(|part| format!("{name}.{part}"));
        let [height, width] = window.kernel;
        let weight = Param::new(
            weight,
            [outputs, height, width, inputs],
            Kind::Matrix,
            Init::Zeros,
        );
        let bias = Param::new(bias, [outputs], Kind::Vector, Init::Zeros);
        Self {
            name,
            inputs,
            outputs,
            window,
            groups: 1,
            init: None,
            weight,
            bias: Some(bias),
        }
        .initialized()
    }

    /// The same in `groups` groups of channels: each maps its own inputs to its own outputs.
    ///
    /// # Errors
    /// [`Error::Config`] unless the number of groups divides inputs and outputs.
    pub fn in_groups(mut self, groups: usize) -> Result<Self> {
        let divides = |n: usize| n.checked_rem(groups) == Some(0);
        if !divides(self.inputs) || !divides(self.outputs) {
            return Err(Error::Config(format!(
                "{}: {groups} groups do not divide {} inputs and {} outputs: use a number that divides both",
                self.name, self.inputs, self.outputs
            )));
        }
        let [height, width] = self.window.kernel;
        self.groups = groups;
        self.weight.shape = [self.outputs, height, width, self.inputs / groups].into();
        Ok(self.initialized())
    }

    /// The same with other initial weights.
    #[must_use]
    pub fn init(self, weight: Init) -> Self {
        let init = Some(weight);
        Self { init, ..self }.initialized()
    }

    /// The same without a bias.
    #[must_use]
    pub fn without_bias(mut self) -> Self {
        self.bias = None;
        self
    }

    fn initialized(mut self) -> Self {
        let default = Init::Uniform((self.fan_in().max(1) as f32).sqrt().recip());
        if let Some(bias) = &mut self.bias {
            bias.init = default.clone();
        }
        self.weight.init = self.init.clone().unwrap_or(default);
        self
    }

    /// Inputs of an output.
    fn fan_in(&self) -> usize {
        let [height, width] = self.window.kernel;
        height
            .saturating_mul(width)
            .saturating_mul(self.inputs / self.groups)
    }

    /// The rows that are gathered from the pixels under windows, written and read: forward and for dW those of the outputs
    /// of x, for dX those of the inputs of y. Products with 1 × 1 windows that move by one pixel gather none.
    fn gathered(&self, x: &Flow, y: &Flow) -> u64 {
        if self.groups == 1 && self.window == Window::square(1, 1, 0) {
            return 0;
        }
        let [height, width] = self.window.kernel.map(|taps| taps as u64);
        let pixels = |flow: &Flow| flow.elements() / (flow.shape.last() as u64).max(1);
        let pass = |rows: u64, channels: usize| {
            let element = 2 * self.weight.dtype.bytes() as u64;
            let own = times(&[element, height, width, channels as u64]);
            times(&[rows, own.saturating_add(times(&[ROW, self.groups as u64]))])
        };
        let of_x = pass(pixels(y), self.inputs);
        let of_y = pass(pixels(x).min(pixels(y)), self.outputs);
        times(&[2, of_x]).saturating_add(of_y)
    }

    /// The flow of the result, and the multiplications of each of the three passes.
    fn result(&self, x: &Flow) -> Result<(Flow, u64)> {
        let y = images(&self.name, x, &self.window, self.outputs)?;
        if x.shape.last() != self.inputs {
            let expected = format!("images of {} channels", self.inputs);
            return Err(unexpected(&self.name, expected, x));
        }
        let y = output(&self.name, y, self.weight.dtype)?;
        let product = times(&[2, y.elements(), self.fan_in() as u64]);
        Ok((y, product))
    }
}

impl Layer for Conv2d {
    fn name(&self) -> &str {
        &self.name
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let x = floats(&self.name, inputs, None)?;
        let (y, product) = self.result(x)?;
        let stored = self.weight.dtype;
        let weight = checked(&self.name, &self.weight.shape)?;
        let bias = self.bias.as_ref().map_or(0, |_| self.outputs as u64);
        let sum = self.bias.as_ref().map_or(0, |_| y.elements());
        // An input of another type than the weight's is kept as one of that.
        let own = match x.dtype == stored {
            true => 0,
            false => x.clone().of(stored).bytes(),
        };
        Ok(Cost {
            forward: product.saturating_add(sum),
            recompute: Some(0),
            input_grad: product,
            weight_grad: trained(&self.weight, product)
                .saturating_add(self.bias.as_ref().map_or(0, |bias| trained(bias, sum))),
            params: weight + bias,
            memory: Memory {
                saved_inputs: (own == 0).into(),
                saved_own: own,
                pending_inputs: (own == 0).into(),
                pending_own: own,
                pending_grads: TensorSet::All,
                forward_peak: y.bytes().saturating_add(own),
                recompute_peak: Some(own),
                input_grad_peak: x.bytes().saturating_add(own),
                ..Memory::default()
            },
            // Each product reads two of x, y and W and writes the third; dW, of single precision, is read as
            // well. Pixels of overlapping windows come from the cache.
            traffic: times(&[3, x.bytes()])
                .saturating_add(times(&[3, y.bytes()]))
                .saturating_add(times(&[2, stored.bytes() as u64 + 4, weight])),
            gathered: self.gathered(x, &y),
            outputs: vec![y],
            ..Cost::default()
        })
    }

    /// Lingvo's `Conv2DLayerNoPadding`, 2·b·oh·ow·kh·kw·ic·oc, at this layer's own output size.
    fn lingvo(&self, inputs: &[Flow]) -> Result<u64> {
        let x = floats(&self.name, inputs, None)?;
        Ok(self.result(x)?.1)
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let x = single(&self.name, x)?;
        // The operation takes the number of groups from the shapes.
        if x.shape().last() != self.inputs {
            let expected = format!("images of {} channels", self.inputs);
            return Err(unexpected(&self.name, expected, x.shape()));
        }
        let bias = self.bias.as_ref().map(Param::value).transpose()?;
        let weight = self.weight.value()?;
        let saved = saved_input(&self.name, &x, &self.weight)?;
        let y = ops::conv2d(&saved.tensors[0], weight, bias, &self.window)
            .map_err(Error::within(&self.name))?;
        Ok((smallvec![y], saved))
    }

    fn recompute(&self, _cx: &PassContext, x: Tensors) -> Result<Saved> {
        saved_input(&self.name, &single(&self.name, x)?, &self.weight)
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let [x] = unpack(&self.name, saved.tensors)?;
        let dy = single(&self.name, dy)?;
        let weight = self.weight.value()?;
        let dx = ops::conv2d_input_grad(&dy, weight, x.shape(), &self.window)
            .and_then(|dx| match saved.given {
                Some(dtype) => dx.to_dtype(dtype),
                None => Ok(dx),
            })
            .map_err(Error::within(&self.name))?;
        Ok((smallvec![dx], Pending::new([x, dy])))
    }

    fn param_only_grad(&self, saved: Saved, dy: Tensors) -> Result<Pending> {
        let [x] = unpack(&self.name, saved.tensors)?;
        Ok(Pending::new([x, single(&self.name, dy)?]))
    }

    fn weight_grad(&mut self, pending: Pending) -> Result<()> {
        let [x, dy] = unpack(&self.name, pending.tensors)?;
        let window = self.window;
        let add = |grad: &mut Tensor| ops::conv2d_weight_grad(&x, &dy, grad, &window);
        self.weight.add_grad(&self.name, add)?;
        if let Some(bias) = &mut self.bias {
            bias.add_grad(&self.name, |grad| ops::sum_rows_accumulate(&dy, grad))?;
        }
        Ok(())
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        visit(&mut self.weight);
        if let Some(bias) = &mut self.bias {
            visit(bias);
        }
    }
}
