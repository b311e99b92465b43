//! The tokens of a `tokenizer.json`, as the library `tokenizers` reads it, which is the one behind
//! `transformers`.
//!
//! Such a file is a small program: patterns, tables and rules that call each other. It is checked
//! before the library sees it ([`guard`], [`rules`], [`pattern`]), and whatever the library does with
//! it, a panic included, ends in one line ([`quiet`]).

mod chat_error;
mod chat_template;
mod conversation;
mod guard;
mod pattern;
mod pieces;
mod python;
mod python_text;
mod quiet;
mod rules;
mod size;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde::Deserialize;
use serde_json::Value;
use tokenizers::{
    AddedToken, DecoderWrapper, ModelWrapper, NormalizerWrapper, PreTokenizerWrapper,
};

pub use chat_error::ChatError;
use chat_template::ChatTemplate;
use quiet::{quietly, short, unreadable};
use rules::Rules;
use size::Check;

/// Whether this build can read them.
pub const BUILT_IN: bool = true;

/// The most bytes that rules may make of the tokens that are added, as they do when they are built.
const MOST_ADDED: u64 = 16 << 20;

/// The version of the format.
const VERSION: &str = "1.0";

/// What is read of a file: a text is trained on as it is, neither cut off, nor filled up, nor framed.
#[derive(Deserialize)]
struct File {
    version: Option<String>,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    decoder: Option<Value>,
    model: ModelWrapper,
}

impl File {
    /// An error for a file of a format that is not known.
    fn check_version(&self) -> Result<(), String> {
        match &self.version {
            Some(version) if version != VERSION => Err(format!(
                "has the version {version:?}: {VERSION} is the one that is read"
            )),
            _ => Ok(()),
        }
    }

    /// How many times as many bytes its rules make of a text, at the most.
    fn growth(&self) -> Result<u64, String> {
        let growth = Rules {
            normalizer: self.normalizer.as_ref(),
            pre_tokenizer: self.pre_tokenizer.as_ref(),
            decoder: self.decoder.as_ref(),
        }
        .growth()?;
        let added = self.added_tokens.iter().map(|token| token.content.len());
        let bytes = growth.saturating_mul(added.sum::<usize>() as u64);
        if bytes > MOST_ADDED {
            return Err(format!(
                "its normalizer may make {bytes} bytes of the added_tokens: {MOST_ADDED} are the most that \
                 is read"
            ));
        }
        Ok(growth)
    }

    /// The library's tokenizer, of rules that were checked.
    fn build(self) -> Result<tokenizers::Tokenizer, String> {
        let mut inner = tokenizers::Tokenizer::new(self.model);
        let normalizer = part::<NormalizerWrapper>(self.normalizer)?;
        inner.with_normalizer(normalizer).map_err(unreadable)?;
        inner.with_pre_tokenizer(part::<PreTokenizerWrapper>(self.pre_tokenizer)?);
        inner.with_decoder(part::<DecoderWrapper>(self.decoder)?);
        inner.add_tokens(self.added_tokens).map_err(unreadable)?;
        Ok(inner)
    }
}

/// Whether a decoder makes bytes of tokens such as `<0x0A>`, by itself or in a sequence.
fn has_byte_fallback(decoder: &Value) -> bool {
    let inside = decoder["decoders"].as_array();
    decoder["type"] == "ByteFallback"
        || inside.is_some_and(|decoders| decoders.iter().any(has_byte_fallback))
}

fn part<T: serde::de::DeserializeOwned>(value: Option<Value>) -> Result<Option<T>, String> {
    let part = value.map(serde_json::from_value).transpose();
    part.map_err(unreadable)
}

/// Text to tokens and back.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// One more than its largest token.
    size: u64,
    /// The bytes of the characters that stand for bytes, if it says tokens in them.
    bytes: Option<[char; 256]>,
    /// Whether tokens such as `<0x0A>` are bytes.
    falls_back: bool,
    /// Whether a text can be cut between words.
    cuts: bool,
    /// How many times as many bytes its rules make of a text, at the most.
    growth: u64,
    /// How it writes conversations, if that is known.
    template: Option<ChatTemplate>,
}

impl Tokenizer {
    /// The tokenizer in these bytes, or what is wrong with them.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        guard::check(bytes)?;
        let (inner, growth, falls_back) = quietly(|| {
            let file: File = serde_json::from_slice(bytes).map_err(unreadable)?;
            file.check_version()?;
            let growth = file.growth()?;
            let falls_back = file.decoder.as_ref().is_some_and(has_byte_fallback);
            Ok((file.build()?, growth, falls_back))
        })?;
        if let ModelWrapper::BPE(model) = inner.get_model()
            && let Some(share) = model.dropout.filter(|&share| share != 0.0)
        {
            return Err(format!(
                "has a dropout of {share}: the same text must always be the same tokens, so set it to null"
            ));
        }
        let largest = inner.get_vocab(true).into_values().max();
        let Some(largest) = largest else {
            return Err("knows no tokens".into());
        };
        let bytes = matches!(inner.get_decoder(), Some(DecoderWrapper::ByteLevel(_)))
            .then(characters_of_bytes);
        Ok(Self {
            size: u64::from(largest) + 1,
            bytes,
            falls_back,
            cuts: pieces::can_be_cut(&inner),
            growth,
            inner,
            template: None,
        })
    }

    /// Takes a chat template, and the texts of the special tokens that it names.
    pub fn set_chat_template(
        &mut self,
        template: &str,
        special: Vec<(String, String)>,
    ) -> Result<(), String> {
        self.template = Some(ChatTemplate::parse(template, special)?);
        Ok(())
    }

    /// The tokens of a conversation in JSON, if there is room for them in `memory` bytes, and whether each belongs to an
    /// answer: those that overlap with one.
    pub fn chat(&self, line: &str, memory: Option<u64>) -> Result<Vec<(u32, bool)>, ChatError> {
        let template = self.template.as_ref().ok_or(ChatError::NoTemplate)?;
        let chat = template.render(line)?;
        let check = Check {
            tokenizer: &self.inner,
            growth: self.growth,
            threads: 1,
            memory,
        };
        let tokens = quietly(|| {
            check.text(&[&chat.text])?;
            self.inner.encode(chat.text.as_str(), false).map_err(short)
        });
        let tokens = tokens.map_err(ChatError::Text)?;
        let answered = |&(start, end): &(usize, usize)| {
            let of = |answer: &Range<usize>| start < answer.end && answer.start < end;
            chat.answers.iter().any(of)
        };
        let ids = tokens.get_ids().iter().copied();
        Ok(ids.zip(tokens.get_offsets().iter().map(answered)).collect())
    }

    /// One more than the largest token.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The tokens of a text, made by `threads` threads, if there is room for them in `memory` bytes.
    pub fn encode(
        &self,
        text: &str,
        threads: usize,
        memory: Option<u64>,
    ) -> Result<Vec<u32>, String> {
        let pieces = match self.cuts {
            true => pieces::cut(text),
            false => vec![text],
        };
        let check = Check {
            tokenizer: &self.inner,
            growth: self.growth,
            threads,
            memory,
        };
        quietly(|| check.text(&pieces))?;
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            while let Some((number, piece)) = {
                let number = next.fetch_add(1, Ordering::Relaxed);
                pieces.get(number).map(|piece| (number, *piece))
            } {
                done.push((number, quietly(|| pieces::tokens(&self.inner, piece))?));
            }
            Ok::<_, String>(done)
        };
        let mut done = thread::scope(|scope| {
            // Where no more threads can start, those that run take all pieces.
            let others: Vec<_> = (1..threads.min(pieces.len()))
                .map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
                .collect();
            let mut done = work()?;
            for other in others {
                done.extend(other.join().map_err(|_| "a thread panicked".to_owned())??);
            }
            Ok::<_, String>(done)
        })?;
        done.sort_unstable_by_key(|(number, _)| *number);
        let all = done.iter().map(|(_, tokens)| tokens.len()).sum();
        let mut tokens = Vec::with_capacity(all);
        for (_, piece) in done {
            tokens.extend(piece);
        }
        Ok(tokens)
    }

    /// The bytes that a token stands for, if it stands for the same ones everywhere. A token that
    /// there is not stands for none.
    pub fn bytes(&self, token: u32) -> Option<Vec<u8>> {
        let Some(text) = self.inner.id_to_token(token) else {
            return Some(Vec::new());
        };
        let characters = self.bytes.as_ref()?;
        let byte = |character: char| {
            let place = characters.iter().position(|&known| known == character);
            place.map(|place| place as u8)
        };
        // Tokens that were added, such as <|endoftext|>, may be plain text.
        let bytes: Option<Vec<u8>> = text.chars().map(byte).collect();
        Some(bytes.unwrap_or_else(|| text.into_bytes()))
    }

    /// The byte that a token such as `<0x0A>` stands for, which it does beside others of the same kind only where they are
    /// UTF-8 together.
    pub fn fallback_byte(&self, token: u32) -> Option<u8> {
        let text = self.falls_back.then(|| self.inner.id_to_token(token))??;
        let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
        let is_byte = digits.len() == 2 && digits.bytes().all(|sign| sign.is_ascii_hexdigit());
        u8::from_str_radix(digits, 16).ok().filter(|_| is_byte)
    }

    /// The text that some tokens are.
    pub fn decode(&self, tokens: &[u32]) -> String {
        // Nothing can be said of tokens that the library fails on.
        quietly(|| self.inner.decode(tokens, false).map_err(short)).unwrap_or_default()
    }
}

/// The character for each byte in the tables of byte-level vocabularies (Radford et al. 2019, the
/// code of GPT-2): bytes that are printable in Latin-1 are themselves, the others are, in their order,
/// the characters from U+0100 on.
fn characters_of_bytes() -> [char; 256] {
    let mut others = '\u{100}'..;
    std::array::from_fn(|byte| match byte as u8 {
        printable @ (b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF) => char::from(printable),
        _ => others.next().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests;
