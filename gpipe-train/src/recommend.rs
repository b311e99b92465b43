//! The fastest way to train a model on given workers, and how far from the best that is at most.

use std::ops::Range;
use std::rc::Rc;

use gpipe_remat::planner::{
    CertifiedPlan, Costed, Described, Link, NamedOrder, Plan, PlanRequest, Planner, Worker,
};
use gpipe_remat::{Bytes, ModelCosts, ParameterBytes, Policy, StageMemory, Times, Work};

use crate::config::{Cut, Devices, Named, ScheduleChoice, Size, TrainConfig};
use crate::cost_import::CostFile;
use crate::error::{Error, Result};
use crate::profile::{self, ProfileOptions, ProfileProgress, Speed};
use crate::search_space::{ScheduleTable, here, numbers_of_micro_batches, schedules};
use crate::setup::{self, Setup};

/// What more workers or stages have to save of a step whose time is predicted by measured layers: most of
/// these predictions are off by less.
const MIN_GAIN: f64 = 0.05;

type Price = dyn Fn(&[Range<usize>]) -> gpipe_remat::Result<Costed>;

/// Workers to plan for, in the place of this machine's or of those of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanningOptions {
    /// The workers.
    pub workers: Option<Vec<Worker>>,
    /// What is between them.
    pub link: Option<Link>,
}

/// A model, the workers that there are, and the plans to choose from.
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

/// A plan among others.
pub struct RankedPlan {
    /// The plan.
    pub plan: Plan,
    /// What is kept from forward to backward, as `pipeline.remat` takes it.
    pub remat: String,
    /// The rule of its cut: `balance` or `histogram`.
    pub partition: &'static str,
    policy: Policy,
    order: usize,
}

/// Plans of all kinds.
pub struct Comparison {
    /// The fastest first.
    pub plans: Vec<RankedPlan>,
    /// The fastest with Lingvo's cut of the layers' work, where that cut exists and fits.
    pub histogram: Option<RankedPlan>,
}

impl Recommender {
    /// For the configured model, on the listed workers or on those of this machine.
    ///
    /// # Errors
    /// If the model cannot be built, or a table of actions does not fit it.
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

    /// For a model of which there are numbers only.
    ///
    /// # Errors
    /// If a table of actions does not fit it.
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

    /// The workers that are planned for.
    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// The name of a layer.
    pub fn layer(&self, index: usize) -> &str {
        &self.names[index]
    }

    /// How fast this machine is, if its workers are planned for.
    pub fn speed(&self) -> Option<&Speed> {
        self.speed.as_deref()
    }

    /// The costs of the layers in the micro-batches that are configured.
    ///
    /// # Errors
    /// If the model has no costs for them.
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

    /// The plan to use.
    ///
    /// # Errors
    /// If nothing fits the memory: what would.
    pub fn recommend(&self) -> Result<CertifiedPlan> {
        let request = self.request(vec![Policy::Budget(Bytes(u64::MAX))]);
        let planner = Planner::new(&request).map_err(Error::input)?;
        planner.answer().map_err(Error::input)
    }

    /// The least memory of a worker, if it is limited.
    pub fn memory(&self) -> Option<u64> {
        self.workers.iter().filter_map(|worker| worker.memory).min()
    }

    /// What is kept from forward to backward, so that every stage keeps as much as it was planned to.
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

    /// The configuration of a plan.
    ///
    /// # Errors
    /// If the plan has more stages than a configuration can.
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
        // The plan has the name of one of the schedules, or of the table that is configured.
        if *plan.order != *pipeline.schedule.to_string() {
            let schedule: ScheduleChoice = plan.order.parse().map_err(Error::invalid)?;
            pipeline.schedule = Named::of(schedule);
        }
        pipeline.partition = Named::of(Cut::Sizes(plan.cut.iter().map(Range::len).collect()));
        pipeline.remat = Named::of(remat);
        if pipeline.devices.repeated().is_none() {
            let count = u32::try_from(plan.workers.len()).unwrap_or(u32::MAX);
            pipeline.devices = Named::of(Devices::several(pipeline.devices.first(), count));
        }
        Ok(chosen)
    }

    /// Plans of all kinds, the fastest first, and Lingvo's cut of the fastest.
    ///
    /// # Errors
    /// If nothing fits the memory: what would.
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
                            // What fits with everything kept is there already.
                            let again = ranked.remat == Policy::Keep.to_string();
                            if policy == Policy::Keep || !again {
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
                // The error says what would fit.
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

    /// The time of a plan under a policy as it is run: with recomputation moved ahead of time. Not
    /// known where workers are not those of this machine.
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
