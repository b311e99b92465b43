//! The optimizers by name.

use std::fmt;
use std::str::FromStr;

use super::values::Named;

/// An optimization algorithm: `adamw`, `sgd` or `rmsprop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptimizerName {
    /// AdamW.
    AdamW,
    /// Stochastic gradient descent.
    Sgd,
    /// RMSProp.
    RmsProp,
}

impl OptimizerName {
    pub(super) fn adamw() -> Named<Self> {
        Named::of(Self::AdamW)
    }

    pub(super) fn is_adamw(name: &Named<Self>) -> bool {
        **name == Self::AdamW
    }
}

impl fmt::Display for OptimizerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AdamW => "adamw",
            Self::Sgd => "sgd",
            Self::RmsProp => "rmsprop",
        })
    }
}

impl FromStr for OptimizerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::AdamW, Self::Sgd, Self::RmsProp];
        let found = all.into_iter().find(|name| name.to_string() == text);
        found.ok_or_else(|| format!("unknown optimizer `{text}`: use adamw, sgd or rmsprop"))
    }
}
