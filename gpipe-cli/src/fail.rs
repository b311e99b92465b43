//! Failures of commands, their messages and exit codes.

use std::io;

use gpipe_report::NewRun;
use gpipe_train::{Error, printable};

use crate::args::{flag_for, flag_of};
use crate::output::{style, tell};
use crate::signals::STOPPED;

/// The failure of a command, by exit code.
#[derive(Debug)]
pub enum Fail {
    /// The request is invalid: exit code 2. Nothing was written.
    Usage(anyhow::Error),
    /// A run failed: exit code 1.
    Run(anyhow::Error),
    /// `gpipe verify` found and printed a difference, or `gpipe check` a fault: exit code 1.
    Unequal,
    /// A signal stopped the run, which has reported it: exit code 130.
    Stopped,
    /// The reader of stdout is gone, as in `gpipe … | head`: exit code 0.
    Closed,
}

/// The result of a command.
pub type Result<T> = std::result::Result<T, Fail>;

impl Fail {
    /// An invalid request; the message names the cause and the remedy.
    pub fn usage(fault: impl Into<anyhow::Error>) -> Self {
        Self::Usage(fault.into())
    }

    /// [`Fail::usage`] from a message.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Usage(anyhow::Error::msg(message.into()))
    }

    /// A failed run.
    pub fn run(failure: impl Into<anyhow::Error>) -> Self {
        Self::Run(failure.into())
    }

    /// A failure to write `what`; [`Fail::Closed`] for a closed pipe.
    pub fn write(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |error| match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Run(anyhow::Error::new(error).context(format!("cannot write {what}"))),
        }
    }

    /// The exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Run(_) | Self::Unequal => 1,
            Self::Stopped => STOPPED,
            Self::Closed => 0,
        }
    }

    /// The error message in one line; `None` if it was reported already.
    pub fn line(&self) -> Option<String> {
        match self {
            Self::Usage(error) | Self::Run(error) => Some(one_line(error)),
            _ => None,
        }
    }

    /// Prints the error to stderr: one line, an illustration if there is one, and with `chain` the causes.
    pub fn report(&self, chain: bool) {
        let (Self::Usage(error) | Self::Run(error)) = self else {
            return;
        };
        let line = one_line(error);
        tell(&format!("{}error:{} {line}", style::ERROR, style::RESET));
        if let Some(Drawn { picture, .. }) = error.downcast_ref() {
            for line in picture.lines() {
                tell(&format!("  {}", printable(line)));
            }
        }
        if chain {
            for cause in error.chain() {
                let cause = printable(&with_flags(&cause.to_string()));
                tell(&format!("  caused by: {cause}"));
            }
        }
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        match error {
            Error::Invalid(message) => Self::invalid(message),
            Error::Drawn { message, picture } => Self::usage(Drawn { message, picture }),
            Error::Input(source) => match source.downcast::<gpipe_report::Error>() {
                Ok(error) => Self::from(*error),
                Err(source) => Self::Usage(anyhow::Error::from_boxed(source)),
            },
            error if error.is_input_error() => Self::usage(error),
            error => Self::run(error),
        }
    }
}

/// Adds the flags that remedy errors of run folders and pages.
impl From<gpipe_report::Error> for Fail {
    fn from(error: gpipe_report::Error) -> Self {
        use gpipe_report::Error as Report;
        use io::ErrorKind::FileTooLarge;
        let out = |path: &std::path::Path, words: &str| {
            Self::invalid(format!("--out {}: {words}", path.display()))
        };
        match &error {
            Report::FolderExists { path } => match NewRun::at(path, true) {
                Ok(_) => out(
                    path,
                    "exists already: choose another folder, or --overwrite",
                ),
                // Nor would that help.
                Err(refused) => refused.into(),
            },
            Report::NotAFolder { path } => out(
                path,
                "is no folder, and --overwrite replaces folders only: choose another name",
            ),
            Report::NotARun { path } => out(
                path,
                "is neither empty nor the folder of a run, and --overwrite replaces only those: choose another \
                 folder, or empty it",
            ),
            Report::FolderNotMade { .. } => Self::invalid(format!("--out {error}")),
            Report::NoFreeName { runs } => Self::invalid(format!(
                "no name is free in {}: choose one with --out",
                runs.display()
            )),
            Report::PageNotWritten { source, .. } if source.kind() == FileTooLarge => {
                Self::run(error)
            }
            Report::PageNotWritten { .. } => Self::invalid(format!("{error} with --out")),
            other if other.is_input_error() => Self::usage(error),
            _ => Self::run(error),
        }
    }
}

impl From<gpipe_checkpoint::Error> for Fail {
    fn from(error: gpipe_checkpoint::Error) -> Self {
        Error::from(error).into()
    }
}

/// An error with an illustration.
#[derive(Debug)]
struct Drawn {
    message: String,
    picture: String,
}

impl std::fmt::Display for Drawn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Drawn {}

/// The error and its causes in one line. Causes that are part of an earlier message are left out.
fn one_line(error: &anyhow::Error) -> String {
    printable(&with_flags(&gpipe_train::one_line(error.as_ref())))
}

/// Replaces settings and keys in the message of a library, such as `` `pipeline.stages = 4` `` or
/// `` `pipeline.stages` ``, by flags. A mistyped key stays one.
pub fn with_flags(message: &str) -> String {
    let mut parts = message.split('`');
    let mut line = parts.next().unwrap_or_default().to_owned();
    let is_key = |key: &str| {
        let plain = |part: &str| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        key.split_once('.')
            .is_some_and(|(section, key)| plain(section) && plain(key))
    };
    // A part is quoted if another one follows; quotes around anything but a setting stay.
    let mut in_quotes = true;
    while let Some(part) = parts.next() {
        let names_key = ["unknown key ", "did you mean "]
            .iter()
            .any(|end| line.ends_with(end));
        let typed = match part.split_once(" = ") {
            Some((key, value)) if is_key(key) => Some(flag_for(key, value)),
            // A flag that sets a key to false is no name of it.
            None if !names_key => flag_of(part)
                .filter(|flag| !flag.starts_with("--no-"))
                .map(str::to_owned),
            _ => None,
        };
        match typed {
            Some(typed) if in_quotes => {
                line += &typed;
                line += parts.next().unwrap_or_default();
            }
            _ => {
                line.push('`');
                line += part;
                in_quotes = !in_quotes;
            }
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_without_repetition() {
        let error = anyhow::anyhow!("disk full")
            .context("write: disk full")
            .context("step\t3\nhere");
        assert_eq!(one_line(&error), "step\\t3; here: write: disk full");
    }

    #[test]
    fn settings_become_flags() {
        let cases = [
            (
                "8 stages: use `pipeline.stages = 6` or fewer",
                "8 stages: use --stages 6 or fewer",
            ),
            (
                "unknown key `run.stpes`: did you mean `run.steps`?",
                "unknown key `run.stpes`: did you mean `run.steps`?",
            ),
            (
                "`data.source = a b`: empty: use `model.vocab = 256`",
                "--data a b: empty: use --set model.vocab=256",
            ),
            (
                "use `run.tf32 = false` or `data.shuffle = false`",
                "use --set run.tf32=false or --no-shuffle",
            ),
            ("lower `optimizer.lr`, or `run.x`", "lower --lr, or `run.x`"),
            ("`data.shuffle` is true", "`data.shuffle` is true"),
            ("`a`: use `pipeline.stages = 1`", "`a`: use --stages 1"),
            ("one ` alone", "one ` alone"),
        ];
        for (message, line) in cases {
            assert_eq!(with_flags(message), line);
        }
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let closed = Fail::write("stdout")(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(closed.exit_code(), 0);
        let full = Fail::write("stdout")(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(full.exit_code(), 1);
    }
}
