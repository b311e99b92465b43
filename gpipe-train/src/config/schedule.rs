//! Schedules by their names, and tables of actions in files.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, fs};

use gpipe_sched::Schedule;

use crate::error::{Error, Result as Outcome};

/// A table is read whole; the largest that a schedule can have is a few times this.
const MOST_BYTES: u64 = 256 << 20;

/// The order of work: a schedule by its name, or a table in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleChoice {
    /// All forward, then all backward.
    Gpipe,
    /// One forward, one backward.
    OneFOneB,
    /// 1F1B with this many stages a worker, round-robin.
    Interleaved(usize),
    /// Every stage of a worker through all micro-batches, this many stages a worker.
    LoopedBfs(usize),
    /// Weight gradients put off into the bubble, in the memory of 1F1B.
    ZbH1,
    /// The same in twice the memory, which leaves no bubble.
    ZbH2,
    /// The same with two stages a worker, folded in a V.
    ZbV,
    /// Folded in a V, in half of the memory of 1F1B.
    VHalf,
    /// Folded in a V, in a third of the memory of 1F1B.
    VMin,
    /// Folded in a V, forward and backward passes in pairs.
    DualPipeV,
    /// What the predicted costs make of it, with at most so many micro-batches held by a stage: as
    /// many as there are stages unless told.
    ZeroBubble(Option<usize>),
    /// A table of PyTorch's.
    File(PathBuf),
}

impl ScheduleChoice {
    /// Every order that is the same whatever the costs, by its name; those of several stages a
    /// worker with two and four.
    pub fn all() -> impl Iterator<Item = (&'static str, Self)> {
        const NAMES: [&str; 12] = [
            "gpipe",
            "1f1b",
            "interleaved:2",
            "interleaved:4",
            "looped-bfs:2",
            "looped-bfs:4",
            "zb-h1",
            "zb-h2",
            "zb-v",
            "v-half",
            "v-min",
            "dualpipe-v",
        ];
        NAMES
            .iter()
            .filter_map(|name| Some((*name, name.parse().ok()?)))
    }

    /// How many stages each worker runs. A table says so itself.
    pub fn chunks(&self) -> usize {
        match self {
            Self::Interleaved(chunks) | Self::LoopedBfs(chunks) => *chunks,
            Self::ZbV | Self::VHalf | Self::VMin | Self::DualPipeV => 2,
            Self::Gpipe
            | Self::OneFOneB
            | Self::ZbH1
            | Self::ZbH2
            | Self::ZeroBubble(_)
            | Self::File(_) => 1,
        }
    }

    /// The schedule in the file, if it is one.
    pub fn table(&self) -> Outcome<Option<Schedule>> {
        match self {
            Self::File(path) => read(path).map(Some),
            _ => Ok(None),
        }
    }
}

impl FromStr for ScheduleChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |count: &str, what: &str| match count.parse::<u16>() {
            Ok(count) if count > 0 => Ok(usize::from(count)),
            _ => Err(format!(
                "`{count}` {what} in `{text}`: use a whole number from 1 to {}",
                u16::MAX
            )),
        };
        if Path::new(text)
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("csv"))
        {
            return Ok(Self::File(text.into()));
        }
        match text.split_once(':') {
            None if text == "gpipe" => Ok(Self::Gpipe),
            None if text == "1f1b" => Ok(Self::OneFOneB),
            None if text == "zb-h1" => Ok(Self::ZbH1),
            None if text == "zb-h2" => Ok(Self::ZbH2),
            None if text == "zb-v" => Ok(Self::ZbV),
            None if text == "v-half" => Ok(Self::VHalf),
            None if text == "v-min" => Ok(Self::VMin),
            None if text == "dualpipe-v" => Ok(Self::DualPipeV),
            None if text == "zero-bubble" => Ok(Self::ZeroBubble(None)),
            Some(("interleaved", count)) => number(count, "stages a worker").map(Self::Interleaved),
            Some(("looped-bfs", count)) => number(count, "stages a worker").map(Self::LoopedBfs),
            Some(("zero-bubble", count)) => {
                number(count, "micro-batches held").map(|held| Self::ZeroBubble(Some(held)))
            }
            _ => Err(format!(
                "unknown schedule `{text}`: use gpipe, 1f1b, interleaved:V, looped-bfs:V, zb-h1, \
                 zb-h2, zb-v, v-half, v-min, dualpipe-v, zero-bubble, zero-bubble:HELD or a file \
                 such as table.csv"
            )),
        }
    }
}

impl fmt::Display for ScheduleChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpipe => f.write_str("gpipe"),
            Self::OneFOneB => f.write_str("1f1b"),
            Self::Interleaved(chunks) => write!(f, "interleaved:{chunks}"),
            Self::LoopedBfs(chunks) => write!(f, "looped-bfs:{chunks}"),
            Self::ZbH1 => f.write_str("zb-h1"),
            Self::ZbH2 => f.write_str("zb-h2"),
            Self::ZbV => f.write_str("zb-v"),
            Self::VHalf => f.write_str("v-half"),
            Self::VMin => f.write_str("v-min"),
            Self::DualPipeV => f.write_str("dualpipe-v"),
            Self::ZeroBubble(None) => f.write_str("zero-bubble"),
            Self::ZeroBubble(Some(held)) => write!(f, "zero-bubble:{held}"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// Reads a table. What is wrong in it is shown in the table.
fn read(path: &Path) -> Outcome<Schedule> {
    let name = path.display();
    let fault = |fault: String| Error::drawn(format!("`pipeline.schedule = {name}`: {fault}"));
    let unreadable =
        |error: std::io::Error| fault(format!("{error}: name a table of actions that can be read"));
    let about = fs::metadata(path).map_err(unreadable)?;
    if !about.is_file() {
        return Err(fault("it is no file: name a table of actions".to_owned()));
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
            "it has no backward pass: nothing would be learnt".to_owned(),
        ));
    }
    Ok(schedule)
}
