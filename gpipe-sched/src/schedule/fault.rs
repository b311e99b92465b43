//! Faults of lanes that are not a schedule, and where they are.

use std::fmt;

use crate::schedule::action::Action;

/// The maximum of stages times micro-batches.
pub(crate) const MAX_CELLS: usize = 1 << 25;

/// A position in the lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The lane.
    pub device: usize,
    /// The position, counted from 0; the length of the lane if an action is missing at its end.
    pub position: usize,
}

/// A fault of lanes that are not a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// There is no stage or no micro-batch.
    #[error("{stages} stages and {micro_batches} micro-batches: use at least one of each")]
    Empty {
        /// Stages asked for.
        stages: usize,
        /// Micro-batches asked for.
        micro_batches: usize,
    },
    /// Stages times micro-batches exceed [`Schedule::MAX_CELLS`](crate::Schedule::MAX_CELLS).
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
    /// The device of a stage has no lane.
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
    /// The stage of an action does not exist.
    #[error("{action} is of stage {}, but there are {stages} stages: count from 0", action.stage)]
    NoSuchStage {
        /// The action.
        action: Action,
        /// The number of stages.
        stages: usize,
    },
    /// The micro-batch of an action does not exist.
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
    /// An action is in the lane of a device other than its stage's.
    #[error("{action} is on device {device}, but its stage is on device {owner}: move one of them")]
    WrongDevice {
        /// The action.
        action: Action,
        /// The device of the lane.
        device: usize,
        /// The device of the stage.
        owner: usize,
    },
    /// An action occurs twice.
    #[error("{action} is there twice: leave one out")]
    Twice {
        /// The action.
        action: Action,
    },
    /// An action is missing.
    #[error(
        "{action} is missing: every stage needs F, and B or both I and W, of every micro-batch"
    )]
    Missing {
        /// The action.
        action: Action,
    },
    /// A micro-batch has both `B` and `I` or `W`.
    #[error("{action} and the B of its micro-batch: use either B, or I and W")]
    Both {
        /// The action `I` or `W`.
        action: Action,
    },
    /// Two actions of a stage on a micro-batch are in the wrong order.
    #[error("{action} comes before {after}: move it behind")]
    Order {
        /// The action that comes too early.
        action: Action,
        /// The action that has to precede it.
        after: Action,
    },
    /// An action of a timeline has times that are not finite.
    #[error("{action} has times that are not finite numbers: give it seconds")]
    Times {
        /// The action.
        action: Action,
    },
    /// Lanes wait for each other in a ring.
    #[error("deadlock: {}", Ring(ring))]
    Deadlock {
        /// Pairs of a waiting action and the action it needs, which stands behind the waiting
        /// action of the next pair; the last pair closes the ring.
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
            write!(f, "{which}waits for {needs}")?;
            if *needs != behind {
                write!(f, ", behind {behind}")?;
            }
        }
        write!(f, ": move one of them forward")
    }
}

/// Lanes that are not a schedule. The message shows the lanes around the fault, with an arrow at
/// the cell.
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

    /// The fault.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// The cell of the fault; `None` for faults of sizes.
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

/// Draws the lanes around a cell, a column per position, and an arrow below the cell.
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
