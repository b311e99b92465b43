//! Frozen parameters: predicted and counted bytes, saved, gone on from, and kept.

use std::fs;

use super::{bits, checkpoint, resume, train};
use crate::{gpipe, parse, stderr};

const FREEZE: [&str; 2] = ["--freeze", r"wte|^transformer\.h\.0\.attn"];

#[test]
fn frozen_parameters_stay_and_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let steps = ["--steps", "4", "--save-every", "2"];
    let whole = train(here, &[&steps[..], &FREEZE, &["--out", "whole"]].concat());
    let all = train(here, &[&steps[..], &["--out", "all"]].concat());
    for output in [&whole, &all] {
        assert!(output.status.success(), "{}", stderr(output));
    }
    let [frozen, trained] = ["whole", "all"].map(|run| {
        let events = fs::read_to_string(here.join(run).join("events.jsonl")).unwrap();
        parse(&events).pop().unwrap()
    });
    // The bytes are the predicted ones, and fewer.
    assert_eq!(frozen["peak_bytes"], frozen["predicted_peak_bytes"]);
    let first = |object: &serde_json::Value| object["peak_bytes"][0].as_u64().unwrap();
    assert!(first(&frozen) < first(&trained), "{frozen}");
    // What is frozen has no optimizer state, and the values of the beginning.
    let [weights, state] = bits(here, "whole", 2);
    let [later, _] = bits(here, "whole", 4);
    assert_ne!(weights, later);
    let has = |bytes: &[u8], name: &str| {
        bytes
            .windows(name.len())
            .any(|window| window == name.as_bytes())
    };
    for (name, trains) in [
        ("transformer.wte.weight", false),
        ("transformer.h.0.attn.c_attn.weight", false),
        ("transformer.h.0.mlp.c_fc.weight", true),
    ] {
        assert!(has(&weights, name), "{name}");
        assert_eq!(has(&state, name), trains, "{name}");
    }
    // From the middle on, in one stage more.
    fs::remove_dir_all(checkpoint(here, "whole", 4)).unwrap();
    let resumed = resume(here, &["whole", "--stages", "3"]);
    assert!(resumed.status.success(), "{}", stderr(&resumed));
    assert_eq!(bits(here, "whole", 4)[0], later);
    let changed = resume(here, &["whole", "--steps", "6", "--freeze", "wpe"]);
    assert_eq!(changed.status.code(), Some(2));
    assert!(
        stderr(&changed).contains("--freeze is \"wpe\""),
        "{}",
        stderr(&changed)
    );
}

#[test]
fn a_plan_says_which_layers_have_no_backward_pass() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |more: &[&str]| {
        let output = gpipe(folder.path(), &[&["plan", "--stages", "3"], more].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let prefix = ["--freeze", r"wte|wpe|^transformer\.h\.[01]\."];
    let line = "\nfrozen  no backward pass through the first 5 layers; forward only: 1 stage\n";
    let text = plan(&[&prefix[..], &["--partition", "5,3,3"]].concat());
    assert!(text.contains(line), "{text}");
    let [frozen, other, all] = [&prefix[..], &FREEZE, &[]].map(|freeze| {
        let json = plan(&[freeze, &["--json"]].concat());
        parse(&json).pop().unwrap()
    });
    assert_eq!(frozen["forward_only_layers"], 5);
    // The embedding of positions trains.
    assert_eq!(other["forward_only_layers"], serde_json::Value::Null);
    let largest = |plan: &serde_json::Value| plan["optimum"].as_u64().unwrap();
    assert!(largest(&frozen) < largest(&other) && largest(&other) == largest(&all));
}

#[test]
fn frozen_first_layers_are_verified_under_every_kind_of_schedule() {
    let folder = tempfile::tempdir().unwrap();
    for schedule in [
        "1f1b",
        "zb-h1",
        "zb-h2",
        "zb-v",
        "interleaved:2",
        "zero-bubble",
    ] {
        let common = [
            "verify",
            "--freeze",
            r"wte|wpe|^transformer\.h\.[01]\.",
            "--dropout",
            "0.1",
        ];
        let small = [
            "--set",
            "model.width=16",
            "--seq-len",
            "8",
            "--batch-size",
            "4",
            "--steps",
            "2",
        ];
        let way = [
            "--stages",
            "4",
            "--micro-batches",
            "4",
            "--schedule",
            schedule,
        ];
        let output = gpipe(folder.path(), &[&common[..], &small, &way].concat());
        assert!(output.status.success(), "{schedule}: {}", stderr(&output));
    }
}
