//! Slower turns for positions beyond those that a model was first trained with.

use std::fmt;
use std::str::FromStr;

/// How much slower the pairs of [`Rope`](super::Rope) turn than its theta says.
///
/// Its text is `none`, `linear:FACTOR` or `llama3:FACTOR,LOW,HIGH,POSITIONS`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum RopeScaling {
    /// As theta says.
    #[default]
    Unscaled,
    /// Every pair `factor` times slower (Chen et al., arXiv:2306.15595).
    Linear {
        /// A number from 1 up.
        factor: f64,
    },
    /// Slow pairs `factor` times slower, fast ones as theta says, and the others in between (Llama 3.1, arXiv:2407.21783;
    /// `rope_type` `llama3` of Hugging Face).
    Llama3 {
        /// A number from 1 up.
        factor: f64,
        /// A pair is slow that turns fewer times than this, a number above 0, within `original_positions`.
        low_frequency: f64,
        /// A pair is fast that turns more often than this, a number above `low_frequency`, within `original_positions`.
        high_frequency: f64,
        /// The positions that the model was first trained with, at least 1.
        original_positions: u64,
    },
}

impl RopeScaling {
    /// Whether its numbers are those that the variants ask for.
    ///
    /// # Errors
    /// What is wrong, with a mend.
    pub fn check(self) -> Result<(), String> {
        let factor = match self {
            Self::Unscaled => 1.0,
            Self::Linear { factor } | Self::Llama3 { factor, .. } => factor,
        };
        if !(factor.is_finite() && factor >= 1.0) {
            return Err(format!(
                "turns slower by a factor of {factor}: use a number from 1 up"
            ));
        }
        let Self::Llama3 {
            low_frequency: low,
            high_frequency: high,
            original_positions,
            ..
        } = self
        else {
            return Ok(());
        };
        if !(low > 0.0 && low < high && high.is_finite()) {
            return Err(format!(
                "turns slower below {low} and as they were above {high}: use two numbers above 0, the smaller one first"
            ));
        }
        match original_positions {
            0 => Err("0 positions first trained with: use 1 or more".into()),
            _ => Ok(()),
        }
    }

    /// Its line through the turns t of a pair at position 1: the pair turns t · (slow + (1 − slow) · s) times, where s is
    /// slope · t − offset, but at least 0 and at most 1. Given are slow, slope and offset.
    pub(super) fn line(self) -> [f64; 3] {
        match self {
            Self::Unscaled => [1.0, 0.0, 0.0],
            Self::Linear { factor } => [factor.recip(), 0.0, 0.0],
            Self::Llama3 {
                factor,
                low_frequency: low,
                high_frequency: high,
                original_positions,
            } => {
                let width = high - low;
                [
                    factor.recip(),
                    original_positions as f64 / width,
                    low / width,
                ]
            }
        }
    }
}

impl fmt::Display for RopeScaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unscaled => f.write_str("none"),
            Self::Linear { factor } => write!(f, "linear:{factor}"),
            Self::Llama3 {
                factor,
                low_frequency,
                high_frequency,
                original_positions,
            } => write!(
                f,
                "llama3:{factor},{low_frequency},{high_frequency},{original_positions}"
            ),
        }
    }
}

impl FromStr for RopeScaling {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "unknown scaling of rotary positions `{text}`: use none, linear:FACTOR or llama3:FACTOR,LOW,HIGH,POSITIONS, \
                 such as llama3:8,1,4,8192"
            )
        };
        if text == "none" {
            return Ok(Self::Unscaled);
        }
        let (kind, numbers) = text.split_once(':').unwrap_or_default();
        let numbers: Vec<&str> = numbers.split(',').collect();
        let real = |text: &str| text.parse::<f64>().map_err(|_| unknown());
        let scaling = match (kind, &numbers[..]) {
            ("linear", [factor]) => Self::Linear {
                factor: real(factor)?,
            },
            ("llama3", [factor, low, high, positions]) => Self::Llama3 {
                factor: real(factor)?,
                low_frequency: real(low)?,
                high_frequency: real(high)?,
                original_positions: positions.parse().map_err(|_| unknown())?,
            },
            _ => return Err(unknown()),
        };
        scaling.check()?;
        Ok(scaling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scaling_is_its_text() {
        for text in [
            "none",
            "linear:1",
            "linear:2.5",
            "llama3:32,1,4,8192",
            "llama3:8,0.5,4,1",
        ] {
            let scaling: RopeScaling = text.parse().unwrap();
            assert_eq!(scaling.to_string(), text);
        }
        for text in [
            "",
            "none:",
            "none:1",
            "linear",
            "linear:",
            "linear:x",
            "linear:2,1",
            "yarn:4",
            "llama3:8",
            "llama3:8,1,4,-1",
            "llama3:8,1,4,8192,2",
        ] {
            let error = text.parse::<RopeScaling>().unwrap_err();
            assert!(error.starts_with("unknown scaling"), "{text}: {error}");
        }
        for (text, wanted) in [
            ("linear:0.5", "factor of 0.5"),
            ("linear:inf", "factor of inf"),
            ("linear:NaN", "factor of NaN"),
            ("llama3:8,4,1,8192", "below 4"),
            ("llama3:8,0,4,8192", "below 0"),
            ("llama3:8,1,inf,8192", "above inf"),
            ("llama3:8,1,4,0", "0 positions"),
        ] {
            let error = text.parse::<RopeScaling>().unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
