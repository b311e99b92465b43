//! The launches of one step, each between two events of the device: a row for each kernel and each product.

use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use super::limit;
use super::programs::Programs;
use super::results::{Results, Verdict};
use super::sizes::Sizes;

/// The columns of the table.
const COLUMNS: [&str; 7] = [
    "launch",
    "a step",
    "ms a step",
    "share",
    "GB/s",
    "TFLOP/s",
    "ms each",
];

/// Traces a step with one micro-batch in bf16, tf32 or f32; the most expensive launch comes first.
///
/// # Errors
/// If the program cannot be run or prints what is no object, or a file cannot be written.
pub fn measure(
    programs: &Programs,
    sizes: &Sizes,
    precision: &str,
    results: &mut Results,
) -> anyhow::Result<()> {
    results.section(&format!("Launches of a step in {precision}"))?;
    let numbers = [
        sizes.batch,
        sizes.sequence,
        sizes.width,
        sizes.heads,
        sizes.vocabulary,
        sizes.blocks,
        1,
    ];
    let mut command = Command::new(&programs.launches);
    command
        .args(numbers.map(|number| number.to_string()))
        .arg(precision);
    let mut all = f64::NAN;
    let mut launches = 0;
    let ended = limit::run_heard(&mut command, &mut |line| {
        let mut object: Value = serde_json::from_str(line)
            .with_context(|| format!("the program of launches printed `{line}`"))?;
        object["precision"] = precision.into();
        let number = |key: &str| {
            object[key]
                .as_f64()
                .with_context(|| format!("`{line}` has no {key}"))
        };
        if object["kind"] == "step" {
            all = number("seconds")?;
            let found = format!(
                "{} launches in {:.2} ms, {} allocations, {} bytes of the device's memory at most",
                number("launches")?,
                1e3 * all,
                number("allocations")?,
                number("pool_bytes")?
            );
            let cells = ["a step".to_owned(), found];
            return results.row(&["", "found"], &cells, object);
        }
        launches += 1;
        let cells = cells(&object, number("count")?, number("seconds")?, all);
        results.row(&COLUMNS, &cells, object)
    })?;
    match ended.is_right() && launches > 0 {
        true => Ok(()),
        false => results.failed("launches of a step", Verdict::Wrong, &ended),
    }
}

/// The row of a launch that takes `seconds` of the `all` seconds of a step.
fn cells(object: &Value, count: f64, seconds: f64, all: f64) -> [String; 7] {
    let rate = |key: &str, unit: f64| object[key].as_f64().unwrap_or(0.0) / seconds / unit;
    [
        object["launch"].as_str().unwrap_or_default().to_owned(),
        format!("{count}"),
        format!("{:.3}", 1e3 * seconds),
        format!("{:.1} %", 100.0 * seconds / all),
        format!("{:.0}", rate("bytes", 1e9)),
        match rate("flops", 1e12) {
            0.0 => String::new(),
            rate => format!("{rate:.1}"),
        },
        format!("{:.4}", 1e3 * seconds / count),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_is_shown_by_its_rates() {
        let object = serde_json::json!({"launch": "product", "bytes": 4e9, "flops": 2e12});
        let cells = cells(&object, 4.0, 0.002, 0.01);
        assert_eq!(
            cells,
            [
                "product", "4", "2.000", "20.0 %", "2000", "1000.0", "0.5000"
            ]
        );
        let object = serde_json::json!({"launch": "add", "bytes": 4e9, "flops": 0.0});
        assert_eq!(super::cells(&object, 4.0, 0.002, 0.01)[5], "");
    }
}
