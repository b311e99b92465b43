//! The CUDA kernels of the rotary position embedding: entry points, parameters and grids.

use super::angles::Angles;
use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};

entries! {
    rope<T>(
        q: In, k: In, v: In, qkv: Out,
        rows: U64, len: U64, heads: U32, groups: U32, size: U32,
        ratio: F64, slow: F64, slope: F64, offset: F64, first: U64,
    );
    rope_grad<T>(
        dqkv: In, dq: Out, dk: Out, dv: Out,
        rows: U64, len: U64, heads: U32, groups: U32, size: U32,
        ratio: F64, slow: F64, slope: F64, offset: F64, first: U64,
    );
}

/// The extents of a call, and the angles.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub samples: usize,
    pub len: usize,
    pub heads: usize,
    pub groups: usize,
    /// Elements of a head.
    pub size: usize,
    pub angles: Angles,
    pub first: u64,
}

impl Sizes {
    fn rows(self) -> u64 {
        (self.samples * self.len) as u64
    }

    fn pairs(self) -> usize {
        self.samples * self.len * (self.heads + 2 * self.groups) * (self.size / 2)
    }
}

/// Turns and packs.
pub(crate) fn forward(
    stored: DType,
    [q, k, v]: [Pointer; 3],
    qkv: Pointer,
    sizes: Sizes,
) -> Launch {
    let [slow, slope, offset] = sizes.angles.line;
    rope::call(
        stored,
        q,
        k,
        v,
        qkv,
        sizes.rows(),
        sizes.len as u64,
        sizes.heads as u32,
        sizes.groups as u32,
        sizes.size as u32,
        sizes.angles.ratio,
        slow,
        slope,
        offset,
        sizes.first,
    )
    .over_elements(sizes.pairs())
}

/// Takes apart and turns back.
pub(crate) fn backward(
    stored: DType,
    dqkv: Pointer,
    [dq, dk, dv]: [Pointer; 3],
    sizes: Sizes,
) -> Launch {
    let [slow, slope, offset] = sizes.angles.line;
    rope_grad::call(
        stored,
        dqkv,
        dq,
        dk,
        dv,
        sizes.rows(),
        sizes.len as u64,
        sizes.heads as u32,
        sizes.groups as u32,
        sizes.size as u32,
        sizes.angles.ratio,
        slow,
        slope,
        offset,
        sizes.first,
    )
    .over_elements(sizes.pairs())
}
