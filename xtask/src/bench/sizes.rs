//! What a step costs with more layers, width, length and micro-batches, beside what the FLOPs say.

mod attention;
mod axis;

use anyhow::Context as _;
use xshell::{Shell, cmd};

use self::attention::{attention, profile};
use self::axis::{Case, axes};
use super::runs::{self, Run};
use super::summary::Summary;
use crate::flags::Bench;

/// Measures all axes and prints a table of each.
pub fn run(shell: &Shell, flags: &Bench) -> anyhow::Result<()> {
    let threads = flags.threads.unwrap_or(2);
    let (rounds, steps) = (flags.rounds.unwrap_or(2), flags.steps.unwrap_or(4));
    anyhow::ensure!(
        threads > 0 && rounds > 0 && steps > 0,
        "threads, rounds and steps must be at least 1"
    );
    let axes = axes();
    let mut cases: Vec<Case> = Vec::new();
    for (_, case) in axes.iter().flat_map(|axis| &axis.cases) {
        if !cases.contains(case) {
            cases.push(*case);
        }
    }
    cmd!(shell, "cargo build --release").run()?;
    let mut all = vec![Run::default(); cases.len()];
    for round in 1..=rounds {
        for (index, (case, all)) in cases.iter().zip(&mut all).enumerate() {
            eprintln!(
                "sizes: round {round} of {rounds}, {} of {}",
                index + 1,
                cases.len()
            );
            all.add(runs::train(shell, &case.arguments(threads), steps)?);
        }
    }
    let longest = axes
        .iter()
        .flat_map(|axis| &axis.cases)
        .map(|(_, case)| *case)
        .max_by_key(|case| case.shape.sequence)
        .context("no case")?;
    let profile = profile(shell, &longest.arguments(threads))?;
    let mut known = Vec::new();
    for (case, run) in cases.iter().zip(&all) {
        known.push((
            *case,
            Summary::of(&run.seconds).context("a run without steps")?,
        ));
    }
    if flags.json {
        for axis in &axes {
            axis.rows(&known)
                .iter()
                .for_each(|row| println!("{}", row.json(axis.name, threads)));
        }
        println!("{}", attention(&axes, &known, &profile)?.json(threads));
        return Ok(());
    }
    for axis in &axes {
        println!("{}, {threads} threads; {}", axis.name, axis.fixed);
        if flags.markdown {
            println!();
        }
        println!("{}", axis.drawn(&known, flags.markdown));
    }
    print!("{}", attention(&axes, &known, &profile)?.said());
    Ok(())
}
