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
