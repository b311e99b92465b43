//! Values that are not finite: never saved. The error of a step that meets them is in log, events and
//! report, and the state before it is saved.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::super::{gpipe, objects, parse, stderr};
use super::{checkpoint, code, of_kind, resume, train};

/// A rate and a decay whose product is infinite in single precision.
const TOO_HIGH: [&str; 6] = [
    "--lr",
    "1e30",
    "--weight-decay",
    "1e30",
    "--warmup-steps",
    "0",
];

/// The last event of a run, which is its error, as it is in the file and was printed.
fn error(folder: &Path, printed: &[Value]) -> Value {
    let events = fs::read_to_string(folder.join("run/events.jsonl")).unwrap();
    let last = parse(&events).pop().unwrap();
    let printed = of_kind(printed, "error").pop().unwrap();
    assert_eq!(last["message"], printed["message"]);
    assert_eq!(last["kind"], "error", "{last}");
    let message = last["message"].as_str().unwrap();
    let log = fs::read_to_string(folder.join("run/log.txt")).unwrap();
    assert!(
        log.trim_end().ends_with(&format!("error: {message}")),
        "{log}"
    );
    assert_eq!(code(&gpipe(folder, &["report", "run"])), 0);
    let page = fs::read_to_string(folder.join("run/report.html")).unwrap();
    let first = page.split_once("<main>").unwrap().1.trim_start();
    assert!(
        first.starts_with("<p class=\"note\" role=\"alert\">run failed: step "),
        "{}",
        &first[..200]
    );
    last
}

#[test]
fn an_update_that_is_not_finite_is_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for keep in ["1", "0"] {
        let run = [
            "--steps",
            "1",
            "--keep",
            keep,
            "--out",
            "run",
            "--overwrite",
        ];
        let output = train(folder, &[&run[..], &TOO_HIGH].concat());
        let said = stderr(&output);
        assert_eq!(code(&output), 1, "{said}");
        assert!(said.starts_with("error: step 1: "), "{said}");
        assert!(
            said.contains(" after the update, which is not saved: lower --lr"),
            "{said}"
        );
        assert!(said.ends_with("; no checkpoint was saved\n"), "{said}");
        assert!(!folder.join("run/checkpoints/latest").exists());
        let error = error(folder, &parse(&String::from_utf8(output.stdout).unwrap()));
        assert_eq!(
            (&error["step"], &error["checkpoint"]),
            (&1.into(), &Value::Null)
        );
    }
    println!("exam L3 2/2");
}

#[test]
fn the_last_finite_checkpoint_stays() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let run = [
        "--steps",
        "3",
        "--save-every",
        "1",
        "--keep",
        "1",
        "--out",
        "run",
    ];
    objects(&train(folder, &run));
    let output = resume(folder, &[&["run", "--steps", "6"], &TOO_HIGH[..]].concat());
    let said = stderr(&output);
    assert_eq!(code(&output), 1, "{said}");
    assert!(said.contains("error: step 4: "), "{said}");
    let mend = "the newest checkpoint is run/checkpoints/step-00000003: gpipe train --resume run continues";
    assert!(said.contains(mend), "{said}");
    let error = error(folder, &parse(&String::from_utf8(output.stdout).unwrap()));
    assert_eq!(error["checkpoint"], "run/checkpoints/step-00000003");
    // The mend works.
    let went_on = objects(&resume(folder, &["run", "--steps", "6", "--lr", "1e-3"]));
    assert_eq!(of_kind(&went_on, "step").len(), 3);
    assert_eq!(of_kind(&went_on, "resume")[0]["step"], 3);
    // The run in another folder has none of its own.
    let elsewhere = ["run", "--out", "new", "--steps", "9", "--save-every", "0"];
    let output = resume(folder, &[&elsewhere[..], &TOO_HIGH].concat());
    let mend = ": gpipe train --resume run/checkpoints/step-00000006 --out NEW continues from it";
    assert!(stderr(&output).contains(mend), "{}", stderr(&output));
    println!("exam L3 2/2");
}

#[test]
fn a_step_that_is_not_finite_is_saved_before_it_beside_the_older_ones() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let run = ["--steps", "2", "--keep", "1", "--out", "run"];
    objects(&train(folder, &run));
    // Values of 1e30 are finite, and their products are not.
    let rate = ["--lr", "1e30", "--clip-norm", "0", "--warmup-steps", "0"];
    let output = resume(
        folder,
        &[&["run", "--steps", "9", "--save-every", "0"], &rate[..]].concat(),
    );
    let said = stderr(&output);
    assert_eq!(code(&output), 1, "{said}");
    assert!(
        said.contains("error: step 4: micro-batch 0, layer "),
        "{said}"
    );
    let left = "; saved after step 3, and from there it fails again: gpipe train --resume \
                run/checkpoints/step-00000002 --out NEW continues from an earlier one\n";
    assert!(said.ends_with(left), "{said}");
    for step in [2, 3] {
        assert!(checkpoint(folder, "run", step).is_dir(), "{step}");
    }
    let error = error(folder, &parse(&String::from_utf8(output.stdout).unwrap()));
    assert_eq!(
        (&error["step"], &error["checkpoint"]),
        (&3.into(), &"run/checkpoints/step-00000003".into())
    );
    // The mend works.
    let earlier = [
        "run/checkpoints/step-00000002",
        "--out",
        "new",
        "--steps",
        "4",
        "--lr",
        "1e-3",
    ];
    assert_eq!(
        of_kind(&objects(&resume(folder, &earlier)), "step").len(),
        2
    );
    println!("exam L3 2/2");
}
