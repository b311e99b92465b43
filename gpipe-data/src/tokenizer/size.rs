//! How much memory the tokens of a text take, known before they are made: an allocation that fails
//! ends the process.

use gpipe_remat::Bytes;
use tokenizers::{OffsetReferential, OffsetType, PreTokenizer, Tokenizer};

use super::pieces::tokens;
use super::quiet::short;

/// The most times as many bytes that rules may make of a text as it has. Of real texts all that are in
/// use make at most three times as many, and of the worst eleven times.
const MOST: u64 = 16;
/// As many bytes may be added to any text.
const ADDED: u64 = 1 << 16;
/// Bytes of text of which the size is measured at once; rules may make 16,384 times as many of it.
const WINDOW: usize = 1 << 8;
/// The most bytes that the library needs for a byte of what its rules make of a text, measured where each
/// is a word of its own.
const WORKING: u64 = 512;
/// Bytes of a token.
const TOKEN: u64 = 4;

/// A tokenizer, and what its tokens may take.
pub struct Check<'a> {
    pub tokenizer: &'a Tokenizer,
    /// How many times as many bytes its rules make of a text, at the most.
    pub growth: u64,
    /// Threads that make tokens of pieces.
    pub threads: usize,
    /// Bytes that there are, if that is known.
    pub memory: Option<u64>,
}

impl Check<'_> {
    /// Refuses a text of which the rules make much more than it is, and one whose tokens do not fit in
    /// memory. A text that cannot be cut is one piece.
    pub fn text(&self, pieces: &[&str]) -> Result<(), String> {
        let bytes = |text: &&str| text.len() as u64;
        let all: u64 = pieces.iter().map(bytes).sum();
        let working = |bytes: u64| bytes.saturating_mul(WORKING);
        let most = working(all.saturating_mul(self.growth));
        if self.growth <= MOST && self.memory.is_none_or(|memory| most <= memory) {
            return Ok(());
        }
        let (first, memory) = match (pieces, self.memory) {
            ([text], memory) if memory.is_some() || self.growth > MOST => {
                let needed = working(grown(self.tokenizer, text)?);
                return enough(all, needed, memory.unwrap_or(u64::MAX));
            }
            ([first, ..], Some(memory)) => (first, memory),
            _ => return Ok(()),
        };
        // Twice: once by pieces, once joined. A tenth more, as the first piece is not all of the text.
        let tokens = tokens(self.tokenizer, first)?.len() as f64 / first.len() as f64;
        let tokens = (1.1 * tokens * all as f64) as u64 * 2 * TOKEN;
        let longest = pieces.iter().map(bytes).max().unwrap_or(0);
        let threads = working(longest).saturating_mul(self.threads as u64);
        enough(all, tokens.saturating_add(threads), memory)
    }
}

fn enough(text: u64, needed: u64, memory: u64) -> Result<(), String> {
    match needed > memory {
        true => Err(format!(
            "the tokens of {} need {} of memory, and {} are there",
            Bytes(text).rounded_up(),
            Bytes(needed).rounded_up(),
            Bytes(memory).rounded_up()
        )),
        false => Ok(()),
    }
}

/// How many bytes the rules make of a text, a window at a time.
fn grown(tokenizer: &Tokenizer, text: &str) -> Result<u64, String> {
    let (mut sum, mut rest) = (0, text);
    while !rest.is_empty() {
        let mut end = WINDOW.min(rest.len());
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (window, after) = rest.split_at(end);
        rest = after;
        sum += grown_window(tokenizer, window)?;
        let before = (text.len() - rest.len()) as u64;
        if sum > MOST * before + ADDED {
            return Err(format!(
                "its rules make {} of {}: {MOST} times as much is the most that is read",
                Bytes(sum).rounded_up(),
                Bytes(before).rounded_up()
            ));
        }
    }
    Ok(sum)
}

fn grown_window(tokenizer: &Tokenizer, window: &str) -> Result<u64, String> {
    // As the library does: what is between tokens that were added is normalized by itself.
    let added = tokenizer.get_added_vocabulary();
    let mut text = added.extract_and_normalize(tokenizer.get_normalizer(), window);
    if let Some(rule) = tokenizer.get_pre_tokenizer() {
        rule.pre_tokenize(&mut text).map_err(short)?;
    }
    let words = text.get_splits(OffsetReferential::Normalized, OffsetType::None);
    Ok(words.iter().map(|(word, ..)| word.len() as u64).sum())
}
