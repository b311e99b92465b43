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

/// Columns of the page.
const WIDTH: usize = 80;

/// The name, source and description of each schedule.
const SCHEDULES: [(&str, &str, &str); 11] = [
    (
        "gpipe",
        "Huang et al. 2019",
        "All micro-batches forward, then all backward. Simple, but every stage holds all of them;\n\
         with --remat stage it holds little more than their inputs.",
    ),
    (
        "1f1b",
        "Narayanan et al. 2021",
        "One forward, one backward, as soon as a backward pass is possible. The bubble of gpipe,\n\
         but stage s of K holds only K-s micro-batches.",
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
        "More micro-batches in flight, so that no device waits between its first and its last\n\
         action, with twice the memory.",
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
        "Like zb-v, with half of the memory and a small bubble.",
    ),
    (
        "v-min",
        "Qi et al. 2024",
        "Like zb-v, with a third of the memory and a larger bubble.",
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
         for them. zero-bubble:HELD limits the micro-batches that a stage holds.",
    ),
];

/// The text of the page.
pub fn page() -> Result<String> {
    let mut rows = Vec::new();
    let mut pictures = String::new();
    for (name, source, text) in SCHEDULES {
        let kind: ScheduleKind = name.parse().map_err(Fail::usage)?;
        let schedule = build(kind, COMPARED)?;
        rows.push(row(name, source, kind, &schedule)?);
        let drawn = if kind.chunks() == 1 {
            DRAWN
        } else {
            DRAWN_TWICE
        };
        let grid = build(kind, drawn)?.grid(WIDTH);
        pictures += &format!("\n{name} ({source})\n{text}\n\n{grid}");
    }
    let (devices, micro_batches) = COMPARED;
    let heading = ["schedule", "source", "stages", "bubble", "held"];
    Ok(format!(
        "A schedule is the order in which each worker runs its micro-batches. Workers wait for each\n\
         other: the idle fraction of their time is the bubble.\n\n\
         {devices} workers and {micro_batches} micro-batches, where forward pass, input and weight gradient of\n\
         all stages take equally long. Held is the maximum that a worker keeps in memory, in\n\
         micro-batches of its part of the model:\n\n{}\n\
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
    let held = held(schedule) as f64 / kind.chunks() as f64;
    Ok(vec![
        name.to_owned(),
        source.to_owned(),
        schedule.stages().to_string(),
        numbers::percent(bubble),
        held.to_string(),
    ])
}

/// The maximum number of micro-batches that a device holds, over all its stages.
fn held(schedule: &Schedule) -> usize {
    let of_lane = |lane: &Vec<gpipe_sched::Action>| {
        let (mut live, mut most) = (0_usize, 0);
        for action in lane {
            live += usize::from(action.op == Op::Forward);
            most = most.max(live);
            live -= usize::from(action.op.adds_gradient());
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
        let page = page().unwrap();
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
}
