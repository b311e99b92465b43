//! `gpipe verify`: the same bits as one stage.

use gpipe_tensor::Precision;

use super::{assert_keys, gpipe, objects, small, stderr, stdout};

#[test]
fn a_pipeline_has_the_bits_of_one_stage() {
    let folder = tempfile::tempdir().unwrap();
    let configurations: [&[&str]; 4] = [
        &["--stages", "2", "--remat", "stage"],
        &[
            "--stages",
            "4",
            "--schedule",
            "1f1b",
            "--remat",
            "every:2",
            "--dropout",
            "0.2",
        ],
        &[
            "--stages",
            "3",
            "--micro-batches",
            "3",
            "--remat",
            "except-last",
            "--threads",
            "3",
        ],
        &[
            "--stages",
            "8",
            "--schedule",
            "1f1b",
            "--remat",
            "keep",
            "--set",
            "model.tied=false",
            "--no-shuffle",
        ],
    ];
    for arguments in configurations {
        let verified = objects(&small(
            folder.path(),
            "verify",
            &[arguments, &["--json"]].concat(),
        ));
        let [object] = &verified[..] else {
            panic!("one object")
        };
        assert_keys(
            object,
            &["kind", "equal", "steps", "parameters", "difference"],
        );
        assert_eq!(object["kind"], "verify");
        assert_eq!(object["equal"], true, "{arguments:?}: {object}");
        assert_eq!(object["steps"], 3);
        assert!(object["difference"].is_null());
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn every_schedule_has_the_bits_of_one_stage() {
    let folder = tempfile::tempdir().unwrap();
    for schedule in [
        "gpipe",
        "1f1b",
        "interleaved:2",
        "looped-bfs:2",
        "zb-h1",
        "zb-h2",
        "zb-v",
        "v-half",
        "v-min",
        "dualpipe-v",
        "zero-bubble",
        "zero-bubble:2",
    ] {
        let arguments = ["--schedule", schedule, "--stages", "4", "-q"];
        let output = small(folder.path(), "verify", &arguments);
        assert!(output.status.success(), "{schedule}: {}", stdout(&output));
        assert!(stdout(&output).starts_with("equal: losses and gradient norms of 3 steps, and "));
    }
}

#[test]
fn people_read_a_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let output = small(
        folder.path(),
        "verify",
        &["--stages", "2", "--steps", "1", "-q"],
    );
    assert!(
        stdout(&output).starts_with("equal: losses and gradient norms of 1 step, and "),
        "{}",
        stdout(&output)
    );
    assert!(output.stderr.is_empty());
}

#[test]
fn bf16_has_its_own_bits_which_no_pipeline_changes() {
    let folder = tempfile::tempdir().unwrap();
    // 256 rows a product: those of a small model are too few for vectors of bf16.
    let model = ["--set", "model.width=32", "--set", "model.blocks=3"];
    let batch = ["--seq-len", "16", "--batch-size", "64"];
    let run = |command: &str, arguments: &[&str]| {
        let own = ["--micro-batches", "4", "--threads", "2", "-q"];
        let all = [&[command][..], &model, &batch, &own, arguments].concat();
        gpipe(folder.path(), &all)
    };
    let output = run("verify", &["--stages", "3", "--dtype", "bf16"]);
    if !Precision::Bf16.is_available() {
        assert_eq!(output.status.code(), Some(2));
        let mend = "bf16: this processor has no fast unit for it (AMX on Linux, or AMD's AVX512-BF16): use f32";
        assert!(stderr(&output).contains(mend), "{}", stderr(&output));
        return;
    }
    assert!(stdout(&output).starts_with("equal: losses and gradient norms of 3 steps, and "));
    let loss = |dtype: &str| {
        let out = folder.path().join(dtype);
        let arguments = [
            "--dtype",
            dtype,
            "--steps",
            "1",
            "--json",
            "--out",
            out.to_str().unwrap(),
        ];
        let steps = objects(&run("train", &arguments));
        let step = steps.into_iter().find(|object| object["kind"] == "step");
        step.unwrap()["loss"].as_f64().unwrap()
    };
    let (single, bf16) = (loss("f32"), loss("bf16"));
    assert!(
        single != bf16 && (single - bf16).abs() < 0.01 * single,
        "{single} {bf16}"
    );
}
