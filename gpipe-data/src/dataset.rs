//! A text or images as samples: which of them a step trains on, and which are held out.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use gpipe_tensor::{Device, Tensor, Tensors};
use sha2::{Digest, Sha256};

use crate::chats::{Chats, is_chats};
use crate::error::{Error, Result, SourceFault};
use crate::images::{DIGITS, Digits, Draw, Images, Pictures, SYNTHETIC, Synthetic};
use crate::options::{HeldOut, ImageOptions, SampleOptions};
use crate::pairs::Pairs;
use crate::permutation::Permutation;
use crate::source;
use crate::tokens::{self, Tokens};
use crate::vocabulary::Vocabulary;

/// One sample in ten is held out for evaluation: the last tenth.
const TENTH: u64 = 10;

/// Samples in memory, in the order of the text or of the data set.
///
/// Which samples a step draws is a function of the seed and the step, so a run that goes on from a
/// checkpoint draws what it would have drawn.
pub struct Dataset {
    content: Content,
    /// Targets of a sample.
    length: usize,
    batch: u64,
    seed: u64,
    shuffle: bool,
    train: u64,
    all: u64,
    /// Steps that were made before, and the samples that they drew, of whatever size they were.
    before: (u64, u64),
    digest: OnceLock<String>,
    /// A line each.
    warnings: Vec<String>,
}

enum Content {
    /// In windows: sample i has the tokens from i · length on, one more than its length, as the
    /// targets are the inputs moved by one.
    Text(Tokens),
    /// In pairs of two texts, several a row.
    Pairs(Pairs),
    /// One conversation a sample.
    Chats(Chats),
    /// One image a sample.
    Images(Box<dyn Images>),
}

impl Dataset {
    /// Opens the source that the options name: images, or a text, pairs of texts or conversations in the tokens of
    /// a vocabulary.
    ///
    /// # Errors
    /// If the source cannot be read, has no tokens in the vocabulary, or is too short.
    pub fn open(options: &SampleOptions, vocabulary: &Vocabulary) -> Result<Self> {
        if options.image.as_ref().is_some_and(|image| image.size == 0) {
            let key = "data.image_size";
            return Err(Error::Zero { key });
        }
        let mut warnings = Vec::new();
        let images: Option<Box<dyn Images>> = match (options.source.as_str(), &options.image) {
            (DIGITS, image) => Some(Box::new(Digits::open(image.as_ref())?)),
            (SYNTHETIC, Some(image)) => Some(Box::new(Synthetic::new(image))),
            (_, Some(image)) => Some(Box::new(Pictures::open(options, image, &mut warnings)?)),
            _ => None,
        };
        if let Some(images) = images {
            let all = images.count();
            let targets = options.image.as_ref().map_or(1, ImageOptions::targets);
            let images = Self::new(Content::Images(images), all, targets, options)?;
            return Ok(Self { warnings, ..images });
        }
        // A text of this name is one.
        if options.source == SYNTHETIC && !Path::new(SYNTHETIC).exists() {
            let (name, fault) = (options.source.clone(), SourceFault::NeedsImages);
            return Err(Error::Source { name, fault });
        }
        if let Some(target) = &options.target {
            let pairs = Pairs::open(options, target, vocabulary, &mut warnings)?;
            let all = pairs.count();
            let pairs = Self::new(Content::Pairs(pairs), all, options.seq_len, options)?;
            return Ok(Self { warnings, ..pairs });
        }
        if is_chats(&options.source) {
            let chats = Chats::open(options, vocabulary, &mut warnings)?;
            let all = chats.count();
            let chats = Self::new(Content::Chats(chats), all, options.seq_len, options)?;
            return Ok(Self { warnings, ..chats });
        }
        let text = source::read_within(
            "data.source",
            &options.source,
            options.memory,
            &mut warnings,
        )?;
        let memory = options
            .memory
            .map(|all| all.saturating_sub(text.len() as u64));
        let origin = format!("`data.source = {}`", options.source);
        let tokens = vocabulary.encode_within(text, options.threads, &origin, memory)?;
        let text = Self::text(tokens, options, Some(vocabulary))?;
        Ok(Self { warnings, ..text })
    }

    /// The [`warnings`](Self::warnings) of the source that the options name, of which the names are listed, and the
    /// beginnings of texts and a few masks are read; none for what is built in.
    ///
    /// # Errors
    /// As [`open`](Self::open), as far as names tell.
    pub fn survey(options: &SampleOptions) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        if [DIGITS, SYNTHETIC].contains(&options.source.as_str()) {
            return Ok(warnings);
        }
        if let Some(image) = &options.image {
            Pictures::open(options, image, &mut warnings)?;
            return Ok(warnings);
        }
        warnings.extend(source::survey("data.source", &options.source)?);
        if let Some(target) = &options.target {
            warnings.extend(Pairs::survey_target(target)?);
        }
        Ok(warnings)
    }

    /// The samples of a text. Sample i has the tokens from `i * seq_len` on, and predicts each next
    /// one.
    ///
    /// # Errors
    /// [`Error::Tokens`] for a text that is too short or has tokens beyond `vocab`, [`Error::Zero`]
    /// for a size of 0.
    pub fn from_tokens(tokens: Vec<u32>, options: &SampleOptions) -> Result<Self> {
        let made = Self::text(Tokens::Numbers(tokens), options, None);
        // They are not those of `source`.
        made.map_err(|error| match error {
            Error::Source { fault, .. } => Error::Tokens(fault),
            other => other,
        })
    }

    /// The samples of tokens, of a vocabulary if that is known.
    fn text(
        tokens: Tokens,
        options: &SampleOptions,
        vocabulary: Option<&Vocabulary>,
    ) -> Result<Self> {
        let fault = |fault| {
            let name = options.source.clone();
            Err(Error::Source { name, fault })
        };
        let (seq_len, vocab) = (options.seq_len, options.vocab);
        if seq_len == 0 {
            let key = "data.seq_len";
            return Err(Error::Zero { key });
        }
        let targets = tokens.len().saturating_sub(1);
        let all = targets as u64 / seq_len as u64;
        if tokens.len() == 0 {
            return fault(SourceFault::Empty);
        }
        if all == 0 {
            let samples = match options.held_out {
                HeldOut::LastTenth => 2,
                _ => 1,
            };
            return fault(SourceFault::TooShort {
                tokens: tokens.len(),
                seq_len,
                most: targets / samples,
            });
        }
        let unknown = |place: &usize| tokens.at(*place) as usize >= vocab;
        if let Some(place) = (0..tokens.len()).find(unknown) {
            let largest = (0..tokens.len()).map(|place| tokens.at(place)).max();
            let found = u64::from(largest.unwrap_or(0)) + 1;
            return fault(SourceFault::UnknownToken {
                token: tokens.at(place),
                place,
                vocab,
                needed: vocabulary.map_or(found, |vocabulary| vocabulary.size().max(found)),
            });
        }
        Self::new(Content::Text(tokens), all, seq_len, options)
    }

    fn new(content: Content, all: u64, length: usize, options: &SampleOptions) -> Result<Self> {
        if options.batch_size == 0 {
            let key = "data.batch_size";
            return Err(Error::Zero { key });
        }
        // The draws and the targets of a step are lists, of 32 bytes an entry at the most.
        let targets = options.batch_size.checked_mul(length);
        if targets.is_none_or(|targets| targets > isize::MAX as usize / 32) {
            return Err(Error::Batch {
                samples: options.batch_size,
                targets: length,
            });
        }
        let held_out = match options.held_out {
            HeldOut::Nothing => 0,
            HeldOut::LastTenth => (all / TENTH).max(1),
            HeldOut::Everything => all,
        };
        if options.held_out == HeldOut::LastTenth && held_out >= all {
            return Err(Error::Source {
                name: options.source.clone(),
                fault: SourceFault::OneSample,
            });
        }
        Ok(Self {
            content,
            length,
            batch: options.batch_size as u64,
            seed: options.seed,
            shuffle: options.shuffle,
            train: all - held_out,
            all,
            before: (0, 0),
            digest: OnceLock::new(),
            warnings: Vec::new(),
        })
    }

    /// The same data in a run that has made `steps` steps, which drew `samples` samples; the size of a
    /// batch may have been another.
    #[must_use]
    pub fn resumed_at(self, steps: u64, samples: u64) -> Self {
        Self {
            before: (steps, samples),
            ..self
        }
    }

    /// Samples that `steps` steps draw.
    pub fn samples_drawn(&self, steps: u64) -> u64 {
        let (made, samples) = self.before;
        samples.saturating_add(steps.saturating_sub(made).saturating_mul(self.batch))
    }

    /// The samples of a step, which counts from 0. Without shuffling, step b has the samples b · B to
    /// b · B + B − 1, from the start again at the end; otherwise each epoch has its order.
    /// Empty if all samples are held out.
    ///
    /// # Errors
    /// [`Error::Batch`] if there is no memory for the list.
    pub fn samples_of_step(&self, step: u64) -> Result<Vec<u64>> {
        let draws = self.draws_of_step(step)?.into_iter();
        Ok(draws.map(|draw| draw.sample).collect())
    }

    /// [`samples_of_step`](Self::samples_of_step) with the epoch of each.
    ///
    /// # Errors
    /// As [`samples_of_step`](Self::samples_of_step).
    pub fn draws_of_step(&self, step: u64) -> Result<Vec<Draw>> {
        let mut draws = Vec::new();
        if self.train == 0 {
            return Ok(draws);
        }
        let samples = self.batch as usize;
        let reserved = draws.try_reserve_exact(samples);
        reserved.map_err(|_| Error::Batch {
            samples,
            targets: self.length,
        })?;
        let first = u128::from(self.samples_drawn(step));
        let mut order: Option<(u64, Permutation)> = None;
        let draw = |offset: u64| {
            let position = first + u128::from(offset);
            // A quotient by the number of samples fits: there is at least one.
            let epoch = (position / u128::from(self.train)) as u64;
            let within = (position % u128::from(self.train)) as u64;
            let of = |sample| Draw {
                sample,
                epoch: Some(epoch),
            };
            if !self.shuffle {
                return of(within);
            }
            let (_, order) = match order.take() {
                Some((of, known)) if of == epoch => order.insert((of, known)),
                _ => order.insert((epoch, Permutation::new(self.train, self.seed, epoch))),
            };
            of(order.at(within))
        };
        draws.extend((0..self.batch).map(draw));
        Ok(draws)
    }

    /// What a user should know of the source, a line each: folders that are passed over, and files that are no text. Settings
    /// are written as in errors.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Number of samples that are trained on.
    pub fn training_samples(&self) -> u64 {
        self.train
    }

    /// The samples that are held out.
    pub fn held_out(&self) -> Range<u64> {
        self.train..self.all
    }

    /// Number of targets of all held-out samples.
    pub fn held_out_targets(&self) -> u64 {
        match &self.content {
            Content::Pairs(pairs) => pairs.targets(self.held_out()),
            Content::Chats(chats) => chats.targets(self.held_out()),
            _ => (self.all - self.train).saturating_mul(self.length as u64),
        }
    }

    /// Number of targets of these samples.
    pub fn targets(&self, draws: &[Draw]) -> u64 {
        match &self.content {
            Content::Pairs(pairs) => pairs.targets(draws.iter().map(|draw| draw.sample)),
            Content::Chats(chats) => chats.targets(draws.iter().map(|draw| draw.sample)),
            _ => (draws.len() as u64).saturating_mul(self.length as u64),
        }
    }

    /// The most targets of a sample: its tokens, or for an image one class or the pixels of its mask.
    pub fn targets_per_sample(&self) -> usize {
        self.length
    }

    /// What is trained on, such as `45 samples of 4 tokens` or `1618 images`.
    pub fn summary(&self) -> String {
        let counted = |count: u64, thing: &str| {
            let ending = if count == 1 { "" } else { "s" };
            format!("{count} {thing}{ending}")
        };
        let tokens = counted(self.length as u64, "token");
        match &self.content {
            Content::Text(_) => format!("{} of {tokens}", counted(self.train, "sample")),
            Content::Pairs(pairs) => format!(
                "{} in {} of {tokens}",
                counted(pairs.pairs(self.train) as u64, "pair"),
                counted(self.train, "row"),
            ),
            Content::Chats(_) => {
                format!(
                    "{} in rows of {tokens}",
                    counted(self.train, "conversation")
                )
            }
            Content::Images(_) => counted(self.train, "image"),
        }
    }

    /// The SHA-256 digest of the tokens, four bytes each, the lowest first; of the pixels and labels of
    /// [`DIGITS`]; of the options of [`SYNTHETIC`]; of the names in a folder of pictures, which are not read for it. In
    /// hexadecimal digits.
    pub fn digest(&self) -> String {
        self.digest.get_or_init(|| self.computed_digest()).clone()
    }

    fn computed_digest(&self) -> String {
        let mut digest = Sha256::new();
        match &self.content {
            Content::Text(tokens) => {
                const PART: usize = 1 << 14;
                let mut bytes = Vec::with_capacity(4 * PART);
                for start in (0..tokens.len()).step_by(PART) {
                    bytes.clear();
                    for place in start..tokens.len().min(start + PART) {
                        bytes.extend_from_slice(&tokens.at(place).to_le_bytes());
                    }
                    digest.update(&bytes);
                }
            }
            Content::Pairs(pairs) => pairs.digest(&mut digest),
            Content::Chats(chats) => chats.digest(&mut digest),
            Content::Images(images) => images.digest(&mut digest),
        }
        let bytes = digest.finalize();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Samples as the model takes them, and their targets, counted on `device`.
    ///
    /// Of a text: u32 tokens (samples, `seq_len`), and after each the next one, in the same shape. Of pairs: tokens
    /// and segments of the sources, then of the decoder's inputs, and the next tokens of these, each in this
    /// shape. Of conversations: tokens, and after each the next one where it belongs to an answer, else
    /// [`IGNORE`](gpipe_tensor::ops::IGNORE). Of images: f32 pixels (samples, height, width, channels), or (samples, [`PIXELS`](crate::PIXELS)) without
    /// [`image`](SampleOptions::image), and u32 labels (samples) or f32 masks (samples, height, width, 1).
    ///
    /// # Errors
    /// If an image cannot be read or a tensor cannot be made.
    ///
    /// # Panics
    /// For samples that are not there: numbers go up to the end of [`held_out`](Self::held_out).
    pub fn tensors(&self, device: &Device, draws: &[Draw]) -> Result<(Tensors, Tensor)> {
        let tokens = match &self.content {
            Content::Text(tokens) => tokens,
            Content::Pairs(pairs) => return pairs.tensors(device, draws),
            Content::Chats(chats) => return chats.tensors(device, draws),
            Content::Images(images) => {
                let (images, targets) = images.tensors(device, draws)?;
                return Ok((Tensors::from_iter([images]), targets));
            }
        };
        // After each input comes its target.
        let moved = |by: usize| {
            let starts = draws
                .iter()
                .map(|draw| draw.sample as usize * self.length + by);
            let places = starts.flat_map(|start| start..start + self.length);
            let mut values = tokens::room(draws.len(), self.length)?;
            values.extend(places.map(|place| tokens.at(place)));
            Ok::<_, Error>(values)
        };
        let (inputs, targets) = (moved(0)?, moved(1)?);
        let tensor = |tokens| Tensor::from_u32(device, [draws.len(), self.length], tokens);
        Ok((Tensors::from_iter([tensor(inputs)?]), tensor(targets)?))
    }
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataset")
            .field("training", &self.summary())
            .field("held_out", &self.held_out())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
