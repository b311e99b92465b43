//! Llama and its relatives, here and in transformers: training step by step, saved folders, beam search, and SmolLM2.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use xshell::cmd;

use super::numbers::number;
use super::trial::Trial;

/// The models, each with a part of its own: an output matrix of its own, slower turns, biases of the queries, norms of their
/// heads, a window, and much else.
const MODELS: [&str; 6] = ["llama", "llama3", "qwen2", "qwen3", "mistral", "gemma3"];
/// What transformers 5.23 says of the text of [`TEXT`] with the GGUF file's weights.
const SMOLLM2_LOSS: f64 = 2.141_32;
/// How far the loss may be.
const LOSS: f64 = 1e-4;
/// The beginning of a declaration of 1776.
const TEXT: &str = "gpipe-cli/tests/parity/declaration.txt";

/// Compares each model in folders of the trial's own, and SmolLM2 if its file is given.
pub fn run(
    trial: &Trial<'_>,
    root: &Path,
    gguf: Option<&Path>,
    records: bool,
) -> anyhow::Result<()> {
    for model in MODELS {
        println!("{model}:");
        let trial = &Trial {
            here: &trial.here.join(model),
            ..*trial
        };
        let expected = trial.grid(&format!("write-{model}"), &["1", "2", "5"])?;
        let beams = beams(trial)?;
        if records {
            let there = root.join("gpipe-cli/tests/parity").join(model);
            fs::create_dir_all(there.join("model"))?;
            for file in ["config.json", "generation_config.json", "model.safetensors"] {
                let file = Path::new("model").join(file);
                fs::copy(trial.here.join(&file), there.join(&file))
                    .with_context(|| format!("recording {}", file.display()))?;
            }
            fs::write(there.join("expected.json"), format!("{expected:#}\n"))?;
            fs::write(there.join("beams.json"), format!("{beams:#}\n"))?;
        }
    }
    match gguf {
        Some(file) => smollm2(trial, root, file),
        None => {
            println!("SmolLM2: skipped, its file is not given by --gguf");
            Ok(())
        }
    }
}

/// The texts that beam search finds on both sides; gives what the script says.
fn beams(trial: &Trial<'_>) -> anyhow::Result<Value> {
    let Trial {
        shell,
        program,
        python,
        script,
        here,
    } = *trial;
    let told = cmd!(shell, "{python} {script} beams {here}")
        .ignore_stderr()
        .read()?;
    let told: Value = serde_json::from_str(&told).context("what the script printed")?;
    let cases = told.as_array().context("a list of texts")?;
    ensure!(!cases.is_empty(), "the script searched for no text");
    let model = &here.join("model");
    for case in cases {
        let word = |key: &str| case[key].as_str().context("a text");
        let (prompt, text) = (word("prompt")?, word("text")?);
        let [beams, tokens] = ["beams", "tokens"].map(|key| case[key].to_string());
        let more = ["--beams", &beams, "--tokens", &tokens, "--stages", "2"];
        let found = cmd!(shell, "{program} -q sample {model} --prompt {prompt}").args(more);
        let found = found.quiet().output()?.stdout;
        let found = String::from_utf8(found)?;
        ensure!(
            found == format!("{prompt}{text}\n"),
            "{beams} beams of {tokens} tokens after {prompt:?}: {found:?}, in transformers {text:?}"
        );
    }
    println!(
        "beam search: {} texts, all those of transformers",
        cases.len()
    );
    Ok(told)
}

/// SmolLM2 from its GGUF file: the loss on a known text, and its folder in transformers.
fn smollm2(trial: &Trial<'_>, root: &Path, file: &Path) -> anyhow::Result<()> {
    let text = &root.join(TEXT);
    let run = &trial.here.join("smollm2");
    let Trial { shell, program, .. } = *trial;
    let told = cmd!(
        shell,
        "{program} eval {file} --data {text} --seq-len 122 --json"
    )
    .quiet()
    .read()?;
    let told: Value = serde_json::from_str(&told).context("what eval printed")?;
    let loss = number(&told["loss"])?;
    ensure!(
        (loss - SMOLLM2_LOSS).abs() < LOSS,
        "SmolLM2 has a loss of {loss}, not {SMOLLM2_LOSS}"
    );
    let train = cmd!(
        shell,
        "{program} train --model {file} --data {text} --seq-len 64 --batch-size 1"
    );
    let train = train.args(["--micro-batches", "1", "--steps", "1", "-q", "--out"]);
    train.arg(run).run()?;
    let worst = trial.scores(&run.join("checkpoints/step-00000001/model"))?;
    println!(
        "SmolLM2: a loss of {loss:.5}; its folder opens in transformers, log-probabilities within {worst:.1e}"
    );
    Ok(())
}
