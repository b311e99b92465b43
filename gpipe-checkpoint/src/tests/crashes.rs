//! Power is lost at any moment of a save: what is found afterwards is a whole checkpoint, not older
//! than the last one that was acknowledged, and the next save works.

use std::io::{self, Read};
use std::path::Path;

use super::disk::MemoryDisk;
use super::{commit_placed, contents, disk, home, newest_step};
use crate::failure::Failure;
use crate::fs::{Fs, Kind};
use crate::names;
use crate::write::{commit, point, prune};

/// All that a save does, on any file system; the number of the step is acknowledged in between.
type Save = fn(&mut MemoryDisk, u64, &mut dyn FnMut(&MemoryDisk)) -> Result<(), Failure>;

fn save<F: Fs>(fs: &mut F, step: u64) -> Result<(), Failure> {
    commit(fs, home(), step, &contents(step), None)?;
    point(fs, home(), names::BEST, &names::of_step(step))
}

fn in_order(
    disk: &mut MemoryDisk,
    step: u64,
    acknowledge: &mut dyn FnMut(&MemoryDisk),
) -> Result<(), Failure> {
    save(disk, step)?;
    acknowledge(disk);
    prune(disk, home(), u64::MAX, 2, Some(1))
}

/// [`in_order`] by two ranks.
fn by_ranks(
    disk: &mut MemoryDisk,
    step: u64,
    acknowledge: &mut dyn FnMut(&MemoryDisk),
) -> Result<(), Failure> {
    let second = disk.clone();
    commit_placed(disk, second, step, true)?;
    acknowledge(disk);
    prune(disk, home(), u64::MAX, 2, Some(1))
}

/// One of this many states is followed by another save.
const FOLLOWED: usize = 16;

/// Most states looked at after one change: a correct save leaves far fewer, and one that forgets
/// something shows it in the first.
const MOST: usize = 1_000;

/// The number of states looked at, and the first in which something was lost.
fn states(save: Save) -> (usize, Option<String>) {
    let disk = disk(&[1, 2, 3]);
    let (mut writer, mut acknowledged) = (disk.clone(), usize::MAX);
    save(&mut writer, 4, &mut |disk| acknowledged = disk.changes()).expect("no fault was planted");
    let (mut seen, mut looked, mut lost) = (0, 0, None);
    let last = disk.changes();
    // From both ends to the middle: what is forgotten shows soon.
    let order = (0..=last).map(|i| if i % 2 == 0 { last - i / 2 } else { i / 2 });
    for prefix in order {
        if lost.is_some() {
            break;
        }
        let mut here = 0;
        seen += disk.after_power_loss(prefix, |mut after| {
            here += 1;
            if here > MOST {
                return false;
            }
            let least = if prefix >= acknowledged { 4 } else { 3 };
            let found = newest_step(&after);
            if found.is_none_or(|step| step < least) {
                lost.get_or_insert(format!(
                    "after {prefix} changes: {found:?} instead of {least}"
                ));
                return false;
            }
            looked += 1;
            if looked % FOLLOWED != 0 {
                return true;
            }
            // Whatever is left over is in nobody's way, and is gone afterwards.
            commit(&mut after, home(), 5, &contents(5), None).expect("left-overs block nothing");
            assert_eq!(newest_step(&after), Some(5));
            let strange = after.list(home()).expect("a folder");
            assert!(
                !strange
                    .iter()
                    .any(|name| name.to_string_lossy().starts_with('.')),
                "{strange:?}"
            );
            true
        });
    }
    (seen, lost)
}

#[test]
fn at_every_moment_a_checkpoint_stands() {
    let (seen, lost) = states(in_order);
    assert_eq!(lost, None);
    assert!((1_000..20_000).contains(&seen), "{seen} states");
    let (by_ranks, lost) = states(by_ranks);
    assert_eq!(lost, None);
    assert!((1_000..20_000).contains(&by_ranks), "{by_ranks} states");
    let seen = seen + by_ranks;
    println!("exam C3 {seen}/{seen}");
}

#[test]
fn teeth() {
    let forgets: [(&str, Save); 5] = [
        (
            "to sync the files of other ranks",
            |disk, step, acknowledge| {
                let second = Forgetful(disk.clone(), Forgets::Files);
                commit_placed(disk, second, step, false)?;
                acknowledge(disk);
                Ok(())
            },
        ),
        ("to sync files", |disk, step, acknowledge| {
            save(&mut Forgetful(disk.clone(), Forgets::Files), step)?;
            acknowledge(disk);
            Ok(())
        }),
        ("to sync folders", |disk, step, acknowledge| {
            save(&mut Forgetful(disk.clone(), Forgets::Folders), step)?;
            acknowledge(disk);
            Ok(())
        }),
        (
            "to wait before it acknowledges",
            |disk, step, acknowledge| {
                acknowledge(disk);
                save(disk, step)
            },
        ),
        ("to save before it deletes", |disk, step, acknowledge| {
            prune(disk, home(), u64::MAX, 0, None)?;
            save(disk, step)?;
            acknowledge(disk);
            Ok(())
        }),
    ];
    for (what, save) in forgets {
        assert!(
            states(save).1.is_some(),
            "a save that forgets {what} passes"
        );
    }
    println!("exam C3 teeth {0}/{0}", forgets.len());
}

#[derive(Clone, Copy, PartialEq)]
enum Forgets {
    Files,
    Folders,
}

/// A file system that does not wait for the platter.
struct Forgetful(MemoryDisk, Forgets);

impl Fs for Forgetful {
    type File = <MemoryDisk as Fs>::File;

    fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        self.0.create_dir(path)
    }
    fn create(&mut self, path: &Path) -> io::Result<Self::File> {
        self.0.create(path)
    }
    fn write(&mut self, file: &mut Self::File, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(file, bytes)
    }
    fn sync(&mut self, file: &mut Self::File) -> io::Result<()> {
        match self.1 {
            Forgets::Files => Ok(()),
            Forgets::Folders => self.0.sync(file),
        }
    }
    fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        match self.1 {
            Forgets::Files => self.0.sync_dir(path),
            Forgets::Folders => Ok(()),
        }
    }
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        self.0.remove_file(path)
    }
    fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        self.0.remove_dir(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<std::ffi::OsString>> {
        self.0.list(path)
    }
    fn kind(&self, path: &Path) -> io::Result<Kind> {
        self.0.kind(path)
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + '_>> {
        self.0.open(path)
    }
}
