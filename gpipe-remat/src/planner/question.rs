//! What a planner is asked.

use std::ops::Range;

use gpipe_sched::Schedule;

use crate::{Error, ModelCosts, Policy, Result, Weights, micro_batches};

/// Beyond this, an answer would take minutes.
const MOST_LAYERS: usize = 4096;
const MOST_WORKERS: usize = 256;

/// Everything that a plan depends on.
pub struct Question<'a> {
    /// Bytes of parameters and what goes with them.
    pub weights: &'a Weights,
    /// Samples of a step.
    pub batch: usize,
    /// Costs and work of a batch in these micro-batches.
    pub price: &'a dyn Fn(&[Range<usize>]) -> Result<Priced>,
    /// Workers, in the order in which they are linked.
    pub workers: Vec<Worker>,
    /// From each worker to the next.
    pub link: Link,
    /// Cores that all workers share, where these are threads of one machine.
    pub cores: Option<Cores>,
    /// Orders of work that may be used.
    pub orders: &'a [NamedOrder],
    /// Numbers of micro-batches that may be used.
    pub micro_batches: Vec<usize>,
    /// What may be kept. A stage takes the first policy of the least recomputation that fits its
    /// worker's memory; [`Policy::Budget`] stands for the best of all, whatever its bytes.
    pub policies: Vec<Policy>,
}

/// A batch's costs.
pub struct Priced {
    /// Bytes and FLOPs.
    pub costs: ModelCosts,
    /// What each layer has to do for the first micro-batch, which is the largest.
    pub work: Vec<Work>,
}

/// What a layer has to do, in any unit that [`Worker::speed`] is in units a second of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Forward pass of a micro-batch.
    pub forward: f64,
    /// Input gradient of a micro-batch.
    pub input_grad: f64,
    /// Weight gradient of a micro-batch.
    pub weight_grad: f64,
    /// What is done once a step: norm and update.
    pub update: f64,
}

/// A device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worker {
    /// Units of work a second.
    pub speed: f64,
    /// Bytes, if they are limited.
    pub memory: Option<u64>,
}

/// What a transfer between two workers takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Seconds.
    pub latency: f64,
    /// May be infinite.
    pub bytes_per_second: f64,
}

impl Link {
    /// Transfers that take no time.
    pub const FREE: Self = Self {
        latency: 0.0,
        bytes_per_second: f64::INFINITY,
    };
}

/// Cores of one machine, divided among the workers that are busy at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cores {
    /// How many; a worker's speed is that on one.
    pub count: f64,
    /// How much of a further core a worker makes use of, from 0 to 1.
    pub efficiency: f64,
}

impl Cores {
    /// How much faster than on one core a worker is while `busy` are.
    pub fn rate(&self, busy: usize) -> f64 {
        let share = self.count / busy.max(1) as f64;
        if share <= 1.0 {
            share
        } else {
            1.0 + (share - 1.0) * self.efficiency
        }
    }

    /// The most that up to `workers` get done together.
    pub fn throughput(&self, workers: usize) -> f64 {
        let of = |busy: usize| busy as f64 * self.rate(busy);
        let most = workers.min(self.count.ceil() as usize).max(1);
        (1..=most).map(of).fold(0.0, f64::max)
    }
}

/// From numbers of workers and micro-batches to a schedule, if there is one of that shape.
pub type MakeSchedule = Box<dyn Fn(usize, usize) -> Option<Schedule>>;

/// An order of work.
pub struct NamedOrder {
    /// As a user names it.
    pub name: String,
    /// Stages a worker.
    pub chunks: usize,
    /// The schedule for a number of workers and of micro-batches.
    pub make: MakeSchedule,
}

impl Question<'_> {
    pub(super) fn priced(&self, parts: usize) -> Result<Priced> {
        let priced = (self.price)(&micro_batches(self.batch, parts)?)?;
        let layers = self.weights.layers();
        if priced.work.len() != layers || priced.costs.layers() != layers {
            return fault(format!(
                "weights of {layers} layers, costs of {} and work of {}: give each for every layer",
                priced.costs.layers(),
                priced.work.len()
            ));
        }
        let mut total = 0.0;
        for (layer, work) in priced.work.iter().enumerate() {
            let Work {
                forward,
                input_grad,
                weight_grad,
                update,
            } = *work;
            for number in [forward, input_grad, weight_grad, update] {
                if !(number.is_finite() && number >= 0.0) {
                    return fault(format!(
                        "layer {layer} costs {number}: use a finite number from 0 up"
                    ));
                }
                total += number;
            }
        }
        if !total.is_finite() {
            return fault("the layers together cost more than a number holds: scale them down");
        }
        if total == 0.0 {
            return fault("all layers cost nothing: there is nothing to plan");
        }
        Ok(priced)
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
        let Link {
            latency,
            bytes_per_second,
        } = self.link;
        if !(latency.is_finite() && latency >= 0.0 && bytes_per_second > 0.0) {
            return fault(format!(
                "a link of {latency} s and {bytes_per_second} bytes/s: use a latency from 0 up and a \
                 bandwidth above 0"
            ));
        }
        match self.cores {
            Some(Cores { count, efficiency })
                if !(count.is_finite() && count >= 1.0 && (0.0..=1.0).contains(&efficiency)) =>
            {
                fault(format!(
                    "{count} cores of efficiency {efficiency}: use 1 or more, and 0 to 1"
                ))
            }
            _ => Ok(()),
        }
    }

    /// The least memory of a worker, if it is limited.
    pub(super) fn least_memory(&self) -> Option<u64> {
        self.workers.iter().filter_map(|worker| worker.memory).min()
    }

    /// The same with this much memory for every worker.
    pub(super) fn with_memory(&self, memory: u64) -> Question<'_> {
        let more = |worker: &Worker| Worker {
            memory: Some(memory),
            ..*worker
        };
        Question {
            weights: self.weights,
            batch: self.batch,
            price: self.price,
            workers: self.workers.iter().map(more).collect(),
            link: self.link,
            cores: self.cores,
            orders: self.orders,
            micro_batches: self.micro_batches.clone(),
            policies: self.policies.clone(),
        }
    }
}

fn fault<T>(message: impl Into<String>) -> Result<T> {
    Err(Error::Question(message.into()))
}
