//! The section `[model]`: a name and the keys of its model family.

use std::path::Path;

use gpipe_data::{CLASSES, PIXELS};
use gpipe_layers::layers::Function;
use gpipe_layers::models::{
    GptConfig, ImageConfig, LlamaConfig, MlpConfig, ModelConfig, Network, Seq2SeqConfig,
};
use gpipe_tensor::ops::RopeScaling;
use serde::{Deserialize, Deserializer, Serialize};
use toml::Table;

use super::model_sections::NO_WEIGHTS;
use super::numbers::{Amount, Blocks, Count, Fraction, Size};
use super::presets;
use super::values::{GeluForm, Named};
use super::widths::Widths;

/// The section `[model]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Model {
    /// The source of the defaults: a preset ([`MODEL_NAMES`](super::MODEL_NAMES)) or a folder.
    pub name: String,
    /// The keys of the model family.
    #[serde(flatten)]
    pub family: Family,
}

/// The keys of each model family.
#[derive(Clone, Debug, PartialEq, Serialize)]
// A new family is added here, to `ModelConfig`, and with its defaults to `presets.rs`.
#[serde(untagged)]
#[non_exhaustive]
pub enum Family {
    /// A GPT: continues text.
    Gpt(GptKeys),
    /// A Llama, a Qwen2, a Qwen3, a Mistral or a Gemma 3: continues text.
    Llama(LlamaKeys),
    /// A multi-layer perceptron: classifies images.
    Mlp(MlpKeys),
    /// A network for images.
    Image(ImageKeys),
    /// An encoder-decoder: from one text to another.
    Seq2Seq(Seq2SeqKeys),
}

/// The keys of a GPT.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct GptKeys {
    /// Transformer blocks.
    pub blocks: Blocks,
    /// Attention heads per block.
    pub heads: Size,
    /// Width of the residual stream.
    pub width: Size,
    /// Vocabulary size; bytes need 256.
    pub vocab: Size,
    /// Maximum sequence length, at least `data.seq_len`.
    pub context: Size,
    /// Whether the head shares the token embedding.
    pub tied: bool,
    /// The form of GELU.
    pub gelu: Named<GeluForm>,
    /// Added to the variance in every LayerNorm.
    pub layer_norm_eps: Amount,
    /// Dropout probability.
    pub dropout: Fraction,
}

/// The keys of a Llama.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LlamaKeys {
    /// Transformer blocks.
    pub blocks: Blocks,
    /// Heads of queries per block.
    pub heads: Size,
    /// Heads of keys and values per block, a divisor of `heads`.
    pub kv_heads: Size,
    /// Elements of a head, an even number.
    pub head_size: Size,
    /// Width of the residual stream.
    pub width: Size,
    /// Inner width of the feed-forward nets.
    pub inner: Size,
    /// Vocabulary size; bytes need 256.
    pub vocab: Size,
    /// Maximum sequence length, at least `data.seq_len`.
    pub context: Size,
    /// Whether the head shares the token embedding.
    pub tied: bool,
    /// Base of the rotary positions.
    pub theta: Amount,
    /// Slower turns of the rotary positions, as in Llama 3.1.
    pub rope_scaling: Named<RopeScaling>,
    /// Added to the mean of squares in every RMSNorm.
    pub rms_norm_eps: Amount,
    /// Whether queries, keys and values have biases, as those of Qwen2.
    pub qkv_bias: bool,
    /// Whether each head of queries and keys is normalized before it is turned by its position, as in Qwen3.
    pub qk_norm: bool,
    /// Whether the projection behind attention has a bias.
    pub output_bias: bool,
    /// Whether the feed-forward nets have biases.
    pub mlp_bias: bool,
    /// Positions that a position sees, its own included, as in Mistral; 0 for all before it.
    pub window: Count,
    /// Of as many blocks in a row, the last one has no window; 0 if every block has it.
    pub full_every: Count,
    /// Base of the rotary positions of blocks with a window beside blocks without one.
    pub window_theta: Amount,
    /// Whether the model is Gemma 3.
    pub gemma: bool,
    /// Dropout probability of attention.
    pub dropout: Fraction,
}

/// The keys of a perceptron.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct MlpKeys {
    /// Widths of the hidden layers.
    pub hidden: Named<Widths>,
    /// Dropout probability.
    pub dropout: Fraction,
}

/// The keys of a network for images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ImageKeys {
    /// The network and its sizes.
    pub network: Named<Network>,
    /// Channels of an image: 3 for colours, 1 for shades of grey.
    pub channels: Size,
    /// Number of classes.
    pub classes: Size,
    /// A safetensors file to begin with, with torchvision's names; or `none`.
    pub weights: String,
    /// Dropout probability.
    pub dropout: Fraction,
}

/// The keys of an encoder-decoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Seq2SeqKeys {
    /// Layers of the encoder.
    pub encoder_blocks: Blocks,
    /// Layers of the decoder.
    pub decoder_blocks: Blocks,
    /// Heads of each attention.
    pub heads: Size,
    /// Width of the residual stream, an even number.
    pub width: Size,
    /// Inner width of the feed-forward nets.
    pub inner: Size,
    /// Vocabulary size, of source and target; bytes need 256.
    pub vocab: Size,
    /// Added to the variance in every LayerNorm.
    pub layer_norm_eps: Amount,
    /// Dropout probability.
    pub dropout: Fraction,
    /// Whether the decoder reads a learned weighted mean of all layers of the encoder.
    pub transparent: bool,
}

/// The key by which the keys of a perceptron are recognized.
const MLP_KEY: &str = "hidden";
/// The key by which those of a Llama are.
const LLAMA_KEY: &str = "kv_heads";

/// The key by which those of an encoder-decoder are.
const SEQ2SEQ_KEY: &str = "decoder_blocks";

/// The key by which the keys of a network for images are recognized.
const IMAGE_KEY: &str = "network";

impl<'de> Deserialize<'de> for Model {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let mut keys = Table::deserialize(deserializer)?;
        let name = keys.remove("name").and_then(|name| match name {
            toml::Value::String(name) => Some(name),
            _ => None,
        });
        let name = name.ok_or_else(|| D::Error::missing_field("name"))?;
        let has = |key| keys.contains_key(key);
        let family = if has(MLP_KEY) {
            MlpKeys::deserialize(keys).map(Family::Mlp)
        } else if has(IMAGE_KEY) {
            ImageKeys::deserialize(keys).map(Family::Image)
        } else if has(LLAMA_KEY) {
            LlamaKeys::deserialize(keys).map(Family::Llama)
        } else if has(SEQ2SEQ_KEY) {
            Seq2SeqKeys::deserialize(keys).map(Family::Seq2Seq)
        } else {
            GptKeys::deserialize(keys).map(Family::Gpt)
        };
        let family = family.map_err(|error| D::Error::custom(error.message()))?;
        Ok(Self { name, family })
    }
}

impl Model {
    /// The configuration of the layers.
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
            Family::Llama(keys) => ModelConfig::Llama(LlamaConfig {
                vocab: keys.vocab.get(),
                context: keys.context.get(),
                width: keys.width.get(),
                inner: keys.inner.get(),
                blocks: keys.blocks.get(),
                heads: keys.heads.get(),
                kv_heads: keys.kv_heads.get(),
                head_size: keys.head_size.get(),
                tied: keys.tied,
                theta: keys.theta.get(),
                rope_scaling: *keys.rope_scaling,
                rms_norm_eps: keys.rms_norm_eps.get() as f32,
                qkv_bias: keys.qkv_bias,
                qk_norm: keys.qk_norm,
                output_bias: keys.output_bias,
                mlp_bias: keys.mlp_bias,
                window: Some(keys.window.get()).filter(|&window| window > 0),
                full_every: Some(keys.full_every.get()).filter(|&every| every > 0),
                window_theta: keys.window_theta.get(),
                gemma: keys.gemma,
                dropout: keys.dropout.get() as f32,
            }),
            Family::Mlp(keys) => ModelConfig::Mlp(MlpConfig {
                inputs: PIXELS,
                hidden: keys.hidden.get().to_vec(),
                outputs: CLASSES,
                activation: Function::Relu,
                dropout: keys.dropout.get() as f32,
            }),
            Family::Image(keys) => ModelConfig::Image(ImageConfig {
                network: (*keys.network).clone(),
                channels: keys.channels.get(),
                classes: keys.classes.get(),
                dropout: keys.dropout.get() as f32,
            }),
            Family::Seq2Seq(keys) => ModelConfig::Seq2Seq(Seq2SeqConfig {
                vocab: keys.vocab.get(),
                width: keys.width.get(),
                inner: keys.inner.get(),
                encoder_blocks: keys.encoder_blocks.get(),
                decoder_blocks: keys.decoder_blocks.get(),
                heads: keys.heads.get(),
                layer_norm_eps: keys.layer_norm_eps.get() as f32,
                dropout: keys.dropout.get() as f32,
                transparent: keys.transparent,
            }),
        }
    }

    /// Whether the model learns targets of another text than its source.
    pub fn has_targets(&self) -> bool {
        matches!(self.family, Family::Seq2Seq(_))
    }

    /// The keys of a network for images; `None` for another model.
    pub fn images(&self) -> Option<&ImageKeys> {
        match &self.family {
            Family::Image(keys) => Some(keys),
            _ => None,
        }
    }

    /// The file of the initial weights of a network for images.
    pub fn weights(&self) -> Option<&Path> {
        let given = self.images().map(|keys| keys.weights.as_str());
        given.filter(|given| *given != NO_WEIGHTS).map(Path::new)
    }

    /// Whether the model normalizes by the statistics of micro-batches: results depend on their number.
    pub fn depends_on_micro_batches(&self) -> bool {
        self.images()
            .is_some_and(|keys| keys.network.depends_on_micro_batches())
    }

    /// Whether the model classifies images or their pixels; if not, it continues text.
    pub fn is_classifier(&self) -> bool {
        self.config().is_classifier()
    }

    /// The vocabulary size; `None` for a model without tokens.
    pub fn vocab(&self) -> Option<usize> {
        match &self.family {
            Family::Gpt(keys) => Some(keys.vocab.get()),
            Family::Llama(keys) => Some(keys.vocab.get()),
            Family::Seq2Seq(keys) => Some(keys.vocab.get()),
            Family::Mlp(_) | Family::Image(_) => None,
        }
    }

    /// The maximum sequence length; `None` for a model without positions.
    pub fn context(&self) -> Option<usize> {
        match &self.family {
            Family::Gpt(keys) => Some(keys.context.get()),
            Family::Llama(keys) => Some(keys.context.get()),
            Family::Mlp(_) | Family::Image(_) | Family::Seq2Seq(_) => None,
        }
    }

    /// The unit of throughput, abbreviated and in the plural: tokens or images.
    pub fn unit(&self) -> [&'static str; 2] {
        match self.is_classifier() {
            true => ["img", "images"],
            false => ["tok", "tokens"],
        }
    }

    /// The folder of the model; `None` for a preset.
    pub fn folder(&self) -> Option<&Path> {
        (!presets::is_name(&self.name)).then(|| Path::new(&self.name))
    }
}
