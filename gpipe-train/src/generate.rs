//! Text generation, token by token, through the forward-only path of the pipeline. Every stage keeps the
//! keys and values of its layers, so that a token is a pass of one position.

pub mod beams;

use gpipe_layers::Sampling;
use gpipe_remat::{Assembled, OutputStage, Wire, WireCodec};
use gpipe_sched::{Item, MicroBatch};
use gpipe_tensor::philox::{Key, Stream};
use gpipe_tensor::{Tensor, Tensors};

use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::launch::check_same_request;
use crate::setup::Setup;

/// The name of the random stream: the draw of a token is a function of the seed, the number of its prompt
/// and its index.
const DRAWS: &str = "sample";

/// How texts are generated.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// The choice of each token.
    pub sampling: Sampling,
    /// The most tokens that follow a prompt.
    pub tokens: usize,
    /// Tokens that end a text.
    pub ends: Vec<u32>,
}

/// A token that was generated.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Generated {
    /// The number of the prompt, from 0.
    pub prompt: usize,
    /// The token.
    pub token: u32,
    /// ln of its probability, before temperature and the limits of sampling.
    pub log_probability: f64,
    /// Whether it is one of [`Generation::ends`].
    pub ends: bool,
}

/// Generates texts from prompts, all at once.
#[derive(Debug)]
pub struct Generator {
    run: Assembled<OutputStage>,
    generation: Generation,
    context: usize,
    vocab: usize,
    /// Whether a prompt is the source of an encoder-decoder, whose texts go on from its last token.
    encodes: bool,
    /// The texts that have not ended, one for each row of the stages' caches.
    rows: Vec<Row>,
    /// Whether all ranks are known to be asked for the same.
    is_agreed: bool,
}

/// A text that has not ended.
#[derive(Clone, Debug)]
struct Row {
    prompt: usize,
    draws: Stream,
    /// What an encoder reads.
    source: Vec<u32>,
    tokens: Vec<u32>,
    generated: usize,
    /// Tokens whose keys and values are in the caches.
    cached: usize,
}

impl Row {
    /// The number of tokens in the caches that a pass continues, and the tokens of that pass. Beyond the context
    /// the whole window moves, and every position in it has another number: nothing cached holds.
    fn pass(&self, context: usize) -> (usize, &[u32]) {
        match self.tokens.len().checked_sub(context) {
            Some(first) if first > 0 => (0, &self.tokens[first..]),
            _ => (self.cached, &self.tokens[self.cached..]),
        }
    }
}

impl Generator {
    /// Starts the workers of `setup`, whose weights are open ([`Setup::open_weights`]).
    ///
    /// # Errors
    /// [`Error::Invalid`] for no prompt or an empty one, a token beyond the vocabulary, or a model without
    /// tokens; those of [`Setup::assemble_to`].
    pub fn new(
        setup: Setup,
        config: &TrainConfig,
        prompts: Vec<Vec<u32>>,
        generation: Generation,
    ) -> Result<Self> {
        let Some(vocab) = config.model.vocab() else {
            return Err(Error::invalid(format!(
                "{}: the model classifies images and generates no text",
                config.model.name
            )));
        };
        if prompts.is_empty() || prompts.iter().any(Vec::is_empty) {
            return Err(Error::invalid("the prompt has no tokens: use another"));
        }
        let mut tokens = prompts.iter().flatten();
        if let Some(token) = tokens.find(|&&token| token as usize >= vocab) {
            return Err(Error::invalid(format!(
                "token {token} of the prompt is beyond the {vocab} tokens of the model: use another"
            )));
        }
        let key = Key::new(config.run.seed.u64(), DRAWS, 0);
        let encodes = config.model.has_targets();
        let row = |(prompt, tokens): (usize, Vec<u32>)| {
            // A target begins with the token that ends its source.
            let first = tokens.len().saturating_sub(1);
            let (source, tokens) = match encodes {
                true => (tokens.clone(), tokens[first..].to_vec()),
                false => (Vec::new(), tokens),
            };
            Row {
                prompt,
                draws: key.sample(prompt as u64),
                source,
                tokens,
                generated: 0,
                cached: 0,
            }
        };
        let rows: Vec<Row> = prompts.into_iter().enumerate().map(row).collect();
        let mut run = setup.assemble_to(config, |last, _| OutputStage::new(last))?;
        let count = rows.len();
        run.pipeline
            .each(move |_, stage| {
                stage.keep_positions(count);
                Ok::<_, gpipe_remat::Error>(())
            })
            .map_err(Error::run)?;
        Ok(Self {
            run,
            generation,
            context: config.model.context().unwrap_or(usize::MAX),
            vocab,
            encodes,
            rows,
            is_agreed: false,
        })
    }

    /// The next token of every text that has not ended, by number of prompt; none when all have.
    ///
    /// # Errors
    /// [`Error::Run`] if a stage fails or the logits are not finite; [`Error::Invalid`] at the first call if another rank was
    /// asked for another text.
    pub fn next_tokens(&mut self) -> Result<Vec<Generated>> {
        self.agree(None)?;
        if self.rows.is_empty() || self.generation.tokens == 0 {
            return Ok(Vec::new());
        }
        let choices = self.choices()?;
        let mut all = Vec::with_capacity(choices.len());
        for (row, (token, log_probability)) in self.rows.iter_mut().zip(choices) {
            row.tokens.push(token);
            row.generated += 1;
            all.push(Generated {
                prompt: row.prompt,
                token,
                log_probability,
                ends: self.generation.ends.contains(&token),
            });
        }
        let goes_on =
            |(row, last): (&Row, &Generated)| !last.ends && row.generated < self.generation.tokens;
        let pairs = self.rows.iter().zip(&all).enumerate();
        let kept: Vec<usize> = pairs
            .filter(|&(_, pair)| goes_on(pair))
            .map(|(row, _)| row)
            .collect();
        self.keep(&kept)?;
        Ok(all)
    }

    /// Compares what the ranks are asked for, before the first pass.
    fn agree(&mut self, beams: Option<usize>) -> Result<()> {
        if let (Some(world), false) = (self.run.pipeline.world(), self.is_agreed) {
            let prompts: Vec<_> =
                (self.rows.iter().map(|row| (&row.source, &row.tokens))).collect();
            check_same_request(
                world,
                ["text", "tokenizer"],
                format!("{beams:?} {:?} {prompts:?}", self.generation),
            )?;
        }
        self.is_agreed = true;
        Ok(())
    }

    /// Keeps these texts and takes back what a moving window makes invalid.
    fn keep(&mut self, kept: &[usize]) -> Result<()> {
        let mut place = 0;
        let count = self.rows.len();
        self.rows.retain(|_| {
            place += 1;
            kept.binary_search(&(place - 1)).is_ok()
        });
        let context = self.context;
        let moves = self
            .rows
            .iter()
            .any(|row| row.pass(context).0 != row.cached);
        if self.rows.is_empty() || (kept.len() == count && !moves) {
            return Ok(());
        }
        self.reorder(kept.to_vec())
    }

    /// Gives the caches to the texts: row i becomes what row `from[i]` was.
    fn reorder(&mut self, from: Vec<usize>) -> Result<()> {
        for row in &mut self.rows {
            row.cached = row.pass(self.context).0;
        }
        let lengths: Vec<usize> = self.rows.iter().map(|row| row.cached).collect();
        self.run
            .pipeline
            .each(move |_, stage| stage.select_rows(&from, &lengths))
            .map_err(Error::run)
    }

    /// Chooses the next token of each text, with ln of its probability.
    fn choices(&mut self) -> Result<Vec<(u32, f64)>> {
        let sampling = self.generation.sampling;
        let draw = |row: &Row| f64::from(row.draws.uniform(row.generated as u64));
        let draws: Vec<f64> = self.rows.iter().map(draw).collect();
        self.pass(move |row, scores| {
            let choice = sampling.choose(scores, draws[row])?;
            // Lossless: a vocabulary has fewer than 2^32 tokens.
            Some((choice.token as u32, choice.log_probability))
        })
    }

    /// Runs the tokens that are not cached yet. `choose` sees the number of each text and the scores of the
    /// token after it; it gives none if they are not finite.
    fn pass<R: Wire + Send + 'static>(
        &mut self,
        choose: impl Fn(usize, &[f32]) -> Option<R> + Send + 'static,
    ) -> Result<Vec<R>> {
        let items = match self.encodes {
            true => vec![self.sources_and_targets()?],
            false => self.new_positions()?,
        };
        self.run.pipeline.forward(items).map_err(Error::run)?;
        for row in &mut self.rows {
            row.cached = row.tokens.len().min(self.context);
        }
        if self.encodes {
            // Stages of the encoder have counted positions of the sources, where those of the texts are meant.
            self.reorder((0..self.rows.len()).collect())?;
        }
        let codec = WireCodec::of(&self.run.pipeline);
        let choices = self
            .run
            .pipeline
            .with_loss_stage_across(&codec, move |turn| {
                let mut choices = Vec::new();
                for scores in turn.take() {
                    let (rows, vocab) = (scores.shape().rows(), scores.shape().last());
                    let scores = scores.to_f32s()?;
                    for scores in scores.chunks_exact((scores.len() / rows.max(1)).max(1)) {
                        let last = &scores[scores.len().saturating_sub(vocab)..];
                        choices.push(choose(choices.len(), last));
                    }
                }
                Ok::<_, gpipe_remat::Error>(choices.into_iter().collect::<Option<Vec<R>>>())
            });
        choices.map_err(Error::run)?.ok_or_else(Error::diverged)
    }

    /// The tokens that are not cached yet.
    fn new_positions(&self) -> Result<Vec<Item<Tensors, ()>>> {
        let mut items = Vec::new();
        let mut first = 0;
        while first < self.rows.len() {
            let (past, tokens) = self.rows[first].pass(self.context);
            let mut tokens = tokens.to_vec();
            let (len, mut rows) = (tokens.len(), 1);
            // Texts of the same length that go on by one token share a pass.
            while let Some(row) = self.rows.get(first + rows).filter(|_| len == 1) {
                let (row_past, [token]) = row.pass(self.context) else {
                    break;
                };
                if row_past != past {
                    break;
                }
                tokens.push(*token);
                rows += 1;
            }
            let input = Tensor::from_u32(&self.run.transit, [rows, len], tokens);
            let samples = first as u64..(first + rows) as u64;
            items.push(Item {
                micro_batch: MicroBatch::new(items.len(), samples, 0, false),
                input: Tensors::from_iter([input.map_err(Error::run)?]),
                target: (),
            });
            first += rows;
        }
        Ok(items)
    }

    /// The tokens that are not cached yet of all texts, which are of one length: they began together. The sources
    /// go along once; the layers that read them keep what they need of them.
    fn sources_and_targets(&self) -> Result<Item<Tensors, ()>> {
        let rows = self.rows.len();
        let begins = self.rows.iter().all(|row| row.cached == 0);
        let sources = self.rows.iter().filter(|_| begins);
        let longest = sources.map(|row| row.source.len()).max().unwrap_or(0);
        let padded = |row: &Row, value: fn(u32) -> u32| {
            let mut all: Vec<u32> = row.source.iter().map(|&token| value(token)).collect();
            all.resize(longest, 0);
            all
        };
        let of_sources = |value| {
            self.rows
                .iter()
                .flat_map(|row| padded(row, value))
                .collect()
        };
        let texts: Vec<u32> = self
            .rows
            .iter()
            .flat_map(|row| row.tokens[row.cached..].to_vec())
            .collect();
        let ones = vec![1; texts.len()];
        let values: [Vec<u32>; 4] = [of_sources(|token| token), of_sources(|_| 1), texts, ones];
        let tensor = |values: Vec<u32>| {
            let shape = [rows, values.len() / rows.max(1)];
            Tensor::from_u32(&self.run.transit, shape, values).map_err(Error::run)
        };
        Ok(Item {
            micro_batch: MicroBatch::new(0, 0..rows as u64, 0, false),
            input: values.into_iter().map(tensor).collect::<Result<_>>()?,
            target: (),
        })
    }
}

#[cfg(test)]
mod seq2seq_tests;
#[cfg(test)]
mod tests;
