//! The state from which a run starts: fresh, or a checkpoint.

use std::path::{Path, PathBuf};

use gpipe_checkpoint::{Best, Resumed};
use gpipe_data::{AUTO, FoundVocabulary, find_vocabulary};
use gpipe_hf::Companions;
use gpipe_remat::Assembled;
use gpipe_report::{NewRun, RunFolder};
use gpipe_tensor::DeviceId;

use crate::changes::changes;
use crate::config::{Overrides, TrainConfig};
use crate::dataset::model_files_tokenizer;
use crate::error::{Error, Result};
use crate::machine;
use crate::training_loop::Recipe;

/// The weights of a checkpoint, by their name in its manifest.
const WEIGHTS: &str = "model/model.safetensors";

/// The version that a checkpoint notes.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A configuration, and the checkpoint that its run goes on from, if there is one.
pub struct StartPoint {
    /// What is run: as given, over the configuration of the checkpoint.
    pub config: TrainConfig,
    pub(crate) resumed: Option<Resumed>,
    pub(crate) vocabulary: FoundVocabulary,
    pub(crate) companions: Companions,
}

/// A run that has its folder, and the parameters that it starts with.
pub(crate) struct StartedRun {
    /// Its folder.
    pub folder: RunFolder,
    /// Steps that were made before.
    pub made: u64,
    /// The best evaluation before.
    pub best: Option<Best>,
    /// The folder of the checkpoint, and what is to be known about going on from it.
    pub from: Option<(PathBuf, Vec<String>)>,
}

impl StartPoint {
    /// A new run.
    ///
    /// # Errors
    /// If the tokenizer of the model cannot be read.
    pub fn fresh(config: TrainConfig) -> Result<Self> {
        let folder = config.model.folder().map(Path::to_owned);
        Self::of(config, folder.as_deref(), None, None)
    }

    /// The newest whole checkpoint of the run in `folder`, or the checkpoint that `folder` is, with its
    /// configuration under `changes`. The run goes on in its own folder, which is locked from here on,
    /// unless `out` names a new one.
    ///
    /// # Errors
    /// If there is no whole checkpoint, another process writes the run, or a change does not fit the
    /// checkpoint.
    pub fn resume(
        folder: &Path,
        out: Option<&Path>,
        changes_of: impl FnOnce(Overrides) -> Result<Overrides>,
    ) -> Result<Self> {
        let memory = machine::memory().unwrap_or(u64::MAX);
        let mut resumed = gpipe_checkpoint::resume(folder, out.is_none(), memory)?;
        let checkpoint = resumed.checkpoint.folder().to_owned();
        if let Some(out) = out
            && let (Ok(out), Ok(from)) = (out.canonicalize(), checkpoint.canonicalize())
            && from.starts_with(&out)
        {
            return Err(Error::invalid(format!(
                "--out {}: is the run that goes on: leave --out away, or choose another folder",
                out.display()
            )));
        }
        let file = checkpoint.join(gpipe_checkpoint::CONFIG);
        let model = checkpoint.join(gpipe_checkpoint::MODEL);
        let of_run = || Ok::<_, Error>(Overrides::new().file(&file)?.saved_model(&model));
        let saved = of_run()?.resolve()?;
        let config = changes_of(of_run()?)?.resolve()?;
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
        // The checkpoint has the tokenizer with which it was trained, if it was one.
        let same = config.data.tokenizer == saved.data.tokenizer;
        let choice = same.then_some(AUTO);
        Self::of(config, Some(&model), choice, Some(resumed))
    }

    /// The rest, for a model from this folder.
    fn of(
        config: TrainConfig,
        folder: Option<&Path>,
        choice: Option<&str>,
        resumed: Option<Resumed>,
    ) -> Result<Self> {
        let choice = choice.unwrap_or(&config.data.tokenizer);
        let (vocabulary, companions) = match config.model.vocab() {
            None => (FoundVocabulary::bytes(), Companions::default()),
            Some(known) => {
                let of_model = model_files_tokenizer(choice, folder)?;
                let vocabulary = find_vocabulary(choice, of_model.as_deref(), known)?;
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

    /// Steps that were made before, and samples that were drawn.
    pub fn position(&self) -> (u64, u64) {
        let state = self.resumed.as_ref().map(|resumed| &resumed.state);
        state.map_or((0, 0), |state| (state.step, state.samples))
    }

    /// Whether all steps were made before.
    pub fn is_finished(&self) -> bool {
        self.position().0 == self.config.run.steps.u64()
    }
}

/// Makes the run's folder, or opens it again and restores what the checkpoint holds.
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
            made: 0,
            best: None,
            from: None,
        });
    };
    let Resumed {
        checkpoint,
        state,
        mut warnings,
        run,
        ..
    } = resumed;
    if state.text != dataset.digest() {
        warnings.push(format!(
            "data.source: the text of {} is not what it was: other samples are trained on from here on",
            config.data.source
        ));
    }
    let host = assembled.transit.host();
    let device = host.device(DeviceId::Cpu).map_err(Error::run)?;
    checkpoint.restore(WEIGHTS, &mut assembled.pipeline, optimizer, &device)?;
    let folder = match run {
        None => create(new, config)?,
        Some(run) => {
            warnings.extend(run.set_damaged_aside()?);
            let (toml, first) = (config.to_toml()?, state.step + 1);
            RunFolder::reopen(&run.path, run.lock, &toml, first, machine::now())?
        }
    };
    Ok(StartedRun {
        folder,
        made: state.step,
        best: state.best,
        from: Some((checkpoint.folder().to_owned(), warnings)),
    })
}

/// Makes the folder of a new run. Checkpoints of an earlier run in the same place are removed.
fn create(new: NewRun, config: &TrainConfig) -> Result<RunFolder> {
    let made = new.make(&config.to_toml()?, machine::now())?;
    let lock = gpipe_checkpoint::Lock::take(made.path())?;
    gpipe_checkpoint::remove_all(made.path()).map_err(Error::input)?;
    Ok(made.begin(lock)?)
}
