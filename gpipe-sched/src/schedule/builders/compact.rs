//! Takes the idle time out of a schedule whose steady part is good and whose ends are not.

use crate::schedule::action::{Action, Op};
use crate::schedule::transfer::{Direction, Transfer};

/// Runs lanes on paper, every action in one unit of time, and lets a device that would wait do
/// instead what comes later in its lane and can be done (Qi et al. 2024 squeeze and reorder to the
/// same end). Nothing of one stage and operation overtakes its like, so ascending stays ascending,
/// and no forward pass is taken forward where that would make more than `held` micro-batches live.
///
/// Once the stage that is on the device first has no forward pass left, weight gradients step back
/// behind what other devices wait for.
pub(super) fn compact(
    device_of: &[usize],
    micro_batches: usize,
    lanes: Vec<Vec<Action>>,
    held: usize,
) -> Vec<Vec<Action>> {
    let stages = device_of.len();
    let mut sent = vec![false; Transfer::table(stages, micro_batches)];
    for m in 0..micro_batches {
        sent[Transfer::new(Direction::Forward, 0, m).index(micro_batches)] = true;
    }
    // How many input gradients each stage has taken; they ascend.
    let mut back = vec![0; stages];
    let mut lanes: Vec<Lane> = lanes.into_iter().map(Lane::new).collect();
    // Nothing changes for a device that could do nothing until a flow comes for it.
    let mut awake: Vec<usize> = (0..lanes.len()).collect();
    let mut picked = Vec::with_capacity(lanes.len());
    while !awake.is_empty() {
        for device in awake.drain(..) {
            let ready = |action: Action| match action.receives() {
                Some(transfer) => sent[transfer.index(micro_batches)],
                None => action.micro_batch < back[action.stage],
            };
            let action = lanes[device].pick(held, ready);
            picked.extend(action.map(|action| (device, action)));
        }
        // What was done in this unit of time is there in the next.
        for (device, action) in picked.drain(..) {
            awake.push(device);
            back[action.stage] += usize::from(action.op == Op::InputGrad);
            if let Some(transfer) = action.sends(stages) {
                sent[transfer.index(micro_batches)] = true;
                awake.push(device_of[transfer.stage]);
            }
        }
        awake.sort_unstable();
        awake.dedup();
    }
    lanes.into_iter().map(|lane| lane.compacted).collect()
}

struct Lane {
    actions: Vec<Action>,
    done: Vec<bool>,
    /// The first that is not done.
    head: usize,
    live: usize,
    /// The stage that the lane begins with.
    first: usize,
    /// How many of each kind are not done.
    left: [usize; KINDS],
    compacted: Vec<Action>,
}

/// Operations of the stage that a lane begins with, and of the other.
const KINDS: usize = 2 * Op::ALL.len();

impl Lane {
    fn new(actions: Vec<Action>) -> Self {
        let first = actions.first().map_or(0, |action| action.stage);
        let mut left = [0; KINDS];
        for &action in &actions {
            left[kind(action, first)] += 1;
        }
        Self {
            done: vec![false; actions.len()],
            head: 0,
            live: 0,
            first,
            left,
            compacted: Vec::with_capacity(actions.len()),
            actions,
        }
    }

    /// Does the next action, if any can be done.
    fn pick(&mut self, held: usize, ready: impl Fn(Action) -> bool) -> Option<Action> {
        let position = self.choose(held, ready)?;
        let action = self.actions[position];
        self.done[position] = true;
        while self.done.get(self.head) == Some(&true) {
            self.head += 1;
        }
        self.live += usize::from(action.op == Op::Forward);
        self.live -= usize::from(action.op.adds_gradient());
        self.left[kind(action, self.first)] -= 1;
        self.compacted.push(action);
        Some(action)
    }

    fn choose(&self, held: usize, ready: impl Fn(Action) -> bool) -> Option<usize> {
        let mut live = self.live;
        let mut peak = live;
        let mut weight_grad = None;
        let mut seen = [false; KINDS];
        let mut unseen = self.left.iter().filter(|&&left| left > 0).count();
        let drains = self.left[Op::Forward as usize] == 0;
        for position in self.head..self.actions.len() {
            let action = self.actions[position];
            if self.done[position] {
                continue;
            }
            if !std::mem::replace(&mut seen[kind(action, self.first)], true) {
                unseen -= 1;
                let fits = position == self.head || action.op != Op::Forward || peak < held;
                if fits && ready(action) {
                    if !drains || action.op != Op::WeightGrad {
                        return Some(position);
                    }
                    weight_grad = weight_grad.or(Some(position));
                }
                if unseen == 0 {
                    break;
                }
            }
            live += usize::from(action.op == Op::Forward);
            peak = peak.max(live);
            live = live.saturating_sub(usize::from(action.op.adds_gradient()));
        }
        weight_grad
    }
}

fn kind(action: Action, first: usize) -> usize {
    action.op as usize + usize::from(action.stage != first) * Op::ALL.len()
}
