//! Chat templates: the text of a conversation, and where its answers are.
//!
//! A template is a program of a stranger. It is run with fuel, which bounds instructions and bytes, for a few seconds at
//! most, reads nothing but the conversation, and knows no clock.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value, context};

use super::chat_error::ChatError;
use super::conversation::{Conversation, with_content};
use super::python;
use super::quiet::{quietly, short};

/// The fuel of one rendering: instructions, or 64 bytes each of the texts that it makes.
const FUEL: u64 = 200_000;

/// The longest that a template is waited for: to compare lists of lists, or to print them, takes no fuel. Those in use take
/// milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of the stack that a template runs on: values in values, as many as the fuel makes, are dropped by recursion.
const STACK: usize = 256 << 20;

/// The most bytes of a template.
const LONGEST: usize = 1 << 20;

const NAME: &str = "chat_template";

/// The filter that marks answers in a text.
const MARK: &str = "gpipe_generation";

/// What an answer begins and ends with until it was found: noncharacters, which no text has for meanings of its own.
const BOUNDS: [char; 2] = ['\u{FDD0}', '\u{FDD1}'];

/// The role of answers.
const ASSISTANT: &str = "assistant";

/// A conversation as text.
#[derive(Debug, PartialEq)]
pub struct Chat {
    pub text: String,
    /// The bytes of `text` that are answers, in ascending order.
    pub answers: Vec<Range<usize>>,
}

/// A template that was understood.
pub struct ChatTemplate {
    environment: Arc<Environment<'static>>,
    /// The texts of special tokens by their names.
    special: Value,
    /// Whether it says itself what answers are.
    marks: bool,
}

impl ChatTemplate {
    /// Reads a template; `special` are the texts of special tokens by their names. An error follows the words `the
    /// template`.
    pub fn parse(template: &str, special: Vec<(String, String)>) -> Result<Self, String> {
        if template.len() > LONGEST {
            return Err(format!(
                "has {} bytes: {LONGEST} are the most that is read",
                template.len()
            ));
        }
        let (template, marks) = with_filters(template);
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        environment.set_syntax(syntax.map_err(short)?);
        environment.set_fuel(Some(FUEL));
        python::extend(&mut environment);
        environment.add_function("raise_exception", |words: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, words))
        });
        environment.add_filter(MARK, |text: &str| {
            let [start, end] = BOUNDS;
            format!("{start}{text}{end}")
        });
        let environment = guarded(PATIENCE, move || {
            let added = environment.add_template_owned(NAME, template);
            added.map_err(|error| format!("cannot be understood: {}", short(said(&error))))?;
            Ok(environment)
        })?;
        Ok(Self {
            environment: environment.into(),
            special: Value::from_pairs(special),
            marks,
        })
    }

    /// The text and the answers of a conversation in JSON.
    ///
    /// Answers are what the template encloses in `{% generation %}`. Where it has none, the answer of a message of the
    /// role `assistant` is the text that the message adds to that of the messages before it, with the prompt for an
    /// answer. Where the template writes that in another way once others follow, the answer is what it writes then, and begins
    /// behind the turn before it and that prompt.
    pub fn render(&self, line: &str) -> Result<Chat, ChatError> {
        self.render_within(line, PATIENCE)
    }

    /// [`render`](Self::render), each run of the template within a time.
    pub fn render_within(&self, line: &str, patience: Duration) -> Result<Chat, ChatError> {
        let Conversation { messages, tools } = Conversation::parse(line)?;
        // As they are, or escaped.
        let lower = line.to_ascii_lowercase();
        if line.contains(BOUNDS) || lower.contains("\\ufdd0") || lower.contains("\\ufdd1") {
            let fault = "has one of the noncharacters U+FDD0 and U+FDD1";
            return Err(ChatError::Malformed(fault.into()));
        }
        let mut answers = Vec::new();
        for (i, message) in messages.iter().enumerate() {
            let role = message.get_attr("role").unwrap_or_default();
            match role.as_str() {
                None => {
                    let fault = format!("has no text `role` in message {}", i + 1);
                    return Err(ChatError::Malformed(fault));
                }
                Some(role) if role == ASSISTANT => answers.push(i),
                Some(_) => {}
            }
        }
        let run = |messages: &[Value], prompts: bool| {
            let given = context! {
                messages => messages,
                tools => tools.as_ref(),
                documents => (),
                add_generation_prompt => prompts,
                ..self.special.clone()
            };
            let environment = self.environment.clone();
            guarded(patience, move || {
                let template = environment.get_template(NAME);
                let text = template.and_then(|template| template.render(given));
                text.map_err(|error| short(said(&error)))
            })
            .map_err(ChatError::Refused)
        };
        let text = run(&messages, false)?;
        if self.marks {
            return Ok(unmarked(&text));
        }
        let mut found = Vec::new();
        // What is before an answer may be none that the template takes, where it takes the whole.
        let part =
            |messages: &[Value], prompts| run(messages, prompts).map_err(|_| ChatError::NoPrefix);
        let turn = |i| end_of_turn(&text, &messages, i, |messages| part(messages, false));
        for i in answers {
            let before = part(&messages[..i], true)?;
            let start = match text.starts_with(&before) {
                true => Some(before.len()),
                false => {
                    let without = part(&messages[..i], false)?;
                    let prompt = before
                        .strip_prefix(&without)
                        .zip(i.checked_sub(1).and_then(turn));
                    let place = prompt.filter(|(prompt, at)| text[*at..].starts_with(prompt));
                    place.map(|(prompt, at)| at + prompt.len())
                }
            };
            let with = part(&messages[..=i], false)?;
            let end = match text.starts_with(&with) {
                true => Some(with.len()),
                false => turn(i),
            };
            let behind = found.last().map_or(0, |answer: &Range<usize>| answer.end);
            match start.zip(end) {
                Some((start, end)) if behind <= start && start <= end => found.push(start..end),
                _ => return Err(ChatError::NoPrefix),
            }
        }
        Ok(Chat {
            text,
            answers: found,
        })
    }
}

/// Where the turn of message `i` ends in the text of a conversation, of which the template writes the turn otherwise once
/// others follow: Qwen3 leaves out what was thought before an earlier answer. The content is replaced by a mark, to see what
/// is behind it in the whole conversation, and what where the message is the last: as much of that is the turn's. `None` where
/// these do not fit together.
fn end_of_turn(
    text: &str,
    messages: &[Value],
    i: usize,
    render: impl Fn(&[Value]) -> Result<String, ChatError>,
) -> Option<usize> {
    let mark = BOUNDS[1];
    let mut marked = messages.to_vec();
    marked[i] = with_content(&messages[i], mark)?;
    let behind = |messages: &[Value]| {
        let text = render(messages).ok()?;
        let (_, behind) = text.split_once(mark)?;
        (!behind.contains(mark)).then(|| behind.to_owned())
    };
    let (rest, of_turn) = (behind(&marked)?, behind(&marked[..=i])?);
    let fits = rest.starts_with(&of_turn) && text.ends_with(&rest);
    fits.then(|| text.len() - rest.len() + of_turn.len())
}

/// The template with each `{% generation %}` … `{% endgeneration %}` as a filter of its text, as there are no tags of
/// one's own; and whether it has any.
fn with_filters(template: &str) -> (String, bool) {
    let mut all = String::with_capacity(template.len());
    let (mut rest, mut marks) = (template, false);
    while let Some(at) = rest.find("{%") {
        let inner = at + 2;
        all.push_str(&rest[..inner]);
        rest = &rest[inner..];
        // Tags that are looked for are short.
        let mut ends = rest.as_bytes().windows(2).take(64);
        let Some(length) = ends.position(|sign| sign == b"%}") else {
            continue;
        };
        let tag = &rest[..length];
        let word = tag.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        let filter = match word {
            "generation" => format!("filter {MARK}"),
            "endgeneration" => "endfilter".to_owned(),
            _ => continue,
        };
        marks = true;
        all.push_str(&tag.replacen(word, &filter, 1));
        rest = &rest[length..];
    }
    all.push_str(rest);
    (all, marks)
}

/// A text without its marks, and what they enclosed. Marks that enclose each other count once.
fn unmarked(marked: &str) -> Chat {
    let mut chat = Chat {
        text: String::with_capacity(marked.len()),
        answers: Vec::new(),
    };
    let (mut depth, mut start) = (0_usize, 0);
    for character in marked.chars() {
        match BOUNDS.iter().position(|&bound| bound == character) {
            None => chat.text.push(character),
            Some(0) => {
                if depth == 0 {
                    start = chat.text.len();
                }
                depth += 1;
            }
            Some(_) => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    chat.answers.push(start..chat.text.len());
                }
            }
        }
    }
    chat
}

/// Runs a call of the library on a large stack; panics become errors. One that takes longer is left to itself, until the
/// program ends.
fn guarded<T: Send + 'static>(
    patience: Duration,
    call: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (tell, told) = mpsc::channel();
    let started = thread::Builder::new().stack_size(STACK).spawn(move || {
        // Nobody listens any more to one that took too long.
        let _ = tell.send(quietly(call));
    });
    started.map_err(|error| format!("cannot be run: {error}"))?;
    told.recv_timeout(patience).unwrap_or_else(|fault| {
        Err(match fault {
            RecvTimeoutError::Timeout => "takes too long".into(),
            RecvTimeoutError::Disconnected => "panicked".into(),
        })
    })
}

/// What the library says, in one line.
fn said(error: &Error) -> String {
    let words = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => {
            "it does not come to an end, or makes too much text".to_owned()
        }
        (_, Some(detail)) => detail.to_owned(),
        (kind, None) => kind.to_string(),
    };
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}
