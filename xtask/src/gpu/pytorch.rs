//! PyTorch on the same GPU: a script that goes along trains and multiplies in one process.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::limit;
use super::products;
use super::results::{Results, Verdict};
use super::sizes::{MICRO_BATCHES, Sizes, WARM_UP};
use super::speed::Run;

/// The script; its arguments are in it.
const SCRIPT: &str = include_str!("pytorch.py");

/// Measures it, unless it is not there or reaches no GPU, which is noted.
///
/// # Errors
/// If the script prints what it may not, or a file cannot be written.
pub fn measure(python: &Path, sizes: &Sizes, results: &mut Results) -> anyhow::Result<()> {
    let (tokens, width) = (sizes.tokens() / MICRO_BATCHES, sizes.width);
    let pairs = [
        (width, 3 * width),
        (width, 4 * width),
        (4 * width, width),
        (width, sizes.vocabulary),
    ];
    let products: Vec<_> = pairs
        .iter()
        .flat_map(|&(inputs, outputs)| {
            [
                (tokens, outputs, inputs, "Nn"),
                (tokens, inputs, outputs, "Nt"),
                (inputs, outputs, tokens, "Tn"),
            ]
        })
        .collect();
    let asked = json!({
        "blocks": sizes.blocks, "width": width, "heads": sizes.heads, "vocabulary": sizes.vocabulary,
        "sequence": sizes.sequence, "batch": sizes.batch, "steps": sizes.steps, "warm_up": WARM_UP,
        "micro_batches": MICRO_BATCHES, "products": products,
    });
    let mut command = Command::new(python);
    // As a file, which compilers of Python look for.
    let folder = xshell::Shell::new()?.create_temp_dir()?;
    let script = folder.path().join("pytorch.py");
    fs::write(&script, SCRIPT)?;
    command.arg(script).arg(asked.to_string());
    if Command::new(python).arg("--version").output().is_err() {
        let found = format!(
            "{} cannot be run: name a Python with --python",
            python.display()
        );
        return results.note("PyTorch", Verdict::Left, &found);
    }
    let mut said = 0;
    let ended = limit::run_heard(&mut command, &mut |line| {
        // Libraries of Python print what they like.
        let Ok(object) = serde_json::from_str::<Value>(line) else {
            return Ok(());
        };
        said += 1;
        hear(&object, sizes, results)
    })?;
    match ended.is_right() && said > 0 {
        true => Ok(()),
        false => results.failed("PyTorch", Verdict::Left, &ended),
    }
}

/// Adds the row of what the script said.
fn hear(object: &Value, sizes: &Sizes, results: &mut Results) -> anyhow::Result<()> {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    if let Some(why) = object["skipped"].as_str() {
        return results.note("PyTorch", Verdict::Left, why);
    }
    let program = match object["compiled"] == true {
        true => "PyTorch, compiled",
        false => "PyTorch, eager",
    };
    match text("kind") {
        "found" => {
            let found = format!("torch {} on {}", text("torch"), text("device"));
            results.note("PyTorch", Verdict::Right, &found)
        }
        "run" => {
            let seconds = object["seconds"].as_array().into_iter().flatten();
            let seconds: Vec<f64> = seconds.filter_map(Value::as_f64).collect();
            let micro_batches = object["micro_batches"].as_u64();
            let row = Run {
                program,
                precision: text("precision"),
                devices: "cuda:0",
                micro_batches: micro_batches.context("a run without micro_batches")? as usize,
                graphs: false,
                seconds: &seconds,
                asking: None,
                bytes: object["peak_bytes"].as_u64().unwrap_or(0),
            };
            row.row(sizes, results)
        }
        "failed" => {
            let what = format!(
                "{program}, {}, M = {}",
                text("precision"),
                object["micro_batches"]
            );
            results.note(&what, Verdict::Left, text("why"))
        }
        "product" => products::product("PyTorch", text("precision"), object)?.row(results),
        other => anyhow::bail!("pytorch.py said `{other}`: {object}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_script_says_becomes_rows() {
        let folder = xshell::Shell::new().unwrap().create_temp_dir().unwrap();
        let path = folder.path().join("results.md");
        let mut results = Results::begin(&path, "", false).unwrap();
        let sizes = Sizes::new(true);
        for object in [
            json!({"kind": "found", "torch": "2.9", "device": "a GPU"}),
            json!({
                "kind": "run", "precision": "bf16", "micro_batches": 8, "compiled": true,
                "seconds": [0.25, 0.5, 0.25], "peak_bytes": 3_000_000_000_u64,
            }),
            json!({"kind": "failed", "precision": "bf16", "micro_batches": 1, "compiled": true, "why": "no gcc"}),
            json!({
                "kind": "product", "precision": "bf16", "m": 10, "n": 20, "k": 30, "layout": "Nt", "seconds": 0.001,
            }),
            json!({"skipped": "torch reaches no GPU"}),
        ] {
            hear(&object, &sizes, &mut results).unwrap();
        }
        assert!(hear(&json!({"kind": "surprise"}), &sizes, &mut results).is_err());
        let text = fs::read_to_string(&path).unwrap();
        for words in [
            "| PyTorch | right | torch 2.9 on a GPU |",
            "| PyTorch, compiled, cuda:0 | bf16 | 8 | 8 | 250.00 | 250.00 | 512 |",
            "| PyTorch, compiled, bf16, M = 1 | not tried | no gcc |",
            "| 10 x 20 x 30 | Nt | bf16 | PyTorch | 1.000 |",
            "| PyTorch | not tried | torch reaches no GPU |",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
