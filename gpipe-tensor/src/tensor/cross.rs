//! Tensors and values that move from one handle to another.

use std::sync::Arc;

use super::Tensor;
use crate::{DType, Device, Error, Result};

impl Tensor {
    /// Overwrites the floats with those of `from`, which may be on any device, converted as by
    /// [`to_dtype`](Self::to_dtype).
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes differ; as [`fill`](Self::fill), and as
    /// [`copy_to`](Self::copy_to).
    pub fn copy_from(&mut self, from: &Self) -> Result<()> {
        if self.shape != from.shape {
            let expected = format!("a tensor of shape {}", self.shape);
            return Err(Error::shape("copy_from", expected, &from.shape));
        }
        #[cfg(feature = "cuda")]
        if self.gpu().is_some() || from.gpu().is_some() {
            return self.copy_from_across(from);
        }
        match from.f32s() {
            Ok(values) => self.f32s_mut()?.copy_from_slice(values),
            Err(_) => self.f32s_mut()?.copy_from_slice(&from.to_f32s()?),
        }
        Ok(())
    }

    /// Moves the tensor to `device`. A whole buffer that nothing else holds moves together with the count of
    /// its bytes; otherwise the elements are copied.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if `device` has no memory for it.
    pub fn receive(mut self, device: &Device) -> Result<Self> {
        if self.device().is(device) {
            return Ok(self);
        }
        #[cfg(feature = "cuda")]
        if self.gpu().is_some() || device.gpu().is_some() {
            return self.receive_across(device);
        }
        let own = self.bytes();
        if let Some(storage) = Arc::get_mut(&mut self.storage) {
            let bytes = storage.buffer.bytes();
            if bytes == own {
                device.saw(device.count(bytes)?);
                storage.device.discount(bytes);
                storage.device = device.clone();
                return Ok(self);
            }
        }
        self.copy_to(device)
    }

    /// Prepares the tensor for [`receive`](Self::receive) by another worker: `transit` counts its bytes in the
    /// meantime, unless something else holds the buffer too. The memory of a GPU is not copied.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if a copy is needed and there is no memory for it.
    pub fn send(self, transit: &Device) -> Result<Self> {
        #[cfg(feature = "cuda")]
        if self.gpu().is_some() {
            return self.send_across(transit, false);
        }
        self.receive(transit)
    }

    /// [`send`](Self::send) to the worker that has the tensor already, which receives it on the same handle: nothing
    /// is done for others.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn hold(self, transit: &Device) -> Result<Self> {
        #[cfg(feature = "cuda")]
        if self.gpu().is_some() {
            return self.send_across(transit, true);
        }
        self.receive(transit)
    }

    /// A copy of the elements in a new buffer on `device`; of a GPU's on the CPU, floats are in single precision.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is no memory for the copy.
    pub fn copy_to(&self, device: &Device) -> Result<Self> {
        #[cfg(feature = "cuda")]
        if self.gpu().is_some() || device.gpu().is_some() {
            return self.copy_across(device);
        }
        match self.dtype() {
            DType::U32 => Self::from_u32(device, self.shape.clone(), self.u32s()?.to_vec()),
            DType::BF16 => Self::from_bf16(device, self.shape.clone(), self.bf16_bits()?),
            _ => {
                let mut copy = Self::empty(device, self.shape.clone())?;
                copy.f32s_mut()?.copy_from_slice(self.f32s()?);
                Ok(copy)
            }
        }
    }
}
