//! Cutting a long text into pieces whose tokens, one piece after the other, are those of the whole.
//!
//! The library needs a few hundred bytes for every character of what it is given at once, and works
//! on it with one thread.

use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::{NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer};

use super::quiet::short;

/// Least bytes of a piece, but for the last of a text.
const LENGTH: usize = 1 << 17;

/// Patterns that cut a text into words: of GPT-2; of GPT-4 and Llama 3, with up to three digits in a
/// word; of Qwen, with one; of GPT-4o.
pub const WORDS: [&str; 4] = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

/// Whether every place between a word and the one space before the next word is a place where
/// tokens end.
///
/// The patterns of [`WORDS`] take letters, or digits, or other signs, each with at most one space before
/// it, and never look behind: so it is there, as long as nothing is done to the text before that looks
/// across a space, and no token was added that holds or swallows spaces.
pub fn can_be_cut(tokenizer: &Tokenizer) -> bool {
    let rules = match tokenizer.get_pre_tokenizer() {
        Some(PreTokenizerWrapper::Sequence(list)) => list.as_ref(),
        Some(rule) => std::slice::from_ref(rule),
        None => &[],
    };
    // Each rule cuts what those before it left, so one that cuts there is enough, before any other that
    // could move a sign across. A space that is put before a piece is put before none that has one.
    let by_words = match rules {
        [rule] | [PreTokenizerWrapper::Digits(_), rule] => is_of_words(rule),
        [rule, PreTokenizerWrapper::ByteLevel(_)] => is_of_words(rule),
        _ => false,
    };
    // A space composes with nothing before it, and a letter of ASCII with no space.
    let in_place = matches!(
        tokenizer.get_normalizer(),
        None | Some(NormalizerWrapper::NFC(_))
    );
    let added = tokenizer.get_added_tokens_decoder();
    let harmless = added.values().all(|token| {
        !token.lstrip && !token.rstrip && !token.content.contains(char::is_whitespace)
    });
    by_words && in_place && harmless
}

fn is_of_words(rule: &PreTokenizerWrapper) -> bool {
    match rule {
        PreTokenizerWrapper::ByteLevel(rule) => rule.use_regex,
        PreTokenizerWrapper::Split(rule) => {
            let known = |pattern: &String| WORDS.contains(&pattern.as_str());
            let isolated = rule.behavior == SplitDelimiterBehavior::Isolated && !rule.invert;
            isolated && matches!(&rule.pattern, SplitPattern::Regex(pattern) if known(pattern))
        }
        _ => false,
    }
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
