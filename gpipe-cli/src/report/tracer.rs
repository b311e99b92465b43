//! Which steps of a run are kept, and where they go.

use std::collections::VecDeque;

use gpipe_sched::Timeline;

use super::Record;
use crate::config::TraceSteps;
use crate::fail::{Fail, Result};
use crate::output::RunFolder;

/// Keeps the timelines of the chosen steps of a run.
pub struct Tracer {
    chosen: TraceSteps,
    record: Record,
    kept: VecDeque<(u64, Timeline)>,
}

impl Tracer {
    /// For a run of which this is known.
    pub fn new(chosen: TraceSteps, record: Record) -> Self {
        Self {
            chosen,
            record,
            kept: VecDeque::new(),
        }
    }

    /// Looks at a step, and keeps its timeline if it was chosen.
    pub fn step(&mut self, step: u64, timeline: Timeline) {
        if !self.chosen.may_keep(step) || !self.record.keeps() {
            return;
        }
        self.kept.push_back((step, timeline));
        if self.kept.len() > self.chosen.most() {
            self.kept.pop_front();
        }
    }

    /// Writes what is known so far as `timeline.json`, and the steps that were kept as `trace.json`.
    pub fn write(&mut self, folder: &RunFolder) -> Result<()> {
        let timelines: Vec<Timeline> = self
            .kept
            .drain(..)
            .map(|(step, timeline)| {
                self.record.add(step, &timeline);
                timeline
            })
            .collect();
        if !timelines.is_empty() {
            let trace = Timeline::in_a_row(&timelines);
            folder.trace(|file| trace.write_trace(file))?;
        }
        let mut json = serde_json::to_vec(&self.record).map_err(Fail::run)?;
        json.push(b'\n');
        folder.timeline(&json)
    }
}
