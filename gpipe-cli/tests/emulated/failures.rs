//! What goes wrong on a device ends the run with one clear error: no panic, no hang, nothing touched
//! that is not there, and checkpoints stay whole.

use std::fs;

use crate::host::Outcome;
use crate::{Place, moments};

const DEVICES: [&str; 2] = ["--devices", "cuda:0,cuda:1,cuda:2,cuda:3"];

/// Fails unless the run ended by itself with an error that says what it is about. (What was on its way
/// then may find its memory gone: nobody will look at it.)
pub(crate) fn assert_clear(what: &str, outcome: &Outcome) {
    let Outcome { code, stderr, .. } = outcome;
    assert!(matches!(code, Some(1 | 2)), "{what}: {outcome:?}");
    assert!(!stderr.contains("panicked"), "{what}: {outcome:?}");
    assert!(stderr.contains("error"), "{what}: {outcome:?}");
}

#[test]
fn every_call_may_fail() {
    let Some(place) = Place::new() else { return };
    let mut failed = 0;
    let mut names = 0;
    for (peers, which) in [
        ("peers=1", "cu"),
        ("peers=1", "nvrtc"),
        ("peers=0", "cuMemcpy"),
    ] {
        let wanted = place.trained("run", &DEVICES, peers);
        for (name, count) in place.calls("run", &DEVICES, peers) {
            if !name.starts_with(which) {
                continue;
            }
            names += 1;
            let of_driver = which != "nvrtc" && !name.starts_with("cublas");
            let error = if of_driver { 999 } else { 6 };
            for moment in moments(names, count) {
                let _ = fs::remove_dir_all(place.path("cache"));
                let settings = format!("{peers} seed={moment} fail={name}:{moment}:{error}");
                let outcome = place.train("failing", &DEVICES, &settings);
                let what = format!("{settings} of {count}");
                if outcome.code == Some(0) {
                    // Giving back, or a question that has another answer.
                    assert!(place.result("failing", &outcome) == wanted, "{what}");
                } else {
                    assert_clear(&what, &outcome);
                }
                failed += 1;
            }
        }
    }
    println!("{failed} failures of {names} calls");
    println!("exam G2 {failed}/{failed}");
}

#[test]
fn what_a_device_does_may_fail() {
    let Some(place) = Place::new() else { return };
    for (moment, error) in [(1, 700), (100, 214), (333, 719), (700, 700)] {
        let settings = format!("seed={moment} break={moment}:{error}");
        let outcome = place.train("failing", &DEVICES, &settings);
        assert_clear(&settings, &outcome);
    }
}

#[test]
fn memory_that_runs_out_is_named_and_checkpoints_stay_whole() {
    let Some(place) = Place::new() else { return };
    let arguments = [&DEVICES[..], &["--save-every", "1"]].concat();
    // Not even what products need besides their operands finds room.
    let none = place.train("run", &arguments, &format!("memory={}", 16 << 20));
    assert_clear("no memory", &none);
    assert!(none.stderr.contains("out of memory"), "{none:?}");
    assert!(none.stderr.contains("stage"), "{none:?}");

    // In the middle of the last step every allocation fails.
    // With graphs the step would be made once more without.
    let single = [&arguments[..], &["--no-cuda-graphs"]].concat();
    let count = place.calls("run", &single, "")["cuMemAllocFromPoolAsync"];
    let moments = count * 5 / 6..count * 5 / 6 + 16;
    let failures = moments.map(|moment| format!(" fail=cuMemAllocFromPoolAsync:{moment}:2"));
    let outcome = place.train("run", &single, &failures.collect::<String>());
    assert_clear("memory runs out", &outcome);
    for words in [
        "step 3",
        "stage",
        "micro-batch",
        "out of memory",
        "rematerialization",
    ] {
        assert!(outcome.stderr.contains(words), "{words}: {outcome:?}");
    }
    let resume = ["train", "--resume", "run", "-q", "--devices", "cpu"];
    let gone_on = place.run(&resume, "");
    assert!(gone_on.is_right(), "{gone_on:?}");
    assert!(place.path("run/checkpoints/step-00000003").is_dir());
}
