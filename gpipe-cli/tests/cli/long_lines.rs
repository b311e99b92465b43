//! Inputs with long names, long lists and thousands of keys: no line of an error is longer than a
//! terminal shows at once.

use std::fs;

use super::{gpipe, stderr, stdout};

/// The most characters of a line, with its `error: `.
const LONGEST: usize = 600;

#[test]
fn no_error_is_longer_than_a_few_lines() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let long = |part: &str| part.repeat(20_000);
    let many = |key: fn(usize) -> String| -> String {
        let keys: Vec<String> = (0..10_000).map(key).collect();
        keys.join("")
    };
    write(
        "keys.toml",
        &format!("[run]\n{}", many(|i| format!("key{i} = {i}\n"))),
    );
    write(
        "sections.toml",
        &many(|i| format!("[section{i}]\nkey = 1\n")),
    );
    write("name.toml", &format!("[run]\n{} = 1\n", long("key")));
    write("value.toml", &format!("[run]\nseed = \"{}\"\n", long("x")));
    write("broken.toml", &format!("[run]\nseed = {}\n", long("[")));
    write(
        "keys.json",
        &format!("{{{}\"layers\": []}}", many(|i| format!("\"key{i}\": 1, "))),
    );
    write(
        "name.json",
        &format!("{{\"layers\": [], \"{}\": 1}}", long("key")),
    );
    write(
        "value.json",
        &format!(
            "{{\"layers\": [{{\"name\": \"{}\", \"forward\": -1}}]}}",
            long("\u{202e}")
        ),
    );
    write(
        "saved.json",
        "{\"layers\": [{\"name\": \"a\", \"forward\": 1, \"saved\": true}]}",
    );
    write("cell.csv", &long("0F"));
    write("row.csv", &many(|i| format!("0F{i},0F{i},")));
    write("rows.csv", &many(|i| format!("{i}F0\n")));
    write(
        "keys.tokenizer",
        &format!("{{{}\"a\": 1}}", many(|i| format!("\"key{i}\": 1, "))),
    );
    write(
        "model.tokenizer",
        "{\"version\": \"1.0\", \"model\": {\"type\": \"Own\", \"vocab\": {}}}",
    );
    fs::create_dir(folder.path().join("model")).unwrap();
    write(
        "model/config.json",
        &format!(
            "{{{}\"model_type\": \"{}\"}}",
            many(|i| format!("\"key{i}\": 1, ")),
            long("x")
        ),
    );
    let sizes = vec!["1"; 10_000].join(",");
    let name = "\u{1b}[31m".repeat(4_000);
    let set = format!("{name}=1");
    let lines: &[&[&str]] = &[
        &["train", "--config", "keys.toml"],
        &["train", "--config", "sections.toml"],
        &["train", "--config", "name.toml"],
        &["train", "--config", "value.toml"],
        &["train", "--config", "broken.toml"],
        &["train", "--config", &name],
        &["train", "--model", &name],
        &["train", "--model", "model"],
        &["train", "--data", &name],
        &["train", "--schedule", &name],
        &["train", "--partition", &sizes],
        &["train", "--partition", &name],
        &["train", "--devices", &sizes],
        &["train", "--trace-steps", &name],
        &["train", "--set", &set],
        &["train", &name],
        &["train", "--tokenizer", "keys.tokenizer"],
        &["train", "--tokenizer", "model.tokenizer"],
        &["train", "--schedule", "cell.csv"],
        &["train", "--schedule", "row.csv"],
        &["train", "--schedule", "rows.csv"],
        &["plan", "--costs", "keys.json"],
        &["plan", "--costs", "name.json"],
        &["plan", "--costs", "value.json"],
        &["plan", "--costs", "saved.json"],
        &["plan", "--costs", &name],
        &["eval", &name],
        &["sample", "model"],
        &["report", &name],
        &["help", &name],
    ];
    for line in lines {
        let output = gpipe(folder.path(), line);
        let said = stderr(&output);
        let what: String = line.join(" ").chars().take(60).collect();
        assert_eq!(output.status.code(), Some(2), "{what}: {said}");
        assert_eq!(stdout(&output), "", "{what}");
        for row in said.lines() {
            let length = row.chars().count();
            assert!(length <= LONGEST, "{what}: {length}: {row}");
        }
        assert!(!said.contains("untagged"), "{what}: {said}");
        assert!(!said.contains('\u{1b}'), "{what}: {said}");
    }
}
