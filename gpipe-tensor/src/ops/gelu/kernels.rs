//! The CUDA kernels of the Gaussian error linear unit: entry points, parameters and grids.

use super::form::Gelu;
use crate::DType;
use crate::cuda::entry::{Launch, Pointer, entries};

entries! {
    gelu_tanh<T>(x: In, bias: In, y: Out, n: U64, width: U64);
    gelu_erf<T>(x: In, bias: In, y: Out, n: U64, width: U64);
    gelu_tanh_grad<T>(x: In, bias: In, dy: In, dx: Out, n: U64, width: U64);
    gelu_erf_grad<T>(x: In, bias: In, dy: In, dx: Out, n: U64, width: U64);
    gelu_tanh_with_grad<T>(x: In, y: Out, dy: Both, n: U64);
    gelu_erf_with_grad<T>(x: In, y: Out, dy: Both, n: U64);
}

/// GELU of x, plus a bias of `width` elements for every row unless that is null.
pub(crate) fn forward(
    form: Gelu,
    stored: DType,
    x: Pointer,
    bias: Pointer,
    y: Pointer,
    n: usize,
    width: usize,
) -> Launch {
    let call = match form {
        Gelu::Tanh => gelu_tanh::call,
        Gelu::Erf => gelu_erf::call,
    };
    call(stored, x, bias, y, n as u64, width as u64).over_packs(n)
}

/// Operands and result of [`backward`].
pub(crate) struct Backward {
    pub x: Pointer,
    /// May be null.
    pub bias: Pointer,
    pub dy: Pointer,
    pub dx: Pointer,
}

/// The gradient with respect to what [`forward`] took.
pub(crate) fn backward(
    form: Gelu,
    stored: DType,
    Backward { x, bias, dy, dx }: Backward,
    n: usize,
    width: usize,
) -> Launch {
    let call = match form {
        Gelu::Tanh => gelu_tanh_grad::call,
        Gelu::Erf => gelu_erf_grad::call,
    };
    call(stored, x, bias, dy, dx, n as u64, width as u64).over_packs(n)
}

/// GELU of x without a bias to y, and the gradient over dy.
pub(crate) fn with_grad(form: Gelu, stored: DType, [x, y, dy]: [Pointer; 3], n: usize) -> Launch {
    let call = match form {
        Gelu::Tanh => gelu_tanh_with_grad::call,
        Gelu::Erf => gelu_erf_with_grad::call,
    };
    call(stored, x, y, dy, n as u64).over_packs(n)
}
