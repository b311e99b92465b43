//! The two forms of GELU.

/// Which function is meant by GELU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gelu {
    /// The approximation ½x(1 + tanh(√(2/π)(x + 0.044715x³))): what GPT-2 was trained with.
    Tanh,
    /// x·Φ(x) = ½x(1 + erf(x/√2)): PyTorch's default.
    Erf,
}
