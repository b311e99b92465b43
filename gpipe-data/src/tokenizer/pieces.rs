//! Cutting a long text into pieces whose tokens, one piece after the other, are those of the whole.
//!
//! The library needs a few hundred bytes for every character of what it is given at once, and works
//! on it with one thread.

use tokenizers::{PreTokenizerWrapper, Tokenizer};

use super::quiet::short;

/// Least bytes of a piece, but for the last of a text.
const LENGTH: usize = 1 << 17;

/// Whether every place between a word and the one space before the next word is a place where
/// tokens end.
///
/// The pattern of GPT-2 takes letters, or digits, or other signs, each with at most one space before
/// it, and never looks behind: so it is there, as long as nothing is done to the text before, and no
/// token was added that holds or swallows spaces.
pub fn can_be_cut(tokenizer: &Tokenizer) -> bool {
    let by_words = match tokenizer.get_pre_tokenizer() {
        Some(PreTokenizerWrapper::ByteLevel(rule)) => rule.use_regex,
        _ => false,
    };
    let added = tokenizer.get_added_tokens_decoder();
    let harmless = added.values().all(|token| {
        !token.lstrip && !token.rstrip && !token.content.contains(char::is_whitespace)
    });
    by_words && tokenizer.get_normalizer().is_none() && harmless
}

/// The pieces of a text, each but the last cut before a single space between two words.
pub fn cut(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut at = LENGTH;
    while at + 1 < bytes.len() {
        let [before, here, after] = [bytes[at - 1], bytes[at], bytes[at + 1]];
        if before.is_ascii_alphanumeric() && here == b' ' && after.is_ascii_alphanumeric() {
            pieces.push(&text[start..at]);
            start = at;
            at += LENGTH;
        } else {
            at += 1;
        }
    }
    pieces.push(&text[start..]);
    pieces
}

/// The tokens of a piece.
pub fn tokens(tokenizer: &Tokenizer, piece: &str) -> Result<Vec<u32>, String> {
    let encoding = tokenizer.encode_fast(piece, false).map_err(short)?;
    Ok(encoding.get_ids().to_vec())
}
