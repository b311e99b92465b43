//! Schedules and timelines as text.

use std::collections::VecDeque;
use std::ops::Range;

use crate::schedule::action::{Action, Op};
use crate::schedule::data::Schedule;
use crate::schedule::transfer::Transfer;
use crate::schedule::walk::walk;
use crate::simulate::timeline::{Span, Timeline};

/// Stands for what does not fit.
const GAP: &str = " … ";

/// A timeline drawn wider than this shows nothing more.
const WIDEST: usize = 100_000;

impl Schedule {
    /// One row a device, one column a unit of time in which each action takes one. A cell is a
    /// letter and a micro-batch (`B3`), with the stage before them (`2B3`) if a device has several.
    ///
    /// Where that does not fit into `width` characters, a cell is the letter alone. If even this
    /// does not fit, the middle is left out, so that both the filling and the draining of the
    /// pipeline show.
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
    /// assert_eq!(
    ///     schedule.grid(20),
    ///     "\
    /// device 0  FF BFB B
    /// device 1   FBFBFB
    /// "
    /// );
    /// ```
    pub fn grid(&self, width: usize) -> String {
        let several = self.stages() > self.devices();
        let digits = |count: usize| {
            (count - 1)
                .checked_ilog10()
                .map_or(1, |log| log as usize + 1)
        };
        let stage = if several { digits(self.stages()) } else { 0 };
        let cell = stage + 1 + digits(self.micro_batches());
        let name = name_width(self.devices());
        let room = width.saturating_sub(name + 1);
        let units = Units::of(self, room);
        let (cell, space) = match units.columns {
            columns if columns.saturating_mul(cell + 1) <= room => (cell, 1),
            columns if columns < room => (1, 0),
            _ => (cell, 1),
        };
        let fit = |room: usize| room / (cell + space);
        let (head, tail) = if units.columns <= fit(room) {
            (units.columns, units.columns)
        } else {
            let fit = fit(room.saturating_sub(GAP.chars().count()));
            (fit.div_ceil(2), units.columns - fit / 2)
        };
        let label = |action: &Action| match (space, several) {
            (0, _) => action.op.letter().to_string(),
            (_, true) => action.to_string(),
            (_, false) => short(action),
        };
        let mut text = String::new();
        for (device, ends) in units.lanes.iter().enumerate() {
            let mut row = device_name(device, name) + " ";
            if space == 0 {
                row.push(' ');
            }
            let cells = |columns: Range<usize>, lane: &VecDeque<(usize, Action)>| {
                let mut cells = String::new();
                let mut lane = lane.iter().peekable();
                while lane.next_if(|(start, _)| *start < columns.start).is_some() {}
                for column in columns {
                    let now = lane.next_if(|(start, _)| *start == column);
                    let label = now.map_or(String::new(), |(_, action)| label(action));
                    cells += &format!("{:space$}{label:<cell$}", "");
                }
                cells
            };
            row += &cells(0..head, &ends.first);
            if head < tail {
                row += GAP;
            }
            row += &cells(tail..units.columns, &ends.last);
            text += row.trim_end();
            text.push('\n');
        }
        text
    }
}

/// The ends of a schedule in which every action takes one unit of time: as much as can be seen of
/// it, however long it is.
struct Units {
    columns: usize,
    lanes: Vec<Ends>,
}

/// The first and the last actions of a lane with their times.
#[derive(Default)]
struct Ends {
    first: VecDeque<(usize, Action)>,
    last: VecDeque<(usize, Action)>,
}

impl Units {
    /// No more than `most` actions at either end.
    fn of(schedule: &Schedule, most: usize) -> Self {
        let (stages, micro_batches) = (schedule.stages(), schedule.micro_batches());
        let mut arrivals = vec![0_u32; Transfer::table(stages, micro_batches)];
        let mut now = vec![0_u32; schedule.devices()];
        let mut lanes: Vec<Ends> = Vec::new();
        lanes.resize_with(schedule.devices(), Ends::default);
        let walked = walk(
            schedule.device_of(),
            micro_batches,
            schedule.lanes(),
            |device, _, action| {
                let arrival = action
                    .receives()
                    .map_or(0, |transfer| arrivals[transfer.index(micro_batches)]);
                let start = now[device].max(arrival);
                now[device] = start + 1;
                if let Some(transfer) = action.sends(stages) {
                    arrivals[transfer.index(micro_batches)] = start + 1;
                }
                let Ends { first, last } = &mut lanes[device];
                if first.len() < most {
                    first.push_back((start as usize, action));
                }
                if last.len() == most {
                    last.pop_front();
                }
                if most > 0 {
                    last.push_back((start as usize, action));
                }
            },
        );
        debug_assert!(walked.is_ok(), "a schedule that exists has no deadlock");
        let columns = now.into_iter().max().map_or(0, |end| end as usize);
        Self { columns, lanes }
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
