//! Tables: PyTorch's own are read, ours come back as they were, and whatever else there is in a
//! file gets an error with its place.

use gpipe_sched::{
    Action, CsvError, Fault, Schedule, dualpipe_v, forward_only, gpipe, interleaved, looped_bfs,
    one_f_one_b, v_half, v_min, zb_h1, zb_h2, zb_v,
};
use proptest::prelude::*;

use crate::common::{Plan, assert_transparent, build};
use crate::orders::{any_order, config, lanes, random};

/// Written by PyTorch 2.15: the rows of `_schedule_visualizer.get_schedule_ops(name, 4, 8)`, through
/// `csv.writer` as `_dump_csv` does it.
macro_rules! pytorch {
    ($name:literal) => {
        include_str!(concat!("../fixtures/", $name, ".csv"))
    };
}

fn read(text: &str) -> Schedule {
    Schedule::from_csv(text).unwrap()
}

fn write(schedule: &Schedule) -> String {
    let mut bytes = Vec::new();
    schedule.write_csv(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn refuse(text: &str) -> String {
    Schedule::from_csv(text).unwrap_err().to_string()
}

#[test]
fn pytorch_has_the_same_schedules() {
    assert_eq!(read(pytorch!("gpipe")), gpipe(4, 8).unwrap());
    assert_eq!(read(pytorch!("interleaved")), interleaved(4, 2, 8).unwrap());
    assert_eq!(read(pytorch!("zb_v")), zb_v(4, 8).unwrap());
    assert_eq!(read(pytorch!("dualpipe_v")), dualpipe_v(4, 8).unwrap());
    let theirs = read(pytorch!("looped_bfs"));
    assert_ne!(theirs, looped_bfs(4, 2, 8).unwrap());
    assert!(
        !theirs.is_ascending(),
        "PyTorch goes back from the last micro-batch"
    );
}

#[test]
fn a_table_of_pytorch_is_written_as_it_was_read() {
    let table = pytorch!("zb_v");
    assert_eq!(write(&read(table)), table.replace("\r\n", "\n"));
}

#[test]
fn schedules_that_only_pytorch_has_run_here() {
    for table in [pytorch!("interleaved_zero_bubble"), pytorch!("dualpipe_v")] {
        let schedule = read(table);
        assert_eq!((schedule.devices(), schedule.stages()), (4, 8));
        assert!(schedule.is_ascending());
        assert_transparent(&mut build(schedule, &Plan::default()).unwrap(), 1);
    }
}

#[test]
fn overlapped_actions_run_one_after_the_other() {
    let schedule = read("0F0,(0F1;0B0)OVERLAP_F_B,( 0I1 ; 0W1 )OVERLAP_F_B");
    let lane: Vec<String> = schedule.lanes()[0].iter().map(Action::to_string).collect();
    assert_eq!(lane, ["0F0", "0F1", "0B0", "0I1", "0W1"]);
}

#[test]
fn what_is_no_action_of_ours_is_passed_over() {
    let plain = one_f_one_b(2, 1).unwrap();
    for table in [
        "0F0,0B0\n1F0,1B0",
        "0F0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n1F0,1B0,1REDUCE_GRAD3\n",
        "\u{feff}0F0,,,0B0,,\r\n,1F0 , 1B0,\r\n\r\n",
        "\"0F0\",\"\",\"0B0\"\n\"1F0\",\"1B0\",",
    ] {
        assert_eq!(read(table), plain, "{table}");
    }
}

#[test]
fn cells_that_say_nothing_are_named() {
    for (table, row, column, cell) in [
        ("0F0,0B0\n1F0,x", 2, 2, "x"),
        ("0F0,,0RECV_F0", 1, 3, "0RECV_F0"),
        ("0F0,REDUCE_GRAD", 1, 2, "REDUCE_GRAD"),
        ("0F0,aREDUCE_GRAD", 1, 2, "aREDUCE_GRAD"),
        ("0F0,99999999999999999999F0", 1, 2, "99999999999999999999F0"),
        ("0F0,-1F0", 1, 2, "-1F0"),
        ("0F0;0B0", 1, 1, "0F0;0B0"),
        ("\n0F0,(0F1;)OVERLAP_F_B", 2, 2, ""),
        ("0F0,(0F1;0B0", 1, 2, "(0F1;0B0"),
        ("\"0F0", 1, 1, "\"0F0"),
        ("0F0,\u{1f980}F0", 1, 2, "\u{1f980}F0"),
    ] {
        let error = refuse(table);
        let start = format!("row {row}, column {column}: {cell:?} is no action");
        assert!(error.starts_with(&start), "{table}: {error}");
    }
}

#[test]
fn faults_are_shown_with_their_row_and_column() {
    assert_eq!(
        refuse("0F0,0F1,,0I0,0W0,,0I1\n,1F0,1B0,1F1,1B1"),
        "\
row 1, column 7: 0W1 is missing: every stage needs F, and B or both I and W, of every micro-batch \
(device 0, position 4)
device 0   0F0 0F1 0I0 0W0 0I1
                           ^
device 1   1F0 1B0 1F1 1B1"
    );
    for (table, place, fault) in [
        (
            "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1F1,1B1",
            "row 2, column 4",
            "1F1 is there twice",
        ),
        (
            "0F0,0F1,0B0,0B1\n,1F0,1F1,,1I0,1W1,1I1,1W0",
            "row 2, column 6",
            "1W1 comes before 1I1",
        ),
        (
            "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1,9F1",
            "row 2, column 5",
            "9F1 is of stage 9",
        ),
        (
            "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1F7",
            "row 2, column 4",
            "1F7 is of micro-batch 7",
        ),
        (
            "0F0,0F1,0B0,0B1\n1F0,1B0,1B1",
            "row 2, column 3",
            "1F1 is missing",
        ),
        (
            "0F0,0B0\n1F0,1B0,0F0",
            "row 2, column 3",
            "0F0 is on device 1",
        ),
        ("0B0,0F0", "row 1, column 1", "0B0 comes before 0F0"),
        (
            "0F0,0B0\n,,\n1F0,1B0",
            "row 2, column 1",
            "device 1 has no stage",
        ),
        (
            "0F0,0B0,0F1,0B1\n1F0,,1F1,1B0,1B1",
            "row 1, column 2",
            "deadlock",
        ),
    ] {
        let error = refuse(table);
        assert!(
            error.starts_with(&format!("{place}: {fault}")),
            "{table}: {error}"
        );
    }
    assert!(matches!(Schedule::from_csv(""), Err(CsvError::Size(_))));
}

/// PyTorch 2.15 numbers the forward passes of the last rank of its 1F1B from 1.
#[test]
fn a_wrong_table_of_pytorch_is_refused() {
    let CsvError::Invalid {
        row,
        column,
        source,
    } = Schedule::from_csv(pytorch!("1f1b")).unwrap_err()
    else {
        panic!("a place");
    };
    assert_eq!(row, 4, "{source}");
    assert!(column > 1);
    let stray = Fault::NoSuchMicroBatch {
        action: "3F8".parse().unwrap(),
        micro_batches: 8,
    };
    assert_eq!(source.fault(), &stray);
}

#[test]
fn a_mistyped_cell_is_named_with_its_own_row() {
    let table = write(&one_f_one_b(4, 9).unwrap());
    for (cell, typed, row, fault) in [
        ("0F8", "3F8", 1, "3F8 is on device 0"),
        ("3F8", "0F8", 4, "0F8 is on device 3"),
        ("3F7", "3F8", 4, "3F8 is there twice"),
        ("3F8", "3F9", 4, "3F9 is of micro-batch 9"),
        ("2B8", "2B80", 3, "2B80 is of micro-batch 80"),
        ("1F3", "1B3", 2, "1B3 is there twice"),
        ("1F3", "4F3", 2, "4F3 is of stage 4"),
        ("1F3", "", 2, "1F3 is missing"),
    ] {
        let error = refuse(&table.replacen(cell, typed, 1));
        let named = error.strip_prefix(&format!("row {row}, column "));
        let named = named.and_then(|rest| rest.split_once(": "));
        assert!(
            named.is_some_and(|(_, rest)| rest.starts_with(fault)),
            "{cell} as {typed}: {error}"
        );
    }
}

#[test]
fn large_numbers_cost_nothing() {
    // Lists of the sizes that these name would not fit any memory.
    let stages: String = (0..3000).map(|stage| format!("{stage}F0,")).collect();
    let micro_batches: String = (0..3000).map(|m| format!("0F{m},")).collect();
    for table in [
        format!("0F0,{}F0", usize::MAX),
        format!("0F{}", u32::MAX),
        format!("{stages}\n{micro_batches}"),
    ] {
        assert!(matches!(
            Schedule::from_csv(&table),
            Err(CsvError::Invalid { .. })
        ));
    }
}

#[test]
fn a_table_that_cannot_be_written_says_so() {
    let mut small = [0_u8; 10];
    let error = gpipe(2, 2).unwrap().write_csv(&mut small[..]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WriteZero);
}

fn made() -> impl Strategy<Value = Schedule> {
    (1_usize..6, 1_usize..4, 1_usize..9, 0..11).prop_map(|(devices, chunks, m, which)| {
        let made = match which {
            0 => gpipe(devices, m),
            1 => one_f_one_b(devices, m),
            2 => forward_only(devices, m),
            3 => interleaved(devices, chunks, m),
            4 => looped_bfs(devices, chunks, m),
            5 => zb_h1(devices, m),
            6 => zb_h2(devices, m),
            7 => v_half(devices, m),
            8 => v_min(devices, m),
            9 => dualpipe_v(devices, m),
            _ => zb_v(devices, m),
        };
        made.expect("a valid size")
    })
}

/// Text that is nearly a table.
fn scraps() -> impl Strategy<Value = String> {
    let scrap = prop::sample::select(vec![
        "0F0",
        "0B0",
        "1F0",
        "1B0",
        "0I0",
        "0W0",
        "0R0",
        "0F1",
        "(0F0;0B0)OVERLAP_F_B",
        "(",
        ")",
        ";",
        ",",
        ",",
        "\n",
        "\r",
        "\"",
        "\u{feff}",
        " ",
        "\t",
        "9F9",
        "F",
        "0",
        "REDUCE_GRAD",
        "0REDUCE_GRAD",
        "18446744073709551615F0",
        "0F18446744073709551615",
        "é",
        "\0",
    ]);
    prop::collection::vec(scrap, 0..30).prop_map(|scraps| scraps.concat())
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn what_is_written_is_read_back(schedule in made()) {
        prop_assert_eq!(read(&write(&schedule)), schedule);
    }

    #[test]
    fn any_order_is_read_back(seed in any::<u64>(), device_of in prop::sample::select(vec![
        vec![0], vec![1, 0], vec![0, 0, 1], vec![0, 1, 1, 0], vec![2, 1, 0],
    ])) {
        let mut random = random(seed);
        let order = any_order(
            device_of.len(), 3, |s, m| (s + m) % 2 == 0, |_, m| m == 1, &mut random,
        );
        let schedule = Schedule::new(device_of.clone(), 3, lanes(&device_of, &order)).unwrap();
        prop_assert_eq!(read(&write(&schedule)), schedule);
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = Schedule::from_csv(&text);
    }

    #[test]
    fn no_scraps_panic_and_what_is_read_reads_the_same_again(text in scraps()) {
        if let Ok(schedule) = Schedule::from_csv(&text) {
            prop_assert_eq!(read(&write(&schedule)), schedule);
        }
    }
}
