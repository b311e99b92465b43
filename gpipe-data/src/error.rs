//! Why there is nothing to learn from.

use std::io;
use std::path::{self, Path, PathBuf};

use gpipe_remat::Bytes;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why data, a vocabulary or a batch cannot be had: one line that names the thing and the mend. A
/// setting is written as its key in a configuration file, as in `` `data.seq_len = 8` ``.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tokenizer's file cannot be opened or read.
    #[error(transparent)]
    File(#[from] gpipe_files::Error),
    /// A text file or folder cannot be opened or read.
    #[error("`data.source = {}`: {}", path.display(), unreadable(path, source))]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// No samples can be made of a source.
    #[error("`data.source = {name}`: {fault}")]
    Source {
        /// The source as it was named.
        name: String,
        /// Why not.
        fault: SourceFault,
    },
    /// No samples can be made of tokens that a caller gave.
    #[error("the tokens: {0}")]
    Tokens(SourceFault),
    /// No pairs can be made of a text and the text of its targets.
    #[error("`data.target = {target}`: {fault}")]
    Pairs {
        /// The text of the targets as it was named.
        target: String,
        /// Why not.
        fault: PairFault,
    },
    /// No samples can be made of conversations.
    #[error("`data.source = {name}`: {fault}")]
    Chats {
        /// The file as it was named.
        name: String,
        /// Why not.
        fault: ChatFault,
    },
    /// A `tokenizer.json` is damaged, hostile or of an unknown kind.
    #[error("{}: {fault}: name a tokenizer.json, or use `data.tokenizer = bytes`", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
    /// The same of bytes without a path.
    #[error("{0}")]
    Malformed(String),
    /// A picture cannot be decoded, or is none that is read.
    #[error("{}: {fault}: remove it, or put a PNG or JPEG with 8 bits a channel in its place", path.display())]
    Picture {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
    /// A path that a caller names is no picture that is read.
    #[error("{}: {fault}: name a PNG or JPEG with 8 bits a channel, or a folder with some", path.display())]
    NoPicture {
        /// The path.
        path: PathBuf,
        /// Why not.
        fault: String,
    },
    /// A tokenizer has tokens that the model does not know.
    #[error(
        "{}: its largest token is {largest}, but the model knows {known} tokens, up to {} (model.vocab, vocab_size): take \
         the tokenizer that belongs to the model, or `data.tokenizer = bytes`",
        path.display(),
        known.saturating_sub(1)
    )]
    ForeignTokenizer {
        /// The file of the tokenizer.
        path: PathBuf,
        /// Its largest token.
        largest: u64,
        /// How many tokens the model knows.
        known: usize,
    },
    /// A vocabulary has no tokens for a text.
    #[error("{origin}: {fault}")]
    Text {
        /// Where the text comes from.
        origin: String,
        /// What is wrong with it, and the mend.
        fault: String,
    },
    /// A size that must be at least 1 is 0.
    #[error("`{key} = 0`: use a whole number from 1 up")]
    Zero {
        /// The key of the size.
        key: &'static str,
    },
    /// A step has more targets than lists of them can have.
    #[error(
        "`data.batch_size = {samples}` is too large for samples of {targets} targets: use a smaller one, or a smaller \
         `data.seq_len` or `data.image_size`"
    )]
    Batch {
        /// Samples of a step.
        samples: usize,
        /// Targets of a sample.
        targets: usize,
    },
    /// A batch cannot be cut into that many micro-batches.
    #[error(transparent)]
    MicroBatches(#[from] gpipe_remat::Error),
    /// A tensor cannot be made.
    #[error(transparent)]
    Tensor(#[from] gpipe_tensor::Error),
}

/// Why no samples can be made of a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceFault {
    /// A folder without files, or with pictures alone.
    #[error(
        "the folder holds no text: name one with some, or use `model.name = convnet` for pictures"
    )]
    NoFiles,
    /// A pipe or a device.
    #[error("is no regular file: name a text file or a folder")]
    NotRegular,
    /// A text that does not fit in memory.
    #[error(
        "the text of {} needs {} of memory with its tokens, but {} are there: name a shorter text, or \
         give the program more memory",
        Bytes(*text).rounded_up(), Bytes(*needed).rounded_up(), Bytes(*memory).rounded_up()
    )]
    TooLarge {
        /// Bytes of the text.
        text: u64,
        /// Bytes of memory that the text and its tokens take.
        needed: u64,
        /// Bytes of memory that there are.
        memory: u64,
    },
    /// A text without a token.
    #[error("the text is empty: name one with some text")]
    Empty,
    /// A text shorter than a sample and the token after it.
    #[error(
        "{tokens} tokens are too few for a sample of {seq_len} + 1 tokens: {}",
        longer(*most)
    )]
    TooShort {
        /// Tokens of the text, at least 1.
        tokens: usize,
        /// Tokens of a sample.
        seq_len: usize,
        /// The most tokens of a sample of which there are enough; 0 if there are none.
        most: usize,
    },
    /// A single sample, to be both trained on and held out.
    #[error(
        "one sample cannot be trained on and held out: name more data, or use `run.eval_every = 0`"
    )]
    OneSample,
    /// A token that the model does not know.
    #[error(
        "token {token} at place {place} is beyond model.vocab = {vocab}: {}", larger(*needed)
    )]
    UnknownToken {
        /// The token.
        token: u32,
        /// Its place in the text, from 0.
        place: usize,
        /// How many tokens the model knows.
        vocab: usize,
        /// How many a model of these tokens knows: those of the vocabulary.
        needed: u64,
    },
    /// Noise without the size of its images.
    #[error(
        "noise is for models of images: use one, such as `model.name = convnet` (of a library, `SampleOptions::image`), or \
         name a text"
    )]
    NeedsImages,
    /// The digits, in a build without them.
    #[error("not in this build: build with the feature `digits`")]
    NotBuiltIn,
    /// The digits, for a model of other images.
    #[error(
        "the images have 8 rows of 8 pixels in shades of grey, of 10 classes: use `data.image_size = 8`, \
         `model.channels = 1` and `model.classes = 10`"
    )]
    NotDigits,
    /// Something else than a folder, for images.
    #[error("is no folder: name one with a folder of png or jpg files for each class")]
    NoFolder,
    /// A folder of images without folders in it.
    #[error(
        "the folder holds no folders: put the png or jpg files of each class into one of its own"
    )]
    NoClasses,
    /// Parts of a data set in the place of classes; the folder of one of them.
    #[error(
        "its folders are parts of a data set, not classes: name one of them, as `data.source = {}`", .0.display()
    )]
    PartsAsClasses(PathBuf),
    /// Pictures and their masks, for a classifier.
    #[error(
        "its folders are those of pictures and their masks: use `model.name = unet`, or name a folder with a folder for each \
         class"
    )]
    MasksAsClasses,
    /// A class without images.
    #[error("its folder `{0}` holds no png or jpg files: put some there, or remove it")]
    EmptyClass(String),
    /// More classes than the model has.
    #[error("{classes} classes, but the model knows {most}: name a folder with so many")]
    TooManyClasses {
        /// Folders of classes.
        classes: usize,
        /// Classes of the model.
        most: usize,
    },
    /// A class that the model does not have.
    #[error(
        "the class `{0}` is none of those that the model knows, {1}: call its folder as the model does, or remove it"
    )]
    UnknownClass(String, String),
    /// Another number of channels than pictures can be shown in.
    #[error(
        "pictures have 3 channels of colours, or 1 in shades of grey, but the model takes {0}: use \
         `model.channels = 3`, or a model of such pictures"
    )]
    Channels(usize),
    /// A folder without masks, for a model that learns them.
    #[error("the model learns masks: name a folder with the folders images and masks")]
    NoMasks,
    /// A picture without a mask.
    #[error("the picture `{0}` in images has no mask: put one of the same name into masks")]
    NoMask(String),
    /// Two masks for a picture.
    #[error("the masks `{0}` and `{1}` have the same name: remove one of them")]
    TwoMasks(String, String),
    /// Digits of another size than is known here.
    #[error("the data set of smartcore is not of 64 pixels an image")]
    OtherDigits,
}

/// Why no pairs can be made of two texts. Lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PairFault {
    /// The targets cannot be read.
    #[error("{0}: name a text file with a line for each line of `data.source`")]
    Unreadable(String),
    /// Texts that do not fit in memory.
    #[error(transparent)]
    TooLarge(SourceFault),
    /// Texts without a line.
    #[error("no lines: name a text with a line for each line of `data.source`")]
    NoPairs,
    /// Other numbers of lines.
    #[error(
        "has {targets} lines, but `data.source` has {sources}: name a text with a line for each of them"
    )]
    OtherLength {
        /// Lines of the sources.
        sources: usize,
        /// Lines of the targets.
        targets: usize,
    },
    /// A line without text.
    #[error(
        "line {line}{} is empty: remove the line from both texts, or write one",
        of_source(*is_target)
    )]
    Empty {
        /// The line.
        line: usize,
        /// Whether it is the line of the targets.
        is_target: bool,
    },
    /// Lines that are longer than a row.
    #[error(
        "line {line}{} has {tokens} tokens with its end{}: use `data.seq_len = {tokens}` instead of {seq_len}, or \
         remove {} from both texts",
        of_source(*is_target),
        if *pairs > 1 { format!(", the most of {pairs} lines that are too long") } else { String::new() },
        if *pairs > 1 { "those lines" } else { "the line" }
    )]
    TooLong {
        /// The first of the longest.
        line: usize,
        /// Whether it is the line of the targets.
        is_target: bool,
        /// Its tokens and the end token.
        tokens: usize,
        /// Pairs of lines of which one is too long.
        pairs: usize,
        /// Tokens of a row.
        seq_len: usize,
    },
    /// A token that the model does not know.
    #[error(
        "token {token} in line {line}{} is beyond model.vocab = {vocab}: {}",
        of_source(*is_target), larger(*needed)
    )]
    UnknownToken {
        /// The token.
        token: u32,
        /// Its line.
        line: usize,
        /// Whether it is the line of the targets.
        is_target: bool,
        /// How many tokens the model knows.
        vocab: usize,
        /// How many a model of these tokens knows: those of the vocabulary.
        needed: u64,
    },
    /// A tokenizer that cannot end a line.
    #[error("the tokenizer has no token for the end of a line: use `data.tokenizer = bytes`")]
    NoEnd,
}

/// Why no samples can be made of conversations. Lines count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChatFault {
    /// A file without a conversation.
    #[error("no conversations: {}", Self::FORM)]
    NoChats,
    /// A line that is no conversation.
    #[error(
        "line {line} {fault}: {}, or give a file of plain text another ending",
        Self::FORM
    )]
    Malformed {
        /// The line.
        line: usize,
        /// What is wrong with it.
        fault: String,
    },
    /// An integer that would be read as a floating-point number.
    #[error(
        "line {line} has the integer {digits}, which is beyond 64 bits: write it in quotes, as a text, or remove the line"
    )]
    Integer {
        /// The line.
        line: usize,
        /// Its first digits.
        digits: String,
    },
    /// A tokenizer without a chat template.
    #[error(
        "conversations need a tokenizer with a chat template: put a chat_template.jinja beside its \
         tokenizer.json, or start from a model that has one"
    )]
    NoTemplate,
    /// A template that fails on a conversation, or refuses it.
    #[error("line {line} is refused by the chat template: {fault}: change the line or remove it")]
    Refused {
        /// The line.
        line: usize,
        /// What the template says.
        fault: String,
    },
    /// A conversation of which nothing is learned.
    #[error(
        "line {line} has no answer: end it with a message of the role assistant whose text the chat template writes, or \
         remove it"
    )]
    NoAnswer {
        /// The line.
        line: usize,
    },
    /// A template that writes earlier messages in another way once others follow, or refuses them without those.
    #[error(
        "line {line} cannot be cut into answers, as the chat template changes what is before them, or refuses it alone: \
         mark them in the template with {{% generation %}} and {{% endgeneration %}}"
    )]
    NoPrefix {
        /// The line.
        line: usize,
    },
    /// A conversation that is longer than a row.
    #[error(
        "line {line} has {tokens} tokens: use `data.seq_len = {}` instead of {seq_len}, or remove the line",
        tokens - 1
    )]
    TooLong {
        /// The line.
        line: usize,
        /// Its tokens, of which the last is a target only.
        tokens: usize,
        /// Tokens of a row.
        seq_len: usize,
    },
    /// A token that the model does not know.
    #[error(
        "token {token} in line {line} is beyond model.vocab = {vocab}: take the tokenizer that belongs to the model"
    )]
    UnknownToken {
        /// The token.
        token: u32,
        /// Its line.
        line: usize,
        /// How many tokens the model knows.
        vocab: usize,
    },
}

impl ChatFault {
    /// What a file of conversations holds.
    const FORM: &str = r#"write {"messages": [{"role": "user", "content": "…"}, …]} on each line"#;
}

/// What the system says of a path, and in which folder a relative one was looked for: that in which a run began may be another.
pub(crate) fn looked_for(path: &Path, source: &io::Error) -> String {
    match path::absolute(".") {
        Ok(here) if is_elsewhere(path, source) => {
            format!("{source} in {}, where gpipe was started", here.display())
        }
        _ => source.to_string(),
    }
}

/// Whether a path is missing that may be there from another folder.
pub(crate) fn is_elsewhere(path: &Path, source: &io::Error) -> bool {
    path.is_relative() && source.kind() == io::ErrorKind::NotFound
}

/// [`looked_for`], with the mend.
fn unreadable(path: &Path, source: &io::Error) -> String {
    let mend = match is_elsewhere(path, source) {
        true => "give `data.source` its whole path, or name another file or folder",
        false => "name a text file or folder that can be read, or cicero",
    };
    format!("{}: {mend}", looked_for(path, source))
}

/// Names the text of a line, where it is not the one that the message begins with.
fn of_source(is_target: bool) -> &'static str {
    if is_target { "" } else { " of `data.source`" }
}

/// The mend for a token that the model does not know, of a vocabulary of `needed` tokens.
fn larger(needed: u64) -> String {
    match needed {
        256 => "use `model.vocab = 256` for a new model, which bytes need, or name another text"
            .to_owned(),
        needed => format!(
            "use `model.vocab = {needed}` for a new model, which its tokens need, or the tokenizer that belongs to the model"
        ),
    }
}

/// The mend for a text that is too short, of which there are samples of at most `most` tokens.
fn longer(most: usize) -> String {
    match most {
        0 => "name a longer text".to_owned(),
        most => format!("use `data.seq_len = {most}` or less, or a longer text"),
    }
}

impl Error {
    /// Whether what was asked for cannot be done, as opposed to a failure on the way.
    pub fn is_input_error(&self) -> bool {
        !matches!(self, Self::Tensor(_))
    }
}
