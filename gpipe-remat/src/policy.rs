//! What is kept between forward and backward: a policy, and the table that it makes of a schedule.

use gpipe_sched::{Action, Op, Schedule};

use crate::{Error, Result};

/// What a stage remembers of a micro-batch from its forward to its backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Everything: nothing is computed twice.
    Keep,
    /// The stage's input alone (GPipe's rule, section 2.3 of the paper).
    Stage,
    /// Everything of the last micro-batch, the input alone of the others: torchgpipe's
    /// `except_last`. There the last micro-batch goes backward first, so it saves a
    /// recomputation at no cost. Backward passes in ascending order reach it last, so here
    /// everything of it stays alive while the others are computed again: up to twice the memory
    /// of [`Policy::Stage`].
    ExceptLast,
    /// The input of every n-th layer of the stage: less is alive at once during the backward pass
    /// than under [`Policy::Stage`], at the same work (Chen et al. 2016).
    Every(usize),
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Keep => f.write_str("keep"),
            Self::Stage => f.write_str("stage"),
            Self::ExceptLast => f.write_str("except-last"),
            Self::Every(layers) => write!(f, "every:{layers}"),
        }
    }
}

impl std::str::FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once(':') {
            None if text == "keep" => Ok(Self::Keep),
            None if text == "stage" => Ok(Self::Stage),
            None if text == "except-last" => Ok(Self::ExceptLast),
            Some(("every", n)) => match n.parse() {
                Ok(layers) if layers > 0 => Ok(Self::Every(layers)),
                _ => Err(Error::UnknownPolicy(text.to_owned())),
            },
            _ => Err(Error::UnknownPolicy(text.to_owned())),
        }
    }
}

/// What one stage keeps of one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// What every layer saved.
    Everything,
    /// The input of the first of every run of this many layers; the rest is computed again.
    Inputs {
        /// Layers a run; a stage of fewer is one run.
        run: usize,
    },
}

/// Policy and schedule together: what each stage keeps of each micro-batch. The stages, the
/// memory prediction and the simulator read the same table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    micro_batches: usize,
    cells: Vec<Kept>,
}

impl Table {
    /// The table of `policy` under `schedule`.
    ///
    /// Where a stage's very next action is the backward pass of the micro-batch that it has just
    /// sent forward (1F1B's last stage), there is nothing to gain from forgetting: it keeps all.
    pub fn new(policy: Policy, schedule: &Schedule) -> Self {
        let (stages, micro_batches) = (schedule.stages(), schedule.micro_batches());
        let mut cells = vec![Kept::Everything; stages * micro_batches];
        let inputs = |run| Kept::Inputs { run };
        for stage in 0..stages {
            for m in 0..micro_batches {
                cells[stage * micro_batches + m] = match policy {
                    Policy::Keep => Kept::Everything,
                    Policy::Stage => inputs(usize::MAX),
                    Policy::ExceptLast if m + 1 == micro_batches => Kept::Everything,
                    Policy::ExceptLast => inputs(usize::MAX),
                    Policy::Every(run) => inputs(run),
                };
            }
        }
        let mut previous: Vec<Option<Action>> = vec![None; stages];
        for &action in schedule.lanes().iter().flatten() {
            let turns_at_once = matches!(action.op, Op::Backward | Op::InputGrad)
                && previous[action.stage].is_some_and(|before| {
                    before.op == Op::Forward && before.micro_batch == action.micro_batch
                });
            if turns_at_once {
                cells[action.stage * micro_batches + action.micro_batch] = Kept::Everything;
            }
            previous[action.stage] = Some(action);
        }
        Self {
            micro_batches,
            cells,
        }
    }

    /// What `stage` keeps of micro-batch `m`. Micro-batches that the schedule does not have
    /// (evaluation) are not kept and not asked for.
    pub fn kept(&self, stage: usize, m: usize) -> Kept {
        self.cells[stage * self.micro_batches + m]
    }
}
