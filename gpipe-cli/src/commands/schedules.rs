//! `gpipe help schedules`: each schedule with its grid, bubble and memory, computed from the schedule.

use gpipe_sched::{Costs, Op, Schedule, ScheduleKind, simulate};

use gpipe_report::numbers;

use crate::fail::{Fail, Result};
use crate::output::table;

/// Devices and micro-batches of the comparison.
const COMPARED: (usize, usize) = (4, 8);

/// Devices and micro-batches of the grids, which fit narrow terminals.
const DRAWN: (usize, usize) = (3, 4);

/// The same for two stages per device.
const DRAWN_TWICE: (usize, usize) = (2, 3);

/// The same for zb-h2, whose devices wait for no fewer micro-batches.
const DRAWN_FULL: (usize, usize) = (3, 5);

/// The name, source and description of each schedule.
const SCHEDULES: [(&str, &str, &str); 11] = [
    (
        "gpipe",
        "Huang et al. 2019",
        "All micro-batches forward, then all backward. Simple, but every stage has all of\n\
         them in flight; with --remat stage it holds little more than their inputs.",
    ),
    (
        "1f1b",
        "Narayanan et al. 2021",
        "One forward, one backward, as soon as a backward pass is possible. The bubble of gpipe,\n\
         but with only K-s micro-batches in flight on stage s of K.",
    ),
    (
        "interleaved:2",
        "Narayanan et al. 2021",
        "1f1b with V stages on each worker, here 2: a bubble V times smaller, with V times as many\n\
         transfers.",
    ),
    (
        "looped-bfs:2",
        "Lamy-Poirier 2022",
        "V stages on each worker, and all micro-batches through one before the next. The bubble\n\
         of interleaved, the memory of gpipe.",
    ),
    (
        "zb-h1",
        "Qi et al. 2023",
        "The backward pass in two halves: the input gradient (I) at once, since the stage before\n\
         waits for it, and the weight gradient (W) in idle time. A third of the bubble.",
    ),
    (
        "zb-h2",
        "Qi et al. 2023",
        "More micro-batches in flight: with at least 2K-1 of them on K workers, no device waits\n\
         between its first and its last action, with twice the memory.",
    ),
    (
        "zb-v",
        "Qi et al. 2023",
        "Two stages on each worker, in a V: down the workers and back up. Like zb-h2, in the memory\n\
         of 1f1b.",
    ),
    (
        "v-half",
        "Qi et al. 2024",
        "Like zb-v, with half of the memory where workers are many, and a small bubble.",
    ),
    (
        "v-min",
        "Qi et al. 2024",
        "Like zb-v, with a third of the memory where workers are many, and a larger bubble.",
    ),
    (
        "dualpipe-v",
        "DeepSeek-AI 2025",
        "Like zb-v, with forward and backward passes in pairs. Designed to hide transfers between\n\
         machines.",
    ),
    (
        "zero-bubble",
        "after Qi et al. 2023",
        "Built for the predicted costs of the stages, which may be uneven; never slower than 1f1b\n\
         for them. zero-bubble:N has at most N micro-batches in flight on a stage.",
    ),
];

/// The text of the page, with grids of at most `width` characters.
pub fn page(width: usize) -> Result<String> {
    let mut rows = Vec::new();
    let mut pictures = String::new();
    for (name, source, text) in SCHEDULES {
        let kind: ScheduleKind = name.parse().map_err(Fail::usage)?;
        let schedule = build(kind, COMPARED)?;
        rows.push(row(name, source, kind, &schedule)?);
        let drawn = match kind {
            ScheduleKind::ZbH2 => DRAWN_FULL,
            kind if kind.chunks() == 1 => DRAWN,
            _ => DRAWN_TWICE,
        };
        let grid = build(kind, drawn)?.grid(width);
        pictures += &format!("\n{name} ({source})\n{text}\n\n{grid}");
    }
    let (devices, micro_batches) = COMPARED;
    let heading = ["schedule", "source", "stages", "bubble", "in flight"];
    Ok(format!(
        "A schedule is the order in which each worker runs its micro-batches. Workers wait for each\n\
         other: the idle fraction of their time is the bubble.\n\n\
         {devices} workers and {micro_batches} micro-batches, where forward pass, input and weight gradient of\n\
         all stages take equally long. In flight are the micro-batches whose backward pass a worker\n\
         still owes, at most, in micro-batches of its part of the model:\n\n{}\n\
         In the grids, time runs to the right, one row per worker. 2F0 is stage 2, forward,\n\
         micro-batch 0; B is backward, I and W are its two halves.\n\
         {pictures}\n\
         All of them give the results of one stage, bit for bit. --schedule table.csv runs a table\n\
         of PyTorch's pipelining; gpipe plan --csv FILE writes one.\n",
        table(&heading, &["schedule", "source"], &rows),
    ))
}

fn build(kind: ScheduleKind, (devices, micro_batches): (usize, usize)) -> Result<Schedule> {
    let stages = devices * kind.chunks();
    let costs = Costs::even(stages, 1.0, 2.0);
    let schedule = kind.build(stages, micro_batches, Some(&costs));
    schedule.map_err(Fail::usage)
}

fn row(name: &str, source: &str, kind: ScheduleKind, schedule: &Schedule) -> Result<Vec<String>> {
    let costs = Costs::even(schedule.stages(), 1.0, 2.0);
    let bubble = simulate(schedule, &costs).map_err(Fail::usage)?.bubble();
    // The stages of a worker share its part of the model.
    let in_flight = in_flight(schedule) as f64 / kind.chunks() as f64;
    Ok(vec![
        name.to_owned(),
        source.to_owned(),
        schedule.stages().to_string(),
        numbers::percent(bubble),
        in_flight.to_string(),
    ])
}

/// The maximum number of micro-batches in flight on a device, over all its stages.
fn in_flight(schedule: &Schedule) -> usize {
    let of_lane = |lane: &Vec<gpipe_sched::Action>| {
        let (mut now, mut most) = (0_usize, 0);
        for action in lane {
            now += usize::from(action.op == Op::Forward);
            most = most.max(now);
            now -= usize::from(action.op.adds_gradient());
        }
        most
    };
    schedule.lanes().iter().map(of_lane).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_fits_a_terminal_and_leaves_no_schedule_out() {
        let page = page(80).unwrap();
        for line in page.lines() {
            assert!(line.chars().count() <= 90, "{line}");
        }
        for (name, ..) in SCHEDULES {
            assert!(page.contains(&format!("\n{name} (")), "{name}");
        }
        assert!(
            page.contains("device 2        F0 B0 F1 B1 F2 B2 F3 B3"),
            "{page}"
        );
    }

    /// The actions of a row, with a space for each unit of time in which the device waits.
    fn rows(page: &str) -> impl Iterator<Item = &str> {
        let rows = page.lines().filter(|line| line.starts_with("device "));
        rows.map(|row| row["device 0".len()..].trim())
    }

    #[test]
    fn every_action_has_its_micro_batch() {
        let page = page(80).unwrap();
        let digits = |row: &str| row.chars().filter(char::is_ascii_digit).count();
        let letters = |row: &str| row.chars().filter(char::is_ascii_uppercase).count();
        assert!(rows(&page).all(|row| digits(row) >= letters(row)), "{page}");
    }

    #[test]
    fn no_device_waits_where_the_page_says_so() {
        let page = page(80).unwrap();
        let (_, section) = page.split_once("\nzb-h2 (").unwrap();
        let (section, _) = section.split_once("\nzb-v (").unwrap();
        assert!(section.contains("no device waits"));
        assert_eq!(rows(section).count(), DRAWN_FULL.0);
        assert!(rows(section).all(|row| !row.contains("  ")), "{section}");
    }
}
