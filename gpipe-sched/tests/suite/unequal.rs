//! Devices that differ, and the update at the end of a step.

use gpipe_sched::{
    Costs, CostsError, gpipe, interleaved, one_f_one_b, simulate, step_seconds, zero_bubble,
};

#[test]
fn a_device_twice_as_fast_takes_half_the_time() {
    let schedule = gpipe(2, 3).unwrap();
    let even = Costs::even(2, 1.0, 2.0);
    let faster = even.clone().with_speeds(vec![2.0, 2.0]);
    let slower = even.clone().with_speeds(vec![1.0, 0.5]);
    let makespan = |costs: &Costs| simulate(&schedule, costs).unwrap().makespan();
    assert_eq!(makespan(&faster), makespan(&even) / 2.0);
    // Stage 1 takes 2 forward and 4 back: after the first F, 3 of each, and the last B.
    assert_eq!(makespan(&slower), 1.0 + 3.0 * 2.0 + 3.0 * 4.0 + 2.0);
}

#[test]
fn speeds_are_of_devices_not_of_stages() {
    let schedule = interleaved(2, 2, 2).unwrap();
    let costs = Costs::even(4, 1.0, 2.0).with_speeds(vec![1.0, 4.0]);
    let timeline = simulate(&schedule, &costs).unwrap();
    assert_eq!((timeline.busy(0), timeline.busy(1)), (12.0, 3.0));
}

#[test]
fn the_update_waits_for_all_and_for_the_slowest() {
    let schedule = interleaved(2, 2, 2).unwrap();
    let costs = Costs::even(4, 1.0, 2.0);
    let makespan = simulate(&schedule, &costs).unwrap().makespan();
    let updates = costs.clone().with_updates(vec![1.0, 2.0, 3.0, 4.0]);
    assert_eq!(step_seconds(&schedule, &costs), Ok(makespan));
    assert_eq!(step_seconds(&schedule, &updates), Ok(makespan + 6.0));
    let speeds = updates.with_speeds(vec![1.0, 2.0]);
    let makespan = simulate(&schedule, &speeds).unwrap().makespan();
    assert_eq!(step_seconds(&schedule, &speeds), Ok(makespan + 4.0));
}

#[test]
fn the_search_follows_the_speeds() {
    let costs = Costs::even(3, 1.0, 2.0).with_speeds(vec![1.0, 0.5, 2.0]);
    let greedy = zero_bubble(3, 9, &costs, |_| 3).unwrap();
    let seconds = |schedule| simulate(schedule, &costs).unwrap().makespan();
    assert!(seconds(&greedy) < seconds(&one_f_one_b(3, 9).unwrap()));
}

#[test]
fn speeds_that_are_none_are_refused() {
    let schedule = gpipe(2, 3).unwrap();
    let costs = Costs::even(2, 1.0, 2.0);
    for value in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-310] {
        let speeds = costs.clone().with_speeds(vec![1.0, value]);
        let refused = simulate(&schedule, &speeds).unwrap_err();
        assert!(
            matches!(refused, CostsError::Speed { index: 1, .. }),
            "{refused}"
        );
    }
    let refused = simulate(&schedule, &costs.clone().with_speeds(vec![1.0; 3])).unwrap_err();
    assert!(
        matches!(
            refused,
            CostsError::Count {
                what: "devices",
                ..
            }
        ),
        "{refused}"
    );
    let refused = simulate(&schedule, &costs.with_updates(vec![1.0, -1.0])).unwrap_err();
    assert!(
        matches!(refused, CostsError::Number { what: "update", .. }),
        "{refused}"
    );
}
