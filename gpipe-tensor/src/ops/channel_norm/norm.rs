//! What channels are normalized by.

use super::plan::Extents;
use crate::{Error, Result, Tensor};

/// What the channels of each group are shifted and scaled by.
#[derive(Clone, Copy, Debug)]
pub struct ChannelNorm<'a> {
    /// Mean of each channel: (groups, channels).
    pub mean: &'a Tensor,
    /// Biased variance of each channel: (groups, channels).
    pub variance: &'a Tensor,
    /// Gain and bias of each channel, of all groups; none stand for 1 and 0.
    pub gain_and_bias: Option<[&'a Tensor; 2]>,
    /// Added to the variance.
    pub eps: f32,
}

impl ChannelNorm<'_> {
    pub(super) fn extents(&self, op: &'static str, x: &Tensor) -> Result<Extents> {
        let channels = x.shape().last();
        let groups = self.mean.elements() / channels.max(1);
        let extents = Extents::of(op, x.shape(), groups.max(1))?;
        for statistic in [self.mean, self.variance] {
            if statistic.elements() != extents.groups * channels {
                let expected = format!("means and variances of {channels} channels");
                return Err(Error::shape(op, expected, statistic.shape()));
            }
        }
        for param in self.gain_and_bias.into_iter().flatten() {
            if param.elements() != channels {
                let expected = format!("a gain and a bias of {channels} elements");
                return Err(Error::shape(op, expected, param.shape()));
            }
        }
        Ok(extents)
    }

    /// 1/σ of each channel of each group.
    pub(super) fn inverse_deviations(&self, to: &mut [f32]) -> Result<()> {
        for (to, variance) in to.iter_mut().zip(self.variance.f32s()?) {
            *to = 1.0 / (variance + self.eps).sqrt();
        }
        Ok(())
    }

    /// Multiplies a factor of each channel of each group with the gain.
    pub(super) fn times_gain(&self, factors: &mut [f32]) -> Result<()> {
        if let Some([gain, _]) = self.gain_and_bias {
            let gains = gain.f32s()?.iter().cycle();
            factors
                .iter_mut()
                .zip(gains)
                .for_each(|(factor, gain)| *factor *= gain);
        }
        Ok(())
    }
}
