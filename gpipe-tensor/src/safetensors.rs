//! Named tensors to and from the bytes of a safetensors file.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use safetensors::tensor::{Dtype, SafeTensorError, TensorView, View};
use safetensors::{SafeTensors, serialize};

use crate::{DType, Device, Error, Result, Shape, Tensor};

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
    serialize(stored, pairs).map_err(format_error)
}

/// The tensors of a safetensors file, by name, in the order of their data. Half-precision floats
/// become single ones.
///
/// # Errors
/// [`Error::Format`] for bytes that are no such file or hold elements of another type; errors of
/// allocation.
pub fn load(bytes: &[u8], device: &Device) -> Result<Vec<(String, Tensor)>> {
    let file = SafeTensors::deserialize(bytes).map_err(format_error)?;
    let mut views = file.tensors();
    views.sort_by(|(a, x), (b, y)| (x.data().as_ptr(), a).cmp(&(y.data().as_ptr(), b)));
    views
        .into_iter()
        .map(|(name, view)| {
            let tensor = read(&name, &view, device)?;
            Ok((name, tensor))
        })
        .collect()
}

/// The key-value pairs of a safetensors file, by key.
///
/// # Errors
/// [`Error::Format`] for bytes that are no such file.
pub fn load_metadata(bytes: &[u8]) -> Result<Vec<(String, String)>> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(format_error)?;
    let mut pairs: Vec<_> = header.metadata().clone().into_iter().flatten().collect();
    pairs.sort();
    Ok(pairs)
}

/// The key under which the format keeps the key-value pairs.
const RESERVED: &str = "__metadata__";

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

fn read(name: &str, view: &TensorView<'_>, device: &Device) -> Result<Tensor> {
    let (shape, bytes) = (Shape::from(view.shape()), view.data());
    let floats = |values: &mut dyn Iterator<Item = f32>| {
        let mut tensor = Tensor::empty(device, shape.clone())?;
        for (element, value) in tensor.f32s_mut()?.iter_mut().zip(values) {
            *element = value;
        }
        Ok(tensor)
    };
    match view.dtype() {
        Dtype::F32 => floats(&mut words(bytes).map(f32::from_le_bytes)),
        Dtype::BF16 => floats(&mut words(bytes).map(|b| from_bf16(u16::from_le_bytes(b)))),
        Dtype::F16 => floats(&mut words(bytes).map(|b| from_f16(u16::from_le_bytes(b)))),
        Dtype::U32 => {
            let indices = words(bytes).map(u32::from_le_bytes).collect();
            Tensor::from_u32(device, shape, indices)
        }
        other => Err(Error::Format(format!(
            "`{name}` holds {other} elements: only F32, F16, BF16 and U32 can be read"
        ))),
    }
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    bytes.as_chunks().0.iter().copied()
}

/// A brain float is the upper half of a single-precision one.
fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Half precision: 1 bit of sign, 5 of exponent (offset 15), 10 of fraction.
fn from_f16(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let exponent = u32::from(bits >> 10 & 0x1F);
    let fraction = u32::from(bits & 0x3FF);
    let magnitude = match exponent {
        // Below the normal numbers the fraction counts units of 2^-24.
        0 => (fraction as f32 / (1u32 << 24) as f32).to_bits(),
        0x1F => 0x7F80_0000 | fraction << 13,
        _ => (exponent + 127 - 15) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}

#[cfg(test)]
mod tests;
