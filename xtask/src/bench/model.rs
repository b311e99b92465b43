//! The models that are measured.

/// The sizes that turn seconds into rates.
pub struct Model {
    /// Its name for gpipe.
    pub name: &'static str,
    /// Its name for the peers.
    pub peer: &'static str,
    batch: u64,
    sequence: u64,
    width: u64,
    blocks: u64,
    vocabulary: u64,
}

/// Configurations A and B of the peers.
pub const MODELS: [Model; 2] = [
    Model {
        name: "bench-a",
        peer: "A",
        batch: 32,
        sequence: 128,
        width: 256,
        blocks: 8,
        vocabulary: 256,
    },
    Model {
        name: "bench-b",
        peer: "B",
        batch: 16,
        sequence: 256,
        width: 384,
        blocks: 12,
        vocabulary: 256,
    },
];

impl Model {
    /// Tokens of a step.
    pub fn tokens(&self) -> u64 {
        self.batch * self.sequence
    }

    /// FLOPs of a step as the peers count them: three times the forward pass's matrix products,
    /// attention in full. Recomputation is not counted, so it shows as a lower rate.
    pub fn flops(&self) -> u64 {
        let block = 24 * self.width * self.width + 4 * self.sequence * self.width;
        let head = 2 * self.width * self.vocabulary;
        3 * self.tokens() * (self.blocks * block + head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flops_are_counted_as_the_peers_count_them() {
        // 3 · (2·n·(12·d²·L + d·V) + L·4·n·T·d) with n = B·T.
        let (n, d, layers, sequence, vocabulary) = (32 * 128, 256, 8, 128, 256);
        let peers =
            3 * (2 * n * (12 * d * d * layers + d * vocabulary) + layers * 4 * n * sequence * d);
        assert_eq!(MODELS[0].flops(), peers);
    }
}
