//! Saving and going on, with the real binary: the same bits from every step, under any pipeline.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use super::{assert_keys, gpipe, objects, parse, stderr};

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

#[test]
fn the_newest_and_the_best_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // So fast that the held-out loss is best in between.
    let arguments = [
        "--steps",
        "12",
        "--save-every",
        "1",
        "--keep",
        "2",
        "--eval-every",
        "1",
        "--lr",
        "0.3",
        "--out",
        "run",
    ];
    let printed = objects(&train(folder, &arguments));
    let evaluations = of_kind(&printed, "eval");
    let best = evaluations
        .iter()
        .min_by(|a, b| {
            a["loss"]
                .as_f64()
                .unwrap()
                .total_cmp(&b["loss"].as_f64().unwrap())
        })
        .map(|eval| eval["step"].as_u64().unwrap())
        .unwrap();
    assert!(best < 11, "the best is to be an old one: {evaluations:?}");
    let mut names: Vec<_> = fs::read_dir(folder.join("run/checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let best = format!("step-{best:08}");
    assert_eq!(
        names,
        ["best", "latest", &best, "step-00000011", "step-00000012"]
    );
    assert_eq!(
        fs::read_to_string(folder.join("run/checkpoints/best")).unwrap(),
        format!("{best}\n")
    );

    let none = ["--steps", "2", "--keep", "0", "--out", "none"];
    assert!(of_kind(&objects(&train(folder, &none)), "save").is_empty());
    assert!(!folder.join("none/checkpoints").exists());
}

#[test]
fn damage_is_told_and_the_next_older_one_taken() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let whole = [
        "--steps",
        "6",
        "--save-every",
        "2",
        "--keep",
        "9",
        "--out",
        "run",
    ];
    let whole = objects(&train(folder, &whole));
    let last = bits(folder, "run", 6);
    let spoil = |step: u64, name: &str| {
        let path = checkpoint(folder, "run", step).join(name);
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
    };
    spoil(6, "optimizer.safetensors");
    // A save that was cut off, and a deletion.
    fs::create_dir_all(folder.join("run/checkpoints/.partial-step-00000006/model")).unwrap();
    fs::create_dir_all(folder.join("run/checkpoints/.discarded-step-00000001/model")).unwrap();

    let named = resume(folder, &["run/checkpoints/step-00000006"]);
    assert_eq!(code(&named), 2);
    assert!(stderr(&named).contains("optimizer.safetensors does not have its digest"));

    let went_on = resume(folder, &["run"]);
    let told = stderr(&went_on);
    assert!(
        told.contains("step-00000006 is not whole: optimizer.safetensors"),
        "{told}"
    );
    let went_on = objects(&went_on);
    assert_eq!(results(&went_on), results(&whole)[4..]);
    assert_eq!(bits(folder, "run", 6), last);
    let left: Vec<_> = fs::read_dir(folder.join("run/checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with("step-"))
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(
        left.contains(&"damaged-step-00000006".to_owned()),
        "{left:?}"
    );

    for step in [2, 4, 6] {
        spoil(step, "state.json");
    }
    let nothing = resume(folder, &["run"]);
    assert_eq!(code(&nothing), 2);
    let told = stderr(&nothing);
    assert!(
        told.contains("no checkpoint is whole") && told.contains("step-00000002"),
        "{told}"
    );
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn what_does_not_fit_is_refused_and_what_changes_bits_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    objects(&train(
        folder,
        &["--steps", "4", "--save-every", "2", "--out", "run"],
    ));
    for (arguments, words) in [
        (
            &["run", "--set", "model.width=32"][..],
            "model.width is 32, but 16 in the checkpoint",
        ),
        (
            &["run", "--steps", "3"],
            "the checkpoint is of step 4: use --steps 4 or more",
        ),
        (
            &["run", "--config", "run/config.toml"],
            "cannot be used with",
        ),
        (&["missing"], "--resume missing"),
        (&["run/checkpoints/step-00000002"], "step-00000004 is newer"),
        (
            &["run", "--out", "run", "--overwrite"],
            "is the run that goes on",
        ),
        (&[], "no run in runs/ has a checkpoint"),
    ] {
        let refused = resume(folder, arguments);
        let told = stderr(&refused);
        assert_eq!((code(&refused), told.lines().count()), (2, 1), "{told}");
        assert!(told.contains(words), "{told}");
    }
    let changed = [
        "run",
        "--steps",
        "6",
        "--micro-batches",
        "2",
        "--seed",
        "5",
        "--out",
        "changed",
    ];
    let output = resume(folder, &changed);
    let told = stderr(&output);
    for words in [
        "warning: pipeline.micro_batches is 2, but 4 in the checkpoint: from here on results are equal to",
        "warning: run.seed is 5, but 0 in the checkpoint",
    ] {
        assert!(told.contains(words), "{told}");
    }
    assert_eq!(results(&objects(&output)).len(), 2);
}

#[test]
fn data_that_changed_is_told_and_the_position_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("text"), "abcdefgh ".repeat(90)).unwrap();
    let arguments = ["--data", "text", "--steps", "2", "--out", "run"];
    objects(&train(folder, &arguments));
    fs::write(folder.join("text"), "hgfedcba ".repeat(90)).unwrap();
    let arguments = ["run", "--steps", "4", "--batch-size", "8"];
    let output = resume(folder, &arguments);
    assert!(stderr(&output).contains("data.source: the text of text is not what it was"));
    objects(&output);
    let state = fs::read(checkpoint(folder, "run", 4).join("state.json")).unwrap();
    let state: Value = serde_json::from_slice(&state).unwrap();
    assert_eq!(state["samples"], 2 * 4 + 2 * 8);
}

#[cfg(unix)]
mod signals {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A run that would take long, after its first step.
    fn start(folder: &Path, arguments: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpipe"));
        command.current_dir(folder).args(TINY).args(arguments);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert!(line.contains("\"step\":1,"), "{line}");
        (child, lines)
    }

    fn send(child: &Child, signal: &str) {
        let status = Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status();
        assert!(status.unwrap().success());
    }

    #[test]
    fn a_signal_ends_the_step_saves_and_exits_with_130() {
        for signal in ["-INT", "-TERM"] {
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            let arguments = ["--steps", "1000000", "--save-every", "1", "--out", "run"];
            let (mut child, mut lines) = start(folder, &arguments);
            let mut line = String::new();
            while !line.contains("\"save\"") {
                line.clear();
                assert!(lines.read_line(&mut line).unwrap() > 0, "it ended early");
            }
            // While it runs, nobody else may write its folder.
            let second = resume(folder, &["run"]);
            assert_eq!(code(&second), 2);
            assert!(
                stderr(&second).contains("another gpipe is at work"),
                "{}",
                stderr(&second)
            );

            send(&child, signal);
            let rest: Vec<String> = lines.lines().map(Result::unwrap).collect();
            assert_eq!(child.wait().unwrap().code(), Some(130));
            let rest = parse(&rest.join("\n"));
            let last = of_kind(&rest, "step").last().unwrap()["step"].clone();
            let saved = rest.last().unwrap();
            assert_eq!((&saved["kind"], &saved["step"]), (&"save".into(), &last));
            let steps = (last.as_u64().unwrap() + 2).to_string();
            let went_on = objects(&resume(folder, &["run", "--steps", &steps]));
            assert_eq!(of_kind(&went_on, "resume")[0]["step"], last);
            assert_eq!(results(&went_on).len(), 2);
        }
    }

    #[test]
    fn a_second_signal_quits_at_once() {
        let folder = tempfile::tempdir().unwrap();
        // A step that takes long enough for two signals to come during it.
        let slow = [
            "--set",
            "model.width=256",
            "--seq-len",
            "256",
            "--batch-size",
            "8",
        ];
        let rest = [
            "--steps",
            "1000000",
            "--out",
            "run",
            "--keep",
            "1",
            "--save-every",
            "0",
        ];
        let (mut child, lines) = start(folder.path(), &[&slow[..], &rest].concat());
        send(&child, "-INT");
        send(&child, "-TERM");
        let status = child.wait().unwrap();
        let rest: Vec<String> = lines.lines().map(Result::unwrap).collect();
        assert_eq!(status.code(), Some(130));
        assert!(
            !rest.iter().any(|line| line.contains("\"save\"")),
            "{rest:?}"
        );
        assert!(!folder.path().join("run/checkpoints/latest").exists());
    }
}

#[test]
fn a_model_is_taken_from_the_newest_checkpoint_that_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    objects(&train(
        folder,
        &["--steps", "4", "--save-every", "2", "--out", "run"],
    ));
    let loss = |model: &str| {
        let output = gpipe(folder, &["eval", model, "--json"]);
        let told = stderr(&output);
        (objects(&output)[0]["loss"].clone(), told)
    };
    let (older, _) = loss("run/checkpoints/step-00000002");
    let (newer, told) = loss("run");
    assert_ne!(older, newer);
    assert!(!told.contains("warning"), "{told}");

    let weights = checkpoint(folder, "run", 4).join("model/model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    let (found, told) = loss("run");
    assert_eq!(found, older);
    let words = "step-00000004 is not whole: model/model.safetensors does not have its digest";
    assert!(told.contains(words), "{told}");
    for (arguments, words) in [
        (&["eval", "run/checkpoints/step-00000004"][..], "its digest"),
        (&["train", "--model", "run"], "name the checkpoint"),
    ] {
        let refused = gpipe(folder, arguments);
        let told = stderr(&refused);
        assert_eq!((code(&refused), told.lines().count()), (2, 1), "{told}");
        assert!(told.contains(words), "{told}");
    }
}
