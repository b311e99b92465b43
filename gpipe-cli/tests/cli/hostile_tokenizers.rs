//! Random tokenizers, made to take memory and time, in a process with 1 GiB of address space and a
//! minute: each trains or is refused in one line.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::parity::recorded;

/// Draws by xorshift64 (Marsaglia 2003).
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    fn one_of<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// From 1 to 2^`most` bytes of a sign, small numbers as often as large ones.
    fn long(&mut self, most: usize) -> String {
        let sign = self.one_of(&["a", "e", " ", "▁", "\u{300}"]);
        let length = 1 << self.below(most + 1);
        sign.repeat(length)
    }

    fn pattern(&mut self) -> Value {
        let alternatives = "ab|".repeat(1 << self.below(18));
        let text = match self.below(10) {
            0 => alternatives,
            1 => format!(
                r"(?:\w{{{}}}){{{}}}",
                1 << self.below(12),
                1 << self.below(12)
            ),
            2 => r"(a|a)*(?!x)b|.".to_owned(),
            3 => r"[^é]*(?=é)|.".to_owned(),
            4 => r"(\w+\s?)*$".to_owned(),
            5 => return json!({"String": self.long(12)}),
            6 => return json!({"String": ""}),
            _ => self
                .one_of(&["", ".", "a*", r"\w", r" ?\p{L}+|\s+(?!\S)", "[^é]*é|."])
                .to_owned(),
        };
        json!({ "Regex": text })
    }

    fn rules(&mut self, list: &str, one: fn(&mut Self) -> Value) -> Value {
        let rules: Vec<Value> = (0..=self.below(6)).map(|_| one(self)).collect();
        json!({"type": "Sequence", list: rules})
    }

    fn replace(&mut self) -> Value {
        json!({"type": "Replace", "pattern": self.pattern(), "content": self.long(10)})
    }

    fn normalizer(&mut self) -> Value {
        match self.below(6) {
            0 => json!({"type": "Prepend", "prepend": self.long(20)}),
            1 => {
                let table = self.one_of(&["Z2FyYmFnZQ==", "/////////", "BAAAAAAAAABhYgBjAA=="]);
                json!({"type": "Precompiled", "precompiled_charsmap": table})
            }
            2 => json!({"type": self.one_of(&["NFKD", "NFC", "Lowercase", "ByteLevel", "Nmt"])}),
            _ => self.replace(),
        }
    }

    fn pre_tokenizer(&mut self) -> Value {
        match self.below(5) {
            0 => json!({"type": "Metaspace", "replacement": "▁"}),
            1 => json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false,
                "use_regex": self.below(2) == 0}),
            2 => json!({"type": "FixedLength", "length": self.one_of(&[0, 1, 1000, 1_u64 << 62])}),
            3 => {
                json!({"type": self.one_of(&["Whitespace", "BertPreTokenizer", "UnicodeScripts"])})
            }
            _ => json!({"type": "Split", "pattern": self.pattern(), "behavior": "Isolated",
                "invert": self.below(2) == 0}),
        }
    }

    fn decoder(&mut self) -> Value {
        match self.below(4) {
            0 => {
                json!({"type": "Strip", "content": "a", "start": self.one_of(&[0, 1_u64 << 62]), "stop": 3})
            }
            1 => {
                json!({"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": true})
            }
            2 => json!({"type": "BPEDecoder", "suffix": ""}),
            _ => self.replace(),
        }
    }

    fn model(&mut self) -> Value {
        let long = self.long(14);
        match self.below(3) {
            0 => {
                let words = ["?", "a", "b", "e", "##a", "##e", "##▁", &long];
                let vocab: serde_json::Map<_, _> = words
                    .iter()
                    .zip(0..)
                    .map(|(&word, id)| (word.to_owned(), json!(id)))
                    .collect();
                let limit = self.one_of(&[100, 1000, 1_u64 << 62]);
                json!({"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##",
                    "max_input_chars_per_word": limit, "vocab": vocab})
            }
            _ => {
                let mut pieces = vec![json!(["?", 0.0]), json!([long, -1.0])];
                let longest = 1 << self.below(11);
                pieces.extend((1..=longest).map(|length| json!(["a".repeat(length), -1.0])));
                json!({"type": "Unigram", "unk_id": 0, "vocab": pieces})
            }
        }
    }
}

/// A file of which some parts were replaced.
fn hostile(base: &Value, draws: &mut Draws) -> Value {
    let mut file = base.clone();
    let parts = 1 + draws.below(31);
    if parts & 1 != 0 {
        file["normalizer"] = draws.rules("normalizers", Draws::normalizer);
    }
    if parts & 2 != 0 {
        file["pre_tokenizer"] = draws.rules("pretokenizers", Draws::pre_tokenizer);
    }
    if parts & 4 != 0 {
        file["decoder"] = draws.rules("decoders", Draws::decoder);
    }
    if parts & 8 != 0 {
        file["model"] = draws.model();
    }
    if parts & 16 != 0 {
        file["added_tokens"][0]["content"] = json!(draws.long(20));
        file["added_tokens"][0]["normalized"] = json!(draws.below(2) == 0);
    }
    file
}

/// Whether a run went well, or was refused by one line that names the file or the text.
fn is_fine(code: Option<i32>, said: &str) -> bool {
    let names = ["tokenizer.json", "--data text.txt", "model.vocab"];
    match code {
        Some(0) => true,
        Some(2) => {
            said.lines().count() == 1
                && said.len() < 700
                && names.iter().any(|name| said.contains(name))
        }
        _ => false,
    }
}

/// Trains a step in confinement: the exit code, and what was said.
fn confined(folder: &Path, script: &str) -> (Option<i32>, String) {
    let output = Command::new("sh")
        .args([
            "-c",
            &format!("ulimit -v 1048576; exec timeout 300 {script}"),
        ])
        .arg(assert_cmd::cargo::cargo_bin("gpipe"))
        .args([
            "train",
            "--quiet",
            "--steps",
            "1",
            "--threads",
            "1",
            "--keep",
            "0",
            "--overwrite",
        ])
        .args([
            "--seq-len",
            "4",
            "--batch-size",
            "1",
            "--micro-batches",
            "1",
            "--stages",
            "1",
            "--out",
            "run",
        ])
        .args([
            "--set",
            "model.width=8",
            "--set",
            "model.heads=1",
            "--set",
            "model.blocks=1",
        ])
        .args(["--data", "text.txt", "--tokenizer", "tokenizer.json"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn no_tokenizer_takes_more_than_there_is() {
    let base = fs::read(recorded().join("tokens/model/tokenizer.json")).unwrap();
    let base: Value = serde_json::from_slice(&base).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(recorded().join("tokens/text.txt")).unwrap();
    fs::write(
        folder.path().join("text.txt"),
        text + &"ae ".repeat(2000) + &"a".repeat(4000),
    )
    .unwrap();
    let count = if std::env::var_os("GPIPE_EXAM").is_some() {
        1000
    } else {
        12
    };
    let mut draws = Draws(0x9E37_79B9_7F4A_7C15);
    let (mut fine, mut trained) = (0, 0);
    for number in 0..count {
        let file = hostile(&base, &mut draws).to_string();
        fs::write(folder.path().join("tokenizer.json"), &file).unwrap();
        let (code, said) = confined(folder.path(), "\"$0\" \"$@\"");
        if is_fine(code, &said) {
            fine += 1;
        } else {
            let file: String = file
                .chars()
                .filter(|sign| sign.is_ascii())
                .take(2000)
                .collect();
            println!("tokenizer {number}: {code:?} {said}\n{file}");
        }
        trained += usize::from(code == Some(0));
    }
    println!("exam H1 {fine}/{count}");
    println!("figure H1 {trained} of {count} trained");
    assert_eq!(fine, count);
}

/// A process that takes more memory or time, or panics, is seen.
#[test]
fn a_process_that_takes_more_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let planted = [
        "dd if=/dev/zero of=/dev/null count=1 bs=2G",
        "sh -c 'kill -ABRT $$'",
        "sh -c 'exit 101'",
        "sh -c 'exit 2'",
        "timeout 0.1 sleep 9",
    ];
    for script in planted {
        let (code, said) = confined(folder.path(), script);
        assert!(!is_fine(code, &said), "{script}: {code:?} {said}");
    }
    println!("exam H1 teeth {0}/{0}", planted.len());
}
