//! Resuming where files that a run read are no longer there.

use std::fs;

use super::super::{gpipe, objects, stderr};
use super::{code, resume, train};

/// The table of a schedule whose backward passes descend: it differs in rounding from others, which `-q` says too.
#[test]
fn a_table_of_actions_may_be_gone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("table.csv"), "0F0,0F1,0B1,0B0\n").unwrap();
    let table = [
        "--schedule",
        "table.csv",
        "--stages",
        "1",
        "--micro-batches",
        "2",
    ];
    let output = train(
        folder,
        &[&table[..], &["--steps", "2", "--out", "run"]].concat(),
    );
    let told = stderr(&output);
    assert!(
        output.status.success() && told.contains("warning: this schedule"),
        "{told}"
    );
    fs::rename(folder.join("table.csv"), folder.join("moved.csv")).unwrap();
    let gone = resume(folder, &["run", "--steps", "3"]);
    assert_eq!(code(&gone), 2);
    assert!(stderr(&gone).contains("name a table of actions that can be read"));
    for (steps, schedule) in [("3", "moved.csv"), ("4", "1f1b"), ("5", "moved.csv")] {
        let output = resume(folder, &["run", "--steps", steps, "--schedule", schedule]);
        assert!(output.status.success(), "{}", stderr(&output));
    }
}

#[test]
fn a_folder_of_pictures_may_have_moved() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (class, shade) in [("dark", 20), ("light", 200)] {
        let class = folder.join("pictures").join(class);
        fs::create_dir_all(&class).unwrap();
        for i in 0..4 {
            let picture = image::GrayImage::from_pixel(8, 8, image::Luma([shade + i]));
            picture.save(class.join(format!("{i}.png"))).unwrap();
        }
    }
    let flags = "train --model convnet:4 --image-size 8 --data pictures --batch-size 4 --stages 2 -q --out run";
    let flags: Vec<&str> = flags.split(' ').chain(["--steps", "1"]).collect();
    let output = gpipe(folder, &flags);
    assert!(output.status.success(), "{}", stderr(&output));
    fs::rename(folder.join("pictures"), folder.join("moved")).unwrap();
    let gone = resume(folder, &["run", "--steps", "2"]);
    assert_eq!(code(&gone), 2);
    let told = stderr(&gone);
    assert!(
        told.contains("--data pictures: No such file")
            && told.contains(": give --data its whole path"),
        "{told}"
    );
    let output = resume(folder, &["run", "--steps", "2", "--data", "moved"]);
    assert!(output.status.success(), "{}", stderr(&output));
}

/// A larger disk may hold the checkpoints.
#[cfg(unix)]
#[test]
fn checkpoints_may_be_behind_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let output = train(folder, &["--steps", "1", "--out", "run"]);
    assert!(output.status.success(), "{}", stderr(&output));
    fs::rename(folder.join("run/checkpoints"), folder.join("checkpoints")).unwrap();
    std::os::unix::fs::symlink("../checkpoints", folder.join("run/checkpoints")).unwrap();
    for (steps, named) in [("2", "run"), ("3", "run/checkpoints")] {
        let output = resume(folder, &[named, "--steps", steps]);
        assert!(output.status.success(), "{}", stderr(&output));
        let text = fs::read_to_string(folder.join("run/config.toml")).unwrap();
        assert!(text.contains(&format!("steps = {steps}")), "{text}");
        // It would be deleted before the run that begins from it saves.
        let over = resume(
            folder,
            &[named, "--steps", "9", "--out", "run", "--overwrite"],
        );
        assert_eq!(code(&over), 2);
        let told = stderr(&over);
        assert!(
            told.contains("is the run to resume: leave --out out"),
            "{told}"
        );
    }
}

/// Of several runs, the one that saved last is resumed, which need not be the one that began last.
#[test]
fn a_bare_resume_names_its_run_and_one_that_began_later() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    objects(&train(folder, &["--steps", "2", "--out", "runs/a"]));
    let finished = |words: &str| {
        let output = gpipe(folder, &["train", "--resume"]);
        assert_eq!(code(&output), 0);
        assert_eq!(stderr(&output), words);
    };
    let done = "nothing to do: runs/a has made all its 2 steps; use a larger --steps to continue\n";
    finished(done);
    // As one that was killed before its first save leaves it.
    fs::create_dir_all(folder.join("runs/b/checkpoints")).unwrap();
    fs::write(folder.join("runs/b/config.toml"), "").unwrap();
    let warning = "warning: --resume takes runs/a: runs/b began later, but has no checkpoint\n";
    finished(&format!("{warning}{done}"));
}
