//! What it takes to run a plan: the configuration, and the keys in which that differs from another.

use std::ops::Range;

use gpipe_partition::CutRule;
use gpipe_remat::planner::Plan;
use gpipe_remat::{Bytes, Policy};

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
        match self.memory() {
            Some(memory) if !(0..stages).all(keeps) => {
                let chunks = plan.cut.len() / plan.workers.len();
                Policy::Budget(Bytes(memory / chunks as u64))
            }
            _ => Policy::Keep,
        }
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
        if self.launched().is_some() {
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
        let workers = match self.launched() {
            Some(_) => 1,
            None => u32::try_from(plan.workers.len()).unwrap_or(u32::MAX),
        };
        let devices = match pipeline.devices.repeated() {
            Some(id) => Devices::several(id, workers).to_string(),
            None => pipeline.devices.to_string(),
        };
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
        if self.launched().is_some() {
            settings.push(("pipeline.replicas", plan.replication.replicas.to_string()));
        }
        // A cost file may have its own.
        if self.batch != config.data.batch_size.get() {
            settings.push(("data.batch_size", self.batch.to_string()));
        }
        Ok(settings)
    }
}
