//! An encoder-decoder: the same bits in any number of stages, saved, resumed, evaluated and decoded, and texts that
//! are no pairs.

use std::fs;
use std::path::Path;

use super::{gpipe, objects, stderr, stdout};

/// Sizes that train in no time, with dropout and smoothed labels.
const SMALL: [&str; 16] = [
    "--model",
    "seq2seq-nano",
    "--data",
    "words",
    "--target",
    "reversed",
    "--seq-len",
    "24",
    "--set",
    "model.width=16",
    "--set",
    "model.inner=20",
    "--dropout",
    "0.1",
    "--label-smoothing",
    "0.1",
];

/// Lines of letters, and the same from their ends, as the files `words` and `reversed`.
fn write_pairs(folder: &Path, lines: usize, letters: u32, longest: usize) {
    let mut state = 12_345_u32;
    let mut next = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % below
    };
    let mut texts = [String::new(), String::new()];
    for _ in 0..lines {
        let length = 1 + next(longest as u32);
        let letter = |_| char::from(b'a' + next(letters) as u8);
        let line: String = (0..length).map(letter).collect();
        texts[0] += &format!("{line}\n");
        texts[1] += &format!("{}\n", line.chars().rev().collect::<String>());
    }
    fs::write(folder.join("words"), &texts[0]).unwrap();
    fs::write(folder.join("reversed"), &texts[1]).unwrap();
}

#[test]
fn an_encoder_decoder_has_the_same_bits_in_any_number_of_stages() {
    let folder = tempfile::tempdir().unwrap();
    write_pairs(folder.path(), 60, 26, 9);
    for more in [
        &["--stages", "7", "--remat", "keep"][..],
        &["--stages", "3", "--schedule", "1f1b", "--threads", "3"],
        &["--stages", "2", "--schedule", "zb-h1", "--remat", "every:2"],
        &[
            "--stages",
            "5",
            "--schedule",
            "1f1b",
            "--set",
            "model.transparent=true",
        ],
        &[
            "--stages",
            "4",
            "--schedule",
            "interleaved:2",
            "--devices",
            "cpu*2",
        ],
    ] {
        let arguments = [&["verify", "--steps", "2"], &SMALL[..], more].concat();
        let output = gpipe(folder.path(), &arguments);
        assert!(
            stdout(&output).contains("bit for bit"),
            "{more:?}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn a_run_is_resumed_evaluated_and_decoded() {
    for transparent in ["false", "true"] {
        resumed_evaluated_and_decoded(&format!("model.transparent={transparent}"));
    }
}

fn resumed_evaluated_and_decoded(setting: &str) {
    let folder = tempfile::tempdir().unwrap();
    write_pairs(folder.path(), 60, 26, 9);
    let losses = |arguments: &[&str]| -> Vec<f64> {
        let output = gpipe(folder.path(), arguments);
        let steps = objects(&output);
        let steps = steps.iter().filter(|object| object["kind"] == "step");
        steps.map(|step| step["loss"].as_f64().unwrap()).collect()
    };
    let run = [
        "train",
        "--steps",
        "4",
        "--save-every",
        "2",
        "--json",
        "--set",
        setting,
    ];
    let whole = losses(&[&run, &SMALL[..], &["--stages", "2", "--out", "run"]].concat());
    assert_eq!(whole.len(), 4);
    let checkpoint = "run/checkpoints/step-00000002";
    let resumed = losses(&[
        "train", "--resume", checkpoint, "--stages", "3", "--json", "--out", "more",
    ]);
    assert_eq!(resumed, whole[2..]);
    let eval = |model: &str, stages: &str| {
        let output = gpipe(
            folder.path(),
            &["eval", model, "--stages", stages, "--json"],
        );
        objects(&output)[0]["loss"].as_f64().unwrap()
    };
    assert_eq!(eval("run", "1"), eval("run", "5"));
    // Greedy, and the same with a second line of another length beside it.
    let text = |more: &[&str]| {
        let arguments = ["sample", "run", "--tokens", "6", "--prompt", "abc"];
        stdout(&gpipe(folder.path(), &[&arguments, more].concat()))
    };
    let greedy = |more: &[&str]| text(&[&["--temperature", "0"], more].concat());
    let one = greedy(&["--stages", "1"]);
    assert_eq!(one, greedy(&["--stages", "4"]));
    // One beam takes the likeliest token every time.
    assert_eq!(one, text(&["--beams", "1"]));
    let beams = |stages| text(&["--beams", "3", "--stages", stages]);
    assert_eq!(beams("1"), beams("3"));
    // A source is one line, whose end may be given.
    assert_eq!(
        one,
        greedy(&["--prompt", "abc\r\n"])
            .lines()
            .last()
            .unwrap()
            .to_owned()
            + "\n"
    );
    for no_line in [
        &["sample", "run"][..],
        &["sample", "run", "--prompt", "abc\nzyx"],
    ] {
        let output = gpipe(folder.path(), no_line);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.starts_with("error: --prompt: ") && said.contains("give a line of text"),
            "{said}"
        );
    }
    let two = greedy(&["--prompt", "zyxwv"]);
    assert!(two.starts_with(one.trim_end_matches('\n')), "{one} {two}");
}

/// Words of four letters that training has not seen come back from their ends. The preset learns longer lines of ten
/// letters within 300 of its steps, half a minute on two cores.
#[test]
fn an_encoder_decoder_learns_to_reverse_a_line() {
    let folder = tempfile::tempdir().unwrap();
    write_pairs(folder.path(), 600, 8, 4);
    let data = &SMALL[..8];
    let sizes = [
        "--set",
        "model.width=32",
        "--set",
        "model.inner=64",
        "--stages",
        "2",
    ];
    let run = [
        "train",
        "--steps",
        "120",
        "--lr",
        "0.01",
        "--micro-batches",
        "2",
        "--eval-every",
        "120",
    ];
    let more = ["--json", "--out", "run"];
    let output = gpipe(folder.path(), &[&run, data, &sizes, &more].concat());
    let held_out = objects(&output);
    let held_out = held_out
        .iter()
        .rfind(|object| object["kind"] == "eval")
        .unwrap();
    assert!(held_out["accuracy"].as_f64().unwrap() > 0.9, "{held_out}");
    let greedy = [
        "sample",
        "run",
        "--temperature",
        "0",
        "--tokens",
        "9",
        "--prompt",
        "dcba",
    ];
    assert_eq!(stdout(&gpipe(folder.path(), &greedy)), "abcd\n");
}

#[test]
fn texts_that_are_no_pairs_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    write_pairs(folder.path(), 20, 26, 9);
    fs::write(folder.path().join("shorter"), "a\nb\n").unwrap();
    let mut text = fs::read_to_string(folder.path().join("reversed")).unwrap();
    let second = text.find('\n').unwrap() + 1;
    let third = second + text[second..].find('\n').unwrap();
    text.replace_range(second..third, "");
    fs::write(folder.path().join("a hole"), text).unwrap();
    for (target, length, named) in [
        (
            "shorter",
            "24",
            "has 2 lines, but --data has 20: name a text with a line for each",
        ),
        (
            "reversed",
            "2",
            "10 tokens with its end, the most of 17 lines that are too long: use --seq-len 10",
        ),
        (
            "a hole",
            "24",
            "line 2 is empty: remove the line from both texts, or write one",
        ),
        (
            "nowhere",
            "24",
            "name a text file with a line for each line of --data",
        ),
    ] {
        let model = [
            "train",
            "--model",
            "seq2seq-nano",
            "--data",
            "words",
            "--seq-len",
            length,
        ];
        let output = gpipe(folder.path(), &[&model[..], &["--target", target]].concat());
        let line = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(
            line.contains(named) && line.trim_end().lines().count() == 1,
            "{line}"
        );
    }
    for (arguments, named) in [
        (
            &["train", "--model", "seq2seq-nano", "--data", "words"][..],
            "learns from pairs of lines: name the text of the sources with --data, and that of the targets with \
             --target",
        ),
        (
            &["train", "--data", "words", "--target", "reversed"],
            "the model gpt-nano learns no targets of another text: leave --target out",
        ),
    ] {
        let output = gpipe(folder.path(), arguments);
        let line = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(line.contains(named), "{line}");
    }
}
