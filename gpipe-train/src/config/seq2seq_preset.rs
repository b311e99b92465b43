//! The defaults of an encoder-decoder.

use gpipe_layers::models::Seq2SeqConfig;
use toml::{Table, toml};

use super::keys::overlay;
use super::preset_values::{digits, section, size};

/// The name of one that learns to reverse a line of bytes within a minute on two cores.
pub const NANO: &str = "seq2seq-nano";

/// The name of the base model of the paper (arXiv:1706.03762), with bytes.
pub const BASE: &str = "seq2seq-base";

/// The defaults of a preset, beyond those of all models. `None` for an unknown name.
pub fn preset(name: &str) -> Option<Table> {
    let (config, data) = match name {
        NANO => (
            Seq2SeqConfig {
                width: 64,
                inner: 256,
                encoder_blocks: 2,
                decoder_blocks: 2,
                heads: 4,
                dropout: 0.0,
                ..Seq2SeqConfig::default()
            },
            toml! {
                data = { seq_len = 64, batch_size = 16 }
                optimizer = { lr = 3e-3, warmup_steps = 20, decay = "matrices" }
                run = { steps = 600 }
            },
        ),
        BASE => (
            Seq2SeqConfig::default(),
            toml! {
                data = { seq_len = 256, batch_size = 16 }
                optimizer = { lr = 5e-4, warmup_steps = 400, decay = "matrices" }
                run = { steps = 10000 }
            },
        ),
        _ => return None,
    };
    let mut defaults = data;
    overlay(&mut defaults, pairs());
    overlay(&mut defaults, model(name, &config));
    Some(defaults)
}

/// The defaults of one in a folder, beyond those of all models.
pub fn of_folder(name: &str, config: &Seq2SeqConfig) -> Table {
    let mut defaults = toml! {
        optimizer = { lr = 5e-5, decay = "matrices" }
        data = { seq_len = 256, batch_size = 8 }
    };
    overlay(&mut defaults, pairs());
    overlay(&mut defaults, model(name, config));
    defaults
}

/// Two texts without names: there are no built-in ones.
fn pairs() -> Table {
    toml! { data = { target = "" } }
}

fn model(name: &str, config: &Seq2SeqConfig) -> Table {
    let Seq2SeqConfig {
        vocab,
        width,
        inner,
        encoder_blocks,
        decoder_blocks,
        heads,
        layer_norm_eps,
        dropout,
        transparent,
    } = *config;
    let model = [
        ("name", name.into()),
        ("encoder_blocks", size(encoder_blocks)),
        ("decoder_blocks", size(decoder_blocks)),
        ("heads", size(heads)),
        ("width", size(width)),
        ("inner", size(inner)),
        ("vocab", size(vocab)),
        ("layer_norm_eps", digits(layer_norm_eps)),
        ("dropout", digits(dropout)),
        ("transparent", transparent.into()),
    ];
    section("model", model)
}
