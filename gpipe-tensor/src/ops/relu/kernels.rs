//! The CUDA kernels of the rectifier: entry points, parameters and grids.

use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};

entries! {
    relu<T>(x: In, y: Out, n: U64);
    relu_grad<T>(y: In, dy: In, dx: Out, n: U64);
    leaky_relu<T>(x: In, y: Out, n: U64, slope: F32);
    leaky_relu_grad<T>(y: In, dy: In, dx: Out, n: U64, slope: F32);
}

pub(crate) fn forward(stored: DType, x: Pointer, y: Pointer, n: usize) -> Launch {
    relu::call(stored, x, y, n as u64).over_packs(n)
}

pub(crate) fn backward(stored: DType, y: Pointer, dy: Pointer, dx: Pointer, n: usize) -> Launch {
    relu_grad::call(stored, y, dy, dx, n as u64).over_packs(n)
}

pub(crate) fn leaky(stored: DType, x: Pointer, y: Pointer, n: usize, slope: f32) -> Launch {
    leaky_relu::call(stored, x, y, n as u64, slope).over_packs(n)
}

pub(crate) fn leaky_grad(
    stored: DType,
    y: Pointer,
    dy: Pointer,
    dx: Pointer,
    n: usize,
    slope: f32,
) -> Launch {
    leaky_relu_grad::call(stored, y, dy, dx, n as u64, slope).over_packs(n)
}
