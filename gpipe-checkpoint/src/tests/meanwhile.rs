//! Checkpoints that are searched while their run saves newer ones and deletes older ones.

use std::cell::Cell;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::Path;

use super::runs::{MAX, run, saver, snapshot};
use crate::fs::{Disk, Fs, Kind};
use crate::search::newest_on;
use crate::{Checkpoint, FOLDER};

/// The disk of this machine, on which something happens as soon as a file was opened.
struct Meanwhile<F>(Cell<Option<F>>);

impl<F: FnOnce()> Fs for Meanwhile<F> {
    type File = ();

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + '_>> {
        let opened = Disk.open(path);
        if let Some(happens) = self.0.take() {
            happens();
        }
        opened
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        Disk.list(path)
    }

    fn kind(&self, path: &Path) -> io::Result<Kind> {
        Disk.kind(path)
    }

    fn create_dir(&mut self, _: &Path) -> io::Result<()> {
        Err(READS_ONLY.into())
    }

    fn create(&mut self, _: &Path) -> io::Result<()> {
        Err(READS_ONLY.into())
    }

    fn write(&mut self, (): &mut (), _: &[u8]) -> io::Result<usize> {
        Err(READS_ONLY.into())
    }

    fn sync(&mut self, (): &mut ()) -> io::Result<()> {
        Err(READS_ONLY.into())
    }

    fn sync_dir(&mut self, _: &Path) -> io::Result<()> {
        Err(READS_ONLY.into())
    }

    fn rename(&mut self, _: &Path, _: &Path) -> io::Result<()> {
        Err(READS_ONLY.into())
    }

    fn remove_file(&mut self, _: &Path) -> io::Result<()> {
        Err(READS_ONLY.into())
    }

    fn remove_dir(&mut self, _: &Path) -> io::Result<()> {
        Err(READS_ONLY.into())
    }
}

/// A search writes nothing.
const READS_ONLY: io::ErrorKind = io::ErrorKind::ReadOnlyFilesystem;

#[test]
fn a_run_that_saves_and_deletes_meanwhile_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut assembled = run(folder.path(), &[1]);
    let home = folder.path().join(FOLDER);
    let mut search = |saved, keep| {
        let goes_on = || {
            let mut saver = saver(folder.path(), keep);
            saver.save(snapshot(saved, &mut assembled)).unwrap();
            saver.finish().unwrap();
        };
        let disk = Meanwhile(Cell::new(Some(goes_on)));
        let found = newest_on(&disk, &home, MAX).unwrap();
        let step = found.checkpoint.as_ref().map(Checkpoint::step);
        (step, found.warnings())
    };
    // The only one that was listed is deleted before it is read.
    assert_eq!(search(2, 1), (Some(2), Vec::new()));
    // A newer one was not listed, and `latest` names it.
    assert_eq!(search(3, 2), (Some(2), Vec::new()));
}
