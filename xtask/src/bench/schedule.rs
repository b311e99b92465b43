//! The simulator, the executor and sleeping stages in one table: what was promised or is theory, beside
//! what was measured.

use anyhow::Context as _;
use serde_json::Value;
use xshell::{Shell, cmd};

use super::table::table;
use crate::flags::Bench;

/// Runs the examples of gpipe-sched that measure.
pub fn run(shell: &Shell, flags: &Bench) -> anyhow::Result<()> {
    let milliseconds = flags.milliseconds.unwrap_or(10).to_string();
    let mut rows = Vec::new();
    for (example, arguments) in [
        ("growth", vec!["--json"]),
        ("overhead", vec!["--json"]),
        ("sleepers", vec![milliseconds.as_str(), "--json"]),
    ] {
        eprintln!("schedule: {example}");
        let output = cmd!(
            shell,
            "cargo run -q --release -p gpipe-sched --example {example} -- {arguments...}"
        );
        for line in output.quiet().read()?.lines() {
            if flags.json {
                println!("{line}");
            }
            let found = serde_json::from_str(line).with_context(|| format!("`{line}`"))?;
            rows.extend(rows_of(&found)?);
        }
    }
    if !flags.json {
        print!("{}", drawn(&rows, flags.markdown));
    }
    Ok(())
}

/// What, with which sizes, promised or predicted, measured, and how the two compare.
type Row = [String; 5];

fn drawn(rows: &[Row], markdown: bool) -> String {
    let heading = ["what", "case", "theory", "measured", ""].map(str::to_owned);
    table(&[&[heading], rows].concat(), markdown)
}

/// The rows of one line of an example.
fn rows_of(found: &Value) -> anyhow::Result<Vec<Row>> {
    let number = |key: &str| {
        found[key]
            .as_f64()
            .with_context(|| format!("no {key} in {found}"))
    };
    let text = |key: &str| {
        found[key]
            .as_str()
            .with_context(|| format!("no {key} in {found}"))
    };
    let within = |measured: f64, limit: f64| match measured <= limit {
        true => "within".to_owned(),
        false => "above".to_owned(),
    };
    match text("kind")? {
        "growth" => {
            let actions = number("actions")?;
            let case = format!(
                "1f1b {}x{}, {actions} actions",
                number("stages")?,
                number("micro_batches")?
            );
            let seconds = number("simulated_seconds")?;
            // The promise is of the largest.
            let largest = actions > 8e6;
            let limit = |limit: &str| {
                if largest {
                    limit.to_owned()
                } else {
                    String::new()
                }
            };
            let verdict = |measured, limit| match largest {
                true => within(measured, limit),
                false => String::new(),
            };
            let mut rows = vec![[
                "simulate".to_owned(),
                case.clone(),
                limit("at most 4 s"),
                format!(
                    "{seconds:.3} s, {:.0} ns an action",
                    1e9 * seconds / actions
                ),
                verdict(seconds, 4.0),
            ]];
            if let Some(bytes) = found["peak_bytes"].as_f64() {
                rows.push([
                    "peak memory".to_owned(),
                    case,
                    limit("at most 2 GB"),
                    format!("{:.0} MB", bytes / 1e6),
                    verdict(bytes, 2e9),
                ]);
            }
            Ok(rows)
        }
        "overhead" => {
            let seconds = number("action_seconds")?;
            Ok(vec![[
                "execute".to_owned(),
                format!(
                    "{} {}x{}",
                    text("schedule")?,
                    number("stages")?,
                    number("micro_batches")?
                ),
                "at most 10 µs".to_owned(),
                format!("{:.2} µs an action", 1e6 * seconds),
                within(seconds, 10e-6),
            ]])
        }
        "sleepers" => {
            let (theory, measured) = (number("predicted")?, number("measured")?);
            Ok(vec![[
                "bubble".to_owned(),
                format!(
                    "{} K={} M={}",
                    text("schedule")?,
                    number("devices")?,
                    number("micro_batches")?
                ),
                format!("{theory:.4}"),
                format!("{measured:.4}"),
                format!("{:+.4}", measured - theory),
            ]])
        }
        other => anyhow::bail!("an example says {other}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn promises_stand_beside_what_was_measured() {
        let growth = json!({
            "kind": "growth", "stages": 1024, "micro_batches": 4096, "actions": 8_388_608,
            "made_seconds": 1.0, "simulated_seconds": 5.0, "peak_bytes": 735_000_000,
        });
        let sleepers = json!({
            "kind": "sleepers", "schedule": "zb-v", "devices": 4, "micro_batches": 8,
            "predicted": 0.25, "measured": 0.2512,
        });
        let mut rows = rows_of(&growth).unwrap();
        rows.extend(rows_of(&sleepers).unwrap());
        let shown = drawn(&rows, false);
        assert!(
            shown.contains("at most 4 s") && shown.contains("above"),
            "{shown}"
        );
        assert!(
            shown.contains("735 MB") && shown.contains("within"),
            "{shown}"
        );
        assert!(
            shown.contains("zb-v K=4 M=8") && shown.contains("+0.0012"),
            "{shown}"
        );
        let markdown = drawn(&rows, true);
        assert_eq!(markdown.lines().nth(1), Some("|---|---|---|---|---|"));
        assert!(
            markdown
                .lines()
                .all(|line| line.starts_with('|') && line.ends_with('|'))
        );
        assert!(rows_of(&json!({"kind": "other"})).is_err());
    }
}
