//! `gpipe generate` and `gpipe devices`.

use std::collections::BTreeSet;
use std::fs;

use super::{gpipe, objects, stderr, stdout};

/// What stands in the place of a file is replaced whole, or named.
#[test]
fn a_file_that_cannot_be_replaced_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("gpipe.bash/x")).unwrap();
    let output = gpipe(folder.path(), &["generate", "completions", "bash", "."]);
    let said = stderr(&output);
    assert_eq!(
        (output.status.code(), said.lines().count()),
        (Some(2), 1),
        "{said}"
    );
    assert!(said.contains("gpipe.bash"), "{said}");
}

#[test]
fn every_command_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let output = gpipe(folder.path(), &["generate", "man", "pages"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
    let help = stdout(&gpipe(folder.path(), &["--help"]));
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.map_while(|line| line.strip_prefix("  "));
    let mut expected: BTreeSet<String> = commands
        .filter(|line| !line.starts_with([' ', '-']))
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .map(|command| format!("gpipe-{command}.1"))
        .collect();
    assert!(expected.contains("gpipe-train.1"), "{help}");
    for name in [
        "gpipe.1",
        "gpipe-generate-man.1",
        "gpipe-generate-completions.1",
    ] {
        expected.insert(name.to_owned());
    }
    let pages = folder.path().join("pages").read_dir().unwrap();
    let pages: BTreeSet<String> = pages
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(pages, expected);

    let train = fs::read_to_string(folder.path().join("pages/gpipe-train.1")).unwrap();
    for words in [
        ".TH GPIPE-TRAIN 1",
        ".SH NAME",
        ".SH EXAMPLES",
        r"\-\-micro\-batches",
    ] {
        assert!(train.contains(words), "{words} in {train}");
    }
    let all = stdout(&gpipe(folder.path(), &["generate", "man"]));
    assert!(all.contains(&train));
    assert_eq!(all.matches(".TH ").count(), pages.len());
}

#[test]
fn every_shell_has_completions() {
    let folder = tempfile::tempdir().unwrap();
    let shells = [
        ("bash", "gpipe.bash"),
        ("zsh", "_gpipe"),
        ("fish", "gpipe.fish"),
        ("powershell", "_gpipe.ps1"),
        ("elvish", "gpipe.elv"),
    ];
    for (shell, name) in shells {
        let script = stdout(&gpipe(folder.path(), &["generate", "completions", shell]));
        assert!(script.contains("micro-batches"), "{shell}: {script}");
        let saved = gpipe(
            folder.path(),
            &["generate", "completions", shell, "into/here"],
        );
        assert_eq!(saved.status.code(), Some(0), "{}", stderr(&saved));
        let saved = fs::read_to_string(folder.path().join("into/here").join(name)).unwrap();
        assert_eq!(saved.trim_end(), script.trim_end());
    }
    fs::write(folder.path().join("file"), "").unwrap();
    let refused = gpipe(folder.path(), &["generate", "completions", "bash", "file"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("name a folder that can be made"));
}

#[test]
fn devices_are_those_that_train_takes() {
    let folder = tempfile::tempdir().unwrap();
    let found = objects(&gpipe(folder.path(), &["devices", "--json"]));
    assert_eq!(found[0]["device"], "cpu");
    assert_eq!(found[0]["usable"], true);
    assert!(found[0]["threads"].as_u64().unwrap() > 0);
    let said = stdout(&gpipe(folder.path(), &["devices"]));
    let mpi = found.iter().filter(|object| object["kind"] == "mpi");
    assert_eq!(mpi.count(), 1);
    assert!(said.lines().any(|line| line.starts_with("mpi")), "{said}");
    for device in found.iter().filter(|object| object["kind"] == "device") {
        let name = device["device"].as_str().unwrap();
        assert!(said.lines().any(|line| line.starts_with(name)), "{said}");
        if device["usable"] == false {
            let reason = device["reason"].as_str().unwrap();
            assert!(said.contains(reason), "{said}");
            let asked = ["train", "--steps", "1", "--stages", "1", "--devices", name];
            let refused = gpipe(folder.path(), &asked);
            assert_eq!(refused.status.code(), Some(2));
            assert!(stderr(&refused).contains(reason), "{}", stderr(&refused));
        }
    }
}
