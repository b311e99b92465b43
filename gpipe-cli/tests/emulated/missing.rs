//! A part of CUDA that is not there is one clear line, and nothing is left behind.

use crate::Place;
use crate::host::LIBRARIES;

#[test]
fn each_missing_part_is_named() {
    let Some(place) = Place::new() else { return };
    let [cuda, cublas, nvrtc] = LIBRARIES;
    let cases = [
        (vec![cublas, nvrtc], "", "no CUDA driver"),
        (vec![cuda, nvrtc], "", "no cuBLAS"),
        (vec![cuda, cublas], "", "no NVRTC"),
        (LIBRARIES.to_vec(), "devices=0", "no CUDA device"),
        (LIBRARIES.to_vec(), "driver=12040", "CUDA 12.4 only"),
        (LIBRARIES.to_vec(), "devices=3", "cuda:0 to cuda:2"),
    ];
    for (libraries, settings, words) in cases {
        let arguments = [
            "train",
            "--devices",
            "cuda:0,cuda:1,cuda:2,cuda:3",
            "--out",
            "run",
        ];
        let mut command = place.command(&arguments);
        let outcome = place.host.run_with(&libraries, &mut command, settings);
        assert_eq!(outcome.code, Some(2), "{words}: {outcome:?}");
        assert!(outcome.stderr.contains(words), "{words}: {outcome:?}");
        assert_eq!(outcome.stderr.trim_end().lines().count(), 1, "{outcome:?}");
        assert!(!place.path("run").exists());
        let devices = place.command(&["devices"]);
        let listed = place.host.run_with(&libraries, &mut { devices }, settings);
        assert_eq!(listed.code, Some(0), "{listed:?}");
    }
}

#[test]
fn devices_are_listed() {
    let Some(place) = Place::new() else { return };
    let outcome = place.run(&["devices"], "devices=4");
    assert!(outcome.is_right(), "{outcome:?}");
    for words in ["cuda:0", "cuda:3", "Emulated GPU 3", "1.0 GiB"] {
        assert!(outcome.stdout.contains(words), "{words}: {outcome:?}");
    }
}
