//! What no key can tell alone: keys that make sense each, and none together.

use gpipe_sched::Schedule;

use super::{Config, presets};
use crate::data::{AUTO, DIGITS};
use crate::fail::{Fail, Result};

/// Refuses what makes no sense together.
pub fn check(config: &Config) -> Result<()> {
    let (model, data) = (&config.model, &config.data);
    let perceptron = presets::PERCEPTRON;
    match (model.classifies(), data.source == DIGITS) {
        (true, false) => {
            return Err(Fail::asked(format!(
                "the model {perceptron} reads images, not the text {}: use --data {DIGITS}",
                data.source
            )));
        }
        (false, true) => {
            return Err(Fail::asked(format!(
                "the model {} reads text, and {DIGITS} are images: use --model {perceptron}",
                model.name
            )));
        }
        (true, true) if data.tokenizer != AUTO => {
            return Err(Fail::asked("an image has no tokens: leave --tokenizer out"));
        }
        (true, true) if data.seq_len.get() != 1 => {
            return Err(Fail::asked("an image has no tokens: leave --seq-len out"));
        }
        _ => {}
    }
    if config.run.tf32 && !config.pipeline.devices.has_gpu() {
        return Err(Fail::asked(
            "run.tf32 is for CUDA devices: use --devices cuda:0, or --set run.tf32=false",
        ));
    }
    let (batch, micro_batches) = (
        config.data.batch_size.get(),
        config.pipeline.micro_batches.get(),
    );
    if micro_batches > batch {
        return Err(Fail::asked(format!(
            "{micro_batches} micro-batches but {batch} samples a batch: use --micro-batches {batch} or fewer"
        )));
    }
    let (tokens, context) = (config.data.seq_len.get(), config.model.context.get());
    if tokens > context {
        return Err(Fail::asked(format!(
            "samples of {tokens} tokens but a model of {context} positions: use --seq-len {context} or less, \
             or --set model.context={tokens}"
        )));
    }
    Ok(())
}

/// Refuses other numbers than those of the table: it leaves no choice of stages and micro-batches.
pub fn check_table(config: &Config, table: &Schedule) -> Result<()> {
    let pipeline = &config.pipeline;
    for (what, flag, has, asked) in [
        ("stages", "--stages", table.stages(), pipeline.stages.get()),
        (
            "micro-batches",
            "--micro-batches",
            table.micro_batches(),
            pipeline.micro_batches.get(),
        ),
    ] {
        if has != asked {
            return Err(Fail::asked(format!(
                "--schedule {}: the table has {has} {what} but {asked} are asked for: use {flag} {has}",
                pipeline.schedule
            )));
        }
    }
    Ok(())
}
