//! Adapters in folders of `peft`: read, written, merged, and refused. What `peft` computes with its own is recorded by
//! `tests/peft/reference.py`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{gpipe, objects, stderr};

fn recorded(name: &str) -> String {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peft");
    tests.join(name).to_string_lossy().into_owned()
}

const OPTIONS: [&str; 4] = ["--seq-len", "16", "--batch-size", "3"];

/// The loss of a model on the recorded text.
fn loss(here: &Path, model: &str, more: &[&str]) -> f64 {
    let text = recorded("text.txt");
    let command = ["eval", model, "--data", &text, "--json"];
    let output = gpipe(here, &[&command[..], &OPTIONS, more].concat());
    assert!(output.status.success(), "{model}: {}", stderr(&output));
    objects(&output).pop().unwrap()["loss"].as_f64().unwrap()
}

/// Trains on the recorded text with these arguments into the folder `run`; gives the last checkpoint.
fn train(here: &Path, run: &str, more: &[&str]) -> PathBuf {
    let text = recorded("text.txt");
    let command = [
        "train", "--data", &text, "-q", "--steps", "3", "--out", run, "--lr", "0.05",
    ];
    let pipeline = ["--stages", "3", "--micro-batches", "3"];
    let output = gpipe(here, &[&command[..], &OPTIONS, &pipeline, more].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    here.join(run).join("checkpoints/step-00000003")
}

fn refusal(here: &Path, command: &[&str]) -> String {
    let output = gpipe(here, command);
    assert_eq!(output.status.code(), Some(2), "{command:?}");
    let told = stderr(&output);
    assert_eq!(told.lines().count(), 1, "{told}");
    told
}

#[test]
fn adapters_of_peft_compute_what_they_do_there() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let expected = fs::read_to_string(recorded("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    for family in ["gpt2", "llama"] {
        let [model, adapter] =
            ["model", "adapter"].map(|part| recorded(&format!("{family}/{part}")));
        let of = |key: &str| expected[family][key].as_f64().unwrap();
        // Single precision in another order.
        let near = |found: f64, expected: f64| {
            assert!((found - expected).abs() < 1e-5, "{family}: {found}")
        };
        near(loss(here, &model, &[]), of("model"));
        let adapted = ["--adapter", &adapter];
        let merged = [&adapted[..], &["--save-merged", family]].concat();
        near(loss(here, &model, &merged), of("adapted"));
        near(loss(here, family, &[]), of("adapted"));
        let again = [&["eval", &model][..], &merged].concat();
        assert!(refusal(here, &again).contains("is there: name a new folder"));
    }
}

/// Where the disk is full, room is made and the same line typed again.
#[cfg(target_os = "linux")]
#[test]
fn a_merged_model_that_cannot_be_written_leaves_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let [model, adapter] = ["model", "adapter"].map(|part| recorded(&format!("gpt2/{part}")));
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -f 4; exec \"$0\" \"$@\""])
        .arg(assert_cmd::cargo::cargo_bin("gpipe"))
        .args([
            "eval",
            &model,
            "--adapter",
            &adapter,
            "--save-merged",
            "of/new",
        ])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("cannot write of/new/"), "{told}");
    assert!(!folder.path().join("of/new").exists());
}

#[test]
fn a_run_leaves_adapters_that_are_evaluated_and_trained_again() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (family, targets) in [
        ("gpt2", "attn|0.mlp.c_proj"),
        ("llama", "q_proj|up|down|o_proj"),
    ] {
        let model = recorded(&format!("{family}/model"));
        let lora = [
            "--lora",
            "2",
            "--lora-alpha",
            "3.5",
            "--lora-dropout",
            "0.1",
            "--lora-targets",
            targets,
        ];
        let run = format!("{family} run");
        let saved = train(here, &run, &[&["--model", &model][..], &lora].concat());
        // The model is the one before, and the adapters are beside it.
        let kept = saved.join("model").to_string_lossy().into_owned();
        assert_eq!(loss(here, &kept, &[]), loss(here, &model, &[]));
        let adapter = saved.join("adapter").to_string_lossy().into_owned();
        let trained = loss(here, &run, &[]);
        assert!(trained < loss(here, &model, &[]), "{trained}");
        assert_eq!(loss(here, &model, &["--adapter", &adapter]), trained);
        let config = fs::read(saved.join("adapter/adapter_config.json")).unwrap();
        let config: Value = serde_json::from_slice(&config).unwrap();
        assert_eq!(config["lora_alpha"], 3.5);
        assert_eq!(config["fan_in_fan_out"], family == "gpt2");
        let names: &[&str] = match family {
            "gpt2" => &[
                "transformer.h.0.attn.c_attn",
                "transformer.h.0.attn.c_proj",
                "transformer.h.0.mlp.c_proj",
                "transformer.h.1.attn.c_attn",
                "transformer.h.1.attn.c_proj",
            ],
            _ => &["down_proj", "o_proj", "q_proj", "up_proj"],
        };
        assert_eq!(config["target_modules"], serde_json::json!(names));
        // From there on, in another run, whose adapters begin as those.
        let further = train(
            here,
            "further",
            &["--model", &model, "--adapter", &adapter, "--overwrite"],
        );
        assert!(loss(here, "further", &[]) < trained);
        assert!(further.join("adapter").is_dir());
        let without = refusal(here, &["train", "--model", &run]);
        assert!(
            without.contains("has adapters: use --adapter "),
            "{without}"
        );
        let sampled = gpipe(here, &["sample", &run, "--tokens", "3", "--stages", "2"]);
        assert!(sampled.status.success(), "{}", stderr(&sampled));
    }
}

/// As `PeftModel.save_pretrained` leaves them in the folder of its base model, where `transformers` takes them.
#[test]
fn adapters_beside_their_model_belong_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let model = recorded("llama/model");
    let saved = train(here, "run", &["--model", &model, "--lora", "2"]);
    let both = here.join("both");
    fs::create_dir(&both).unwrap();
    for from in [Path::new(&model), &saved.join("adapter")] {
        for file in fs::read_dir(from).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), both.join(file.file_name())).unwrap();
        }
    }
    let trained = loss(here, "run", &[]);
    assert_ne!(trained, loss(here, &model, &[]));
    assert_eq!(loss(here, "both", &[]), trained);
    assert_eq!(loss(here, "both", &["--adapter", "both"]), trained);
    let sampled = gpipe(here, &["sample", "both", "--tokens", "3"]);
    assert!(sampled.status.success(), "{}", stderr(&sampled));
    let without = refusal(here, &["train", "--model", "both"]);
    for words in [
        "use --adapter both to go on",
        "move adapter_config.json out",
    ] {
        assert!(without.contains(words), "{words} in {without}");
    }
    train(here, "further", &["--model", "both", "--adapter", "both"]);
    fs::remove_file(both.join("adapter_config.json")).unwrap();
    assert_eq!(loss(here, "both", &[]), loss(here, &model, &[]));
}

#[test]
fn adapters_that_do_not_fit_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let [gpt, llama] = ["gpt2", "llama"].map(|family| recorded(&format!("{family}/adapter")));
    let model = recorded("llama/model");
    for (model, adapter, words) in [
        (&*model, &*gpt, "adapts layers that the model"),
        (
            "llama-nano",
            &llama,
            "has shape [2, 24], but the layer asks for [2, 352]: it is an adapter for another model",
        ),
        (&model, "nowhere", "nowhere/adapter_config.json"),
    ] {
        let told = refusal(
            here,
            &[
                "train",
                "--model",
                model,
                "--adapter",
                adapter,
                "--stages",
                "1",
            ],
        );
        assert!(told.contains(words), "{told}");
    }
    let given = refusal(
        here,
        &[
            "plan",
            "--model",
            &model,
            "--adapter",
            &llama,
            "--lora",
            "4",
        ],
    );
    assert!(
        given.contains("--lora 4, but") && given.contains("leave --lora out"),
        "{given}"
    );
    let others = [
        "plan",
        "--model",
        &model,
        "--adapter",
        &llama,
        "--lora-targets",
        "q_proj",
    ];
    let given = refusal(here, &others);
    assert!(
        given.contains("--lora-targets q_proj, but") && given.contains("leave --lora-targets out"),
        "{given}"
    );
    assert!(refusal(here, &["eval", &llama]).contains("holds adapters and no model"));
    assert!(
        refusal(here, &["eval", &model, "--save-merged", "x"])
            .contains("the model has no adapters")
    );
    // Files that were changed.
    let config = fs::read_to_string(Path::new(&llama).join("adapter_config.json")).unwrap();
    let weights = fs::read(Path::new(&llama).join("adapter_model.safetensors")).unwrap();
    fs::create_dir(here.join("bad")).unwrap();
    let changed = |config: &str, weights: &[u8]| {
        fs::write(here.join("bad/adapter_config.json"), config).unwrap();
        fs::write(here.join("bad/adapter_model.safetensors"), weights).unwrap();
        refusal(here, &["eval", &model, "--adapter", "bad"])
    };
    for (from, to, words) in [
        (
            "\"LORA\"",
            "\"IA3\"",
            "`peft_type` is \"IA3\": only LORA can be read",
        ),
        (
            "\"use_dora\": false",
            "\"use_dora\": true",
            "`use_dora` is true",
        ),
        (
            "\"rank_pattern\": {}",
            "\"rank_pattern\": {\"q_proj\": 4}",
            "`rank_pattern`",
        ),
        (
            "\"bias\": \"none\"",
            "\"bias\": \"all\"",
            "`bias` is \"all\"",
        ),
        ("\"r\": 2", "\"r\": 0", "`r` is 0"),
        ("\"r\": 2", "\"r\": 4000000000", "has shape"),
        ("\"lora_alpha\": 8", "\"lora_alpha\": \"8\"", "`lora_alpha`"),
        (
            "\"gate_proj\"",
            "\"up_proj\"",
            "`base_model.model.model.layers.0.mlp.gate_proj.lora_A.weight` fits no layer",
        ),
        (
            "\"gate_proj\"",
            "\"gate_proj\", \"up_proj\"",
            "there is no `base_model.model.model.layers.0.mlp.up_proj",
        ),
        (
            "\"init_lora_weights\": true",
            "\"init_lora_weights\": \"pissa\"",
            "`init_lora_weights`",
        ),
    ] {
        assert!(config.contains(from), "{from}");
        let told = changed(&config.replace(from, to), &weights);
        assert!(told.contains(words), "{told}");
    }
    let start = config.find("\"target_modules\"").unwrap();
    let end = start + config[start..].find(']').unwrap() + 1;
    let pattern = config.replace(&config[start..end], "\"target_modules\": \".*(?<!k)_proj\"");
    let told = changed(&pattern, &weights);
    assert!(
        told.contains("`target_modules` cannot be read")
            && told.contains("give --set lora.targets=REGEX too"),
        "{told}"
    );
    assert!(changed("{", &weights).contains("cannot be read"));
    assert!(changed(&config, &weights[..weights.len() - 1]).contains("adapter_model.safetensors"));
}
