//! Named models.

use super::GptConfig;
use crate::{Decay, Gelu};

/// A model and its usual batches.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// The name.
    pub name: &'static str,
    /// The model.
    pub config: GptConfig,
    /// Tokens of a sample.
    pub sequence: usize,
    /// Samples of a batch.
    pub batch: usize,
    /// Which parameters decay.
    pub decay: Decay,
}

/// The names of all presets.
pub const PRESETS: [&str; 6] = [
    "gpt-nano",
    "gpt-mini",
    "gpt2",
    "bench-tiny",
    "bench-a",
    "bench-b",
];

/// The preset of this name.
///
/// `gpt-nano` and `gpt-mini` read bytes; the first learns a short text within a minute on two
/// cores. `gpt2` is the original with 124 million parameters. `bench-tiny`, `bench-a` and `bench-b`
/// are the models that the benchmarks train in PyTorch as well; the first is so small that a step is
/// little but overhead.
pub fn preset(name: &str) -> Option<Preset> {
    let bytes = GptConfig {
        vocab: 256,
        ..GptConfig::default()
    };
    let bench = GptConfig {
        tied: false,
        gelu: Gelu::Erf,
        ..bytes.clone()
    };
    let preset = match name {
        "gpt-nano" => Preset {
            name: "gpt-nano",
            config: GptConfig {
                context: 64,
                width: 128,
                blocks: 4,
                heads: 4,
                ..bytes
            },
            sequence: 64,
            batch: 16,
            decay: Decay::Matrices,
        },
        "gpt-mini" => Preset {
            name: "gpt-mini",
            config: GptConfig {
                context: 128,
                width: 256,
                blocks: 8,
                heads: 8,
                ..bytes
            },
            sequence: 128,
            batch: 16,
            decay: Decay::Matrices,
        },
        "gpt2" => Preset {
            name: "gpt2",
            config: GptConfig::default(),
            sequence: 1024,
            batch: 8,
            decay: Decay::Matrices,
        },
        "bench-tiny" => Preset {
            name: "bench-tiny",
            config: GptConfig {
                context: 32,
                width: 32,
                blocks: 8,
                heads: 2,
                ..bench
            },
            sequence: 32,
            batch: 32,
            decay: Decay::All,
        },
        "bench-a" => Preset {
            name: "bench-a",
            config: GptConfig {
                context: 128,
                width: 256,
                blocks: 8,
                heads: 4,
                ..bench
            },
            sequence: 128,
            batch: 32,
            decay: Decay::All,
        },
        "bench-b" => Preset {
            name: "bench-b",
            config: GptConfig {
                context: 256,
                width: 384,
                blocks: 12,
                heads: 6,
                ..bench
            },
            sequence: 256,
            batch: 16,
            decay: Decay::All,
        },
        _ => return None,
    };
    Some(preset)
}
