//! What times the passes of a layer: the host's clock, or the launches of a GPU.

#[cfg(feature = "cuda")]
use gpipe_tensor::{Device, KnownGpu};

use super::operations::{Operations, Took};
#[cfg(feature = "cuda")]
use crate::error::Error;
use crate::error::Result;

/// What times passes.
pub enum Clock {
    /// The host's clock, between the operations of one device.
    Host(Operations),
    /// The launches of a device on paper, by a model of a GPU.
    #[cfg(feature = "cuda")]
    Model {
        /// The device.
        device: Device,
        /// The GPU.
        gpu: &'static KnownGpu,
        /// Whether products in f32 round their factors to TF32.
        tf32: bool,
    },
}

impl Clock {
    /// Times a pass.
    ///
    /// # Errors
    /// If the device fails.
    pub fn time<T>(&self, pass: impl FnOnce() -> T) -> Result<(T, Took)> {
        match self {
            Self::Host(operations) => Ok(operations.time(pass)),
            #[cfg(feature = "cuda")]
            Self::Model { device, gpu, tf32 } => {
                let launches = || device.take_launches().map_err(Error::run);
                launches()?;
                let result = pass();
                let launches = launches()?.unwrap_or_default().launches;
                let seconds = || launches.iter().map(|launch| gpu.seconds(launch, *tf32));
                let took = Took {
                    seconds: seconds().sum(),
                    squares: seconds().map(|seconds| seconds * seconds).sum(),
                };
                Ok((result, took))
            }
        }
    }

    /// Whether times differ from pass to pass.
    pub fn is_host(&self) -> bool {
        matches!(self, Self::Host(_))
    }
}
