//! The model families behind one type, common to configuration files, model folders and programs.

use gpipe_tensor::DType;

use super::{
    GptConfig, ImageConfig, LlamaConfig, MlpConfig, Seq2SeqConfig, gpt, image, llama, mlp, seq2seq,
};
use crate::{Flow, Layer, Result};

/// The sizes of a model of any family.
///
/// A new family joins here: one variant, and one arm in each method.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ModelConfig {
    /// A GPT-2 language model.
    Gpt(GptConfig),
    /// A language model of the family of Llama.
    Llama(LlamaConfig),
    /// A multi-layer perceptron for classification.
    Mlp(MlpConfig),
    /// A network for images.
    Image(ImageConfig),
    /// An encoder-decoder.
    Seq2Seq(Seq2SeqConfig),
}

impl ModelConfig {
    /// The layers, first to last; their parameters are not made yet.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for sizes that do not fit each other.
    pub fn layers(&self) -> Result<Vec<Box<dyn Layer>>> {
        match self {
            Self::Gpt(config) => gpt(config),
            Self::Llama(config) => llama(config),
            Self::Mlp(config) => mlp(config),
            Self::Image(config) => image(config),
            Self::Seq2Seq(config) => seq2seq(config),
        }
    }

    /// The flow that enters the first layer: token ids (`samples`, `size`), features (`samples`,
    /// inputs), images (`samples`, `size`, `size`, channels), or ids and segments of sources, then of targets (each
    /// `samples`, `size`).
    pub fn input(&self, samples: usize, size: usize) -> Vec<Flow> {
        match self {
            Self::Gpt(_) | Self::Llama(_) => vec![Flow {
                shape: [samples, size].into(),
                dtype: DType::U32,
            }],
            Self::Mlp(config) => vec![Flow::f32([samples, config.inputs])],
            Self::Image(config) => vec![Flow::f32([samples, size, size, config.channels])],
            Self::Seq2Seq(_) => vec![Flow::u32([samples, size]); 4],
        }
    }

    /// Whether a sample is an image, whose target is a class or a mask, rather than a text with a target a token.
    pub fn is_classifier(&self) -> bool {
        match self {
            Self::Gpt(_) | Self::Llama(_) | Self::Seq2Seq(_) => false,
            Self::Mlp(_) | Self::Image(_) => true,
        }
    }

    /// The width of the residual stream of a language model, and the largest hidden one of other models, in elements a
    /// token or a sample: the size of products that speeds are measured with. Inputs, logits and the inner width of a
    /// language model's feed-forward nets, which may be larger, do not count.
    pub fn widest(&self) -> usize {
        match self {
            Self::Gpt(config) => config.width,
            Self::Llama(config) => config.width,
            Self::Mlp(config) => config.hidden.iter().copied().max().unwrap_or(1),
            Self::Image(config) => config.widest(),
            Self::Seq2Seq(config) => config.width.max(config.inner),
        }
    }

    /// Probability of dropping an activation.
    pub fn dropout(&self) -> f32 {
        match self {
            Self::Gpt(config) => config.dropout,
            Self::Llama(config) => config.dropout,
            Self::Mlp(config) => config.dropout,
            Self::Image(config) => config.dropout,
            Self::Seq2Seq(config) => config.dropout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::Function;

    #[test]
    fn a_family_builds_its_layers_for_its_input() {
        let gpt = ModelConfig::Gpt(GptConfig {
            vocab: 11,
            context: 8,
            width: 8,
            blocks: 1,
            heads: 2,
            ..GptConfig::default()
        });
        let llama = ModelConfig::Llama(LlamaConfig {
            vocab: 11,
            context: 8,
            width: 8,
            inner: 20,
            blocks: 1,
            heads: 2,
            kv_heads: 1,
            head_size: 6,
            ..LlamaConfig::default()
        });
        let mlp = ModelConfig::Mlp(MlpConfig {
            inputs: 5,
            hidden: vec![7, 3],
            outputs: 2,
            activation: Function::Relu,
            dropout: 0.0,
        });
        let convnet = ModelConfig::Image(ImageConfig {
            network: "convnet:4,6".parse().unwrap(),
            channels: 3,
            classes: 5,
            dropout: 0.0,
        });
        let seq2seq = ModelConfig::Seq2Seq(Seq2SeqConfig {
            vocab: 11,
            width: 8,
            inner: 20,
            encoder_blocks: 1,
            decoder_blocks: 1,
            heads: 2,
            ..Seq2SeqConfig::default()
        });
        for (model, size, widest) in [
            (gpt, 8, 8),
            (llama, 8, 8),
            (mlp, 1, 7),
            (convnet, 8, 6),
            (seq2seq, 8, 20),
        ] {
            let mut flow = model.input(4, size);
            for layer in model.layers().unwrap() {
                let taken = layer.arity();
                let cost = layer.cost(&flow[..taken]).unwrap();
                flow.splice(..taken, cost.outputs);
            }
            assert_eq!(flow[0].shape.dims()[0], 4, "{model:?}");
            assert_eq!(model.widest(), widest);
        }
    }
}
