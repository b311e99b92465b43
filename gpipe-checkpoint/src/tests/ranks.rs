//! Checkpoints of several ranks: each writes its part where it finds the folder; else rank 0 writes the files of one process.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gpipe_remat::{Answer, Assembled, Lent, lend_owned};
use gpipe_sched::{InMemory, Parcel, World};
use gpipe_tensor::{DeviceId, Host, safetensors};

use super::disk::{MemoryDisk, PlantedFault};
use super::pipeline::{self, OPTIMIZER, WEIGHTS, assembled, weights};
use super::runs::{bits, restore, saver, snapshot};
use super::{HOME, home};
use crate::fs::Fs;
use crate::saver::Writer;
use crate::{FOLDER, Listed, Manifest, Part, SaverOptions, newest};

fn on_ranks(ranks: usize, run: impl Fn(Arc<World>) + Sync) {
    thread::scope(|scope| {
        let run = &run;
        for transport in InMemory::new(ranks) {
            scope.spawn(move || run(World::new(transport)));
        }
    });
}

fn part_of(lent: Lent) -> Part {
    Part {
        params: lent.params,
        optimizer: OPTIMIZER,
        weights: weights(),
    }
}

/// The part of a rank that is not the first in a save: it gives what it has, and answers with `answer`.
fn give(assembled: &mut Assembled, answer: impl FnOnce(Part) -> Answer) {
    let device = assembled.transit.host().device(DeviceId::Cpu).unwrap();
    let (lent, mut lender) = lend_owned(&mut assembled.pipeline, &device).unwrap();
    lender.start(answer(part_of(lent))).unwrap();
    lender.wait();
}

/// Answers of a rank that looks at another disk.
fn elsewhere(part: Part) -> Answer {
    let mut disk = MemoryDisk::new(&["/run"]);
    Box::new(move |question| part.answer_on(&mut disk, question))
}

/// Saves four stages over this many ranks.
fn save(folder: &Path, ranks: usize, step: u64, answer: fn(Part) -> Answer) {
    on_ranks(ranks, |world| {
        let mut assembled = pipeline::over(4, &world);
        if world.rank() > 0 {
            return give(&mut assembled, answer);
        }
        let mut saver = saver(folder, 10);
        saver.save(snapshot(step, &mut assembled)).unwrap();
        assert_eq!(saver.finish().unwrap().map(|saved| saved.step), Some(step));
    });
}

fn names(folder: &Path, step: u64) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let folder = folder.join(FOLDER).join(crate::names::of_step(step));
    crate::read::names_below(&crate::fs::Disk, &folder, "", &mut names).unwrap();
    names
}

#[test]
fn ranks_write_their_parts_and_any_world_reads_them() {
    let here = tempfile::tempdir().unwrap();
    let expected = bits(&mut assembled(4));
    let alone = here.path().join("alone");
    fs::create_dir(&alone).unwrap();
    save(&alone, 1, 1, Part::answer);
    let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
    for ranks in [2, 4] {
        let run = here.path().join(ranks.to_string());
        fs::create_dir(&run).unwrap();
        save(&run, ranks, 1, Part::answer);
        // Seen by one rank alone, and by none but rank 0.
        save(&run, ranks, 2, elsewhere);
        let (parts, whole) = (names(&run, 1), names(&run, 2));
        assert_eq!(whole, names(&alone, 1));
        // The last of four stages has no parameter of its own.
        let writers = ranks.min(3);
        for stem in ["model/model", "optimizer"] {
            let index = format!("{stem}.safetensors.index.json");
            assert!(parts.contains(&index), "{parts:?}");
            let step = run.join(FOLDER).join("step-00000001");
            let index = fs::read(step.join(index)).unwrap();
            let index: serde_json::Value = serde_json::from_slice(&index).unwrap();
            let (mut listed, mut bytes) = (0, 0);
            for part in 1..=writers {
                let name = format!("{stem}-{part:05}-of-{writers:05}.safetensors");
                assert!(parts.contains(&name), "{parts:?}");
                let beside = name.trim_start_matches("model/");
                let file = fs::read(step.join(&name)).unwrap();
                for (tensor, values) in safetensors::load(&file, &device).unwrap() {
                    assert_eq!(index["weight_map"][&tensor], beside);
                    (listed, bytes) = (listed + 1, bytes + values.bytes());
                }
            }
            assert_eq!(index["weight_map"].as_object().unwrap().len(), listed);
            assert_eq!(index["metadata"]["total_size"], bytes);
        }
        let of_one = |run: &Path, step: &str, name: &str| {
            fs::read(run.join(FOLDER).join(step).join(name)).unwrap()
        };
        for name in [WEIGHTS, crate::OPTIMIZER] {
            let (gathered, alone) = (
                of_one(&run, "step-00000002", name),
                of_one(&alone, "step-00000001", name),
            );
            assert!(gathered == alone, "{name}");
        }
        for step in [2, 1] {
            let checkpoint = newest(&run, u64::MAX).unwrap().checkpoint.unwrap();
            assert_eq!(checkpoint.step(), step);
            for stages in [1, 3] {
                // Its own initial values are others.
                let mut other = assembled(stages);
                assert_ne!(bits(&mut other), expected);
                restore(&checkpoint, &mut other).unwrap();
                assert_eq!(bits(&mut other), expected);
            }
            on_ranks(3, |world| {
                let mut other = pipeline::over(3, &world);
                restore(&checkpoint, &mut other).unwrap();
                let found = bits(&mut other);
                assert!(world.rank() > 0 || found == expected);
            });
            // Then the one before it.
            fs::remove_dir_all(checkpoint.folder()).unwrap();
        }
    }
}

/// The name of a part is longer than that of the file.
#[test]
fn names_of_parts_that_no_reader_takes_are_refused() {
    let disk = MemoryDisk::new(&["/run"]);
    let long: &str = format!("model/{}.safetensors", "x".repeat(240)).leak();
    on_ranks(2, |world| {
        let mut assembled = pipeline::over(4, &world);
        if world.rank() > 0 {
            let mut own = disk.clone();
            return give(&mut assembled, |part| {
                Box::new(move |question| part.answer_on(&mut own, question))
            });
        }
        let options = SaverOptions {
            keep: 3,
            best: None,
            clock: Arc::new(|| Duration::ZERO),
        };
        let mut saver = Writer::new(disk.clone(), Path::new("/run"), options);
        let mut snapshot = snapshot(1, &mut assembled);
        snapshot.weights.name = long;
        snapshot.model = Box::new(|params| {
            let weights = safetensors::contents(params, &[])?;
            Ok(vec![(long.to_owned(), weights)])
        });
        saver.save(snapshot).unwrap();
        let error = saver.finish().expect_err("no name").to_string();
        assert!(error.contains("manifest.json lists `model/xxx"), "{error}");
    });
    assert!(disk.list(Path::new("/run")).unwrap().is_empty());
}

/// Saves two steps on a disk in memory, the second of which rank 1 answers with `answer`; what became of that.
fn second_save(disk: &MemoryDisk, answer: fn(Part, MemoryDisk) -> Answer) -> String {
    let told = std::sync::Mutex::new(String::new());
    on_ranks(2, |world| {
        let mut assembled = pipeline::over(4, &world);
        if world.rank() > 0 {
            let mut own = disk.clone();
            give(&mut assembled, |part| {
                Box::new(move |question| part.answer_on(&mut own, question))
            });
            return give(&mut assembled, |part| answer(part, disk.clone()));
        }
        let options = SaverOptions {
            keep: 3,
            best: None,
            clock: Arc::new(|| Duration::ZERO),
        };
        let mut saver = Writer::new(disk.clone(), Path::new("/run"), options);
        saver.save(snapshot(1, &mut assembled)).unwrap();
        assert!(saver.save(snapshot(2, &mut assembled)).unwrap().is_some());
        let error = saver.finish().expect_err("a rank failed");
        *told.lock().unwrap() = error.to_string();
    });
    let names = disk.list(home()).unwrap();
    assert_eq!(names, ["best", "latest", "step-00000001"]);
    assert_eq!(
        super::newest_on(disk, home(), u64::MAX)
            .unwrap()
            .checkpoint
            .unwrap()
            .step(),
        1
    );
    assert_eq!(disk.bytes(&format!("{HOME}/latest")), b"step-00000001\n");
    told.into_inner().unwrap()
}

/// Whether a rank is asked to write, rather than to look.
fn is_order(question: &Parcel) -> bool {
    question.head.first() == Some(&1)
}

#[test]
fn a_rank_that_cannot_write_loses_one_checkpoint() {
    const FULL: i32 = 28;
    let disk = MemoryDisk::new(&["/run"]);
    let told = second_save(&disk, |part, disk| {
        Box::new(move |question| {
            // A disk of its own that is full: rank 0 goes on with that which is not.
            let mut full = disk.copy();
            if is_order(&question) {
                let (at, stays, error) = (0, true, Some(FULL));
                full.plant(Some(PlantedFault { at, stays, error }));
            }
            part.answer_on(&mut full, question)
        })
    });
    assert!(
        told.starts_with("the checkpoint of step 2 was not saved"),
        "{told}"
    );
    assert!(
        told.contains("rank 1 (") && told.contains("os error 28"),
        "{told}"
    );
}

#[test]
fn files_that_rank_0_does_not_see_are_no_checkpoint() {
    let disk = MemoryDisk::new(&["/run"]);
    let told = second_save(&disk, |part, disk| {
        Box::new(move |question| part.answer_on(&mut disk.copy(), question))
    });
    assert!(
        told.contains("cannot find /run/checkpoints/.partial-step-00000002-"),
        "{told}"
    );
}

#[test]
fn a_rank_that_ends_while_it_writes_loses_one_checkpoint() {
    let disk = MemoryDisk::new(&["/run"]);
    let told = second_save(&disk, |part, disk| {
        Box::new(move |question| match is_order(&question) {
            true => panic!("planted"),
            false => part.answer_on(&mut disk.clone(), question),
        })
    });
    assert!(
        told.contains("rank 1 (") && told.contains("panicked"),
        "{told}"
    );
}

#[test]
fn parts_that_are_no_whole_are_refused() {
    let here = tempfile::tempdir().unwrap();
    save(here.path(), 2, 1, Part::answer);
    let step = here.path().join(FOLDER).join("step-00000001");
    let manifest = fs::read(step.join("manifest.json")).unwrap();
    let manifest = Manifest::parse(&manifest).unwrap();
    let [optimizer, model] = ["optimizer", "model/model"]
        .map(|stem| [1, 2].map(|part| format!("{stem}-{part:05}-of-00002.safetensors")));
    // A manifest made by somebody: its digests hold.
    let told = |change: &dyn Fn(&mut Vec<Listed>)| {
        let mut manifest = manifest.clone();
        change(&mut manifest.files);
        fs::write(step.join("manifest.json"), manifest.to_bytes().unwrap()).unwrap();
        let found = crate::find(&step, u64::MAX);
        let error = found.and_then(|(checkpoint, _)| restore(&checkpoint, &mut assembled(2)));
        let error = error.expect_err("refused");
        assert!(error.is_input_error(), "{error}");
        error.to_string()
    };
    let remove =
        |name: String| move |files: &mut Vec<Listed>| files.retain(|file| file.name != name);
    for name in optimizer.clone() {
        let told = told(&remove(name));
        assert!(
            told.contains("does not hold all parts of optimizer.safetensors"),
            "{told}"
        );
    }
    fs::rename(step.join(&model[1]), here.path().join("kept")).unwrap();
    let told_of = told(&remove(model[1].clone()));
    assert!(
        told_of.contains("does not hold all parts of model/model.safetensors"),
        "{told_of}"
    );
    // The first part once more in the place of the second.
    for parts in [&model, &optimizer] {
        let second = step.join(&parts[1]);
        fs::copy(step.join(&parts[0]), &second).unwrap();
        let told = told(&|files| {
            let first = files
                .iter()
                .find(|file| file.name == parts[0])
                .unwrap()
                .clone();
            let second = files.iter_mut().find(|file| file.name == parts[1]).unwrap();
            (second.bytes, second.sha256) = (first.bytes, first.sha256);
        });
        assert!(told.contains("is there twice"), "{told}");
        if parts == &model {
            fs::copy(here.path().join("kept"), &second).unwrap();
        }
    }
}
