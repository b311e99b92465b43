//! Attention's share of a step with the longest samples.

use std::collections::HashMap;

use anyhow::Context as _;
use serde_json::{Value, json};
use xshell::{Shell, cmd};

use super::axis::{Axis, Case};
use crate::bench::summary::Summary;

/// Shares of a step.
#[derive(Debug, PartialEq)]
pub struct Attention {
    tokens: u64,
    /// Of the model's FLOPs, and of those that are executed: scores and weighted values.
    flops: f64,
    executed: f64,
    /// Of the time: what grows with the length, by a line through all lengths.
    growing: f64,
    /// Of the time of all layers by themselves: the attention halves of the blocks, their linear layers
    /// included.
    halves: f64,
}

pub fn attention(
    axes: &[Axis],
    known: &[(Case, Summary)],
    profile: &HashMap<String, f64>,
) -> anyhow::Result<Attention> {
    let axis = axes.iter().find(|axis| axis.name.starts_with("tokens"));
    let rows = axis.context("no axis of lengths")?.rows(known);
    let points: Vec<(f64, f64)> = rows
        .iter()
        .map(|row| (row.case.shape.sequence as f64, row.summary.median))
        .collect();
    let (slope, _) = line(&points);
    let last = rows.last().context("no length")?;
    let shape = last.case.shape;
    let all: f64 = profile.values().sum();
    let halves = profile.iter().filter(|(name, _)| name.ends_with(".attn"));
    Ok(Attention {
        tokens: shape.sequence,
        flops: shape.attention_flops() as f64 / shape.flops() as f64,
        executed: shape.executed_attention_flops() as f64 / shape.executed_flops() as f64,
        growing: slope * shape.sequence as f64 / last.summary.median,
        halves: halves.map(|(_, seconds)| seconds).sum::<f64>() / all,
    })
}

impl Attention {
    pub fn said(&self) -> String {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        format!(
            "attention with {} tokens: {} of the model's FLOPs, {} of those executed; {} of the time grows with \
             the length; its layers, linear ones included, take {} of the time of all layers by themselves\n",
            self.tokens,
            percent(self.flops),
            percent(self.executed),
            percent(self.growing),
            percent(self.halves),
        )
    }

    pub fn json(&self, threads: usize) -> Value {
        json!({
            "kind": "bench",
            "family": "sizes",
            "size": "attention",
            "threads": threads,
            "tokens": self.tokens,
            "share_of_flops": self.flops,
            "share_of_executed_flops": self.executed,
            "share_of_time_that_grows": self.growing,
            "share_of_its_layers": self.halves,
        })
    }
}

/// Slope and beginning of the line with the least squares of relative errors.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let mut sums = [0.0; 5];
    for &(x, y) in points {
        let weight = y.powi(-2);
        let terms = [1.0, x, y, x * x, x * y];
        sums.iter_mut()
            .zip(terms)
            .for_each(|(sum, term)| *sum += weight * term);
    }
    let [one, x, y, xx, xy] = sums;
    let slope = (one * xy - x * y) / (one * xx - x * x);
    (slope, (y - slope * x) / one)
}

/// The seconds of a step that each kind of layer takes by itself, by its name.
pub fn profile(shell: &Shell, arguments: &[String]) -> anyhow::Result<HashMap<String, f64>> {
    eprintln!("sizes: a profile of the longest samples");
    let folder = shell.create_temp_dir()?;
    // What is measured is kept beside the configuration.
    let config = folder.path().join("sizes.toml");
    shell.write_file(&config, "")?;
    let output = cmd!(
        shell,
        "cargo run --release --quiet -- plan --config {config} {arguments...} --profile --json"
    );
    kinds(&output.quiet().read()?)
}

fn kinds(output: &str) -> anyhow::Result<HashMap<String, f64>> {
    let mut found = HashMap::new();
    for line in output.lines() {
        let line: Value =
            serde_json::from_str(line).with_context(|| format!("gpipe printed `{line}`"))?;
        if line["kind"] == "profile" {
            let keys = [
                "forward_seconds",
                "input_grad_seconds",
                "weight_grad_seconds",
            ];
            let each: f64 = keys.iter().filter_map(|key| line[key].as_f64()).sum();
            let layers = line["layers"].as_f64().context("no number of layers")?;
            let name = line["layer"].as_str().context("no name of layers")?;
            *found.entry(name.to_owned()).or_default() += layers * each;
        }
    }
    anyhow::ensure!(!found.is_empty(), "the profile has no layers");
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sizes::axis::axes;

    #[test]
    fn attentions_share_is_what_grows() {
        let axes = axes();
        let known = crate::bench::sizes::axis::tests::known(&axes, 0.0);
        let profile = kinds(
            "{\"kind\":\"profile\",\"layer\":\"h.*.attn\",\"layers\":8,\"forward_seconds\":1,\
              \"input_grad_seconds\":1,\"weight_grad_seconds\":1}\n\
             {\"kind\":\"profile\",\"layer\":\"h.*.mlp\",\"layers\":8,\"forward_seconds\":1}\n{\"kind\":\"plan\"}",
        )
        .unwrap();
        let found = attention(&axes, &known, &profile).unwrap();
        assert_eq!((found.tokens, found.halves), (1024, 0.75));
        assert!((found.growing - found.flops).abs() < 1e-9, "{found:?}");
        // T / (6d + T) of a block, and a little less for the head.
        assert!(found.flops < 0.4 && found.flops > 0.38, "{found:?}");
        assert!(found.executed < found.flops);
        assert!(kinds("").is_err() && kinds("words").is_err());
    }

    #[test]
    fn lines_go_through_points_on_them() {
        let (slope, start) = line(&[(1.0, 5.0), (2.0, 7.0), (10.0, 23.0)]);
        assert!((slope - 2.0).abs() < 1e-12 && (start - 3.0).abs() < 1e-11);
    }
}
