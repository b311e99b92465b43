//! On the disk of this machine: saved in the background, found, restored under another cut, and
//! refused where it does not fit.

use std::fs;
use std::path::Path;
use std::time::Duration;

use gpipe_layers::Sgd;
use gpipe_remat::lend_owned;
use gpipe_tensor::DeviceId;

use super::pipeline::{OPTIMIZER, WEIGHTS, assembled, of_width};
use super::runs::{MAX, as_they_are, bits, restore, run, saver, snapshot};
use crate::{
    Best, CONFIG, Error, FOLDER, Fault, Location, MODEL, STATE, find, last_run, locate, newest,
    remove_all, resume, unsaved_since,
};

#[test]
fn what_is_saved_under_one_cut_is_restored_under_another() {
    let folder = tempfile::tempdir().unwrap();
    let mut before = run(folder.path(), &[7]);
    let found = newest(folder.path(), MAX).unwrap();
    assert!(found.warnings().is_empty());
    let checkpoint = found.checkpoint.unwrap();
    assert_eq!(checkpoint.step(), 7);
    assert_eq!(
        checkpoint.folder(),
        folder.path().join(FOLDER).join("step-00000007")
    );
    let state = checkpoint.state().unwrap();
    assert_eq!((state.step, state.samples), (7, 56));
    assert_eq!(checkpoint.read(CONFIG).unwrap(), b"[run]\n");
    let names: Vec<&str> = checkpoint
        .manifest()
        .files
        .iter()
        .map(|file| file.name.as_str())
        .collect();
    assert_eq!(names, [CONFIG, STATE, "optimizer.safetensors", WEIGHTS]);
    assert!(checkpoint.folder().join(MODEL).is_dir());

    // Another seed and another cut: every number differs before.
    let mut other = assembled(3);
    assert_ne!(bits(&mut before), bits(&mut other));
    restore(&checkpoint, &mut other).unwrap();
    assert_eq!(bits(&mut before), bits(&mut other));
}

#[test]
fn what_does_not_fit_or_has_changed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &[7]);
    let checkpoint = newest(folder.path(), MAX).unwrap().checkpoint.unwrap();
    let mut wide = of_width(8, 2);
    let before = bits(&mut wide);
    let error = restore(&checkpoint, &mut wide).unwrap_err();
    assert!(error.is_input_error());
    let told = error.to_string();
    assert!(told.contains("step-00000007: model/model.safetensors: parameter "));
    assert_eq!(bits(&mut wide), before);

    let device = wide.transit.host().device(DeviceId::Cpu).unwrap();
    let mut other = assembled(1);
    for (files, end) in [
        (&["model/none"][..], "model/none is missing"),
        (&[], "no file of weights to restore from: name one or more"),
    ] {
        let pipeline = &mut other.pipeline;
        let error = checkpoint.restore(files, as_they_are, pipeline, &OPTIMIZER, &device);
        let told = error.unwrap_err().to_string();
        assert!(told.ends_with(end), "{told}");
    }

    // The states are of parameters that are there, but not of this optimizer.
    let momentum = Sgd {
        momentum: 0.9,
        ..Sgd::default()
    };
    let restored = checkpoint.restore(
        &[WEIGHTS],
        as_they_are,
        &mut other.pipeline,
        &momentum.into(),
        &device,
    );
    let told = restored.unwrap_err().to_string();
    assert!(
        told.contains(".exp_avg` is no state that this optimizer keeps")
            && told.lines().count() == 1,
        "{told}"
    );

    // After it was found.
    let weights = checkpoint.folder().join(WEIGHTS);
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    let error = restore(&checkpoint, &mut other).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("model/model.safetensors does not have its digest")
    );
}

#[test]
fn a_run_goes_on_in_place_and_leaves_what_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &[1, 2]);
    let home = folder.path().join(FOLDER);
    let optimizer = home.join("step-00000002/optimizer.safetensors");
    fs::write(&optimizer, b"").unwrap();
    for in_place in [false, true] {
        let resumed = resume(folder.path(), in_place, MAX).unwrap();
        assert_eq!((resumed.state.step, resumed.checkpoint.step()), (1, 1));
        let [warning] = &resumed.warnings[..] else {
            panic!("{:?}", resumed.warnings)
        };
        assert!(
            warning.starts_with("step-00000002 is not whole: optimizer.safetensors has 0 bytes")
        );
        assert_eq!(resumed.run.is_some(), in_place);
    }
    let resumed = resume(&home, true, MAX).unwrap();
    let error = resume(folder.path(), true, MAX).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }));
    let [warning] = &resumed.warnings[..] else {
        panic!("{:?}", resumed.warnings)
    };
    assert!(
        warning.ends_with("; it stays until the run saves step 2 again"),
        "{warning}"
    );
    drop(resumed);
    assert_eq!(fs::read(&optimizer).unwrap(), b"");
    // The pointer says that there was a newer one.
    fs::remove_dir_all(home.join("step-00000002")).unwrap();
    let found = newest(folder.path(), MAX).unwrap();
    assert_eq!(found.missing, Some(2));
    assert_eq!(found.warnings(), ["step-00000002, the latest, is missing"]);
}

#[test]
fn only_the_newest_goes_on_in_place() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &[1, 2]);
    let older = folder.path().join(FOLDER).join("step-00000001");
    let error = resume(&older, true, MAX).unwrap_err();
    assert!(matches!(error, Error::NotNewest { newest: 2, .. }));
    assert!(error.to_string().contains("step-00000002 is newer"));
    let resumed = resume(&older, false, MAX).unwrap();
    assert_eq!(resumed.state.step, 1);
    assert!(resumed.run.is_none());
    let newest = folder.path().join(FOLDER).join("step-00000002");
    assert_eq!(resume(&newest, true, MAX).unwrap().state.step, 2);
    // Outside of a run there is nothing to go on in.
    let copied = folder.path().join("step-00000001");
    fs::rename(&older, &copied).unwrap();
    assert!(resume(&copied, true, MAX).unwrap().run.is_none());
}

#[test]
fn every_refusal_names_the_folder_and_a_mend() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("empty/checkpoints")).unwrap();
    fs::create_dir(path("nothing")).unwrap();
    // A run that ended before it saved.
    fs::create_dir(path("killed")).unwrap();
    fs::write(path("killed/run.json"), b"{}").unwrap();
    fs::write(path("file"), b"").unwrap();
    for (name, words) in [
        ("none", "name the folder of a run or of a checkpoint"),
        ("file", "is no folder: name the folder of a run"),
        ("nothing", "it holds no checkpoints: name"),
        ("empty", "it holds no checkpoint: name another run"),
        ("killed", "it holds no checkpoint: name another run"),
    ] {
        let error = find(&path(name), MAX).unwrap_err();
        let told = error.to_string();
        assert!(error.is_input_error());
        assert!(
            told.starts_with(&path(name).display().to_string()),
            "{told}"
        );
        assert!(told.contains(words), "{told}");
    }
    run(&path("run"), &[3]);
    let step = path("run/checkpoints/step-00000003");
    assert_eq!(find(&step, MAX).unwrap().0.step(), 3);
    assert!(matches!(
        locate(&step).unwrap(),
        Location::Checkpoint { step: Some(3), .. }
    ));
    assert_eq!(
        locate(&path("run")).unwrap(),
        Location::Run(path("run").clone())
    );
    let error = find(&step, 10).unwrap_err();
    let Error::Refused {
        fault: Fault::TooLarge { there: 10, .. },
        ..
    } = error
    else {
        panic!("{error}")
    };
    fs::remove_file(step.join(STATE)).unwrap();
    let error = find(&path("run"), MAX).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no checkpoint is whole: step-00000003 is not whole: state.json is missing")
    );
    let error = find(&step, MAX).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("the run's folder instead finds the newest that is whole")
    );
}

/// It was killed before its first save, or has not come to it.
#[test]
fn a_run_that_began_later_and_has_not_saved_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let begin = |name: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.join(FOLDER)).unwrap();
        fs::write(path.join(CONFIG), "").unwrap();
        std::thread::sleep(Duration::from_millis(20));
        path
    };
    begin("earlier");
    let saved = begin("saved");
    run(&saved, &[1]);
    assert_eq!(unsaved_since(folder.path(), &saved), None);
    let later = begin("later");
    fs::create_dir(folder.path().join("empty")).unwrap();
    assert_eq!(last_run(folder.path()), Some(saved.clone()));
    assert_eq!(unsaved_since(folder.path(), &saved), Some(later));
    // It was resumed since.
    begin("saved");
    assert_eq!(unsaved_since(folder.path(), &saved), None);
}

#[test]
fn the_run_that_saved_last_is_found_and_its_checkpoints_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(last_run(&folder.path().join("none")), None);
    fs::create_dir(folder.path().join("empty")).unwrap();
    assert_eq!(last_run(folder.path()), None);
    for name in ["b", "a"] {
        run(&folder.path().join(name), &[1]);
        assert_eq!(last_run(folder.path()), Some(folder.path().join(name)));
        std::thread::sleep(Duration::from_millis(20));
    }
    let home = folder.path().join("a").join(FOLDER);
    fs::write(home.join("notes.txt"), b"mine").unwrap();
    remove_all(&folder.path().join("a")).unwrap();
    let left: Vec<_> = fs::read_dir(&home)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["notes.txt"]);
    remove_all(&folder.path().join("b")).unwrap();
    assert!(!folder.path().join("b").join(FOLDER).exists());
    remove_all(&folder.path().join("b")).unwrap();
}

#[test]
fn one_copy_of_the_parameters_is_made_and_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let mut assembled = assembled(2);
    let copies = assembled.transit.host().device(DeviceId::Cpu).unwrap();
    let mut saver = saver(folder.path(), 1);
    let mut snapshot = snapshot(1, &mut assembled);
    snapshot.lent = lend_owned(&mut assembled.pipeline, &copies).unwrap().0;
    let tensors = (snapshot.lent.params)
        .iter()
        .flat_map(|param| std::iter::once(&param.value).chain(&param.state));
    let once: u64 = tensors.map(|tensor| tensor.bytes() as u64).sum();
    assert_eq!(copies.live_bytes(), once);
    saver.save(snapshot).unwrap();
    saver.finish().unwrap().unwrap();
    assert_eq!((copies.live_bytes(), copies.peak_bytes()), (0, once));
}

#[test]
fn nothing_is_written_where_none_are_kept_and_errors_of_the_model_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut assembled = assembled(1);
    let mut none = saver(folder.path(), 0);
    none.save(snapshot(1, &mut assembled)).unwrap();
    assert!(none.finish().unwrap().is_none());
    assert!(!folder.path().join(FOLDER).exists());

    let mut saver = saver(folder.path(), 1);
    let mut fails = snapshot(1, &mut assembled);
    fails.model = Box::new(|_| Err("no tokenizer".into()));
    saver.save(fails).unwrap();
    let error = saver.finish().unwrap_err();
    assert!(error.to_string().starts_with(
        "the checkpoint of step 1 was not saved, and none before it was changed: the files of a checkpoint"
    ));
    assert!(error.to_string().ends_with("no tokenizer"));
    let mut panics = snapshot(2, &mut assembled);
    panics.model = Box::new(|_| panic!("planted"));
    saver.save(panics).unwrap();
    let error = saver.finish().unwrap_err();
    assert!(error.to_string().ends_with("panicked"));
    saver.save(snapshot(3, &mut assembled)).unwrap();
    assert_eq!(saver.finish().unwrap().unwrap().step, 3);
}

/// It is in the way, and no damage: an older checkpoint would take the place of one that is whole.
#[cfg(target_os = "linux")]
#[test]
fn a_strange_file_whose_name_is_no_text_is_refused() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &[1, 2]);
    let newest_folder = folder.path().join(FOLDER).join("step-00000002");
    let places = [newest_folder.join(MODEL), newest_folder];
    let names = [&b"a\xff"[..], b"a\xff\nb", b"a\nb"];
    for strange in places
        .iter()
        .flat_map(|place| names.map(|name| place.join(OsStr::from_bytes(name))))
    {
        fs::write(&strange, "").unwrap();
        let error = newest(folder.path(), MAX).unwrap_err();
        let is_extra = |fault: &Fault| matches!(fault, Fault::Extra(_));
        assert!(
            matches!(&error, Error::Refused { fault, .. } if is_extra(fault)),
            "{error}"
        );
        assert!(!error.to_string().contains('\n'), "{error}");
        fs::remove_file(strange).unwrap();
    }
}

/// Old checkpoints and remains of saves are deleted with what others put there.
#[cfg(target_os = "linux")]
#[test]
fn folders_whose_names_are_no_text_are_deleted() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let folder = tempfile::tempdir().unwrap();
    let mut assembled = run(folder.path(), &[1]);
    let home = folder.path().join(FOLDER);
    let strange = |place: &Path, name: &[u8]| {
        let inner = place.join(OsStr::from_bytes(name));
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join(OsStr::from_bytes(b"b\xff")), "").unwrap();
    };
    strange(&home.join("step-00000001"), b"a\xff");
    strange(&home, b".partial-\xff");
    let mut saver = saver(folder.path(), 1);
    saver.save(snapshot(2, &mut assembled)).unwrap();
    assert_eq!(saver.finish().unwrap().unwrap().trouble, None);
    let names = fs::read_dir(&home).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["best", "latest", "step-00000002"]);

    strange(&home.join("step-00000002"), b"a\xff");
    strange(&home, b"damaged-\xff");
    remove_all(folder.path()).unwrap();
    assert!(!home.exists());
}

/// JSON has no such numbers.
#[test]
fn a_best_loss_that_is_not_finite_is_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    for (step, loss) in [(1, f64::NAN), (2, f64::INFINITY)] {
        let mut assembled = assembled(1);
        let mut snapshot = snapshot(step, &mut assembled);
        snapshot.state.best = Some(Best { step, loss });
        let mut saver = saver(folder.path(), 10);
        saver.save(snapshot).unwrap();
        saver.finish().unwrap();
        let found = newest(folder.path(), MAX).unwrap().checkpoint.unwrap();
        assert_eq!(found.state().unwrap().best, None);
    }
}
