//! A line of a file of conversations, as `transformers` gives it to a chat template.

use std::borrow::Cow;

use minijinja::Value;
use minijinja::value::ValueKind;
use serde::Deserialize;

use super::chat_error::ChatError;
use super::quiet::short;

/// Names of what a model thinks before its answer, the standard one of templates first.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// The line of a conversation.
#[derive(Deserialize)]
#[serde(expecting = "an object with `messages`")]
pub struct Conversation {
    pub messages: Vec<Value>,
    #[serde(default)]
    pub tools: Option<Value>,
}

impl Conversation {
    /// Reads a line of JSON. Messages are changed as `transformers` does it: keys that are null count as missing, since
    /// `datasets` writes every key into every message, and reasoning is given by its usual names.
    pub fn parse(line: &str) -> Result<Self, ChatError> {
        let line = with_integers(line)?;
        let mut conversation: Self = serde_json::from_str(&line).map_err(|error| {
            ChatError::Malformed(format!("is no conversation ({})", short(error)))
        })?;
        for message in &mut conversation.messages {
            if message.kind() == ValueKind::Map {
                *message = normalized(message);
            }
        }
        Ok(conversation)
    }
}

/// A message without keys that are null, and with its reasoning as `reasoning_content` and `thinking`.
fn normalized(message: &Value) -> Value {
    let pairs = || {
        let keys = message.try_iter().into_iter().flatten();
        let pairs = keys.filter_map(|key| Some((key.clone(), message.get_item(&key).ok()?)));
        pairs.filter(|(_, value)| !value.is_none())
    };
    let reasoning = REASONING.iter().find_map(|name| {
        let value = message.get_attr(name).ok()?;
        (!value.is_none() && !value.is_undefined()).then_some(value)
    });
    let Some(reasoning) = reasoning else {
        return Value::from_pairs(pairs());
    };
    // A key keeps its first place and has its last value.
    let thinking = (Value::from(REASONING[1]), reasoning.clone());
    let standard = (Value::from(REASONING[0]), reasoning);
    Value::from_pairs([thinking].into_iter().chain(pairs()).chain([standard]))
}

/// A message with this sign as its content, whatever it had. `None` for one that is no object.
pub fn with_content(message: &Value, sign: char) -> Option<Value> {
    let keys = message.try_iter().ok()?;
    let pairs = keys.filter_map(|key| Some((key.clone(), message.get_item(&key).ok()?)));
    // A key keeps its first place and has its last value.
    let content = (Value::from("content"), Value::from(sign.to_string()));
    Some(Value::from_pairs(pairs.chain([content])))
}

/// The line, if its integers have 64 bits: others would be read as floating-point numbers, and so would `-0`, which is an
/// integer for Python and becomes 0.
fn with_integers(line: &str) -> Result<Cow<'_, str>, ChatError> {
    let mut zeros = Vec::new();
    let bytes = line.as_bytes();
    let (mut at, mut quoted) = (0, false);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' if quoted => at += 1,
            b'"' => quoted = !quoted,
            b'-' | b'0'..=b'9' if !quoted => {
                let rest = &line[at..];
                let end = rest
                    .find(|sign: char| !matches!(sign, '0'..='9' | '+' | '-' | '.' | 'e' | 'E'));
                let number = &rest[..end.unwrap_or(rest.len())];
                let digits = number.strip_prefix('-').unwrap_or(number);
                if number == "-0" {
                    zeros.push(at);
                } else if digits.bytes().all(|sign| sign.is_ascii_digit())
                    && number.parse::<i64>().is_err()
                    && number.parse::<u64>().is_err()
                {
                    return Err(ChatError::Integer(number.chars().take(24).collect()));
                }
                at += number.len() - 1;
            }
            _ => {}
        }
        at += 1;
    }
    if zeros.is_empty() {
        return Ok(line.into());
    }
    let mut line = line.to_owned();
    for at in zeros {
        line.replace_range(at..=at, " ");
    }
    Ok(line.into())
}
