//! Every call of the writer fails in every way: the old checkpoint stands, the error is reported, and the
//! next save works.

use super::disk::PlantedFault;
use super::{disk, files, home, newest_step};
use crate::write::{commit, prune};

/// What Linux calls the errors, by their numbers; `None` is a write that takes half of its bytes.
const ERRORS: [(&str, Option<i32>); 7] = [
    ("ENOSPC", Some(28)),
    ("EIO", Some(5)),
    ("EINTR", Some(4)),
    ("EROFS", Some(30)),
    ("EACCES", Some(13)),
    ("EDQUOT", Some(122)),
    ("short write", None),
];

#[test]
fn the_old_checkpoint_stands_whatever_fails() {
    let mut tried = 0;
    let clean = disk(&[1, 2, 3]);
    for (name, error) in ERRORS {
        for stays in [false, true] {
            let mut at = 0;
            loop {
                let mut disk = clean.copy();
                disk.plant(Some(PlantedFault { at, stays, error }));
                let saved = commit(&mut disk, home(), 4, &files(4));
                let pruned = saved.is_ok().then(|| prune(&mut disk, home(), 2, Some(1)));
                let reached = disk.calls() > at;
                disk.plant(None);
                let case = format!("{name} at call {at}, stays: {stays}");
                let found = newest_step(&disk);
                match &saved {
                    Ok(_) => assert_eq!(found, Some(4), "{case}"),
                    Err(failure) => {
                        // After the rename the new one may stand although its name is not yet safe.
                        assert!(matches!(found, Some(3 | 4)), "{case}: {found:?}");
                        let told = failure.to_string();
                        assert!(
                            told.starts_with("cannot ") && told.contains("/run"),
                            "{told}"
                        );
                    }
                }
                // What passes by itself is nobody's concern.
                if error.is_none() || name == "EINTR" && !stays {
                    assert!(saved.is_ok() && matches!(pruned, Some(Ok(()))), "{case}");
                }
                let next = if found == Some(4) { 5 } else { 4 };
                commit(&mut disk, home(), next, &files(next)).expect(&case);
                assert_eq!(newest_step(&disk), Some(next), "{case}");
                if !reached {
                    break;
                }
                (at, tried) = (at + 1, tried + 1);
            }
        }
    }
    assert!(tried > 500, "{tried}");
    println!("exam C4 {tried}/{tried}");
}
