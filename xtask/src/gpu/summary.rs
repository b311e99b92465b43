//! The summary of one page: what has run, what is wrong, how fast it is, and which launches have the most to gain.

use std::fmt::Write as _;

use serde_json::Value;

use super::run_tables::{beside_graphs, beside_pytorch};
use crate::bench::table::table;

/// The parts, in their order.
pub const PARTS: &str = "abcd";

/// Launches that are named.
const WORST: usize = 5;

/// The page of these objects, which are those of the file of objects.
pub fn summary(objects: &[Value]) -> String {
    let mut page = String::from("# gpipe on a GPU: summary\n\n");
    if let Some(begin) = objects.iter().rfind(|object| object["kind"] == "begin") {
        if begin["is_emulated"] == true {
            page += "**These GPUs are emulated: no time here says anything.**\n\n";
        }
        let text = |key: &str| begin[key].as_str().unwrap_or_default();
        let _ = writeln!(
            page,
            "{}, version {}: {}\n",
            text("date"),
            text("version"),
            text("device")
        );
    }
    page += &parts(objects);
    page += &checks(objects);
    let runs: Vec<&Value> = of_kind(objects, "run").collect();
    page += &beside_pytorch(&runs);
    page += &beside_graphs(&runs);
    page += &worst(objects);
    page
}

fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

/// Those of a kind of the last run that has any.
fn latest<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let last = objects
        .iter()
        .rposition(|object| object["kind"] == kind)
        .unwrap_or(0);
    let begun = objects[..last]
        .iter()
        .rposition(|object| object["kind"] == "begin");
    of_kind(&objects[begun.unwrap_or(0)..], kind)
}

/// How far each part came.
fn parts(objects: &[Value]) -> String {
    let mut rows = vec![["part", ""].map(str::to_owned)];
    for part in PARTS.chars() {
        let own = part.to_string();
        let last = objects
            .iter()
            .rfind(|object| object["part"] == own.as_str());
        let state = match last {
            None => "not run".to_owned(),
            Some(end) if end["kind"] == "end" => match end["cut"].as_str() {
                None => "has ended".to_owned(),
                Some(why) => format!("cut off: {why}"),
            },
            Some(_) => "has not ended: it runs, or was ended from outside".to_owned(),
        };
        rows.push([own, state]);
    }
    format!("{}\n", table(&rows, true))
}

/// How many checks went how, and those that went wrong.
fn checks(objects: &[Value]) -> String {
    let words = ["right", "WRONG", "not tried", "cut off"];
    let found = |word: &str| {
        of_kind(objects, "check")
            .filter(|check| check["verdict"] == word)
            .count()
    };
    let counts: Vec<String> = words.map(|word| format!("{} {word}", found(word))).to_vec();
    let mut text = format!("Checks: {}.\n\n", counts.join(", "));
    for check in of_kind(objects, "check").filter(|check| check["verdict"] == "WRONG") {
        let text_of = |key: &str| check[key].as_str().unwrap_or_default();
        let _ = writeln!(text, "- {}: {}", text_of("check"), text_of("found"));
    }
    text
}

/// Bytes and FLOPs a second of the ceilings, as far as they are known.
fn ceilings(objects: &[Value]) -> [Option<f64>; 2] {
    let rate = |name: &str, key: &str| {
        let found = latest(objects, "ceiling")
            .filter(|ceiling| ceiling["ceiling"] == name)
            .last()?;
        Some(found[key].as_f64()? / found["seconds"].as_f64()?)
    };
    [rate("copy", "bytes"), rate("product bf16", "flops")]
}

/// The launches of a step that take the most time beyond that of the ceilings.
fn worst(objects: &[Value]) -> String {
    let number = |launch: &Value, key: &str| launch[key].as_f64().unwrap_or(0.0);
    let launches = latest(objects, "launch").filter(|launch| launch["precision"] == "bf16");
    let launches: Vec<&Value> = launches.collect();
    if launches.is_empty() {
        return "\nNo launch is known yet.\n".to_owned();
    }
    let [copy, product] = ceilings(objects);
    let least = |launch: &Value| {
        let at = |key: &str, rate: Option<f64>| rate.map_or(0.0, |rate| number(launch, key) / rate);
        at("bytes", copy).max(at("flops", product))
    };
    let gain = |launch: &Value| (number(launch, "seconds") - least(launch)).max(0.0);
    let all: f64 = launches
        .iter()
        .map(|launch| number(launch, "seconds"))
        .sum();
    let mut sorted = launches.clone();
    sorted.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
    let heading = [
        "launch",
        "a step",
        "ms a step",
        "ms at the ceiling",
        "gain in ms",
        "of the step",
    ];
    let mut rows = vec![heading.map(str::to_owned)];
    rows.extend(sorted.iter().take(WORST).map(|launch| {
        [
            launch["launch"].as_str().unwrap_or_default().to_owned(),
            launch["count"].to_string(),
            format!("{:.3}", 1e3 * number(launch, "seconds")),
            format!("{:.3}", 1e3 * least(launch)),
            format!("{:.3}", 1e3 * gain(launch)),
            format!("{:.1} %", 100.0 * gain(launch) / all),
        ]
    }));
    let rate = |rate: Option<f64>, unit: f64| {
        rate.map_or_else(
            || "unknown".to_owned(),
            |rate| format!("{:.0}", rate / unit),
        )
    };
    let mut text = format!(
        "\n## The launches with the most to gain\n\nCeilings: a copy at {} GB/s, a product in bf16 at {} TFLOP/s. Only \
         products are held against the second, so attention gains less than it says.\n\n{}",
        rate(copy, 1e9),
        rate(product, 1e12),
        table(&rows, true),
    );
    if let Some(step) = latest(objects, "step").last() {
        let _ = writeln!(
            text,
            "\nA step with {} micro-batches: {} launches in {:.2} ms, {} allocations, {:.2} GB of the device's memory.",
            step["micro_batches"],
            step["launches"],
            1e3 * all,
            step["allocations"],
            number(step, "pool_bytes") / 1e9,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_worst_launch_is_the_one_with_the_most_beyond_its_ceiling() {
        let launch = |name: &str, seconds: f64, bytes: f64, flops: f64| {
            json!({
                "kind": "launch", "part": "b", "precision": "bf16", "launch": name, "count": 3, "seconds": seconds, "bytes": bytes,
                "flops": flops,
            })
        };
        let rows = [
            json!({"kind": "begin", "date": "today", "is_emulated": true}),
            launch("old", 9.0, 1.0, 0.0),
            json!({"kind": "begin", "date": "today"}),
            // 1 TB/s and 100 TFLOP/s.
            json!({"kind": "ceiling", "ceiling": "copy", "seconds": 0.001, "bytes": 1e9, "flops": 0.0}),
            json!({"kind": "ceiling", "ceiling": "product bf16", "seconds": 0.01, "bytes": 1e6, "flops": 1e12}),
            launch("at its ceiling", 0.020, 20e9, 0.0),
            launch("product", 0.010, 1e6, 0.9e12),
            launch("slow", 0.010, 4e9, 0.0),
            json!({"kind": "step", "launches": 9, "allocations": 5, "micro_batches": 1, "pool_bytes": 7e9}),
        ];
        let page = summary(&rows);
        let at = |words: &str| {
            page.find(words)
                .unwrap_or_else(|| panic!("{words}: {page}"))
        };
        assert!(at("| slow ") < at("| product ") && at("| product ") < at("| at its ceiling "));
        for words in [
            "6.000      | 15.0 %",
            "1000 GB/s",
            "100 TFLOP/s",
            "9 launches in 40.00 ms, 5 alloc",
            "7.00 GB",
        ] {
            at(words);
        }
        assert!(
            !page.contains("| old") && !page.contains("emulated"),
            "{page}"
        );
    }

    #[test]
    fn a_page_says_how_far_each_part_came() {
        let rows = [
            json!({"kind": "check", "part": "a", "check": "one", "verdict": "WRONG", "found": "far off"}),
            json!({"kind": "end", "part": "a", "cut": null}),
            json!({"kind": "check", "part": "b", "check": "two", "verdict": "right", "found": ""}),
            json!({"kind": "check", "part": "c", "check": "two", "verdict": "cut off", "found": ""}),
            json!({"kind": "end", "part": "c", "cut": "time"}),
        ];
        let page = summary(&rows);
        for words in [
            "| a    | has ended ",
            "| b    | has not ended",
            "| c    | cut off: time ",
            "| d    | not run ",
            "1 right, 1 WRONG, 0 not tried, 1 cut off",
            "- one: far off",
            "No run is known",
            "No launch is known",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
    }
}
