//! Adapters: predicted and counted bytes, saved, gone on from, and kept.

use std::fs;

use super::{bits, checkpoint, resume, train};
use crate::{gpipe, parse, stderr};

const LORA: [&str; 4] = ["--lora", "8", "--lora-dropout", "0.2"];

#[test]
fn adapters_train_in_the_predicted_bytes_and_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let steps = ["--steps", "4", "--save-every", "2"];
    let whole = train(here, &[&steps[..], &LORA, &["--out", "whole"]].concat());
    assert!(whole.status.success(), "{}", stderr(&whole));
    let log = fs::read_to_string(here.join("whole/log.txt")).unwrap();
    // A of 8 x 16 and B of 48 x 8.
    assert!(log.contains(" parameters, 512 of them trained"), "{log}");
    let events = fs::read_to_string(here.join("whole/events.jsonl")).unwrap();
    let end = parse(&events).pop().unwrap();
    assert_eq!(end["peak_bytes"], end["predicted_peak_bytes"]);
    // The checkpoint says what it is of, and only adapters have a state.
    let config = fs::read_to_string(checkpoint(here, "whole", 4).join("config.toml")).unwrap();
    assert!(config.contains("[lora]\nrank = 8"), "{config}");
    let adapter =
        || fs::read(checkpoint(here, "whole", 4).join("adapter/adapter_model.safetensors"));
    let [base, state] = bits(here, "whole", 4);
    assert_eq!(base, bits(here, "whole", 2)[0]);
    let later = adapter().unwrap();
    let header = String::from_utf8_lossy(&state).into_owned();
    assert!(header.contains("c_attn.lora_A.weight.exp_avg"), "{header}");
    assert!(!header.contains("c_attn.weight"));
    // From the middle on, in one stage more.
    fs::remove_dir_all(checkpoint(here, "whole", 4)).unwrap();
    let resumed = resume(here, &["whole", "--stages", "3"]);
    assert!(resumed.status.success(), "{}", stderr(&resumed));
    assert_eq!(bits(here, "whole", 4)[1], state);
    assert!(adapter().unwrap() == later);
    for (given, words) in [
        (&["--lora", "4"][..], "--lora is 4, but 8"),
        (&["--lora", "0"], "--lora is 0, but 8"),
        (
            &["--set", "lora.rank=0", "--set", "lora.targets="],
            "--lora is 0, but 8",
        ),
    ] {
        let changed = resume(here, &[&["whole", "--steps", "6"], given].concat());
        let told = stderr(&changed);
        assert_eq!(changed.status.code(), Some(2), "{told}");
        assert!(
            told.contains(words) && told.contains("leave --lora out"),
            "{told}"
        );
    }
}

#[test]
fn adapters_give_the_same_bits_in_every_pipeline() {
    let folder = tempfile::tempdir().unwrap();
    let of = |model: &'static str, more: &[&'static str]| {
        let common = [
            "verify",
            "--model",
            model,
            "--seq-len",
            "8",
            "--batch-size",
            "4",
        ];
        let small = [
            "--set",
            "model.width=16",
            "--set",
            "model.blocks=2",
            "--steps",
            "2",
        ];
        let lora = [
            "--lora-targets",
            "attn|mlp",
            "--micro-batches",
            "4",
            "--dropout",
            "0.1",
        ];
        [&common[..], &small, &LORA, &lora, more].concat()
    };
    let llama = [
        "--set",
        "model.heads=2",
        "--set",
        "model.head_size=8",
        "--set",
        "model.inner=24",
    ];
    for (model, more) in [
        (
            "gpt-nano",
            [
                "--stages",
                "2",
                "--schedule",
                "zb-h1",
                "--remat",
                "stage",
                "--threads",
                "2",
            ],
        ),
        (
            "gpt-nano",
            [
                "--stages",
                "4",
                "--schedule",
                "interleaved:2",
                "--remat",
                "keep",
                "--threads",
                "1",
            ],
        ),
        (
            "llama-nano",
            [
                "--stages",
                "3",
                "--schedule",
                "zb-h2",
                "--remat",
                "every:2",
                "--threads",
                "2",
            ],
        ),
        (
            "llama-nano",
            [
                "--stages",
                "4",
                "--schedule",
                "zb-v",
                "--remat",
                "except-last",
                "--threads",
                "2",
            ],
        ),
    ] {
        let sizes = if model == "llama-nano" {
            &llama[..]
        } else {
            &["--set", "model.heads=2"]
        };
        let verified = gpipe(folder.path(), &[&of(model, &more)[..], sizes].concat());
        assert!(verified.status.success(), "{more:?}: {}", stderr(&verified));
    }
}
