//! Schedules from files, and what is said about schedules.

use std::fs;
use std::path::Path;

use super::{gpipe, small, stderr, stdout};

/// Tables that PyTorch wrote: 4 ranks of 2 stages, 8 micro-batches.
macro_rules! pytorch {
    ($name:literal) => {
        include_str!(concat!(
            "../../../gpipe-sched/tests/fixtures/",
            $name,
            ".csv"
        ))
    };
}

fn put(folder: &Path, text: &str) {
    fs::write(folder.join("table.csv"), text).expect("a file");
}

#[test]
fn a_table_of_pytorch_round_trips_and_trains() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), pytorch!("zb_v"));
    let table = ["--schedule", "table.csv"];
    let output = small(
        folder.path(),
        "plan",
        &[&table[..], &["--csv", "out.csv", "--remat", "keep"]].concat(),
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let written = fs::read_to_string(folder.path().join("out.csv")).unwrap();
    assert_eq!(written, pytorch!("zb_v").replace("\r\n", "\n"));
    let output = small(
        folder.path(),
        "verify",
        &[&table[..], &["--steps", "2"]].concat(),
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let output = small(
        folder.path(),
        "train",
        &["--schedule", "out.csv", "--steps", "2", "--out", "run"],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(
        said.contains("8 stages of") && !said.contains("warning"),
        "{said}"
    );
}

#[test]
fn a_descending_table_trains_with_a_warning_to_the_bits_of_one_stage_in_its_order() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), pytorch!("looped_bfs"));
    let table = ["--schedule", "table.csv", "--steps", "2"];
    let output = small(
        folder.path(),
        "train",
        &[&table[..], &["--out", "run"]].concat(),
    );
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("warning: this schedule"),
        "{}",
        stderr(&output)
    );
    let output = small(folder.path(), "verify", &table);
    assert!(
        output.status.success(),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    assert!(
        stderr(&output).contains("in the order of the table"),
        "{}",
        stderr(&output)
    );
    assert!(stdout(&output).starts_with("equal: losses and gradient norms of 2 steps, and "));
}

#[test]
fn what_is_wrong_with_a_table_is_shown_in_it() {
    let folder = tempfile::tempdir().unwrap();
    for (text, place, arrow) in [
        ("0F0,0I0\n", "row 1, column 2: 0W0 is missing", Some("^")),
        (
            "0F0,0F0,0B0\n",
            "row 1, column 2: 0F0 is there twice",
            Some("    ^"),
        ),
        (
            "0B0,0F0\n",
            "row 1, column 1: 0B0 comes before 0F0",
            Some("^"),
        ),
        (
            "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1,9F1\n",
            "row 2, column 5: 9F1 is of stage 9",
            Some("^"),
        ),
        ("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", "deadlock", Some("^")),
        ("0F0,x\n", "row 1, column 2: \"x\" is no action", None),
        ("0F0,0F1\n", "no backward pass", None),
        ("", "use at least one of each", None),
    ] {
        put(folder.path(), text);
        let output = small(folder.path(), "train", &["--schedule", "table.csv"]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.starts_with("error: --schedule table.csv: "), "{said}");
        assert!(said.contains(place), "{said}");
        if let Some(arrow) = arrow {
            let picture: Vec<&str> = said.lines().skip(1).collect();
            assert!(picture[0].starts_with("  device 0"), "{said}");
            assert!(picture.iter().any(|line| line.ends_with(arrow)), "{said}");
        }
        let left = folder.path().read_dir().unwrap().count();
        assert_eq!(left, 1, "nothing but the table");
    }
}

#[test]
fn a_table_leaves_no_choice_of_sizes() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), pytorch!("zb_v"));
    for (arguments, mend) in [
        (["--stages", "4"], "--stages 8"),
        (["--micro-batches", "4"], "--micro-batches 8"),
        (["--batch-size", "4"], "8 micro-batches but 4 samples"),
        (["--devices", "cpu*2"], "4 rows"),
        (["--schedule", "none.csv"], "can be read"),
        (["--schedule", "."], "unknown schedule"),
    ] {
        let arguments = [&["--schedule", "table.csv"][..], &arguments].concat();
        let output = small(folder.path(), "train", &arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(mend), "{}", stderr(&output));
    }
    let output = small(
        folder.path(),
        "plan",
        &["--schedule", "table.csv", "--csv", "no/such/folder.csv"],
    );
    assert_eq!(output.status.code(), Some(2));
    for choice in ["--auto", "--compare"] {
        let output = small(folder.path(), "plan", &[choice, "--csv", "out.csv"]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2));
        assert!(said.contains("cannot be used with '--csv"), "{said}");
    }
}

/// A table that stands in the place is replaced whole, or stays.
#[cfg(unix)]
#[test]
fn a_table_is_replaced_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (out, link) = (
        folder.path().join("out.csv"),
        folder.path().join("link.csv"),
    );
    fs::write(&out, "old").unwrap();
    std::os::unix::fs::symlink(&out, &link).unwrap();
    let plan = |name: &str| small(folder.path(), "plan", &["--csv", name]).status.code();
    assert_eq!(plan("link.csv"), Some(2));
    assert_eq!(fs::read_to_string(&out).unwrap(), "old");
    assert_eq!((plan("out.csv"), plan("/dev/null")), (Some(0), Some(0)));
    assert!(fs::read_to_string(&out).unwrap().contains("0F0"));
    let output = small(folder.path(), "plan", &["--csv", "out.txt"]);
    let said = stderr(&output);
    assert!(
        said.contains("warning: --csv out.txt") && said.contains("end in .csv"),
        "{said}"
    );
}

#[test]
fn help_teaches_the_schedules() {
    let folder = tempfile::tempdir().unwrap();
    let output = gpipe(folder.path(), &["help", "schedules"]);
    let page = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    for name in [
        "gpipe",
        "1f1b",
        "zb-v",
        "v-half",
        "dualpipe-v",
        "zero-bubble",
    ] {
        assert!(page.contains(&format!("\n{name} (")), "{page}");
    }
    for styles in ["never", "always"] {
        let output = gpipe(folder.path(), &["help", "train", "--color", styles]);
        let page = stdout(&output);
        assert!(
            page.contains("--schedule") && !page.contains("\\u001b"),
            "{page}"
        );
        assert_eq!(page.contains('\u{1b}'), styles == "always");
    }
    let output = gpipe(folder.path(), &["help", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("schedules"), "{}", stderr(&output));
}
