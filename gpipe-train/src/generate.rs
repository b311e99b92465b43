//! Text generation, token by token, through the forward-only path of the pipeline.

use gpipe_layers::{Choice, Sampling};
use gpipe_remat::{Assembled, OutputStage};
use gpipe_sched::{Item, MicroBatch};
use gpipe_tensor::philox::{Key, Stream};
use gpipe_tensor::{Tensor, Tensors};

use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::setup::Setup;

/// The name of the random stream: the draw of a token is a function of the seed and its index.
const DRAWS: &str = "sample";

/// Generates text from a prompt.
pub struct Generator {
    run: Assembled<OutputStage>,
    sampling: Sampling,
    draws: Stream,
    context: usize,
    tokens: Vec<u32>,
    generated: u32,
}

impl Generator {
    /// Starts the workers of `setup`, whose weights are open ([`Setup::open_weights`]).
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty prompt, a token beyond the vocabulary, or a model without tokens;
    /// those of [`Setup::assemble_to`].
    pub fn new(
        setup: Setup,
        config: &TrainConfig,
        prompt: Vec<u32>,
        sampling: Sampling,
    ) -> Result<Self> {
        let (Some(context), Some(vocab)) = (config.model.context(), config.model.vocab()) else {
            return Err(Error::invalid(format!(
                "{}: the model classifies images and generates no text",
                config.model.name
            )));
        };
        if prompt.is_empty() {
            return Err(Error::invalid("the prompt has no tokens: use another"));
        }
        if let Some(token) = prompt.iter().find(|&&token| token as usize >= vocab) {
            return Err(Error::invalid(format!(
                "token {token} of the prompt is beyond the {vocab} tokens of the model: use another"
            )));
        }
        Ok(Self {
            run: setup.assemble_to(config, |last, _| OutputStage::new(last))?,
            sampling,
            draws: Key::new(config.run.seed.u64(), DRAWS, 0).sample(0),
            context,
            tokens: prompt,
            generated: 0,
        })
    }

    /// Generates the next token and returns it with its log-probability (natural logarithm).
    ///
    /// # Errors
    /// [`Error::Run`] if a stage fails or the logits are not finite.
    pub fn next_token(&mut self) -> Result<(u32, f64)> {
        let first = self.tokens.len().saturating_sub(self.context);
        let window = self.tokens[first..].to_vec();
        let draw = f64::from(self.draws.uniform(self.generated.into()));
        let Choice {
            token,
            log_probability,
        } = self.choose(window, draw)?;
        // Lossless: a vocabulary has fewer than 2^32 tokens.
        let token = token as u32;
        self.tokens.push(token);
        self.generated += 1;
        Ok((token, log_probability))
    }

    /// Samples the token after `window` by a uniform random number.
    fn choose(&mut self, window: Vec<u32>, draw: f64) -> Result<Choice> {
        let (run, sampling) = (&mut self.run, self.sampling);
        let input =
            Tensor::from_u32(&run.transit, [1, window.len()], window).map_err(Error::run)?;
        let item = Item {
            micro_batch: MicroBatch::new(0, 0..1, 0, false),
            input: Tensors::from_iter([input]),
            target: (),
        };
        run.pipeline.forward(vec![item]).map_err(Error::run)?;
        let choice = run.pipeline.with_loss_stage(move |turn| {
            let mut choice = None;
            for scores in turn.take() {
                let vocab = scores.shape().last();
                let scores = scores.to_f32s()?;
                choice = sampling.choose(&scores[scores.len().saturating_sub(vocab)..], draw);
            }
            Ok::<_, gpipe_tensor::Error>(choice)
        });
        choice.map_err(Error::run)?.ok_or_else(|| {
            Error::run(
                "the logits are not finite: the weights have diverged, use an earlier checkpoint",
            )
        })
    }
}
