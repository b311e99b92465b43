//! What is passed over, misread or changed in the data is told.

use std::fs;

use super::{gpipe, objects, small, stderr};

/// The text of `seq FIRST LAST`.
fn seq(first: u32, last: u32) -> String {
    (first..=last).map(|number| format!("{number}\n")).collect()
}

/// Checkpoints were learned from as text, and grew with each resumption.
#[test]
fn runs_below_the_data_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("a.txt"), seq(1, 900)).unwrap();
    let first = small(folder, "train", &["--data", ".", "--steps", "2", "--json"]);
    assert!(!stderr(&first).contains("passed over"));
    objects(&first);
    let output = gpipe(folder, &["train", "--resume", "--steps", "3"]);
    let told = stderr(&output);
    let summary = |told: &str| told.split("samples of").next().map(str::to_owned);
    assert_eq!(summary(&told), summary(&stderr(&first)));
    let warning = "warning: --data .: a folder of runs of gpipe is passed over: runs\n";
    assert!(told.contains(warning), "{told}");
    assert!(!told.contains("is not what it was"), "{told}");
    let run = fs::read_dir(folder.join("runs")).unwrap().next().unwrap();
    let output = gpipe(folder, &["eval", run.unwrap().path().to_str().unwrap()]);
    assert!(stderr(&output).contains(warning), "{}", stderr(&output));
}

/// The held-out tenth moves with the end of a text.
#[test]
fn an_evaluation_tells_data_that_has_changed_since_training() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = folder.join("a.txt");
    fs::write(&text, seq(1, 900)).unwrap();
    let every = ["--steps", "2", "--eval-every", "2", "--json"];
    let arguments = [&["--data", "a.txt", "--out", "run"][..], &every].concat();
    objects(&small(folder, "train", &arguments));
    let told = |arguments: &[&str]| {
        let output = gpipe(folder, &[&["eval", "run", "-q"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stderr(&output)
    };
    assert_eq!(told(&[]), "");
    fs::write(&text, seq(1, 990)).unwrap();
    assert_eq!(
        told(&["--seq-len", "8", "--stages", "1"]),
        "warning: --data: a.txt is not what it was when the run was trained: another part of it is held out, and may \
         have been trained on\n"
    );
    fs::write(folder.join("b.txt"), seq(7, 400)).unwrap();
    assert_eq!(told(&["--data", "b.txt"]), "");
}
