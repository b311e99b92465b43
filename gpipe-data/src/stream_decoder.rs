//! Tokens become text again, one after the other.

use crate::vocabulary::Vocabulary;

/// Text that grows by tokens. A character whose bytes come with several tokens comes out once it is
/// whole; what is no UTF-8 becomes U+FFFD.
///
/// ```
/// use gpipe_data::{StreamDecoder, Vocabulary};
///
/// let vocabulary = Vocabulary::bytes();
/// let mut decoder = StreamDecoder::new(&vocabulary);
/// assert_eq!([0xC3, 0xA4, 33].map(|token| decoder.push(token)), ["", "ä", "!"]);
/// assert_eq!(decoder.finish(), "");
/// ```
#[derive(Debug)]
pub struct StreamDecoder<'a> {
    vocabulary: &'a Vocabulary,
    /// Where tokens are bytes: the beginning of a character.
    bytes: Vec<u8>,
    /// Where the text of a token depends on its neighbours: the last tokens.
    tail: Vec<u32>,
    /// Tokens of the tail whose text came out.
    decoded: usize,
    /// Where some tokens are bytes beside others that are text (`<0x0A>`): the beginning of a character.
    run: Vec<u32>,
    /// Whether the run of such tokens had a byte that is no UTF-8, which makes each of its bytes U+FFFD.
    broken: bool,
}

/// A character of UTF-8 has no more bytes, so where a token is a byte, it comes with no more tokens.
const LONGEST: usize = 4;

impl<'a> StreamDecoder<'a> {
    /// A decoder at the beginning of a text.
    pub fn new(vocabulary: &'a Vocabulary) -> Self {
        Self {
            vocabulary,
            bytes: Vec::new(),
            tail: Vec::new(),
            decoded: 0,
            run: Vec::new(),
            broken: false,
        }
    }

    /// The same, after tokens whose text is known: the text goes on from them. A character that they begin comes out
    /// whole.
    #[must_use]
    pub fn after(mut self, known: &[u32]) -> Self {
        for &token in known {
            self.push(token);
        }
        self
    }

    /// The text that another token makes whole.
    pub fn push(&mut self, token: u32) -> String {
        match self.vocabulary.token_bytes(token) {
            Some(bytes) => {
                self.bytes.extend(bytes);
                self.whole_characters()
            }
            None if self.vocabulary.fallback_byte(token).is_some() => self.byte(token),
            None => {
                let text = self.cut_off();
                self.tail.push(token);
                text + &self.grown(LONGEST)
            }
        }
    }

    /// The rest at the end of the tokens: a character that was cut off, as U+FFFD.
    pub fn finish(mut self) -> String {
        match self.bytes.is_empty() {
            true => self.cut_off() + &self.grown(0),
            false => char::REPLACEMENT_CHARACTER.to_string(),
        }
    }

    /// The text that a token for a byte makes whole. Of a run of them the library makes its characters, or as many U+FFFD
    /// as there are bytes if the run is no UTF-8: characters that came out before that are not taken back.
    fn byte(&mut self, token: u32) -> String {
        // Tokens before the run that were held back.
        let mut text = match self.tail.len() > self.decoded {
            true => self.grown(0),
            false => String::new(),
        };
        self.run.push(token);
        let bytes: Vec<u8> = (self.run.iter())
            .filter_map(|&token| self.vocabulary.fallback_byte(token))
            .collect();
        match std::str::from_utf8(&bytes) {
            _ if self.broken => text += &self.cut_off_bytes(),
            Ok(character) => {
                // The library may leave out a space at the beginning of a text.
                text += &match self.tail.is_empty() {
                    true => self.vocabulary.decode(&self.run),
                    false => character.to_owned(),
                };
                self.end_run();
            }
            Err(error) if error.error_len().is_some() => {
                self.broken = true;
                text += &self.cut_off_bytes();
            }
            Err(_) => {}
        }
        text
    }

    /// The bytes of a character that is not whole, as U+FFFD each.
    fn cut_off_bytes(&mut self) -> String {
        let text = "\u{FFFD}".repeat(self.run.len());
        self.end_run();
        text
    }

    /// The same at the end of a run of tokens for bytes.
    fn cut_off(&mut self) -> String {
        self.broken = false;
        self.cut_off_bytes()
    }

    /// The text of the run came out: its last token is the neighbour of the next.
    fn end_run(&mut self) {
        if let Some(last) = self.run.pop() {
            self.run.clear();
            self.tail = vec![last];
            self.decoded = 1;
        }
    }

    fn whole_characters(&mut self) -> String {
        let mut text = String::new();
        let mut whole = 0;
        for chunk in self.bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            whole += chunk.valid().len();
            let cut_off = whole + chunk.invalid().len() == self.bytes.len();
            let invalid = chunk.invalid();
            if cut_off && is_beginning(invalid) {
                break;
            }
            if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
                whole += invalid.len();
            }
        }
        self.bytes.drain(..whole);
        text
    }

    /// By what the text of the tail grew, unless it ends in what may become a character: then it is
    /// held back, up to `most` tokens.
    fn grown(&mut self, most: usize) -> String {
        let before = self.vocabulary.decode(&self.tail[..self.decoded]);
        let now = self.vocabulary.decode(&self.tail);
        let held = self.tail.len() - self.decoded;
        if now.ends_with(char::REPLACEMENT_CHARACTER) && held < most {
            return String::new();
        }
        // The tokens that were decoded last stay, for the neighbours that they are to the next.
        self.tail.drain(..self.decoded);
        self.decoded = self.tail.len();
        // What came out and reads otherwise beside its new neighbour is said again, rather than lost with what follows.
        let known = (now.char_indices().zip(before.chars()))
            .find(|((_, new), old)| new != old)
            .map_or(before.len().min(now.len()), |((at, _), _)| at);
        now.get(known..).unwrap_or_default().to_owned()
    }
}

/// Whether these bytes are the beginning of a character that more bytes could make whole.
fn is_beginning(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(tokens: &[u32]) -> (Vec<String>, String) {
        let vocabulary = Vocabulary::bytes();
        let mut decoder = StreamDecoder::new(&vocabulary);
        let parts = tokens.iter().map(|&token| decoder.push(token)).collect();
        (parts, decoder.finish())
    }

    #[test]
    fn characters_come_out_whole() {
        let (parts, rest) = decoded(&[97, 0xC3, 0xA4, 0xE2, 0x82, 0xAC]);
        assert_eq!(
            (parts, rest),
            (
                ["a", "", "ä", "", "", "€"].map(str::to_owned).to_vec(),
                String::new()
            )
        );
    }

    #[test]
    fn a_text_goes_on_in_the_middle_of_a_character() {
        let vocabulary = Vocabulary::bytes();
        let mut decoder = StreamDecoder::new(&vocabulary).after(&[97, 0xE2, 0x82]);
        assert_eq!([0xAC, 98].map(|token| decoder.push(token)), ["€", "b"]);
        assert_eq!(decoder.finish(), "");
    }

    #[test]
    fn what_is_no_text_is_marked() {
        assert_eq!(
            decoded(&[0xFF, 0xC3, 0x41]).0,
            ["\u{FFFD}", "", "\u{FFFD}A"]
        );
        assert_eq!(
            decoded(&[0xE2, 0xE2, 0x82, 0xAC]).0,
            ["", "\u{FFFD}", "", "€"]
        );
        assert_eq!(decoded(&[0xE2, 0x82]).1, "\u{FFFD}");
        assert_eq!(decoded(&[300, 65]).0, ["\u{FFFD}", "A"]);
    }
}
