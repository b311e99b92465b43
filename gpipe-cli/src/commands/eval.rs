//! `gpipe eval`: how well a model says a text, through the pipeline's forward-only path.

use gpipe_layers::Loss;
use gpipe_remat::LossTurn;

use super::train::{Recipe, evaluate};
use crate::args::{EvalArgs, Settings, Talk};
use crate::config;
use crate::data::{self, Found};
use crate::fail::Result;
use crate::model_folder;
use crate::output::{Console, Event, numbers, print};
use crate::setup::Setup;

/// Evaluates a model on the text that its run held out, or on all of another.
pub fn run(args: &EvalArgs, talk: Talk) -> Result<()> {
    let console = Console::new(talk, 1)?;
    let place = model_folder::find(&args.model)?;
    for warning in &place.warnings {
        console.warn(warning)?;
    }
    let of_run = place.run.is_some();
    let config = config::resolve(&Settings {
        config: place.run,
        model: Some(place.model.to_string_lossy().into_owned()),
        data: args.data.clone(),
        // The checkpoint has the tokenizer of its run.
        tokenizer: args.tokenizer.clone().or_else(|| Some(data::AUTO.into())),
        seq_len: args.seq_len.clone(),
        batch_size: args.batch_size.clone(),
        set: args.set.clone(),
        ..args.workers.settings()
    })?;
    let classifies = config.model.classifies();
    let known = config.model.vocab.get();
    let found = match classifies {
        true => Found::bytes(),
        false => data::find_vocabulary(&config.data.tokenizer, Some(&place.model), known)?,
    };
    if let Some(warning) = &found.warning {
        console.warn(warning)?;
    }
    let held_out = of_run && args.data.is_none() && config.run.eval_every.get() > 0;
    let samples = match held_out {
        true => data::samples(&config, &found.vocabulary)?,
        false => data::all_samples(&config, &found.vocabulary)?,
    };
    let mut setup = Setup::new(&config)?;
    setup.open_weights(&config)?;
    setup.check_memory(&config)?;
    let held_out = samples.held_out();
    let tokens = (held_out.end - held_out.start) * samples.length() as u64;
    let [_, unit] = config.model.unit();
    let cut = match classifies {
        true => String::new(),
        false => format!(" in samples of {}", samples.length()),
    };
    console.say(&format!(
        "{}: {} parameters; {}: {} {unit}{cut}",
        config.model.name,
        numbers::short(setup.parameters as f64),
        config.data.source,
        numbers::short(tokens as f64),
    ))?;
    let recipe = Recipe {
        config: &config,
        samples: &samples,
        optimizer: setup.optimizer.clone(),
        learning_rate: setup.learning_rate.clone(),
    };
    let mut assembled = setup.assemble_to(&config, |last, transit| {
        LossTurn::new(Loss::CrossEntropy, last, transit)
    })?;
    let found = evaluate(&recipe, &mut assembled.pipeline, &assembled.transit, 1)?;
    if talk.json {
        return print(&Event::eval(None, found.loss, found.accuracy, found.targets).to_json()?);
    }
    let perplexity = match classifies {
        true => String::new(),
        false => format!("  perplexity {:.3}", found.loss.exp()),
    };
    print(&format!(
        "loss {:.4}{perplexity}  accuracy {}  {unit} {}",
        found.loss,
        numbers::per_mille(found.accuracy),
        found.targets
    ))
}
