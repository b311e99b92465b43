//! Runs on a GPU: GPT-2 with 124 million parameters in one stage and in two that share the GPU, and the
//! matrix products it is made of; PyTorch beside them where it is.

mod kernels;
mod peer;
mod products;
mod shown;
mod sizes;
mod wanted;

use xshell::Shell;

use super::table::table;
use crate::flags::Bench;
use crate::gpu::programs::Programs;
use crate::gpu::train::{Trained, train};
pub use kernels::kernels;
use peer::Peer;
use shown::Row;
use sizes::{GPT2, MICRO_BATCHES, SMALL, Sizes, WARM_UP};
pub use wanted::Wanted;

/// Measures what was asked for, on this machine's GPU.
pub fn run(shell: &Shell, flags: &Bench) -> anyhow::Result<()> {
    let programs = Programs::build(shell)?;
    programs.devices()?;
    let wanted = Wanted {
        small: false,
        json: flags.json,
        markdown: flags.markdown,
        peers: flags.peers.clone(),
        python: flags.python.clone(),
        precision: None,
        rounds: flags.rounds,
        steps: flags.steps,
        batch: flags.batch,
    };
    print!("{}", measure(&programs, &wanted, &mut |_| Ok(()))?);
    Ok(())
}

/// What is multiplied, and what says so to gpipe.
const PRECISIONS: [(&str, &[&str]); 3] = [
    ("f32", &[]),
    ("tf32", &["--tf32"]),
    ("bf16", &["--dtype", "bf16"]),
];

/// Devices and micro-batches.
const WAYS: [(&str, usize); 3] = [
    ("cuda:0", 1),
    ("cuda:0", MICRO_BATCHES),
    ("cuda:0*2", MICRO_BATCHES),
];

/// A run that has ended.
pub struct Ended {
    /// Precision, devices, micro-batches.
    pub what: String,
    /// Its median step.
    pub found: String,
}

/// Measures, says of each run what came out, and gives the tables that are to be printed.
pub fn measure(
    programs: &Programs,
    wanted: &Wanted,
    said: &mut dyn FnMut(&Ended) -> anyhow::Result<()>,
) -> anyhow::Result<String> {
    let mut sizes = if wanted.small { SMALL } else { GPT2 };
    sizes.batch = wanted.batch.unwrap_or(sizes.batch);
    let rounds = wanted.rounds.unwrap_or(if wanted.small { 1 } else { 2 });
    let steps = wanted.steps.unwrap_or(if wanted.small { 2 } else { 10 });
    anyhow::ensure!(
        rounds > 0 && steps > 0,
        "rounds and steps must be at least 1"
    );
    let is_wanted = |one: &str| wanted.precision.is_none_or(|precision| precision == one);
    let peer = Peer::found(wanted);
    let mut notes: Vec<String> = Vec::new();
    let mut rows: Vec<Row> = Vec::new();
    let mut theirs: Vec<peer::Row> = Vec::new();
    for round in 0..rounds {
        for (precision, more) in PRECISIONS.into_iter().filter(|(one, _)| is_wanted(one)) {
            for (devices, micro_batches) in WAYS {
                let what = format!("{precision} on {devices}, M = {micro_batches}");
                if notes.iter().any(|note| note.starts_with(&what)) {
                    continue;
                }
                eprintln!("round {} of {rounds}: {what}", round + 1);
                match once(programs, &sizes, more, devices, micro_batches, steps)? {
                    Ok(run) => {
                        let measured = &run.seconds[WARM_UP..];
                        let fastest = measured.iter().copied().fold(f64::INFINITY, f64::min);
                        said(&Ended {
                            what: format!("{what}, round {}", round + 1),
                            found: format!("{:.2} ms a step at best", 1e3 * fastest),
                        })?;
                        add(&mut rows, precision, devices, micro_batches, &run);
                    }
                    Err(why) => {
                        eprintln!("{what}: {why}");
                        notes.push(format!("{what}: {why}"));
                    }
                }
            }
            if let Some(peer) = &peer {
                peer.train(&sizes, precision, steps, &mut theirs, &mut notes)?;
            }
        }
    }
    let products = products::measured(programs, &sizes, wanted.precision, peer.as_ref())?;
    if wanted.json {
        return Ok(shown::json_lines(&sizes, &rows, &theirs, &products));
    }
    let blank = if wanted.markdown { "\n" } else { "" };
    let mut text = format!(
        "GPT-2 of {} blocks, width {}, vocabulary {}: {} samples of {} tokens a step; medians of {} steps\n{blank}{}",
        sizes.blocks,
        sizes.width,
        sizes.vocabulary,
        sizes.batch,
        sizes.sequence,
        rounds * steps,
        table(&shown::rows(&sizes, &rows, &theirs), wanted.markdown),
    );
    for note in &notes {
        text += &format!("{blank}not measured: {note}\n");
    }
    text += &format!(
        "\nMatrix products\n{blank}{}",
        table(&products::drawn(&products), wanted.markdown)
    );
    Ok(text)
}

/// One run.
fn once(
    programs: &Programs,
    sizes: &Sizes,
    more: &[&str],
    devices: &str,
    micro_batches: usize,
    steps: usize,
) -> anyhow::Result<Result<Trained, String>> {
    let flags = sizes.flags();
    let micro_batches = micro_batches.to_string();
    let mut arguments: Vec<&str> = flags.iter().map(String::as_str).collect();
    arguments.extend([
        "--devices",
        devices,
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
    arguments.extend(more);
    train(programs, &arguments, WARM_UP + steps)
}

/// Adds a run to its row.
fn add(
    rows: &mut Vec<Row>,
    precision: &'static str,
    devices: &'static str,
    micro_batches: usize,
    run: &Trained,
) {
    let is_it = |row: &Row| {
        (row.precision, row.devices, row.micro_batches) == (precision, devices, micro_batches)
    };
    let place = rows.iter().position(is_it).unwrap_or_else(|| {
        rows.push(Row {
            precision,
            devices,
            micro_batches,
            seconds: Vec::new(),
            asking: Vec::new(),
            working: Vec::new(),
            bytes: 0,
        });
        rows.len() - 1
    });
    let row = &mut rows[place];
    row.seconds.extend(run.seconds.iter().skip(WARM_UP));
    row.asking.extend(run.asking.iter().skip(WARM_UP));
    row.working.push(run.working);
    row.bytes = row.bytes.max(run.bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_way_come_into_one_row_without_their_warm_up() {
        let run = Trained {
            seconds: vec![9.0, 9.0, 9.0, 2.0],
            asking: vec![9.0, 9.0, 9.0, 0.25],
            working: 1.0,
            bytes: 5,
            ..Trained::default()
        };
        let mut rows = Vec::new();
        add(&mut rows, "f32", "cuda:0", 8, &run);
        add(
            &mut rows,
            "f32",
            "cuda:0*2",
            8,
            &Trained {
                seconds: vec![9.0, 9.0, 9.0, 4.0],
                ..run.clone()
            },
        );
        add(&mut rows, "f32", "cuda:0", 8, &run);
        assert_eq!((rows.len(), &rows[0].seconds), (2, &vec![2.0, 2.0]));
        let drawn = shown::rows(&SMALL, &rows, &[]);
        assert_eq!(drawn[1][4], "64");
        assert_eq!(
            (drawn[1][6].as_str(), drawn[2][6].as_str()),
            ("1.000", "0.500")
        );
        assert_eq!(drawn[1][7], "250.0 / 1000.0 = 0.25");
    }
}
