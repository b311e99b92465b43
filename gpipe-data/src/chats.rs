//! Conversations, one a row: the samples of a model that learns to answer.

use std::path::Path;

use gpipe_tensor::{Device, Tensor, Tensors, ops};
use sha2::{Digest, Sha256};

use crate::error::{ChatFault, Error, Result};
use crate::images::Draw;
use crate::options::SampleOptions;
use crate::source::{self, Room};
use crate::tokenizer::ChatError;
use crate::tokens::room;
use crate::vocabulary::Vocabulary;

/// The ending of files of conversations.
const ENDING: &str = "jsonl";

/// The token behind the end of a conversation. No target is predicted from it, and no position before it sees it.
const PADDING: u32 = 0;

/// Whether a source is a file of conversations, rather than plain text: by its ending `.jsonl`.
pub fn is_chats(source: &str) -> bool {
    let ending = Path::new(source).extension();
    ending.is_some_and(|ending| ending.eq_ignore_ascii_case(ENDING))
}

/// Conversations in the order of their lines.
pub(crate) struct Chats {
    /// A token, and whether it belongs to an answer.
    tokens: Vec<(u32, bool)>,
    /// Where each conversation ends in `tokens`.
    ends: Vec<usize>,
    /// Tokens of a row.
    length: usize,
}

impl Chats {
    /// The lines of `options.source`, each of which is a conversation in JSON; empty lines are left out. Adds to
    /// `warnings` what a user should know of them.
    pub(crate) fn open(
        options: &SampleOptions,
        vocabulary: &Vocabulary,
        warnings: &mut Vec<String>,
    ) -> Result<Self> {
        let fault = |fault| {
            let name = options.source.clone();
            Error::Chats { name, fault }
        };
        if options.seq_len == 0 {
            let key = "data.seq_len";
            return Err(Error::Zero { key });
        }
        let text = source::read_within("data.source", &options.source, options.memory, warnings)?;
        let mut room = Room::beside(text.len(), options.memory);
        let mut chats = Self {
            tokens: Vec::new(),
            ends: Vec::new(),
            length: options.seq_len,
        };
        // A byte order mark, which some editors write.
        let lines = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&text);
        for (i, bytes) in lines.split(|&byte| byte == b'\n').enumerate() {
            let line = i + 1;
            if bytes.trim_ascii().is_empty() {
                continue;
            }
            let chat = std::str::from_utf8(bytes)
                .map_err(|_| ChatError::Malformed("is no UTF-8 text".into()))
                .and_then(|text| vocabulary.chat(text, room.left()));
            let chat = chat.map_err(|error| match error {
                ChatError::NoTemplate => fault(ChatFault::NoTemplate),
                ChatError::Malformed(of) => fault(ChatFault::Malformed { line, fault: of }),
                ChatError::Integer(digits) => fault(ChatFault::Integer { line, digits }),
                ChatError::Refused(of) => fault(ChatFault::Refused { line, fault: of }),
                ChatError::NoPrefix => fault(ChatFault::NoPrefix { line }),
                ChatError::Text(of) => Error::Text {
                    origin: format!("`data.source = {}`: line {line}", options.source),
                    fault: format!(
                        "the tokenizer cannot say it: {of}: change the line or remove it"
                    ),
                },
            })?;
            // The first token is predicted from nothing.
            if !chat.iter().skip(1).any(|&(_, answered)| answered) {
                return Err(fault(ChatFault::NoAnswer { line }));
            }
            let (tokens, seq_len, vocab) = (chat.len(), options.seq_len, options.vocab);
            if tokens - 1 > seq_len {
                return Err(fault(ChatFault::TooLong {
                    line,
                    tokens,
                    seq_len,
                }));
            }
            if let Some(&(token, _)) = chat.iter().find(|(token, _)| *token as usize >= vocab) {
                return Err(fault(ChatFault::UnknownToken { token, line, vocab }));
            }
            chats.tokens.extend(chat);
            chats.ends.push(chats.tokens.len());
            let taken = room.take(bytes.len(), tokens * size_of::<(u32, bool)>());
            taken.map_err(|fault| {
                let name = options.source.clone();
                Error::Source { name, fault }
            })?;
        }
        match chats.ends.is_empty() {
            true => Err(fault(ChatFault::NoChats)),
            false => Ok(chats),
        }
    }

    /// Number of conversations.
    pub(crate) fn count(&self) -> u64 {
        self.ends.len() as u64
    }

    fn get(&self, chat: u64) -> &[(u32, bool)] {
        let chat = chat as usize;
        let start = chat.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.tokens[start..self.ends[chat]]
    }

    /// Number of targets of these conversations: tokens of answers.
    pub(crate) fn targets(&self, chats: impl Iterator<Item = u64>) -> u64 {
        let of = |chat| self.get(chat)[1..].iter().filter(|(_, answered)| *answered);
        chats.map(|chat| of(chat).count() as u64).sum()
    }

    pub(crate) fn digest(&self, digest: &mut Sha256) {
        for &(token, answered) in &self.tokens {
            digest.update(token.to_le_bytes());
            digest.update([u8::from(answered)]);
        }
        for &end in &self.ends {
            digest.update((end as u64).to_le_bytes());
        }
    }

    /// Tokens, each (rows, `seq_len`), and after each the next one where it belongs to an answer.
    pub(crate) fn tensors(&self, device: &Device, draws: &[Draw]) -> Result<(Tensors, Tensor)> {
        let room = || room(draws.len(), self.length);
        let (mut inputs, mut targets) = (room()?, room()?);
        for (row, draw) in draws.iter().enumerate() {
            let chat = self.get(draw.sample);
            inputs.extend(chat[..chat.len() - 1].iter().map(|(token, _)| token));
            targets.extend(chat[1..].iter().map(|&(token, answered)| match answered {
                true => token,
                false => ops::IGNORE,
            }));
            inputs.resize((row + 1) * self.length, PADDING);
            targets.resize((row + 1) * self.length, ops::IGNORE);
        }
        let tensor = |values| Tensor::from_u32(device, [draws.len(), self.length], values);
        Ok((Tensors::from_iter([tensor(inputs)?]), tensor(targets)?))
    }
}

#[cfg(all(test, feature = "tokenizers"))]
mod tests {
    use gpipe_tensor::{DeviceId, Host};

    use super::*;
    use crate::batches::{evaluation_batches, training_batch};
    use crate::dataset::Dataset;
    use crate::options::HeldOut;

    const TOKENIZER: &[u8] = include_bytes!("../tests/fixtures/tokenizer.json");
    const TEMPLATE: &str = "{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}\
        {{ raise_exception('a role ' ~ m.role ~ ' is not known') }}{% endif %}{{ m.content }}{% endfor %}";

    fn vocabulary() -> Vocabulary {
        let vocabulary = Vocabulary::parse(TOKENIZER).unwrap();
        vocabulary.with_chat_template(TEMPLATE, Vec::new()).unwrap()
    }

    fn opened(text: &str, options: &SampleOptions, vocabulary: &Vocabulary) -> Result<Dataset> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chats.jsonl");
        std::fs::write(&path, text).unwrap();
        let options = SampleOptions {
            source: path.to_str().unwrap().to_owned(),
            ..options.clone()
        };
        Dataset::open(&options, vocabulary)
    }

    fn options(seq_len: usize) -> SampleOptions {
        SampleOptions {
            seq_len,
            vocab: 500,
            batch_size: 2,
            shuffle: false,
            ..SampleOptions::default()
        }
    }

    fn chat(user: &str, assistant: &str) -> String {
        format!(
            r#"{{"messages": [{{"role": "user", "content": "{user}"}}, {{"role": "assistant", "content": "{assistant}"}}]}}"#
        )
    }

    #[test]
    fn answers_alone_are_targets_and_all_of_a_batch_share_the_divisor() {
        // Signs that are no part of longer tokens here: one token each.
        let text = format!(
            "\u{feff}{}\r\n\n{}\n{}",
            chat("#$", "%&"),
            chat("#", "%"),
            chat("#", "%&@")
        );
        let vocabulary = vocabulary();
        let signs = |text: &str| vocabulary.encode(text.into(), 1, "signs").unwrap();
        assert_eq!(signs("#$%&").len(), 4);
        let all = SampleOptions {
            held_out: HeldOut::LastTenth,
            ..options(4)
        };
        let data = opened(&text, &all, &vocabulary).unwrap();
        assert_eq!(data.summary(), "2 conversations in rows of 4 tokens");
        let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
        let batch = training_batch(&data, &device, 2, 0).unwrap();
        let columns = |row: usize| {
            let values = [&batch[row].input[0], &batch[row].target.values];
            values.map(|x| x.u32s().unwrap().to_vec())
        };
        let [a, b, c, d] = signs("#$%&")[..] else {
            panic!()
        };
        let none = ops::IGNORE;
        assert_eq!(columns(0), [vec![a, b, c, PADDING], vec![none, c, d, none]]);
        assert_eq!(
            columns(1),
            [
                vec![a, PADDING, PADDING, PADDING],
                vec![c, none, none, none]
            ]
        );
        assert!(batch.iter().all(|item| item.target.divisor == 3.0));
        let held_out = evaluation_batches(&data, &device, 9, 1, 0).unwrap();
        let held_out: Vec<_> = held_out.map(Result::unwrap).collect();
        assert_eq!(
            (held_out[0][0].target.divisor, data.held_out_targets()),
            (3.0, 3)
        );
        // What is learned of the same tokens is part of the data.
        let other = opened(&text.replace("%&@", "%&%"), &all, &vocabulary).unwrap();
        let moved = opened(
            &text
                .replacen("#\"}", "#%\"}", 1)
                .replacen("\"%\"", "\"\"", 1),
            &options(4),
            &vocabulary,
        );
        assert_ne!(data.digest(), other.digest());
        assert!(moved.is_err());
    }

    /// A token takes four bytes, and four more for whether it belongs to an answer.
    #[test]
    fn conversations_and_their_tokens_must_fit_in_memory() {
        let text = format!("{}\n", chat("#", "%")).repeat(100);
        let within = |memory: usize| {
            let options = SampleOptions {
                memory: Some(memory as u64),
                ..options(4)
            };
            opened(&text, &options, &vocabulary())
        };
        let tokens = 100 * 2 * 8;
        // One line is tokenized in as much as the library needs for it.
        let enough = text.len() + tokens + (1 << 20);
        assert!(within(enough).is_ok());
        for memory in [text.len() + tokens - 1, text.len(), text.len() - 1] {
            let error = within(memory).err().unwrap();
            let line = error.to_string();
            assert!(
                error.is_input_error()
                    && line.starts_with("`data.source = ")
                    && line.contains("of memory"),
                "{line}"
            );
        }
    }

    #[test]
    fn what_cannot_be_learned_is_one_line_with_its_number() {
        let vocabulary = vocabulary();
        let refused = |text: &str, options: &SampleOptions, vocabulary: &Vocabulary| {
            let error = opened(text, options, vocabulary).err().unwrap();
            assert!(error.is_input_error());
            let line = error.to_string();
            assert!(
                line.starts_with("`data.source = ") && !line.contains('\n'),
                "{line}"
            );
            line
        };
        let good = chat("#", "%");
        for (second, words) in [
            ("no", "line 2 is no conversation"),
            ("\u{0}", "line 2 is no conversation"),
            (
                &chat("#", "").replace("assistant", "user"),
                "line 2 has no answer: ",
            ),
            // There is a message, but it has no text.
            (
                &chat("#", ""),
                "of the role assistant whose text the chat template writes",
            ),
            (
                &good.replace("user", "tool"),
                "line 2 is refused by the chat template: a role tool is not known: ",
            ),
            (
                &chat("#$%", "%&@"),
                "line 2 has 6 tokens: use `data.seq_len = 5` instead of 4",
            ),
        ] {
            let line = refused(&format!("{good}\n{second}\n"), &options(4), &vocabulary);
            assert!(line.contains(words), "{line}");
        }
        let fits = format!("{good}\n{}\n", chat("#$%", "%&"));
        assert!(opened(&fits, &options(4), &vocabulary).is_ok());
        // Tokens count from 0.
        let tokens = vocabulary.encode("#%".into(), 1, "signs").unwrap();
        let most = tokens.into_iter().max().unwrap();
        for vocab in [2, most as usize] {
            let small = SampleOptions {
                vocab,
                ..options(4)
            };
            let words = format!("in line 1 is beyond model.vocab = {vocab}");
            assert!(refused(&good, &small, &vocabulary).contains(&words));
        }
        assert!(refused("\n", &options(4), &vocabulary).contains("no conversations"));
        let line = refused(&good, &options(4), &Vocabulary::bytes());
        assert!(
            line.contains("need a tokenizer with a chat template"),
            "{line}"
        );
    }
}
