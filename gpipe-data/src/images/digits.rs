//! Handwritten digits: the data set of 1797 small images from the University of California, Irvine
//! that comes with smartcore.

use gpipe_tensor::{Device, Shape, Tensor};
use sha2::{Digest, Sha256};

use super::{Draw, Images};
use crate::error::{Error, Result, SourceFault};
use crate::options::ImageOptions;

/// The name of the images of digits as a source.
pub const DIGITS: &str = "digits";

/// Rows of an image, and pixels of a row.
pub const SIDE: usize = 8;

/// Pixels of an image.
pub const PIXELS: usize = SIDE * SIDE;

/// Kinds of digits.
pub const CLASSES: usize = 10;

/// Images and what they show.
pub struct Digits {
    /// From 0 to 1, image after image.
    pixels: Vec<f32>,
    /// From 0 to 9.
    labels: Vec<u32>,
    /// Whether an image is a row of pixels, as a perceptron takes it.
    as_rows: bool,
}

impl Digits {
    /// All of them, if this build has them and the model takes such images; rows of pixels without
    /// options.
    pub fn open(options: Option<&ImageOptions>) -> Result<Self> {
        if options.is_some_and(|options| options.masks) {
            return Err(fault(SourceFault::NoMasks));
        }
        if let Some(options) = options
            && ((options.size, options.channels) != (SIDE, 1) || options.classes < CLASSES)
        {
            return Err(fault(SourceFault::NotDigits));
        }
        Ok(Self {
            as_rows: options.is_none(),
            ..Self::load()?
        })
    }

    #[cfg(feature = "digits")]
    fn load() -> Result<Self> {
        let digits = smartcore::dataset::digits::load_dataset();
        let whole =
            digits.num_features == PIXELS && digits.data.len() == PIXELS * digits.target.len();
        if !whole {
            return Err(fault(SourceFault::OtherDigits));
        }
        Ok(Self {
            // The scanner counted from 0 to 16.
            pixels: digits.data.iter().map(|ink| ink / 16.0).collect(),
            labels: digits.target.iter().map(|&label| label as u32).collect(),
            as_rows: true,
        })
    }

    #[cfg(not(feature = "digits"))]
    fn load() -> Result<Self> {
        Err(fault(SourceFault::NotBuiltIn))
    }

    /// The pixels of an image.
    fn image(&self, sample: u64) -> &[f32] {
        &self.pixels[sample as usize * PIXELS..][..PIXELS]
    }

    /// The digit that an image shows.
    fn label(&self, sample: u64) -> u32 {
        self.labels[sample as usize]
    }
}

impl Images for Digits {
    fn count(&self) -> u64 {
        self.labels.len() as u64
    }

    fn tensors(&self, device: &Device, draws: &[Draw]) -> Result<(Tensor, Tensor)> {
        let count = draws.len();
        let shape = match self.as_rows {
            true => Shape::from([count, PIXELS]),
            false => Shape::from([count, SIDE, SIDE, 1]),
        };
        let pixels = draws.iter().flat_map(|draw| self.image(draw.sample));
        let pixels: Vec<f32> = pixels.copied().collect();
        let labels = draws.iter().map(|draw| self.label(draw.sample)).collect();
        Ok((
            Tensor::from_f32(device, shape, pixels)?,
            Tensor::from_u32(device, [count], labels)?,
        ))
    }

    fn digest(&self, digest: &mut Sha256) {
        for sample in 0..self.count() {
            for pixel in self.image(sample) {
                digest.update(pixel.to_le_bytes());
            }
            digest.update(self.label(sample).to_le_bytes());
        }
    }
}

fn fault(fault: SourceFault) -> Error {
    let name = DIGITS.to_owned();
    Error::Source { name, fault }
}

#[cfg(all(test, feature = "digits"))]
mod tests {
    use super::*;

    #[test]
    fn digits_have_no_masks() {
        let options = ImageOptions {
            size: SIDE,
            channels: 1,
            classes: CLASSES,
            masks: true,
            names: Vec::new(),
        };
        let error = Digits::open(Some(&options)).err().unwrap();
        assert!(error.is_input_error());
        assert_eq!(
            error.to_string(),
            "`data.source = digits`: the model learns masks: name a folder with the folders images and masks"
        );
        let classes = ImageOptions {
            masks: false,
            ..options
        };
        assert!(Digits::open(Some(&classes)).is_ok());
    }

    #[test]
    fn images_are_ink_on_paper_and_every_digit_is_there() {
        let digits = Digits::open(None).unwrap();
        assert_eq!(digits.count(), 1797);
        let mut counts = [0; CLASSES];
        for sample in 0..digits.count() {
            counts[digits.label(sample) as usize] += 1;
            assert!(
                digits
                    .image(sample)
                    .iter()
                    .all(|ink| (0.0..=1.0).contains(ink))
            );
        }
        assert!(
            counts.iter().all(|count| (170..190).contains(count)),
            "{counts:?}"
        );
    }
}
