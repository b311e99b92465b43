//! The layer that lets no gradient pass.

use gpipe_tensor::{Tensor, Tensors};

use crate::{Cost, Error, Flow, Layer, Memory, Origin, Param, PassContext, Pending, Result, Saved};

/// Returns its input; the gradient of it is zero, whatever that of the output is.
///
/// For floats that need no gradient, such as a fetched activation or a bias that is given. A mask is better of
/// indices, which have no gradient that a pipeline would compute and send.
#[derive(Debug)]
pub struct StopGradient {
    name: String,
}

impl StopGradient {
    /// A layer of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }
}

impl Layer for StopGradient {
    fn name(&self) -> &str {
        &self.name
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let floats = inputs.iter().filter(|flow| flow.dtype.is_float());
        let bytes = floats.map(Flow::bytes).fold(0, u64::saturating_add);
        let memory = Memory::new()
            .with_outputs((0..inputs.len()).map(Origin::Same).collect())
            .with_input_grad_peak(bytes);
        let cost = Cost::new(inputs.to_vec()).with_memory(memory);
        Ok(cost.with_traffic(bytes))
    }

    fn lingvo(&self, _inputs: &[Flow]) -> Result<u64> {
        Ok(0)
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        Ok((x, Saved::default()))
    }

    fn input_grad(&self, _saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let zeros = |dy: &Tensor| {
            let zeros = Tensor::zeros_of(dy.device(), dy.shape().clone(), dy.dtype());
            zeros.map_err(Error::within(&self.name))
        };
        let dx = dy.iter().map(zeros).collect::<Result<_>>()?;
        Ok((dx, Pending::default()))
    }

    fn param_only_grad(&self, _saved: Saved, _dy: Tensors) -> Result<Pending> {
        Ok(Pending::default())
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}
