//! The CUDA kernels of SwiGLU: entry points, parameters and grids.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};

entries! {
    swiglu<T>(gate: In, up: In, y: Out, n: U64);
    swiglu_with_grad<T>(gate: Both, up: Both, dy: Both, n: U64);
}

/// silu(gate)·up.
pub(crate) fn forward(stored: DType, gate: Pointer, up: Pointer, y: Pointer, n: usize) -> Launch {
    swiglu::call(stored, gate, up, y, n as u64).over_packs(n)
}

/// The gradients over `gate` and `up`, the result over `dy`.
pub(crate) fn backward(stored: DType, gate: Pointer, up: Pointer, dy: Pointer, n: usize) -> Launch {
    swiglu_with_grad::call(stored, gate, up, dy, n as u64).over_packs(n)
}
