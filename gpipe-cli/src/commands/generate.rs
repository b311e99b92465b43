//! `gpipe generate`: shell completions and man pages, generated from the description of the command
//! line.

use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::{Generator, Shell};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::args::{Args, Artifact, GenerateArgs};
use crate::fail::{Fail, Result};
use crate::output::print;

/// The name of the program.
const NAME: &str = "gpipe";

/// Writes the files to stdout or into a folder.
pub fn run(args: &GenerateArgs) -> Result<()> {
    let (files, folder) = match &args.what {
        Artifact::Completions { shell, dir } => (vec![completions(*shell)], dir),
        Artifact::Man { dir } => (pages()?, dir),
    };
    match folder {
        Some(folder) => save(&files, folder),
        None => {
            let text: String = files.iter().map(|file| file.text.as_str()).collect();
            print(&text)
        }
    }
}

/// A file with its name.
struct Named {
    name: String,
    text: String,
}

fn completions(shell: Shell) -> Named {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), NAME, &mut script);
    Named {
        name: shell.file_name(NAME),
        text: String::from_utf8_lossy(&script).into_owned(),
    }
}

/// A page for the program and one for each command below it.
fn pages() -> Result<Vec<Named>> {
    // These pages replace those of the help subcommand.
    let mut command = Args::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    let mut open = vec![command];
    while let Some(command) = open.pop() {
        let below: Vec<Command> = command.get_subcommands().cloned().collect();
        open.extend(below.into_iter().rev());
        pages.push(page(command)?);
    }
    Ok(pages)
}

/// The sections in the order of man-pages(7).
fn page(mut command: Command) -> Result<Named> {
    let usage = command.render_usage().to_string();
    let forms = usage.trim_start_matches("Usage:").trim().to_owned();
    let name = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
        .to_owned();
    let notes = command.get_after_long_help().map(ToString::to_string);
    let has_commands = command.has_subcommands();
    // A synopsis of all options would be too long.
    let man = Man::new(command.override_usage(forms))
        .title(name.to_uppercase())
        .source(concat!("gpipe ", env!("CARGO_PKG_VERSION")))
        .manual("gpipe");
    let mut text = Vec::new();
    let render = |text: &mut Vec<u8>| {
        man.render_title(text)?;
        man.render_name_section(text)?;
        man.render_synopsis_section(text)?;
        man.render_description_section(text)?;
        if has_commands {
            man.render_subcommands_section(text)?;
        }
        man.render_options_section(text)?;
        sections(notes.as_deref().unwrap_or_default()).to_writer(text)
    };
    render(&mut text).map_err(Fail::write(format!("the page {name}.1")))?;
    Ok(Named {
        name: format!("{name}.1"),
        text: String::from_utf8_lossy(&text).into_owned(),
    })
}

/// Formats the text after the options of `--help`: paragraphs, and headings with a colon above indented
/// lines.
fn sections(help: &str) -> Roff {
    let mut roff = Roff::new();
    for paragraph in help.split("\n\n") {
        match paragraph.split_once(":\n") {
            Some((heading, lines)) => {
                roff.control("SH", [heading.to_uppercase().as_str()]);
                roff.control("nf", []);
                for line in lines.lines() {
                    roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
                }
                roff.control("fi", []);
            }
            None => {
                roff.control("PP", []);
                roff.text([roman(paragraph)]);
            }
        }
    }
    roff
}

fn save(files: &[Named], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| {
        Fail::invalid(format!(
            "{}: {error}: name a folder that can be made",
            folder.display()
        ))
    })?;
    for file in files {
        let path = folder.join(&file.name);
        let written = gpipe_files::replace(&path, file.text.as_bytes());
        written.map_err(|error| match error.is_input_error() {
            true => Fail::usage(error),
            false => Fail::run(error),
        })?;
    }
    Ok(())
}
