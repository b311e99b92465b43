//! Plans for GPUs that this machine lacks.

use serde_json::Value;

use super::{objects, small, stderr, stdout};

/// The processor's speed says nothing of a GPU, whose kind is not known.
#[test]
fn a_plan_for_a_missing_gpu_tells_no_time_and_warns() {
    let folder = tempfile::tempdir().unwrap();
    let devices = ["--devices", "cuda:77"];
    let output = small(folder.path(), "plan", &devices);
    let (told, said) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!told.contains("\nstep "), "{told}");
    let warning = "warning: train would refuse this: device cuda:77 is not here: use --devices cpu";
    assert!(said.contains(warning), "{said}");
    let events = objects(&small(
        folder.path(),
        "plan",
        &[&devices[..], &["--json"]].concat(),
    ));
    assert_eq!(events[0]["step_seconds"], Value::Null);
    assert_eq!(events[0].get("basis"), None);
}
