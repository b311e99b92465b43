//! Saving checkpoints during a run.

use std::sync::Arc;
use std::time::Instant;

use gpipe_checkpoint::{Best, RunState, Saved, Saver, SaverOptions, Snapshot};
use gpipe_hf::Companions;
use gpipe_remat::{ModelPipeline, copy_owned};
use gpipe_report::RunFolder;
use gpipe_tensor::{Device, DeviceId};

use crate::error::{Error, Result};
use crate::machine;
use crate::resume::VERSION;
use crate::training_loop::Recipe;

/// Saves checkpoints of a run in the background.
pub(crate) struct Autosave<'a> {
    recipe: &'a Recipe<'a>,
    saver: Saver,
    /// The device that owns the copies being written, and counts their bytes.
    copies: Device,
    /// The digest of the dataset.
    digest: String,
    /// The files saved next to the model.
    companions: Companions,
    config: String,
}

impl<'a> Autosave<'a> {
    /// Prepares saving to the folder of a run; `best` is the best evaluation before a resume.
    pub fn new(
        recipe: &'a Recipe<'a>,
        folder: &RunFolder,
        best: Option<Best>,
        near: &Device,
        companions: Companions,
    ) -> Result<Self> {
        let started = Instant::now();
        let options = SaverOptions {
            keep: recipe.config.run.keep.get(),
            best,
            clock: Arc::new(move || started.elapsed()),
        };
        Ok(Self {
            saver: Saver::new(folder.path(), options),
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

    /// Copies the parameters and starts to write them. Returns the previous checkpoint, which is
    /// complete.
    pub fn save(
        &mut self,
        pipeline: &mut ModelPipeline,
        step: u64,
        held_out_loss: Option<f64>,
    ) -> Result<Option<Saved>> {
        let Recipe {
            config,
            dataset,
            optimizer,
            ..
        } = self.recipe;
        if config.run.keep.get() == 0 {
            return Ok(None);
        }
        let state = RunState {
            step,
            samples: dataset.samples_drawn(step),
            text: self.digest.clone(),
            held_out_loss,
            best: self.saver.best(step, held_out_loss),
            processor: machine::instructions(*config.run.instruction_set),
            version: VERSION.to_owned(),
        };
        let failed = |error| {
            Error::run_in(
                format!("step {step}: copying the parameters for a checkpoint"),
                error,
            )
        };
        let (model, companions) = (config.model.config(), self.companions.clone());
        Ok(self.saver.save(Snapshot {
            state,
            params: copy_owned(pipeline, &self.copies).map_err(failed)?,
            optimizer: optimizer.clone(),
            config: self.config.clone(),
            model: Box::new(move |values| {
                gpipe_hf::to_files(&model, values, &companions).map_err(Into::into)
            }),
        })?)
    }

    /// The checkpoint in progress, if it is complete.
    pub fn poll(&mut self) -> Result<Option<Saved>> {
        Ok(self.saver.poll()?)
    }

    /// Waits for the checkpoint in progress.
    pub fn finish(&mut self) -> Result<Option<Saved>> {
        Ok(self.saver.finish()?)
    }
}
