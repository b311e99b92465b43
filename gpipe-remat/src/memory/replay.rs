//! One stage's actions replayed on a ledger, buffer by buffer, exactly as
//! [`LayerStage`](crate::LayerStage) would run them.

use std::convert::Infallible;
use std::ops::Range;

use gpipe_layers::{Buffer, Buffers, Flow, Ledger, PendingBuffers, SavedBuffers};
use gpipe_sched::{GroupSums, Op, Schedule};

use crate::reach::Reach;
use crate::{ModelCosts, Retained, RetainedRun};

/// The peak bytes of activations of `stage`, which runs the layers `part`, if it keeps `kept` of each
/// micro-batch.
pub(crate) fn activations<'a>(
    costs: &ModelCosts,
    part: &Range<usize>,
    schedule: &Schedule,
    stage: usize,
    kept: impl Fn(usize) -> &'a Retained,
) -> u64 {
    let mut replay = Replay::new(costs, kept, schedule, stage, part.clone());
    for action in schedule.of_stage(stage) {
        replay.act(action.op, action.micro_batch);
    }
    replay.ledger.peak()
}

/// For each tensor of the input flow, whether the layers of a run touch it.
fn reach(costs: &ModelCosts, m: usize, layers: Range<usize>) -> Reach {
    let mut reach = Reach::new(costs.flow(m, layers.start).len());
    for layer in layers {
        reach.pass(costs.places(layer), costs.of(m)[layer].outputs.len());
    }
    reach
}

/// One stage's actions on a ledger.
pub(crate) struct Replay<'a, K> {
    pub ledger: Ledger,
    costs: &'a ModelCosts,
    kept: K,
    layers: Range<usize>,
    has_loss: bool,
    micro_batches: Vec<State>,
    /// Sums of gradients beside the current one, whose bytes are counted as the stage's gradients.
    sums: GroupSums<Buffer>,
}

/// The buffers that the stage would hold for one micro-batch.
enum State {
    Nothing,
    Remembered(Vec<Run>),
    Pending(Vec<(usize, PendingBuffers)>),
}

struct Run {
    layers: Range<usize>,
    /// Whether it was kept since the forward pass, rather than recomputed.
    kept: bool,
    left: Left,
}

enum Left {
    Inputs(Buffers),
    Saved(Vec<SavedBuffers>),
}

impl<'a, 'k, K: Fn(usize) -> &'k Retained> Replay<'a, K> {
    pub fn new(
        costs: &'a ModelCosts,
        kept: K,
        schedule: &Schedule,
        stage: usize,
        layers: Range<usize>,
    ) -> Self {
        Self {
            ledger: Ledger::new(),
            sums: GroupSums::new(costs.groups()),
            costs,
            kept,
            layers,
            has_loss: stage + 1 == schedule.stages(),
            micro_batches: (0..schedule.micro_batches())
                .map(|_| State::Nothing)
                .collect(),
        }
    }

    pub fn act(&mut self, op: Op, m: usize) {
        if op.adds_gradient() {
            let bytes = self.costs.gradients(self.layers.clone());
            let swap = |sum: Option<Buffer>| {
                Ok::<_, Infallible>(sum.unwrap_or_else(|| self.ledger.alloc(bytes)))
            };
            let Ok(()) = self.sums.enter(m, swap);
        }
        let state = std::mem::replace(&mut self.micro_batches[m], State::Nothing);
        self.micro_batches[m] = match (op, state) {
            (Op::Forward, State::Nothing) => State::Remembered(self.forward(m)),
            (Op::Recompute, State::Remembered(mut runs)) => {
                if let Some(last) = runs.iter().rposition(|run| !run.kept) {
                    let Run { layers, kept, left } = runs.remove(last);
                    let left = Left::Saved(self.restore(m, layers.clone(), left));
                    runs.insert(last, Run { layers, kept, left });
                }
                State::Remembered(runs)
            }
            (Op::Backward, State::Remembered(runs)) => {
                self.back(m, runs, true);
                State::Nothing
            }
            (Op::InputGrad, State::Remembered(runs)) => State::Pending(self.back(m, runs, false)),
            (Op::WeightGrad, State::Pending(pending)) => {
                for (layer, pending) in pending {
                    self.ledger.weight_grad(&self.costs.of(m)[layer], pending);
                }
                State::Nothing
            }
            // A checked schedule has no other order of actions.
            (_, state) => state,
        };
        if op.adds_gradient() {
            let add = |sum| {
                self.ledger.release(sum);
                Ok::<_, Infallible>(())
            };
            let Ok(()) = self.sums.leave(m, add);
        }
    }

    /// Replays the forward pass of `layers`; buffers that are not kept are released at once.
    fn down(
        &mut self,
        m: usize,
        layers: Range<usize>,
        mut x: Buffers,
        mut keep: Option<&mut Vec<SavedBuffers>>,
    ) -> Buffers {
        for layer in layers {
            let taken = self.costs.arity(layer).min(x.len());
            let passing: Buffers = x.drain(taken..).collect();
            let (mut y, saved) = self.ledger.forward(&self.costs.of(m)[layer], x);
            match &mut keep {
                Some(kept) => kept.push(saved),
                None => self.ledger.release_saved(saved),
            }
            y.extend(passing);
            x = y;
        }
        x
    }

    fn forward(&mut self, m: usize) -> Vec<Run> {
        let mut flow = self
            .ledger
            .alloc_flow(self.costs.flow(m, self.layers.start));
        let mut runs = Vec::new();
        for RetainedRun { layers, kept } in (self.kept)(m).runs(self.layers.len()) {
            let layers = self.layers.start + layers.start..self.layers.start + layers.end;
            let left = if kept {
                let mut saved = Vec::with_capacity(layers.len());
                flow = self.down(m, layers.clone(), flow, Some(&mut saved));
                Left::Saved(saved)
            } else {
                let inputs = self.ledger.hold_all(&flow);
                flow = self.down(m, layers.clone(), flow, None);
                Left::Inputs(self.stash(m, layers.clone(), inputs))
            };
            runs.push(Run { layers, kept, left });
        }
        // The flow leaves; the loss stage takes it and writes the gradient over it.
        self.ledger.release_all(flow);
        if self.has_loss {
            let y = self.ledger.alloc_flow(self.costs.flow(m, self.layers.end));
            self.ledger.release_all(y);
        }
        runs
    }

    /// The inputs that are kept of a run; those that no layer touches are released.
    fn stash(&mut self, m: usize, layers: Range<usize>, inputs: Buffers) -> Buffers {
        let flow = self.costs.flow(m, layers.start);
        let reach = reach(self.costs, m, layers);
        let kept = inputs.into_iter().zip(flow).zip(reach.touched());
        kept.map(|((input, flow), touched)| match touched {
            true => input,
            false => {
                self.ledger.release(input);
                self.ledger.stand_in(flow)
            }
        })
        .collect()
    }

    fn restore(&mut self, m: usize, layers: Range<usize>, left: Left) -> Vec<SavedBuffers> {
        match left {
            Left::Saved(saved) => saved,
            Left::Inputs(x) => {
                let mut saved = Vec::with_capacity(layers.len());
                let y = self.down(m, layers, x, Some(&mut saved));
                self.ledger.release_all(y);
                saved
            }
        }
    }

    fn back(&mut self, m: usize, mut runs: Vec<Run>, whole: bool) -> Vec<(usize, PendingBuffers)> {
        let outputs = self.costs.flow(m, self.layers.end).iter();
        let gradients: Vec<Flow> = outputs
            .filter(|flow| flow.dtype.is_float())
            .cloned()
            .collect();
        let mut dy = self.ledger.alloc_flow(&gradients);
        let mut left = Vec::new();
        while let Some(Run {
            layers,
            left: of_run,
            ..
        }) = runs.pop()
        {
            let saved = self.restore(m, layers.clone(), of_run);
            for (layer, saved) in layers.rev().zip(saved.into_iter().rev()) {
                let cost = &self.costs.of(m)[layer];
                let own = cost
                    .outputs
                    .iter()
                    .filter(|flow| flow.dtype.is_float())
                    .count();
                let passing: Buffers = dy.drain(own.min(dy.len())..).collect();
                let mut dx = Buffers::new();
                if layer == 0 {
                    left.push((layer, self.ledger.param_only_grad(cost, saved, dy)));
                } else if whole {
                    dx = self.ledger.backward(cost, saved, dy);
                } else {
                    let pending;
                    (dx, pending) = self.ledger.input_grad(cost, saved, dy);
                    left.push((layer, pending));
                }
                if whole {
                    for (layer, pending) in left.drain(..) {
                        self.ledger.weight_grad(&self.costs.of(m)[layer], pending);
                    }
                }
                dx.extend(passing);
                dy = dx;
            }
        }
        self.ledger.release_all(dy);
        left
    }
}
