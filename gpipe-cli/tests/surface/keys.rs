//! Keys of the configuration, their defaults for every built-in model, and the values they take.

use std::fmt::Write as _;
use std::path::Path;

use super::{gpipe, stdout};

/// The configuration that a plan with these arguments shows, as `section.key = value`.
fn configuration(folder: &Path, arguments: &[&str]) -> Vec<String> {
    let first = ["plan", "-v", "--set", "pipeline.threads=2"];
    let shown = stdout(&gpipe(folder, &[&first, arguments].concat()));
    let mut section = "";
    let mut keys = Vec::new();
    for line in shown.lines().filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if line.starts_with('#') {
            continue;
        } else if section == "run" && !line.contains(" = ") || line.contains(": ") {
            break;
        } else {
            keys.push(format!("{section}.{line}"));
        }
    }
    keys
}

#[test]
fn every_model_has_its_keys_and_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let first = configuration(folder.path(), &[]);
    let mut text = format!("# gpt-nano\n{}\n", first.join("\n"));
    let mut others = vec!["gpt-mini", "gpt2", "bench-tiny", "bench-a", "bench-b"];
    if cfg!(feature = "digits") {
        for model in ["mlp", "convnet", "llama-nano", "seq2seq-nano"] {
            let all = configuration(folder.path(), &["--model", model]);
            writeln!(text, "\n# {model}\n{}", all.join("\n")).unwrap();
        }
    }
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parity/model");
    others.push(recorded);
    for model in others {
        let name = if model == recorded { "a folder" } else { model };
        writeln!(text, "\n# {name}, where it differs from gpt-nano").unwrap();
        let keys = configuration(folder.path(), &["--model", model]);
        let name = |line: &String| line.split(' ').next().unwrap_or_default().to_owned();
        let [mine, theirs] = [&keys, &first].map(|keys| keys.iter().map(name).collect::<Vec<_>>());
        assert_eq!(mine, theirs, "a GPT has the keys of a GPT");
        for line in keys.iter().filter(|line| !first.contains(line)) {
            if !line.starts_with("model.name") {
                writeln!(text, "{line}").unwrap();
            }
        }
    }
    if cfg!(feature = "digits") {
        insta::assert_snapshot!(text);
    }
}

/// Every key with values that it takes, for the model that is named in front.
const VALUES: &[(&str, &str, &[&str])] = &[
    ("gpt-nano", "model.name", &["gpt-mini", "\"gpt-mini\""]),
    ("gpt-nano", "model.blocks", &["6"]),
    ("gpt-nano", "model.heads", &["2"]),
    ("gpt-nano", "model.width", &["64"]),
    ("gpt-nano", "model.vocab", &["300"]),
    ("gpt-nano", "model.context", &["128"]),
    ("gpt-nano", "model.tied", &["false"]),
    ("gpt-nano", "model.gelu", &["erf", "tanh"]),
    ("gpt-nano", "model.layer_norm_eps", &["1e-6"]),
    ("gpt-nano", "model.dropout", &["0.25"]),
    ("gpt-nano", "data.source", &["cicero"]),
    ("gpt-nano", "data.tokenizer", &["bytes", "auto"]),
    ("gpt-nano", "data.seq_len", &["32"]),
    ("gpt-nano", "data.batch_size", &["8"]),
    ("gpt-nano", "data.shuffle", &["false"]),
    ("gpt-nano", "pipeline.stages", &["2"]),
    (
        "gpt-nano",
        "pipeline.devices",
        &["cpu*4", "cpu,cpu,cpu,cpu"],
    ),
    ("gpt-nano", "pipeline.micro_batches", &["4"]),
    ("gpt-nano", "pipeline.micro_batch_size", &["3"]),
    (
        "gpt-nano",
        "pipeline.schedule",
        &[
            "gpipe",
            "1f1b",
            "interleaved:2",
            "looped-bfs:2",
            "zb-h1",
            "zb-h2",
            "zero-bubble",
            "zero-bubble:2",
            "zb-v",
            "v-half",
            "v-min",
            "dualpipe-v",
        ],
    ),
    ("gpt-nano", "pipeline.partition", &["histogram", "3,3,4,1"]),
    (
        "gpt-nano",
        "pipeline.cost_model",
        &["lingvo", "time", "time:4"],
    ),
    (
        "gpt-nano",
        "pipeline.remat",
        &["keep", "stage", "except-last", "every:2", "budget:2GiB"],
    ),
    ("gpt-nano", "pipeline.threads", &["3"]),
    ("gpt-nano", "pipeline.memory", &["2GiB", "unlimited"]),
    ("gpt-nano", "optimizer.lr", &["0.1", "1"]),
    ("gpt-nano", "optimizer.lr_schedule", &["constant", "cosine"]),
    ("gpt-nano", "optimizer.warmup_steps", &["0"]),
    ("gpt-nano", "optimizer.weight_decay", &["0"]),
    ("gpt-nano", "optimizer.decay", &["all", "matrices"]),
    ("gpt-nano", "optimizer.beta1", &["0.8"]),
    ("gpt-nano", "optimizer.beta2", &["0.99"]),
    ("gpt-nano", "optimizer.eps", &["1e-6"]),
    ("gpt-nano", "optimizer.clip_norm", &["0"]),
    ("gpt-nano", "optimizer.freeze", &["wpe"]),
    ("gpt-nano", "lora.rank", &["8"]),
    ("gpt-nano", "run.steps", &["7"]),
    ("gpt-nano", "run.eval_every", &["7"]),
    ("gpt-nano", "run.save_every", &["0"]),
    ("gpt-nano", "run.keep", &["0"]),
    ("gpt-nano", "run.seed", &["7"]),
    ("gpt-nano", "run.trace_steps", &["0", "3", "10,20..25"]),
    ("gpt-nano", "run.watchdog", &["off", "2.5"]),
    ("gpt-nano", "run.dtype", &["f32"]),
    ("gpt-nano", "run.tf32", &["false"]),
    ("gpt-nano", "run.nccl", &["off"]),
    ("llama-nano", "model.kv_heads", &["1"]),
    ("llama-nano", "model.head_size", &["16"]),
    ("llama-nano", "model.inner", &["100"]),
    ("llama-nano", "model.theta", &["1e5"]),
    ("llama-nano", "model.window_theta", &["1e3"]),
    ("llama-nano", "model.full_every", &["4"]),
    ("llama-nano", "model.gemma", &["true"]),
    (
        "llama-nano",
        "model.rope_scaling",
        &["linear:2", "llama3:8,1,4,8192"],
    ),
    ("llama-nano", "model.rms_norm_eps", &["1e-6"]),
    ("llama-nano", "model.qkv_bias", &["true"]),
    ("llama-nano", "model.output_bias", &["true"]),
    ("llama-nano", "model.mlp_bias", &["true"]),
    ("llama-nano", "model.qk_norm", &["true"]),
    ("llama-nano", "model.window", &["16"]),
    ("seq2seq-nano", "model.encoder_blocks", &["3"]),
    ("seq2seq-nano", "model.decoder_blocks", &["1"]),
    ("seq2seq-nano", "model.transparent", &["true"]),
    ("seq2seq-nano", "data.target", &["targets.txt"]),
    ("gpt-nano", "optimizer.label_smoothing", &["0.1"]),
    ("mlp", "model.hidden", &["8,8,8", "8,16,8,4"]),
    ("mlp", "model.dropout", &["0.5"]),
    ("mlp", "data.source", &["digits"]),
    ("convnet", "model.network", &["convnet", "convnet:8,16"]),
    ("convnet", "model.channels", &["1"]),
    ("convnet", "model.classes", &["12"]),
    ("convnet", "model.weights", &["resnet50.safetensors"]),
    ("convnet", "model.dropout", &["0"]),
    ("convnet", "data.source", &["synthetic"]),
    ("convnet", "data.image_size", &["8"]),
    ("convnet", "data.loss_target", &["one-hot"]),
];

#[test]
fn every_key_can_be_set() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::new();
    let mut set = Vec::new();
    for (model, key, values) in VALUES {
        if *model != "gpt-nano" && cfg!(not(feature = "digits")) {
            continue;
        }
        set.push((*model, *key));
        for value in *values {
            let setting = format!("{key}={value}");
            let name = format!("model.name={model}");
            // Where no block has a window, every block is without one.
            let needed = match *key {
                "model.full_every" => "model.window=16",
                _ => &name,
            };
            let settings = ["--set", &name, "--set", needed, "--set", &setting];
            let keys = configuration(folder.path(), &settings);
            let shown = match *key {
                "pipeline.micro_batch_size" => "pipeline.micro_batches",
                key => key,
            };
            let shown = format!("{shown} = ");
            let found = keys.iter().find(|line| line.starts_with(&shown));
            let found = found.unwrap_or_else(|| panic!("{setting} is not shown: {keys:?}"));
            writeln!(text, "{model} --set {setting}: {found}").unwrap();
        }
    }
    // And no key was forgotten.
    for line in configuration(folder.path(), &[]) {
        let key = line.split(' ').next().unwrap();
        assert!(set.contains(&("gpt-nano", key)), "{key} is not tried");
    }
    if cfg!(feature = "digits") {
        insta::assert_snapshot!(text);
    }
}

/// The flags that stand for a key set just that one.
#[test]
fn every_flag_of_a_key_sets_it() {
    let folder = tempfile::tempdir().unwrap();
    let before = configuration(folder.path(), &[]);
    let flags: &[&[&str]] = &[
        &["--model", "gpt-mini"],
        &["--dropout", "0.25"],
        &[
            "--data",
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parity/text.txt"),
        ],
        &["--tokenizer", "bytes"],
        &["--seq-len", "32"],
        &["--batch-size", "32"],
        &["--no-shuffle"],
        &["--stages", "2"],
        &["--devices", "cpu*2"],
        &["--micro-batches", "4"],
        &["--micro-batch-size", "8"],
        &["--schedule", "1f1b"],
        &["--partition", "histogram"],
        &["--cost-model", "lingvo"],
        &["--remat", "keep"],
        &["--memory", "2GiB"],
        &["--threads", "3"],
        &["--optimizer", "sgd"],
        &["--lr", "0.5"],
        &["--lr-schedule", "constant"],
        &["--warmup-steps", "7"],
        &["--weight-decay", "0.5"],
        &["--freeze", "wpe"],
        &["--lora", "8"],
        &["--lora", "8", "--lora-alpha", "16"],
        &["--lora", "8", "--lora-dropout", "0.1"],
        &["--lora", "8", "--lora-targets", "mlp"],
        &[
            "--adapter",
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peft/gpt2/adapter"),
        ],
        &["--label-smoothing", "0.1"],
        &["--clip-norm", "0.5"],
        &["--steps", "7"],
        &["--eval-every", "7"],
        &["--save-every", "7"],
        &["--keep", "7"],
        &["--seed", "7"],
        &["--trace-steps", "7"],
        &["--watchdog", "7"],
        &["--no-cuda-graphs"],
    ];
    let mut text = String::new();
    for flag in flags {
        let after = configuration(folder.path(), flag);
        let name = flag.iter().rfind(|word| word.starts_with("--")).unwrap();
        let changed: Vec<&str> = after
            .iter()
            .filter(|line| !before.contains(line))
            .map(|line| line.split(' ').next().unwrap())
            .collect();
        writeln!(text, "{name}: {}", changed.join(" ")).unwrap();
    }
    insta::assert_snapshot!(text);
}

/// Of the flags that switch graphs on and off the last one counts, and it counts more than a file.
#[test]
fn the_last_flag_of_graphs_counts() {
    let folder = tempfile::tempdir().unwrap();
    let is_off = |flags: &[&str]| {
        let lines = configuration(folder.path(), flags);
        lines.iter().any(|line| line == "run.cuda_graphs = false")
    };
    let file = folder.path().join("off.toml");
    std::fs::write(&file, "[run]\ncuda_graphs = false\n").unwrap();
    let file = file.to_str().unwrap();
    assert!(!is_off(&[]) && is_off(&["--no-cuda-graphs"]));
    assert!(!is_off(&["--no-cuda-graphs", "--cuda-graphs"]));
    assert!(is_off(&["--cuda-graphs", "--no-cuda-graphs"]));
    assert!(is_off(&["--config", file]) && !is_off(&["--config", file, "--cuda-graphs"]));
}
