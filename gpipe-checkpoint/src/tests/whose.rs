//! Whose a checkpoint is, what it is called, and what a check of them all tells.

use std::fs;
use std::path::Path;

use super::pipeline::assembled;
use super::runs::{MAX, run, saver, snapshot};
use crate::manifest::digest;
use crate::names::MANIFEST;
use crate::{
    Error, FOLDER, Fault, Identity, Location, Lock, Manifest, RUN, STATE, check, find, locate,
    newest, remove_all, resume,
};

/// A run of that identity with the checkpoints of these steps.
fn identified(folder: &Path, steps: &[u64]) -> Identity {
    fs::create_dir_all(folder).unwrap();
    let identity = Identity::new("0.1.0");
    identity.write(folder).unwrap();
    let mut saver = saver(folder, 10).of_run(identity.clone());
    let mut assembled = assembled(1);
    for &step in steps {
        saver.save(snapshot(step, &mut assembled)).unwrap();
    }
    saver.finish().unwrap();
    identity
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &to),
            false => drop(fs::copy(&path, to).unwrap()),
        }
    }
}

#[test]
fn a_checkpoint_of_another_run_is_named_before_it_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let [ours, theirs] = ["ours", "theirs"].map(|name| folder.path().join(name));
    let identity = identified(&ours, &[1, 2]);
    let other = identified(&theirs, &[3]);
    assert_ne!(identity.id, other.id);
    assert_eq!(identity.id.len(), 32);
    let resumed = resume(&ours, true, MAX).unwrap();
    assert_eq!(resumed.identity, Some(identity.clone()));
    drop(resumed);

    let strange = ours.join(FOLDER).join("step-00000003");
    copy(&theirs.join(FOLDER).join("step-00000003"), &strange);
    let errors = [
        resume(&ours, true, MAX).unwrap_err(),
        resume(&ours, false, MAX).unwrap_err(),
        resume(&strange, true, MAX).unwrap_err(),
        find(&ours, MAX).unwrap_err(),
    ];
    for error in errors {
        let told = error.to_string();
        assert!(
            matches!(error, Error::OtherRun { .. }) && error.is_input_error(),
            "{told}"
        );
        assert!(
            told.contains("step-00000003: belongs to another run"),
            "{told}"
        );
        assert!(told.contains(&other.id), "{told}");
    }
    let checked = check(&ours, MAX).unwrap();
    assert_eq!(checked.checkpoints[0].other_run, Some(other.id.clone()));
    assert!(checked.checkpoints[0].faults.is_empty() && !checked.is_whole());
    // The mends: by its own name, elsewhere; or out of the way.
    let named = resume(&strange, false, MAX).unwrap();
    assert_eq!(named.identity, Some(other));
    fs::rename(&strange, folder.path().join("step-00000003")).unwrap();
    assert_eq!(resume(&ours, true, MAX).unwrap().state.step, 2);

    // A copy is the same run, also of the checkpoints alone.
    let copied = folder.path().join("copied");
    copy(&ours, &copied);
    assert_eq!(
        resume(&copied, true, MAX).unwrap().identity,
        Some(identity.clone())
    );
    fs::remove_file(copied.join(RUN)).unwrap();
    assert_eq!(resume(&copied, true, MAX).unwrap().identity, Some(identity));
    // Of a copy that was cut off, the newest lacks a part.
    let cut_off = folder.path().join("cut-off");
    copy(&ours, &cut_off);
    fs::remove_file(cut_off.join(RUN)).unwrap();
    let newest = cut_off.join(FOLDER).join("step-00000002");
    for name in [RUN, MANIFEST] {
        fs::remove_file(newest.join(name)).unwrap();
    }
    let resumed = resume(&cut_off, true, MAX).unwrap();
    assert_eq!((resumed.state.step, resumed.warnings.len()), (1, 1));
    // In the run of an earlier version, which has none.
    let early = folder.path().join("early");
    run(&early, &[1]);
    assert_eq!(resume(&early, true, MAX).unwrap().identity, None);
    copy(
        &theirs.join(FOLDER).join("step-00000003"),
        &early.join(FOLDER).join("step-00000003"),
    );
    assert!(matches!(
        resume(&early, true, MAX).unwrap_err(),
        Error::OtherRun { .. }
    ));
    fs::write(early.join(RUN), "{").unwrap();
    let told = resume(&early, true, MAX).unwrap_err().to_string();
    assert!(
        told.contains("run.json") && told.ends_with("restore it, or remove it"),
        "{told}"
    );
}

#[test]
fn a_check_reads_every_file_of_every_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path();
    identified(run, &[1, 2, 3]);
    let checked = check(run, MAX).unwrap();
    assert!(checked.is_whole());
    assert_eq!(checked.resumes.unwrap(), 3);
    let steps: Vec<_> = checked.checkpoints.iter().map(|found| found.step).collect();
    assert_eq!(steps, [Some(3), Some(2), Some(1)]);
    assert_eq!(checked.checkpoints[0].files, 6);

    // Two faults of one checkpoint, and one of another.
    let of = |step: u64, name: &str| run.join(FOLDER).join(format!("step-{step:08}")).join(name);
    fs::write(of(3, "optimizer.safetensors"), b"").unwrap();
    fs::remove_file(of(3, STATE)).unwrap();
    fs::write(of(1, ".DS_Store"), b"").unwrap();
    let checked = check(run, MAX).unwrap();
    assert!(!checked.is_whole());
    assert_eq!(checked.resumes.unwrap(), 2);
    let faults = checked.checkpoints.iter().map(|found| {
        let faults = found.faults.iter().map(Fault::to_string);
        faults.collect::<Vec<_>>().join("; ")
    });
    let faults: Vec<String> = faults.collect();
    assert!(faults[0].contains("state.json is missing"), "{faults:?}");
    assert!(
        faults[0].contains("optimizer.safetensors has 0 bytes"),
        "{faults:?}"
    );
    assert_eq!(faults[1], "");
    assert_eq!(faults[2], ".DS_Store is not in the manifest: remove it");
    // One that is named.
    let one = check(&of(2, ""), MAX).unwrap();
    assert!(one.is_whole() && one.checkpoints.len() == 1);
    assert!(matches!(
        check(&run.join("none"), MAX),
        Err(Error::NotARun { .. })
    ));
}

#[test]
fn a_checkpoint_under_another_name_is_one() {
    let folder = tempfile::tempdir().unwrap();
    identified(folder.path(), &[1, 2]);
    let home = folder.path().join(FOLDER);
    for name in [folder.path().join("best-model"), home.join("kept")] {
        fs::rename(home.join("step-00000002"), &name).unwrap();
        let location = locate(&name).unwrap();
        assert!(matches!(location, Location::Checkpoint { step: None, .. }));
        assert_eq!(find(&name, MAX).unwrap().0.step(), 2);
        let resumed = resume(&name, true, MAX).unwrap();
        assert!(resumed.run.is_none() && resumed.state.step == 2);
        fs::rename(&name, home.join("step-00000002")).unwrap();
    }
}

/// Keys of a later version, in a list that vouches for them.
#[test]
fn a_state_of_another_version_is_one_line_with_a_mend() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &[1]);
    let step = folder.path().join(FOLDER).join("step-00000001");
    let key = format!("of\na later version {}", "x".repeat(100_000));
    let state = serde_json::to_vec(&serde_json::Map::from_iter([(key, 1.into())])).unwrap();
    let path = step.join(MANIFEST);
    let mut manifest = Manifest::parse(&fs::read(&path).unwrap()).unwrap();
    let listed = manifest
        .files
        .iter_mut()
        .find(|file| file.name == STATE)
        .unwrap();
    (listed.bytes, listed.sha256) = (state.len() as u64, digest(&state));
    fs::write(step.join(STATE), state).unwrap();
    fs::write(path, manifest.to_bytes().unwrap()).unwrap();
    let checkpoint = newest(folder.path(), MAX).unwrap().checkpoint.unwrap();
    let error = checkpoint.state().unwrap_err();
    let told = error.to_string();
    assert!(
        error.is_input_error() && told.contains("step-00000001: state.json: "),
        "{told}"
    );
    assert!(
        told.ends_with(": use the version of gpipe that wrote it"),
        "{told}"
    );
    assert!(
        told.len() < 600 && !told.contains(char::is_control),
        "{told}"
    );
}

/// As where a large disk holds the checkpoints.
#[cfg(unix)]
#[test]
fn a_linked_folder_of_checkpoints_belongs_to_the_run_in_which_it_lies() {
    use std::os::unix::fs::symlink;

    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let [ours, disk] = ["run", "disk"].map(|name| root.join(name));
    run(&ours, &[1, 2]);
    fs::create_dir(&disk).unwrap();
    let home = ours.join(FOLDER);
    fs::rename(&home, disk.join(FOLDER)).unwrap();
    symlink(disk.join(FOLDER), &home).unwrap();
    symlink(&ours, root.join("last")).unwrap();
    let step = home.join("step-00000002");
    for named in [&ours, &home, &step, &root.join("last/checkpoints")] {
        let resumed = resume(named, true, MAX).unwrap();
        assert_eq!(resumed.state.step, 2);
        assert_eq!(resumed.run.unwrap().path, ours, "{}", named.display());
        let lock = Lock::take(&ours).unwrap();
        let error = resume(named, true, MAX).unwrap_err();
        assert!(matches!(error, Error::Locked { .. }), "{error}");
        drop(lock);
    }
    assert!(!disk.join(".lock").exists());
    // The link stays, for the run that takes the place of this one.
    for _ in 0..2 {
        remove_all(&ours).unwrap();
        assert!(home.is_symlink() && fs::read_dir(&home).unwrap().next().is_none());
    }
    run(&ours, &[1]);
    assert!(disk.join(FOLDER).join("step-00000001").is_dir());
}
