//! The examples of the help texts, read as a user would type them.

use clap::{CommandFactory, Parser};

use super::Args;

/// The lines below `Examples:`, without the words that explain them.
fn examples(command: &clap::Command) -> Vec<String> {
    let help = command.get_after_long_help().map(ToString::to_string);
    let help = help.unwrap_or_default();
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    let lines = lines.take_while(|line| line.starts_with("  "));
    lines
        .map(|line| {
            line.trim()
                .split("  ")
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .collect()
}

#[test]
fn every_command_has_examples_and_every_example_parses() {
    let mut program = Args::command();
    program.build();
    let mut open = vec![program];
    while let Some(command) = open.pop() {
        let name = command.get_bin_name().unwrap_or_default().to_owned();
        if command.get_name() == "help" {
            continue;
        }
        let examples = examples(&command);
        assert!(!examples.is_empty(), "no example in {name} --help");
        let help = command.get_after_long_help().map(ToString::to_string);
        for line in help.iter().flat_map(|help| help.lines()) {
            assert!(
                line.chars().count() <= 80,
                "too long for a terminal: {line}"
            );
        }
        for example in &examples {
            if example.starts_with("tensorboard ") {
                continue;
            }
            assert!(example.starts_with(&name), "{example} is none of {name}");
            let words = example.split(" | ").next().unwrap_or_default();
            if let Err(error) = Args::try_parse_from(words.split_whitespace())
                && error.kind() != clap::error::ErrorKind::DisplayHelp
            {
                panic!("{example}: {error}");
            }
        }
        open.extend(command.get_subcommands().cloned());
    }
}
