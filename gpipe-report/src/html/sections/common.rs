//! Names, types and figures that several sections of the page use.

use gpipe_sched::BubbleBreakdown;

use crate::html::picture::Picture;
use crate::numbers::counted;
use crate::run::Run;
use crate::timeline::record::Record;

/// The names of the runs where there are two.
pub(crate) const MARKS: [&str; 2] = ["A", "B"];

/// A kind of time: its name, and the seconds that were spent on it.
type Kind = (&'static str, fn(&BubbleBreakdown) -> f64);

/// Kinds of time, by the names that the style colours.
pub(crate) const PARTS: [Kind; 7] = [
    ("work", |spent| spent.work),
    ("recompute", |spent| spent.recompute),
    ("fill", |spent| spent.fill),
    ("drain", |spent| spent.drain),
    ("imbalance", |spent| spent.imbalance),
    ("transfer", |spent| spent.transfer),
    ("processor", |spent| spent.processor),
];

/// The picture of each run, if its steps were kept.
pub(crate) type Pictures = [Option<Picture>];

/// Devices, threads and cores in words.
pub(crate) fn machine(record: &Record) -> String {
    let machine = &record.machine;
    format!(
        "{}, {} on {}",
        counted(record.devices.len() as u64, "device"),
        counted(machine.threads as u64, "thread"),
        counted(machine.cores as u64, "core")
    )
}

/// Peak bytes of each stage, of the steps of the last process: one before it may have had other stages.
pub(crate) fn peaks(run: &Run) -> Vec<u64> {
    if let Some(end) = run.end.as_ref().filter(|end| !end.peak_bytes.is_empty()) {
        return end.peak_bytes.clone();
    }
    let mut peaks = Vec::new();
    for step in run.last_steps() {
        peaks.resize(peaks.len().max(step.peak_bytes.len()), 0);
        for (most, &bytes) in peaks.iter_mut().zip(&step.peak_bytes) {
            *most = bytes.max(*most);
        }
    }
    peaks
}
