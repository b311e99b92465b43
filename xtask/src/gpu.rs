//! What needs a GPU: checks and measurements, here or packed for a host with a driver and no Rust.

mod archive;
mod checks;
pub mod limit;
pub mod programs;
mod results;
pub mod train;

use std::path::Path;

use xshell::Shell;

use crate::bench::{self, cuda::Wanted};
use crate::flags::Gpu;
use programs::Programs;
use results::{Results, Verdict};

/// Packs the programs, or runs the checks.
pub fn run(shell: &Shell, root: &Path, flags: &Gpu) -> anyhow::Result<()> {
    if flags.archive || flags.check {
        return archive::run(shell, root, flags.check);
    }
    check(shell, flags)
}

/// Runs every check and every measurement, and writes what came out as it is known.
///
/// # Errors
/// [`programs::Missing`] without a GPU; a part of an unknown name; after all checks, an error if
/// one of them failed.
pub fn check(shell: &Shell, flags: &Gpu) -> anyhow::Result<()> {
    let programs = match &flags.programs {
        Some(folder) => Programs::in_folder(&std::path::absolute(folder)?),
        None => Programs::build(shell)?,
    };
    let parts = parts(flags.only.as_deref())?;
    let out = flags.out.clone().unwrap_or_else(|| "results.md".into());
    let mut results = Results::begin(&out, &programs.devices()?)?;
    let wanted = Wanted {
        small: flags.small,
        markdown: true,
        peers: flags.peers.clone(),
        python: flags.python.clone(),
        ..Wanted::default()
    };
    for part in parts {
        limit::begin(limit::PART);
        match part {
            'a' => {
                checks::conformance(&programs, &mut results)?;
                checks::parity(&programs, flags.small, &mut results)?;
            }
            'b' => {
                results.section("Speed")?;
                for precision in ["bf16", "tf32", "f32"] {
                    speed(&programs, &wanted.of(precision, false), &mut results)?;
                    if precision == "bf16" {
                        kernels(&programs, flags.small, &mut results)?;
                    }
                }
            }
            'c' if flags.peers.is_some() => {
                results.section("Beside PyTorch")?;
                speed(&programs, &wanted.of("bf16", true), &mut results)?;
            }
            'c' => {}
            _ => {
                checks::rehearsals(&programs, flags.small, &mut results)?;
                checks::sanitizer(&programs, &mut results)?;
            }
        }
    }
    println!("{}", out.display());
    results.verdict()
}

/// The parts that were asked for, in their order.
fn parts(only: Option<&str>) -> anyhow::Result<Vec<char>> {
    const ALL: &str = "abcd";
    let asked: Vec<char> = only
        .unwrap_or(ALL)
        .chars()
        .filter(|&one| one != ',')
        .collect();
    let unknown = asked.iter().find(|one| !ALL.contains(**one));
    anyhow::ensure!(
        unknown.is_none() && !asked.is_empty(),
        "`--only {}`: name parts of a,b,c,d",
        only.unwrap_or_default()
    );
    Ok(ALL.chars().filter(|one| asked.contains(one)).collect())
}

/// Measures whole runs, and notes each as it ends.
fn speed(programs: &Programs, wanted: &Wanted, results: &mut Results) -> anyhow::Result<()> {
    let text = bench::cuda::measure(programs, wanted, &mut |run| {
        results.note(&run.what, Verdict::Right, &run.found)
    })?;
    results.text(&text)
}

/// The table a kernel.
fn kernels(programs: &Programs, small: bool, results: &mut Results) -> anyhow::Result<()> {
    let text = match bench::cuda::kernels(programs, small)? {
        Ok(table) => format!("\nKernels of a step in bf16, one by one\n\n{table}\n"),
        Err(why) => format!("not measured: kernels: {why}\n\n"),
    };
    results.text(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_by_letters_and_run_in_order() {
        assert_eq!(parts(None).unwrap(), ['a', 'b', 'c', 'd']);
        assert_eq!(parts(Some("d,b")).unwrap(), ['b', 'd']);
        assert!(parts(Some("e")).is_err() && parts(Some("")).is_err());
    }
}
