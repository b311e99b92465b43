//! The kernels of a step besides products of matrices, one by one, beside what the device's memory could do.

use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use super::sizes::{GPT2, SMALL};
use crate::bench::table::table;
use crate::gpu::limit;
use crate::gpu::programs::Programs;

/// What a kernel takes in a step.
struct Kernel {
    name: String,
    /// Runs a step.
    count: f64,
    /// Of one run.
    seconds: f64,
    bytes: f64,
    flops: f64,
}

/// A table of the kernels of a step in bf16, the slowest first; why there is none, if so.
pub fn kernels(programs: &Programs, small: bool) -> anyhow::Result<Result<String, String>> {
    let sizes = if small { SMALL } else { GPT2 };
    let mut command = Command::new(&programs.products);
    command.args(["kernels", "bf16"]).args(
        [
            sizes.batch,
            sizes.sequence,
            sizes.width,
            sizes.heads,
            sizes.vocabulary,
            sizes.blocks,
        ]
        .map(|size| size.to_string()),
    );
    let output = limit::output(&mut command).context("running the kernels")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let (mut kernels, mut pool) = (Vec::new(), 0);
    for line in said.lines() {
        let object: Value = serde_json::from_str(line)
            .with_context(|| format!("the program of kernels printed `{line}`"))?;
        match object["pool_bytes"].as_u64() {
            Some(bytes) => pool = bytes,
            None => kernels.extend(kernel(&object)),
        }
    }
    if kernels.is_empty() {
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        return Ok(Err(complaint
            .lines()
            .last()
            .unwrap_or("nothing was printed")
            .to_owned()));
    }
    let text = table(&drawn(kernels), true);
    Ok(Ok(format!(
        "{text}\n{pool} bytes of the device's memory were taken at most.\n"
    )))
}

fn kernel(object: &Value) -> Option<Kernel> {
    let number = |key: &str| object[key].as_f64();
    Some(Kernel {
        name: object["kernel"].as_str()?.to_owned(),
        count: number("count")?,
        seconds: number("seconds")?,
        bytes: number("bytes")?,
        flops: number("flops")?,
    })
}

fn drawn(mut kernels: Vec<Kernel>) -> Vec<[String; 6]> {
    let of_step = |kernel: &Kernel| kernel.count * kernel.seconds;
    kernels.sort_by(|a, b| of_step(b).total_cmp(&of_step(a)));
    let all: f64 = kernels.iter().map(of_step).sum();
    let heading = [
        "kernel",
        "runs a step",
        "ms a step",
        "share",
        "GB/s",
        "TFLOP/s",
    ];
    let mut drawn = vec![heading.map(str::to_owned)];
    drawn.extend(kernels.iter().map(|kernel| {
        [
            kernel.name.clone(),
            format!("{}", kernel.count),
            format!("{:.3}", 1e3 * of_step(kernel)),
            format!("{:.0} %", 100.0 * of_step(kernel) / all),
            format!("{:.0}", kernel.bytes / kernel.seconds / 1e9),
            match kernel.flops > 0.0 {
                true => format!("{:.1}", kernel.flops / kernel.seconds / 1e12),
                false => String::new(),
            },
        ]
    }));
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_sorted_by_their_time_in_a_step() {
        let line = |name: &str, count: u32, seconds: f64| {
            serde_json::json!({
                "kernel": name, "count": count, "seconds": seconds, "bytes": 3e9, "flops": 0.0
            })
        };
        let lines = [
            line("add", 1, 0.001),
            line("attention", 12, 0.003),
            serde_json::json!({}),
        ];
        let drawn = drawn(lines.iter().filter_map(kernel).collect());
        assert_eq!(drawn.len(), 3);
        assert_eq!(drawn[1], ["attention", "12", "36.000", "97 %", "1000", ""]);
    }
}
