//! Orders in which the actions of a pipeline can run, all of them reachable.

use gpipe_sched::{Action, Op};
use proptest::test_runner::Config;

/// A failing case is printed, not written into the repository.
pub fn config(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    }
}

/// Numbers below a bound, the same for the same seed (Knuth's linear congruential generator).
pub fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

/// Lanes from one order of all actions: those of each device, in that order.
pub fn lanes(device_of: &[usize], order: &[Action]) -> Vec<Vec<Action>> {
    let devices = device_of.iter().max().unwrap() + 1;
    let of = |device| {
        order
            .iter()
            .copied()
            .filter(|a| device_of[a.stage] == device)
            .collect()
    };
    (0..devices).map(of).collect()
}

/// An order in which everything can run one after the other; `choices` decides what is next among
/// what is ready. Backward is split where `split` says so, and recomputed ahead where `ahead` does.
pub fn any_order(
    stages: usize,
    micro_batches: usize,
    split: impl Fn(usize, usize) -> bool,
    ahead: impl Fn(usize, usize) -> bool,
    choices: &mut impl FnMut(usize) -> usize,
) -> Vec<Action> {
    let mut left: Vec<Action> = Vec::new();
    for stage in 0..stages {
        for m in 0..micro_batches {
            let ops: &[Op] = if split(stage, m) {
                &[Op::Forward, Op::InputGrad, Op::WeightGrad]
            } else {
                &[Op::Forward, Op::Backward]
            };
            left.extend(ops.iter().map(|&op| Action::new(stage, op, m)));
            if ahead(stage, m) {
                left.push(Action::new(stage, Op::Recompute, m));
            }
        }
    }
    let mut order = Vec::new();
    while !left.is_empty() {
        let waits = |op: &dyn Fn(Op) -> bool, stage: usize, m: usize| {
            left.iter()
                .any(|a| op(a.op) && a.stage == stage && a.micro_batch == m)
        };
        let ready: Vec<usize> = (0..left.len())
            .filter(|&i| {
                let Action {
                    stage,
                    op,
                    micro_batch: m,
                } = left[i];
                let forward = |stage| waits(&|op| op == Op::Forward, stage, m);
                match op {
                    Op::Forward => stage == 0 || !forward(stage - 1),
                    Op::Recompute => !forward(stage),
                    Op::Backward | Op::InputGrad => {
                        let above = stage + 1 < stages && waits(&Op::is_backward, stage + 1, m);
                        !forward(stage) && !above && !waits(&|op| op == Op::Recompute, stage, m)
                    }
                    Op::WeightGrad => !waits(&|op| op == Op::InputGrad, stage, m),
                }
            })
            .collect();
        order.push(left.remove(ready[choices(ready.len())]));
    }
    order
}
