//! Tensors of bf16 as bits in memory of the host, on their way between GPUs.

use super::make::check_count;
use super::{Buffer, Tensor};
use crate::{DType, Device, Error, Result, Shape};

impl Tensor {
    /// A tensor of `bf16` elements, given by their bits. A GPU stores them as they are. Of the CPU, no operation takes
    /// them: the tensor waits there until a GPU [receives](Self::receive) it.
    ///
    /// # Errors
    /// [`Error::Shape`] if there are not as many values as the shape has elements;
    /// [`Error::OutOfMemory`].
    ///
    /// ```
    /// use gpipe_tensor::{DType, DeviceId, Host, Tensor};
    ///
    /// let device = Host::new(1)?.device(DeviceId::Cpu)?;
    /// let x = Tensor::from_bf16(&device, [2], vec![0x3f80, 0xc0a0])?;
    /// assert_eq!((x.dtype(), x.bytes()), (DType::BF16, 4));
    /// assert_eq!(x.bf16_bits()?, [0x3f80, 0xc0a0]);
    /// assert_eq!(x.to_f32s()?, [1.0, -5.0]);
    /// # Ok::<(), gpipe_tensor::Error>(())
    /// ```
    pub fn from_bf16(device: &Device, shape: impl Into<Shape>, bits: Vec<u16>) -> Result<Self> {
        let shape = shape.into();
        check_count(&shape, bits.len(), DType::BF16)?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = device.gpu() {
            let upload = || super::cuda::from_bits(gpu, &bits);
            return Self::over(device, shape, DType::BF16, upload);
        }
        Self::over(device, shape, DType::BF16, || Ok(Buffer::Bf16(bits)))
    }

    /// A copy of the bits of `bf16` elements on the host, from any device. Waits for the operations so far.
    ///
    /// # Errors
    /// [`Error::DType`] for elements of another type; errors of the device.
    pub fn bf16_bits(&self) -> Result<Vec<u16>> {
        match &self.storage.buffer {
            Buffer::Bf16(bits) => Ok(bits[self.elements.clone()].to_vec()),
            #[cfg(feature = "cuda")]
            Buffer::Cuda(buffer) if self.dtype() == DType::BF16 => match self.is_dense() {
                true => buffer.to_bits(self.elements.clone()),
                false => self.to_dense("bf16_bits")?.bf16_bits(),
            },
            _ => Err(Error::DType {
                op: "bits",
                expected: DType::BF16,
                got: self.dtype(),
            }),
        }
    }
}
