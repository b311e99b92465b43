//! Pages of one run and of two: what stands on them.

use std::fs;

use gpipe_report::{Error, Event, NewRun, RunFolder, Tracer, html, read_run};
use gpipe_sched::{gpipe, looped_bfs};

use super::{MICRO_BATCHES, now, record, step, train, whole};

#[test]
fn two_runs_stand_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["one", "two"].map(|name| folder.path().join(name));
    whole(&paths[0], "[run]\nsteps = 3\nseed = 1\n");
    whole(&paths[1], "[run]\nsteps = 3\nseed = 2\n");
    let mut runs: Vec<_> = paths.iter().map(|path| read_run(path).unwrap()).collect();
    let page = html(&runs).unwrap();
    for words in ["A: one", "B: two", "What differs", "run.seed"] {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains("run.steps"));
    runs.push(read_run(&paths[0]).unwrap());
    assert!(matches!(html(&runs), Err(Error::RunCount { count: 3 })));
}

#[test]
fn differences_of_two_runs_have_a_column() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["one", "two"].map(|name| folder.path().join(name));
    whole(&paths[0], "");
    whole(&paths[1], "");
    let events = fs::read_to_string(paths[1].join("events.jsonl")).unwrap();
    let faster = events.replace(
        "\"tokens_per_second\":1000.0",
        "\"tokens_per_second\":1500.0",
    );
    fs::write(paths[1].join("events.jsonl"), faster).unwrap();
    let runs: Vec<_> = paths.iter().map(|path| read_run(path).unwrap()).collect();
    let page = html(&runs).unwrap();
    assert!(page.contains("<th>B against A</th>"));
    let speed = page.lines().find(|line| line.contains("Speed, median"));
    assert!(speed.unwrap().ends_with(">1.50 ×</td></tr>"), "{speed:?}");
    let bubble = page.lines().find(|line| line.contains("Bubble, median"));
    assert!(
        bubble.unwrap().ends_with(">+0 points</td></tr>"),
        "{bubble:?}"
    );
}

/// A network for images has no tokens; nor has every run the unit, which is of tokens then.
#[test]
fn speeds_have_the_unit_of_their_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    whole(&path, "");
    let file = path.join("events.jsonl");
    let events = fs::read_to_string(&file).unwrap();
    let mut runs = Vec::new();
    for (written, speed, caption) in [
        (
            ",\"unit\":\"images\"",
            "1.00k images/s",
            "Speed in images a second",
        ),
        ("", "1.00k tokens/s", "Speed in tokens a second"),
    ] {
        let changed = events.replace(",\"unit\":\"tokens\"", written);
        assert_ne!(changed, events);
        fs::write(&file, changed).unwrap();
        runs.push(read_run(&path).unwrap());
        let page = html(&runs[runs.len() - 1..]).unwrap();
        assert!(page.contains(speed) && page.contains(caption), "{speed}");
    }
    let page = html(&runs).unwrap();
    assert!(page.contains("Speed in images or tokens a second"));
}

#[test]
fn many_kept_steps_are_folded_and_devices_name_their_step() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    whole(&path, "");
    let schedule = gpipe(2, MICRO_BATCHES).unwrap();
    let mut run = RunFolder::reopen(&path, (), "", 4, now()).unwrap();
    let mut tracer = Tracer::new(record(&schedule), usize::MAX, |_| true);
    assert_eq!(tracer.resume(&run, 3).unwrap(), None);
    train(&mut run, &mut tracer, &schedule, &[4, 5, 6, 7]);
    let page = html(&[read_run(&path).unwrap()]).unwrap();
    let (open, rest) = page
        .split_once("<summary>5 more measured steps</summary>")
        .unwrap();
    let (folded, _) = rest.split_once("</details>").unwrap();
    assert_eq!(folded.matches("Measured, step").count(), 5);
    assert!(open.contains("step 7, device 0</span>") && open.contains("step 7, device 1</span>"));
}

#[test]
fn devices_of_several_processes_have_their_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    whole(&path, "");
    let schedule = gpipe(2, MICRO_BATCHES).unwrap();
    let mut run = RunFolder::reopen(&path, (), "", 4, now()).unwrap();
    let mut record = record(&schedule);
    record.hosts = vec!["node1, rank 0".to_owned(), "node2, rank 1".to_owned()];
    let mut tracer = Tracer::new(record, usize::MAX, |_| true);
    train(&mut run, &mut tracer, &schedule, &[4]);
    let page = html(&[read_run(&path).unwrap()]).unwrap();
    assert!(page.contains("step 4, device 1, cuda:1 (node2, rank 1)</span>"));
}

#[test]
fn without_a_measured_step_the_prediction_has_no_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let schedule = gpipe(2, MICRO_BATCHES).unwrap();
    let run = NewRun::at(&path, false)
        .unwrap()
        .make("", now())
        .unwrap()
        .begin(())
        .unwrap();
    Tracer::new(record(&schedule), 1, |_| true)
        .write(&run)
        .unwrap();
    let page = html(&[read_run(&path).unwrap()]).unwrap();
    assert!(page.contains("Predicted, as shares of the step: none was measured"));
    assert!(page.contains("\"relative\":true") && !page.contains("FLOP/s"));
    // Each of two equal stages works 12 of the step's 15 units of time.
    assert_eq!(
        page.matches(">80 %</td>").count(),
        2,
        "the table of the cut"
    );
    assert!(!page.contains(" ms</td>"));
    // Beside a run that was measured, its picture is as long as that.
    whole(&folder.path().join("other"), "");
    let runs = [&path, &folder.path().join("other")].map(|path| read_run(path).unwrap());
    let page = html(&runs).unwrap();
    assert!(page.contains("\"relative\":true") && page.contains("\"relative\":false"));
}

#[test]
fn a_loss_of_any_size_is_a_figure() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["one", "two"].map(|name| folder.path().join(name));
    for path in &paths {
        whole(path, "");
        let events = fs::read_to_string(path.join("events.jsonl")).unwrap();
        let events = events.replace("\"loss\":1.3333333333333333", "\"loss\":1e300");
        let events = events.replace("\"loss\":4.0", "\"loss\":-1e300");
        fs::write(path.join("events.jsonl"), events).unwrap();
        let page = html(&[read_run(path).unwrap()]).unwrap();
        assert!(page.contains("-1.000e300 → 1.000e300"));
    }
    let runs = paths.map(|path| read_run(&path).unwrap());
    assert!(!html(&runs).unwrap().contains("00000000000000000000"));
}

#[test]
fn huge_numbers_of_a_record_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut record = record(&looped_bfs(1, 2, 4).unwrap());
    record.parameter_bytes = Some([u64::MAX, 4, 8]);
    for stage in &mut record.stages {
        stage.limit_bytes = Some(u64::MAX);
    }
    whole(&path, "");
    let run = RunFolder::reopen(&path, (), "", 4, now()).unwrap();
    Tracer::new(record, 1, |_| true).write(&run).unwrap();
    let page = html(&[read_run(&path).unwrap()]).unwrap();
    assert!(page.contains("18446744073709551615 bytes a parameter"));
}

/// Keys outside of a section are keys too, and what is not there is not compared.
#[test]
fn runs_differ_in_keys_without_a_section() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["one", "two"].map(|name| folder.path().join(name));
    whole(&paths[0], "steps = 1\n");
    whole(&paths[1], "steps = 2\n");
    let page = || html(&paths.each_ref().map(|path| read_run(path).unwrap())).unwrap();
    assert!(page().contains(">steps</td>"));
    assert!(!page().contains("the same configuration"));
    for path in &paths {
        fs::remove_file(path.join("config.toml")).unwrap();
    }
    let page = page();
    assert!(!page.contains("the same configuration"));
    assert_eq!(page.matches("There is no config.toml: ").count(), 2);
}

/// The seconds of an end are those of the process that came to it.
#[test]
fn the_time_of_a_resumed_run_is_that_of_its_last_steps() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    whole(&path, "");
    let events = fs::read_to_string(path.join("events.jsonl")).unwrap();
    let page = || html(&[read_run(&path).unwrap()]).unwrap();
    assert!(page().contains("<b>3 of 3</b><span>in 2m 10s</span>"));
    let resume = r#"{"kind":"resume","step":1}"#;
    let resumed = events.replacen(
        r#"{"kind":"step","step":2,"#,
        &format!("{resume}\n{{\"kind\":\"step\",\"step\":2,"),
        1,
    );
    fs::write(path.join("events.jsonl"), resumed).unwrap();
    assert!(page().contains("<b>3 of 3</b><span>the last 2 in 2m 10s</span>"));
}

/// The lines of `events.jsonl` of steps from a number on: their speeds, bubbles and peaks of a stage each.
fn steps(first: u64, of: &[(f64, f64, u64)]) -> String {
    let step = |(step, &(speed, bubble, peak)): (u64, &(f64, f64, u64))| {
        format!(
            r#"{{"kind":"step","step":{step},"loss":2.0,"tokens_per_second":{speed:?},"step_seconds":1.0,"bubble":{bubble:?},"peak_bytes":[{peak}]}}"#
        ) + "\n"
    };
    (first..).zip(of).map(step).collect()
}

/// A process before the last may have had another plan, and the first steps of each warm up.
#[test]
fn figures_are_those_of_the_last_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let before = steps(1, &[(500.0, 0.75, 4 << 20); 9]);
    let resumed = r#"{"kind":"resume","step":9,"path":"p","warnings":[]}"#;
    let after = steps(
        10,
        &[
            (10.0, 0.875, 1 << 20),
            (20.0, 0.875, 1 << 20),
            (1000.0, 0.25, 1 << 20),
        ],
    );
    let tile = |page: &str, name: &str| {
        let tile = page
            .split("<div class=\"tile\">")
            .find(|tile| tile.contains(name));
        tile.unwrap().to_owned()
    };
    for (lines, speed, bubble, memory) in [
        (
            format!("{before}{resumed}\n{after}"),
            "1.00k",
            "25 %",
            "1.0 MiB",
        ),
        (format!("{before}{resumed}\n"), "500", "75 %", "4.0 MiB"),
    ] {
        fs::write(path.join("events.jsonl"), lines).unwrap();
        let page = html(&[read_run(path).unwrap()]).unwrap();
        for (name, value) in [
            ("Speed, median", format!("<b>{speed} tokens/s</b>")),
            ("Bubble, median", format!("<b>{bubble}</b>")),
            ("Memory, largest stage", format!("<b>{memory}</b>")),
        ] {
            let tile = tile(&page, name);
            assert!(tile.contains(&value), "{value}: {tile}");
        }
    }
}

/// Images a second are no share of tokens a second.
#[test]
fn speeds_of_other_units_are_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    let runs = ["tokens", "images"].map(|unit| {
        let path = folder.path().join(unit);
        fs::create_dir(&path).unwrap();
        let start = format!(
            r#"{{"kind":"start","parameters":1,"steps":1,"cut":[1],"tokens":1,"unit":"{unit}"}}"#
        );
        let lines = format!("{start}\n{}", steps(1, &[(500.0, 0.5, 1)]));
        fs::write(path.join("events.jsonl"), lines).unwrap();
        read_run(&path).unwrap()
    });
    let page = html(&runs).unwrap();
    let row = page.lines().find(|line| line.contains("Speed, median"));
    let row = row.unwrap();
    assert!(row.contains("500 images/s") && !row.contains('×'), "{row}");
}

/// Not that of the machine, where one is configured.
#[test]
fn the_limit_of_memory_is_that_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    whole(&path, "[pipeline]\nmemory = \"2GiB\"\n");
    let page = html(&[read_run(&path).unwrap()]).unwrap();
    assert!(page.contains("Limit of each device: 2GiB."), "{page}");
    assert!(!page.contains("of the machine, which"));
    fs::write(
        path.join("config.toml"),
        "[pipeline]\nmemory = \"unlimited\"\n",
    )
    .unwrap();
    let page = html(&[read_run(&path).unwrap()]).unwrap();
    assert!(page.contains("Limit: the 16.0 GiB of the machine"));
}

/// The page showed the last configuration as if it were that of all steps.
#[test]
fn resumptions_are_marked_on_curves_and_told_with_their_warnings() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    whole(&path, "");
    assert!(
        !html(&[read_run(&path).unwrap()])
            .unwrap()
            .contains("esumed")
    );
    let mut run = RunFolder::reopen(&path, (), "", 3, now()).unwrap();
    // The first one is lost with the steps after the second.
    for (made, warning) in [(3, "lost"), (2, "`optimizer.lr` is 0.01 <b>")] {
        let resume = Event::Resume {
            step: made,
            path: String::new(),
            warnings: vec![warning.to_owned()],
        };
        run.event(&resume, now()).unwrap();
        run.event(&step(made + 1, 0.5), now()).unwrap();
    }
    let run = read_run(&path).unwrap();
    assert_eq!(run.resumptions.len(), 1);
    let page = html(std::slice::from_ref(&run)).unwrap();
    for words in [
        "<title>resumed after step 2</title>",
        "; resumed after step 2\">",
        "<dt>after step 2</dt>\n<dd>`optimizer.lr` is 0.01 &lt;b&gt;</dd>",
    ] {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains("lost"));
    let page = html(&[run.clone(), run]).unwrap();
    assert!(page.contains("<title>B was resumed after step 2</title>"));
}
