//! The tokens of a text in memory: bytes where tokens are bytes, a quarter of what numbers take.

use gpipe_tensor::Error;

/// An empty list with room for `rows` rows of `length` tokens.
pub(crate) fn room(rows: usize, length: usize) -> gpipe_tensor::Result<Vec<u32>> {
    let op = "batch";
    let elements = rows.checked_mul(length).ok_or_else(|| Error::Size {
        op,
        shape: [rows, length].into(),
    })?;
    let mut room = Vec::new();
    let reserved = room.try_reserve_exact(elements);
    reserved.map_err(|_| Error::OutOfMemory {
        bytes: elements.saturating_mul(size_of::<u32>()),
    })?;
    Ok(room)
}

/// Tokens in their order.
pub(crate) enum Tokens {
    Bytes(Vec<u8>),
    Numbers(Vec<u32>),
}

impl Tokens {
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Numbers(tokens) => tokens.len(),
        }
    }

    /// The token at a place before the end.
    pub fn at(&self, place: usize) -> u32 {
        match self {
            Self::Bytes(bytes) => bytes[place].into(),
            Self::Numbers(tokens) => tokens[place],
        }
    }

    pub fn into_numbers(self) -> Vec<u32> {
        match self {
            Self::Bytes(bytes) => bytes.into_iter().map(u32::from).collect(),
            Self::Numbers(tokens) => tokens,
        }
    }
}
