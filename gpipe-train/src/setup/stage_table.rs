//! The table of the stages of a plan, within the width of a terminal.

use std::ops::Range;

use gpipe_report::numbers;

use super::Setup;
use crate::text_table::table_within;

/// A column of the table.
struct Column {
    /// The heading, long and short.
    heading: [&'static str; 2],
    is_text: bool,
    cells: Vec<String>,
}

impl Setup {
    /// Layers, cost in `unit` and bytes of each stage. To fit `width`, drops in this order: the common prefix of layer
    /// names, long headings, the device if all are the same, the share of the cost.
    pub fn stage_table(&self, unit: &'static str, width: usize) -> String {
        let mut columns = columns(self, unit);
        let mut short = 0;
        let needed = |columns: &[Column], short: usize| -> usize {
            let of = |column: &Column| {
                let cells = column.cells.iter().map(String::as_str);
                let all = cells.chain([column.heading[short]]);
                all.map(|cell| cell.chars().count()).max().unwrap_or(0)
            };
            columns.iter().map(of).sum::<usize>() + 2 * columns.len().saturating_sub(1)
        };
        if needed(&columns, short) > width {
            // The prefix of most layer names of a GPT.
            let texts = columns.iter_mut().filter(|column| column.is_text);
            for cell in texts.flat_map(|column| &mut column.cells) {
                *cell = cell.replace("transformer.", "");
            }
        }
        if needed(&columns, short) > width {
            short = 1;
        }
        let alike = self.devices.windows(2).all(|pair| pair[0] == pair[1]);
        for (name, can_drop) in [("device", alike), ("share", true)] {
            if needed(&columns, short) > width && can_drop {
                columns.retain(|column| column.heading[0] != name);
            }
        }
        let heading: Vec<&str> = columns.iter().map(|column| column.heading[short]).collect();
        let texts = columns.iter().filter(|column| column.is_text);
        let texts: Vec<&str> = texts.map(|column| column.heading[short]).collect();
        let rows = 0..self.partition.parts();
        let row = |stage: usize| columns.iter().map(|c| c.cells[stage].clone()).collect();
        table_within(width, &heading, &texts, &rows.map(row).collect::<Vec<_>>())
    }
}

fn columns(setup: &Setup, unit: &'static str) -> Vec<Column> {
    let loads = setup.loads.loads();
    let all: f64 = loads.iter().map(|&load| load as f64).sum();
    let stages: Vec<(usize, Range<usize>)> = setup.partition.ranges().enumerate().collect();
    let column =
        |heading: [&'static str; 2], cell: &dyn Fn(usize, &Range<usize>) -> String| Column {
            is_text: heading[0] == "device" || heading[0].is_empty(),
            cells: stages
                .iter()
                .map(|(stage, layers)| cell(*stage, layers))
                .collect(),
            heading,
        };
    let brief = match unit {
        "FLOP equivalents" => "FLOP eq.",
        unit => unit,
    };
    let memory = |stage: usize| &setup.memory[stage];
    vec![
        column(["stage", "stage"], &|stage, _| stage.to_string()),
        column(["device", "device"], &|stage, _| {
            setup.devices[stage].to_string()
        }),
        column(["layers", "layers"], &|_, layers| layers.len().to_string()),
        column(["", ""], &|_, layers| setup.names(layers)),
        column([unit, brief], &|stage, _| {
            numbers::short(loads[stage] as f64)
        }),
        column(["share", "share"], &|stage, _| {
            numbers::percent(loads[stage] as f64 / all)
        }),
        column(["in flight", "in flight"], &|stage, _| {
            setup.schedule.live(stage).to_string()
        }),
        column(["parameters", "params"], &|stage, _| {
            numbers::bytes(memory(stage).fixed())
        }),
        column(["activations", "acts"], &|stage, _| {
            numbers::bytes(memory(stage).activations)
        }),
        column(["peak", "peak"], &|stage, _| {
            numbers::bytes(memory(stage).peak())
        }),
    ]
}
