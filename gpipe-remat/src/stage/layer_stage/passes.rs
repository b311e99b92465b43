//! Passes of a stage of layers: its actions, in the states of each micro-batch.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use gpipe_layers::{Layer, PassContext, Saved};
use gpipe_sched::{Action, Direction, Held, MicroBatch, Op, Ran, Reserve, Stage};
use gpipe_tensor::{DeviceId, Tensors, ops};

use super::LayerStage;
use crate::stage::device_events::DeviceEvents;
use crate::stage::exchange::Aside;
use crate::stage::group_gradients::StageSums;
use crate::stage::run::{self, Step};
use crate::stage::stash::{Stashed, StashedRun, StashedState};
use crate::stage::value_watch::Look;
use crate::{Error, Result, RetainedRun};

impl LayerStage {
    /// The value check of a run of layers that begins with `first`, if this step is watched.
    fn look(&self, m: &MicroBatch, first: usize) -> Option<Look<'_>> {
        Some(self.watch.as_ref()?.look(m.index, first))
    }

    fn cx(&self, m: &MicroBatch) -> PassContext {
        PassContext::new(self.seed, m.step, m.samples.clone(), m.train)
    }

    /// What a GPU does for a training action may become a CUDA graph, unless values are looked at on the way.
    fn enter_action(&self, m: &MicroBatch) {
        if m.train && self.watch.is_none() {
            self.device.begin_action();
        }
    }

    /// Records the start of a training action, after everything that it waits for.
    fn begins(&mut self, m: &MicroBatch) -> Result<()> {
        match m.train {
            true => self.events.begin(&self.device),
            false => Ok(()),
        }
    }

    fn runs(&mut self, m: &MicroBatch, op: Op) -> Result<Vec<StashedRun>> {
        match self.stash.take(m.index) {
            StashedState::Remembered(runs) => Ok(runs),
            state => {
                let error = self.out_of_order(
                    m,
                    op,
                    "a forward pass whose backward pass has not run",
                    &state,
                );
                self.stash.put(m.index, state);
                Err(error)
            }
        }
    }

    fn out_of_order(
        &self,
        m: &MicroBatch,
        op: Op,
        needed: &'static str,
        state: &StashedState,
    ) -> Error {
        let action = Action {
            stage: self.index,
            op,
            micro_batch: m.index,
        };
        Error::Order {
            action,
            needed,
            found: state.describe(),
        }
    }

    /// Sends the gradients to the other replicas once they are complete here.
    fn send_gradients(&mut self) -> Result<()> {
        let before = self.before();
        match &mut self.replicas {
            Some(replicas) if self.gradients.is_complete() => {
                let sums = StageSums::new(before, self.whole_batch.gradients(), &self.gradients);
                replicas.send_rest(&mut self.layers, sums)
            }
            _ => Ok(()),
        }
    }

    /// The saved tensors of a run, recomputed if only its inputs were kept.
    fn restore(&self, cx: &PassContext, layers: Range<usize>, left: Stashed) -> Result<Vec<Step>> {
        match left {
            Stashed::Saved(steps) => Ok(steps),
            Stashed::Inputs(x, gradients) => run::recompute(&self.layers[layers], cx, x, gradients),
        }
    }

    /// Propagates `dy` back through all runs, last to first. `back` handles one layer; its flag is true
    /// for the first layer with a backward pass of the model, whose input gradient is not needed. Without such layers
    /// there is nothing to do, and a flow without tensors goes back.
    fn back(
        &mut self,
        m: &MicroBatch,
        op: Op,
        dy: Tensors,
        mut back: impl FnMut(&mut dyn Layer, bool, Saved, Tensors) -> Result<Tensors>,
    ) -> Result<Option<Tensors>> {
        let cx = self.cx(m);
        let mut runs = self.runs(m, op)?;
        let (mut dy, aside) = match self.trained < self.layers.len() {
            true => self.exchange.arrive(Direction::Backward, m.index, dy)?,
            false => (dy, Aside::new()),
        };
        if let Some(watch) = &self.watch {
            watch.gradient_of_loss(m.index, &dy)?;
        }
        self.begins(m)?;
        while let Some(StashedRun { layers, left, .. }) = runs.pop() {
            let steps = self.restore(&cx, layers.clone(), left)?;
            let mut place = layers.end;
            let end = (!self.sends_back).then_some(self.trained);
            let watch = self.watch.as_ref();
            dy = run::backward(
                self.layers[layers.clone()].iter_mut(),
                steps,
                dy,
                watch.map(|watch| watch.look(m.index, layers.start)),
                |layer, saved, dy| {
                    place -= 1;
                    back(layer, end == Some(place), saved, dy)
                },
            )?;
        }
        if self.before() > 0 {
            let look = self.watch.as_ref().map(|watch| watch.look(m.index, 0));
            let before = self.before();
            let layers = &mut self.layers[..before];
            self.whole_batch
                .backward(layers, m, dy, &self.device, look)?;
            return Ok(None);
        }
        if !self.sends_back {
            return Ok((self.index > 0).then(Tensors::new));
        }
        let exchange = &self.exchange;
        let dx = exchange.depart(Direction::Backward, m.index, dy, aside)?;
        Ok(Some(dx))
    }
}

impl Stage for LayerStage {
    type Flow = Tensors;
    type Error = Error;

    fn begin(&mut self, _step: u64) -> Result<()> {
        self.is_under_way = true;
        self.stash.clear();
        self.exchange.clear();
        self.gradients.clear();
        self.whole_batch.clear();
        self.has_merged_ties = false;
        if let Some(replicas) = &mut self.replicas {
            replicas.begin();
        }
        self.events = DeviceEvents::default();
        self.device.begin_step()?;
        self.device.reset_peak();
        self.discard()?;
        if !self.has_no_gradients {
            let mut zeros = ops::Zeros::default();
            self.try_params(|param| Ok(param.zero_grad_by(&mut zeros)?))?;
            zeros.run()?;
            self.has_no_gradients = true;
        }
        Ok(())
    }

    fn enter(&self) -> impl Sized + use<> {
        self.device.cpu_slot()
    }

    fn reserve(&self) -> Option<Reserve> {
        let reserve = self.device.cpu_reservation()?;
        Some(Box::new(move || Box::new(reserve())))
    }

    fn leave(&mut self) -> Result<()> {
        self.device.end_action()?;
        self.events.end(&self.device)
    }

    fn finish(&mut self) -> Result<()> {
        self.events.close(&self.device)?;
        self.device.finish()?;
        self.is_under_way = false;
        Ok(())
    }

    fn ran(&mut self) -> Result<Vec<Ran>> {
        self.events.take()
    }

    fn held(&mut self) -> Option<Held> {
        Some(Held {
            now: self.device.live_bytes(),
            most: self.device.take_recent_peak(),
        })
    }

    fn forward(&mut self, m: &MicroBatch, x: Tensors) -> Result<Tensors> {
        self.enter_action(m);
        if let Some(state) = self.stash.held(m.index).filter(|_| m.train) {
            let needed = "a micro-batch of which nothing is held";
            return Err(self.out_of_order(m, Op::Forward, needed, state));
        }
        let cx = self.cx(m);
        let before = match m.train {
            true => self.before(),
            false => 0,
        };
        let (x, aside) = match before {
            0 => self.exchange.arrive(Direction::Forward, m.index, x)?,
            // The first micro-batch of a group takes its inputs.
            _ => (x, Aside::new()),
        };
        self.begins(m)?;
        if let Some(cache) = self.cache.as_mut().filter(|_| !m.train) {
            let rows = m.samples.start as usize..m.samples.end as usize;
            let y = cache.forward(&self.layers, &self.device, &cx, rows, x)?;
            return self.exchange.depart(Direction::Forward, m.index, y, aside);
        }
        if !m.train {
            let passed = run::forward(&self.layers, &cx, x, None, drop)?;
            let exchange = &self.exchange;
            return exchange.depart(Direction::Forward, m.index, passed.flow, aside);
        }
        self.has_no_gradients = false;
        let mut runs = Vec::new();
        let mut flow = x;
        if before > 0 {
            let look = self.watch.as_ref().map(|watch| watch.look(m.index, 0));
            let (layers, device) = (&self.layers[..before], &self.device);
            flow = self
                .whole_batch
                .forward(layers, &cx, m, flow, device, look)?;
        }
        let trained = self.trained.max(before);
        let (frozen, look) = (&self.layers[before..trained], self.look(m, before));
        flow = run::forward(frozen, &cx, flow, look, drop)?.flow;
        let kept = self.remat_plan.kept(self.index, m.index);
        let behind = kept.runs_behind(trained - before, self.layers.len() - before);
        for RetainedRun { layers, kept } in behind {
            let layers = before + layers.start..before + layers.end;
            let look = self.look(m, layers.start);
            let part = &self.layers[layers.clone()];
            let left = if kept {
                let mut steps = Vec::with_capacity(layers.len());
                flow = run::forward(part, &cx, flow, look, |step| steps.push(step))?.flow;
                Stashed::Saved(steps)
            } else {
                let inputs = flow.clone();
                let passed = run::forward(part, &cx, flow, look, drop)?;
                let left = Stashed::inputs(inputs, &passed, &self.transit)?;
                flow = passed.flow;
                left
            };
            runs.push(StashedRun { layers, kept, left });
        }
        self.stash.put(m.index, StashedState::Remembered(runs));
        self.exchange
            .depart(Direction::Forward, m.index, flow, aside)
    }

    fn backward(&mut self, m: &MicroBatch, dy: Tensors) -> Result<Option<Tensors>> {
        self.enter_action(m);
        let before = self.before();
        self.gradients
            .enter(m.index, &mut self.layers[before..], &self.device)?;
        // On the processor a layer's gradients are sent as soon as they are complete; a GPU would have to wait.
        let is_early = self.gradients.is_last() && self.device.id() == DeviceId::Cpu;
        let mut replicas = self.replicas.take();
        let mut early = replicas.as_mut().filter(|_| is_early);
        let mut place = self.layers.len();
        let back = |layer: &mut dyn Layer, is_first, saved, dy| {
            place -= 1;
            let dx = match is_first {
                true => {
                    let pending = layer.param_only_grad(saved, dy)?;
                    layer.weight_grad(pending)?;
                    Tensors::new()
                }
                false => layer.backward(saved, dy)?,
            };
            if let Some(replicas) = &mut early {
                replicas.send_early(place, layer)?;
            }
            Ok(dx)
        };
        // A layer's panic ends the step alone: the next one has replicas again.
        let dx = catch_unwind(AssertUnwindSafe(|| self.back(m, Op::Backward, dy, back)));
        self.replicas = replicas;
        let dx = dx.unwrap_or_else(|panic| resume_unwind(panic))?;
        self.gradients.leave(m.index, &mut self.layers[before..])?;
        self.send_gradients()?;
        Ok(dx)
    }

    fn input_grad(&mut self, m: &MicroBatch, dy: Tensors) -> Result<Option<Tensors>> {
        self.enter_action(m);
        let mut pending = Vec::with_capacity(self.layers.len());
        let dx = self.back(m, Op::InputGrad, dy, |layer, is_first, saved, dy| {
            if is_first {
                pending.push(layer.param_only_grad(saved, dy)?);
                return Ok(Tensors::new());
            }
            let (dx, left) = layer.input_grad(saved, dy)?;
            pending.push(left);
            Ok(dx)
        })?;
        self.stash.put(m.index, StashedState::Pending(pending));
        Ok(dx)
    }

    fn weight_grad(&mut self, m: &MicroBatch) -> Result<()> {
        self.enter_action(m);
        self.begins(m)?;
        match self.stash.take(m.index) {
            StashedState::Pending(pending) => {
                let trained = self.trained.max(self.before());
                let layers = &mut self.layers[trained..];
                self.gradients.enter(m.index, layers, &self.device)?;
                let look = self.watch.as_ref();
                let look = look.map(|watch| watch.look(m.index, trained));
                run::weight_grad(layers.iter_mut(), pending, look)?;
                self.gradients.leave(m.index, layers)?;
                self.send_gradients()
            }
            state => {
                let error =
                    self.out_of_order(m, Op::WeightGrad, "the input gradient first", &state);
                self.stash.put(m.index, state);
                Err(error)
            }
        }
    }

    /// Recomputes the last run of layers that was not kept, which the backward pass needs first; the
    /// others are recomputed in `input_grad`, one at a time. Does nothing if everything was kept.
    fn recompute(&mut self, m: &MicroBatch) -> Result<()> {
        self.enter_action(m);
        self.begins(m)?;
        let cx = self.cx(m);
        let mut runs = self.runs(m, Op::Recompute)?;
        if let Some(last) = runs.iter().rposition(|run| !run.kept) {
            let StashedRun { layers, kept, left } = runs.remove(last);
            let left = Stashed::Saved(self.restore(&cx, layers.clone(), left)?);
            runs.insert(last, StashedRun { layers, kept, left });
        }
        self.stash.put(m.index, StashedState::Remembered(runs));
        Ok(())
    }
}
