//! Running the tests of a row and reading what they counted.

use anyhow::Context as _;
use xshell::{Shell, cmd};

use super::numbers::Numbers;
use super::rows::Row;
use super::tally::{self, Tally};
use super::test::Test;

/// Runs a row; what it counted, if that is as it should be.
pub fn row(shell: &Shell, row: &Row, numbers: Numbers) -> anyhow::Result<String> {
    let mut sum = Tally::default();
    let mut figures = String::new();
    if row.tests.iter().any(Test::is_miri) && !has_miri(shell) {
        return Ok("left out: no Miri; rustup component add --toolchain nightly miri".into());
    }
    for manifest in row.tests.iter().filter_map(Test::manifest) {
        if !can_fetch(shell, &manifest) {
            return Ok(format!(
                "skipped: no registry to fetch the dependencies of {manifest}"
            ));
        }
    }
    for test in &row.tests {
        let said = output(shell, test, numbers)?;
        if said.contains("no launcher: ") && !said.contains("exam ") {
            return Ok("left out: GPIPE_MPIRUN names no launcher".into());
        }
        if said.contains("no emulated GPUs: ") {
            return Ok("left out: no GPUs can be emulated here".into());
        }
        let tally = if test.is_miri() {
            Tally::passed(&said)
        } else {
            Tally::read(&said, row.name)
        };
        sum = Tally {
            good: sum.good + tally.good,
            all: sum.all + tally.all,
        };
        for figure in tally::figures(&said, row.name) {
            figures += &format!("  {figure}");
        }
    }
    let at_least = match numbers {
        Numbers::Small => 1,
        Numbers::Full => row.at_least,
    };
    Ok(format!("{}{figures}", sum.check(at_least)?))
}

/// Runs the planted faults of a row; how many were caught, if all were.
pub fn teeth(shell: &Shell, row: &Row) -> anyhow::Result<String> {
    let test = row.teeth.as_ref().context("no faults are planted for it")?;
    let said = output(shell, test, Numbers::Small)?;
    let tally = Tally::read(&said, &format!("{} teeth", row.name)).check(1)?;
    Ok(format!("teeth {tally}"))
}

/// What a test printed; its failure is an error that shows it.
fn output(shell: &Shell, test: &Test, numbers: Numbers) -> anyhow::Result<String> {
    let arguments = &test.arguments(numbers);
    let program = test.program();
    let mut command = cmd!(shell, "{program} {arguments...}")
        .quiet()
        .ignore_status()
        // Panics are planted by the hundred.
        .env("RUST_BACKTRACE", "0");
    if numbers == Numbers::Full {
        command = command.env("GPIPE_EXAM", "full");
    }
    for (variable, value) in test.environment() {
        command = command.env(variable, value);
    }
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let said = format!("{}\n{text}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = said.lines().collect();
    let tail = lines[lines.len().saturating_sub(60)..].join("\n");
    anyhow::bail!(
        "{program} {}: {}\n{tail}",
        arguments.join(" "),
        output.status
    )
}

/// Whether the dependencies of a package are here or can be downloaded.
fn can_fetch(shell: &Shell, manifest: &str) -> bool {
    let fetch = cmd!(
        shell,
        "cargo fetch --quiet --locked --manifest-path {manifest}"
    );
    fetch.quiet().ignore_stderr().run().is_ok()
}

/// Whether the nightly toolchain has the interpreter.
fn has_miri(shell: &Shell) -> bool {
    let version = cmd!(shell, "rustup run nightly cargo miri --version");
    version.quiet().ignore_stderr().read().is_ok()
}
