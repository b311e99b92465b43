//! Numeric values. Each type refuses values out of range when it is deserialized.

use serde::{Deserialize, Serialize};

/// An integer from `LEAST` to `MOST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Whole<const LEAST: i64, const MOST: i64>(i64);

/// A size: at least 1. The product of two fits in a `u64`.
pub type Size = Whole<1, { u32::MAX as i64 }>;
/// A number of transformer blocks; bounded, since layers are built before memory is checked.
pub type Blocks = Whole<1, 10_000>;
/// A number of threads: more than machines have, fewer than systems refuse to start.
pub type Threads = Whole<1, 1024>;
/// A count: 0 or more.
pub type Count = Whole<0, { u32::MAX as i64 }>;
/// The seed of a run; bounded by the integers of TOML.
pub type Seed = Whole<0, { i64::MAX }>;

impl<const LEAST: i64, const MOST: i64> TryFrom<i64> for Whole<LEAST, MOST> {
    type Error = String;

    fn try_from(number: i64) -> Result<Self, String> {
        match number {
            n if (LEAST..=MOST).contains(&n) => Ok(Self(n)),
            n => Err(format!(
                "{n} is out of range: use a whole number from {LEAST} to {MOST}"
            )),
        }
    }
}

impl<const LEAST: i64, const MOST: i64> From<Whole<LEAST, MOST>> for i64 {
    fn from(whole: Whole<LEAST, MOST>) -> Self {
        whole.0
    }
}

impl<const MOST: i64> Whole<0, MOST> {
    /// None.
    pub const ZERO: Self = Self(0);
}

impl<const MOST: i64> Whole<1, MOST> {
    /// The least value.
    pub const ONE: Self = Self(1);
}

impl<const LEAST: i64, const MOST: i64> Whole<LEAST, MOST> {
    /// The number as a `usize`.
    pub fn get(self) -> usize {
        // Lossless: the limits are at least 0, and `usize` has 64 bits on supported machines.
        self.0 as usize
    }

    /// Whether `step` is a multiple of this interval; never for an interval of 0.
    pub fn divides(self, step: u64) -> bool {
        self.0 > 0 && step.is_multiple_of(self.u64())
    }

    /// The number as a `u64`.
    pub fn u64(self) -> u64 {
        self.0 as u64
    }
}

/// A number of at least 0 that is finite in single precision: a rate, a decay, a norm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Amount(f64);

/// A number in [0, 1): a probability or a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Fraction(f64);

impl TryFrom<f64> for Amount {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        match number {
            // Layers and updates compute in single precision.
            n if (n as f32).is_finite() && n >= 0.0 => Ok(Self(n)),
            n if n.is_finite() && n > 0.0 => Err(format!(
                "{n:e} is infinite in single precision: use a number from 0 to 3.4e38"
            )),
            n => Err(format!(
                "{n} is out of range: use a finite number from 0 up"
            )),
        }
    }
}

impl TryFrom<f64> for Fraction {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        match number {
            // Layers and losses compute in single precision.
            n if (0.0..1.0).contains(&n) && (n as f32) < 1.0 => Ok(Self(n)),
            n if (0.0..1.0).contains(&n) => Err(format!(
                "{n} is 1 in single precision: use a number from 0 to 0.9999999"
            )),
            n => Err(format!(
                "{n} is out of range: use a number from 0 to below 1"
            )),
        }
    }
}

impl From<Amount> for f64 {
    fn from(amount: Amount) -> Self {
        amount.0
    }
}

impl From<Fraction> for f64 {
    fn from(fraction: Fraction) -> Self {
        fraction.0
    }
}

impl Amount {
    /// `peft`'s default of `lora_alpha`.
    pub(crate) const LORA_ALPHA: Self = Self(8.0);
    /// The default of AdamW's and RMSProp's `eps`.
    pub(crate) const EPS: Self = Self(1e-8);

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl Fraction {
    /// PyTorch's default of RMSProp's `alpha`.
    pub(crate) const ALPHA: Self = Self(0.99);
    /// The default decay rate of AdamW's first moment.
    pub(crate) const BETA1: Self = Self(0.9);
    /// The default decay rate of AdamW's second moment.
    pub(crate) const BETA2: Self = Self(0.95);

    pub(crate) fn zero() -> Self {
        Self(0.0)
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0 == 0.0
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_finite_in_single_precision() {
        for number in [0.0, 1e-300, 3.4e38] {
            assert_eq!(Amount::try_from(number).map(f64::from), Ok(number));
        }
        for number in [-1e-9, 3.5e38, f64::INFINITY, f64::NAN] {
            let message = Amount::try_from(number).unwrap_err();
            assert_eq!(
                message.contains("in single precision"),
                number == 3.5e38,
                "{message}"
            );
        }
    }
}
