//! Saving checkpoints during a run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use gpipe_checkpoint::{MODEL, ModelWeights, Part, RunState, Saved, Saver, SaverOptions, Snapshot};
use gpipe_hf::Companions;
use gpipe_layers::Optimizer;
use gpipe_remat::{
    Lender, Lent, ModelPipeline, NonFiniteState, first_non_finite_state, lend_last, lend_owned,
};
use gpipe_sched::{Busy, World};
use gpipe_tensor::safetensors::FileContents;
use gpipe_tensor::{Device, DeviceId};

use crate::error::{BoxedError, Error, Result};
use crate::launch::VERSION;
use crate::machine;
use crate::model_source::ADAPTER;
use crate::resume::{StartedRun, WEIGHTS};
use crate::shell::quoted;
use crate::training_loop::Recipe;

/// Saves checkpoints of a run in the background.
pub(crate) struct Autosave<'a> {
    recipe: &'a Recipe<'a>,
    saver: Saver,
    /// Held until the checkpoint in progress is complete: ranks that fail wait for it. Dropped behind the saver, which
    /// waits for it too.
    busy: Option<Busy>,
    /// The folder of the run.
    run: PathBuf,
    /// The device that owns the copies being written, and counts their bytes.
    copies: Device,
    /// The digest of the dataset.
    digest: String,
    /// The files saved next to the model.
    companions: Companions,
    config: String,
    /// The newest checkpoint and its step.
    newest: Option<(u64, PathBuf)>,
}

impl<'a> Autosave<'a> {
    /// Prepares saving to the folder of a run.
    pub fn new(
        recipe: &'a Recipe<'a>,
        run: &StartedRun,
        near: &Device,
        companions: Companions,
    ) -> Result<Self> {
        let started = Instant::now();
        let options = SaverOptions {
            keep: recipe.config.run.keep.get(),
            best: run.best,
            clock: Arc::new(move || started.elapsed()),
        };
        Ok(Self {
            saver: Saver::new(run.folder.path(), options).of_run(run.identity.clone()),
            busy: None,
            run: run.folder.path().to_owned(),
            newest: run.from.as_ref().map(|(path, _)| (run.made, path.clone())),
            copies: near.host().device(DeviceId::Cpu).map_err(Error::run)?,
            digest: recipe.dataset.digest(),
            config: recipe.config.to_toml()?,
            recipe,
            companions,
        })
    }

    /// Whether to save after this step: every `run.save_every` steps, after the last step, and after the
    /// best evaluation so far.
    pub fn is_due(&self, step: u64, held_out_loss: Option<f64>) -> bool {
        let run = &self.recipe.config.run;
        let best = self.saver.best(step, held_out_loss);
        run.save_every.divides(step)
            || step == run.steps.u64()
            || best.is_some_and(|best| best.step == step)
    }

    /// Completes the previous checkpoint, which it returns, copies the parameters and starts to write them. Those of
    /// other ranks stay there: the ranks [write](give) them, or give them when they are written. After the last step of
    /// a run (`is_last`), nothing changes them any more, and those on the processor are written without a copy. A state
    /// that is not finite is refused: in the place of an older checkpoint it would leave the run nothing to go on from.
    pub fn save(
        &mut self,
        pipeline: &mut ModelPipeline,
        step: u64,
        held_out_loss: Option<f64>,
        is_last: bool,
    ) -> Result<Option<Saved>> {
        let Recipe {
            config,
            dataset,
            optimizer,
            ..
        } = self.recipe;
        let copying = |error: BoxedError| {
            let what = format!("step {step}: copying the parameters for a checkpoint");
            Error::run_in(what, error)
        };
        let fault = first_non_finite_state(pipeline);
        if let Some(fault) = fault.map_err(|error| copying(error.into()))? {
            return Err(not_finite(step, &fault, optimizer));
        }
        if config.run.keep.get() == 0 {
            return Ok(None);
        }
        // Its copies go before the next are made. It stands, also where these cannot be made.
        let before = self.finish()?;
        let state = RunState {
            step,
            samples: dataset.samples_drawn(step),
            text: self.digest.clone(),
            held_out_loss,
            best: self.saver.best(step, held_out_loss),
            processor: machine::instructions(*config.run.instruction_set),
            version: VERSION.to_owned(),
        };
        let (model, companions) = (config.model.config(), self.companions.clone());
        let (lora, base) = (config.lora.settings(), config.model.name.clone());
        let lent = lend(pipeline, &self.copies, is_last);
        let (lent, _) = lent.map_err(|error| copying(error.into()))?;
        self.busy = pipeline.world().map(World::busy);
        self.saver.save(Snapshot {
            state,
            lent,
            weights: OF_MODEL,
            optimizer: optimizer.clone(),
            config: self.config.clone(),
            model: Box::new(move |values| {
                let of_model = gpipe_hf::to_files(&model, values, &companions)?;
                let mut files = below(MODEL, of_model);
                if let Some(settings) = lora {
                    let adapter = gpipe_hf::adapter_files(&model, values, settings, &base)?;
                    files.extend(below(ADAPTER, adapter));
                }
                Ok(files)
            }),
        })?;
        Ok(before)
    }

    /// Saves the state that a failed step left, beside all older checkpoints, and waits for it.
    pub fn save_last(&mut self, pipeline: &mut ModelPipeline, step: u64) -> Result<Option<Saved>> {
        self.saver.keep_older();
        self.save(pipeline, step, None, true)?;
        self.finish()
    }

    /// The checkpoint in progress, if it is complete.
    pub fn poll(&mut self) -> Result<Option<Saved>> {
        let saved = self.saver.poll()?;
        if saved.is_some() {
            self.busy = None;
        }
        Ok(self.noted(saved))
    }

    /// Waits for the checkpoint in progress.
    pub fn finish(&mut self) -> Result<Option<Saved>> {
        let saved = self.saver.finish();
        self.busy = None;
        Ok(self.noted(saved?))
    }

    /// The newest complete checkpoint, if nobody has removed it.
    pub fn newest(&self) -> Option<&Path> {
        let newest = self.newest.as_ref().map(|(_, path)| path.as_path());
        newest.filter(|path| path.is_dir())
    }

    /// The step of the newest complete checkpoint; 0 if there is none.
    pub fn newest_step(&self) -> u64 {
        self.newest.as_ref().map_or(0, |(step, _)| *step)
    }

    /// What is left of a run that failed after `made` steps, and how to go on from there. `before` is its
    /// newest checkpoint but for the one of the failure.
    pub fn left(&self, error: &Error, made: u64, before: Option<&Path>) -> String {
        let Some((step, path)) = &self.newest else {
            return "no checkpoint was saved".to_owned();
        };
        if !path.is_dir() {
            return format!(
                "the newest checkpoint, {}, is no longer there",
                path.display()
            );
        }
        let path = path.as_path();
        let resume =
            |from: &Path| format!("gpipe train --resume {}", quoted(&from.to_string_lossy()));
        // That of another run, which goes on in this folder.
        let command = match path.starts_with(&self.run) {
            true => resume(&self.run),
            false => format!("{} --out NEW", resume(path)),
        };
        if *step < made {
            return format!(
                "the newest checkpoint is {}: {command} continues from it",
                path.display()
            );
        }
        match before.filter(|&before| before != path && before.is_dir()) {
            _ if !error.is_non_finite() => {
                format!("saved after step {step}: {command} continues")
            }
            Some(before) => format!(
                "saved after step {step}, and from there it fails again: {} --out NEW continues from an earlier one",
                resume(before)
            ),
            None => format!(
                "saved after step {step}, and from there it fails again: begin anew, or resume an \
                 earlier checkpoint into a new folder"
            ),
        }
    }

    fn noted(&mut self, saved: Option<Saved>) -> Option<Saved> {
        if let Some(saved) = &saved {
            self.newest = Some((saved.step, saved.folder.clone()));
        }
        saved
    }
}

/// The weights of the model, which ranks write in parts. Adapters are small, and `peft` opens no parts.
const OF_MODEL: ModelWeights = ModelWeights {
    name: WEIGHTS[0],
    contents: |values| Ok(gpipe_hf::weights_file(values)?),
};

/// What rank 0 asks of the others when it saves ([`Autosave::save`]): to write what they have, or copies, which it fetches
/// while it writes; after the last step the tensors themselves.
pub(crate) fn give(
    recipe: &Recipe<'_>,
    pipeline: &mut ModelPipeline,
    copies: &Device,
    lender: &mut Lender,
    is_last: bool,
) -> Result<()> {
    let found = first_non_finite_state(pipeline).map_err(Error::run)?;
    if found.is_none() && recipe.config.run.keep.get() > 0 {
        // The copies for the checkpoint before go first.
        lender.wait();
        let lent;
        (lent, *lender) = lend(pipeline, copies, is_last).map_err(Error::run)?;
        let part = Part {
            params: lent.params,
            optimizer: recipe.optimizer.clone(),
            weights: OF_MODEL,
        };
        lender.start(part.answer()).map_err(Error::run)?;
    }
    Ok(())
}

fn lend(
    pipeline: &mut ModelPipeline,
    copies: &Device,
    is_last: bool,
) -> gpipe_remat::Result<(Lent, Lender)> {
    match is_last {
        true => lend_last(pipeline, copies),
        false => lend_owned(pipeline, copies),
    }
}

/// Files with their names in a folder of the checkpoint.
fn below(folder: &str, files: Vec<(String, FileContents)>) -> Vec<(String, FileContents)> {
    let files = files.into_iter();
    let named = files.map(|(name, contents)| (format!("{folder}/{name}"), contents));
    named.collect()
}

/// Gradients were finite and the update was not: a rate that is too high.
fn not_finite(step: u64, fault: &NonFiniteState, optimizer: &Optimizer) -> Error {
    let NonFiniteState { name, state, found } = fault;
    let what = match state.and_then(|state| optimizer.state_names().get(state).copied()) {
        Some(state) => format!("{state} of {name}"),
        None => name.clone(),
    };
    Error::run(format!(
        "step {step}: {what} is {found} after the update, which is not saved: lower `optimizer.lr`"
    ))
}
