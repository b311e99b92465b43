//! The recommended plan for a model, or for a list of costs.

use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use gpipe_mpi::Launcher;
use gpipe_remat::planner::{
    CertifiedPlan, Costed, Described, Link, PlanRequest, Planner, Replication, Worker,
};
use gpipe_remat::{Bytes, ModelCosts, ParameterBytes, Policy, Rates, Times};
use gpipe_report::Basis;

use super::hosts::Hosts;
use super::options::PlanningOptions;
use super::workers::on_gpus;
use crate::config::TrainConfig;
use crate::cost_import::CostFile;
use crate::error::{Error, Result};
use crate::profile::{self, ProfileOptions, ProfileProgress, Speed};
use crate::search_space::{ScheduleTable, SearchSpace, here, workers_for};
use crate::setup;
use crate::{machine, precision};

/// Fraction of the step time that more workers or stages must save, for times from measured layers: the
/// error of most such predictions is less.
const MIN_GAIN: f64 = 0.05;

pub(super) type Price = dyn Fn(&[Range<usize>]) -> gpipe_remat::Result<Costed>;

/// A planner for one model on given workers.
pub struct Recommender {
    names: Vec<String>,
    pub(super) weights: ParameterBytes,
    pub(super) speed: Option<Rc<Speed>>,
    /// What times rest on without `speed`.
    given: Basis,
    pub(super) batch: usize,
    pub(super) price: Box<Price>,
    pub(super) workers: Vec<Worker>,
    link: Link,
    hosts: Option<Hosts>,
    /// The number of replicas, if given.
    pub(super) replicas: Option<usize>,
    /// Whether replicas divide the optimizer states among them.
    pub(super) is_sharded: bool,
    /// Whether workers were listed as known GPUs, of which each is a device of its own.
    pub(super) has_known_gpus: bool,
    /// What to do where workers with memory of their own, which counts before the configured limit, have too little.
    pub(super) mend_of_memory: Option<&'static str>,
    pub(super) cores: Option<usize>,
    pub(super) space: SearchSpace,
    /// The configuration; `None` of a model given by its costs, which cannot be run.
    pub(super) config: Option<TrainConfig>,
    /// The samples of a step, where costs tell no number and none is given.
    assumed_batch: Option<usize>,
    /// Bytes of each worker of the recommended plan, where the memory of this machine limits it.
    pub(super) part: Cell<Option<u64>>,
}

impl fmt::Debug for Recommender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recommender")
            .field("workers", &self.workers)
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}

impl Recommender {
    /// Plans for the configured model, on the workers of `options` or of this machine.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a link without workers, and for given keys that no plan has; [`Error::Input`] if the model cannot be built; those of [`Speed::of`].
    pub fn of_model(
        config: &TrainConfig,
        options: &PlanningOptions,
        profile: ProfileOptions<'_>,
        progress: &mut dyn FnMut(ProfileProgress),
    ) -> Result<Self> {
        let before = config.pipeline.before.get();
        if before > 0 {
            return Err(Error::invalid(format!(
                "`pipeline.before = {before}`: a recommendation does not plan layers before the pipeline: leave it out"
            )));
        }
        let replicas = config.pipeline.replicas.get();
        let launcher = Launcher::of_environment().filter(|launcher| launcher.ranks > 1);
        if let (Some(launcher), None, None) = (&launcher, options.ranks, &options.hosts) {
            return Err(Error::invalid(format!(
                "--auto plans for the workers of one process, and {} started {}: run gpipe plan --auto --profile under the \
                 same launcher, which prints the flags of a run over these ranks",
                launcher.name, launcher.ranks
            )));
        }
        if replicas > 1 && options.hosts.is_none() && launcher.is_none() {
            return Err(Error::invalid(format!(
                "`pipeline.replicas = {replicas}`: replicas are planned on hosts, not on the workers of a process: add \
                 --workers, such as {replicas}*1T, and --hosts 1 to gpipe plan, start it with mpirun, or leave \
                 `pipeline.replicas` out"
            )));
        }
        let groups = config.pipeline.groups.get();
        let is_on_hosts = options.hosts.is_some() || options.ranks.is_some();
        if is_on_hosts && groups > replicas {
            return Err(Error::invalid(format!(
                "`pipeline.groups = {groups}`: a recommendation for hosts plans as many groups as replicas: leave it out"
            )));
        }
        let of_gpus = options.gpu.map(|gpu| on_gpus(config, gpu));
        let config = of_gpus.as_ref().unwrap_or(config);
        let mut layers = setup::layers(config)?;
        let optimizer = setup::optimizer(config);
        let weights = ParameterBytes::new(&mut layers, Some(&optimizer));
        let names = layers.iter().map(|layer| layer.name().to_owned()).collect();
        let batch = config.data.batch_size.get();
        let parts = config.pipeline.micro_batches.get();
        let samples = gpipe_remat::micro_batches(batch, parts).map_err(Error::input)?;
        ModelCosts::new(&layers, &samples, setup::input(config))
            .map_err(|error| setup::misfit(config, &layers, &samples, error))?;
        let (fixed, table) = (&options.fixed, ScheduleTable::of(config)?);
        if options.workers.is_none() && options.hosts.is_some() {
            return Err(Error::invalid(
                "--hosts have as many --workers each: list those of one too, such as --workers '4*100T'",
            ));
        }
        let memory = config.pipeline.memory.bytes();
        let (workers, link, cores) = match (&options.workers, &options.ranks) {
            (Some(workers), _) => (workers.clone(), options.link.unwrap_or(Link::FREE), None),
            (None, Some(ranks)) => {
                let worker = Worker { speed: 1.0, memory };
                (vec![worker; ranks.per_host], ranks.link, None)
            }
            (None, None) if options.link.is_some() => {
                return Err(Error::invalid(
                    "--link is between --workers: list them too, such as --workers '4*100T'",
                ));
            }
            (None, None) => {
                let (workers, cores) = here(config, fixed, table.as_ref());
                (workers, Link::FREE, Some(cores))
            }
        };
        let has_own = |worker: &Worker| worker.memory.is_some() && worker.memory != memory;
        let has_own_memory = workers.iter().any(has_own);
        let (hosts, host_link) = match &options.ranks {
            Some(ranks) => (Some(ranks.hosts), Some(ranks.host_link)),
            None => (options.hosts, options.host_link),
        };
        let hosts = Hosts::of(hosts, host_link, (workers.len(), link))?;
        let workers = workers.repeat(hosts.map_or(1, |hosts| hosts.count));
        let space = SearchSpace::new(config, fixed, table, [workers.len(), layers.len(), batch])?;
        let threads = config.pipeline.threads.get();
        let speed = match options.workers {
            Some(_) => None,
            None => {
                // What this machine cannot multiply it cannot train.
                precision::host(config, 1, precision::products(config, true))
                    .map_err(Error::input)?;
                let sizes = profile::sizes(batch, &space.micro_batches);
                let speed = Speed::of(config, profile, &sizes, progress)?;
                let missing = machine::missing_gpus(config.pipeline.devices.listed());
                if let (Speed::Estimate(_), Some(id)) = (&speed, missing.first()) {
                    return Err(Error::invalid(format!(
                        "device {id} is not here, and a processor's speed says nothing of a GPU: name the GPU that is planned \
                         for, such as `pipeline.devices = cuda:h100*{}`",
                        workers.len()
                    )));
                }
                Some(Rc::new(speed))
            }
        };
        let cores = match (&speed, cores) {
            (Some(speed), Some(cores)) => speed.shared(cores, workers.len()),
            (_, cores) => cores,
        };
        let input = setup::input(config);
        let (known, parameters) = (speed.clone(), weights.clone());
        let rates = match options.rates {
            Some(rates) => rates.by_flop(),
            None => Rates::of_model(*config.pipeline.cost_model, 1.0),
        };
        let price = move |samples: &[Range<usize>]| {
            let mut costs = ModelCosts::new(&layers, samples, &input)?.with_frozen(&parameters);
            if !is_on_hosts {
                costs = costs.with_groups(groups, &parameters)?;
            }
            let work = Times::of_rates(&costs, rates);
            let times = match (&known, cores) {
                (Some(speed), Some(cores)) => speed.times(&costs, cores),
                (Some(speed), None) => speed.times(&costs, threads).of_share(threads),
                _ => work.clone(),
            };
            Ok(Costed {
                costs,
                times,
                scheduling_times: Some(work),
            })
        };
        Ok(Self {
            names,
            weights,
            speed,
            given: match options.rates {
                Some(_) => Basis::DataSheet,
                None => Basis::Estimate,
            },
            batch,
            price: Box::new(price),
            workers,
            link,
            hosts,
            replicas: fixed.replicas.then(|| config.pipeline.replicas.get()),
            is_sharded: config.pipeline.zero.get() > 0,
            has_known_gpus: options.gpu.is_some(),
            mend_of_memory: has_own_memory.then_some(match options.workers {
                Some(_) => "list --workers with",
                None => "list more GPUs, or some with",
            }),
            cores,
            space,
            config: Some(config.clone()),
            assumed_batch: None,
            part: Cell::new(None),
        })
    }

    /// Plans for a model given by its costs.
    ///
    /// # Errors
    /// [`Error::Invalid`] for given keys that no plan has.
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
        let (fixed, table) = (&options.fixed, ScheduleTable::of(config)?);
        let workers = options.workers.clone().or(workers).unwrap_or_else(|| {
            let stages = config.pipeline.stages.get();
            let count = match fixed.stages {
                true => 1,
                false => stages,
            };
            vec![Worker { speed: 1.0, memory }; workers_for(config, fixed, table.as_ref(), count)]
        });
        let limited = |worker: Worker| Worker {
            // A key that was given counts before the file.
            memory: memory.or(worker.memory),
            ..worker
        };
        if let Some(gpu) = options.gpu {
            return Err(Error::invalid(format!(
                "--workers with the GPU {gpu} compute FLOPs, and costs are seconds of a worker of speed 1: list workers by \
                 their speed, such as --workers '{}*1'",
                workers.len()
            )));
        }
        let is_assumed = batch.is_none() && !fixed.batch_size && !fixed.micro_batches;
        let batch = batch.unwrap_or(config.data.batch_size.get());
        let link = options.link.or(link).unwrap_or(Link::FREE);
        let hosts = Hosts::of(options.hosts, options.host_link, (workers.len(), link))?;
        let hosts = hosts.map(|hosts| Hosts {
            is_launched: false,
            ..hosts
        });
        let workers = workers.repeat(hosts.map_or(1, |hosts| hosts.count));
        let space = SearchSpace::new(config, fixed, table, [workers.len(), layers.len(), batch])?;
        Ok(Self {
            names: layers.iter().map(|layer| layer.name.clone()).collect(),
            weights: Described::weights(&layers),
            speed: None,
            given: Basis::Costs,
            batch,
            workers: workers.into_iter().map(limited).collect(),
            link,
            hosts,
            replicas: fixed.replicas.then(|| config.pipeline.replicas.get()),
            is_sharded: config.pipeline.zero.get() > 0,
            has_known_gpus: false,
            mend_of_memory: None,
            cores: None,
            space,
            config: None,
            assumed_batch: Some(batch).filter(|_| is_assumed),
            part: Cell::new(None),
            price: Box::new(move |samples| Described::costed(&layers, batch, samples)),
        })
    }

    pub(super) fn hosts(&self) -> Option<Hosts> {
        self.hosts
    }

    /// The hosts, if plans are run there with one rank a worker.
    pub(super) fn launched(&self) -> Option<Hosts> {
        self.hosts.filter(|hosts| hosts.is_launched)
    }

    /// The workers of the plans, of all hosts.
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

    /// What the times of plans rest on.
    pub fn basis(&self) -> Basis {
        self.speed().map_or(self.given, Speed::basis)
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

    pub(super) fn request(&self, policies: Vec<Policy>) -> PlanRequest<'_> {
        PlanRequest {
            weights: &self.weights,
            batch: self.batch,
            price: &*self.price,
            workers: self.workers.clone(),
            link: self.link,
            replication: Replication::default(),
            cores: self.cores,
            orders: &self.space.orders,
            micro_batches: self.space.micro_batches.clone(),
            stages: self.space.stages,
            cut: self.space.cut.clone(),
            min_gain: match self.speed.as_deref() {
                Some(Speed::Measured(_)) => MIN_GAIN,
                _ => 0.0,
            },
            policies,
        }
    }

    /// The recommended plan and its optimality bound. For processors of this machine it is one that fits the memory here, if
    /// there is one: [`faults`](Self::faults) says what `train` would refuse.
    ///
    /// # Errors
    /// [`Error::Input`] if no plan fits the memory; the message has the memory that would suffice.
    pub fn recommend(&self) -> Result<CertifiedPlan> {
        let policy = self.space.policy.unwrap_or(Policy::Budget(Bytes(u64::MAX)));
        if let Some(hosts) = self.hosts {
            return self.recommend_on(hosts, policy);
        }
        let request = self.request(vec![policy]);
        let planner = Planner::new(&request).map_err(Error::input)?;
        let mut answer = planner.answer().map_err(|error| {
            let more = self.more_workers(policy, &error);
            match (self.refused(error), more) {
                (refused, Some(more)) => Error::invalid(format!("{refused}, or {more}")),
                (refused, None) => refused,
            }
        })?;
        if let Some(config) = &self.config {
            let CertifiedPlan {
                plan,
                fastest,
                bound,
                ..
            } = &mut answer;
            let is_fastest = *fastest == plan.seconds;
            self.as_run(plan, policy, config)?;
            *bound = bound.min(plan.seconds);
            *fastest = match is_fastest {
                true => plan.seconds,
                false => fastest.min(plan.seconds),
            };
            answer = self.within_this_machine(answer, policy, config)?;
        }
        Ok(answer)
    }

    /// The samples of a step that bound the number of micro-batches, where neither costs nor a key tell how many there are.
    pub fn assumed_batch(&self) -> Option<usize> {
        self.assumed_batch
    }

    /// The smallest memory limit of the workers in bytes; `None` without limits.
    pub fn memory(&self) -> Option<u64> {
        self.workers.iter().filter_map(|worker| worker.memory).min()
    }
}
