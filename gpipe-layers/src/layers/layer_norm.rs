//! Layer normalisation (arXiv:1607.06450).

use gpipe_tensor::{Tensor, Tensors, ops};
use smallvec::smallvec;

use super::flow::{floats, single, times, unexpected, unpack};
use crate::lingvo;
use crate::{
    Cost, Error, Flow, Init, Kind, Layer, Memory, Param, PassContext, Pending, Result, Saved,
    TensorSet,
};

/// Each row of `width` elements is shifted and scaled to mean 0 and variance 1, then multiplied
/// with a gain and shifted by a bias.
#[derive(Debug)]
pub struct LayerNorm {
    name: String,
    width: usize,
    eps: f32,
    gain: Param,
    bias: Param,
}

impl LayerNorm {
    /// A normalisation with the parameters `{name}.weight`, ones, and `{name}.bias`, zeros. `eps`
    /// is added to the variance.
    pub fn new(name: impl Into<String>, width: usize, eps: f32) -> Self {
        let name = name.into();
        let gain = format!("{name}.weight");
        let bias = format!("{name}.bias");
        Self {
            name,
            width,
            eps,
            gain: Param::new(gain, [width], Kind::Vector, Init::Ones),
            bias: Param::new(bias, [width], Kind::Vector, Init::Zeros),
        }
    }
}

impl LayerNorm {
    /// dX, plus `onto`, and the gradients of gain and bias.
    fn gradients(
        &self,
        saved: Saved,
        dy: Tensors,
        onto: Option<&Tensor>,
    ) -> Result<(Tensors, Pending)> {
        let [x, statistics] = unpack(&self.name, saved.tensors)?;
        let dy = single(&self.name, dy)?;
        let (dx, dparams) = ops::layer_norm_grad(&x, &statistics, self.gain.value()?, &dy, onto)
            .map_err(Error::within(&self.name))?;
        Ok((smallvec![dx], Pending::new([dparams])))
    }
}

impl Layer for LayerNorm {
    fn name(&self) -> &str {
        &self.name
    }

    /// An element takes 8 FLOPs forward (the mean 1, the variance 3, x̂ 2, gain and bias 2), 9 for
    /// dX (dy·gain 1, two means 3, x̂ again 2, the difference 3) and 3 for the parameters.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let x = floats(&self.name, inputs, Some(self.width))?;
        if x.dtype != self.gain.dtype {
            let expected = format!("{} of shape (…, {})", self.gain.dtype, self.width);
            return Err(unexpected(&self.name, expected, x));
        }
        let (elements, bytes, width) = (x.elements(), x.bytes(), self.width as u64);
        // Both of single precision.
        let statistics = times(&[2 * 4, elements / width.max(1)]);
        let gradients = times(&[2 * 4, width]);
        let backward = bytes.saturating_add(gradients);
        Ok(Cost {
            outputs: vec![x.clone()],
            forward: times(&[8, elements]),
            input_grad: times(&[9, elements]),
            weight_grad: times(&[3, elements]),
            params: times(&[2, width]),
            memory: Memory {
                saved_inputs: TensorSet::All,
                saved_own: statistics,
                pending_own: gradients,
                forward_peak: bytes.saturating_add(statistics),
                input_grad_peak: backward,
                param_only_grad_peak: backward,
                ..Memory::default()
            },
            // x and y; x, dy and dx.
            traffic: times(&[5, bytes]),
            ..Cost::default()
        })
    }

    fn lingvo(&self, inputs: &[Flow]) -> Result<u64> {
        let x = floats(&self.name, inputs, Some(self.width))?;
        Ok(lingvo::layer_norm(&x.shape)?.flops)
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let x = single(&self.name, x)?;
        let (y, statistics) = ops::layer_norm(&x, self.gain.value()?, self.bias.value()?, self.eps)
            .map_err(Error::within(&self.name))?;
        let saved = Saved {
            tensors: smallvec![x, statistics],
            ..Saved::default()
        };
        Ok((smallvec![y], saved))
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
        let [dparams] = unpack(&self.name, pending.tensors)?;
        for (row, param) in [&mut self.gain, &mut self.bias].into_iter().enumerate() {
            let gradient = dparams.rows(row..row + 1);
            let gradient = gradient.and_then(|row| row.reshape([self.width]));
            let gradient = gradient.map_err(Error::within(&self.name))?;
            param.add_grad(&self.name, |sum| ops::add_assign(sum, &gradient))?;
        }
        Ok(())
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        visit(&mut self.gain);
        visit(&mut self.bias);
    }
}
