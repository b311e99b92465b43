//! Images of noise with labels or masks, for measurements: functions of their number.

use gpipe_tensor::philox::Key;
use gpipe_tensor::{Device, Tensor};
use sha2::{Digest, Sha256};

use super::{Draw, Images};
use crate::error::Result;
use crate::options::ImageOptions;

/// The name of the images of noise as a source.
pub const SYNTHETIC: &str = "synthetic";

/// Number of images.
const COUNT: u64 = 1000;

/// Images of noise: uniform, of mean 0 and variance 1; masks are noise of 0 and 1.
pub struct Synthetic(ImageOptions);

impl Synthetic {
    /// Images of a size, each of one of the classes, or with a mask.
    pub fn new(options: &ImageOptions) -> Self {
        Self(options.clone())
    }

    fn label(&self, sample: u64) -> u32 {
        Key::new(0, "data.synthetic.label", 0)
            .sample(sample)
            .bits(0)
            % u32::try_from(self.0.classes.max(1)).unwrap_or(u32::MAX)
    }
}

impl Images for Synthetic {
    fn count(&self) -> u64 {
        COUNT
    }

    fn tensors(&self, device: &Device, draws: &[Draw]) -> Result<(Tensor, Tensor)> {
        let mut x = Tensor::zeros(device, self.0.shape(draws.len()))?;
        let mut bits = vec![0; x.elements() / draws.len().max(1)];
        let values = x.f32s_mut()?.chunks_exact_mut(bits.len().max(1));
        let spread = 3_f32.sqrt() / (1_u32 << 31) as f32;
        for (draw, values) in draws.iter().zip(values) {
            Key::new(0, "data.synthetic", 0)
                .sample(draw.sample)
                .fill(0, &mut bits);
            for (value, bits) in values.iter_mut().zip(&bits) {
                *value = *bits as i32 as f32 * spread;
            }
        }
        if self.0.masks {
            let shape = [draws.len(), self.0.size, self.0.size, 1];
            let mut masks = Tensor::zeros(device, shape)?;
            let mut bits = vec![0; self.0.targets()];
            let values = masks.f32s_mut()?.chunks_exact_mut(bits.len().max(1));
            for (draw, values) in draws.iter().zip(values) {
                Key::new(0, "data.synthetic.mask", 0)
                    .sample(draw.sample)
                    .fill(0, &mut bits);
                for (value, bits) in values.iter_mut().zip(&bits) {
                    *value = (bits & 1) as f32;
                }
            }
            return Ok((x, masks));
        }
        let labels = draws.iter().map(|draw| self.label(draw.sample)).collect();
        Ok((x, Tensor::from_u32(device, [draws.len()], labels)?))
    }

    fn digest(&self, digest: &mut Sha256) {
        digest.update(identity(&self.0));
    }
}

/// What tells the noise of these options from others. Checkpoints keep its digest: the text stays as it is, byte for byte.
/// Names of classes change no noise.
fn identity(options: &ImageOptions) -> String {
    let ImageOptions {
        size,
        channels,
        classes,
        masks,
        names: _,
    } = options;
    format!(
        "{SYNTHETIC} ImageOptions {{ size: {size}, channels: {channels}, classes: {classes}, masks: {masks}, names: [] }}"
    )
}

#[cfg(test)]
mod tests {
    use gpipe_tensor::{DeviceId, Host};

    use super::*;

    /// The text whose digest checkpoints hold: with another one, a run that goes on would warn of other samples.
    #[test]
    fn the_digest_is_that_of_earlier_checkpoints() {
        let options = ImageOptions {
            size: 24,
            channels: 3,
            classes: 7,
            masks: true,
            names: Vec::new(),
        };
        let text =
            "synthetic ImageOptions { size: 24, channels: 3, classes: 7, masks: true, names: [] }";
        assert_eq!(identity(&options), text);
        let of = |options: &ImageOptions| {
            let mut digest = Sha256::new();
            Synthetic::new(options).digest(&mut digest);
            digest.finalize()
        };
        assert_eq!(of(&options), Sha256::digest(text));
        let named = ImageOptions {
            names: vec!["a".into()],
            ..options.clone()
        };
        assert_eq!(of(&named), of(&options));
        for other in [
            ImageOptions {
                size: 25,
                ..options.clone()
            },
            ImageOptions {
                channels: 1,
                ..options.clone()
            },
            ImageOptions {
                classes: 8,
                ..options.clone()
            },
            ImageOptions {
                masks: false,
                ..options.clone()
            },
        ] {
            assert_ne!(of(&other), of(&options));
        }
    }

    #[test]
    fn noise_has_mean_0_and_variance_1_and_every_class_is_there() {
        let options = ImageOptions {
            size: 24,
            channels: 3,
            classes: 7,
            masks: false,
            names: Vec::new(),
        };
        let images = Synthetic::new(&options);
        let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
        let draws: Vec<Draw> = (0..60)
            .map(|sample| Draw {
                sample,
                epoch: None,
            })
            .collect();
        let (x, labels) = images.tensors(&device, &draws).unwrap();
        assert_eq!(x.shape().dims(), [60, 24, 24, 3]);
        let values = x.f32s().unwrap();
        let sum = |of: &dyn Fn(f32) -> f64| values.iter().map(|&value| of(value)).sum::<f64>();
        let [mean, square] = [sum(&f64::from), sum(&|value| f64::from(value).powi(2))]
            .map(|sum| sum / values.len() as f64);
        assert!(
            mean.abs() < 0.02 && (square - 1.0).abs() < 0.02,
            "{mean} {square}"
        );
        let mut classes = labels.u32s().unwrap().to_vec();
        classes.sort_unstable();
        classes.dedup();
        assert_eq!(classes, [0, 1, 2, 3, 4, 5, 6]);
        let with_masks = ImageOptions {
            masks: true,
            ..options.clone()
        };
        let (same, masks) = Synthetic::new(&with_masks)
            .tensors(&device, &draws)
            .unwrap();
        assert_eq!(same.f32s().unwrap(), values);
        assert_eq!(masks.shape().dims(), [60, 24, 24, 1]);
        let masks = masks.f32s().unwrap();
        let ones = masks.iter().filter(|&&value| value == 1.0).count();
        let zeros = masks.iter().filter(|&&value| value == 0.0).count();
        assert!(ones + zeros == masks.len() && ones.abs_diff(zeros) < masks.len() / 50);
        // An image is a function of its number.
        let (again, _) = images.tensors(&device, &draws[7..8]).unwrap();
        assert_eq!(
            again.f32s().unwrap(),
            &values[7 * 24 * 24 * 3..][..24 * 24 * 3]
        );
    }
}
