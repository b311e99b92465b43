//! The numbers that a key can have. Each type refuses what is out of range when it is read.

use serde::{Deserialize, Serialize};

/// A whole number from `LEAST` to `MOST`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Whole<const LEAST: i64, const MOST: i64>(i64);

/// A number of things of which there is at least one. The limit keeps products of two in a `u64`.
pub type Size = Whole<1, { u32::MAX as i64 }>;
/// Transformer blocks: a model is a list of layers, which has to be made before it can be refused.
pub type Blocks = Whole<1, 10_000>;
/// Threads: more than any machine has, fewer than any system refuses to start.
pub type Threads = Whole<1, 1024>;
/// A number of things of which there may be none.
pub type Count = Whole<0, { u32::MAX as i64 }>;
/// The seed of a run: what a TOML file can hold.
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

impl<const LEAST: i64, const MOST: i64> Whole<LEAST, MOST> {
    /// As a count of things in memory.
    pub fn get(self) -> usize {
        // Both limits are at least 0, and `usize` is 64 bits wherever a model is worth training.
        self.0 as usize
    }

    /// Whether a step is one of every so many; 0 is never.
    pub fn divides(self, step: u64) -> bool {
        self.0 > 0 && step.is_multiple_of(self.u64())
    }

    /// As a number of steps or a seed.
    pub fn u64(self) -> u64 {
        self.0 as u64
    }
}

/// A finite number from 0 up: a rate, a decay, a norm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Amount(f64);

/// A number from 0 to below 1: a probability, a share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Fraction(f64);

impl TryFrom<f64> for Amount {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        match number {
            n if n.is_finite() && n >= 0.0 => Ok(Self(n)),
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
            n if (0.0..1.0).contains(&n) => Ok(Self(n)),
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
    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl Fraction {
    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}
