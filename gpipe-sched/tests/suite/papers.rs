//! The schedules with several chunks a device or a split backward pass: valid at every size, and at
//! the papers' closed forms for time and memory.

use gpipe_sched::{
    Action, Costs, Fault, Op, Schedule, ScheduleError, StageCosts, Timeline, interleaved,
    looped_bfs, one_f_one_b, simulate, zb_h1, zb_h2, zb_v,
};

use crate::common::{Plan, assert_transparent, build};
use crate::times::assert_within_slots;

const DEVICES: usize = 8;
const CHUNKS: usize = 4;
const MICRO_BATCHES: usize = 32;

/// All sizes, corners included: fewer micro-batches than devices, one of anything, no multiples.
fn sizes() -> impl Iterator<Item = (usize, usize)> {
    (1..=DEVICES).flat_map(|devices| (1..=MICRO_BATCHES).map(move |m| (devices, m)))
}

/// Every builder at every size, with its name.
fn all() -> impl Iterator<Item = (String, Schedule)> {
    type Chunked = fn(usize, usize, usize) -> Result<Schedule, ScheduleError>;
    type Plain = fn(usize, usize) -> Result<Schedule, ScheduleError>;
    const CHUNKED: [(&str, Chunked); 2] = [("interleaved", interleaved), ("bfs", looped_bfs)];
    const PLAIN: [(&str, Plain); 3] = [("zb-h1", zb_h1), ("zb-h2", zb_h2), ("zb-v", zb_v)];
    sizes().flat_map(|(devices, m)| {
        let chunked = CHUNKED.into_iter().flat_map(move |(name, make)| {
            (1..=CHUNKS).map(move |chunks| {
                let name = format!("{name} K={devices} V={chunks} M={m}");
                (name, make(devices, chunks, m).unwrap())
            })
        });
        let plain = PLAIN.into_iter().map(move |(name, make)| {
            (
                format!("{name} K={devices} M={m}"),
                make(devices, m).unwrap(),
            )
        });
        chunked.chain(plain)
    })
}

/// Every action takes one unit, a `B` two.
pub fn run(schedule: &Schedule) -> Timeline {
    simulate(schedule, &Costs::even(schedule.stages(), 1.0, 2.0)).unwrap()
}

/// The longest time from a device's first action to its last: what zero-bubble papers call the cost
/// of a step, because without a barrier the next one can begin on the devices that are done.
pub fn longest_window(timeline: &Timeline) -> f64 {
    let window = |device| {
        let spans = timeline.of_device(device);
        spans[spans.len() - 1].end - spans[0].start
    };
    (0..timeline.devices()).map(window).fold(0.0, f64::max)
}

/// The most micro-batches of all its stages that each device has in memory at once.
pub fn live(schedule: &Schedule) -> Vec<usize> {
    let peak = |lane: &Vec<Action>| {
        let (mut live, mut peak) = (0_usize, 0);
        for action in lane {
            live += usize::from(action.op == Op::Forward);
            peak = peak.max(live);
            live -= usize::from(action.op.adds_gradient());
        }
        peak
    };
    schedule.lanes().iter().map(peak).collect()
}

#[test]
fn every_size_is_complete_and_ascends() {
    let mut cases = 0;
    for (name, schedule) in all() {
        assert!(
            schedule.is_ascending() && !schedule.is_forward_only(),
            "{name}"
        );
        let split = name.starts_with("zb");
        let ops = if split { 3 } else { 2 };
        for stage in 0..schedule.stages() {
            let actions: Vec<Action> = schedule.of_stage(stage).collect();
            assert_eq!(actions.len(), ops * schedule.micro_batches(), "{name}");
            // All that goes back ascends, not only what adds to the gradients.
            for op in Op::ALL {
                let order = actions.iter().filter(|action| action.op == op);
                assert!(order.map(|action| action.micro_batch).is_sorted(), "{name}");
            }
        }
        cases += 1;
    }
    assert_eq!(cases, DEVICES * MICRO_BATCHES * (2 * CHUNKS + 3));
}

#[test]
fn what_is_in_flight_fits_the_slots() {
    let is_small = |schedule: &Schedule| schedule.devices() <= 4 && schedule.micro_batches() <= 9;
    for (_, schedule) in all().filter(|(_, schedule)| is_small(schedule)) {
        assert_within_slots(&schedule, &run(&schedule));
    }
}

#[test]
fn stages_are_dealt_out_or_folded() {
    assert_eq!(
        interleaved(3, 2, 4).unwrap().device_of(),
        [0, 1, 2, 0, 1, 2]
    );
    assert_eq!(looped_bfs(2, 3, 4).unwrap().device_of(), [0, 1, 0, 1, 0, 1]);
    assert_eq!(zb_h1(3, 4).unwrap().device_of(), [0, 1, 2]);
    assert_eq!(zb_h2(3, 4).unwrap().device_of(), [0, 1, 2]);
    assert_eq!(zb_v(3, 4).unwrap().device_of(), [0, 1, 2, 2, 1, 0]);
}

#[test]
fn interleaving_divides_the_bubble_by_the_chunks() {
    for (devices, m) in sizes() {
        for chunks in 1..=CHUNKS {
            let timeline = run(&interleaved(devices, chunks, m).unwrap());
            let slots = |m| chunks * m + devices - 1;
            let name = format!("K={devices} V={chunks} M={m}");
            if m % devices == 0 || chunks == 1 {
                assert_eq!(timeline.makespan(), 3.0 * slots(m) as f64, "{name}");
                let bubble = (devices - 1) as f64 / slots(m) as f64;
                assert!((timeline.bubble() - bubble).abs() < 1e-12, "{name}");
            } else if m < devices {
                // A device waits for the first micro-batch to come round again.
                let slots = (chunks - 1) * devices + m + devices - 1;
                assert_eq!(timeline.makespan(), 3.0 * slots as f64, "{name}");
            } else {
                let full = m.next_multiple_of(devices);
                assert!(timeline.makespan() >= 3.0 * slots(m) as f64, "{name}");
                assert!(timeline.makespan() <= 3.0 * slots(full) as f64, "{name}");
            }
        }
    }
}

#[test]
fn interleaving_holds_its_warm_up() {
    for (devices, m) in sizes() {
        for chunks in 2..=CHUNKS {
            let held = live(&interleaved(devices, chunks, m).unwrap());
            for (device, held) in held.into_iter().enumerate() {
                let bound = (chunks - 1) * devices + 2 * (devices - 1 - device) + 1;
                let bound = bound.min(chunks * m);
                assert!(held <= bound, "K={devices} V={chunks} M={m}");
                assert!(
                    held == bound || m % devices != 0,
                    "K={devices} V={chunks} M={m}"
                );
            }
        }
    }
}

#[test]
fn one_chunk_is_the_schedule_without_chunks() {
    for (devices, m) in sizes() {
        assert_eq!(interleaved(devices, 1, m), one_f_one_b(devices, m));
        assert_eq!(looped_bfs(devices, 1, m), gpipe_sched::gpipe(devices, m));
    }
}

#[test]
fn breadth_first_waits_only_for_its_own_loop() {
    for (devices, m) in sizes() {
        for chunks in 1..=CHUNKS {
            let schedule = looped_bfs(devices, chunks, m).unwrap();
            let pass = (chunks - 1) * m.max(devices) + m + devices - 1;
            assert_eq!(
                run(&schedule).makespan(),
                3.0 * pass as f64,
                "K={devices} V={chunks} M={m}"
            );
            assert!((0..schedule.stages()).all(|stage| schedule.live(stage) == m));
        }
    }
}

#[test]
fn h1_has_a_third_of_the_bubble_in_the_memory_of_1f1b() {
    for (stages, m) in sizes() {
        let schedule = zb_h1(stages, m).unwrap();
        let makespan = run(&schedule).makespan();
        let closed = (3 * m + stages - 1).max(2 * m + 2 * stages - 1);
        assert_eq!(makespan, closed as f64, "K={stages} M={m}");
        let alternating = one_f_one_b(stages, m).unwrap();
        if m >= stages {
            let bubble = |makespan: f64| makespan - (3 * m) as f64;
            assert_eq!(3.0 * bubble(makespan), bubble(run(&alternating).makespan()));
        }
        let most = alternating.live(0);
        assert!(
            (0..stages).all(|stage| schedule.live(stage) == most),
            "K={stages} M={m}"
        );
    }
}

#[test]
fn h2_never_waits_between_its_first_action_and_its_last() {
    for (stages, m) in sizes() {
        let schedule = zb_h2(stages, m).unwrap();
        let timeline = run(&schedule);
        let window = (3 * m).max(2 * m + 2 * stages - 1);
        assert_eq!(longest_window(&timeline), window as f64, "K={stages} M={m}");
        assert_eq!(window == 3 * m, m + 1 >= 2 * stages);
        assert_eq!(
            timeline.makespan(),
            (3 * m + stages - 1).max(2 * m + 2 * stages - 1) as f64,
            "K={stages} M={m}"
        );
        let most = m.min(2 * stages - 1);
        assert!(
            (0..stages).all(|stage| schedule.live(stage) == most),
            "K={stages} M={m}"
        );
    }
}

#[test]
fn v_never_waits_either_in_the_memory_of_1f1b() {
    for (devices, m) in sizes() {
        let schedule = zb_v(devices, m).unwrap();
        let timeline = run(&schedule);
        let name = format!("K={devices} M={m}");
        let window = (6 * m).max(4 * m + 4 * devices - 2);
        assert_eq!(longest_window(&timeline), window as f64, "{name}");
        assert_eq!(window == 6 * m, m + 1 >= 2 * devices, "{name}");
        let makespan = (6 * m + devices - 1).max(4 * m + 4 * devices - 2);
        assert_eq!(timeline.makespan(), makespan as f64, "{name}");
        // Stages are half as large as those of 1F1B, whose first one holds K micro-batches.
        let most = 2 * one_f_one_b(devices, m).unwrap().live(0);
        let held = live(&schedule);
        assert!(held.iter().all(|&held| held <= most), "{name}");
        assert!(held[0] == most || m < 2 * devices, "{name}");
    }
}

#[test]
fn uneven_parts_of_a_step_cost_h1_what_the_paper_says() {
    // (K−1)·(F+I−W) on top of the work, as long as W is not the largest part.
    for (forward, input_grad, weight_grad) in [(2.0, 2.0, 1.0), (4.0, 4.0, 3.0), (3.0, 3.0, 3.0)] {
        let stage = StageCosts {
            forward,
            input_grad,
            weight_grad,
            recompute: 0.0,
        };
        for stages in 1..=DEVICES {
            let m = 3 * stages;
            let schedule = zb_h1(stages, m).unwrap();
            let timeline = simulate(&schedule, &Costs::new(vec![stage; stages])).unwrap();
            let work = m as f64 * (forward + input_grad + weight_grad);
            let bubble = (stages - 1) as f64 * (forward + input_grad - weight_grad);
            assert_eq!(timeline.makespan(), work + bubble, "K={stages}");
        }
    }
}

#[test]
fn sizes_that_no_schedule_can_have_are_refused() {
    let huge = usize::MAX;
    for (devices, chunks, m) in [(0, 2, 3), (2, 0, 3), (2, 2, 0)] {
        for made in [
            interleaved(devices, chunks, m),
            looped_bfs(devices, chunks, m),
        ] {
            assert!(matches!(made.unwrap_err().fault(), Fault::Empty { .. }));
        }
    }
    for (devices, chunks, m) in [(huge, 2, 1), (2, huge, 1), (2, 2, huge), (huge, huge, huge)] {
        for made in [
            interleaved(devices, chunks, m),
            looped_bfs(devices, chunks, m),
        ] {
            assert!(matches!(made.unwrap_err().fault(), Fault::TooLarge { .. }));
        }
    }
    for make in [zb_h1, zb_h2, zb_v] {
        for (devices, m) in [(0, 3), (3, 0)] {
            assert!(matches!(
                make(devices, m).unwrap_err().fault(),
                Fault::Empty { .. }
            ));
        }
        for (devices, m) in [(huge, 1), (1, huge), (huge, huge)] {
            assert!(matches!(
                make(devices, m).unwrap_err().fault(),
                Fault::TooLarge { .. }
            ));
        }
    }
}

#[test]
fn many_devices_and_few_micro_batches_cost_no_more_than_their_actions() {
    // A lane is not made for the micro-batches that it would take to fill the pipeline.
    for schedule in [interleaved(30_000, 2, 1), zb_v(30_000, 1), zb_h2(30_000, 1)] {
        let lanes = schedule.unwrap();
        assert!(lanes.lanes().iter().all(|lane| lane.capacity() <= 8));
    }
}

#[test]
fn the_executor_runs_them_and_changes_nothing() {
    for (devices, m) in [(1, 1), (1, 5), (2, 3), (3, 1), (3, 2), (3, 7), (4, 8)] {
        for schedule in [
            interleaved(devices, 2, m),
            interleaved(devices, 3, m),
            looped_bfs(devices, 3, m),
            zb_h1(devices, m),
            zb_h2(devices, m),
            zb_v(devices, m),
        ] {
            let mut pipeline = build(schedule.unwrap(), &Plan::default()).unwrap();
            for step in 0..2 {
                assert_transparent(&mut pipeline, step);
            }
        }
    }
}
