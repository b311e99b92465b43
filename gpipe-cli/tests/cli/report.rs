//! `gpipe report`: the page says what the run's folder says, and a bad folder is one clear line.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{gpipe, objects, parse, small, stderr, stdout};

/// A run of three steps whose first and last are kept.
fn train(folder: &Path, name: &str, more: &[&str]) {
    let kept = ["--trace-steps", "1,3", "--eval-every", "2", "--out", name];
    let size = [
        "-q",
        "--steps",
        "3",
        "--stages",
        "2",
        "--micro-batches",
        "4",
    ];
    let arguments = [&size[..], &kept, more].concat();
    let output = small(folder, "train", &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

/// The page of the run, or the runs, in a folder.
fn page(folder: &Path, arguments: &[&str]) -> String {
    let output = gpipe(folder, &[&["report"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(output.stderr.is_empty());
    read(folder, stdout(&output).trim_end())
}

/// What the page gives to its script.
fn data(page: &str) -> Value {
    let (_, rest) = page
        .split_once("<script type=\"application/json\" id=\"data\">")
        .unwrap();
    let (json, _) = rest.split_once("</script>").unwrap();
    serde_json::from_str(json).unwrap()
}

fn numbers(list: &Value) -> Vec<u64> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_u64().unwrap())
        .collect()
}

#[test]
fn the_page_shows_what_the_folder_says() {
    let folder = tempfile::tempdir().unwrap();
    train(folder.path(), "run", &[]);
    let page = page(folder.path(), &["run"]);
    for words in ["http:", "https:", " src=", "@import", "url(", "{{"] {
        assert!(!page.contains(words), "the page must stand alone: {words}");
    }
    let data = data(&page);
    let timeline: Value = serde_json::from_str(&read(folder.path(), "run/timeline.json")).unwrap();
    let run = &data["runs"][0];
    assert_eq!(run["lanes"], timeline["lanes"]);
    let lane = run["lanes"][0].as_str().unwrap();
    assert!(lane.starts_with("0F0 0F1 0F2 0F3 ") && lane.ends_with(" 0B3"));
    let views = run["views"].as_array().unwrap();
    let labels: Vec<&str> = views
        .iter()
        .map(|view| view["label"].as_str().unwrap())
        .collect();
    assert_eq!(labels[1..], ["Measured, step 1", "Measured, step 3"]);
    assert!(
        labels[0].starts_with("Predicted, at the speed measured ("),
        "{labels:?}"
    );

    let events = parse(&read(folder.path(), "run/events.jsonl"));
    for (view, kept) in views[1..]
        .iter()
        .zip(timeline["measured"].as_array().unwrap())
    {
        assert_eq!(
            (&view["spans"], &view["levels"]),
            (&kept["spans"], &kept["levels"])
        );
        // Idle and busy fill every device's time, and idling is the bubble of the event.
        let step = events
            .iter()
            .find(|event| event["kind"] == "step" && event["step"] == kept["step"]);
        let (mut first, mut last, mut idle) = (u64::MAX, 0, 0);
        let mut used = Vec::new();
        for device in 0..2 {
            let spans = numbers(&view["spans"][device]);
            first = first.min(spans[0] + spans[1]);
            last = last.max(spans.iter().sum());
            let busy: u64 = spans.chunks(3).map(|span| span[2]).sum();
            let gaps: u64 = numbers(&view["gaps"][device])
                .chunks(3)
                .map(|gap| gap[2])
                .sum();
            idle += gaps;
            used.push(busy + gaps);
        }
        let makespan = last - first;
        for used in used {
            assert!(used.abs_diff(makespan) <= 40, "{used} ns of {makespan}");
        }
        let bubble = idle as f64 / (2 * makespan) as f64;
        assert!((bubble - step.unwrap()["bubble"].as_f64().unwrap()).abs() < 1e-4);
    }
    // The bytes that were predicted are those that were counted, in the same order.
    let bytes = |view: &Value, device: usize| -> Vec<u64> {
        numbers(&view["levels"][device])
            .chunks(2)
            .map(|level| level[1])
            .collect()
    };
    for device in 0..2 {
        assert_eq!(bytes(&views[0], device), bytes(&views[2], device));
    }
    for words in [
        "<svg",
        "Where the time goes",
        "The cut",
        "imbalance",
        "seq_len = 16",
    ] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn two_runs_stand_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    train(folder.path(), "one", &[]);
    train(
        folder.path(),
        "two",
        &["--schedule", "1f1b", "--lr", "0.002"],
    );
    let arguments = ["report", "one", "two", "--out", "both.html", "--json"];
    let said = objects(&gpipe(folder.path(), &arguments));
    assert_eq!(
        (&said[0]["kind"], &said[0]["path"]),
        (&"report".into(), &"both.html".into())
    );
    let page = read(folder.path(), "both.html");
    assert_eq!(said[0]["bytes"], page.len());
    let data = data(&page);
    assert_eq!(
        (&data["runs"][0]["mark"], &data["runs"][1]["mark"]),
        (&"A".into(), &"B".into())
    );
    for words in [
        "A: one",
        "B: two",
        "What differs",
        "pipeline.schedule",
        "optimizer.lr",
    ] {
        assert!(page.contains(words), "{words}");
    }
    assert!(!folder.path().join("one/report.html").exists());
}

#[test]
fn names_and_settings_cannot_break_out() {
    let folder = tempfile::tempdir().unwrap();
    let evil = "<!--<script>'\"&amp;\u{2028}";
    train(folder.path(), evil, &[]);
    let config = folder.path().join(evil).join("config.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("# </pre></script><script>x\n{text}")).unwrap();
    let page = page(folder.path(), &[evil]);
    assert_eq!(page.matches("<script").count(), 2);
    assert_eq!(page.matches("</script>").count(), 2);
    assert_eq!(page.matches("<!--").count(), 0);
    assert!(page.contains("&lt;!--&lt;script&gt;"));
    data(&page);
}

#[test]
fn what_is_left_of_a_run_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    train(folder.path(), "run", &[]);
    // As if it had been killed in the middle of a line.
    let events = read(folder.path(), "run/events.jsonl");
    let end = events.find("\"kind\":\"end\"").unwrap();
    fs::write(folder.path().join("run/events.jsonl"), &events[..end]).unwrap();
    let whole = page(folder.path(), &["run"]);
    assert!(whole.contains("1 damaged line") && whole.contains("has not ended"));
    assert!(whole.contains("id=\"timeline\""));
    fs::remove_file(folder.path().join("run/timeline.json")).unwrap();
    fs::remove_file(folder.path().join("run/config.toml")).unwrap();
    let curves = page(folder.path(), &["run"]);
    assert!(curves.contains("<svg") && !curves.contains("<canvas"));
    assert!(curves.contains("no timeline.json"));
}

#[test]
fn a_bad_folder_is_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    train(path, "run", &[]);
    fs::create_dir(path.join("empty")).unwrap();
    fs::write(path.join("file"), "").unwrap();
    let refused = |arguments: &[&str], words: &str| {
        let output = gpipe(path, &[&["report"], arguments].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(words), "{said}");
        assert!(output.stdout.is_empty() && !path.join("run/report.html").exists());
    };
    refused(&["nowhere"], "name the folder of a run");
    refused(&["file"], "name the folder of a run");
    refused(&["empty"], "name the folder of a run");
    refused(&["run", "empty"], "name the folder of a run");
    refused(&["run", "run", "run"], "--help");
    // Before the runs are read.
    refused(
        &["nowhere", "--out", "empty"],
        "--out empty: is no regular file: move that folder away, or choose another name",
    );
    let events = fs::read(path.join("run/events.jsonl")).unwrap();
    refused(
        &["run", "--out", "run/events.jsonl"],
        "is a file that is no page",
    );
    assert_eq!(fs::read(path.join("run/events.jsonl")).unwrap(), events);

    let timeline = path.join("run/timeline.json");
    let good = fs::read_to_string(&timeline).unwrap();
    let json: Value = serde_json::from_str(&good).unwrap();
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut json = json.clone();
        change(&mut json);
        json.to_string()
    };
    for bad in [
        good[..good.len() / 2].to_owned(),
        "[]".to_owned(),
        "\u{0}\u{1}".to_owned(),
        changed(&|json| json["format"] = 2.into()),
        changed(&|json| json["lanes"][0] = "0F0 0B0".into()),
        changed(&|json| json["lanes"][0] = "9999999999F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3".into()),
        changed(&|json| json["measured"][0]["spans"][0][2] = (-1).into()),
        changed(&|json| json["measured"][0]["spans"][0][2] = u64::MAX.into()),
        changed(&|json| json["predicted"]["levels"][1] = Value::Array(vec![1.into()])),
        changed(&|json| json["stages"] = Value::Array(Vec::new())),
        changed(&|json| json["stages"][0]["again"] = Value::Array(Vec::new())),
        changed(&|json| json["devices"] = Value::Array(Vec::new())),
        changed(&|json| json["flops_per_second"] = 0.into()),
    ] {
        fs::write(&timeline, bad).unwrap();
        refused(&["run"], "timeline.json");
    }
    fs::write(&timeline, good).unwrap();
    fs::write(path.join("run/events.jsonl"), "one\ntwo\n").unwrap();
    refused(&["run"], "events.jsonl");
}
