//! A part of CUDA that is not there is one clear line, and nothing is left behind.

use crate::host::LIBRARIES;
use crate::{Place, TINY, assert_near};

#[test]
fn each_missing_part_is_named() {
    let Some(place) = Place::new() else { return };
    let [cuda, cublas, nvrtc, _] = LIBRARIES;
    let cases = [
        (vec![cublas, nvrtc], "", "no CUDA driver"),
        (vec![cuda, nvrtc], "", "no cuBLAS"),
        (vec![cuda, cublas], "", "no NVRTC"),
        (LIBRARIES.to_vec(), "devices=0", "no CUDA device"),
        (LIBRARIES.to_vec(), "driver=12040", "CUDA 12.4 only"),
        (
            LIBRARIES.to_vec(),
            "driver=12080 blas=120800",
            "NVRTC 13.0 is of a newer CUDA",
        ),
        (LIBRARIES.to_vec(), "driver=12080", "or cuBLAS 12 in its"),
        (LIBRARIES.to_vec(), "blas=110600", "cuBLAS 11.6 is older"),
        (
            LIBRARIES.to_vec(),
            "capability=75",
            "compute capability 7.5",
        ),
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
fn a_host_without_cublaslt_says_so_and_trains_alike_to_rounding() {
    let Some(place) = Place::new() else { return };
    let libraries = &LIBRARIES[..3];
    let mut devices = place.command(&["devices"]);
    let listed = place.host.run_with(libraries, &mut devices, "");
    assert!(listed.stdout.contains("without libcublasLt"), "{listed:?}");
    let listed = place.run(&["devices"], "");
    assert!(!listed.stdout.contains("cublasLt"), "{listed:?}");

    let four = ["--devices", "cuda:0,cuda:1,cuda:2,cuda:3"];
    let with = place.trained("with", &four, "seed=1");
    let common = ["train", "--json", "-q", "--out", "without"];
    let mut command = place.command(&[&common, TINY, &four[..]].concat());
    let outcome = place.host.run_with(libraries, &mut command, "seed=2");
    let without = place.result("without", &outcome);
    assert_near("without cuBLASLt", &without, &with);
    // Nor does a library without algorithms change a bit of that.
    assert!(place.trained("none", &four, "seed=3 lt=0") == without);
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
