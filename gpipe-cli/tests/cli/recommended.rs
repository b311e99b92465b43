//! `gpipe plan --auto` and `gpipe train --auto`.

use serde_json::{Value, json};

use super::{gpipe, objects, small, stderr, stdout};

#[test]
fn a_recommendation_comes_with_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let costs = ["plan", "--costs", "10,40,30,10,20,50,10", "--auto"];
    let auto = objects(&gpipe(
        folder.path(),
        &[&costs[..], &["--json", "--devices", "cpu*3"]].concat(),
    ));
    let seconds = |key: &str| auto[0][key].as_f64().unwrap();
    assert!(seconds("bound_seconds") <= seconds("step_seconds"));
    assert!(seconds("step_seconds") < seconds("single_seconds"));
    let text = stdout(&gpipe(
        folder.path(),
        &[&costs[..], &["--devices", "cpu*3"]].concat(),
    ));
    let command = "use         gpipe plan --costs 10,40,30,10,20,50,10 --devices 'cpu*";
    assert!(text.starts_with(command), "{text}");
    assert!(text.contains("best possible"), "{text}");
}

#[test]
fn a_recommendation_keeps_to_given_keys() {
    let folder = tempfile::tempdir().unwrap();
    let costs = [
        "plan",
        "--costs",
        "10,40,30,10,20,50,10",
        "--auto",
        "--json",
    ];
    let auto = |flags: &[&str]| objects(&gpipe(folder.path(), &[&costs[..], flags].concat()));
    let [given] = &auto(&[
        "--stages",
        "3",
        "--schedule",
        "1f1b",
        "--micro-batches",
        "4",
    ])[..] else {
        panic!("one object")
    };
    assert_eq!(
        [
            &given["stages"],
            &given["schedule"],
            &given["micro_batches"]
        ],
        [&json!(3), &json!("1f1b"), &json!(4)]
    );
    std::fs::write(
        folder.path().join("given.toml"),
        "[pipeline]\nstages = 2\nmicro_batch_size = 4\nremat = \"stage\"\n",
    )
    .unwrap();
    let given = &auto(&["--config", "given.toml", "--batch-size", "8"])[0];
    assert_eq!(
        [&given["stages"], &given["micro_batches"], &given["remat"]],
        [&json!(2), &json!(2), &json!("stage")]
    );
    let given = &auto(&["--partition", "1,1,5"])[0];
    assert_eq!(given["cut"], json!([1, 1, 5]));
}

#[test]
fn given_keys_that_no_plan_has_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&[&str], &str); 16] = [
        (
            &["--stages", "3", "--schedule", "zb-v"],
            "use --stages 2 or 4",
        ),
        (
            &["--stages", "9"],
            "9 stages but 7 layers: use --stages 7 or fewer",
        ),
        (
            &["--workers", "2*1", "--stages", "3", "--schedule", "1f1b"],
            "for 3 workers, but there are 2",
        ),
        (
            &["--workers", "1*1", "--stages", "5"],
            "no schedule has 5 stages on up to 1 worker:",
        ),
        (&["--partition", "1,2"], "layers"),
        (
            &["--workers", "2*1T", "--link", "1e308:1"],
            "--link 1e308:1: write SECONDS:BYTES_PER_SECOND",
        ),
        (
            &["--workers", "2*1e-307"],
            "--workers 2*1e-307: `2*1e-307` is not a worker: write COUNT*FLOPS:MEMORY",
        ),
        (
            &["--workers", "2*1T:0"],
            "--workers 2*1T:0: `0` is no amount of memory",
        ),
        (&["--partition", "2,5", "--stages", "3"], "--stages 2"),
        (&["--partition", "histogram"], "leave it out"),
        (&["--hosts", "0"], "use --hosts 1 to"),
        (
            &["--workers", "9*1", "--hosts", "114"],
            "use --hosts 1 to 113",
        ),
        (&["--host-link", "1:1"], "such as --hosts 2"),
        (
            &["--workers", "2*1T", "--hosts", "2", "--host-link", "1"],
            "--host-link 1: write SECONDS:BYTES_PER_SECOND",
        ),
        (
            &[
                "--workers",
                "2*1T",
                "--hosts",
                "2",
                "--host-link",
                "1e308:1",
            ],
            "--host-link 1e308:1: write",
        ),
        (
            &["--workers", "2*1T", "--hosts", "2", "--replicas", "3"],
            "no plan for --replicas 3",
        ),
    ];
    for (flags, words) in cases {
        let costs = ["plan", "--costs", "10,40,30,10,20,50,10", "--auto"];
        let refused = gpipe(folder.path(), &[&costs[..], flags].concat());
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(2), "{flags:?}: {said}");
        assert!(said.contains(words), "{flags:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

/// Four hosts of two workers: where links between hosts are slow, what leaves them is little; the parts of a step add
/// up to it, and another number of replicas is planned only where it is asked for.
#[test]
fn replicas_are_planned_on_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |more: &str| {
        let flags = format!(
            "plan --auto --model gpt-nano --batch-size 16 --workers 2*1G --link 1e-6:10G --hosts 4 {more}"
        );
        let flags: Vec<&str> = flags.split_whitespace().collect();
        gpipe(folder.path(), &flags)
    };
    let json = |more: &str| -> Value {
        let planned = plan(&format!("--json {more}"));
        assert_eq!(planned.status.code(), Some(0), "{}", stderr(&planned));
        serde_json::from_str(stdout(&planned).lines().next().unwrap()).unwrap()
    };
    let fast = json("");
    let plans = fast["replications"].as_array().unwrap();
    let seconds = |plan: &Value, key: &str| plan[format!("{key}_seconds")].as_f64().unwrap();
    for plan in plans {
        let parts = ["compute", "waiting", "transfer", "sum", "update"];
        let all: f64 = parts.iter().map(|part| seconds(plan, part)).sum();
        let step = seconds(plan, "step");
        assert!((all - step).abs() < 1e-9 * step, "{plan}");
        assert_eq!(seconds(plan, "sum") > 0.0, plan["replicas"] != 1, "{plan}");
        let peaks = |key: &str| plan[key].as_array().unwrap()[0].as_u64().unwrap();
        let sharded = peaks("peak_bytes") - peaks("sharded_peak_bytes");
        assert_eq!(sharded > 0, plan["replicas"] != 1, "{plan}");
    }
    let kinds = plans.iter().map(|plan| {
        let placement = plan["placement"].as_str().unwrap().to_owned();
        (plan["replicas"].as_u64().unwrap(), placement)
    });
    let kinds: std::collections::BTreeSet<_> = kinds.collect();
    let expected = [
        (1, "pipelines"),
        (2, "pipelines"),
        (2, "stages"),
        (4, "pipelines"),
        (4, "stages"),
        (8, "pipelines"),
    ];
    let expected = expected.map(|(replicas, placement)| (replicas, placement.to_owned()));
    assert!(kinds.iter().eq(expected.iter()), "{kinds:?}");
    // The same links everywhere: as many replicas as workers. With slow ones between hosts, sums stay inside.
    assert_eq!(plans[0]["replicas"], json!(8));
    let slow = json("--host-link 1e-5:5M");
    assert_eq!(slow["replications"][0]["placement"], json!("stages"));
    assert!(seconds(&slow, "step") > seconds(&fast, "step"));
    let two = json("--replicas 2 --host-link 1e-5:5M");
    let two = two["replications"].as_array().unwrap();
    assert!(two.iter().all(|plan| plan["replicas"] == 2) && two.len() == 2);
    // With ZeRO 1, plans count on the peaks that are listed without it.
    let zero = json("--zero 1");
    let zero = zero["replications"].as_array().unwrap();
    assert!(
        zero.iter()
            .all(|plan| plan["peak_bytes"] == plan["sharded_peak_bytes"])
    );
    assert_eq!(zero[0]["replicas"], json!(8));
    assert_eq!(zero[0]["peak_bytes"], plans[0]["sharded_peak_bytes"]);
    let text = plan("");
    let text = stdout(&text);
    let rows = text.lines().filter(|line| line.contains(" pipelines "));
    assert!(
        rows.into_iter().all(|row| row.contains("(estimate)")),
        "{text}"
    );
    assert!(text.contains("mpirun -np 8 gpipe train "), "{text}");
    assert!(
        text.contains(" --replicas 8") && text.contains("\nreplicas "),
        "{text}"
    );
}

/// On free links, a worker for each sample computes its share of the batch, whichever of 128 hosts it is on.
#[test]
fn a_thousand_workers_are_planned() {
    let folder = tempfile::tempdir().unwrap();
    let flags = "plan --auto --json --costs 3,3,3,3 --workers 8*1 --hosts 128 --batch-size 1024";
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let planned = gpipe(folder.path(), &flags);
    let plan: Value = serde_json::from_str(stdout(&planned).trim()).unwrap();
    let step = plan["step_seconds"].as_f64().unwrap();
    // The gradient of the input of the model is not computed: eleven of twelve.
    assert!((step * 1024.0 - 11.0).abs() < 1e-6, "{step}");
    let found = plan["replications"].as_array().unwrap();
    let workers = |plan: &Value, key: &str| plan[key].as_u64().unwrap();
    let used = workers(&found[0], "replicas") * workers(&found[0], "workers");
    assert_eq!(used, 1024);
    // Eleven divisors; all but the first and the last in two ways.
    assert_eq!(found.len(), 20);
}

/// The printed command, pasted into a shell, gives the recommended plan.
#[cfg(unix)]
#[test]
fn the_recommended_command_runs() {
    let folder = tempfile::tempdir().unwrap();
    let program = assert_cmd::cargo::cargo_bin("gpipe");
    let paste = |text: &str, more: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix("use "));
        let command = line.expect("a command").trim();
        assert!(command.starts_with("gpipe "), "{command}");
        let here = program.parent().expect("a folder").display();
        let path = std::env::var("PATH").unwrap_or_default();
        std::process::Command::new("sh")
            .current_dir(folder.path())
            .env("PATH", format!("{here}:{path}"))
            .args(["-c", &format!("{command} {more}")])
            .output()
            .expect("a shell")
    };
    let model = [
        "--auto",
        "--devices",
        "cpu*2",
        "--set",
        "model.name=gpt-nano",
    ];
    let text = stdout(&small(folder.path(), "plan", &model));
    let auto = objects(&small(
        folder.path(),
        "plan",
        &[&model[..], &["--json"]].concat(),
    ));
    let run = paste(&text, "--steps 1 --out 'a run'");
    assert_eq!(run.status.code(), Some(0), "{text}: {}", stderr(&run));
    let config = std::fs::read_to_string(folder.path().join("a run/config.toml")).unwrap();
    for key in ["stages", "micro_batches"] {
        assert!(
            config.contains(&format!("{key} = {}\n", auto[0][key])),
            "{config}"
        );
    }
    let costs = ["plan", "--costs", "10,40,30,10,20,50,10", "--auto"];
    for workers in [&["--devices", "cpu*3"], &["--workers", "4*1T"]] {
        let arguments = [&costs[..], workers, &["--batch-size", "24"]].concat();
        let text = stdout(&gpipe(folder.path(), &arguments));
        let pasted = paste(&text, "--json");
        assert_eq!(pasted.status.code(), Some(0), "{text}: {}", stderr(&pasted));
        let auto = objects(&gpipe(
            folder.path(),
            &[&arguments[..], &["--json"]].concat(),
        ));
        assert_eq!(objects(&pasted)[0]["cut"], auto[0]["cut"]);
    }
}

#[test]
fn a_model_is_recommended_a_plan_that_fits_and_trains() {
    let folder = tempfile::tempdir().unwrap();
    let keep = objects(&small(
        folder.path(),
        "plan",
        &["--remat", "keep", "--json"],
    ));
    let peaks = keep[0]["peak_bytes"].as_array().unwrap();
    let most = peaks
        .iter()
        .map(|peak| peak.as_u64().unwrap())
        .max()
        .unwrap();
    let memory = most.to_string();
    let limit = ["--memory", &memory, "--devices", "cpu*2"];
    let auto = objects(&small(
        folder.path(),
        "plan",
        &[&limit[..], &["--auto", "--json"]].concat(),
    ));
    for peak in auto[0]["peak_bytes"].as_array().unwrap() {
        assert!(peak.as_u64().unwrap() <= most);
    }
    let run = [&limit[..], &["--auto", "--steps", "1", "--out", "run"]].concat();
    stdout(&small(folder.path(), "train", &run));
    let config = std::fs::read_to_string(folder.path().join("run/config.toml")).unwrap();
    let schedule = auto[0]["schedule"].as_str().unwrap();
    assert!(
        config.contains(&format!("schedule = \"{schedule}\"")),
        "{config}"
    );
}
