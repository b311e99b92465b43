//! A folder with a `tokenizer.json`: its tokens are trained on, sampled and evaluated, and what a
//! checkpoint keeps of the folder is all that it takes to go on.

use std::fs;
use std::path::{Path, PathBuf};

use super::parity::recorded;
use super::{gpipe, objects, stderr, stdout};

/// A folder that `transformers` wrote, with a tokenizer of 500 tokens.
fn copied(to: &Path) {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(recorded().join("tokens/model")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

fn text() -> String {
    recorded().join("tokens/text.txt").to_str().unwrap().into()
}

/// Some steps on the folder `model`, into the folder `run`.
fn train(folder: &Path, more: &[&str]) -> std::process::Output {
    let text = text();
    let common = [
        "train",
        "--seq-len",
        "16",
        "--batch-size",
        "4",
        "--micro-batches",
        "2",
        "--stages",
        "3",
        "--threads",
        "2",
        "--save-every",
        "2",
        "--json",
        "--data",
        &text,
        "--steps",
    ];
    gpipe(folder, &[&common[..], more].concat())
}

fn losses(output: &std::process::Output) -> Vec<f64> {
    let steps = objects(output)
        .into_iter()
        .filter(|object| object["kind"] == "step");
    steps.map(|step| step["loss"].as_f64().unwrap()).collect()
}

#[test]
fn a_run_goes_on_without_the_folder_that_it_began_with() {
    let home = tempfile::tempdir().unwrap();
    let here = home.path();
    copied(&here.join("model"));
    let whole = losses(&train(here, &["4", "--model", "model", "--out", "whole"]));
    assert!((whole[0] - 500_f64.ln()).abs() < 0.1, "{whole:?}");
    let config = ["4", "--model", "model", "--out", "run"];
    assert_eq!(losses(&train(here, &config)), whole);
    // Back to step 2, as if the run had been killed.
    fs::remove_dir_all(here.join("run/checkpoints/step-00000004")).unwrap();
    let saved: PathBuf = here.join("run/checkpoints/step-00000002/model");
    for file in [
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
    ] {
        assert_eq!(
            fs::read(saved.join(file)).unwrap(),
            fs::read(here.join("model").join(file)).unwrap()
        );
    }
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(saved.join("config.json")).unwrap()).unwrap();
    assert_eq!([&json["bos_token_id"], &json["eos_token_id"]], [0, 0]);
    fs::remove_dir_all(here.join("model")).unwrap();

    let resumed = gpipe(here, &["train", "--resume", "run", "--json"]);
    assert_eq!(losses(&resumed), whole[2..], "{}", stderr(&resumed));
    assert!(
        !stderr(&resumed).contains("warning: data"),
        "{}",
        stderr(&resumed)
    );
    let again = fs::read(here.join("run/checkpoints/step-00000004/model/tokenizer.json"));
    assert_eq!(
        again.unwrap(),
        fs::read(saved.join("tokenizer.json")).unwrap()
    );

    // A warning of other tokens names the tokenizer, and none another text.
    let other = ["--tokenizer", "bytes", "--steps", "5", "--out", "bytes"];
    let told = gpipe(here, &[&["train", "--resume", "run"], &other[..]].concat());
    let told = stderr(&told);
    let is_told = told.contains("warning: --tokenizer is ");
    assert!(is_told && !told.contains("--data"), "{told}");

    let evaluated = objects(&gpipe(here, &["eval", "run", "--json", "--stages", "1"]));
    // Fewer than bytes: it is tokens that are counted.
    let bytes = fs::metadata(text()).unwrap().len();
    assert!(
        evaluated[0]["tokens"].as_u64().unwrap() < bytes / 2,
        "{evaluated:?}"
    );
    let said = gpipe(
        here,
        &[
            "sample",
            "run",
            "--prompt",
            "Grüße 👍",
            "--tokens",
            "4",
            "--seed",
            "2",
        ],
    );
    assert!(stdout(&said).starts_with("Grüße 👍"), "{}", stderr(&said));
    let arguments = [
        "sample", "run", "--prompt", "Bu", "--tokens", "30", "--json",
    ];
    let tokens = objects(&gpipe(here, &arguments));
    assert!(
        tokens
            .iter()
            .any(|token| token["token"].as_u64().unwrap() > 256)
    );
}

#[test]
fn a_model_by_name_follows_the_tokenizer_that_is_named() {
    let home = tempfile::tempdir().unwrap();
    let here = home.path();
    copied(&here.join("model"));
    let small = [
        "--set",
        "model.width=16",
        "--set",
        "model.blocks=2",
        "--tokenizer",
        "model/tokenizer.json",
    ];
    let run = train(here, &[&["2", "--out", "run"], &small[..]].concat());
    assert_eq!(losses(&run).len(), 2);
    let config = fs::read_to_string(here.join("run/config.toml")).unwrap();
    assert!(
        config.contains("vocab = 500") && config.contains("tokenizer = \"model/tokenizer.json\""),
        "{config}"
    );
    fs::remove_dir_all(here.join("model")).unwrap();
    let resumed = gpipe(
        here,
        &[
            "train", "--resume", "run", "--steps", "3", "--json", "--stages", "2",
        ],
    );
    assert_eq!(losses(&resumed).len(), 1, "{}", stderr(&resumed));
    let said = gpipe(here, &["sample", "run", "--prompt", "Bu", "--tokens", "3"]);
    assert!(stdout(&said).starts_with("Bu"), "{}", stderr(&said));
}

#[test]
fn a_model_without_its_tokenizer_is_not_read_as_bytes() {
    let home = tempfile::tempdir().unwrap();
    let here = home.path();
    // A run of bytes has any vocabulary, and no tokenizer.
    let train = "train --model gpt-nano --set model.vocab=400 --steps 1 --save-every 1 --seq-len 16 --batch-size 2 \
                 --micro-batches 2 --out run";
    let trained = gpipe(here, &train.split_whitespace().collect::<Vec<_>>());
    assert!(trained.status.success(), "{}", stderr(&trained));
    let passes = |arguments: &[&str]| {
        let output = gpipe(here, arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            stderr(&output)
        );
    };
    passes(&["eval", "run"]);
    passes(&["train", "--resume", "run", "--steps", "2"]);
    let model = here.join("run/checkpoints/step-00000002/model");
    passes(&["eval", model.to_str().unwrap()]);
    let alone = here.join("alone");
    fs::create_dir(&alone).unwrap();
    for file in fs::read_dir(&model).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), alone.join(file.file_name())).unwrap();
    }
    for other in [None, Some("tokenizer.model")] {
        if let Some(name) = other {
            fs::write(alone.join(name), "").unwrap();
        }
        let name = other.unwrap_or("knows 400 tokens");
        for arguments in [
            &["eval", "alone"][..],
            &["sample", "alone"],
            &["train", "--model", "alone"],
        ] {
            let output = gpipe(here, arguments);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
            assert_eq!(said.lines().count(), 1, "{said}");
            for word in ["alone: ", name, "no tokenizer.json", "--tokenizer bytes"] {
                assert!(said.contains(word), "{word} in {said}");
            }
        }
    }
    passes(&["eval", "alone", "--tokenizer", "bytes"]);
}

#[test]
fn what_does_not_fit_is_one_line_with_the_mend() {
    let home = tempfile::tempdir().unwrap();
    let here = home.path();
    let refused = |arguments: &[&str], words: &[&str]| {
        let output = gpipe(here, arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        for word in words {
            assert!(said.contains(word), "{word} in {said}");
        }
    };
    copied(&here.join("model"));
    let tokenizer = fs::read_to_string(here.join("model/tokenizer.json")).unwrap();
    let spoiled = |name: &str, text: &str| fs::write(here.join(name), text).unwrap();
    copied(&here.join("large"));
    spoiled(
        "large/tokenizer.json",
        &tokenizer.replace("\"!\":1,", "\"!\":4294967295,"),
    );
    refused(
        &["train", "--model", "large"],
        &["4294967295", "knows 500", "--tokenizer bytes"],
    );
    refused(
        &["train", "--tokenizer", "large/tokenizer.json"],
        &["out of range"],
    );
    copied(&here.join("cut"));
    spoiled("cut/tokenizer.json", &tokenizer[..1000]);
    for command in [
        &["train", "--model", "cut"][..],
        &["eval", "cut"],
        &["sample", "cut"],
    ] {
        refused(
            command,
            &["cut/tokenizer.json", "cannot be read", "--tokenizer bytes"],
        );
    }
    copied(&here.join("tables"));
    fs::remove_file(here.join("tables/tokenizer.json")).unwrap();
    spoiled("tables/vocab.json", "{}");
    refused(
        &["eval", "tables"],
        &["vocab.json", "transformers", "--tokenizer bytes"],
    );
    refused(
        &["train", "--tokenizer", "nowhere.json"],
        &["nowhere.json", "name a tokenizer.json"],
    );
    refused(&["train", "--tokenizer", "/dev/zero"], &["no regular file"]);
    refused(
        &[
            "train",
            "--model",
            "gpt-nano",
            "--set",
            "model.vocab=499",
            "--tokenizer",
            "model/tokenizer.json",
        ],
        &["499"],
    );
    refused(
        &["train", "--model", "mlp", "--tokenizer", "bytes"],
        &["leave --tokenizer out"],
    );
    fs::write(here.join("latin1.txt"), b"caf\xe9 ".repeat(100)).unwrap();
    refused(
        &["train", "--model", "model", "--data", "latin1.txt"],
        &["byte 3", "UTF-8", "--tokenizer bytes"],
    );
    let huge = fs::File::create(here.join("huge.json")).unwrap();
    huge.set_len(100 << 20).unwrap();
    refused(
        &["train", "--tokenizer", "huge.json"],
        &["bytes are too many"],
    );
    assert!(!here.join("runs").exists());
    // Bytes are always there.
    let output = gpipe(
        here,
        &[
            "eval",
            "cut",
            "--tokenizer",
            "bytes",
            "--seq-len",
            "32",
            "--data",
            "latin1.txt",
        ],
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}
