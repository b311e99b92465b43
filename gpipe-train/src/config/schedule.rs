//! The key `pipeline.schedule`: a built-in schedule by name, or a table of actions in a file.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, fs};

use gpipe_report::numbers::counted;
use gpipe_sched::{Costs, ParseScheduleError, Schedule, ScheduleKind};

use crate::error::{Error, Result as Outcome};

/// Maximum size of a table's file, which is read whole: a multiple of what the largest schedule needs.
const MOST_BYTES: u64 = 256 << 20;

/// Maximum number of (stage, micro-batch) pairs of a schedule: far beyond any training, and its lists
/// of actions still fit in memory.
const MOST_CELLS: usize = 1 << 20;

/// A schedule: a built-in kind, or a table of actions in a file.
///
/// Text that ends in `.csv` names a table; any other text is parsed as a [`ScheduleKind`].
///
/// ```
/// use gpipe_sched::ScheduleKind;
/// use gpipe_train::config::ScheduleChoice;
///
/// let choice: ScheduleChoice = "interleaved:2".parse()?;
/// assert_eq!(choice, ScheduleChoice::Kind(ScheduleKind::Interleaved(2)));
/// let schedule = choice.build(8, 16, None)?;
/// assert_eq!((schedule.stages(), schedule.devices()), (8, 4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleChoice {
    /// A built-in schedule.
    Kind(ScheduleKind),
    /// The path of a table in PyTorch's CSV format ([`Schedule::from_csv`]).
    Table(PathBuf),
}

impl ScheduleChoice {
    /// The number of stages on each worker; 1 for a table, which assigns its stages itself.
    pub fn chunks(&self) -> usize {
        match self {
            Self::Kind(kind) => kind.chunks(),
            Self::Table(_) => 1,
        }
    }

    /// Whether a name is that of a table.
    pub(super) fn is_table(name: &str) -> bool {
        let extension = Path::new(name).extension();
        extension.is_some_and(|extension| extension.eq_ignore_ascii_case("csv"))
    }

    /// Whether the schedule depends on the costs given to [`build`](Self::build).
    pub fn follows_costs(&self) -> bool {
        matches!(self, Self::Kind(kind) if kind.follows_costs())
    }

    /// Reads the table, if the choice is one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a file that cannot be read or has no backward pass; [`Error::Drawn`] for
    /// one that is not a valid schedule, with the fault marked in its text.
    pub fn table(&self) -> Outcome<Option<Schedule>> {
        match self {
            Self::Kind(_) => Ok(None),
            Self::Table(path) => read(path).map(Some),
        }
    }

    /// Builds the schedule of `stages` stages and `micro_batches` micro-batches; a table has its own
    /// numbers.
    ///
    /// `costs` matter to schedules that [follow them](Self::follows_costs) alone. `None` gives the 1F1B
    /// under which their costs are predicted; build again with those.
    ///
    /// # Errors
    /// [`Error::Invalid`] for stages that cannot be dealt out evenly to workers, and for more than 2^20
    /// pairs of a stage and a micro-batch; [`Error::Input`] for numbers or costs that the schedule
    /// refuses; and those of [`table`](Self::table).
    pub fn build(
        &self,
        stages: usize,
        micro_batches: usize,
        costs: Option<&Costs>,
    ) -> Outcome<Schedule> {
        match self {
            Self::Kind(kind) => build(*kind, stages, micro_batches, costs),
            Self::Table(path) => read(path),
        }
    }
}

fn build(
    kind: ScheduleKind,
    stages: usize,
    micro_batches: usize,
    costs: Option<&Costs>,
) -> Outcome<Schedule> {
    let chunks = kind.chunks();
    if !stages.is_multiple_of(chunks) {
        let (below, above) = (stages / chunks * chunks, stages.next_multiple_of(chunks));
        let counts = match below {
            0 => format!("`pipeline.stages = {above}`, or another schedule"),
            below => format!("`pipeline.stages = {below}` or {above}"),
        };
        return Err(Error::invalid(format!(
            "{} but {chunks} on each worker: use {counts}",
            counted(stages as u64, "stage")
        )));
    }
    // Building allocates a few hundred bytes for each pair.
    let most = MOST_CELLS / stages.max(1);
    if micro_batches > most {
        return Err(Error::invalid(format!(
            "{} and {micro_batches} micro-batches make a schedule that is too long: use fewer micro-batches, {} at most",
            counted(stages as u64, "stage"),
            most.max(1)
        )));
    }
    kind.build(stages, micro_batches, costs)
        .map_err(Error::input)
}

impl FromStr for ScheduleChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if Self::is_table(text) {
            return Ok(Self::Table(text.into()));
        }
        text.parse().map(Self::Kind).map_err(|error| match error {
            ParseScheduleError::Unknown { .. } => {
                format!("{error}, or a file such as table.csv")
            }
            error => error.to_string(),
        })
    }
}

impl fmt::Display for ScheduleChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => kind.fmt(f),
            Self::Table(path) => path.display().fmt(f),
        }
    }
}

/// Reads a table; a fault in it is marked in its text.
fn read(path: &Path) -> Outcome<Schedule> {
    let name = path.display();
    let fault = |fault: String| Error::drawn(format!("`pipeline.schedule = {name}`: {fault}"));
    let unreadable =
        |error: std::io::Error| fault(format!("{error}: name a table of actions that can be read"));
    let about = fs::metadata(path).map_err(unreadable)?;
    if !about.is_file() {
        return Err(fault("not a file: name a table of actions".to_owned()));
    }
    if about.len() > MOST_BYTES {
        return Err(fault(format!(
            "{} bytes: a table has at most {MOST_BYTES}",
            about.len()
        )));
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let schedule = Schedule::from_csv(&text).map_err(|error| fault(error.to_string()))?;
    if schedule.is_forward_only() {
        return Err(fault(
            "it has no backward pass: name a table of a training step".to_owned(),
        ));
    }
    Ok(schedule)
}
