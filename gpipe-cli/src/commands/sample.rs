//! `gpipe sample`: text generation from a prompt.

use std::io::{IsTerminal, Write};
use std::num::NonZeroUsize;
use std::time::Instant;

use gpipe_data::StreamDecoder;
use gpipe_layers::Sampling;
use gpipe_report::Event;
use gpipe_train::{Generation, Generator, ModelSource, Setting, TrainConfig};

use super::trained;
use crate::args::{OutputArgs, SampleArgs, Settings};
use crate::fail::{Fail, Result};
use crate::output::{Console, is_silent, print, tell_if_slow};

/// Prints the prompt and the generated text.
pub fn run(args: &SampleArgs, output: OutputArgs) -> Result<()> {
    if args.prompt.iter().any(String::is_empty) {
        return Err(Fail::invalid(
            "--prompt: is empty: use at least one character",
        ));
    }
    let console = Console::new(output, 1)?;
    let source = trained::find(&args.model, &console)?;
    let config = configuration(args, &source)?;
    if config.model.vocab().is_none() {
        return Err(Fail::invalid(format!(
            "{}: the model classifies images and generates no text: use gpipe predict",
            args.model.display()
        )));
    }
    let found = gpipe_train::vocabulary(&config, Some(&source.model))?;
    if let Some(warning) = &found.warning {
        console.warn(warning);
    }
    let vocabulary = &found.vocabulary;
    let tokens = |text: &String| gpipe_train::prompt_tokens(&config, vocabulary, text, "--prompt");
    let prompts: Vec<_> = args
        .prompt
        .iter()
        .map(tokens)
        .collect::<gpipe_train::Result<_>>()?;
    let ends = gpipe_train::end_tokens(&config, vocabulary)?;
    let setup = trained::setup(&config)?;
    let decoder = |prompt: &Vec<u32>| StreamDecoder::new(vocabulary).after(prompt);
    let mut decoders: Vec<StreamDecoder<'_>> = prompts.iter().map(decoder).collect();
    let generation = Generation {
        sampling: Sampling {
            temperature: args.temperature,
            top_k: args.top_k.map(NonZeroUsize::get),
            top_p: args.top_p,
        },
        tokens: args.tokens.get() as usize,
        ends: match args.ignore_end {
            true => Vec::new(),
            false => ends.clone(),
        },
    };
    let mut generator = Generator::new(setup, &config, prompts, generation)?;
    // A single text is written as it comes, several one after the other at the end.
    let streams = !output.json && args.prompt.len() == 1;
    let mut texts = args.prompt.clone();
    if config.model.has_targets() {
        texts.fill(String::new());
    }
    if let Some(beams) = args.beams {
        let search = || generator.beam_search(beams.get());
        let found = match output.quiet {
            true => search(),
            false => tell_if_slow(&format!("searching with {beams} beams"), search),
        };
        let mut tokens = found?.tokens;
        tokens.retain(|token| !ends.contains(token));
        return write(&format!("{}{}\n", texts[0], vocabulary.decode(&tokens)));
    }
    if streams {
        write(&texts[0])?;
    }
    let (start, mut count) = (Instant::now(), 0);
    loop {
        let generated = generator.next_tokens()?;
        if generated.is_empty() {
            break;
        }
        count += generated.len() as u64;
        for one in generated {
            // What ends a text is not part of it.
            let text = match one.ends {
                true => String::new(),
                false => decoders[one.prompt].push(one.token),
            };
            match (output.json, streams) {
                (true, _) => {
                    let event = Event::Token {
                        token: one.token,
                        text,
                        log_probability: one.log_probability,
                        prompt: one.prompt,
                    };
                    print(&event.to_json()?)?;
                }
                (_, true) => write(&text)?,
                _ => texts[one.prompt].push_str(&text),
            }
        }
    }
    if output.json {
        let seconds = start.elapsed().as_secs_f64();
        let event = Event::Sampled {
            tokens: count,
            seconds,
            tokens_per_second: count as f64 / seconds,
        };
        return print(&event.to_json()?);
    }
    for (decoder, text) in decoders.into_iter().zip(texts) {
        let rest = decoder.finish();
        match streams {
            true => write(&format!("{rest}\n"))?,
            false => write(&format!("{text}{rest}\n"))?,
        }
    }
    Ok(())
}

/// The configuration of the run, if there is one, for a single sample.
fn configuration(args: &SampleArgs, source: &ModelSource) -> Result<TrainConfig> {
    let settings = Settings {
        set: args.set.clone(),
        seed: args.seed.clone(),
        tokenizer: args.tokenizer.clone(),
        ..args.workers.clone().into()
    };
    let of_batch = ["data.batch_size", "data.seq_len", "pipeline.micro_batch"];
    let is_set = |set: &&String| of_batch.iter().any(|key| set.trim_start().starts_with(key));
    if let Some(set) = args.set.iter().find(is_set) {
        return Err(Fail::invalid(format!(
            "--set {set}: a text goes on by one token at a time: leave it out"
        )));
    }
    let single = ["data.batch_size", "data.seq_len", "pipeline.micro_batches"];
    let single = single.map(|key| Setting::new(key, 1));
    let layers = settings.lay_over(source.overrides()?)?;
    Ok(source.resolve(layers.layer(single)?)?)
}

/// Prints a part of the text and flushes it. On a terminal, control characters are replaced, since the
/// output of a model is not trusted.
fn write(text: &str) -> Result<()> {
    if is_silent() {
        return Ok(());
    }
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
