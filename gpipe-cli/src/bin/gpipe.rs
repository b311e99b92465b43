//! The program `gpipe`, implemented in the library for tests and fuzzers.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gpipe_cli::main()
}
