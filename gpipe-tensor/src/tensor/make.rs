//! Constructors: zeros, given values, or uninitialized results.

use std::sync::Arc;

#[cfg(feature = "cuda")]
use super::cuda;
use super::{Buffer, Storage, Tensor};
use crate::{DType, Device, DeviceId, Error, Result, Shape};

impl Tensor {
    /// A tensor of zeros.
    ///
    /// # Errors
    /// [`Error::Size`] if the size overflows, [`Error::OutOfMemory`] if there is not enough free
    /// memory.
    pub fn zeros(device: &Device, shape: impl Into<Shape>) -> Result<Self> {
        Self::zeros_of(device, shape, DType::F32)
    }

    /// A tensor of zeros of this type of floats.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros), and if the device does not store such elements.
    pub fn zeros_of(device: &Device, shape: impl Into<Shape>, dtype: DType) -> Result<Self> {
        let shape = shape.into();
        let n = checked_elements("tensor", &shape, dtype)?;
        if device.id() != DeviceId::Cpu || dtype != DType::F32 {
            let mut zeros = Self::empty_of(device, shape, dtype)?;
            zeros.fill(0.0)?;
            return Ok(zeros);
        }
        let zeros = || Ok(Buffer::F32(device.host().take_zeros(n)?));
        Self::over(device, shape, DType::F32, zeros)
    }

    /// A tensor of floats with unspecified contents, for an operation that writes every element.
    ///
    /// # Errors
    /// [`Error::Size`] if the size overflows, [`Error::OutOfMemory`] if there is not enough free
    /// memory.
    pub fn empty(device: &Device, shape: impl Into<Shape>) -> Result<Self> {
        Self::empty_of(device, shape.into(), DType::F32)
    }

    /// [`empty`](Self::empty) of elements of this type. The CPU stores floats in single precision only.
    pub(crate) fn empty_of(device: &Device, shape: Shape, dtype: DType) -> Result<Self> {
        let n = checked_elements("tensor", &shape, dtype)?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = device.gpu().filter(|_| cuda::computes_in(dtype)) {
            return Self::over(device, shape, dtype, || cuda::floats(gpu, n, dtype));
        }
        if !dtype.is_float() {
            return Err(Error::DType {
                op: "tensor",
                expected: DType::F32,
                got: dtype,
            });
        }
        if dtype != DType::F32 {
            return Err(Error::Argument {
                op: "tensor",
                message: format!("{} holds no {dtype} elements: use f32", device.id()),
            });
        }
        let floats = || Ok(Buffer::F32(device.host().take(n)?));
        Self::over(device, shape, dtype, floats)
    }

    /// A tensor of this shape with unspecified contents, of the same type and on the same handle.
    pub(crate) fn empty_like(&self, shape: impl Into<Shape>) -> Result<Self> {
        Self::empty_of(self.device(), shape.into(), self.dtype())
    }

    /// The floats converted to this type on the same handle, rounded to nearest even. A tensor of this type
    /// already is returned as it is.
    ///
    /// # Errors
    /// [`Error::DType`] for a tensor of indices; [`Error::Argument`] for a type that the device does not store;
    /// [`Error::OutOfMemory`].
    pub fn to_dtype(&self, dtype: DType) -> Result<Self> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        let mut converted = Self::empty_of(self.device(), self.shape.clone(), dtype)?;
        converted.copy_from(self)?;
        Ok(converted)
    }

    /// A tensor of the given floats, copied to a buffer of the host's pool.
    ///
    /// # Errors
    /// [`Error::Shape`] if there are not as many values as the shape has elements;
    /// [`Error::OutOfMemory`].
    pub fn from_f32(
        device: &Device,
        shape: impl Into<Shape>,
        values: impl AsRef<[f32]>,
    ) -> Result<Self> {
        let (shape, values) = (shape.into(), values.as_ref());
        check_count(&shape, values.len(), DType::F32)?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = device.gpu() {
            let upload = || cuda::from_floats(gpu, values);
            return Self::over(device, shape, DType::F32, upload);
        }
        let mut tensor = Self::empty(device, shape)?;
        tensor.f32s_mut()?.copy_from_slice(values);
        Ok(tensor)
    }

    /// A tensor of the given indices.
    ///
    /// # Errors
    /// [`Error::Shape`] if there are not as many values as the shape has elements;
    /// [`Error::OutOfMemory`].
    pub fn from_u32(device: &Device, shape: impl Into<Shape>, values: Vec<u32>) -> Result<Self> {
        let shape = shape.into();
        check_count(&shape, values.len(), DType::U32)?;
        #[cfg(feature = "cuda")]
        if let Some(gpu) = device.gpu() {
            let upload = || cuda::from_indices(gpu, values);
            return Self::over(device, shape, DType::U32, upload);
        }
        Self::over(device, shape, DType::U32, || Ok(Buffer::U32(values)))
    }

    /// A tensor that covers all of a new buffer.
    pub(super) fn over(
        device: &Device,
        shape: Shape,
        dtype: DType,
        make: impl FnOnce() -> Result<Buffer>,
    ) -> Result<Self> {
        Self::over_stored(device, shape.dense(), dtype, make)
    }

    /// [`over`](Self::over) a buffer with room between the rows, if the shape has any.
    pub(super) fn over_stored(
        device: &Device,
        shape: Shape,
        dtype: DType,
        make: impl FnOnce() -> Result<Buffer>,
    ) -> Result<Self> {
        let elements = shape.stored_elements()?;
        Ok(Self {
            shape,
            elements: 0..elements,
            storage: Arc::new(Storage::new(device, elements * dtype.bytes(), make)?),
        })
    }
}

/// The elements of `shape`, if their bytes can be addressed.
fn checked_elements(op: &'static str, shape: &Shape, dtype: DType) -> Result<usize> {
    let n = shape.elements()?;
    match n.checked_mul(dtype.bytes()) {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(n),
        _ => Err(Error::Size {
            op,
            shape: shape.clone(),
        }),
    }
}

pub(super) fn check_count(shape: &Shape, values: usize, dtype: DType) -> Result<()> {
    if checked_elements("tensor", shape, dtype)? == values {
        return Ok(());
    }
    Err(Error::shape(
        "tensor",
        format!("values for shape {shape}"),
        format!("{values} values"),
    ))
}
