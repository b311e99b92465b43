//! The parts of the page, as HTML; the canvases in them are drawn by the page's script.

mod canvases;
mod configuration;
mod cut;
mod plots;
mod summary;
mod times;

use gpipe_sched::Spent;

use super::picture::Picture;
use super::{Record, Run};

pub use canvases::{memory, timeline};
pub use configuration::configuration;
pub use cut::cut;
pub use plots::curves;
pub use summary::{notes, summary};
pub use times::bubble;

/// A kind of time: its name, and how much of it was spent.
type Kind = (&'static str, fn(&Spent) -> f64);

/// Where time goes, by the names that the style colours.
const PARTS: [Kind; 7] = [
    ("work", |spent| spent.work),
    ("recompute", |spent| spent.recompute),
    ("fill", |spent| spent.fill),
    ("drain", |spent| spent.drain),
    ("imbalance", |spent| spent.imbalance),
    ("transfer", |spent| spent.transfer),
    ("processor", |spent| spent.processor),
];

type Pictures = [Option<Picture>];

fn machine(record: &Record) -> String {
    let machine = &record.machine;
    format!(
        "{} devices, {} threads on {} cores",
        record.devices.len(),
        machine.threads,
        machine.cores
    )
}

/// The most bytes that each stage held.
fn peaks(run: &Run) -> Vec<u64> {
    if let Some(end) = run.end.as_ref().filter(|end| !end.peak_bytes.is_empty()) {
        return end.peak_bytes.clone();
    }
    let mut peaks = Vec::new();
    for step in &run.steps {
        peaks.resize(peaks.len().max(step.peak_bytes.len()), 0);
        for (most, &bytes) in peaks.iter_mut().zip(&step.peak_bytes) {
            *most = bytes.max(*most);
        }
    }
    peaks
}
