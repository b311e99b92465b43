//! A GPT-2 saved by `transformers` trains as in PyTorch: losses within 2e-4 and gradient
//! norms within a thousandth of what `tests/parity/reference.py` recorded there.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::{gpipe, objects};

/// A model, a text and what PyTorch makes of them.
pub fn recorded() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "parity"]
        .iter()
        .collect()
}

/// The steps of a run on the recorded folder, as PyTorch was told to train it.
fn steps(decay: &str, more: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let (model, text) = (recorded().join("model"), recorded().join("text.txt"));
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
    let expected = fs::read_to_string(recorded().join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let runs: [(&str, &[&str]); 4] = [
        (
            "matrices",
            &["--stages", "1", "--micro-batches", "1", "--remat", "keep"],
        ),
        (
            "all",
            &["--stages", "5", "--micro-batches", "4", "--remat", "stage"],
        ),
        (
            "matrices",
            &[
                "--stages",
                "3",
                "--micro-batches",
                "8",
                "--remat",
                "every:2",
                "--schedule",
                "1f1b",
            ],
        ),
        (
            "matrices",
            &[
                "--stages",
                "4",
                "--micro-batches",
                "4",
                "--remat",
                "except-last",
            ],
        ),
    ];
    for (decay, more) in runs {
        let expected = &expected[decay];
        for (index, step) in steps(decay, more).iter().enumerate() {
            let [loss, norm] = ["loss", "grad_norm"].map(|key| step[key].as_f64().unwrap());
            let [wanted, wanted_norm] =
                ["losses", "grad_norms"].map(|key| expected[key][index].as_f64().unwrap());
            assert!(
                (loss - wanted).abs() < 2e-4,
                "{more:?} step {index}: {loss} for {wanted}"
            );
            let ratio = norm / wanted_norm;
            assert!(
                (ratio - 1.0).abs() < 1e-3,
                "{more:?} step {index}: norm {norm} for {wanted_norm}"
            );
        }
    }
}
