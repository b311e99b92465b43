//! Frozen parameters: predicted and counted bytes, saved, gone on from, and kept.

use std::fs;

use super::{bits, checkpoint, resume, train};
use crate::{parse, stderr};

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
        stderr(&changed).contains("optimizer.freeze"),
        "{}",
        stderr(&changed)
    );
}
