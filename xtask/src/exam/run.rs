//! Running the tests of a row and reading what they counted.

use anyhow::Context as _;
use xshell::{Shell, cmd};

use super::numbers::Numbers;
use super::rows::Row;
use super::tally::{self, Tally};
use super::test::Test;

/// What became of a row that did not fail.
pub enum Outcome {
    /// What it counted.
    Passed(String),
    /// What it needs and this machine lacks.
    LeftOut(String),
}

/// Runs a row; an error unless what it counts is as it should be.
pub fn row(shell: &Shell, row: &Row, numbers: Numbers) -> anyhow::Result<Outcome> {
    let left_out = |why: &str| Ok(Outcome::LeftOut(why.to_owned()));
    let mut sum = Tally::default();
    let mut figures = String::new();
    if row.tests.iter().any(Test::is_miri) && !has_miri(shell) {
        return left_out("no Miri; rustup component add --toolchain nightly miri");
    }
    for manifest in row.tests.iter().filter_map(Test::manifest) {
        if !can_fetch(shell, &manifest)? {
            return left_out(&format!(
                "no registry to fetch the dependencies of {manifest}"
            ));
        }
    }
    for test in &row.tests {
        let said = output(shell, test, numbers)?;
        if said.contains("no launcher: ") && !said.contains("exam ") {
            return left_out("GPIPE_MPIRUN names no launcher");
        }
        if said.contains("no emulated GPUs: ") {
            return left_out("no GPUs can be emulated here");
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
    Ok(Outcome::Passed(format!(
        "{}{figures}",
        sum.check(at_least)?
    )))
}

/// Runs the planted faults of a row; how many were caught, if all were.
pub fn teeth(shell: &Shell, row: &Row) -> anyhow::Result<Outcome> {
    let test = row.teeth.as_ref().context("no faults are planted for it")?;
    let said = output(shell, test, Numbers::Small)?;
    let tally = Tally::read(&said, &format!("{} teeth", row.name)).check(1)?;
    Ok(Outcome::Passed(format!("teeth {tally}")))
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

/// Whether the dependencies of a package are here or can be downloaded; an error if its lock file is not of them.
fn can_fetch(shell: &Shell, manifest: &str) -> anyhow::Result<bool> {
    let fetch = cmd!(
        shell,
        "cargo fetch --quiet --locked --manifest-path {manifest}"
    );
    let output = fetch.quiet().ignore_status().output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(
        output.status.success() || !said.contains("--locked"),
        "the lock file beside {manifest} is of other dependencies:\n{said}"
    );
    Ok(output.status.success())
}

/// Whether the nightly toolchain has the interpreter.
fn has_miri(shell: &Shell) -> bool {
    let version = cmd!(shell, "rustup run nightly cargo miri --version");
    version.quiet().ignore_stderr().read().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its dependency has another version than the lock file says.
    #[test]
    fn a_stale_lock_file_is_no_missing_registry() {
        let shell = Shell::new().unwrap();
        let folder = shell.create_temp_dir().unwrap();
        let write = |name: &str, text: &str| shell.write_file(folder.path().join(name), text);
        let package = |name: &str, version: &str, rest: &str| {
            format!(
                "[package]\nname = \"{name}\"\nversion = \"{version}\"\nedition = \"2024\"\n{rest}"
            )
        };
        let rest = "[workspace]\n[dependencies]\nb = { path = \"b\" }\n";
        write("Cargo.toml", &package("a", "0.1.0", rest)).unwrap();
        write("src/lib.rs", "").unwrap();
        write("b/src/lib.rs", "").unwrap();
        write("b/Cargo.toml", &package("b", "0.1.0", "")).unwrap();
        let manifest = folder.path().join("Cargo.toml");
        let lock = cmd!(
            shell,
            "cargo generate-lockfile --quiet --offline --manifest-path {manifest}"
        );
        lock.quiet().run().unwrap();
        let manifest = manifest.to_str().unwrap();
        assert!(can_fetch(&shell, manifest).unwrap());
        write("b/Cargo.toml", &package("b", "0.2.0", "")).unwrap();
        let refused = can_fetch(&shell, manifest).unwrap_err().to_string();
        assert!(refused.contains("is of other dependencies"), "{refused}");
    }
}
