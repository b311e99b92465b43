//! What is no schedule is refused, with its place; planted faults are all caught.

use std::time::Instant;

use gpipe_sched::{Action, Cell, Fault, Schedule, ScheduleError, gpipe, one_f_one_b};

fn parse(rows: &[&str]) -> Vec<Vec<Action>> {
    let row = |row: &&str| {
        row.split_whitespace()
            .map(|text| text.parse().unwrap())
            .collect()
    };
    rows.iter().map(row).collect()
}

fn refuse(device_of: &[usize], micro_batches: usize, rows: &[&str]) -> ScheduleError {
    Schedule::new(device_of.to_vec(), micro_batches, parse(rows)).unwrap_err()
}

fn action(text: &str) -> Action {
    text.parse().unwrap()
}

#[test]
fn each_fault_has_its_name_and_place() {
    let two = &[0, 1];
    let first = "0F0 0F1 0B0 0B1";
    type Case<'a> = (&'a [usize], [&'a str; 2], Fault, (usize, usize));
    let cases: Vec<Case> = vec![
        (
            two,
            [first, "1F0 1B0 1F1"],
            Fault::Missing {
                action: action("1B1"),
            },
            (1, 2),
        ),
        (
            two,
            [first, "1F0 1B0 1B1"],
            Fault::Missing {
                action: action("1F1"),
            },
            (1, 2),
        ),
        (
            two,
            [first, "1F0 1B0"],
            Fault::Missing {
                action: action("1F1"),
            },
            (1, 2),
        ),
        (
            two,
            [first, "1F0 1I0 1F1 1B1"],
            Fault::Missing {
                action: action("1W0"),
            },
            (1, 1),
        ),
        (
            two,
            [first, "1F0 1W0 1F1 1B1"],
            Fault::Missing {
                action: action("1I0"),
            },
            (1, 1),
        ),
        (
            two,
            [first, "1F0 1B0 1F1 1B0 1B1"],
            Fault::Twice {
                action: action("1B0"),
            },
            (1, 3),
        ),
        (
            two,
            [first, "1F0 1B0 1W0 1F1 1B1"],
            Fault::Both {
                action: action("1W0"),
            },
            (1, 2),
        ),
        (
            two,
            [first, "1F0 1B0 1B1 1F1"],
            Fault::Order {
                action: action("1B1"),
                after: action("1F1"),
            },
            (1, 2),
        ),
        (
            two,
            [first, "1F0 1F1 1W0 1I0 1B1"],
            Fault::Order {
                action: action("1W0"),
                after: action("1I0"),
            },
            (1, 2),
        ),
        (
            two,
            [first, "1F0 1F1 1B0 1R0 1B1"],
            Fault::Order {
                action: action("1B0"),
                after: action("1R0"),
            },
            (1, 2),
        ),
        (
            two,
            [first, "1F0 1B0 0F0 1F1 1B1"],
            Fault::WrongDevice {
                action: action("0F0"),
                device: 1,
                owner: 0,
            },
            (1, 2),
        ),
        (
            two,
            [first, "1F0 9B0"],
            Fault::NoSuchStage {
                action: action("9B0"),
                stages: 2,
            },
            (1, 1),
        ),
        (
            two,
            [first, "1F0 1B2"],
            Fault::NoSuchMicroBatch {
                action: action("1B2"),
                micro_batches: 2,
            },
            (1, 1),
        ),
        (
            two,
            ["0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"],
            Fault::Deadlock {
                ring: vec![
                    (action("0B0"), action("1B0")),
                    (action("1F1"), action("0F1")),
                ],
            },
            (0, 1),
        ),
        // Two stages of one device that wait for each other in one lane.
        (
            &[0, 0, 1],
            ["1F0 0F0 1B0 0B0 0F1 1F1 1B1 0B1", "2F0 2B0 2F1 2B1"],
            Fault::Deadlock {
                ring: vec![(action("1F0"), action("0F0"))],
            },
            (0, 0),
        ),
    ];
    for (device_of, rows, fault, (device, position)) in cases {
        let error = refuse(device_of, 2, &rows);
        assert_eq!(*error.fault(), fault);
        assert_eq!(error.cell(), Some(Cell { device, position }), "{error}");
    }
}

#[test]
fn stages_and_devices_must_match() {
    let error = refuse(&[0, 2], 1, &["0F0 0B0", "1F0 1B0"]);
    assert_eq!(
        *error.fault(),
        Fault::NoSuchDevice {
            stage: 1,
            device: 2,
            devices: 2
        }
    );
    let error = refuse(&[0, 0], 1, &["0F0 1F0 1B0 0B0", ""]);
    assert_eq!(*error.fault(), Fault::IdleDevice { device: 1 });
    let error = Schedule::new(Vec::new(), 1, Vec::new()).unwrap_err();
    assert_eq!(
        *error.fault(),
        Fault::Empty {
            stages: 0,
            micro_batches: 1
        }
    );
}

#[test]
fn a_refusal_shows_the_lanes_and_an_arrow() {
    let error = refuse(&[0, 1], 2, &["0F0 0F1 0B0 0B1", "1F0 1I0 1F1 1B1"]);
    assert_eq!(
        error.to_string(),
        "\
1W0 is missing: every stage needs F, and B or both I and W, of every micro-batch (device 1, position 1)
device 0   0F0 0F1 0B0 0B1
device 1   1F0 1I0 1F1 1B1
               ^"
    );
    let error = refuse(&[0, 1], 2, &["0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"]);
    assert_eq!(
        error.to_string(),
        "\
deadlock: 0B0 waits for 1B0, behind 1F1, which waits for 0F1, behind 0B0: move one of them forward (device 0, position 1)
device 0   0F0 0B0 0F1 0B1
               ^
device 1   1F0 1F1 1B0 1B1"
    );
    // The action that is needed may itself be the one that waits.
    let error = refuse(&[0, 1, 0], 1, &["2F0 0F0", "1F0"]);
    let text = error.to_string();
    let expected =
        "deadlock: 2F0 waits for 1F0, which waits for 0F0, behind 2F0: move one of them forward (";
    assert!(text.starts_with(expected), "{text}");
    // Far from the beginning only the surroundings are shown.
    let mut lanes = gpipe(20, 30).unwrap().lanes().to_vec();
    lanes[12].remove(40);
    let error = Schedule::new((0..20).collect(), 30, lanes).unwrap_err();
    assert_eq!(
        *error.fault(),
        Fault::Missing {
            action: action("12B10")
        }
    );
    let lines: Vec<String> = error.to_string().lines().map(str::to_owned).collect();
    assert!(
        lines.len() == 13 && lines.iter().all(|line| line.chars().count() < 110),
        "{error}"
    );
    let arrow = lines.iter().position(|line| line.trim() == "^").unwrap();
    let column = lines[arrow].find('^').unwrap();
    let above: String = lines[arrow - 1].chars().skip(column).take(5).collect();
    assert_eq!(above, "12F10");
}

#[test]
fn text_that_is_no_action_says_how_one_looks() {
    let long = "9".repeat(1_000);
    for text in [
        "", "F", "2F", "F0", "2X0", "2f0", "+2F0", "2F+0", "2F-1", " 2F0", "2F0 ", "2é0", &long,
    ] {
        let error = text.parse::<Action>().unwrap_err().to_string();
        assert!(
            error.ends_with(
                "is no action: write stage, one of F B I W R, and micro-batch, as in 2F0"
            )
        );
        assert!(error.len() < 200, "{error}");
    }
    assert_eq!(
        "2F".parse::<Action>()
            .unwrap_err()
            .to_string()
            .split(" is")
            .next(),
        Some("\"2F\"")
    );
}

/// Lanes that wait in a long row for two that wait for each other.
#[test]
fn a_ring_at_the_end_of_a_long_row_is_found_in_a_walk() {
    let stages = 300_000;
    let start = Instant::now();
    let mut lanes = one_f_one_b(stages, 2).unwrap().lanes().to_vec();
    let made = start.elapsed().as_secs_f64();
    let last = stages - 1;
    lanes[last].rotate_left(2);
    for lane in &mut lanes[..last] {
        lane.swap(1, 2);
    }
    let start = Instant::now();
    let error = Schedule::new((0..stages).collect(), 2, lanes).unwrap_err();
    let refused = start.elapsed().as_secs_f64();
    let Fault::Deadlock { ring } = error.fault() else {
        panic!("{error}");
    };
    assert_eq!(ring.len(), 2);
    assert!(refused < 10.0 * made + 2.0, "{refused} s after {made} s");
}
