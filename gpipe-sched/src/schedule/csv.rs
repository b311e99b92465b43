//! Schedules as the tables that PyTorch reads and writes.
//!
//! `torch.distributed.pipelining` (2.15) keeps a schedule as CSV in its "compute-only" form: a row
//! per rank, a cell per action (`2F0`), and empty cells where a rank idles. No cell needs quotes.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};

use crate::schedule::action::{Action, ActionError};
use crate::schedule::data::Schedule;
use crate::schedule::fault::{Cell, Fault, ScheduleError};
use crate::schedule::unit_time::for_each_in_unit_time;

/// PyTorch's reductions of gradients over replicas, which are not part of a schedule here.
const SKIPPED: [&str; 2] = ["WAIT_REDUCE_GRAD", "REDUCE_GRAD"];

/// Suffix of a cell with several actions, which PyTorch may run concurrently:
/// `(0F7;7B3)OVERLAP_F_B`.
const OVERLAP: &str = ")OVERLAP_F_B";

/// A table that is not a schedule. Rows and columns count from 1, as in spreadsheets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CsvError {
    /// A cell is not one of PyTorch's compute actions.
    #[error(
        "row {row}, column {column}: {source} (PyTorch's tables: dump them as \"compute_only\", without sends)"
    )]
    Cell {
        /// The row: the device plus 1.
        row: usize,
        /// The column.
        column: usize,
        /// The error of the cell.
        source: ActionError,
    },
    /// The actions are not a schedule.
    #[error("row {row}, column {column}: {source}")]
    Invalid {
        /// The row: the device plus 1.
        row: usize,
        /// The column; one past the end of the row if an action is missing there.
        column: usize,
        /// The error of the schedule.
        source: ScheduleError,
    },
    /// The sizes are not those of a schedule.
    #[error(transparent)]
    Size(#[from] ScheduleError),
}

impl Schedule {
    /// Reads PyTorch's compute-only table: row `r` is the lane of device `r`, and a stage lives on
    /// the device that names it most often. The numbers of stages and micro-batches are those that
    /// occur.
    ///
    /// `REDUCE_GRAD` and `WAIT_REDUCE_GRAD` are skipped, and the actions of an `OVERLAP_F_B` run
    /// one after the other. The order is kept: see [`Schedule::is_ascending`].
    ///
    /// ```
    /// let schedule = gpipe_sched::Schedule::from_csv("0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1\n")?;
    /// assert_eq!(schedule, gpipe_sched::one_f_one_b(2, 2).unwrap());
    /// # Ok::<(), gpipe_sched::CsvError>(())
    /// ```
    ///
    /// # Errors
    /// The first cell that cannot be read, or the cell at which the actions are not a schedule.
    pub fn from_csv(text: &str) -> Result<Self, CsvError> {
        let mut table = Table::read(text)?;
        let made = table.sizes().and_then(|(stages, micro_batches)| {
            let device_of = table.device_of(stages);
            let mistyped = table.mistyped(stages, micro_batches);
            let made = Self::new(device_of, micro_batches, std::mem::take(&mut table.lanes));
            made.map_err(|error| match error.fault() {
                // The cell that is wrong comes before the one that is missing for it.
                Fault::WrongDevice { .. } | Fault::Twice { .. } => error,
                _ => mistyped.err().unwrap_or(error),
            })
        });
        made.map_err(|source| table.locate(source))
    }

    /// Writes the table that [`Schedule::from_csv`] and PyTorch read, with empty cells where a
    /// device would idle if all actions took the same time. PyTorch has no `R`.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn write_csv(&self, out: impl Write) -> io::Result<()> {
        let mut lanes = vec![Vec::new(); self.devices()];
        for_each_in_unit_time(self, |device, start, action| {
            lanes[device].push((start, action));
        });
        let mut out = BufWriter::new(out);
        for lane in lanes {
            let mut column = 0;
            for (start, action) in lane {
                for _ in column..start {
                    out.write_all(b",")?;
                }
                column = start;
                write!(out, "{action}")?;
            }
            out.write_all(b"\n")?;
        }
        out.flush()
    }
}

/// The actions of a table, and their columns.
struct Table {
    lanes: Vec<Vec<Action>>,
    /// The column of each action, from 0.
    columns: Vec<Vec<usize>>,
}

impl Table {
    fn read(text: &str) -> Result<Self, CsvError> {
        let (mut lanes, mut columns) = (Vec::new(), Vec::new());
        // Spreadsheets add a byte order mark before the text, editors empty lines after it.
        let text = text.trim_start_matches('\u{feff}').trim_end();
        for (row, line) in text.lines().enumerate() {
            let (mut lane, mut places) = (Vec::new(), Vec::new());
            for (column, cell) in line.split(',').enumerate() {
                let before = lane.len();
                read_cell(cell, &mut lane).map_err(|source| CsvError::Cell {
                    row: row + 1,
                    column: column + 1,
                    source,
                })?;
                places.extend((before..lane.len()).map(|_| column));
            }
            lanes.push(lane);
            columns.push(places);
        }
        Ok(Self { lanes, columns })
    }

    fn actions(&self) -> impl Iterator<Item = Action> {
        self.lanes.iter().flatten().copied()
    }

    /// The numbers of stages and micro-batches, counted without gaps.
    fn sizes(&self) -> Result<(usize, usize), ScheduleError> {
        let stages = dense(self.actions().map(|action| action.stage));
        let micro_batches = dense(self.actions().map(|action| action.micro_batch));
        self.refuse(
            |action| action.stage >= stages,
            |action| Fault::NoSuchStage { action, stages },
        )?;
        self.refuse(
            |action| action.micro_batch >= micro_batches,
            |action| Fault::NoSuchMicroBatch {
                action,
                micro_batches,
            },
        )?;
        Ok((stages, micro_batches))
    }

    /// Refuses the highest number of all where few others go with it: it may be a mistyped one.
    fn mistyped(&self, stages: usize, micro_batches: usize) -> Result<(), ScheduleError> {
        let last = micro_batches.saturating_sub(1);
        let of_last = self.actions().filter(|action| action.micro_batch == last);
        if 2 * distinct(of_last.map(|action| action.stage)) < stages {
            self.refuse(
                |action| action.micro_batch == last,
                |action| Fault::NoSuchMicroBatch {
                    action,
                    micro_batches: last,
                },
            )?;
        }
        let last_stage = stages.saturating_sub(1);
        let of_last = self.actions().filter(|action| action.stage == last_stage);
        if 2 * distinct(of_last.map(|action| action.micro_batch)) < micro_batches {
            self.refuse(
                |action| action.stage == last_stage,
                |action| Fault::NoSuchStage {
                    action,
                    stages: last_stage,
                },
            )?;
        }
        Ok(())
    }

    /// Fails at the first action that is `wrong`.
    fn refuse(
        &self,
        wrong: impl Fn(&Action) -> bool,
        fault: impl Fn(Action) -> Fault,
    ) -> Result<(), ScheduleError> {
        for (device, lane) in self.lanes.iter().enumerate() {
            if let Some(position) = lane.iter().position(&wrong) {
                let at = Cell { device, position };
                return Err(ScheduleError::at(fault(lane[position]), at, &self.lanes));
            }
        }
        Ok(())
    }

    /// The row that names each stage most often, the first of several.
    fn device_of(&self, stages: usize) -> Vec<usize> {
        let (mut device_of, mut most) = (vec![0; stages], vec![0; stages]);
        for (device, lane) in self.lanes.iter().enumerate() {
            let mut named: Vec<usize> = lane.iter().map(|action| action.stage).collect();
            named.sort_unstable();
            for same in named.chunk_by(|a, b| a == b) {
                if same.len() > most[same[0]] {
                    (device_of[same[0]], most[same[0]]) = (device, same.len());
                }
            }
        }
        device_of
    }

    /// Adds row and column of the table to an error of the lanes.
    fn locate(&self, source: ScheduleError) -> CsvError {
        let (device, column) = match (source.cell(), source.fault()) {
            (Some(Cell { device, position }), _) => {
                let columns = &self.columns[device];
                let behind = columns.last().map_or(0, |last| last + 1);
                (
                    device,
                    columns.get(position).map_or(behind, |&column| column),
                )
            }
            (None, &Fault::IdleDevice { device }) => (device, 0),
            (None, _) => return CsvError::Size(source),
        };
        CsvError::Invalid {
            row: device + 1,
            column: column + 1,
            source,
        }
    }
}

/// Appends the actions of a cell to a lane: none, one, or several.
fn read_cell(cell: &str, lane: &mut Vec<Action>) -> Result<(), ActionError> {
    let cell = cell.trim();
    let quoted = cell
        .strip_prefix('"')
        .and_then(|cell| cell.strip_suffix('"'));
    let cell = quoted.unwrap_or(cell).trim();
    let stage = cell.trim_end_matches(|c: char| c.is_ascii_digit());
    let stage = SKIPPED.iter().find_map(|name| stage.strip_suffix(name));
    let is_skipped =
        stage.is_some_and(|stage| !stage.is_empty() && stage.bytes().all(|b| b.is_ascii_digit()));
    if cell.is_empty() || is_skipped {
        return Ok(());
    }
    let pair = cell
        .strip_prefix('(')
        .and_then(|cell| cell.strip_suffix(OVERLAP));
    match pair {
        Some(pair) => pair.split(';').try_for_each(|cell| {
            lane.push(cell.trim().parse()?);
            Ok(())
        }),
        None => {
            lane.push(cell.parse()?);
            Ok(())
        }
    }
}

/// The length of the run of numbers from 0 without a gap.
fn dense(numbers: impl Iterator<Item = usize>) -> usize {
    let numbers: BTreeSet<usize> = numbers.collect();
    numbers
        .iter()
        .zip(0..)
        .take_while(|&(&number, i)| number == i)
        .count()
}

fn distinct(numbers: impl Iterator<Item = usize>) -> usize {
    numbers.collect::<BTreeSet<usize>>().len()
}
