//! What `--auto` chooses and why.

use std::ops::Range;
use std::rc::Rc;

use gpipe_remat::planner::{
    Answer, Described, Link, NamedOrder, Plan, Planner, Priced, Question, Worker,
};
use gpipe_remat::{Bytes, ModelCosts, Policy, StageMemory, Times, Weights};

use super::choices::{Listed, here, numbers_of_micro_batches, orders};
use super::workers;
use crate::args::{AutoArgs, Talk};
use crate::config::Config;
use crate::described::Description;
use crate::fail::{Fail, Result};
use crate::output::{Event, numbers, print};
use crate::profile::{self, Speed, Wanted};
use crate::setup::{self, Setup};

/// What more workers or stages have to save of a step whose time is predicted by measured layers: most of
/// these predictions are off by less.
const WORTH: f64 = 0.05;

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
        let table = Listed::of(config)?;
        let micro_batches = numbers_of_micro_batches(batch, table.as_ref())?;
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
                let (workers, cores) = here(config, table.as_ref());
                (workers, Link::FREE, Some(cores))
            }
        };
        let orders = orders(table, workers.len(), layers.len())?;
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
            orders,
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
        let table = Listed::of(config)?;
        let micro_batches = numbers_of_micro_batches(batch, table.as_ref())?;
        let orders = orders(table, workers.len(), layers.len())?;
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
            orders,
            micro_batches,
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
            worth: match self.speed.as_deref() {
                Some(Speed::Measured(_)) => WORTH,
                _ => 0.0,
            },
            policies,
        }
    }

    /// The plan to use.
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
        self.apply_with(plan, self.remat(plan), config)
    }

    /// The same with another word for what is kept.
    fn apply_with(&self, plan: &Plan, remat: String, config: &Config) -> Result<Config> {
        let mut chosen = config.clone();
        let pipeline = &mut chosen.pipeline;
        let whole = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let asked = |fault: String| Fail::asked(fault);
        pipeline.stages = whole(plan.cut.len()).try_into().map_err(asked)?;
        pipeline.micro_batches = whole(plan.micro_batches).try_into().map_err(asked)?;
        pipeline.schedule = plan.order.clone().try_into().map_err(asked)?;
        pipeline.partition = sizes(plan).try_into().map_err(asked)?;
        pipeline.remat = remat.try_into().map_err(asked)?;
        if pipeline.devices.repeated().is_none() {
            let device = pipeline.devices.first();
            let listed = format!("{device}*{}", plan.workers.len());
            pipeline.devices = listed.try_into().map_err(asked)?;
        }
        Ok(chosen)
    }

    /// What a plan under a policy takes as it is run: with what is computed again ahead of time. Where
    /// workers are not those of this machine, that is not known.
    pub fn as_run(&self, plan: &mut Plan, policy: Policy, config: &Config) -> Result<()> {
        let Some((speed, cores)) = self.speed.as_ref().zip(self.cores) else {
            return Ok(());
        };
        let chosen = self.apply_with(plan, policy.to_string(), config)?;
        let setup = Setup::new(&chosen)?;
        let times = speed.times(&setup.costs, cores);
        plan.seconds = setup.step_seconds(&times)?;
        plan.bubble = setup.predicted(&times)?.bubble();
        plan.peaks = setup.memory.iter().map(StageMemory::peak).collect();
        Ok(())
    }

    /// Prints the plan to use and its certificate.
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
            fastest_seconds: answer.fastest,
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
                self.memory().map_or(String::new(), |memory| {
                    let alike = |worker: &Worker| worker.memory == Some(memory);
                    match self.workers.iter().all(alike) {
                        true => format!(", of {} a worker", numbers::bytes(memory)),
                        false => ", each within the memory of its worker".to_owned(),
                    }
                })
            ),
        ];
        let saved = 1.0 - answer.fastest / plan.seconds;
        let is_simpler = saved >= 5e-4;
        if is_simpler {
            lines.push(format!(
                "            more workers or stages would save {:.1} %, within the error of predictions",
                100.0 * saved
            ));
        }
        if let Some((more, seconds)) = answer.with_more {
            lines.push(format!(
                "            {} a worker instead would gain {:.0} %",
                numbers::bytes(more.0),
                100.0 * (1.0 - seconds / plan.seconds)
            ));
        }
        if plan.workers.len() == 1 && self.workers.len() > 1 {
            lines.push(format!(
                "advice      do not pipeline: one worker is {}as fast as any pipeline",
                if is_simpler { "about " } else { "" }
            ));
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
