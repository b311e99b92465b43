//! Automation for gpipe, with no tool but cargo: `cargo xtask tidy | ci | exam | bench | dist | gpu | parity | reference`.
#![forbid(unsafe_code)]

mod bench;
mod ci;
mod deny;
mod dist;
mod exam;
mod flags;
mod gpu;
mod help;
mod package;
mod parity;
mod targets;
mod tidy;
mod tree;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context as _;
use xshell::{Shell, cmd};

use flags::{Xtask, XtaskCmd};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let command = arguments.first().and_then(|first| first.to_str());
    let command = command.unwrap_or_default().to_owned();
    let flags = match Xtask::from_vec(arguments) {
        Ok(flags) => flags,
        Err(error) if error.is_help() => {
            println!("{}", help::of(&error.to_string(), &command));
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("error: {error}: see cargo xtask --help");
            return ExitCode::from(2);
        }
    };
    match run(&flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            match error.is::<gpu::programs::Missing>() {
                true => ExitCode::from(2),
                false => ExitCode::FAILURE,
            }
        }
    }
}

fn run(flags: &Xtask) -> anyhow::Result<()> {
    let shell = Shell::new()?;
    if let XtaskCmd::Gpu(flags) = &flags.subcommand
        && flags.programs.is_some()
    {
        // Packed, on a machine without the workspace.
        return gpu::check(&shell, flags);
    }
    let root = tree::root().context("xtask lies in the workspace that it works on")?;
    shell.change_dir(&root);
    match &flags.subcommand {
        XtaskCmd::Tidy(flags) => {
            let root = flags.root.as_deref().unwrap_or(&root);
            match flags.circles {
                true => tidy::list_circles(root),
                false => tidy::run(root),
            }
        }
        XtaskCmd::Ci(flags) => ci::run(&shell, &root, flags),
        XtaskCmd::Parity(flags) => parity::run(&shell, &root, flags),
        XtaskCmd::Exam(flags) => exam::run(&shell, flags),
        XtaskCmd::Bench(flags) => bench::run(&shell, &root, flags),
        XtaskCmd::Gpu(flags) => gpu::run(&shell, &root, flags),
        XtaskCmd::Reference(_) => reference(&shell),
        XtaskCmd::Dist(flags) => dist::run(&shell, &root, flags),
    }
}

/// Lets the test that compares the pages with the program write them; what it cannot write, it names.
fn reference(shell: &Shell) -> anyhow::Result<()> {
    let test = cmd!(
        shell,
        "cargo test --quiet -p gpipe-cli --test cli reference::"
    );
    // The first run fails where it has written something.
    test.ignore_status()
        .quiet()
        .ignore_stdout()
        .ignore_stderr()
        .env("GPIPE_REFERENCE", "write")
        .run()?;
    Ok(cmd!(
        shell,
        "cargo test --quiet -p gpipe-cli --test cli reference::"
    )
    .run()?)
}
