//! The CUDA kernels of the rectifier: entry points, parameters and grids.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};

entries! {
    relu<T>(x: In, y: Out, n: U64);
    relu_grad<T>(y: In, dy: In, dx: Out, n: U64);
}

pub(crate) fn forward(stored: DType, x: Pointer, y: Pointer, n: usize) -> Launch {
    relu::call(stored, x, y, n as u64).over_elements(n)
}

pub(crate) fn backward(stored: DType, y: Pointer, dy: Pointer, dx: Pointer, n: usize) -> Launch {
    relu_grad::call(stored, y, dy, dx, n as u64).over_elements(n)
}
