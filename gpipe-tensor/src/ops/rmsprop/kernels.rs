//! The CUDA kernels of RMSProp: entry points, parameters and grids.

use super::settings::RmsProp;
use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};

entries! {
    rmsprop<T>(
        value: BothF32, copy: Out, grad: InF32, square: BothF32, velocity: BothF32, n: U64,
        grad_scale: F32, lr: F32, alpha: F32, eps: F32, momentum: F32, weight_decay: F32,
    );
}

/// One step on values in single precision, with a velocity unless that is null; `copy`, unless null,
/// gets them in the stored type.
pub(crate) fn rmsprop(
    stored: DType,
    [value, copy, grad, square, velocity]: [Pointer; 5],
    n: usize,
    grad_scale: f32,
    o: &RmsProp,
) -> Launch {
    rmsprop::call(
        stored,
        value,
        copy,
        grad,
        square,
        velocity,
        n as u64,
        grad_scale,
        o.lr,
        o.alpha,
        o.eps,
        o.momentum,
        o.weight_decay,
    )
    .over_elements(n)
}
