//! The data of the page's script: the prediction and the measured steps of a run.

use gpipe_sched::{BubbleBreakdown, Gap, Timeline};
use serde::Serialize;

use crate::error::Result;
use crate::numbers;
use crate::run::Run;
use crate::timeline::flat::{FlatTimeline, stretched};
use crate::timeline::info::StageInfo;
use crate::timeline::record::Record;

/// A run as the script reads it.
#[derive(Serialize)]
pub(crate) struct Picture {
    /// The name of the run where there are two: `A` or `B`.
    mark: &'static str,
    /// The name of each, with its host where there are several processes.
    pub(crate) devices: Vec<String>,
    /// Whether there are.
    #[serde(skip)]
    pub(crate) has_hosts: bool,
    /// Of each stage, how many stages before it are on the same device.
    chunks: Vec<usize>,
    lanes: Vec<String>,
    /// The stages from which and to which tensors pass those between.
    portals: Vec<[usize; 2]>,
    /// The most bytes that each device may hold, or 0 if there is no limit.
    limits: Vec<u64>,
    /// Whether no step was measured: times are then known as shares of the step only.
    pub(crate) relative: bool,
    views: Vec<View>,
    /// Where the time goes, view by view, for the page's tables.
    #[serde(skip)]
    pub(crate) shares: Vec<Share>,
}

/// One picture of a step.
#[derive(Serialize)]
struct View {
    label: String,
    predicted: bool,
    #[serde(flatten)]
    times: FlatTimeline,
    /// For each device, three whole numbers a gap: cause, nanoseconds since the last gap, length.
    gaps: Vec<Vec<u64>>,
}

/// Where the time of a step goes.
pub(crate) struct Share {
    /// The name of the view.
    pub(crate) label: String,
    /// The step that was measured; `None` for the prediction.
    pub(crate) step: Option<u64>,
    /// Seconds of each device, by kind of time.
    pub(crate) spent: Vec<BubbleBreakdown>,
    /// Seconds that each stage works.
    pub(crate) stages: Vec<f64>,
    /// Seconds from the first start to the last end.
    pub(crate) makespan: f64,
    /// Share of the devices' time in which they idle.
    pub(crate) bubble: f64,
}

impl Picture {
    /// The picture of a run, if its steps were kept. The prediction lasts as long as the work of the last measured
    /// step says or, where none was measured, `unmeasured` seconds.
    pub(crate) fn of(run: &Run, mark: &'static str, unmeasured: f64) -> Result<Option<Self>> {
        let Some(record) = run.record.as_ref().filter(|record| record.keeps()) else {
            return Ok(None);
        };
        let predicted = record.predicted()?;
        let measured = record
            .measured
            .iter()
            .map(|measured| Ok((measured.step, record.timeline(measured)?)))
            .collect::<Result<Vec<_>>>()?;
        // The prediction gives the work, the last measured step the speed.
        let busy = |timeline: &Timeline| -> f64 {
            let spans = timeline.spans().iter();
            spans.map(|span| span.end - span.start).sum()
        };
        let stretch = match measured.last() {
            Some((_, last)) if busy(&predicted) > 0.0 => busy(last) / busy(&predicted),
            None if predicted.makespan() > 0.0 => unmeasured / predicted.makespan(),
            _ => 1.0,
        };
        let label = if measured.is_empty() {
            "Predicted, as shares of the step: none was measured".to_owned()
        } else {
            let speed = numbers::flop_rate(record.flops_per_second / stretch);
            format!("Predicted, at the speed measured ({speed} a device)")
        };
        let mut picture = Self {
            mark,
            devices: named(record),
            has_hosts: !record.hosts.is_empty(),
            chunks: chunks(&predicted, record.stages.len()),
            lanes: record.lanes.clone(),
            portals: record.portals.clone(),
            limits: limits(record, &predicted),
            relative: measured.is_empty(),
            views: Vec::new(),
            shares: Vec::new(),
        };
        picture.add(record, None, label, &stretched(&predicted, stretch))?;
        for (step, timeline) in &measured {
            let label = format!("Measured, step {step}");
            picture.add(record, Some(*step), label, timeline)?;
        }
        Ok(Some(picture))
    }

    fn add(
        &mut self,
        record: &Record,
        step: Option<u64>,
        label: String,
        timeline: &Timeline,
    ) -> Result<()> {
        let of_stage = |stage: &StageInfo| -> Vec<f64> {
            let runs = stage.recomputed.iter();
            runs.flat_map(|&(count, share)| std::iter::repeat_n(share, count))
                .collect()
        };
        let recomputed: Vec<Vec<f64>> = record.stages.iter().map(of_stage).collect();
        let spent = timeline
            .bubble_breakdown(|stage, m| recomputed[stage].get(m).copied().unwrap_or(0.0))?;
        let mut stages = vec![0.0; record.stages.len()];
        for span in timeline.spans() {
            stages[span.action.stage] += span.end - span.start;
        }
        self.views.push(View {
            label: label.clone(),
            predicted: step.is_none(),
            times: FlatTimeline::new(timeline),
            gaps: flat(&timeline.gaps()?, timeline.devices()),
        });
        self.shares.push(Share {
            label,
            step,
            spent,
            stages,
            makespan: timeline.makespan(),
            bubble: timeline.bubble(),
        });
        Ok(())
    }

    /// The prediction.
    pub(crate) fn prediction(&self) -> Option<&Share> {
        self.shares.iter().find(|share| share.step.is_none())
    }

    /// A time of a view as the page writes it: in seconds, or as a share of the step if none was measured.
    pub(crate) fn time(&self, share: &Share, seconds: f64) -> String {
        match self.relative && share.makespan > 0.0 {
            true => numbers::percent(seconds / share.makespan),
            false => numbers::step_time(seconds),
        }
    }

    /// The labels of the steps that were measured.
    pub(crate) fn measured(&self) -> impl Iterator<Item = &str> {
        let measured = self.views.iter().filter(|view| !view.predicted);
        measured.map(|view| view.label.as_str())
    }

    /// Whether tensors pass stages.
    pub(crate) fn has_portals(&self) -> bool {
        !self.portals.is_empty()
    }

    /// Whether any view has the bytes of the devices.
    pub(crate) fn counts_memory(&self) -> bool {
        let levels = |view: &View| view.times.levels.iter().any(|levels| !levels.is_empty());
        self.views.iter().any(levels)
    }
}

/// The names of the devices, with their hosts if there are several processes.
fn named(record: &Record) -> Vec<String> {
    let name = |(device, name): (usize, &String)| match record.hosts.get(device) {
        Some(host) => format!("{name} ({host})"),
        None => name.clone(),
    };
    record.devices.iter().enumerate().map(name).collect()
}

/// The most bytes that the stages of each device may hold together, or 0 if there is no limit.
fn limits(record: &Record, timeline: &Timeline) -> Vec<u64> {
    let of_device = |device| {
        let spans = timeline.of_device(device).iter();
        let mut stages: Vec<usize> = spans.map(|span| span.action.stage).collect();
        stages.sort_unstable();
        stages.dedup();
        let mut limits = stages
            .into_iter()
            .map(|stage| record.stages[stage].limit_bytes);
        let sum = limits.try_fold(0_u64, |sum, limit| Some(sum.saturating_add(limit?)));
        sum.unwrap_or(0)
    };
    (0..record.devices.len()).map(of_device).collect()
}

/// Of each stage, the number of stages before it on the same device.
fn chunks(timeline: &Timeline, stages: usize) -> Vec<usize> {
    let mut device_of = vec![0; stages];
    for span in timeline.spans() {
        device_of[span.action.stage] = span.device;
    }
    let mut before = vec![0; timeline.devices()];
    let chunk = |&device: &usize| {
        before[device] += 1;
        before[device] - 1
    };
    device_of.iter().map(chunk).collect()
}

/// For each device, three whole numbers a gap: cause, nanoseconds since the last gap, length.
fn flat(gaps: &[Gap], devices: usize) -> Vec<Vec<u64>> {
    let mut flat = vec![Vec::new(); devices];
    let mut now = vec![0; devices];
    let nanoseconds = |seconds: f64| (seconds * 1e9).round() as u64;
    for gap in gaps {
        let now = &mut now[gap.device];
        let start = nanoseconds(gap.start).max(*now);
        let end = nanoseconds(gap.end).max(start);
        flat[gap.device].extend([gap.cause as u64, start - *now, end - start]);
        *now = end;
    }
    flat
}
