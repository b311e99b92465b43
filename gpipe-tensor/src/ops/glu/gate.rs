//! Functions of gates.

/// The function of the gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// x·σ(x): SwiGLU.
    #[default]
    Silu,
    /// The tanh form of [`Gelu`](crate::ops::Gelu): GeGLU.
    GeluTanh,
}
