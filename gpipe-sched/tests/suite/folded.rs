//! The schedules folded in a V whose memory is a choice, and DualPipeV: complete at every size, and
//! at the closed forms of their papers.

use gpipe_sched::{Op, Schedule, dualpipe_v, v_half, v_min};

use crate::common::{Plan, assert_transparent, build};
use crate::papers::{live, longest_window, run};
use crate::times::assert_within_slots;

const DEVICES: usize = 16;
const MICRO_BATCHES: usize = 40;

/// All sizes, corners included.
fn sizes() -> impl Iterator<Item = (usize, usize)> {
    (1..=DEVICES).flat_map(|devices| (1..=MICRO_BATCHES).map(move |m| (devices, m)))
}

#[test]
fn every_size_is_complete_ascends_and_lives_in_a_v() {
    for (devices, m) in sizes() {
        for make in [v_half, v_min, dualpipe_v] {
            let schedule = make(devices, m).unwrap();
            let name = format!("K={devices} M={m}");
            assert!(schedule.is_ascending(), "{name}");
            for stage in 0..2 * devices {
                let device = stage.min(2 * devices - 1 - stage);
                assert_eq!(schedule.device_of()[stage], device, "{name}");
                for op in Op::ALL {
                    let order = schedule.of_stage(stage).filter(|action| action.op == op);
                    assert!(order.map(|action| action.micro_batch).is_sorted(), "{name}");
                }
            }
            if devices <= 4 && m <= 9 {
                assert_within_slots(&schedule, &run(&schedule));
            }
        }
    }
}

/// The most that any device holds, in micro-batches of one of its two stages.
fn most(schedule: &Schedule) -> usize {
    live(schedule).into_iter().max().unwrap()
}

#[test]
fn v_half_holds_half_as_much_as_1f1b_and_idles_half_as_long() {
    for (devices, m) in sizes() {
        let schedule = v_half(devices, m).unwrap();
        let name = format!("K={devices} M={m}");
        let bound = 2 * ((devices + 2) / 2);
        assert!(most(&schedule) <= bound.min(2 * m), "{name}");
        if m < devices {
            continue;
        }
        assert_eq!(most(&schedule), bound, "{name}");
        let idle = match devices {
            1 | 2 => devices - 1,
            _ if devices % 2 == 0 => 3 * devices - 7,
            _ => 3 * devices - 4,
        };
        assert_eq!(run(&schedule).makespan(), (6 * m + idle) as f64, "{name}");
    }
}

#[test]
fn v_min_holds_a_third_of_1f1b_and_idles_two_thirds_as_long() {
    for (devices, m) in sizes() {
        let schedule = v_min(devices, m).unwrap();
        let name = format!("K={devices} M={m}");
        let bound = 2 * ((devices + 4) / 3);
        assert!(most(&schedule) <= bound.min(2 * m), "{name}");
        if m < devices {
            continue;
        }
        assert_eq!(most(&schedule), bound, "{name}");
        let idle = match devices {
            1 | 2 => devices - 1,
            _ if devices % 3 == 0 => 4 * devices - 7,
            _ => 4 * devices - 5,
        };
        let makespan = run(&schedule).makespan();
        assert!(makespan <= (6 * m + idle) as f64, "{name}");
        assert!(m == devices || makespan == (6 * m + idle) as f64, "{name}");
    }
}

#[test]
fn no_size_idles_longer_than_one_micro_batch_takes() {
    for (devices, m) in sizes() {
        for make in [v_half, v_min] {
            let makespan = run(&make(devices, m).unwrap()).makespan();
            assert!(
                makespan <= (6 * m + 4 * devices) as f64,
                "K={devices} M={m}"
            );
        }
    }
}

#[test]
fn dualpipe_v_idles_at_its_ends_alone() {
    for (devices, m) in sizes() {
        let schedule = dualpipe_v(devices, m).unwrap();
        let name = format!("K={devices} M={m}");
        assert!(most(&schedule) <= (2 * devices + 1).min(2 * m), "{name}");
        if m >= 2 * devices {
            let window = longest_window(&run(&schedule));
            // Between its first action and its last, too, some device waits as long.
            assert_eq!(window, (6 * m + devices - 1) as f64, "{name}");
            assert_eq!(run(&schedule).makespan(), window, "{name}");
        }
    }
}

#[test]
fn many_devices_cost_no_more_than_their_actions() {
    for make in [v_half, v_min, dualpipe_v] {
        let schedule = make(20_000, 1).unwrap();
        assert_eq!(schedule.stages(), 40_000);
    }
}

#[test]
fn the_executor_runs_them_and_changes_nothing() {
    for (devices, m) in [(1, 1), (1, 5), (2, 3), (3, 1), (3, 2), (3, 7), (4, 8)] {
        for make in [v_half, v_min, dualpipe_v] {
            let mut pipeline = build(make(devices, m).unwrap(), &Plan::default()).unwrap();
            for step in 0..2 {
                assert_transparent(&mut pipeline, step);
            }
        }
    }
}
