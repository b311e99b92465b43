//! A run of two stages, recorded, resumed, read back and shown, as a program would.

#[path = "runs/pages.rs"]
mod pages;

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use gpipe_report::{
    Cut, Cuts, Error, Event, Machine, NewRun, Record, RunFolder, RunInfo, StageInfo, Tracer, html,
    read_run, write_html,
};
use gpipe_sched::{Costs, Level, Schedule, Timeline, gpipe, one_f_one_b, simulate};
use serde_json::{Value, json};

const MICRO_BATCHES: usize = 4;

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_323_045)
}

fn info() -> RunInfo {
    let stage = StageInfo {
        layers: 2,
        names: "a .. b".to_owned(),
        flops: 1_000_000,
        recomputed: StageInfo::recomputed_runs([1.0, 1.0, 0.5, 0.5]),
        limit_bytes: None,
        fixed_bytes: 1 << 10,
        peak_bytes: 1 << 20,
    };
    RunInfo {
        machine: Machine {
            system: "linux".to_owned(),
            architecture: "x86_64".to_owned(),
            cores: 2,
            threads: 4,
            memory: Some(1 << 34),
        },
        devices: vec!["cpu".to_owned(), "cuda:1".to_owned()],
        parameter_bytes: [2, 4, 12],
        stages: vec![stage.clone(), stage],
    }
}

fn timeline(schedule: &Schedule, forward: f64) -> Timeline {
    let timeline = simulate(schedule, &Costs::even(2, forward, 2.0 * forward)).unwrap();
    let level = |device| Level {
        device,
        time: 0.0,
        bytes: 1 << 20,
    };
    timeline.with_levels((0..schedule.devices()).map(level).collect())
}

fn record(schedule: &Schedule) -> Record {
    let mut record = Record::new(info(), schedule, |flops_per_second| {
        assert_eq!(flops_per_second, 1e9);
        Ok::<_, Error>(timeline(schedule, 1e-3))
    })
    .unwrap();
    let cut = |layers: [usize; 2], costs: [u64; 2]| Cut {
        layers: layers.to_vec(),
        costs: costs.to_vec(),
    };
    let best = cut([2, 2], [50, 60]);
    record.cuts = Some(Cuts::new(
        "FLOPs",
        best.clone(),
        best,
        Some(cut([1, 3], [20, 90])),
    ));
    record
}

fn step(step: u64, bubble: f64) -> Event {
    Event::Step {
        step,
        loss: 4.0 / step as f64,
        grad_norm: 0.5,
        lr: 1e-3,
        tokens_per_second: 1000.0,
        step_seconds: 0.25,
        host_seconds: 0.2,
        cpu_seconds: None,
        bubble,
        peak_bytes: vec![1 << 19, 1 << 20],
    }
}

/// Makes the steps in the folder of a run that has begun.
fn train(run: &mut RunFolder, tracer: &mut Tracer, schedule: &Schedule, steps: &[u64]) {
    for &number in steps {
        let timeline = timeline(schedule, 1e-3 * (10 + number) as f64);
        run.event(&step(number, timeline.bubble()), now()).unwrap();
        tracer.step(number, timeline).unwrap();
    }
    tracer.write(run).unwrap();
}

/// A run of three steps whose first and last are kept.
fn whole(folder: &Path, config: &str) {
    let schedule = gpipe(2, MICRO_BATCHES).unwrap();
    let mut run = NewRun::at(folder, false)
        .unwrap()
        .make(config, now())
        .unwrap()
        .begin(())
        .unwrap();
    let start = Event::Start {
        cut: vec![2, 2],
        parameters: 1234,
        trained_parameters: 1234,
        steps: 3,
        tokens: 64,
        unit: "tokens",
    };
    run.event(&start, now()).unwrap();
    let mut tracer = Tracer::new(record(&schedule), usize::MAX, |step| step != 2);
    train(&mut run, &mut tracer, &schedule, &[1, 2, 3]);
    run.event(&Event::eval(Some(3), 1.5, 0.5, 64), now())
        .unwrap();
    let end = Event::End {
        step: 3,
        loss: 1.25,
        tokens_per_second: 1000.0,
        bubble: 0.2,
        ideal_bubble: 0.2,
        peak_bytes: vec![1 << 19, 1 << 20],
        predicted_peak_bytes: vec![1 << 20; 2],
        message_bytes: None,
        predicted_message_bytes: None,
        in_flight: vec![4, 4],
        peak_resident_bytes: None,
        seconds: 130.0,
    };
    run.event(&end, now()).unwrap();
}

fn json_of(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn the_record_has_exactly_its_documented_keys() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    whole(&run, "");
    let text = fs::read_to_string(run.join("timeline.json")).unwrap();
    let prefix = concat!(
        r#"{"format":1,"gpipe":""#,
        env!("CARGO_PKG_VERSION"),
        r#"","machine":{"system":"linux","architecture":"x86_64","cores":2,"threads":4,"memory":17179869184},"#,
        r#""devices":["cpu","cuda:1"],"parameter_bytes":[2,4,12],"stages":[{"layers":2,"names":"a .. b","#,
        r#""flops":1000000,"again":[[2,1.0],[2,0.5]],"limit":null,"fixed":1024,"peak":1048576},"#
    );
    let cuts = r#""cuts":{"unit":"FLOPs","used":{"layers":[2,2],"costs":[50,60]},"best":{"layers":[2,2],"costs":[50,60]},"lingvo":{"layers":[1,3],"costs":[20,90]}},"micro_batches":4,"#;
    assert!(text.contains(cuts), "{text}");
    assert!(text.starts_with(prefix), "{text}");
    assert!(text.contains(r#""micro_batches":4,"lanes":["0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3","1F0"#));
    assert!(
        text.contains(r#""flops_per_second":1000000000.0,"measured":[{"step":1,"spans":[[0,0,"#)
    );
    assert!(text.ends_with("}\n"));
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        json["predicted"]["levels"],
        json!([[0, 1 << 20], [0, 1 << 20]])
    );
    let kept = json["measured"].as_array().unwrap();
    assert_eq!(kept.iter().map(|m| &m["step"]).collect::<Vec<_>>(), [1, 3]);
}

/// What training holds for a parameter, it holds for those that train.
#[test]
fn frozen_parameters_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    whole(&path, "");
    let mut run = read_run(&path).unwrap();
    let start = run.start.as_mut().unwrap();
    assert_eq!(start.trained_parameters, Some(1234));
    start.trained_parameters = Some(34);
    let page = html(&[run]).unwrap();
    assert!(page.contains("1.23k, 34 of them trained"));
    assert!(page.contains("18 bytes a trained parameter (value 2"));
}

/// The speed is that of the time beside it, also where two steps are in the middle.
#[test]
fn the_median_speed_is_that_of_the_median_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    whole(&path, "");
    let mut run = read_run(&path).unwrap();
    let last = run.steps.pop().unwrap();
    // The first two do not count.
    for seconds in [0.02, 0.06] {
        let mut step = last.clone();
        step.step_seconds = Some(seconds);
        step.tokens_per_second = Some(64.0 / seconds);
        run.steps.push(step);
    }
    let page = html(&[run]).unwrap();
    assert!(page.contains("1.60k tokens/s"));
    assert!(page.contains("40.0 ms a step"));
}

#[test]
fn a_run_is_read_back_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    whole(&path, "[run]\nsteps = 3\n");
    let run = read_run(&path).unwrap();
    assert_eq!(run.name, "run");
    assert_eq!(run.start.as_ref().unwrap().parameters, 1234);
    assert_eq!(run.steps.len(), 3);
    assert_eq!(run.steps[1].loss, Some(2.0));
    assert_eq!(run.evaluations, [(3, 1.5)]);
    assert_eq!(run.end.as_ref().unwrap().seconds, Some(130.0));
    assert_eq!(run.notes, [""; 0]);
    let page = html(std::slice::from_ref(&run)).unwrap();
    for words in [
        "<title>gpipe: run</title>",
        "3 of 3",
        "in 2m 10s",
        "4.000 → 1.333",
        "held out 1.500",
        "<h2>Why this cut</h2>",
        ">best (used)</td>",
        ">2,2</td>",
        ">stage 1: 60 FLOPs</td>",
        "stage 0 gets 1 layer instead of 2, and its most expensive stage, 1, costs 50.0 % more",
        "18 bytes a parameter (value 2, gradient 4, optimizer and a master copy 12)",
        "2 devices, 4 threads on 2 cores (cpu, cuda:1)",
        "Measured, step 3",
        "<h2>Memory over the step</h2>",
        "<figcaption>Learning rate",
        "<td data-name=\"imbalance\">",
        "title=\"waiting for a stage that takes longer than the mean\"",
        "<noscript>",
        "<svg",
        "a .. b",
        "steps = 3",
    ] {
        assert!(page.contains(words), "{words}");
    }
    for words in ["http:", "https:", " src=", "@import", "url(", "{{"] {
        assert!(!page.contains(words), "the page must stand alone: {words}");
    }
    write_html(&path.join(gpipe_report::PAGE), &page).unwrap();
    assert_eq!(fs::read_to_string(path.join("report.html")).unwrap(), page);
}

#[test]
fn a_resumed_run_keeps_the_steps_of_the_same_plan() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    whole(&path, "");
    let resumed = |schedule: &Schedule, made: u64, steps: &[u64]| {
        let mut run = RunFolder::reopen(&path, (), "", made + 1, now()).unwrap();
        let mut tracer = Tracer::new(record(schedule), 1, |_| true);
        let warning = tracer.resume(&run, made).unwrap();
        train(&mut run, &mut tracer, schedule, steps);
        warning
    };
    let kept = |name: &str| -> Vec<u64> {
        let json = json_of(&path.join(name));
        let measured = json["measured"].as_array().unwrap().iter();
        measured.map(|m| m["step"].as_u64().unwrap()).collect()
    };
    assert_eq!(resumed(&gpipe(2, 4).unwrap(), 1, &[2, 3, 4]), None);
    // Step 3 was lost and made again; the last one alone is kept of the new steps.
    assert_eq!(kept("timeline.json"), [1, 4]);
    let warning = resumed(&one_f_one_b(2, 4).unwrap(), 4, &[5]).unwrap();
    assert!(
        warning.ends_with("they are in timeline-until-00000004.json"),
        "{warning}"
    );
    assert_eq!(kept("timeline-until-00000004.json"), [1, 4]);
    assert!(path.join("trace-until-00000004.json").exists());
    assert_eq!(kept("timeline.json"), [5]);
    json_of(&path.join("trace.json"));
    // Step 5 was lost, and the first plan goes on from step 4: what was put aside stays.
    assert_eq!(resumed(&gpipe(2, 4).unwrap(), 4, &[5]), None);
    assert_eq!(kept("timeline-until-00000004.json"), [1, 4]);
    assert_eq!(kept("timeline.json"), [5]);
    let run = read_run(&path).unwrap();
    let steps: Vec<u64> = run.steps.iter().map(|step| step.step).collect();
    assert_eq!(steps, [1, 2, 3, 4, 5]);
}

#[test]
fn the_last_steps_are_kept_however_often_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    whole(&path, "");
    let kept = || -> Vec<u64> {
        let json = json_of(&path.join("timeline.json"));
        let measured = json["measured"].as_array().unwrap().iter();
        measured.map(|m| m["step"].as_u64().unwrap()).collect()
    };
    let schedule = gpipe(2, MICRO_BATCHES).unwrap();
    let mut run = RunFolder::reopen(&path, (), "", 4, now()).unwrap();
    assert_eq!(
        format!("{run:?}"),
        format!("RunFolder {{ path: {path:?}, .. }}")
    );
    let mut tracer = Tracer::new(record(&schedule), 3, |_| true);
    tracer.resume(&run, 3).unwrap();
    for step in 4..=13 {
        train(&mut run, &mut tracer, &schedule, &[step]);
    }
    // Those before the resume, and the last three.
    assert_eq!(kept(), [1, 3, 11, 12, 13]);
}

#[test]
fn a_timeline_of_another_schedule_is_refused_and_the_others_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    whole(&path, "");
    let schedule = gpipe(2, MICRO_BATCHES).unwrap();
    let other = one_f_one_b(2, MICRO_BATCHES).unwrap();
    let mut run = RunFolder::reopen(&path, (), "", 4, now()).unwrap();
    let mut tracer = Tracer::new(record(&schedule), 3, |step| step < 10);
    let one = gpipe(1, MICRO_BATCHES).unwrap();
    let alone = simulate(&one, &Costs::even(1, 1.0, 2.0)).unwrap();
    for wrong in [timeline(&other, 1e-3), alone] {
        // One that is not kept is of no account.
        tracer.step(10, wrong.clone()).unwrap();
        let said = tracer.step(4, wrong).unwrap_err().to_string();
        assert!(
            said.ends_with("give one of a step of this schedule"),
            "{said}"
        );
    }
    train(&mut run, &mut tracer, &schedule, &[5]);
    let json = json_of(&path.join("timeline.json"));
    assert_eq!(json["measured"].as_array().unwrap().len(), 1);
    // A prediction is of the same actions.
    let made = Record::new::<Error>(info(), &schedule, |_| Ok(timeline(&other, 1e-3)));
    assert!(matches!(made, Err(Error::Record { .. })));
}

#[test]
fn steps_that_a_resume_lost_are_not_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    whole(&path, "");
    // It ended after step 3, and goes on from the checkpoint of step 1; then it is killed.
    let mut run = RunFolder::reopen(&path, (), "", 2, now()).unwrap();
    let resume = Event::Resume {
        step: 1,
        path: String::new(),
        warnings: Vec::new(),
    };
    run.event(&resume, now()).unwrap();
    run.event(&step(2, 0.5), now()).unwrap();
    let run = read_run(&path).unwrap();
    let steps: Vec<_> = run.steps.iter().map(|s| (s.step, s.bubble)).collect();
    assert_eq!((steps.len(), steps[1]), (2, (2, Some(0.5))));
    assert_eq!(run.evaluations, []);
    assert_eq!(run.end, None);
    assert!(run.notes[0].contains("has not ended"), "{:?}", run.notes);
}

/// An evaluation of a model that is not trained has no step.
#[test]
fn an_evaluation_without_a_step_is_no_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    whole(&path, "");
    let before = read_run(&path).unwrap();
    let mut run = RunFolder::reopen(&path, (), "", 4, now()).unwrap();
    run.event(&Event::eval(None, 1.0, 0.5, 9), now()).unwrap();
    assert_eq!(read_run(&path).unwrap(), before);
    // Nor is there nothing else to report.
    fs::remove_file(path.join("timeline.json")).unwrap();
    fs::write(
        path.join("events.jsonl"),
        Event::eval(None, 1.0, 0.5, 9).to_json().unwrap(),
    )
    .unwrap();
    assert!(read_run(&path).unwrap().evaluations.is_empty());
}

#[test]
fn what_is_left_of_a_run_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    whole(&path, "");
    // As if the process had been killed in the middle of a line.
    let events = fs::read_to_string(path.join("events.jsonl")).unwrap();
    let end = events.find("\"kind\":\"end\"").unwrap();
    fs::write(path.join("events.jsonl"), &events[..end]).unwrap();
    let run = read_run(&path).unwrap();
    assert_eq!(run.notes.len(), 2, "{:?}", run.notes);
    assert!(run.notes[0].contains("1 damaged line") && run.notes[1].contains("has not ended"));
    fs::remove_file(path.join("timeline.json")).unwrap();
    fs::remove_file(path.join("config.toml")).unwrap();
    let page = html(&[read_run(&path).unwrap()]).unwrap();
    assert!(page.contains("<svg") && !page.contains("<canvas"));
    assert!(page.contains("no timeline.json"));
}

#[test]
fn a_bad_folder_is_one_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let refused = |run: &str, words: &str| {
        let error = read_run(&path.join(run)).unwrap_err();
        let said = error.to_string();
        assert!(said.contains(words) && said.lines().count() == 1, "{said}");
        assert!(error.is_input_error());
    };
    fs::create_dir(path.join("empty")).unwrap();
    fs::write(path.join("file"), "").unwrap();
    for name in ["nowhere", "file", "empty"] {
        refused(name, "name the folder of a run");
    }
    let run = path.join("run");
    whole(&run, "");
    let timeline = run.join("timeline.json");
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
        changed(&|json| json["stages"][0]["again"][0][1] = 1.5.into()),
        changed(&|json| json["devices"] = Value::Array(Vec::new())),
        changed(&|json| json["flops_per_second"] = 0.into()),
    ] {
        fs::write(&timeline, bad).unwrap();
        refused("run", "timeline.json: ");
    }
    fs::write(&timeline, good).unwrap();
    fs::write(run.join("events.jsonl"), "one\ntwo\n").unwrap();
    refused("run", "events.jsonl: ");
    fs::remove_file(run.join("events.jsonl")).unwrap();
    fs::create_dir(run.join("events.jsonl")).unwrap();
    refused("run", "remove it to report the rest");
}

#[test]
fn a_record_needs_a_description_of_each_stage() {
    let schedule = gpipe(3, 4).unwrap();
    let made = Record::new(info(), &schedule, |_| unreachable!());
    assert!(matches!(made, Err(Error::Record { .. })));
    // What is recorded can be read.
    for recomputed in [vec![], vec![(MICRO_BATCHES, f64::NAN)]] {
        let schedule = gpipe(2, MICRO_BATCHES).unwrap();
        let mut info = info();
        info.stages[1].recomputed = recomputed;
        let made = Record::new::<Error>(info, &schedule, |_| Ok(timeline(&schedule, 1e-3)));
        let said = made.map(|record| record.stages).unwrap_err().to_string();
        assert!(said.starts_with("stage 1: "), "{said}");
    }
}

/// A step of more FLOPs than the speed of a prediction makes in a hundred days is predicted at a higher speed.
#[test]
fn the_prediction_of_a_huge_step_keeps_its_shape() {
    let schedule = gpipe(2, MICRO_BATCHES).unwrap();
    let predicted = |forward| {
        let made = Record::new::<Error>(info(), &schedule, |_| Ok(timeline(&schedule, forward)));
        let record = made.unwrap();
        let times = record.predicted().unwrap();
        [record.flops_per_second, times.makespan(), times.bubble()]
    };
    let ([slow, seconds, bubble], [fast, fewer, same]) = (predicted(1.0), predicted(1e9));
    assert!((same - bubble).abs() < 1e-9, "{same}, not {bubble}");
    assert!(slow == 1e9 && (fast * fewer / (slow * seconds * 1e9) - 1.0).abs() < 1e-9);
}
