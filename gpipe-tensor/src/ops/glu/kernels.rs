//! The CUDA kernels of gated linear units: entry points, parameters and grids.

use super::gate::Gate;
use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};

entries! {
    swiglu<T>(gate: In, up: In, y: Out, n: U64);
    geglu<T>(gate: In, up: In, y: Out, n: U64);
    swiglu_with_grad<T>(gate: Both, up: Both, dy: Both, n: U64);
    geglu_with_grad<T>(gate: Both, up: Both, dy: Both, n: U64);
}

/// f(gate)·up.
pub(crate) fn forward(
    function: Gate,
    stored: DType,
    gate: Pointer,
    up: Pointer,
    y: Pointer,
    n: usize,
) -> Launch {
    let call = match function {
        Gate::Silu => swiglu::call,
        Gate::GeluTanh => geglu::call,
    };
    call(stored, gate, up, y, n as u64).over_packs(n)
}

/// The gradients over `gate` and `up`, the result over `dy`.
pub(crate) fn backward(
    function: Gate,
    stored: DType,
    gate: Pointer,
    up: Pointer,
    dy: Pointer,
    n: usize,
) -> Launch {
    let call = match function {
        Gate::Silu => swiglu_with_grad::call,
        Gate::GeluTanh => geglu_with_grad::call,
    };
    call(stored, gate, up, dy, n as u64).over_packs(n)
}
