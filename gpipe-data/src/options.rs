//! What a data set is made of, as named fields.

use crate::source::CICERO;

/// Where samples come from, how they are cut, and in which order a run draws them.
///
/// Messages name a setting by its key in a configuration file, as in `` `data.seq_len = 8` ``.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleOptions {
    /// [`CICERO`], a text file or a folder of them, or a file of conversations ([`is_chats`](crate::is_chats));
    /// [`DIGITS`](crate::DIGITS); with [`image`](Self::image) also [`SYNTHETIC`](crate::SYNTHETIC) or a folder of pictures
    /// (`data.source`).
    pub source: String,
    /// A text whose lines are the targets of those of `source`, for an encoder-decoder (`data.target`).
    pub target: Option<String>,
    /// Tokens of a sample of text, at least 1 (`data.seq_len`). An image counts as one.
    pub seq_len: usize,
    /// Samples of a step, at least 1 (`data.batch_size`).
    pub batch_size: usize,
    /// Whether each epoch has an order of its own (`data.shuffle`).
    pub shuffle: bool,
    /// Decides the order of every epoch (`run.seed`).
    pub seed: u64,
    /// Samples that are kept for evaluation.
    pub held_out: HeldOut,
    /// Tokens that the model knows: a text with others is refused (`model.vocab`). [`Vocabulary::size`](crate::Vocabulary::size)
    /// or more knows all of them.
    pub vocab: usize,
    /// Threads that make tokens of a text (`pipeline.threads`).
    pub threads: usize,
    /// Bytes of memory that a text and its tokens may take while they are made; `None` if that is not
    /// known. A text that needs more is refused.
    pub memory: Option<u64>,
    /// The images that the model takes; `None` for a model of text, or one that takes the pixels of
    /// [`DIGITS`](crate::DIGITS) as a row.
    pub image: Option<ImageOptions>,
}

/// The images that a model takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageOptions {
    /// Height and width in pixels (`data.image_size`).
    pub size: usize,
    /// 3 for colours, 1 for shades of grey (`model.channels`).
    pub channels: usize,
    /// Number of classes (`model.classes`).
    pub classes: usize,
    /// Whether the target of an image is a mask of its size, rather than a class.
    pub masks: bool,
    /// The names of the classes by number, which the folders of a folder of pictures have; if empty, these are numbered in
    /// the order of their names.
    pub names: Vec<String>,
}

impl ImageOptions {
    /// Targets of an image: its class, or the pixels of its mask.
    pub(crate) fn targets(&self) -> usize {
        match self.masks {
            true => self.size.saturating_mul(self.size),
            false => 1,
        }
    }

    /// The extents of some images.
    pub(crate) fn shape(&self, samples: usize) -> [usize; 4] {
        [samples, self.size, self.size, self.channels]
    }
}

/// Which samples are held out for evaluation. All others are trained on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeldOut {
    /// None: there will be no evaluation.
    #[default]
    Nothing,
    /// The last tenth, at least one sample.
    LastTenth,
    /// All: there will be no training.
    Everything,
}

/// The built-in text as bytes: 16 samples of 64 tokens a step, shuffled with seed 0, none held out.
impl Default for SampleOptions {
    fn default() -> Self {
        Self {
            source: CICERO.to_owned(),
            target: None,
            seq_len: 64,
            batch_size: 16,
            shuffle: true,
            seed: 0,
            held_out: HeldOut::Nothing,
            vocab: 256,
            threads: 1,
            memory: None,
            image: None,
        }
    }
}
