//! The CUDA kernels of attention: entry points, parameters and grids.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer, WARP, entries};
use crate::ops::dropout::kernels::Numbers;

/// Floats of shared memory that every device gives a block without being asked twice.
const SHARED: usize = 48 * 1024 / 4;

entries! {
    attention<T> 2(
        qkv: In, out: Out, lse: OutF32,
        len: U64, heads: U32, groups: U32, window: U64, size: U32, tile: U32, scale: F32,
        first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
    attention_means<T>(
        out: In, d_out: In, means: OutF32, samples: U64, len: U64, heads: U32, size: U32, lanes: U32,
    );
    attention_grad_queries<T>(
        qkv: In, lse: InF32, means: InF32, d_out: In, dqkv: Out,
        len: U64, heads: U32, groups: U32, window: U64, size: U32, tile: U32, scale: F32,
        first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
    attention_grad_keys<T> 2(
        qkv: In, lse: InF32, means: InF32, d_out: In, dqkv: Out,
        len: U64, heads: U32, groups: U32, window: U64, size: U32, tile: U32, scale: F32,
        first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
}

/// The sizes of attention, and its dropout.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub samples: usize,
    pub len: usize,
    pub heads: usize,
    /// Heads of keys and values.
    pub groups: usize,
    /// Number of positions that a position sees.
    pub window: usize,
    /// Elements of a head.
    pub size: usize,
    pub dropout: Numbers,
}

impl Sizes {
    pub(super) fn scale(self) -> f32 {
        1.0 / (self.size as f32).sqrt()
    }

    /// Floats of a head's row in shared memory, and from one such row to the next in a tile.
    fn padded_and_stride(self) -> [usize; 2] {
        let words = self.size.div_ceil(4);
        [4 * words, 4 * (words | 1)]
    }

    /// The largest tile whose floats fit, and how many these are; none for heads that are too large.
    fn tile(self, floats: impl Fn(usize) -> usize) -> Option<(usize, usize)> {
        let tiles = [32, 16, 8, 4, 2, 1].map(|tile| (tile, floats(tile)));
        tiles.into_iter().find(|&(_, floats)| floats <= SHARED)
    }

    /// One block for each tile of positions of each of these heads of each sample.
    pub(super) fn blocks(self, heads: usize, tile: usize) -> usize {
        self.samples * heads * self.len.div_ceil(tile)
    }
}

/// The results of all heads, and the logarithms of their rows' sums; none for heads of more elements
/// than a block's shared memory holds.
pub(super) fn forward(
    stored: DType,
    qkv: Pointer,
    out: Pointer,
    lse: Pointer,
    sizes: Sizes,
) -> Option<Launch> {
    let [padded, stride] = sizes.padded_and_stride();
    let (tile, floats) = sizes.tile(|tile| tile * (3 * stride + padded + (tile + 1) + 3))?;
    let Numbers {
        key: [low, high],
        first_sample,
        threshold,
        kept,
    } = sizes.dropout;
    let call = attention::call(
        stored,
        qkv,
        out,
        lse,
        sizes.len as u64,
        sizes.heads as u32,
        sizes.groups as u32,
        sizes.window as u64,
        sizes.size as u32,
        tile as u32,
        sizes.scale(),
        first_sample,
        low,
        high,
        threshold,
        kept,
    );
    Some(call.blocks_with(sizes.blocks(sizes.heads, tile), floats))
}

/// What the gradient reads, and where it goes; `means` is (B, heads, T) and written first.
#[derive(Clone, Copy)]
pub(crate) struct Gradient {
    pub qkv: Pointer,
    pub out: Pointer,
    pub lse: Pointer,
    pub means: Pointer,
    pub d_out: Pointer,
    pub dqkv: Pointer,
}

/// The means of the rows, which the gradients read.
pub(super) fn means(stored: DType, at: Gradient, sizes: Sizes) -> Launch {
    let packs = (sizes.size * stored.bytes()).div_ceil(16);
    let lanes = packs.next_power_of_two().min(WARP as usize);
    let call = attention_means::call(
        stored,
        at.out,
        at.d_out,
        at.means,
        sizes.samples as u64,
        sizes.len as u64,
        sizes.heads as u32,
        sizes.size as u32,
        lanes as u32,
    );
    call.over_lanes(sizes.samples * sizes.heads * sizes.len * lanes)
}

/// The gradients of queries, and of keys and values.
pub(super) fn backward(stored: DType, at: Gradient, sizes: Sizes) -> Option<[Launch; 2]> {
    let [padded, stride] = sizes.padded_and_stride();
    let Numbers {
        key: [low, high],
        first_sample,
        threshold,
        kept,
    } = sizes.dropout;
    let queries = sizes.tile(|tile| tile * (4 * stride + padded + (tile + 1)))?;
    let keys = sizes.tile(|tile| tile * (4 * stride + 2 * padded + 2 * (tile + 1)))?;
    let [queries, keys] = [
        (
            attention_grad_queries::call
                as fn(_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _) -> _,
            sizes.heads,
            queries,
        ),
        (attention_grad_keys::call, sizes.groups, keys),
    ]
    .map(|(call, heads, (tile, floats))| {
        call(
            stored,
            at.qkv,
            at.lse,
            at.means,
            at.d_out,
            at.dqkv,
            sizes.len as u64,
            sizes.heads as u32,
            sizes.groups as u32,
            sizes.window as u64,
            sizes.size as u32,
            tile as u32,
            sizes.scale(),
            first_sample,
            low,
            high,
            threshold,
            kept,
        )
        .blocks_with(sizes.blocks(heads, tile), floats)
    });
    Some([queries, keys])
}
