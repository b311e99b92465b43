//! Checkpoints go from one kind of device to the other and back.

use std::path::PathBuf;

use crate::{Place, Result, parameters};

fn resume(place: &Place, steps: &str, devices: &str) -> Vec<f32> {
    let arguments = [
        "train",
        "--resume",
        "run",
        "--json",
        "-q",
        "--steps",
        steps,
        "--devices",
        devices,
    ];
    let outcome = place.run(&arguments, "seed=3");
    assert!(outcome.is_right(), "{devices}: {outcome:?}");
    parameters(&place.path("run"))
}

#[test]
fn a_run_goes_on_across_devices() {
    let Some(place) = Place::new() else { return };
    let constant = ["--lr-schedule", "constant", "--steps", "6"];
    let cpu = [&["--devices", "cpu"][..], &constant].concat();
    let Result {
        parameters: wanted, ..
    } = place.trained("whole", &cpu, "");
    let begun = [&["--devices", "cpu"][..], &constant[..2], &["--steps", "2"]].concat();
    place.trained("run", &begun, "");
    resume(&place, "4", "cuda:0,cuda:1,cuda:2,cuda:3");
    let got = resume(&place, "6", "cpu");
    let apart = got
        .iter()
        .zip(&wanted)
        .filter(|(a, b)| (*a - *b).abs() > 1e-3);
    let apart = apart.count();
    assert_eq!(got.len(), wanted.len());
    assert!(
        apart * 50 <= wanted.len(),
        "{apart} of {} differ",
        wanted.len()
    );
    let folders = ["00000002", "00000004", "00000006"];
    let folders = folders.map(|step| place.path("run/checkpoints").join(format!("step-{step}")));
    assert!(folders.iter().all(|folder: &PathBuf| folder.is_dir()));
}

#[test]
fn what_cuda_wrote_the_processor_evaluates() {
    let Some(place) = Place::new() else { return };
    place.trained("run", &["--devices", "cuda:0*4"], "");
    let loss = |devices: &str| place.evaluated(&["--devices", devices]);
    let (cpu, cuda) = (loss("cpu"), loss("cuda:0,cuda:1,cuda:2,cuda:3"));
    assert!((cpu - cuda).abs() < 1e-4 * cpu, "{cpu} and {cuda}");
}
