//! The program `gpipe`; all of it is in the library, where tests and fuzzers reach it too.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gpipe_cli::main()
}
