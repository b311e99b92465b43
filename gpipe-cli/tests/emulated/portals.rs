//! Tensors that pass whole stages go straight from one emulated device to another.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::{Place, Result, assert_near};

/// A U-Net whose skips go from stage 0 to 4 and from 1 to 3.
const UNET: [&str; 13] = [
    "--model",
    "unet:1,2",
    "--data",
    "synthetic",
    "--image-size",
    "64",
    "--batch-size",
    "4",
    "--micro-batches",
    "2",
    "--stages",
    "5",
    "--json",
];

const FIVE: [&str; 2] = ["--devices", "cuda:0,cuda:1,cuda:2,cuda:3,cuda:4"];

fn trained(place: &Place, run: &str, arguments: &[&str], settings: &str) -> Result {
    let common = ["train", "-q", "--overwrite", "--out", run];
    let settings = format!("{settings} devices=5");
    let outcome = place.run(&[&common, &UNET[..], arguments].concat(), &settings);
    place.result(run, &outcome)
}

/// Bytes between each two devices, in both directions, over all steps.
fn copied(place: &Place, steps: &str) -> BTreeMap<[usize; 2], u64> {
    let path = place.path(&format!("copies-{steps}"));
    let settings = format!("seed=1 copies={}", path.display());
    let arguments = [FIVE, ["--steps", steps]].concat();
    trained(place, "run", &arguments, &settings);
    let mut bytes = BTreeMap::new();
    for line in fs::read_to_string(path).expect("the copies").lines() {
        let numbers: Vec<u64> = line
            .split(' ')
            .map(|word| word.parse().expect("a number"))
            .collect();
        let mut ends = [numbers[0] as usize, numbers[1] as usize];
        ends.sort_unstable();
        *bytes.entry(ends).or_default() += numbers[2];
    }
    bytes
}

#[test]
fn a_skip_is_copied_from_its_giver_to_its_taker_alone() {
    let Some(place) = Place::new() else { return };
    let plan = place.run(&[&["plan"], &UNET[..], &FIVE].concat(), "devices=5");
    let plan: Value = serde_json::from_str(&plan.stdout).expect("a plan");
    // Devices are tried by a copy when they are opened, so a step is what a further one adds.
    let [one, two] = ["1", "2"].map(|steps| copied(&place, steps));
    let step = |ends: &[usize; 2]| two[ends] - one.get(ends).copied().unwrap_or(0);
    let portals = plan["portals"].as_array().expect("portals");
    for portal in portals {
        let end = |key: &str| portal[key].as_u64().expect("a stage") as usize;
        assert_eq!(
            step(&[end("from"), end("to")]),
            portal["step_bytes"],
            "{portal}"
        );
    }
    // Nothing else goes past a stage.
    let far = two
        .keys()
        .filter(|[from, to]| from + 1 < *to && step(&[*from, *to]) > 0);
    assert_eq!(far.collect::<Vec<_>>(), [&[0, 4], &[1, 3]]);
    assert_eq!(portals.len(), 2);
}

#[test]
fn a_unet_over_devices_has_the_bits_of_one_device() {
    let Some(place) = Place::new() else { return };
    let steps = ["--steps", "1"];
    let one = trained(
        &place,
        "one",
        &[&["--devices", "cuda:0*5"], &steps[..]].concat(),
        "seed=1",
    );
    let processor = trained(
        &place,
        "cpu",
        &[&["--devices", "cpu*5"], &steps[..]].concat(),
        "",
    );
    assert_near("processor", &one, &processor);
    for (more, settings) in [
        (&["--schedule", "gpipe"][..], "peers=1 seed=2"),
        (&["--schedule", "1f1b", "--remat", "keep"], "peers=0 seed=3"),
        (
            &["--schedule", "zb-h1", "--remat", "stage"],
            "peers=1 order=starved seed=4",
        ),
    ] {
        let got = trained(&place, "way", &[&FIVE, &steps[..], more].concat(), settings);
        assert!(got == one, "{more:?} {settings}");
    }
}
