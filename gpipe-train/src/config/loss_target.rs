//! What the scores of a network for images are compared with.

use std::fmt;
use std::str::FromStr;

use gpipe_layers::Loss;

/// The target of the loss: `class`, `one-hot` or `mask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossTarget {
    /// The class, by cross-entropy.
    Class,
    /// 1 for the class and 0 for the others, by the mean squared error.
    OneHot,
    /// A mask, by binary cross-entropy.
    Mask,
}

impl LossTarget {
    /// The loss.
    pub fn loss(self) -> Loss {
        match self {
            Self::Class => Loss::CrossEntropy,
            Self::OneHot => Loss::OneHotSquaredError,
            Self::Mask => Loss::BinaryCrossEntropy,
        }
    }
}

impl fmt::Display for LossTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Class => "class",
            Self::OneHot => "one-hot",
            Self::Mask => "mask",
        })
    }
}

impl FromStr for LossTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "class" => Ok(Self::Class),
            "one-hot" => Ok(Self::OneHot),
            "mask" => Ok(Self::Mask),
            _ => Err(format!(
                "`{text}` is no target of a loss: use class, one-hot or mask"
            )),
        }
    }
}
