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
const FLAGS: [(&str, &str); 3] = [
    ("model.name", "--model"),
    ("data.source", "--data"),
    ("data.shuffle", "--no-shuffle"),
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
                .all(|b| b.is_ascii_lowercase() || b"_012".contains(&b))
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

#[test]
fn every_key_is_documented_with_its_flag_and_default() {
    let folder = tempfile::tempdir().unwrap();
    let help = stdout(&gpipe(folder.path(), &["train", "--help"]));
    let nano = defaults(folder.path(), "gpt-nano");
    assert!(nano.len() > 40, "{nano:?}");
    let mut program = nano.clone();
    if cfg!(feature = "digits") {
        let mlp = defaults(folder.path(), "mlp");
        program.extend(
            mlp.into_iter()
                .filter(|(key, _)| !nano.iter().any(|(known, _)| known == key)),
        );
    }
    let page = fs::read_to_string(KEYS).unwrap();
    let mut known = BTreeSet::new();
    let (mut written, mut undescribed) = (Vec::new(), Vec::new());
    for line in page.lines() {
        let Some((key, rest)) = line
            .strip_prefix("| `")
            .and_then(|rest| rest.split_once("` |"))
        else {
            written.push(line.to_owned());
            continue;
        };
        let cells: Vec<&str> = rest.splitn(3, '|').map(str::trim).collect();
        let text = cells[2].strip_suffix('|').expect("a closed row").trim();
        assert!(known.insert(key.to_owned()), "{key} is documented twice");
        if text.is_empty() {
            undescribed.push(key.to_owned());
        }
        let machine = MACHINE.iter().find(|(named, _)| *named == key);
        let own = nano.iter().find(|(named, _)| named == key);
        let default = match (machine, own) {
            (Some((_, words)), _) => (*words).to_owned(),
            (_, Some((_, value))) => cell(value),
            // A key of another model, or one that is not part of a configuration.
            _ => String::new(),
        };
        written.push(row([
            &format!("`{key}`"),
            &flag(key, &help),
            &default,
            text,
        ]));
    }
    let missing: Vec<&String> = program
        .iter()
        .map(|(key, _)| key)
        .filter(|key| !known.contains(*key))
        .collect();
    for key in &missing {
        let (section, _) = key.split_once('.').unwrap();
        let place = written
            .iter()
            .rposition(|line| line.starts_with(&format!("| `{section}.")));
        let value = nano
            .iter()
            .find(|(named, _)| named == *key)
            .map(|(_, value)| cell(value));
        let line = row([
            &format!("`{key}`"),
            &flag(key, &help),
            &value.unwrap_or_default(),
            "",
        ]);
        written.insert(place.expect("a row of the section") + 1, line);
    }
    let written = written.join("\n") + "\n";
    if env::var_os("GPIPE_REFERENCE").is_some_and(|way| way == "write") {
        fs::write(KEYS, &written).unwrap();
    }
    assert_eq!(
        written, page,
        "reference/keys.md is out of date: cargo xtask reference"
    );
    assert_eq!(
        undescribed, [""; 0],
        "keys without a description in reference/keys.md"
    );
    // A key that is not part of a configuration can be set.
    for key in known
        .iter()
        .filter(|key| !program.iter().any(|(named, _)| named == *key))
    {
        if key != "model.hidden" {
            let value = match key.as_str() {
                "run.instruction_set" => "avx512",
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
