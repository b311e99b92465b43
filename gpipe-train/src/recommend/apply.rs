//! What it takes to run a plan: the configuration, and the keys in which that differs from another.

use std::collections::BTreeSet;
use std::ops::Range;

use gpipe_partition::CutRule;
use gpipe_remat::planner::{Placement, Plan};
use gpipe_remat::{Bytes, Policy, RematPlan, StageMemory, predict_memory};
use gpipe_report::numbers;
use gpipe_tensor::DeviceId;

use super::recommender::Recommender;
use crate::config::{Devices, Named, ScheduleChoice, Size, TrainConfig};
use crate::error::{Error, Result};

impl Recommender {
    /// The rematerialization policy under which every stage keeps the activations of the plan.
    pub fn remat(&self, plan: &Plan) -> Policy {
        if let Some(given) = self.space.policy {
            return given;
        }
        let stages = plan.cut.len();
        let keeps =
            |stage: usize| *plan.remat_plan.kept(stage, 0) == gpipe_remat::Retained::Everything;
        match self.part.get().or(self.memory()) {
            Some(_) if !(0..stages).all(keeps) => Policy::Budget(Bytes(self.budget(plan).0)),
            _ => Policy::Keep,
        }
    }

    /// Whether every stage stays within the memory of its worker under [`remat`](Self::remat): a budget is one number for
    /// all stages, and workers may differ in their memory.
    pub fn is_within_memory(&self, plan: &Plan) -> bool {
        match (self.space.policy, self.remat(plan)) {
            (None, Policy::Budget(_)) => self.budget(plan).1,
            _ => true,
        }
    }

    /// How a plan keeps to the memory of its workers, behind its bytes; empty where nothing limits it.
    pub fn memory_note(&self, plan: &Plan) -> String {
        let of_each = |memory| format!(", of {} a worker", numbers::bytes(memory));
        let are_alike = |memory| {
            self.workers
                .iter()
                .all(|worker| worker.memory == Some(memory))
        };
        match (self.memory(), self.part.get()) {
            (own, Some(part)) if own.is_none_or(|own| part < own) => {
                format!("{} that this machine has left", of_each(part))
            }
            (None, _) => String::new(),
            (Some(memory), _) if are_alike(memory) => of_each(memory),
            _ if self.is_within_memory(plan) => ", each within the memory of its worker".to_owned(),
            _ => {
                ", each within the memory of its worker as planned, but no one budget keeps to that: smaller workers may need \
                 more"
                    .to_owned()
            }
        }
    }

    /// The largest budget under which every stage fits its worker, or else one under which the plan can be set up; whether
    /// it is the former.
    fn budget(&self, plan: &Plan) -> (u64, bool) {
        let chunks = (plan.cut.len() / plan.workers.len()) as u64;
        // Workers of a plan are numbered in its first replica.
        let by = match plan.replication.placement {
            Placement::Pipelines => 1,
            Placement::Stages => plan.replication.replicas,
        };
        let limit = |&device: &usize| {
            let own = self.workers[plan.workers[device] * by].memory;
            let memory = own.into_iter().chain(self.part.get()).min();
            memory.map_or(u64::MAX, |memory| memory / chunks)
        };
        let limits: Vec<u64> = plan.schedule.device_of().iter().map(limit).collect();
        let largest = plan.peaks.iter().copied().max().unwrap_or(0);
        let mut budgets: BTreeSet<u64> = limits.iter().copied().collect();
        if let (1, Some(&only)) = (budgets.len(), budgets.first()) {
            return (only, true);
        }
        budgets.insert(largest);
        let mut finite = budgets
            .into_iter()
            .rev()
            .filter(|&budget| budget < u64::MAX);
        let fitting = finite.find(|&budget| {
            let peaks = self.peaks_within(plan, budget).unwrap_or_default();
            let fits = |(peak, limit): (&u64, &u64)| peak <= limit;
            peaks.len() == limits.len() && peaks.iter().zip(&limits).all(fits)
        });
        (fitting.unwrap_or(largest), fitting.is_some())
    }

    /// The peaks of the stages of a plan under a budget.
    fn peaks_within(&self, plan: &Plan, budget: u64) -> gpipe_remat::Result<Vec<u64>> {
        let mut samples = gpipe_remat::micro_batches(self.batch, plan.all_micro_batches())?;
        samples.truncate(plan.micro_batches);
        let costs = (self.price)(&samples)?.costs;
        let weights = match self.is_sharded {
            true => &self
                .weights
                .clone()
                .largest_shards(plan.replication.replicas),
            false => &self.weights,
        };
        let (cut, schedule) = (&plan.cut, &plan.schedule);
        let policy = Policy::Budget(Bytes(budget));
        let remat_plan = RematPlan::new(policy, weights, &costs, cut, schedule)?;
        let memory = predict_memory(weights, &costs, cut, schedule, &remat_plan);
        Ok(memory.iter().map(StageMemory::peak).collect())
    }

    /// The configuration that runs a plan: `config` with its stages, cut, schedule, micro-batches,
    /// devices and rematerialization.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the plan has more stages than a configuration can have.
    pub fn apply(&self, plan: &Plan, config: &TrainConfig) -> Result<TrainConfig> {
        self.apply_with(plan, self.remat(plan), config)
    }

    pub(super) fn apply_with(
        &self,
        plan: &Plan,
        remat: Policy,
        config: &TrainConfig,
    ) -> Result<TrainConfig> {
        let mut chosen = config.clone();
        let pipeline = &mut chosen.pipeline;
        let whole = |number: usize| {
            let number = i64::try_from(number).unwrap_or(i64::MAX);
            Size::try_from(number).map_err(Error::invalid)
        };
        pipeline.stages = whole(plan.cut.len())?;
        pipeline.micro_batches = whole(plan.micro_batches)?;
        if self.hosts().is_some() {
            pipeline.replicas = whole(plan.replication.replicas)?;
            pipeline.micro_batches = whole(plan.all_micro_batches())?;
        }
        // A plan is named after a built-in schedule, or after the configured table.
        if *plan.order != *pipeline.schedule.to_string() {
            let schedule: ScheduleChoice = plan.order.parse().map_err(Error::input)?;
            pipeline.schedule = Named::of(schedule);
        }
        pipeline.partition = Named::of(CutRule::Sizes(plan.cut.iter().map(Range::len).collect()));
        pipeline.remat = Named::of(remat);
        if pipeline.devices.repeated().is_none() {
            let listed = pipeline.devices.of_workers(self.workers.len());
            let used = plan.workers.iter();
            let used = used.filter_map(|&worker| listed.get(worker).copied());
            // Each rank lists its own device.
            let used = used.take(self.launched().map_or(usize::MAX, |_| 1));
            pipeline.devices = Named::of(Devices::of_ids(used));
        }
        Ok(chosen)
    }

    /// The keys that differ between a plan and `config`, and their values: what it takes to run the plan
    /// with this configuration.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn settings(
        &self,
        plan: &Plan,
        config: &TrainConfig,
    ) -> Result<Vec<(&'static str, String)>> {
        let pipeline = self.apply(plan, config)?.pipeline;
        let used = match self.launched() {
            Some(_) => &plan.workers[..1],
            None => &plan.workers[..],
        };
        let listed = pipeline.devices.of_workers(used.len());
        // A GPU that need not be here is one of its own where the plan is run, and the first that a rank sees; a bare name
        // stands for one.
        let own_gpu = |worker: usize| match self.launched() {
            Some(_) => DeviceId::Cuda(0),
            None => DeviceId::Cuda(worker as u32),
        };
        let is_bare = pipeline.devices.repeated().is_some();
        let is_planned = self.has_known_gpus && is_bare;
        let device = |(id, &worker): (DeviceId, &usize)| match id {
            _ if is_planned => own_gpu(worker),
            DeviceId::Known(_) if is_bare => own_gpu(0),
            DeviceId::Known(_) => own_gpu(worker),
            _ => id,
        };
        let devices = Devices::of_ids(listed.into_iter().zip(used).map(device)).to_string();
        let mut settings = vec![
            ("pipeline.devices", devices),
            ("pipeline.stages", plan.cut.len().to_string()),
            ("pipeline.schedule", plan.order.clone()),
            (
                "pipeline.micro_batches",
                plan.all_micro_batches().to_string(),
            ),
            ("pipeline.partition", pipeline.partition.to_string()),
            ("pipeline.remat", pipeline.remat.to_string()),
        ];
        if self.hosts().is_some() {
            settings.push(("pipeline.replicas", plan.replication.replicas.to_string()));
        }
        // A cost file may have its own.
        if self.batch != config.data.batch_size.get() {
            settings.push(("data.batch_size", self.batch.to_string()));
        }
        Ok(settings)
    }
}
