//! Every mend that a message names is tried: applied to the line that was wrong, it must work.

use std::fs;
use std::path::Path;

use super::{SMALL, gpipe, stderr};

/// The words of a mend in a message, and what somebody types who follows them. Later flags win, so it
/// is added to the line.
type Mend = (&'static str, &'static str);

/// A wrong line, and all mends that its message must name.
type Case = (&'static str, &'static [Mend]);

/// Lines about a configuration, which is planned or read, and not trained.
const CONFIGURATIONS: &[Case] = &[
    ("train --stages 40", &[("--stages 9", "--stages 9")]),
    ("plan --stages 40", &[("--stages 9", "--stages 9")]),
    (
        "train --micro-batches 9",
        &[
            ("--micro-batches 8", "--micro-batches 8"),
            ("--batch-size 9", "--batch-size 9"),
        ],
    ),
    (
        "train --schedule table.csv --batch-size 7",
        &[("--batch-size 8", "--batch-size 8")],
    ),
    (
        "train --schedule long.csv --stages 3",
        &[("--stages 10", "--set model.blocks=8 --stages 10")],
    ),
    (
        "train --schedule long.csv",
        &[
            (
                "another table than --schedule long.csv",
                "--schedule table.csv",
            ),
            ("more layers", "--set model.blocks=8"),
        ],
    ),
    (
        "train --partition 3,3",
        &[("one size for each", "--partition 3,2,2,2")],
    ),
    (
        "train --partition 4,5",
        &[
            ("one size for each", "--partition 3,2,2,2"),
            ("--stages 2", "--stages 2"),
        ],
    ),
    (
        "train --schedule interleaved:2 --stages 3",
        &[("--stages 2", "--stages 2"), ("or 4", "--stages 4")],
    ),
    (
        "train --schedule interleaved:2 --stages 1",
        &[("--stages 2", "--stages 2")],
    ),
    (
        "train --set model.context=64 --seq-len 65",
        &[
            ("--seq-len 64", "--seq-len 64"),
            ("--set model.context=65", "--set model.context=65"),
        ],
    ),
    (
        "train --data digits",
        &[("--model mlp", ""), ("--data cicero", "--data cicero")],
    ),
    (
        "train --stages 3 --devices cpu*2",
        &[
            ("one for each stage", "--devices cpu*3"),
            ("a bare name", "--devices cpu"),
        ],
    ),
    (
        "train --stages 6 --schedule zb-v --devices cpu*2",
        &[
            ("one for every 2 stages", "--devices cpu*3"),
            ("a bare name", "--devices cpu"),
        ],
    ),
    (
        "train --schedule table.csv --stages 3",
        &[("--stages 4", "--stages 4")],
    ),
    (
        "train --schedule table.csv --micro-batches 4",
        &[("--micro-batches 8", "--micro-batches 8")],
    ),
    (
        "train --schedule table.csv --devices cpu*3",
        &[
            ("one for each", "--devices cpu*4"),
            ("a bare name", "--devices cpu"),
        ],
    ),
    (
        "plan --auto --workers 2*1T --partition 3,3,3",
        &[(
            "--stages 2, with as many sizes in --partition",
            "--stages 2 --partition 4,5",
        )],
    ),
    (
        "plan --auto --schedule interleaved:2 --partition 3,3,3",
        &[(
            "2 or 4 sizes, and as many --stages",
            "--stages 2 --partition 4,5",
        )],
    ),
    (
        "train --schedule interleaved:2 --partition 3,3,3",
        &[(
            "2 or 4 sizes, and as many --stages",
            "--stages 4 --partition 3,3,2,1",
        )],
    ),
    (
        "train --micro-batches 2 --replicas 3",
        &[("--micro-batches 3", "--micro-batches 3")],
    ),
    (
        "train --micro-batches 1 --groups 2",
        &[
            ("--groups 1", "--groups 1"),
            ("--micro-batches 2", "--micro-batches 2"),
        ],
    ),
    (
        "train --remat budget:20KiB",
        &[("--remat budget:401.5KiB", "--remat budget:401.5KiB")],
    ),
    (
        "train --tf32",
        &[("--devices cuda:0", ""), ("leave --tf32 out", "")],
    ),
    (
        "train --tokenizer none.json",
        &[("--tokenizer bytes", "--tokenizer bytes")],
    ),
    #[cfg(not(feature = "cuda"))]
    (
        "verify --devices cuda:0",
        &[("--devices cpu", "--devices cpu"), ("--features cuda", "")],
    ),
];

/// Lines about costs.
const COSTS: &[Case] = &[
    ("plan --costs 10,20", &[("--stages 2", "--stages 2")]),
    (
        "plan --costs 10,20,30,40 --schedule long.csv",
        &[
            (
                "another table than --schedule long.csv",
                "--schedule table.csv",
            ),
            ("more layers", "--costs 1,2,3,4,5,6,7,8,9,10"),
        ],
    ),
    (
        "plan --costs batch.json --stages 2 --micro-batches 8",
        &[("--micro-batches 4", "--micro-batches 4")],
    ),
    (
        "plan --auto --costs batch.json --micro-batches 8",
        &[("--micro-batches 4", "--micro-batches 4")],
    ),
    (
        "plan --costs batch.json --stages 2 --batch-size 8",
        &[("--batch-size 4", "--batch-size 4")],
    ),
    (
        "plan --costs 10,20,30,40 --workers 2*1",
        &[("--auto", "--auto"), ("--compare", "--compare")],
    ),
];

/// Lines that run.
const RUNS: &[Case] = &[
    (
        "eval run --seq-len 1000",
        &[("--seq-len 64", "--seq-len 64")],
    ),
    (
        "eval run --set pipeline.micro_batches=9",
        &[
            (
                "--set pipeline.micro_batches=8",
                "--set pipeline.micro_batches=8",
            ),
            ("--batch-size 9", "--batch-size 9"),
        ],
    ),
    ("eval run --stages 40", &[("--stages 9", "--stages 9")]),
    (
        "eval run --data digits",
        &[("--data cicero", "--data cicero")],
    ),
    (
        "eval run --set pipeline.memory=50KiB",
        &[(
            "--set pipeline.memory=132.7KiB",
            "--set pipeline.memory=132.7KiB",
        )],
    ),
    (
        "sample run --tokens 2 --stages 40",
        &[("--stages 9", "--stages 9")],
    ),
    (
        "verify --steps 1 --memory 300KiB",
        &[("--memory 401.5KiB", "--memory 401.5KiB")],
    ),
    (
        "verify --steps 1 --remat keep --memory 500KiB",
        &[
            ("--memory 573KiB", "--memory 573KiB"),
            ("--remat budget:500KiB", "--remat budget:500KiB"),
        ],
    ),
    (
        "verify --steps 1 --stages 40",
        &[("--stages 9", "--stages 9")],
    ),
    (
        "verify --steps 1 --batch-size 300000000",
        &[
            ("smaller --batch-size", "--batch-size 8"),
            ("--seq-len", ""),
        ],
    ),
    (
        "verify --steps 1 --data short.txt",
        &[
            ("--seq-len 10", "--seq-len 10"),
            ("a longer text", "--data cicero"),
        ],
    ),
    (
        "train --steps 4 --warmup-steps 0 --lr 1e30 --out new",
        &[("lower --lr", "--lr 1e-3 --overwrite")],
    ),
    (
        "train --steps 1 --out run",
        &[
            ("another folder", "--out other"),
            ("--overwrite", "--out other --overwrite"),
        ],
    ),
];

/// A folder with what the lines name.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("short.txt"), "ten letters").unwrap();
    let table = ["plan", "--schedule", "1f1b", "--csv", "table.csv"];
    let batch = r#"{"batch": 4, "layers": [{"forward": 1}, {"forward": 2}]}"#;
    fs::write(folder.path().join("batch.json"), batch).unwrap();
    let long = [
        "plan",
        "--csv",
        "long.csv",
        "--set",
        "model.blocks=8",
        "--stages",
        "10",
    ];
    let long = gpipe(folder.path(), &[&long[..1], SMALL, &long[1..]].concat());
    assert_eq!(long.status.code(), Some(0), "{}", stderr(&long));
    for line in [&table[..], &["train", "--steps", "1", "--out", "run", "-q"]] {
        let output = gpipe(folder.path(), &[line, SMALL].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    folder
}

/// Runs a line and returns its exit code and message.
fn run(folder: &Path, line: &str, mend: &str, more: &[&str]) -> (Option<i32>, String) {
    let typed = line.split(' ').chain(mend.split(' '));
    let typed: Vec<&str> = typed.filter(|word| !word.is_empty()).collect();
    let (command, typed) = typed.split_first().unwrap();
    let output = gpipe(folder, &[&[*command], more, typed].concat());
    (output.status.code(), stderr(&output))
}

fn try_all(cases: &[Case], more: impl Fn(&str) -> Vec<&'static str>) {
    let folder = folder();
    for (line, mends) in cases {
        let more = more(line);
        let (code, said) = run(folder.path(), line, "", &more);
        assert!(matches!(code, Some(1 | 2)), "{line}: {said}");
        let mut advice = said.trim_end().rsplit(": ").next().unwrap().to_owned();
        for (words, typed) in *mends {
            assert!(said.contains(words), "{line}: no {words} in {said}");
            if !typed.is_empty() {
                let (code, after) = run(folder.path(), line, typed, &more);
                assert_eq!(code, Some(0), "{line} {typed}: {after}");
            }
        }
        for (words, _) in *mends {
            advice = advice.replacen(words, "", 1);
        }
        assert!(!advice.contains("--"), "{line}: not tried: {advice}");
    }
}

#[test]
fn mends_of_configurations_work() {
    let dry = [SMALL, &["--dry-run"]].concat();
    try_all(CONFIGURATIONS, |line| match line.starts_with("train") {
        true => dry.clone(),
        false => SMALL.to_vec(),
    });
}

#[test]
fn mends_of_costs_work() {
    try_all(COSTS, |_| Vec::new());
}

#[test]
fn mends_of_runs_work() {
    try_all(RUNS, |line| match line.split(' ').next() {
        Some("train") => [SMALL, &["-q"]].concat(),
        Some("verify") => SMALL.to_vec(),
        _ => Vec::new(),
    });
}

/// Workers that nobody lists are as many as the cut has stages.
#[test]
fn a_plan_has_workers_for_a_given_cut() {
    let folder = tempfile::tempdir().unwrap();
    let cut = ["plan", "--auto", "--partition", "3,3,3"];
    let output = gpipe(folder.path(), &[&cut[..1], SMALL, &cut[1..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// A key that generation sets itself is refused, not passed over.
#[test]
fn a_text_has_no_batch() {
    let folder = folder();
    for key in [
        "data.seq_len",
        " data.batch_size ",
        "pipeline.micro_batch_size",
    ] {
        let set = format!("{key}=3");
        let output = gpipe(folder.path(), &["sample", "run", "--set", &set]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("--set {set}: ")), "{said}");
        assert!(said.ends_with("leave it out\n"), "{said}");
    }
}

/// A smaller batch than that of the run has fewer micro-batches, without a word.
#[test]
fn eval_chooses_its_micro_batches() {
    let folder = folder();
    for arguments in [&["--batch-size", "2"][..], &["--batch-size", "64"], &[]] {
        let output = gpipe(folder.path(), &[&["eval", "run"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
}

/// Another text is evaluated whole, however it is named.
#[test]
fn a_text_by_its_key_is_that_of_the_flag() {
    let folder = folder();
    fs::write(folder.path().join("other.txt"), "abcdefgh ".repeat(900)).unwrap();
    let train = [
        "train",
        "--steps",
        "1",
        "--eval-every",
        "1",
        "--out",
        "held",
        "-q",
    ];
    let output = gpipe(folder.path(), &[&train[..1], SMALL, &train[1..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let found = [
        &["--data", "other.txt"],
        &["--set", "data.source=other.txt"],
    ]
    .map(|text| {
        let output = gpipe(folder.path(), &[&["eval", "held"][..], text].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        output.stdout
    });
    assert_eq!(found[0], found[1]);
}

/// A table is of a number of micro-batches; forward passes need none, nor its file.
#[test]
fn a_run_by_a_table_is_evaluated_and_sampled_without_it() {
    let folder = folder();
    let train = ["train", "--steps", "1", "--out", "tabled", "-q"];
    let train = [&train, SMALL, &["--schedule", "table.csv"]].concat();
    assert_eq!(gpipe(folder.path(), &train).status.code(), Some(0));
    fs::remove_file(folder.path().join("table.csv")).unwrap();
    for line in [
        &["eval", "tabled"][..],
        &["eval", "tabled", "--batch-size", "3"],
        &["sample", "tabled", "--tokens", "2"],
    ] {
        let output = gpipe(folder.path(), line);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
}

/// Costs of forward passes of one token are others, by which Lingvo's rule may leave a stage without layers.
#[test]
fn a_run_cut_by_lingvos_rule_is_evaluated_and_sampled() {
    let folder = tempfile::tempdir().unwrap();
    let train = "train --steps 1 --out run -q --batch-size 4 --partition histogram --set model.blocks=1 --set \
                 model.width=8 --set model.heads=2";
    for line in [train, "eval run", "sample run --tokens 2"] {
        let typed: Vec<&str> = line.split_whitespace().collect();
        let output = gpipe(folder.path(), &typed);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
}

/// A model by name has random weights: its loss and its text would be those of no training.
#[test]
fn a_trained_model_is_not_replaced_by_one_by_name() {
    let folder = folder();
    for line in [
        "eval run",
        "sample run --tokens 2",
        "eval run --data digits",
    ] {
        for name in ["gpt-nano", "convnet"] {
            let set = format!("--set model.name={name}");
            let (code, said) = run(folder.path(), line, &set, &[]);
            assert_eq!(code, Some(2), "{line} {set}: {said}");
            assert!(said.contains(&format!("{set}: ")), "{said}");
            assert!(said.contains("leave `model.name` out"), "{said}");
        }
    }
    fs::write(folder.path().join("pairs.txt"), "a\n").unwrap();
    let (_, said) = run(folder.path(), "eval run", "--target pairs.txt", &[]);
    assert!(said.trim_end().ends_with("leave --target out"), "{said}");
}

/// A stack larger than all addresses stands for a limit of threads, which root does not have.
#[cfg(target_os = "linux")]
#[test]
fn a_thread_that_cannot_start_is_named_with_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = assert_cmd::Command::cargo_bin("gpipe").unwrap();
    command.current_dir(folder.path());
    command.env("RUST_MIN_STACK", (1_u64 << 48).to_string());
    let output = command.args(["train", "--steps", "1"]).output().unwrap();
    let said = stderr(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("cannot start"), "{said}");
    assert!(said.contains("thread"), "{said}");
    assert!(
        said.contains("raise the limit of threads (ulimit -u"),
        "{said}"
    );
}

/// Lines about plans of more workers than layers.
const WORKERS: &[Case] = &[
    (
        "plan --devices cpu*12",
        &[(
            "--stages 9 and list 9 workers in --devices",
            "--stages 9 --devices cpu*9",
        )],
    ),
    (
        "plan --devices cpu*12 --stages 12",
        &[("list 9 workers in --devices", "--stages 9 --devices cpu*9")],
    ),
    (
        "plan --devices cpu*5 --schedule zb-v",
        &[(
            "--stages 8 and list 4 workers in --devices",
            "--stages 8 --devices cpu*4",
        )],
    ),
    (
        "plan --devices cpu*12 --stages 12 --auto",
        &[(
            "--stages 9 and list 9 workers in --devices",
            "--stages 9 --devices cpu*9",
        )],
    ),
    (
        "plan --cost-model x",
        &[
            ("complete", "--cost-model complete"),
            ("or time ", "--cost-model time"),
            ("lingvo", "--cost-model lingvo"),
            ("time:10", "--cost-model time:10"),
        ],
    ),
];

#[test]
fn mends_of_workers_and_costs_can_be_followed_at_once() {
    let folder = folder();
    for (line, mends) in WORKERS {
        let (code, said) = run(folder.path(), line, "", SMALL);
        assert_eq!(code, Some(2), "{line}: {said}");
        for (words, typed) in *mends {
            assert!(said.contains(words), "{line}: no {words} in {said}");
            let (code, after) = run(folder.path(), line, typed, SMALL);
            assert_eq!(code, Some(0), "{line} {typed}: {after}");
        }
    }
}

/// What belongs to a model is not passed over beside costs, but where a file has it.
#[test]
fn costs_are_of_no_model() {
    let folder = folder();
    let line = "plan --costs 10,20,30,40 --stages 2";
    for typed in [
        "--lr 3e-4",
        "--no-shuffle",
        "--set optimizer.lr=1",
        "--seq-len 3",
        "--threads 3",
        "--cost-model time",
        "--set model.name=mlp",
        "--memory 1MiB",
    ] {
        let (code, said) = run(folder.path(), line, typed, &[]);
        assert_eq!(code, Some(2), "{typed}: {said}");
        assert!(said.contains(&format!("error: {typed}: ")), "{said}");
        assert!(said.trim_end().ends_with("leave it out"), "{said}");
    }
    for typed in [
        "--config run/config.toml",
        "--batch-size 16 --micro-batches 4 --schedule 1f1b --partition 1,3",
        "--remat keep --memory 2GiB --auto",
    ] {
        let (code, said) = run(folder.path(), line, typed, &[]);
        assert_eq!(code, Some(0), "{typed}: {said}");
    }
}

/// A resumed run keeps its model, and a trained one has its own: no message offers another.
#[test]
fn keys_of_other_models_are_left_out() {
    let folder = folder();
    for (line, key) in [
        ("train --resume run --set model.hidden=3", "model.hidden"),
        ("train --resume run --set model.heads=3", "model.heads"),
        ("train --resume run --model mlp", "--model"),
        ("eval run --set model.hidden=3", "model.hidden"),
        ("sample run --set model.hidden=3", "model.hidden"),
    ] {
        let (code, said) = run(folder.path(), line, "", &[]);
        assert_eq!(code, Some(2), "{line}: {said}");
        assert!(
            said.contains(&format!("leave `{key}` out"))
                || said.contains(&format!("leave {key} out")),
            "{line}: {said}"
        );
        assert!(!said.contains(", or use "), "{line}: {said}");
    }
}
