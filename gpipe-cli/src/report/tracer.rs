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

    /// Goes on with the steps that were kept before the run was resumed after step `made`. Those of
    /// another plan stay in files of their own, which the line that is handed back names.
    pub fn go_on(&mut self, folder: &RunFolder, made: u64) -> Result<Option<String>> {
        let Some(earlier) = folder.earlier_timeline() else {
            return Ok(None);
        };
        let went_on = match Record::parse(&earlier) {
            Ok(earlier) if earlier.measured.is_empty() => true,
            Ok(earlier) => self.record.go_on(earlier, made),
            Err(_) => false,
        };
        match went_on {
            true => Ok(None),
            false => folder.set_timeline_aside(made).map(Some),
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
        let news = !self.kept.is_empty();
        for (step, timeline) in self.kept.drain(..) {
            self.record.add(step, &timeline);
        }
        if news {
            let measured = self.record.measured.iter();
            let timelines = measured.map(|measured| self.record.timeline(&measured.times));
            let timelines = timelines.collect::<std::result::Result<Vec<_>, _>>();
            let timelines = timelines.map_err(|fault| Fail::Run(anyhow::Error::msg(fault)))?;
            let trace = Timeline::in_a_row(&timelines);
            folder.trace(|file| trace.write_trace(file))?;
        }
        let mut json = serde_json::to_vec(&self.record).map_err(Fail::run)?;
        json.push(b'\n');
        folder.timeline(&json)
    }
}
