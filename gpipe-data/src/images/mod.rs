//! Images as samples: the digits, noise made by counter, and folders of pictures; and pictures without targets.

mod digits;
mod folder;
mod folder_warnings;
mod listing;
mod picture;
mod synthetic;
mod unlabelled;
mod view;

pub use digits::{CLASSES, DIGITS, Digits, PIXELS, SIDE};
pub use folder::Pictures;
pub use listing::{class_names, count_classes};
pub use synthetic::{SYNTHETIC, Synthetic};
pub use unlabelled::{NamedPicture, PictureMask, PictureReader, ViewedPicture, named_pictures};

use gpipe_tensor::{Device, Tensor};
use sha2::Sha256;

use crate::error::Result;

/// A sample as a step draws it: how it is cropped and flipped depends on the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The sample.
    pub sample: u64,
    /// The epoch, from 0; `None` in an evaluation.
    pub epoch: Option<u64>,
}

/// A source of images and what they show.
pub trait Images: Send + Sync {
    /// Number of images.
    fn count(&self) -> u64;

    /// The images as the model takes them, and their targets.
    fn tensors(&self, device: &Device, draws: &[Draw]) -> Result<(Tensor, Tensor)>;

    /// Adds to a digest what tells these images from others.
    fn digest(&self, digest: &mut Sha256);
}
