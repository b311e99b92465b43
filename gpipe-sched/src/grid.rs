//! Schedules and timelines as text.

use crate::simulate::simulate_units;
use crate::{Action, Op, Schedule, Span, Timeline};

/// Stands for what does not fit.
const GAP: &str = " … ";

/// A timeline drawn wider than this shows nothing more.
const WIDEST: usize = 100_000;

impl Schedule {
    /// One row a device, one column a unit of time in which each action takes one. A cell is a
    /// letter and a micro-batch (`B3`), with the stage before them (`2B3`) if a device has several.
    ///
    /// What does not fit into `width` characters is left out in the middle, so that both the
    /// filling and the draining of the pipeline show.
    ///
    /// ```
    /// let schedule = gpipe_sched::one_f_one_b(2, 3).unwrap();
    /// assert_eq!(
    ///     schedule.grid(80),
    ///     "\
    /// device 0  F0 F1    B0 F2 B1    B2
    /// device 1     F0 B0 F1 B1 F2 B2
    /// "
    /// );
    /// ```
    pub fn grid(&self, width: usize) -> String {
        let timeline = simulate_units(self);
        // Unit times are whole numbers, exactly.
        let columns = timeline.makespan() as usize;
        let several = self.stages() > self.devices();
        let label = |action: &Action| {
            if several {
                action.to_string()
            } else {
                short(action)
            }
        };
        let cell = self
            .lanes()
            .iter()
            .flatten()
            .map(|action| label(action).len())
            .max()
            .unwrap_or(1);
        let name = name_width(self.devices());
        let fit = width.saturating_sub(name + 1) / (cell + 1);
        let (head, tail) = if columns <= fit {
            (columns, columns)
        } else {
            let fit = width.saturating_sub(name + 1 + GAP.chars().count()) / (cell + 1);
            (fit.div_ceil(2), columns - fit / 2)
        };
        let mut text = String::new();
        for device in 0..self.devices() {
            let mut row = device_name(device, name) + " ";
            let mut spans = timeline.of_device(device).iter().peekable();
            for column in 0..columns {
                let now = spans.next_if(|span| span.start as usize <= column);
                if column == head {
                    row += GAP;
                }
                if column < head || column >= tail {
                    let label = now.map_or(String::new(), |span| label(&span.action));
                    row += &format!(" {label:<cell$}");
                }
            }
            text += row.trim_end();
            text.push('\n');
        }
        text
    }
}

impl Timeline {
    /// One row a device, drawn to scale into `width` characters: a span shows its letter, and its
    /// micro-batch if that fits, and is filled up with dashes for `F`, equals signs for all that goes
    /// backward and tildes for `R`; idle time is left blank.
    pub fn grid(&self, width: usize) -> String {
        let name = name_width(self.devices());
        let columns = width.saturating_sub(name + 3).clamp(1, WIDEST);
        let (start, makespan) = (self.start(), self.makespan());
        let column = |time: f64| {
            let share = if makespan > 0.0 {
                (time - start) / makespan
            } else {
                0.0
            };
            ((share * columns as f64).round() as usize).min(columns)
        };
        let mut text = String::new();
        for device in 0..self.devices() {
            let mut row = vec![' '; columns];
            for span in self.of_device(device) {
                let (from, to) = (column(span.start), column(span.end));
                draw(&mut row[from..to.max(from)], span);
            }
            let row: String = row.into_iter().collect();
            text += &format!("{} |{row}|\n", device_name(device, name));
        }
        text
    }
}

/// Fills the columns of one span.
fn draw(columns: &mut [char], span: &Span) {
    let fill = match span.action.op {
        Op::Forward => '-',
        Op::Backward | Op::InputGrad | Op::WeightGrad => '=',
        Op::Recompute => '~',
    };
    columns.fill(fill);
    let label = short(&span.action);
    if label.len() <= columns.len() {
        for (column, letter) in columns.iter_mut().zip(label.chars()) {
            *column = letter;
        }
    } else if let Some(first) = columns.first_mut() {
        *first = span.action.op.letter();
    }
}

/// The action without its stage.
fn short(action: &Action) -> String {
    format!("{}{}", action.op.letter(), action.micro_batch)
}

fn name_width(devices: usize) -> usize {
    device_name(devices.saturating_sub(1), 0).len()
}

fn device_name(device: usize, width: usize) -> String {
    format!("{:<width$}", format!("device {device}"))
}
