//! One stage's actions replayed on a ledger, buffer by buffer, exactly as
//! [`LayerStage`](crate::LayerStage) would run them.

use std::convert::Infallible;
use std::ops::Range;

use gpipe_layers::{Buffer, Buffers, Cost, Ledger, PendingBuffers, SavedBuffers};
use gpipe_sched::{GroupSums, Op, Schedule};

use crate::portals::{passing, present};
use crate::reach::Reach;
use crate::{ModelCosts, Retained, RetainedRun};

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
    /// The first of the layers with a backward pass; their end if none has.
    trained: usize,
    /// Of the flow that enters the stage and of the one that leaves it, which tensors pass by through portals.
    passing: [Vec<bool>; 2],
    micro_batches: Vec<State>,
    /// Of the layers before the pipeline: what each group holds between its first and its last micro-batch.
    passes: Vec<Option<GroupPass>>,
    /// Sums of gradients beside the current one, whose bytes are counted as the stage's gradients.
    sums: GroupSums<Buffer>,
    /// Those of the layers before the pipeline, to which a group adds once.
    sums_before: GroupSums<Buffer>,
}

/// The buffers that the stage would hold for one micro-batch.
enum State {
    Nothing,
    Remembered(Vec<Run>),
    Pending(Vec<(usize, PendingBuffers)>),
}

/// The pass of a group through the layers before the pipeline.
struct GroupPass {
    outputs: Buffers,
    saved: Vec<SavedBuffers>,
    /// dY of each micro-batch whose backward pass has run.
    gradients: Vec<Buffers>,
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
        portals: bool,
    ) -> Self {
        let mut passing = match portals {
            true => passing(costs, &layers),
            false => Vec::new(),
        };
        let leaving = passing.pop().unwrap_or_default();
        Self {
            passing: [passing.into_iter().next().unwrap_or_default(), leaving],
            ledger: Ledger::new(),
            sums: GroupSums::new(costs.groups()),
            sums_before: GroupSums::new(costs.groups().whole()),
            trained: costs.first_trained().clamp(layers.start, layers.end),
            costs,
            kept,
            layers,
            has_loss: stage + 1 == schedule.stages(),
            passes: (0..costs.groups().count()).map(|_| None).collect(),
            micro_batches: (0..schedule.micro_batches())
                .map(|_| State::Nothing)
                .collect(),
        }
    }

    pub fn act(&mut self, op: Op, m: usize) {
        if op.adds_gradient() {
            let pipelined = self.layers.start + self.before()..self.layers.end;
            let bytes = self.costs.gradients(pipelined);
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
            let add = |sum, _| {
                self.ledger.release(sum);
                Ok::<_, Infallible>(())
            };
            let Ok(()) = self.sums.leave(m, add);
        }
    }

    /// Number of layers before the pipeline, which are the first of the first stage.
    fn before(&self) -> usize {
        match self.layers.start {
            0 => self.costs.before(),
            _ => 0,
        }
    }

    /// Replays the forward pass of `layers`; buffers that are not kept are released at once.
    fn down(
        &mut self,
        costs: &[Cost],
        layers: Range<usize>,
        mut x: Buffers,
        mut keep: Option<&mut Vec<SavedBuffers>>,
    ) -> Buffers {
        for layer in layers {
            let taken = self.costs.arity(layer).min(x.len());
            let passing: Buffers = x.drain(taken..).collect();
            let (mut y, saved) = self.ledger.forward(&costs[layer], x);
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
        let before = self.before();
        let mut flow = match before {
            0 => {
                let input = self.costs.flow(m, self.layers.start);
                self.ledger.alloc_flow(&present(input, &self.passing[0]))
            }
            _ => self.views(m),
        };
        let mut runs = Vec::new();
        let start = self.layers.start + before;
        let trained = self.trained.max(start);
        flow = self.down(self.costs.of(m), start..trained, flow, None);
        let behind = (self.kept)(m).runs_behind(trained - start, self.layers.end - start);
        for RetainedRun { layers, kept } in behind {
            let layers = start + layers.start..start + layers.end;
            let left = if kept {
                let mut saved = Vec::with_capacity(layers.len());
                flow = self.down(self.costs.of(m), layers.clone(), flow, Some(&mut saved));
                Left::Saved(saved)
            } else {
                let inputs = self.ledger.hold_all(&flow);
                flow = self.down(self.costs.of(m), layers.clone(), flow, None);
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
                let (costs, last) = (self.costs.of(m), layers.end - 1);
                let mut saved = Vec::with_capacity(layers.len());
                let mut x = self.down(costs, layers.start..last, x, Some(&mut saved));
                let taken = self.costs.arity(last).min(x.len());
                let passing: Buffers = x.drain(taken..).collect();
                self.ledger.release_all(passing);
                saved.push(self.ledger.recompute(&costs[last], x));
                saved
            }
        }
    }

    fn back(&mut self, m: usize, mut runs: Vec<Run>, whole: bool) -> Vec<(usize, PendingBuffers)> {
        let mut gradients = match self.costs.owes_gradients(self.layers.end) {
            true => present(self.costs.flow(m, self.layers.end), &self.passing[1]),
            false => Vec::new(),
        };
        gradients.retain(|flow| flow.dtype.is_float());
        let mut dy = self.ledger.alloc_flow(&gradients);
        let mut left = Vec::new();
        while let Some(Run {
            layers,
            left: of_run,
            ..
        }) = runs.pop()
        {
            let saved = self.restore(m, layers.clone(), of_run);
            dy = self.up(self.costs.of(m), layers, saved, dy, whole, &mut left);
        }
        match self.before() {
            0 => self.ledger.release_all(dy),
            _ => self.leave_group(m, dy),
        }
        left
    }

    /// Replays the backward pass of `layers`; without `whole`, the weight gradients are left.
    fn up(
        &mut self,
        costs: &[Cost],
        layers: Range<usize>,
        saved: Vec<SavedBuffers>,
        mut dy: Buffers,
        whole: bool,
        left: &mut Vec<(usize, PendingBuffers)>,
    ) -> Buffers {
        for (layer, saved) in layers.rev().zip(saved.into_iter().rev()) {
            let cost = &costs[layer];
            let floats = cost.outputs.iter().filter(|flow| flow.dtype.is_float());
            let passing: Buffers = dy.drain(floats.count().min(dy.len())..).collect();
            let mut dx = Buffers::new();
            if layer == self.costs.first_trained() {
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
                    self.ledger.weight_grad(&costs[layer], pending);
                }
            }
            dx.extend(passing);
            dy = dx;
        }
        dy
    }

    /// The rows of a micro-batch of the outputs of the layers before the pipeline, as views.
    fn views(&mut self, m: usize) -> Buffers {
        let group = self.costs.groups().of(m);
        let pass = match self.passes[group].take() {
            Some(pass) => pass,
            None => {
                let x = self.ledger.alloc_flow(self.costs.flow_of_group(group, 0));
                let (costs, mut saved) = (self.costs.of_group(group), Vec::new());
                let trained = self.trained.min(costs.len());
                let flow = self.down(costs, 0..trained, x, None);
                GroupPass {
                    outputs: self.down(costs, trained..costs.len(), flow, Some(&mut saved)),
                    saved,
                    gradients: Vec::new(),
                }
            }
        };
        let flow = self.costs.flow(m, self.costs.before());
        let views = pass.outputs.iter().zip(flow);
        let views = views.map(|(whole, flow)| self.ledger.view(whole, flow));
        let views = views.collect();
        self.passes[group] = Some(pass);
        views
    }

    /// Takes dY of a micro-batch for the layers before the pipeline; the last one of a group passes them.
    fn leave_group(&mut self, m: usize, dy: Buffers) {
        let groups = self.costs.groups();
        let group = groups.of(m);
        let Some(mut pass) = self.passes[group].take() else {
            return self.ledger.release_all(dy);
        };
        pass.gradients
            .push(match self.costs.owes_gradients(self.costs.before()) {
                true => dy,
                false => {
                    self.ledger.release_all(dy);
                    Buffers::new()
                }
            });
        if pass.gradients.len() < groups.micro_batches(group).len() {
            self.passes[group] = Some(pass);
            return;
        }
        self.ledger.release_all(pass.outputs);
        if !self.costs.owes_gradients(self.costs.before()) {
            return;
        }
        let mut gradients = pass.gradients;
        let dy = match gradients.len() {
            1 => gradients.swap_remove(0),
            _ => {
                let outputs = self.costs.flow_of_group(group, self.costs.before());
                let floats = outputs.iter().filter(|flow| flow.dtype.is_float());
                floats.map(|flow| self.ledger.alloc(flow.bytes())).collect()
            }
        };
        self.ledger.release_all(gradients.into_iter().flatten());
        let number = group - groups.own().start;
        let bytes = self.costs.gradients(0..self.costs.before());
        let swap = |sum: Option<Buffer>| {
            Ok::<_, Infallible>(sum.unwrap_or_else(|| self.ledger.alloc(bytes)))
        };
        let Ok(()) = self.sums_before.enter(number, swap);
        let (costs, mut left) = (self.costs.of_group(group), Vec::new());
        let dx = self.up(costs, 0..costs.len(), pass.saved, dy, true, &mut left);
        self.ledger.release_all(dx);
        let add = |sum, _| {
            self.ledger.release(sum);
            Ok::<_, Infallible>(())
        };
        let Ok(()) = self.sums_before.leave(number, add);
    }
}
