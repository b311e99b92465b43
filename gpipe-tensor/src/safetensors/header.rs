//! The header of a safetensors file, completely checked before it is used.
//!
//! The `read_metadata` of the crate `safetensors` needs the whole file in memory, keeps the last of two
//! tensors of one name, and adds offsets without a check for overflow. Here the header is read alone
//! and checked; only its types come from the crate.

use std::fmt;
use std::ops::Range;

use safetensors::tensor::{Dtype, TensorInfo};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use super::elements;
use crate::{DType, Device, Error, Result, Shape, Tensor};

/// The bytes in front of the header, which say how long it is.
pub const PREFIX: usize = 8;

/// The longest header that is read or written: 16 MiB, enough for 100,000 tensors.
pub const LONGEST: u64 = 16 << 20;

/// The longest name of a tensor.
const LONGEST_NAME: usize = 1024;

/// The most extents of a tensor.
const MOST_EXTENTS: usize = 8;

/// The key under which the format keeps the key-value pairs.
pub(super) const RESERVED: &str = "__metadata__";

/// What a safetensors file holds, and where. Its tensors cover the data without a gap or an overlap.
#[derive(Clone, Debug)]
pub struct Header {
    entries: Vec<Entry>,
    pairs: Vec<(String, String)>,
}

/// A tensor of a file.
#[derive(Clone, Debug)]
pub struct Entry {
    name: String,
    dtype: Dtype,
    shape: Shape,
    range: Range<u64>,
}

impl Header {
    /// The bytes of the header after the first [`PREFIX`] bytes of a file of `file_bytes`.
    ///
    /// # Errors
    /// [`Error::Format`] if the header would be longer than the file or than [`LONGEST`].
    pub fn length(prefix: [u8; PREFIX], file_bytes: u64) -> Result<u64> {
        let length = u64::from_le_bytes(prefix);
        let there = file_bytes.saturating_sub(PREFIX as u64);
        if length > there {
            return fault(format!(
                "a header of {length} bytes is announced, but {there} bytes follow"
            ));
        }
        if length > LONGEST {
            return fault(format!(
                "a header of {length} bytes is too long: {LONGEST} are the most that is read"
            ));
        }
        Ok(length)
    }

    /// The header in these bytes, which `data_bytes` of data follow.
    ///
    /// # Errors
    /// [`Error::Format`] if it is no header or does not fit that data: names that occur twice,
    /// sizes that overflow, data that overlap, leave a gap or reach beyond the end.
    pub fn parse(header: &[u8], data_bytes: u64) -> Result<Self> {
        // The format says that a header begins with a brace.
        if header.first() != Some(&b'{') {
            return fault("the header is no JSON object");
        }
        let text = std::str::from_utf8(header)
            .map_err(|error| Error::Format(format!("the header is no UTF-8: {error}")))?;
        let raw: Raw = serde_json::from_str(text).map_err(|error| {
            Error::Format(format!(
                "the header cannot be read: {}",
                clip(&error.to_string())
            ))
        })?;
        let entries = raw
            .tensors
            .into_iter()
            .map(|(name, info)| Entry::new(name, info));
        let mut entries = entries.collect::<Result<Vec<_>>>()?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(twice) = entries.windows(2).find(|two| two[0].name == two[1].name) {
            return fault(format!("two tensors are named `{}`", twice[0].name));
        }
        let mut pairs = raw.pairs;
        pairs.sort();
        if let Some(twice) = pairs.windows(2).find(|two| two[0].0 == two[1].0) {
            return fault(format!("the key `{}` occurs twice", clip(&twice[0].0)));
        }
        // Sorting is stable: tensors without elements stay in the order of their names.
        entries.sort_by_key(|entry| (entry.range.start, entry.range.end));
        let mut end = 0;
        for Entry { name, range, .. } in &entries {
            if range.start != end {
                let what = if range.start < end {
                    "overlap those before"
                } else {
                    "leave a gap"
                };
                return fault(format!(
                    "the data of `{name}` {what}: they begin at {} instead of {end}",
                    range.start
                ));
            }
            end = range.end;
        }
        if end != data_bytes {
            return fault(format!(
                "the tensors take {end} bytes, but {data_bytes} bytes of data are there"
            ));
        }
        Ok(Self { entries, pairs })
    }

    /// The tensors in the order of their data.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The key-value pairs, by key.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }
}

impl Entry {
    fn new(name: String, info: TensorInfo) -> Result<Self> {
        if name.len() > LONGEST_NAME {
            return fault(format!(
                "a name of {} bytes is too long: {LONGEST_NAME} are the most",
                name.len()
            ));
        }
        let TensorInfo {
            dtype,
            shape,
            data_offsets: (start, end),
        } = info;
        if shape.len() > MOST_EXTENTS {
            return fault(format!(
                "`{name}` has {} extents: {MOST_EXTENTS} are the most",
                shape.len()
            ));
        }
        let bits = shape
            .iter()
            .try_fold(dtype.bitsize(), |bits, &extent| bits.checked_mul(extent));
        let shape = Shape::from(shape.as_slice());
        let Some(bits) = bits else {
            return fault(format!(
                "`{name}` of shape {shape} is larger than any machine"
            ));
        };
        let bytes = (bits / 8) as u64;
        let (start, end) = (start as u64, end as u64);
        if bits % 8 != 0 || end.checked_sub(start) != Some(bytes) {
            return fault(format!(
                "`{name}` of shape {shape} takes {bytes} bytes of {dtype}, but its data lie from {start} to {end}"
            ));
        }
        Ok(Self {
            name,
            dtype,
            shape,
            range: start..end,
        })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The extents.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The name of the element type, such as `F32`.
    pub fn dtype(&self) -> String {
        self.dtype.to_string()
    }

    /// The type of the elements once they are read.
    pub fn dtype_in_memory(&self) -> DType {
        match self.dtype {
            Dtype::U32 => DType::U32,
            _ => DType::F32,
        }
    }

    /// Whether [`tensor`](Self::tensor) reads elements of this type: F32, F16, BF16 and U32.
    pub fn is_readable(&self) -> bool {
        elements::READABLE.contains(&self.dtype)
    }

    /// Where the data lie, counted from the end of the header.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// The tensor of these data. Half-precision floats become single ones.
    ///
    /// # Errors
    /// [`Error::Format`] for elements of another type, or as many bytes as the range does not have;
    /// errors of allocation.
    pub fn tensor(&self, data: &[u8], device: &Device) -> Result<Tensor> {
        if data.len() as u64 != self.range.end - self.range.start {
            return fault(format!(
                "`{}` takes {} bytes, got {}",
                self.name,
                self.range.end - self.range.start,
                data.len()
            ));
        }
        elements::read(&self.name, self.dtype, &self.shape, data, device)
    }
}

fn fault<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::Format(message.into()))
}

/// The beginning of a text that a file decides the length of.
fn clip(text: &str) -> &str {
    const MOST: usize = 200;
    let end = (0..=MOST.min(text.len()))
        .rev()
        .find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// The header as it is written, where a name can occur twice.
struct Raw {
    tensors: Vec<(String, TensorInfo)>,
    pairs: Vec<(String, String)>,
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Raw;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Raw, A::Error> {
                let mut tensors = Vec::new();
                let mut pairs = None;
                while let Some(name) = map.next_key::<String>()? {
                    if name != RESERVED {
                        tensors.push((name, map.next_value()?));
                    } else if pairs.replace(map.next_value::<Pairs>()?).is_some() {
                        return Err(A::Error::custom(format!("`{RESERVED}` occurs twice")));
                    }
                }
                let pairs = pairs.map_or_else(Vec::new, |Pairs(pairs)| pairs);
                Ok(Raw { tensors, pairs })
            }
        }
        deserializer.deserialize_map(Object)
    }
}

struct Pairs(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Object)
    }
}
