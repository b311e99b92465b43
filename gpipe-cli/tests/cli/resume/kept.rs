//! Which checkpoints are kept, and which of them is taken: the newest that is whole.

use std::fs;

use super::super::{gpipe, objects, stderr};
use super::{bits, checkpoint, code, of_kind, results, resume, train};

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
    assert_eq!(left, ["latest"]);

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
