//! Output to stdout and stderr, with a progress bar on terminals.

use std::io::{self, Write};

use gpipe_report::Event;
use gpipe_train::ProgressSink;
use indicatif::{ProgressBar, ProgressStyle};

use super::messages::{harmless, has_room, is_silent, tell, warn};
use crate::args::OutputArgs;
use crate::fail::{Fail, Result, with_flags};
use crate::signals;

/// Columns where stdout is no terminal, and `COLUMNS` says nothing.
const DEFAULT_WIDTH: usize = 80;

/// Approximate number of step lines that a run prints.
const LINES: u64 = 20;

/// Prints a result of one or more lines to stdout.
pub fn print(text: &str) -> Result<()> {
    write_out(text).map_err(Fail::write("to stdout"))
}

fn write_out(text: &str) -> io::Result<()> {
    if is_silent() || !gpipe_train::has_room(io::stdout(), signals::stop()) {
        return Ok(());
    }
    let mut stdout = anstream::stdout().lock();
    writeln!(stdout, "{}", harmless(text.trim_end())).and_then(|()| stdout.flush())
}

/// The width of stdout in columns.
pub fn terminal_width() -> usize {
    let asked = || std::env::var("COLUMNS").ok()?.parse::<u16>().ok();
    let width = match terminal_size::terminal_size_of(io::stdout()) {
        Some((width, _)) => Some(width.0),
        None => asked().filter(|&columns| columns > 0),
    };
    width.map_or(DEFAULT_WIDTH, usize::from)
}

/// Messages on stderr, with a progress bar below them on a terminal.
pub struct Console {
    output: OutputArgs,
    bar: ProgressBar,
    every: u64,
    steps: u64,
}

impl Console {
    /// A console for a run of `steps` steps; the bar is hidden if stderr is not a terminal.
    pub fn new(output: OutputArgs, steps: u64) -> Result<Self> {
        // A long line is cut off, since wrapped lines cannot be cleared.
        let template = "{bar:16} {percent:>3} %  {wide_msg}";
        let style = ProgressStyle::with_template(template).map_err(Fail::run)?;
        let bar = if output.quiet {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(steps).with_style(style)
        };
        let every = if output.verbose {
            1
        } else {
            steps.div_ceil(LINES)
        };
        Ok(Self {
            output,
            bar,
            every,
            steps,
        })
    }

    /// Prints a message.
    pub fn say(&self, text: &str) {
        if !self.output.quiet && has_room() {
            self.bar.suspend(|| tell(text));
        }
    }

    /// What prints this message on another thread.
    pub fn later(&self, text: &'static str) -> impl FnOnce() + Send + 'static {
        let (is_quiet, bar) = (self.output.quiet, self.bar.clone());
        move || {
            if !is_quiet && has_room() {
                bar.suspend(|| tell(text));
            }
        }
    }

    /// Prints a warning.
    pub fn warn(&self, text: &str) {
        if has_room() {
            self.bar.suspend(|| warn(text));
        }
    }

    fn clear_bar(&self) {
        if has_room() {
            self.bar.finish_and_clear();
        }
    }

    /// Shows the line of a step in the bar, and at intervals as a permanent line.
    fn show_step(&self, step: u64, line: &str) {
        if self.output.quiet || !has_room() {
            return;
        }
        self.bar.set_message(line.to_owned());
        self.bar.set_position(step);
        if step.is_multiple_of(self.every) || step == 1 || step == self.steps {
            self.say(line);
        }
    }
}

impl ProgressSink for Console {
    fn begin(&mut self, _steps: u64) {}

    fn line(&mut self, text: &str) {
        self.say(text);
    }

    fn warning(&mut self, text: &str) {
        self.warn(&with_flags(text));
    }

    fn step(&mut self, step: u64, line: &str) {
        self.show_step(step, line);
    }

    fn event(&mut self, event: &Event) -> gpipe_train::Result<()> {
        if !self.output.json {
            return Ok(());
        }
        let lost = |error| gpipe_train::Error::run_in("cannot write to stdout", error);
        write_out(&event.to_json()?).map_err(lost)
    }

    fn summary(&mut self, text: &str) {
        self.clear_bar();
        match (self.output.quiet, self.output.json) {
            (true, _) => {}
            (false, true) => self.say(text),
            // The run is done and its log has the summary.
            (false, false) => match write_out(text) {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    self.warn(&format!("the summary cannot be written to stdout: {error}"));
                }
                _ => {}
            },
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.clear_bar();
    }
}
