//! The objects of every `--json` and of `events.jsonl`: kinds, keys and types.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::shape::Shape;
use super::{gpipe, parse, stdout, tiny};

/// As [`OF_A_DEVICE`], of an MPI library.
const OF_MPI: &[(&str, &str)] = &[
    ("launcher", "text"),
    ("library", "text"),
    ("rule", "text"),
    ("dialect", "text"),
    ("version", "text"),
    ("reason", "text"),
];

/// What machines do not agree on: a device has these, or `null`.
const OF_A_DEVICE: &[(&str, &str)] = &[
    ("name", "text"),
    ("cores", "integer"),
    ("threads", "integer"),
    ("vectors", "text"),
    ("memory_bytes", "integer"),
    ("free_bytes", "integer"),
    ("capability", "text"),
    ("peers", "text"),
    ("libraries", "text"),
    ("reason", "text"),
];

/// What `predict` prints of a class and of a mask.
fn predictions(folder: &Path) -> Vec<(&'static str, String)> {
    let shades = image::GrayImage::from_fn(32, 32, |x, y| image::Luma([(x * y) as u8]));
    for part in ["classes/a", "classes/b", "images", "masks"] {
        fs::create_dir_all(folder.join("pictures").join(part)).unwrap();
        for i in 0..2 {
            let name = format!("pictures/{part}/{i}.png");
            shades.save(folder.join(name)).unwrap();
        }
    }
    let predicted = |model: &str, data: &str, flags: &str| {
        let given = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            stdout(&gpipe(folder, &words))
        };
        given(&format!(
            "train --model {model} --data {data} --image-size 64 --batch-size 1 --micro-batches 1 --steps 1 --threads 1 \
             --out {model} --quiet"
        ));
        given(&format!(
            "predict {model} pictures/images/0.png --json {flags}"
        ))
    };
    vec![
        (
            "predict CLASSES",
            predicted("convnet:1", "pictures/classes", ""),
        ),
        (
            "predict MASKS",
            predicted("unet:1,2", "pictures", "--masks predicted"),
        ),
    ]
}

#[test]
fn every_object_has_its_keys_and_types() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/parity/model");
    let train = "--steps 2 --eval-every 1 --out run";
    let costs = "plan --costs 1,2,3 --json";
    let given = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        stdout(&gpipe(folder, &words))
    };
    let tiny = |command: &str, line: &str| {
        let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        stdout(&tiny(folder, command, &[&words[..], &["--json"]].concat()))
    };
    let mut printed = vec![
        ("train", tiny("train", train)),
        (
            "train --resume",
            given("train --resume run --steps 3 --lr 0.5 --json"),
        ),
        ("train --dry-run", tiny("train", "--dry-run")),
        ("plan", tiny("plan", "")),
        ("plan --profile", tiny("plan", "--profile")),
        ("plan --auto", tiny("plan", "--auto --workers 2*1T:1GiB")),
        (
            "plan --compare",
            tiny("plan", "--compare --workers 2*1T:1GiB"),
        ),
        ("plan --costs", given(&format!("{costs} --stages 2"))),
        // What more memory would bring.
        (
            "plan --auto",
            given("plan --auto --workers 2*1T:7900KiB --json"),
        ),
        (
            "plan --costs --auto",
            given(&format!("{costs} --auto --workers 2*1:1GiB")),
        ),
        (
            "plan --costs --compare",
            given(&format!("{costs} --compare")),
        ),
        ("verify", tiny("verify", "--steps 1")),
        ("devices", given("devices --json")),
        ("check", given("check run --json")),
        ("report", given("report run --json")),
        ("eval RUN", given("eval run --json")),
        (
            "eval FOLDER",
            given(&format!("eval {model} --json --threads 2")),
        ),
        ("sample", given("sample run --tokens 2 --json")),
    ];
    printed.extend(predictions(folder));
    let diverges = "--steps 3 --lr 1e30 --clip-norm 0 --warmup-steps 0 --json --out failed";
    let words: Vec<&str> = diverges.split(' ').collect();
    let failed = super::tiny(folder, "train", &words).stdout;
    printed.push(("train that fails", String::from_utf8(failed).unwrap()));
    let events = fs::read_to_string(folder.join("run/events.jsonl")).unwrap();
    printed.push(("events.jsonl", events));

    let mut text = String::new();
    let mut kinds: BTreeMap<String, Shape> = BTreeMap::new();
    for (command, lines) in &printed {
        let mut of_command = BTreeSet::new();
        for mut object in parse(lines) {
            let keys = object.as_object_mut().expect("an object");
            // In the file every object has a time too.
            if *command == "events.jsonl" {
                assert!(keys.remove("time").expect("a time").is_string());
            }
            let kind = keys["kind"].as_str().expect("a kind").to_owned();
            let shape = kinds.entry(kind.clone()).or_default();
            let of_machine = match kind.as_str() {
                "device" => OF_A_DEVICE,
                "mpi" => OF_MPI,
                _ => &[],
            };
            for (key, wanted) in of_machine {
                let mut found = Shape::default();
                found.add(&keys.remove(*key).expect("every one has the key"));
                let found = found.lines();
                let allowed = [format!("  : {wanted}\n"), "  : null\n".to_owned()];
                assert!(allowed.contains(&found), "{kind}.{key}{found}");
                shape.insert(key, &[wanted, "null"]);
            }
            // What the system may not say.
            for key in ["cpu_seconds", "peak_resident_bytes"] {
                if keys.contains_key(key) {
                    shape.insert(key, &["null"]);
                }
            }
            shape.add(&Value::Object(keys.clone()));
            of_command.insert(kind);
        }
        let of_command: Vec<String> = of_command.into_iter().collect();
        writeln!(text, "{command}: {}", of_command.join(" ")).unwrap();
    }
    for (kind, shape) in kinds {
        write!(text, "\n{kind}\n{}", shape.lines()).unwrap();
    }
    insta::assert_snapshot!(text);
}
