//! Schedules as text.

use std::collections::VecDeque;
use std::ops::Range;

use crate::schedule::action::Action;
use crate::schedule::data::Schedule;
use crate::schedule::unit_time::for_each_in_unit_time;

/// Stands for the columns left out.
const GAP: &str = " … ";

/// The fewest columns worth a grid with numbers that leaves out the middle.
const MIN_COLUMNS: usize = 12;

impl Schedule {
    /// Draws the schedule as text: one row per device, one column per unit of time, where each
    /// action takes one unit. A cell is a letter and a micro-batch (`B3`), preceded by the stage
    /// (`2B3`) if a device has several.
    ///
    /// If that does not fit into `width` characters, there is no space between cells. If even this
    /// does not fit, the middle is left out, so that fill and drain of the pipeline show. A cell is
    /// the letter alone only where `width` is too narrow for that.
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
    ///     schedule.grid(26),
    ///     "\
    /// device 0  F0F1  B0F2B1  B2
    /// device 1    F0B0F1B1F2B2
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
        // Without a space before each cell, the row has one before the first.
        let fits = |cell: usize, space: usize| {
            units.columns.saturating_mul(cell + space) + (1 - space) <= room
        };
        let ends = room.saturating_sub(GAP.chars().count()) / (cell + 1);
        let is_narrow = ends < MIN_COLUMNS && fits(1, 0);
        let (cell, space, head, tail) = match units.columns {
            all if fits(cell, 1) => (cell, 1, all, all),
            all if fits(cell, 0) => (cell, 0, all, all),
            all if is_narrow => (1, 0, all, all),
            all => (cell, 1, ends.div_ceil(2), all - ends / 2),
        };
        let label = |action: &Action| match several {
            _ if cell == 1 => action.op.letter().to_string(),
            true => action.to_string(),
            false => short(action),
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

/// The visible ends of a schedule in unit time, however long it is.
struct Units {
    columns: usize,
    lanes: Vec<Ends>,
}

/// The first and the last actions of a lane with their start times.
#[derive(Default)]
struct Ends {
    first: VecDeque<(usize, Action)>,
    last: VecDeque<(usize, Action)>,
}

impl Units {
    /// Keeps at most `most` actions at either end.
    fn of(schedule: &Schedule, most: usize) -> Self {
        let mut lanes: Vec<Ends> = Vec::new();
        lanes.resize_with(schedule.devices(), Ends::default);
        let mut columns = 0;
        for_each_in_unit_time(schedule, |device, start, action| {
            columns = columns.max(start + 1);
            let Ends { first, last } = &mut lanes[device];
            if first.len() < most {
                first.push_back((start, action));
            }
            if last.len() == most {
                last.pop_front();
            }
            if most > 0 {
                last.push_back((start, action));
            }
        });
        Self { columns, lanes }
    }
}

/// The action without its stage.
pub(crate) fn short(action: &Action) -> String {
    format!("{}{}", action.op.letter(), action.micro_batch)
}

pub(crate) fn name_width(devices: usize) -> usize {
    device_name(devices.saturating_sub(1), 0).len()
}

pub(crate) fn device_name(device: usize, width: usize) -> String {
    format!("{:<width$}", format!("device {device}"))
}
