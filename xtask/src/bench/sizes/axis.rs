//! Cases that differ in one size, and how their times compare with their FLOPs.

use serde_json::{Value, json};

use crate::bench::model::Shape;
use crate::bench::summary::Summary;
use crate::bench::table::table;

/// What all others are compared with: in every table but that of micro-batches one size changes.
const BASE: Case = Case {
    shape: Shape {
        batch: 8,
        sequence: 128,
        width: 256,
        blocks: 8,
        heads: 4,
        vocabulary: 256,
    },
    stages: 1,
    micro_batches: 1,
};

/// What is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    pub shape: Shape,
    pub stages: usize,
    pub micro_batches: usize,
}

/// Cases that differ in one size.
pub struct Axis {
    /// The size.
    pub name: &'static str,
    /// What the others are.
    pub fixed: String,
    /// What it is in each case.
    pub cases: Vec<(String, Case)>,
    /// Which of them the others are compared with.
    base: Case,
}

impl Case {
    pub fn arguments(&self, threads: usize) -> Vec<String> {
        let Shape {
            batch,
            sequence,
            width,
            blocks,
            heads,
            ..
        } = self.shape;
        let mut arguments = format!(
            "--model bench-a --batch-size {batch} --seq-len {sequence} --set model.width={width} \
             --set model.blocks={blocks} --set model.heads={heads} --stages {} --micro-batches {} \
             --remat keep --threads {threads}",
            self.stages, self.micro_batches
        );
        if self.stages > 1 {
            arguments += " --schedule 1f1b";
        }
        arguments.split(' ').map(str::to_owned).collect()
    }
}

pub fn axes() -> Vec<Axis> {
    let shape = BASE.shape;
    let of_shape = |shape| Case { shape, ..BASE };
    let axis = |name, fixed: &str, values: &[u64], change: &dyn Fn(u64) -> Case, base| Axis {
        name,
        fixed: fixed.to_owned(),
        cases: values
            .iter()
            .map(|&value| (value.to_string(), change(value)))
            .collect(),
        base,
    };
    // A sample a micro-batch is the end; shorter samples and fewer layers keep it short.
    let parts = |stages: usize, micro_batches: u64| Case {
        shape: Shape {
            batch: 64,
            sequence: 64,
            blocks: 4,
            ..shape
        },
        stages,
        micro_batches: micro_batches as usize,
    };
    let counts = [1, 2, 4, 8, 16, 32, 64];
    let small = "4 layers of width 256, 64 samples of 64 tokens";
    vec![
        axis(
            "layers",
            "width 256, 8 samples of 128 tokens",
            &[2, 4, 8, 16, 24, 48],
            &|blocks| of_shape(Shape { blocks, ..shape }),
            BASE,
        ),
        axis(
            "width",
            "8 layers, heads of 64, 8 samples of 128 tokens",
            &[64, 128, 256, 512, 768],
            &|width| {
                of_shape(Shape {
                    width,
                    heads: width / 64,
                    ..shape
                })
            },
            BASE,
        ),
        axis(
            "tokens of a sample",
            "8 layers of width 256, 1024 tokens a step",
            &[64, 128, 256, 512, 1024],
            &|sequence| {
                of_shape(Shape {
                    sequence,
                    batch: 1024 / sequence,
                    ..shape
                })
            },
            BASE,
        ),
        axis(
            "micro-batches, one stage",
            small,
            &counts,
            &|count| parts(1, count),
            parts(1, 1),
        ),
        axis(
            "micro-batches, two stages (1f1b)",
            small,
            &counts,
            &|count| parts(2, count),
            parts(1, 1),
        ),
    ]
}

/// One line of a table.
pub struct Row<'a> {
    value: &'a str,
    pub case: &'a Case,
    pub summary: &'a Summary,
    /// How many times the time of the base, and how many times its FLOPs: the model's, and those executed.
    times: f64,
    flops: f64,
    executed: f64,
}

impl Axis {
    pub fn rows<'a>(&'a self, known: &'a [(Case, Summary)]) -> Vec<Row<'a>> {
        let of = |case: &Case| {
            known
                .iter()
                .find(|(known, _)| known == case)
                .map(|(_, summary)| summary)
        };
        let mut rows = Vec::new();
        for (value, case) in &self.cases {
            let (Some(summary), Some(base)) = (of(case), of(&self.base)) else {
                continue;
            };
            let by = |flops: fn(&Shape) -> u64| {
                flops(&case.shape) as f64 / flops(&self.base.shape) as f64
            };
            rows.push(Row {
                value,
                case,
                summary,
                times: summary.median / base.median,
                flops: by(Shape::flops),
                executed: by(Shape::executed_flops),
            });
        }
        rows
    }

    pub fn drawn(&self, known: &[(Case, Summary)], markdown: bool) -> String {
        let heading = [
            self.name,
            "median ms",
            "min ms",
            "spread",
            "GFLOP/s",
            "times",
            "FLOPs",
            "ratio",
            "executed",
            "ratio",
        ];
        let mut rows = vec![heading.map(str::to_owned)];
        for row in self.rows(known) {
            let rate = row.case.shape.flops() as f64 / row.summary.median / 1e9;
            let number = |number: f64| format!("{number:.3}");
            rows.push([
                row.value.to_owned(),
                format!("{:.1}", row.summary.median * 1e3),
                format!("{:.1}", row.summary.min * 1e3),
                format!("{:.1} %", row.summary.spread * 100.0),
                format!("{rate:.1}"),
                number(row.times),
                number(row.flops),
                number(row.times / row.flops),
                number(row.executed),
                number(row.times / row.executed),
            ]);
        }
        table(&rows, markdown)
    }
}

impl Row<'_> {
    pub fn json(&self, axis: &str, threads: usize) -> Value {
        json!({
            "kind": "bench",
            "family": "sizes",
            "size": axis,
            "value": self.value,
            "threads": threads,
            "stages": self.case.stages,
            "micro_batches": self.case.micro_batches,
            "steps": self.summary.count,
            "median_seconds": self.summary.median,
            "min_seconds": self.summary.min,
            "spread": self.summary.spread,
            "times": self.times,
            "flops": self.flops,
            "ratio": self.times / self.flops,
            "executed_flops": self.executed,
            "executed_ratio": self.times / self.executed,
        })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Every case takes as long as its FLOPs say, and a constant more.
    pub fn known(axes: &[Axis], constant: f64) -> Vec<(Case, Summary)> {
        let cases = axes.iter().flat_map(|axis| &axis.cases);
        let time = |case: &Case| case.shape.flops() as f64 / 1e11 + constant;
        cases
            .map(|(_, case)| (*case, Summary::of(&[time(case)]).unwrap()))
            .collect()
    }

    #[test]
    fn what_follows_the_flops_has_ratio_one() {
        let axes = axes();
        let known = known(&axes, 0.0);
        for axis in &axes {
            let rows = axis.rows(&known);
            assert_eq!(rows.len(), axis.cases.len());
            assert!(axis.cases.iter().any(|(_, case)| *case == axis.base) || axis.base.stages == 1);
            for row in rows {
                assert!(
                    (row.times / row.flops - 1.0).abs() < 1e-12,
                    "{} {}",
                    axis.name,
                    row.value
                );
            }
        }
        let drawn = axes[0].drawn(&known, false);
        let last = drawn.lines().last().unwrap();
        assert!(
            last.starts_with("48 ") && last.contains("  100.0  "),
            "{last}"
        );
    }

    #[test]
    fn cases_become_flags() {
        let arguments = BASE.arguments(2).join(" ");
        assert!(
            arguments
                .starts_with("--model bench-a --batch-size 8 --seq-len 128 --set model.width=256 ")
        );
        assert!(arguments.ends_with("--stages 1 --micro-batches 1 --remat keep --threads 2"));
    }
}
