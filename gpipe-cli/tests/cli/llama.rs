//! A model of the family of Llama: the same bits in any number of stages, saved as a folder, and read from
//! one again or from a GGUF file.

use std::fs;

use super::{gpipe, objects, stderr, stdout};

/// Sizes that train in no time, with every part that the family has.
const SMALL: [&str; 12] = [
    "--model",
    "llama-nano",
    "--set",
    "model.blocks=2",
    "--set",
    "model.width=24",
    "--set",
    "model.head_size=8",
    "--set",
    "model.inner=40",
    "--dropout",
    "0.1",
];

#[test]
fn a_llama_has_the_same_bits_in_any_number_of_stages() {
    let folder = tempfile::tempdir().unwrap();
    for more in [
        &[
            "--stages",
            "5",
            "--remat",
            "keep",
            "--set",
            "model.window=20",
        ][..],
        &[
            "--stages",
            "3",
            "--schedule",
            "1f1b",
            "--set",
            "model.qkv_bias=true",
        ],
        &[
            "--stages",
            "2",
            "--schedule",
            "zb-h1",
            "--remat",
            "every:2",
            "--set",
            "model.tied=false",
        ],
    ] {
        let arguments = [&["verify", "--steps", "2"], &SMALL[..], more].concat();
        let output = gpipe(folder.path(), &arguments);
        assert!(stdout(&output).contains("bit for bit"), "{more:?}");
    }
}

#[test]
fn a_llama_is_saved_resumed_and_read_from_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let losses = |arguments: &[&str]| -> Vec<f64> {
        let output = gpipe(folder.path(), arguments);
        let steps = objects(&output);
        let steps = steps.iter().filter(|object| object["kind"] == "step");
        steps.map(|step| step["loss"].as_f64().unwrap()).collect()
    };
    let run = ["train", "--steps", "4", "--save-every", "2", "--json"];
    let whole = losses(&[&run, &SMALL[..], &["--stages", "2", "--out", "run"]].concat());
    assert_eq!(whole.len(), 4);
    let checkpoint = "run/checkpoints/step-00000002";
    let resumed = losses(&[
        "train", "--resume", checkpoint, "--stages", "3", "--json", "--out", "more",
    ]);
    assert_eq!(resumed, whole[2..]);
    let model = folder.path().join(checkpoint).join("model");
    let config = fs::read_to_string(model.join("config.json")).unwrap();
    assert!(config.contains("\"model_type\": \"llama\""), "{config}");
    let model = model.to_str().unwrap();
    let eval = |model| {
        let output = gpipe(
            folder.path(),
            &[
                "eval",
                model,
                "--seq-len",
                "64",
                "--batch-size",
                "8",
                "--json",
            ],
        );
        objects(&output)[0]["loss"].as_f64().unwrap()
    };
    assert_eq!(eval(model), eval(checkpoint));
}

#[test]
fn a_gguf_file_that_is_none_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let mut claims = b"GGUF".to_vec();
    claims.extend(3_u32.to_le_bytes());
    claims.extend([0xFF; 16]);
    for (bytes, named) in [
        (claims.as_slice(), "claims 18446744073709551615 keys"),
        (b"{}", "is no GGUF file"),
        (b"{\"model\": 1}", "is no GGUF file"),
    ] {
        fs::write(folder.path().join("model.gguf"), bytes).unwrap();
        for command in [
            &["eval", "model.gguf"][..],
            &["train", "--model", "model.gguf"],
        ] {
            let output = gpipe(folder.path(), command);
            assert_eq!(output.status.code(), Some(2));
            let said = stderr(&output);
            assert!(
                said.contains(named) && said.trim_end().lines().count() == 1,
                "{said}"
            );
        }
    }
    let output = gpipe(folder.path(), &["eval", "none.gguf"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("none.gguf"));
}
