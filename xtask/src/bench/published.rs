//! Published speed-ups of pipelines beside those that `gpipe plan` predicts for the same balances.
//!
//! A device is two published numbers, the rate of its FLOPs and the bandwidth of its memory, and a link a third;
//! nothing is fitted to a row. A prediction is the simulated step of the published configuration.

mod gpipe;
mod tables;
mod torchgpipe;

use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};
use xshell::{Shell, cmd};

use super::sweep::program;
use super::sweep::way::object;
use super::table::table;
use crate::flags::Bench;
use tables::{Row, Table};

/// Predicts every row of every table.
pub fn run(shell: &Shell, root: &Path, flags: &Bench) -> anyhow::Result<()> {
    let program = program(shell, root)?;
    let place = shell.create_temp_dir()?;
    let _place = shell.push_dir(place.path());
    for published in torchgpipe::TABLES.iter().chain(gpipe::TABLES) {
        let throughput = |row: &Row| {
            let arguments = published.arguments(row);
            let said = cmd!(shell, "{program} plan --auto --json {arguments...}")
                .quiet()
                .ignore_status()
                .read()?;
            let seconds = object(&said, "auto")?["step_seconds"].as_f64();
            let seconds = seconds.context("no step_seconds")?;
            Ok::<_, anyhow::Error>(row.batch as f64 / seconds)
        };
        let found: Vec<f64> = published
            .rows
            .iter()
            .map(throughput)
            .collect::<anyhow::Result<_>>()
            .with_context(|| published.name.to_owned())?;
        let rows = compared(published, &found);
        if flags.json {
            for row in &rows {
                println!("{row}");
            }
        } else {
            println!("{}; {}", published.name, published.source);
            println!("{}\n{}\n", drawn(&rows, flags.markdown), published.note);
        }
    }
    Ok(())
}

/// Each row with its speed-ups over the base row, published and predicted.
fn compared(published: &Table, throughputs: &[f64]) -> Vec<Value> {
    let base = published.base;
    let (first, first_found) = (published.rows[base].published, throughputs[base]);
    let rows = published.rows.iter().zip(throughputs);
    let compared = rows.map(|(row, &throughput)| {
        let (wanted, predicted) = (row.published / first, throughput / first_found);
        json!({
            "kind": "published",
            "table": published.name,
            "source": published.source,
            "experiment": row.experiment,
            "published": wanted,
            "predicted": predicted,
            "ratio": predicted / wanted,
            "samples_per_second": throughput,
        })
    });
    compared.collect()
}

fn drawn(rows: &[Value], markdown: bool) -> String {
    let heading = [
        "",
        "published",
        "predicted",
        "predicted / published",
        "samples/s, predicted",
    ];
    let number = |row: &Value, key: &str, digits: usize| {
        let number = row[key].as_f64().unwrap_or(f64::NAN);
        format!("{number:.digits$}")
    };
    let cells = rows.iter().map(|row| {
        [
            row["experiment"].as_str().unwrap_or_default().to_owned(),
            number(row, "published", 3),
            number(row, "predicted", 3),
            number(row, "ratio", 2),
            number(row, "samples_per_second", 1),
        ]
    });
    let rows: Vec<[String; 5]> = [heading.map(str::to_owned)]
        .into_iter()
        .chain(cells)
        .collect();
    table(&rows, markdown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tables::sizes;
    use torchgpipe::resnet101;

    #[test]
    fn balances_are_those_of_the_published_models() {
        // As many layers as torchgpipe's ResNet-101, and as `gpipe plan --model resnet101`.
        let layers = resnet101();
        assert_eq!((layers.len(), layers.iter().sum::<usize>()), (370, 377));
        assert_eq!(sizes(&[135, 235], &layers), "141,236");
        for table in torchgpipe::TABLES.iter().chain(gpipe::TABLES) {
            let whole = |row: &Row| row.balance.iter().sum::<usize>();
            let all = whole(&table.rows[0]);
            assert!(
                table.rows.iter().all(|row| whole(row) == all),
                "{}",
                table.name
            );
            assert!(table.base < table.rows.len());
        }
    }
}
