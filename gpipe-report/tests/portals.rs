//! Tensors that pass stages, in the files of a run and on its page.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use gpipe_report::{
    Error, Event, Machine, NewRun, Record, RunInfo, StageInfo, Tracer, html, read_run,
};
use gpipe_sched::{Costs, Portal, Timeline, one_f_one_b, simulate};
use serde_json::{Value, json};

const STAGES: usize = 4;
const MICRO_BATCHES: usize = 3;

fn info() -> RunInfo {
    let stage = StageInfo {
        layers: 2,
        names: "a .. b".to_owned(),
        flops: 1_000_000,
        recomputed: vec![(MICRO_BATCHES, 1.0)],
        limit_bytes: None,
        fixed_bytes: 1 << 10,
        peak_bytes: 1 << 20,
    };
    RunInfo {
        machine: Machine {
            system: "linux".to_owned(),
            architecture: "x86_64".to_owned(),
            cores: 4,
            threads: 4,
            memory: None,
        },
        devices: vec!["cpu".to_owned(); STAGES],
        parameter_bytes: [4, 4, 8],
        stages: vec![stage; STAGES],
    }
}

/// A run of one step, which is kept, with these portals in its plan.
fn run(folder: &Path, portals: &[Portal]) {
    let schedule = one_f_one_b(STAGES, MICRO_BATCHES).unwrap();
    let timeline = || simulate(&schedule, &Costs::even(STAGES, 1e-3, 2e-3)).unwrap();
    let planned = timeline().with_portals(portals.iter().copied());
    let record = Record::new(info(), &schedule, |_| Ok::<Timeline, Error>(planned)).unwrap();
    let now = SystemTime::UNIX_EPOCH;
    let run = NewRun::at(folder, false).unwrap().make("", now).unwrap();
    let mut run = run.begin(()).unwrap();
    let start = Event::Start {
        cut: vec![2; STAGES],
        parameters: 1234,
        trained_parameters: 1234,
        steps: 1,
        tokens: 64,
        unit: "tokens",
    };
    run.event(&start, now).unwrap();
    let mut tracer = Tracer::new(record, 1, |_| true);
    // The executor's timelines do not name them.
    tracer.step(1, timeline()).unwrap();
    tracer.write(&run).unwrap();
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn portals_are_in_the_files_of_a_run_and_on_its_page() {
    let folder = tempfile::tempdir().unwrap();
    let portals = [Portal { from: 0, to: 2 }, Portal { from: 0, to: 3 }];
    let arrows = |run: &Path| -> usize {
        let trace = read(&run.join("trace.json"));
        let events = trace["traceEvents"].as_array().unwrap().iter();
        let named = |event: &&Value| event["name"].as_str().unwrap().starts_with("portal");
        events.filter(named).count()
    };
    for portals in [&portals[..], &[]] {
        let path = folder.path().join(format!("run{}", portals.len()));
        run(&path, portals);
        let timeline = read(&path.join("timeline.json"));
        let page = html(&[read_run(&path).unwrap()]).unwrap();
        // An arrow has two ends; activations and gradients have one each.
        assert_eq!(arrows(&path), portals.len() * MICRO_BATCHES * 2 * 2);
        let (listed, drawn) = match portals.is_empty() {
            true => (Value::Null, "\"portals\":[]"),
            false => (json!([[0, 2], [0, 3]]), "\"portals\":[[0,2],[0,3]]"),
        };
        assert_eq!(timeline["portals"], listed);
        assert!(page.contains(drawn));
        let key = page.contains("</i>portal</span>");
        assert_eq!(key, !portals.is_empty());
    }
}

#[test]
fn portals_that_pass_no_stage_are_a_fault_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    run(&path, &[Portal { from: 0, to: 2 }]);
    let file = path.join("timeline.json");
    let timeline = read(&file);
    for bad in [
        json!([[0, 1]]),
        json!([[0, 4]]),
        json!([[2, 0]]),
        json!([[u64::MAX, 1]]),
    ] {
        let mut changed = timeline.clone();
        changed["portals"] = bad;
        fs::write(&file, changed.to_string()).unwrap();
        let error = read_run(&path).unwrap_err().to_string();
        assert!(error.contains("`portals`"), "{error}");
    }
}
