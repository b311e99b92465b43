//! What is refused, what is written, and what is said.

use std::fs;
use std::io::Write;

use gpipe_files::{
    Fault, Links, append, create_new, open_options, open_regular, read_capped, remove_if_exists,
    replace, replace_durably, replace_with, separate, sync_folder,
};

const MEND: &str = "name another";

#[test]
fn a_file_is_read_up_to_its_cap() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, b"abc").unwrap();
    assert_eq!(read_capped(&path, 3, Links::Refused, MEND).unwrap(), b"abc");
    let error = read_capped(&path, 2, Links::Refused, MEND).unwrap_err();
    assert!(matches!(
        error.fault(),
        Fault::TooLarge { bytes: 3, cap: 2 }
    ));
    assert_eq!(
        error.to_string(),
        format!(
            "{}: 3 bytes are too many: 2 are the most that is read: name another",
            path.display()
        )
    );
    assert!(error.is_input_error() && !error.is_not_found());
}

#[test]
fn what_is_missing_is_told_with_its_mend() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none");
    let error = open_regular(&path, Links::Followed, MEND).unwrap_err();
    assert!(error.is_not_found() && error.is_input_error());
    let told = error.to_string();
    assert!(told.starts_with(&format!("{}: ", path.display())), "{told}");
    assert!(told.ends_with(": name another"), "{told}");
    assert_eq!(error.path(), path);
}

#[test]
fn folders_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = open_regular(folder.path(), Links::Followed, MEND).unwrap_err();
    assert!(matches!(error.fault(), Fault::NotRegular));
    assert!(
        error
            .to_string()
            .ends_with(": is no regular file: name another")
    );
    let error = error.with_mend("remove it");
    assert!(
        error
            .to_string()
            .ends_with(": is no regular file: remove it")
    );
}

#[cfg(unix)]
#[test]
fn links_and_devices_are_refused() {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    fs::write(&file, b"abc").unwrap();
    symlink(&file, &link).unwrap();
    assert_eq!(open_regular(&link, Links::Followed, MEND).unwrap().1, 3);
    let error = open_regular(&link, Links::Refused, MEND).unwrap_err();
    assert!(matches!(error.fault(), Fault::Link));
    assert!(
        error
            .to_string()
            .ends_with(": is a link: put the file itself in its place")
    );
    let error = open_regular(Path::new("/dev/zero"), Links::Followed, MEND).unwrap_err();
    assert!(matches!(error.fault(), Fault::NotRegular));

    // Neither the link nor what it points to is changed.
    for error in [
        replace(&link, b"new").unwrap_err(),
        append(&link).unwrap_err(),
    ] {
        assert!(matches!(error.fault(), Fault::Link) && error.is_input_error());
        let told = error.to_string();
        assert!(
            told.ends_with(": is a link: remove it, or choose another name"),
            "{told}"
        );
    }
    assert_eq!(fs::read(&file).unwrap(), b"abc");
    assert!(link.is_symlink());
    fs::remove_file(&link).unwrap();
    symlink(folder.path().join("none"), &link).unwrap();
    assert!(create_new(&link).is_err());
}

#[test]
fn a_file_is_replaced_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for bytes in [&b"first"[..], b"", b"third"] {
        replace(&path, bytes).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
    // A folder of that name stays, and nothing is left beside it.
    let taken = folder.path().join("folder");
    fs::create_dir(&taken).unwrap();
    let error = replace(&taken, b"x").unwrap_err();
    assert!(matches!(error.fault(), Fault::NotRegular) && error.is_input_error());
    // Nor is anything left of a file that fails on its way.
    let error = replace_with(&path, |file| {
        file.write_all(b"half")?;
        Err(std::io::Error::other("disk full"))
    });
    assert_eq!(fs::read(&path).unwrap(), b"third");
    assert_eq!(
        error.unwrap_err().to_string(),
        format!("cannot write {}: disk full", path.display())
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    let error = replace(&folder.path().join("none/file"), b"x").unwrap_err();
    assert!(matches!(error.fault(), Fault::Write(_)) && !error.is_input_error());
}

/// A secret stays one, and what others may write they still may, whatever the umask.
#[cfg(unix)]
#[test]
fn a_file_is_replaced_by_one_of_its_permissions() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, b"old").unwrap();
    for mode in [0o600, 0o666, 0o440, 0o755] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        replace(&path, b"new").unwrap();
        replace_durably(&path, b"newer").unwrap();
        let found = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{found:o}");
    }
}

#[test]
fn a_name_may_be_as_long_as_names_may_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("n".repeat(255));
    fs::write(&path, b"old").unwrap();
    replace(&path, b"new").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
}

/// A pipe without a reader or writer: opening it in the ordinary way waits for ever.
#[cfg(unix)]
#[test]
fn pipes_are_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let errors = [
        replace(&pipe, b"x").unwrap_err(),
        append(&pipe).unwrap_err(),
        open_regular(&pipe, Links::Refused, MEND).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error.fault(), Fault::NotRegular), "{error}");
    }
    // Where a pipe takes the name after the look.
    open_options(Links::Refused).read(true).open(&pipe).unwrap();
    assert!(
        open_options(Links::Refused)
            .append(true)
            .open(&pipe)
            .is_err()
    );
}

#[cfg(unix)]
#[test]
fn a_file_of_two_names_is_separated_before_it_grows() {
    let folder = tempfile::tempdir().unwrap();
    let [here, there] = ["here", "there"].map(|name| folder.path().join(name));
    fs::write(&here, b"abc").unwrap();
    fs::hard_link(&here, &there).unwrap();
    for _ in 0..2 {
        separate(&here).unwrap();
        append(&here).unwrap().write_all(b"d").unwrap();
    }
    separate(&folder.path().join("none")).unwrap();
    assert_eq!(fs::read(&here).unwrap(), b"abcdd");
    assert_eq!(fs::read(&there).unwrap(), b"abc");
}

#[test]
fn what_a_killed_process_left_is_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let left = format!(".gpipe-{}-0.new", std::process::id());
    fs::write(folder.path().join(&left), b"half").unwrap();
    replace(&path, b"whole").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"whole");
    assert_eq!(fs::read(folder.path().join(left)).unwrap(), b"half");
}

#[test]
fn files_are_made_once_and_removed_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    create_new(&path).unwrap();
    assert!(create_new(&path).is_err());
    assert!(remove_if_exists(&path).unwrap());
    assert!(!remove_if_exists(&path).unwrap());
    assert!(remove_if_exists(folder.path()).is_err());
    sync_folder(folder.path()).unwrap();
    assert!(cfg!(not(unix)) || sync_folder(&path).is_err());
}
