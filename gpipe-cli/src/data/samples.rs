//! A text or images as samples: which of them a step trains on, and which are held out.

use std::ops::Range;

use gpipe_tensor::{Device, Tensor};
use sha2::{Digest, Sha256};

use super::digits::{Digits, PIXELS};
use super::order::Order;
use crate::checkpoint::hexadecimal;
use crate::config::Config;
use crate::fail::{Fail, Result};

/// One sample in so many is held out for evaluation: the last tenth.
const HELD_OUT: u64 = 10;

/// What can be trained on, in the order of the text or of the data set.
pub struct Samples {
    content: Content,
    length: usize,
    batch: u64,
    seed: u64,
    shuffle: bool,
    train: u64,
    all: u64,
    /// So many steps were made elsewhere, with so many samples.
    before: (u64, u64),
}

enum Content {
    /// In windows: sample i has the tokens from i · length on, one more than its length, as the
    /// targets are the inputs moved by one.
    Text(Vec<u32>),
    /// One image a sample.
    Digits(Digits),
}

impl Samples {
    /// The samples of a text. A part is held out only if the configuration evaluates, so without
    /// evaluation every sample is trained on.
    pub fn new(tokens: Vec<u32>, config: &Config) -> Result<Self> {
        Self::of_all(tokens, config)?.hold_out(config)
    }

    /// The images of digits, held out in the same way.
    pub fn of_digits(digits: Digits, config: &Config) -> Result<Self> {
        Self::of_all_digits(digits, config).hold_out(config)
    }

    /// The images of digits, if none is trained on: all are held out.
    pub fn of_all_digits(digits: Digits, config: &Config) -> Self {
        let all = digits.count();
        Self::with(Content::Digits(digits), all, config)
    }

    fn hold_out(mut self, config: &Config) -> Result<Self> {
        let (source, length, all) = (&config.data.source, self.length, self.all);
        let held_out = if config.run.eval_every.get() == 0 {
            0
        } else {
            (all / HELD_OUT).max(1)
        };
        if held_out >= all {
            return Err(Fail::asked(format!(
                "--data {source}: one sample of {length} tokens cannot be trained on and held out: \
                 use a longer text, or --eval-every 0"
            )));
        }
        self.train = all - held_out;
        Ok(self)
    }

    /// The samples of a text that is not trained on: all are held out.
    pub fn of_all(tokens: Vec<u32>, config: &Config) -> Result<Self> {
        let (source, length) = (&config.data.source, config.data.seq_len.get());
        let all = tokens.len().saturating_sub(1) as u64 / length as u64;
        if tokens.is_empty() {
            return Err(Fail::asked(format!(
                "--data {source}: the text is empty: name one with some text"
            )));
        }
        if all == 0 {
            let most = tokens.len() - 1;
            let mend = match most {
                0 => "name a longer text".to_owned(),
                _ => format!("use --seq-len {most} or less, or a longer text"),
            };
            return Err(Fail::asked(format!(
                "--data {source}: {} tokens are too few for a sample of {length} + 1 tokens: {mend}",
                tokens.len()
            )));
        }
        let vocab = config.model.vocab.get();
        if let Some(place) = tokens.iter().position(|&token| token as usize >= vocab) {
            let token = tokens[place];
            return Err(Fail::asked(format!(
                "--data {source}: token {token} at place {place} is beyond model.vocab = {vocab}: \
                 use 256, which bytes need"
            )));
        }
        Ok(Self::with(Content::Text(tokens), all, config))
    }

    /// All samples, none of which is trained on.
    fn with(content: Content, all: u64, config: &Config) -> Self {
        Self {
            content,
            length: config.data.seq_len.get(),
            batch: config.data.batch_size.get() as u64,
            seed: config.run.seed.u64(),
            shuffle: config.data.shuffle,
            train: 0,
            all,
            before: (0, 0),
        }
    }

    /// The same, of a run that has made so many steps with so many samples.
    #[must_use]
    pub fn after(self, steps: u64, samples: u64) -> Self {
        Self {
            before: (steps, samples),
            ..self
        }
    }

    /// How many samples were drawn when so many steps are made.
    pub fn drawn(&self, steps: u64) -> u64 {
        let (made, samples) = self.before;
        samples.saturating_add((steps - made).saturating_mul(self.batch))
    }

    /// The SHA-256 digest of the tokens, four bytes each, the lowest first; or of pixels and labels.
    pub fn digest(&self) -> String {
        let mut digest = Sha256::new();
        match &self.content {
            Content::Text(tokens) => {
                for tokens in tokens.chunks(1 << 14) {
                    let bytes: Vec<u8> = tokens
                        .iter()
                        .flat_map(|token| token.to_le_bytes())
                        .collect();
                    digest.update(bytes);
                }
            }
            Content::Digits(digits) => {
                for sample in 0..digits.count() {
                    for pixel in digits.image(sample) {
                        digest.update(pixel.to_le_bytes());
                    }
                    digest.update(digits.label(sample).to_le_bytes());
                }
            }
        }
        hexadecimal(&digest.finalize())
    }

    /// The samples of a step, which count from 1. Without shuffling, step b + 1 has the samples
    /// b · B to b · B + B − 1, from the start again at the end; otherwise each epoch has its order.
    pub fn of_step(&self, step: u64) -> Vec<u64> {
        let first = u128::from(self.drawn(step - 1));
        let mut order: Option<(u64, Order)> = None;
        let sample = |offset: u64| {
            let position = first + u128::from(offset);
            // A quotient by the number of samples fits: there is at least one.
            let epoch = (position / u128::from(self.train)) as u64;
            let within = (position % u128::from(self.train)) as u64;
            if !self.shuffle {
                return within;
            }
            let (_, order) = match order.take() {
                Some((of, known)) if of == epoch => order.insert((of, known)),
                _ => order.insert((epoch, Order::new(self.train, self.seed, epoch))),
            };
            order.sample(within)
        };
        (0..self.batch).map(sample).collect()
    }

    /// The samples that are held out.
    pub fn held_out(&self) -> Range<u64> {
        self.train..self.all
    }

    /// Targets of a sample: its tokens, or one for an image.
    pub fn length(&self) -> usize {
        self.length
    }

    /// What is trained on, in words.
    pub fn described(&self) -> String {
        match self.content {
            Content::Text(_) => format!("{} samples of {} tokens", self.train, self.length),
            Content::Digits(_) => format!("{} images", self.train),
        }
    }

    /// Some samples as the model takes them, and their targets: tokens, and after each what is to be
    /// said next; or pixels, and what they show.
    pub fn tensors(
        &self,
        device: &Device,
        samples: &[u64],
    ) -> gpipe_tensor::Result<(Tensor, Tensor)> {
        let count = samples.len();
        match &self.content {
            Content::Text(tokens) => {
                let windows = || {
                    samples
                        .iter()
                        .map(|&sample| window(tokens, self.length, sample))
                };
                let inputs = windows().flat_map(|(inputs, _)| inputs).copied().collect();
                let targets = windows()
                    .flat_map(|(_, targets)| targets)
                    .copied()
                    .collect();
                let tensor = |tokens| Tensor::from_u32(device, [count, self.length], tokens);
                Ok((tensor(inputs)?, tensor(targets)?))
            }
            Content::Digits(digits) => {
                let images = samples.iter().flat_map(|&sample| digits.image(sample));
                let pixels: Vec<f32> = images.copied().collect();
                let labels = samples.iter().map(|&sample| digits.label(sample)).collect();
                Ok((
                    Tensor::from_f32(device, [count, PIXELS], pixels)?,
                    Tensor::from_u32(device, [count], labels)?,
                ))
            }
        }
    }
}

/// The input tokens of a sample, and after each what is to be said next.
fn window(tokens: &[u32], length: usize, sample: u64) -> (&[u32], &[u32]) {
    let start = sample as usize * length;
    let window = &tokens[start..=start + length];
    (&window[..length], &window[1..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Settings;
    use crate::config::resolve;

    fn samples(bytes: usize, set: &[&str]) -> Result<Samples> {
        let set = set.iter().map(|&text| text.to_owned()).collect();
        let config = resolve(&Settings {
            set,
            ..Settings::default()
        })?;
        Samples::new((0..bytes).map(|i| i as u32 % 256).collect(), &config)
    }

    const IN_ORDER: [&str; 3] = ["data.seq_len=4", "data.batch_size=2", "data.shuffle=false"];

    #[test]
    fn windows_start_at_multiples_of_the_length_and_batches_wrap() {
        let samples = samples(13, &IN_ORDER).unwrap();
        let tokens: Vec<u32> = (0..13).collect();
        assert_eq!(
            window(&tokens, 4, 2),
            (&[8, 9, 10, 11][..], &[9, 10, 11, 12][..])
        );
        let steps: Vec<_> = (1..=4).map(|step| samples.of_step(step)).collect();
        assert_eq!(steps, [[0, 1], [2, 0], [1, 2], [0, 1]]);
    }

    #[test]
    fn a_tail_is_held_out_only_for_evaluation() {
        let [length, batch, order] = IN_ORDER;
        assert!(samples(200, &IN_ORDER).unwrap().held_out().is_empty());
        let evaluated = samples(200, &[length, batch, order, "run.eval_every=5"]).unwrap();
        assert_eq!(evaluated.held_out(), 45..49);
        assert_eq!(evaluated.described(), "45 samples of 4 tokens");
    }

    #[test]
    fn shuffled_steps_cover_each_epoch() {
        let samples = samples(401, &["data.seq_len=4", "data.batch_size=30"]).unwrap();
        let positions: Vec<u64> = (1..=10).flat_map(|step| samples.of_step(step)).collect();
        for epoch in positions.chunks(100) {
            let mut epoch = epoch.to_vec();
            epoch.sort_unstable();
            assert_eq!(epoch, (0..100).collect::<Vec<_>>());
        }
        assert_ne!(positions[..100], positions[100..200]);
    }

    #[test]
    fn text_that_is_too_short_is_refused() {
        let refused = |bytes, set: &[&str]| match samples(bytes, set) {
            Err(Fail::Usage(error)) => error.to_string(),
            _ => panic!("{bytes} bytes were taken"),
        };
        assert!(refused(0, &IN_ORDER).contains("empty"));
        assert!(refused(1, &IN_ORDER).contains("longer text"));
        assert!(refused(4, &IN_ORDER).contains("--seq-len 3 or less"));
        assert!(refused(5, &["data.seq_len=4", "run.eval_every=1"]).contains("--eval-every 0"));
        assert!(
            refused(50, &["data.seq_len=4", "model.vocab=20"]).contains("token 20 at place 20")
        );
    }
}
