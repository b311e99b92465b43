//! The request that a plan answers.

use std::fmt;
use std::ops::Range;

use gpipe_sched::{Costs, Schedule};

use super::link::Link;
use super::replication::Replication;
use crate::cut::is_cut;
use crate::{Error, ModelCosts, ParameterBytes, Policy, Result, Times, Work, micro_batches};

/// Beyond this, planning takes minutes; within a limit on memory, it may with fewer layers already.
const MOST_LAYERS: usize = 4096;
const MOST_WORKERS: usize = 1024;

/// The input of the planner.
pub struct PlanRequest<'a> {
    /// Bytes of parameters, gradients and optimizer states.
    pub weights: &'a ParameterBytes,
    /// Samples per step, of all replicas.
    pub batch: usize,
    /// Costs and work of a batch in these micro-batches.
    pub price: &'a dyn Fn(&[Range<usize>]) -> Result<Costed>,
    /// Workers of a replica, in the order in which they are linked.
    pub workers: Vec<Worker>,
    /// Links between workers of a host.
    pub link: Link,
    /// Replicas and hosts; the default is one pipeline on one host.
    pub replication: Replication,
    /// Cores that all workers share, where these are threads of one machine: a worker's speed is then
    /// that on one.
    pub cores: Option<usize>,
    /// Schedules that may be used.
    pub orders: &'a [NamedOrder],
    /// Numbers of micro-batches of a replica that may be used.
    pub micro_batches: Vec<usize>,
    /// The number of stages, where there is no choice.
    pub stages: Option<usize>,
    /// The layers of each stage, where there is no choice.
    pub cut: Option<Vec<Range<usize>>>,
    /// The least gain, as a share of the step's time, for which more workers, or more stages on as
    /// many, are used: of plans that are closer than times are known, the simplest is chosen. 0: the
    /// fastest.
    pub min_gain: f64,
    /// Policies that may be used. A stage takes the first policy with the least recomputation that fits
    /// its worker's memory; [`Policy::Budget`] stands for the best choice that fits that and its own bytes.
    pub policies: Vec<Policy>,
}

impl fmt::Debug for PlanRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlanRequest")
            .field("batch", &self.batch)
            .field("workers", &self.workers)
            .field("link", &self.link)
            .field("replication", &self.replication)
            .field("orders", &self.orders)
            .field("micro_batches", &self.micro_batches)
            .field("stages", &self.stages)
            .field("policies", &self.policies)
            .finish_non_exhaustive()
    }
}

/// The costs of a batch.
#[derive(Debug)]
pub struct Costed {
    /// Bytes and FLOPs.
    pub costs: ModelCosts,
    /// The work of each layer, in any unit; [`Worker::speed`] is in these units per second.
    pub times: Times,
    /// Times given to cost-driven schedules; `times` where `None`. (A run that is set up without a
    /// measurement makes its schedule from FLOPs.)
    pub scheduling_times: Option<Times>,
}

/// A device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worker {
    /// Speed in units of work per second.
    pub speed: f64,
    /// Memory in bytes; `None` if unlimited.
    pub memory: Option<u64>,
}

/// Makes a schedule for numbers of workers and micro-batches, if one of that shape exists.
pub type MakeSchedule = Box<dyn Fn(usize, usize) -> Option<Schedule>>;

/// Makes a cost-driven schedule from a schedule and its costs: of the same stages on the same devices and as many
/// micro-batches. One of another shape counts as none.
pub type FollowCosts = Box<dyn Fn(&Schedule, &Costs) -> Option<Schedule>>;

/// The most micro-batches that a stage holds, by the number of stages.
pub type Held = Box<dyn Fn(usize) -> usize>;

/// A kind of schedule.
pub struct NamedOrder {
    /// Its name for users.
    pub name: String,
    /// Stages per worker.
    pub chunks: usize,
    /// The schedule for a number of workers and of micro-batches.
    pub make: MakeSchedule,
    /// Adapts the schedule to the costs; `None` unless it is cost-driven.
    pub follow: Option<FollowCosts>,
    /// For a cost-driven schedule: the most micro-batches that a stage holds; `None` if unlimited.
    pub held: Option<Held>,
}

impl fmt::Debug for NamedOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedOrder")
            .field("name", &self.name)
            .field("chunks", &self.chunks)
            .finish_non_exhaustive()
    }
}

impl NamedOrder {
    /// The schedule for these numbers, if one of that shape exists; an error if it has another shape.
    pub(super) fn schedule(&self, workers: usize, parts: usize) -> Result<Option<Schedule>> {
        let Some(schedule) = (self.make)(workers, parts) else {
            return Ok(None);
        };
        let (devices, stages) = (schedule.devices(), schedule.stages());
        let (micro_batches, asked) = (schedule.micro_batches(), workers * self.chunks);
        if (devices, stages, micro_batches) != (workers, asked, parts) {
            return fault(format!(
                "the order {} makes a schedule of {devices} workers, {stages} stages and {micro_batches} micro-batches \
                 for {workers}, {asked} and {parts}: correct its `chunks`",
                self.name
            ));
        }
        Ok(Some(schedule))
    }
}

impl PlanRequest<'_> {
    pub(super) fn costed(&self, parts: usize) -> Result<Costed> {
        let replicas = self.replication.replicas;
        let mut samples = micro_batches(self.batch, parts.saturating_mul(replicas))?;
        samples.truncate(parts);
        let mut costed = (self.price)(&samples)?;
        // The scheduling times go through `simulator_costs`, which does the same.
        costed.times = costed.times.without_frozen(&costed.costs).into_owned();
        let layers = self.weights.layers();
        let mut lists = vec![&costed.times];
        lists.extend(&costed.scheduling_times);
        for times in lists {
            for cores in 1..=times.cores() {
                if times.on(cores).len() != layers || costed.costs.layers() != layers {
                    return fault(format!(
                        "weights of {layers} layers, costs of {} and work of {}: give each for every \
                         layer",
                        costed.costs.layers(),
                        times.on(cores).len()
                    ));
                }
                check(times.on(cores))?;
            }
            if !(times.action.is_finite() && times.action >= 0.0) {
                return fault(format!(
                    "an action costs {} by itself: use a finite number from 0 up",
                    times.action
                ));
            }
        }
        let total: f64 = costed.times.work.iter().map(sum).sum();
        if !total.is_finite() {
            return fault("the layers together cost more than a number holds: scale them down");
        }
        if total == 0.0 {
            return fault("all layers cost nothing: there is nothing to plan");
        }
        let slowest = self.workers.iter().map(|worker| worker.speed);
        let slowest = slowest.fold(f64::INFINITY, f64::min);
        // Twice: recomputation is at most the work itself.
        if !(2.0 * total * parts as f64 / slowest).is_finite() {
            return fault(format!(
                "work of {total:e} a micro-batch takes longer than a number holds at a speed of \
                 {slowest:e}: scale the two"
            ));
        }
        let bytes = |layer: usize| -> f64 {
            let flow = costed.costs.flow(0, layer).iter();
            flow.map(|flow| flow.bytes() as f64).sum::<f64>()
        };
        let bytes: f64 = (1..layers).map(bytes).sum();
        let gradients = self.weights.of_stage(0..layers).gradients as f64;
        for link in [self.link, self.replication.host_link] {
            // Whatever is sent at a time shares the link.
            let shared = replicas.saturating_mul(self.workers.len()) as f64;
            let transfers =
                (2.0 * parts as f64 * bytes + gradients) * shared / link.bytes_per_second;
            let waits = 2.0 * (parts * layers) as f64 * link.latency;
            if !(transfers + waits).is_finite() {
                return fault(format!(
                    "a link of {:e} s and {:e} bytes/s takes longer than a number holds: use a shorter latency \
                     and a larger bandwidth",
                    link.latency, link.bytes_per_second
                ));
            }
        }
        Ok(costed)
    }

    pub(super) fn check(&self) -> Result<()> {
        let layers = self.weights.layers();
        if layers == 0 {
            return fault("no layers: there is nothing to plan");
        }
        if layers > MOST_LAYERS || self.workers.len() > MOST_WORKERS {
            return fault(format!(
                "{layers} layers on {} workers: join neighbouring layers until there are at most \
                 {MOST_LAYERS}, on at most {MOST_WORKERS} workers",
                self.workers.len()
            ));
        }
        if self.workers.is_empty() || self.orders.is_empty() || self.policies.is_empty() {
            return fault("no worker, order of work or policy to choose from: name one of each");
        }
        if let Some(order) = self.orders.iter().find(|order| order.chunks == 0) {
            return fault(format!(
                "the order {} has no stages on a worker: use 1 or more `chunks`",
                order.name
            ));
        }
        if let Some(cut) = &self.cut {
            check_cut(cut, layers)?;
            if let Some(stages) = self.stages.filter(|&stages| stages != cut.len()) {
                return fault(format!(
                    "the cut has {} parts, but the number of stages is {stages}: give a part for each, or leave the number out",
                    cut.len()
                ));
            }
        }
        if self.micro_batches.is_empty() {
            return fault("no number of micro-batches to choose from: name one");
        }
        for (index, worker) in self.workers.iter().enumerate() {
            if !(worker.speed.is_finite() && worker.speed > 0.0) {
                return fault(format!(
                    "worker {index} has speed {}: use a finite number above 0",
                    worker.speed
                ));
            }
        }
        for link in [self.link, self.replication.host_link] {
            let Link {
                latency,
                bytes_per_second,
            } = link;
            if !(latency.is_finite() && latency >= 0.0 && bytes_per_second > 0.0) {
                return fault(format!(
                    "a link of {latency} s and {bytes_per_second} bytes/s: use a latency from 0 up and a \
                     bandwidth above 0"
                ));
            }
        }
        let replicas = self.replication.replicas;
        if replicas == 0 || (replicas > 1 && self.cores.is_some()) {
            return fault(format!(
                "{replicas} replicas: use 1 or more, and 1 where workers share cores"
            ));
        }
        if !(0.0..1.0).contains(&self.min_gain) {
            return fault(format!(
                "more workers have to save {} of a step: use a share from 0 up and below 1",
                self.min_gain
            ));
        }
        match self.cores {
            Some(0) => fault("0 cores compute nothing: use 1 or more"),
            _ => Ok(()),
        }
    }

    /// The order at this place, for this number of workers.
    pub(super) fn order(&self, order: usize, workers: usize) -> Result<&NamedOrder> {
        if !(1..=self.workers.len()).contains(&workers) {
            return fault(format!(
                "a plan on {workers} of {} workers: use 1 or more of them",
                self.workers.len()
            ));
        }
        match self.orders.get(order) {
            Some(order) => Ok(order),
            None => fault(format!(
                "order {order} of {}: count them from 0",
                self.orders.len()
            )),
        }
    }

    /// The fewest workers that hold parameters, gradients and optimizer states; `None` if all together do not.
    pub(super) fn fewest_workers(&self) -> Option<usize> {
        let all = self.weights.of_stage(0..self.weights.layers());
        let optimizer = match self.weights.is_sharded() {
            true => 0,
            false => all.optimizer,
        };
        let fixed = u128::from(all.values) + u128::from(all.gradients) + u128::from(optimizer);
        let memory: Option<Vec<u64>> = self.workers.iter().map(|worker| worker.memory).collect();
        let Some(mut memory) = memory else {
            return Some(1);
        };
        memory.sort_unstable_by(|a, b| b.cmp(a));
        let mut together = 0_u128;
        let holds = memory.into_iter().position(|memory| {
            together += u128::from(memory);
            together >= fixed
        });
        holds.map(|last| last + 1)
    }

    /// The smallest memory of a worker; `None` if unlimited.
    pub(super) fn least_memory(&self) -> Option<u64> {
        self.workers.iter().filter_map(|worker| worker.memory).min()
    }

    /// The same with this much memory for every worker.
    pub(super) fn with_memory(&self, memory: u64) -> PlanRequest<'_> {
        self.with_memories(|_| Some(memory))
    }

    /// The same with this much memory for every worker that has less.
    pub(super) fn with_at_least(&self, memory: u64) -> PlanRequest<'_> {
        self.with_memories(|own| own.map(|own| own.max(memory)))
    }

    /// The same with other memory of each worker.
    pub(super) fn with_memories(
        &self,
        memory: impl Fn(Option<u64>) -> Option<u64>,
    ) -> PlanRequest<'_> {
        let more = |worker: &Worker| Worker {
            memory: memory(worker.memory),
            ..*worker
        };
        PlanRequest {
            weights: self.weights,
            batch: self.batch,
            price: self.price,
            workers: self.workers.iter().map(more).collect(),
            link: self.link,
            replication: self.replication,
            cores: self.cores,
            orders: self.orders,
            micro_batches: self.micro_batches.clone(),
            stages: self.stages,
            cut: self.cut.clone(),
            min_gain: self.min_gain,
            policies: self.policies.clone(),
        }
    }
}

fn sum(work: &Work) -> f64 {
    work.forward + work.input_grad + work.weight_grad + work.update
}

fn check(work: &[Work]) -> Result<()> {
    for (layer, work) in work.iter().enumerate() {
        let Work {
            forward,
            input_grad,
            weight_grad,
            apart,
            update,
            operation,
        } = *work;
        for number in [forward, input_grad, weight_grad, apart, update, operation] {
            if !(number.is_finite() && number >= 0.0) {
                return fault(format!(
                    "layer {layer} costs {number}: use a finite number from 0 up"
                ));
            }
        }
    }
    Ok(())
}

pub(super) fn check_cut(cut: &[Range<usize>], layers: usize) -> Result<()> {
    match is_cut(cut, layers) {
        true => Ok(()),
        false => fault(format!(
            "{cut:?} is not a cut of {layers} layers: give every layer to one stage"
        )),
    }
}

pub(super) fn fault<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::PlanRequest(message.into()))
}
