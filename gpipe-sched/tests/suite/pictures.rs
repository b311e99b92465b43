//! How schedules and timelines look: golden grids, and traces that other programs can read.

use std::collections::HashMap;

use gpipe_sched::{
    Action, Costs, Direction, Held, Op, Portal, Schedule, Span, Timeline, dualpipe_v, forward_only,
    gpipe, interleaved, looped_bfs, one_f_one_b, simulate, v_half, v_min, zb_h1, zb_h2, zb_v,
};
use serde_json::Value;

#[test]
fn grids_of_four_stages_and_eight_micro_batches() {
    let grid = |schedule: Schedule| schedule.grid(usize::MAX);
    assert_eq!(grid(gpipe(4, 8).unwrap()), include_str!("grids/gpipe.txt"));
    assert_eq!(
        grid(one_f_one_b(4, 8).unwrap()),
        include_str!("grids/1f1b.txt")
    );
    assert_eq!(
        grid(forward_only(4, 8).unwrap()),
        include_str!("grids/forward_only.txt")
    );
    assert_eq!(grid(zb_h1(4, 8).unwrap()), include_str!("grids/zb_h1.txt"));
    assert_eq!(grid(zb_h2(4, 8).unwrap()), include_str!("grids/zb_h2.txt"));
}

#[test]
fn grids_of_four_devices_with_two_chunks_each() {
    let grid = |schedule: Schedule| schedule.grid(usize::MAX);
    assert_eq!(
        grid(interleaved(4, 2, 8).unwrap()),
        include_str!("grids/interleaved.txt")
    );
    assert_eq!(
        grid(looped_bfs(4, 2, 8).unwrap()),
        include_str!("grids/looped_bfs.txt")
    );
    assert_eq!(grid(zb_v(4, 8).unwrap()), include_str!("grids/zb_v.txt"));
    assert_eq!(
        grid(v_half(4, 8).unwrap()),
        include_str!("grids/v_half.txt")
    );
    assert_eq!(grid(v_min(4, 8).unwrap()), include_str!("grids/v_min.txt"));
    assert_eq!(
        grid(dualpipe_v(4, 8).unwrap()),
        include_str!("grids/dualpipe_v.txt")
    );
}

#[test]
fn timelines_of_four_stages_and_eight_micro_batches() {
    for (schedule, text) in [
        (
            gpipe(4, 8).unwrap(),
            include_str!("grids/gpipe_timeline.txt"),
        ),
        (
            one_f_one_b(4, 8).unwrap(),
            include_str!("grids/1f1b_timeline.txt"),
        ),
    ] {
        let costs = Costs::even(4, 1.0, 2.0).with_recompute(8, |stage, _| stage == 0);
        assert_eq!(simulate(&schedule, &costs).unwrap().grid(100), text);
    }
}

#[test]
fn several_stages_a_device_are_told_apart() {
    let lane = |row: &str| row.split(' ').map(|text| text.parse().unwrap()).collect();
    let lanes = vec![lane("0F0 2F0 2B0 0B0"), lane("1F0 1R0 1I0 1W0")];
    let schedule = Schedule::new(vec![0, 1, 0], 1, lanes).unwrap();
    assert_eq!(
        schedule.grid(80),
        "\
device 0  0F0     2F0 2B0     0B0
device 1      1F0 1R0     1I0 1W0
"
    );
}

#[test]
fn a_narrow_grid_leaves_out_spaces_then_the_middle_and_numbers_last() {
    let schedule = one_f_one_b(3, 20).unwrap();
    let wide = schedule.grid(usize::MAX);
    for width in [0, 10, 20, 53, 54, 59, 60, 79, 141, 142, 184, 185, 300] {
        let narrow = schedule.grid(width);
        for (row, whole) in narrow.lines().zip(wide.lines()) {
            let room = width.max("device 0  … ".len());
            assert!(row.chars().count() <= room, "{width}: {row}");
            let has = |row: &str, what: fn(&char) -> bool| -> String {
                row["device 0".len()..].chars().filter(what).collect()
            };
            match width {
                54..60 => assert_eq!(has(row, char::is_ascii_uppercase), has(row, |c| *c != ' ')),
                142.. => assert_eq!(has(row, |c| *c != ' '), has(whole, |c| *c != ' ')),
                _ => {
                    let (head, tail) = row.split_once('…').unwrap();
                    assert!(whole.starts_with(head.trim_end()), "{width}: {row}");
                    assert!(whole.ends_with(tail.trim_start()), "{width}: {row}");
                }
            }
        }
        assert_eq!(narrow == wide, width >= 185, "{width}");
    }
}

#[test]
fn a_grid_of_a_very_long_schedule_shows_its_ends() {
    let grid = gpipe(2, 1_000_000).unwrap().grid(60);
    let rows: Vec<&str> = grid.lines().collect();
    assert!(rows[0].starts_with("device 0  F0      F1      "), "{grid}");
    assert!(rows[1].starts_with("device 1          F0      "), "{grid}");
    assert!(rows[0].ends_with(" B999998 B999999"), "{grid}");
    assert!(rows.iter().all(|row| row.chars().count() <= 60), "{grid}");
}

#[test]
fn a_timeline_fits_any_width() {
    let timeline = simulate(&gpipe(3, 40).unwrap(), &Costs::even(3, 0.001, 0.002)).unwrap();
    for width in [0, 1, 12, 30, 80, 200] {
        for row in timeline.grid(width).lines() {
            assert_eq!(row.chars().count(), width.max(12));
        }
    }
    assert_eq!(Timeline::default().grid(80), "");
    assert!(
        Timeline::new(1, Vec::new())
            .grid(usize::MAX)
            .lines()
            .count()
            == 1
    );
}

#[test]
fn a_trace_is_json_whose_arrows_join_slices() {
    let schedule = one_f_one_b(3, 4).unwrap();
    let timeline = simulate(&schedule, &Costs::even(3, 0.25, 0.5)).unwrap();
    let mut bytes = Vec::new();
    timeline.write_trace(&mut bytes).unwrap();
    let trace: Value = serde_json::from_slice(&bytes).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let phase =
        |phase: &str| -> Vec<&Value> { events.iter().filter(|e| e["ph"] == *phase).collect() };
    let number = |event: &Value, key: &str| event[key].as_f64().unwrap();

    let names: Vec<&str> = phase("M")
        .iter()
        .filter_map(|e| e["args"]["name"].as_str())
        .collect();
    assert_eq!(names, ["gpipe", "device 0", "device 1", "device 2"]);

    let slices = phase("X");
    assert_eq!(slices.len(), 2 * 3 * 4);
    let first = slices[0];
    assert_eq!(
        (first["name"].as_str(), first["cat"].as_str()),
        (Some("F0"), Some("forward"))
    );
    assert_eq!(
        (number(first, "ts"), number(first, "dur")),
        (0.0, 250_000.0)
    );
    assert_eq!(first["args"]["stage"], 0);

    // Every flow between two stages has an arrow, from one slice to a later one elsewhere.
    let inside = |event: &Value| {
        slices.iter().any(|slice| {
            let from = number(slice, "ts");
            let to = from + number(slice, "dur");
            slice["tid"] == event["tid"] && (from..to).contains(&number(event, "ts"))
        })
    };
    let starts: HashMap<u64, &Value> = phase("s")
        .into_iter()
        .map(|e| (e["id"].as_u64().unwrap(), e))
        .collect();
    let ends = phase("f");
    assert_eq!((starts.len(), ends.len()), (2 * 2 * 4, 2 * 2 * 4));
    for end in ends {
        let start = starts[&end["id"].as_u64().unwrap()];
        assert_ne!(start["tid"], end["tid"]);
        assert!(number(start, "ts") < number(end, "ts"));
        assert!(inside(start) && inside(end));
    }
}

#[test]
fn what_a_device_holds_is_a_counter() {
    let timeline = simulate(&gpipe(2, 1).unwrap(), &Costs::even(2, 1.0, 2.0)).unwrap();
    let held = |now, most| Held { now, most };
    let stage = vec![held(10, 10), held(14, 20), held(10, 30)];
    let timeline = timeline.with_held(&[stage.clone(), stage]);
    let mut bytes = Vec::new();
    timeline.write_trace(&mut bytes).unwrap();
    let trace: Value = serde_json::from_slice(&bytes).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let counter = |device: usize| -> Vec<(f64, u64)> {
        let name = format!("memory of device {device}");
        let own = events
            .iter()
            .filter(|e| e["ph"] == "C" && e["name"] == name.as_str());
        let value = |e: &Value| {
            (
                e["ts"].as_f64().unwrap() / 1e6,
                e["args"]["bytes"].as_u64().unwrap(),
            )
        };
        own.map(value).collect()
    };
    // During an action the most that it held, after it what was left.
    assert_eq!(
        counter(0),
        [(0.0, 10), (0.0, 20), (1.0, 14), (4.0, 30), (6.0, 10)]
    );
    assert_eq!(
        counter(1),
        [(0.0, 10), (1.0, 20), (2.0, 14), (2.0, 30), (4.0, 10)]
    );
}

#[test]
fn steps_in_a_row_keep_what_each_held() {
    let costs = Costs::even(1, 1.0, 2.0);
    let step = |now| {
        let timeline = simulate(&gpipe(1, 1).unwrap(), &costs).unwrap();
        timeline.with_held(&[vec![Held { now, most: 2 * now }; 3]])
    };
    let row = Timeline::in_a_row(&[step(10), step(30)]);
    let levels = row.levels_of(0).iter();
    let levels: Vec<(f64, u64)> = levels.map(|level| (level.time, level.bytes)).collect();
    let first = [(0.0, 10), (0.0, 20), (1.0, 10), (1.0, 20), (3.0, 10)];
    let second = [(3.0, 30), (3.0, 60), (4.0, 30), (4.0, 60), (6.0, 30)];
    assert_eq!(levels, [first, second].concat());
}

/// Sums beyond 2^64 bytes are shown as the most that there is, and what is below is exact again.
#[test]
fn what_a_device_holds_beyond_all_numbers_is_the_largest() {
    let span = |stage: usize| Span {
        device: 0,
        action: Action::new(stage, Op::Forward, 0),
        ready: stage as f64,
        start: stage as f64,
        end: stage as f64 + 1.0,
    };
    let timeline = Timeline::new(1, vec![span(0), span(1)]);
    let held = |now, most| Held { now, most };
    let timeline = timeline.with_held(&[
        vec![held(u64::MAX, u64::MAX), held(7, u64::MAX)],
        vec![held(5, 5), held(2, u64::MAX)],
    ]);
    let bytes: Vec<u64> = timeline.levels().iter().map(|level| level.bytes).collect();
    assert_eq!(bytes, [u64::MAX, 12, u64::MAX, 9]);
}

#[test]
fn what_the_device_of_the_highest_number_holds_takes_no_memory_for_the_others() {
    let span = Span {
        device: usize::MAX,
        action: Action::new(0, Op::Forward, 0),
        ready: 0.0,
        start: 0.0,
        end: 1.0,
    };
    let timeline = Timeline::new(0, vec![span]).with_held(&[vec![Held { now: 1, most: 2 }; 2]]);
    let bytes: Vec<u64> = timeline.levels().iter().map(|level| level.bytes).collect();
    assert_eq!(bytes, [1, 2, 1]);
}

#[test]
fn a_trace_of_nothing_is_json_too() {
    for timeline in [Timeline::default(), Timeline::new(2, Vec::new())] {
        let mut bytes = Vec::new();
        timeline.write_trace(&mut bytes).unwrap();
        let trace: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(
            trace["traceEvents"].as_array().unwrap().len(),
            1 + 2 * timeline.devices()
        );
    }
}

#[test]
fn a_trace_that_cannot_be_written_says_so() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("disk full"))
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let timeline = simulate(&gpipe(2, 2).unwrap(), &Costs::even(2, 1.0, 2.0)).unwrap();
    assert_eq!(
        timeline.write_trace(Full).unwrap_err().to_string(),
        "disk full"
    );
}

/// Their numbers come from files.
#[test]
fn spans_of_the_highest_numbers_are_written_and_put_in_a_row() {
    let most = usize::MAX;
    let actions = Op::ALL.map(|op| [Action::new(most, op, most), Action::new(most - 1, op, 0)]);
    let spans = actions
        .into_iter()
        .flatten()
        .enumerate()
        .map(|(i, action)| Span {
            device: i % 2,
            action,
            ready: 0.0,
            start: i as f64,
            end: i as f64 + 0.5,
        });
    let portal = Portal {
        from: most - 2,
        to: most,
    };
    let timeline = Timeline::new(0, spans.collect()).with_portals([portal]);
    let mut trace = Vec::new();
    timeline.write_trace(&mut trace).unwrap();
    let trace: Value = serde_json::from_slice(&trace).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 10);
    assert_eq!(timeline.grid(40).lines().count(), 2);
    for direction in [Direction::Forward, Direction::Backward] {
        for link in [0, most - 1, most] {
            timeline.in_flight(direction, link);
        }
    }
    let row = Timeline::in_a_row(&[timeline.clone(), timeline.clone(), timeline]);
    assert_eq!(row.spans().len(), 30);
    assert!(row.schedule().is_err());
}
