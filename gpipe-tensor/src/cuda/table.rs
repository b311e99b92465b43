//! Tables of tensors, for kernels that work on many of them in one launch.

use super::entry::Pointer;

/// Elements of a tensor that a block works on: `CHUNK` of the kernels.
pub(crate) const CHUNK: usize = 16384;

/// One row per tensor: addresses, number of elements, and number of blocks before its own.
#[derive(Default)]
pub(crate) struct Table {
    words: Vec<u64>,
    rows: u32,
    blocks: usize,
    elements: usize,
}

impl Table {
    /// Adds a row of `n` elements at these addresses; every row has the same number of addresses.
    pub fn push(&mut self, places: &[Pointer], n: usize) {
        self.words.extend(places.iter().map(|place| place.0));
        self.words.extend([n as u64, self.blocks as u64]);
        self.rows += 1;
        self.blocks += n.div_ceil(CHUNK);
        self.elements += n;
    }

    /// Elements of one tensor of each row, all together.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Number of rows.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Blocks of a launch.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// The table as a kernel reads it.
    #[cfg(test)]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The table as bytes, to be uploaded.
    #[cfg(feature = "cuda")]
    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words)
    }
}
