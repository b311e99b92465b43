//! The model that classifies: it learns, by the same bits in any number of stages, and is mixed up
//! with no text.

use std::fs;

use super::{gpipe, objects, parse, stderr, stdout};

#[test]
fn digits_are_recognised() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "train",
        "--model",
        "mlp",
        "--steps",
        "200",
        "--eval-every",
        "100",
        "--json",
        "--out",
        "run",
    ];
    let output = gpipe(folder.path(), &arguments);
    let found = objects(&output);
    let evaluations: Vec<_> = found
        .iter()
        .filter(|object| object["kind"] == "eval")
        .collect();
    assert_eq!(evaluations.len(), 2);
    for evaluation in &evaluations {
        assert_eq!(evaluation["tokens"], 179);
    }
    let accuracy = evaluations[1]["accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.85, "{accuracy}");
    let said = stderr(&output);
    for words in [
        "digits: 1618 images, 64 a step",
        " img/s  bubble ",
        "accuracy ",
        " images/s",
    ] {
        assert!(said.contains(words), "{words} in {said}");
    }
    let events = parse(&fs::read_to_string(folder.path().join("run/events.jsonl")).unwrap());
    assert_eq!(
        events
            .iter()
            .filter(|event| event["kind"] == "eval")
            .count(),
        2
    );
    // Only the keys that a perceptron has, and the file gives the same run.
    let config = fs::read_to_string(folder.path().join("run/config.toml")).unwrap();
    assert!(
        config.contains("hidden = ") && !config.contains("heads = "),
        "{config}"
    );
    let again = [
        "train",
        "--config",
        "run/config.toml",
        "--json",
        "--out",
        "again",
        "--stages",
        "2",
    ];
    let losses = |objects: &[serde_json::Value]| -> Vec<serde_json::Value> {
        objects
            .iter()
            .filter(|object| object["kind"] == "step")
            .map(|object| object["loss"].clone())
            .collect()
    };
    assert_eq!(
        losses(&objects(&gpipe(folder.path(), &again))),
        losses(&found)
    );
}

#[test]
fn a_trained_classifier_is_evaluated_and_says_no_text() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let trained = gpipe(
        here,
        &[
            "train",
            "--model",
            "mlp",
            "--steps",
            "20",
            "--eval-every",
            "20",
            "--json",
            "--out",
            "run",
        ],
    );
    let trained = objects(&trained);
    let trained = trained
        .iter()
        .find(|object| object["kind"] == "eval")
        .unwrap();
    let evaluated = ["1", "7"].map(|stages| {
        let evaluated = objects(&gpipe(here, &["eval", "run", "--json", "--stages", stages]));
        for key in ["loss", "accuracy", "tokens"] {
            assert_eq!(evaluated[0][key], trained[key], "{key}");
        }
        evaluated[0]["classes"].clone()
    });
    assert_eq!(evaluated[0], evaluated[1]);
    assert_eq!(trained.get("classes"), None);
    let classes = evaluated[0].as_array().unwrap();
    let sum = |key: &str| {
        classes
            .iter()
            .map(|class| class[key].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(
        (classes.len(), sum("targets"), sum("predicted")),
        (10, 179, 179)
    );
    assert_eq!(
        trained["accuracy"].as_f64(),
        Some(sum("correct") as f64 / 179.0)
    );
    for class in classes {
        let others = class["taken_for"].as_array().unwrap().iter();
        let others: u64 = others.map(|other| other["targets"].as_u64().unwrap()).sum();
        assert_eq!(
            Some(others + class["correct"].as_u64().unwrap()),
            class["targets"].as_u64()
        );
    }
    let said = gpipe(here, &["eval", "run"]);
    let accuracy = trained["accuracy"].as_f64().unwrap();
    let words = stdout(&said);
    assert!(
        words.contains(&format!("accuracy {:.1} %  images 179\n", 100.0 * accuracy)),
        "{words}"
    );
    let table: Vec<&str> = words.lines().skip(1).collect();
    let heading: Vec<&str> = table[0].split_whitespace().take(4).collect();
    assert_eq!(heading, ["class", "images", "recall", "precision"]);
    assert_eq!(table.len(), 11);
    for (number, row) in table[1..].iter().enumerate() {
        let cells: Vec<&str> = row.split_whitespace().take(2).collect();
        assert_eq!(
            cells,
            [number.to_string(), classes[number]["targets"].to_string()]
        );
    }
    assert!(
        stderr(&said).contains("digits: 179 images"),
        "{}",
        stderr(&said)
    );
    // The model alone: all images.
    let model = "run/checkpoints/step-00000020/model";
    assert_eq!(
        objects(&gpipe(here, &["eval", model, "--json"]))[0]["tokens"],
        1797
    );
    let on = gpipe(
        here,
        &[
            "train", "--model", "run", "--steps", "1", "--json", "--out", "on",
        ],
    );
    assert_eq!(objects(&on)[0]["kind"], "step");
    let refused = gpipe(here, &["sample", "run"]);
    let said = stderr(&refused);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        said.lines().count() == 1 && said.contains("gpipe predict"),
        "{said}"
    );
    assert_eq!(stdout(&refused), "");
}

#[test]
fn a_classifier_has_the_bits_of_one_stage_and_a_plan() {
    let folder = tempfile::tempdir().unwrap();
    for stages in ["2", "7"] {
        let arguments = [
            "verify",
            "--model",
            "mlp",
            "--dropout",
            "0.1",
            "--schedule",
            "1f1b",
            "--stages",
            stages,
        ];
        let arguments = if stages == "7" {
            // One layer a stage: three linear ones, two activations, two dropouts.
            [&arguments[..], &["--set", "model.hidden=32,16"]].concat()
        } else {
            arguments.to_vec()
        };
        let output = gpipe(folder.path(), &arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).starts_with("equal: "));
    }
    let plan = gpipe(folder.path(), &["plan", "--model", "mlp"]);
    assert_eq!(plan.status.code(), Some(0), "{}", stderr(&plan));
    assert!(
        stdout(&plan).contains("64 images a step"),
        "{}",
        stdout(&plan)
    );
}

#[test]
fn text_and_images_are_not_mixed_up() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], mend: &str| {
        let output = gpipe(folder.path(), &[&["train"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = stderr(&output);
        assert!(said.contains(mend) && said.lines().count() == 1, "{said}");
    };
    refused(&["--data", "digits"], "use --model mlp");
    refused(
        &["--model", "gpt-nano", "--data", "digits"],
        "use --model mlp",
    );
    refused(&["--model", "mlp", "--data", "cicero"], "use --data digits");
    refused(
        &["--model", "mlp", "--seq-len", "64"],
        "leave --seq-len out",
    );
    refused(
        &["--model", "mlp", "--set", "model.heads=2"],
        "has no model.heads",
    );
    refused(&["--set", "model.hidden=8"], "or use --model mlp");
    refused(
        &["--model", "mlp", "--set", "model.hidden=8,0"],
        "such as 128,128",
    );
    refused(
        &["--model", "mlp", "--stages", "8"],
        "7 layers: use --stages 7",
    );
    assert_eq!(
        folder.path().read_dir().unwrap().count(),
        0,
        "nothing is left behind"
    );
}
