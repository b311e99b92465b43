//! The section `[lora]`: adapters of linear layers.

use gpipe_layers::LoraSettings;
use gpipe_layers::models::ModelConfig;
use serde::{Deserialize, Serialize};

use super::TrainConfig;
use super::numbers::{Amount, Count, Fraction};
use super::parameter_pattern::ParameterPattern;
use super::values::Named;
use crate::error::{Error, Result};

/// The section `[lora]`. It is omitted from files where its keys have their defaults, since earlier versions do not
/// know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Lora {
    /// Rank of the adapters; 0 for none.
    pub rank: Count,
    /// α: an adapter is scaled by α over its rank.
    pub alpha: Amount,
    /// Share of an adapter's inputs that is dropped in training.
    pub dropout: Fraction,
    /// The linear layers that have adapters, by their names.
    pub targets: Named<ParameterPattern>,
}

impl Default for Lora {
    fn default() -> Self {
        Self {
            rank: Count::ZERO,
            alpha: Amount::LORA_ALPHA,
            dropout: Fraction::zero(),
            targets: Named::of(ParameterPattern::NONE),
        }
    }
}

impl Lora {
    /// The settings of each adapter; `None` without adapters.
    pub fn settings(&self) -> Option<LoraSettings> {
        (self.rank != Count::ZERO).then(|| LoraSettings {
            rank: self.rank.get(),
            alpha: self.alpha.get() as f32,
            dropout: self.dropout.get() as f32,
        })
    }

    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The layers that `peft` adapts by default, of the families that it knows.
fn default_targets(model: &ModelConfig) -> Option<&'static str> {
    match model {
        ModelConfig::Gpt(_) => Some(r"\.c_attn$"),
        ModelConfig::Llama(_) => Some(r"\.(q_proj|v_proj)$"),
        _ => None,
    }
}

/// Sets the targets that were not given, and refuses settings of adapters where there are none.
pub fn complete(config: &mut TrainConfig) -> Result<()> {
    let (lora, default) = (&config.lora, Lora::default());
    if lora.rank == Count::ZERO {
        for (key, given) in [
            ("alpha", lora.alpha != default.alpha),
            ("dropout", lora.dropout != default.dropout),
            ("targets", lora.targets != default.targets),
        ] {
            if given {
                return Err(Error::invalid(format!(
                    "`lora.{key}` is for adapters, and there are none: use `lora.rank = 8`, or leave `lora.{key}` out"
                )));
            }
        }
        return Ok(());
    }
    if lora.targets.is_none() {
        let Some(targets) = default_targets(&config.model.config()) else {
            return Err(Error::invalid(format!(
                "the model {} has no layers that are adapted by default: name some with `lora.targets = REGEX`",
                config.model.name
            )));
        };
        let targets = targets.parse().map_err(Error::invalid)?;
        config.lora.targets = Named::of(targets);
    }
    Ok(())
}
