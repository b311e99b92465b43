//! Saving and going on, with the real binary: the same bits from every step, under any pipeline.

mod changed;
mod frozen;
mod kept;
mod lora;
#[cfg(target_os = "linux")]
mod lost_output;
mod moved;
mod not_finite;
#[cfg(unix)]
mod signals;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use super::{assert_keys, gpipe, objects, parse};

/// A model whose steps take a millisecond.
const TINY: &[&str] = &[
    "train",
    "--set",
    "model.width=16",
    "--set",
    "model.blocks=1",
    "--set",
    "model.heads=2",
    "--seq-len",
    "8",
    "--batch-size",
    "4",
    "--micro-batches",
    "4",
    "--dropout",
    "0.1",
    "--stages",
    "2",
    "--threads",
    "1",
    "--json",
    "-q",
];

fn train(folder: &Path, arguments: &[&str]) -> Output {
    gpipe(folder, &[TINY, arguments].concat())
}

fn resume(folder: &Path, arguments: &[&str]) -> Output {
    gpipe(
        folder,
        &[&["train", "--json", "-q", "--resume"], arguments].concat(),
    )
}

fn checkpoint(folder: &Path, run: &str, step: u64) -> PathBuf {
    folder.join(format!("{run}/checkpoints/step-{step:08}"))
}

/// Parameters and optimizer state after a step, bit for bit.
fn bits(folder: &Path, run: &str, step: u64) -> [Vec<u8>; 2] {
    ["model/model.safetensors", "optimizer.safetensors"]
        .map(|name| fs::read(checkpoint(folder, run, step).join(name)).expect("a checkpoint"))
}

fn of_kind(objects: &[Value], kind: &str) -> Vec<Value> {
    let objects = objects.iter().filter(|object| object["kind"] == kind);
    objects.cloned().collect()
}

/// What does not depend on the clock.
fn results(objects: &[Value]) -> Vec<(Value, Value, Value, Value)> {
    of_kind(objects, "step")
        .iter()
        .map(|step| {
            let of = |key: &str| step[key].clone();
            (of("step"), of("loss"), of("grad_norm"), of("lr"))
        })
        .collect()
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("it ended by itself")
}

#[test]
fn every_optimizer_goes_on_with_its_state() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let momentum = ["--set", "optimizer.momentum=0.9", "--set"];
    for (name, key, states) in [
        ("sgd", "optimizer.nesterov=true", &["momentum_buffer"][..]),
        (
            "rmsprop",
            "optimizer.alpha=0.9",
            &["momentum_buffer", "square_avg"],
        ),
    ] {
        let optimizer = [&["--optimizer", name], &momentum[..], &[key]].concat();
        let run = ["--steps", "6", "--save-every", "3", "--out", name];
        let output = train(folder, &[&optimizer[..], &run].concat());
        assert_eq!(code(&output), 0, "{output:?}");
        let wanted = bits(folder, name, 6);
        let header = String::from_utf8_lossy(&wanted[1]);
        for state in states {
            assert!(header.contains(state), "{state}");
        }
        let from = format!("{name}/checkpoints/step-00000003");
        let output = resume(folder, &[&from, "--stages", "1", "--out", "on"]);
        assert_eq!(code(&output), 0, "{output:?}");
        assert!(bits(folder, "on", 6) == wanted, "{name}");
        fs::remove_dir_all(folder.join("on")).unwrap();
        // Without its velocity it cannot go on with that state.
        let still = ["--set", "optimizer.momentum=0", "--set"];
        let still = [&still[..], &["optimizer.nesterov=false", "--out", "other"]].concat();
        let output = resume(folder, &[&[from.as_str()], &still[..]].concat());
        assert_eq!(code(&output), 2);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(
            message.contains("leave `optimizer.momentum` out"),
            "{message}"
        );
    }
}

#[test]
fn every_step_can_be_gone_on_from_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    const STEPS: u64 = 20;
    let whole = [
        "--steps",
        "20",
        "--save-every",
        "1",
        "--keep",
        "20",
        "--out",
        "whole",
    ];
    let whole = objects(&train(folder, &whole));
    let saves = of_kind(&whole, "save");
    assert_eq!(saves.len() as u64, STEPS);
    assert_keys(&saves[0], &["kind", "step", "path", "bytes", "seconds"]);
    let pipelines: [&[&str]; 5] = [
        &["--stages", "1", "--remat", "keep"],
        &["--stages", "4", "--schedule", "1f1b", "--threads", "3"],
        &["--stages", "4", "--schedule", "zb-v", "--remat", "every:2"],
        &[
            "--stages",
            "3",
            "--partition",
            "histogram",
            "--remat",
            "except-last",
        ],
        &[
            "--stages",
            "4",
            "--schedule",
            "interleaved:2",
            "--threads",
            "2",
        ],
    ];
    for step in 1..STEPS {
        let from = format!("whole/checkpoints/step-{step:08}");
        let out = format!("from-{step}");
        let pipeline = pipelines[step as usize % pipelines.len()];
        let arguments = [&[from.as_str(), "--out", out.as_str()], pipeline].concat();
        let went_on = objects(&resume(folder, &arguments));
        let resumed = &of_kind(&went_on, "resume")[0];
        assert_keys(resumed, &["kind", "step", "path", "warnings"]);
        assert_eq!(
            (&resumed["step"], &resumed["warnings"]),
            (&step.into(), &Value::Array(vec![]))
        );
        assert_eq!(
            results(&went_on),
            results(&whole)[step as usize..],
            "{pipeline:?}"
        );
        assert_eq!(
            bits(folder, &out, STEPS),
            bits(folder, "whole", STEPS),
            "{pipeline:?}"
        );
    }
    println!("exam C2 {0}/{0}", STEPS - 1);
}

#[test]
fn a_run_goes_on_in_its_own_folder() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let long = ["--steps", "9", "--lr-schedule", "constant", "--out", "long"];
    let long = objects(&train(folder, &long));
    let short = [
        "--steps",
        "5",
        "--lr-schedule",
        "constant",
        "--save-every",
        "2",
    ];
    let short = objects(&train(folder, &short));
    assert_eq!(of_kind(&short, "save").len(), 3);
    // Without a folder: the run in runs/.
    let done = resume(folder, &["--steps", "5"]);
    assert_eq!((code(&done), done.stdout.is_empty()), (0, true));
    let went_on = objects(&resume(folder, &["--steps", "9"]));
    assert_eq!(results(&went_on), results(&long)[5..]);
    let run = fs::read_dir(folder.join("runs"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let name = format!("runs/{}", run.file_name().unwrap().to_string_lossy());
    assert_eq!(bits(folder, &name, 9), bits(folder, "long", 9));
    let events = parse(&fs::read_to_string(run.join("events.jsonl")).unwrap());
    assert_eq!(results(&events), results(&long));
    assert_eq!(of_kind(&events, "resume")[0]["step"], 5);
    let config = fs::read_to_string(run.join("config.toml")).unwrap();
    assert!(config.contains("steps = 9"), "{config}");
    assert_eq!(
        fs::read_to_string(run.join("checkpoints/latest")).unwrap(),
        "step-00000009\n"
    );
}
