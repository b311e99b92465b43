//! Runs of the program, and what they took.

use anyhow::Context as _;
use serde_json::Value;
use xshell::{Shell, cmd};

use super::calm::{self, Others};

/// Steps that are run and not counted.
pub const WARM_UP: usize = 2;

/// What one or several runs took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Of the measured steps.
    pub seconds: Vec<f64>,
    /// Processor time of all threads in each, where that is known.
    pub cpu_seconds: Vec<f64>,
    /// The most memory that the process had, where that is known.
    pub resident: Option<u64>,
    /// Who disturbed it most.
    pub others: Others,
}

impl Run {
    /// Adds what another run took.
    pub fn add(&mut self, other: Self) {
        self.seconds.extend(other.seconds);
        self.cpu_seconds.extend(other.cpu_seconds);
        self.resident = self.resident.max(other.resident);
        self.others = self.others.worse(other.others);
    }
}

/// Trains for some steps that count, again where the machine was not calm.
pub fn train(shell: &Shell, arguments: &[String], steps: usize) -> anyhow::Result<Run> {
    train_by(shell, &[], arguments, steps)
}

/// [`train`] started by a launcher and its flags.
pub fn train_by(
    shell: &Shell,
    launcher: &[&str],
    arguments: &[String],
    steps: usize,
) -> anyhow::Result<Run> {
    let (mut run, others) = calm::measure(|| train_once(shell, launcher, arguments, steps))?;
    run.others = others;
    Ok(run)
}

fn train_once(
    shell: &Shell,
    launcher: &[&str],
    arguments: &[String],
    steps: usize,
) -> anyhow::Result<Run> {
    let words = [launcher, &["cargo"]].concat();
    let (program, before) = words.split_first().context("no program")?;
    let folder = shell.create_temp_dir()?;
    let out = folder.path().join("run");
    let steps = (steps + WARM_UP).to_string();
    let output = cmd!(
        shell,
        "{program} {before...} run --release --quiet -- train {arguments...} --steps {steps} --eval-every 0
         --keep 0 --trace-steps 0 --out {out} --json --quiet"
    );
    let mut run = steps_of(&output.quiet().read()?)?;
    run.resident = peak_resident(&shell.read_file(out.join("events.jsonl"))?);
    Ok(run)
}

/// What the last event says of the process's memory.
fn peak_resident(events: &str) -> Option<u64> {
    let end: Value = serde_json::from_str(events.lines().last()?).ok()?;
    end["peak_resident_bytes"].as_u64()
}

/// The times in the JSON lines of kind `step`, after those that warm up.
fn steps_of(output: &str) -> anyhow::Result<Run> {
    let mut run = Run::default();
    let mut made = 0;
    for line in output.lines() {
        let object: Value =
            serde_json::from_str(line).with_context(|| format!("gpipe printed `{line}`"))?;
        if object["kind"] != "step" {
            continue;
        }
        made += 1;
        if made > WARM_UP {
            let seconds = object["step_seconds"].as_f64();
            run.seconds
                .push(seconds.context("a step without step_seconds")?);
            run.cpu_seconds.extend(object["cpu_seconds"].as_f64());
        }
    }
    anyhow::ensure!(made > WARM_UP, "gpipe reported {made} steps");
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_times_are_read_after_the_warm_up() {
        let step = |seconds: f64| {
            format!("{{\"kind\":\"step\",\"step_seconds\":{seconds},\"cpu_seconds\":3}}\n")
        };
        let plan = "{\"kind\":\"plan\",\"step_seconds\":9}\n";
        let output = [plan, &step(5.0), &step(4.0), &step(1.5), &step(2.5)].concat();
        let mut run = steps_of(&output).unwrap();
        assert_eq!(
            (&*run.seconds, &*run.cpu_seconds),
            (&[1.5, 2.5][..], &[3.0, 3.0][..])
        );
        assert!(steps_of(&[plan, &step(5.0), &step(4.0)].concat()).is_err());
        assert!(steps_of("no json").is_err());

        run.add(Run {
            resident: Some(5),
            ..run.clone()
        });
        assert_eq!((run.seconds.len(), run.resident), (4, Some(5)));
        let events = "{\"kind\":\"step\"}\n{\"kind\":\"end\",\"peak_resident_bytes\":7}\n";
        assert_eq!(peak_resident(events), Some(7));
        assert_eq!(peak_resident(""), None);
    }
}
