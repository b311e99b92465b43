//! Sums that a device may still be working on.

use crate::Result;
#[cfg(feature = "cuda")]
use crate::cuda::Memory;

/// A sum, to be read as late as can be: on a GPU the host waits for it.
pub struct Late(Parts);

enum Parts {
    Known(f64),
    #[cfg(feature = "cuda")]
    Device {
        /// Numbers in double precision, to be added up in order.
        memory: Memory,
        count: usize,
        divisor: f64,
    },
}

impl Late {
    /// The sum of so many numbers, divided.
    #[cfg(feature = "cuda")]
    pub(super) fn on_device(memory: Memory, count: usize, divisor: f64) -> Self {
        Self(Parts::Device {
            memory,
            count,
            divisor,
        })
    }

    /// The sum.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn read(&self) -> Result<f64> {
        match &self.0 {
            Parts::Known(sum) => Ok(*sum),
            #[cfg(feature = "cuda")]
            Parts::Device {
                memory,
                count,
                divisor,
            } => {
                let parts = memory
                    .gpu()
                    .read(memory.at(0), *count, f64::from_ne_bytes)?;
                Ok(parts.iter().sum::<f64>() / divisor)
            }
        }
    }
}

impl From<f64> for Late {
    fn from(sum: f64) -> Self {
        Self(Parts::Known(sum))
    }
}

impl std::fmt::Debug for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Parts::Known(sum) => write!(f, "Late({sum})"),
            #[cfg(feature = "cuda")]
            Parts::Device { count, .. } => write!(f, "Late({count} numbers on a device)"),
        }
    }
}
