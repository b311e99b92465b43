//! A tensor that a file holds or is to hold, which need not be in memory.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Entry, Header, PREFIX};
use crate::{DType, Device, Error, Result, Shape, Tensor};

/// A tensor of a file: one in memory, or one that is fetched when its elements are needed, such as from the file or
/// from another process.
#[derive(Clone)]
pub struct Stored {
    dtype: DType,
    shape: Shape,
    source: Source,
}

#[derive(Clone)]
enum Source {
    Here(Tensor),
    Later(Arc<dyn Fn() -> Result<Tensor> + Send + Sync>),
}

impl From<Tensor> for Stored {
    fn from(tensor: Tensor) -> Self {
        Self {
            dtype: tensor.dtype(),
            shape: tensor.shape().clone(),
            source: Source::Here(tensor),
        }
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored")
            .field("dtype", &self.dtype)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

impl Stored {
    /// A tensor of this type and shape that `fetch` gives, each time that it is needed.
    pub fn later(
        dtype: DType,
        shape: Shape,
        fetch: impl Fn() -> Result<Tensor> + Send + Sync + 'static,
    ) -> Self {
        let source = Source::Later(Arc::new(fetch));
        Self {
            dtype,
            shape,
            source,
        }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The extents.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The bytes of its elements in a file: 4 each.
    pub fn bytes(&self) -> usize {
        let elements = self.shape.elements().unwrap_or(usize::MAX);
        elements.saturating_mul(size_of::<f32>())
    }

    /// The tensor.
    ///
    /// # Errors
    /// [`Error::Format`] if it is not of the type and shape that it was announced with; that of `fetch`.
    pub fn get(&self) -> Result<Tensor> {
        let tensor = match &self.source {
            Source::Here(tensor) => tensor.clone(),
            Source::Later(fetch) => fetch()?,
        };
        match (tensor.dtype(), tensor.shape()) == (self.dtype, &self.shape) {
            true => Ok(tensor),
            false => Err(Error::Format(format!(
                "{} of shape {} instead of {} of shape {}",
                tensor.dtype(),
                tensor.shape(),
                self.dtype,
                self.shape
            ))),
        }
    }

    /// What `change` makes of the tensor when it is needed, of this shape and the same type.
    #[must_use]
    pub fn map(
        self,
        shape: Shape,
        change: impl Fn(Tensor) -> Result<Tensor> + Send + Sync + 'static,
    ) -> Self {
        Self::later(self.dtype, shape, move || change(self.get()?))
    }
}

/// The tensors of a safetensors file, by name, in the order of their data; their elements are read when they are
/// needed, onto `device`. Half-precision floats become single ones.
///
/// # Errors
/// [`Error::Format`] for a file that is no such file or holds elements of another type; [`Error::Fetch`] if it cannot be
/// read.
pub fn stored(
    mut file: impl Read + Seek + Send + 'static,
    device: &Device,
) -> Result<Vec<(String, Stored)>> {
    let length = file.seek(SeekFrom::End(0)).map_err(unread)?;
    file.rewind().map_err(unread)?;
    let mut prefix = [0; PREFIX];
    if length < PREFIX as u64 {
        return Err(Error::Format(format!(
            "{length} bytes are too few for a file"
        )));
    }
    file.read_exact(&mut prefix).map_err(unread)?;
    let header_length = Header::length(prefix, length)?;
    let mut header = Vec::new();
    let read = (&mut file).take(header_length).read_to_end(&mut header);
    read.map_err(unread)?;
    let data = PREFIX as u64 + header_length;
    let header = Header::parse(&header, length - data)?;
    if let Some(other) = header.entries().iter().find(|entry| !entry.is_readable()) {
        return Err(Error::Format(format!(
            "`{}` holds {} elements, which are not read",
            other.name(),
            other.dtype()
        )));
    }
    let file = Arc::new(Mutex::new(file));
    let stored = |entry: &Entry| {
        let (file, device, entry) = (file.clone(), device.clone(), entry.clone());
        let (name, shape) = (entry.name().to_owned(), entry.shape().clone());
        let dtype = entry.dtype_in_memory();
        let fetch = move || entry.tensor(&bytes(&file, data, &entry)?, &device);
        (name, Stored::later(dtype, shape, fetch))
    };
    Ok(header.entries().iter().map(stored).collect())
}

/// The bytes of a tensor in a file whose data begin there.
fn bytes(file: &Mutex<impl Read + Seek>, data: u64, entry: &Entry) -> Result<Vec<u8>> {
    let Range { start, end } = entry.range();
    let no_room = || Error::Fetch(format!("no memory for the {} bytes of a file", end - start));
    let length = usize::try_from(end - start).map_err(|_| no_room())?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| no_room())?;
    bytes.resize(length, 0);
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    file.seek(SeekFrom::Start(data + start)).map_err(unread)?;
    file.read_exact(&mut bytes).map_err(unread)?;
    Ok(bytes)
}

fn unread(error: io::Error) -> Error {
    Error::Fetch(format!("cannot be read: {error}"))
}
