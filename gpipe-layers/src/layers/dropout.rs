//! Dropout (Srivastava et al., JMLR 15, 2014).

use gpipe_tensor::{Tensor, Tensors, ops};
use smallvec::smallvec;

use super::flow::{floats, single, times, unexpected};
use crate::lingvo;
use crate::{Cost, Error, Flow, Layer, Memory, Origin, Param, PassContext, Pending, Result, Saved};

/// In training, sets a share of the elements to zero and scales the others up. No mask is kept: it
/// is a function of (seed, name, step, sample, element), the same when it is computed again.
#[derive(Debug)]
pub struct Dropout {
    name: String,
    rate: f32,
    /// Whether channels are dropped whole.
    channels: bool,
}

impl Dropout {
    /// A layer that drops the share `rate`.
    ///
    /// # Errors
    /// [`Error::Config`] unless the share is from 0 to below 1.
    pub fn new(name: impl Into<String>, rate: f32) -> Result<Self> {
        let name = name.into();
        check_rate(&name, rate)?;
        Ok(Self {
            name,
            rate,
            channels: false,
        })
    }

    /// A layer that drops the share `rate` of the channels (the innermost extent) of each sample, as
    /// PyTorch's `Dropout2d`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_channels(name: impl Into<String>, rate: f32) -> Result<Self> {
        let layer = Self::new(name, rate)?;
        Ok(Self {
            channels: true,
            ..layer
        })
    }

    /// The share that is dropped.
    pub(super) fn rate(&self) -> f32 {
        self.rate
    }

    /// x with the dropped elements as zeros; x itself in evaluation, or if nothing is dropped.
    pub(super) fn apply(&self, cx: &PassContext, x: Tensor) -> Result<Tensor> {
        if !cx.train || self.rate == 0.0 {
            return Ok(x);
        }
        let dropout = ops::Dropout {
            rate: self.rate,
            key: cx.key(&self.name),
            samples: cx.samples.clone(),
        };
        match self.channels {
            true => ops::dropout_channels(x, &dropout),
            false => ops::dropout(x, &dropout),
        }
        .map_err(Error::within(&self.name))
    }
}

/// An error unless the share is from 0 to below 1.
pub(crate) fn check_rate(name: &str, rate: f32) -> Result<()> {
    if (0.0..1.0).contains(&rate) {
        return Ok(());
    }
    Err(Error::Config(format!(
        "{name}: dropout is {rate}: use a number from 0 to below 1"
    )))
}

impl Layer for Dropout {
    fn name(&self) -> &str {
        &self.name
    }

    /// One multiplication an element, forward and back.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let x = floats(&self.name, inputs, None)?;
        if self.channels && self.rate > 0.0 && x.shape.rank() < 2 {
            let expected = "samples with channels (samples, …, channels)";
            return Err(unexpected(&self.name, expected, x));
        }
        let memory = if self.rate == 0.0 {
            Memory::handed_on(1)
        } else {
            Memory {
                outputs: vec![Origin::Over(0)],
                gradients: vec![Origin::Over(0)],
                forward_peak: x.bytes(),
                input_grad_peak: x.bytes(),
                ..Memory::default()
            }
        };
        let memory = memory.with_recompute_peak(Some(0));
        let (flops, traffic) = match self.rate {
            0.0 => (0, 0),
            _ => (x.elements(), times(&[4, x.bytes()])),
        };
        Ok(Cost {
            outputs: vec![x.clone()],
            forward: flops,
            recompute: Some(0),
            input_grad: flops,
            weight_grad: 0,
            params: 0,
            memory,
            traffic,
            ..Cost::default()
        })
    }

    fn lingvo(&self, inputs: &[Flow]) -> Result<u64> {
        let x = floats(&self.name, inputs, None)?;
        Ok(lingvo::dropout(&x.shape)?.flops)
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let y = self.apply(cx, single(&self.name, x)?)?;
        Ok((smallvec![y], self.recompute(cx, Tensors::new())?))
    }

    fn recompute(&self, cx: &PassContext, _x: Tensors) -> Result<Saved> {
        Ok(Saved {
            cx: Some(cx.clone()),
            ..Saved::default()
        })
    }

    fn saves_numbers(&self) -> bool {
        false
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let dy = single(&self.name, dy)?;
        let Some(cx) = saved.cx else {
            return Err(super::flow::foreign(&self.name, 1, 0));
        };
        Ok((smallvec![self.apply(&cx, dy)?], Pending::default()))
    }

    fn param_only_grad(&self, _saved: Saved, _dy: Tensors) -> Result<Pending> {
        Ok(Pending::default())
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}
