//! Models saved by `transformers` train as in PyTorch: losses within 2e-4 and gradient norms within a thousandth of what
//! `tests/parity/reference.py` recorded there; beam search finds the same texts.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::{gpipe, objects, stdout};

/// A model, a text and what PyTorch makes of them.
pub fn recorded() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "parity"]
        .iter()
        .collect()
}

/// What the script has recorded of a model.
fn expected(model: &str, file: &str) -> Value {
    let expected = fs::read_to_string(recorded().join(model).join(file)).unwrap();
    serde_json::from_str(&expected).unwrap()
}

/// The steps of a run on a recorded folder, as PyTorch was told to train it.
fn steps(model: &str, decay: &str, more: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let model = recorded().join(model).join("model");
    let text = recorded().join("text.txt");
    let decay = format!("optimizer.decay={decay}");
    let arguments = [
        "train",
        "--json",
        "-q",
        "--model",
        model.to_str().unwrap(),
        "--data",
        text.to_str().unwrap(),
        "--no-shuffle",
        "--seq-len",
        "32",
        "--batch-size",
        "8",
        "--steps",
        "8",
        "--lr",
        "1e-3",
        "--lr-schedule",
        "constant",
        "--warmup-steps",
        "0",
        "--weight-decay",
        "0.1",
        "--clip-norm",
        "1",
        "--threads",
        "2",
        "--set",
        "optimizer.beta2=0.95",
        "--set",
        &decay,
    ];
    let mut steps = objects(&gpipe(folder.path(), &[&arguments, more].concat()));
    steps.retain(|object| object["kind"] == "step");
    assert_eq!(steps.len(), 8);
    steps
}

#[test]
fn losses_and_norms_are_those_of_pytorch() {
    let runs: [(&str, &str, &str); 10] = [
        ("", "matrices", "1 1 keep gpipe"),
        ("", "all", "5 4 stage gpipe"),
        ("", "matrices", "3 8 every:2 1f1b"),
        ("", "matrices", "4 4 except-last gpipe"),
        ("llama", "matrices", "3 4 keep 1f1b"),
        ("llama3", "all", "4 2 stage interleaved:2"),
        ("qwen2", "all", "2 8 stage zb-h1"),
        ("qwen3", "matrices", "6 4 except-last zb-v"),
        ("mistral", "matrices", "4 4 every:2 gpipe"),
        ("gemma3", "all", "3 4 every:2 zb-h1"),
    ];
    for (model, decay, way) in runs {
        let expected = &expected(model, "expected.json")[decay];
        let options = ["--stages", "--micro-batches", "--remat", "--schedule"];
        let more: Vec<&str> = options
            .into_iter()
            .zip(way.split(' '))
            .flat_map(<[_; 2]>::from)
            .collect();
        for (index, step) in steps(model, decay, &more).iter().enumerate() {
            let [loss, norm] = ["loss", "grad_norm"].map(|key| step[key].as_f64().unwrap());
            let [wanted, wanted_norm] =
                ["losses", "grad_norms"].map(|key| expected[key][index].as_f64().unwrap());
            assert!(
                (loss - wanted).abs() < 2e-4,
                "{model} {way} step {index}: {loss} for {wanted}"
            );
            let ratio = norm / wanted_norm;
            assert!(
                (ratio - 1.0).abs() < 1e-3,
                "{model} {way} step {index}: norm {norm} for {wanted_norm}"
            );
        }
    }
}

#[test]
fn beam_search_finds_the_texts_of_transformers() {
    for model in ["llama", "llama3", "qwen2", "qwen3", "mistral", "gemma3"] {
        let folder = recorded().join(model).join("model");
        let cases = expected(model, "beams.json");
        let cases = cases.as_array().unwrap();
        assert!(cases.iter().any(|case| case["ends"] == true));
        assert!(cases.iter().any(|case| case["ends"] == false));
        for case in cases {
            let [prompt, text] = ["prompt", "text"].map(|key| case[key].as_str().unwrap());
            let [beams, tokens] = ["beams", "tokens"].map(|key| case[key].to_string());
            let output = gpipe(
                &folder,
                &[
                    "-q", "sample", ".", "--prompt", prompt, "--beams", &beams, "--tokens", &tokens,
                ],
            );
            assert_eq!(
                stdout(&output),
                format!("{prompt}{text}\n"),
                "{model}: {case}"
            );
        }
    }
}
