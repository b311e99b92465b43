//! Whole runs of GPT-2 on a GPU: each is a row as it ends.

use serde_json::json;

use super::programs::Programs;
use super::results::{Results, Verdict};
use super::run_tables::named;
use super::sizes::{MICRO_BATCHES, Sizes, WARM_UP};
use super::train::{Broken, Trained, apart, train};
use crate::bench::summary::Summary;

/// Precision, devices and micro-batches of a run.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// What is multiplied: bf16, tf32 or f32.
    pub precision: &'static str,
    /// The devices of the stages.
    pub devices: &'static str,
    /// The number of micro-batches.
    pub micro_batches: usize,
    /// Whether operations are launched as CUDA graphs.
    pub graphs: bool,
}

impl Way {
    /// What says so to gpipe.
    fn flags(&self) -> Vec<&'static str> {
        let precision: &[_] = match self.precision {
            "bf16" => &["--dtype", "bf16"],
            "tf32" => &["--tf32"],
            _ => &[],
        };
        let graphs = match self.graphs {
            true => "--cuda-graphs",
            false => "--no-cuda-graphs",
        };
        precision.iter().copied().chain([graphs]).collect()
    }
}

/// Those that are measured in a precision, as gpipe trains unless told otherwise: with CUDA graphs.
pub fn ways(precision: &'static str) -> [Way; 3] {
    let way = |devices, micro_batches| Way {
        precision,
        devices,
        micro_batches,
        graphs: true,
    };
    [
        way("cuda:0", 1),
        way("cuda:0", MICRO_BATCHES),
        way("cuda:0*2", MICRO_BATCHES),
    ]
}

/// Runs of each way with single launches, and as many with CUDA graphs.
const ROUNDS: usize = 2;

/// The columns of a table of runs.
const COLUMNS: [&str; 10] = [
    "run",
    "precision",
    "M",
    "batch",
    "ms a step",
    "fastest",
    "tokens/s",
    "TFLOP/s",
    "asking / device ms",
    "GB",
];

/// A run of a program as a row: the seconds of its measured steps, of which the median counts.
pub struct Run<'a> {
    /// The program.
    pub program: &'a str,
    /// As of [`Way`].
    pub precision: &'a str,
    /// As of [`Way`].
    pub devices: &'a str,
    /// As of [`Way`].
    pub micro_batches: usize,
    /// As of [`Way`].
    pub graphs: bool,
    /// Of each measured step.
    pub seconds: &'a [f64],
    /// Seconds in which the host asked for a step, and in which the device worked, if that is known.
    pub asking: Option<[f64; 2]>,
    /// The most bytes that it held.
    pub bytes: u64,
}

impl Run<'_> {
    /// Adds its row.
    ///
    /// # Errors
    /// If it has no step, or a file cannot be written.
    pub fn row(&self, sizes: &Sizes, results: &mut Results) -> anyhow::Result<()> {
        let Some(Summary { median, min, .. }) = Summary::of(self.seconds) else {
            anyhow::bail!("a run of {} without a step", self.program);
        };
        let (tokens, flops) = (sizes.tokens() as f64, sizes.flops());
        let asking = self.asking.map_or_else(String::new, |[asking, working]| {
            format!(
                "{:.2} / {:.2} = {:.2}",
                1e3 * asking,
                1e3 * working,
                asking / working
            )
        });
        let cells = [
            named(self.program, self.devices, self.graphs),
            self.precision.to_owned(),
            self.micro_batches.to_string(),
            sizes.batch.to_string(),
            format!("{:.2}", 1e3 * median),
            format!("{:.2}", 1e3 * min),
            format!("{:.0}", tokens / median),
            format!("{:.1}", flops / median / 1e12),
            asking,
            format!("{:.2}", self.bytes as f64 / 1e9),
        ];
        eprintln!("{}", cells.join("  "));
        let object = json!({
            "kind": "run", "program": self.program, "precision": self.precision, "devices": self.devices,
            "micro_batches": self.micro_batches, "graphs": self.graphs, "batch": sizes.batch, "seconds": median,
            "fastest": min,
            "tokens": tokens, "flops": flops, "asking_seconds": self.asking.map(|both| both[0]),
            "working_seconds": self.asking.map(|both| both[1]), "peak_bytes": self.bytes,
        });
        results.row(&COLUMNS, &cells, object)
    }
}

/// Trains in a way, and adds the row; the losses, unless it cannot be measured, which is noted.
///
/// # Errors
/// If the program cannot be run, or a file cannot be written.
pub fn measure(
    programs: &Programs,
    sizes: &Sizes,
    way: Way,
    results: &mut Results,
) -> anyhow::Result<Option<Vec<f64>>> {
    let what = format!(
        "{} on {}, M = {}, {} samples{}",
        way.precision,
        way.devices,
        way.micro_batches,
        sizes.batch,
        if way.graphs { "" } else { ", single launches" }
    );
    match once(programs, sizes, way)? {
        Ok(run) => {
            let asking = Summary::of(&run.asking[WARM_UP..]).map(|summary| summary.median);
            let row = Run {
                program: "gpipe",
                precision: way.precision,
                devices: way.devices,
                micro_batches: way.micro_batches,
                graphs: way.graphs,
                seconds: &run.seconds[WARM_UP..],
                asking: asking.map(|asking| [asking, run.working]),
                bytes: run.bytes,
            };
            row.row(sizes, results)?;
            Ok(Some(run.losses))
        }
        Err(broken) => {
            results.note(&what, broken.verdict(Verdict::Left), &broken.why)?;
            Ok(None)
        }
    }
}

/// The first known figure: the same run twice in bf16, of which the bits have to be the same.
///
/// # Errors
/// As [`measure`].
pub fn twice(programs: &Programs, sizes: &Sizes, results: &mut Results) -> anyhow::Result<()> {
    results.section("GPT-2 in bf16, twice")?;
    let way = ways("bf16")[1];
    let first = measure(programs, sizes, way, results)?;
    let second = measure(programs, sizes, way, results)?;
    same_bits("the same bits in two runs", [first, second], results)
}

/// Every way in bf16 with single launches and with CUDA graphs, by turns: the bits have to be the same.
///
/// # Errors
/// As [`measure`].
pub fn graphs(programs: &Programs, sizes: &Sizes, results: &mut Results) -> anyhow::Result<()> {
    results.section("CUDA graphs")?;
    for _ in 0..ROUNDS {
        for way in ways("bf16") {
            let launches = Way {
                graphs: false,
                ..way
            };
            let single = measure(programs, sizes, launches, results)?;
            let graphs = measure(programs, sizes, way, results)?;
            let check = format!(
                "the same bits with CUDA graphs, {}, M = {}",
                way.devices, way.micro_batches
            );
            beside_single(&check, [single, graphs], results)?;
        }
    }
    Ok(())
}

/// Notes whether a run with CUDA graphs has the losses of one with single launches, and is there where that one is.
fn beside_single(
    check: &str,
    [single, graphs]: [Option<Vec<f64>>; 2],
    results: &mut Results,
) -> anyhow::Result<()> {
    if single.is_some() && graphs.is_none() {
        let why = "the run with CUDA graphs failed, the one with single launches did not";
        return results.note(check, Verdict::Wrong, why);
    }
    same_bits(check, [single, graphs], results)
}

/// Notes whether two runs have the same losses; nothing if one has none, which is noted already.
fn same_bits(
    check: &str,
    losses: [Option<Vec<f64>>; 2],
    results: &mut Results,
) -> anyhow::Result<()> {
    let [Some(first), Some(second)] = losses else {
        return Ok(());
    };
    let verdict = match first == second {
        true => Verdict::Right,
        false => Verdict::Wrong,
    };
    let found = format!(
        "losses of {} steps, {:.1e} apart at most, relatively",
        first.len(),
        apart(&second, &first)
    );
    results.note(check, verdict, &found)
}

/// One run.
fn once(programs: &Programs, sizes: &Sizes, way: Way) -> anyhow::Result<Result<Trained, Broken>> {
    let (flags, micro_batches) = (sizes.flags(), way.micro_batches.to_string());
    let mut arguments: Vec<&str> = flags.iter().map(String::as_str).collect();
    arguments.extend([
        "--devices",
        way.devices,
        "--micro-batches",
        &micro_batches,
        "--schedule",
        "1f1b",
        "--remat",
        "keep",
    ]);
    // As the comparison trains: neither clipping nor a curve, but the norm is taken in any case.
    arguments.extend([
        "--lr",
        "3e-4",
        "--lr-schedule",
        "constant",
        "--warmup-steps",
        "0",
        "--clip-norm",
        "0",
    ]);
    arguments.extend(way.flags());
    train(programs, &arguments, WARM_UP + sizes.steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_are_asked_for_and_named() {
        let [way, ..] = ways("bf16");
        assert_eq!(way.flags(), ["--dtype", "bf16", "--cuda-graphs"]);
        let single = Way {
            graphs: false,
            ..way
        };
        assert_eq!(single.flags(), ["--dtype", "bf16", "--no-cuda-graphs"]);
        assert_eq!(named("gpipe", "cuda:0", true), "gpipe, cuda:0");
        let single = named("gpipe", "cuda:0", false);
        assert_eq!(single, "gpipe, cuda:0, single launches");
        let eager = named("PyTorch, eager", "cuda:0", false);
        assert_eq!(eager, "PyTorch, eager, cuda:0");
    }

    #[test]
    fn another_bit_is_wrong() {
        let folder = xshell::Shell::new().unwrap().create_temp_dir().unwrap();
        let path = folder.path().join("results.md");
        let mut results = Results::begin(&path, "", false).unwrap();
        let losses = || Some(vec![4.0, 2.0]);
        same_bits("graphs", [losses(), None], &mut results).unwrap();
        beside_single("graphs", [None, None], &mut results).unwrap();
        beside_single("graphs", [None, losses()], &mut results).unwrap();
        beside_single("graphs", [losses(), losses()], &mut results).unwrap();
        assert!(results.verdict().is_ok());
        let other = Some(vec![4.0, 2.0_f64.next_up()]);
        same_bits("graphs", [losses(), other], &mut results).unwrap();
        assert!(results.verdict().is_err());
        let page = std::fs::read_to_string(&path).unwrap();
        assert_eq!(page.matches("| graphs | ").count(), 2, "{page}");
    }

    #[test]
    fn a_run_that_fails_with_graphs_alone_is_wrong() {
        let folder = xshell::Shell::new().unwrap().create_temp_dir().unwrap();
        let path = folder.path().join("results.md");
        let mut results = Results::begin(&path, "", false).unwrap();
        beside_single("graphs", [Some(vec![4.0]), None], &mut results).unwrap();
        assert!(results.verdict().is_err());
    }
}
