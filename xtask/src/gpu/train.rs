//! A run of the program, and what its events and its timeline say.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use super::limit::{self, Ended};
use super::programs::Programs;
use super::results::Verdict;

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

/// A run that did not come to its end.
#[derive(Debug)]
pub struct Broken {
    /// Why, and how far it came.
    pub why: String,
    /// Whether its time was up.
    pub is_cut: bool,
}

impl Broken {
    /// How the check went that needs this run: as said, unless the time was up.
    pub fn verdict(&self, otherwise: Verdict) -> Verdict {
        match self.is_cut {
            true => Verdict::Cut,
            false => otherwise,
        }
    }

    fn of(ended: &Ended, trained: &Trained, steps: usize) -> Self {
        let fastest = trained
            .seconds
            .iter()
            .copied()
            .fold(f64::INFINITY, f64::min);
        let came = match trained.seconds.len() {
            0 => String::new(),
            made => format!(
                "; {made} of {steps} steps were made, the fastest in {:.2} ms",
                1e3 * fastest
            ),
        };
        Self {
            why: ended.why() + &came,
            is_cut: ended.cut.is_some(),
        }
    }
}

/// Trains for a number of steps; how far it came if it does not end well, which is bad news unless that was tried.
///
/// # Errors
/// If the program cannot be run, or prints what is no event.
pub fn train(
    programs: &Programs,
    arguments: &[&str],
    steps: usize,
) -> anyhow::Result<Result<Trained, Broken>> {
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
    let mut trained = Trained::default();
    let ended = limit::run_heard(&mut command, &mut |line| trained.hear(line))?;
    if !ended.is_right() {
        return Ok(Err(Broken::of(&ended, &trained, steps)));
    }
    anyhow::ensure!(
        trained.losses.len() == steps,
        "gpipe made other steps than asked for"
    );
    trained.working = working(&out)?;
    Ok(Ok(trained))
}

impl Trained {
    /// Adds what an event says.
    fn hear(&mut self, line: &str) -> anyhow::Result<()> {
        let event: Value =
            serde_json::from_str(line).with_context(|| format!("gpipe printed `{line}`"))?;
        if event["kind"] != "step" {
            return Ok(());
        }
        let number = |key: &str| {
            event[key]
                .as_f64()
                .with_context(|| format!("a step without {key}"))
        };
        self.losses.push(number("loss")?);
        self.seconds.push(number("step_seconds")?);
        self.asking.push(number("asking_seconds")?);
        self.bubble = number("bubble")?;
        let held = event["peak_bytes"].as_array().into_iter().flatten();
        let most = held.filter_map(Value::as_u64).max().unwrap_or(0);
        self.bytes = self.bytes.max(most);
        Ok(())
    }
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
                 \"bubble\":0.25,\"peak_bytes\":[3,7,5]}}"
            )
        };
        let mut trained = Trained::default();
        for line in ["{\"kind\":\"start\"}", &step(2.0), &step(1.5)] {
            trained.hear(line).unwrap();
        }
        assert_eq!(trained.losses, [2.0, 1.5]);
        assert_eq!(
            (trained.asking[1], trained.bubble, trained.bytes),
            (0.5, 0.25, 7)
        );
        assert!(trained.hear("{\"kind\":\"step\"}").is_err());
        let folder = xshell::Shell::new().unwrap().create_temp_dir().unwrap();
        let text = "{\"measured\":[{\"spans\":[[5,0,1000000000],[9,9,500000000,0,0,2000000000]]}]}";
        fs::write(folder.path().join("timeline.json"), text).unwrap();
        assert_eq!(working(folder.path()).unwrap(), 2.5);
        assert_eq!(apart(&[1.0, 2.5], &[1.0, 2.0]), 0.25);
    }

    #[test]
    fn a_run_that_is_cut_off_says_how_far_it_came() {
        let ended = Ended {
            cut: Some("time"),
            ..Ended::default()
        };
        let trained = Trained {
            seconds: vec![0.5, 0.25],
            ..Trained::default()
        };
        let broken = Broken::of(&ended, &trained, 9);
        assert_eq!(
            broken.why,
            "time; 2 of 9 steps were made, the fastest in 250.00 ms"
        );
        assert_eq!(broken.verdict(Verdict::Wrong), Verdict::Cut);
        let broken = Broken::of(&Ended::default(), &Trained::default(), 9);
        assert_eq!(
            (broken.why.as_str(), broken.verdict(Verdict::Wrong)),
            ("it said nothing", Verdict::Wrong)
        );
    }
}
