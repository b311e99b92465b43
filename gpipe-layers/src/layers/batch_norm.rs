//! Batch normalization (arXiv:1502.03167).

use gpipe_tensor::ops::{self, ChannelNorm};
use gpipe_tensor::{Tensor, Tensors};
use smallvec::smallvec;

use super::flow::{floats, single, times, unexpected, unpack};
use crate::{
    Cost, Error, Flow, Init, Kind, Layer, Memory, Param, PassContext, Pending, Result, Saved,
    TensorSet,
};

/// Each channel (the innermost extent) is shifted and scaled to mean 0 and variance 1, then multiplied with
/// a gain and shifted by a bias, as PyTorch's `BatchNorm2d` computes it.
///
/// In training by mean and biased variance of the *micro-batch*, so that the number of micro-batches is
/// part of the model. In evaluation by running statistics: averages over the training steps, which
/// move by [`momentum`](Self::with_momentum) towards the statistics of the whole mini-batch once it was
/// learned from. A pass that is computed again and a step that fails do not count.
///
/// The running statistics are parameters of [`Kind::Statistic`]. Their gradients hold mean and biased variance
/// of the rows so far, merged in [`weight_grad`](Layer::weight_grad).
#[derive(Debug)]
pub struct BatchNorm {
    name: String,
    channels: usize,
    eps: f32,
    momentum: f32,
    biased: bool,
    gain: Param,
    bias: Param,
    running_mean: Param,
    running_var: Param,
    /// Rows of this mini-batch whose statistics were merged.
    merged: u64,
}

impl BatchNorm {
    /// A normalization with the parameters `{name}.weight`, ones, and `{name}.bias`, zeros, and the statistics
    /// `{name}.running_mean`, zeros, and `{name}.running_var`, ones. As in PyTorch, 1e-5 is added to the variance,
    /// and the momentum is 0.1.
    pub fn new(name: impl Into<String>, channels: usize) -> Self {
        let name = name.into();
        let param =
            |part: &str, kind, init| Param::new(format!("{name}.{part}"), [channels], kind, init);
        Self {
            gain: param("weight", Kind::Vector, Init::Ones),
            bias: param("bias", Kind::Vector, Init::Zeros),
            running_mean: param("running_mean", Kind::Statistic, Init::Zeros),
            running_var: param("running_var", Kind::Statistic, Init::Ones),
            name,
            channels,
            eps: 1e-5,
            momentum: 0.1,
            biased: false,
            merged: 0,
        }
    }

    /// The same with this number added to the variance.
    #[must_use]
    pub fn with_eps(self, eps: f32) -> Self {
        Self { eps, ..self }
    }

    /// The same with running statistics that move by this share towards those of a mini-batch, from 0 to 1.
    #[must_use]
    pub fn with_momentum(self, momentum: f32) -> Self {
        Self { momentum, ..self }
    }

    /// The same with a running variance that averages biased variances, as Lingvo's and torchgpipe's do;
    /// else they are multiplied with N/(N − 1), N the rows of the mini-batch.
    #[must_use]
    pub fn biased(self) -> Self {
        Self {
            biased: true,
            ..self
        }
    }

    fn norm<'a>(&'a self, mean: &'a Tensor, variance: &'a Tensor) -> Result<ChannelNorm<'a>> {
        Ok(ChannelNorm {
            mean,
            variance,
            gain_and_bias: Some([self.gain.value()?, self.bias.value()?]),
            eps: self.eps,
        })
    }

    fn tracks(&self) -> bool {
        !self.running_mean.frozen && !self.running_var.frozen
    }
}

/// What training takes: a variance of each channel of a micro-batch.
const EXPECTED: &str = "two values or more for each channel of a micro-batch (use fewer \
                        micro-batches or a larger batch)";

/// Number of rows that have channels.
fn rows(x: &Tensor, channels: usize) -> usize {
    x.elements() / channels.max(1)
}

impl Layer for BatchNorm {
    fn name(&self) -> &str {
        &self.name
    }

    /// An element takes 7 FLOPs forward (the mean 1, the variance 3, the difference 1, gain and bias 2) and 9
    /// for dX (its two sums 4, which are those of the parameters too, and 5).
    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let x = floats(&self.name, inputs, Some(self.channels))?;
        if x.dtype != self.gain.dtype {
            let expected = format!("{} of shape (…, {})", self.gain.dtype, self.channels);
            return Err(unexpected(&self.name, expected, x));
        }
        let (elements, bytes, channels) = (x.elements(), x.bytes(), self.channels as u64);
        let rows = elements / channels.max(1);
        // Of single precision: mean and variance, and the sums for gain and bias.
        let statistics = times(&[2 * 4, channels]);
        let sums = times(&[2 * 4, channels]);
        let memory = Memory::new()
            .with_saved_inputs(TensorSet::All)
            .with_saved_own(statistics)
            .with_pending_own(sums.saturating_add(statistics))
            .with_forward_peak(bytes.saturating_add(statistics))
            .with_input_grad_peak(bytes.saturating_add(sums))
            .with_param_only_grad_peak(bytes.saturating_add(sums));
        // An evaluation normalizes by the running statistics.
        let fault = (rows == 1).then(|| unexpected(&self.name, EXPECTED, x).to_string());
        Ok(Cost::new(vec![x.clone()])
            .with_flops(times(&[7, elements]), times(&[9, elements]), 0)
            .with_params(times(&[4, channels]))
            .with_memory(memory)
            // x twice and y; x and dy twice, and dx.
            .with_traffic(times(&[8, bytes]))
            .with_training_fault(fault))
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let x = single(&self.name, x)?;
        let within = || Error::within(&self.name);
        if !cx.train {
            let norm = self.norm(self.running_mean.value()?, self.running_var.value()?)?;
            let y = ops::channel_norm(&x, &norm).map_err(within())?;
            return Ok((smallvec![y], Saved::default()));
        }
        if rows(&x, self.channels) == 1 {
            return Err(unexpected(&self.name, EXPECTED, x.shape()));
        }
        let statistics = ops::channel_statistics(&x, 1).map_err(within())?;
        let [mean, variance] = parts(&statistics).map_err(within())?;
        let y = ops::channel_norm(&x, &self.norm(&mean, &variance)?).map_err(within())?;
        Ok((smallvec![y], Saved::new([x, statistics])))
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let [x, statistics] = unpack(&self.name, saved.tensors)?;
        let dy = single(&self.name, dy)?;
        let within = || Error::within(&self.name);
        let [mean, variance] = parts(&statistics).map_err(within())?;
        let (dx, sums) =
            ops::channel_norm_grad(&x, &dy, &self.norm(&mean, &variance)?).map_err(within())?;
        let pending = Pending::new([sums, statistics]).with_value(rows(&x, self.channels) as u64);
        Ok((smallvec![dx], pending))
    }

    fn weight_grad(&mut self, mut pending: Pending) -> Result<()> {
        let rows: u64 = pending.take_value(&self.name)?;
        let [sums, statistics] = unpack(&self.name, pending.tensors)?;
        let gradients = parts(&sums).map_err(Error::within(&self.name))?;
        for (gradient, param) in gradients.iter().zip([&mut self.gain, &mut self.bias]) {
            param.add_grad(&self.name, |sum| ops::add_assign(sum, gradient))?;
        }
        if self.tracks() {
            let into = [self.running_mean.grad_mut()?, self.running_var.grad_mut()?];
            ops::merge_channel_statistics(into, self.merged, &statistics, rows)
                .map_err(Error::within(&self.name))?;
            self.merged = self.merged.saturating_add(rows);
        }
        Ok(())
    }

    fn begin_mini_batch(&mut self) -> Result<()> {
        self.merged = 0;
        Ok(())
    }

    fn merged_rows(&mut self, visit: &mut dyn FnMut(&mut u64)) {
        if self.tracks() {
            visit(&mut self.merged);
        }
    }

    fn commit_mini_batch(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.merged) as f64;
        if rows == 0.0 {
            return Ok(());
        }
        let scale = match self.biased || rows == 1.0 {
            true => 1.0,
            false => (rows / (rows - 1.0)) as f32,
        };
        for (statistic, scale) in [
            (&mut self.running_mean, 1.0),
            (&mut self.running_var, scale),
        ] {
            let new = statistic.grad()?.clone();
            let Some(value) = &mut statistic.value else {
                continue;
            };
            ops::moving_average(value, &new, self.momentum, scale)
                .map_err(Error::within(&self.name))?;
        }
        Ok(())
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        visit(&mut self.gain);
        visit(&mut self.bias);
        visit(&mut self.running_mean);
        visit(&mut self.running_var);
    }
}

/// The two halves of a tensor (2, 1, channels), each of shape (channels).
fn parts(pair: &Tensor) -> gpipe_tensor::Result<[Tensor; 2]> {
    let channels = pair.shape().last();
    let half = |row: usize| pair.rows(row..row + 1)?.reshape([channels]);
    Ok([half(0)?, half(1)?])
}
