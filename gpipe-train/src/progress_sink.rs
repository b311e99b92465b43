//! The interface for displays of a run's progress.

use gpipe_report::Event;

use crate::error::{Error, Result};

/// A display for the progress of a run, such as a terminal. The folder of the run has a record of its
/// own.
pub trait ProgressSink {
    /// A failure to display, which ends the run.
    type Error: From<Error>;

    /// Called first, with the total number of steps.
    ///
    /// # Errors
    /// Ends the run.
    fn begin(&mut self, steps: u64) -> std::result::Result<(), Self::Error>;

    /// A line of text.
    ///
    /// # Errors
    /// Ends the run.
    fn line(&mut self, text: &str) -> std::result::Result<(), Self::Error>;

    /// A warning, without the word.
    ///
    /// # Errors
    /// Ends the run.
    fn warning(&mut self, text: &str) -> std::result::Result<(), Self::Error>;

    /// The line of a step, which counts from 1.
    ///
    /// # Errors
    /// Ends the run.
    fn step(&mut self, step: u64, line: &str) -> std::result::Result<(), Self::Error>;

    /// A machine-readable event.
    ///
    /// # Errors
    /// Ends the run.
    fn event(&mut self, event: &Event) -> std::result::Result<(), Self::Error>;

    /// The summary, several lines, after the last step.
    ///
    /// # Errors
    /// Ends the run, which is saved by then.
    fn summary(&mut self, text: &str) -> std::result::Result<(), Self::Error>;
}

/// A [`ProgressSink`] that displays nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl ProgressSink for Silent {
    type Error = Error;

    fn begin(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn line(&mut self, _: &str) -> Result<()> {
        Ok(())
    }

    fn warning(&mut self, _: &str) -> Result<()> {
        Ok(())
    }

    fn step(&mut self, _: u64, _: &str) -> Result<()> {
        Ok(())
    }

    fn event(&mut self, _: &Event) -> Result<()> {
        Ok(())
    }

    fn summary(&mut self, _: &str) -> Result<()> {
        Ok(())
    }
}
