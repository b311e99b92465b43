//! Names in files of others: what would control a terminal, or begin a line of its own, is written out.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};

use super::{gpipe, stderr, stdout};

/// Sets the title of a terminal, colours it, and forges a line.
const HOSTILE: &str = "\u{1b}]0;pwn\u{7}\u{1b}[31mx\nwarning: forged";

/// Runs a line that colours its output, as on a terminal, and returns both streams.
fn told(output: &Output) -> String {
    let told = stdout(output) + &stderr(output);
    assert!(told.contains("]0;pwn"), "{told}");
    for part in ["\u{1b}]", "\u{1b}[31mx", "\u{7}", "\nwarning: forged"] {
        assert!(!told.contains(part), "{part:?} in {told}");
    }
    assert!(
        told.lines().all(|line| line.chars().count() <= 700),
        "{told}"
    );
    told
}

#[test]
fn layers_of_a_cost_file_are_written_out() {
    let folder = tempfile::tempdir().unwrap();
    let costs = json!({"layers": [{"forward": 3, "name": HOSTILE}, {"forward": 0.1}]});
    fs::write(folder.path().join("costs.json"), costs.to_string()).unwrap();
    let plan = [
        "plan",
        "--costs",
        "costs.json",
        "--auto",
        "--color",
        "always",
    ];
    let output = gpipe(folder.path(), &plan);
    assert!(output.status.success(), "{}", stderr(&output));
    told(&output);
    let output = gpipe(folder.path(), &[&plan[..], &["--json"]].concat());
    let event: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(event["bottleneck_layer"], HOSTILE);
}

#[test]
fn a_profile_is_written_out() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("runs")).unwrap();
    let times = json!({
        "format": 1, "gpipe": format!("{HOSTILE}{}", "y".repeat(1 << 20)), "processor": "", "instructions": "",
        "threads": 1, "action_seconds": 0.0, "kinds": {},
    });
    fs::write(folder.path().join("runs/profile.json"), times.to_string()).unwrap();
    let output = gpipe(folder.path(), &["plan", "--color", "always"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(told(&output).contains("measured by gpipe"));
}

#[cfg(unix)]
#[test]
fn a_file_of_a_checkpoint_is_written_out() {
    let folder = tempfile::tempdir().unwrap();
    let run = ["--steps", "1", "--out", "run", "-q"];
    assert!(super::small(folder.path(), "train", &run).status.success());
    let checkpoint = folder.path().join("run/checkpoints/step-00000001");
    fs::write(checkpoint.join(HOSTILE.replace('/', "")), "").unwrap();
    let output = gpipe(folder.path(), &["check", "run", "--color", "always"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    told(&output);
}
