//! The section `[model]` of a model from its description, by family.

use gpipe_layers::Gelu;
use gpipe_layers::models::{GptConfig, ImageConfig, LlamaConfig, MlpConfig};
use toml::Table;

use super::preset_values::{digits, section, size};

/// The value of `model.weights` for values drawn by the seed.
pub const NO_WEIGHTS: &str = "none";

/// The section `[model]` of a network for images.
pub fn image(name: &str, config: &ImageConfig) -> Table {
    let model = [
        ("name", name.into()),
        ("network", config.network.to_string().into()),
        ("channels", size(config.channels)),
        ("classes", size(config.classes)),
        ("weights", NO_WEIGHTS.into()),
        ("dropout", digits(config.dropout)),
    ];
    section("model", model)
}

/// The section `[model]` of a perceptron.
pub fn mlp(name: &str, config: &MlpConfig) -> Table {
    let hidden: Vec<String> = config.hidden.iter().map(usize::to_string).collect();
    let model = [
        ("name", name.into()),
        ("hidden", hidden.join(",").into()),
        ("dropout", digits(config.dropout)),
    ];
    section("model", model)
}

/// The section `[model]` of a GPT.
pub fn gpt(name: &str, config: &GptConfig) -> Table {
    let GptConfig {
        vocab,
        context,
        width,
        blocks,
        heads,
        tied,
        gelu,
        dropout,
        layer_norm_eps,
    } = *config;
    let gelu = match gelu {
        Gelu::Tanh => "tanh",
        Gelu::Erf => "erf",
    };
    let model = [
        ("name", name.into()),
        ("blocks", size(blocks)),
        ("heads", size(heads)),
        ("width", size(width)),
        ("vocab", size(vocab)),
        ("context", size(context)),
        ("tied", tied.into()),
        ("gelu", gelu.into()),
        ("layer_norm_eps", digits(layer_norm_eps)),
        ("dropout", digits(dropout)),
    ];
    section("model", model)
}

/// The section `[model]` of a Llama.
pub fn llama(name: &str, config: &LlamaConfig) -> Table {
    let LlamaConfig {
        vocab,
        context,
        width,
        inner,
        blocks,
        heads,
        kv_heads,
        head_size,
        tied,
        theta,
        rope_scaling,
        rms_norm_eps,
        qkv_bias,
        qk_norm,
        output_bias,
        mlp_bias,
        window,
        full_every,
        window_theta,
        gemma,
        dropout,
    } = *config;
    let model = [
        ("name", name.into()),
        ("blocks", size(blocks)),
        ("heads", size(heads)),
        ("kv_heads", size(kv_heads)),
        ("head_size", size(head_size)),
        ("width", size(width)),
        ("inner", size(inner)),
        ("vocab", size(vocab)),
        ("context", size(context)),
        ("tied", tied.into()),
        ("theta", theta.into()),
        ("rope_scaling", rope_scaling.to_string().into()),
        ("rms_norm_eps", digits(rms_norm_eps)),
        ("qkv_bias", qkv_bias.into()),
        ("qk_norm", qk_norm.into()),
        ("output_bias", output_bias.into()),
        ("mlp_bias", mlp_bias.into()),
        ("window", size(window.unwrap_or(0))),
        ("full_every", size(full_every.unwrap_or(0))),
        ("window_theta", window_theta.into()),
        ("gemma", gemma.into()),
        ("dropout", digits(dropout)),
    ];
    section("model", model)
}
