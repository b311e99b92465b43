//! Settings of adapters of linear layers.

/// Rank, scale and dropout of the adapter of a linear layer (LoRA, arXiv:2106.09685).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoraSettings {
    /// The rank r, the width between the two maps; at least 1.
    pub rank: usize,
    /// α: the product of the two maps is scaled by α/r.
    pub alpha: f32,
    /// Share of the adapter's inputs that training drops, from 0 to below 1. The frozen map gets all of them.
    pub dropout: f32,
}

impl LoraSettings {
    /// α/r.
    pub fn scale(&self) -> f32 {
        self.alpha / self.rank as f32
    }
}
