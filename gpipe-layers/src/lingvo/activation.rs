//! Activation functions and their prices.

use crate::{Error, Result};

/// Lingvo's activation functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// The identity.
    None,
    /// max(x, 0).
    Relu,
    /// ReLU capped at 6.
    Relu6,
    /// ReLU with a slope below 0.
    LeakyRelu,
    /// 1 / (1 + exp(−x)).
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// GELU.
    Gelu,
    /// GELU by the tanh formula written out.
    GeluRaw,
    /// GELU as the library's approximation.
    GeluApproximate,
    /// x · sigmoid(x).
    Swish,
    /// ln(1 + exp(x)).
    Softplus,
    /// ReLU, squared.
    SquaredRelu,
    /// Swish by its other name, which has no entry in Lingvo's cost table.
    Silu,
    /// One half times the sigmoid of the other.
    Glu,
    /// One half times the other.
    BilinearGlu,
    /// One half times the ReLU of the other.
    ReluGlu,
    /// One half times the GELU of the other.
    GeluGlu,
    /// One half times the swish of the other.
    SwishGlu,
}

impl Activation {
    /// FLOPs an element.
    ///
    /// # Errors
    /// For [`Silu`](Self::Silu), on which Lingvo fails with a `KeyError`.
    pub fn flops(self) -> Result<u64> {
        Ok(match self {
            Self::None => 0,
            Self::Relu | Self::Relu6 | Self::BilinearGlu => 1,
            Self::SquaredRelu | Self::ReluGlu => 2,
            Self::Softplus => 3,
            Self::Sigmoid => 4,
            Self::LeakyRelu | Self::Swish | Self::Glu => 5,
            Self::GeluApproximate | Self::SwishGlu => 6,
            Self::Tanh => 7,
            Self::Gelu | Self::GeluRaw => 15,
            Self::GeluGlu => 16,
            Self::Silu => {
                return Err(Error::Config(
                    "lingvo has no cost for the activation silu: use swish, the same function"
                        .into(),
                ));
            }
        })
    }

    /// 2 where the layer before must produce both halves, else 1.
    pub(super) fn inputs_an_output(self) -> u64 {
        match self {
            Self::Glu | Self::BilinearGlu | Self::ReluGlu | Self::GeluGlu | Self::SwishGlu => 2,
            _ => 1,
        }
    }
}
