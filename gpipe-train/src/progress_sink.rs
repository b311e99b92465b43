//! The interface for displays of a run's progress.

use gpipe_report::Event;

use crate::error::Result;

/// A display for the progress of a run, such as a terminal. The folder of the run has a record of its
/// own, so that text that cannot be displayed is not lost and does not end the run.
pub trait ProgressSink {
    /// Called first, with the total number of steps.
    fn begin(&mut self, steps: u64);

    /// A line of text.
    fn line(&mut self, text: &str);

    /// A warning, without the word.
    fn warning(&mut self, text: &str);

    /// The line of a step, which counts from 1.
    fn step(&mut self, step: u64, line: &str);

    /// A machine-readable event.
    ///
    /// # Errors
    /// If the program that reads events is lost. The run then saves, ends, and returns the error.
    fn event(&mut self, event: &Event) -> Result<()>;

    /// The summary, several lines, after the last step.
    fn summary(&mut self, text: &str);
}

/// A [`ProgressSink`] that displays nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl ProgressSink for Silent {
    fn begin(&mut self, _: u64) {}

    fn line(&mut self, _: &str) {}

    fn warning(&mut self, _: &str) {}

    fn step(&mut self, _: u64, _: &str) {}

    fn event(&mut self, _: &Event) -> Result<()> {
        Ok(())
    }

    fn summary(&mut self, _: &str) {}
}
