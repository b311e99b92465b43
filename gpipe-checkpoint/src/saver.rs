//! Saving while training goes on: the copies were made before, a thread of its own writes them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::error::{Error, Result};
use super::files::Shared;
use super::fs::{Disk, Fs};
use super::identity::{Identity, random};
use super::names;
use super::run_state::Best;
use super::snapshot::{Files, Snapshot};
use super::write::{commit, point, prune};

/// The time since any fixed moment; a run's is never set back. This crate reads no clock of its own.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// How checkpoints are written.
#[derive(Clone)]
pub struct SaverOptions {
    /// Checkpoints kept besides the best; 0 writes none.
    pub keep: usize,
    /// The best evaluation before, of a run that is resumed.
    pub best: Option<Best>,
    /// Measures [`Saved::seconds`].
    pub clock: Clock,
}

impl fmt::Debug for SaverOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaverOptions")
            .field("keep", &self.keep)
            .field("best", &self.best)
            .finish_non_exhaustive()
    }
}

/// A checkpoint that stands: it would survive a loss of power.
#[derive(Debug)]
#[non_exhaustive]
pub struct Saved {
    /// After this step.
    pub step: u64,
    /// Its folder.
    pub folder: PathBuf,
    /// Bytes of its files.
    pub bytes: u64,
    /// From the start of the thread to the last sync.
    pub seconds: f64,
    /// What went wrong afterwards, when older ones were deleted.
    pub trouble: Option<String>,
}

/// Writes the checkpoints of a run, one after the other, while it trains.
///
/// Dropped, it waits for the one that is being written.
#[derive(Debug)]
pub struct Saver(Writer<Disk>);

impl Saver {
    /// For the run in the folder `run`, in which checkpoints lie below
    /// [`FOLDER`](crate::FOLDER). Only one process may write it: see [`Lock`](crate::Lock).
    pub fn new(run: &Path, options: SaverOptions) -> Self {
        Self(Writer::new(Disk, run, options))
    }

    /// Records in each checkpoint the run that it belongs to.
    #[must_use]
    pub fn of_run(mut self, identity: Identity) -> Self {
        self.0.identity = Some(identity);
        self
    }

    /// The best evaluation so far, including that after `step`.
    pub fn best(&self, step: u64, held_out_loss: Option<f64>) -> Option<Best> {
        self.0.best(step, held_out_loss)
    }

    /// Deletes no checkpoint from now on: a run that fails keeps what it has.
    pub fn keep_older(&mut self) {
        self.0.keep_older();
    }

    /// Begins to write a checkpoint, unless none are kept. Waits for the one before first, and gives
    /// that. Where no thread can be started, it writes the checkpoint before it returns.
    ///
    /// # Errors
    /// [`Error::NotSaved`] for the one before, and then this one is not written either.
    pub fn save(&mut self, snapshot: Snapshot) -> Result<Option<Saved>> {
        self.0.save(snapshot)
    }

    /// The checkpoint that was being written, if it stands by now. Does not wait.
    ///
    /// # Errors
    /// [`Error::NotSaved`].
    pub fn poll(&mut self) -> Result<Option<Saved>> {
        self.0.poll()
    }

    /// Waits for the checkpoint that is being written, and gives it.
    ///
    /// # Errors
    /// [`Error::NotSaved`].
    pub fn finish(&mut self) -> Result<Option<Saved>> {
        self.0.finish()
    }
}

/// [`Saver`] on any file system.
#[derive(Debug)]
pub(crate) struct Writer<F> {
    fs: F,
    home: PathBuf,
    options: SaverOptions,
    identity: Option<Identity>,
    writing: Option<Writing>,
    /// Bytes of the stack of the thread that writes.
    stack: usize,
}

/// What the standard library gives a thread.
const STACK: usize = 2 << 20;

/// A checkpoint that is being written.
#[derive(Debug)]
struct Writing {
    step: u64,
    /// The best evaluation before, which is the best again if this checkpoint is not saved.
    best: Option<Best>,
    end: End,
}

/// How a checkpoint that is being written ends.
#[derive(Debug)]
enum End {
    /// As this thread does.
    Thread(JoinHandle<Result<Saved>>),
    /// It has: there was no thread for it.
    Over(Result<Saved>),
}

impl<F: Fs + Clone + Send + 'static> Writer<F> {
    pub fn new(fs: F, run: &Path, options: SaverOptions) -> Self {
        Self {
            fs,
            home: run.join(names::FOLDER),
            options,
            identity: None,
            writing: None,
            stack: STACK,
        }
    }

    /// A stack that there is no memory for stands for threads that cannot start.
    #[cfg(test)]
    pub fn with_stack(&mut self, bytes: usize) {
        self.stack = bytes;
    }

    pub fn best(&self, step: u64, held_out_loss: Option<f64>) -> Option<Best> {
        let loss = held_out_loss.filter(|loss| loss.is_finite());
        match (self.options.best, loss) {
            (best, None) => best,
            (Some(best), Some(loss)) if best.loss <= loss => Some(best),
            (_, Some(loss)) => Some(Best { step, loss }),
        }
    }

    pub fn keep_older(&mut self) {
        if self.options.keep > 0 {
            self.options.keep = usize::MAX;
        }
    }

    pub fn save(&mut self, mut snapshot: Snapshot) -> Result<Option<Saved>> {
        let before = self.finish()?;
        if self.options.keep == 0 {
            return Ok(before);
        }
        // JSON has no number for another loss: the state could not be read back.
        let best = snapshot.state.best.filter(|best| best.loss.is_finite());
        snapshot.state.best = best;
        let step = snapshot.state.step;
        let mut options = self.options.clone();
        options.best = best;
        let (fs, home, identity) = (self.fs.clone(), self.home.clone(), self.identity.clone());
        let work = move |snapshot| {
            let mut fs = fs.clone();
            write(&mut fs, &home, snapshot, &options, identity.as_ref())
        };
        let (hand_over, handed) = mpsc::channel();
        let of_thread = work.clone();
        let thread = thread::Builder::new()
            .name("gpipe-save".into())
            .stack_size(self.stack);
        let thread = thread.spawn(move || match handed.recv() {
            Ok(snapshot) => of_thread(snapshot),
            Err(_) => Err(Error::Thread("got nothing to write".to_owned())),
        });
        let end = match thread {
            Ok(thread) => {
                let _ = hand_over.send(snapshot);
                End::Thread(thread)
            }
            // The system has no more threads for this user: training waits.
            Err(_) => End::Over(work(snapshot)),
        };
        let best = std::mem::replace(&mut self.options.best, best);
        self.writing = Some(Writing { step, best, end });
        Ok(before)
    }

    pub fn poll(&mut self) -> Result<Option<Saved>> {
        match &self.writing {
            Some(Writing {
                end: End::Thread(thread),
                ..
            }) if !thread.is_finished() => Ok(None),
            _ => self.finish(),
        }
    }

    pub fn finish(&mut self) -> Result<Option<Saved>> {
        let Some(Writing { step, best, end }) = self.writing.take() else {
            return Ok(None);
        };
        let saved = match end {
            End::Thread(thread) => thread
                .join()
                .unwrap_or_else(|_| Err(Error::Thread("panicked".to_owned()))),
            End::Over(saved) => saved,
        };
        if saved.is_err() {
            self.options.best = best;
        }
        saved.map(Some).map_err(|error| not_saved(step, error))
    }
}

impl<F> Drop for Writer<F> {
    /// However a run ends, it does not cut off the checkpoint that is being written.
    fn drop(&mut self) {
        if let Some(Writing {
            end: End::Thread(thread),
            ..
        }) = self.writing.take()
        {
            let _ = thread.join();
        }
    }
}

fn not_saved(step: u64, error: Error) -> Error {
    let source = Box::new(error);
    Error::NotSaved { step, source }
}

fn write<F: Fs>(
    fs: &mut F,
    home: &Path,
    snapshot: Snapshot,
    options: &SaverOptions,
    identity: Option<&Identity>,
) -> Result<Saved> {
    let SaverOptions { keep, best, clock } = options;
    let started = clock();
    let step = snapshot.state.step;
    let name = names::of_step(step);
    let Files { whole, placed } = snapshot.files(identity)?;
    let token = random();
    let shared = placed.as_ref().map(|(files, others)| Shared {
        files,
        ranks: others,
        token: &token,
    });
    let bytes = commit(fs, home, step, &whole, shared.as_ref())?;
    let seconds = clock().saturating_sub(started).as_secs_f64();
    // It stands: what goes wrong from here on takes nothing away from it.
    let is_best = best.is_some_and(|best| best.step == step);
    let pointed = match is_best {
        true => point(fs, home, names::BEST, &name),
        false => Ok(()),
    };
    let tidied = pointed.and_then(|()| prune(fs, home, step, *keep, best.map(|best| best.step)));
    Ok(Saved {
        step,
        folder: home.join(name),
        bytes,
        seconds,
        trouble: tidied.err().map(|failure| failure.to_string()),
    })
}
