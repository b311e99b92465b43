//! When a run saves, and what.

use gpipe_remat::{ModelPipeline, copy_owned};
use gpipe_tensor::{Device, DeviceId};

use super::begin::Begun;
use super::train::Recipe;
use crate::checkpoint::{self, Disk, Saved, Saver, Snapshot, State};
use crate::fail::{Fail, Result};
use crate::machine;
use crate::model_folder::Companions;

/// The checkpoints of a run.
pub struct Saving<'a> {
    recipe: &'a Recipe<'a>,
    saver: Saver<Disk>,
    /// Counts the copies that are being written.
    copies: Device,
    /// The digest of the text.
    text: String,
    /// What lies beside the model.
    companions: Companions,
}

impl<'a> Saving<'a> {
    /// For a run that begins.
    pub fn new(
        recipe: &'a Recipe<'a>,
        begun: &Begun,
        near: &Device,
        companions: Companions,
    ) -> Result<Self> {
        let keep = recipe.config.run.keep.get();
        Ok(Self {
            saver: Saver::new(Disk, begun.folder.path(), keep, begun.best),
            copies: near.host().device(DeviceId::Cpu).map_err(Fail::run)?,
            text: recipe.samples.digest(),
            recipe,
            companions,
        })
    }

    /// Whether a checkpoint is to be made after this step: on the beat, after the last step, and after
    /// the best evaluation so far.
    pub fn is_due(&self, step: u64, held_out_loss: Option<f64>) -> bool {
        let run = &self.recipe.config.run;
        let best = self.saver.best(step, held_out_loss);
        run.save_every.divides(step)
            || step == run.steps.u64()
            || best.is_some_and(|best| best.step == step)
    }

    /// Copies everything and begins to write it. Gives the checkpoint before, which stands by then.
    pub fn save(
        &mut self,
        pipeline: &mut ModelPipeline,
        step: u64,
        held_out_loss: Option<f64>,
    ) -> Result<Option<Saved>> {
        let Recipe {
            config,
            samples,
            optimizer,
            ..
        } = self.recipe;
        if config.run.keep.get() == 0 {
            return Ok(None);
        }
        let state = State {
            step,
            samples: samples.drawn(step),
            text: self.text.clone(),
            held_out_loss,
            best: self.saver.best(step, held_out_loss),
            processor: machine::instructions(),
            version: checkpoint::VERSION.to_owned(),
        };
        let failed = |error| {
            let error = anyhow::Error::new(error);
            Fail::Run(error.context(format!("step {step}: no copy was made to be saved")))
        };
        self.saver.save(Snapshot {
            config: (*config).clone(),
            state,
            owned: copy_owned(pipeline, &self.copies).map_err(failed)?,
            optimizer: optimizer.clone(),
            companions: self.companions.clone(),
        })
    }

    /// The checkpoint that was being written, if it stands by now.
    pub fn poll(&mut self) -> Result<Option<Saved>> {
        self.saver.poll()
    }

    /// The checkpoint that was being written, as soon as it stands.
    pub fn finish(&mut self) -> Result<Option<Saved>> {
        self.saver.finish()
    }
}
