//! The tensor: a shape, and a range of a counted buffer.

mod bf16;
mod cross;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "cuda")]
mod device_buffer;
mod make;

use std::ops::Range;
use std::sync::Arc;

use ndarray::ArrayView2;

use crate::dtype::of_bf16;
use crate::floats::Floats;
use crate::parallel::{self, CHUNK};
use crate::{DType, Device, Error, Result, Shape};

/// A row-major tensor, contiguous but for the results of [`ops::matmul_padded`](crate::ops::matmul_padded). Cloning
/// shares the buffer; the only view is a run of rows, which is what a micro-batch is.
#[derive(Clone)]
pub struct Tensor {
    shape: Shape,
    /// The range of the buffer that this tensor covers, with what lies between its rows.
    elements: Range<usize>,
    storage: Arc<Storage>,
}

/// A buffer and the handle that counts it.
struct Storage {
    buffer: Buffer,
    device: Device,
}

enum Buffer {
    F32(Floats),
    U32(Vec<u32>),
    /// Bits of floats on their way to a GPU: the processor computes nothing with them.
    Bf16(Vec<u16>),
    #[cfg(feature = "cuda")]
    Cuda(device_buffer::DeviceBuffer),
}

impl Buffer {
    fn bytes(&self) -> usize {
        match self {
            Self::F32(a) => a.len() * 4,
            Self::U32(a) => a.len() * 4,
            Self::Bf16(a) => a.len() * 2,
            #[cfg(feature = "cuda")]
            Self::Cuda(buffer) => buffer.bytes(),
        }
    }
}

impl Storage {
    /// Counts `bytes`, then allocates the buffer.
    fn new(device: &Device, bytes: usize, make: impl FnOnce() -> Result<Buffer>) -> Result<Self> {
        let live = device.count(bytes)?;
        match make() {
            Ok(buffer) => {
                device.saw(live);
                let device = device.clone();
                Ok(Self { buffer, device })
            }
            Err(error) => {
                device.discount(bytes);
                Err(error)
            }
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.device.discount(self.buffer.bytes());
        if let Buffer::F32(floats) = &mut self.buffer {
            self.device.host().give(std::mem::take(floats));
        }
    }
}

impl Tensor {
    /// The extents.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        match &self.storage.buffer {
            Buffer::F32(_) => DType::F32,
            Buffer::U32(_) => DType::U32,
            Buffer::Bf16(_) => DType::BF16,
            #[cfg(feature = "cuda")]
            Buffer::Cuda(buffer) => buffer.dtype(),
        }
    }

    /// The handle that counts the buffer.
    pub fn device(&self) -> &Device {
        &self.storage.device
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        match self.is_dense() {
            true => self.elements.len(),
            false => self.elements.len() / self.shape.row_stride() * self.shape.last(),
        }
    }

    /// The size of the elements in bytes, with what lies between their rows.
    pub fn bytes(&self) -> usize {
        self.elements.len() * self.dtype().bytes()
    }

    /// Whether its rows lie one behind the other.
    fn is_dense(&self) -> bool {
        self.shape.row_stride() == self.shape.last()
    }

    /// The floats, row by row.
    ///
    /// # Errors
    /// [`Error::DType`] for a tensor of indices; [`Error::Elsewhere`] for one of a GPU.
    pub fn f32s(&self) -> Result<&[f32]> {
        match &self.storage.buffer {
            Buffer::F32(a) => Ok(&a[self.elements.clone()]),
            Buffer::U32(_) | Buffer::Bf16(_) => Err(Error::DType {
                op: "floats",
                expected: DType::F32,
                got: self.dtype(),
            }),
            #[cfg(feature = "cuda")]
            Buffer::Cuda(buffer) => Err(buffer.elsewhere("floats")),
        }
    }

    /// A copy of the floats on the host in single precision, from any device. Waits for the operations so
    /// far.
    ///
    /// # Errors
    /// [`Error::DType`] for a tensor of indices; errors of the device.
    pub fn to_f32s(&self) -> Result<Vec<f32>> {
        #[cfg(feature = "cuda")]
        if let Buffer::Cuda(buffer) = &self.storage.buffer {
            return match self.is_dense() {
                true => buffer.to_floats(self.elements.clone()),
                false => self.to_dense("to_f32s")?.to_f32s(),
            };
        }
        if let Buffer::Bf16(bits) = &self.storage.buffer {
            let bits = bits[self.elements.clone()].iter();
            return Ok(bits.map(|&bits| of_bf16(bits)).collect());
        }
        Ok(self.f32s()?.to_vec())
    }

    /// The indices, row by row.
    ///
    /// # Errors
    /// [`Error::DType`] for a tensor of floats.
    pub fn u32s(&self) -> Result<&[u32]> {
        match &self.storage.buffer {
            Buffer::U32(a) => Ok(&a[self.elements.clone()]),
            Buffer::F32(_) | Buffer::Bf16(_) => Err(Error::DType {
                op: "indices",
                expected: DType::U32,
                got: self.dtype(),
            }),
            #[cfg(feature = "cuda")]
            Buffer::Cuda(buffer) => buffer.indices(self.elements.clone()),
        }
    }

    /// The floats, to be changed in place.
    ///
    /// # Errors
    /// [`Error::Shared`] if anything else holds the buffer: what a backward pass saved cannot be
    /// overwritten. [`Error::DType`] for a tensor of indices; [`Error::Elsewhere`] for one of a GPU.
    pub fn f32s_mut(&mut self) -> Result<&mut [f32]> {
        let got = self.dtype();
        let storage = Arc::get_mut(&mut self.storage).ok_or(Error::Shared {
            op: "floats in place",
        })?;
        match &mut storage.buffer {
            Buffer::F32(a) => Ok(&mut a[self.elements.clone()]),
            Buffer::U32(_) | Buffer::Bf16(_) => Err(Error::DType {
                op: "floats in place",
                expected: DType::F32,
                got,
            }),
            #[cfg(feature = "cuda")]
            Buffer::Cuda(buffer) => Err(buffer.elsewhere("floats in place")),
        }
    }

    /// Sets every float to `value`, in place.
    ///
    /// # Errors
    /// [`Error::Shared`] and [`Error::DType`] as [`f32s_mut`](Self::f32s_mut); works on any device.
    pub fn fill(&mut self, value: f32) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = self.gpu().cloned() {
            return self.fill_on(&gpu, value);
        }
        let device = self.device().clone();
        let threads = parallel::threads_over(&device, self.elements());
        let chunks = self.f32s_mut()?.chunks_mut(CHUNK);
        parallel::for_each_on(threads, &device, chunks, |chunk| chunk.fill(value));
        Ok(())
    }

    /// Whether the elements are in memory of the host, whichever handle counts them.
    pub fn is_on_host(&self) -> bool {
        match &self.storage.buffer {
            Buffer::F32(_) | Buffer::U32(_) | Buffer::Bf16(_) => true,
            #[cfg(feature = "cuda")]
            Buffer::Cuda(_) => false,
        }
    }

    /// Whether this tensor alone holds the buffer, so that it may be changed in place.
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.storage) == 1
    }

    /// Whether both are the same elements of one buffer, in the same shape.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage)
            && self.elements == other.elements
            && self.shape == other.shape
    }

    /// The floats as a matrix view: all extents but the innermost form the rows.
    ///
    /// # Errors
    /// [`Error::DType`] for a tensor of indices.
    pub fn matrix(&self) -> Result<ArrayView2<'_, f32>> {
        let dims = self.shape.matrix()?;
        ArrayView2::from_shape(dims, self.f32s()?)
            .map_err(|e| Error::shape("matrix", e.to_string(), &self.shape))
    }

    /// The same elements with another shape; shares the buffer, unless rows that lie apart get another length.
    ///
    /// # Errors
    /// [`Error::Shape`] if the number of elements differs.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into().dense();
        if shape.elements()? != self.elements() {
            return Err(Error::shape(
                "reshape",
                format!("{} elements", self.elements()),
                &shape,
            ));
        }
        #[cfg(feature = "cuda")]
        if !self.is_dense() {
            return self.reshape_padded(shape);
        }
        Ok(Self {
            shape,
            ..self.clone()
        })
    }

    /// A view of a run of rows (along the outermost extent): a micro-batch of a batch.
    ///
    /// # Errors
    /// [`Error::Index`] if the range ends beyond the last row, [`Error::Argument`] if it begins behind its end.
    pub fn rows(&self, rows: Range<usize>) -> Result<Self> {
        let total = self.shape.rows();
        if rows.start > rows.end {
            return Err(Error::Argument {
                op: "rows",
                message: format!("the range {rows:?} begins behind its end"),
            });
        }
        if rows.end > total {
            return Err(Error::Index {
                op: "rows",
                index: rows.end as u64,
                len: total as u64,
            });
        }
        let width = self.elements.len().checked_div(total).unwrap_or(0);
        let start = self.elements.start + rows.start * width;
        Ok(Self {
            shape: self.shape.with_rows(rows.len()),
            elements: start..start + rows.len() * width,
            storage: self.storage.clone(),
        })
    }

    /// Runs `work` on a run of rows in place of the whole tensor. `work` must not put another tensor in its place.
    ///
    /// # Errors
    /// As [`rows`](Self::rows), and those of `work`.
    pub(crate) fn within_rows(
        &mut self,
        rows: Range<usize>,
        work: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let Self {
            shape, elements, ..
        } = self.rows(rows)?;
        let shape = std::mem::replace(&mut self.shape, shape);
        let elements = std::mem::replace(&mut self.elements, elements);
        let result = work(self);
        (self.shape, self.elements) = (shape, elements);
        result
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Tensor({} {} on {})",
            self.dtype(),
            self.shape,
            self.device().id()
        )
    }
}

#[cfg(test)]
mod tests;
