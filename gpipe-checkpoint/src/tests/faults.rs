//! Every call of the writer fails in every way: the old checkpoint stands, the error is reported, and the
//! next save works.

use super::disk::{MemoryDisk, PlantedFault};
use super::{MEMORY, commit_placed, contents, disk, home, newest_step};
use crate::failure::Failure;
use crate::fault::Fault;
use crate::search::newest_on;
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
    let tried = fails_everywhere(|disk| commit(disk, home(), 4, &contents(4), None));
    assert!(tried > 500, "{tried}");
    let by_ranks = fails_everywhere(|disk| {
        let second = disk.clone();
        commit_placed(disk, second, 4, false)
    });
    assert!(by_ranks > 500, "{by_ranks}");
    let tried = tried + by_ranks;
    println!("exam C4 {tried}/{tried}");
}

/// How many faults were tried of this save of step 4.
fn fails_everywhere(save: impl Fn(&mut MemoryDisk) -> Result<u64, Failure>) -> usize {
    let mut tried = 0;
    let clean = disk(&[1, 2, 3]);
    for (name, error) in ERRORS {
        for stays in [false, true] {
            let mut at = 0;
            loop {
                let mut disk = clean.copy();
                disk.plant(Some(PlantedFault { at, stays, error }));
                let saved = save(&mut disk);
                let pruned = saved
                    .is_ok()
                    .then(|| prune(&mut disk, home(), u64::MAX, 2, Some(1)));
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
                commit(&mut disk, home(), next, &contents(next), None).expect(&case);
                assert_eq!(newest_step(&disk), Some(next), "{case}");
                if !reached {
                    break;
                }
                (at, tried) = (at + 1, tried + 1);
            }
        }
    }
    tried
}

/// No checkpoint is called damaged, and no older one taken, because a file cannot be read now.
#[test]
fn a_checkpoint_that_cannot_be_read_is_refused_by_name() {
    for (error, number) in ERRORS
        .into_iter()
        .filter_map(|(name, error)| Some((name, error?)))
    {
        let mut at = 0;
        loop {
            let disk = disk(&[1, 2]);
            let stays = false;
            disk.plant(Some(PlantedFault {
                at,
                stays,
                error: Some(number),
            }));
            let found = newest_on(&disk, home(), MEMORY);
            if disk.calls() <= at {
                break;
            }
            let case = format!("{error} at call {at}");
            at += 1;
            let Ok(mut found) = found else {
                // The folder of checkpoints itself.
                assert_eq!(at, 1, "{case}");
                continue;
            };
            assert!(found.skipped.is_empty(), "{case}: {:?}", found.skipped);
            let step = found.checkpoint.map(|checkpoint| checkpoint.step());
            match found.refused.take() {
                Some(refused) => {
                    let Fault::Unreadable { .. } = refused.fault else {
                        panic!("{case}: {refused}");
                    };
                    assert_eq!((step, refused.step), (None, 2), "{case}");
                    assert_ne!(error, "EINTR", "{case}");
                }
                None => assert_eq!(step, Some(2), "{case}"),
            }
        }
        assert!(at > 10, "{at} calls");
    }
}
