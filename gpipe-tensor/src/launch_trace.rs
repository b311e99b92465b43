//! What a GPU was asked to do, launch by launch, with the time of each.

use crate::dtype::DType;

/// The arithmetic of a launch, which bounds its time beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Arithmetic {
    /// A few operations an element: its bytes take longer.
    Little,
    /// A product of matrices by cuBLAS.
    Product {
        /// The type of the factors.
        factors: DType,
        /// Whether all rows begin at multiples of 16 bytes, as tensor cores load them best.
        is_aligned: bool,
        /// Floating-point operations.
        flops: f64,
    },
    /// Products of matrices within attention.
    Attention {
        /// Whether tensor cores multiply.
        on_tensor_cores: bool,
        /// Whether warpgroups multiply, which devices of compute capability 9.0 alone have. Others than a device on paper stands
        /// for have a kernel without them.
        by_warpgroups: bool,
        /// The type of the factors.
        factors: DType,
        /// Whether it is the gradient.
        is_gradient: bool,
        /// Floating-point operations of the positions that see each other.
        flops: f64,
    },
}

impl Arithmetic {
    /// Floating-point operations of its products of matrices.
    pub fn flops(self) -> f64 {
        match self {
            Self::Little => 0.0,
            Self::Product { flops, .. } | Self::Attention { flops, .. } => flops,
        }
    }
}

/// One launch of a kernel, one product of matrices, or one copy or filling within the device.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TracedLaunch {
    /// The kernel's entry point, or the product's sizes, layout and types.
    pub name: String,
    /// Between two events of the device around it; where the device waits x
    pub seconds: f64,
    /// Bytes of its operands: what it reads and writes at the least, unless it looks up only some of them.
    pub bytes: u64,
    /// Floating-point operations of its products of matrices; 0 of everything else.
    pub flops: f64,
    /// Its arithmetic.
    pub arithmetic: Arithmetic,
}

/// What the operations of one handle came to: see `Device::take_launches`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LaunchTrace {
    /// In the order in which the device does them.
    pub launches: Vec<TracedLaunch>,
    /// Buffers that were allocated for them.
    pub allocations: u64,
}
