//! `gpipe help`: a command's own help, or a page on a subject.

use clap::CommandFactory;

use super::schedules;
use crate::args::{Args, HelpArgs};
use crate::fail::{Fail, Result};
use crate::output::print;

/// Explains what was asked for; everything in short, if nothing was.
pub fn run(args: &HelpArgs) -> Result<()> {
    let mut program = Args::command();
    program.build();
    let text = match args.topic.as_deref() {
        None => program.render_long_help(),
        Some("schedules") => return print(&schedules::page()?),
        Some(topic) => match program.find_subcommand_mut(topic) {
            Some(command) => command.render_long_help(),
            None => {
                let names: Vec<&str> = program.get_subcommands().map(|c| c.get_name()).collect();
                return Err(Fail::asked(format!(
                    "no help on `{topic}`: there is {} and schedules",
                    names.join(", ")
                )));
            }
        },
    };
    print(&text.ansi().to_string())
}
