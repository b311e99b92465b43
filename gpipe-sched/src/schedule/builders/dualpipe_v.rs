//! Two chunks of the model per device, folded in a V, forward and backward passes in pairs.

use std::collections::VecDeque;

use crate::schedule::action::{Action, Op};
use crate::schedule::builders::assemble::{assemble, folded};
use crate::schedule::data::Schedule;
use crate::schedule::fault::ScheduleError;

/// DualPipeV (DeepSeek-AI 2025, half of the DualPipe of DeepSeek-V3's report): of 2·K stages,
/// device `d` has `d` and `2·K−1−d`, as in [`zb_v`](crate::zb_v). Once the pipeline is full, each
/// device pairs a forward pass of one stage with a whole backward pass of the other. There the two
/// overlap, so that the transfers of one hide behind the work of the other; here the backward pass
/// follows the forward pass. Weight gradients are split off only at both ends of a step, where
/// another device waits for the input gradient.
///
/// With F = I = W, from 2·K micro-batches on, the step takes 6·M+K−1, and no device holds more than
/// 2·K+1 micro-batches of a stage, which are half as large as with one stage per device.
///
/// The original asks for 2·K micro-batches or more. With fewer, the schedule of 2·K is used without
/// the actions of the missing ones, which delays no other action.
///
/// ```text
/// device 0  0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1 3F2 0B0 3B2 3F3 0B1 3B3 0I2 0W2 0I3 0W3
/// device 1      1F0 2F0 1F1 2F1 1F2 2B0 2F2 1B0 1F3 2B1 2F3 1B1 2B2 1B2 2I3 1I3 2W3 1W3
/// ```
///
/// # Errors
/// If there is no device or no micro-batch, or more than a schedule can have.
pub fn dualpipe_v(devices: usize, micro_batches: usize) -> Result<Schedule, ScheduleError> {
    let (stages, device_of) = folded(devices);
    assemble(stages, devices, micro_batches, device_of, |device| {
        let mut lane = Lane {
            stages: [device, stages - 1 - device],
            micro_batches,
            forward: [0; 2],
            backward: [0; 2],
            pending: VecDeque::new(),
            actions: Vec::new(),
        };
        lane.fill(device + 1, devices - device - 1, micro_batches.max(stages));
        lane.actions
    })
}

/// A lane under construction. Each step appends the next action of its kind.
struct Lane {
    /// The stage on the way down, and the one on the way up.
    stages: [usize; 2],
    /// Actions of later micro-batches are left out.
    micro_batches: usize,
    /// The next micro-batch of each stage to go forward.
    forward: [usize; 2],
    /// The next micro-batch of each stage to go back.
    backward: [usize; 2],
    /// Weight gradients that were deferred and are still to do.
    pending: VecDeque<Action>,
    actions: Vec<Action>,
}

#[derive(Clone, Copy)]
enum Step {
    Forward(usize),
    /// Both gradients.
    Backward(usize),
    /// Defers the weight gradient.
    InputGrad(usize),
    /// The oldest deferred weight gradient.
    WeightGrad,
}

/// Index of the stage on the way down.
const DOWN: usize = 0;
/// Index of the stage on the way up.
const UP: usize = 1;

impl Lane {
    /// Builds the whole lane of a device that has `below` devices after it on the way down, and is
    /// the last of `above`.
    fn fill(&mut self, above: usize, below: usize, micro_batches: usize) {
        use Step::{Backward, Forward, InputGrad, WeightGrad};
        self.repeat(2 * below, &[Forward(DOWN)]);
        self.repeat(above, &[Forward(DOWN), Forward(UP)]);
        self.repeat(below, &[InputGrad(UP), WeightGrad, Forward(UP)]);
        let pairs = [Forward(DOWN), Backward(UP), Forward(UP), Backward(DOWN)];
        self.repeat(micro_batches - 2 * below - above, &pairs);
        self.repeat(below, &pairs[1..]);
        // No forward pass is left. After half of the remaining backward passes of both stages,
        // input gradients go first: other devices wait for them.
        self.repeat(above / 2, &[Backward(UP), Backward(DOWN)]);
        if !above.is_multiple_of(2) {
            self.repeat(1, &[Backward(UP), InputGrad(DOWN)]);
        }
        self.repeat(above / 2, &[InputGrad(UP), InputGrad(DOWN)]);
        self.repeat(below, &[WeightGrad, InputGrad(DOWN)]);
        self.actions.extend(self.pending.drain(..));
    }

    fn repeat(&mut self, times: usize, steps: &[Step]) {
        for _ in 0..times {
            let mut over = true;
            for &step in steps {
                over &= !self.step(step);
            }
            // The remaining repetitions add nothing either.
            if over {
                break;
            }
        }
    }

    /// Appends an action; returns whether there was one.
    fn step(&mut self, step: Step) -> bool {
        let (counter, op, place) = match step {
            Step::Forward(place) => (&mut self.forward[place], Op::Forward, place),
            Step::Backward(place) => (&mut self.backward[place], Op::Backward, place),
            Step::InputGrad(place) => (&mut self.backward[place], Op::InputGrad, place),
            Step::WeightGrad => {
                let action = self.pending.pop_front();
                self.actions.extend(action);
                return action.is_some();
            }
        };
        let action = Action::new(self.stages[place], op, *counter);
        *counter += 1;
        if action.micro_batch >= self.micro_batches {
            return false;
        }
        self.actions.push(action);
        if op == Op::InputGrad {
            let weight_grad = Action {
                op: Op::WeightGrad,
                ..action
            };
            self.pending.push_back(weight_grad);
        }
        true
    }
}
