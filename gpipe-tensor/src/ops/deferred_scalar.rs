//! Scalar results that a device may still be computing.

use crate::Result;
#[cfg(feature = "cuda")]
use crate::cuda::Memory;

/// A scalar result of an operation, such as a loss. On a GPU [`read`](Self::read) waits for it, so read it
/// as late as possible.
pub struct DeferredScalar(Parts);

enum Parts {
    Known(f64),
    #[cfg(feature = "cuda")]
    Device {
        /// Partial sums in double precision, added up in order.
        memory: Memory,
        count: usize,
        divisor: f64,
    },
}

impl DeferredScalar {
    /// The sum of `count` numbers in `memory`, divided by `divisor`.
    #[cfg(feature = "cuda")]
    pub(super) fn on_device(memory: Memory, count: usize, divisor: f64) -> Self {
        Self(Parts::Device {
            memory,
            count,
            divisor,
        })
    }

    /// The value; waits for the device.
    ///
    /// # Errors
    /// If an operation on the device has failed.
    pub fn read(&self) -> Result<f64> {
        match &self.0 {
            Parts::Known(sum) => Ok(*sum),
            #[cfg(feature = "cuda")]
            Parts::Device {
                memory,
                count,
                divisor,
            } => {
                let parts = memory.read(0, *count, f64::from_ne_bytes)?;
                Ok(parts.iter().sum::<f64>() / divisor)
            }
        }
    }
}

impl From<f64> for DeferredScalar {
    fn from(sum: f64) -> Self {
        Self(Parts::Known(sum))
    }
}

impl std::fmt::Debug for DeferredScalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Parts::Known(sum) => write!(f, "DeferredScalar({sum})"),
            #[cfg(feature = "cuda")]
            Parts::Device { count, .. } => write!(f, "DeferredScalar({count} numbers on a device)"),
        }
    }
}
