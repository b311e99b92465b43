//! An earlier measurement, and what has become slower since.

use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

/// What a line must agree in to be of the same thing.
const KEYS: [&str; 8] = [
    "family",
    "model",
    "dtype",
    "threads",
    "stages",
    "micro_batches",
    "schedule",
    "remat",
];

/// Slower by less than this is noise, however even the times are.
const NOISE: f64 = 0.05;

/// The lines of an earlier `bench training --json`; an error if there are none.
pub fn read(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the baseline {}", path.display()))?;
    let lines = text.lines().filter(|line| line.starts_with('{'));
    let parse = |line| serde_json::from_str(line).with_context(|| format!("no JSON: {line}"));
    let lines: Vec<Value> = lines.map(parse).collect::<anyhow::Result<_>>()?;
    anyhow::ensure!(
        !lines.is_empty(),
        "the baseline {} has no object: write it by `cargo xtask bench training --json`",
        path.display()
    );
    Ok(lines)
}

/// A line for everything that takes longer than in the baseline by more than the times of either
/// spread; what the baseline does not know is passed over, unless that is all.
pub fn slower(baseline: &[Value], now: &[Value]) -> anyhow::Result<Vec<String>> {
    let same = |a: &Value, b: &Value| KEYS.iter().all(|key| a[key] == b[key]);
    let (mut found, mut compared) = (Vec::new(), 0);
    for now in now {
        let Some(before) = baseline.iter().find(|before| same(before, now)) else {
            continue;
        };
        let number = |line: &Value, key: &str| {
            let number = line[key].as_f64();
            number.with_context(|| format!("no {key} in {line}"))
        };
        let spread = number(before, "spread")?.max(number(now, "spread")?);
        let (was, is) = (
            number(before, "median_seconds")?,
            number(now, "median_seconds")?,
        );
        compared += 1;
        if is > was * (1.0 + spread.max(NOISE)) {
            let case = KEYS.map(|key| match &now[key] {
                Value::String(text) => text.clone(),
                other => format!("{key} {other}"),
            });
            found.push(format!(
                "{}: {:.1} ms a step, {:.1} ms before",
                case.join(", "),
                is * 1e3,
                was * 1e3
            ));
        }
    }
    anyhow::ensure!(
        compared > 0,
        "the baseline has none of what was measured: measure the same configurations for both"
    );
    eprintln!("compared with the baseline: {compared} of {}", now.len());
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use xshell::Shell;

    use super::*;

    fn line(stages: u64, median: f64, spread: f64) -> Value {
        json!({
            "kind": "bench", "family": "training", "model": "bench-a", "dtype": "f32", "threads": 2,
            "stages": stages, "micro_batches": 1, "schedule": "gpipe", "remat": "keep",
            "median_seconds": median, "spread": spread,
        })
    }

    #[test]
    fn only_what_is_slower_beyond_the_spread_is_told() {
        let before = [line(1, 1.0, 0.02), line(2, 1.0, 0.2)];
        let now = [line(1, 1.04, 0.0), line(2, 1.15, 0.0), line(4, 9.0, 0.0)];
        assert!(slower(&before, &now).unwrap().is_empty());
        let told = slower(&before, &[line(1, 1.06, 0.0), line(2, 1.21, 0.0)]).unwrap();
        assert_eq!(
            told[0],
            "training, bench-a, f32, threads 2, stages 1, micro_batches 1, gpipe, keep: 1060.0 ms a \
             step, 1000.0 ms before"
        );
        assert_eq!(told.len(), 2);
        assert!(slower(&before, &[line(1, 0.5, 0.0)]).unwrap().is_empty());
    }

    #[test]
    fn a_baseline_that_says_nothing_of_what_was_measured_is_an_error() {
        let before = [line(1, 1.0, 0.02)];
        assert!(slower(&before, &[line(2, 9.0, 0.0)]).is_err());
        let mut without = line(1, 1.0, 0.02);
        without["median_seconds"] = Value::Null;
        assert!(slower(&[without], &before).is_err());
    }

    #[test]
    fn a_file_of_other_things_is_refused() {
        let folder = Shell::new().unwrap().create_temp_dir().unwrap();
        let file = folder.path().join("lines");
        std::fs::write(&file, "{\"a\": 1}\nwords\n").unwrap();
        assert_eq!(read(&file).unwrap(), [json!({"a": 1})]);
        std::fs::write(&file, "{words\n").unwrap();
        assert!(read(&file).is_err());
        // The table of a run without --json.
        std::fs::write(&file, "stages  seconds\n1  0.5\n").unwrap();
        assert!(read(&file).is_err());
        assert!(read(Path::new("no such file")).is_err());
    }
}
