//! Stages with faults of their own: the tests of failures notice each.

use std::time::Duration;

use gpipe_sched::one_f_one_b;

use super::{ends, fails_everywhere};
use crate::common::{Plan, Planted};

#[test]
fn every_planted_fault_is_caught() {
    let caught = |planted, limit| {
        let schedule = one_f_one_b(3, 3).unwrap();
        let ended = ends(limit, move |survived| {
            fails_everywhere(&schedule, &Plan::faulty(planted), survived);
        });
        ended.is_none()
    };
    assert!(
        !caught(None, Duration::from_secs(60)),
        "no fault was planted"
    );
    let faults = Planted::ALL;
    for planted in faults {
        // What is stuck stays so: any limit will do.
        let limit = match planted {
            Planted::Stuck => Duration::from_millis(300),
            _ => Duration::from_secs(60),
        };
        assert!(caught(Some(planted), limit), "{planted:?} went unseen");
    }
    println!("exam F1 teeth {0}/{0}", faults.len());
}
