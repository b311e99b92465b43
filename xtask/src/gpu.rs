//! What needs a GPU: checks and measurements, here or packed for a host with a driver and no Rust.

mod archive;
mod checks;
mod kernels;
mod launches;
mod limit;
mod products;
pub mod programs;
mod pytorch;
mod results;
mod run_tables;
mod sizes;
mod speed;
mod summary;
mod train;
mod trial;

use std::path::Path;
use std::time::Duration;

use xshell::Shell;

use crate::flags::Gpu;
use programs::Programs;
use results::{Results, Verdict};
use sizes::Sizes;
use summary::PARTS;

/// Packs the programs, says what is known of the kernels without a GPU, or runs the checks.
pub fn run(shell: &Shell, root: &Path, flags: &Gpu) -> anyhow::Result<()> {
    if flags.archive || flags.check {
        let packed = archive::run(shell, root, flags.profile.as_deref(), flags.check)?;
        return match flags.check {
            true => trial::run(shell, &packed),
            false => Ok(()),
        };
    }
    if flags.table {
        return kernels::run(shell, root, flags.kernels.as_deref(), flags.out.as_deref());
    }
    check(shell, flags)
}

/// Runs every check and every measurement, and writes each result as it is known.
///
/// # Errors
/// [`programs::Missing`] without a GPU; a part of an unknown name; after all parts, an error if a check failed or a signal
/// asked for a stop.
pub fn check(shell: &Shell, flags: &Gpu) -> anyhow::Result<()> {
    let programs = match &flags.programs {
        Some(folder) => Programs::in_folder(&std::path::absolute(folder)?),
        None => Programs::build(shell, flags.profile.as_deref(), false)?,
    };
    let parts = parts(flags.only.as_deref())?;
    let out = flags.out.clone().unwrap_or_else(|| "results.md".into());
    let mut results = Results::begin(&out, &programs.devices()?, flags.only.is_some())?;
    results.cut_after = flags.cut;
    let python = flags.python.clone().unwrap_or_else(|| "python3".into());
    let sizes = Sizes::new(flags.small);
    let limit = flags.limit.map_or(limit::PART, Duration::from_secs);
    for part in parts {
        limit::begin(limit);
        results.begin_part(part);
        let ran = match part {
            'a' => part_a(&programs, &sizes, flags.small, &mut results),
            'b' => part_b(&programs, &sizes, &mut results),
            'c' => part_c(&programs, &sizes, &python, &mut results),
            _ => part_d(&programs, flags.small, &mut results),
        };
        if let Err(error) = ran {
            // The other parts may still say something.
            results.note("the part itself", Verdict::Wrong, &format!("{error:#}"))?;
        }
        results.end_part()?;
        if limit::is_stopped() {
            anyhow::bail!(
                "a signal asked for a stop: {} has what was known by then",
                out.display()
            );
        }
    }
    println!("{}", out.display());
    results.verdict()
}

/// The first figures, operations and training.
fn part_a(
    programs: &Programs,
    sizes: &Sizes,
    small: bool,
    results: &mut Results,
) -> anyhow::Result<()> {
    speed::twice(programs, sizes, results)?;
    checks::conformance(programs, small, results)?;
    checks::parity(programs, small, results)
}

/// Speed: what is aimed at first.
fn part_b(programs: &Programs, sizes: &Sizes, results: &mut Results) -> anyhow::Result<()> {
    products::ceilings(programs, sizes, results)?;
    launches::measure(programs, sizes, "bf16", results)?;
    results.section("GPT-2")?;
    for way in speed::ways("bf16") {
        speed::measure(programs, sizes, way, results)?;
    }
    for batch in [sizes.batch / 2, 2 * sizes.batch] {
        speed::measure(
            programs,
            &sizes.with_batch(batch),
            speed::ways("bf16")[0],
            results,
        )?;
    }
    for way in speed::ways("bf16") {
        speed::measure(programs, sizes, way, results)?;
    }
    results.section("Products")?;
    products::measure(programs, sizes, "bf16", results)?;
    speed::graphs(programs, sizes, results)?;
    // Last, since it takes the most time.
    results.section("Single precision")?;
    for precision in ["tf32", "f32"] {
        for way in speed::ways(precision) {
            speed::measure(programs, sizes, way, results)?;
        }
        products::measure(programs, sizes, precision, results)?;
        launches::measure(programs, sizes, precision, results)?;
    }
    Ok(())
}

/// PyTorch between two turns of gpipe.
fn part_c(
    programs: &Programs,
    sizes: &Sizes,
    python: &Path,
    results: &mut Results,
) -> anyhow::Result<()> {
    results.section("Beside PyTorch")?;
    let ways = &speed::ways("bf16")[..2];
    for &way in ways {
        speed::measure(programs, sizes, way, results)?;
    }
    pytorch::measure(python, sizes, results)?;
    for &way in ways {
        speed::measure(programs, sizes, way, results)?;
    }
    Ok(())
}

/// Stages that share a GPU, and tools that watch every access.
fn part_d(programs: &Programs, small: bool, results: &mut Results) -> anyhow::Result<()> {
    checks::rehearsals(programs, small, results)?;
    checks::sanitizer(programs, results)
}

/// The parts that were asked for, in their order.
fn parts(only: Option<&str>) -> anyhow::Result<Vec<char>> {
    let asked: Vec<char> = only
        .unwrap_or(PARTS)
        .chars()
        .filter(|&one| one != ',')
        .collect();
    let unknown = asked.iter().find(|one| !PARTS.contains(**one));
    anyhow::ensure!(
        unknown.is_none() && !asked.is_empty(),
        "`--only {}`: name parts of a,b,c,d",
        only.unwrap_or_default()
    );
    Ok(PARTS.chars().filter(|one| asked.contains(one)).collect())
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
