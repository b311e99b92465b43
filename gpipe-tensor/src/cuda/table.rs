//! Tables of tensors, for kernels that work on many of them in one launch.

use super::entry::Pointer;

/// Elements of a tensor that a block works on: `CHUNK` of the kernels.
pub(crate) const CHUNK: usize = 16384;

/// A row a tensor: addresses, elements, and how many blocks come before its own.
#[derive(Default)]
pub(crate) struct Table {
    words: Vec<u64>,
    rows: u32,
    blocks: usize,
}

impl Table {
    /// Adds `n` elements that begin at these addresses, as many of them in every row.
    pub fn push(&mut self, places: &[Pointer], n: usize) {
        self.words.extend(places.iter().map(|place| place.0));
        self.words.extend([n as u64, self.blocks as u64]);
        self.rows += 1;
        self.blocks += n.div_ceil(CHUNK);
    }

    /// How many there are.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Blocks of a launch.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// What a kernel reads.
    #[cfg(test)]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The bytes of what a kernel reads, to be uploaded.
    #[cfg(feature = "cuda")]
    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words)
    }
}
