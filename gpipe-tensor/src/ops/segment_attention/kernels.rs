//! The CUDA kernels of attention by segments: entry points, parameters and grids.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};
use crate::launch_trace::Arithmetic;
use crate::ops::dropout::kernels::Numbers;

/// Warps of a block, each with room for the sums of its row.
const WARPS: usize = 8;

/// Bytes of shared memory that every device gives a block without being asked twice.
const SHARED: usize = 48 * 1024;

entries! {
    segment_attention<T>(
        q: In, kv: In, of_queries: InU32, of_keys: InU32, out: Out, lse: OutF32, rows: U64,
        queries: U64, keys: U64, heads: U32, size: U32, causal: U32, scale: F32, first_sample: U64,
        key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
    segment_attention_queries<T>(
        q: In, kv: In, of_queries: InU32, of_keys: InU32, out: In, lse: InF32, d_out: In, dq: Out,
        rows: U64, queries: U64, keys: U64, heads: U32, size: U32, causal: U32, scale: F32,
        first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
    segment_attention_keys<T>(
        q: In, kv: In, of_queries: InU32, of_keys: InU32, out: In, lse: InF32, d_out: In, dkv: Out,
        rows: U64, queries: U64, keys: U64, heads: U32, size: U32, causal: U32, scale: F32,
        first_sample: U64, key_low: U32, key_high: U32, threshold: U32, kept: F32,
    );
}

/// The sizes of a call, and its dropout.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub samples: usize,
    /// Queries of a sample.
    pub queries: usize,
    /// Keys of a sample.
    pub keys: usize,
    pub heads: usize,
    /// Elements of a head.
    pub size: usize,
    pub causal: bool,
    pub dropout: Numbers,
}

impl Sizes {
    fn scale(self) -> f32 {
        1.0 / (self.size as f32).sqrt()
    }

    /// As many products of all queries with all keys, or with those before them: segments see fewer.
    fn arithmetic(self, is_gradient: bool, products: f64) -> Arithmetic {
        let pairs = self.queries as f64 * self.keys as f64;
        let pairs = if self.causal { pairs / 2.0 } else { pairs };
        Arithmetic::Attention {
            on_tensor_cores: false,
            by_warpgroups: false,
            factors: DType::F32,
            is_gradient,
            flops: 2.0 * products * pairs * (self.samples * self.heads * self.size) as f64,
        }
    }
}

/// Queries, keys and values, and the segments of both.
#[derive(Clone, Copy)]
pub(crate) struct Operands {
    pub q: Pointer,
    pub kv: Pointer,
    pub of_queries: Pointer,
    pub of_keys: Pointer,
}

/// What the gradient reads beside the operands, and where it goes.
#[derive(Clone, Copy)]
pub(crate) struct Gradient {
    pub out: Pointer,
    pub lse: Pointer,
    pub d_out: Pointer,
    pub dq: Pointer,
    pub dkv: Pointer,
}

/// The results and the logarithms of their rows' sums; none for heads that do not fit the shared memory.
pub(crate) fn forward(
    stored: DType,
    from: Operands,
    [out, lse]: [Pointer; 2],
    sizes: Sizes,
) -> Option<Launch> {
    let Numbers {
        key: [low, high],
        first_sample,
        threshold,
        kept,
    } = sizes.dropout;
    if 4 * WARPS * sizes.size > SHARED {
        return None;
    }
    let rows = sizes.samples * sizes.heads * sizes.queries;
    let call = segment_attention::call(
        stored,
        from.q,
        from.kv,
        from.of_queries,
        from.of_keys,
        out,
        lse,
        rows as u64,
        sizes.queries as u64,
        sizes.keys as u64,
        sizes.heads as u32,
        sizes.size as u32,
        sizes.causal.into(),
        sizes.scale(),
        first_sample,
        low,
        high,
        threshold,
        kept,
    );
    let launch = call.blocks_with(rows.div_ceil(WARPS), WARPS * sizes.size);
    Some(launch.with_arithmetic(sizes.arithmetic(false, 2.0)))
}

/// The gradients of queries, and of keys and values; none for heads that do not fit the shared memory.
pub(crate) fn backward(
    stored: DType,
    from: Operands,
    at: Gradient,
    sizes: Sizes,
) -> Option<[Launch; 2]> {
    let Numbers {
        key: [low, high],
        first_sample,
        threshold,
        kept,
    } = sizes.dropout;
    if 8 * WARPS * sizes.size > SHARED {
        return None;
    }
    let of_queries: fn(_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _) -> _ =
        segment_attention_queries::call;
    let launches = [
        (of_queries, at.dq, sizes.queries, sizes.size, 3.0),
        (
            segment_attention_keys::call,
            at.dkv,
            sizes.keys,
            2 * sizes.size,
            4.0,
        ),
    ];
    Some(launches.map(|(call, to, positions, floats, products)| {
        let rows = sizes.samples * sizes.heads * positions;
        call(
            stored,
            from.q,
            from.kv,
            from.of_queries,
            from.of_keys,
            at.out,
            at.lse,
            at.d_out,
            to,
            rows as u64,
            sizes.queries as u64,
            sizes.keys as u64,
            sizes.heads as u32,
            sizes.size as u32,
            u32::from(sizes.causal),
            sizes.scale(),
            first_sample,
            low,
            high,
            threshold,
            kept,
        )
        .blocks_with(rows.div_ceil(WARPS), WARPS * floats)
        .with_arithmetic(sizes.arithmetic(true, products))
    }))
}
