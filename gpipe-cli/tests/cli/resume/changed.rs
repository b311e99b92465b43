//! Resuming with a changed configuration: changes that affect results are reported, another model is
//! refused.

use std::fs;

use serde_json::Value;

use super::super::{objects, stderr};
use super::{checkpoint, code, results, resume, train};

#[test]
fn what_does_not_fit_is_refused_and_what_changes_bits_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    objects(&train(
        folder,
        &["--steps", "4", "--save-every", "2", "--out", "run"],
    ));
    for (arguments, words) in [
        (
            &["run", "--set", "model.width=32"][..],
            "`model.width` is 32, but 16 in the checkpoint",
        ),
        (
            &["run", "--steps", "3"],
            "the checkpoint is of step 4: use --steps 4 or more",
        ),
        (
            &["run", "--config", "run/config.toml"],
            "cannot be used with",
        ),
        (&["missing"], "--resume missing"),
        (&["run/checkpoints/step-00000002"], "step-00000004 is newer"),
        (
            &["run", "--out", "run", "--overwrite"],
            "is the run to resume",
        ),
        (&[], "no run in runs/ has a checkpoint"),
    ] {
        let refused = resume(folder, arguments);
        let told = stderr(&refused);
        assert_eq!((code(&refused), told.lines().count()), (2, 1), "{told}");
        assert!(told.contains(words), "{told}");
    }
    let changed = [
        "run",
        "--steps",
        "6",
        "--micro-batches",
        "2",
        "--seed",
        "5",
        "--out",
        "changed",
    ];
    let output = resume(folder, &changed);
    let told = stderr(&output);
    for words in [
        "warning: --micro-batches is 2, but 4 in the checkpoint: from here on results are equal to",
        "warning: --seed is 5, but 0 in the checkpoint",
    ] {
        assert!(told.contains(words), "{told}");
    }
    assert_eq!(results(&objects(&output)).len(), 2);
}

#[test]
fn changed_data_is_reported_and_the_position_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("text"), "abcdefgh ".repeat(90)).unwrap();
    let arguments = ["--data", "text", "--steps", "2", "--out", "run"];
    objects(&train(folder, &arguments));
    fs::write(folder.join("text"), "hgfedcba ".repeat(90)).unwrap();
    let arguments = ["run", "--steps", "4", "--batch-size", "8"];
    let output = resume(folder, &arguments);
    assert!(stderr(&output).contains("warning: --data: text is not what it was"));
    objects(&output);
    let state = fs::read(checkpoint(folder, "run", 4).join("state.json")).unwrap();
    let state: Value = serde_json::from_slice(&state).unwrap();
    assert_eq!(state["samples"], 2 * 4 + 2 * 8);
}

/// A text under another name is the same text; a warning names the key of another text.
#[test]
fn a_text_that_has_moved_gives_no_warning() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("text"), "abcdefgh ".repeat(50)).unwrap();
    objects(&train(
        folder,
        &["--data", "text", "--steps", "2", "--out", "run"],
    ));
    fs::rename(folder.join("text"), folder.join("moved")).unwrap();
    fs::write(folder.join("other"), "hgfedcba ".repeat(50)).unwrap();
    let mut told = ["moved", "other"].map(|name| {
        let out = format!("run of {name}");
        let output = resume(
            folder,
            &["run", "--steps", "3", "--data", name, "--out", &out],
        );
        assert_eq!(code(&output), 0);
        stderr(&output)
    });
    assert_eq!(told[0], "");
    told[1].truncate(told[1].find(", but").unwrap());
    assert_eq!(told[1], "warning: --data is \"other\"");
}
