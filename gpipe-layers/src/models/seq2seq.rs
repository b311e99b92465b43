//! The encoder-decoder Transformer (Vaswani et al., arXiv:1706.03762) with normalisation before each part, as
//! Lingvo's batch-major stack.

use super::sizes::{self, EXTENT, MOST_BLOCKS};
use crate::layers::{
    Activation, Add, At, Discard, Dropout, Fork, Function, LayerNorm, Layout, Linear,
    MultiHeadAttention, Permute, Residual, Sequential, SinusoidEmbedding, TransparentAdd,
    TransparentSum, TransparentWeights,
};
use crate::{Error, Init, Layer, Result};

/// The configuration of an encoder-decoder. The default is the base model of the paper, with bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Seq2SeqConfig {
    /// Number of tokens, of source and target alike.
    pub vocab: usize,
    /// Width of the residual stream, an even number.
    pub width: usize,
    /// Inner width of the feed-forward nets.
    pub inner: usize,
    /// Layers of the encoder.
    pub encoder_blocks: usize,
    /// Layers of the decoder.
    pub decoder_blocks: usize,
    /// Heads of each attention, a divisor of the width.
    pub heads: usize,
    /// Added to the variance in every LayerNorm.
    pub layer_norm_eps: f32,
    /// Share that dropout drops.
    pub dropout: f32,
    /// Whether the decoder reads a learned weighted mean of the embedding and the outputs of all layers of the encoder
    /// ([`TransparentWeights`]), rather than the output of the last one.
    pub transparent: bool,
}

impl Default for Seq2SeqConfig {
    fn default() -> Self {
        Self {
            vocab: 256,
            width: 512,
            inner: 2048,
            encoder_blocks: 6,
            decoder_blocks: 6,
            heads: 8,
            layer_norm_eps: 1e-6,
            dropout: 0.1,
            transparent: false,
        }
    }
}

impl Seq2SeqConfig {
    fn check(&self) -> Result<()> {
        let sizes = [
            ("vocab", self.vocab, EXTENT),
            ("width", self.width, EXTENT),
            ("inner", self.inner, EXTENT),
            ("encoder_blocks", self.encoder_blocks, 1..=MOST_BLOCKS),
            ("decoder_blocks", self.decoder_blocks, 1..=MOST_BLOCKS),
            ("heads", self.heads, EXTENT),
        ];
        sizes::check("seq2seq", &sizes)?;
        if !self.layer_norm_eps.is_finite() || self.layer_norm_eps < 0.0 {
            return Err(Error::Config(format!(
                "seq2seq: layer_norm_eps is {}: use a finite number from 0 up",
                self.layer_norm_eps
            )));
        }
        Ok(())
    }

    fn norm(&self, name: String) -> LayerNorm {
        LayerNorm::new(name, self.width, self.layer_norm_eps)
    }

    /// The list plus a dropout layer, unless the share is 0.
    fn dropout(&self, list: Sequential, name: String) -> Result<Sequential> {
        let dropout = Dropout::new(name, self.dropout)?;
        Ok(match self.dropout > 0.0 {
            true => list.then(dropout),
            false => list,
        })
    }

    /// x + dropout(W₂·dropout(relu(W₁·norm(x)))).
    fn feed_forward(&self, block: &str, norm: usize) -> Result<Residual> {
        let (width, inner) = (self.width, self.inner);
        let inside = Sequential::new()
            .then(self.norm(format!("{block}.norm{norm}")))
            .then(linear(format!("{block}.linear1"), width, inner))
            .then(Activation::new(format!("{block}.relu"), Function::Relu));
        let inside = self.dropout(inside, format!("{block}.dropout"))?;
        let inside = inside.then(linear(format!("{block}.linear2"), inner, width));
        let inside = self.dropout(inside, format!("{block}.dropout{norm}"))?;
        Ok(Residual::new(format!("{block}.feed_forward"), inside))
    }

    /// x + dropout(out_proj(attention(norm(x)))), where the attention takes the first tensor of the flow and those
    /// at `others`, counted before the fork.
    fn attention(
        &self,
        list: Sequential,
        (block, norm): (&str, usize),
        attention: MultiHeadAttention,
        others: &[usize],
    ) -> Result<Sequential> {
        let name = attention.name().to_owned();
        let places = std::iter::once(0).chain(others.iter().map(|place| place + 1));
        let list = list
            .then(Fork::new(format!("{name}.fork")))
            .then(self.norm(format!("{block}.norm{norm}")))
            .then(At::new(places, attention.dropping(self.dropout)?))
            .then(linear(format!("{name}.out_proj"), self.width, self.width));
        let list = self.dropout(list, format!("{block}.dropout{norm}"))?;
        Ok(list.then(Add::new(format!("{name}.add"))))
    }

    fn embedding(&self, list: Sequential, name: &str) -> Result<Sequential> {
        let embedding = SinusoidEmbedding::new(name, self.vocab, self.width)?;
        self.dropout(list.then(embedding), format!("{name}.dropout"))
    }

    /// From source ids and segments to the memory and the same segments.
    fn encoder(&self, mut list: Sequential) -> Result<Sequential> {
        list = self.embedding(list, "src_token_emb")?;
        let transparent = "encoder.transparent";
        if self.transparent {
            let count = self.encoder_blocks + 1;
            list = list.then(TransparentWeights::new(transparent, count, self.dropout)?);
        }
        for i in 0..self.encoder_blocks {
            let block = format!("encoder.layers.{i}");
            if self.transparent && i > 0 {
                let add = TransparentAdd::new(format!("{block}.transparent"), i);
                list = list.then(At::new([0, 2, 3], add));
            }
            let name = format!("{block}.self_attn");
            let core = MultiHeadAttention::of_itself(name, self.width, self.heads, false)?;
            list = self.attention(list, (&block, 1), core, &[1])?;
            list = list.then(self.feed_forward(&block, 2)?);
        }
        if self.transparent {
            let sum = TransparentSum::new(format!("{transparent}.sum"), self.encoder_blocks);
            list = list.then(sum);
        }
        Ok(list.then(self.norm("encoder.norm".into())))
    }

    /// From target ids and segments, the memory and its segments, to the last activations and the other three.
    fn decoder(&self, mut list: Sequential) -> Result<Sequential> {
        list = self.embedding(list, "tgt_token_emb")?;
        for i in 0..self.decoder_blocks {
            let block = format!("decoder.layers.{i}");
            let name = format!("{block}.self_attn");
            let core = MultiHeadAttention::of_itself(name, self.width, self.heads, true)?;
            list = self.attention(list, (&block, 1), core, &[1])?;
            let name = format!("{block}.multihead_attn");
            let core = MultiHeadAttention::of_memory(name, self.width, self.heads)?;
            list = self.attention(list, (&block, 2), core, &[2, 1, 3])?;
            list = list.then(self.feed_forward(&block, 3)?);
        }
        Ok(list)
    }
}

/// A linear layer with Xavier's uniform distribution and biases of zero.
fn linear(name: String, inputs: usize, outputs: usize) -> Linear {
    let bound = (6.0 / (inputs + outputs) as f32).sqrt();
    Linear::new(name, inputs, outputs, Layout::OutIn).init(Init::Uniform(bound), Init::Zeros)
}

/// The layers of an encoder-decoder, from source ids, source segments, target ids and target segments, each
/// (batch, time), to logits (batch, target time, vocab).
///
/// Segments tell which positions belong together: a target sees the source of its own segment, and segment 0 is
/// padding ([`MultiHeadAttention`]). The ids of the target, rather than its embedding, travel through the stages of
/// the encoder. Names and shapes of the parameters are those of PyTorch's `Transformer(norm_first=True,
/// batch_first=True)`, with `src_token_emb`, `tgt_token_emb` and `softmax` around it.
///
/// # Errors
/// [`Error::Config`] for sizes of zero, more than 10,000 blocks on a side, heads that do not divide the width, an odd
/// width, or a dropout outside of 0..1.
pub fn seq2seq(config: &Seq2SeqConfig) -> Result<Vec<Box<dyn Layer>>> {
    config.check()?;
    let layers = config.encoder(Sequential::new())?;
    // Targets first: the layers that follow take the first tensor.
    let layers = layers.then(Permute::new("decoder.inputs", [2, 3, 0, 1]));
    let layers = config.decoder(layers)?;
    Ok(layers
        .then(Discard::new("decoder.outputs", 4))
        .then(config.norm("decoder.norm".into()))
        .then(linear("softmax".into(), config.width, config.vocab))
        .into_layers())
}
