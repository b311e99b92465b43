//! A run of the program, and what its events and its timeline say.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use super::limit;
use super::programs::Programs;

/// What became of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trained {
    /// Of each step.
    pub losses: Vec<f64>,
    /// Seconds of each step.
    pub seconds: Vec<f64>,
    /// Seconds of each step in which a worker's thread asked for its work, at most.
    pub asking: Vec<f64>,
    /// Share of the last step in which workers idled.
    pub bubble: f64,
    /// The most bytes that a stage held.
    pub bytes: u64,
    /// The most seconds that a device worked in the step whose timeline was kept.
    pub working: f64,
}

/// Trains for a number of steps; the program's last word if it does not, which is bad news unless that was
/// tried.
pub fn train(
    programs: &Programs,
    arguments: &[&str],
    steps: usize,
) -> anyhow::Result<Result<Trained, String>> {
    let folder = xshell::Shell::new()?.create_temp_dir()?;
    let out = folder.path().join("run");
    let mut command = Command::new(&programs.gpipe);
    command
        .args([
            "train",
            "--json",
            "--quiet",
            "--keep",
            "0",
            "--eval-every",
            "0",
            "--steps",
        ])
        .arg(steps.to_string())
        .args(arguments)
        .arg("--out")
        .arg(&out);
    let output = limit::output(&mut command).context("running gpipe")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or("it does not say why");
        return Ok(Err(last.trim_start_matches("error: ").to_owned()));
    }
    let mut trained = read(&String::from_utf8_lossy(&output.stdout))?;
    anyhow::ensure!(
        trained.losses.len() == steps,
        "gpipe made other steps than asked for"
    );
    trained.working = working(&out)?;
    Ok(Ok(trained))
}

/// What the events of steps say.
fn read(lines: &str) -> anyhow::Result<Trained> {
    let mut trained = Trained::default();
    for line in lines.lines() {
        let event: Value =
            serde_json::from_str(line).with_context(|| format!("gpipe printed `{line}`"))?;
        if event["kind"] != "step" {
            continue;
        }
        let number = |key: &str| {
            event[key]
                .as_f64()
                .with_context(|| format!("a step without {key}"))
        };
        trained.losses.push(number("loss")?);
        trained.seconds.push(number("step_seconds")?);
        trained.asking.push(number("asking_seconds")?);
        trained.bubble = number("bubble")?;
        let held = event["peak_bytes"].as_array().into_iter().flatten();
        let most = held.filter_map(Value::as_u64).max().unwrap_or(0);
        trained.bytes = trained.bytes.max(most);
    }
    Ok(trained)
}

/// The third of each three numbers of the timeline's spans is how long an action took.
fn working(run: &Path) -> anyhow::Result<f64> {
    let timeline: Value = serde_json::from_slice(&fs::read(run.join("timeline.json"))?)?;
    let devices = timeline["measured"][0]["spans"].as_array();
    let devices = devices.context("a timeline without a measured step")?;
    let seconds = devices.iter().map(|spans| {
        let numbers = spans.as_array().into_iter().flatten();
        let worked = numbers.skip(2).step_by(3).filter_map(Value::as_u64);
        worked.sum::<u64>() as f64 / 1e9
    });
    Ok(seconds.fold(0.0, f64::max))
}

/// The largest difference of the losses, relative to the second ones.
pub fn apart(losses: &[f64], from: &[f64]) -> f64 {
    let pairs = losses.iter().zip(from);
    pairs
        .map(|(a, b)| (a - b).abs() / b.abs())
        .fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_read_from_its_events_and_its_timeline() {
        let step = |loss: f64| {
            format!(
                "{{\"kind\":\"step\",\"loss\":{loss},\"step_seconds\":2.0,\"asking_seconds\":0.5,\
                 \"bubble\":0.25,\"peak_bytes\":[3,7,5]}}\n"
            )
        };
        let lines = ["{\"kind\":\"start\"}\n", &step(2.0), &step(1.5)].concat();
        let trained = read(&lines).unwrap();
        assert_eq!(trained.losses, [2.0, 1.5]);
        assert_eq!(
            (trained.asking[1], trained.bubble, trained.bytes),
            (0.5, 0.25, 7)
        );
        assert!(read("{\"kind\":\"step\"}").is_err());
        let folder = xshell::Shell::new().unwrap().create_temp_dir().unwrap();
        let text = "{\"measured\":[{\"spans\":[[5,0,1000000000],[9,9,500000000,0,0,2000000000]]}]}";
        fs::write(folder.path().join("timeline.json"), text).unwrap();
        assert_eq!(working(folder.path()).unwrap(), 2.5);
        assert_eq!(apart(&[1.0, 2.5], &[1.0, 2.0]), 0.25);
    }
}
