//! `gpipe train`: trains a model, or resumes a run.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use gpipe_report::NewRun;
use gpipe_train::profile::ProfileOptions;
use gpipe_train::{PreparedRun, RunEnd, RunOptions, Setup, StartPoint};

use super::{RUNS, auto, plan, profile};
use crate::args::{OutputArgs, TrainArgs};
use crate::fail::{Fail, Result};
use crate::output::{Console, warn};
use crate::ranks;
use crate::signals;

/// What the first signal is answered with; the step may take long.
const STOPPING: &str =
    "finishing this step, then saving: another Ctrl-C or SIGTERM quits at once, without saving";
/// The same in a run without checkpoints.
const STOPPING_UNSAVED: &str =
    "finishing this step, not saved, as run.keep is 0: another Ctrl-C or SIGTERM quits at once";

/// Trains a new run or resumes one.
pub fn run(args: &TrainArgs, output: OutputArgs) -> Result<()> {
    let mut start = match &args.resume {
        None => StartPoint::fresh(args.settings.resolve()?)?,
        Some(folder) => resume(folder.as_deref(), args)?,
    };
    let config_file = args.settings.config.as_deref();
    if args.auto {
        start.config = auto::choose(args, &start.config, output)?;
    }
    if args.dry_run && !ranks::speaks() {
        return Ok(());
    }
    if args.dry_run {
        let (setup, path) = (Setup::new(&start.config)?, profile::path(config_file));
        let options = ProfileOptions::new(&path);
        return plan::show_setup(&start.config, setup, args.resume.is_some(), options, output);
    }
    let steps = start.config.run.steps.u64();
    if start.is_finished() && !ranks::speaks() {
        return Ok(());
    }
    if start.is_finished() {
        let run = start.origin().unwrap_or(Path::new("the run")).display();
        Console::new(output, steps)?.say(&format!(
            "nothing to do: {run} has made all its {steps} steps; use a larger --steps to continue"
        ));
        return Ok(());
    }
    let folder = match &args.out {
        Some(path) if ranks::speaks() => NewRun::at(path, args.overwrite)?,
        _ => NewRun::within(Path::new(RUNS)),
    };
    let options = RunOptions::new(folder)
        .kernel_cache(kernel_cache())
        .over(ranks::world());
    if let Some(warning) = ranks::pinned(start.config.pipeline.threads.get()) {
        warn(&warning);
    }
    let stopping = match start.config.run.keep.get() {
        0 => STOPPING_UNSAVED,
        _ => STOPPING,
    };
    let run = PreparedRun::new(start, options)?;
    let mut console = Console::new(output, steps)?;
    signals::install(console.later(stopping)).map_err(Fail::run)?;
    match run.train(&mut console, || signals::stop().load(Ordering::Relaxed))? {
        RunEnd::Stopped(_) => Err(Fail::Stopped),
        _ => Ok(()),
    }
}

/// The start of a resumed run, with the flags.
fn resume(folder: Option<&Path>, args: &TrainArgs) -> Result<StartPoint> {
    let folder = match folder {
        Some(folder) => folder.to_owned(),
        None => gpipe_train::last_run(Path::new(RUNS), warn)?,
    };
    let mut refused = None;
    let lay = |overrides| {
        args.settings.lay_over(overrides).map_err(|fail| {
            let message = fail.line().unwrap_or_default();
            refused = Some(fail);
            gpipe_train::Error::invalid(message)
        })
    };
    let ranks = ranks::world().map_or(1, |world| world.ranks());
    let start = match ranks::speaks() {
        true => StartPoint::resume(&folder, args.out.as_deref(), ranks, lay),
        false => StartPoint::follow(&folder, ranks, lay),
    };
    match refused {
        Some(fail) => Err(fail),
        None => start.map_err(resume_fault),
    }
}

/// Adds `--resume` to errors about its folder.
fn resume_fault(error: gpipe_train::Error) -> Fail {
    use gpipe_checkpoint::Error;
    let words = match &error {
        gpipe_train::Error::Input(source) => match source.downcast_ref::<Error>() {
            Some(Error::NotNewest { folder, newest }) => Some(format!(
                "--resume {}: step-{newest:08} is newer: name a new folder with --out, or resume the run itself",
                folder.display()
            )),
            Some(Error::OtherRun { folder, id }) => Some(format!(
                "--resume {}: belongs to another run, {id}: move it out of this run's folder, or resume it by \
                 its own name with --out",
                folder.display()
            )),
            Some(
                fault @ (Error::NotARun { .. }
                | Error::NoCheckpoint { .. }
                | Error::NotWhole { .. }
                | Error::Refused { .. }),
            ) => Some(format!("--resume {fault}")),
            _ => None,
        },
        _ => None,
    };
    match words {
        Some(words) => Fail::invalid(words),
        None => error.into(),
    }
}

/// The user's folder of compiled kernels: `$XDG_CACHE_HOME/gpipe/kernels`, or `~/.cache/gpipe/kernels`.
pub fn kernel_cache() -> Option<PathBuf> {
    let folder = |name| env::var_os(name).map(PathBuf::from);
    let caches = folder("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    let caches = caches.or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(caches.join("gpipe").join("kernels"))
}
