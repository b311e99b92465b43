//! Why a list of lanes is no schedule, and where.

use std::fmt;

use crate::schedule::action::Action;

/// The most pairs of a stage and a micro-batch that a schedule may have.
pub(crate) const MAX_CELLS: usize = 1 << 25;

/// A place in a list of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The lane.
    pub device: usize,
    /// Counted from 0; the length of the lane if an action is missing there.
    pub position: usize,
}

/// What is wrong with a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// There is nothing to do.
    #[error("{stages} stages and {micro_batches} micro-batches: use at least one of each")]
    Empty {
        /// Stages asked for.
        stages: usize,
        /// Micro-batches asked for.
        micro_batches: usize,
    },
    /// There is too much to do.
    #[error(
        "{stages} stages times {micro_batches} micro-batches is more than {}: use fewer",
        MAX_CELLS
    )]
    TooLarge {
        /// Stages asked for.
        stages: usize,
        /// Micro-batches asked for.
        micro_batches: usize,
    },
    /// A stage is on a device that has no lane.
    #[error(
        "stage {stage} is on device {device}, but there are lanes for {devices} devices: count from 0"
    )]
    NoSuchDevice {
        /// The stage.
        stage: usize,
        /// Its device.
        device: usize,
        /// The number of lanes.
        devices: usize,
    },
    /// A device has no stage.
    #[error("device {device} has no stage: give it one, or leave its lane out")]
    IdleDevice {
        /// The device.
        device: usize,
    },
    /// An action names a stage that there is not.
    #[error("{action} is of stage {}, but there are {stages} stages: count from 0", action.stage)]
    NoSuchStage {
        /// The action.
        action: Action,
        /// The number of stages.
        stages: usize,
    },
    /// An action names a micro-batch that there is not.
    #[error(
        "{action} is of micro-batch {}, but there are {micro_batches}: count from 0",
        action.micro_batch
    )]
    NoSuchMicroBatch {
        /// The action.
        action: Action,
        /// The number of micro-batches.
        micro_batches: usize,
    },
    /// An action is in the lane of a device that does not have the stage.
    #[error("{action} is on device {device}, but its stage is on device {owner}: move one of them")]
    WrongDevice {
        /// The action.
        action: Action,
        /// Where it is.
        device: usize,
        /// Where its stage is.
        owner: usize,
    },
    /// An action is there twice.
    #[error("{action} is there twice: leave one out")]
    Twice {
        /// The action.
        action: Action,
    },
    /// An action is not there.
    #[error(
        "{action} is missing: every stage needs F, and B or both I and W, of every micro-batch"
    )]
    Missing {
        /// The action.
        action: Action,
    },
    /// A gradient would be taken twice.
    #[error("{action} and the B of its micro-batch: use either B, or I and W")]
    Both {
        /// The `I` or `W`.
        action: Action,
    },
    /// A stage does things in an order in which they cannot be done.
    #[error("{action} comes before {after}: move it behind")]
    Order {
        /// The action that is too early.
        action: Action,
        /// The action that it needs.
        after: Action,
    },
    /// Lanes wait for each other.
    #[error("deadlock: {}", Ring(ring))]
    Deadlock {
        /// The first of a pair waits for the second, which is behind the first of the next pair;
        /// the last pair closes the ring.
        ring: Vec<(Action, Action)>,
    },
}

struct Ring<'a>(&'a [(Action, Action)]);

impl fmt::Display for Ring<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (waits, needs)) in self.0.iter().enumerate() {
            let which = if i == 0 {
                format!("{waits} ")
            } else {
                ", which ".to_owned()
            };
            let behind = self.0[(i + 1) % self.0.len()].0;
            write!(f, "{which}waits for {needs}, behind {behind}")?;
        }
        write!(f, ": move one of them forward")
    }
}

/// A list of lanes is no schedule. Shows the lanes around the fault, an arrow at the cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleError {
    fault: Box<Fault>,
    at: Option<Cell>,
    picture: String,
}

impl ScheduleError {
    pub(crate) fn at(fault: Fault, at: Cell, lanes: &[Vec<Action>]) -> Self {
        Self {
            fault: Box::new(fault),
            at: Some(at),
            picture: picture(lanes, at),
        }
    }

    /// What is wrong.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// Where, unless it is a matter of sizes.
    pub fn cell(&self) -> Option<Cell> {
        self.at
    }
}

impl From<Fault> for ScheduleError {
    fn from(fault: Fault) -> Self {
        Self {
            fault: Box::new(fault),
            at: None,
            picture: String::new(),
        }
    }
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.fault)?;
        if let Some(Cell { device, position }) = self.at {
            write!(
                f,
                " (device {device}, position {position})\n{}",
                self.picture
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for ScheduleError {}

/// The lanes around a cell, a column a position, and an arrow below the cell.
fn picture(lanes: &[Vec<Action>], at: Cell) -> String {
    const AROUND: usize = 5;
    let first = at.position.saturating_sub(AROUND);
    let shown = |lane: &[Action]| -> Vec<String> {
        lane.iter()
            .skip(first)
            .take(2 * AROUND + 1)
            .map(Action::to_string)
            .collect()
    };
    let devices = at.device.saturating_sub(AROUND)..lanes.len().min(at.device + AROUND + 1);
    let rows: Vec<(usize, Vec<String>)> = devices.map(|d| (d, shown(&lanes[d]))).collect();
    let width = rows
        .iter()
        .flat_map(|(_, cells)| cells)
        .map(String::len)
        .max()
        .unwrap_or(1);
    let mut text = String::new();
    for (device, cells) in rows {
        let from = if first > 0 { "… " } else { "" };
        let row = format!("device {device:<3} {from}");
        let cells: String = cells
            .iter()
            .map(|cell| format!("{cell:<width$} "))
            .collect();
        text += format!("{row}{cells}").trim_end();
        text.push('\n');
        if device == at.device {
            let column = row.chars().count() + (at.position - first) * (width + 1);
            text += &format!("{:column$}^\n", "");
        }
    }
    text.truncate(text.trim_end().len());
    text
}
