//! Training steps and tokens of a model of the sizes of SmolLM2-135M, beside those of PyTorch with transformers.

use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};
use xshell::{Shell, cmd};

use super::calm;
use super::runs::{self, Run};
use super::table::table;
use super::turns::{self, Took, median};
use crate::flags::Bench;

/// PyTorch's side.
const SCRIPT: &str = "xtask/src/bench/llama/llama.py";
/// The lengths of the texts, in tokens.
const LENGTHS: [usize; 3] = [64, 256, 512];
/// What the texts go on from: as many tokens as the script's.
const PROMPT: &str = "Thirty-two bytes are a beginning";
/// SmolLM2-135M without its weights: they change no time. Two micro-batches: half of the activations at a time.
const CONFIG: &str = r#"
[model]
name = "llama-nano"
blocks = 30
heads = 9
kv_heads = 3
head_size = 64
width = 576
inner = 1536
vocab = 49152
context = 2048
[data]
tokenizer = "bytes"
seq_len = 256
batch_size = 4
[pipeline]
stages = 1
micro_batches = 2
"#;

/// Measures steps, then tokens, in turns with PyTorch where there is one, and prints two tables.
pub fn run(shell: &Shell, root: &Path, flags: &Bench) -> anyhow::Result<()> {
    let (rounds, steps) = (flags.rounds.unwrap_or(3), flags.steps.unwrap_or(4));
    let threads = flags.threads.map_or(vec![1, 2], |threads| vec![threads]);
    anyhow::ensure!(
        rounds > 0 && steps > 0 && !threads.contains(&0),
        "threads, rounds and steps must be at least 1"
    );
    let python = flags.python.clone().unwrap_or_else(|| "python3".into());
    let modules = ["torch", "transformers"];
    let has_peer = turns::has_modules(shell, &python, &modules, "llama");
    cmd!(shell, "cargo build --release").run()?;
    let folder = shell.create_temp_dir()?;
    let config = folder.path().join("smollm2.toml");
    shell.write_file(&config, CONFIG)?;
    let script = &root.join(SCRIPT);
    let peer = |threads: usize, what: &[String]| -> anyhow::Result<Option<Value>> {
        if !has_peer {
            return Ok(None);
        }
        let threads = threads.to_string();
        let output = cmd!(shell, "{python} {script} --threads {threads} {what...}");
        let command = output.quiet().ignore_stderr();
        let (output, _) = calm::measure(|| Ok(command.read()?))?;
        Ok(Some(
            serde_json::from_str(&output).context("the JSON line of llama.py")?,
        ))
    };

    let mut training: Vec<(usize, Vec<Round>)> = threads
        .iter()
        .map(|&threads| (threads, Vec::new()))
        .collect();
    let path = config.display().to_string();
    for round in 1..=rounds {
        for (threads, found) in &mut training {
            eprintln!("llama: round {round} of {rounds}, steps, {threads} threads");
            let arguments = ["--config", &path, "--threads", &threads.to_string()];
            let ours = runs::train(shell, &arguments.map(str::to_owned), steps)?;
            let theirs = peer(*threads, &["--steps".into(), steps.to_string()])?;
            found.push(Round {
                ours: Took::of(&ours)?,
                our_bytes: ours.resident,
                theirs: theirs.as_ref().map(took).transpose()?,
                their_bytes: theirs.and_then(|line| line["resident_bytes"].as_u64()),
            });
        }
    }

    let run = folder.path().join("run");
    cmd!(
        shell,
        "cargo run --release --quiet -- train --config {config} --steps 1 --out {run} --quiet"
    )
    .quiet()
    .ignore_stdout()
    .run()?;
    let cases = threads
        .iter()
        .flat_map(|&threads| LENGTHS.map(|length| (threads, length)));
    let mut sampling: Vec<(usize, usize, Vec<Text>)> = cases
        .map(|(threads, length)| (threads, length, Vec::new()))
        .collect();
    for round in 1..=rounds {
        for (threads, length, found) in &mut sampling {
            eprintln!("llama: round {round} of {rounds}, {length} tokens, {threads} threads");
            let theirs = peer(*threads, &["--tokens".into(), length.to_string()])?;
            found.push(Text {
                ours: text(shell, &run, *threads, *length)?,
                theirs: theirs.as_ref().map(took).transpose()?.map(|took| took.wall),
            });
        }
    }
    show(&training, &sampling, flags)
}

/// One turn of steps of each.
#[derive(Clone, Debug)]
struct Round {
    ours: Took,
    our_bytes: Option<u64>,
    /// None without PyTorch.
    theirs: Option<Took>,
    their_bytes: Option<u64>,
}

impl Round {
    /// Wall seconds, processor seconds and bytes, here and there.
    fn pairs(&self) -> [[Option<f64>; 2]; 3] {
        let bytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
        let theirs = |time: fn(&Took) -> f64| self.theirs.as_ref().map(time);
        [
            [Some(self.ours.wall), theirs(|took| took.wall)],
            [Some(self.ours.cpu), theirs(|took| took.cpu)],
            [bytes(self.our_bytes), bytes(self.their_bytes)],
        ]
    }
}

/// Wall seconds of a token of one text here and there.
#[derive(Clone, Copy, Debug)]
struct Text {
    ours: f64,
    theirs: Option<f64>,
}

/// The times in the script's line.
fn took(line: &Value) -> anyhow::Result<Took> {
    let list = |key: &str| -> Vec<f64> {
        let times = line[key].as_array().into_iter().flatten();
        times.filter_map(Value::as_f64).collect()
    };
    Took::of(&Run {
        seconds: list("seconds"),
        cpu_seconds: list("cpu_seconds"),
        ..Run::default()
    })
}

/// Wall seconds of a token of a text of this length.
fn text(shell: &Shell, run: &Path, threads: usize, length: usize) -> anyhow::Result<f64> {
    let [threads, length] = [threads, length].map(|n| n.to_string());
    let output = cmd!(
        shell,
        "cargo run --release --quiet -- sample {run} --prompt {PROMPT} --tokens {length} --threads {threads}
         --temperature 0 --ignore-end --json"
    );
    let output = output.quiet().read()?;
    let last: Value = serde_json::from_str(output.lines().last().unwrap_or_default())
        .context("the last line of gpipe sample")?;
    let speed = last["tokens_per_second"].as_f64();
    Ok(speed.context("no tokens_per_second")?.recip())
}

/// Medians and ratios of some of the rounds' numbers.
fn medians_and_ratio(
    pairs: impl Iterator<Item = [Option<f64>; 2]> + Clone,
) -> ([Option<f64>; 2], Option<[f64; 3]>) {
    let of = |side: usize| median(pairs.clone().map(|pair| pair[side]));
    let ratio = |[ours, theirs]: [Option<f64>; 2]| Some(ours? / theirs?);
    ([of(0), of(1)], turns::ratios(pairs.clone().map(ratio)))
}

fn show(
    training: &[(usize, Vec<Round>)],
    sampling: &[(usize, usize, Vec<Text>)],
    flags: &Bench,
) -> anyhow::Result<()> {
    let names = ["seconds", "cpu_seconds", "resident_bytes"];
    let texts = |texts: &[Text]| {
        let pairs: Vec<_> = texts
            .iter()
            .map(|text| [Some(text.ours), text.theirs])
            .collect();
        medians_and_ratio(pairs.into_iter())
    };
    if flags.json {
        for (threads, rounds) in training {
            let mut line = json!({
                "kind": "bench", "family": "llama", "name": "step", "threads": threads, "rounds": rounds.len(),
            });
            for (index, name) in names.iter().enumerate() {
                let ([ours, theirs], ratio) =
                    medians_and_ratio(rounds.iter().map(|round| round.pairs()[index]));
                line[*name] = json!(ours);
                line[format!("peer_{name}")] = json!(theirs);
                line[format!("ratio_of_{name}")] = json!(ratio);
            }
            println!("{line}");
        }
        for (threads, length, rounds) in sampling {
            let ([ours, theirs], ratio) = texts(rounds);
            let line = json!({
                "kind": "bench", "family": "llama", "name": format!("token of {length}"), "threads": threads,
                "rounds": rounds.len(), "seconds": ours, "peer_seconds": theirs, "ratio_of_seconds": ratio,
            });
            println!("{line}");
        }
        return Ok(());
    }
    let heading = [
        "threads",
        "step",
        "CPU",
        "memory",
        "PyTorch",
        "CPU",
        "memory",
        "ratio",
        "of CPU",
        "of memory",
    ];
    let seconds = |seconds: Option<f64>| seconds.map_or("-".into(), |s| format!("{s:.2} s"));
    let bytes = |bytes: Option<f64>| bytes.map_or("-".into(), |b| format!("{:.2} GB", b / 1e9));
    let mut rows = vec![heading.map(str::to_owned)];
    for (threads, rounds) in training {
        let [(wall, of_wall), (cpu, of_cpu), (memory, of_memory)] = [0, 1, 2]
            .map(|index| medians_and_ratio(rounds.iter().map(|round| round.pairs()[index])));
        rows.push([
            threads.to_string(),
            seconds(wall[0]),
            seconds(cpu[0]),
            bytes(memory[0]),
            seconds(wall[1]),
            seconds(cpu[1]),
            bytes(memory[1]),
            turns::interval(of_wall),
            turns::interval(of_cpu),
            turns::interval(of_memory),
        ]);
    }
    println!(
        "A Llama of 135 million parameters, 4 rows of 256 tokens a step; ratios: median of the rounds [interval of 90 %]"
    );
    if flags.markdown {
        println!();
    }
    print!("{}", table(&rows, flags.markdown));
    println!();
    let heading = ["threads", "tokens", "a token", "PyTorch", "ratio"];
    let token = |seconds: Option<f64>| {
        seconds.map_or("-".into(), |seconds| format!("{:.1} ms", 1e3 * seconds))
    };
    let mut rows = vec![heading.map(str::to_owned)];
    for (threads, length, found) in sampling {
        let ([ours, theirs], ratio) = texts(found);
        rows.push([
            threads.to_string(),
            length.to_string(),
            token(ours),
            token(theirs),
            turns::interval(ratio),
        ]);
    }
    println!("Texts from the cache, after a prompt of 32 tokens");
    if flags.markdown {
        println!();
    }
    print!("{}", table(&rows, flags.markdown));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_same_round() {
        let pairs = [[1.0, 2.0], [3.0, 4.0], [3.0, 3.0]].map(|pair| pair.map(Some));
        let (medians, ratio) = medians_and_ratio(pairs.into_iter());
        assert_eq!(medians, [Some(3.0), Some(3.0)]);
        assert_eq!(ratio, Some([0.75, 0.5, 1.0]));
        let (medians, ratio) = medians_and_ratio([[Some(1.0), None]].into_iter());
        assert_eq!((medians, ratio), ([Some(1.0), None], None));
        assert_eq!(turns::interval(ratio), "-");
    }
}
