//! AMX and AVX-512 switched off by a key or by a variable.

use std::process::Output;

use assert_cmd::Command;

use super::{SMALL, gpipe, objects, stderr, stdout};

const VARIABLE: &str = "GPIPE_INSTRUCTION_SET";

fn with_variable(folder: &std::path::Path, value: &str, arguments: &[&str]) -> Output {
    let mut command = Command::cargo_bin("gpipe").expect("the binary was built");
    command.current_dir(folder).env(VARIABLE, value);
    command.args(arguments).output().expect("the binary runs")
}

/// The losses of two steps of a model whose products are large enough for AMX.
fn losses(output: &Output) -> Vec<f64> {
    let steps = objects(output).into_iter();
    let steps = steps.filter(|event| event["kind"] == "step");
    steps.map(|step| step["loss"].as_f64().unwrap()).collect()
}

#[test]
fn a_variable_stands_below_settings_and_files_keep_what_is_not_the_default() {
    let folder = tempfile::tempdir().unwrap();
    let keys = |value: &str, more: &[&str]| {
        let output = with_variable(folder.path(), value, &[&["plan", "-v"], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output).contains("instruction_set = \"avx512\"")
    };
    assert!(keys("avx512", &[]));
    assert!(!keys("avx512", &["--set", "run.instruction_set=best"]));
    assert!(!keys("", &[]) && !keys("best", &[]));
    let refused = with_variable(folder.path(), "mmx", &["plan"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("GPIPE_INSTRUCTION_SET=mmx: unknown instruction set `mmx`"),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn below_the_best_level_a_run_is_the_same_for_any_cut_and_goes_on_alike() {
    let folder = tempfile::tempdir().unwrap();
    for level in ["avx512", "avx2"] {
        let key = format!("run.instruction_set={level}");
        let train = |out: &str, more: &[&str]| {
            let own = ["--steps", "2", "--json", "--out", out, "--set", &key];
            gpipe(folder.path(), &[&["train"], SMALL, &own, more].concat())
        };
        let (name, other) = (format!("{level}-one"), format!("{level}-four"));
        let one = losses(&train(&name, &["--stages", "1"]));
        let four = losses(&train(&other, &["--stages", "4", "--schedule", "1f1b"]));
        assert_eq!(one.len(), 2);
        assert_eq!(one, four);
        // The key is in the checkpoint, so a resumed run needs no flag and has no warning.
        let on = gpipe(
            folder.path(),
            &["train", "--resume", &name, "--steps", "3", "--json"],
        );
        let resumed = objects(&on).into_iter().find(|e| e["kind"] == "resume");
        let warnings = resumed.expect("an event")["warnings"].to_string();
        assert!(!warnings.contains("the processor has"), "{warnings}");
    }
}
