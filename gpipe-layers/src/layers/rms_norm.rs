//! Root mean square normalization (arXiv:1910.07467).

use gpipe_tensor::ops::Gain;
use gpipe_tensor::{Tensor, Tensors, ops};
use smallvec::smallvec;

use super::flow::{floats, single, times, unexpected, unpack};
use crate::{
    Cost, Error, Flow, Init, Kind, Layer, Memory, Param, PassContext, Pending, Result, Saved,
    TensorSet,
};

/// Each row of `width` elements is divided by the root of the mean of its squares, and multiplied with a
/// gain.
#[derive(Debug)]
pub struct RmsNorm {
    name: String,
    width: usize,
    heads: usize,
    eps: f32,
    gain: Param,
    /// Added to the parameter.
    base: f32,
}

impl RmsNorm {
    /// A normalization with the parameter `{name}.weight`, ones. `eps` is added to the mean.
    pub fn new(name: impl Into<String>, width: usize, eps: f32) -> Self {
        let name = name.into();
        let gain = format!("{name}.weight");
        Self {
            name,
            width,
            heads: 1,
            eps,
            gain: Param::new(gain, [width], Kind::Vector, Init::Ones),
            base: 0.0,
        }
    }

    /// The same with the gain's difference from 1 as the parameter, zeros, as in Gemma.
    #[must_use]
    pub fn around_one(mut self) -> Self {
        self.gain.init = Init::Zeros;
        self.base = 1.0;
        self
    }

    fn gain(&self) -> Result<Gain<'_>> {
        Ok(Gain {
            values: self.gain.value()?,
            base: self.base,
        })
    }

    /// The same for each of `heads` heads of `width` elements that lie side by side in a row, all with the same gain.
    #[must_use]
    pub fn of_heads(self, heads: usize) -> Self {
        Self { heads, ..self }
    }

    /// The tensor with a row for each head.
    fn by_heads(&self, x: Tensor) -> Result<Tensor> {
        if self.heads == 1 {
            return Ok(x);
        }
        let rows = x.elements() / self.width.max(1);
        x.reshape([rows, self.width])
            .map_err(Error::within(&self.name))
    }

    /// dX, plus `onto`, and the gradient of the gain.
    fn gradients(
        &self,
        saved: Saved,
        dy: Tensors,
        onto: Option<&Tensor>,
    ) -> Result<(Tensors, Pending)> {
        let [x, factors] = unpack(&self.name, saved.tensors)?;
        let dy = single(&self.name, dy)?;
        let shape = dy.shape().clone();
        let dy = self.by_heads(dy)?;
        let onto = onto.map(|onto| self.by_heads(onto.clone())).transpose()?;
        let gradients = ops::rms_norm_grad(&x, &factors, self.gain()?, &dy, onto.as_ref());
        let (dx, dgain) = gradients.map_err(Error::within(&self.name))?;
        let dx = dx.reshape(shape).map_err(Error::within(&self.name))?;
        Ok((smallvec![dx], Pending::new([dgain])))
    }
}

impl Layer for RmsNorm {
    fn name(&self) -> &str {
        &self.name
    }

    /// An element takes 4 FLOPs forward (its square and the sum, two products), 7 for dX (dy·gain 1, the
    /// mean of its product with x 2, x̂ again 1, the difference 3) and 2 for the gain.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let row = self.width.saturating_mul(self.heads);
        let x = floats(&self.name, inputs, Some(row))?;
        if x.dtype != self.gain.dtype {
            let expected = format!("{} of shape (…, {row})", self.gain.dtype);
            return Err(unexpected(&self.name, expected, x));
        }
        let (elements, bytes, width) = (x.elements(), x.bytes(), self.width as u64);
        // Both of single precision.
        let factors = times(&[4, elements / width.max(1)]);
        let gradient = times(&[4, width]);
        let backward = bytes.saturating_add(gradient);
        Ok(Cost {
            outputs: vec![x.clone()],
            forward: times(&[4, elements]),
            input_grad: times(&[7, elements]),
            weight_grad: times(&[2, elements]),
            params: width,
            memory: Memory {
                saved_inputs: TensorSet::All,
                saved_own: factors,
                pending_own: gradient,
                forward_peak: bytes.saturating_add(factors),
                input_grad_peak: backward,
                param_only_grad_peak: backward,
                ..Memory::default()
            },
            // x and y; x, dy and dx.
            traffic: times(&[5, bytes]),
            ..Cost::default()
        })
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let x = single(&self.name, x)?;
        let shape = x.shape().clone();
        let x = self.by_heads(x)?;
        let (y, factors) =
            ops::rms_norm(&x, self.gain()?, self.eps).map_err(Error::within(&self.name))?;
        let y = y.reshape(shape).map_err(Error::within(&self.name))?;
        Ok((smallvec![y], Saved::new([x, factors])))
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        self.gradients(saved, dy, None)
    }

    fn input_grad_onto(
        &self,
        saved: Saved,
        dy: Tensors,
        onto: &Tensor,
    ) -> Result<(Tensors, Pending)> {
        self.gradients(saved, dy, Some(onto))
    }

    fn backward_onto(&mut self, saved: Saved, dy: Tensors, onto: &Tensor) -> Result<Tensors> {
        let (dx, pending) = self.input_grad_onto(saved, dy, onto)?;
        self.weight_grad(pending)?;
        Ok(dx)
    }

    fn weight_grad(&mut self, pending: Pending) -> Result<()> {
        let [dgain] = unpack(&self.name, pending.tensors)?;
        self.gain
            .add_grad(&self.name, |sum| ops::add_assign(sum, &dgain))
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        visit(&mut self.gain);
    }
}
