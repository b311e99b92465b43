//! Conversations: trained on, saved, resumed, evaluated and verified, and lines that are none.

use std::fs;
use std::path::Path;

use super::{gpipe, objects, stderr, stdout};

const TOKENIZER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../gpipe-data/tests/fixtures/tokenizer.json"
);

/// A model that trains in no time, with rows of conversations of several lengths.
const SMALL: [&str; 14] = [
    "--model",
    "llama-nano",
    "--set",
    "model.width=32",
    "--tokenizer",
    "tokens/tokenizer.json",
    "--data",
    "chats.jsonl",
    "--seq-len",
    "24",
    "--batch-size",
    "4",
    "--threads",
    "2",
];

fn line(question: &str, answer: &str) -> String {
    format!(
        r#"{{"messages": [{{"role": "user", "content": "{question}"}}, {{"role": "assistant", "content": "{answer}"}}]}}"#
    )
}

/// A tokenizer with a chat template, and 20 conversations.
fn prepared(folder: &Path) {
    fs::create_dir(folder.join("tokens")).unwrap();
    fs::copy(TOKENIZER, folder.join("tokens/tokenizer.json")).unwrap();
    let template = "{% for m in messages %}{% if m.role == 'user' %}u {{ m.content }} {% elif m.role == 'assistant' %}\
        {% generation %}{{ m.content }}{% endgeneration %} {% else %}{{ raise_exception('no role ' ~ m.role) }}\
        {% endif %}{% endfor %}";
    fs::write(folder.join("tokens/chat_template.jinja"), template).unwrap();
    let chats: Vec<String> = (0..20)
        .map(|i| line("add", &"b".repeat(1 + i % 5)))
        .collect();
    fs::write(folder.join("chats.jsonl"), chats.join("\n")).unwrap();
}

#[test]
fn a_run_on_conversations_is_verified_resumed_and_evaluated() {
    let folder = tempfile::tempdir().unwrap();
    prepared(folder.path());
    let more = [
        "--steps",
        "2",
        "--stages",
        "3",
        "--micro-batches",
        "4",
        "--dropout",
        "0.1",
    ];
    let output = gpipe(folder.path(), &[&["verify"], &SMALL[..], &more].concat());
    assert!(
        stdout(&output).contains("bit for bit"),
        "{}",
        stderr(&output)
    );

    let losses = |arguments: &[&str]| -> Vec<f64> {
        let output = gpipe(folder.path(), arguments);
        let steps = objects(&output);
        let steps = steps.iter().filter(|object| object["kind"] == "step");
        steps.map(|step| step["loss"].as_f64().unwrap()).collect()
    };
    let run = ["train", "--steps", "4", "--save-every", "2", "--json"];
    let whole = losses(&[&run, &SMALL[..], &["--stages", "2", "--out", "run"]].concat());
    assert_eq!(whole.len(), 4);
    let checkpoint = "run/checkpoints/step-00000002";
    let resumed = losses(&[
        "train", "--resume", checkpoint, "--stages", "3", "--json", "--out", "more",
    ]);
    assert_eq!(resumed, whole[2..]);
    // The template goes along with the model.
    fs::remove_dir_all(folder.path().join("tokens")).unwrap();
    let output = gpipe(
        folder.path(),
        &["eval", "run", "--data", "chats.jsonl", "--json"],
    );
    let found = objects(&output);
    let found = found
        .iter()
        .find(|object| object["kind"] == "eval")
        .unwrap();
    // Answers of one to five letters in one or more tokens, and nothing else.
    let tokens = found["tokens"].as_u64().unwrap();
    assert!((20..=60).contains(&tokens), "{tokens}");
}

#[test]
fn what_is_no_conversation_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    prepared(folder.path());
    let good = line("a", "b");
    let refused = |text: &str, words: &[&str]| {
        fs::write(folder.path().join("chats.jsonl"), text).unwrap();
        let output = gpipe(folder.path(), &[&["train"], &SMALL[..]].concat());
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    };
    let with = |second: &str| format!("{good}\n{second}\n");
    refused(
        &with("no"),
        &["--data chats.jsonl", "line 2 is no conversation"],
    );
    refused(
        &with(&good.replace("assistant", "user")),
        &["line 2 has no answer"],
    );
    refused(
        &with(&good.replace("user", "tool")),
        &["line 2 is refused", "no role tool"],
    );
    refused(
        &with(&line(&"a ".repeat(40), "b")),
        &["line 2 has", "--seq-len "],
    );
    fs::write(
        folder.path().join("tokens/chat_template.jinja"),
        "{% for %}",
    )
    .unwrap();
    refused(
        &good,
        &["tokenizer.json: its chat template cannot be understood"],
    );
    fs::remove_file(folder.path().join("tokens/chat_template.jinja")).unwrap();
    refused(&good, &["need a tokenizer with a chat template"]);
}
