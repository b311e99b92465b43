//! The tokens of a text in memory: bytes where tokens are bytes, a quarter of what numbers take.

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
