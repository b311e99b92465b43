//! Why a line is no conversation that can be learned.

/// What is wrong with a line, or with the template.
#[derive(Debug)]
#[cfg_attr(not(feature = "tokenizers"), allow(dead_code))]
pub enum ChatError {
    /// There is no template.
    NoTemplate,
    /// The line is no JSON, or no conversation.
    Malformed(String),
    /// The line has an integer beyond 64 bits, which begins like this.
    Integer(String),
    /// The template fails on the conversation, or refuses it.
    Refused(String),
    /// Earlier text changes as messages follow, or is refused without those.
    NoPrefix,
    /// The tokenizer cannot say it.
    Text(String),
}
