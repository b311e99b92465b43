//! What `--auto` chooses and why.

use std::num::NonZero;
use std::ops::Range;
use std::rc::Rc;

use gpipe_remat::planner::{
    Answer, Described, Link, NamedOrder, Plan, Planner, Priced, Question, Worker,
};
use gpipe_remat::{Bytes, ModelCosts, Policy, Times, Weights};
use gpipe_sched::{Costs, Schedule};

use super::workers;
use crate::args::{AutoArgs, Talk};
use crate::config::{Config, Order};
use crate::described::Description;
use crate::fail::{Fail, Result};
use crate::output::{Event, numbers, print};
use crate::profile::{self, Speed, Wanted};
use crate::setup;

/// The most workers that are tried where none are listed.
const MOST_WORKERS: usize = 8;
type Price = dyn Fn(&[Range<usize>]) -> gpipe_remat::Result<Priced>;

/// A model, the workers that there are, and what may be chosen.
pub struct Choice {
    names: Vec<String>,
    weights: Weights,
    speed: Option<Rc<Speed>>,
    pub batch: usize,
    pub price: Box<Price>,
    pub workers: Vec<Worker>,
    link: Link,
    cores: Option<usize>,
    pub orders: Vec<NamedOrder>,
    pub micro_batches: Vec<usize>,
}

impl Choice {
    /// For the configured model, on the listed workers or on those of this machine.
    pub fn of_model(
        config: &Config,
        args: &AutoArgs,
        wanted: Wanted<'_>,
        talk: Talk,
    ) -> Result<Self> {
        let mut layers = setup::layers(config)?;
        let optimizer = setup::optimizer(config);
        let weights = Weights::new(&mut layers, Some(&optimizer));
        let names = layers.iter().map(|layer| layer.name().to_owned()).collect();
        let memory = config.pipeline.memory.bytes();
        let batch = config.data.batch_size.get();
        let micro_batches = numbers_of_micro_batches(batch);
        let mut speed = None;
        let (workers, link, cores) = match &args.workers {
            Some(list) => (workers::parse(list, memory)?, args.link()?, None),
            None if args.link.is_some() => {
                return Err(Fail::asked(
                    "--link is between --workers: list them too, such as --workers 4*100T",
                ));
            }
            None => {
                let sizes = profile::sizes(batch, &micro_batches);
                speed = Some(Rc::new(Speed::of(config, wanted, &sizes, talk)?));
                let (workers, cores) = here(config);
                (workers, Link::FREE, Some(cores))
            }
        };
        let input = setup::input(config);
        let known = speed.clone();
        let price = move |samples: &[Range<usize>]| {
            let costs = ModelCosts::new(&layers, samples, &input)?;
            let flops = Times::of_flops(&costs, 1.0);
            let times = match (&known, cores) {
                (Some(speed), Some(cores)) => speed.times(&costs, cores),
                _ => flops.clone(),
            };
            let told = Some(flops);
            Ok(Priced { costs, times, told })
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
            orders: orders(),
            micro_batches,
        })
    }

    /// Prints how long the layers take in the micro-batches that are configured.
    pub fn show_profile(&self, config: &Config, talk: Talk) -> Result<()> {
        let Some(speed) = &self.speed else {
            return Ok(());
        };
        let parts = config.pipeline.micro_batches.get();
        let samples = gpipe_remat::micro_batches(self.batch, parts).map_err(Fail::usage)?;
        let priced = (self.price)(&samples).map_err(Fail::usage)?;
        speed.show(&priced.costs, self.workers.len(), talk)
    }

    /// For a model of which there are numbers only.
    pub fn of_description(
        description: Description,
        config: &Config,
        args: &AutoArgs,
    ) -> Result<Self> {
        let Description {
            layers,
            batch,
            workers,
            link,
        } = description;
        let memory = config.pipeline.memory.bytes();
        let workers = match (&args.workers, workers) {
            (Some(list), _) => workers::parse(list, memory)?,
            (None, Some(workers)) => workers,
            (None, None) => {
                let count = match config.pipeline.devices.repeated() {
                    Some(_) => config.pipeline.stages.get() as u64,
                    None => config.pipeline.devices.workers(),
                };
                vec![
                    Worker { speed: 1.0, memory };
                    usize::try_from(count).unwrap_or(usize::MAX).min(1 << 16)
                ]
            }
        };
        let limited = |worker: Worker| Worker {
            memory: worker.memory.or(memory),
            ..worker
        };
        let batch = batch.unwrap_or(config.data.batch_size.get());
        Ok(Self {
            names: layers.iter().map(|layer| layer.name.clone()).collect(),
            weights: Described::weights(&layers),
            speed: None,
            batch,
            workers: workers.into_iter().map(limited).collect(),
            link: match args.link {
                Some(_) => args.link()?,
                None => link.unwrap_or(Link::FREE),
            },
            cores: None,
            orders: orders(),
            micro_batches: numbers_of_micro_batches(batch),
            price: Box::new(move |samples| Described::priced(&layers, samples)),
        })
    }

    pub fn question(&self, policies: Vec<Policy>) -> Question<'_> {
        Question {
            weights: &self.weights,
            batch: self.batch,
            price: &*self.price,
            workers: self.workers.clone(),
            link: self.link,
            cores: self.cores,
            orders: &self.orders,
            micro_batches: self.micro_batches.clone(),
            policies,
        }
    }

    /// The best plan.
    pub fn answer(&self) -> Result<Answer> {
        let question = self.question(vec![Policy::Budget(Bytes(u64::MAX))]);
        let planner = Planner::new(&question).map_err(Fail::usage)?;
        planner.answer().map_err(Fail::usage)
    }

    /// The least memory of a worker, if it is limited.
    pub fn memory(&self) -> Option<u64> {
        self.workers.iter().filter_map(|worker| worker.memory).min()
    }

    /// What is kept, as `--remat` takes it: so that every stage keeps as much as it was planned to.
    pub fn remat(&self, plan: &Plan) -> String {
        let stages = plan.cut.len();
        let keeps = |stage: usize| *plan.table.kept(stage, 0) == gpipe_remat::Kept::Everything;
        match self.memory() {
            Some(memory) if !(0..stages).all(keeps) => {
                let chunks = plan.cut.len() / plan.workers.len();
                Policy::Budget(Bytes(memory / chunks as u64)).to_string()
            }
            _ => Policy::Keep.to_string(),
        }
    }

    /// The configuration of a plan.
    pub fn apply(&self, plan: &Plan, config: &Config) -> Result<Config> {
        let mut chosen = config.clone();
        let pipeline = &mut chosen.pipeline;
        let whole = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let asked = |fault: String| Fail::asked(fault);
        pipeline.stages = whole(plan.cut.len()).try_into().map_err(asked)?;
        pipeline.micro_batches = whole(plan.micro_batches).try_into().map_err(asked)?;
        pipeline.schedule = plan.order.clone().try_into().map_err(asked)?;
        pipeline.partition = sizes(plan).try_into().map_err(asked)?;
        pipeline.remat = self.remat(plan).try_into().map_err(asked)?;
        if pipeline.devices.repeated().is_none() {
            let device = pipeline.devices.first();
            let listed = format!("{device}*{}", plan.workers.len());
            pipeline.devices = listed.try_into().map_err(asked)?;
        }
        Ok(chosen)
    }

    /// Prints the best plan and its certificate.
    pub fn show(&self, talk: Talk) -> Result<()> {
        let answer = self.answer()?;
        if talk.json {
            print(&self.event(&answer).to_json()?)
        } else {
            print(&self.text(&answer))
        }
    }

    fn event(&self, answer: &Answer) -> Event {
        let plan = &answer.plan;
        Event::Auto {
            stages: plan.cut.len(),
            workers: plan.workers.clone(),
            micro_batches: plan.micro_batches,
            schedule: plan.order.clone(),
            cut: plan.cut.iter().map(Range::len).collect(),
            remat: self.remat(plan),
            step_seconds: plan.seconds,
            bound_seconds: answer.bound,
            gap: answer.gap(),
            bubble: plan.bubble,
            peak_bytes: plan.peaks.clone(),
            bottleneck_stage: plan.bottleneck,
            bottleneck_layer: self.names[plan.dearest].clone(),
            single_seconds: answer.single,
            replicas_seconds: answer.replicas,
            more_memory: answer.with_more.map(|(bytes, _)| bytes.0),
            more_memory_seconds: answer.with_more.map(|(_, seconds)| seconds),
        }
    }

    /// The plan and its certificate, in words.
    pub fn text(&self, answer: &Answer) -> String {
        let plan = &answer.plan;
        let mut lines = vec![
            format!(
                "use         --stages {} --schedule {} --micro-batches {} --partition {} --remat {}",
                plan.cut.len(),
                plan.order,
                plan.micro_batches,
                sizes(plan),
                self.remat(plan),
            ),
            format!(
                "step        about {}, {}",
                numbers::step_time(plan.seconds),
                match answer.gap() {
                    gap if gap < 5e-4 => "the best possible".to_owned(),
                    gap => format!("at most {:.1} % above the best possible", 100.0 * gap),
                }
            ),
            format!(
                "bottleneck  {} on stage {}; workers idle {} of the time",
                self.names[plan.dearest],
                plan.bottleneck,
                numbers::percent(plan.bubble)
            ),
            format!(
                "memory      {} on the largest stage{}",
                numbers::bytes(plan.peaks.iter().copied().max().unwrap_or(0)),
                self.memory().map_or(String::new(), |memory| format!(
                    ", of {} a worker",
                    numbers::bytes(memory)
                ))
            ),
        ];
        if let Some((more, seconds)) = answer.with_more {
            lines.push(format!(
                "            {} a worker instead would gain {:.0} %",
                numbers::bytes(more.0),
                100.0 * (1.0 - seconds / plan.seconds)
            ));
        }
        if plan.workers.len() == 1 && self.workers.len() > 1 {
            lines.push("advice      do not pipeline: one worker is as fast as any pipeline".into());
        } else if let Some(single) = answer.single
            && plan.workers.len() > 1
        {
            lines.push(format!(
                "            {:.2} times as fast as one worker",
                single / plan.seconds
            ));
        }
        if let Some(replicas) = answer.replicas
            && replicas < plan.seconds
        {
            lines.push(format!(
                "advice      do not pipeline: with a copy of the model on each of {} workers, a step \
                 would take about {} (gpipe does not do that)",
                self.workers.len(),
                numbers::step_time(replicas)
            ));
        }
        lines.join("\n")
    }
}

/// The configuration with what the planner recommends.
pub fn choose(config: &Config, wanted: Wanted<'_>, talk: Talk) -> Result<Config> {
    let choice = Choice::of_model(config, &AutoArgs::default(), wanted, talk)?;
    let answer = choice.answer()?;
    if !talk.quiet {
        anstream::eprintln!("{}\n", choice.text(&answer));
    }
    choice.apply(&answer.plan, config)
}

/// Layers of each stage, as `--partition` takes them.
pub fn sizes(plan: &Plan) -> String {
    let sizes: Vec<String> = plan.cut.iter().map(|part| part.len().to_string()).collect();
    sizes.join(",")
}

/// Every schedule that has a name.
fn orders() -> Vec<NamedOrder> {
    let named = |(name, order): (&str, Order)| NamedOrder {
        name: name.to_owned(),
        chunks: order.chunks(),
        follow: match order {
            Order::ZeroBubble(_) => {
                let order = order.clone();
                Some(Box::new(move |schedule: &Schedule, costs: &Costs| {
                    setup::follow(&order, schedule.clone(), costs).ok()
                }))
            }
            _ => None,
        },
        make: Box::new(move |workers, micro_batches| {
            setup::schedule(&order, workers * order.chunks(), micro_batches).ok()
        }),
    };
    let following = ("zero-bubble", Order::ZeroBubble(None));
    Order::all().chain([following]).map(named).collect()
}

/// Numbers of micro-batches to choose from: divisors of the batch, and powers of two.
fn numbers_of_micro_batches(batch: usize) -> Vec<usize> {
    let most = batch.min(256);
    (1..=most)
        .filter(|&parts| batch.is_multiple_of(parts) || parts.is_power_of_two())
        .collect()
}

/// The workers of this machine, which share its threads: times are in seconds.
fn here(config: &Config) -> (Vec<Worker>, usize) {
    let devices = &config.pipeline.devices;
    let threads = config.pipeline.threads.get();
    let count = match devices.repeated() {
        Some(_) => threads.clamp(2, MOST_WORKERS),
        None => usize::try_from(devices.workers()).unwrap_or(usize::MAX),
    };
    let memory = config.pipeline.memory.bytes();
    let there = std::thread::available_parallelism().map_or(1, NonZero::get);
    let cores = threads.min(there).max(1);
    let worker = Worker { speed: 1.0, memory };
    (vec![worker; count.min(1 << 16)], cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn micro_batches_divide_or_double() {
        assert_eq!(numbers_of_micro_batches(12), [1, 2, 3, 4, 6, 8, 12]);
        assert_eq!(numbers_of_micro_batches(1), [1]);
    }
}
