//! `cargo xtask parity`: the same models here and in PyTorch.
//!
//! Language models are trained on both sides and compared step by step; PyTorch's side is
//! `gpipe-cli/tests/parity/reference.py`, and what it said once is recorded beside it, for the test that runs where there
//! is no Python.

mod images;
mod llama;
mod numbers;
mod peft;
mod seq2seq;
mod trial;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

use crate::flags::Parity;
use trial::Trial;

/// PyTorch's side.
const SCRIPT: &str = "gpipe-cli/tests/parity/reference.py";
/// What is compared.
const FAMILIES: [&str; 5] = ["gpt", "llama", "peft", "seq2seq", "images"];

/// Compares the families that were asked for.
pub fn run(shell: &Shell, root: &Path, flags: &Parity) -> anyhow::Result<()> {
    let python = flags.python.clone().unwrap_or_else(|| "python3".into());
    let needs = "import torch, transformers, safetensors";
    cmd!(shell, "{python} -c {needs}").quiet().ignore_stderr().run().with_context(|| {
        format!(
            "{} lacks torch or transformers: `python3 -m venv venv && venv/bin/pip install torch \
             transformers peft`, then `cargo xtask parity --python venv/bin/python`",
            python.display()
        )
    })?;
    for family in &flags.family {
        ensure!(
            FAMILIES.contains(&family.as_str()),
            "no family {family}: use {}",
            FAMILIES.join(", ")
        );
    }
    let asked =
        |family: &str| flags.family.is_empty() || flags.family.iter().any(|name| name == family);
    let folder = Scratch::new()?;
    cmd!(shell, "cargo build -p gpipe-cli").run()?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let program = target.join(format!("debug/gpipe{}", env::consts::EXE_SUFFIX));
    if asked("gpt") {
        gpt(shell, root, &program, &python, &folder.0, flags.record)?;
    }
    if asked("llama") {
        let trial = Trial {
            shell,
            program: &program,
            python: &python,
            script: &root.join(SCRIPT),
            here: &folder.0,
        };
        llama::run(&trial, root, flags.gguf.as_deref(), flags.record)?;
    }
    if asked("peft") {
        let here = &folder.0.join("peft");
        peft::run(shell, root, &program, &python, here, flags.record)?;
    }
    if asked("seq2seq") {
        let here = &folder.0.join("seq2seq");
        seq2seq::run(shell, root, &program, &python, here, flags.record)?;
    }
    if asked("images") {
        images::run(shell, root, &program, &python, &folder.0, flags.record)?;
    }
    Ok(())
}

/// Writes a folder there, trains it on both sides in every configuration, and opens there what was
/// saved here; then the same for a folder with a tokenizer.
fn gpt(
    shell: &Shell,
    root: &Path,
    program: &Path,
    python: &Path,
    here: &Path,
    records: bool,
) -> anyhow::Result<()> {
    let [bytes, tokens] = ["bytes", "tokens"].map(|name| here.join(name));
    let trial = Trial {
        shell,
        program,
        python,
        script: &root.join(SCRIPT),
        here: &bytes,
    };
    let expected = trial.grid("write", &["1", "2", "3", "4", "5"])?;
    let worst = trial.scores(&bytes.join("model"))?;
    println!("probabilities of 24 sampled tokens: logarithms within {worst:.1e}");
    println!("with a tokenizer:");
    let trial = Trial {
        here: &tokens,
        ..trial
    };
    trial.grid("write-tokens", &["1", "3"])?;
    if records {
        record(root, &bytes, &tokens, &expected)?;
    }
    Ok(())
}

/// Replaces what the tests of gpipe-cli compare with.
fn record(root: &Path, bytes: &Path, tokens: &Path, expected: &Value) -> anyhow::Result<()> {
    let there = root.join("gpipe-cli/tests/parity");
    let copy = |from: &Path, to: &Path, file: &str| {
        fs::copy(from.join(file), to.join(file)).with_context(|| format!("recording {file}"))
    };
    for file in ["model/config.json", "model/model.safetensors", "text.txt"] {
        copy(bytes, &there, file)?;
        copy(tokens, &there.join("tokens"), file)?;
    }
    let more = [
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
    ];
    for file in more.map(|name| format!("model/{name}")) {
        copy(tokens, &there.join("tokens"), &file)?;
    }
    // The tokenizer and its tokens, for the tests of the crate that reads them.
    let fixtures = root.join("gpipe-data/tests/fixtures");
    copy(tokens, &fixtures, "tokens.json")?;
    copy(&tokens.join("model"), &fixtures, "tokenizer.json")?;
    fs::write(there.join("expected.json"), format!("{expected:#}\n"))?;
    Ok(())
}

/// A folder that goes away with its owner.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Self> {
        let path = env::temp_dir().join(format!("gpipe-parity-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is left to the system: it is in its folder for such things.
        let _ = fs::remove_dir_all(&self.0);
    }
}
