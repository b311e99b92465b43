//! An encoder-decoder, here and as PyTorch's `Transformer`: what is recorded for the tests is what PyTorch says now, and a
//! model that was trained and saved here has the same loss there.
//!
//! PyTorch's side is `gpipe-layers/tests/seq2seq/reference.py`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use xshell::{Shell, cmd};

/// PyTorch's side.
const SCRIPT: &str = "gpipe-layers/tests/seq2seq/reference.py";
/// The script's task, and what it printed once.
const RECORDS: [(&[&str], &str); 2] = [
    (&[], "gpipe-layers/tests/seq2seq/expected.json"),
    (&["beams"], "gpipe-train/src/generate/seq2seq_beams.json"),
];
/// How far numbers in double precision may be from those that are recorded, as a share.
const RECORDED: f64 = 1e-9;
/// How far the loss of a saved model may be from PyTorch's.
const LOSS: f64 = 1e-5;

/// Compares the records and a model that is trained in `here`, a folder to make.
pub fn run(
    shell: &Shell,
    root: &Path,
    program: &Path,
    python: &Path,
    here: &Path,
    record: bool,
) -> anyhow::Result<()> {
    let script = &root.join(SCRIPT);
    for (task, file) in RECORDS {
        let printed = cmd!(shell, "{python} {script} {task...}")
            .quiet()
            .ignore_stderr()
            .read()?;
        let path = root.join(file);
        if record {
            fs::write(&path, printed + "\n").with_context(|| format!("writing {file}"))?;
            continue;
        }
        let recorded: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        ensure!(
            alike(&serde_json::from_str(&printed)?, &recorded),
            "{file} is not what PyTorch says: `cargo xtask parity --record` writes it"
        );
    }
    println!("encoder-decoder: losses, gradients and beams are as recorded");
    saved(shell, program, python, script, here)
}

/// Trains a model to turn numbers around, and has PyTorch evaluate what was saved.
fn saved(
    shell: &Shell,
    program: &Path,
    python: &Path,
    script: &Path,
    here: &Path,
) -> anyhow::Result<()> {
    fs::create_dir(here).with_context(|| format!("making {}", here.display()))?;
    let lines = |turned: bool| -> String {
        let number = |n: u32| n.pow(3).to_string();
        let line = |n| match turned {
            true => number(n).chars().rev().collect(),
            false => number(n),
        };
        (1..400).map(|n| line(n) + "\n").collect()
    };
    let [source, target] = &["numbers", "turned"].map(|name| here.join(name));
    fs::write(source, lines(false))?;
    fs::write(target, lines(true))?;
    let run = &here.join("run");
    cmd!(
        shell,
        "{program} train --model seq2seq-nano --data {source} --target {target} --seq-len 32 --batch-size 8
            --micro-batches 4 --stages 3 --steps 40 --out {run} -q"
    )
    .run()?;
    let model = &run.join("checkpoints/step-00000040/model");
    let told = cmd!(
        shell,
        "{program} eval {model} --data {source} --target {target} --seq-len 32 --json"
    );
    let told: Value = serde_json::from_str(&told.quiet().read()?)?;
    let ours = told["loss"].as_f64().context("a loss")?;
    let told = cmd!(shell, "{python} {script} loss {model} {source} {target}");
    let theirs: f64 = told.quiet().ignore_stderr().read()?.trim().parse()?;
    ensure!(
        (ours - theirs).abs() < LOSS,
        "the saved encoder-decoder has the loss {ours} here and {theirs} in PyTorch"
    );
    println!(
        "encoder-decoder: the saved folder has the loss {ours:.6} here, {:.1e} from PyTorch's",
        (ours - theirs).abs()
    );
    Ok(())
}

/// Whether both are the same but for rounding.
fn alike(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let same = |(key, a): (&String, &Value)| b.get(key).is_some_and(|b| alike(a, b));
            a.len() == b.len() && a.iter().all(same)
        }
        _ => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => (a - b).abs() <= RECORDED * b.abs().max(1.0),
            _ => a == b,
        },
    }
}
