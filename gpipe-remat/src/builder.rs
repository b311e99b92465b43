//! A builder of an [`Assembly`] with defaults.

use std::fmt;

use gpipe_layers::{CostModel, Flow, Layer, Loss, Optimizer};
use gpipe_partition::CutRule;
use gpipe_sched::{Groups, LossStage, Schedule, ScheduleError, gpipe};
use gpipe_tensor::{Device, DeviceId, Host, Tensor, Tensors};

use crate::assembly::{Assembled, Assembly, AssemblyError};
use crate::{
    CustomLoss, Error, ModelCosts, ParameterBytes, Policy, RematPlan, Result, StagePrices,
    TrainingLoss, micro_batches,
};

/// The flow that enters a model, by the number of samples.
type Input = Box<dyn Fn(usize) -> Vec<Flow>>;

/// A schedule for a number of stages and of micro-batches.
type MakeSchedule = Box<dyn FnOnce(usize, usize) -> std::result::Result<Schedule, ScheduleError>>;

/// The source of the schedule.
enum Source {
    /// Made for the number of stages and of micro-batches.
    Make(MakeSchedule),
    /// A given schedule with its own numbers of both.
    Given(Schedule),
}

/// The devices of the stages.
#[derive(Debug)]
enum Devices {
    /// The CPU for as many stages as the host has threads.
    Default,
    /// The CPU for this number of stages.
    Cpu(usize),
    /// Given ones.
    Given(Vec<DeviceId>),
}

/// Builder of a training pipeline, made by [`Assembly::builder`].
///
/// | setting | default |
/// |---|---|
/// | [`batch`](Self::batch) | none: required |
/// | [`devices`](Self::devices) | the CPU, for as many stages as the host has threads (or layers in the pipeline, if these are fewer) |
/// | [`micro_batches`](Self::micro_batches) | four for each stage, as far as there are samples |
/// | [`groups`](Self::groups) | 1: sums over micro-batches ascend |
/// | [`replica`](Self::replica) | the only one |
/// | [`before`](Self::before) | 0: every layer sees a micro-batch |
/// | [`schedule`](Self::schedule) or [`with_schedule`](Self::with_schedule) | [`gpipe`] |
/// | [`cut`](Self::cut) | [`CutRule::Balance`], by the FLOPs of a training step ([`StagePrices`]) |
/// | [`policy`](Self::policy) | [`Policy::Stage`]: a stage keeps its input (GPipe's rule) |
/// | [`loss`](Self::loss) | [`Loss::CrossEntropy`] |
/// | [`optimizer`](Self::optimizer) | none: the pipeline is for evaluation |
/// | [`seed`](Self::seed) | 0 |
#[must_use = "a builder does nothing until it builds"]
pub struct AssemblyBuilder {
    layers: Vec<Box<dyn Layer>>,
    batch: Option<(usize, Input)>,
    devices: Devices,
    micro_batches: Option<usize>,
    groups: usize,
    /// The replica and their number, and whether they divide the optimizer states.
    replica: ([usize; 2], bool),
    before: usize,
    schedule: Source,
    cut: CutRule,
    policy: Policy,
    loss: Loss,
    optimizer: Option<Optimizer>,
    seed: u64,
}

impl fmt::Debug for AssemblyBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AssemblyBuilder")
            .field("layers", &self.layers)
            .field("devices", &self.devices)
            .field("micro_batches", &self.micro_batches)
            .field("groups", &self.groups)
            .field("cut", &self.cut)
            .field("policy", &self.policy)
            .field("loss", &self.loss)
            .field("optimizer", &self.optimizer)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

impl Assembly {
    /// A builder of a pipeline of these layers; see [`AssemblyBuilder`] for the defaults.
    pub fn builder(layers: Vec<Box<dyn Layer>>) -> AssemblyBuilder {
        AssemblyBuilder {
            layers,
            batch: None,
            devices: Devices::Default,
            micro_batches: None,
            groups: 1,
            replica: ([0, 1], false),
            before: 0,
            schedule: Source::Make(Box::new(gpipe)),
            cut: CutRule::Balance,
            policy: Policy::Stage,
            loss: Loss::CrossEntropy,
            optimizer: None,
            seed: 0,
        }
    }
}

impl AssemblyBuilder {
    /// The number of samples of a batch, and the flow that the first layer takes for a number of
    /// samples, on which the costs of layers depend.
    pub fn batch(self, samples: usize, input: impl Fn(usize) -> Vec<Flow> + 'static) -> Self {
        Self {
            batch: Some((samples, Box::new(input))),
            ..self
        }
    }

    /// The device of each stage.
    pub fn devices(self, devices: impl IntoIterator<Item = DeviceId>) -> Self {
        Self {
            devices: Devices::Given(devices.into_iter().collect()),
            ..self
        }
    }

    /// This number of stages on the CPU.
    pub fn stages(self, stages: usize) -> Self {
        Self {
            devices: Devices::Cpu(stages),
            ..self
        }
    }

    /// The number of micro-batches that a batch is cut into.
    pub fn micro_batches(self, micro_batches: usize) -> Self {
        Self {
            micro_batches: Some(micro_batches),
            ..self
        }
    }

    /// The number of groups of micro-batches, by which gradients and losses are summed
    /// ([`Groups`](gpipe_sched::Groups)).
    pub fn groups(self, groups: usize) -> Self {
        Self { groups, ..self }
    }

    /// One of several replicas of the pipeline, over the ranks of a world ([`Assembly::build_over`]): the number of
    /// micro-batches is that of all, and their number divides that of the [groups](Self::groups). With `zero` they
    /// divide the optimizer states among them ([`ParameterBytes::sharded`]).
    pub fn replica(self, replica: usize, replicas: usize, zero: bool) -> Self {
        Self {
            replica: ([replica, replicas], zero),
            ..self
        }
    }

    /// The first `layers` layers before the pipeline (Lingvo's `before_tpl`): on the device of the first stage,
    /// forward once on all samples of a batch and backward once, after its last micro-batch. Batch normalization
    /// among them sees the whole batch. With [`groups`](Self::groups), once for each group.
    ///
    /// They keep what their backward pass needs under every policy but a budget, which is refused.
    pub fn before(self, layers: usize) -> Self {
        Self {
            before: layers,
            ..self
        }
    }

    /// The schedule for a number of stages and of micro-batches, such as
    /// [`one_f_one_b`](gpipe_sched::one_f_one_b).
    pub fn schedule(
        self,
        make: impl FnOnce(usize, usize) -> std::result::Result<Schedule, ScheduleError> + 'static,
    ) -> Self {
        Self {
            schedule: Source::Make(Box::new(make)),
            ..self
        }
    }

    /// A given schedule, such as one read from a CSV file. It sets the numbers of stages and of
    /// micro-batches.
    pub fn with_schedule(self, schedule: Schedule) -> Self {
        Self {
            micro_batches: Some(schedule.micro_batches()),
            schedule: Source::Given(schedule),
            ..self
        }
    }

    /// How layers are cut into stages.
    pub fn cut(self, cut: CutRule) -> Self {
        Self { cut, ..self }
    }

    /// Tensors that a stage keeps between the forward and the backward pass of a micro-batch.
    pub fn policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// The loss; not used by [`build_to`](Self::build_to).
    pub fn loss(self, loss: Loss) -> Self {
        Self { loss, ..self }
    }

    /// The optimizer for which states are allocated.
    pub fn optimizer(self, optimizer: &Optimizer) -> Self {
        Self {
            optimizer: Some(optimizer.clone()),
            ..self
        }
    }

    /// Seed of initial values and dropout.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The assembly for a host with this number of threads. The memory of each stage can be predicted
    /// from it ([`predict_memory`](crate::predict_memory)).
    ///
    /// # Errors
    /// If no batch was given, or the parts do not fit each other.
    pub fn plan(self, threads: usize) -> Result<Assembly> {
        let Self {
            mut layers,
            batch,
            devices,
            micro_batches: parts,
            groups,
            replica: ([replica, replicas], zero),
            before,
            schedule,
            cut,
            policy,
            loss,
            optimizer,
            seed,
        } = self;
        let (samples, input) = batch.ok_or_else(|| {
            Error::Assembly("layers have no cost without a batch: call `batch`".into())
        })?;
        let in_pipeline = layers.len().saturating_sub(before);
        let stages = match (&devices, &schedule) {
            (Devices::Given(devices), _) => devices.len(),
            (Devices::Cpu(stages), _) => *stages,
            (Devices::Default, Source::Make(_)) => threads.min(in_pipeline).max(1),
            (Devices::Default, Source::Given(schedule)) => schedule.stages(),
        };
        // Before anything is allocated for each stage.
        if stages > in_pipeline && in_pipeline > 0 {
            return Err(Error::Partition(gpipe_partition::Error::TooManyParts {
                parts: stages,
                layers: in_pipeline,
            }));
        }
        let devices = match devices {
            Devices::Given(devices) => devices,
            Devices::Default | Devices::Cpu(_) => vec![DeviceId::Cpu; stages],
        };
        let parts = parts.unwrap_or_else(|| stages.saturating_mul(4).min(samples).max(1));
        let ranges = micro_batches(samples, parts)?;
        let own = Groups::new(parts, groups).and_then(|all| all.on_replica(replica, replicas));
        let own = own.map_or(parts, |own| own.own_micro_batches().len());
        let schedule = match schedule {
            Source::Make(make) => make(stages, own)?,
            Source::Given(schedule) => schedule,
        };
        if (schedule.stages(), schedule.micro_batches()) != (stages, own) {
            return Err(Error::Assembly(format!(
                "a schedule of {} stages and {} micro-batches, {stages} devices and {own} micro-batches: \
                 give as many of each",
                schedule.stages(),
                schedule.micro_batches(),
            )));
        }
        let costs = ModelCosts::new(&layers, &ranges, &input)?;
        let bytes = ParameterBytes::new(&mut layers, optimizer.as_ref());
        let costs = costs.with_frozen(&bytes).with_groups(groups, &bytes)?;
        // Those of all replicas, which have one cut.
        let all = costs.clone();
        let costs = costs.on_replica(replica, replicas)?;
        let bytes = match zero {
            true => bytes.sharded(replica, replicas),
            false => bytes,
        };
        let costs = costs.with_before(before, &layers, input)?;
        let model = CostModel::Complete;
        let prices = StagePrices::new(&all, &layers, model, policy, &schedule, replicas, before)?;
        let cut = prices.cut(&cut, stages, before)?;
        let cut: Vec<_> = cut.ranges().collect();
        Ok(Assembly {
            remat_plan: RematPlan::new(policy, &bytes, &costs, &cut, &schedule)?,
            layers,
            cut,
            schedule,
            devices,
            loss,
            optimizer,
            seed,
        })
    }

    /// Starts the workers, as [`Assembly::build`] does.
    ///
    /// # Errors
    /// As [`plan`](Self::plan) and [`Assembly::build`].
    pub fn build(self, host: &Host) -> std::result::Result<Assembled, AssemblyError> {
        let loss = self.loss;
        self.build_to(host, move |last, transit| {
            TrainingLoss::new(loss, last, transit)
        })
    }

    /// [`build`](Self::build) with a custom loss; see [`CustomLoss::new`] for the arguments and results of
    /// `function`.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_with_loss<G: Send + 'static>(
        self,
        host: &Host,
        function: impl FnMut(&Tensor, G) -> Result<(f64, Tensor)> + Send + 'static,
    ) -> std::result::Result<Assembled<CustomLoss<G>>, AssemblyError> {
        self.build_to(host, |last, transit| {
            CustomLoss::new(last, transit, function)
        })
    }

    /// [`build`](Self::build) with another loss stage, as [`Assembly::build_to`].
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_to<T: LossStage<Tensors> + 'static>(
        self,
        host: &Host,
        end: impl FnOnce(Device, Device) -> T + Send + 'static,
    ) -> std::result::Result<Assembled<T>, AssemblyError> {
        self.plan(host.threads())?.build_to(host, end)
    }
}
