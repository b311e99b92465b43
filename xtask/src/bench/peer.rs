//! PyTorch's turn: a script that prints one JSON object a line.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;
use xshell::{Shell, cmd};

use super::calm;
use super::configuration::Configuration;
use super::runs::Run;

const SCRIPT: &str = "xtask/src/bench/pytorch.py";

/// How to run the script.
pub struct Peer<'a> {
    script: PathBuf,
    python: &'a Path,
    model: &'a str,
    dtype: &'a str,
}

impl<'a> Peer<'a> {
    /// The script in this source tree, on the model of this name, in f32 or bf16.
    pub fn new(root: &Path, python: &'a Path, model: &'a str, dtype: &'a str) -> Self {
        Self {
            script: root.join(SCRIPT),
            python,
            model,
            dtype,
        }
    }

    /// One run in one process, without micro-batches: the median of its steps.
    pub fn single(&self, shell: &Shell, threads: usize, steps: usize) -> anyhow::Result<Run> {
        let threads = threads.to_string();
        self.run_one(shell, "single", &["--threads", &threads], steps)
    }

    /// One run of replicas by DistributedDataParallel, in processes of one thread.
    pub fn replicated(&self, shell: &Shell, processes: usize, steps: usize) -> anyhow::Result<Run> {
        let processes = processes.to_string();
        self.run_one(shell, "replicated", &["--processes", &processes], steps)
    }

    /// Whether `torch.distributed.pipelining` can do the same.
    pub fn can(configuration: &Configuration) -> bool {
        let Configuration {
            stages,
            micro_batches,
            schedule,
            remat,
        } = configuration;
        *stages > 1
            && matches!(schedule.as_str(), "gpipe" | "1f1b")
            && matches!(remat.as_str(), "keep" | "stage")
            && (schedule == "gpipe" || micro_batches >= stages)
    }

    /// The threads of each of its processes, one a stage.
    fn threads_of_stage(configuration: &Configuration, threads: usize) -> usize {
        (threads / configuration.stages).max(1)
    }

    /// A note where its processes have another number of threads together than the program.
    pub fn uneven(configuration: &Configuration, threads: usize) -> Option<String> {
        let stages = configuration.stages;
        if !Self::can(configuration) || threads.is_multiple_of(stages) {
            return None;
        }
        let each = Self::threads_of_stage(configuration, threads);
        Some(format!(
            "{configuration}: threads of gpipe {threads}, of PyTorch {stages} times {each}: \
             `--threads {}` compares the same",
            threads.next_multiple_of(stages)
        ))
    }

    /// Runs of these, which differ in their micro-batches alone, in one process a stage.
    pub fn pipelined(
        &self,
        shell: &Shell,
        alike: &[&Configuration],
        threads: usize,
        steps: usize,
    ) -> anyhow::Result<Vec<Run>> {
        let Some(first) = alike.first() else {
            return Ok(Vec::new());
        };
        let listed: Vec<String> = alike
            .iter()
            .map(|configuration| configuration.micro_batches.to_string())
            .collect();
        let checkpoint = match first.remat.as_str() {
            "stage" => "always",
            _ => "never",
        };
        let threads = Self::threads_of_stage(first, threads).to_string();
        let arguments = [
            ("--threads", threads.as_str()),
            ("--stages", &first.stages.to_string()),
            ("--schedule", &first.schedule),
            ("--micro-batches", &listed.join(",")),
            ("--checkpoint", checkpoint),
        ];
        let arguments = arguments.map(|(flag, value)| [flag, value]);
        let found = self.run(shell, "pipelined", arguments.as_flattened(), steps)?;
        let of = |configuration: &&Configuration| {
            let micro_batches = configuration.micro_batches as u64;
            let run = found.iter().find(|(parts, _)| *parts == micro_batches);
            let run = run.with_context(|| format!("{SCRIPT} left out {configuration}"))?;
            Ok(run.1.clone())
        };
        alike.iter().map(of).collect()
    }

    fn run_one(
        &self,
        shell: &Shell,
        mode: &str,
        arguments: &[&str],
        steps: usize,
    ) -> anyhow::Result<Run> {
        Ok(self.run(shell, mode, arguments, steps)?.swap_remove(0).1)
    }

    /// Runs the script: see [`results`].
    fn run(
        &self,
        shell: &Shell,
        mode: &str,
        arguments: &[&str],
        steps: usize,
    ) -> anyhow::Result<Vec<(u64, Run)>> {
        let Self {
            script,
            python,
            model,
            dtype,
        } = self;
        let steps = steps.to_string();
        let command = cmd!(
            shell,
            "{python} {script} {mode} --model {model} --dtype {dtype} --steps {steps} {arguments...}"
        );
        let command = command.quiet();
        let (output, others) = calm::measure(|| Ok(command.read()?))?;
        let mut found = results(&output)?;
        found.iter_mut().for_each(|(_, run)| run.others = others);
        Ok(found)
    }
}

/// The micro-batches and the median of each JSON line of the script's output; there is at least one.
fn results(output: &str) -> anyhow::Result<Vec<(u64, Run)>> {
    let mut found = Vec::new();
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let result: Value =
            serde_json::from_str(line).with_context(|| format!("a JSON line of {SCRIPT}"))?;
        let milliseconds = |key: &str| result[key].as_f64();
        let median =
            milliseconds("median_ms").with_context(|| format!("{SCRIPT} reported no median_ms"))?;
        let run = Run {
            seconds: vec![median / 1e3],
            cpu_seconds: Vec::from_iter(milliseconds("cpu_min_ms").map(|time| time / 1e3)),
            ..Run::default()
        };
        found.push((result["microbatches"].as_u64().unwrap_or(1), run));
    }
    anyhow::ensure!(!found.is_empty(), "{SCRIPT} printed no JSON line");
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_json_line_counts() {
        let output = "loading\n{\"median_ms\": 9.0, \"microbatches\": 4, \"cpu_min_ms\": 17}\n\
                      {\"median_ms\": 1250.5, \"losses\": [5.5]}\nbye\n";
        let found = results(output).unwrap();
        let counts: Vec<u64> = found.iter().map(|(count, _)| *count).collect();
        assert_eq!(counts, [4, 1]);
        assert_eq!(
            (&*found[0].1.seconds, &*found[0].1.cpu_seconds),
            (&[0.009][..], &[0.017][..])
        );
        assert_eq!(found[1].1.seconds, [1.2505]);
        assert!(results("no json").is_err());
        assert!(results("{\"min_ms\": 1}").is_err());
        assert!(results("{broken").is_err());
    }

    #[test]
    fn what_the_peer_cannot_do_is_not_asked_of_it() {
        let way = |stages, micro_batches, schedule: &str, remat: &str| Configuration {
            stages,
            micro_batches,
            schedule: schedule.into(),
            remat: remat.into(),
        };
        assert!(Peer::can(&way(2, 2, "1f1b", "stage")));
        let uneven = Peer::uneven(&way(2, 4, "gpipe", "keep"), 1).unwrap();
        assert!(
            uneven.ends_with("`--threads 2` compares the same"),
            "{uneven}"
        );
        assert_eq!(Peer::uneven(&way(2, 4, "gpipe", "keep"), 4), None);
        assert_eq!(Peer::uneven(&way(1, 4, "gpipe", "keep"), 3), None);
        assert!(!Peer::can(&way(1, 2, "gpipe", "keep")));
        assert!(!Peer::can(&way(4, 2, "1f1b", "keep")));
        assert!(!Peer::can(&way(2, 2, "zb-h1", "keep")));
        assert!(!Peer::can(&way(2, 2, "gpipe", "every:2")));
    }
}
