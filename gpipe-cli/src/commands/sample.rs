//! `gpipe sample`: text from a model, token by token, through the pipeline's forward-only path.

use std::io::{IsTerminal, Write};

use gpipe_layers::{Choice, Sampling};
use gpipe_remat::{Assembled, OutputTurn};
use gpipe_sched::{Item, MicroBatch};
use gpipe_tensor::philox::Key;
use gpipe_tensor::{Tensor, Tensors};

use crate::args::{SampleArgs, Settings, Talk};
use crate::config;
use crate::data::{self, Found, Speaker};
use crate::fail::{Fail, Result};
use crate::model_folder;
use crate::output::{Console, Event, print};
use crate::setup::Setup;

/// The name under which random numbers are drawn: a token is a function of (seed, its number).
const DRAWS: &str = "sample";

/// Says a text that begins with the prompt.
pub fn run(args: &SampleArgs, talk: Talk) -> Result<()> {
    let sampling = checked(args)?;
    let place = model_folder::find(&args.model)?;
    let console = Console::new(talk, 1)?;
    for warning in &place.warnings {
        console.warn(warning)?;
    }
    let config = config::resolve(&Settings {
        config: place.run,
        model: Some(place.model.to_string_lossy().into_owned()),
        batch_size: Some("1".into()),
        micro_batches: Some("1".into()),
        seq_len: Some("1".into()),
        seed: args.seed.clone(),
        // The checkpoint has the tokenizer of its run.
        tokenizer: args.tokenizer.clone().or_else(|| Some(data::AUTO.into())),
        ..args.workers.settings()
    })?;
    if config.model.classifies() {
        return Err(Fail::asked(format!(
            "{}: the model classifies images and says no text: gpipe eval says how well",
            args.model.display()
        )));
    }
    let (context, vocab) = (config.model.context.get(), config.model.vocab.get());
    let Found {
        vocabulary,
        warning,
        ..
    } = data::find_vocabulary(&config.data.tokenizer, Some(&place.model), vocab)?;
    if let Some(warning) = warning {
        console.warn(&warning)?;
    }
    let prompt = args.prompt.clone().into_bytes();
    let mut known = vocabulary.tokens(prompt, 1, "--prompt")?;
    if known.is_empty() {
        return Err(Fail::asked(
            "--prompt: the tokenizer makes no tokens of it: use another",
        ));
    }
    if let Some(token) = known.iter().find(|&&token| token as usize >= vocab) {
        return Err(Fail::asked(format!(
            "--prompt: token {token} is beyond the {vocab} tokens that the model knows: use another"
        )));
    }
    let mut setup = Setup::new(&config)?;
    setup.open_weights(&config)?;
    setup.check_memory(&config)?;
    let mut assembled = setup.assemble_to(&config, |last, _| OutputTurn::new(last))?;

    let draws = Key::new(config.run.seed.u64(), DRAWS, 0).sample(0);
    let mut speaker = Speaker::new(&vocabulary).after(&known);
    if !talk.json {
        say(&args.prompt)?;
    }
    for number in 0..args.tokens {
        let window = known[known.len().saturating_sub(context)..].to_vec();
        let draw = f64::from(draws.uniform(number.into()));
        let Choice {
            token,
            log_probability,
        } = next(&mut assembled, window, sampling, draw)?;
        // Fits: the model has fewer tokens than there are 32-bit numbers.
        let token = token as u32;
        known.push(token);
        let text = speaker.say(token);
        match talk.json {
            true => print(
                &Event::Token {
                    token,
                    text,
                    log_probability,
                }
                .to_json()?,
            )?,
            false => say(&text)?,
        }
    }
    match talk.json {
        true => Ok(()),
        false => say(&format!("{}\n", speaker.end())),
    }
}

fn checked(args: &SampleArgs) -> Result<Sampling> {
    let SampleArgs {
        temperature,
        top_k,
        tokens,
        prompt,
        ..
    } = args;
    if !temperature.is_finite() || *temperature < 0.0 {
        return Err(Fail::asked(format!(
            "--temperature {temperature}: use a finite number from 0 up; 0 takes the likeliest token"
        )));
    }
    if *top_k == Some(0) {
        return Err(Fail::asked("--top-k 0: use a whole number from 1 up"));
    }
    if *tokens == 0 {
        return Err(Fail::asked("--tokens 0: use a whole number from 1 up"));
    }
    if prompt.is_empty() {
        return Err(Fail::asked(
            "--prompt: is empty: give the model at least one character to go on from",
        ));
    }
    Ok(Sampling {
        temperature: *temperature,
        top_k: *top_k,
    })
}

/// The token that comes after those of `window`.
fn next(
    run: &mut Assembled<OutputTurn>,
    window: Vec<u32>,
    sampling: Sampling,
    draw: f64,
) -> Result<Choice> {
    let input = Tensor::from_u32(&run.transit, [1, window.len()], window).map_err(Fail::run)?;
    let item = Item {
        micro_batch: MicroBatch {
            index: 0,
            samples: 0..1,
            step: 1,
            train: false,
        },
        input: Tensors::from_iter([input]),
        target: (),
    };
    run.pipeline.forward(vec![item]).map_err(Fail::run)?;
    let choice = run.pipeline.with_turn(move |turn| {
        let mut choice = None;
        for scores in turn.take() {
            let vocab = scores.shape().last();
            let scores = scores.to_f32s()?;
            choice = sampling.choose(&scores[scores.len().saturating_sub(vocab)..], draw);
        }
        Ok::<_, gpipe_tensor::Error>(choice)
    });
    choice.map_err(Fail::run)?.ok_or_else(|| {
        Fail::Run(anyhow::Error::msg(
            "the model's scores are not finite: its weights have diverged, use an earlier checkpoint",
        ))
    })
}

/// Prints a part of a text at once. On a terminal, control characters are marked: a model may say
/// anything.
fn say(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let harmless = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    let marked = |c| {
        if harmless(c) {
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
