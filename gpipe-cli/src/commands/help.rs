//! `gpipe help`: the help of a command, or the page on schedules.

use clap::CommandFactory;

use super::schedules;
use crate::args::{Args, HelpArgs};
use crate::fail::{Fail, Result};
use crate::output::{print, terminal_width};

/// Prints the help of a topic, or of the program without one.
pub fn run(args: &HelpArgs) -> Result<()> {
    let mut program = Args::command();
    program.build();
    let printed = match args.topic.as_deref() {
        None => program.print_long_help(),
        Some("schedules") => return print(&schedules::page(terminal_width())?),
        Some(topic) => match program.find_subcommand_mut(topic) {
            Some(command) => command.print_long_help(),
            None => {
                let names: Vec<&str> = program.get_subcommands().map(|c| c.get_name()).collect();
                return Err(Fail::invalid(format!(
                    "no help on `{topic}`: use one of {}, schedules",
                    names.join(", ")
                )));
            }
        },
    };
    printed.map_err(Fail::write("help"))
}
