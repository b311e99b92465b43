//! Handwritten digits: the data set of 1797 small images from the University of California, Irvine
//! that comes with smartcore.

use crate::error::{Error, Result, SourceFault};

/// The name of the images of digits as a source.
pub const DIGITS: &str = "digits";

/// Pixels of an image: 8 rows of 8.
pub const PIXELS: usize = 64;

/// Kinds of digits.
pub const CLASSES: usize = 10;

/// Images and what they show.
pub struct Digits {
    /// From 0 to 1, image after image.
    pixels: Vec<f32>,
    /// From 0 to 9.
    labels: Vec<u32>,
}

impl Digits {
    /// All of them, if this build has them.
    #[cfg(feature = "digits")]
    pub fn load() -> Result<Self> {
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
        })
    }

    /// All of them, if this build has them.
    #[cfg(not(feature = "digits"))]
    pub fn load() -> Result<Self> {
        Err(fault(SourceFault::NotBuiltIn))
    }

    /// Number of images.
    pub fn count(&self) -> u64 {
        self.labels.len() as u64
    }

    /// The pixels of an image.
    pub fn image(&self, sample: u64) -> &[f32] {
        &self.pixels[sample as usize * PIXELS..][..PIXELS]
    }

    /// The digit that an image shows.
    pub fn label(&self, sample: u64) -> u32 {
        self.labels[sample as usize]
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
    fn images_are_ink_on_paper_and_every_digit_is_there() {
        let digits = Digits::load().unwrap();
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
