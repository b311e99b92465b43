//! What shows the progress of a run while it trains.

use gpipe_report::Event;

use crate::error::{Error, Result};

/// What shows the progress of a run besides its folder: a terminal, say.
pub trait ProgressSink {
    /// Why it could not be shown; ends the run.
    type Error: From<Error>;

    /// The run has so many steps in all.
    ///
    /// # Errors
    /// Ends the run.
    fn begin(&mut self, steps: u64) -> std::result::Result<(), Self::Error>;

    /// A line for people.
    ///
    /// # Errors
    /// Ends the run.
    fn line(&mut self, text: &str) -> std::result::Result<(), Self::Error>;

    /// A line that people must not miss.
    ///
    /// # Errors
    /// Ends the run.
    fn warning(&mut self, text: &str) -> std::result::Result<(), Self::Error>;

    /// The line of a step, by its number from 1.
    ///
    /// # Errors
    /// Ends the run.
    fn step(&mut self, step: u64, line: &str) -> std::result::Result<(), Self::Error>;

    /// An event for programs.
    ///
    /// # Errors
    /// Ends the run.
    fn event(&mut self, event: &Event) -> std::result::Result<(), Self::Error>;

    /// The whole, in several lines, after the last step.
    ///
    /// # Errors
    /// Fails the run, which is saved by then.
    fn summary(&mut self, text: &str) -> std::result::Result<(), Self::Error>;
}

/// Shows nothing: the run's folder has it all.
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
