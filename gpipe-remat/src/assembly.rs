//! Assembly of a pipeline from layers, a cut, a schedule, a remat plan and devices.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use gpipe_layers::{Layer, Loss, Optimizer};
use gpipe_sched::{Codec, Groups, LossStage, Pipeline, PipelineError, Portal, Schedule, World};
use gpipe_tensor::{Device, DeviceId, Host, Tensors};

use crate::parameters::{make_parameters, settle_places};
use crate::wire::HostFlows;
use crate::{Error, LayerStage, PortalTable, RematPlan, Result, TrainingLoss};

/// A pipeline of layers that ends in a loss.
pub type ModelPipeline = Pipeline<LayerStage, TrainingLoss>;

type Layers = Vec<Box<dyn Layer>>;

/// Everything that decides a training pipeline.
pub struct Assembly {
    /// The model, first layer first; its parameters are not made yet.
    pub layers: Vec<Box<dyn Layer>>,
    /// The layers of each stage, in order and without gaps.
    pub cut: Vec<Range<usize>>,
    /// The order of the actions of each stage.
    pub schedule: Schedule,
    /// Tensors that each stage keeps between forward and backward pass, and the groups by which gradients are
    /// summed.
    pub remat_plan: RematPlan,
    /// The device of each stage.
    pub devices: Vec<DeviceId>,
    /// The loss at the end.
    pub loss: Loss,
    /// The optimizer for which states are allocated; `None` for evaluation only.
    pub optimizer: Option<Optimizer>,
    /// Seed of initial values and dropout.
    pub seed: u64,
}

/// A pipeline and the device handles that count its bytes.
pub struct Assembled<T: LossStage<Tensors> = TrainingLoss> {
    /// Ready for its first step.
    pub pipeline: Pipeline<LayerStage, T>,
    /// One device handle per stage.
    pub devices: Vec<Device>,
    /// Device handle that counts the bytes in transit between stages.
    pub transit: Device,
    /// The tensors that pass whole stages, while they are in transit; they are counted in none of the above.
    pub portals: Arc<PortalTable>,
    /// The groups of micro-batches, by which the losses of a step are summed too ([`Groups::sum`]).
    pub groups: Groups,
    /// The most samples of a training step, for which memory was predicted ([`RematPlan::samples`]).
    pub samples: Option<usize>,
    /// Number of layers before the pipeline, which take the inputs of a whole group
    /// ([`group_items`](crate::group_items)).
    pub before: usize,
    /// The number of channels by which NCCL carries flows of this rank, or why they go through host memory; `None`
    /// where no NCCL was given ([`Host::with_nccl`](gpipe_tensor::Host), with the feature `cuda`).
    pub nccl: Option<std::result::Result<usize, String>>,
}

/// The layers by name, without the actions of the schedule.
impl fmt::Debug for Assembly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers: Vec<&str> = self.layers.iter().map(|layer| layer.name()).collect();
        f.debug_struct("Assembly")
            .field("layers", &layers)
            .field("cut", &self.cut)
            .field("micro_batches", &self.schedule.micro_batches())
            .field("devices", &self.devices)
            .field("loss", &self.loss)
            .field("optimizer", &self.optimizer)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

impl<T: LossStage<Tensors>> fmt::Debug for Assembled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assembled")
            .field("pipeline", &self.pipeline)
            .field("devices", &self.devices)
            .field("groups", &self.groups)
            .field("samples", &self.samples)
            .field("before", &self.before)
            .finish_non_exhaustive()
    }
}

impl Assembly {
    /// Starts the workers and makes the parameters, each stage's on its own worker. Tied places begin with the values of their
    /// owners.
    ///
    /// # Errors
    /// If the parts do not fit each other, two parameters have one name, a tied place has no owner or another shape, a device
    /// is missing or the memory does not suffice.
    pub fn build(self, host: &Host) -> std::result::Result<Assembled, AssemblyError> {
        let loss = self.loss;
        self.build_to(host, move |last, transit| {
            TrainingLoss::new(loss, last, transit)
        })
    }

    /// [`build`](Self::build) with another loss stage, which `end` makes from the device handle of the
    /// last stage and the one that counts the bytes in transit.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_to<T: LossStage<Tensors> + 'static>(
        self,
        host: &Host,
        end: impl FnOnce(Device, Device) -> T + Send + 'static,
    ) -> std::result::Result<Assembled<T>, AssemblyError> {
        self.build_over(host, None, end)
    }

    /// [`build_to`](Self::build_to) over the ranks of a world, if there is one: as many ranks run each replica of the
    /// pipeline ([`Groups::on_replica`], by the groups of the plan), and each as many of the schedule's devices as the
    /// others, in order. `devices` are those of all stages, by their names on their own ranks; those of other ranks are
    /// not opened.
    ///
    /// # Errors
    /// As [`build`](Self::build), and if the replicas do not divide the ranks, or those of one its devices.
    pub fn build_over<T: LossStage<Tensors> + 'static>(
        mut self,
        host: &Host,
        world: Option<&Arc<World>>,
        end: impl FnOnce(Device, Device) -> T + Send + 'static,
    ) -> std::result::Result<Assembled<T>, AssemblyError> {
        self.check()?;
        settle_places(&mut self.layers)?;
        let workers = self.schedule.devices();
        let groups = self.remat_plan.groups();
        let (own, all) = world.map_or((0, 1), |world| (world.rank(), world.ranks()));
        let replicas = groups.replicas();
        if !all.is_multiple_of(replicas) || own * replicas / all != groups.replica() {
            return Err(Error::Assembly(format!(
                "replica {} of {replicas} on rank {own} of {all}: each replica runs on as many ranks, one behind the \
                 other",
                groups.replica()
            ))
            .into());
        }
        let ranks = all / replicas;
        if !workers.is_multiple_of(ranks) {
            return Err(Error::Assembly(format!(
                "{workers} workers on {ranks} ranks: use as many stages that each rank has the same number"
            ))
            .into());
        }
        let rank_of: Vec<usize> = (0..workers)
            .map(|worker| worker * ranks / workers)
            .collect();
        let Self {
            layers,
            cut,
            schedule,
            remat_plan,
            devices: ids,
            loss: _,
            optimizer,
            seed,
        } = self;
        let (before, samples) = (remat_plan.before(), remat_plan.samples());
        let remat_plan = Arc::new(remat_plan);
        let is_here = |stage: usize| {
            let rank = rank_of[schedule.device_of()[stage]];
            own % ranks == rank
        };
        let devices = ids.iter().enumerate().map(|(stage, &id)| {
            // In the place of one of another rank stands one that counts nothing.
            let id = match is_here(stage) {
                true => id,
                false => DeviceId::Cpu,
            };
            Ok(host.device(id)?)
        });
        let devices = devices.collect::<Result<Vec<Device>>>()?;
        let transit = host.device(DeviceId::Cpu).map_err(Error::from)?;
        let last = devices[devices.len() - 1].clone();
        // Between ranks they stay in the flow.
        let rank = |stage: usize| rank_of[schedule.device_of()[stage]];
        let within = |portal: Portal| rank(portal.from) == rank(portal.to);
        let through = host.device(DeviceId::Cpu).map_err(Error::from)?;
        let portals = PortalTable::new(remat_plan.portals(), through, within);
        let portals = Arc::new(portals);

        let mut rest = layers.into_iter();
        let take = |part: &Range<usize>| -> Layers { rest.by_ref().take(part.len()).collect() };
        let parts: Mutex<Vec<Layers>> = Mutex::new(cut.iter().map(take).collect());
        let make_stage = {
            let (devices, transit) = (devices.clone(), transit.clone());
            let table = (!remat_plan.portals().is_empty()).then(|| portals.clone());
            let rank_of: Vec<usize> = (0..schedule.stages()).map(rank).collect();
            let replicas_of = world.map(|world| (world.clone(), rank_of));
            move |index: usize| -> Result<LayerStage> {
                let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
                let mut layers = std::mem::take(&mut parts[index]);
                // The stages make their parameters at the same time.
                drop(parts);
                let (device, transit) = (devices[index].clone(), transit.clone());
                let shards = remat_plan.shards_optimizer().then_some(groups);
                let owners =
                    make_parameters(&mut layers, &device, optimizer.as_ref(), seed, shards)?;
                let remat_plan = remat_plan.clone();
                let mut stage = LayerStage::new(index, layers, device, transit, remat_plan, seed);
                if let Some((world, rank_of)) = &replicas_of {
                    let on = |replica| replica * ranks + rank_of[index];
                    stage = stage.with_replicas(world, (0..replicas).map(on).collect(), owners);
                }
                Ok(stage.with_portals(table.as_ref()))
            }
        };
        let make_loss_stage = {
            let transit = transit.clone();
            move || Ok::<_, Error>(end(last, transit))
        };
        let mut nccl = None;
        let pipeline = match world {
            None => Pipeline::build(schedule, make_stage, make_loss_stage)?,
            Some(world) => {
                let flows = HostFlows {
                    transit: transit.clone(),
                };
                let place = own / ranks * ranks;
                let of_world: Vec<usize> = rank_of.iter().map(|rank| place + rank).collect();
                let (flows, found) = link(host, world, (&schedule, &of_world, &ids), flows)?;
                nccl = found;
                Pipeline::join(
                    schedule,
                    world,
                    replicas,
                    rank_of,
                    flows,
                    make_stage,
                    make_loss_stage,
                )?
            }
        };
        Ok(Assembled {
            pipeline,
            devices,
            transit,
            portals,
            groups,
            samples,
            before,
            nccl,
        })
    }

    fn check(&self) -> Result<()> {
        let stages = self.schedule.stages();
        let fail = |message| Err(Error::Assembly(message));
        let (plan, micro_batches) = (&self.remat_plan, self.schedule.micro_batches());
        if (plan.stages(), plan.micro_batches()) != (stages, micro_batches) {
            return fail(format!(
                "a schedule of {stages} stages and {micro_batches} micro-batches, a remat plan of {} and {}: make the \
                 plan of this schedule",
                plan.stages(),
                plan.micro_batches()
            ));
        }
        let own = plan.groups().own_micro_batches().len();
        if own != micro_batches {
            return fail(format!(
                "a schedule of {micro_batches} micro-batches for a replica whose groups have {own}: use a schedule of as \
                 many"
            ));
        }
        if self.cut.len() != stages || self.devices.len() != stages {
            return fail(format!(
                "a schedule of {stages} stages, a cut into {} parts and {} devices: use as many of each",
                self.cut.len(),
                self.devices.len()
            ));
        }
        let before = plan.before();
        if before > 0 && self.cut[0].end <= before {
            return fail(format!(
                "{before} layers before the pipeline but {} in the first stage: give it one more",
                self.cut[0].end
            ));
        }
        let mut end = 0;
        for part in &self.cut {
            if part.start != end || part.is_empty() {
                return fail(format!("the cut has a gap or an empty part at layer {end}"));
            }
            end = part.end;
        }
        if end != self.layers.len() {
            return fail(format!(
                "the cut covers {end} layers but the model has {}",
                self.layers.len()
            ));
        }
        for (stage, part) in self.cut.iter().enumerate() {
            let layers = part.len() - if stage == 0 { before } else { 0 };
            if !plan.of_stage(stage).iter().all(|kept| kept.covers(layers)) {
                return fail(format!(
                    "the remat plan of stage {stage} has runs that do not cover its {layers} layers in order: make the \
                     plan of this cut"
                ));
            }
        }
        Ok(())
    }
}

/// The codec of flows between ranks: by NCCL where the host has one, else through host memory. `places` are the schedule,
/// the rank of each of its devices in the world, and the device of each stage.
fn link(
    host: &Host,
    world: &Arc<World>,
    places: (&Schedule, &[usize], &[DeviceId]),
    flows: HostFlows,
) -> std::result::Result<Linked, PipelineError> {
    #[cfg(feature = "cuda")]
    if let Some(nccl) = host.nccl() {
        let (schedule, rank_of, devices) = places;
        let places = crate::gpu_channels::Places {
            schedule,
            rank_of,
            devices,
        };
        let (flows, found) = crate::gpu_flows::connect(nccl, host, world, &places, flows)?;
        return Ok((flows, Some(found)));
    }
    let _ = (host, world, places);
    Ok((Arc::new(flows), None))
}

/// A codec of flows, and what carries them ([`Assembled::nccl`]).
type Linked = (
    Arc<dyn Codec<Tensors>>,
    Option<std::result::Result<usize, String>>,
);

/// Why a pipeline could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssemblyError {
    /// Before any worker was started.
    #[error(transparent)]
    Plan(#[from] Error),
    /// On a worker.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
}
