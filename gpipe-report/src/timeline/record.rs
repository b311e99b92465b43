//! The contents of `timeline.json`, whose format is in the crate's README; read back here alone.

use gpipe_sched::{Action, Portal, Schedule, Timeline};
use serde::{Deserialize, Serialize};

use super::cuts::Cuts;
use super::flat::{FlatTimeline, stretched};
use super::info::{Machine, RunInfo, StageInfo};
use crate::error::{Error, Result};

/// The format that is written; another one cannot be read.
const FORMAT: u32 = 1;

/// Steps of more actions are not kept: no picture could show them, and the file would take gigabytes.
const MOST_ACTIONS: usize = 2_000_000;

/// The speed of every worker under which steps are predicted, unless they take longer than times that a file holds; the
/// page stretches predictions to the speed that was measured.
const FLOPS_PER_SECOND: f64 = 1e9;

/// The plan of a run, its prediction, and the measured timelines of some steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// Of the file, 1.
    pub format: u32,
    /// Version of gpipe.
    pub gpipe: String,
    /// The machine.
    pub machine: Machine,
    /// The name of each worker's device, such as `cpu`.
    pub devices: Vec<String>,
    /// Of a run over several processes, where each worker is: `node1, rank 0`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Bytes that training holds for a parameter: of its value, its gradient and the optimizer's state.
    #[serde(default)]
    pub parameter_bytes: Option<[u64; 3]>,
    /// The stages.
    pub stages: Vec<StageInfo>,
    /// The cut beside others; earlier versions wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuts: Option<Cuts>,
    /// Micro-batches of a step.
    pub micro_batches: usize,
    /// The actions of each device in order: `0F0 0F1 0B0 0B1`. Empty where a step has too many.
    pub lanes: Vec<String>,
    /// The stages from which and to which tensors pass those between; of the prediction and of every step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub portals: Vec<[usize; 2]>,
    /// The prediction.
    pub predicted: FlatTimeline,
    /// The speed of every device that the prediction supposes.
    pub flops_per_second: f64,
    /// Steps that were kept, ascending.
    pub measured: Vec<MeasuredStep>,
}

/// A step that was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredStep {
    /// Number, from 1.
    pub step: u64,
    /// Its timeline.
    #[serde(flatten)]
    pub times: FlatTimeline,
}

impl Record {
    /// The record of a run before its first step. `predict` gives the timeline of a step at a
    /// speed of every worker in FLOPs a second; it is called unless a step has more actions than are kept
    /// (two million).
    ///
    /// # Errors
    /// [`Error::Record`] if the schedule has another number of stages than `info`, or of micro-batches than its
    /// [`recomputed`](StageInfo::recomputed) or shares beyond 1, or the prediction is of other actions than the schedule's;
    /// those of `predict`.
    pub fn new<E: From<Error>>(
        info: RunInfo,
        schedule: &Schedule,
        predict: impl FnOnce(f64) -> std::result::Result<Timeline, E>,
    ) -> std::result::Result<Self, E> {
        let stages = schedule.stages();
        if info.stages.len() != stages || info.devices.len() != stages {
            let fault = format!("{stages} stages need as many descriptions and devices");
            return Err(Error::Record { fault }.into());
        }
        let device_name = |device| {
            let stage = schedule.device_of().iter().position(|&d| d == device);
            stage.map_or(String::new(), |stage| info.devices[stage].clone())
        };
        let actions: usize = schedule.lanes().iter().map(Vec::len).sum();
        let (lanes, predicted) = match actions <= MOST_ACTIONS {
            true => (lanes(schedule), predict(FLOPS_PER_SECOND)?),
            false => (Vec::new(), Timeline::default()),
        };
        let shortening = FlatTimeline::shortening(&predicted);
        let portals = predicted.portals().iter();
        let record = Self {
            format: FORMAT,
            gpipe: env!("CARGO_PKG_VERSION").to_owned(),
            devices: (0..schedule.devices()).map(device_name).collect(),
            hosts: Vec::new(),
            machine: info.machine,
            parameter_bytes: Some(info.parameter_bytes),
            stages: info.stages,
            cuts: None,
            micro_batches: schedule.micro_batches(),
            lanes,
            portals: portals.map(|portal| [portal.from, portal.to]).collect(),
            predicted: FlatTimeline::new(&stretched(&predicted, shortening)),
            flops_per_second: FLOPS_PER_SECOND / shortening,
            measured: Vec::new(),
        };
        record.check_recomputed()?;
        if record.keeps() {
            record.check_actions(&predicted)?;
        }
        Ok(record)
    }

    /// Whether steps can be kept.
    pub fn keeps(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Adds a step.
    ///
    /// # Errors
    /// [`Error::Record`] if the timeline has other actions than the schedule: the file has one list of actions for all
    /// timelines.
    pub fn add(&mut self, step: u64, timeline: &Timeline) -> Result<()> {
        self.check_actions(timeline)?;
        let times = FlatTimeline::new(timeline);
        self.measured.push(MeasuredStep { step, times });
        Ok(())
    }

    /// Checks that every device runs the actions of its lane, in their order.
    pub(crate) fn check_actions(&self, timeline: &Timeline) -> Result<()> {
        let (lanes, devices) = (self.lanes.len(), timeline.devices());
        if devices != lanes {
            return Err(fault(format!(
                "the timeline is of {devices} devices, but the schedule has {lanes}: give one of a step of this schedule"
            )));
        }
        for (device, lane) in self.lanes.iter().enumerate() {
            let spans = timeline.of_device(device).iter();
            let actions = spans.map(|span| span.action.to_string());
            let expected = lane.split(' ').filter(|word| !word.is_empty());
            if !actions.eq(expected) {
                return Err(fault(format!(
                    "device {device}: the timeline has other actions than the schedule: give one of a step of this schedule"
                )));
            }
        }
        Ok(())
    }

    /// Takes over the steps up to `made` that an earlier process of the same run has kept, and returns
    /// whether it could: only steps of the same plan, as the file has one list of actions for all of
    /// them.
    pub fn resume(&mut self, earlier: Self, made: u64) -> bool {
        let same = earlier.lanes == self.lanes
            && earlier.devices == self.devices
            && earlier.hosts == self.hosts
            && earlier.stages == self.stages
            && earlier.portals == self.portals
            && earlier.micro_batches == self.micro_batches;
        if same {
            self.measured = earlier.measured;
            self.measured.retain(|measured| measured.step <= made);
        }
        same
    }

    /// Reads and checks the contents of `timeline.json`.
    ///
    /// # Errors
    /// [`Error::Record`] with what is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let unread = |error: serde_json::Error| fault(error.to_string());
        let version: Version = serde_json::from_slice(bytes).map_err(unread)?;
        if version.format != FORMAT {
            return Err(fault(format!(
                "format {} is not known here: use the version of gpipe that wrote it",
                version.format
            )));
        }
        let record: Self = serde_json::from_slice(bytes).map_err(unread)?;
        record.check()?;
        Ok(record)
    }

    fn check(&self) -> Result<()> {
        if !(self.flops_per_second.is_finite() && self.flops_per_second > 0.0) {
            return Err(fault("the speed of the prediction is no positive number"));
        }
        if self.lanes.is_empty() {
            return Ok(());
        }
        let schedule = self.predicted()?.schedule().map_err(|error| {
            // A picture of the schedule may follow the message.
            fault(error.to_string().lines().next().unwrap_or_default())
        })?;
        if self.devices.len() != schedule.devices()
            || self.stages.len() != schedule.stages()
            || self.micro_batches != schedule.micro_batches()
        {
            return Err(fault("its lanes have other stages than its lists"));
        }
        let leads_past =
            |[from, to]: &[usize; 2]| *to < schedule.stages() && from.saturating_add(2) <= *to;
        if !self.portals.iter().all(leads_past) {
            return Err(fault(
                "its `portals` need two stages with others between them",
            ));
        }
        self.check_recomputed()?;
        self.measured
            .iter()
            .try_for_each(|measured| self.timeline(measured).map(drop))
    }

    fn check_recomputed(&self) -> Result<()> {
        for (index, stage) in self.stages.iter().enumerate() {
            let counts = stage.recomputed.iter().map(|(count, _)| count);
            let count = counts.fold(0, |sum: usize, count| sum.saturating_add(*count));
            let is_share = |share: f64| (0.0..=1.0).contains(&share);
            let shares = stage.recomputed.iter().all(|(_, share)| is_share(*share));
            if count != self.micro_batches || !shares {
                return Err(fault(format!(
                    "stage {index}: `recomputed` (in files `again`) needs a share from 0 to 1 for each micro-batch"
                )));
            }
        }
        Ok(())
    }

    /// The prediction as a timeline.
    ///
    /// # Errors
    /// [`Error::Record`] if it does not fit the lanes.
    pub fn predicted(&self) -> Result<Timeline> {
        Ok(self.through(self.predicted.timeline(&self.lanes)?))
    }

    /// A step that was kept as a timeline.
    ///
    /// # Errors
    /// [`Error::Record`] if it does not fit the lanes.
    pub fn timeline(&self, measured: &MeasuredStep) -> Result<Timeline> {
        Ok(self.through(measured.times.timeline(&self.lanes)?))
    }

    /// The timeline with the portals.
    fn through(&self, timeline: Timeline) -> Timeline {
        let portals = self.portals.iter();
        timeline.with_portals(portals.map(|&[from, to]| Portal { from, to }))
    }
}

fn fault(fault: impl Into<String>) -> Error {
    Error::Record {
        fault: fault.into(),
    }
}

/// The actions of each device, written out.
fn lanes(schedule: &Schedule) -> Vec<String> {
    let lane = |lane: &Vec<Action>| {
        let words: Vec<String> = lane.iter().map(Action::to_string).collect();
        words.join(" ")
    };
    schedule.lanes().iter().map(lane).collect()
}
