//! Cross-field validation.

use gpipe_data::{AUTO, CICERO, DIGITS};
use gpipe_sched::Schedule;

use super::TrainConfig;
use super::presets;
use crate::error::{Error, Result};

/// Refuses combinations of values that exclude each other.
pub fn check(config: &TrainConfig) -> Result<()> {
    let (model, data) = (&config.model, &config.data);
    let perceptron = presets::PERCEPTRON;
    match (model.is_classifier(), data.source == DIGITS) {
        (true, false) => {
            return Err(Error::invalid(format!(
                "the model {perceptron} reads images, not the text {}: use `data.source = {DIGITS}`",
                data.source
            )));
        }
        (false, true) => {
            return Err(Error::invalid(format!(
                "the model {} reads text, and {DIGITS} are images: use {}`data.source = {CICERO}`",
                model.name,
                match model.folder() {
                    Some(_) => String::new(),
                    None => format!("`model.name = {perceptron}`, or "),
                }
            )));
        }
        (true, true) if data.tokenizer != AUTO => {
            return Err(Error::invalid(
                "an image has no tokens: leave `data.tokenizer` out",
            ));
        }
        (true, true) if data.seq_len.get() != 1 => {
            return Err(Error::invalid(
                "an image has no tokens: leave `data.seq_len` out",
            ));
        }
        _ => {}
    }
    if config.run.tf32 && !config.pipeline.devices.has_gpu() {
        return Err(Error::invalid(
            "run.tf32 is for CUDA devices: use `pipeline.devices = cuda:0`, or leave `run.tf32` out",
        ));
    }
    let (batch, micro_batches) = (
        config.data.batch_size.get(),
        config.pipeline.micro_batches.get(),
    );
    if micro_batches > batch {
        return Err(Error::invalid(format!(
            "{micro_batches} micro-batches but {batch} samples a batch: use `pipeline.micro_batches = {batch}` or fewer"
        )));
    }
    let tokens = config.data.seq_len.get();
    if let Some(context) = model.context()
        && tokens > context
    {
        return Err(Error::invalid(format!(
            "samples of {tokens} tokens but a model of {context} positions: use `data.seq_len = {context}` or less{}",
            match model.folder() {
                // The positions of a saved model are parameters.
                Some(_) => String::new(),
                None => format!(", or `model.context = {tokens}`"),
            }
        )));
    }
    Ok(())
}

/// Refuses numbers of stages and micro-batches that differ from those of a schedule table.
pub fn check_table(config: &TrainConfig, table: &Schedule) -> Result<()> {
    let pipeline = &config.pipeline;
    for (what, key, has, configured) in [
        ("stages", "stages", table.stages(), pipeline.stages.get()),
        (
            "micro-batches",
            "micro_batches",
            table.micro_batches(),
            pipeline.micro_batches.get(),
        ),
    ] {
        if has != configured {
            return Err(Error::invalid(format!(
                "`pipeline.schedule = {}`: the table has {has} {what} but the configuration {configured}: use \
                 `pipeline.{key} = {has}`",
                pipeline.schedule
            )));
        }
    }
    Ok(())
}
