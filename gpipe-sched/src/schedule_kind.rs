//! The built-in schedules by name: parsed, printed and built.

use std::fmt;
use std::str::FromStr;

use crate::schedule::builders::alternating::{gpipe, one_f_one_b};
use crate::schedule::builders::dualpipe_v::dualpipe_v;
use crate::schedule::builders::interleaved::interleaved;
use crate::schedule::builders::looped_bfs::looped_bfs;
use crate::schedule::builders::split::{zb_h1, zb_h2};
use crate::schedule::builders::v_shape::{v_half, v_min};
use crate::schedule::builders::zb_v::zb_v;
use crate::schedule::data::Schedule;
use crate::schedule::fault::ScheduleError;
use crate::simulate::costs::Costs;
use crate::simulate::costs_error::CostsError;
use crate::simulate::zero_bubble::{ZeroBubbleError, zero_bubble};

/// A built-in schedule, without its sizes.
///
/// The text form is a name, followed by a number where the kind has one: `1f1b`, `interleaved:2`,
/// `zero-bubble:6`. Parsing takes numbers from 1 to 65535; what [`Display`](fmt::Display) prints of
/// such a kind parses to the same kind.
///
/// ```
/// use gpipe_sched::{ScheduleKind, interleaved};
///
/// let kind: ScheduleKind = "interleaved:2".parse()?;
/// assert_eq!(kind, ScheduleKind::Interleaved(2));
/// assert_eq!(kind.to_string(), "interleaved:2");
/// // Eight stages on four devices, two per device.
/// assert_eq!(kind.build(8, 16, None)?, interleaved(4, 2, 16)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScheduleKind {
    /// `gpipe`: all micro-batches forward, then all backward. See [`gpipe`].
    Gpipe,
    /// `1f1b`: one forward, one backward. See [`one_f_one_b`].
    OneFOneB,
    /// `interleaved:V`: 1F1B with V stages per device, dealt out in turn. See [`interleaved`].
    Interleaved(usize),
    /// `looped-bfs:V`: V stages per device, all micro-batches through one before the next. See
    /// [`looped_bfs`].
    LoopedBfs(usize),
    /// `zb-h1`: weight gradients deferred into the bubble, in the memory of 1F1B. See [`zb_h1`].
    ZbH1,
    /// `zb-h2`: the same in twice the memory, without a bubble. See [`zb_h2`].
    ZbH2,
    /// `zb-v`: the same with two stages per device, folded in a V. See [`zb_v`].
    ZbV,
    /// `v-half`: folded in a V, in half the memory of 1F1B. See [`v_half`].
    VHalf,
    /// `v-min`: folded in a V, in a third of the memory of 1F1B. See [`v_min`].
    VMin,
    /// `dualpipe-v`: folded in a V, forward and backward passes in pairs. See [`dualpipe_v`].
    DualPipeV,
    /// `zero-bubble` or `zero-bubble:N`: the fastest order that a search finds for given costs, with at
    /// most this many micro-batches in flight on a stage; as many as there are stages for `None`. See
    /// [`zero_bubble`].
    ZeroBubble(Option<usize>),
}

/// Text that names no built-in schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseScheduleError {
    /// No kind has this name. A table is not a kind: [`Schedule::from_csv`] reads it.
    #[error(
        "unknown schedule `{text}`: use gpipe, 1f1b, interleaved:V, looped-bfs:V, zb-h1, \
         zb-h2, zb-v, v-half, v-min, dualpipe-v, zero-bubble or zero-bubble:N"
    )]
    Unknown {
        /// The text.
        text: String,
    },
    /// The number after the name is not one from 1 to 65535.
    #[error(
        "`{number}` {what} in `{text}`: use a whole number from 1 to {}",
        u16::MAX
    )]
    Number {
        /// The part after the colon.
        number: String,
        /// What it counts: "stages a worker" or "micro-batches in flight".
        what: &'static str,
        /// The whole text.
        text: String,
    },
}

/// A kind of schedule that cannot be built with some sizes or costs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildScheduleError {
    /// The stages cannot be dealt out evenly to devices.
    #[error("{stages} stages but {chunks} on each device: use {}", Nearest(*stages, *chunks))]
    Stages {
        /// The stages asked for.
        stages: usize,
        /// The stages on each device: [`ScheduleKind::chunks`].
        chunks: usize,
    },
    /// The sizes are not those of a schedule.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The costs do not fit the sizes, or are not times.
    #[error(transparent)]
    Costs(#[from] CostsError),
}

/// The multiples of the second number next to the first.
struct Nearest(usize, usize);

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(stages, chunks) = *self;
        if chunks == 0 {
            return f.write_str("1 or more on each");
        }
        let below = stages / chunks * chunks;
        match below.checked_add(chunks) {
            Some(above) if below == 0 => write!(f, "{above}"),
            Some(above) => write!(f, "{below} or {above}"),
            None => write!(f, "{below}"),
        }
    }
}

impl From<ZeroBubbleError> for BuildScheduleError {
    fn from(error: ZeroBubbleError) -> Self {
        match error {
            ZeroBubbleError::Schedule(error) => Self::Schedule(error),
            ZeroBubbleError::Costs(error) => Self::Costs(error),
        }
    }
}

impl ScheduleKind {
    /// Every kind whose schedule does not depend on costs; those with a number of stages per device
    /// with 2 and with 4.
    pub fn all() -> impl Iterator<Item = Self> {
        [
            Self::Gpipe,
            Self::OneFOneB,
            Self::Interleaved(2),
            Self::Interleaved(4),
            Self::LoopedBfs(2),
            Self::LoopedBfs(4),
            Self::ZbH1,
            Self::ZbH2,
            Self::ZbV,
            Self::VHalf,
            Self::VMin,
            Self::DualPipeV,
        ]
        .into_iter()
    }

    /// The number of stages on each device.
    pub fn chunks(self) -> usize {
        match self {
            Self::Interleaved(chunks) | Self::LoopedBfs(chunks) => chunks,
            Self::ZbV | Self::VHalf | Self::VMin | Self::DualPipeV => 2,
            Self::Gpipe | Self::OneFOneB | Self::ZbH1 | Self::ZbH2 | Self::ZeroBubble(_) => 1,
        }
    }

    /// Whether the schedule depends on the costs given to [`build`](Self::build).
    pub fn follows_costs(self) -> bool {
        matches!(self, Self::ZeroBubble(_))
    }

    /// Builds the schedule of `stages` stages, on `stages / chunks` devices.
    ///
    /// `costs` matter to kinds that [follow them](Self::follows_costs) alone. Where they are not known
    /// yet, because they depend on the schedule themselves, `None` gives the 1F1B from which the
    /// search starts: predict the costs under it, then build again.
    ///
    /// # Errors
    /// If `stages` is not a multiple of [`chunks`](Self::chunks), there is no stage or no
    /// micro-batch, there are more than a schedule can have, or the costs do not fit.
    pub fn build(
        self,
        stages: usize,
        micro_batches: usize,
        costs: Option<&Costs>,
    ) -> Result<Schedule, BuildScheduleError> {
        let chunks = self.chunks();
        let devices = match stages.checked_div(chunks) {
            Some(devices) if devices * chunks == stages => devices,
            _ => return Err(BuildScheduleError::Stages { stages, chunks }),
        };
        let schedule = match (self, costs) {
            (Self::ZeroBubble(held), Some(costs)) => {
                let held = held.unwrap_or(stages);
                return Ok(zero_bubble(stages, micro_batches, costs, |_| held)?);
            }
            (Self::Gpipe, _) => gpipe(devices, micro_batches),
            (Self::OneFOneB | Self::ZeroBubble(_), _) => one_f_one_b(devices, micro_batches),
            (Self::Interleaved(_), _) => interleaved(devices, chunks, micro_batches),
            (Self::LoopedBfs(_), _) => looped_bfs(devices, chunks, micro_batches),
            (Self::ZbH1, _) => zb_h1(devices, micro_batches),
            (Self::ZbH2, _) => zb_h2(devices, micro_batches),
            (Self::ZbV, _) => zb_v(devices, micro_batches),
            (Self::VHalf, _) => v_half(devices, micro_batches),
            (Self::VMin, _) => v_min(devices, micro_batches),
            (Self::DualPipeV, _) => dualpipe_v(devices, micro_batches),
        };
        Ok(schedule?)
    }
}

impl fmt::Display for ScheduleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpipe => f.pad("gpipe"),
            Self::OneFOneB => f.pad("1f1b"),
            Self::Interleaved(chunks) => f.pad(&format!("interleaved:{chunks}")),
            Self::LoopedBfs(chunks) => f.pad(&format!("looped-bfs:{chunks}")),
            Self::ZbH1 => f.pad("zb-h1"),
            Self::ZbH2 => f.pad("zb-h2"),
            Self::ZbV => f.pad("zb-v"),
            Self::VHalf => f.pad("v-half"),
            Self::VMin => f.pad("v-min"),
            Self::DualPipeV => f.pad("dualpipe-v"),
            Self::ZeroBubble(None) => f.pad("zero-bubble"),
            Self::ZeroBubble(Some(held)) => f.pad(&format!("zero-bubble:{held}")),
        }
    }
}

impl FromStr for ScheduleKind {
    type Err = ParseScheduleError;

    fn from_str(text: &str) -> Result<Self, ParseScheduleError> {
        let count = |number: &str, what| match number.parse::<u16>() {
            Ok(count) if count > 0 => Ok(usize::from(count)),
            _ => Err(ParseScheduleError::Number {
                number: number.to_owned(),
                what,
                text: text.to_owned(),
            }),
        };
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
            Some(("interleaved", number)) => {
                count(number, "stages a worker").map(Self::Interleaved)
            }
            Some(("looped-bfs", number)) => count(number, "stages a worker").map(Self::LoopedBfs),
            Some(("zero-bubble", number)) => {
                count(number, "micro-batches in flight").map(|held| Self::ZeroBubble(Some(held)))
            }
            _ => Err(ParseScheduleError::Unknown {
                text: text.to_owned(),
            }),
        }
    }
}
