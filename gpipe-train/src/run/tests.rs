//! Runs that end early or have nothing left to do, and what their folders hold.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use gpipe_report::Event;
use serde_json::Value;

use super::*;
use crate::config::{Overrides, Setting};
use crate::progress_sink::Silent;

fn fresh() -> StartPoint {
    fresh_saving(100)
}

fn fresh_saving(every: i64) -> StartPoint {
    let settings = [
        Setting::new("run.save_every", every),
        Setting::new("model.width", 16),
        Setting::new("model.blocks", 1),
        Setting::new("data.seq_len", 8),
        Setting::new("data.batch_size", 4),
        Setting::new("pipeline.stages", 2),
        Setting::new("pipeline.threads", 1),
        Setting::new("run.steps", 4),
        Setting::new("run.trace_steps", "1..2"),
    ];
    let config = Overrides::new().layer(settings).unwrap().resolve().unwrap();
    StartPoint::fresh(config).unwrap()
}

/// Trains, at most this many steps.
fn train(start: StartPoint, folder: NewRun, steps: u64) -> RunEnd {
    let made = Cell::new(0);
    let should_stop = || {
        made.set(made.get() + 1);
        made.get() == steps
    };
    let run = PreparedRun::new(start, RunOptions::new(folder)).unwrap();
    run.train(&mut Silent, should_stop).unwrap()
}

fn resumed(run: &Path) -> StartPoint {
    StartPoint::resume(run, None, 1, Ok).unwrap()
}

#[test]
fn a_run_that_is_stopped_has_the_timelines_that_were_kept() {
    let home = tempfile::tempdir().unwrap();
    let run = home.path().join("run");
    let end = train(fresh(), NewRun::at(&run, false).unwrap(), 3);
    assert_eq!(end, RunEnd::Stopped(3));
    let kept = || -> Vec<u64> {
        let file: Value =
            serde_json::from_slice(&fs::read(run.join("timeline.json")).unwrap()).unwrap();
        let steps = file["measured"].as_array().unwrap().iter();
        steps.map(|step| step["step"].as_u64().unwrap()).collect()
    };
    assert_eq!(kept(), [1, 2]);
    train(resumed(&run), NewRun::within(&run), u64::MAX);
    assert_eq!(kept(), [1, 2]);
}

#[test]
fn a_run_that_has_made_all_its_steps_is_left_as_it_is() {
    let home = tempfile::tempdir().unwrap();
    let run = home.path().join("run");
    train(fresh(), NewRun::at(&run, false).unwrap(), u64::MAX);
    let events = || fs::read_to_string(run.join("events.jsonl")).unwrap();
    let before = events();
    let start = resumed(&run);
    assert!(start.is_finished());
    assert_eq!(
        train(start, NewRun::within(&run), u64::MAX),
        RunEnd::Finished
    );
    assert_eq!(events(), before);
}

/// Removes the folder of a run when its first checkpoint is complete.
struct Remover<'a>(&'a Path);

impl ProgressSink for Remover<'_> {
    fn begin(&mut self, _: u64) {}

    fn line(&mut self, _: &str) {}

    fn warning(&mut self, _: &str) {}

    fn step(&mut self, _: u64, _: &str) {}

    fn event(&mut self, event: &Event) -> Result<()> {
        // The next checkpoint may be written meanwhile.
        while matches!(event, Event::Save { .. }) && self.0.exists() {
            let _ = fs::remove_dir_all(self.0);
        }
        Ok(())
    }

    fn summary(&mut self, _: &str) {}
}

/// What is gone is nothing to go on from.
#[test]
fn the_error_of_a_run_whose_folder_was_removed_names_no_mend_that_needs_it() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("run");
    let new = NewRun::at(&folder, false).unwrap();
    let run = PreparedRun::new(fresh_saving(1), RunOptions::new(new)).unwrap();
    let failed = run.train(&mut Remover(&folder), || false).unwrap_err();
    let said = failed.to_string();
    assert!(said.ends_with(", is no longer there"), "{said}");
    assert!(!said.contains("--resume"), "{said}");
}
