//! Saving while training goes on: the copies were made before, a thread of its own writes them.

use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::fs::Fs;
use super::write::{commit, point, prune};
use super::{Best, Snapshot, names};
use crate::fail::{Fail, Result};

/// A checkpoint that stands: it would survive a loss of power.
#[derive(Debug)]
pub struct Saved {
    /// After this step.
    pub step: u64,
    /// Its folder.
    pub folder: PathBuf,
    /// Bytes of its files.
    pub bytes: u64,
    /// From the call to the last sync.
    pub seconds: f64,
    /// What went wrong afterwards, when older ones were deleted.
    pub trouble: Option<String>,
}

/// Writes the checkpoints of a run, one after the other.
pub struct Saver<F> {
    fs: F,
    home: PathBuf,
    keep: usize,
    best: Option<Best>,
    writing: Option<(u64, JoinHandle<Result<Saved>>)>,
}

impl<F: Fs + Clone + Send + 'static> Saver<F> {
    /// For the run in a folder, keeping so many checkpoints besides the best; none are written if
    /// that is 0.
    pub fn new(fs: F, run: &Path, keep: usize, best: Option<Best>) -> Self {
        let home = run.join(super::FOLDER);
        Self {
            fs,
            home,
            keep,
            best,
            writing: None,
        }
    }

    /// The best evaluation so far, this one included.
    pub fn best(&self, step: u64, held_out: Option<f64>) -> Option<Best> {
        match (self.best, held_out.filter(|loss| loss.is_finite())) {
            (best, None) => best,
            (Some(best), Some(loss)) if best.loss <= loss => Some(best),
            (_, Some(loss)) => Some(Best { step, loss }),
        }
    }

    /// Begins to write a checkpoint. Waits for the one before it first, and gives that.
    pub fn save(&mut self, snapshot: Snapshot) -> Result<Option<Saved>> {
        let before = self.finish()?;
        self.best = snapshot.state.best;
        let step = snapshot.state.step;
        let (mut fs, home, keep, best) = (self.fs.clone(), self.home.clone(), self.keep, self.best);
        let work = move || write(&mut fs, &home, snapshot, keep, best);
        let thread = thread::Builder::new().name("gpipe-save".into()).spawn(work);
        self.writing = Some((step, thread.map_err(Fail::run)?));
        Ok(before)
    }

    /// The checkpoint that was being written, if it stands by now.
    pub fn poll(&mut self) -> Result<Option<Saved>> {
        match &self.writing {
            Some((_, thread)) if thread.is_finished() => self.finish(),
            _ => Ok(None),
        }
    }

    /// The checkpoint that was being written, as soon as it stands.
    pub fn finish(&mut self) -> Result<Option<Saved>> {
        let Some((step, thread)) = self.writing.take() else {
            return Ok(None);
        };
        let saved = thread.join().unwrap_or_else(|_| {
            Err(Fail::Run(anyhow::Error::msg(
                "the thread that writes it panicked",
            )))
        });
        saved.map(Some).map_err(|fail| match fail {
            Fail::Run(error) => Fail::Run(error.context(format!(
                "the checkpoint of step {step} was not saved; those before it stand"
            ))),
            fail => fail,
        })
    }
}

impl<F> Drop for Saver<F> {
    /// However a run ends, it does not cut off what is being written.
    fn drop(&mut self) {
        if let Some((_, thread)) = self.writing.take() {
            let _ = thread.join();
        }
    }
}

fn write<F: Fs>(
    fs: &mut F,
    home: &Path,
    snapshot: Snapshot,
    keep: usize,
    best: Option<Best>,
) -> Result<Saved> {
    let started = Instant::now();
    let step = snapshot.state.step;
    let name = names::of_step(step);
    let files = snapshot.files()?;
    let bytes = commit(fs, home, step, &files).map_err(Fail::run)?;
    let seconds = started.elapsed().as_secs_f64();
    // It stands: what goes wrong from here on takes nothing away from it.
    let is_best = best.is_some_and(|best| best.step == step);
    let pointed = match is_best {
        true => point(fs, home, names::BEST, &name),
        false => Ok(()),
    };
    let tidied = pointed.and_then(|()| prune(fs, home, keep, best.map(|best| best.step)));
    Ok(Saved {
        step,
        folder: home.join(name),
        bytes,
        seconds,
        trouble: tidied.err().map(|failure| failure.to_string()),
    })
}
