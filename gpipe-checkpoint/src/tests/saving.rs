//! Training goes on while a checkpoint is written: what is in it is what was there when `save` was
//! called.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpipe_remat::lend_owned;
use gpipe_tensor::{DeviceId, safetensors};

use super::disk::{MemoryDisk, PlantedFault};
use super::pipeline::{self, OPTIMIZER};
use super::{HOME, MEMORY, exam, home};
use crate::fs::Fs;
use crate::names;
use crate::run_state::{Best, RunState};
use crate::saver::{SaverOptions, Writer};
use crate::search::newest_on;
use crate::snapshot::{ModelFiles, Snapshot};

fn state(step: u64, best: Option<Best>) -> RunState {
    RunState {
        step,
        best,
        ..RunState::default()
    }
}

fn saver(disk: &MemoryDisk, keep: usize) -> Writer<MemoryDisk> {
    let options = SaverOptions {
        keep,
        best: None,
        clock: Arc::new(|| Duration::from_secs(5)),
    };
    Writer::new(disk.clone(), Path::new("/run"), options)
}

/// A run that does nothing but to set every number it knows to that of the step.
struct ConstantRun {
    assembled: gpipe_remat::Assembled,
}

impl ConstantRun {
    fn new() -> Self {
        Self {
            assembled: pipeline::assembled(2),
        }
    }

    fn set(&mut self, number: f32) {
        let set = move |_, stage: &mut gpipe_remat::LayerStage| {
            stage.try_params(|param| {
                for tensor in param.value.iter_mut().chain(&mut param.state) {
                    tensor.f32s_mut()?.fill(number);
                }
                Ok(())
            })
        };
        self.assembled.pipeline.each(set).unwrap();
    }

    fn snapshot(&mut self, state: RunState) -> Snapshot {
        let device = self.assembled.transit.host().device(DeviceId::Cpu).unwrap();
        Snapshot {
            state,
            lent: lend_owned(&mut self.assembled.pipeline, &device).unwrap().0,
            optimizer: OPTIMIZER,
            config: String::new(),
            model: pipeline::model_files(),
            weights: pipeline::weights(),
        }
    }
}

#[test]
fn nothing_is_torn() {
    let times = if exam() { 1_000 } else { 100 };
    let (disk, mut run) = (MemoryDisk::new(&["/run"]), ConstantRun::new());
    let device = run.assembled.transit.clone();
    let mut saver = saver(&disk, 1);
    for step in 1..=times {
        run.set(step as f32);
        // The writer cannot make a file before everything has changed.
        disk.close(true);
        assert!(
            saver
                .save(run.snapshot(state(step, None)))
                .unwrap()
                .is_none()
        );
        run.set(-1.0);
        disk.close(false);
        let saved = saver.finish().unwrap().unwrap();
        assert_eq!(saved.step, step);
        let mut numbers = 0;
        for name in ["model/model.safetensors", names::OPTIMIZER] {
            let bytes = disk.bytes(&format!("{HOME}/{}/{name}", names::of_step(step)));
            for (name, tensor) in safetensors::load(&bytes, &device).unwrap() {
                let whole = tensor.f32s().unwrap().iter().all(|&x| x == step as f32);
                assert!(whole, "{name} of step {step} is torn");
                numbers += tensor.elements();
            }
        }
        assert!(numbers > 500, "{numbers} numbers");
    }
    println!("exam C6 {times}/{times}");
}

#[test]
fn an_error_of_the_writer_names_the_step_and_the_next_save_works() {
    let (disk, mut run) = (MemoryDisk::new(&["/run"]), ConstantRun::new());
    let mut saver = saver(&disk, 2);
    saver.save(run.snapshot(state(1, None))).unwrap();
    assert_eq!(saver.finish().unwrap().unwrap().step, 1);
    const FULL: i32 = 28;
    disk.plant(Some(PlantedFault {
        at: 5,
        stays: true,
        error: Some(FULL),
    }));
    saver.save(run.snapshot(state(2, None))).unwrap();
    let error = saver.save(run.snapshot(state(3, None))).unwrap_err();
    assert!(!error.is_input_error());
    let told = error.to_string();
    assert!(
        told.starts_with("the checkpoint of step 2 was not saved"),
        "{told}"
    );
    assert!(told.contains("os error 28"), "{told}");
    disk.plant(None);
    saver.save(run.snapshot(state(4, None))).unwrap();
    assert_eq!(saver.finish().unwrap().unwrap().step, 4);
    let names = disk.list(home()).unwrap();
    assert_eq!(names, ["latest", "step-00000001", "step-00000004"]);
}

#[test]
fn the_folder_of_a_run_that_was_moved_away_is_made_again() {
    let (disk, mut run) = (MemoryDisk::new(&["/elsewhere"]), ConstantRun::new());
    let mut saver = saver(&disk, 2);
    saver.save(run.snapshot(state(1, None))).unwrap();
    assert_eq!(saver.finish().unwrap().unwrap().step, 1);
    assert_eq!(disk.list(home()).unwrap(), ["latest", "step-00000001"]);
}

#[test]
fn without_a_thread_it_is_written_before_training_goes_on() {
    let (disk, mut run) = (MemoryDisk::new(&["/run"]), ConstantRun::new());
    let mut saver = saver(&disk, 2);
    saver.with_stack(1 << 60);
    saver.save(run.snapshot(state(1, None))).unwrap();
    let names = disk.list(home()).unwrap();
    assert_eq!(names, ["latest", "step-00000001"]);
    assert_eq!(saver.poll().unwrap().unwrap().step, 1);
    assert!(saver.finish().unwrap().is_none());
}

#[test]
fn the_best_stays_although_it_is_old() {
    let (disk, mut run) = (MemoryDisk::new(&["/run"]), ConstantRun::new());
    let mut saver = saver(&disk, 1);
    for (step, loss) in [(1, 3.0), (2, 2.0), (3, 2.0), (4, 5.0)] {
        let best = saver.best(step, Some(loss));
        assert_eq!(best.unwrap().step, step.min(2));
        let snapshot = run.snapshot(state(step, best));
        saver.save(snapshot).unwrap();
    }
    let saved = saver.finish().unwrap().unwrap();
    assert!(saved.trouble.is_none());
    let names = disk.list(home()).unwrap();
    assert_eq!(names, ["best", "latest", "step-00000002", "step-00000004"]);
    assert_eq!(disk.bytes(&format!("{HOME}/best")), b"step-00000002\n");
}

#[test]
fn the_best_is_one_that_was_saved() {
    let (disk, mut run) = (MemoryDisk::new(&["/run"]), ConstantRun::new());
    let mut saver = saver(&disk, 1);
    for (step, loss, fails, expected) in [(1, 2.0, false, 1), (2, 1.0, true, 1), (3, 3.0, false, 1)]
    {
        let full = PlantedFault {
            at: 5,
            stays: true,
            error: Some(28),
        };
        disk.plant(fails.then_some(full));
        let best = saver.best(step, Some(loss));
        saver.save(run.snapshot(state(step, best))).unwrap();
        assert_eq!(saver.finish().is_err(), fails);
        assert_eq!(saver.best(step, None).unwrap().step, expected);
    }
    let names = disk.list(home()).unwrap();
    assert_eq!(names, ["best", "latest", "step-00000001", "step-00000003"]);
}

/// Makes the model's files with one more of this name.
fn with_file(name: &str) -> ModelFiles {
    let (files, name) = (pipeline::model_files(), name.to_owned());
    Box::new(|params| {
        let mut files = files(params)?;
        files.push((name, b"x".to_vec().into()));
        Ok(files)
    })
}

#[test]
fn names_that_no_reader_takes_are_refused_before_anything_is_written() {
    let (disk, mut run) = (MemoryDisk::new(&["/run", "/escaped"]), ConstantRun::new());
    let mut saver = saver(&disk, 1);
    saver.save(run.snapshot(state(1, None))).unwrap();
    saver.finish().unwrap();
    let changes = disk.changes();
    for name in [
        "model/10:30.txt",
        "a\\b",
        "a\nb",
        "./x",
        "model//x",
        "../../../escaped/x",
        "/escaped/x",
        "a/b/c/d/e",
        "",
        names::MANIFEST,
        names::STATE,
        "model/model.safetensors",
        "optimizer-00001-of-00001.safetensors",
    ] {
        let mut snapshot = run.snapshot(state(2, None));
        snapshot.model = with_file(name);
        saver.save(snapshot).unwrap();
        let told = saver.finish().unwrap_err().to_string();
        assert!(
            told.starts_with("the checkpoint of step 2 was not saved"),
            "{told}"
        );
        assert!(
            told.contains(": manifest.json ") && !told.contains('\n'),
            "{told}"
        );
        assert_eq!(disk.changes(), changes, "{name:?}");
    }
    assert_eq!(disk.list(home()).unwrap(), ["latest", "step-00000001"]);
}

#[test]
fn files_lie_in_folders_of_folders() {
    let (disk, mut run) = (MemoryDisk::new(&["/run"]), ConstantRun::new());
    disk.settle();
    let mut saver = saver(&disk, 1);
    let mut snapshot = run.snapshot(state(1, None));
    snapshot.model = with_file("model/a/b/x.json");
    saver.save(snapshot).unwrap();
    saver.finish().unwrap();
    // All of it is on the platter.
    let left = disk.after_power_loss(disk.changes(), |disk| {
        let checkpoint = newest_on(&disk, home(), MEMORY).unwrap().checkpoint;
        let read = checkpoint.unwrap().read_on(&disk, "model/a/b/x.json");
        assert_eq!(read.unwrap(), b"x");
        true
    });
    assert_eq!(left, 1);
}

/// A run that failed keeps what it has.
#[test]
fn nothing_is_deleted_once_older_ones_are_kept() {
    let (disk, mut run) = (MemoryDisk::new(&["/run"]), ConstantRun::new());
    let mut saver = saver(&disk, 1);
    for step in 1..=4 {
        if step == 3 {
            saver.keep_older();
        }
        saver.save(run.snapshot(state(step, None))).unwrap();
        saver.finish().unwrap();
    }
    let left = ["latest", "step-00000002", "step-00000003", "step-00000004"];
    assert_eq!(disk.list(home()).unwrap(), left);
}

#[test]
fn a_poll_gives_nothing_while_a_checkpoint_is_written() {
    let (disk, mut run) = (MemoryDisk::new(&["/run"]), ConstantRun::new());
    let mut saver = saver(&disk, 1);
    let (release, released) = std::sync::mpsc::channel::<()>();
    let mut snapshot = run.snapshot(state(1, None));
    let model = std::mem::replace(&mut snapshot.model, Box::new(|_| Ok(Vec::new())));
    snapshot.model = Box::new(move |values| {
        // A poll that waits is not waited for without end.
        let _ = released.recv_timeout(Duration::from_secs(10));
        model(values)
    });
    saver.save(snapshot).unwrap();
    assert!(saver.poll().unwrap().is_none());
    drop(release);
    assert_eq!(saver.finish().unwrap().map(|saved| saved.step), Some(1));
    assert!(saver.poll().unwrap().is_none());
}
