//! Named models, each with the defaults of its training run.

use gpipe_data::{CLASSES, DIGITS, SYNTHETIC};
use gpipe_hf::Description;
use gpipe_layers::Decay;
use gpipe_layers::models::{self, ImageConfig, LlamaConfig, ModelConfig, Network, Preset};
use toml::{Table, toml};

use super::keys::overlay;
use super::loss_target::LossTarget;
use super::model_sections::{gpt, image, llama, mlp};
use super::preset_values::{section, size};
use super::seq2seq_preset::{self, BASE, NANO};

/// The names of the presets, the default first.
pub const NAMES: [&str; 18] = {
    let [a, b, c, d, e, f] = models::PRESETS;
    let [g, h, i, j, k] = RESNETS;
    [
        a, b, c, d, e, f, LLAMA, NANO, BASE, PERCEPTRON, CONVNET, g, h, i, j, k, UNET, AMOEBANETD,
    ]
};

/// The name of a Llama that learns a short text of bytes within a minute on two cores.
const LLAMA: &str = "llama-nano";

/// The smallest network for images.
const CONVNET: &str = "convnet";

/// The networks for images that have no sizes in their names.
const RESNETS: [&str; 5] = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"];

/// The network for masks, with the sizes of the smallest of torchgpipe's benchmarks.
const UNET: &str = "unet";

/// The largest network for images, with the sizes of the smallest of torchgpipe's benchmarks.
const AMOEBANETD: &str = "amoebanetd";

/// Whether a name is that of a preset, or of a network for images with its sizes.
pub fn is_name(name: &str) -> bool {
    NAMES.contains(&name) || name.parse::<Network>().is_ok()
}

/// The name of the perceptron.
pub const PERCEPTRON: &str = "mlp";

/// The defaults of a preset: every key but `pipeline.threads`, which depends on the machine. `None`
/// for an unknown name.
pub fn preset(name: &str) -> Option<Table> {
    if name == PERCEPTRON {
        return Some(perceptron());
    }
    if let Ok(network) = name.parse() {
        return Some(of_network(name, &network));
    }
    if name == LLAMA {
        return Some(llama_nano());
    }
    if let Some(of_model) = seq2seq_preset::preset(name) {
        let mut defaults = common();
        overlay(&mut defaults, of_model);
        return Some(defaults);
    }
    let Preset {
        config,
        sequence,
        batch,
        decay,
        ..
    } = models::preset(name)?;
    let mut defaults = common();
    overlay(&mut defaults, run_of(name));
    let data = [("seq_len", size(sequence)), ("batch_size", size(batch))];
    let decay = match decay {
        Decay::Matrices => "matrices",
        Decay::All => "all",
    };
    overlay(&mut defaults, gpt(name, &config));
    overlay(&mut defaults, section("data", data));
    overlay(
        &mut defaults,
        section("optimizer", [("decay", decay.into())]),
    );
    Some(defaults)
}

/// A complete configuration of each model family, except `pipeline.threads`.
pub fn of_families() -> Vec<Table> {
    let gpt = preset(NAMES[0]).unwrap_or_default();
    let convnet = preset(CONVNET).unwrap_or_default();
    let seq2seq = preset(NANO).unwrap_or_default();
    vec![gpt, llama_nano(), perceptron(), convnet, seq2seq]
}

/// The defaults of a small Llama, which reads bytes.
fn llama_nano() -> Table {
    let config = LlamaConfig {
        vocab: 256,
        context: 64,
        width: 128,
        inner: 352,
        blocks: 4,
        heads: 4,
        kv_heads: 2,
        head_size: 32,
        theta: 1e4,
        ..LlamaConfig::default()
    };
    let mut defaults = common();
    overlay(
        &mut defaults,
        toml! {
            data = { seq_len = 64, batch_size = 16 }
            optimizer = { warmup_steps = 20, decay = "matrices" }
            run = { steps = 300 }
        },
    );
    overlay(&mut defaults, llama(LLAMA, &config));
    defaults
}

/// The defaults of the perceptron. An image has one target, so `seq_len` is 1.
fn perceptron() -> Table {
    let mut defaults = common();
    overlay(
        &mut defaults,
        toml! {
            model = { name = "mlp", hidden = "128,128,128", dropout = 0.0 }
            data = { source = "digits", seq_len = 1, batch_size = 64 }
            optimizer = { lr = 3e-3, warmup_steps = 20, weight_decay = 0.01, decay = "matrices" }
            run = { steps = 300, eval_every = 50 }
        },
    );
    defaults
}

/// The defaults of a network for images. An image has one target, so `seq_len` is 1.
fn of_network(name: &str, network: &Network) -> Table {
    let mut defaults = common();
    let source = match network {
        Network::Convnet(_) => DIGITS,
        _ => SYNTHETIC,
    };
    overlay(
        &mut defaults,
        toml! {
            data = { seq_len = 1, batch_size = 64 }
            pipeline = { cost_model = "time" }
            optimizer = { lr = 2e-3, decay = "matrices" }
            run = { steps = 1000, eval_every = 100 }
        },
    );
    let data = [
        ("source", source.into()),
        ("image_size", size(network.image_size())),
        ("loss_target", target_of(network).to_string().into()),
    ];
    overlay(&mut defaults, section("data", data));
    let config = ImageConfig {
        network: network.clone(),
        channels: COLOURS,
        classes: if network.learns_masks() { 1 } else { 1000 },
        dropout: network.dropout(),
    };
    overlay(&mut defaults, image(name, &config));
    defaults
}

/// The target that a network for images is known by.
fn target_of(network: &Network) -> LossTarget {
    match network.learns_masks() {
        true => LossTarget::Mask,
        false => LossTarget::Class,
    }
}

/// Channels of a colour image.
const COLOURS: usize = 3;

/// The defaults of a model in a folder, for fine-tuning. `None` for a family without keys.
pub fn of_folder(name: &str, described: &Description) -> Option<Table> {
    match &described.model {
        ModelConfig::Gpt(config) => Some(text_of_folder(config.context, gpt(name, config))),
        ModelConfig::Llama(config) => Some(text_of_folder(config.context, llama(name, config))),
        ModelConfig::Mlp(config) => {
            let mut defaults = perceptron();
            overlay(&mut defaults, mlp(name, config));
            Some(defaults)
        }
        ModelConfig::Image(config) => {
            let mut defaults = of_network(name, &config.network);
            overlay(&mut defaults, image(name, config));
            let has_names = !gpipe_hf::class_names(&described.ids).is_empty();
            if has_names || (config.channels, config.classes) != (1, CLASSES) {
                // It has learned no digits: its pictures are not read as ink.
                overlay(
                    &mut defaults,
                    section("data", [("source", SYNTHETIC.into())]),
                );
            }
            Some(defaults)
        }
        ModelConfig::Seq2Seq(config) => {
            let mut defaults = common();
            overlay(&mut defaults, seq2seq_preset::of_folder(name, config));
            Some(defaults)
        }
        _ => None,
    }
}

fn text_of_folder(context: usize, model: Table) -> Table {
    let mut defaults = common();
    overlay(
        &mut defaults,
        toml! {
            optimizer = { lr = 5e-5, decay = "matrices" }
            data = { batch_size = 8 }
        },
    );
    let sequence = context.min(FOLDER_SEQUENCE);
    overlay(
        &mut defaults,
        section("data", [("seq_len", size(sequence))]),
    );
    overlay(&mut defaults, model);
    defaults
}

/// Tokens per sample for a model in a folder, limited by its context.
const FOLDER_SEQUENCE: usize = 256;

/// Defaults common to all models.
fn common() -> Table {
    toml! {
        [data]
        source = "cicero"
        tokenizer = "auto"
        shuffle = true

        [pipeline]
        stages = 4
        devices = "cpu"
        micro_batches = 8
        groups = 1
        replicas = 1
        zero = 0
        before = 0
        schedule = "gpipe"
        partition = "balance"
        cost_model = "complete"
        remat = "stage"
        memory = "unlimited"

        [optimizer]
        name = "adamw"
        lr = 1e-3
        lr_schedule = "cosine"
        warmup_steps = 50
        weight_decay = 0.1
        beta1 = 0.9
        beta2 = 0.95
        eps = 1e-8
        alpha = 0.99
        momentum = 0.0
        nesterov = false
        label_smoothing = 0.0
        clip_norm = 1.0
        freeze = ""

        [lora]
        rank = 0
        alpha = 8.0
        dropout = 0.0
        targets = ""
        adapter = ""

        [run]
        steps = 500
        eval_every = 0
        save_every = 100
        keep = 3
        seed = 0
        trace_steps = "1"
        watchdog = "30"
        dtype = "f32"
        instruction_set = "best"
        tf32 = false
        cuda_graphs = true
        nccl = "auto"
    }
}

/// Defaults of a preset that differ from [`common`]. The `bench` models match their PyTorch
/// counterparts: one stage, no clipping, a constant learning rate.
fn run_of(name: &str) -> Table {
    match name {
        "gpt-nano" => toml! {
            optimizer = { warmup_steps = 20 }
            run = { steps = 300 }
        },
        "gpt2" => toml! {
            optimizer = { lr = 6e-4 }
        },
        "bench-tiny" | "bench-a" | "bench-b" => toml! {
            pipeline = { stages = 1, micro_batches = 1, remat = "keep" }
            optimizer = { lr = 3e-4, lr_schedule = "constant", warmup_steps = 0, clip_norm = 0.0 }
            run = { steps = 100 }
        },
        _ => Table::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A network that knows names of classes has learned pictures, those of digits have none.
    #[test]
    fn a_folder_has_learned_digits_if_nothing_speaks_against_it() {
        for (sizes, source) in [
            (r#""num_channels":1,"num_labels":10"#, DIGITS),
            (r#""num_channels":3,"num_labels":10"#, SYNTHETIC),
            (r#""num_channels":1,"num_labels":9"#, SYNTHETIC),
            (
                r#""num_channels":1,"num_labels":10,"id2label":{"0":"nought"}"#,
                SYNTHETIC,
            ),
        ] {
            let text = format!(r#"{{"model_type":"gpipe_image","network":"convnet:4,8",{sizes}}}"#);
            let described = gpipe_hf::parse_config(text.as_bytes()).unwrap();
            let defaults = of_folder("folder", &described).unwrap();
            assert_eq!(defaults["data"]["source"].as_str(), Some(source), "{sizes}");
        }
    }
}
