//! PyTorch on the same GPU: a script outside this repository that trains, and products of matrices.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use super::sizes::{MICRO_BATCHES, Sizes, WARM_UP};
use super::wanted::Wanted;
use crate::gpu::limit;

/// How to run them.
pub struct Peer {
    folder: PathBuf,
    python: PathBuf,
}

/// What it took in one way.
pub struct Row {
    pub precision: &'static str,
    pub micro_batches: usize,
    pub compiled: bool,
    pub seconds: Vec<f64>,
    pub bytes: u64,
}

/// Whether PyTorch reaches a GPU.
const REACHES: &str = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)";

/// Seconds of one product, turned as gpipe's are: arguments are the precision, m, n, k and the layout.
const PRODUCT: &str = r#"
import sys, time, torch
precision, m, n, k, layout = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
made = {"device": "cuda", "dtype": torch.bfloat16 if precision == "bf16" else torch.float32}
a = torch.rand((k, m) if layout == "Tn" else (m, k), **made) - 0.5
b = torch.rand((n, k) if layout == "Nt" else (k, n), **made) - 0.5
a, b = a.t() if layout == "Tn" else a, b.t() if layout == "Nt" else b
def run(times):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(times):
        torch.matmul(a, b)
    torch.cuda.synchronize()
    return time.perf_counter() - begin
run(3)
times = 1
while (seconds := run(times)) < 0.2:
    times *= 2
print(seconds / times)
"#;

impl Peer {
    /// The peer that was asked for, unless it reaches no GPU, which is said.
    pub fn found(wanted: &Wanted) -> Option<Self> {
        let folder = wanted.peers.clone()?;
        let python = wanted.python.clone().unwrap_or_else(|| "python3".into());
        let reaches = limit::output(Command::new(&python).args(["-c", REACHES]));
        if !reaches.is_ok_and(|output| output.status.success()) {
            eprintln!(
                "PyTorch is left out: {} has none that reaches a GPU",
                python.display()
            );
            return None;
        }
        Some(Self { folder, python })
    }

    /// Trains as gpipe does, eagerly in both numbers of micro-batches and compiled in one.
    pub fn train(
        &self,
        sizes: &Sizes,
        precision: &'static str,
        steps: usize,
        rows: &mut Vec<Row>,
        notes: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        for (micro_batches, compiled) in [(1, false), (MICRO_BATCHES, false), (1, true)] {
            eprintln!("PyTorch: {precision}, M = {micro_batches}, compiled: {compiled}");
            let mut command = Command::new(&self.python);
            command.arg(self.folder.join("gpt2_cuda.py"));
            for (flag, size) in [
                ("--layers", sizes.blocks),
                ("--width", sizes.width),
                ("--heads", sizes.heads),
                ("--vocab", sizes.vocabulary),
                ("--seq", sizes.sequence),
                ("--batch", sizes.batch),
                ("--microbatches", micro_batches),
                ("--steps", steps),
                ("--warmup", WARM_UP),
            ] {
                command.arg(flag).arg(size.to_string());
            }
            command.args(match precision {
                "bf16" => ["--dtype", "bf16"].as_slice(),
                "tf32" => &["--dtype", "f32", "--tf32"],
                _ => &["--dtype", "f32"],
            });
            if compiled {
                command.arg("--compile");
            }
            let output = limit::output(&mut command).context("running gpt2_cuda.py")?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let Some((seconds, bytes)) = read(&said) else {
                let trouble = String::from_utf8_lossy(&output.stderr).into_owned();
                let last = trouble.lines().last().unwrap_or("it printed nothing");
                notes.push(format!("PyTorch, {precision}: {last}"));
                continue;
            };
            let is_it = |row: &&mut Row| {
                (row.precision, row.micro_batches, row.compiled)
                    == (precision, micro_batches, compiled)
            };
            match rows.iter_mut().find(is_it) {
                Some(row) => row.seconds.push(seconds),
                None => rows.push(Row {
                    precision,
                    micro_batches,
                    compiled,
                    seconds: vec![seconds],
                    bytes,
                }),
            }
        }
        Ok(())
    }

    /// Seconds of one product.
    pub fn product(
        &self,
        precision: &str,
        sizes: [u64; 3],
        layout: &str,
    ) -> anyhow::Result<Option<f64>> {
        let mut command = Command::new(&self.python);
        command.args(["-c", PRODUCT, precision]);
        command.args(sizes.map(|size| size.to_string())).arg(layout);
        let output = limit::output(&mut command).context("running PyTorch")?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().parse().ok())
    }
}

/// Median seconds and peak bytes of the last JSON line.
fn read(said: &str) -> Option<(f64, u64)> {
    let line = said.lines().rfind(|line| line.starts_with('{'))?;
    let result: Value = serde_json::from_str(line).ok()?;
    let milliseconds = result["median_ms"].as_f64()?;
    Some((
        milliseconds / 1e3,
        result["peak_bytes"].as_u64().unwrap_or(0),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_json_line_counts() {
        let said = "noise\n{\"median_ms\":8.0}\n{\"median_ms\":250.0,\"peak_bytes\":7}\n";
        assert_eq!(read(said), Some((0.25, 7)));
        assert_eq!(read("Traceback"), None);
    }
}
