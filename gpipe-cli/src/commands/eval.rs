//! `gpipe eval`: the loss of a model on a text.

use gpipe_train::{Recipe, TrainConfig, evaluate, evaluation_heading};

use super::trained;
use crate::args::{EvalArgs, OutputArgs, Settings};
use crate::fail::{Result, with_flags};
use crate::output::{Console, print};

/// Evaluates a model on the held-out part of its run, or on all of another text.
pub fn run(args: &EvalArgs, output: OutputArgs) -> Result<()> {
    let console = Console::new(output, 1)?;
    let source = trained::find(&args.model, &console)?;
    let config = configuration(args, &source)?;
    if let Some(folder) = &args.save_merged {
        gpipe_train::check_merge(&config, folder)?;
    }
    let found = gpipe_train::vocabulary(&config, Some(&source.model))?;
    let sets_source = |set: &String| set.trim_start().starts_with("data.source");
    let is_other = args.data.is_some() || args.set.iter().any(sets_source);
    let dataset = source.evaluation_dataset(&config, &found.vocabulary, is_other)?;
    let changed = source.changed_data(&config, &dataset);
    let warnings = dataset.warnings().iter().chain(&found.warning);
    for warning in warnings.chain(&changed) {
        console.warn(&with_flags(warning));
    }
    let setup = trained::setup(&config)?;
    let heading = evaluation_heading(&config, setup.parameters, &dataset);
    console.say(&heading);
    let recipe = Recipe {
        config: &config,
        dataset: &dataset,
        optimizer: setup.optimizer.clone(),
        learning_rate: setup.learning_rate.clone(),
    };
    let mut assembled = setup.assemble_for_evaluation(&config)?;
    if let Some(folder) = &args.save_merged {
        gpipe_train::save_merged(&config, &source, &found, &mut assembled, folder)?;
    }
    let found = evaluate(&recipe, &mut assembled.pipeline, &assembled.transit, 1)?;
    if output.json {
        return print(&found.event(None).to_json()?);
    }
    print(&found.lines(&config, &dataset))
}

/// The configuration of the run, if there is one, with the flags.
fn configuration(args: &EvalArgs, source: &gpipe_train::ModelSource) -> Result<TrainConfig> {
    let settings = Settings {
        set: args.set.clone(),
        data: args.data.clone(),
        target: args.target.clone(),
        tokenizer: args.tokenizer.clone(),
        seq_len: args.seq_len.clone(),
        batch_size: args.batch_size.clone(),
        ..args.workers.clone().into()
    };
    Ok(source.resolve(settings.lay_over(source.overrides()?)?)?)
}
