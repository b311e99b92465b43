//! The error type of this crate.

use std::error::Error as StdError;
use std::fmt;
use std::io::{self, ErrorKind};

use gpipe_sched::PipelineError;

/// A failure to prepare or run training.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The request is invalid. The message names the cause and the remedy; a setting that remedies it is
    /// written as `` `section.key = value` ``. Nothing was written.
    Invalid(String),
    /// The request is invalid, with an illustration of the fault: the table of a schedule.
    Drawn {
        /// The message, one line.
        message: String,
        /// The lines to show below it.
        picture: String,
    },
    /// The request is refused by a library below. Nothing was written.
    Input(BoxedError),
    /// A run failed.
    Run {
        /// The failed operation, if the source does not name it.
        context: Option<String>,
        /// The cause.
        source: BoxedError,
    },
    /// A training step failed.
    Step {
        /// Its number, from 1.
        step: u64,
        /// Whether it failed before the update: parameters are those of the step before.
        is_before_update: bool,
        /// The cause.
        source: BoxedError,
    },
}

/// An error of any library.
pub type BoxedError = Box<dyn StdError + Send + Sync>;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// [`Error::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }

    /// [`Error::Invalid`] for ranks that cannot run the same number of replicas each.
    pub(crate) fn uneven_replicas(replicas: u64, ranks: u64) -> Self {
        Self::invalid(format!(
            "{replicas} replicas on {ranks} ranks: each is run by as many ranks, so start a multiple of {replicas}"
        ))
    }

    /// [`Error::Input`].
    pub fn input(source: impl Into<BoxedError>) -> Self {
        Self::Input(source.into())
    }

    /// [`Error::Run`] without a context.
    pub fn run(source: impl Into<BoxedError>) -> Self {
        Self::Run {
            context: None,
            source: with_key(source.into()),
        }
    }

    /// [`Error::Run`] during an operation.
    pub fn run_in(context: impl Into<String>, source: impl Into<BoxedError>) -> Self {
        Self::Run {
            context: Some(context.into()),
            source: with_key(source.into()),
        }
    }

    /// [`Error::Run`] for a model whose logits are not finite.
    pub(crate) fn diverged() -> Self {
        Self::run("the logits are not finite: the weights have diverged, use an earlier checkpoint")
    }

    /// [`Error::Drawn`] from a text whose first line is the message and whose others are the picture;
    /// [`Error::Invalid`] for one line.
    pub(crate) fn drawn(text: String) -> Self {
        match text.split_once('\n') {
            Some((message, picture)) => Self::Drawn {
                message: message.to_owned(),
                picture: picture.to_owned(),
            },
            None => Self::Invalid(text),
        }
    }

    /// Whether the parameters are those of the last step that was made, as after any failure but one
    /// within an update.
    pub(crate) fn leaves_parameters(&self) -> bool {
        !matches!(
            self,
            Self::Step {
                is_before_update: false,
                ..
            }
        )
    }

    /// Whether a step found a loss or a gradient that is not finite. It does so again from the same
    /// parameters.
    pub(crate) fn is_non_finite(&self) -> bool {
        matches!(self, Self::Step { source, .. } if source.is::<NonFiniteStep>())
    }

    /// Whether the request is invalid, as opposed to a run that failed: also one that a picture of its data ended,
    /// which only a step met.
    pub fn is_input_error(&self) -> bool {
        match self {
            Self::Run { source, .. } | Self::Step { source, .. } => is_fault_of_data(source),
            _ => true,
        }
    }
}

/// Whether data is the cause of a failed run.
fn is_fault_of_data(source: &BoxedError) -> bool {
    if let Some(failed) = source.downcast_ref::<FailedRun>() {
        return match &failed.error {
            Error::Run { source, .. } | Error::Step { source, .. } | Error::Input(source) => {
                is_fault_of_data(source)
            }
            _ => false,
        };
    }
    let error = source.downcast_ref::<gpipe_data::Error>();
    error.is_some_and(gpipe_data::Error::is_input_error)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(message) | Self::Drawn { message, .. } => f.write_str(message),
            Self::Input(source) => source.fmt(f),
            Self::Step { step, .. } => write!(f, "step {step}"),
            Self::Run {
                context: Some(context),
                ..
            } => f.write_str(context),
            Self::Run {
                context: None,
                source,
            } => source.fmt(f),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Invalid(_) | Self::Drawn { .. } => None,
            Self::Step { source, .. }
            | Self::Run {
                context: Some(_),
                source,
            } => Some(source.as_ref()),
            // These display as their source, which is skipped in the chain.
            Self::Input(source)
            | Self::Run {
                context: None,
                source,
            } => source.source(),
        }
    }
}

/// A loss or a gradient that is not finite, and a mend.
#[derive(Debug)]
pub(crate) struct NonFiniteStep(pub String);

impl fmt::Display for NonFiniteStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for NonFiniteStep {}

/// A run that failed, and what is left of it.
#[derive(Debug)]
pub(crate) struct FailedRun {
    /// The error in one line, and the checkpoint to go on from.
    pub message: String,
    /// The error.
    pub error: Error,
}

impl fmt::Display for FailedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for FailedRun {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.error)
    }
}

/// `EMFILE` of Linux, macOS and the BSDs, which has no [`ErrorKind`].
const TOO_MANY_FILES: i32 = 24;

/// An error and its causes in one line, with the mend of a file that the system does not open, or lets grow no further.
/// Causes that are part of an earlier message are left out.
pub fn one_line(error: &(dyn StdError + 'static)) -> String {
    let mut line = String::new();
    let add = |line: &mut String, words: &str| {
        if !line.contains(words) {
            *line += if line.is_empty() { "" } else { ": " };
            *line += words;
        }
    };
    let mut cause = Some(error);
    while let Some(error) = cause {
        add(&mut line, &error.to_string());
        let fault = error.downcast_ref::<io::Error>();
        let of_rank = fault.and_then(told_by_a_rank);
        let fault = of_rank.as_ref().or(fault);
        let mend = match fault.map(io::Error::kind) {
            Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => "make room on the disk",
            Some(ErrorKind::FileTooLarge) => "raise the limit on the size of files (ulimit -f)",
            Some(ErrorKind::PermissionDenied) => "give this user the permission (chmod)",
            // Other mends that stand there say that too.
            Some(ErrorKind::ReadOnlyFilesystem) if line.ends_with(')') => {
                "choose a disk that can be written"
            }
            _ if fault.is_some_and(|fault| fault.raw_os_error() == Some(TOO_MANY_FILES)) => {
                "raise the limit of open files (ulimit -n)"
            }
            _ => "",
        };
        add(&mut line, mend);
        cause = error.source();
    }
    line
}

/// The error of the system that another rank told as text, at whose end it stands.
fn told_by_a_rank(told: &io::Error) -> Option<io::Error> {
    if told.raw_os_error().is_some() {
        return None;
    }
    let told = told.to_string();
    let (_, code) = told.strip_suffix(')')?.rsplit_once("(os error ")?;
    Some(io::Error::from_raw_os_error(code.parse().ok()?))
}

/// Names the key that sets the deadline of the workers, if a call has missed it.
pub(crate) fn with_key(source: BoxedError) -> BoxedError {
    let of_pipeline = match source.downcast_ref() {
        Some(gpipe_remat::Error::Pipeline(error)) => Some(error),
        _ => source.downcast_ref(),
    };
    match of_pipeline {
        Some(error @ PipelineError::Overdue { .. }) => error
            .to_string()
            .replace("raise the deadline", "raise `run.watchdog`")
            .into(),
        _ => source,
    }
}

/// Converts errors of the libraries below: input errors to `Input`, others to `Run`.
macro_rules! from_library {
    ($($library:ident),*) => {
        $(impl From<$library::Error> for Error {
            fn from(error: $library::Error) -> Self {
                match error.is_input_error() {
                    true => Self::input(error),
                    false => Self::run(error),
                }
            }
        })*
    };
}

from_library!(gpipe_checkpoint, gpipe_data, gpipe_hf, gpipe_report);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_comes_before_its_source_and_other_words_are_not_repeated() {
        let disk = || io::Error::other("disk full");
        let failed = Error::run_in("step 3", disk());
        assert_eq!(failed.to_string(), "step 3");
        assert_eq!(failed.source().unwrap().to_string(), "disk full");
        assert!(!failed.is_input_error());
        let refused = Error::input(disk());
        assert_eq!(refused.to_string(), "disk full");
        assert!(refused.source().is_none() && refused.is_input_error());
    }

    #[cfg(unix)]
    #[test]
    fn limits_of_the_system_have_a_mend() {
        for (code, mend) in [
            (TOO_MANY_FILES, "raise the limit of open files (ulimit -n)"),
            (28, "make room on the disk"),
            (13, "give this user the permission (chmod)"),
            (30, "choose a disk that can be written"),
        ] {
            let fault = io::Error::from_raw_os_error(code);
            let error = gpipe_files::Error::write("run/log.txt".as_ref())(fault);
            let line = one_line(&Error::from(gpipe_report::Error::from(error)));
            assert!(line.ends_with(mend), "{line}");
            // That of another rank arrives as text.
            let told = format!("rank 1 (beta): {}", io::Error::from_raw_os_error(code));
            let error = gpipe_files::Error::write("run/log.txt".as_ref())(io::Error::other(told));
            let line = one_line(&Error::from(gpipe_report::Error::from(error)));
            assert!(line.ends_with(mend), "{line}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_on_a_disk_that_is_only_read_has_one_mend() {
        let fault = io::Error::from_raw_os_error(30);
        let error = gpipe_files::Error::write("run/.lock".as_ref())(fault);
        let line = one_line(&Error::from(gpipe_checkpoint::Error::ReadOnly(error)));
        assert!(line.ends_with("or choose another one"), "{line}");
    }

    #[test]
    fn a_missed_deadline_names_its_key() {
        let overdue = || PipelineError::Overdue {
            seconds: 60.0,
            stuck: Vec::new(),
        };
        for error in [
            Error::run(overdue()),
            Error::run(gpipe_remat::Error::from(overdue())),
            Error::run_in("step 1", gpipe_remat::Error::from(overdue())),
        ] {
            let Error::Run { source, .. } = &error else {
                panic!("{error}");
            };
            let text = source.to_string();
            assert!(text.contains("raise `run.watchdog`"), "{text}");
        }
    }

    #[test]
    fn lines_after_the_first_are_a_picture() {
        let Error::Drawn { message, picture } = Error::drawn("a\nb\nc".to_owned()) else {
            panic!("one line");
        };
        assert_eq!((message.as_str(), picture.as_str()), ("a", "b\nc"));
        assert!(matches!(Error::drawn("a".to_owned()), Error::Invalid(_)));
    }
}
