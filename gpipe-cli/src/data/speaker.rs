//! Tokens become text again, one after the other.

use super::vocabulary::Vocabulary;

/// Text that grows by tokens. A character whose bytes come with several tokens is said once it is
/// whole; what is no UTF-8 becomes U+FFFD.
pub struct Speaker<'a> {
    vocabulary: &'a Vocabulary,
    /// Where tokens are bytes: the beginning of a character.
    bytes: Vec<u8>,
    /// Where the text of a token depends on its neighbours: the last tokens, of which so many were said.
    tail: Vec<u32>,
    said: usize,
}

/// A character of UTF-8 has no more bytes, so where a token is a byte, it comes with no more tokens.
const LONGEST: usize = 4;

impl<'a> Speaker<'a> {
    /// Nothing was said yet.
    pub fn new(vocabulary: &'a Vocabulary) -> Self {
        Self {
            vocabulary,
            bytes: Vec::new(),
            tail: Vec::new(),
            said: 0,
        }
    }

    /// The same, after tokens that are known already: the text goes on from them.
    #[must_use]
    pub fn after(mut self, known: &[u32]) -> Self {
        for &token in &known[known.len().saturating_sub(LONGEST)..] {
            if self.vocabulary.bytes(token).is_none() {
                self.tail.push(token);
            }
        }
        self.said = self.tail.len();
        self
    }

    /// What can be said after another token.
    pub fn say(&mut self, token: u32) -> String {
        match self.vocabulary.bytes(token) {
            Some(bytes) => {
                self.bytes.extend(bytes);
                self.whole_characters()
            }
            None => {
                self.tail.push(token);
                self.grown(LONGEST)
            }
        }
    }

    /// What is left at the end: a character that was cut off.
    pub fn end(mut self) -> String {
        match self.bytes.is_empty() {
            true => self.grown(0),
            false => char::REPLACEMENT_CHARACTER.to_string(),
        }
    }

    fn whole_characters(&mut self) -> String {
        let mut text = String::new();
        let mut said = 0;
        for chunk in self.bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            said += chunk.valid().len();
            let cut_off = said + chunk.invalid().len() == self.bytes.len();
            let invalid = chunk.invalid();
            if cut_off && is_beginning(invalid) {
                break;
            }
            if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
                said += invalid.len();
            }
        }
        self.bytes.drain(..said);
        text
    }

    /// By what the text of the tail grew, unless it ends in what may become a character: then it is
    /// held back, up to so many tokens.
    fn grown(&mut self, most: usize) -> String {
        let before = self.vocabulary.decode(&self.tail[..self.said]);
        let now = self.vocabulary.decode(&self.tail);
        let held = self.tail.len() - self.said;
        if now.ends_with(char::REPLACEMENT_CHARACTER) && held < most {
            return String::new();
        }
        // The tokens that were said last stay, for the neighbours that they are to the next.
        self.tail.drain(..self.said);
        self.said = self.tail.len();
        now.get(before.len()..).unwrap_or_default().to_owned()
    }
}

/// Whether these bytes are the beginning of a character that more bytes could make whole.
fn is_beginning(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(tokens: &[u32]) -> (Vec<String>, String) {
        let mut speaker = Speaker::new(&Vocabulary::Bytes);
        let parts = tokens.iter().map(|&token| speaker.say(token)).collect();
        (parts, speaker.end())
    }

    #[test]
    fn characters_are_said_whole() {
        let (parts, rest) = said(&[97, 0xC3, 0xA4, 0xE2, 0x82, 0xAC]);
        assert_eq!(
            (parts, rest),
            (
                ["a", "", "ä", "", "", "€"].map(str::to_owned).to_vec(),
                String::new()
            )
        );
    }

    #[test]
    fn what_is_no_text_is_marked() {
        assert_eq!(said(&[0xFF, 0xC3, 0x41]).0, ["\u{FFFD}", "", "\u{FFFD}A"]);
        assert_eq!(said(&[0xE2, 0xE2, 0x82, 0xAC]).0, ["", "\u{FFFD}", "", "€"]);
        assert_eq!(said(&[0xE2, 0x82]).1, "\u{FFFD}");
        assert_eq!(said(&[300, 65]).0, ["\u{FFFD}", "A"]);
    }
}
