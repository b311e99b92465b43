//! The emulated host: small programs that are right run right in every order, and what a program must
//! not do is found.
//!
//! A test runs this very binary again, with the emulated libraries in place of the real ones; there
//! [`a_program`] does what the test asked for.

mod blas;
mod compile;
mod driver;
mod faults;
mod host;
mod operations;
mod orders;
mod waits;

use std::env;
use std::process::{Command, ExitCode};

use host::{Host, Outcome};

/// The variable that names the program to run.
const PROGRAM: &str = "GPIPE_EMULATED_PROGRAM";

/// Whether a program saw what it should.
type Program = fn(argument: &str) -> bool;

const PROGRAMS: [(&str, Program); 7] = [
    ("relay", orders::relay),
    ("fault", faults::program),
    ("compiler", faults::compiler),
    ("products", blas::products),
    ("operations", operations::program),
    ("moves", waits::program),
    ("late", waits::late),
];

/// Runs a program on the emulated host.
fn run(host: &Host, program: &str, argument: &str, settings: &str) -> Outcome {
    let binary = env::current_exe().expect("this binary has a path");
    let mut command = Command::new(binary);
    command.args(["--exact", "a_program", "--nocapture"]);
    command.env(PROGRAM, format!("{program} {argument}"));
    host.run(&mut command, settings)
}

/// No test, but what a test runs.
#[test]
fn a_program() -> ExitCode {
    let Ok(asked) = env::var(PROGRAM) else {
        return ExitCode::SUCCESS;
    };
    let (name, argument) = asked.split_once(' ').unwrap_or((&asked, ""));
    let program = PROGRAMS.iter().find(|(known, _)| *known == name);
    let (_, program) = program.expect("a program that there is");
    match program(argument) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
