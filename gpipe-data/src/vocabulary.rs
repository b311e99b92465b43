//! What tokens stand for: bytes, or what a `tokenizer.json` says.

use std::fmt;
use std::path::{Path, PathBuf};

use gpipe_files::{Links, read_capped};

use crate::error::{Error, Result};
use crate::tokenizer::{BUILT_IN, ChatError, Tokenizer};
use crate::tokens::Tokens;

/// The choice of the tokenizer that belongs to the model, and of bytes if it has none.
pub const AUTO: &str = "auto";
/// The choice of bytes.
pub const BYTES: &str = "bytes";

/// The largest `tokenizer.json` that is read; those with a quarter of a million tokens have 20 MB.
const LARGEST: u64 = 32 << 20;

/// The mend for a file that cannot be read.
const MEND: &str = "name a tokenizer.json, or use `data.tokenizer = bytes`";

/// From text to tokens, and back.
///
/// ```
/// use gpipe_data::Vocabulary;
///
/// let vocabulary = Vocabulary::bytes();
/// let tokens = vocabulary.encode("añb".into(), 1, "the example")?;
/// assert_eq!(tokens, [97, 0xC3, 0xB1, 98]);
/// assert_eq!(vocabulary.decode(&tokens), "añb");
/// # Ok::<_, gpipe_data::Error>(())
/// ```
pub struct Vocabulary(Kind);

enum Kind {
    /// A token is a byte.
    Bytes,
    /// As a file says.
    File(Box<Tokenizer>),
}

/// A vocabulary, and where it was found.
#[derive(Debug)]
pub struct FoundVocabulary {
    /// What tokens stand for.
    pub vocabulary: Vocabulary,
    /// The file that says so; none for bytes.
    pub file: Option<PathBuf>,
    /// A line for the user, if a tokenizer is there and not used.
    pub warning: Option<String>,
}

impl FoundVocabulary {
    /// A token is a byte.
    pub fn bytes() -> Self {
        Self {
            vocabulary: Vocabulary::bytes(),
            file: None,
            warning: None,
        }
    }
}

/// The vocabulary that was chosen by [`AUTO`], [`BYTES`] or the path of a `tokenizer.json`, for a model
/// that knows `known` tokens.
///
/// `of_model` is the tokenizer's file that belongs to the model, if it has one; it counts for [`AUTO`]
/// alone.
///
/// # Errors
/// If the file cannot be read or is no tokenizer, or if it has tokens that the model does not know.
pub fn find_vocabulary(
    choice: &str,
    of_model: Option<&Path>,
    known: usize,
) -> Result<FoundVocabulary> {
    let file = match choice {
        BYTES => None,
        AUTO => of_model.map(Path::to_owned),
        file => Some(PathBuf::from(file)),
    };
    let Some(file) = file else {
        return Ok(FoundVocabulary::bytes());
    };
    if !BUILT_IN && choice == AUTO && (256..=257).contains(&known) {
        let warning = format!(
            "{}: not read, as this build lacks the feature tokenizers: tokens are bytes",
            file.display()
        );
        return Ok(FoundVocabulary {
            warning: Some(warning),
            ..FoundVocabulary::bytes()
        });
    }
    let vocabulary = Vocabulary::open(&file)?;
    if vocabulary.size() > known as u64 {
        return Err(Error::ForeignTokenizer {
            largest: vocabulary.size() - 1,
            path: file,
            known,
        });
    }
    Ok(FoundVocabulary {
        vocabulary,
        file: Some(file),
        warning: None,
    })
}

/// How many tokens a model must know for this choice, if a file decides that: for a path, but neither
/// for [`AUTO`] nor for [`BYTES`].
///
/// # Errors
/// If the file cannot be read or is no tokenizer.
pub fn vocabulary_size(choice: &str) -> Result<Option<u64>> {
    match choice {
        AUTO | BYTES => Ok(None),
        file => Vocabulary::open(Path::new(file)).map(|vocabulary| Some(vocabulary.size())),
    }
}

impl Vocabulary {
    /// A token is a byte.
    pub fn bytes() -> Self {
        Self(Kind::Bytes)
    }

    /// The tokens of a `tokenizer.json`.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be read or is longer than 32 MiB, [`Error::Tokenizer`] if it is
    /// damaged, hostile or of an unknown kind, or this build lacks the feature `tokenizers`.
    pub fn open(file: &Path) -> Result<Self> {
        let bytes = read_capped(file, LARGEST, Links::Followed, MEND)?;
        Tokenizer::parse(&bytes)
            .map(Self::of)
            .map_err(|fault| Error::Tokenizer {
                path: file.to_owned(),
                fault,
            })
    }

    /// The tokens of a `tokenizer.json` with these bytes.
    ///
    /// # Errors
    /// [`Error::Malformed`] as for [`Error::Tokenizer`] in [`open`](Self::open).
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        Tokenizer::parse(bytes)
            .map(Self::of)
            .map_err(Error::Malformed)
    }

    /// The same vocabulary with the template of its conversations, and the texts of the special tokens that the
    /// template names, such as `bos_token`. Bytes have no use for one.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the template cannot be understood, in words that follow its name.
    pub fn with_chat_template(
        mut self,
        template: &str,
        special: Vec<(String, String)>,
    ) -> Result<Self> {
        if let Kind::File(tokenizer) = &mut self.0 {
            let taken = tokenizer.set_chat_template(template, special);
            taken.map_err(Error::Malformed)?;
        }
        Ok(self)
    }

    /// The tokens of a conversation in JSON, made within `memory` bytes, and whether each belongs to an answer.
    pub(crate) fn chat(
        &self,
        line: &str,
        memory: Option<u64>,
    ) -> std::result::Result<Vec<(u32, bool)>, ChatError> {
        match &self.0 {
            Kind::Bytes => Err(ChatError::NoTemplate),
            Kind::File(tokenizer) => tokenizer.chat(line, memory),
        }
    }

    /// The tokens of a tokenizer.
    pub(crate) fn of(tokenizer: Tokenizer) -> Self {
        Self(Kind::File(Box::new(tokenizer)))
    }

    /// One more than the largest token.
    pub fn size(&self) -> u64 {
        match &self.0 {
            Kind::Bytes => 256,
            Kind::File(tokenizer) => tokenizer.size(),
        }
    }

    /// The tokens of a text, made by up to `threads` threads; they do not depend on how many. `origin`
    /// begins the message of an error: where the text comes from.
    ///
    /// # Errors
    /// [`Error::Text`] if a tokenizer is given no UTF-8 or has no tokens for the text.
    pub fn encode(&self, text: Vec<u8>, threads: usize, origin: &str) -> Result<Vec<u32>> {
        let tokens = self.encode_within(text, threads, origin, None)?;
        Ok(tokens.into_numbers())
    }

    /// [`encode`](Self::encode), of a text that leaves room for its tokens in `memory` bytes.
    pub(crate) fn encode_within(
        &self,
        text: Vec<u8>,
        threads: usize,
        origin: &str,
        memory: Option<u64>,
    ) -> Result<Tokens> {
        let tokenizer = match &self.0 {
            Kind::Bytes => return Ok(Tokens::Bytes(text)),
            Kind::File(tokenizer) => tokenizer,
        };
        let fault = |fault: String| Error::Text {
            origin: origin.to_owned(),
            fault,
        };
        let text = String::from_utf8(text).map_err(|error| {
            fault(format!(
                "byte {} is no UTF-8 text, which the tokenizer reads: convert it, or use \
                 `data.tokenizer = bytes`",
                error.utf8_error().valid_up_to()
            ))
        })?;
        let tokens = tokenizer.encode(&text, threads, memory).map_err(|error| {
            fault(format!(
                "the tokenizer cannot say it: {error}: use another or a shorter text, or \
                 `data.tokenizer = bytes`"
            ))
        })?;
        Ok(Tokens::Numbers(tokens))
    }

    /// The bytes that a token stands for; `None` if they depend on the tokens around it.
    pub fn token_bytes(&self, token: u32) -> Option<Vec<u8>> {
        match &self.0 {
            // A token that is no byte, of a model that knows more: no UTF-8 has this byte.
            Kind::Bytes => Some(vec![u8::try_from(token).unwrap_or(0xFF)]),
            Kind::File(tokenizer) => tokenizer.bytes(token),
        }
    }

    /// The byte that a token stands for where most others stand for text, such as 10 for `<0x0A>`.
    pub(crate) fn fallback_byte(&self, token: u32) -> Option<u8> {
        match &self.0 {
            Kind::Bytes => None,
            Kind::File(tokenizer) => tokenizer.fallback_byte(token),
        }
    }

    /// The text of tokens. What is no UTF-8 becomes U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> String {
        match &self.0 {
            Kind::Bytes => {
                let bytes = tokens.iter().filter_map(|&token| self.token_bytes(token));
                let bytes: Vec<u8> = bytes.flatten().collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Kind::File(tokenizer) => tokenizer.decode(tokens),
        }
    }
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Bytes => f.write_str("Vocabulary::bytes()"),
            Kind::File(tokenizer) => write!(f, "Vocabulary of {} tokens", tokenizer.size()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_need_no_file() {
        for (choice, of_model) in [(BYTES, Some(Path::new("no/such/file"))), (AUTO, None)] {
            let found = find_vocabulary(choice, of_model, 256).unwrap();
            assert!(found.file.is_none() && found.warning.is_none());
            assert_eq!(found.vocabulary.size(), 256);
            assert_eq!(vocabulary_size(choice).unwrap(), None);
        }
    }

    #[test]
    fn a_file_that_is_named_must_be_there() {
        for result in [
            find_vocabulary("no/such/file", None, 256).map(drop),
            vocabulary_size("no/such/file").map(drop),
        ] {
            let error = result.unwrap_err();
            assert!(error.is_input_error());
            assert!(error.to_string().starts_with("no/such/file: "), "{error}");
            assert!(error.to_string().ends_with(MEND), "{error}");
        }
    }

    #[cfg(feature = "tokenizers")]
    #[test]
    fn the_models_tokenizer_must_fit_the_model() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizer.json");
        let found = find_vocabulary(AUTO, Some(&file), 500).unwrap();
        assert_eq!(
            (found.file, found.vocabulary.size()),
            (Some(file.clone()), 500)
        );
        let name = file.to_str().unwrap();
        assert_eq!(vocabulary_size(name).unwrap(), Some(500));
        let refused = find_vocabulary(name, None, 499).err().unwrap().to_string();
        assert!(refused.contains("largest token is 499"), "{refused}");
        assert!(
            refused.contains("knows 499 tokens, up to 498 "),
            "{refused}"
        );
    }

    #[cfg(not(feature = "tokenizers"))]
    #[test]
    fn without_the_feature_a_model_of_bytes_goes_on_with_a_warning() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizer.json");
        let found = find_vocabulary(AUTO, Some(&file), 257).unwrap();
        let warning = found.warning.unwrap();
        assert!(warning.contains("feature tokenizers") && found.file.is_none());
        for choice in [AUTO, file.to_str().unwrap()] {
            let refused = find_vocabulary(choice, Some(&file), 500).err().unwrap();
            assert!(
                refused.to_string().contains("not in this build"),
                "{refused}"
            );
        }
    }
}
