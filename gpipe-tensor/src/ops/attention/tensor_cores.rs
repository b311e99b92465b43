//! The CUDA kernels of attention on tensor cores: entry points, parameters and grids.
//!
//! Kernels for some sizes of heads, of values in bf16 and in f32, for grouped queries and windows too. Other sizes, and
//! operands that do not begin at a multiple of 16 bytes, are left to the plain kernels.

use crate::DType;
use crate::cuda::entry::{Call, Launch, Pointer, entries};
use crate::ops::dropout::kernels::Numbers;

use super::kernels::{Gradient, Sizes};

/// What tensor cores may do, and can.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TensorCores {
    /// Whether they may round factors in f32 to TF32.
    pub tf32: bool,
    /// Whether warpgroups multiply, which devices of compute capability 9.0 alone have.
    pub warpgroups: bool,
}

/// How elements are multiplied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Factors {
    /// Those of bf16 as they are.
    Bf16,
    /// Those of bf16 by warpgroups.
    WarpgroupBf16,
    /// Those of f32, rounded to TF32.
    Tf32,
    /// Those of f32, each as the sum of two numbers of TF32: three products.
    Tf32x3,
}

impl Factors {
    /// Of elements of this type, those that are tried first.
    fn of(stored: DType, cores: TensorCores) -> &'static [Self] {
        match (stored, cores.tf32, cores.warpgroups) {
            (DType::F32, true, _) => &[Self::Tf32],
            (DType::F32, false, _) => &[Self::Tf32x3],
            (_, _, true) => &[Self::WarpgroupBf16, Self::Bf16],
            (_, _, false) => &[Self::Bf16],
        }
    }
}

/// The parameters that all of them share: positions, heads, groups, window, scale, and dropout's numbers.
type Common = (u32, u32, u32, u32, f32, Numbers);

type Forward = fn(Pointer, Pointer, Pointer, Common) -> Call;
type Backward = fn(Gradient, Common) -> Call;

/// The kernels for one size of heads.
struct Kernels {
    factors: Factors,
    /// Elements of a head.
    size: usize,
    /// Keys a tile of the forward pass.
    keys: usize,
    /// Keys or queries a tile of the gradients.
    tile: usize,
    /// Warps that share rows in the gradient of keys.
    sharing: usize,
    forward: Forward,
    grad_queries: Backward,
    grad_keys: Backward,
}

/// Queries a block, and keys a block of the gradient of keys where no warps share rows.
const ROWS: usize = 128;

macro_rules! kernels {
    ($($factors:ident<$stored:ident> $size:literal: $keys:literal, $tile:literal, $sharing:literal,
       $forward:ident $blocks:literal, $queries:ident $queries_blocks:literal, $of_keys:ident $keys_blocks:literal;)*) => {
        entries! {$(
            $forward<$stored> $blocks (
                qkv: In, out: Out, lse: OutF32, len: U32, heads: U32, groups: U32, window: U32,
                scale: F32, first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
            );
            $queries<$stored> $queries_blocks (
                qkv: In, lse: InF32, means: InF32, d_out: In, dqkv: Out, len: U32, heads: U32, groups: U32,
                window: U32, scale: F32, first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
            );
            $of_keys<$stored> $keys_blocks (
                qkv: In, lse: InF32, means: InF32, d_out: In, dqkv: Out, len: U32, heads: U32, groups: U32,
                window: U32, scale: F32, first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
            );
        )*}

        static KERNELS_BY_SIZE: &[Kernels] = &[$(Kernels {
            factors: Factors::$factors,
            size: $size,
            keys: $keys,
            tile: $tile,
            sharing: $sharing,
            forward: |qkv, out, lse, (len, heads, groups, window, scale, n)| {
                let ([low, high], first) = (n.key, n.first_sample);
                $forward::call(
                    $forward::ENTRY.stored(), qkv, out, lse, len, heads, groups, window, scale, first, low, high,
                    n.threshold, n.kept,
                )
            },
            grad_queries: |at, (len, heads, groups, window, scale, n)| {
                let ([low, high], first) = (n.key, n.first_sample);
                $queries::call(
                    $queries::ENTRY.stored(), at.qkv, at.lse, at.means, at.d_out, at.dqkv, len, heads, groups, window,
                    scale, first, low, high, n.threshold, n.kept,
                )
            },
            grad_keys: |at, (len, heads, groups, window, scale, n)| {
                let ([low, high], first) = (n.key, n.first_sample);
                $of_keys::call(
                    $of_keys::ENTRY.stored(), at.qkv, at.lse, at.means, at.d_out, at.dqkv, len, heads, groups, window,
                    scale, first, low, high, n.threshold, n.kept,
                )
            },
        }),*];
    };
}

// As the last lines of tensor_cores.cu. A number behind a name is how many blocks a multiprocessor has to hold: 1 lets a thread
// have all registers that there are, 0 leaves it to the compiler.
kernels! {
    Bf16<bf16> 32: 32, 32, 1, attention_32 0, attention_grad_queries_32 0, attention_grad_keys_32 0;
    Bf16<bf16> 64: 64, 32, 1, attention_64 2, attention_grad_queries_64 2, attention_grad_keys_64 0;
    Bf16<bf16> 80: 64, 32, 1, attention_80 0, attention_grad_queries_80 0, attention_grad_keys_80 0;
    Bf16<bf16> 96: 32, 32, 2, attention_96 0, attention_grad_queries_96 0, attention_grad_keys_96 0;
    Bf16<bf16> 128: 32, 32, 2, attention_128 0, attention_grad_queries_128 0, attention_grad_keys_128 0;
    WarpgroupBf16<bf16> 64: 64, 64, 1, attention_by_warpgroups_64 2, attention_by_warpgroups_grad_queries_64 2,
        attention_by_warpgroups_grad_keys_64 0;
    WarpgroupBf16<bf16> 128: 64, 64, 2, attention_by_warpgroups_128 0, attention_by_warpgroups_grad_queries_128 0,
        attention_by_warpgroups_grad_keys_128 0;
    Tf32<f32> 32: 32, 16, 1, attention_tf32_32 1, attention_tf32_grad_queries_32 1, attention_tf32_grad_keys_32 1;
    Tf32<f32> 64: 32, 16, 1, attention_tf32_64 1, attention_tf32_grad_queries_64 1, attention_tf32_grad_keys_64 1;
    Tf32<f32> 80: 16, 16, 2, attention_tf32_80 1, attention_tf32_grad_queries_80 1, attention_tf32_grad_keys_80 1;
    Tf32<f32> 96: 16, 16, 4, attention_tf32_96 1, attention_tf32_grad_queries_96 1, attention_tf32_grad_keys_96 1;
    Tf32<f32> 128: 16, 16, 4, attention_tf32_128 1, attention_tf32_grad_queries_128 1, attention_tf32_grad_keys_128 1;
    Tf32x3<f32> 32: 32, 16, 1, attention_tf32x3_32 1, attention_tf32x3_grad_queries_32 1, attention_tf32x3_grad_keys_32 1;
    Tf32x3<f32> 64: 32, 16, 1, attention_tf32x3_64 1, attention_tf32x3_grad_queries_64 1, attention_tf32x3_grad_keys_64 1;
    Tf32x3<f32> 80: 16, 16, 2, attention_tf32x3_80 1, attention_tf32x3_grad_queries_80 1, attention_tf32x3_grad_keys_80 1;
    Tf32x3<f32> 96: 16, 16, 4, attention_tf32x3_96 1, attention_tf32x3_grad_queries_96 1, attention_tf32x3_grad_keys_96 1;
    Tf32x3<f32> 128: 16, 16, 4, attention_tf32x3_128 1, attention_tf32x3_grad_queries_128 1, attention_tf32x3_grad_keys_128 1;
}

/// Whether warpgroups multiply in the kernel of this name: then its launches ask for more than the 48 KiB of shared memory that
/// every one may.
pub(crate) fn by_warpgroups(name: &str) -> bool {
    name.starts_with("attention_by_warpgroups")
}

/// The kernels for these sizes and operands, if there are some.
fn fitting(
    stored: DType,
    cores: TensorCores,
    sizes: Sizes,
    operands: &[Pointer],
) -> Option<&'static Kernels> {
    if operands.iter().any(|at| at.0 % 16 != 0) {
        return None;
    }
    let mut factors = Factors::of(stored, cores).iter();
    factors.find_map(|&factors| {
        let mut kernels = KERNELS_BY_SIZE.iter();
        kernels.find(|kernels| (kernels.factors, kernels.size) == (factors, sizes.size))
    })
}

fn common(sizes: Sizes) -> Common {
    // A position sees no more positions than there are: kernels count on it.
    let window = sizes.window.min(sizes.len);
    let [len, heads, groups, window] =
        [sizes.len, sizes.heads, sizes.groups, window].map(|size| size as u32);
    (len, heads, groups, window, sizes.scale(), sizes.dropout)
}

/// Floats of shared memory in which a block keeps which tile is its own.
const KEPT: usize = 8;

impl Kernels {
    /// Floats that `rows` rows take in shared memory, each with 16 bytes behind it but for warpgroups.
    fn floats(&self, rows: usize) -> usize {
        let row = match self.factors {
            Factors::WarpgroupBf16 => 2 * self.size,
            Factors::Bf16 => 2 * self.size + 16,
            Factors::Tf32 | Factors::Tf32x3 => 4 * self.size + 16,
        };
        rows * row / 4
    }

    /// Floats of shared memory for `own` times as many rows of a block's own and for `tiles` floats of others: a warp's rows
    /// pass through the place of the tiles, as many at a time as there is room for; a warpgroup's stay, and begin at a multiple
    /// of 1024 bytes.
    fn shared(&self, own: usize, rows: usize, tiles: usize) -> usize {
        let floats = self.floats(rows);
        match self.factors {
            Factors::WarpgroupBf16 => 1024 / 4 + own * floats + tiles,
            _ if 4 * floats > 46 * 1024 => tiles.max(floats / 2),
            _ => tiles.max(floats),
        }
    }
}

/// As [`forward`](super::kernels::forward), where tensor cores do it.
pub(super) fn forward(
    stored: DType,
    cores: TensorCores,
    qkv: Pointer,
    out: Pointer,
    lse: Pointer,
    sizes: Sizes,
) -> Option<Launch> {
    let kernels = fitting(stored, cores, sizes, &[qkv, out])?;
    let shared = KEPT + kernels.shared(1, ROWS, kernels.floats(4 * kernels.keys));
    let call = (kernels.forward)(qkv, out, lse, common(sizes));
    Some(call.blocks_with(sizes.blocks(sizes.heads, ROWS), shared))
}

/// The gradients of queries, and of keys and values, where tensor cores take them.
pub(super) fn backward(
    stored: DType,
    cores: TensorCores,
    at: Gradient,
    sizes: Sizes,
) -> Option<[Launch; 2]> {
    let kernels = fitting(stored, cores, sizes, &[at.qkv, at.d_out, at.dqkv])?;
    let tiles = kernels.floats(4 * kernels.tile);
    let shared = KEPT + 2 * ROWS + kernels.shared(2, ROWS, tiles);
    let queries = (kernels.grad_queries)(at, common(sizes));
    let rows = ROWS / kernels.sharing;
    // Two tiles and two floats a position, twice.
    let staged = tiles + 4 * kernels.tile;
    let keys = (kernels.grad_keys)(at, common(sizes));
    Some([
        queries.blocks_with(sizes.blocks(sizes.heads, ROWS), shared),
        keys.blocks_with(
            sizes.blocks(sizes.groups, rows),
            KEPT + kernels.shared(2, rows, staged),
        ),
    ])
}
