//! The files of a run that tell of it: log, events, curves, timelines. Without them the run goes on.

use std::path::Path;

use gpipe_checkpoint::Identity;
use gpipe_report::{Event, RunFolder, Tracer};
use gpipe_sched::Timeline;

use crate::error::{Result, one_line};
use crate::machine;
use crate::resume::take_place;

/// Writes what tells of a run, and collects what could not be written: a full disk must not end a run
/// that it does not keep from saving.
pub(crate) struct RunRecord {
    folder: RunFolder,
    tracer: Tracer,
    faults: Vec<String>,
    /// Faults that were handed out.
    told: usize,
}

impl RunRecord {
    /// The record of a run in its folder.
    pub fn new(folder: RunFolder, tracer: Tracer) -> Self {
        Self {
            folder,
            tracer,
            faults: Vec::new(),
            told: 0,
        }
    }

    /// The folder of the run.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Whether there is an earlier run in the folder, which this one has not replaced yet.
    pub fn replaces(&self) -> bool {
        self.folder.replaces()
    }

    /// Replaces an earlier run in the folder; without its place this one cannot go on.
    pub fn take_place(&mut self, identity: &Identity) -> Result<()> {
        take_place(&mut self.folder, identity)
    }

    /// Appends text to `log.txt`.
    pub fn log(&mut self, text: &str) {
        let written = self.folder.log(text);
        self.note(written);
    }

    /// Appends an event to `events.jsonl`, and its values to the curves.
    pub fn event(&mut self, event: &Event) {
        let written = self.folder.event(event, machine::now());
        self.note(written);
    }

    /// Goes on with the timelines of a run that is resumed after `made` steps; a sentence on those that
    /// it cannot go on with.
    pub fn resume_timelines(&mut self, made: u64) -> Option<String> {
        let resumed = self.tracer.resume(&self.folder, made);
        self.note(resumed).flatten()
    }

    /// Keeps the timeline of a step.
    pub fn timeline(&mut self, step: u64, timeline: Timeline) {
        let kept = self.tracer.step(step, timeline);
        self.note(kept);
    }

    /// Writes the timelines that were kept.
    pub fn write_timelines(&mut self) {
        let written = self.tracer.write(&self.folder);
        self.note(written);
    }

    /// The next fault that was not handed out yet. The same one is handed out once.
    pub fn next_fault(&mut self) -> Option<String> {
        let fault = self.faults.get(self.told)?.clone();
        self.told += 1;
        Some(fault)
    }

    /// All faults so far.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    fn note<T>(&mut self, written: gpipe_report::Result<T>) -> Option<T> {
        let fault = match written {
            Ok(value) => return Some(value),
            Err(error) => one_line(&error),
        };
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
        None
    }
}
