//! The section `[lora]`: adapters of linear layers.

use std::path::Path;

use gpipe_layers::LoraSettings;
use gpipe_layers::models::ModelConfig;
use serde::{Deserialize, Serialize};

use super::model::Model;
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
    /// A folder of `peft` whose adapters these begin as; none if it is empty. It sets the other keys.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub adapter: String,
}

impl Default for Lora {
    fn default() -> Self {
        Self {
            rank: Count::ZERO,
            alpha: Amount::LORA_ALPHA,
            dropout: Fraction::zero(),
            targets: Named::of(ParameterPattern::NONE),
            adapter: String::new(),
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

    /// The folder of `peft` that the adapters begin as.
    pub fn folder(&self) -> Option<&Path> {
        (!self.adapter.is_empty()).then(|| Path::new(&self.adapter))
    }

    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Sets the targets that were not given, and refuses settings of adapters where there are none.
    pub(super) fn complete(&mut self, model: &Model) -> Result<()> {
        let default = Self::default();
        if self.rank == Count::ZERO {
            for (key, given) in [
                ("alpha", self.alpha != default.alpha),
                ("dropout", self.dropout != default.dropout),
                ("targets", self.targets != default.targets),
            ] {
                if given {
                    return Err(Error::invalid(format!(
                        "`lora.{key}` is for adapters, and there are none: use `lora.rank = 8`, or leave \
                         `lora.{key}` out"
                    )));
                }
            }
        } else if self.targets.is_none() {
            let Some(targets) = default_targets(&model.config()) else {
                return Err(Error::invalid(format!(
                    "the model {} has no layers that are adapted by default: name some with `lora.targets = REGEX`",
                    model.name
                )));
            };
            self.targets = Named::of(targets.parse().map_err(Error::invalid)?);
        }
        Ok(())
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
