//! The precision of matrix products.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::instruction_set::InstructionSet;

/// The precision of the factors of matrix products. Sums and all other operations are in single
/// precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Single-precision factors.
    #[default]
    Single,
    /// Factors rounded to bf16 (8 bits) in products with at least 16 rows, 16 columns and 32 terms where AMX computes
    /// them, and 64 rows, 32 columns and 32 terms where vectors do; attention keeps those of single precision.
    Bf16,
}

impl Precision {
    /// Whether this processor supports products of this precision: `Single` always, `Bf16` where that is faster, by AMX (on
    /// Linux), or by AVX512-BF16 (not on Intel's processors with AMX, whose vectors take longer for it).
    pub fn is_available(self) -> bool {
        self.is_available_with(InstructionSet::Best)
    }

    /// Whether products of this precision are supported on this processor within `instructions`.
    pub fn is_available_with(self, instructions: InstructionSet) -> bool {
        self == Self::Single || instructions.is_faster_in_bf16()
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Single => "f32",
            Self::Bf16 => "bf16",
        })
    }
}

impl FromStr for Precision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "f32" => Ok(Self::Single),
            "bf16" => Ok(Self::Bf16),
            _ => Err(Error::UnknownPrecision(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Host;

    #[test]
    fn a_precision_goes_by_its_name() {
        for precision in [Precision::Single, Precision::Bf16] {
            assert_eq!(
                precision.to_string().parse::<Precision>().unwrap(),
                precision
            );
            assert_eq!(Host::with(1, precision).is_ok(), precision.is_available());
        }
        assert_eq!(
            "f64".parse::<Precision>().unwrap_err().to_string(),
            "unknown precision `f64`: use `f32` or `bf16`"
        );
        assert_eq!(Host::new(1).unwrap().precision(), Precision::Single);
    }

    #[test]
    fn bf16_is_refused_where_its_units_are_switched_off() {
        assert!(!Precision::Bf16.is_available_with(InstructionSet::Avx2));
        assert!(Precision::Single.is_available_with(InstructionSet::Avx2));
        let Ok(host) = Host::with(1, Precision::Bf16) else {
            return; // A processor without them refuses it in any case.
        };
        assert_eq!(
            host.with_instruction_set(InstructionSet::Avx2)
                .err()
                .unwrap()
                .to_string(),
            "bf16: the instruction set `avx2` has no fast unit for it: use f32, or `best`"
        );
    }
}
