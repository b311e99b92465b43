//! Tensors that go from one handle to another, or whose values do.

use std::sync::Arc;

use super::Tensor;
use crate::{DType, Device, Error, Result};

impl Tensor {
    /// Copies the floats of `from`, wherever they lie, over these, in place; those of another type as
    /// [`to_dtype`](Self::to_dtype) does.
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
        self.f32s_mut()?.copy_from_slice(from.f32s()?);
        Ok(())
    }

    /// Hands the tensor over to `device`. A whole buffer that nothing else holds changes hands
    /// with its bytes; otherwise the elements are copied.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is no room for it.
    pub fn receive(mut self, device: &Device) -> Result<Self> {
        if self.device().is(device) {
            return Ok(self);
        }
        #[cfg(feature = "cuda")]
        if self.gpu().is_some() || device.gpu().is_some() {
            return self.receive_across(device);
        }
        if let Some(storage) = Arc::get_mut(&mut self.storage) {
            let bytes = storage.buffer.bytes();
            if bytes == self.elements.len() * 4 {
                device.saw(device.count(bytes)?);
                storage.device.discount(bytes);
                storage.device = device.clone();
                return Ok(self);
            }
        }
        self.copy_to(device)
    }

    /// Lets go of the tensor until somebody receives it: `transit` counts its bytes meanwhile, unless
    /// something else holds the buffer too. On a GPU it stays where it is.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if a copy is needed and there is no room for it.
    pub fn send(self, transit: &Device) -> Result<Self> {
        #[cfg(feature = "cuda")]
        if self.gpu().is_some() {
            return self.send_across(transit);
        }
        self.receive(transit)
    }

    /// A copy of the elements in a buffer of its own on `device`; on the processor, floats are of single
    /// precision.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if there is no room for the copy.
    pub fn copy_to(&self, device: &Device) -> Result<Self> {
        #[cfg(feature = "cuda")]
        if self.gpu().is_some() || device.gpu().is_some() {
            return self.copy_across(device);
        }
        match self.dtype() {
            DType::U32 => Self::from_u32(device, self.shape.clone(), self.u32s()?.to_vec()),
            _ => {
                let mut copy = Self::empty(device, self.shape.clone())?;
                copy.f32s_mut()?.copy_from_slice(self.f32s()?);
                Ok(copy)
            }
        }
    }
}
