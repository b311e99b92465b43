//! Names of devices.

use std::fmt;

/// The name of a device: `cpu`, `cuda:N`, or `cuda:NAME` of a GPU that plans know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceId {
    /// The host's processor.
    Cpu,
    /// The CUDA device of this ordinal.
    Cuda(u32),
    /// A GPU that need not be here, by its name in [`KNOWN_GPUS`](crate::KNOWN_GPUS): plans are made for it, and hosts
    /// on paper have it.
    Known(&'static str),
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            Self::Known(name) => write!(f, "cuda:{}", name.to_lowercase()),
        }
    }
}
