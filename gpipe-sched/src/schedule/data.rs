//! Schedules as plain data: the actions of each device, in order.

use crate::schedule::action::{Action, Op};
use crate::schedule::check::check;
use crate::schedule::fault::{MAX_CELLS, ScheduleError};

/// The actions of each device, in order.
///
/// A schedule that exists is complete, in order and free of deadlock: [`Schedule::new`] is the only
/// constructor, and it checks. It holds neither stages nor times: the simulator knows the cost of
/// an action, the executor what it computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    micro_batches: usize,
    device_of: Vec<usize>,
    lanes: Vec<Vec<Action>>,
    forward_only: bool,
}

impl Schedule {
    /// The maximum of stages times micro-batches.
    pub const MAX_CELLS: usize = MAX_CELLS;

    /// Checks and builds a schedule: stage `s` lives on device `device_of[s]`, and device `d` runs
    /// `lanes[d]` in order.
    ///
    /// Each stage needs, for each of `micro_batches`, one `F` and either one `B` or one `I` and one
    /// `W`, in this order, with at most one `R` between; or all actions are `F` (evaluation). `F`
    /// follows the `F` of the previous stage, and `B` or `I` that of the next stage; lanes that
    /// would wait for each other in a ring are refused.
    ///
    /// # Errors
    /// The first fault found, with its cell and a picture of the lanes around it.
    pub fn new(
        device_of: Vec<usize>,
        micro_batches: usize,
        lanes: Vec<Vec<Action>>,
    ) -> Result<Self, ScheduleError> {
        check(&device_of, micro_batches, &lanes)?;
        let forward_only = lanes
            .iter()
            .flatten()
            .all(|action| action.op == Op::Forward);
        Ok(Self {
            micro_batches,
            device_of,
            lanes,
            forward_only,
        })
    }

    /// The number of stages.
    pub fn stages(&self) -> usize {
        self.device_of.len()
    }

    /// The number of micro-batches.
    pub fn micro_batches(&self) -> usize {
        self.micro_batches
    }

    /// The number of devices, each with at least one stage.
    pub fn devices(&self) -> usize {
        self.lanes.len()
    }

    /// The device of each stage.
    pub fn device_of(&self) -> &[usize] {
        &self.device_of
    }

    /// The actions of each device, in order.
    pub fn lanes(&self) -> &[Vec<Action>] {
        &self.lanes
    }

    /// The actions of one stage, in order.
    ///
    /// # Panics
    /// If `stage` is out of range.
    pub fn of_stage(&self, stage: usize) -> impl Iterator<Item = Action> {
        self.lanes[self.device_of[stage]]
            .iter()
            .copied()
            .filter(move |action| action.stage == stage)
    }

    /// Whether there are only forward passes.
    pub fn is_forward_only(&self) -> bool {
        self.forward_only
    }

    /// Whether every stage adds its weight gradients in ascending order of micro-batches.
    ///
    /// Floating-point sums depend on their order, so only such schedules give the same bits as
    /// each other and as one device.
    pub fn is_ascending(&self) -> bool {
        let mut next = vec![0; self.stages()];
        self.lanes
            .iter()
            .flatten()
            .filter(|action| action.op.adds_gradient())
            .all(|action| {
                let ascends = action.micro_batch >= next[action.stage];
                next[action.stage] = action.micro_batch;
                ascends
            })
    }

    /// The maximum number of micro-batches that `stage` holds at once: forward done, backward (`B`,
    /// or `W` where it is split) not. 0 if there are only forward passes.
    ///
    /// It does not depend on the duration of any action, because the order within a stage is fixed.
    ///
    /// # Panics
    /// If `stage` is out of range.
    pub fn live(&self, stage: usize) -> usize {
        if self.forward_only {
            return 0;
        }
        let (mut live, mut peak) = (0_usize, 0);
        for action in self.of_stage(stage) {
            if action.op == Op::Forward {
                live += 1;
                peak = peak.max(live);
            } else if action.op.adds_gradient() {
                live -= 1;
            }
        }
        peak
    }
}
