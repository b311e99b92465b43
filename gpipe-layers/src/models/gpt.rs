//! GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019).

use super::sizes::{self, EXTENT, MOST_BLOCKS};
use crate::layers::{
    CausalAttention, Dropout, Embedding, GeluLinear, Head, LayerNorm, Layout, Linear, Residual,
    Sequential,
};
use crate::lingvo;
use crate::{Error, Flow, Gelu, Init, Layer, Result};

/// The configuration of a GPT. The default is GPT-2 with 124 million parameters, without dropout.
#[derive(Clone, Debug, PartialEq)]
pub struct GptConfig {
    /// Number of tokens.
    pub vocab: usize,
    /// The longest sequence: number of learned positions.
    pub context: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Number of transformer blocks.
    pub blocks: usize,
    /// Attention heads of each block.
    pub heads: usize,
    /// Whether the head shares the table of tokens.
    pub tied: bool,
    /// The form of GELU.
    pub gelu: Gelu,
    /// Share that is dropped of the embedding, the attention probabilities and the output of each
    /// half of a block.
    pub dropout: f32,
    /// Added to the variance in every LayerNorm.
    pub layer_norm_eps: f32,
}

impl Default for GptConfig {
    fn default() -> Self {
        Self {
            vocab: 50_257,
            context: 1024,
            width: 768,
            blocks: 12,
            heads: 12,
            tied: true,
            gelu: Gelu::Tanh,
            dropout: 0.0,
            layer_norm_eps: 1e-5,
        }
    }
}

/// The initial standard deviation of all tables and weights.
const STD: f32 = 0.02;

impl GptConfig {
    fn check(&self) -> Result<()> {
        let sizes = [
            ("vocab", self.vocab, EXTENT),
            ("context", self.context, EXTENT),
            ("width", self.width, EXTENT),
            ("heads", self.heads, EXTENT),
            ("blocks", self.blocks, 0..=MOST_BLOCKS),
        ];
        sizes::check("gpt", &sizes)?;
        if !self.layer_norm_eps.is_finite() || self.layer_norm_eps < 0.0 {
            return Err(Error::Config(format!(
                "gpt: layer_norm_eps is {}: use a finite number from 0 up",
                self.layer_norm_eps
            )));
        }
        Ok(())
    }

    /// A linear layer within a block, with this initial standard deviation of its weights.
    fn linear(&self, name: String, inputs: usize, outputs: usize, std: f32) -> Linear {
        Linear::new(name, inputs, outputs, Layout::InOut).init(Init::Normal(std), Init::Zeros)
    }

    fn layer_norm(&self, name: String) -> LayerNorm {
        LayerNorm::new(name, self.width, self.layer_norm_eps)
    }

    /// The list plus a dropout layer, unless the share is 0.
    fn dropout(&self, list: Sequential, name: String) -> Result<Sequential> {
        let dropout = Dropout::new(name, self.dropout)?;
        Ok(if self.dropout > 0.0 {
            list.then(dropout)
        } else {
            list
        })
    }

    /// The initial standard deviation of the projections into the residual stream: the stream sums two of
    /// them per block, so its variance would otherwise grow with the depth.
    fn projection_std(&self) -> f32 {
        STD / (2.0 * self.blocks as f32).sqrt()
    }

    /// x + attention(x)
    fn attention(&self, block: &str) -> Result<Residual> {
        let (name, width) = (format!("{block}.attn"), self.width);
        let core = format!("{name}.attn_dropout");
        let projection = format!("{name}.c_proj");
        let inside = Sequential::new()
            .then(self.layer_norm(format!("{block}.ln_1")))
            .then(self.linear(format!("{name}.c_attn"), width, 3 * width, STD))
            .then(CausalAttention::new(core, width, self.heads, self.dropout)?)
            .then(self.linear(projection, width, width, self.projection_std()));
        let inside = self.dropout(inside, format!("{name}.resid_dropout"))?;
        Ok(Residual::new(name, inside).priced_by_lingvo(whole_block))
    }

    /// x + mlp(x)
    fn mlp(&self, block: &str) -> Result<Residual> {
        let (name, width) = (format!("{block}.mlp"), self.width);
        let projection = format!("{name}.c_proj");
        let inside = Sequential::new()
            .then(self.layer_norm(format!("{block}.ln_2")))
            .then(self.linear(format!("{name}.c_fc"), width, 4 * width, STD))
            .then(GeluLinear::new(
                self.gelu,
                self.linear(projection, 4 * width, width, self.projection_std()),
            ));
        let inside = self.dropout(inside, format!("{name}.dropout"))?;
        Ok(Residual::new(name, inside).priced_by_lingvo(nothing))
    }
}

/// Lingvo charges 5·T²·B·D for a whole transformer layer, feed-forward and projections ignored
/// (`GPipeTransformerLayer`). The attention half, from which the T² stems, bears all of it and the
/// other half nothing: the running total at the end of each block, which is what Lingvo's rule
/// cuts by, is Lingvo's own, and both halves of a block come to the same part.
fn whole_block(x: &Flow) -> Result<u64> {
    Ok(lingvo::transformer_layer(&x.shape, lingvo::Order::BatchMajor)?.flops)
}

fn nothing(_: &Flow) -> Result<u64> {
    Ok(0)
}

/// The layers of a GPT-2, from token ids (batch, time) to logits (batch, time, vocab): the
/// embedding, two halves for each block so that cuts can be fine, the last LayerNorm, the head.
///
/// Names and shapes of the parameters, initial values and places of dropout are those of Hugging
/// Face's `GPT2LMHeadModel`; an untied head is `lm_head.weight` (vocab, width).
///
/// # Errors
/// [`Error::Config`] for sizes of zero, more than 10,000 blocks, heads that do not divide the width, or a dropout
/// outside of 0..1.
pub fn gpt(config: &GptConfig) -> Result<Vec<Box<dyn Layer>>> {
    config.check()?;
    let (vocab, width) = (config.vocab, config.width);
    let embedding = Embedding::new("transformer.wte", vocab, width, STD)
        .with_positions("transformer.wpe", config.context);
    let mut layers = Sequential::new().then(embedding);
    layers = config.dropout(layers, "transformer.drop".into())?;
    for i in 0..config.blocks {
        let block = format!("transformer.h.{i}");
        layers = layers
            .then(config.attention(&block)?)
            .then(config.mlp(&block)?);
    }
    let head = Head::new("lm_head", width, vocab, STD);
    let head = if config.tied {
        head.tied_to("transformer.wte.weight")
    } else {
        head
    };
    let norm = config.layer_norm("transformer.ln_f".into());
    Ok(layers.then(norm).then(head).into_layers())
}
