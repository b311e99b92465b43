//! `gpipe help schedules`: what each schedule does, drawn and counted by the schedules themselves.

use gpipe_sched::{Costs, Op, Schedule, ScheduleKind, simulate};

use gpipe_report::numbers;

use crate::fail::{Fail, Result};
use crate::output::table;

/// Devices and micro-batches of the comparison.
const COMPARED: (usize, usize) = (4, 8);

/// Devices and micro-batches of the pictures, which fit the narrowest terminals.
const DRAWN: (usize, usize) = (3, 4);

/// The same with two stages a device.
const DRAWN_TWICE: (usize, usize) = (2, 3);

/// Columns of the page.
const WIDTH: usize = 80;

/// Names, sources and what there is to know.
const SCHEDULES: [(&str, &str, &str); 11] = [
    (
        "gpipe",
        "Huang et al. 2019",
        "All micro-batches forward, then all back. Simple, and every stage holds them all; with\n\
         --remat stage it holds little more than their inputs.",
    ),
    (
        "1f1b",
        "Narayanan et al. 2021",
        "One forward, one back, as soon as there is something to take back. The bubble of gpipe,\n\
         but stage s of K holds only K-s micro-batches.",
    ),
    (
        "interleaved:2",
        "Narayanan et al. 2021",
        "1f1b with V stages on each worker, here 2: a bubble V times smaller for V times as many\n\
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
        "The backward pass in two halves: the gradient of the input (I) at once, for the stage\n\
         before waits for it, that of the weights (W) where there is time. A third of the bubble.",
    ),
    (
        "zb-h2",
        "Qi et al. 2023",
        "More micro-batches go ahead, so that no device waits between its first action and its\n\
         last, for twice the memory.",
    ),
    (
        "zb-v",
        "Qi et al. 2023",
        "Two stages a worker: the model goes down the workers and comes back up. As zb-h2, in the\n\
         memory of 1f1b.",
    ),
    (
        "v-half",
        "Qi et al. 2024",
        "As zb-v, with half of the memory and some of the bubble.",
    ),
    (
        "v-min",
        "Qi et al. 2024",
        "As zb-v, with a third of the memory and more of the bubble.",
    ),
    (
        "dualpipe-v",
        "DeepSeek-AI 2025",
        "As zb-v, with forward and backward passes in pairs. Made to hide transfers between\n\
         machines.",
    ),
    (
        "zero-bubble",
        "after Qi et al. 2023",
        "Made for the predicted costs of the stages at hand, which need not be even; never slower\n\
         than 1f1b on them. zero-bubble:HELD says how many micro-batches a stage may hold.",
    ),
];

/// The whole page.
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
        "A schedule says which micro-batch each worker works on next. Workers whose turn has not\n\
         come idle: that share of the time is the bubble.\n\n\
         {devices} workers and {micro_batches} micro-batches, where forward pass, input and weight gradient of\n\
         all stages take as long as each other. Held is what a worker keeps in memory at most,\n\
         counted in micro-batches of its share of the model:\n\n{}\n\
         In the grids time goes to the right, a row a worker. 2F0 is stage 2, forward,\n\
         micro-batch 0; B is backward, I and W are its two halves.\n\
         {pictures}\n\
         Any of them trains to the bits of one stage. Tables of PyTorch's pipelining\n\
         (--schedule table.csv) run too; gpipe plan --csv FILE writes one.\n",
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
    // A stage is so much smaller where a worker has several.
    let held = held(schedule) as f64 / kind.chunks() as f64;
    Ok(vec![
        name.to_owned(),
        source.to_owned(),
        schedule.stages().to_string(),
        numbers::percent(bubble),
        held.to_string(),
    ])
}

/// The most micro-batches that a device holds, of all its stages together.
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
