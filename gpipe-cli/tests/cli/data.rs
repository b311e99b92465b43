//! Warnings of data that is passed over, misread or changed.

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

/// Each would be learned from as bytes.
#[test]
fn binaries_among_texts_are_told_by_train_eval_and_plan() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("d")).unwrap();
    fs::write(folder.join("d/a.txt"), seq(1, 900)).unwrap();
    fs::write(folder.join("d/b.bin"), "x\0y").unwrap();
    let data = ["--data", "d", "--steps", "2"];
    let said = "warning: --data d: 1 of 2 files hold NUL bytes, as binaries and UTF-16 do, which are taken for text: first \
                b.bin\n";
    let [train, plan] = ["train", "plan"].map(|command| {
        let out: &[&str] = if command == "train" {
            &["--out", "run"]
        } else {
            &[]
        };
        small(folder, command, &[&data[..], out].concat())
    });
    let eval = gpipe(folder, &["eval", "run"]);
    for output in [&train, &plan, &eval] {
        assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
        assert!(stderr(output).contains(said), "{}", stderr(output));
    }
}

/// What names alone tell, training would refuse later.
#[test]
fn a_plan_tells_data_that_training_would_refuse() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for class in ["cat", "dog"] {
        fs::create_dir_all(folder.join("pictures").join(class)).unwrap();
    }
    fs::write(folder.join("pictures/cat/1.png"), "").unwrap();
    let told = |data: &[&str]| {
        let output = gpipe(folder, &[&["plan"], data].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stderr(&output)
    };
    let pictures = ["--model", "convnet", "--data", "pictures"];
    assert_eq!(
        told(&pictures),
        "warning: train would refuse this: --data pictures: its folder `dog` holds no png or jpg files: put some there, \
         or remove it\n"
    );
    let text = told(&["--data", "none"]);
    assert!(
        text.contains("train would refuse this: --data none: No such file"),
        "{text}"
    );
    assert_eq!(told(&["--model", "seq2seq-nano"]), "");
    for how in [&["--json"][..], &["--auto", "--json"]] {
        let plan = objects(&gpipe(folder, &[&["plan", "--data", "none"], how].concat()));
        let fault = plan[0]["faults"][0].as_str().unwrap_or_default();
        assert!(
            fault.starts_with("--data none: No such file"),
            "{how:?}: {fault}"
        );
    }
}

/// The data of a run that is named from another folder is not where it was.
#[test]
fn a_relative_path_is_told_with_the_folder_where_it_was_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    fs::write(folder.join("a.txt"), seq(1, 900)).unwrap();
    let arguments = ["--data", "a.txt", "--steps", "2", "--out", "run", "-q"];
    objects(&small(&folder, "train", &arguments));
    let other = folder.join("other");
    fs::create_dir(&other).unwrap();
    let told = |arguments: &[&str]| {
        let output = gpipe(&other, arguments);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output)
    };
    let said = |data: &str| {
        format!(
            "error: --data {data}: No such file or directory (os error 2) in {}, where gpipe was started: give --data \
             its whole path, or name another file or folder\n",
            other.display()
        )
    };
    for arguments in [
        &["train", "--resume", "../run", "--steps", "3"][..],
        &["eval", "../run"],
        &["train", "--config", "../run/config.toml"],
    ] {
        assert_eq!(told(arguments), said("a.txt"));
    }
    let pictures = ["train", "--model", "convnet", "--data", "pictures"];
    assert_eq!(told(&pictures), said("pictures"));
    let targets = ["--model", "seq2seq-nano", "--data", "../a.txt"];
    let targets = told(&[&["train"], &targets[..], &["--target", "b"]].concat());
    assert!(targets.contains("where gpipe was started: "), "{targets}");
    let whole = folder.join("a.txt");
    let output = gpipe(
        &other,
        &["eval", "../run", "--data", whole.to_str().unwrap()],
    );
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}
