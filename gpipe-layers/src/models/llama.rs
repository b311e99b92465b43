//! Llama (Touvron et al., arXiv:2302.13971), with grouped queries; Qwen2, Qwen3 and Mistral are this model
//! with biases, with normalized queries and keys, and with a window; Gemma 3 differs in more.

use gpipe_tensor::ops::{Gate, Rope, RopeScaling};

use super::sizes::{self, EXTENT, MOST_BLOCKS};
use crate::layers::{
    CausalAttention, Embedding, Glu, Graph, Head, Layout, Linear, Residual, RmsNorm, Rotary,
    RotaryQkv, Scale, Sequential, check_rate,
};
use crate::{Error, Init, Layer, Result};

/// The configuration of a Llama. The default is SmolLM2 with 135 million parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct LlamaConfig {
    /// Number of tokens.
    pub vocab: usize,
    /// The longest sequence that the model is meant for.
    pub context: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Inner width of the feed-forward nets.
    pub inner: usize,
    /// Number of transformer blocks.
    pub blocks: usize,
    /// Heads of queries of each block.
    pub heads: usize,
    /// Heads of keys and values, a divisor of `heads`.
    pub kv_heads: usize,
    /// Elements of a head, an even number.
    pub head_size: usize,
    /// Whether the head shares the table of tokens.
    pub tied: bool,
    /// Base of the rotary positions.
    pub theta: f64,
    /// Slower turns of the rotary positions, as in Llama 3.1.
    pub rope_scaling: RopeScaling,
    /// Added to the mean of squares in every RMSNorm.
    pub rms_norm_eps: f32,
    /// Whether the projections to queries, keys and values have biases.
    pub qkv_bias: bool,
    /// Whether each head of queries and keys is normalized before it is turned by its position (Qwen3, arXiv:2505.09388).
    pub qk_norm: bool,
    /// Whether the projection behind attention has a bias.
    pub output_bias: bool,
    /// Whether the maps of the feed-forward nets have biases.
    pub mlp_bias: bool,
    /// The number of positions that a position sees, its own included; all before it if none.
    pub window: Option<usize>,
    /// Of as many blocks in a row, the last one has no window; if none, every block has it.
    pub full_every: Option<usize>,
    /// Base of the rotary positions of blocks with a window beside blocks without one; these are not scaled.
    pub window_theta: f64,
    /// Whether the model is Gemma 3 (arXiv:2503.19786): embeddings times √width, gains of norms that are stored as their
    /// differences from 1, norms of queries and keys and behind each half of a block, and GELU in place of SiLU.
    pub gemma: bool,
    /// Share of the attention probabilities that is dropped.
    pub dropout: f32,
}

impl Default for LlamaConfig {
    fn default() -> Self {
        Self {
            vocab: 49_152,
            context: 8192,
            width: 576,
            inner: 1536,
            blocks: 30,
            heads: 9,
            kv_heads: 3,
            head_size: 64,
            tied: true,
            theta: 1e5,
            rope_scaling: RopeScaling::Unscaled,
            rms_norm_eps: 1e-5,
            qkv_bias: false,
            qk_norm: false,
            output_bias: false,
            mlp_bias: false,
            window: None,
            full_every: None,
            window_theta: 1e4,
            gemma: false,
            dropout: 0.0,
        }
    }
}

/// The initial standard deviation of all tables and weights.
const STD: f32 = 0.02;

impl LlamaConfig {
    fn check(&self) -> Result<()> {
        let sizes = [
            ("vocab", self.vocab, EXTENT),
            ("context", self.context, EXTENT),
            ("width", self.width, EXTENT),
            ("inner", self.inner, EXTENT),
            ("heads", self.heads, EXTENT),
            ("kv_heads", self.kv_heads, EXTENT),
            ("head_size", self.head_size, EXTENT),
            ("blocks", self.blocks, 0..=MOST_BLOCKS),
        ];
        sizes::check("llama", &sizes)?;
        check_rate("llama", self.dropout)?;
        if !self.head_size.is_multiple_of(2) {
            return Err(Error::Config(format!(
                "llama: head_size is {}: rotary positions need an even number: use {}",
                self.head_size,
                self.head_size + 1
            )));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(Error::Config(format!(
                "llama: {} kv_heads cannot serve {} heads: use a divisor of the heads",
                self.kv_heads, self.heads
            )));
        }
        for (key, theta) in [("theta", self.theta), ("window_theta", self.window_theta)] {
            let positive = theta.is_finite() && theta > 0.0;
            if !positive {
                return Err(Error::Config(format!(
                    "llama: {key} is {theta}: use a number above 0"
                )));
            }
        }
        let fault = match (self.window, self.full_every) {
            (_, Some(every)) if every < 2 => {
                Some(format!("full_every is {every}: use 2 or more, or none"))
            }
            (None, Some(every)) => Some(format!(
                "full_every is {every} where no block has a window: set the window, or leave out full_every"
            )),
            (Some(_), None) if self.gemma => {
                Some("a Gemma with a window in every block: set full_every".to_owned())
            }
            _ => None,
        };
        if let Some(fault) = fault {
            return Err(Error::Config(format!("llama: {fault}")));
        }
        if let Err(message) = self.rope_scaling.check() {
            return Err(Error::Config(format!("llama: rope_scaling: {message}")));
        }
        if !self.rms_norm_eps.is_finite() || self.rms_norm_eps < 0.0 {
            return Err(Error::Config(format!(
                "llama: rms_norm_eps is {}: use a finite number from 0 up",
                self.rms_norm_eps
            )));
        }
        Ok(())
    }

    /// Width of all heads of queries together.
    fn queries(&self) -> usize {
        self.heads.saturating_mul(self.head_size)
    }

    fn linear(&self, name: String, [inputs, outputs]: [usize; 2], bias: bool) -> Linear {
        let linear = Linear::new(name, inputs, outputs, Layout::OutIn);
        let linear = linear.init(Init::Normal(STD), Init::Zeros);
        if bias { linear } else { linear.without_bias() }
    }

    fn norm(&self, name: String) -> RmsNorm {
        self.norm_of(name, self.width)
    }

    fn norm_of(&self, name: String, width: usize) -> RmsNorm {
        let norm = RmsNorm::new(name, width, self.rms_norm_eps);
        match self.gemma {
            true => norm.around_one(),
            false => norm,
        }
    }

    /// The window of a block, and what turns its queries and keys.
    fn positions(&self, number: usize) -> (Option<usize>, Rope) {
        let plain = Rope {
            size: self.head_size,
            theta: self.theta,
            scaling: self.rope_scaling,
            first: 0,
        };
        match (self.window, self.full_every) {
            (Some(_), Some(every)) if (number + 1).is_multiple_of(every) => (None, plain),
            (Some(window), Some(_)) => {
                let rope = Rope {
                    theta: self.window_theta,
                    scaling: RopeScaling::Unscaled,
                    ..plain
                };
                (Some(window), rope)
            }
            (window, _) => (window, plain),
        }
    }

    /// x + attention(x)
    fn attention(&self, number: usize, block: &str) -> Result<Residual> {
        let name = format!("{block}.self_attn");
        let (window, rope) = self.positions(number);
        let (width, queries) = (self.width, self.queries());
        let keys = self.kv_heads.saturating_mul(self.head_size);
        let project = |part: char, outputs: usize| {
            let name = format!("{name}.{part}_proj");
            self.linear(name, [width, outputs], self.qkv_bias)
        };
        let projections = [
            project('q', queries),
            project('k', keys),
            project('v', keys),
        ];
        let qkv = format!("{name}.qkv");
        let core = CausalAttention::new(format!("{name}.core"), queries, self.heads, self.dropout)?
            .grouped(self.kv_heads)?
            .within(window)?;
        let output = self.linear(format!("{name}.o_proj"), [queries, width], self.output_bias);
        let inside = Sequential::new().then(self.norm(format!("{block}.input_layernorm")));
        let inside = match self.qk_norm || self.gemma {
            true => inside.then(self.normalized_qkv(&name, qkv, projections, rope)),
            false => inside.then(RotaryQkv::new(qkv, projections, self.kv_heads, rope)),
        };
        let inside = inside.then(core).then(output);
        let inside = match self.gemma {
            true => inside.then(self.norm(format!("{block}.post_attention_layernorm"))),
            false => inside,
        };
        Ok(Residual::new(name, inside))
    }

    /// [`RotaryQkv`] with a norm of each head of queries and keys.
    fn normalized_qkv(
        &self,
        attention: &str,
        name: String,
        [q, k, v]: [Linear; 3],
        rope: Rope,
    ) -> Graph {
        let norm = |part: char, heads: usize| {
            let name = format!("{attention}.{part}_norm");
            self.norm_of(name, self.head_size).of_heads(heads)
        };
        let rotary = Rotary::new(format!("{name}.rotary"), self.kv_heads, rope);
        let mut graph = Graph::new(name, 1);
        let x = graph.input(0);
        let normalized = Sequential::new().then(q).then(norm('q', self.heads));
        let q = graph.chain(normalized, x, &[]);
        let normalized = Sequential::new().then(k).then(norm('k', self.kv_heads));
        let k = graph.chain(normalized, x, &[]);
        let v = graph.add(v, [x]);
        let turned = graph.add(rotary, [q, k, v]);
        graph.returning([turned])
    }

    /// x + mlp(x)
    fn mlp(&self, block: &str) -> Residual {
        let name = format!("{block}.mlp");
        let map =
            |part: &str, sizes| self.linear(format!("{name}.{part}_proj"), sizes, self.mlp_bias);
        let (width, inner) = (self.width, self.inner);
        let net = Glu::new(
            format!("{name}.glu"),
            map("gate", [width, inner]),
            map("up", [width, inner]),
            map("down", [inner, width]),
        );
        let norm = |place: &str| self.norm(format!("{block}.{place}_layernorm"));
        let inside = Sequential::new();
        let inside = match self.gemma {
            true => inside
                .then(norm("pre_feedforward"))
                .then(net.with_gate(Gate::GeluTanh))
                .then(norm("post_feedforward")),
            false => inside.then(norm("post_attention")).then(net),
        };
        Residual::new(name, inside)
    }
}

/// The layers of a Llama, from token ids (batch, time) to logits (batch, time, vocab): the embedding, two
/// halves for each block so that cuts can be fine, the last RMSNorm, the head.
///
/// Names and shapes of the parameters and initial values are those of Hugging Face's `LlamaForCausalLM` (of Gemma 3, of
/// `Gemma3ForCausalLM`); an untied head is `lm_head.weight` (vocab, width).
///
/// # Errors
/// [`Error::Config`] for sizes of zero, more than 10,000 blocks, heads that their keys do not divide, heads of an odd
/// size, a scaling of positions that [`RopeScaling::check`] refuses, or a dropout outside of 0..1.
pub fn llama(config: &LlamaConfig) -> Result<Vec<Box<dyn Layer>>> {
    config.check()?;
    let (vocab, width) = (config.vocab, config.width);
    let embedding = Embedding::new("model.embed_tokens", vocab, width, STD);
    let mut layers = Sequential::new().then(embedding);
    if config.gemma {
        let factor = (width as f64).sqrt() as f32;
        layers = layers.then(Scale::new("model.embed_scale", factor));
    }
    for i in 0..config.blocks {
        let block = format!("model.layers.{i}");
        layers = layers
            .then(config.attention(i, &block)?)
            .then(config.mlp(&block));
    }
    let head = Head::new("lm_head", width, vocab, STD);
    let head = match config.tied {
        true => head.tied_to("model.embed_tokens.weight"),
        false => head,
    };
    let norm = config.norm("model.norm".into());
    Ok(layers.then(norm).then(head).into_layers())
}
