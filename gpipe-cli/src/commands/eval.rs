//! `gpipe eval`: the loss of a model on a text.

use gpipe_remat::TrainingLoss;
use gpipe_report::{Event, numbers};
use gpipe_train::{Recipe, Setup, TrainConfig, evaluate, printable};

use super::train::kernel_cache;
use crate::args::{EvalArgs, OutputArgs, Settings};
use crate::fail::{Result, with_flags};
use crate::output::{Console, print};
use crate::ranks;

/// Evaluates a model on the held-out part of its run, or on all of another text.
pub fn run(args: &EvalArgs, output: OutputArgs) -> Result<()> {
    let console = Console::new(output, 1)?;
    let source = gpipe_train::find(&args.model)?;
    for warning in &source.warnings {
        console.warn(warning);
    }
    let config = configuration(args, &source)?;
    if let Some(folder) = &args.save_merged {
        gpipe_train::check_merge(&config, folder)?;
    }
    let is_classifier = config.model.is_classifier();
    let found = gpipe_train::vocabulary(&config, Some(&source.model))?;
    let sets_source = |set: &String| set.trim_start().starts_with("data.source");
    let is_other = args.data.is_some() || args.set.iter().any(sets_source);
    let held_out = source.run.is_some() && !is_other && config.run.eval_every.get() > 0;
    let dataset = match held_out {
        true => gpipe_train::dataset(&config, &found.vocabulary)?,
        false => gpipe_train::held_out_dataset(&config, &found.vocabulary)?,
    };
    let changed = source.changed_data(&config, &dataset);
    let warnings = dataset.warnings().iter().chain(&found.warning);
    for warning in warnings.chain(&changed) {
        console.warn(&with_flags(warning));
    }
    let setup = Setup::forward_only_over(&config, ranks::world().as_ref())?;
    let mut setup = setup.with_kernel_cache(kernel_cache().as_deref());
    setup.open_weights(&config)?;
    setup.check_memory(&config)?;
    let [_, unit] = config.model.unit();
    let held_out_samples = dataset.held_out().end - dataset.held_out().start;
    // A mask has a target for each of its pixels.
    let count = |targets| match is_classifier {
        true => held_out_samples,
        false => targets,
    };
    let cut = match is_classifier {
        true => String::new(),
        false => format!(" in samples of {}", dataset.targets_per_sample()),
    };
    let targets = count(dataset.held_out_targets());
    let singular = unit.strip_suffix('s').filter(|_| targets == 1);
    let noun = singular.unwrap_or(unit);
    console.say(&format!(
        "{}: {} parameters; {}: {} {noun}{cut}",
        config.model.name,
        numbers::short(setup.parameters as f64),
        printable(&config.data.source),
        numbers::short(targets as f64),
    ));
    let recipe = Recipe {
        config: &config,
        dataset: &dataset,
        optimizer: setup.optimizer.clone(),
        learning_rate: setup.learning_rate.clone(),
    };
    let loss = config.loss().of_evaluation();
    let mut assembled = setup.assemble_to(&config, move |last, transit| {
        TrainingLoss::new(loss, last, transit)
    })?;
    if let Some(folder) = &args.save_merged {
        gpipe_train::save_merged(&config, &source, &found, &mut assembled, folder)?;
    }
    let found = evaluate(&recipe, &mut assembled.pipeline, &assembled.transit, 1)?;
    if output.json {
        let event = Event::eval(None, found.loss, found.accuracy, found.targets);
        return print(&event.to_json()?);
    }
    let perplexity = match is_classifier {
        true => String::new(),
        false => format!("  perplexity {}", numbers::figure(found.loss.exp(), 3)),
    };
    print(&format!(
        "loss {}{perplexity}  accuracy {}  {unit} {}",
        numbers::figure(found.loss, 4),
        numbers::per_mille(found.accuracy),
        count(found.targets)
    ))
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
