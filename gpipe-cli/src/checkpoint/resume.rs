//! From what was typed after `--resume` to the checkpoint that a run goes on from.

use std::fs;
use std::path::{Path, PathBuf};

use super::fs::{Disk, Fs};
use super::lock::Lock;
use super::read::{Skipped, Whole, newest, pointed, verify};
use super::snapshot;
use super::{FOLDER, State, names, set_aside};
use crate::fail::{Fail, Result};
use crate::machine;
use crate::output::RUNS;

/// A checkpoint that is whole, and how it was found.
pub struct Resumed {
    /// The checkpoint.
    pub whole: Whole,
    /// Where its run was.
    pub state: State,
    /// Newer ones that are not whole, and what else is odd: a line each.
    pub warnings: Vec<String>,
    /// The run's folder, if the run goes on in it.
    pub place: Option<Place>,
}

impl Resumed {
    /// Steps that were made, and samples that were drawn.
    pub fn position(&self) -> (u64, u64) {
        (self.state.step, self.state.samples)
    }
}

/// The folder in which a run goes on.
pub struct Place {
    /// Where it is.
    pub run: PathBuf,
    /// Nobody else writes it.
    pub lock: Lock,
    /// Steps of checkpoints that stand in the way of new ones.
    damaged: Vec<u64>,
}

impl Place {
    /// Renames what stands in the way. Says what it is called now.
    pub fn clear(&self, fs: &mut impl Fs) -> Result<Vec<String>> {
        let home = self.run.join(FOLDER);
        let aside = self.damaged.iter().map(|&step| {
            let name = set_aside(fs, &home, step).map_err(Fail::run)?;
            Ok(format!(
                "{} is now called {name}: delete it if you do not need it",
                names::of_step(step)
            ))
        });
        aside.collect()
    }
}

/// What a folder is.
enum Source {
    Run(PathBuf),
    Checkpoint(PathBuf, u64),
}

/// The newest checkpoint that is whole of a run (`None`: of the run in `runs/` that was at work last),
/// or the one that was named. `in_place`: the run goes on in its folder, which must be free.
pub fn find<F: Fs>(fs: &F, folder: Option<&Path>, in_place: bool) -> Result<Resumed> {
    let memory = machine::memory().unwrap_or(u64::MAX);
    match source(folder)? {
        Source::Run(run) => {
            let lock = in_place.then(|| Lock::take(&run)).transpose()?;
            let home = run.join(FOLDER);
            let (whole, skipped) = newest(fs, &home, memory)
                .map_err(|error| Fail::asked(format!("--resume {}: {error}", home.display())))?;
            let Some(whole) = whole else {
                return Err(nothing(&home, &skipped));
            };
            let step = whole.manifest.step;
            let mut warnings: Vec<String> = skipped.iter().map(told).collect();
            if let Some(latest) = pointed(fs, &home, names::LATEST)
                && latest > step
                && !skipped.iter().any(|skipped| skipped.step == latest)
            {
                warnings.push(format!(
                    "{}, the latest, is missing",
                    names::of_step(latest)
                ));
            }
            let damaged = skipped.iter().map(|skipped| skipped.step).collect();
            let place = lock.map(|lock| Place { run, lock, damaged });
            resumed(fs, whole, warnings, place)
        }
        Source::Checkpoint(path, step) => {
            let home = path.parent().filter(|home| home.ends_with(FOLDER));
            let run = home.and_then(Path::parent).filter(|_| in_place);
            let place = match run {
                Some(run) => Some(Place {
                    run: run.to_owned(),
                    lock: Lock::take(run)?,
                    damaged: Vec::new(),
                }),
                None => None,
            };
            if let (Some(_), Some(home)) = (&place, home) {
                let newer = fs.list(home).unwrap_or_default();
                let newer = newer.iter().filter_map(|name| names::step_of(name)).max();
                if let Some(newer) = newer.filter(|&newer| newer > step) {
                    return Err(Fail::asked(format!(
                        "--resume {}: {} is newer: name a new folder with --out, or resume the run itself",
                        path.display(),
                        names::of_step(newer)
                    )));
                }
            }
            let whole = verify(fs, &path, step, memory).map_err(|fault| {
                Fail::asked(format!(
                    "--resume {}: {fault}; the run's folder instead finds the newest that is whole",
                    path.display()
                ))
            })?;
            resumed(fs, whole, Vec::new(), place)
        }
    }
}

/// The newest checkpoint of a run that is whole, or the one that was named, for its model alone, and a
/// line for each newer one that is not whole. `None`: the folder is neither.
pub fn whole_in(folder: &Path) -> Result<Option<(PathBuf, Vec<String>)>> {
    let memory = machine::memory().unwrap_or(u64::MAX);
    let fault =
        |fault: &dyn std::fmt::Display| Fail::asked(format!("{}: {fault}", folder.display()));
    match source(Some(folder)) {
        Ok(Source::Run(run)) => {
            let home = run.join(FOLDER);
            let (whole, skipped) = newest(&Disk, &home, memory).map_err(|error| fault(&error))?;
            let told: Vec<String> = skipped.iter().map(told).collect();
            match whole {
                Some(whole) => Ok(Some((whole.folder, told))),
                None if told.is_empty() => Err(fault(&"the run has no checkpoint yet")),
                None => Err(fault(&format!(
                    "no checkpoint is whole: {}",
                    told.join("; ")
                ))),
            }
        }
        Ok(Source::Checkpoint(path, step)) => match verify(&Disk, &path, step, memory) {
            Ok(whole) => Ok(Some((whole.folder, Vec::new()))),
            Err(damage) => Err(fault(&format!(
                "{damage}; the run's folder instead finds the newest that is whole"
            ))),
        },
        Err(_) => Ok(None),
    }
}

fn resumed<F: Fs>(
    fs: &F,
    whole: Whole,
    warnings: Vec<String>,
    place: Option<Place>,
) -> Result<Resumed> {
    let state = snapshot::state(fs, &whole)?;
    Ok(Resumed {
        whole,
        state,
        warnings,
        place,
    })
}

fn told(skipped: &Skipped) -> String {
    format!(
        "{} is not whole: {}",
        names::of_step(skipped.step),
        skipped.fault
    )
}

fn nothing(home: &Path, skipped: &[Skipped]) -> Fail {
    let why: Vec<String> = skipped.iter().map(told).collect();
    let why = match why.is_empty() {
        true => "it holds no checkpoint".to_owned(),
        false => format!("no checkpoint is whole: {}", why.join("; ")),
    };
    Fail::asked(format!(
        "--resume {}: {why}; without --resume the training begins anew",
        home.display()
    ))
}

fn source(folder: Option<&Path>) -> Result<Source> {
    let Some(folder) = folder else {
        return last_run().map(Source::Run);
    };
    let fault = |fault: &str| {
        Fail::asked(format!(
            "--resume {}: {fault}: name the folder of a run or of a checkpoint",
            folder.display()
        ))
    };
    let found = fs::metadata(folder).map_err(|error| fault(&error.to_string()))?;
    if !found.is_dir() {
        return Err(fault("is no folder"));
    }
    // `.` and `..` have no name of their own.
    let whole = fs::canonicalize(folder).map_err(|error| fault(&error.to_string()))?;
    let name = whole.file_name().unwrap_or_default().to_string_lossy();
    if folder.join(FOLDER).is_dir() {
        Ok(Source::Run(folder.to_owned()))
    } else if let Some(step) = names::step_of(&name) {
        Ok(Source::Checkpoint(whole, step))
    } else if name == FOLDER {
        Ok(Source::Run(whole.parent().unwrap_or(folder).to_owned()))
    } else {
        Err(fault("it holds no checkpoints"))
    }
}

/// The run in `runs/` whose checkpoints changed last.
fn last_run() -> Result<PathBuf> {
    let runs = fs::read_dir(RUNS).map(|entries| entries.filter_map(std::result::Result::ok));
    let runs = runs.into_iter().flatten().filter_map(|entry| {
        let changed = fs::metadata(entry.path().join(FOLDER))
            .ok()?
            .modified()
            .ok()?;
        Some((changed, entry.path()))
    });
    let last = runs.max().map(|(_, run)| run);
    last.ok_or_else(|| {
        Fail::asked(format!(
            "--resume: no run in {RUNS}/ has a checkpoint: name the folder of a run or of a checkpoint"
        ))
    })
}
