//! Lower bound of a step's time over all cuts under one schedule, from longest paths through its actions.
//!
//! A step takes at least as long as every chain of dependent actions. The time of a chain is a sum over
//! stages: a number of forward passes of stage 0, of input gradients of stage 1, and so on. The mean of
//! several chains is at most the longest of them, so it is a bound as well, and the cut with the least
//! mean is found exactly by dynamic programming over the layers. The mean is taken over one chain per
//! device that runs through the device for as long as possible, so that cuts with some small stages gain
//! little.

use gpipe_sched::{Op, Schedule};

use super::candidate::Candidate;
use super::stage_bounds::StageBounds;

/// Relative slowdown of a device to find the chain through it: with equal devices, many chains are
/// equally long.
const SLOWER: [f64; 2] = [0.3, 1.0];

/// For each stage, the number of its forward passes, input and weight gradients on the chains; a full
/// micro-batch counts 1.
type Counts = Vec<[f64; 3]>;

impl Candidate<'_> {
    /// Lower bound, in seconds, over all cuts; `below` if no cut takes less than that. At least
    /// [`bound`](Candidate::bound).
    pub fn tight_bound(&self, below: f64) -> f64 {
        let simple = self.bound();
        let request = self.request;
        if simple >= below || request.cores.is_some() {
            // With shared cores an action may be faster than assumed on a path.
            return simple;
        }
        let speeds = request.workers.iter().map(|worker| worker.speed);
        let fastest = speeds.fold(0.0, f64::max);
        let update = self.bounds.update_on(self.schedule.devices());
        let room = StageBounds::new(self, (below - update) * fastest);
        let seconds = |work: f64| (work / fastest + update) * (1.0 - 1e-9);
        let mut best = simple;
        if self.follows() {
            best = best.max(seconds(room.longest_critical_path()));
        } else {
            let chains = Chains::new(
                &self.schedule,
                self.bounds.even(self.stages()),
                self.sizes(),
            );
            for slower in SLOWER {
                if best < below {
                    best = best.max(seconds(least(&room, &chains.counts(slower))));
                }
            }
        }
        best.min(below)
    }

    /// Number of actions visited for a tight bound.
    pub fn effort(&self) -> u64 {
        let actions: usize = self.schedule.lanes().iter().map(Vec::len).sum();
        match self.follows() || self.request.cores.is_some() {
            true => 0,
            false => (SLOWER.len() * actions * self.schedule.devices()) as u64,
        }
    }
}

/// The least cost of any cut in which every stage fits.
fn least(room: &StageBounds<'_>, counts: &Counts) -> f64 {
    let (layers, stages) = (room.layers(), counts.len());
    let mut before = vec![f64::INFINITY; layers + 1];
    before[0] = 0.0;
    for (stage, counts) in counts.iter().enumerate() {
        let ends = stage + 1..=layers - (stages - 1 - stage);
        let ending_at = |end: usize| {
            let mut least = f64::INFINITY;
            for start in (stage..end).rev() {
                let part = start..end;
                if !ends.contains(&end) || room.is_too_long(&part) {
                    break;
                }
                if before[start] == f64::INFINITY {
                    continue;
                }
                let Some(again) = room.again(stage, &part) else {
                    continue;
                };
                let [forward, input_grad, weight_grad] = room.work(&part);
                let cost = counts[0] * forward
                    + counts[1] * (input_grad + again)
                    + counts[2] * weight_grad;
                least = least.min(before[start] + cost);
            }
            least
        };
        before = (0..=layers).map(ending_at).collect();
    }
    before[layers]
}

/// The actions of a schedule, their dependencies and their durations if all stages are equal.
struct Chains {
    actions: Vec<Node>,
    /// The last action of each device.
    last: Vec<usize>,
    stages: usize,
}

struct Node {
    stage: usize,
    device: usize,
    /// Its share in forward pass, input and weight gradient, weighted by the size of the micro-batch.
    parts: [f64; 3],
    seconds: f64,
    /// The action before on its device, and the one whose output it takes.
    waits_for: [Option<usize>; 2],
}

impl Chains {
    /// `even` holds the time of forward pass, input and weight gradient on a stage.
    fn new(schedule: &Schedule, even: [f64; 3], sizes: Vec<f64>) -> Self {
        let (stages, micro_batches) = (schedule.stages(), schedule.micro_batches());
        let mut forward = vec![None; stages * micro_batches];
        let mut backward = forward.clone();
        let mut next = vec![0; schedule.devices()];
        let mut last: Vec<Option<usize>> = vec![None; schedule.devices()];
        let mut actions = Vec::new();
        // Topological order, which exists for a checked schedule.
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            for (device, lane) in schedule.lanes().iter().enumerate() {
                while let Some(action) = lane.get(next[device]) {
                    let (stage, m) = (action.stage, action.micro_batch);
                    let at = |stage: usize| stage * micro_batches + m;
                    let from = match action.op {
                        Op::Forward if stage > 0 => Some(forward[at(stage - 1)]),
                        Op::Backward | Op::InputGrad if stage + 1 < stages => {
                            Some(backward[at(stage + 1)])
                        }
                        // The others depend on actions of their own device alone.
                        _ => None,
                    };
                    if from == Some(None) {
                        break;
                    }
                    let whole = match action.op {
                        Op::Forward => [1.0, 0.0, 0.0],
                        Op::Backward => [0.0, 1.0, 1.0],
                        Op::InputGrad => [0.0, 1.0, 0.0],
                        Op::WeightGrad => [0.0, 0.0, 1.0],
                        Op::Recompute => [0.0; 3],
                    };
                    let parts = whole.map(|part| part * sizes[m]);
                    let index = actions.len();
                    match action.op {
                        Op::Forward => forward[at(stage)] = Some(index),
                        Op::Backward | Op::InputGrad => backward[at(stage)] = Some(index),
                        Op::WeightGrad | Op::Recompute => {}
                    }
                    actions.push(Node {
                        stage,
                        device,
                        parts,
                        seconds: parts.iter().zip(even).map(|(part, even)| part * even).sum(),
                        waits_for: [last[device], from.flatten()],
                    });
                    last[device] = Some(index);
                    next[device] += 1;
                    goes_on = true;
                }
            }
        }
        Self {
            actions,
            last: last.into_iter().flatten().collect(),
            stages,
        }
    }

    /// The mean of the longest chains, each with one device slower by this share.
    fn counts(&self, slower: f64) -> Counts {
        let mut counts = vec![[0.0; 3]; self.stages];
        let devices = self.last.len();
        let mut ends = vec![0.0; self.actions.len()];
        let mut after: Vec<Option<usize>> = vec![None; self.actions.len()];
        for slow in 0..devices {
            for (index, node) in self.actions.iter().enumerate() {
                let [own, other] = node.waits_for;
                let end = |index: Option<usize>| index.map_or(0.0, |index| ends[index]);
                // Of equally late ones, that of the same device.
                after[index] = if end(other) > end(own) { other } else { own };
                let factor = if node.device == slow {
                    1.0 + slower
                } else {
                    1.0
                };
                ends[index] = end(after[index]) + factor * node.seconds;
            }
            let last = self.last.iter().copied();
            let mut at = last.max_by(|&a, &b| ends[a].total_cmp(&ends[b]));
            while let Some(index) = at {
                let node = &self.actions[index];
                for (count, part) in counts[node.stage].iter_mut().zip(node.parts) {
                    *count += part / devices as f64;
                }
                at = after[index];
            }
        }
        counts
    }
}
