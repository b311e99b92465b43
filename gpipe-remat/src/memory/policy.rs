//! Rematerialization policies.

use crate::{Bytes, Error, Result};

/// Which tensors of a micro-batch a stage keeps from its forward to its backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Everything: nothing is computed twice.
    Keep,
    /// The stage's input alone (GPipe's rule, section 2.3 of the paper).
    Stage,
    /// Everything of the last micro-batch, the input alone of the others: torchgpipe's
    /// `except_last`. There the last micro-batch goes backward first, so it saves a
    /// recomputation at no cost. Backward passes in ascending order reach it last, so here
    /// everything of it stays alive while the others are computed again: up to twice the memory
    /// of [`Policy::Stage`].
    ExceptLast,
    /// The input of every n-th layer of the stage: less is alive at once during the backward pass
    /// than under [`Policy::Stage`], at no more work (Chen et al. 2016). 0 counts as 1.
    Every(usize),
    /// The choice with the least recomputation within this number of bytes per stage, parameters and all
    /// else included: which layers keep their saved tensors, and where runs of the others begin.
    Budget(Bytes),
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Keep => f.write_str("keep"),
            Self::Stage => f.write_str("stage"),
            Self::ExceptLast => f.write_str("except-last"),
            Self::Every(layers) => write!(f, "every:{layers}"),
            Self::Budget(bytes) => write!(f, "budget:{bytes}"),
        }
    }
}

impl std::str::FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            None if text == "keep" => Ok(Self::Keep),
            None if text == "stage" => Ok(Self::Stage),
            None if text == "except-last" => Ok(Self::ExceptLast),
            Some(("every", n)) => match n.parse() {
                Ok(layers) if layers > 0 => Ok(Self::Every(layers)),
                _ => Err(Error::UnknownPolicy(text.to_owned())),
            },
            Some(("budget", bytes)) => Ok(Self::Budget(bytes.parse()?)),
            _ => Err(Error::UnknownPolicy(text.to_owned())),
        }
    }
}
