#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod args;
mod commands;
mod fail;
mod output;
#[doc(hidden)]
pub mod parsers;
mod ranks;
mod signals;

use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches};
use gpipe_train::Overrides;

use args::{Args, Color, Command, LaunchedArgs, key_of, set_command};
use fail::{Fail, Result};

/// Runs the program: parses the arguments, runs the command and returns the exit code.
pub fn main() -> ExitCode {
    signals::outlive_file_limit();
    let parsed = Args::command().try_get_matches().and_then(|matches| {
        let name = matches.subcommand_name().unwrap_or_default();
        if let Some(command) = Args::command().find_subcommand(name) {
            set_command(command.clone());
        }
        Args::from_arg_matches(&matches)
    });
    let args = match parsed {
        Ok(args) => args,
        Err(error) => return usage_error(&error),
    };
    let choice = match args.output.color {
        Color::Auto => anstream::ColorChoice::Auto,
        Color::Always => anstream::ColorChoice::Always,
        Color::Never => anstream::ColorChoice::Never,
    };
    choice.write_global();
    match ranks::end(run(&args), args.output.verbose) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fail) => ExitCode::from(fail.exit_code()),
    }
}

fn run(args: &Args) -> Result<()> {
    let output = args.output;
    match &args.command {
        Command::Train(train) => {
            ranks::over(&train.launched, || commands::train::run(train, output))
        }
        Command::Verify(verify) => {
            ranks::over(&verify.launched, || commands::verify::run(verify, output))
        }
        Command::Eval(eval) => ranks::over(&LaunchedArgs::default(), || {
            commands::eval::run(eval, output)
        }),
        Command::Predict(predict) => ranks::over(&LaunchedArgs::default(), || {
            commands::predict::run(predict, output)
        }),
        Command::Sample(sample) => ranks::over(&LaunchedArgs::default(), || {
            commands::sample::run(sample, output)
        }),
        Command::Devices => {
            ranks::over(&LaunchedArgs::default(), || commands::devices::run(output))
        }
        Command::Plan(plan) if plan.profile => ranks::over(&LaunchedArgs::default(), || {
            commands::plan::run(plan, output)
        }),
        Command::Plan(plan) => ranks::alone("plan", || commands::plan::run(plan, output)),
        Command::Check(check) => ranks::alone("check", || commands::check::run(check, output)),
        Command::Report(report) => ranks::alone("report", || commands::report::run(report, output)),
        Command::Generate(what) => ranks::alone("generate", || commands::generate::run(what)),
        Command::Help(help) => commands::help::run(help),
    }
}

/// Flags of other programs that no flag here resembles, and those that do the same.
const OTHER_NAMES: [(&str, &str); 3] = [
    ("--data-parallel", "--replicas"),
    ("--epochs", "--steps"),
    ("--gpus", "--devices"),
];

/// Prints help and version as clap does, and a usage error as one line.
fn usage_error(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let code = if error.use_stderr() { 2 } else { 0 };
        let Err(fault) = error.print() else {
            return ExitCode::from(code);
        };
        let fail = Fail::write("help")(fault);
        fail.report(false);
        return ExitCode::from(code.max(fail.exit_code()));
    }
    let fail = usage_fail(error);
    fail.report(false);
    ExitCode::from(fail.exit_code())
}

/// A usage error in one line, with a mend.
fn usage_fail(error: &clap::Error) -> Fail {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let typed = context(ContextKind::InvalidArg);
    if let (ErrorKind::ValueValidation, Some(mend)) = (error.kind(), error.source()) {
        let flag = typed.split(' ').next().unwrap_or_default();
        let value = context(ContextKind::InvalidValue);
        return Fail::invalid(format!("{flag} {value}: {mend}"));
    }
    if error.kind() == ErrorKind::InvalidUtf8 {
        let is_other = |argument: &OsString| argument.to_str().is_none();
        let argument = std::env::args_os().find(is_other).unwrap_or_default();
        return Fail::invalid(format!(
            "{}: is not UTF-8: type it anew, or rename the file",
            argument.display()
        ));
    }
    let text = error.render().to_string();
    let lines = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:"));
    // Following clap's advice `-- VALUE` is refused where the value is that of a flag.
    let unwanted = ["For more information", "tip: to pass '"];
    let is_said = |line: &&str| !unwanted.iter().any(|words| line.starts_with(words));
    let lines = lines.filter(|line| !line.is_empty() && is_said(line));
    let mut message = String::new();
    for line in lines {
        message += match message.chars().last() {
            None => "",
            Some(':') => " ",
            Some(_) => "; ",
        };
        message += line
            .trim_start_matches("error: ")
            .trim_start_matches("tip: ");
    }
    if let Some((_, own)) = OTHER_NAMES.iter().find(|(other, _)| *other == typed) {
        message =
            format!("unexpected argument '{typed}' found; a similar argument exists: '{own}'");
    }
    let is_of = |commands: &[&str]| {
        let is_of = |command: &&str| text.contains(&format!("Usage: gpipe {command} "));
        error.kind() == ErrorKind::UnknownArgument && commands.iter().any(is_of)
    };
    let is_flag = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_value = !typed.starts_with("--") || !typed.chars().all(is_flag);
    let is_taken = |key: &str| Overrides::is_read_by_forward_passes(key, is_of(&["eval"]));
    let mend = match (key_of(typed), typed.starts_with('-')) {
        (Some("model.name"), _) if is_of(&["eval", "predict", "sample"]) => {
            "name the model without a flag; "
        }
        (Some(key), _) if is_of(&["eval", "predict", "sample"]) && is_taken(key) => {
            &*format!("use --set {key}=VALUE; ")
        }
        (_, false) if is_of(&["train", "plan", "verify"]) => {
            "use a flag, as in --model gpt2, --data notes.txt or --set KEY=VALUE; "
        }
        (_, true)
            if is_value && is_of(&["train", "plan", "verify", "eval", "predict", "sample"]) =>
        {
            "write FLAG=VALUE where the value of a flag begins with a dash; "
        }
        _ => "",
    };
    Fail::invalid(format!(
        "{message}; {mend}--help lists all commands and flags"
    ))
}
