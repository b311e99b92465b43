//! PyTorch's turn: a script outside this repository that prints one JSON object a line.

use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::Value;
use xshell::{Shell, cmd};

/// How to run `single.py`.
pub struct Peer {
    /// Its folder.
    pub folder: PathBuf,
    /// The interpreter.
    pub python: PathBuf,
    /// Its name for the model.
    pub config: &'static str,
}

impl Peer {
    /// The median seconds of a step over one run.
    pub fn run(&self, shell: &Shell, threads: usize, steps: usize) -> anyhow::Result<f64> {
        let Self {
            folder,
            python,
            config,
        } = self;
        let (threads, steps) = (threads.to_string(), steps.to_string());
        let _folder = shell.push_dir(folder);
        let output = cmd!(
            shell,
            "{python} single.py --config {config} --threads {threads} --steps {steps}"
        )
        .quiet();
        median_seconds(&output.read()?)
    }
}

/// The median in the last JSON line of the script's output.
fn median_seconds(output: &str) -> anyhow::Result<f64> {
    let line = output
        .lines()
        .rfind(|line| line.starts_with('{'))
        .context("single.py printed no JSON line")?;
    let result: Value = serde_json::from_str(line).context("the JSON line of single.py")?;
    let milliseconds = result["median_ms"]
        .as_f64()
        .context("single.py reported no median_ms")?;
    Ok(milliseconds / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_json_line_counts() {
        let output =
            "loading\n{\"median_ms\": 9.0}\n{\"peer\": \"torch\", \"median_ms\": 1250.5}\nbye\n";
        assert_eq!(median_seconds(output).unwrap(), 1.2505);
        assert!(median_seconds("no json").is_err());
        assert!(median_seconds("{\"min_ms\": 1}").is_err());
        assert!(median_seconds("{broken").is_err());
    }
}
