//! Tensors in the memory of a GPU, and copies from and to it.

use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::cast_slice;

use super::device_buffer::DeviceBuffer;
use crate::cuda::entry::Pointer;
use crate::cuda::{Gpu, Memory};
use crate::ops::concat::kernels as concat;
use crate::ops::concat::plan::Columns;
use crate::ops::scale;
use crate::{DType, Device, Error, Result, Shape, Tensor};

/// Whether there are kernels for this type.
pub(super) fn computes_in(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::BF16)
}

/// A buffer of floats of this type with unspecified contents.
pub(super) fn floats(gpu: &Gpu, n: usize, dtype: DType) -> Result<super::Buffer> {
    Ok(buffer(gpu.alloc(dtype.bytes() * n)?, n, dtype, None))
}

/// A buffer of these floats.
pub(super) fn from_floats(gpu: &Gpu, values: &[f32]) -> Result<super::Buffer> {
    let memory = gpu.upload(cast_slice(values))?.enter_arena()?;
    Ok(buffer(memory, values.len(), DType::F32, None))
}

/// A buffer of `bf16` elements of these bits.
pub(super) fn from_bits(gpu: &Gpu, bits: &[u16]) -> Result<super::Buffer> {
    let memory = gpu.upload(cast_slice(bits))?.enter_arena()?;
    Ok(buffer(memory, bits.len(), DType::BF16, None))
}

/// A buffer of these indices.
pub(super) fn from_indices(gpu: &Gpu, values: Vec<u32>) -> Result<super::Buffer> {
    let memory = gpu.upload(cast_slice(&values))?;
    Ok(buffer(memory, values.len(), DType::U32, Some(values)))
}

fn buffer(
    memory: Memory,
    elements: usize,
    dtype: DType,
    indices: Option<Vec<u32>>,
) -> super::Buffer {
    super::Buffer::Cuda(DeviceBuffer {
        memory: Some(memory),
        elements,
        dtype,
        indices,
    })
}

/// A tensor's memory for the duration of an operation.
pub(crate) struct Operand<'a> {
    /// Address of the first element.
    pub at: Pointer,
    /// A temporary copy, for a tensor on the host.
    _own: Option<Memory>,
    _tensor: PhantomData<&'a Tensor>,
}

impl Tensor {
    /// The GPU that holds the elements; `None` for a tensor on the host.
    pub(crate) fn gpu(&self) -> Option<&Gpu> {
        match &self.storage.buffer {
            super::Buffer::Cuda(buffer) => buffer.memory.as_ref().map(Memory::gpu),
            _ => None,
        }
    }

    /// The elements, row behind row, as operand of an operation on `gpu`; a tensor on the host is copied for its
    /// duration, and so is one whose rows lie apart.
    ///
    /// # Errors
    /// [`Error::DType`] for elements of another type.
    pub(crate) fn operand(&self, op: &'static str, gpu: &Gpu, dtype: DType) -> Result<Operand<'_>> {
        if self.is_dense() {
            return self.operand_rows(op, gpu, dtype);
        }
        self.check_dtype(op, dtype)?;
        let own = gpu.alloc(dtype.bytes() * self.elements())?;
        self.copy_rows(op, gpu, own.at(0))?;
        Ok(Operand {
            at: own.at(0),
            _own: Some(own),
            _tensor: PhantomData,
        })
    }

    /// [`operand`](Self::operand) with rows as they lie.
    pub(crate) fn operand_rows(
        &self,
        op: &'static str,
        gpu: &Gpu,
        dtype: DType,
    ) -> Result<Operand<'_>> {
        self.check_dtype(op, dtype)?;
        let own = match &self.storage.buffer {
            super::Buffer::Cuda(buffer) => {
                let memory = buffer.memory()?;
                if !memory.gpu().is(gpu) {
                    return Err(foreign(op));
                }
                return Ok(Operand {
                    at: memory.at(dtype.bytes() * self.elements.start),
                    _own: None,
                    _tensor: PhantomData,
                });
            }
            super::Buffer::F32(floats) => gpu.upload(cast_slice(&floats[self.elements.clone()]))?,
            super::Buffer::U32(indices) => {
                gpu.upload(cast_slice(&indices[self.elements.clone()]))?
            }
            super::Buffer::Bf16(bits) => gpu.upload(cast_slice(&bits[self.elements.clone()]))?,
        };
        Ok(Operand {
            at: own.at(0),
            _own: Some(own),
            _tensor: PhantomData,
        })
    }

    /// Copies the floats to memory of `gpu` that has room for them, row behind row.
    fn copy_rows(&self, op: &'static str, gpu: &Gpu, to: Pointer) -> Result<()> {
        let (count, dtype) = (self.shape.last(), self.dtype());
        let rows = self.operand_rows(op, gpu, dtype)?;
        let columns = Columns {
            rows: self.elements().checked_div(count).unwrap_or(0),
            count,
            from: [self.shape.row_stride(), 0],
            to: [count, 0],
        };
        // SAFETY: both live on this handle and have these rows, of these widths.
        unsafe { gpu.launch(&concat::copy(dtype, rows.at, to, columns)) }
    }

    /// [`Tensor::reshape`] of a tensor whose rows lie apart, to a shape of as many elements.
    pub(super) fn reshape_padded(&self, shape: Shape) -> Result<Self> {
        if shape.last() == self.shape.last() && shape.rank() > 1 {
            return Ok(Self {
                shape: shape.with_row_stride_of(&self.shape),
                ..self.clone()
            });
        }
        self.to_dense("reshape")?.reshape(shape)
    }

    /// A copy whose rows lie one behind the other.
    pub(super) fn to_dense(&self, op: &'static str) -> Result<Self> {
        let gpu = self.gpu().ok_or_else(|| foreign(op))?;
        let mut dense = self.empty_like(self.shape.clone())?;
        let to = dense.written(op, gpu, self.dtype())?;
        self.copy_rows(op, gpu, to)?;
        Ok(dense)
    }

    /// [`empty_like`](Self::empty_like) with rows apart, if the shape says so.
    pub(crate) fn empty_rows_like(&self, gpu: &Gpu, shape: Shape) -> Result<Self> {
        let (n, dtype) = (shape.stored_elements()?, self.dtype());
        Self::over_stored(self.device(), shape, dtype, || floats(gpu, n, dtype))
    }

    /// An error unless the elements are of this type.
    fn check_dtype(&self, op: &'static str, expected: DType) -> Result<()> {
        let got = self.dtype();
        if got == expected {
            return Ok(());
        }
        Err(Error::DType { op, expected, got })
    }

    /// Address of the floats, row behind row, as result of an operation on `gpu`. Rows that lie apart are moved together
    /// first, in new memory.
    ///
    /// # Errors
    /// [`Error::Shared`] if anything else holds the buffer; [`Error::DType`] for elements of another type.
    pub(crate) fn written(&mut self, op: &'static str, gpu: &Gpu, dtype: DType) -> Result<Pointer> {
        if !self.is_dense() && self.is_unique() {
            *self = self.to_dense(op)?;
        }
        self.written_rows(op, gpu, dtype)
    }

    /// [`written`](Self::written) with rows as they lie: [`Shape::row_stride`] elements apart.
    pub(crate) fn written_rows(
        &mut self,
        op: &'static str,
        gpu: &Gpu,
        dtype: DType,
    ) -> Result<Pointer> {
        self.check_dtype(op, dtype)?;
        let storage = Arc::get_mut(&mut self.storage).ok_or(Error::Shared { op })?;
        match &mut storage.buffer {
            super::Buffer::Cuda(DeviceBuffer {
                memory: Some(memory),
                indices: None,
                ..
            }) if memory.gpu().is(gpu) => memory.written_at(dtype.bytes() * self.elements.start),
            _ => Err(foreign(op)),
        }
    }

    /// [`Tensor::fill`] of a tensor on a GPU.
    pub(super) fn fill_on(&mut self, gpu: &Gpu, value: f32) -> Result<()> {
        let (n, dtype) = (self.elements.len(), self.dtype());
        let at = self.written_rows("fill", gpu, dtype)?;
        match dtype {
            // SAFETY: it lives on this handle, and has n elements, with those between its rows.
            DType::F32 => unsafe { gpu.fill(at, value, n) },
            // SAFETY: as above.
            _ => unsafe { gpu.launch(&scale::kernels::fill(dtype, at, n, value)) },
        }
    }

    /// [`Tensor::send`] of a tensor on a GPU, or [`Tensor::hold`] of one that stays.
    pub(super) fn send_across(mut self, transit: &Device, stays: bool) -> Result<Self> {
        if self.recount(transit)?
            && !stays
            && let Some(storage) = Arc::get_mut(&mut self.storage)
            && let super::Buffer::Cuda(DeviceBuffer {
                memory: Some(memory),
                ..
            }) = &mut storage.buffer
        {
            memory.settle()?;
        }
        Ok(self)
    }

    /// Moves the bytes from the count of one handle to that of another, if this tensor covers a whole buffer
    /// that nothing else holds; returns whether it does.
    fn recount(&mut self, device: &Device) -> Result<bool> {
        let own = self.bytes();
        let Some(storage) = Arc::get_mut(&mut self.storage) else {
            return Ok(false);
        };
        let bytes = storage.buffer.bytes();
        if bytes != own {
            return Ok(false);
        }
        if !storage.device.is(device) {
            device.saw(device.count(bytes)?);
            storage.device.discount(bytes);
            storage.device = device.clone();
        }
        Ok(true)
    }

    /// [`Tensor::receive`] from or to a GPU.
    pub(super) fn receive_across(mut self, device: &Device) -> Result<Self> {
        let (Some(from), Some(to)) = (self.gpu(), device.gpu()) else {
            return self.copy_across(device);
        };
        let stays = from.is(to);
        if !self.recount(device)? {
            return self.copy_across(device);
        }
        if let Some(storage) = Arc::get_mut(&mut self.storage)
            && let super::Buffer::Cuda(DeviceBuffer { memory, .. }) = &mut storage.buffer
        {
            *memory = match memory.take() {
                Some(mut memory) => {
                    if !stays {
                        memory.leave_arena()?;
                        memory = memory.hand_to(to_of(device)?)?;
                    }
                    Some(memory.enter_arena()?)
                }
                None => None,
            };
        }
        Ok(self)
    }

    /// [`Tensor::copy_to`] from or to a GPU.
    pub(super) fn copy_across(&self, device: &Device) -> Result<Self> {
        let (Some(_), Some(to)) = (self.gpu(), device.gpu()) else {
            return match self.dtype() {
                DType::U32 => Self::from_u32(device, self.shape.clone(), self.u32s()?.to_vec()),
                DType::BF16 if device.gpu().is_some() => {
                    Self::from_bf16(device, self.shape.clone(), self.bf16_bits()?)
                }
                _ => match device.gpu() {
                    Some(_) => Self::from_f32(device, self.shape.clone(), self.f32s()?),
                    None => Self::from_f32(device, self.shape.clone(), self.to_f32s()?),
                },
            };
        };
        let indices = match self.dtype() {
            DType::U32 => Some(self.u32s()?.to_vec()),
            _ => None,
        };
        let super::Buffer::Cuda(source) = &self.storage.buffer else {
            return Err(foreign("copy"));
        };
        let (n, dtype) = (self.elements.len(), self.dtype());
        Self::over_stored(device, self.shape.clone(), dtype, || {
            let memory = source.memory()?;
            let from = dtype.bytes() * self.elements.start;
            let memory = memory.copy_for(to, from, dtype.bytes() * n)?;
            Ok(buffer(memory, n, dtype, indices))
        })
    }

    /// [`Tensor::copy_from`] from or to a GPU.
    pub(super) fn copy_from_across(&mut self, from: &Self) -> Result<()> {
        const OP: &str = "copy_from";
        let Some(gpu) = self.gpu().cloned() else {
            let values = from.to_f32s()?;
            self.f32s_mut()?.copy_from_slice(&values);
            return Ok(());
        };
        if !from.dtype().is_float() {
            return Err(foreign(OP));
        }
        let device = self.device().clone();
        let here;
        let from = match from.gpu() {
            Some(there) if !there.is(&gpu) => {
                here = from.copy_to(&device)?;
                &here
            }
            _ => from,
        };
        let (n, new, old) = (from.elements(), from.dtype(), self.dtype());
        let operand = from.operand(OP, &gpu, new)?;
        let to = self.written(OP, &gpu, old)?;
        // SAFETY: both live on this handle and have n elements: their shapes were compared.
        unsafe {
            match (new, old) {
                (new, old) if new == old => gpu.copy(to, operand.at, n * new.bytes()),
                (DType::F32, narrow) => {
                    gpu.launch(&scale::kernels::narrow(narrow, operand.at, to, n))
                }
                (narrow, _) => gpu.launch(&scale::kernels::widen(narrow, operand.at, to, n)),
            }
        }
    }
}

fn to_of(device: &Device) -> Result<&Gpu> {
    device.gpu().ok_or_else(|| foreign("receive"))
}

/// The error for an operand of another handle than the operation's.
fn foreign(op: &'static str) -> Error {
    Error::Argument {
        op,
        message: "an operand is on another handle: receive it first".into(),
    }
}
