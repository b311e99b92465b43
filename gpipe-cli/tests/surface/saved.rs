//! Runs saved by the commit 0e2bb26 resume with the same bits, and that commit resumes today's runs.
//!
//! `run-0e2bb26/` holds two runs as they stood after step 6 of 12, of a GPT and of a perceptron. The
//! release binary of 0e2bb26 made them on Linux with AVX-512:
//!
//! ```text
//! COMMON="--dropout 0.1 --warmup-steps 3 --steps 12 --eval-every 3 --save-every 6 --keep 9
//!         --trace-steps 0 --threads 2 --seed 14 --lr 0.01 -q"
//! gpipe train --model gpt-nano --set model.blocks=2 --set model.heads=2 --set model.width=8
//!     --set model.context=16 --seq-len 12 --batch-size 6 --micro-batches 4 --stages 2
//!     --schedule 1f1b --remat every:2 $COMMON --out gpt
//! gpipe train --model mlp --set model.hidden=8,8 --batch-size 18 --micro-batches 4 --stages 2
//!     --schedule zb-h1 --remat keep $COMMON --out mlp
//! ```
//!
//! Kept are `config.toml`, `events.jsonl` up to step 6, `checkpoints/step-00000006`, and `latest` and
//! `best`, which name it, as they did then. `expected.json` has what 0e2bb26 made of them by
//! `gpipe train --resume RUN --json -q`: the losses of steps 7 to 12, those on what was held out, and
//! the SHA-256 digests of the parameters and of the optimizer's state after step 12. Bits depend on
//! the vector instructions of a processor, so there is a table for each kind; those that the host
//! did not have come from `qemu-x86_64 -cpu Haswell` and `-cpu Nehalem`. AMX is left out of the name
//! of the kind: what is not bf16 does not use it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::shape::safetensors;
use super::{gpipe, parse, run, stdout};

/// Models with a saved run.
const MODELS: &[&str] = if cfg!(feature = "digits") {
    &["gpt", "mlp"]
} else {
    &["gpt"]
};

/// The arguments of a resume.
const RESUME: &[&str] = &["train", "--json", "-q", "--resume", "run"];

/// A file of the checkpoint of a step.
fn saved(run: &Path, step: u64, name: &str) -> PathBuf {
    run.join(format!("checkpoints/step-{step:08}/{name}"))
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

/// The files of a folder, into a new one.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, to) = (
            entry.as_ref().unwrap().path(),
            to.join(entry.unwrap().file_name()),
        );
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).unwrap();
        }
    }
}

/// The recorded run of a model, in the folder `run` of a new one.
fn recorded(model: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/surface/run-0e2bb26");
    copy(&runs.join(model), &folder.path().join("run"));
    folder
}

/// The losses in objects of a kind.
fn losses(objects: &[Value], kind: &str) -> Vec<f64> {
    let objects = objects.iter().filter(|object| object["kind"] == kind);
    objects
        .map(|object| object["loss"].as_f64().unwrap())
        .collect()
}

/// The digest of a file of a checkpoint, as the manifest has it.
fn digest(run: &Path, step: u64, name: &str) -> Value {
    let manifest = json(&saved(run, step, "manifest.json"));
    let files = manifest["files"].as_array().unwrap().iter();
    let mut files = files.filter(|file| file["name"] == name);
    files.next().expect("the file is listed")["sha256"].clone()
}

/// Parameters and optimizer state after a step, bit for bit.
fn bits(run: &Path, step: u64) -> [Vec<u8>; 2] {
    ["model/model.safetensors", "optimizer.safetensors"]
        .map(|name| fs::read(saved(run, step, name)).expect("a checkpoint"))
}

/// The numbers of a safetensors file by the names of its tensors.
fn numbers(path: &Path) -> Vec<(String, Vec<f32>)> {
    let bytes = fs::read(path).unwrap();
    let (header, data) = safetensors(&bytes);
    let tensors = header.as_object().unwrap().iter();
    let tensors = tensors.filter(|(name, _)| *name != "__metadata__");
    let tensors = tensors.map(|(name, tensor)| {
        let [start, end] = [0, 1].map(|place| {
            let offset = tensor["data_offsets"][place].as_u64().unwrap();
            usize::try_from(offset).unwrap()
        });
        let numbers = data[start..end].chunks_exact(4);
        let numbers = numbers.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        (name.clone(), numbers.collect())
    });
    tensors.collect()
}

/// The kind of processor that saved a checkpoint.
fn processor(run: &Path, step: u64) -> String {
    let state = json(&saved(run, step, "state.json"));
    let kind = state["processor"].as_str().unwrap();
    kind.trim_end_matches(" amx").to_owned()
}

#[test]
fn what_0e2bb26_saved_goes_on_with_the_same_bits() {
    let all: Value = serde_json::from_str(include_str!("run-0e2bb26/expected.json")).unwrap();
    for model in MODELS {
        let folder = recorded(model);
        let events = parse(&stdout(&gpipe(folder.path(), RESUME)));
        let of_step = events.iter().find(|event| event["kind"] == "resume");
        assert_eq!(of_step.expect("it goes on")["step"], 6);
        let run = folder.path().join("run");
        let here = processor(&run, 12);
        let table = &all[*model];
        let kinds = table.as_object().unwrap();
        let (same, expected) = match kinds.get(&here) {
            Some(expected) => (true, expected),
            None => (false, kinds.values().next().unwrap()),
        };
        for (kind, key) in [("step", "train"), ("eval", "held_out")] {
            let found = losses(&events, kind);
            let expected: Vec<f64> = serde_json::from_value(expected[key].clone()).unwrap();
            assert_eq!(found.len(), expected.len());
            let near = found
                .iter()
                .zip(&expected)
                .all(|(a, b)| (a - b).abs() < 1e-4);
            assert!(near, "{model}, {key}: {found:?}, not {expected:?}");
            if same {
                assert_eq!(found, expected, "{model}, {key}");
            }
        }
        if same {
            let names = ["model/model.safetensors", "optimizer.safetensors"];
            for (name, key) in names.into_iter().zip(["model", "optimizer"]) {
                assert_eq!(digest(&run, 12, name), expected[key], "{model}, {name}");
            }
        } else {
            println!("{model}: no bits are recorded for `{here}`");
        }
    }
}

/// On every processor: nothing is left to do, and nothing is touched.
#[test]
fn what_0e2bb26_saved_is_whole() {
    for model in MODELS {
        let folder = recorded(model);
        let before = bits(&folder.path().join("run"), 6);
        let said = stdout(&gpipe(folder.path(), &[RESUME, &["--steps", "6"]].concat()));
        assert_eq!(said, "");
        assert_eq!(bits(&folder.path().join("run"), 6), before);
        let eval = ["eval", "run", "--json", "--threads", "2"];
        let loss = losses(&parse(&stdout(&gpipe(folder.path(), &eval))), "eval");
        let state = json(&saved(&folder.path().join("run"), 6, "state.json"));
        let held_out = state["held_out_loss"].as_f64().unwrap();
        assert!((loss[0] - held_out).abs() < 1e-5, "{loss:?}, {held_out}");
    }
}

/// On every processor: a step that neither moves a parameter nor adds to the moments, and that halves
/// the moments exactly, saves what was restored.
#[test]
fn what_0e2bb26_saved_is_restored_bit_for_bit() {
    for model in MODELS {
        let folder = recorded(model);
        let still = [
            "--steps",
            "7",
            "--lr",
            "0",
            "--weight-decay",
            "0",
            "--clip-norm",
            "1e-30",
            "--set",
            "optimizer.beta1=0.5",
            "--set",
            "optimizer.beta2=0.5",
        ];
        stdout(&gpipe(folder.path(), &[RESUME, &still].concat()));
        let run = folder.path().join("run");
        let [before, after] = [6, 7].map(|step| bits(&run, step));
        assert_eq!(before[0], after[0], "{model}: parameters");
        let [before, after] =
            [6, 7].map(|step| numbers(&saved(&run, step, "optimizer.safetensors")));
        assert!(
            before
                .iter()
                .flat_map(|(_, moments)| moments)
                .any(|&moment| moment != 0.0)
        );
        assert_eq!(before.len(), after.len());
        for ((name, before), (again, after)) in before.iter().zip(&after) {
            assert_eq!((name, before.len()), (again, after.len()));
            for (&before, &after) in before.iter().zip(after) {
                // What is smaller than any moment is of the clipped gradient.
                let same = (before / 2.0 - after).abs() < 1e-29;
                assert!(same, "{model}: {name}: {before}, then {after}");
            }
        }
    }
}

/// A binary of 0e2bb26 that `GPIPE_OLD_BINARY` names goes on with what this one has saved: the same
/// bits as here, where both run on one processor.
#[test]
fn an_old_binary_goes_on_with_what_is_saved_today() {
    let Some(old) = env::var_os("GPIPE_OLD_BINARY").map(PathBuf::from) else {
        println!("skipped: GPIPE_OLD_BINARY names no binary");
        return;
    };
    assert!(
        old.is_absolute(),
        "GPIPE_OLD_BINARY must be an absolute path"
    );
    for model in MODELS {
        let folder = recorded(model);
        // A run of today, with the configuration of the recorded one.
        let train = [
            "train",
            "--config",
            "run/config.toml",
            "--json",
            "-q",
            "--out",
            "new",
        ];
        let events = parse(&stdout(&gpipe(folder.path(), &train)));
        let new = folder.path().join("new");
        let half = folder.path().join("half");
        copy(&new, &half);
        fs::remove_dir_all(half.join("checkpoints/step-00000012")).unwrap();
        for name in ["latest", "best"] {
            fs::write(half.join("checkpoints").join(name), "step-00000006\n").unwrap();
        }
        for step in [3, 9] {
            let _ = fs::remove_dir_all(half.join(format!("checkpoints/step-{step:08}")));
        }
        let resume = ["train", "--json", "-q", "--resume", "half"];
        let went_on = parse(&stdout(&run(&old, folder.path(), &resume)));
        let resumed = went_on.iter().find(|event| event["kind"] == "resume");
        assert_eq!(resumed.expect("it goes on")["step"], 6);
        assert_eq!(resumed.unwrap()["warnings"], Value::Array(Vec::new()));
        let (here, there) = (losses(&events, "step"), losses(&went_on, "step"));
        assert_eq!(here[6..], there);
        assert_eq!(bits(&new, 12), bits(&half, 12), "{model}");
        println!("{model}: {} goes on with the same bits", old.display());
    }
}
