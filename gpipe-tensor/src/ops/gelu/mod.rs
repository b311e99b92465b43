//! The Gaussian error linear unit (Hendrycks and Gimpel, arXiv:1606.08415).

mod cpu;

use super::{check_same_shape, chunks};
use crate::parallel::CHUNK;
use crate::{Result, Tensor};

/// Which function is meant by GELU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gelu {
    /// The approximation ½x(1 + tanh(√(2/π)(x + 0.044715x³))): what GPT-2 was trained with.
    Tanh,
    /// x·Φ(x) = ½x(1 + erf(x/√2)): PyTorch's default.
    Erf,
}

/// GELU, element by element.
///
/// The tanh form is computed as x·σ(2u), which equals ½x(1 + tanh u) and does not cancel for
/// negative x; the erf form uses Φ with its relative accuracy for the same reason.
///
/// # Errors
/// [`Error::DType`](crate::Error::DType) for indices; errors of allocation.
pub fn gelu(x: &Tensor, form: Gelu) -> Result<Tensor> {
    chunks::map(x, CHUNK, |_, x, y| cpu::forward(form, x, y))
}

/// The gradient with respect to x from x and dL/dy.
///
/// With φ = Φ' the density of the normal distribution, d(x·Φ(x))/dx = Φ(x) + x·φ(x). For the tanh
/// form with s = σ(2u), d(x·s)/dx = s + x·s(1 − s)·2u', where 2u' = 2√(2/π)(1 + 3·0.044715·x²).
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) unless the shapes are the same; errors of allocation.
pub fn gelu_grad(x: &Tensor, dy: &Tensor, form: Gelu) -> Result<Tensor> {
    check_same_shape("gelu_grad", x, dy)?;
    chunks::map_two(x, dy, CHUNK, |_, x, dy, dx| cpu::backward(form, x, dy, dx))
}
