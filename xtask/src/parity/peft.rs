//! Adapters, here and in `peft`: those of `peft` are evaluated and merged here, and those trained here are opened there.
//!
//! The side of `peft` is `gpipe-cli/tests/peft/reference.py`; what it wrote once is recorded beside it, for the tests that
//! run where there is no Python.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

/// The side of `peft`.
const SCRIPT: &str = "gpipe-cli/tests/peft/reference.py";
/// How far losses may be from each other.
const LOSS: f64 = 1e-4;
/// What the script writes for each family.
const FILES: [&str; 5] = [
    "model/config.json",
    "model/generation_config.json",
    "model/model.safetensors",
    "adapter/adapter_config.json",
    "adapter/adapter_model.safetensors",
];

/// Compares losses on both sides; `here` is a folder to make, and the program and Python are those given.
pub fn run(
    shell: &Shell,
    root: &Path,
    program: &Path,
    python: &Path,
    here: &Path,
    record: bool,
) -> anyhow::Result<()> {
    let script = &root.join(SCRIPT);
    let needs = "import peft";
    let found = cmd!(shell, "{python} -c {needs}")
        .quiet()
        .ignore_stderr()
        .run();
    found.with_context(|| format!("{} lacks peft: pip install peft", python.display()))?;
    fs::create_dir(here).with_context(|| format!("making {}", here.display()))?;
    cmd!(shell, "{python} {script} write {here}")
        .quiet()
        .ignore_stderr()
        .run()?;
    let expected: Value = serde_json::from_str(&fs::read_to_string(here.join("expected.json"))?)?;
    let text = &here.join("text.txt");
    let ours = |model: &Path, more: &[&Path]| -> anyhow::Result<f64> {
        let eval = cmd!(
            shell,
            "{program} eval {model} --data {text} --seq-len 16 --json"
        );
        let told: Value = serde_json::from_str(&eval.args(more).quiet().read()?)?;
        told["loss"].as_f64().context("a loss")
    };
    let theirs = |model: &Path, adapter: &Path| -> anyhow::Result<f64> {
        let told = cmd!(shell, "{python} {script} loss {model} {adapter} {text}");
        Ok(told.quiet().ignore_stderr().read()?.trim().parse()?)
    };
    for family in ["gpt2", "llama"] {
        let of = |part: &str| here.join(family).join(part);
        let (model, adapter) = (&of("model"), &of("adapter"));
        let wanted = expected[family]["adapted"].as_f64().context("a loss")?;
        let read = ours(model, &[Path::new("--adapter"), adapter])?;
        let run = &of("run");
        cmd!(
            shell,
            "{program} train --model {model} --adapter {adapter} --data {text} --seq-len 16 --batch-size 4
                --micro-batches 4 --stages 2 --steps 20 --lr 0.01 --out {run} -q"
        )
        .run()?;
        let saved = run.join("checkpoints/step-00000020");
        let merged = &of("merged");
        let trained = ours(run, &[Path::new("--save-merged"), merged])?;
        ensure!(
            trained < read - 0.1,
            "{family}: {read} before training, {trained} after"
        );
        let mut worst = 0.0_f64;
        for (what, found, wanted) in [
            ("an adapter of peft", read, wanted),
            (
                "an adapter trained here",
                theirs(&saved.join("model"), &saved.join("adapter"))?,
                trained,
            ),
            ("merged, here", ours(merged, &[])?, trained),
            (
                "merged, in transformers",
                theirs(merged, Path::new("-"))?,
                trained,
            ),
        ] {
            let difference = (found - wanted).abs();
            ensure!(
                difference < LOSS,
                "{family}, {what}: a loss of {found}, not {wanted}"
            );
            worst = worst.max(difference);
        }
        println!(
            "adapters of {family:<6} losses {wanted:.4}, trained to {trained:.4}, within {worst:.1e} of those of peft"
        );
        if record {
            let there = root.join("gpipe-cli/tests/peft");
            for file in FILES {
                fs::copy(of(file), there.join(family).join(file))
                    .with_context(|| format!("recording {file}"))?;
            }
            for file in ["text.txt", "expected.json"] {
                fs::copy(here.join(file), there.join(file))?;
            }
        }
    }
    Ok(())
}
