//! What a run asks of the devices: handles, precision, and when they say that they worked.

use std::fs;

use serde_json::Value;

use crate::{Place, assert_near};

const FOUR: [&str; 2] = ["--devices", "cuda:0,cuda:1,cuda:2,cuda:3"];

#[test]
fn a_stage_has_one_cublas_handle_and_nobody_else_has_one() {
    let Some(place) = Place::new() else { return };
    let calls = place.path("calls");
    let settings = format!("seed=1 calls={}", calls.display());
    place.trained("run", &FOUR, &settings);
    let calls = fs::read_to_string(calls).expect("the calls");
    for name in [
        "cublasCreate_v2",
        "cublasSetWorkspace_v2",
        "cublasDestroy_v2",
        "cublasLtCreate",
        "cublasLtDestroy",
    ] {
        assert!(
            calls.lines().any(|line| line == format!("{name} 4")),
            "{calls}"
        );
    }
}

#[test]
fn no_run_reads_what_nobody_wrote() {
    let Some(place) = Place::with_watched_reads() else {
        return;
    };
    let graphs = "--devices cuda:0*2 --stages 2 --dtype bf16 --steps 6 --overwrite";
    for way in ["--devices cuda:0,cuda:1,cuda:2,cuda:3", graphs] {
        let way: Vec<&str> = way.split_whitespace().collect();
        place.trained("run", &way, "seed=1");
    }
    // More than the first room of the caches of keys and values.
    let sample = "sample run --devices cuda:0 --prompt pipes --tokens 70 --beams 3";
    let sample: Vec<&str> = sample.split_whitespace().collect();
    let outcome = place.run(&sample, "seed=1");
    assert!(outcome.is_right(), "{outcome:?}");
}

#[test]
fn products_round_to_tf32_only_where_that_is_asked_for() {
    let Some(place) = Place::new() else { return };
    let exact = place.trained("exact", &FOUR, "seed=1");
    let rounded = place.trained("rounded", &[&FOUR[..], &["--tf32"]].concat(), "seed=1");
    assert_ne!(rounded.losses, exact.losses);
    for (rounded, exact) in rounded.losses.iter().zip(&exact.losses) {
        assert!(
            (rounded - exact).abs() < 1e-2 * exact,
            "{rounded} is not {exact}"
        );
    }
    let other = place.trained("other", &[&FOUR[..], &["--tf32"]].concat(), "seed=2");
    assert!(other == rounded);
    assert_near(
        "without",
        &place.trained("cpu", &["--devices", "cpu"], ""),
        &exact,
    );
}

/// Nanoseconds of each action of the step that was kept.
fn spans(place: &Place, run: &str) -> Vec<u64> {
    let bytes = fs::read(place.path(run).join("timeline.json")).expect("a timeline");
    let timeline: Value = serde_json::from_slice(&bytes).expect("JSON");
    let spans = timeline["measured"][0]["spans"].as_array();
    let numbers = spans
        .into_iter()
        .flatten()
        .flat_map(|spans| spans.as_array());
    let lasted = numbers.flat_map(|numbers| numbers.iter().skip(2).step_by(3));
    lasted.filter_map(Value::as_u64).collect()
}

/// The emulated devices have a clock of their own, which goes the same way in runs of the same order.
#[test]
fn spans_are_what_the_devices_say_not_when_they_were_asked() {
    let Some(place) = Place::new() else { return };
    let run = |name: &str, order: &str| {
        let arguments = ["--devices", "cuda:0", "--stages", "1"];
        place.trained(name, &arguments, &format!("order={order}"));
        spans(&place, name)
    };
    let [first, second] = ["first", "second"].map(|name| run(name, "lazy"));
    // Four micro-batches, forward and back.
    assert_eq!(first.len(), 8, "{first:?}");
    for (first, second) in first.iter().zip(&second) {
        assert!(
            *first > 0 && first.abs_diff(*second) <= 10,
            "{first} is not {second} ns"
        );
    }
    // Four devices, one of which also works for the turn, and whose stages compute again.
    place.trained("four", &FOUR, "seed=3");
    assert!(spans(&place, "four").iter().all(|&lasted| lasted > 0));
}
