//! The terminal, or what stands in its place.

use std::io::{self, Write};

use gpipe_report::Event;
use gpipe_train::ProgressSink;
use indicatif::{ProgressBar, ProgressStyle};

use super::style;
use crate::args::Talk;
use crate::fail::{Fail, Result};

/// Columns where nobody says how many there are.
const DEFAULT_WIDTH: usize = 80;

/// About how many lines a run of any length prints.
const LINES: u64 = 20;

/// Prints a result: one line or several, on stdout.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = anstream::stdout().lock();
    writeln!(stdout, "{}", text.trim_end())
        .and_then(|()| stdout.flush())
        .map_err(Fail::write("to stdout"))
}

/// Says on stderr what people must not miss.
pub fn warn(text: &str) -> Result<()> {
    let line = format!("{}warning:{} {text}", style::WARNING, style::RESET);
    let mut stderr = anstream::stderr().lock();
    writeln!(stderr, "{line}").map_err(Fail::write("to stderr"))
}

/// Columns of the terminal that stdout is.
pub fn terminal_width() -> usize {
    terminal_size::terminal_size_of(io::stdout())
        .map_or(DEFAULT_WIDTH, |(width, _)| usize::from(width.0))
}

/// Talk on stderr: lines and, on a terminal, a bar below them.
pub struct Console {
    talk: Talk,
    bar: ProgressBar,
    every: u64,
    steps: u64,
}

impl Console {
    /// For a run of so many steps; the bar hides itself where stderr is no terminal.
    pub fn new(talk: Talk, steps: u64) -> Result<Self> {
        // What does not fit into the line is cut off: wrapped lines cannot be wiped.
        let template = "{bar:16} {percent:>3} %  {wide_msg}";
        let style = ProgressStyle::with_template(template).map_err(Fail::run)?;
        let bar = if talk.quiet {
            ProgressBar::hidden()
        } else {
            ProgressBar::new(steps).with_style(style)
        };
        let every = if talk.verbose {
            1
        } else {
            steps.div_ceil(LINES)
        };
        Ok(Self {
            talk,
            bar,
            every,
            steps,
        })
    }

    /// Says something to people.
    pub fn say(&self, text: &str) -> Result<()> {
        if self.talk.quiet {
            return Ok(());
        }
        self.bar.suspend(|| {
            let mut stderr = anstream::stderr().lock();
            writeln!(stderr, "{}", text.trim_end()).map_err(Fail::write("to stderr"))
        })
    }

    /// Says what people must not miss.
    pub fn warn(&self, text: &str) -> Result<()> {
        self.bar.suspend(|| warn(text))
    }

    /// Shows the line of a step: always in the bar, and every so many steps as a line that stays.
    fn show_step(&self, step: u64, line: &str) -> Result<()> {
        self.bar.set_message(line.to_owned());
        self.bar.set_position(step);
        if step.is_multiple_of(self.every) || step == 1 || step == self.steps {
            self.say(line)?;
        }
        Ok(())
    }
}

impl ProgressSink for Console {
    type Error = Fail;

    fn begin(&mut self, _steps: u64) -> Result<()> {
        Ok(())
    }

    fn line(&mut self, text: &str) -> Result<()> {
        self.say(text)
    }

    fn warning(&mut self, text: &str) -> Result<()> {
        self.warn(text)
    }

    fn step(&mut self, step: u64, line: &str) -> Result<()> {
        self.show_step(step, line)
    }

    fn event(&mut self, event: &Event) -> Result<()> {
        match self.talk.json {
            true => print(&event.to_json()?),
            false => Ok(()),
        }
    }

    fn summary(&mut self, text: &str) -> Result<()> {
        self.bar.finish_and_clear();
        match (self.talk.quiet, self.talk.json) {
            (true, _) => Ok(()),
            (false, true) => self.say(text),
            (false, false) => print(text),
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
