//! The header of a GGUF file (version 3): metadata and where each tensor lies, checked against the length of
//! the file before anything of that length is allocated.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use super::kind::Kind;

/// The most bytes of a header; those with a quarter of a million tokens have 20 MB.
const LONGEST: u64 = 64 << 20;
/// The most elements of a list that is kept, such as the tokens of a vocabulary.
const MOST_ELEMENTS: u64 = 1 << 20;
/// The most extents of a tensor that the format has.
const MOST_EXTENTS: u32 = 4;
/// The largest alignment of data; a file without the key has 32.
const LARGEST_ALIGNMENT: u64 = 1 << 16;

/// A value of the metadata. Lists of other elements than texts and whole numbers are passed over.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Whole(i64),
    Real(f64),
    Truth(bool),
    Text(String),
    Texts(Vec<String>),
    Wholes(Vec<i64>),
    Other,
}

/// A tensor of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub name: String,
    /// Extents, the innermost last.
    pub shape: Vec<usize>,
    pub kind: Kind,
    /// First byte in the file.
    pub start: u64,
    /// Number of bytes.
    pub length: u64,
}

/// The header of a file.
#[derive(Debug)]
pub struct Header {
    pub metadata: BTreeMap<String, Value>,
    pub tensors: Vec<Entry>,
}

impl Header {
    /// Parses the header of a file of `length` bytes, or says what is wrong with it.
    pub fn parse(file: impl Read, length: u64) -> Result<Self, String> {
        let mut reader = Reader {
            file,
            read: 0,
            end: length.min(LONGEST),
        };
        if reader.bytes(4).ok().as_deref() != Some(b"GGUF") {
            return Err("is no GGUF file: name a folder with config.json or a .gguf file".into());
        }
        let version = reader.u32()?;
        if version != 3 {
            return Err(format!(
                "has the GGUF version {version}: only 3 can be read"
            ));
        }
        let (tensors, pairs) = (reader.u64()?, reader.u64()?);
        // A key's length and a type and a byte; a name's length, no extents, a type, an offset.
        reader.check_room("keys", pairs, 8 + 4 + 1)?;
        reader.check_room("tensors", tensors, 8 + 4 + 4 + 8)?;
        let mut metadata = BTreeMap::new();
        for _ in 0..pairs {
            let key = reader.text()?;
            let kind = reader.u32()?;
            let value = reader.value(&key, kind)?;
            if metadata.insert(key.clone(), value).is_some() {
                return Err(format!("has the key `{}` twice", clip(&key)));
            }
        }
        let mut names = BTreeSet::new();
        let mut entries = Vec::new();
        for _ in 0..tensors {
            let entry = reader.entry()?;
            if !names.insert(entry.name.clone()) {
                return Err(format!("has the tensor `{}` twice", clip(&entry.name)));
            }
            entries.push(entry);
        }
        place(&mut entries, &metadata, reader.read, length)?;
        Ok(Self {
            metadata,
            tensors: entries,
        })
    }
}

/// Turns offsets in the data, which begin behind the header, into places in the file.
fn place(
    entries: &mut [Entry],
    metadata: &BTreeMap<String, Value>,
    header: u64,
    length: u64,
) -> Result<(), String> {
    let alignment = match metadata.get("general.alignment") {
        None => 32,
        Some(&Value::Whole(value)) if (1..=LARGEST_ALIGNMENT as i64).contains(&value) => {
            value as u64
        }
        Some(_) => {
            return Err(format!(
                "general.alignment is not a number from 1 to {LARGEST_ALIGNMENT}"
            ));
        }
    };
    let data = header.next_multiple_of(alignment);
    let room = length.saturating_sub(data);
    // One behind the other, as llama.cpp has them: no two share bytes.
    let mut next = 0;
    for entry in entries {
        let (name, start) = (clip(&entry.name), entry.start);
        if start != next {
            return Err(format!(
                "the data of `{name}` begin at byte {start} instead of {next}"
            ));
        }
        let end = start.checked_add(entry.length).filter(|&end| end <= room);
        let Some(end) = end else {
            return Err(format!(
                "`{name}` claims {} bytes from byte {start} on, but the file has {room} bytes of data",
                entry.length
            ));
        };
        next = end.next_multiple_of(alignment);
        entry.start += data;
    }
    Ok(())
}

/// What is left of a header.
struct Reader<R> {
    file: R,
    read: u64,
    end: u64,
}

impl<R: Read> Reader<R> {
    /// An error unless `count` things of at least `least` bytes each may follow.
    fn check_room(&self, what: &str, count: u64, least: u64) -> Result<(), String> {
        let left = self.end - self.read;
        match count.checked_mul(least).is_some_and(|bytes| bytes <= left) {
            true => Ok(()),
            false => Err(format!(
                "claims {count} {what}, but its header has {left} bytes left"
            )),
        }
    }

    fn bytes(&mut self, count: u64) -> Result<Vec<u8>, String> {
        self.check_room("bytes", count, 1)?;
        let mut bytes = vec![0; count as usize];
        self.file
            .read_exact(&mut bytes)
            .map_err(|error| format!("cannot be read: {error}"))?;
        self.read += count;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let bytes = self.bytes(N as u64)?;
        Ok(std::array::from_fn(|i| bytes[i]))
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<String, String> {
        let length = self.u64()?;
        let bytes = self.bytes(length)?;
        String::from_utf8(bytes).map_err(|_| "holds a text that is not UTF-8".to_owned())
    }

    /// A value that is not a list.
    fn scalar(&mut self, key: &str, kind: u32) -> Result<Value, String> {
        let whole = |number| Ok(Value::Whole(number));
        match kind {
            0 => whole(i64::from(self.array::<1>()?[0])),
            1 => whole(i64::from(i8::from_le_bytes(self.array()?))),
            2 => whole(i64::from(u16::from_le_bytes(self.array()?))),
            3 => whole(i64::from(i16::from_le_bytes(self.array()?))),
            4 => whole(i64::from(self.u32()?)),
            5 => whole(i64::from(i32::from_le_bytes(self.array()?))),
            6 => Ok(Value::Real(f32::from_le_bytes(self.array()?).into())),
            7 => Ok(Value::Truth(self.array::<1>()?[0] != 0)),
            8 => self.text().map(Value::Text),
            // Beyond the largest signed number nothing is meant.
            10 => whole(i64::try_from(self.u64()?).unwrap_or(i64::MAX)),
            11 => whole(i64::from_le_bytes(self.array()?)),
            12 => Ok(Value::Real(f64::from_le_bytes(self.array()?))),
            _ => Err(format!(
                "`{}` has the unknown type {kind} of a value",
                clip(key)
            )),
        }
    }

    fn value(&mut self, key: &str, kind: u32) -> Result<Value, String> {
        const LIST: u32 = 9;
        if kind != LIST {
            return self.scalar(key, kind);
        }
        let (of, count) = (self.u32()?, self.u64()?);
        if of == LIST {
            return Err(format!(
                "`{}` is a list of lists, which no model needs",
                clip(key)
            ));
        }
        if count > MOST_ELEMENTS {
            return Err(format!(
                "`{}` claims {count} elements: {MOST_ELEMENTS} are the most that is read",
                clip(key)
            ));
        }
        self.check_room("elements of a list", count, if of == 8 { 8 } else { 1 })?;
        let (mut texts, mut wholes, mut others) = (Vec::new(), Vec::new(), 0);
        for _ in 0..count {
            match self.scalar(key, of)? {
                Value::Text(text) => texts.push(text),
                Value::Whole(number) => wholes.push(number),
                _ => others += 1,
            }
        }
        Ok(match (of, others) {
            (8, _) => Value::Texts(texts),
            (_, 0) => Value::Wholes(wholes),
            _ => Value::Other,
        })
    }

    /// A tensor; `start` is still an offset in the data.
    fn entry(&mut self) -> Result<Entry, String> {
        let name = self.text()?;
        let extents = self.u32()?;
        if extents > MOST_EXTENTS {
            return Err(format!(
                "`{}` claims {extents} extents: {MOST_EXTENTS} are the most",
                clip(&name)
            ));
        }
        let mut shape = Vec::new();
        for _ in 0..extents {
            shape.push(self.u64()?);
        }
        let kind = self.u32()?;
        let kind = Kind::of(kind).map_err(|fault| format!("`{}` {fault}", clip(&name)))?;
        let start = self.u64()?;
        let elements = shape.iter().try_fold(1_u64, |a, &b| a.checked_mul(b));
        let innermost = shape.first().copied().unwrap_or(1);
        let length = elements
            .filter(|_| innermost.is_multiple_of(kind.elements()))
            .and_then(|elements| (elements / kind.elements()).checked_mul(kind.bytes()));
        let Some(length) = length else {
            return Err(format!(
                "`{}` has extents {shape:?} that no tensor of {kind} has",
                clip(&name)
            ));
        };
        // The file has the innermost extent first.
        let shape = shape.iter().rev().map(|&extent| extent as usize).collect();
        Ok(Entry {
            name,
            shape,
            kind,
            start,
            length,
        })
    }
}

/// The beginning of a text that the file decides the length of, in one line.
pub fn clip(text: &str) -> String {
    text.escape_debug().take(100).collect()
}
