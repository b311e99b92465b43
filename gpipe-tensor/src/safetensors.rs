//! Named tensors to and from the bytes of a safetensors file.

mod elements;
mod header;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use safetensors::serialize;
use safetensors::tensor::{Dtype, SafeTensorError, View};

use crate::{DType, Device, Error, Result, Tensor};
pub use elements::from_f16;
use header::RESERVED;
pub use header::{Entry, Header, LONGEST, PREFIX};

/// The bytes of a safetensors file of these tensors and key-value pairs.
///
/// The tensors are stored by element type, then by name; with at most one key-value pair the bytes
/// are a function of the arguments (the format does not order the pairs).
///
/// # Errors
/// [`Error::Format`] if a name or key occurs twice or is the one that the format reserves.
pub fn save(tensors: &[(String, Tensor)], metadata: &[(String, String)]) -> Result<Vec<u8>> {
    let mut names = HashSet::new();
    for (name, _) in tensors {
        if name == RESERVED {
            return Err(Error::Format(format!(
                "no tensor can be named `{RESERVED}`"
            )));
        }
        if !names.insert(name) {
            return Err(Error::Format(format!("two tensors are named `{name}`")));
        }
    }
    let mut pairs = HashMap::new();
    for (key, value) in metadata {
        if pairs.insert(key.clone(), value.clone()).is_some() {
            return Err(Error::Format(format!("the key `{key}` occurs twice")));
        }
    }
    let stored = tensors
        .iter()
        .map(|(name, tensor)| Ok((name.as_str(), Stored::new(tensor)?)))
        .collect::<Result<Vec<_>>>()?;
    let pairs = (!pairs.is_empty()).then_some(pairs);
    let bytes = serialize(stored, pairs).map_err(format_error)?;
    // What is written can be read again.
    if let Some(prefix) = bytes.first_chunk() {
        Header::length(*prefix, bytes.len() as u64)?;
    }
    Ok(bytes)
}

/// The tensors of a safetensors file, by name, in the order of their data. Half-precision floats
/// become single ones.
///
/// # Errors
/// [`Error::Format`] for bytes that are no such file or hold elements of another type; errors of
/// allocation.
pub fn load(bytes: &[u8], device: &Device) -> Result<Vec<(String, Tensor)>> {
    let (header, data) = open(bytes)?;
    let tensor = |entry: &Entry| {
        // The header was checked against the length of the data.
        let range = entry.range();
        let tensor = entry.tensor(&data[range.start as usize..range.end as usize], device)?;
        Ok((entry.name().to_owned(), tensor))
    };
    header.entries().iter().map(tensor).collect()
}

/// The key-value pairs of a safetensors file, by key.
///
/// # Errors
/// [`Error::Format`] for bytes that are no such file.
pub fn load_metadata(bytes: &[u8]) -> Result<Vec<(String, String)>> {
    Ok(open(bytes)?.0.pairs().to_vec())
}

/// The header of a file, and what follows it.
fn open(bytes: &[u8]) -> Result<(Header, &[u8])> {
    let Some((prefix, rest)) = bytes.split_first_chunk() else {
        return Err(Error::Format(format!(
            "{} bytes are too few for a file",
            bytes.len()
        )));
    };
    let length = Header::length(*prefix, bytes.len() as u64)?;
    let (header, data) = rest.split_at(length as usize);
    Ok((Header::parse(header, data.len() as u64)?, data))
}

fn format_error(error: SafeTensorError) -> Error {
    Error::Format(error.to_string())
}

/// A tensor as the format wants to see it.
struct Stored<'a> {
    shape: &'a [usize],
    elements: Elements<'a>,
}

enum Elements<'a> {
    F32(&'a [f32]),
    U32(&'a [u32]),
}

impl<'a> Stored<'a> {
    fn new(tensor: &'a Tensor) -> Result<Self> {
        let elements = match tensor.dtype() {
            DType::U32 => Elements::U32(tensor.u32s()?),
            _ => Elements::F32(tensor.f32s()?),
        };
        Ok(Self {
            shape: tensor.shape().dims(),
            elements,
        })
    }
}

impl View for Stored<'_> {
    fn dtype(&self) -> Dtype {
        match self.elements {
            Elements::F32(_) => Dtype::F32,
            Elements::U32(_) => Dtype::U32,
        }
    }

    fn shape(&self) -> &[usize] {
        self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        match self.elements {
            Elements::F32(floats) => floats.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Elements::U32(indices) => indices.iter().flat_map(|v| v.to_le_bytes()).collect(),
        }
    }

    fn data_len(&self) -> usize {
        match self.elements {
            Elements::F32(floats) => size_of_val(floats),
            Elements::U32(indices) => size_of_val(indices),
        }
    }
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
