//! The models that are measured.

/// Query rows that attention works on at a time, against the keys up to the last of them.
const ATTENTION_ROWS: u64 = 64;

/// A GPT by its number of blocks, and the batch that it is trained on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Samples of a step.
    pub batch: u64,
    /// Tokens of a sample.
    pub sequence: u64,
    /// Of the residual stream.
    pub width: u64,
    /// Transformer blocks.
    pub blocks: u64,
    /// Attention heads.
    pub heads: u64,
    /// Tokens that it knows.
    pub vocabulary: u64,
}

/// The sizes that turn seconds into rates.
pub struct Model {
    /// Its name for gpipe and for `pytorch.py`.
    pub name: &'static str,
    pub shape: Shape,
}

/// In the order of their size; `pytorch.py` has the same.
pub const MODELS: [Model; 3] = [
    Model {
        name: "bench-tiny",
        shape: Shape {
            batch: 32,
            sequence: 32,
            width: 32,
            blocks: 8,
            heads: 2,
            vocabulary: 256,
        },
    },
    Model {
        name: "bench-a",
        shape: Shape {
            batch: 32,
            sequence: 128,
            width: 256,
            blocks: 8,
            heads: 4,
            vocabulary: 256,
        },
    },
    Model {
        name: "bench-b",
        shape: Shape {
            batch: 16,
            sequence: 256,
            width: 384,
            blocks: 12,
            heads: 6,
            vocabulary: 256,
        },
    },
];

impl Shape {
    /// Tokens of a step.
    pub fn tokens(&self) -> u64 {
        self.batch * self.sequence
    }

    /// FLOPs of a step, counted as is usual: three times the forward pass's matrix products,
    /// attention in full. Recomputation is not counted, so it shows as a lower rate.
    pub fn flops(&self) -> u64 {
        self.linear_flops() + self.attention_flops()
    }

    /// Those of scores and weighted values, with every key for every query.
    pub fn attention_flops(&self) -> u64 {
        3 * self.blocks * 4 * self.tokens() * self.sequence * self.width
    }

    /// FLOPs of a step that are computed where nothing is recomputed: blocks of queries leave out the
    /// keys after their last, and the backward pass computes the scores once more.
    pub fn executed_flops(&self) -> u64 {
        self.linear_flops() + self.executed_attention_flops()
    }

    /// Two products forward and five backward.
    pub fn executed_attention_flops(&self) -> u64 {
        let firsts = (0..self.sequence).step_by(ATTENTION_ROWS as usize);
        let pairs: u64 = firsts
            .map(|first| {
                let rows = ATTENTION_ROWS.min(self.sequence - first);
                rows * (first + rows)
            })
            .sum();
        7 * self.blocks * 2 * self.batch * pairs * self.width
    }

    fn linear_flops(&self) -> u64 {
        let block = 24 * self.width * self.width;
        let head = 2 * self.width * self.vocabulary;
        3 * self.tokens() * (self.blocks * block + head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flops_are_three_times_the_products_of_the_forward_pass() {
        // 3 · (2·n·(12·d²·L + d·V) + L·4·n·T·d) with n = B·T.
        let (n, d, layers, sequence, vocabulary) = (32 * 128, 256, 8, 128, 256);
        let products =
            3 * (2 * n * (12 * d * d * layers + d * vocabulary) + layers * 4 * n * sequence * d);
        assert_eq!(MODELS[1].shape.flops(), products);
    }

    #[test]
    fn what_the_mask_hides_is_left_out_in_whole_blocks() {
        let long = Shape {
            sequence: 1024,
            ..MODELS[1].shape
        };
        // 16 blocks of 64 queries see 64, 128, … keys: 17/32 of all pairs; 7 products instead of 6.
        assert_eq!(
            long.executed_attention_flops(),
            long.attention_flops() / 32 * 17 / 6 * 7
        );
        // No block is full.
        let tiny = MODELS[0].shape;
        assert_eq!(
            tiny.executed_attention_flops(),
            tiny.attention_flops() / 6 * 7
        );
        assert_eq!(
            tiny.executed_flops() - tiny.executed_attention_flops(),
            tiny.flops() - tiny.attention_flops()
        );
    }
}
