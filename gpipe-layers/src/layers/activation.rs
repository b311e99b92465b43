//! Functions of single elements.

use gpipe_tensor::ops::{self, Gelu};
use gpipe_tensor::{Tensor, Tensors};
use smallvec::smallvec;

use super::flow::{floats, single, times, unpack};
use crate::lingvo;
use crate::{Cost, Error, Flow, Layer, Memory, Param, PassContext, Pending, Result, Saved};

/// The share of a negative element that the leaky ReLU passes.
const SLOPE: f32 = 0.01;

/// An element-wise function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// max(x, 0)
    Relu,
    /// x where positive, else 0.01 · x: PyTorch's `LeakyReLU` with its default.
    LeakyRelu,
    /// x·Φ(x), exactly or by its approximation.
    Gelu(Gelu),
}

/// A function of each element. ReLU, the leaky one too, keeps its output for the backward pass, which the next layer
/// keeps as its input anyway; GELU its input.
#[derive(Debug)]
pub struct Activation {
    name: String,
    function: Function,
}

impl Activation {
    /// A layer that applies `function`.
    pub fn new(name: impl Into<String>, function: Function) -> Self {
        Self {
            name: name.into(),
            function,
        }
    }
}

impl Layer for Activation {
    fn name(&self) -> &str {
        &self.name
    }

    /// An element takes 1 FLOP for ReLU, leaky or not, and its gradient, 15 for GELU (as Lingvo counts it) and 20
    /// for the gradient of GELU.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let x = floats(&self.name, inputs, None)?;
        let (forward, backward) = match self.function {
            Function::Relu | Function::LeakyRelu => (1, 1),
            Function::Gelu(_) => (15, 20),
        };
        let keeps_output = !matches!(self.function, Function::Gelu(_));
        Ok(Cost {
            outputs: vec![x.clone()],
            forward: times(&[forward, x.elements()]),
            input_grad: times(&[backward, x.elements()]),
            weight_grad: 0,
            params: 0,
            memory: Memory {
                saved_inputs: (!keeps_output).into(),
                saved_outputs: keeps_output.into(),
                forward_peak: x.bytes(),
                input_grad_peak: x.bytes(),
                ..Memory::default()
            },
            // x and y; what was kept, dy and dx.
            traffic: times(&[5, x.bytes()]),
            ..Cost::default()
        })
    }

    fn lingvo(&self, inputs: &[Flow]) -> Result<u64> {
        let x = floats(&self.name, inputs, None)?;
        let function = match self.function {
            Function::Relu => lingvo::Activation::Relu,
            Function::LeakyRelu => {
                let message = format!(
                    "Lingvo has no cost formula for {}: use the complete costs",
                    self.name
                );
                return Err(Error::Config(message));
            }
            Function::Gelu(Gelu::Erf) => lingvo::Activation::Gelu,
            Function::Gelu(Gelu::Tanh) => lingvo::Activation::GeluApproximate,
        };
        Ok(lingvo::activation(&x.shape, function)?.flops)
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let x = single(&self.name, x)?;
        let (y, kept): (Tensor, Tensor) = match self.function {
            Function::Relu => ops::relu(&x).map(|y| (y.clone(), y)),
            Function::LeakyRelu => ops::leaky_relu(&x, SLOPE).map(|y| (y.clone(), y)),
            Function::Gelu(form) => ops::gelu(&x, form).map(|y| (y, x)),
        }
        .map_err(Error::within(&self.name))?;
        let saved = Saved {
            tensors: smallvec![kept],
            ..Saved::default()
        };
        Ok((smallvec![y], saved))
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let [kept] = unpack(&self.name, saved.tensors)?;
        let dy = single(&self.name, dy)?;
        let dx = match self.function {
            Function::Relu => ops::relu_grad(&kept, &dy),
            Function::LeakyRelu => ops::leaky_relu_grad(&kept, &dy, SLOPE),
            Function::Gelu(form) => ops::gelu_grad(&kept, &dy, form),
        }
        .map_err(Error::within(&self.name))?;
        Ok((smallvec![dx], Pending::default()))
    }

    fn param_only_grad(&self, _saved: Saved, _dy: Tensors) -> Result<Pending> {
        Ok(Pending::default())
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}
