//! `cargo xtask parity`: the same models here and in PyTorch.
//!
//! A GPT-2 is trained on both sides and compared step by step; PyTorch's side is `gpipe-cli/tests/parity/reference.py`, and
//! what it said once is recorded beside it, for the test that runs where there is no Python.

mod images;
mod numbers;
mod peft;
mod seq2seq;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

use crate::flags::Parity;
use numbers::{LOGITS, number};

/// PyTorch's side.
const SCRIPT: &str = "gpipe-cli/tests/parity/reference.py";
/// What is compared.
const FAMILIES: [&str; 4] = ["gpt", "peft", "seq2seq", "images"];
/// How far losses may be from PyTorch's.
const LOSS: f64 = 2e-4;
/// How far gradient norms may be, as a share.
const NORM: f64 = 1e-3;
const POLICIES: [&str; 4] = ["keep", "stage", "except-last", "every:2"];
/// Which parameters decay: gpipe's options and, by the same names, the script's.
const DECAYS: [&str; 2] = ["matrices", "all"];

/// Losses and gradient norms, a step each.
type Curve = Vec<[f64; 2]>;

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

/// The runs of the program in a folder that the script has written.
struct Trial<'a> {
    shell: &'a Shell,
    program: &'a Path,
    python: &'a Path,
    script: &'a Path,
    here: &'a Path,
}

impl Trial<'_> {
    /// Lets the script write its folder by a task of it and train there, trains here in this many stages
    /// and every other way, and opens there what was saved here last. Gives what the script expects.
    fn grid(&self, task: &str, stages: &[&str]) -> anyhow::Result<Value> {
        let Trial {
            shell,
            python,
            script,
            here,
            ..
        } = *self;
        fs::create_dir(here).with_context(|| format!("making {}", here.display()))?;
        cmd!(shell, "{python} {script} {task} {here}").run()?;
        let expected = cmd!(shell, "{python} {script} train {here}").read()?;
        let expected: Value = serde_json::from_str(&expected).context("what the script printed")?;
        for decay in DECAYS {
            self.decay(decay, &reference(&expected[decay])?, stages)?;
            let saved = here.join("run/checkpoints/step-00000008/model");
            let theirs = here.join(format!("trained-{decay}"));
            let compared =
                cmd!(shell, "{python} {script} compare {here} {theirs} {saved}").read()?;
            let compared: Value =
                serde_json::from_str(&compared).context("what the script printed")?;
            let difference = number(&compared["difference"])?;
            ensure!(
                difference < LOGITS,
                "decay {decay}: the logits of the folder that was saved here are {difference:.1e} from PyTorch's"
            );
            println!(
                "decay {decay:<8}  the saved folder opens in transformers, logits within {difference:.1e}"
            );
        }
        Ok(expected)
    }

    /// Trains under a decay in every configuration.
    fn decay(&self, decay: &str, reference: &Curve, stages: &[&str]) -> anyhow::Result<()> {
        let [mut worst_loss, mut worst_norm, mut runs] = [0.0_f64, 0.0, 0.0];
        for stages in stages {
            for micro_batches in ["1", "4", "8"] {
                for policy in POLICIES {
                    let curve = self.train(
                        decay,
                        &[
                            "--stages",
                            stages,
                            "--micro-batches",
                            micro_batches,
                            "--remat",
                            policy,
                        ],
                    )?;
                    let [loss, norm] = distance(&curve, reference)?;
                    ensure!(
                        loss < LOSS && norm < NORM,
                        "decay {decay}, {stages} stages, {micro_batches} micro-batches, {policy}: losses are {loss:.1e} \
                         apart, norms {norm:.1e}: {curve:?}, in PyTorch {reference:?}"
                    );
                    (worst_loss, worst_norm, runs) =
                        (worst_loss.max(loss), worst_norm.max(norm), runs + 1.0);
                }
            }
        }
        println!(
            "decay {decay:<8}  {runs} configurations  losses within {worst_loss:.1e}, gradient norms within {worst_norm:.1e}"
        );
        Ok(())
    }

    fn gpipe(
        &self,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> anyhow::Result<Vec<Value>> {
        let Trial { shell, program, .. } = *self;
        let output = cmd!(shell, "{program} -q --json")
            .args(arguments)
            .quiet()
            .read()?;
        output
            .lines()
            .map(|line| Ok(serde_json::from_str(line)?))
            .collect()
    }

    /// The curve of a run with the settings of the run in PyTorch.
    fn train(&self, decay: &str, more: &[&str]) -> anyhow::Result<Curve> {
        let (model, text, out) = (
            self.here.join("model"),
            self.here.join("text.txt"),
            self.here.join("run"),
        );
        let decay = format!("optimizer.decay={decay}");
        let paths: [&OsStr; 7] = [
            "train".as_ref(),
            "--model".as_ref(),
            model.as_ref(),
            "--data".as_ref(),
            text.as_ref(),
            "--out".as_ref(),
            out.as_ref(),
        ];
        let recipe = [
            "--overwrite",
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
            "--set",
            "optimizer.beta2=0.95",
            "--set",
            &decay,
        ];
        let arguments = paths.into_iter().chain(
            recipe
                .into_iter()
                .chain(more.iter().copied())
                .map(OsStr::new),
        );
        let steps = self.gpipe(arguments)?;
        let steps = steps.iter().filter(|step| step["kind"] == "step");
        steps
            .map(|step| Ok([number(&step["loss"])?, number(&step["grad_norm"])?]))
            .collect()
    }

    /// The largest difference of the log-probabilities that both sides give to sampled tokens.
    fn scores(&self, model: &Path) -> anyhow::Result<f64> {
        let prompt = "The pipe drains";
        let mut known: Vec<Value> = prompt.bytes().map(Value::from).collect();
        let (mut lines, mut ours) = (String::new(), Vec::new());
        let paths: [&OsStr; 2] = ["sample".as_ref(), model.as_ref()];
        let more = [
            "--prompt",
            prompt,
            "--tokens",
            "24",
            "--temperature",
            "1.5",
            "--stages",
            "3",
        ];
        let objects = self.gpipe(paths.into_iter().chain(more.map(OsStr::new)))?;
        // The last one says how fast it was.
        for token in objects.iter().filter(|object| object["kind"] == "token") {
            lines += &format!("{}\n", serde_json::json!([known, token["token"]]));
            ours.push(number(&token["log_probability"])?);
            known.push(token["token"].clone());
        }
        let Trial {
            shell,
            python,
            script,
            here,
            ..
        } = *self;
        let theirs = cmd!(shell, "{python} {script} score {here} {model}")
            .stdin(lines)
            .read()?;
        let theirs: Vec<f64> = serde_json::from_str(&theirs).context("what the script printed")?;
        ensure!(
            ours.len() == 24 && theirs.len() == 24,
            "{} and {} scores",
            ours.len(),
            theirs.len()
        );
        let worst = ours
            .iter()
            .zip(&theirs)
            .map(|(ours, theirs)| (ours - theirs).abs())
            .fold(0.0, f64::max);
        ensure!(
            worst < LOGITS,
            "log-probabilities are {worst:.1e} apart: {ours:?}, in PyTorch {theirs:?}"
        );
        Ok(worst)
    }
}

fn reference(recorded: &Value) -> anyhow::Result<Curve> {
    let recorded: BTreeMap<String, Vec<f64>> = serde_json::from_value(recorded.clone())?;
    let [losses, norms] =
        ["losses", "grad_norms"].map(|key| recorded.get(key).cloned().unwrap_or_default());
    ensure!(
        losses.len() == 8 && norms.len() == 8,
        "the script trained {} steps, not 8",
        losses.len()
    );
    Ok(losses
        .into_iter()
        .zip(norms)
        .map(|(loss, norm)| [loss, norm])
        .collect())
}

/// The largest distance of losses, and of norms as a share of the reference.
fn distance(curve: &Curve, reference: &Curve) -> anyhow::Result<[f64; 2]> {
    ensure!(
        curve.len() == reference.len(),
        "{} steps were made, not {}",
        curve.len(),
        reference.len()
    );
    let mut worst = [0.0_f64; 2];
    for ([loss, norm], [wanted, wanted_norm]) in curve.iter().zip(reference) {
        // A difference that is no number must not pass for a small one.
        let [of_loss, of_norm] = [(loss - wanted).abs(), (norm / wanted_norm - 1.0).abs()];
        ensure!(
            of_loss.is_finite() && of_norm.is_finite(),
            "a step has a loss or norm that is no number"
        );
        worst = [worst[0].max(of_loss), worst[1].max(of_norm)];
    }
    Ok(worst)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_distance_counts_and_no_number_is_far() {
        let reference = vec![[2.0, 4.0], [1.0, 2.0]];
        assert_eq!(
            distance(&vec![[2.5, 4.0], [1.0, 1.0]], &reference).unwrap(),
            [0.5, 0.5]
        );
        assert!(distance(&vec![[2.0, 4.0]], &reference).is_err());
        assert!(distance(&vec![[2.0, 4.0], [f64::NAN, 2.0]], &reference).is_err());
    }
}
