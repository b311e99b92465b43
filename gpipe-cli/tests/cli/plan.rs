//! `gpipe plan`: what scripts and people read.

use super::{assert_keys, gpipe, objects, small, stdout};

const COSTS: [&str; 5] = ["plan", "--costs", "10,40,30,10,20,50,10", "--stages", "3"];
const KEYS: [&str; 9] = [
    "kind",
    "cut",
    "loads",
    "optimum",
    "bubble",
    "step_seconds",
    "parameters",
    "trained_parameters",
    "peak_bytes",
];

#[test]
fn a_list_of_costs_is_cut_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let output = gpipe(
        folder.path(),
        &[&COSTS[..], &["--micro-batches", "4", "--schedule", "1f1b"]].concat(),
    );
    insta::assert_snapshot!(stdout(&output), @r"
    stage         layers  load
        0           0..2    50
        1           2..5    60  <
        2           5..7    60  <
    bottleneck 60: 1.0588 times the mean, 1.0000 times the optimum of 60

    cut                   layers  most expensive  above the best
    best (used)           2,3,2   stage 1: 60
    Lingvo's rule (used)  2,3,2   stage 1: 60
    Lingvo's rule ends a stage before the layer that crosses its share of the total;
    here that is the best cut too.

    device 0  F0 F1 F2       B0 F3 B1    B2    B3
    device 1     F0 F1    B0 F2 B1 F3 B2    B3
    device 2        F0 B0 F1 B1 F2 B2 F3 B3

    bubble  35 % with 4 micro-batches (backward passes cost twice as much as forward passes)
    ");
}

#[test]
fn a_list_of_costs_as_json_has_nulls_where_it_cannot_tell() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |rule| {
        objects(&gpipe(
            folder.path(),
            &[&COSTS[..], &["--json", "--partition", rule]].concat(),
        ))
    };
    let [best] = &plan("balance")[..] else {
        panic!("one object")
    };
    assert_keys(best, &KEYS);
    assert_eq!(best["kind"], "plan");
    assert_eq!(best["cut"], serde_json::json!([2, 3, 2]));
    assert_eq!(best["loads"], serde_json::json!([50, 60, 60]));
    assert_eq!(best["optimum"], 60);
    for key in ["step_seconds", "peak_bytes", "parameters"] {
        assert!(best[key].is_null(), "{key}");
    }
    assert_eq!(
        plan("histogram")[0]["loads"],
        serde_json::json!([50, 60, 60])
    );
    assert_eq!(plan("1,1,5")[0]["loads"], serde_json::json!([10, 40, 120]));
}

/// With equal stages the predicted bubble is GPipe's (K − 1) / (M + K − 1).
#[test]
fn the_bubble_of_equal_stages_is_the_papers() {
    let folder = tempfile::tempdir().unwrap();
    for (micro_batches, bubble) in [("1", 3.0 / 4.0), ("4", 3.0 / 7.0), ("16", 3.0 / 19.0)] {
        let arguments = [
            "plan",
            "--costs",
            "6,6,6,6",
            "--stages",
            "4",
            "--micro-batches",
            micro_batches,
            "--batch-size",
            "16",
        ];
        let plan = objects(&gpipe(
            folder.path(),
            &[&arguments[..], &["--json"]].concat(),
        ));
        assert!((plan[0]["bubble"].as_f64().unwrap() - bubble).abs() < 1e-12);
    }
}

/// A script learns of a refusal from the plan itself.
#[test]
fn a_plan_that_train_would_refuse_has_faults() {
    let folder = tempfile::tempdir().unwrap();
    let line = ["--devices", "cuda:h100*2", "--stages", "2", "--json"];
    let large = ["--set", "model.width=65536", "--set", "model.heads=16"];
    let output = small(folder.path(), "plan", &[&line[..], &large].concat());
    let warned = String::from_utf8(output.stderr.clone()).unwrap();
    let plan = objects(&output);
    let [fault] = &plan[0]["faults"].as_array().unwrap()[..] else {
        panic!("{:?}", plan[0]);
    };
    assert!(warned.contains(fault.as_str().unwrap()), "{warned}");
    assert!(warned.contains("but cuda:h100 has 74.5 GiB"), "{warned}");
}

#[test]
fn a_run_is_planned_without_being_run() {
    let folder = tempfile::tempdir().unwrap();
    let plan = objects(&small(folder.path(), "plan", &["--stages", "3", "--json"]));
    let dry_run = objects(&small(
        folder.path(),
        "train",
        &["--stages", "3", "--json", "--dry-run"],
    ));
    for object in [&plan[0], &dry_run[0]] {
        assert_keys(
            object,
            &[&KEYS[..], &["basis", "checkpoint_bytes"]].concat(),
        );
        assert_eq!(object["basis"], "estimate");
        assert_eq!(object["peak_bytes"].as_array().unwrap().len(), 3);
        assert!(object["step_seconds"].as_f64().unwrap() > 0.0);
        assert!(object["parameters"].as_u64().unwrap() > 0);
    }
    assert_eq!(plan[0]["peak_bytes"], dry_run[0]["peak_bytes"]);
    let text = stdout(&small(folder.path(), "plan", &["--stages", "3"]));
    for words in [
        "wte .. ",
        "lm_head",
        "device 2",
        "bubble",
        "estimate",
        "largest stage",
    ] {
        assert!(text.contains(words), "{text}");
    }
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let verbose = stdout(&small(folder.path(), "plan", &["-v"]));
    assert!(verbose.contains("[optimizer]\nlr = 0.001\n"), "{verbose}");
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn no_plan_is_ranked_twice() {
    let folder = tempfile::tempdir().unwrap();
    // Everything fits: the best use of the memory is to keep everything.
    let compare = ["plan", "--costs", "10,40,30,10", "--compare", "--json"];
    let workers = ["--workers", "3*1T:1GiB"];
    let rows = objects(&gpipe(folder.path(), &[&compare[..], &workers].concat()));
    let mut seen = std::collections::HashSet::new();
    for row in rows.iter().filter(|row| row["partition"] == "balance") {
        assert!(seen.insert(row.to_string()), "{row}");
    }
    assert!(seen.len() > 10, "{rows:?}");
}

#[test]
fn a_table_is_ranked_among_the_orders() {
    let folder = tempfile::tempdir().unwrap();
    let table = [
        "plan",
        "--stages",
        "3",
        "--micro-batches",
        "5",
        "--schedule",
        "zb-h1",
        "--remat",
        "keep",
        "--csv",
        "own.csv",
    ];
    assert!(gpipe(folder.path(), &table).status.success());
    let costs = [
        "plan",
        "--costs",
        "10,40,30,10,20,50,10",
        "--devices",
        "cpu*3",
        "--json",
    ];
    let rows = objects(&gpipe(
        folder.path(),
        &[&costs[..], &["--compare", "--schedule", "own.csv"]].concat(),
    ));
    let own = rows.iter().filter(|row| row["schedule"] == "own.csv");
    // Of keeping all, and of a stage's input alone.
    let own: Vec<_> = own.filter(|row| row["partition"] == "balance").collect();
    assert_eq!(own.len(), 2);
    assert!(
        own.iter()
            .all(|row| row["micro_batches"] == 5 && row["workers"] == 3)
    );
    let auto = [&costs[..], &["--auto", "--schedule", "own.csv"]].concat();
    let auto = objects(&gpipe(folder.path(), &auto));
    assert!(auto[0]["step_seconds"].as_f64() <= own[0]["step_seconds"].as_f64());
}

#[test]
fn rows_of_stage_are_what_would_be_run() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--devices", "cpu*2", "--threads", "2", "--json"];
    let rows = objects(&small(
        folder.path(),
        "plan",
        &[&flags[..], &["--compare"]].concat(),
    ));
    let stage = |row: &&serde_json::Value| {
        row["remat"] == "stage" && row["schedule"] == "1f1b" && row["workers"] == 2
    };
    let row = rows.iter().find(stage).expect("a row of stage");
    let cut: Vec<String> = row["cut"]
        .as_array()
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    let own = [
        "--schedule",
        "1f1b",
        "--remat",
        "stage",
        "--stages",
        "2",
        "--micro-batches",
        &row["micro_batches"].to_string(),
        "--partition",
        &cut.join(","),
    ];
    let plan = objects(&small(folder.path(), "plan", &[&flags[..], &own].concat()));
    assert_eq!(row["peak_bytes"], plan[0]["peak_bytes"]);
}

#[test]
fn a_profile_of_pipedream_is_planned() {
    let folder = tempfile::tempdir().unwrap();
    let node = |name: &str| {
        format!(
            "{name} -- Linear(8, 8) -- forward_compute_time=1.0, backward_compute_time=2.0, \
             activation_size=64.0, parameter_size=256.0\n"
        )
    };
    let graph = [
        &node("a")[..],
        &node("b"),
        &node("c"),
        "\ta -- b\n\tb -- c\n",
    ]
    .concat();
    std::fs::write(folder.path().join("graph.txt"), graph).unwrap();
    let costs = ["plan", "--costs", "graph.txt", "--json"];
    let plan = objects(&gpipe(
        folder.path(),
        &[&costs[..], &["--stages", "3"]].concat(),
    ));
    assert_eq!(
        plan[0]["loads"],
        serde_json::json!([3_000_000, 3_000_000, 3_000_000])
    );
    let auto = objects(&gpipe(
        folder.path(),
        &[&costs[..], &["--auto", "--devices", "cpu*3"]].concat(),
    ));
    assert!(auto[0]["gap"].as_f64().unwrap() >= 0.0);
}

#[test]
fn layers_are_measured_once_and_the_profile_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--stages", "2", "--micro-batches", "2", "--json"];
    let measure = [&arguments[..], &["--profile"]].concat();
    let told = objects(&small(folder.path(), "plan", &measure));
    let (plan, layers) = told.split_last().unwrap();
    assert_keys(plan, &[&KEYS[..], &["basis", "checkpoint_bytes"]].concat());
    assert_eq!(plan["basis"], "profile");
    assert!(layers.len() >= 4, "{layers:?}");
    for layer in layers {
        assert_eq!(layer["kind"], "profile");
        let seconds = |key: &str| layer[key].as_f64().unwrap();
        assert!(seconds("forward_seconds") > 0.0 && seconds("update_seconds") >= 0.0);
    }
    let file = folder.path().join("runs/profile.json");
    let profile: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(profile["format"], 1);
    assert_eq!(profile["kinds"].as_object().unwrap().len(), layers.len());
    // What is kept is used: the same numbers give the same prediction.
    let again = objects(&small(folder.path(), "plan", &arguments));
    assert_eq!(again[0]["step_seconds"], plan["step_seconds"]);
    let text = stdout(&small(folder.path(), "plan", &arguments[..4]));
    assert!(
        text.contains("by the layers in runs/profile.json"),
        "{text}"
    );
    // It says nothing about GPUs.
    let text = stdout(&small(folder.path(), "plan", &["--devices", "cuda:h200*2"]));
    assert!(
        text.contains("H200") && !text.contains("profile.json"),
        "{text}"
    );
    // One of another machine is not, and that is said.
    let mut foreign = profile;
    foreign["processor"] = "another one".into();
    std::fs::write(&file, foreign.to_string()).unwrap();
    let output = small(folder.path(), "plan", &arguments[..4]);
    assert!(stdout(&output).contains("estimate"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("measured on another machine"), "{said}");
}

/// A recommendation needs more sizes than a plan: the advice is to measure those.
#[test]
fn a_profile_that_lacks_sizes_is_measured_again_as_advised() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |line: &str| {
        let output = small(folder.path(), "plan", &line.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stderr).unwrap()
    };
    let common = "--devices cpu*2 --batch-size 8";
    plan(&format!("{common} --micro-batches 4 --profile"));
    let said = plan(&format!("{common} --auto"));
    let (_, advice) = said.split_once("it is not used; gpipe plan ").unwrap();
    let (advice, _) = advice.split_once(" measures again").unwrap();
    plan(&format!("{common} {advice}"));
    let said = plan(&format!("{common} --auto"));
    assert!(!said.contains("is not used"), "{said}");
}

/// By measured times the recommendation may be simpler than the fastest plan, but not much slower.
#[test]
fn a_recommendation_tells_the_fastest_plan_beside_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let recommended = |more: &[&str]| {
        let arguments = [&["--auto", "--devices", "cpu*2", "--json"], more].concat();
        let told = objects(&small(folder.path(), "plan", &arguments));
        let auto = told.last().unwrap();
        let seconds = |key: &str| auto[key].as_f64().unwrap();
        (seconds("fastest_seconds"), seconds("step_seconds"))
    };
    let (fastest, own) = recommended(&[]);
    assert_eq!(fastest, own, "an estimate is taken at its word");
    for more in [&["--profile"][..], &[]] {
        let (fastest, own) = recommended(more);
        assert!(0.95 * own <= fastest * (1.0 + 1e-9), "{own}, not {fastest}");
        assert!(fastest <= own, "{own} below {fastest}");
    }
}

#[test]
fn costs_of_a_file_are_not_said_to_be_thirds() {
    let folder = tempfile::tempdir().unwrap();
    let layer = r#"{"forward": 1, "backward": 4}"#;
    let text = format!(r#"{{"layers": [{layer}, {layer}]}}"#);
    std::fs::write(folder.path().join("own.json"), text).unwrap();
    let plan = ["plan", "--costs", "own.json", "--stages", "2"];
    let said = stdout(&gpipe(folder.path(), &plan));
    assert!(!said.contains("twice"), "{said}");
    assert!(
        said.contains("forward and backward passes as in own.json"),
        "{said}"
    );
}

#[test]
fn each_cost_model_has_its_own_unit() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |model| stdout(&small(folder.path(), "plan", &["--cost-model", model]));
    let heading = |said: &str| {
        said.lines()
            .find(|line| line.starts_with("stage "))
            .map(str::to_owned)
    };
    let (complete, lingvo) = (plan("complete"), plan("lingvo"));
    assert!(
        heading(&complete).unwrap().contains("  FLOPs  "),
        "{complete}"
    );
    assert!(
        heading(&lingvo).unwrap().contains("Lingvo FLOPs  "),
        "{lingvo}"
    );
    let timed = plan("time");
    assert!(
        heading(&timed).unwrap().contains("FLOP eq.  ") && timed.contains(" FLOP equivalents\n"),
        "{timed}"
    );
    let of_rule = |said: &str| -> String {
        let line = said
            .lines()
            .find(|line| line.starts_with("Lingvo's rule  "));
        line.unwrap_or_default().to_owned()
    };
    assert!(of_rule(&complete).contains("% more"), "{complete}");
    assert!(complete.contains("instead of"), "{complete}");
}

/// The first layers of an image network move most bytes.
#[test]
fn image_networks_are_cut_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |arguments: &[&str]| {
        let common = ["plan", "--json", "--model", "resnet50", "--stages", "2"];
        let output = gpipe(folder.path(), &[&common[..], arguments].concat());
        let plan = objects(&output).pop().unwrap();
        let first = plan["cut"][0].as_u64().unwrap();
        (first, plan["loads"].clone())
    };
    let (by_default, by_time) = (plan(&[]), plan(&["--cost-model", "time"]));
    assert_eq!(by_default, by_time);
    let (by_flops, _) = plan(&["--cost-model", "complete"]);
    assert!(by_time.0 < by_flops, "{} {by_flops}", by_time.0);
}

#[test]
fn no_label_of_a_cut_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let said = stdout(&small(
        folder.path(),
        "plan",
        &["--compare", "--stages", "4"],
    ));
    assert!(!said.contains("…gram"), "{said}");
    assert!(
        said.contains("the last row has the cut of Lingvo's rule (histogram)"),
        "{said}"
    );
}

/// As wide as a terminal that nobody has asked.
#[test]
fn the_stages_of_any_network_fit_a_line() {
    let folder = tempfile::tempdir().unwrap();
    for model in ["convnet", "resnet18", "unet", "amoebanetd:3,32"] {
        let plan = [
            "plan",
            "--model",
            model,
            "--stages",
            "2",
            "--batch-size",
            "8",
        ];
        let said = stdout(&gpipe(folder.path(), &plan));
        let table = said.lines().skip_while(|line| !line.starts_with("stage "));
        for line in table.take(3) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
