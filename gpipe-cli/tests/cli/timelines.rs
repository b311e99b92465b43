//! `timeline.json` of a run that is resumed: what was kept before stays.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{gpipe, stderr};

fn steps(file: &Path) -> Vec<u64> {
    let file: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let measured = file["measured"].as_array().unwrap().iter();
    measured
        .map(|step| step["step"].as_u64().unwrap())
        .collect()
}

#[test]
fn a_resumed_run_keeps_the_timelines_of_the_steps_before() {
    let home = tempfile::tempdir().unwrap();
    let here = home.path();
    let run = |arguments: &[&str]| {
        let output = gpipe(
            here,
            &[&["train", "-q", "--trace-steps", "2"], arguments].concat(),
        );
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stderr(&output)
    };
    let small = [
        "--set",
        "model.width=16",
        "--set",
        "model.blocks=1",
        "--seq-len",
        "8",
        "--batch-size",
        "4",
        "--stages",
        "2",
        "--threads",
        "1",
        "--lr-schedule",
        "constant",
        "--out",
        "run",
    ];
    run(&[&small[..], &["--steps", "4"]].concat());
    let timeline = here.join("run/timeline.json");
    assert_eq!(steps(&timeline), [3, 4]);
    run(&["--resume", "run", "--steps", "6"]);
    assert_eq!(steps(&timeline), [3, 4, 5, 6]);
    let trace = |name: &str| {
        fs::read_to_string(here.join("run").join(name))
            .unwrap()
            .len()
    };
    let four = trace("trace.json");

    // Another plan: its actions are others, so the earlier ones have a file of their own.
    let said = run(&["--resume", "run", "--steps", "7", "--stages", "3"]);
    assert!(said.contains("timeline-until-00000006.json"), "{said}");
    assert_eq!(steps(&timeline), [7]);
    assert_eq!(
        steps(&here.join("run/timeline-until-00000006.json")),
        [3, 4, 5, 6]
    );
    assert_eq!(trace("trace-until-00000006.json"), four);
    assert!(trace("trace.json") < four);
    let report = gpipe(here, &["report", "run"]);
    assert_eq!(report.status.code(), Some(0), "{}", stderr(&report));

    // A new run in its place leaves none of them.
    run(&[&small[..], &["--steps", "1", "--overwrite"]].concat());
    assert_eq!(steps(&timeline), [1]);
    assert!(!here.join("run/timeline-until-00000006.json").exists());
    assert!(!here.join("run/trace-until-00000006.json").exists());
}
