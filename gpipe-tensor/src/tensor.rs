//! The tensor: a shape and a run of rows of a counted buffer.

#[cfg(feature = "cuda")]
mod cuda;

use std::ops::Range;
use std::sync::Arc;

use ndarray::ArrayView2;

use crate::floats::Floats;
use crate::{DType, Device, Error, Result, Shape};

/// A row-major, always contiguous tensor. Cloning shares the buffer; the only view is a run of
/// rows, which is what a micro-batch is.
#[derive(Clone)]
pub struct Tensor {
    shape: Shape,
    /// The elements of the buffer that this tensor sees.
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
    #[cfg(feature = "cuda")]
    Cuda(cuda::Buffer),
}

impl Buffer {
    fn bytes(&self) -> usize {
        match self {
            Self::F32(a) => a.len() * 4,
            Self::U32(a) => a.len() * 4,
            #[cfg(feature = "cuda")]
            Self::Cuda(buffer) => buffer.bytes(),
        }
    }
}

impl Storage {
    /// Counts so many bytes, then makes the buffer for them.
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
    /// A tensor of zeros.
    ///
    /// # Errors
    /// [`Error::Size`] if the shape does not fit the machine, [`Error::OutOfMemory`] if it does not
    /// fit now.
    pub fn zeros(device: &Device, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        let n = checked_elements("tensor", &shape, DType::F32)?;
        #[cfg(feature = "cuda")]
        if device.gpu().is_some() {
            let mut zeros = Self::empty(device, shape)?;
            zeros.fill(0.0)?;
            return Ok(zeros);
        }
        let zeros = || Ok(Buffer::F32(device.host().take_zeros(n)?));
        Self::over(device, shape, DType::F32, zeros)
    }

    /// A tensor of floats with unspecified contents, for an operation that writes every element.
    ///
    /// # Errors
    /// [`Error::Size`] if the shape does not fit the machine, [`Error::OutOfMemory`] if it does not
    /// fit now.
    pub fn empty(device: &Device, shape: impl Into<Shape>) -> Result<Self> {
        Self::empty_of(device, shape.into(), DType::F32)
    }

    /// [`empty`](Self::empty) of elements of this type. The processor has but single precision.
    fn empty_of(device: &Device, shape: Shape, dtype: DType) -> Result<Self> {
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

    /// The floats in this type, to the nearest, of equally near ones the even: the tensor itself if they
    /// are, else a copy where it lies.
    ///
    /// # Errors
    /// [`Error::DType`] for a tensor of indices; [`Error::Argument`] for a type that is not stored there;
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

    /// All of a new buffer of as many elements of this type.
    fn over(
        device: &Device,
        shape: Shape,
        dtype: DType,
        make: impl FnOnce() -> Result<Buffer>,
    ) -> Result<Self> {
        let elements = shape.elements()?;
        Ok(Self {
            shape,
            elements: 0..elements,
            storage: Arc::new(Storage::new(device, elements * dtype.bytes(), make)?),
        })
    }

    /// The extents.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        match &self.storage.buffer {
            Buffer::F32(_) => DType::F32,
            Buffer::U32(_) => DType::U32,
            #[cfg(feature = "cuda")]
            Buffer::Cuda(buffer) => buffer.dtype(),
        }
    }

    /// The handle whose count the buffer is in.
    pub fn device(&self) -> &Device {
        &self.storage.device
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.elements.len()
    }

    /// The bytes that these elements take.
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype().bytes()
    }

    /// The floats, row by row.
    ///
    /// # Errors
    /// [`Error::DType`] for a tensor of indices; [`Error::Elsewhere`] for one of a GPU.
    pub fn f32s(&self) -> Result<&[f32]> {
        match &self.storage.buffer {
            Buffer::F32(a) => Ok(&a[self.elements.clone()]),
            Buffer::U32(_) => Err(Error::DType {
                op: "floats",
                expected: DType::F32,
                got: DType::U32,
            }),
            #[cfg(feature = "cuda")]
            Buffer::Cuda(buffer) => Err(buffer.elsewhere("floats")),
        }
    }

    /// A copy of the floats on the host in single precision, wherever they lie: it waits for the
    /// operations so far.
    ///
    /// # Errors
    /// [`Error::DType`] for a tensor of indices; what went wrong on a device.
    pub fn to_f32s(&self) -> Result<Vec<f32>> {
        #[cfg(feature = "cuda")]
        if let Buffer::Cuda(buffer) = &self.storage.buffer {
            return buffer.to_floats(self.elements.clone());
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
            Buffer::F32(_) => Err(Error::DType {
                op: "indices",
                expected: DType::U32,
                got: DType::F32,
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
        let storage = Arc::get_mut(&mut self.storage).ok_or(Error::Shared {
            op: "floats in place",
        })?;
        match &mut storage.buffer {
            Buffer::F32(a) => Ok(&mut a[self.elements.clone()]),
            Buffer::U32(_) => Err(Error::DType {
                op: "floats in place",
                expected: DType::F32,
                got: DType::U32,
            }),
            #[cfg(feature = "cuda")]
            Buffer::Cuda(buffer) => Err(buffer.elsewhere("floats in place")),
        }
    }

    /// Sets every float to `value`, in place.
    ///
    /// # Errors
    /// As [`f32s_mut`](Self::f32s_mut), but not for where the floats lie.
    pub fn fill(&mut self, value: f32) -> Result<()> {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = self.gpu().cloned() {
            return self.fill_on(&gpu, value);
        }
        self.f32s_mut()?.fill(value);
        Ok(())
    }

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

    /// Whether nothing else holds the buffer, so that it may be changed in place.
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.storage) == 1
    }

    /// The floats as a matrix: all extents but the innermost are rows.
    ///
    /// # Errors
    /// [`Error::DType`] for a tensor of indices.
    pub fn matrix(&self) -> Result<ArrayView2<'_, f32>> {
        let dims = self.shape.matrix()?;
        ArrayView2::from_shape(dims, self.f32s()?)
            .map_err(|e| Error::shape("matrix", e.to_string(), &self.shape))
    }

    /// The same elements under another shape.
    ///
    /// # Errors
    /// [`Error::Shape`] if the number of elements differs.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        if shape.elements()? != self.elements() {
            return Err(Error::shape(
                "reshape",
                format!("{} elements", self.elements()),
                &shape,
            ));
        }
        Ok(Self {
            shape,
            ..self.clone()
        })
    }

    /// A view of a run of rows (along the outermost extent): a micro-batch of a batch.
    ///
    /// # Errors
    /// [`Error::Index`] if the rows reach beyond the end.
    pub fn rows(&self, rows: Range<usize>) -> Result<Self> {
        let total = self.shape.rows();
        if rows.start > rows.end || rows.end > total {
            return Err(Error::Index {
                op: "rows",
                index: rows.end as u64,
                len: total as u64,
            });
        }
        let width = self.elements().checked_div(total).unwrap_or(0);
        let start = self.elements.start + rows.start * width;
        Ok(Self {
            shape: self.shape.with_rows(rows.len()),
            elements: start..start + rows.len() * width,
            storage: self.storage.clone(),
        })
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

fn check_count(shape: &Shape, values: usize, dtype: DType) -> Result<()> {
    if checked_elements("tensor", shape, dtype)? == values {
        return Ok(());
    }
    Err(Error::shape(
        "tensor",
        format!("values for shape {shape}"),
        format!("{values} values"),
    ))
}

#[cfg(test)]
mod tests;
