//! A stage of layers: a run of the model on one device and its stash of each micro-batch.

use std::ops::Range;
use std::sync::Arc;

use gpipe_layers::{Layer, Param, PassContext, Saved, try_params};
use gpipe_sched::{Action, Direction, Held, MicroBatch, Op, Ran, Stage, World};
use gpipe_tensor::{Device, DeviceId, Tensors, ops};

use super::cache::StageCache;
use super::device_events::DeviceEvents;
use super::exchange::{Aside, Exchange};
use super::group_gradients::{GroupGradients, StageSums};
use super::portal_table::PortalTable;
use super::replica_sums::{ReplicaSums, shares_of};
use super::run::{self, Step};
use super::stash::{Stash, Stashed, StashedRun, StashedState};
use super::value_watch::{Look, Watch, first_in};
use super::whole_batch::WholeBatch;
use crate::{Error, NonFinite, RematPlan, Result, RetainedRun};

/// A run of layers on one device, as a stage of a pipeline.
///
/// Each micro-batch goes through these states:
///
/// ```text
///            forward            (recompute)            input_grad            weight_grad
///  nothing ──────────► inputs ─────────────► saved ──────────────► pending ─────────────► nothing
///                └──────────────────────────►   └──────────────────────────────────────►
///                       (all is kept)                          backward
/// ```
///
/// An action out of order is an error that names the micro-batch.
pub struct LayerStage {
    index: usize,
    layers: Vec<Box<dyn Layer>>,
    device: Device,
    /// Counts the bytes in transit between stages, which are in neither stage's bytes.
    transit: Device,
    exchange: Exchange,
    remat_plan: Arc<RematPlan>,
    /// The first layer with a backward pass; their number if none has.
    trained: usize,
    /// Whether the stage sends gradients of its inputs back.
    sends_back: bool,
    seed: u64,
    stash: Stash,
    /// Of the first stage: the layers before the pipeline.
    whole_batch: WholeBatch,
    gradients: GroupGradients,
    /// The stage on the other replicas, if there are any.
    replicas: Option<ReplicaSums>,
    /// Whether the gradients of all parameters are zero: those that only infer clear them once.
    has_no_gradients: bool,
    /// Checks every value in a step that is run again to find a non-finite one.
    watch: Option<Watch>,
    events: DeviceEvents,
    /// Earlier positions, while texts are generated.
    cache: Option<StageCache>,
}

impl LayerStage {
    /// Stage `index` of a pipeline: `layers`, whose parameters are already made on `device`.
    /// Its outputs count on `transit` until the next stage takes them.
    pub fn new(
        index: usize,
        layers: Vec<Box<dyn Layer>>,
        device: Device,
        transit: Device,
        remat_plan: Arc<RematPlan>,
        seed: u64,
    ) -> Self {
        let end = remat_plan.gradients_end(index);
        Self {
            index,
            trained: end.unwrap_or(0).min(layers.len()),
            sends_back: end.is_none(),
            layers,
            exchange: Exchange::new(
                index,
                index + 1 == remat_plan.stages(),
                device.clone(),
                transit.clone(),
            ),
            device,
            transit,
            gradients: GroupGradients::new(remat_plan.groups()),
            replicas: None,
            has_no_gradients: false,
            whole_batch: WholeBatch::new(remat_plan.groups(), end.unwrap_or(0)),
            remat_plan,
            seed,
            stash: Stash::default(),
            watch: None,
            events: DeviceEvents::default(),
            cache: None,
        }
    }

    /// Connects the stage to the portals of its plan; without, all tensors are in the flows between neighbours.
    #[must_use]
    pub(crate) fn with_portals(mut self, table: Option<&Arc<PortalTable>>) -> Self {
        if let Some(table) = table {
            let portals = self.remat_plan.portals().clone();
            self.exchange.connect(portals, table.clone());
        }
        self
    }

    /// Connects the stage to those of the other replicas, on these ranks of a world. `owners` are the replicas that alone
    /// have the optimizer state of each parameter with a gradient, by layer; `None` where all have.
    #[must_use]
    pub(crate) fn with_replicas(
        mut self,
        world: &Arc<World>,
        ranks: Vec<usize>,
        owners: Vec<Vec<Option<usize>>>,
    ) -> Self {
        if ranks.len() > 1 {
            let (world, groups) = (world.clone(), self.remat_plan.groups());
            let shares = self.layers.iter_mut().zip(owners);
            let shares = shares.map(|(layer, owners)| shares_of(layer.as_mut(), owners));
            let sums = ReplicaSums::new(world, groups, ranks, self.index, shares.collect());
            self.replicas = Some(sums);
        }
        self
    }

    /// [`try_params`](Self::try_params) with the replica that alone has the optimizer state of a parameter, if one has,
    /// and whether this one has it.
    ///
    /// # Errors
    /// That of the visit.
    pub(crate) fn try_owned(
        &mut self,
        mut visit: impl FnMut(&mut Param, Option<usize>, bool) -> Result<()>,
    ) -> Result<()> {
        self.has_no_gradients = false;
        let replicas = self.replicas.as_ref();
        for (place, layer) in self.layers.iter_mut().enumerate() {
            let mut parameter = 0;
            try_params(layer.as_mut(), |param| {
                let (mut owner, mut is_own) = (None, true);
                if let Some(replicas) = replicas.filter(|_| param.grad.is_some()) {
                    owner = replicas.owner(place, parameter);
                    is_own = replicas.is_own(owner);
                    parameter += 1;
                }
                visit(param, owner, is_own)
            })?;
        }
        Ok(())
    }

    /// Takes the values that other replicas alone updated, which do the same.
    pub(crate) fn share_values(&mut self) -> Result<()> {
        match &self.replicas {
            Some(replicas) => replicas.share_values(&mut self.layers, &self.transit),
            None => Ok(()),
        }
    }

    /// Adds to the gradients of a step those of the other replicas, which do the same.
    pub(crate) fn sum_replicas(&mut self) -> Result<()> {
        // A panic in the backward pass may have taken it.
        let lost = || Error::Assembly("the stage has no replicas: build the pipeline again".into());
        let before = self.before();
        let replicas = self.replicas.as_mut().ok_or_else(lost)?;
        self.has_no_gradients = false;
        let sums = StageSums::new(before, self.whole_batch.gradients(), &self.gradients);
        replicas.finish(&mut self.layers, sums, &self.transit)
    }

    /// The device and its byte counts.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The layers, first to last.
    pub fn layers(&self) -> &[Box<dyn Layer>] {
        &self.layers
    }

    /// Visits the parameters in layer order.
    pub fn params(&mut self, mut visit: impl FnMut(&mut Param)) {
        self.has_no_gradients = false;
        for layer in &mut self.layers {
            layer.params(&mut visit);
        }
    }

    /// [`params`](Self::params) with a visit that may fail; the first error ends it.
    ///
    /// # Errors
    /// That of the visit.
    pub fn try_params(&mut self, mut visit: impl FnMut(&mut Param) -> Result<()>) -> Result<()> {
        self.has_no_gradients = false;
        for layer in &mut self.layers {
            try_params(layer.as_mut(), &mut visit)?;
        }
        Ok(())
    }

    /// Applies what the layers recorded of a training step to their own state
    /// ([`Layer::commit_mini_batch`]). For a step that succeeded on every stage, once, after its
    /// update; without it the next [`begin`](Stage::begin) discards what was recorded.
    ///
    /// # Errors
    /// That of the first layer that fails.
    pub fn commit(&mut self) -> Result<()> {
        for layer in &mut self.layers {
            layer.commit_mini_batch()?;
        }
        Ok(())
    }

    /// Discards what the layers recorded of a step that is not to be committed.
    pub(crate) fn discard(&mut self) -> Result<()> {
        for layer in &mut self.layers {
            layer.begin_mini_batch()?;
        }
        Ok(())
    }

    /// Keeps the keys and values of texts in `rows` rows from now on: a forward pass of an evaluation continues
    /// the rows that its samples name, by the positions that its input has.
    pub fn keep_positions(&mut self, rows: usize) {
        self.cache = Some(StageCache::new(rows));
    }

    /// Row i of the cache becomes what row `rows[i]` was, with its first `lengths[i]` positions.
    ///
    /// # Errors
    /// If a row is beyond the last, or there is no room for copies.
    pub fn select_rows(&mut self, rows: &[usize], lengths: &[usize]) -> Result<()> {
        self.cache
            .as_mut()
            .map_or(Ok(()), |cache| cache.select(rows, lengths))
    }

    /// Bytes of the keys and values.
    pub fn cache_bytes(&self) -> usize {
        self.cache.as_ref().map_or(0, StageCache::bytes)
    }

    /// Switches the check of every value on or off.
    pub(crate) fn watch(&mut self, watch: Option<Watch>) {
        self.watch = watch;
    }

    /// The first bad value of each micro-batch and pass.
    pub(crate) fn seen(&self) -> Vec<NonFinite> {
        self.watch.as_ref().map(Watch::take).unwrap_or_default()
    }

    /// The first parameter of a layer that is not finite.
    pub(crate) fn broken_parameter(&mut self, layer: &str) -> Result<Option<(String, f32)>> {
        let mut values = Vec::new();
        for layer in self.layers.iter_mut().filter(|one| one.name() == layer) {
            try_params(layer.as_mut(), |param| {
                values.push((param.name.clone(), param.value()?.clone()));
                Ok::<_, Error>(())
            })?;
        }
        for (name, value) in values {
            if let Some(found) = first_in(&value)? {
                return Ok(Some((name, found)));
            }
        }
        Ok(None)
    }

    /// The value check of a run of layers that begins with `first`, if this step is watched.
    fn look(&self, m: &MicroBatch, first: usize) -> Option<Look<'_>> {
        Some(self.watch.as_ref()?.look(m.index, first))
    }

    /// Number of layers before the pipeline, which are the first of the first stage.
    fn before(&self) -> usize {
        match self.index {
            0 => self.remat_plan.before(),
            _ => 0,
        }
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
            Stashed::Inputs(x) => {
                let mut steps = Vec::with_capacity(layers.len());
                run::forward(&self.layers[layers], cx, x, None, |step| steps.push(step))?;
                Ok(steps)
            }
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
        self.stash.clear();
        self.exchange.clear();
        self.gradients.clear();
        self.whole_batch.clear();
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

    fn leave(&mut self) -> Result<()> {
        self.device.end_action()?;
        self.events.end(&self.device)
    }

    fn finish(&mut self) -> Result<()> {
        self.events.close(&self.device)?;
        Ok(self.device.finish()?)
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
                flow = passed.flow;
                Stashed::inputs(inputs, &passed.reach, &self.transit)?
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
        let dx = self.back(m, Op::Backward, dy, |layer, is_first, saved, dy| {
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
        });
        self.replicas = replicas;
        let dx = dx?;
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
