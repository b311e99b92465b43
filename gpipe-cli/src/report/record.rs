//! `timeline.json`: the plan of a run, and the measured timelines of some of its steps.
//!
//! The format is documented in the crate's README; it is read back here and nowhere else.

use std::ops::Range;

use gpipe_remat::{Bytes, Policy};
use gpipe_sched::{Action, Level, Schedule, Span, Timeline};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::fail::Result;
use crate::machine;
use crate::setup::Setup;

/// The format that is written; another one cannot be read.
const FORMAT: u32 = 1;

/// A step of more actions is not kept: no picture could show it, and the file would take gigabytes.
const MOST_ACTIONS: usize = 2_000_000;

/// Predictions suppose that every worker computes this fast; the report stretches them to the
/// speed that was measured.
const FLOPS_PER_SECOND: f64 = 1e9;

/// The file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Of the file, 1.
    pub format: u32,
    /// The program's version.
    pub gpipe: String,
    /// Where it ran.
    pub machine: Machine,
    /// The name of each device, such as `cpu`.
    pub devices: Vec<String>,
    /// Bytes that training holds for a parameter: of its value, its gradient and the optimizer.
    #[serde(default)]
    pub parameter_bytes: Option<[u64; 3]>,
    /// The stages.
    pub stages: Vec<Part>,
    /// Micro-batches of a step.
    pub micro_batches: usize,
    /// The actions of each device in order: `0F0 0F1 0B0 0B1`. Empty where a step has too many.
    pub lanes: Vec<String>,
    /// The prediction.
    pub predicted: Times,
    /// The speed of every device that the prediction supposes.
    pub flops_per_second: f64,
    /// Steps that were kept.
    pub measured: Vec<Measured>,
}

/// What is worth knowing of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Such as `linux`.
    pub system: String,
    /// Such as `x86_64`.
    pub architecture: String,
    /// Threads that run at once.
    pub cores: usize,
    /// Threads that the run used.
    pub threads: usize,
    /// The most bytes that the process may have, if known.
    pub memory: Option<u64>,
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Number of layers.
    pub layers: usize,
    /// The first and the last of them.
    pub names: String,
    /// Its work in a step, without what is computed again.
    pub flops: u64,
    /// The share of the forward pass that is computed again for the backward pass, from 0 to 1: a
    /// number of micro-batches with their share, and so on.
    pub again: Vec<(usize, f64)>,
    /// The most bytes that it is allowed to hold, if there is a limit.
    pub limit: Option<u64>,
    /// Predicted bytes of parameters, gradients and optimizer.
    pub fixed: u64,
    /// The most that is predicted to be held at once.
    pub peak: u64,
}

/// When each action of the lanes ran, and what the devices held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// For each device, three whole numbers of nanoseconds an action: from the end of the action
    /// before it until it could begin, until it began, until it ended.
    pub spans: Vec<Vec<u64>>,
    /// For each device, two whole numbers each time that its bytes change: nanoseconds since the
    /// last change, and the bytes from then on.
    pub levels: Vec<Vec<u64>>,
}

/// A step that was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// From 1.
    pub step: u64,
    /// When what ran.
    #[serde(flatten)]
    pub times: Times,
}

impl Record {
    /// What is known before a run begins.
    pub fn begin(setup: &Setup, config: &Config) -> Result<Self> {
        let schedule = &setup.schedule;
        let actions: usize = schedule.lanes().iter().map(Vec::len).sum();
        let flops = setup.costs.flops();
        let part = |(stage, layers): (usize, Range<usize>)| {
            let memory = &setup.memory[stage];
            let limit = match *config.pipeline.remat {
                Policy::Budget(Bytes(bytes)) => Some(bytes),
                _ => None,
            };
            Part {
                again: again(setup, stage, &layers),
                limit,
                names: setup.names(&layers),
                flops: flops[layers.clone()]
                    .iter()
                    .fold(0, |sum, &flops| sum.saturating_add(flops)),
                layers: layers.len(),
                fixed: memory.values + memory.gradients + memory.optimizer,
                peak: memory.peak(),
            }
        };
        let device_name = |device| {
            let stage = schedule.device_of().iter().position(|&d| d == device);
            stage.map_or(String::new(), |stage| setup.devices[stage].to_string())
        };
        let fits = actions <= MOST_ACTIONS;
        let (lanes, predicted) = if fits {
            let timeline = setup.predicted(&gpipe_remat::Times::of_flops(
                &setup.costs,
                FLOPS_PER_SECOND,
            ))?;
            (lanes(schedule), Times::of(&timeline))
        } else {
            (Vec::new(), Times::of(&Timeline::default()))
        };
        Ok(Self {
            format: FORMAT,
            gpipe: env!("CARGO_PKG_VERSION").to_owned(),
            machine: Machine {
                system: std::env::consts::OS.to_owned(),
                architecture: std::env::consts::ARCH.to_owned(),
                cores: std::thread::available_parallelism().map_or(1, usize::from),
                threads: config.pipeline.threads.get(),
                memory: machine::memory(),
            },
            devices: (0..schedule.devices()).map(device_name).collect(),
            parameter_bytes: Some(setup.parameter_bytes),
            stages: setup.cut().into_iter().enumerate().map(part).collect(),
            micro_batches: schedule.micro_batches(),
            lanes,
            predicted,
            flops_per_second: FLOPS_PER_SECOND,
            measured: Vec::new(),
        })
    }

    /// Whether steps can be kept.
    pub fn keeps(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Adds a step.
    pub fn add(&mut self, step: u64, timeline: &Timeline) {
        let times = Times::of(timeline);
        self.measured.push(Measured { step, times });
    }

    /// Takes over the steps up to `made` that an earlier process of the same run has kept, if they were
    /// made by the same plan: the file has one list of actions for all its steps.
    pub fn go_on(&mut self, earlier: Self, made: u64) -> bool {
        let same = earlier.lanes == self.lanes
            && earlier.devices == self.devices
            && earlier.stages == self.stages
            && earlier.micro_batches == self.micro_batches;
        if same {
            self.measured = earlier.measured;
            self.measured.retain(|measured| measured.step <= made);
        }
        same
    }

    /// The file, read and checked.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let version: Version = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        if version.format != FORMAT {
            return Err(format!(
                "format {} is not known here: use the version of gpipe that wrote it",
                version.format
            ));
        }
        let record: Self = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        record.check()?;
        Ok(record)
    }

    fn check(&self) -> std::result::Result<(), String> {
        if !(self.flops_per_second.is_finite() && self.flops_per_second > 0.0) {
            return Err("the speed of the prediction is no positive number".to_owned());
        }
        if self.lanes.is_empty() {
            return Ok(());
        }
        let schedule = self
            .timeline(&self.predicted)?
            .schedule()
            .map_err(|error| error.to_string())?;
        if self.devices.len() != schedule.devices()
            || self.stages.len() != schedule.stages()
            || self.micro_batches != schedule.micro_batches()
        {
            return Err("its lanes have other stages than its lists".to_owned());
        }
        for (index, part) in self.stages.iter().enumerate() {
            let counts = part.again.iter().map(|(count, _)| count);
            let count = counts.fold(0, |sum: usize, count| sum.saturating_add(*count));
            let is_share = |share: f64| (0.0..=1.0).contains(&share);
            if count != self.micro_batches || !part.again.iter().all(|(_, share)| is_share(*share))
            {
                return Err(format!(
                    "stage {index}: `again` needs a share from 0 to 1 for each micro-batch"
                ));
            }
        }
        self.measured
            .iter()
            .try_for_each(|measured| self.timeline(&measured.times).map(drop))
    }

    /// Times as a timeline.
    ///
    /// # Errors
    /// If there are not as many as actions.
    pub fn timeline(&self, times: &Times) -> std::result::Result<Timeline, String> {
        let devices = self.lanes.len();
        if times.spans.len() != devices
            || !(times.levels.is_empty() || times.levels.len() == devices)
        {
            return Err(format!("{devices} lanes need times of as many devices"));
        }
        let mut spans = Vec::new();
        for (device, (lane, flat)) in self.lanes.iter().zip(&times.spans).enumerate() {
            let actions: Vec<&str> = lane.split(' ').filter(|word| !word.is_empty()).collect();
            if flat.len() != 3 * actions.len() {
                return Err(format!(
                    "device {device} has {} actions, which need three times each",
                    actions.len()
                ));
            }
            let mut now = 0;
            for (word, three) in actions.iter().zip(flat.chunks_exact(3)) {
                let action: Action = word.parse().map_err(|e| format!("device {device}: {e}"))?;
                let ready = later(now, three[0])?;
                let start = later(ready, three[1])?;
                now = later(start, three[2])?;
                spans.push(Span {
                    device,
                    action,
                    ready: seconds(ready),
                    start: seconds(start),
                    end: seconds(now),
                });
            }
        }
        let mut levels = Vec::new();
        for (device, flat) in times.levels.iter().enumerate() {
            if flat.len() % 2 != 0 {
                return Err(format!(
                    "device {device}: levels are pairs of time and bytes"
                ));
            }
            let mut now = 0;
            for pair in flat.chunks_exact(2) {
                now = later(now, pair[0])?;
                levels.push(Level {
                    device,
                    time: seconds(now),
                    bytes: pair[1],
                });
            }
        }
        Ok(Timeline::new(devices, spans).with_levels(levels))
    }
}

impl Times {
    /// A timeline in whole nanoseconds.
    pub fn of(timeline: &Timeline) -> Self {
        let spans = (0..timeline.devices()).map(|device| {
            let mut now = 0;
            let mut flat = Vec::with_capacity(3 * timeline.of_device(device).len());
            for span in timeline.of_device(device) {
                for moment in [span.ready, span.start, span.end] {
                    let moment = nanoseconds(moment).max(now);
                    flat.push(moment - now);
                    now = moment;
                }
            }
            flat
        });
        let levels = (0..timeline.devices()).map(|device| {
            let mut now = 0;
            let mut flat = Vec::with_capacity(2 * timeline.levels_of(device).len());
            for level in timeline.levels_of(device) {
                let moment = nanoseconds(level.time).max(now);
                flat.extend([moment - now, level.bytes]);
                now = moment;
            }
            flat
        });
        Self {
            spans: spans.collect(),
            levels: levels.collect(),
        }
    }
}

/// How much of the forward pass of each micro-batch a stage of these layers computes again.
fn again(setup: &Setup, stage: usize, layers: &Range<usize>) -> Vec<(usize, f64)> {
    let mut runs: Vec<(usize, f64)> = Vec::new();
    for m in 0..setup.schedule.micro_batches() {
        let costs = &setup.costs.of(m)[layers.clone()];
        let forward = |layers: Range<usize>| -> f64 {
            costs[layers].iter().map(|cost| cost.forward as f64).sum()
        };
        let kept = setup.table.kept(stage, m).runs(layers.len());
        let forgotten = kept.into_iter().filter(|run| !run.kept);
        let again: f64 = forgotten.map(|run| forward(run.layers)).sum();
        let whole = forward(0..costs.len());
        let share = if whole > 0.0 {
            (again / whole).min(1.0)
        } else {
            0.0
        };
        match runs.last_mut() {
            Some((count, last)) if *last == share => *count += 1,
            _ => runs.push((1, share)),
        }
    }
    runs
}

fn lanes(schedule: &Schedule) -> Vec<String> {
    let lane = |lane: &Vec<Action>| {
        let words: Vec<String> = lane.iter().map(Action::to_string).collect();
        words.join(" ")
    };
    schedule.lanes().iter().map(lane).collect()
}

/// Times that scripts can hold exactly: about a hundred days.
const MOST_NANOSECONDS: u64 = 1 << 53;

fn later(now: u64, by: u64) -> std::result::Result<u64, String> {
    let sum = now.checked_add(by).filter(|&sum| sum <= MOST_NANOSECONDS);
    sum.ok_or_else(|| "a time is too long".to_owned())
}

fn nanoseconds(seconds: f64) -> u64 {
    ((seconds * 1e9).round() as u64).min(MOST_NANOSECONDS)
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}
