//! Instance normalization (arXiv:1607.08022).

use gpipe_tensor::ops::{self, ChannelNorm};
use gpipe_tensor::{Shape, Tensor, Tensors};
use smallvec::smallvec;

use super::flow::{floats, single, times, unexpected, unpack};
use crate::{
    Cost, Error, Flow, Layer, Memory, Param, PassContext, Pending, Result, Saved, TensorSet,
};

/// Each channel of each image (samples, …, channels) is shifted and scaled to mean 0 and variance 1 by its own
/// pixels, in training and in evaluation, as PyTorch's `InstanceNorm2d` with its defaults computes it: without gain
/// and bias, and without running statistics.
#[derive(Debug)]
pub struct InstanceNorm {
    name: String,
    eps: f32,
}

impl InstanceNorm {
    /// A normalization; as in PyTorch, 1e-5 is added to the variance.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            eps: 1e-5,
        }
    }

    /// The same with this number added to the variance.
    #[must_use]
    pub fn with_eps(self, eps: f32) -> Self {
        Self { eps, ..self }
    }

    /// Groups of rows, one a sample, and channels of a flow.
    fn extents(&self, shape: &Shape, got: impl std::fmt::Display) -> Result<[usize; 2]> {
        let dims = shape.dims();
        let one_pixel = match dims {
            [_, pixels @ .., _] => pixels.iter().all(|&extent| extent == 1),
            _ => true,
        };
        if dims.len() < 3 || one_pixel {
            let expected = "images (samples, height, width, channels) of two pixels or more";
            return Err(unexpected(&self.name, expected, got));
        }
        // The statistics of no samples are those of one.
        Ok([shape.rows().max(1), shape.last()])
    }

    /// Calls `run` with the normalization by these statistics.
    fn by<R>(
        &self,
        statistics: &Tensor,
        run: impl FnOnce(&ChannelNorm<'_>) -> gpipe_tensor::Result<R>,
    ) -> Result<R> {
        let half = |row: usize| statistics.rows(row..row + 1);
        let both = half(0).and_then(|mean| Ok((mean, half(1)?)));
        let normalized = both.and_then(|(mean, variance)| {
            run(&ChannelNorm {
                mean: &mean,
                variance: &variance,
                gain_and_bias: None,
                eps: self.eps,
            })
        });
        normalized.map_err(Error::within(&self.name))
    }
}

impl Layer for InstanceNorm {
    fn name(&self) -> &str {
        &self.name
    }

    /// An element takes 6 FLOPs forward (the mean 1, the variance 3, x̂ 2) and 9 for dX (two sums 4, and 5).
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let x = floats(&self.name, inputs, None)?;
        let [samples, channels] = self.extents(&x.shape, x)?;
        let (elements, bytes) = (x.elements(), x.bytes());
        // Of single precision: mean and variance, and the two sums of the gradient.
        let statistics = times(&[2 * 4, samples as u64, channels as u64]);
        let memory = Memory::new()
            .with_saved_inputs(TensorSet::All)
            .with_saved_own(statistics)
            .with_forward_peak(bytes.saturating_add(statistics))
            .with_input_grad_peak(bytes.saturating_add(statistics));
        Ok(Cost::new(vec![x.clone()])
            .with_flops(times(&[6, elements]), times(&[9, elements]), 0)
            .with_memory(memory)
            // x twice and y; x and dy twice, and dx.
            .with_traffic(times(&[8, bytes])))
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let x = single(&self.name, x)?;
        let [samples, _] = self.extents(x.shape(), x.shape())?;
        let statistics = ops::channel_statistics(&x, samples);
        let statistics = statistics.map_err(Error::within(&self.name))?;
        let y = self.by(&statistics, |norm| ops::channel_norm(&x, norm))?;
        Ok((smallvec![y], Saved::new([x, statistics])))
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let [x, statistics] = unpack(&self.name, saved.tensors)?;
        let dy = single(&self.name, dy)?;
        let (dx, _) = self.by(&statistics, |norm| ops::channel_norm_grad(&x, &dy, norm))?;
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
