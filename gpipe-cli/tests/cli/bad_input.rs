//! What cannot be done is said in one line that names the mend, and leaves nothing behind.

use std::fs;

use super::{gpipe, small, stderr, stdout};

/// Arguments, and words that the line must have: the thing and the mend.
const CASES: &[(&[&str], &[&str])] = &[
    (
        &["train", "--data", "missing.txt"],
        &["missing.txt", "its whole path, or name another file"],
    ),
    (&["train", "--data", "empty.txt"], &["empty.txt", "empty"]),
    (
        &["train", "--data", "short.txt"],
        &["short.txt", "--seq-len 4"],
    ),
    (&["train", "--data", "folder"], &["folder", "holds no text"]),
    (
        &["train", "--data", "/dev/null"],
        &["/dev/null", "regular file"],
    ),
    (
        &["train", "--config", "missing.toml"],
        &["missing.toml", "TOML file"],
    ),
    (&["train", "--config", "folder"], &["folder", "TOML file"]),
    (
        &["train", "--config", "typo.toml"],
        &["typo.toml line 4", "pipeline.stagse", "pipeline.stages"],
    ),
    (
        &["train", "--config", "syntax.toml"],
        &["syntax.toml line 2"],
    ),
    (
        &["train", "--model", "gpt-nanno"],
        &["gpt-nanno", "did you mean `gpt-nano`"],
    ),
    (
        &["train", "--set", "optimiser.lr=1"],
        &["optimiser.lr", "did you mean `optimizer.lr`"],
    ),
    (
        &["train", "--set", "lr"],
        &["--set lr", "SECTION.KEY=VALUE"],
    ),
    (&["train", "--stagse", "2"], &["--stagse", "--stages"]),
    (
        &["train", "--freeze", "-x"],
        &["'-x' found", "write FLAG=VALUE"],
    ),
    (
        &["sample", "none", "--prompt", "- a"],
        &["'- ' found", "write FLAG=VALUE"],
    ),
    (
        &["eval", "none", "--micro-batches", "2"],
        &["found; use --set pipeline.micro_batches=VALUE"],
    ),
    (
        &["eval", "none", "--loss-target", "class"],
        &["'--loss-target' found; use --set data.loss_target=VALUE"],
    ),
    (
        &["sample", "none", "--threads", "2", "--memory", "1GiB"],
        &["'--memory' found; use --set pipeline.memory=VALUE"],
    ),
    (
        &["plan", "--costs", "1,2,3,4", "--model", "gpt2"],
        &["'--costs <LIST|FILE>' cannot be used with '--model <NAME>'"],
    ),
    (
        &["eval", "none", "--keep", "3"],
        &["'--keep' found; --help lists"],
    ),
    (
        &["eval", "none", "--remat", "keep"],
        &["'--remat' found; --help lists"],
    ),
    (
        &["train", "--devices", "cpu*1", "--stages", "2"],
        &["2 stages but 1 worker in --devices cpu*1: list one"],
    ),
    (
        &["train", "--batch-size", "1", "--micro-batches", "2"],
        &["2 micro-batches but 1 sample a batch"],
    ),
    // It would be refused, or change nothing.
    (
        &["sample", "none", "--seq-len", "3"],
        &["'--seq-len' found; --help lists"],
    ),
    (
        &["eval", "none", "--weights", "x"],
        &["'--weights' found; --help lists"],
    ),
    (
        &["eval", "none", "--model", "x"],
        &["'--model' found; name the model without a flag; --help lists"],
    ),
    (
        &["check", "none", "--foo"],
        &["'--foo' found; --help lists"],
    ),
    (
        &["train", "--devices", "cpu*4294967295,cuda:0*4294967295"],
        &["--devices cpu*4294967295", "list fewer"],
    ),
    (
        &["train", "--mpi-timeout", "99999999999999999999"],
        &["--mpi-timeout", "use a smaller number"],
    ),
    (
        &["train", "--config", "large.toml"],
        &["large.toml line 2", "use a smaller number"],
    ),
    (
        &[
            "train",
            "--set",
            "model.width=400000000",
            "--set",
            "model.heads=1",
            "--set",
            "model.blocks=1",
            "--set",
            "model.context=4294967295",
            "--seq-len",
            "1",
            "--batch-size",
            "1",
            "--stages",
            "1",
        ],
        &["the run needs 16.0 EiB", "use a smaller model"],
    ),
    (&["train", "notes.txt"], &["notes.txt", "--data notes.txt"]),
    (&["devices", "cpu"], &["'cpu' found; --help lists"]),
    (&["trian"], &["trian", "train"]),
    (&["train", "--stages", "99"], &["99 stages", "--stages 11"]),
    (&["train", "--stages", "0"], &["--stages 0", "from 1"]),
    (&["train", "--stages", "-1"], &["--stages -1", "from 1"]),
    (
        &["train", "--stages", "two"],
        &["--stages two", "whole number"],
    ),
    (
        &["train", "--devices", "cpu*2", "--stages", "3"],
        &["3 stages", "2 workers"],
    ),
    (&["train", "--devices", "cuda:0"], &["cuda:0", "cpu"]),
    (&["train", "--devices", "tpu"], &["tpu", "cpu"]),
    (
        &["train", "--micro-batches", "17"],
        &["17 micro-batches", "--micro-batches 16"],
    ),
    (
        &["train", "--micro-batches", "0"],
        &["--micro-batches 0", "from 1"],
    ),
    (
        &["train", "--micro-batches", "2", "--micro-batch-size", "2"],
        &["--micro-batches", "cannot be used with"],
    ),
    (
        &["train", "--partition", "3,3,3,3"],
        &["3,3,3,3", "add up to 11"],
    ),
    (&["train", "--partition", "3,8"], &["2 sizes", "--stages 2"]),
    (
        &["train", "--partition", "0,4,4,3"],
        &["size 0", "at least 1 layer"],
    ),
    (&["train", "--partition", "even"], &["`even`", "balance"]),
    (
        &["train", "--partition", "histogram", "--stages", "11"],
        &["no layer", "use balance"],
    ),
    (&["train", "--schedule", "zigzag"], &["zigzag", "1f1b"]),
    (
        &["train", "--schedule", "interleaved:0"],
        &["interleaved:0", "from 1"],
    ),
    (
        &["train", "--schedule", "zb-v", "--stages", "3"],
        &["3 stages", "--stages 2 or 4"],
    ),
    (&["train", "--remat", "every:0"], &["every:0", "every:N"]),
    (&["train", "--cost-model", "cheap"], &["cheap", "lingvo"]),
    (
        &["train", "--batch-size", "0"],
        &["--batch-size 0", "from 1"],
    ),
    (
        &["train", "--batch-size", "99999999999999999999"],
        &["too large"],
    ),
    (
        &["train", "--batch-size", "4294967295"],
        &["needs", "smaller --batch-size"],
    ),
    (
        &[
            "train",
            "--batch-size",
            "4294967295",
            "--micro-batches",
            "4294967295",
        ],
        &["micro-batches", "use fewer"],
    ),
    (
        &["train", "--seq-len", "99999"],
        &["too few", "--seq-len 49067"],
    ),
    (
        &["train", "--set", "model.width=4294967292"],
        &["too large"],
    ),
    (
        &["train", "--set", "model.blocks=1000000000"],
        &["model.blocks", "to 10000"],
    ),
    (
        &["train", "--set", "model.heads=3"],
        &["3 heads", "model.heads=2"],
    ),
    (
        &["train", "--set", "model.vocab=9"],
        &["model.vocab = 9", "use --set model.vocab=256"],
    ),
    (&["train", "--lr", "fast"], &["--lr fast", "not a number"]),
    (&["train", "--lr", "nan"], &["--lr nan", "finite"]),
    (&["train", "--lr", "-0.1"], &["--lr -0.1", "from 0"]),
    (&["train", "--dropout", "1"], &["--dropout 1", "below 1"]),
    (&["train", "--threads", "0"], &["--threads 0", "from 1"]),
    (&["train", "--steps", "0"], &["--steps 0", "from 1"]),
    (&["train", "--seed", "-3"], &["--seed -3", "from 0"]),
    (&["train", "--out", "folder"], &["folder", "--overwrite"]),
    (
        &["train", "--out", "empty.txt", "--overwrite"],
        &["empty.txt", "another name"],
    ),
    (
        &["train", "--out", "empty.txt/run"],
        &["empty.txt/run", "choose a folder"],
    ),
    (&["train", "--overwrite"], &["--out"]),
    (
        &["train", "--resume", "run", "--profile"],
        &["--resume", "cannot be used with '--profile'"],
    ),
    (
        &["train", "--weight-decay", "1e39"],
        &["--weight-decay 1e39", "use a number from 0 to 3.4e38"],
    ),
    (
        &[
            "train",
            "--optimizer",
            "sgd",
            "--set",
            "optimizer.beta1=0.8",
        ],
        &["sgd has no beta1", "--optimizer adamw"],
    ),
    (
        &["train", "--stages", "4", "--set", "pipeline.devices=cpu*2"],
        &["4 stages but 2 workers"],
    ),
    (
        &["train", "--set", "optimizer.eps=1e39"],
        &["--set optimizer.eps=1e39", "use a number from 0 to 3.4e38"],
    ),
    (
        &["train", "--quiet", "--verbose"],
        &["--quiet", "--verbose"],
    ),
    (
        &["plan", "--costs", "10,-4", "--stages", "2"],
        &["`-4`", "whole numbers"],
    ),
    (
        &["plan", "--costs", "", "--stages", "1"],
        &["whole numbers"],
    ),
    (
        &["plan", "--costs", "1,2", "--stages", "3"],
        &["3 stages but 2 layers", "--stages 2"],
    ),
    (
        &[
            "plan",
            "--costs",
            "0,0",
            "--stages",
            "2",
            "--partition",
            "histogram",
        ],
        &["0", "balance"],
    ),
    (
        &["plan", "--costs", "18446744073709551615,1", "--stages", "1"],
        &["larger unit"],
    ),
    (&["verify", "--stages", "12"], &["12 stages", "--stages 11"]),
];

#[test]
fn one_line_names_the_thing_and_the_mend_and_nothing_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    fs::create_dir(folder.path().join("folder")).unwrap();
    write("empty.txt", "");
    write("short.txt", "Lorem");
    write("typo.toml", "[run]\nsteps = 3\n[pipeline]\nstagse = 3\n");
    write("syntax.toml", "[run]\nsteps =\n");
    write("large.toml", "[run]\nsteps = 99999999999999999999999\n");
    let listing = || {
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        names.sort();
        names
    };
    let before = listing();
    for (arguments, words) in CASES {
        let output = gpipe(folder.path(), arguments);
        let (said, result) = (stderr(&output), stdout(&output));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
        assert!(
            said.starts_with("error: ") && result.is_empty(),
            "{arguments:?}: {said}{result}"
        );
        for word in *words {
            assert!(
                said.contains(word),
                "{arguments:?} should say {word}: {said}"
            );
        }
    }
    assert_eq!(listing(), before);
    assert_eq!(
        fs::read_dir(folder.path().join("folder")).unwrap().count(),
        0
    );
}

#[test]
fn verbose_adds_the_causes() {
    let folder = tempfile::tempdir().unwrap();
    let output = gpipe(folder.path(), &["train", "-v", "--stages", "99"]);
    assert!(
        stderr(&output).contains("\n  caused by: 99 stages"),
        "{}",
        stderr(&output)
    );
}

/// A run that diverges is no mistake of the command line: exit code 1, and its folder stays.
#[test]
fn a_run_that_fails_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let output = small(
        folder.path(),
        "train",
        &["--lr", "1e30", "--clip-norm", "0", "-q", "--out", "run"],
    );
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("error: step ")
            && said.contains(": micro-batch 0, layer transformer.")
            && said.contains("lower --lr"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        fs::read_to_string(out.join("log.txt"))
            .unwrap()
            .contains("step 1/")
    );
}

#[test]
fn a_recommendation_that_makes_no_sense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("nan.json"),
        "{\"layers\": [{\"forward\": -1}]}",
    )
    .unwrap();
    fs::write(
        folder.path().join("circle.txt"),
        "a -- L -- forward_compute_time=1\na -- a\n",
    )
    .unwrap();
    fs::write(folder.path().join("none.json"), "{\"layers\": []}").unwrap();
    let three = [
        "plan",
        "--stages",
        "3",
        "--micro-batches",
        "2",
        "--csv",
        "three.csv",
    ];
    assert!(gpipe(folder.path(), &three).status.success());
    let cases: [(&[&str], &str); 15] = [
        (&["--costs", "0,0", "--auto"], "all layers cost nothing"),
        (&["--costs", "-1,2", "--auto"], "`-1` is not a cost"),
        (&["--costs", "1,NaN"], "`NaN` is not a cost"),
        (
            &["--compare", "--workers", "2*1T", "--schedule", "three.csv"],
            "for 3 workers, but there are 2",
        ),
        (&["--costs", "nan.json", "--auto"], "costs -1"),
        (&["--costs", "circle.txt"], "an edge from a node to itself"),
        (&["--costs", "gone.json"], "name a file that can be read"),
        (&["--costs", "none.json"], "it has no layers"),
        (&["--costs", "none.json", "--auto"], "it has no layers"),
        (&["--auto", "--memory", "1KiB"], "does not fit by"),
        (&["--memory", "none"], "no amount of memory"),
        (&["--remat", "budget:1B"], "needs less than"),
        (&["--auto", "--workers", "8x1T"], "COUNT*FLOPS"),
        (&["--compare", "--link", "1:1"], "--workers"),
        (&["--workers", "1T"], "--auto or --compare"),
    ];
    for (arguments, words) in cases {
        let output = gpipe(folder.path(), &[&["plan"], arguments].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    }
    let output = gpipe(
        folder.path(),
        &["train", "--memory", "100KiB", "--out", "run"],
    );
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("use --memory "));
    assert!(!folder.path().join("run").exists());
    // A plan is shown all the same, with what would be said.
    let output = gpipe(folder.path(), &["plan", "--memory", "100KiB"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.starts_with("warning: train would refuse this: worker 3 needs"),
        "{said}"
    );
    assert!(stdout(&output).contains("device 0"));
}
