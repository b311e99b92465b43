//! What lies in the folders of runs that no run put there, and what is replaced when.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{gpipe, objects, parse, small, stderr, stdout};

/// A run of two steps with a checkpoint after each.
fn run(folder: &Path, name: &str) {
    let arguments = ["--steps", "2", "--save-every", "1", "--json", "--out", name];
    objects(&small(folder, "train", &arguments));
}

/// Fails unless the command ends with exit code 2 and one line that has all these words.
fn refused(folder: &Path, arguments: &[&str], words: &[&str]) {
    let output = gpipe(folder, arguments);
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    for word in words {
        assert!(told.contains(word), "no {word:?} in {told}");
    }
}

fn resumed(folder: &Path, arguments: &[&str]) {
    let output = gpipe(folder, &[&["train", "--resume"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[cfg(unix)]
#[test]
fn neither_links_nor_pipes_of_a_runs_folder_are_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, "run");
    let secret = folder.join("secret");
    fs::write(&secret, "mine").unwrap();
    let on = ["train", "--resume", "run", "--steps", "3"];
    let names = [
        "trace.json",
        "timeline.json",
        "log.txt",
        "events.jsonl",
        ".lock",
        "config.toml",
    ];
    for name in names {
        let (path, kept) = (folder.join("run").join(name), folder.join("kept"));
        fs::rename(&path, &kept).unwrap();
        std::os::unix::fs::symlink(&secret, &path).unwrap();
        refused(folder, &on, &[name, "is a link: remove it"]);
        fs::remove_file(&path).unwrap();
        // Opened in the ordinary way it would wait for a reader for ever.
        assert!(
            Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        refused(folder, &on, &[name, "is no regular file: remove it"]);
        fs::rename(&kept, &path).unwrap();
    }
    std::os::unix::fs::symlink(&secret, folder.join("run/report.html")).unwrap();
    refused(
        folder,
        &["report", "run"],
        &["report.html", "is a link: remove it"],
    );
    assert_eq!(fs::read(&secret).unwrap(), b"mine");
    // As the lines say.
    fs::remove_file(folder.join("run/report.html")).unwrap();
    resumed(folder, &["run", "--steps", "3"]);
    stdout(&gpipe(folder, &["report", "run"]));
    assert!(folder.join("run/report.html").is_file());
}

#[test]
fn only_a_run_is_overwritten_and_only_by_one_that_begins() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = |name: &str| folder.join(name);
    fs::create_dir_all(path("mine/checkpoints")).unwrap();
    fs::write(path("mine/config.toml"), "mine").unwrap();
    let over = |name| ["train", "--steps", "1", "--out", name, "--overwrite"];
    refused(
        folder,
        &over("mine"),
        &["--out mine", "neither empty nor the folder of a run"],
    );
    assert_eq!(fs::read(path("mine/config.toml")).unwrap(), b"mine");

    run(folder, "run");
    let log = || fs::read_to_string(path("run/log.txt")).unwrap();
    let before = log();
    fs::rename(path("run/trace.json"), path("kept")).unwrap();
    fs::create_dir(path("run/trace.json")).unwrap();
    refused(folder, &over("run"), &["trace.json is a folder"]);
    assert_eq!(log(), before);
    assert!(path("run/checkpoints/step-00000002/model").is_dir());
    fs::remove_dir(path("run/trace.json")).unwrap();
    let identity = || fs::read_to_string(path("run/run.json")).unwrap();
    let first = identity();
    objects(&small(
        folder,
        "train",
        &["--steps", "1", "--json", "--out", "run", "--overwrite"],
    ));
    assert_ne!(log(), before);
    assert_ne!(identity(), first);
    assert!(!path("run/checkpoints/step-00000002").exists());
    let left = fs::read_dir(path("run")).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(left.into_iter().all(|name| !name.starts_with(".starting")));
}

#[test]
fn a_run_that_fails_in_its_first_step_replaces_none() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, "run");
    let before = fs::read(folder.join("run/log.txt")).unwrap();
    let at = folder.join("pictures");
    for class in ["a", "b"] {
        fs::create_dir_all(at.join(class)).unwrap();
        fs::write(at.join(class).join("1.png"), "no picture").unwrap();
    }
    let pictures = ["--model", "convnet:4", "--data", "pictures"];
    let sizes = [
        "--set",
        "data.image_size=16",
        "--batch-size",
        "1",
        "--micro-batches",
        "1",
    ];
    let run = ["-q", "train", "--steps", "1", "--out", "run", "--overwrite"];
    refused(
        folder,
        &[&run[..], &pictures, &sizes].concat(),
        &["is neither a PNG nor a JPEG"],
    );
    assert_eq!(fs::read(folder.join("run/log.txt")).unwrap(), before);
    assert!(folder.join("run/checkpoints/step-00000002/model").is_dir());
    resumed(folder, &["run", "--steps", "3"]);
}

#[test]
fn what_is_no_damage_is_named_and_nothing_is_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, "run");
    run(folder, "other");
    let home = folder.join("run/checkpoints");
    let names = || {
        let names = fs::read_dir(&home).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let strange = home.join("step-00000002/.DS_Store");
    fs::write(&strange, "").unwrap();
    let words = ["step-00000002: .DS_Store is not in the manifest: remove it"];
    refused(
        folder,
        &["train", "--resume", "run", "--steps", "3"],
        &words,
    );
    refused(folder, &["sample", "run", "--tokens", "1"], &words);
    fs::remove_file(&strange).unwrap();

    // One of another run, by hand.
    for name in ["step-00000001", "step-00000002"] {
        fs::rename(home.join(name), folder.join(name)).unwrap();
    }
    fs::rename(
        folder.join("other/checkpoints/step-00000002"),
        home.join("step-00000002"),
    )
    .unwrap();
    let words = [
        "--resume run/checkpoints/step-00000002: belongs to another run",
        "with --out",
    ];
    refused(
        folder,
        &["train", "--resume", "run", "--steps", "3"],
        &words,
    );
    let named = [
        "run/checkpoints/step-00000002",
        "--out",
        "new",
        "--steps",
        "3",
    ];
    resumed(folder, &named);
    let identity = |path: &str| {
        parse(
            &fs::read_to_string(folder.join(path))
                .unwrap()
                .replace('\n', ""),
        )
    };
    let origin = &identity("new/run.json")[0]["origin"];
    assert_eq!(origin["id"], identity("other/run.json")[0]["id"]);
    assert_eq!(origin["step"], 2);
    fs::remove_dir_all(home.join("step-00000002")).unwrap();

    // Under another name, elsewhere, it is a model and can be gone on from.
    fs::rename(folder.join("step-00000002"), folder.join("best-model")).unwrap();
    for arguments in [
        &["eval", "best-model"][..],
        &["sample", "best-model", "--tokens", "1"],
    ] {
        let output = gpipe(folder, arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let tuned = [
        "--model",
        "./best-model",
        "--steps",
        "1",
        "--seq-len",
        "16",
        "--out",
        "tuned",
    ];
    let output = gpipe(folder, &[&["train"], &tuned[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    resumed(folder, &["best-model", "--steps", "3", "--out", "on"]);
    for name in ["step-00000001", "step-00000002"] {
        let from = if name.ends_with('2') {
            "best-model"
        } else {
            name
        };
        fs::rename(folder.join(from), home.join(name)).unwrap();
    }
    assert_eq!(names(), before);
    resumed(folder, &["run", "--steps", "3"]);
}

#[test]
fn a_check_names_every_fault_and_what_could_be_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, "run");
    let check = |arguments: &[&str]| gpipe(folder, &[&["check"], arguments].concat());
    let whole = check(&["run"]);
    let told = stdout(&whole);
    assert_eq!(whole.status.code(), Some(0), "{told}");
    assert!(
        told.contains("step-00000002: whole, ") && told.contains("goes on from step 2"),
        "{told}"
    );

    let optimizer = folder.join("run/checkpoints/step-00000002/optimizer.safetensors");
    let mut bytes = fs::read(&optimizer).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&optimizer, bytes).unwrap();
    let damaged = check(&["run"]);
    let told = stdout(&damaged);
    assert_eq!(damaged.status.code(), Some(1), "{told}");
    assert!(
        told.contains("step-00000002: optimizer.safetensors does not have its digest"),
        "{told}"
    );
    assert!(told.contains("goes on from step 1"), "{told}");
    let objects = parse(&stdout(&check(&["run", "--json"])));
    let [two, one] = &objects[..] else {
        panic!("{objects:?}")
    };
    assert_eq!(
        (&two["whole"], &two["resumes"]),
        (&false.into(), &false.into())
    );
    assert_eq!(
        (&one["whole"], &one["resumes"]),
        (&true.into(), &true.into())
    );
    refused(
        folder,
        &["check", "none"],
        &["none", "name the folder of a run"],
    );
    fs::remove_dir_all(folder.join("run/checkpoints/step-00000001")).unwrap();
    let told = stdout(&check(&["run"]));
    assert!(told.contains("nothing to go on from: "), "{told}");
}

#[test]
fn a_model_that_cannot_be_saved_is_not_trained() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let huge = [
        "train",
        "--set",
        "model.blocks=10000",
        "--set",
        "model.width=4",
        "--set",
        "model.heads=1",
    ];
    let arguments = [&huge[..], &["--steps", "1", "--out", "run"]].concat();
    refused(
        folder,
        &arguments,
        &["bytes of names and shapes", "--keep 0"],
    );
    assert!(!folder.join("run").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_may_not_be_read_is_not_told_as_one_without_a_model() {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;

    let parent = tempfile::tempdir().unwrap();
    set_permissions(parent.path(), Permissions::from_mode(0o755)).unwrap();
    let locked = parent.path().join("locked");
    fs::create_dir_all(locked.join("run")).unwrap();
    set_permissions(&locked, Permissions::from_mode(0o0)).unwrap();
    let is_root = parent.path().metadata().unwrap().uid() == 0;
    for arguments in [
        ["sample", "locked/run"],
        ["report", "locked/run"],
        ["eval", "locked"],
    ] {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("gpipe"));
        command.current_dir(parent.path()).args(arguments);
        if is_root {
            // Root may read all: nobody may not.
            command.uid(65534);
        }
        let output = match command.output() {
            Ok(output) => output,
            Err(fault) => {
                eprintln!("skipped: another user cannot run the program: {fault}");
                return;
            }
        };
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(
            told.contains("cannot be read by this user: change"),
            "{told}"
        );
    }
    set_permissions(&locked, Permissions::from_mode(0o755)).unwrap();
}
