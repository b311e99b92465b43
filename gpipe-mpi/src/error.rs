//! Why there is no MPI.

/// Why MPI cannot be used, in one line with a mend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No library was found.
    #[error("no MPI library: {tried}: use --mpi PATH of a libmpi.so")]
    NotFound {
        /// What was tried, and why each failed.
        tried: String,
    },
    /// A library lacks a function.
    #[error("{library}: {message}: use --mpi PATH of another libmpi.so")]
    Unfit {
        /// The library.
        library: String,
        /// What is missing.
        message: String,
    },
    /// The library is not that of the launcher.
    #[error(
        "{launcher} started {started} ranks, but {library} sees {seen}: it belongs to another MPI; use --mpi \
         PATH of the launcher's libmpi.so"
    )]
    WrongLibrary {
        /// The launcher.
        launcher: &'static str,
        /// The ranks that it started.
        started: usize,
        /// The library.
        library: String,
        /// The ranks that the library sees.
        seen: usize,
    },
    /// The library cannot be started by the launcher.
    #[error(
        "{launcher} started this process, but {library} is {version}: use --mpi PATH of the launcher's libmpi.so"
    )]
    OtherMpi {
        /// The launcher.
        launcher: &'static str,
        /// The library.
        library: String,
        /// What it says of itself.
        version: String,
    },
    /// A call failed.
    #[error("{call}: {message}")]
    Call {
        /// The function of MPI.
        call: &'static str,
        /// MPI's text.
        message: String,
    },
    /// Some rank did not start MPI in time, which all start together.
    #[error(
        "MPI has not started after {seconds} s: a rank is missing, or ended before it started: look at what it or the \
         launcher says of it, and start anew"
    )]
    NotStarted {
        /// The time.
        seconds: u64,
    },
    /// The communication thread could not be started or ended early.
    #[error("the communication thread: {0}")]
    Thread(String),
}

impl Error {
    /// The error of a call with MPI's text of it, in one line: MPICH adds the stack of its own calls, one a line.
    pub(crate) fn of_call(call: &'static str, text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let words = text.split(|c: char| c.is_whitespace() || c == '\0');
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let message = words.join(" ");
        Self::Call { call, message }
    }
}

/// The text of an error, for messages between ranks.
pub(crate) fn text(error: Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_of_calls_is_one_line() {
        let text =
            b"Other MPI error, error stack:\ninternal_Isend(60828).: MPI_Isend(count=7) failed\n \
                     rank 3 is gone\n\0";
        assert_eq!(
            Error::of_call("MPI_Isend", text).to_string(),
            "MPI_Isend: Other MPI error, error stack: internal_Isend(60828).: MPI_Isend(count=7) failed rank 3 is gone"
        );
    }
}
