//! The start of a run: fresh, or from a checkpoint.

use std::fmt;
use std::path::{Path, PathBuf};

use gpipe_checkpoint::{Best, Checkpoint, Identity, Resumed};
use gpipe_data::{AUTO, FoundVocabulary};
use gpipe_hf::Companions;
use gpipe_layers::Optimizer;
use gpipe_remat::Assembled;
use gpipe_report::{NewRun, RunFolder};
use gpipe_tensor::DeviceId;

use crate::changes::{changes, of_another_model};
use crate::config::{Overrides, TrainConfig};
use crate::dataset::{choose_vocabulary, trained_classes, with_chat_template};
use crate::error::{Error, Result};
use crate::launch::VERSION;
use crate::machine;
use crate::training_loop::Recipe;

/// The names of the weights, and of those of the adapters if there are any, in the manifest of a checkpoint. The first may
/// be there in parts.
pub(crate) const WEIGHTS: [&str; 2] = [
    "model/model.safetensors",
    "adapter/adapter_model.safetensors",
];

/// The start of a run: its configuration, and the checkpoint to resume from, if any.
pub struct StartPoint {
    /// The configuration: of the checkpoint, with the changes.
    pub config: TrainConfig,
    pub(crate) resumed: Option<Resumed>,
    pub(crate) vocabulary: FoundVocabulary,
    pub(crate) companions: Companions,
}

impl fmt::Debug for StartPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartPoint")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// The run below the folder `runs` that saved last. `warn` gets a sentence on one that began later and has not saved.
///
/// # Errors
/// [`Error::Invalid`] if no run there has a checkpoint.
pub fn last_run(runs: &Path, warn: impl FnOnce(&str)) -> Result<PathBuf> {
    let shown = runs.display();
    let run = gpipe_checkpoint::last_run(runs).ok_or_else(|| {
        Error::invalid(format!(
            "--resume: no run in {shown}/ has a checkpoint: name the folder of a run or of a checkpoint"
        ))
    })?;
    if let Some(later) = gpipe_checkpoint::unsaved_since(runs, &run) {
        warn(&format!(
            "--resume takes {}: {} began later, but has no checkpoint",
            run.display(),
            later.display()
        ));
    }
    Ok(run)
}

/// A run with its folder and its initial parameters.
pub(crate) struct StartedRun {
    /// The folder of the run.
    pub folder: RunFolder,
    /// The run, as its checkpoints name it.
    pub identity: Identity,
    /// Steps made before.
    pub made: u64,
    /// The best evaluation before.
    pub best: Option<Best>,
    /// The folder of the checkpoint, and warnings about the resume.
    pub from: Option<(PathBuf, Vec<String>)>,
}

impl StartPoint {
    /// Starts a new run.
    ///
    /// # Errors
    /// [`Error::Input`] if the tokenizer of the model cannot be read.
    pub fn fresh(config: TrainConfig) -> Result<Self> {
        let folder = config.model.folder().map(Path::to_owned);
        Self::of(config, folder.as_deref(), None, None)
    }

    /// Resumes a run from its newest intact checkpoint, or from the checkpoint `folder`. `changes_of` adds
    /// layers to the configuration of the checkpoint. The run continues in its own folder, which is
    /// locked from now on, unless `out` names a new one. The checkpoint may be larger than the memory of this process
    /// if several `ranks` share it.
    ///
    /// # Errors
    /// [`Error::Input`] if no checkpoint is intact or another process writes the run; [`Error::Invalid`] if
    /// a change does not fit the checkpoint or `out` contains it; those of `changes_of`.
    pub fn resume(
        folder: &Path,
        out: Option<&Path>,
        ranks: usize,
        changes_of: impl FnOnce(Overrides) -> Result<Overrides>,
    ) -> Result<Self> {
        Self::resume_in(folder, out, out.is_none(), ranks, changes_of)
    }

    /// [`resume`](Self::resume) for a rank that is not the first, and so leaves the folder of the run to that.
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    pub fn follow(
        folder: &Path,
        ranks: usize,
        changes_of: impl FnOnce(Overrides) -> Result<Overrides>,
    ) -> Result<Self> {
        Self::resume_in(folder, None, false, ranks, changes_of)
    }

    fn resume_in(
        folder: &Path,
        out: Option<&Path>,
        in_place: bool,
        ranks: usize,
        changes_of: impl FnOnce(Overrides) -> Result<Overrides>,
    ) -> Result<Self> {
        let memory = machine::memory().unwrap_or(u64::MAX);
        let memory = memory.saturating_mul(ranks as u64);
        let mut resumed = gpipe_checkpoint::resume(folder, in_place, memory)?;
        let checkpoint = resumed.checkpoint.folder().to_owned();
        let out = out.and_then(|out| out.canonicalize().ok());
        let is_below =
            |out: &Path, from: &Path| from.canonicalize().is_ok_and(|f| f.starts_with(out));
        // Of a run, the folder of checkpoints may be a link to one elsewhere.
        if let Some(out) = out
            && checkpoint
                .ancestors()
                .take(3)
                .any(|from| is_below(&out, from))
        {
            return Err(Error::invalid(format!(
                "--out {}: is the run to resume: leave --out out, or choose another folder",
                out.display()
            )));
        }
        let file = checkpoint.join(gpipe_checkpoint::CONFIG);
        let model = checkpoint.join(gpipe_checkpoint::MODEL);
        let of_run = || Ok::<_, Error>(Overrides::new().file(&file)?.saved_model(&model));
        let saved = of_run()?.of_run()?;
        let given = changes_of(of_run()?)?;
        let another = of_another_model(&saved, &given);
        let config = given.resolve().map_err(|error| another.unwrap_or(error))?;
        let state = &resumed.state;
        let changed = changes(&saved, &config, state.step)?;
        resumed.warnings.extend(changed);
        let processor = machine::instructions(*config.run.instruction_set);
        if state.processor != processor {
            resumed.warnings.push(format!(
                "the processor has {processor}, that of the checkpoint {}: from here on results are equal to \
                 rounding, not bit for bit",
                state.processor
            ));
        }
        if state.version != VERSION {
            resumed.warnings.push(format!(
                "this is gpipe {VERSION}, the checkpoint is by {}: from here on results may differ in bits",
                state.version
            ));
        }
        // An unchanged tokenizer is read from the checkpoint.
        let same = config.data.tokenizer == saved.data.tokenizer;
        let choice = same.then_some(AUTO);
        Self::of(config, Some(&model), choice, Some(resumed))
    }

    /// Reads the vocabulary and the companion files of a model in `folder`.
    fn of(
        config: TrainConfig,
        folder: Option<&Path>,
        choice: Option<&str>,
        resumed: Option<Resumed>,
    ) -> Result<Self> {
        let choice = choice.unwrap_or(&config.data.tokenizer);
        let (vocabulary, companions) = match config.model.vocab() {
            None => {
                let ids = gpipe_hf::ids_of_classes(&trained_classes(&config, folder)?);
                let companions = Companions {
                    ids,
                    ..Companions::default()
                };
                (FoundVocabulary::bytes(), companions)
            }
            Some(known) => {
                let found = choose_vocabulary(choice, folder, known)?;
                let vocabulary = with_chat_template(&config, found)?;
                let companions = Companions::read(folder, vocabulary.file.as_deref())?;
                (vocabulary, companions)
            }
        };
        Ok(Self {
            config,
            resumed,
            vocabulary,
            companions,
        })
    }

    /// Steps made and samples drawn before.
    pub fn position(&self) -> (u64, u64) {
        let state = self.resumed.as_ref().map(|resumed| &resumed.state);
        state.map_or((0, 0), |state| (state.step, state.samples))
    }

    /// The folder of the run that goes on, or of the checkpoint from which another one begins; `None` for a fresh start.
    pub fn origin(&self) -> Option<&Path> {
        let resumed = self.resumed.as_ref()?;
        let run = resumed.run.as_ref().map(|run| &*run.path);
        Some(run.unwrap_or(resumed.checkpoint.folder()))
    }

    /// Whether the checkpoint is of the last step.
    pub fn is_finished(&self) -> bool {
        self.position().0 == self.config.run.steps.u64()
    }
}

/// Creates the folder of the run, or reopens it and restores the parameters of the checkpoint.
///
/// # Errors
/// [`Error::Input`] if the folder or the checkpoint cannot be used; [`Error::Run`] if restoring fails.
pub(crate) fn begin(
    recipe: &Recipe<'_>,
    new: NewRun,
    resumed: Option<Resumed>,
    assembled: &mut Assembled,
) -> Result<StartedRun> {
    let Recipe {
        config,
        dataset,
        optimizer,
        ..
    } = recipe;
    let Some(resumed) = resumed else {
        return Ok(StartedRun {
            folder: create(new, config)?,
            identity: Identity::new(VERSION),
            made: 0,
            best: None,
            from: None,
        });
    };
    let Resumed {
        checkpoint,
        state,
        identity,
        mut warnings,
        run,
        ..
    } = resumed;
    // Whichever of them is another, the tokens are.
    let of_text = ["source", "target", "tokenizer"].map(|key| format!("`data.{key}` is "));
    let is_told = |warning: &String| of_text.iter().any(|start| warning.starts_with(start));
    if state.text == dataset.digest() {
        // The same tokens under another name. Of a folder of images the digest is that of the names alone.
        warnings.retain(|warning| config.model.vocab().is_none() || !is_told(warning));
    } else if !warnings.iter().any(is_told) {
        warnings.push(format!(
            "`data.source`: {} is not what it was: training uses different samples from here on",
            config.data.source
        ));
    }
    restore_from(&checkpoint, optimizer, assembled)?;
    let (folder, identity) = match run {
        None => {
            let origin = identity.map(|identity| identity.id);
            let identity = Identity::new(VERSION).from_checkpoint(origin, state.step);
            (create(new, config)?, identity)
        }
        Some(run) => {
            let (toml, first) = (config.to_toml()?, state.step + 1);
            let folder = RunFolder::reopen(&run.path, run.lock, &toml, first, machine::now())?;
            (folder, identity.unwrap_or_else(|| Identity::new(VERSION)))
        }
    };
    Ok(StartedRun {
        folder,
        identity,
        made: state.step,
        best: state.best,
        from: Some((checkpoint.folder().to_owned(), warnings)),
    })
}

/// Restores the parameters of a rank that is not the first; returns the steps made.
///
/// # Errors
/// As [`begin`].
pub(crate) fn restore(
    recipe: &Recipe<'_>,
    resumed: &Resumed,
    assembled: &mut Assembled,
) -> Result<u64> {
    restore_from(&resumed.checkpoint, &recipe.optimizer, assembled)?;
    Ok(resumed.state.step)
}

fn restore_from(
    checkpoint: &Checkpoint,
    optimizer: &Optimizer,
    assembled: &mut Assembled,
) -> Result<()> {
    let host = assembled.transit.host();
    let device = host.device(DeviceId::Cpu).map_err(Error::run)?;
    // Parts of which some are missing are an error of `restore`.
    let is_there = |name: &&str| checkpoint.manifest().parts(name) != Ok(Vec::new());
    let there: Vec<&str> = WEIGHTS.into_iter().filter(is_there).collect();
    Ok(checkpoint.restore(
        &there,
        gpipe_hf::from_file,
        &mut assembled.pipeline,
        optimizer,
        &device,
    )?)
}

/// Creates the folder of a new run. An earlier run in the folder stays until [`take_place`].
fn create(new: NewRun, config: &TrainConfig) -> Result<RunFolder> {
    let made = new.make(&config.to_toml()?, machine::now())?;
    let lock = gpipe_checkpoint::Lock::take(made.path())?;
    Ok(made.begin(lock)?)
}

/// Replaces an earlier run in the folder and its checkpoints; until then it stays as it was.
pub(crate) fn take_place(folder: &mut RunFolder, identity: &Identity) -> Result<()> {
    let replaces = folder.replaces();
    if replaces {
        gpipe_checkpoint::remove_all(folder.path()).map_err(Error::run)?;
    }
    folder.take_place()?;
    // Keys of a later version are kept.
    if replaces || Identity::of_run(folder.path())?.is_none() {
        identity.write(folder.path())?;
    }
    Ok(())
}
