//! Rotary positions of a GGUF file: their base, and how much slower they turn.

use std::f64::consts::TAU;

use gpipe_tensor::ops::RopeScaling;

use super::header::{Entry, Header, clip};
use crate::config_json::{LARGEST_SIZE, size};

/// The tensor of the factors by which the pairs of a head turn slower, if they do so by Llama 3.1's rule.
const FACTORS: &str = "rope_freqs.weight";

impl Header {
    /// Whether a tensor is no parameter, but says how positions turn.
    pub fn is_of_positions(entry: &Entry) -> bool {
        entry.name == FACTORS
    }

    /// The tensor of the factors of pairs, if there is one: an element for each pair of a head.
    pub fn frequency_factors(&self) -> Result<Option<&Entry>, String> {
        let Some(entry) = self.tensor(FACTORS) else {
            return Ok(None);
        };
        let pairs = self.head_size()? / 2;
        match entry.shape == [pairs] {
            true => Ok(Some(entry)),
            false => Err(format!(
                "`{FACTORS}` has shape {:?}, but heads have {pairs} pairs",
                entry.shape
            )),
        }
    }

    /// Elements of a head.
    pub fn head_size(&self) -> Result<usize, String> {
        let architecture = self.architecture()?;
        let sized = |name: &str, default: Option<u64>| {
            let key = format!("{architecture}.{name}");
            size(&key, self.whole(&key)?.or(default), LARGEST_SIZE)
        };
        let width = sized("embedding_length", None)?;
        let heads = sized("attention.head_count", None)?;
        let head_size = sized("attention.key_length", Some((width / heads) as u64))?;
        match head_size.is_multiple_of(2) {
            true => Ok(head_size),
            false => Err(format!(
                "{architecture}.attention.key_length is {head_size}: rotary positions need an even number"
            )),
        }
    }

    /// The base and the scaling, with the values of [`frequency_factors`](Self::frequency_factors).
    pub fn rope(&self, factors: Option<&[f32]>) -> Result<(f64, RopeScaling), String> {
        let architecture = self.architecture()?;
        let key = |name: &str| format!("{architecture}.rope.{name}");
        let head_size = self.head_size()?;
        let turned_key = key("dimension_count");
        let turned = self.whole(&turned_key)?.or(Some(head_size as u64));
        let turned = size(&turned_key, turned, LARGEST_SIZE)?;
        if turned != head_size {
            return Err(format!(
                "{turned_key} is {turned}: only whole heads of {head_size} can be turned"
            ));
        }
        let theta_key = key("freq_base");
        let theta = self.real(&theta_key)?.unwrap_or(1e4);
        if !(theta.is_finite() && theta > 0.0) {
            return Err(format!(
                "{theta_key} is {theta}: it must be a finite number above 0"
            ));
        }
        let kind_key = key("scaling.type");
        let kind = self.text(&kind_key)?;
        // Without a type, llama.cpp divides positions by the factor, which has another name in older files.
        let factor_keys = [key("scaling.factor"), key("scale_linear")];
        let mut factor = None;
        for key in &factor_keys {
            let by = self.real(key)?.filter(|&by| by != 0.0);
            factor = factor.or(by.map(|by| (key, by)));
        }
        let linear = match (kind, factor) {
            (Some("none"), _) | (None | Some("linear"), None) => RopeScaling::Unscaled,
            (None | Some("linear"), Some((_, 1.0))) => RopeScaling::Unscaled,
            (None | Some("linear"), Some((key, factor))) => {
                let linear = RopeScaling::Linear { factor };
                linear.check().map_err(|fault| format!("{key}: {fault}"))?;
                linear
            }
            (Some(kind), _) => {
                return Err(format!(
                    "{kind_key} is `{}`: only none and linear can be trained",
                    clip(kind)
                ));
            }
        };
        match (linear, factors) {
            (_, None) => Ok((theta, linear)),
            (RopeScaling::Unscaled, Some(factors)) => Ok((theta, of_factors(factors, theta)?)),
            _ => Err(format!(
                "has `{FACTORS}` beside {kind_key}: only one of them can be trained"
            )),
        }
    }
}

/// The scaling that gives pairs these factors. The file has no more of it: low and high frequency are those of
/// all models of Llama 3, and the number of positions follows from a pair in between.
fn of_factors(factors: &[f32], theta: f64) -> Result<RopeScaling, String> {
    const LOW: f64 = 1.0;
    const HIGH: f64 = 4.0;
    let turns = |pair: usize| theta.powf(-(pair as f64) / factors.len() as f64) / TAU;
    let factors = factors.iter().map(|&factor| f64::from(factor));
    if factors.clone().all(|factor| factor == 1.0) {
        return Ok(RopeScaling::Unscaled);
    }
    let largest = factors.clone().fold(1.0, f64::max);
    // The share of a pair: 1 if it turns as theta says, 0 if slower by the whole factor.
    let shares = factors.map(|factor| (factor.recip() - largest.recip()) / (1.0 - largest.recip()));
    let shares: Vec<f64> = shares.collect();
    let between = shares.iter().position(|share| (0.01..0.99).contains(share));
    let positions = between.map(|pair| (LOW + (HIGH - LOW) * shares[pair]) / turns(pair));
    let original_positions = positions.map_or(0, |positions| positions.round() as u64);
    let has = |(pair, share): (usize, &f64)| {
        let wanted = (turns(pair) * original_positions as f64 - LOW) / (HIGH - LOW);
        (wanted.clamp(0.0, 1.0) - share).abs() < 1e-3
    };
    let scaling = RopeScaling::Llama3 {
        factor: largest,
        low_frequency: LOW,
        high_frequency: HIGH,
        original_positions,
    };
    match scaling.check().is_ok() && shares.iter().enumerate().all(has) {
        true => Ok(scaling),
        false => Err(format!(
            "`{FACTORS}` are not those of Llama 3.1: only plain rotary positions, linear ones and those can be trained"
        )),
    }
}
