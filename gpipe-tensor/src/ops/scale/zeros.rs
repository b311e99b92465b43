//! Zeros for many tensors.

use std::fmt;

#[cfg(feature = "cuda")]
use super::cuda;
use crate::{Result, Tensor};

/// Tensors that become zeros: a GPU writes those of single precision in one launch.
#[derive(Default)]
pub struct Zeros {
    #[cfg(feature = "cuda")]
    waiting: cuda::Waiting,
}

impl fmt::Debug for Zeros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zeros").finish_non_exhaustive()
    }
}

impl Zeros {
    /// [`Tensor::fill`] with 0: at once on the CPU, on a GPU when [`run`](Self::run) is called. Until then this holds the
    /// tensor.
    ///
    /// # Errors
    /// As [`Tensor::fill`].
    pub fn add(&mut self, tensor: &mut Tensor) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let (Some(gpu), crate::DType::F32) = (tensor.gpu().cloned(), tensor.dtype()) {
            return self.waiting.add(&gpu, tensor);
        }
        tensor.fill(0.0)
    }

    /// Writes the remaining zeros.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if the device has no memory for the list of tensors.
    pub fn run(self) -> Result<()> {
        #[cfg(feature = "cuda")]
        self.waiting.run()?;
        Ok(())
    }
}
