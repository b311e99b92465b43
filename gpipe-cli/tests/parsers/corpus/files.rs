//! Configuration files.

use super::{Hostile, hostile};

pub fn all() -> Vec<Hostile> {
    let file = |what: &str, text: &str, word| hostile("config", what, text, word);
    let deep =
        |open: &str, close: &str| format!("a = {}{}", open.repeat(100_000), close.repeat(100_000));
    let mut list = vec![
        file("arrays in arrays", &deep("[", "]"), "line 1"),
        file(
            "arrays that never end",
            &format!("a = {}", "[".repeat(100_000)),
            "line 1",
        ),
        file("tables in tables", &deep("{a=", "}"), "line 1"),
        file(
            "a key of 100000 parts",
            &format!("{}a = 1", "a.".repeat(100_000)),
            "",
        ),
        file(
            "a section of 100000 parts",
            &format!("[{}a]", "a.".repeat(100_000)),
            "",
        ),
        file("100000 sections", &"[[run]]\n".repeat(100_000), "section"),
        file("a key twice", "[run]\nsteps = 1\nsteps = 2\n", "line 3"),
        file("a section twice", "[run]\n[run]\n", "line 2"),
        file("a section as a value", "run = 3\n", "[run]"),
        file("a value as a section", "[run.steps]\n", "run.steps"),
        file(
            "a section of another program",
            "[package]\nname = \"x\"\n",
            "[package]",
        ),
        file("an empty key", "[run]\n\"\" = 1\n", "line 2"),
        file("an unfinished string", "[model]\nname = \"gpt\n", "line 2"),
        file("an unfinished section", "[run\n", "line 1"),
        file("a value without a key", "= 3\n", "line 1"),
        file("a key without a value", "[run]\nsteps\n", "line 2"),
        file("a half escape", "[model]\nname = \"\\ud800\"\n", "line 2"),
        file("a NUL", "[run]\nsteps = 1\0\n", "line 2"),
        file("a bell in a comment", "# \u{7}\n", "line 1"),
        file("a carriage return alone", "[run]\rsteps = 1", "line 1"),
        file("JSON", "{\"run\": {\"steps\": 3}}", "line 1"),
        file("YAML", "run:\n  steps: 3\n", "line 1"),
        file("HTML", "<!doctype html><html>", "line 1"),
        file("a shell script", "#!/bin/sh\nrm -rf /\n", "line 2"),
        file("a megabyte of spaces", &" ".repeat(1 << 20), ""),
        file(
            "a megabyte of a key",
            &format!("{} = 1", "k".repeat(1 << 20)),
            "unknown key",
        ),
        file(
            "a megabyte of a name",
            &format!("[model]\nname = \"{}\"", "n".repeat(1 << 20)),
            "or a .gguf file",
        ),
        file(
            "a key that looks like another",
            "[run]\nѕteps = 1\n",
            "line 2",
        ),
        file(
            "text written right to left",
            "[run]\n\"\u{202e}spets\" = 1\n",
            "did you mean",
        ),
        file(
            "escapes of a terminal",
            "[run]\n\"\\u001b[2J\" = 1\n",
            "the keys of [run] are",
        ),
        file("a date", "[run]\nsteps = 1979-05-27\n", "whole number"),
        file(
            "both of two",
            "[pipeline]\nmicro_batches = 2\nmicro_batch_size = 2\n",
            "give one of the two",
        ),
        hostile("config", "no text", [0xff, 0xfe, 0x00], "UTF-8"),
        hostile(
            "config",
            "UTF-16",
            "\u{feff}[run]"
                .encode_utf16()
                .flat_map(u16::to_le_bytes)
                .collect::<Vec<u8>>(),
            "UTF-8",
        ),
        hostile(
            "config",
            "text cut within a character",
            &b"# \xe2\x82"[..],
            "UTF-8",
        ),
        hostile(
            "config",
            "a program",
            &b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0"[..],
            "line 1",
        ),
    ];
    // Every key with every kind of wrong value.
    let written = gpipe_cli::parsers::config(b"").expect("the defaults");
    let (mut section, mut keys) = ("", Vec::new());
    for line in written.lines() {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            section = name;
        } else if let Some((key, _)) = line.split_once(" = ") {
            keys.push((section.to_owned(), key.to_owned()));
        }
    }
    assert!(keys.len() >= 30, "{keys:?}");
    let values = [
        "0",
        "-1",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
        "1e308",
        "1e309",
        "-0.0",
        "nan",
        "inf",
        "true",
        "''",
        "'\\u0000'",
        "[]",
        "{}",
        "07:32:00",
        "'999999999999999999999'",
    ];
    for (section, key) in keys {
        for value in values {
            let text = format!("[{section}]\n{key} = {value}\n");
            list.push(hostile("config", text.clone(), text, ""));
        }
    }
    list
}
