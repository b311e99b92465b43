//! Runs here and in PyTorch in turns, and the ratios of each round.

use std::path::Path;

use anyhow::Context as _;
use xshell::{Shell, cmd};

use super::runs::Run;
use super::summary::{Summary, median_interval};

/// Median seconds of a step or a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Took {
    pub wall: f64,
    /// Of all threads.
    pub cpu: f64,
}

impl Took {
    pub fn of(run: &Run) -> anyhow::Result<Self> {
        let median = |seconds: &[f64]| Summary::of(seconds).map(|summary| summary.median);
        let both = median(&run.seconds).zip(median(&run.cpu_seconds));
        let (wall, cpu) = both.context("a run reported no times")?;
        Ok(Self { wall, cpu })
    }

    /// Wall time alone, for runs that do not tell their processor time.
    pub fn wall_of(run: &Run) -> anyhow::Result<f64> {
        let summary = Summary::of(&run.seconds).context("a run reported no times")?;
        Ok(summary.median)
    }
}

/// The median of numbers, none if one is missing.
pub fn median(numbers: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let numbers: Vec<f64> = numbers.collect::<Option<_>>()?;
    Some(Summary::of(&numbers)?.median)
}

/// Median of ratios and its interval ([`median_interval`]), none if one is missing.
pub fn ratios(ratios: impl Iterator<Item = Option<f64>>) -> Option<[f64; 3]> {
    let ratios: Vec<f64> = ratios.collect::<Option<_>>()?;
    median_interval(&ratios)
}

/// [`ratios`] as text.
pub fn interval(ratios: Option<[f64; 3]>) -> String {
    ratios.map_or("-".into(), |[median, least, most]| {
        format!("{median:.2} [{least:.2} to {most:.2}]")
    })
}

/// Whether this Python has these modules; says so if not.
pub fn has_modules(shell: &Shell, python: &Path, modules: &[&str], family: &str) -> bool {
    let import = format!("import {}", modules.join(", "));
    let import = cmd!(shell, "{python} -c {import}");
    let found = import.quiet().ignore_stdout().ignore_stderr().run().is_ok();
    if !found {
        eprintln!(
            "{family}: {} lacks {}, so gpipe is measured alone: `python3 -m venv venv && venv/bin/pip \
             install {}`, then add `--python venv/bin/python`",
            python.display(),
            modules.join(" or "),
            modules.join(" ")
        );
    }
    found
}
