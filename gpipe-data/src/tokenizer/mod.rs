//! The tokens of a `tokenizer.json`, as the library `tokenizers` reads it, which is the one behind
//! `transformers`.
//!
//! Such a file is a small program: patterns, tables and rules that call each other. It is checked
//! before the library sees it ([`guard`]), and whatever the library does with it, a panic included,
//! ends in one line ([`quiet`]).

mod guard;
mod pieces;
mod quiet;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokenizers::{DecoderWrapper, ModelWrapper, PostProcessorWrapper};

use quiet::quietly;

/// Whether this build can read them.
pub const BUILT_IN: bool = true;

/// Text to tokens and back.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// One more than its largest token.
    size: u64,
    /// The bytes of the characters that stand for bytes, if it says tokens in them.
    bytes: Option<[char; 256]>,
    /// Whether a text can be cut between words.
    cuts: bool,
}

impl Tokenizer {
    /// The tokenizer in these bytes, or what is wrong with them.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        guard::check(bytes)?;
        let inner = quietly(|| {
            let mut inner = tokenizers::Tokenizer::from_bytes(bytes).map_err(short)?;
            // A text is trained on as it is: neither cut off, nor filled up, nor framed.
            inner.with_truncation(None).map_err(short)?;
            inner.with_padding(None);
            inner.with_post_processor(None::<PostProcessorWrapper>);
            Ok(inner)
        })
        .map_err(|fault| format!("cannot be read: {fault}"))?;
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
            cuts: pieces::can_be_cut(&inner),
            inner,
        })
    }

    /// One more than the largest token.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The tokens of a text, made by `threads` threads.
    pub fn encode(&self, text: &str, threads: usize) -> Result<Vec<u32>, String> {
        let pieces = match self.cuts {
            true => pieces::cut(text),
            false => vec![text],
        };
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            while let Some((number, piece)) = {
                let number = next.fetch_add(1, Ordering::Relaxed);
                pieces.get(number).map(|piece| (number, *piece))
            } {
                let tokens = quietly(|| {
                    let encoding = self.inner.encode_fast(piece, false).map_err(short)?;
                    Ok(encoding.get_ids().to_vec())
                });
                done.push((number, tokens?));
            }
            Ok::<_, String>(done)
        };
        let mut done = thread::scope(|scope| {
            let others: Vec<_> = (1..threads.min(pieces.len()))
                .map(|_| scope.spawn(work))
                .collect();
            let mut done = work()?;
            for other in others {
                done.extend(other.join().map_err(|_| "a thread panicked".to_owned())??);
            }
            Ok::<_, String>(done)
        })?;
        done.sort_unstable_by_key(|(number, _)| *number);
        Ok(done.into_iter().flat_map(|(_, tokens)| tokens).collect())
    }

    /// The bytes that a token stands for, if it stands for the same ones everywhere. A token that
    /// there is not stands for none.
    pub fn bytes(&self, token: u32) -> Option<Vec<u8>> {
        let characters = self.bytes.as_ref()?;
        let Some(text) = self.inner.id_to_token(token) else {
            return Some(Vec::new());
        };
        let byte = |character: char| {
            let place = characters.iter().position(|&known| known == character);
            place.map(|place| place as u8)
        };
        // Tokens that were added, such as <|endoftext|>, may be plain text.
        let bytes: Option<Vec<u8>> = text.chars().map(byte).collect();
        Some(bytes.unwrap_or_else(|| text.into_bytes()))
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

/// The beginning of what the library says: it quotes the file.
fn short(error: impl std::fmt::Display) -> String {
    error.to_string().chars().take(200).collect()
}

#[cfg(test)]
mod tests;
