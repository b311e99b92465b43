//! A stage of layers: a run of the model on one device and its stash of each micro-batch.

mod passes;

use std::fmt;
use std::sync::Arc;

use gpipe_layers::{Layer, Param, try_params};
use gpipe_sched::World;
use gpipe_tensor::{Device, Tensor, ops};

use super::cache::StageCache;
use super::device_events::DeviceEvents;
use super::exchange::Exchange;
use super::group_gradients::{GroupGradients, StageSums};
use super::portal_table::PortalTable;
use super::replica_sums::{ReplicaSums, shares_of};
use super::stash::Stash;
use super::value_watch::{Watch, first_in};
use super::whole_batch::WholeBatch;
use crate::{Error, NonFinite, RematPlan, Result};

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
    /// Whether the gradients of tied places were added to those of their owners since the step began.
    has_merged_ties: bool,
    /// Whether a step began and has not ended, so that its gradients are those of a part of it.
    is_under_way: bool,
    /// Checks every value in a step that is run again to find a non-finite one.
    watch: Option<Watch>,
    events: DeviceEvents,
    /// Earlier positions, while texts are generated.
    cache: Option<StageCache>,
}

impl fmt::Debug for LayerStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerStage")
            .field("index", &self.index)
            .field("layers", &self.layers)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
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
            has_merged_ties: false,
            is_under_way: false,
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

    /// Fails if the last step or evaluation did, after it had begun here.
    ///
    /// # Errors
    /// [`Error::Unfinished`].
    pub(crate) fn check_ended(&self) -> Result<()> {
        match self.is_under_way {
            true => Err(Error::Unfinished),
            false => Ok(()),
        }
    }

    /// Adds to the gradients of a step those of the other replicas, which do the same.
    pub(crate) fn sum_replicas(&mut self) -> Result<()> {
        self.check_ended()?;
        let alone = || Error::Assembly("the stage has no replicas".into());
        let before = self.before();
        let replicas = self.replicas.as_mut().ok_or_else(alone)?;
        self.has_no_gradients = false;
        let sums = StageSums::new(before, self.whole_batch.gradients(), &self.gradients);
        replicas.finish(&mut self.layers, sums, &self.transit)?;
        // The sums of a replica's groups that the tree does not join are in those of all.
        self.gradients.clear();
        self.whole_batch.clear();
        Ok(())
    }

    /// Adds to the gradients of a step those of tied places, by name, once.
    pub(crate) fn merge_ties(&mut self, places: &[(String, Tensor)]) -> Result<()> {
        if self.has_merged_ties {
            return Ok(());
        }
        let device = self.device.clone();
        self.try_params(|param| {
            for (name, grad) in places {
                if !param.tied && !param.frozen && *name == param.name {
                    let grad = grad.clone().receive(&device)?;
                    ops::add_assign(param.grad_mut()?, &grad)?;
                }
            }
            Ok(())
        })?;
        self.has_merged_ties = true;
        Ok(())
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
    /// update; without it the next [`begin`](gpipe_sched::Stage::begin) discards what was recorded.
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
    /// If a row is beyond the last, has no length or fewer positions than that, or there is no room for copies.
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

    /// Number of layers before the pipeline, which are the first of the first stage.
    fn before(&self) -> usize {
        match self.index {
            0 => self.remat_plan.before(),
            _ => 0,
        }
    }
}
