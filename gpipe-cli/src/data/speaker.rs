//! Tokens become text again, one after the other. A token is a byte.

/// Text that grows by tokens. A character whose bytes come with several tokens is said once it is
/// whole; what is no UTF-8 becomes U+FFFD.
#[derive(Default)]
pub struct Speaker {
    /// The beginning of a character.
    bytes: Vec<u8>,
}

impl Speaker {
    /// What can be said after another token. One that is no byte, of a model that knows more, is
    /// said as U+FFFD.
    pub fn say(&mut self, token: u32) -> String {
        // This byte is in no UTF-8.
        self.bytes.push(u8::try_from(token).unwrap_or(0xFF));
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

    /// What is left at the end: a character that was cut off.
    pub fn end(self) -> &'static str {
        if self.bytes.is_empty() {
            ""
        } else {
            "\u{FFFD}"
        }
    }
}

/// Whether these bytes are the beginning of a character that more bytes could make whole.
fn is_beginning(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(tokens: &[u32]) -> (Vec<String>, &'static str) {
        let mut speaker = Speaker::default();
        let parts = tokens.iter().map(|&token| speaker.say(token)).collect();
        (parts, speaker.end())
    }

    #[test]
    fn characters_are_said_whole() {
        let (parts, rest) = said(&[97, 0xC3, 0xA4, 0xE2, 0x82, 0xAC]);
        assert_eq!(
            (parts, rest),
            (["a", "", "ä", "", "", "€"].map(str::to_owned).to_vec(), "")
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
