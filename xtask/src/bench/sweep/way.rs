//! One way to train, as `gpipe plan` writes it and `gpipe train` takes it.

use anyhow::Context as _;
use serde_json::Value;

use super::super::configuration::listed;
use crate::flags::Bench;

/// One way to train.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    pub workers: u64,
    /// The flags that mean it, each with its value.
    pub flags: Vec<String>,
}

impl Way {
    /// Whether the other has the same micro-batches and cut.
    pub fn is_cut_like(&self, other: &Self) -> bool {
        let value = |way: &Self, flag: &str| {
            let place = way.flags.iter().position(|one| one == flag)?;
            way.flags.get(place + 1).cloned()
        };
        let same = |flag: &&str| value(self, flag) == value(other, flag);
        ["--micro-batches", "--partition"].iter().all(same)
    }
}

/// The one object of a kind.
pub fn object(output: &str, kind: &str) -> anyhow::Result<Value> {
    let objects = output.lines().map(serde_json::from_str::<Value>);
    let mut found = objects
        .filter_map(Result::ok)
        .filter(|object| object["kind"] == kind);
    found
        .next()
        .with_context(|| format!("gpipe printed no {kind}: {output}"))
}

/// Whether a row is among what was asked for.
pub fn is_asked(row: &Value, flags: &Bench) -> anyhow::Result<bool> {
    let text = |key: &str| match &row[key] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let stages = row["cut"].as_array().map_or(0, Vec::len).to_string();
    let asked = [
        (&flags.stages, stages),
        (&flags.micro_batches, text("micro_batches")),
        (&flags.schedules, text("schedule")),
        (&flags.remat, text("remat")),
    ];
    Ok(asked.iter().all(|(list, value)| {
        list.as_ref()
            .is_none_or(|list| listed(list).contains(value))
    }))
}

/// The flags of a plan, from an object of `--auto` or `--compare`.
pub fn way(row: &Value) -> anyhow::Result<Way> {
    let text = |key: &str| {
        row[key]
            .as_str()
            .with_context(|| format!("no {key} in {row}"))
    };
    let number = |key: &str| {
        row[key]
            .as_u64()
            .with_context(|| format!("no {key} in {row}"))
    };
    let cut = row["cut"].as_array().context("no cut")?;
    let sizes: Vec<String> = cut.iter().map(Value::to_string).collect();
    // A list of each, or their number.
    let workers = match row["workers"].as_array() {
        Some(list) => list.len() as u64,
        None => number("workers")?,
    };
    let (stages, micro_batches) = (
        sizes.len().to_string(),
        number("micro_batches")?.to_string(),
    );
    let flags = [
        ("--stages", stages),
        ("--micro-batches", micro_batches),
        ("--schedule", text("schedule")?.to_owned()),
        ("--remat", text("remat")?.to_owned()),
        ("--partition", sizes.join(",")),
    ];
    let flags = flags
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value]);
    Ok(Way {
        workers,
        flags: flags.collect(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plans_become_flags() {
        let auto = json!({"workers": [0, 1], "micro_batches": 8, "schedule": "1f1b", "remat": "keep", "cut": [3, 4]});
        let compare = json!({"workers": 2, "micro_batches": 8, "schedule": "1f1b", "remat": "keep", "cut": [3, 4]});
        let made = way(&auto).unwrap();
        assert_eq!(made, way(&compare).unwrap());
        assert_eq!(
            made.flags.join(" "),
            "--stages 2 --micro-batches 8 --schedule 1f1b --remat keep --partition 3,4"
        );
        assert!(way(&json!({"workers": 2})).is_err());
    }
}
