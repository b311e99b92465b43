//! Recommended plans: the fastest way to train a model on given workers, with an optimality bound.

use std::ops::Range;
use std::rc::Rc;

use gpipe_partition::CutRule;
use gpipe_remat::planner::{
    CertifiedPlan, Costed, Described, Link, NamedOrder, Plan, PlanRequest, Planner, Worker,
};
use gpipe_remat::{Bytes, ModelCosts, ParameterBytes, Policy, StageMemory, Times, Work};

use crate::config::{Devices, Named, ScheduleChoice, Size, TrainConfig};
use crate::cost_import::CostFile;
use crate::error::{Error, Result};
use crate::profile::{self, ProfileOptions, ProfileProgress, Speed};
use crate::search_space::{ScheduleTable, here, numbers_of_micro_batches, schedules};
use crate::setup::{self, Setup};

/// Fraction of the step time that more workers or stages must save, for times from measured layers: the
/// error of most such predictions is less.
const MIN_GAIN: f64 = 0.05;

type Price = dyn Fn(&[Range<usize>]) -> gpipe_remat::Result<Costed>;

/// Workers to plan for, instead of those of this machine or of a cost file.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PlanningOptions {
    /// The workers; `None` for those of this machine or of the cost file.
    pub workers: Option<Vec<Worker>>,
    /// The link between them; `None` for that of the cost file, or a free one.
    pub link: Option<Link>,
}

/// A planner for one model on given workers.
pub struct Recommender {
    names: Vec<String>,
    weights: ParameterBytes,
    speed: Option<Rc<Speed>>,
    batch: usize,
    price: Box<Price>,
    workers: Vec<Worker>,
    link: Link,
    cores: Option<usize>,
    orders: Vec<NamedOrder>,
    micro_batches: Vec<usize>,
}

/// A plan of a [`Comparison`].
#[non_exhaustive]
pub struct RankedPlan {
    /// The plan.
    pub plan: Plan,
    /// The rematerialization policy, as a value of `pipeline.remat`.
    pub remat: String,
    /// The rule of the cut: `balance` or `histogram`.
    pub partition: &'static str,
    policy: Policy,
    order: usize,
}

/// The best plan of each combination of schedule, workers, micro-batches and policy.
#[non_exhaustive]
pub struct Comparison {
    /// The plans, fastest first.
    pub plans: Vec<RankedPlan>,
    /// The fastest plan with the cut of Lingvo's histogram rule, if that exists and fits the memory.
    pub histogram: Option<RankedPlan>,
}

impl Recommender {
    /// Plans for the configured model, on the workers of `options` or of this machine.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a link without workers, and for a schedule table that does not fit the model
    /// or the workers; [`Error::Input`] if the model cannot be built; those of [`Speed::of`].
    pub fn of_model(
        config: &TrainConfig,
        options: &PlanningOptions,
        profile: ProfileOptions<'_>,
        progress: &mut dyn FnMut(ProfileProgress),
    ) -> Result<Self> {
        let mut layers = setup::layers(config)?;
        let optimizer = setup::optimizer(config);
        let weights = ParameterBytes::new(&mut layers, Some(&optimizer));
        let names = layers.iter().map(|layer| layer.name().to_owned()).collect();
        let batch = config.data.batch_size.get();
        let table = ScheduleTable::of(config)?;
        let micro_batches = numbers_of_micro_batches(batch, table.as_ref())?;
        let mut speed = None;
        let (workers, link, cores) = match &options.workers {
            Some(workers) => (workers.clone(), options.link.unwrap_or(Link::FREE), None),
            None if options.link.is_some() => {
                return Err(Error::invalid(
                    "--link is between --workers: list them too, such as --workers 4*100T",
                ));
            }
            None => {
                let sizes = profile::sizes(batch, &micro_batches);
                speed = Some(Rc::new(Speed::of(config, profile, &sizes, progress)?));
                let (workers, cores) = here(config, table.as_ref());
                (workers, Link::FREE, Some(cores))
            }
        };
        let orders = schedules(table, workers.len(), layers.len())?;
        let input = setup::input(config);
        let known = speed.clone();
        let price = move |samples: &[Range<usize>]| {
            let costs = ModelCosts::new(&layers, samples, &input)?;
            let flops = Times::of_flops(&costs, 1.0);
            let times = match (&known, cores) {
                (Some(speed), Some(cores)) => speed.times(&costs, cores),
                _ => flops.clone(),
            };
            Ok(Costed {
                costs,
                times,
                scheduling_times: Some(flops),
            })
        };
        Ok(Self {
            names,
            weights,
            speed,
            batch,
            price: Box::new(price),
            workers,
            link,
            cores,
            orders,
            micro_batches,
        })
    }

    /// Plans for a model given by its costs.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a schedule table that does not fit the model or the workers.
    pub fn of_costs(
        file: CostFile,
        config: &TrainConfig,
        options: &PlanningOptions,
    ) -> Result<Self> {
        let CostFile {
            layers,
            batch,
            workers,
            link,
        } = file;
        let memory = config.pipeline.memory.bytes();
        let workers = options.workers.clone().or(workers).unwrap_or_else(|| {
            let count = match config.pipeline.devices.repeated() {
                Some(_) => config.pipeline.stages.get() as u64,
                None => config.pipeline.devices.workers(),
            };
            let count = usize::try_from(count).unwrap_or(usize::MAX).min(1 << 16);
            vec![Worker { speed: 1.0, memory }; count]
        });
        let limited = |worker: Worker| Worker {
            memory: worker.memory.or(memory),
            ..worker
        };
        let batch = batch.unwrap_or(config.data.batch_size.get());
        let table = ScheduleTable::of(config)?;
        let micro_batches = numbers_of_micro_batches(batch, table.as_ref())?;
        let orders = schedules(table, workers.len(), layers.len())?;
        Ok(Self {
            names: layers.iter().map(|layer| layer.name.clone()).collect(),
            weights: Described::weights(&layers),
            speed: None,
            batch,
            workers: workers.into_iter().map(limited).collect(),
            link: options.link.or(link).unwrap_or(Link::FREE),
            cores: None,
            orders,
            micro_batches,
            price: Box::new(move |samples| Described::costed(&layers, samples)),
        })
    }

    /// The workers of the plans.
    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// The name of a layer.
    ///
    /// # Panics
    /// If `index` is not that of a layer.
    pub fn layer(&self, index: usize) -> &str {
        &self.names[index]
    }

    /// The speed of this machine; `None` for other workers.
    pub fn speed(&self) -> Option<&Speed> {
        self.speed.as_deref()
    }

    /// The costs of the layers for the configured micro-batches.
    ///
    /// # Errors
    /// [`Error::Input`] if there are more micro-batches than samples, or the costs cannot be computed.
    pub fn costs(&self, config: &TrainConfig) -> Result<ModelCosts> {
        let parts = config.pipeline.micro_batches.get();
        let samples = gpipe_remat::micro_batches(self.batch, parts).map_err(Error::input)?;
        Ok((self.price)(&samples).map_err(Error::input)?.costs)
    }

    fn request(&self, policies: Vec<Policy>) -> PlanRequest<'_> {
        PlanRequest {
            weights: &self.weights,
            batch: self.batch,
            price: &*self.price,
            workers: self.workers.clone(),
            link: self.link,
            cores: self.cores,
            orders: &self.orders,
            micro_batches: self.micro_batches.clone(),
            min_gain: match self.speed.as_deref() {
                Some(Speed::Measured(_)) => MIN_GAIN,
                _ => 0.0,
            },
            policies,
        }
    }

    /// The recommended plan and its optimality bound.
    ///
    /// # Errors
    /// [`Error::Input`] if no plan fits the memory; the message has the memory that would suffice.
    pub fn recommend(&self) -> Result<CertifiedPlan> {
        let request = self.request(vec![Policy::Budget(Bytes(u64::MAX))]);
        let planner = Planner::new(&request).map_err(Error::input)?;
        planner.answer().map_err(Error::input)
    }

    /// The smallest memory limit of the workers in bytes; `None` without limits.
    pub fn memory(&self) -> Option<u64> {
        self.workers.iter().filter_map(|worker| worker.memory).min()
    }

    /// The rematerialization policy under which every stage keeps the activations of the plan.
    pub fn remat(&self, plan: &Plan) -> Policy {
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

    fn apply_with(&self, plan: &Plan, remat: Policy, config: &TrainConfig) -> Result<TrainConfig> {
        let mut chosen = config.clone();
        let pipeline = &mut chosen.pipeline;
        let whole = |number: usize| {
            let number = i64::try_from(number).unwrap_or(i64::MAX);
            Size::try_from(number).map_err(Error::invalid)
        };
        pipeline.stages = whole(plan.cut.len())?;
        pipeline.micro_batches = whole(plan.micro_batches)?;
        // A plan is named after a built-in schedule, or after the configured table.
        if *plan.order != *pipeline.schedule.to_string() {
            let schedule: ScheduleChoice = plan.order.parse().map_err(Error::input)?;
            pipeline.schedule = Named::of(schedule);
        }
        pipeline.partition = Named::of(CutRule::Sizes(plan.cut.iter().map(Range::len).collect()));
        pipeline.remat = Named::of(remat);
        if pipeline.devices.repeated().is_none() {
            let count = u32::try_from(plan.workers.len()).unwrap_or(u32::MAX);
            pipeline.devices = Named::of(Devices::several(pipeline.devices.first(), count));
        }
        Ok(chosen)
    }

    /// The best plan of each combination, fastest first, and the fastest with Lingvo's cut.
    ///
    /// # Errors
    /// As [`recommend`](Self::recommend), if no plan fits the memory.
    pub fn compare(&self, config: &TrainConfig) -> Result<Comparison> {
        let mut policies = vec![Policy::Keep, Policy::Stage];
        if self.memory().is_some() {
            policies.push(Policy::Budget(Bytes(u64::MAX)));
        }
        let mut plans = Vec::new();
        for policy in policies {
            let request = self.request(vec![policy]);
            let mut planner = Planner::new(&request).map_err(Error::input)?;
            for order in 0..self.orders.len() {
                for workers in 1..=self.workers.len() {
                    if workers == 1 && order > 1 {
                        continue;
                    }
                    for &micro_batches in &self.micro_batches {
                        let found = planner.under(order, workers, micro_batches);
                        if let Some((mut plan, _)) = found.map_err(Error::input)? {
                            if policy == Policy::Stage {
                                self.as_run(&mut plan, policy, config)?;
                            }
                            let ranked = self.ranked(plan, policy, order, "balance");
                            // A plan that keeps everything is in the list already.
                            let duplicate = ranked.remat == Policy::Keep.to_string();
                            if policy == Policy::Keep || !duplicate {
                                plans.push(ranked);
                            }
                        }
                    }
                }
            }
        }
        plans.sort_by(|a, b| a.plan.seconds.total_cmp(&b.plan.seconds));
        let histogram = match plans.first() {
            Some(best) => self.histogram(best, config)?,
            None => {
                // Returns the error with the memory that would suffice.
                self.recommend()?;
                None
            }
        };
        Ok(Comparison { plans, histogram })
    }

    fn ranked(
        &self,
        plan: Plan,
        policy: Policy,
        order: usize,
        partition: &'static str,
    ) -> RankedPlan {
        let remat = match policy {
            Policy::Budget(_) => self.remat(&plan),
            policy => policy,
        };
        RankedPlan {
            plan,
            remat: remat.to_string(),
            partition,
            policy,
            order,
        }
    }

    /// Replaces the prediction of a plan by that of its run on this machine, which hides recomputation
    /// in idle time. No effect for other workers.
    fn as_run(&self, plan: &mut Plan, policy: Policy, config: &TrainConfig) -> Result<()> {
        let Some((speed, cores)) = self.speed.as_ref().zip(self.cores) else {
            return Ok(());
        };
        let chosen = self.apply_with(plan, policy, config)?;
        let setup = Setup::new(&chosen)?;
        let times = speed.times(&setup.costs, cores);
        plan.seconds = setup.step_seconds(&times)?;
        plan.bubble = setup.predicted(&times)?.bubble();
        plan.peaks = setup.memory.iter().map(StageMemory::peak).collect();
        Ok(())
    }

    fn histogram(&self, best: &RankedPlan, config: &TrainConfig) -> Result<Option<RankedPlan>> {
        let parts = gpipe_remat::micro_batches(self.batch, best.plan.micro_batches);
        let costed = parts
            .and_then(|parts| (self.price)(&parts))
            .map_err(Error::input)?;
        let work = |work: &Work| work.forward + work.input_grad + work.weight_grad;
        let work: Vec<f64> = costed.times.work.iter().map(work).collect();
        let Ok(cut) = gpipe_partition::histogram(&work, best.plan.cut.len()) else {
            return Ok(None);
        };
        let request = self.request(vec![best.policy]);
        let mut planner = Planner::new(&request).map_err(Error::input)?;
        let cut: Vec<Range<usize>> = cut.ranges().collect();
        let (workers, micro_batches) = (best.plan.workers.len(), best.plan.micro_batches);
        let plan = planner.with_cut(best.order, workers, micro_batches, &cut);
        let Some(mut plan) = plan.map_err(Error::input)? else {
            return Ok(None);
        };
        if best.policy == Policy::Stage {
            self.as_run(&mut plan, best.policy, config)?;
        }
        Ok(Some(self.ranked(
            plan,
            best.policy,
            best.order,
            "histogram",
        )))
    }
}
