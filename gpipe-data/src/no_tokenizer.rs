//! In the place of [`tokenizer`](super::tokenizer) in a build without the feature `tokenizers`: there
//! are none.

/// Whether this build can read them.
pub const BUILT_IN: bool = false;

#[path = "tokenizer/chat_error.rs"]
mod chat_error;

pub use chat_error::ChatError;

/// Text to tokens and back.
pub struct Tokenizer(Never);

/// There is no such value.
enum Never {}

impl Tokenizer {
    /// Always an error.
    pub fn parse(_: &[u8]) -> Result<Self, String> {
        Err("not in this build: build with the feature `tokenizers`".into())
    }

    /// One more than the largest token.
    pub fn size(&self) -> u64 {
        match self.0 {}
    }

    /// The tokens of a text.
    pub fn encode(&self, _: &str, _: usize, _: Option<u64>) -> Result<Vec<u32>, String> {
        match self.0 {}
    }

    /// Takes a chat template.
    pub fn set_chat_template(&mut self, _: &str, _: Vec<(String, String)>) -> Result<(), String> {
        match self.0 {}
    }

    /// The tokens of a conversation.
    pub fn chat(&self, _: &str, _: Option<u64>) -> Result<Vec<(u32, bool)>, ChatError> {
        match self.0 {}
    }

    /// The bytes that a token stands for.
    pub fn bytes(&self, _: u32) -> Option<Vec<u8>> {
        match self.0 {}
    }

    /// The byte of a token such as `<0x0A>`.
    pub fn fallback_byte(&self, _: u32) -> Option<u8> {
        match self.0 {}
    }

    /// The text of tokens.
    pub fn decode(&self, _: &[u32]) -> String {
        match self.0 {}
    }
}
