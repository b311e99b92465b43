//! Arguments of `gpipe generate`.

use std::path::PathBuf;

use clap::Subcommand;
use clap_complete::Shell;

/// Arguments of `gpipe generate`.
#[derive(Debug, clap::Args)]
pub struct GenerateArgs {
    /// The files to write.
    #[command(subcommand)]
    pub what: Artifact,
}

/// Files generated from the description of the command line.
#[derive(Debug, Subcommand)]
pub enum Artifact {
    /// Write the completions for a shell
    #[command(after_long_help = "Examples:
  gpipe generate completions bash ~/.local/share/bash-completion/completions
  gpipe generate completions fish ~/.config/fish/completions
  gpipe generate completions zsh           to stdout")]
    Completions {
        /// The shell
        shell: Shell,
        /// Write a file of the usual name into this folder, not to stdout
        dir: Option<PathBuf>,
    },
    /// Write the pages for man, one a command
    #[command(after_long_help = "Examples:
  gpipe generate man ~/.local/share/man/man1
  gpipe generate man | man -l -            one page after the other")]
    Man {
        /// Write the files gpipe.1, gpipe-train.1 and so on into this folder, not to stdout
        dir: Option<PathBuf>,
    },
}
