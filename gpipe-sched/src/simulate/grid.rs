//! Timelines as text.

use crate::schedule::action::Op;
use crate::schedule::grid::{device_name, name_width, short};
use crate::simulate::timeline::{Span, Timeline};

/// The maximum width of a drawing in columns.
const WIDEST: usize = 100_000;

impl Timeline {
    /// Draws the timeline as text: one row per device, to scale in `width` characters. A span shows
    /// its letter, and its micro-batch if that fits, and is filled with dashes for `F`, equals
    /// signs for `B`, `I` and `W`, and tildes for `R`; idle time is blank.
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

/// Draws the columns of one span.
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
