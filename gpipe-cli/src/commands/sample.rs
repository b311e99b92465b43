//! `gpipe sample`: text generation from a prompt.

use std::io::{IsTerminal, Write};

use gpipe_data::{AUTO, StreamDecoder};
use gpipe_layers::Sampling;
use gpipe_report::Event;
use gpipe_train::{Generator, ModelSource, Overrides, Setting, Setup, TrainConfig};

use super::train::kernel_cache;
use crate::args::{OutputArgs, SampleArgs, environment, set};
use crate::fail::{Fail, Result};
use crate::output::{Console, print};

/// Prints the prompt and the generated text.
pub fn run(args: &SampleArgs, output: OutputArgs) -> Result<()> {
    let sampling = sampling(args)?;
    let source = gpipe_train::find(&args.model)?;
    let console = Console::new(output, 1)?;
    for warning in &source.warnings {
        console.warn(warning);
    }
    let config = configuration(args, &source)?;
    let Some(vocab) = config.model.vocab() else {
        return Err(Fail::invalid(format!(
            "{}: the model classifies images and generates no text: use gpipe eval",
            args.model.display()
        )));
    };
    let found = gpipe_train::vocabulary(&config, Some(&source.model))?;
    if let Some(warning) = &found.warning {
        console.warn(warning);
    }
    let vocabulary = &found.vocabulary;
    let prompt = vocabulary
        .encode(args.prompt.clone().into_bytes(), 1, "--prompt")
        .map_err(gpipe_train::Error::from)?;
    if prompt.is_empty() {
        return Err(Fail::invalid(
            "--prompt: the tokenizer has no tokens for it: use another",
        ));
    }
    if let Some(token) = prompt.iter().find(|&&token| token as usize >= vocab) {
        return Err(Fail::invalid(format!(
            "--prompt: token {token} is beyond the {vocab} tokens of the model: use another"
        )));
    }
    let mut setup = Setup::new(&config)?.with_kernel_cache(kernel_cache().as_deref());
    setup.open_weights(&config)?;
    setup.check_memory(&config)?;
    let mut decoder = StreamDecoder::new(vocabulary).after(&prompt);
    let mut generator = Generator::new(setup, &config, prompt, sampling)?;
    if !output.json {
        write(&args.prompt)?;
    }
    for _ in 0..args.tokens {
        let (token, log_probability) = generator.next_token()?;
        let text = decoder.push(token);
        match output.json {
            true => {
                let event = Event::Token {
                    token,
                    text,
                    log_probability,
                };
                print(&event.to_json()?)?;
            }
            false => write(&text)?,
        }
    }
    match output.json {
        true => Ok(()),
        false => write(&format!("{}\n", decoder.finish())),
    }
}

/// The configuration of the run, if there is one, for a single sample.
fn configuration(args: &SampleArgs, source: &ModelSource) -> Result<TrainConfig> {
    let overrides = match &source.run {
        Some(file) => Overrides::new().file(file)?.forward_only(),
        None => Overrides::new(),
    };
    let mut settings = args.workers.settings();
    let model = source.model.to_string_lossy().into_owned();
    settings.push(Setting::new("model.name", model));
    for key in ["data.batch_size", "pipeline.micro_batches", "data.seq_len"] {
        settings.push(Setting::new(key, 1));
    }
    if let Some(seed) = &args.seed {
        settings.push(Setting::text(format!("--seed {seed}"), "run.seed", seed));
    }
    settings.push(match &args.tokenizer {
        Some(file) => Setting::text(format!("--tokenizer {file}"), "data.tokenizer", file),
        // The checkpoint has the tokenizer of its run.
        None => Setting::new("data.tokenizer", AUTO),
    });
    let overrides = overrides.layer(environment())?;
    let overrides = overrides.layer(set(&args.set)?)?.layer(settings)?;
    Ok(overrides.resolve()?)
}

fn sampling(args: &SampleArgs) -> Result<Sampling> {
    let SampleArgs {
        temperature,
        top_k,
        tokens,
        prompt,
        ..
    } = args;
    if !temperature.is_finite() || *temperature < 0.0 {
        return Err(Fail::invalid(format!(
            "--temperature {temperature}: use a finite number from 0 up; 0 takes the most likely token"
        )));
    }
    if *top_k == Some(0) {
        return Err(Fail::invalid("--top-k 0: use a whole number from 1 up"));
    }
    if *tokens == 0 {
        return Err(Fail::invalid("--tokens 0: use a whole number from 1 up"));
    }
    if prompt.is_empty() {
        return Err(Fail::invalid(
            "--prompt: is empty: use at least one character",
        ));
    }
    Ok(Sampling {
        temperature: *temperature,
        top_k: *top_k,
    })
}

/// Prints a part of the text and flushes it. On a terminal, control characters are replaced, since the
/// output of a model is not trusted.
fn write(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let is_harmless = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    let marked = |c| {
        if is_harmless(c) {
            c
        } else {
            char::REPLACEMENT_CHARACTER
        }
    };
    let text = match stdout.is_terminal() {
        true => text.chars().map(marked).collect(),
        false => text.to_owned(),
    };
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(Fail::write("to stdout"))
}
