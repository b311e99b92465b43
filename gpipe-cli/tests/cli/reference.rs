//! The pages in `reference/` say what the program does: keys, flags, defaults and files.
//!
//! `cargo xtask reference` runs these tests with `GPIPE_REFERENCE=write`, which regenerates the table of keys.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use super::{gpipe, small, stderr, stdout};

const KEYS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/reference/keys.md");
const FILES: &str = include_str!("../../reference/files.md");

/// Flags that are not called as their key.
const FLAGS: [(&str, &str); 9] = [
    ("model.name", "--model"),
    ("data.source", "--data"),
    ("data.shuffle", "--no-shuffle"),
    ("run.cuda_graphs", "--no-cuda-graphs"),
    ("lora.rank", "--lora"),
    ("lora.alpha", "--lora-alpha"),
    ("lora.dropout", "--lora-dropout"),
    ("lora.targets", "--lora-targets"),
    ("lora.adapter", "--adapter"),
];

/// Keys whose default depends on the machine.
const MACHINE: [(&str, &str); 1] = [("pipeline.threads", "one per core")];

/// The keys and defaults that `plan -v` shows for a model.
fn defaults(folder: &Path, model: &str) -> Vec<(String, String)> {
    let output = gpipe(folder, &["plan", "-v", "--model", model]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let shown = stdout(&output);
    let (mut section, mut keys) = ("", Vec::new());
    for line in shown.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((key, value)) = line.split_once(" = ")
            && key
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            && !section.is_empty()
        {
            keys.push((format!("{section}.{key}"), value.to_owned()));
        }
    }
    keys
}

/// The flag that sets a key, if `train --help` has one.
fn flag(key: &str, help: &str) -> String {
    let other = FLAGS.iter().find(|(named, _)| *named == key);
    let (_, name) = key.split_once('.').expect("a section");
    let flag = other.map_or_else(
        || format!("--{}", name.replace('_', "-")),
        |(_, flag)| (*flag).to_owned(),
    );
    let mut words = help.split([' ', '\n', ',', '=']);
    match words.any(|word| word == flag) {
        true => format!("`{flag}`"),
        false => String::new(),
    }
}

/// A default as the page shows it: text as code.
fn cell(value: &str) -> String {
    match value.starts_with('"') {
        true => format!("`{value}`"),
        false => value.to_owned(),
    }
}

/// A row of the table, empty cells without a space of their own.
fn row(cells: [&str; 4]) -> String {
    let mut line = "|".to_owned();
    for cell in cells {
        match cell.is_empty() {
            true => line.push_str(" |"),
            false => write!(line, " {cell} |").unwrap(),
        }
    }
    line
}

/// The documented row of a key.
struct Documented<'p> {
    key: &'p str,
    text: &'p str,
}

/// The row of the table that a line is, if it is one.
fn documented(line: &str) -> Option<Documented<'_>> {
    let (key, rest) = line.strip_prefix("| `")?.split_once("` |")?;
    let text = rest.splitn(3, '|').nth(2)?.trim().strip_suffix('|')?.trim();
    Some(Documented { key, text })
}

/// The page with what the program says, and the descriptions that it has.
fn rewritten(
    page: &str,
    nano: &[(String, String)],
    program: &[(String, String)],
    help: &str,
) -> String {
    let of = |key: &str, text: &str| {
        let machine = MACHINE.iter().find(|(named, _)| *named == key);
        let own = nano.iter().find(|(named, _)| named == key);
        let default = match (machine, own) {
            (Some((_, words)), _) => (*words).to_owned(),
            (_, Some((_, value))) => cell(value),
            // A key of another model, or one that is not part of a configuration.
            _ => String::new(),
        };
        row([&format!("`{key}`"), &flag(key, help), &default, text])
    };
    let line = |line: &str| match documented(line) {
        Some(known) => of(known.key, known.text),
        None => line.to_owned(),
    };
    let mut written: Vec<String> = page.lines().map(line).collect();
    for (key, _) in program {
        let (section, _) = key.split_once('.').expect("a section");
        let is_row = |line: &String, start: &str| line.starts_with(&format!("| `{start}"));
        if !written.iter().any(|line| is_row(line, &format!("{key}`"))) {
            let place = written
                .iter()
                .rposition(|line| is_row(line, &format!("{section}.")));
            written.insert(place.expect("a row of the section") + 1, of(key, ""));
        }
    }
    written.join("\n") + "\n"
}

#[test]
fn every_key_is_documented_with_its_flag_and_default() {
    let folder = tempfile::tempdir().unwrap();
    let help = stdout(&gpipe(folder.path(), &["train", "--help"]));
    let nano = defaults(folder.path(), "gpt-nano");
    assert!(nano.len() > 40, "{nano:?}");
    let mut program = nano.clone();
    if cfg!(feature = "digits") {
        program.extend(defaults(folder.path(), "mlp"));
        program.extend(defaults(folder.path(), "convnet"));
        program.extend(defaults(folder.path(), "llama-nano"));
        program.extend(defaults(folder.path(), "seq2seq-nano"));
    }
    let page = fs::read_to_string(KEYS).unwrap();
    let written = rewritten(&page, &nano, &program, &help);
    if env::var_os("GPIPE_REFERENCE").is_some_and(|way| way == "write") {
        fs::write(KEYS, &written).unwrap();
    }
    let stale = "reference/keys.md is out of date: cargo xtask reference";
    for (new, old) in written.lines().zip(page.lines()) {
        assert_eq!(new, old, "{stale}");
    }
    assert_eq!(written, page, "{stale}");
    let mut keys = BTreeSet::new();
    for Documented { key, text } in page.lines().filter_map(documented) {
        assert!(keys.insert(key), "{key} is documented twice");
        assert!(
            !text.is_empty(),
            "{key} has no description in reference/keys.md"
        );
        // A key that a configuration does not keep can be set.
        if key != "model.hidden" && !program.iter().any(|(named, _)| named == key) {
            let value = match key {
                "pipeline.zero" => "1",
                "run.instruction_set" => "avx512",
                "run.nccl" => "off",
                "run.cuda_graphs" => "false",
                "optimizer.name" => "sgd",
                "optimizer.alpha" => "0.99",
                "optimizer.momentum" => "0",
                "optimizer.nesterov" => "false",
                "optimizer.freeze" => "wpe",
                // With a rank alone they mean something: surface/keys.rs sets them.
                "lora.alpha" => "8",
                "lora.dropout" => "0",
                "lora.targets" | "lora.adapter" => "",
                "optimizer.label_smoothing" => "0.1",
                _ => "4",
            };
            let output = gpipe(folder.path(), &["plan", "--set", &format!("{key}={value}")]);
            assert_eq!(output.status.code(), Some(0), "{key}: {}", stderr(&output));
        }
    }
}

#[test]
fn every_file_of_a_run_is_documented() {
    let folder = tempfile::tempdir().unwrap();
    let trained = small(folder.path(), "train", &["--steps", "2", "--out", "run"]);
    assert_eq!(trained.status.code(), Some(0), "{}", stderr(&trained));
    gpipe(folder.path(), &["report", "run"]);
    let mut rows = FILES
        .lines()
        .skip_while(|line| *line != "## The run's folder")
        .skip_while(|line| !line.starts_with("|---"))
        .skip(1)
        .map_while(|line| line.strip_prefix("| `"))
        .map(|line| line.split('`').next().unwrap().trim_end_matches('/'))
        .collect::<BTreeSet<_>>();
    for entry in folder.path().join("run").read_dir().unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_it = |row: &&str| match row.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == *row,
        };
        let row = rows.iter().copied().find(|row| is_it(row));
        match row {
            Some(row) => drop(rows.remove(row)),
            None => assert_eq!(name, ".lock", "reference/files.md does not know it"),
        }
    }
    assert!(rows.is_empty(), "no run has {rows:?}");
}
