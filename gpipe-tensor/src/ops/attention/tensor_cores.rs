//! The CUDA kernels of attention on tensor cores: entry points, parameters and grids.
//!
//! One kernel for each size of heads, of values in bf16, for grouped queries and windows too. Other sizes,
//! single precision and operands that do not begin at a multiple of 16 bytes are left to the plain kernels.

use crate::DType;
use crate::cuda::entry::{Call, Launch, Pointer, entries};
use crate::ops::dropout::kernels::Numbers;

use super::kernels::{Gradient, Sizes};

entries! {
    attention_32<bf16>(
        qkv: In, out: Out, lse: OutF32, len: U32, heads: U32, groups: U32, window: U32,
        scale: F32, first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
    attention_grad_queries_32<bf16>(
        qkv: In, lse: InF32, means: InF32, d_out: In, dqkv: Out, len: U32, heads: U32, groups: U32, window: U32,
        scale: F32, first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
    attention_grad_keys_32<bf16>(
        qkv: In, lse: InF32, means: InF32, d_out: In, dqkv: Out, len: U32, heads: U32, groups: U32, window: U32,
        scale: F32, first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
    attention_64<bf16> 2 (
        qkv: In, out: Out, lse: OutF32, len: U32, heads: U32, groups: U32, window: U32,
        scale: F32, first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
    attention_grad_queries_64<bf16> 2 (
        qkv: In, lse: InF32, means: InF32, d_out: In, dqkv: Out, len: U32, heads: U32, groups: U32, window: U32,
        scale: F32, first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
    attention_grad_keys_64<bf16>(
        qkv: In, lse: InF32, means: InF32, d_out: In, dqkv: Out, len: U32, heads: U32, groups: U32, window: U32,
        scale: F32, first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
    attention_80<bf16>(
        qkv: In, out: Out, lse: OutF32, len: U32, heads: U32, groups: U32, window: U32,
        scale: F32, first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
    attention_grad_queries_80<bf16>(
        qkv: In, lse: InF32, means: InF32, d_out: In, dqkv: Out, len: U32, heads: U32, groups: U32, window: U32,
        scale: F32, first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
    attention_grad_keys_80<bf16>(
        qkv: In, lse: InF32, means: InF32, d_out: In, dqkv: Out, len: U32, heads: U32, groups: U32, window: U32,
        scale: F32, first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
    attention_96<bf16>(
        qkv: In, out: Out, lse: OutF32, len: U32, heads: U32, groups: U32, window: U32,
        scale: F32, first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
    attention_grad_queries_96<bf16>(
        qkv: In, lse: InF32, means: InF32, d_out: In, dqkv: Out, len: U32, heads: U32, groups: U32, window: U32,
        scale: F32, first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
    attention_grad_keys_96<bf16>(
        qkv: In, lse: InF32, means: InF32, d_out: In, dqkv: Out, len: U32, heads: U32, groups: U32, window: U32,
        scale: F32, first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
    attention_128<bf16>(
        qkv: In, out: Out, lse: OutF32, len: U32, heads: U32, groups: U32, window: U32,
        scale: F32, first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
    attention_grad_queries_128<bf16>(
        qkv: In, lse: InF32, means: InF32, d_out: In, dqkv: Out, len: U32, heads: U32, groups: U32, window: U32,
        scale: F32, first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
    attention_grad_keys_128<bf16>(
        qkv: In, lse: InF32, means: InF32, d_out: In, dqkv: Out, len: U32, heads: U32, groups: U32, window: U32,
        scale: F32, first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
}

/// The parameters that all of them share: positions, heads, groups, window, scale, and dropout's numbers.
type Common = (u32, u32, u32, u32, f32, Numbers);

type Forward = fn(Pointer, Pointer, Pointer, Common) -> Call;
type Backward = fn(Gradient, Common) -> Call;

/// The kernels for one size of heads.
struct Kernels {
    /// Elements of a head.
    size: usize,
    /// Keys a tile of the forward pass.
    keys: usize,
    /// Warps that share rows in the gradient of keys.
    sharing: usize,
    forward: Forward,
    grad_queries: Backward,
    grad_keys: Backward,
}

/// Queries a block, and keys a block of the gradient of keys where no warps share rows.
const ROWS: usize = 128;

/// Keys or queries a tile of the gradients.
const TILE: usize = 32;

macro_rules! kernels {
    ($($size:literal: $keys:literal, $sharing:literal, $forward:ident, $queries:ident, $of_keys:ident;)*) => {
        [$(Kernels {
            size: $size,
            keys: $keys,
            sharing: $sharing,
            forward: |qkv, out, lse, (len, heads, groups, window, scale, n)| {
                let ([low, high], first) = (n.key, n.first_sample);
                $forward::call(
                    DType::BF16, qkv, out, lse, len, heads, groups, window, scale, first, low, high,
                    n.threshold, n.kept,
                )
            },
            grad_queries: |at, (len, heads, groups, window, scale, n)| {
                let ([low, high], first) = (n.key, n.first_sample);
                $queries::call(
                    DType::BF16, at.qkv, at.lse, at.means, at.d_out, at.dqkv, len, heads, groups, window,
                    scale, first, low, high, n.threshold, n.kept,
                )
            },
            grad_keys: |at, (len, heads, groups, window, scale, n)| {
                let ([low, high], first) = (n.key, n.first_sample);
                $of_keys::call(
                    DType::BF16, at.qkv, at.lse, at.means, at.d_out, at.dqkv, len, heads, groups, window,
                    scale, first, low, high, n.threshold, n.kept,
                )
            },
        }),*]
    };
}

// As the last lines of tensor_cores.cu.
static KERNELS_BY_SIZE: [Kernels; 5] = kernels! {
    32: 32, 1, attention_32, attention_grad_queries_32, attention_grad_keys_32;
    64: 64, 1, attention_64, attention_grad_queries_64, attention_grad_keys_64;
    80: 64, 1, attention_80, attention_grad_queries_80, attention_grad_keys_80;
    96: 32, 2, attention_96, attention_grad_queries_96, attention_grad_keys_96;
    128: 32, 2, attention_128, attention_grad_queries_128, attention_grad_keys_128;
};

/// The kernels for these sizes and operands, if there are some.
fn fitting(stored: DType, sizes: Sizes, operands: &[Pointer]) -> Option<&'static Kernels> {
    let aligned = operands.iter().all(|at| at.0 % 16 == 0);
    let mut fitting = KERNELS_BY_SIZE.iter();
    fitting
        .find(|kernels| kernels.size == sizes.size)
        .filter(|_| stored == DType::BF16 && aligned)
}

fn common(sizes: Sizes) -> Common {
    // A position sees no more positions than there are: kernels count on it.
    let window = sizes.window.min(sizes.len);
    let [len, heads, groups, window] =
        [sizes.len, sizes.heads, sizes.groups, window].map(|size| size as u32);
    (len, heads, groups, window, sizes.scale(), sizes.dropout)
}

/// Floats of shared memory in which a block of queries keeps which tile is its own.
const KEPT: usize = 8;

/// Floats that `rows` rows take in shared memory, each with 16 bytes behind it.
fn floats(rows: usize, size: usize) -> usize {
    rows * (2 * size + 16) / 4
}

/// As [`forward`](super::kernels::forward), where tensor cores do it.
pub(super) fn forward(
    stored: DType,
    qkv: Pointer,
    out: Pointer,
    lse: Pointer,
    sizes: Sizes,
) -> Option<Launch> {
    let kernels = fitting(stored, sizes, &[qkv, out])?;
    let shared = KEPT + floats(ROWS, sizes.size).max(floats(4 * kernels.keys, sizes.size));
    let call = (kernels.forward)(qkv, out, lse, common(sizes));
    Some(call.blocks_with(sizes.blocks(sizes.heads, ROWS), shared))
}

/// The gradients of queries, and of keys and values, where tensor cores take them.
pub(super) fn backward(stored: DType, at: Gradient, sizes: Sizes) -> Option<[Launch; 2]> {
    let kernels = fitting(stored, sizes, &[at.qkv, at.d_out, at.dqkv])?;
    let shared = KEPT + 2 * ROWS + floats(ROWS, sizes.size).max(floats(4 * TILE, sizes.size));
    let queries = (kernels.grad_queries)(at, common(sizes));
    let rows = ROWS / kernels.sharing;
    // Two tiles and two floats a position, twice.
    let staged = 2 * (floats(2 * TILE, sizes.size) + 2 * TILE);
    let keys = (kernels.grad_keys)(at, common(sizes));
    Some([
        queries.blocks_with(sizes.blocks(sizes.heads, ROWS), shared),
        keys.blocks_with(
            sizes.blocks(sizes.groups, rows),
            floats(rows, sizes.size).max(staged),
        ),
    ])
}
