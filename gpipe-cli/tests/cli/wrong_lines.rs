//! What a newcomer types wrong, and the one line that answers: the thing, and the mend.

use std::fmt::Write as _;
use std::fs;

use super::{gpipe, stderr, stdout};

/// As typed after `gpipe`; words are parted by spaces.
const LINES: &[&str] = &[
    "trian",
    "training --stages 4",
    "train gpt2",
    "train notes.txt",
    "train --stage 4",
    "train --stages",
    "train --stages four",
    "train --stages 0",
    "train --stages 40",
    "train --stages 4 --devices cpu*2",
    "train --gpus 2",
    "train --devices gpu",
    "train --devices cuda:0",
    "train --devices cpu*0",
    "train --epochs 3",
    "train --steps -5",
    "train --steps 1e3",
    "train --lr 1e-3x",
    "train --learning-rate 0.1",
    "train --batch 32",
    "train --batch-size 16 --micro-batches 32",
    "train --tf32",
    "train --freeze h.(",
    "train --freeze model.layers",
    "train --freeze transformer --stages 2",
    "train --model resnet18 --data synthetic --freeze weight|bias",
    "train --model resnet18 --data synthetic --freeze layers",
    "train --lora 0 --lora-alpha 16",
    "train --lora 8 --lora-targets q_proj",
    "train --lora 8 --lora-dropout 1",
    "train --lora 8 --freeze lora",
    "train --model mlp --lora 8",
    "train --microbatches 4",
    "train --mpi /nowhere/libmpi.so",
    "train --model resnet18 --data synthetic --weights missing.safetensors",
    "train --data nots.txt",
    "train --data .",
    "train --model gpt3",
    "train --model GPT2",
    "train --schedule 1F1B",
    "train --schedule interleaved",
    "train --remat full",
    "train --remat every",
    "train --partition 4,4",
    "train --set stages=4",
    "train --set pipeline.stages 4",
    "train --config notes.txt",
    "train --config missing.toml",
    "train --dropout 50%",
    "train --seed abc",
    "train --out taken",
    "train --quiet --verbose",
    "plan --auto --hosts 2",
    "plan --auto --workers 8*h100 --host-link 1e-5:25G",
    "plan --auto --workers 8*h100 --hosts 200",
    "plan --compare --workers 2*h100 --hosts 2",
    "plan --workers 2*h100 --hosts 2",
    "plan --costs 10;20;30",
    "plan --costs 10,20 --stages 4",
    "plan --cost 10,20",
    "verify --stages 40",
    "verify --tolerance 1e-6",
    "verify --mpi-timeout 2",
    "plan --auto --workers 8*h100 --hosts -2",
    "sample taken --tokens -3",
    "sample taken --tokens 1e3",
    "sample taken --tokens 99999999999",
    "sample taken --temperature hot",
    "sample taken --top-k -1",
    "sample taken --top-p half",
    "sample taken --beams two",
];

#[test]
fn each_is_answered_by_one_line_that_names_the_mend() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("notes.txt"), "Dear diary,\n").unwrap();
    fs::create_dir(folder.path().join("taken")).unwrap();
    fs::write(folder.path().join("taken/log.txt"), "a run\n").unwrap();
    let mut answers = String::new();
    for line in LINES {
        let arguments: Vec<&str> = line.split(' ').collect();
        let output = gpipe(folder.path(), &arguments);
        let here = folder.path().canonicalize().unwrap();
        let said = stderr(&output).replace(here.to_str().unwrap(), "FOLDER");
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert_eq!(
            (said.lines().count(), stdout(&output).as_str()),
            (1, ""),
            "{line}: {said}"
        );
        writeln!(answers, "$ gpipe {line}\n{said}").unwrap();
    }
    // The answer for a GPU is another where the build knows GPUs.
    if cfg!(not(feature = "cuda")) {
        insta::assert_snapshot!(answers);
    }
    println!("exam W1 {0}/{0}", LINES.len());
}

#[cfg(unix)]
#[test]
fn words_that_are_not_utf8_are_named() {
    use std::os::unix::ffi::OsStrExt;

    use assert_cmd::Command;

    let other = std::ffi::OsStr::from_bytes(b"caf\xe9");
    let folder = tempfile::tempdir().unwrap();
    let said = |command: &mut Command| {
        let output = command.current_dir(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        stderr(&output)
    };
    let gpipe = || Command::cargo_bin("gpipe").expect("the binary was built");
    let line = said(gpipe().args(["train", "--data"]).arg(other));
    assert!(line.contains("caf\u{fffd}: is not UTF-8"), "{line}");
    let line = said(gpipe().arg("plan").env("GPIPE_INSTRUCTION_SET", other));
    assert!(
        line.contains("caf\u{fffd}: unknown instruction set"),
        "{line}"
    );
}
