//! The section `[model]`: a name, and the keys of the family that the model belongs to.

use std::path::Path;

use gpipe_data::{CLASSES, PIXELS};
use gpipe_layers::layers::Function;
use gpipe_layers::models::{GptConfig, MlpConfig, ModelConfig};
use serde::{Deserialize, Deserializer, Serialize};
use toml::Table;

use super::numbers::{Amount, Blocks, Fraction, Size};
use super::presets;
use super::values::{GeluForm, Named};
use super::widths::Widths;

/// The section `[model]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Model {
    /// Where the defaults come from: one of the models by name, or a folder with one.
    pub name: String,
    /// The keys of its family.
    #[serde(flatten)]
    pub family: Family,
}

/// The keys of each family of models. A new family joins here, in [`ModelConfig`], and with its
/// defaults in `presets.rs`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Family {
    /// A GPT, which continues text.
    Gpt(GptKeys),
    /// A multi-layer perceptron, which classifies images.
    Mlp(MlpKeys),
}

/// The keys of a GPT.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GptKeys {
    /// Transformer blocks.
    pub blocks: Blocks,
    /// Attention heads of a block.
    pub heads: Size,
    /// Width of the residual stream.
    pub width: Size,
    /// Tokens that the model knows; bytes need 256.
    pub vocab: Size,
    /// Positions that the model knows, at least the tokens of a sample.
    pub context: Size,
    /// Whether the head uses the token embedding.
    pub tied: bool,
    /// The form of GELU.
    pub gelu: Named<GeluForm>,
    /// Added to the variance in every LayerNorm.
    pub layer_norm_eps: Amount,
    /// Probability of dropping an activation.
    pub dropout: Fraction,
}

/// The keys of a perceptron.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MlpKeys {
    /// Widths of the hidden layers.
    pub hidden: Named<Widths>,
    /// Probability of dropping an activation.
    pub dropout: Fraction,
}

/// The key that a perceptron has and no other family.
const OF_MLP: &str = "hidden";

impl<'de> Deserialize<'de> for Model {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let mut keys = Table::deserialize(deserializer)?;
        let name = keys.remove("name").and_then(|name| match name {
            toml::Value::String(name) => Some(name),
            _ => None,
        });
        let name = name.ok_or_else(|| D::Error::missing_field("name"))?;
        let family = match keys.contains_key(OF_MLP) {
            true => MlpKeys::deserialize(keys).map(Family::Mlp),
            false => GptKeys::deserialize(keys).map(Family::Gpt),
        };
        let family = family.map_err(|error| D::Error::custom(error.message()))?;
        Ok(Self { name, family })
    }
}

impl Model {
    /// The sizes of the model.
    pub fn config(&self) -> ModelConfig {
        match &self.family {
            Family::Gpt(keys) => ModelConfig::Gpt(GptConfig {
                vocab: keys.vocab.get(),
                context: keys.context.get(),
                width: keys.width.get(),
                blocks: keys.blocks.get(),
                heads: keys.heads.get(),
                tied: keys.tied,
                gelu: keys.gelu.0,
                layer_norm_eps: keys.layer_norm_eps.get() as f32,
                dropout: keys.dropout.get() as f32,
            }),
            Family::Mlp(keys) => ModelConfig::Mlp(MlpConfig {
                inputs: PIXELS,
                hidden: keys.hidden.get().to_vec(),
                outputs: CLASSES,
                activation: Function::Relu,
                dropout: keys.dropout.get() as f32,
            }),
        }
    }

    /// Whether images are classified, not text continued.
    pub fn is_classifier(&self) -> bool {
        self.config().is_classifier()
    }

    /// Tokens that the model knows; `None` where it knows none.
    pub fn vocab(&self) -> Option<usize> {
        match &self.family {
            Family::Gpt(keys) => Some(keys.vocab.get()),
            Family::Mlp(_) => None,
        }
    }

    /// Positions that the model knows; `None` where a sample has none.
    pub fn context(&self) -> Option<usize> {
        match &self.family {
            Family::Gpt(keys) => Some(keys.context.get()),
            Family::Mlp(_) => None,
        }
    }

    /// What is counted, for one and for many: a token or an image.
    pub fn unit(&self) -> [&'static str; 2] {
        match self.is_classifier() {
            true => ["img", "images"],
            false => ["tok", "tokens"],
        }
    }

    /// The folder that the model comes from, unless it is one of those by name.
    pub fn folder(&self) -> Option<&Path> {
        let named = presets::NAMES.contains(&self.name.as_str());
        (!named).then(|| Path::new(&self.name))
    }
}
