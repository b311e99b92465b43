//! Commands, flags, their values and defaults, read from `--help` of every command.

use std::fmt::Write as _;

use super::{gpipe, stdout};

/// The commands that a page of help lists.
fn commands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    lines
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .map(|line| line.split_whitespace().next().expect("a name").to_owned())
        .collect()
}

/// A page without its sentences: usage, headings, flags, and in brackets what clap adds to them.
/// Of a default that is described in words it tells only that there is one.
fn structure(help: &str) -> String {
    let mut text = String::new();
    let mut about = String::new();
    let flush = |about: &mut String, text: &mut String| {
        for part in about.split('[').skip(1) {
            let Some((part, _)) = part.split_once(']') else {
                continue;
            };
            match part.split_once(": ") {
                Some(("default", value)) if value.contains([' ', ',']) => {
                    text.push_str("      [default: in words]\n");
                }
                Some(("default" | "possible values", _)) => {
                    writeln!(text, "      [{part}]").unwrap();
                }
                _ => {}
            }
        }
        about.clear();
    };
    let lines = help.lines().skip_while(|line| !line.starts_with("Usage:"));
    for line in lines.take_while(|line| *line != "Examples:") {
        let inner = line.trim_start();
        let indent = line.len() - inner.len();
        let flag = inner.starts_with(['-', '<', '[']) && (2..8).contains(&indent);
        let heading = indent == 0 && line.ends_with(':') && line != "Commands:";
        if flag || heading || line.starts_with("Usage:") {
            flush(&mut about, &mut text);
            writeln!(text, "{line}").unwrap();
        } else if inner.starts_with("- ") {
            // A possible value with a description of its own.
            let value = inner.split([':', ' ']).nth(1).unwrap_or_default();
            writeln!(text, "      value {value}").unwrap();
        } else {
            about = format!("{about} {inner}");
        }
    }
    flush(&mut about, &mut text);
    text
}

#[test]
fn every_command_has_its_flags() {
    let folder = tempfile::tempdir().unwrap();
    let help = |path: &[&str]| stdout(&gpipe(folder.path(), &[path, &["--help"]].concat()));
    let mut pages = String::new();
    let mut page = |path: &[&str], help: &str| {
        let name = [&["gpipe"], path].concat().join(" ");
        let names = commands(help);
        writeln!(pages, "# {name}\n{}", structure(help)).unwrap();
        if !names.is_empty() {
            writeln!(pages, "commands: {}\n", names.join(" ")).unwrap();
        }
        names
    };
    let root = help(&[]);
    for name in page(&[], &root) {
        let text = help(&[&name]);
        for inner in page(&[&name], &text) {
            page(&[&name, &inner], &help(&[&name, &inner]));
        }
    }
    insta::assert_snapshot!(pages);
}

#[test]
fn short_help_lists_the_same_flags() {
    let folder = tempfile::tempdir().unwrap();
    for command in [
        "train", "plan", "verify", "eval", "sample", "check", "report",
    ] {
        let flags = |help: &str| -> Vec<String> {
            let words = stdout(&gpipe(folder.path(), &[command, help]));
            let flags = words.lines().filter_map(|line| {
                let inner = line.trim_start();
                let flag = inner.starts_with('-') && line.len() - inner.len() < 8;
                inner.split("--").nth(1).filter(|_| flag)
            });
            let name = |flag: &str| flag.split([' ', '[']).next().unwrap_or_default().to_owned();
            flags.map(name).collect()
        };
        assert_eq!(flags("-h"), flags("--help"), "{command}");
    }
}
