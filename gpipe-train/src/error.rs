//! Why training could not begin or go on.

use std::error::Error as StdError;
use std::fmt;

/// The error of this crate.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// What was asked for cannot be done, in words that name the thing and the mend. Nothing was left
    /// behind. A setting that mends it is written as `` `section.key = value` ``.
    Invalid(String),
    /// The same, where the second part is a picture of what is wrong: a table of a schedule.
    Drawn {
        /// One line.
        message: String,
        /// Lines to be shown below it.
        picture: String,
    },
    /// A part refuses what was asked for. Nothing was left behind.
    Input(BoxedError),
    /// A run failed on its way.
    Run {
        /// What was being done, if there is more to say than the source says.
        context: Option<String>,
        /// Why it failed.
        source: BoxedError,
    },
}

/// The error of any part.
pub type BoxedError = Box<dyn StdError + Send + Sync>;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// [`Error::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }

    /// [`Error::Input`].
    pub fn input(source: impl Into<BoxedError>) -> Self {
        Self::Input(source.into())
    }

    /// [`Error::Run`] without a context.
    pub fn run(source: impl Into<BoxedError>) -> Self {
        Self::Run {
            context: None,
            source: source.into(),
        }
    }

    /// [`Error::Run`] while something was being done.
    pub fn run_in(context: impl Into<String>, source: impl Into<BoxedError>) -> Self {
        Self::Run {
            context: Some(context.into()),
            source: source.into(),
        }
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

    /// Whether what was asked for cannot be done, as opposed to a run that failed on its way.
    pub fn is_input_error(&self) -> bool {
        !matches!(self, Self::Run { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(message) | Self::Drawn { message, .. } => f.write_str(message),
            Self::Input(source) => source.fmt(f),
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
            Self::Run {
                context: Some(_),
                source,
            } => Some(source.as_ref()),
            // These speak with the words of their source.
            Self::Input(source)
            | Self::Run {
                context: None,
                source,
            } => source.source(),
        }
    }
}

/// Errors of the libraries below, by whether they blame what was asked for.
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
        let disk = || std::io::Error::other("disk full");
        let failed = Error::run_in("step 3", disk());
        assert_eq!(failed.to_string(), "step 3");
        assert_eq!(failed.source().unwrap().to_string(), "disk full");
        assert!(!failed.is_input_error());
        let refused = Error::input(disk());
        assert_eq!(refused.to_string(), "disk full");
        assert!(refused.source().is_none() && refused.is_input_error());
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
