//! Named tensors to and from the bytes of a safetensors file.

mod contents;
mod elements;
mod header;
mod stored;

use std::collections::{HashMap, HashSet};

use safetensors::tensor::{Dtype, Metadata, SafeTensorError, TensorInfo};

use crate::{DType, Device, Error, Result, Tensor};
pub use contents::FileContents;
pub use elements::from_f16;
use header::RESERVED;
pub use header::{Entry, Header, LONGEST, PREFIX};
pub use stored::{Stored, stored};

/// The bytes of a safetensors file of these tensors and key-value pairs.
///
/// The tensors are stored by element type, then by name; with at most one key-value pair the bytes
/// are a function of the arguments (the format does not order the pairs).
///
/// # Errors
/// [`Error::Format`] if a name or key occurs twice or is the one that the format reserves, and for all that [`load`]
/// would refuse, such as a name that is too long.
pub fn contents(
    tensors: &[(String, Stored)],
    metadata: &[(String, String)],
) -> Result<FileContents> {
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
    let mut stored = tensors
        .iter()
        .map(|(name, tensor)| (name, stored_dtype(tensor), tensor))
        .collect::<Vec<_>>();
    stored.sort_by(|(a, left, _), (b, right, _)| right.cmp(left).then(a.cmp(b)));
    let mut begin = 0_usize;
    let entry = |&(name, dtype, tensor): &(&String, Dtype, &Stored)| {
        // `Metadata` refuses a size that overflows.
        let end = begin.saturating_add(tensor.bytes());
        let shape = tensor.shape().dims().to_vec();
        let data_offsets = (std::mem::replace(&mut begin, end), end);
        let info = TensorInfo {
            dtype,
            shape,
            data_offsets,
        };
        (name.clone(), info)
    };
    let entries = stored.iter().map(entry).collect();
    let pairs = (!pairs.is_empty()).then_some(pairs);
    let header = Metadata::new(pairs, entries).map_err(format_error)?;
    let header =
        serde_json::to_string(&header).map_err(|error| Error::Format(error.to_string()))?;
    let length = header.len().next_multiple_of(PREFIX);
    let mut head = (length as u64).to_le_bytes().to_vec();
    // What is written can be read again.
    if let Some(prefix) = head.first_chunk() {
        Header::length(*prefix, (PREFIX + length) as u64)?;
    }
    Header::parse(header.as_bytes(), begin as u64)?;
    head.extend_from_slice(header.as_bytes());
    head.resize(PREFIX + length, b' ');
    let tensors = stored.into_iter();
    let tensors = tensors.map(|(name, _, tensor)| (name.clone(), tensor.clone()));
    Ok(FileContents::new(head, tensors.collect()))
}

/// The element type in the file; half-precision floats are written as single ones.
fn stored_dtype(tensor: &Stored) -> Dtype {
    match tensor.dtype() {
        DType::U32 => Dtype::U32,
        _ => Dtype::F32,
    }
}

/// [`contents`] in memory.
///
/// # Errors
/// As there, and for a tensor that is not on the processor.
pub fn save(tensors: &[(String, Tensor)], metadata: &[(String, String)]) -> Result<Vec<u8>> {
    let stored = tensors.iter().cloned();
    let stored: Vec<_> = stored.map(|(name, tensor)| (name, tensor.into())).collect();
    contents(&stored, metadata)?.to_vec()
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

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
