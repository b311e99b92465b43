//! The CUDA kernels of stochastic gradient descent: entry points, parameters and grids.

use super::settings::Sgd;
use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};

entries! {
    sgd<T>(
        value: BothF32, copy: Out, grad: InF32, velocity: BothF32, n: U64,
        grad_scale: F32, lr: F32, momentum: F32, nesterov: U32, weight_decay: F32,
    );
}

/// One step on values in single precision, with a velocity unless that is null; `copy`, unless null,
/// gets them in the stored type.
pub(crate) fn sgd(
    stored: DType,
    [value, copy, grad, velocity]: [Pointer; 4],
    n: usize,
    grad_scale: f32,
    o: &Sgd,
) -> Launch {
    sgd::call(
        stored,
        value,
        copy,
        grad,
        velocity,
        n as u64,
        grad_scale,
        o.lr,
        o.momentum,
        o.nesterov.into(),
        o.weight_decay,
    )
    .over_elements(n)
}
