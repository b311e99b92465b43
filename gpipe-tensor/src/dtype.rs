//! Element types.

/// The type of a tensor's elements. The CPU computes in `F32`; indices are `U32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// IEEE 754 single precision.
    F32,
    /// Brain floating point, 16 bits.
    BF16,
    /// IEEE 754 half precision.
    F16,
    /// Unsigned 32-bit integers: token ids, class labels.
    U32,
}

impl DType {
    /// Bytes an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 | Self::U32 => 4,
            Self::BF16 | Self::F16 => 2,
        }
    }

    /// Whether gradients flow through tensors of this type.
    pub fn is_float(self) -> bool {
        !matches!(self, Self::U32)
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::BF16 => "bf16",
            Self::F16 => "f16",
            Self::U32 => "u32",
        })
    }
}

/// The number that the bits of a brain float are: it is the upper half of a single-precision one.
pub(crate) fn of_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}
