//! The choice of attention's kernels: tensor cores where they take the operands, else the plain kernels.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer};

use super::kernels::{self, Gradient, Sizes};
use super::tensor_cores;

/// The results of all heads, and the logarithms of their rows' sums; none for heads of more elements
/// than a block's shared memory holds.
pub(crate) fn forward(
    stored: DType,
    qkv: Pointer,
    out: Pointer,
    lse: Pointer,
    sizes: Sizes,
) -> Option<Launch> {
    tensor_cores::forward(stored, qkv, out, lse, sizes)
        .or_else(|| kernels::forward(stored, qkv, out, lse, sizes))
}

/// The gradient in three launches: the rows' means, the queries, keys and values.
pub(crate) fn backward(stored: DType, at: Gradient, sizes: Sizes) -> Option<[Launch; 3]> {
    let [queries, keys] = tensor_cores::backward(stored, at, sizes)
        .or_else(|| kernels::backward(stored, at, sizes))?;
    Some([kernels::means(stored, at, sizes), queries, keys])
}
