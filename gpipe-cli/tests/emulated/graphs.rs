//! Training by CUDA graphs: the bits of single launches, the bytes that are predicted, and what goes wrong.

use std::collections::BTreeMap;

use crate::{Place, is_exam, moments, seeds};

/// Long enough for graphs: the first step makes the arena, the second its addresses, the third the graphs.
const LONGER: [&str; 2] = ["--steps", "6"];

const SINGLE: &str = "--no-cuda-graphs";

/// Devices, schedules, what is kept, types, and numbers of micro-batches; the settings of the host.
const WAYS: [(&str, &str); 9] = [
    (
        "--devices cuda:0 --stages 1 --micro-batches 1 --remat keep",
        "",
    ),
    (
        "--devices cuda:0 --stages 1 --micro-batches 4 --remat stage --dtype bf16",
        "",
    ),
    (
        "--devices cuda:0*2 --stages 2 --micro-batches 4 --schedule gpipe --remat keep",
        "",
    ),
    (
        "--devices cuda:0*2 --stages 2 --micro-batches 7 --batch-size 9 --schedule 1f1b --remat stage --dtype bf16",
        "",
    ),
    (
        "--devices cuda:0,cuda:1,cuda:2,cuda:3 --micro-batches 4 --schedule 1f1b --remat keep --dtype bf16",
        "peers=1",
    ),
    (
        "--devices cuda:0,cuda:1,cuda:2,cuda:3 --micro-batches 7 --batch-size 9 --schedule gpipe --remat stage",
        "peers=0",
    ),
    (
        "--devices cuda:0,cuda:1 --micro-batches 4 --schedule interleaved:2 --remat every:1",
        "peers=0",
    ),
    (
        "--devices cuda:1*2,cuda:0*2 --micro-batches 4 --schedule zb-h1 --remat keep --dtype bf16",
        "peers=1",
    ),
    (
        "--devices cuda:0,cuda:1 --micro-batches 4 --schedule zb-v --remat keep",
        "peers=1",
    ),
];

/// Orders of each way.
const ORDERS: u64 = 1;

#[test]
fn graphs_give_the_bits_and_bytes_of_single_launches_in_every_way() {
    let Some(place) = Place::new() else { return };
    for (way, settings) in WAYS {
        let way: Vec<&str> = way.split_whitespace().collect();
        let graphs = [&way[..], &LONGER].concat();
        let single = [&graphs[..], &[SINGLE]].concat();
        let wanted = place.trained("single", &single, &format!("{settings} seed=1"));
        for seed in 0..seeds(ORDERS) {
            let settings = format!("{settings} seed={seed}");
            // The bytes are compared there, too.
            let got = place.trained("graphs", &graphs, &settings);
            assert!(got == wanted, "{way:?} {settings}: {got:?} {wanted:?}");
        }
        println!("exam G1 {0}/{0}", seeds(ORDERS));
        let [single, graphs] = [&single, &way].map(|way| counted(&step(&place, way, ["6", "7"])));
        println!("{}: {single:?} {graphs:?}", way.join(" "));
        assert!(
            graphs[1] > 0 && graphs[0] * 4 < single[0],
            "{way:?}: {single:?} {graphs:?}"
        );
    }
}

/// Calls of one step: those of a run that is one step longer.
fn step(place: &Place, arguments: &[&str], steps: [&str; 2]) -> BTreeMap<String, i64> {
    let [shorter, longer] = steps.map(|steps| {
        let arguments = [arguments, &["--steps", steps]].concat();
        place.calls("run", &arguments, "seed=1")
    });
    let calls = longer.into_iter();
    calls
        .map(|(name, count)| {
            let before = shorter.get(&name).copied().unwrap_or(0);
            (name, count.cast_signed() - before.cast_signed())
        })
        .filter(|(_, count)| *count != 0)
        .collect()
}

/// Launches of every kind, and calls about memory.
fn counted(calls: &BTreeMap<String, i64>) -> [i64; 4] {
    let sum = |begins: &[&str]| {
        // Attributes of a product are set on the host.
        let named = calls.iter().filter(|(name, _)| {
            let begins = begins.iter().any(|begin| name.starts_with(begin));
            begins && !name.ends_with("SetAttribute")
        });
        named.map(|(_, count)| count).sum()
    };
    [
        sum(&[
            "cuLaunchKernel",
            "cublasSgemm",
            "cublasGemm",
            "cublasLtMatmul",
            "cuMemset",
            "cuMemcpyDtoD",
        ]),
        sum(&["cuGraphLaunch"]),
        sum(&["cuGraphExecKernelNodeSetParams"]),
        sum(&["cuMemAllocFromPool", "cuMemFreeAsync"]),
    ]
}

/// A GPT of twelve blocks on one device, 8 micro-batches.
#[test]
fn a_step_takes_a_handful_of_launches() {
    let Some(place) = Place::new() else { return };
    let model = "--devices cuda:0 --stages 1 --set model.blocks=12 --micro-batches 8 --remat keep --dtype bf16 --dropout 0";
    let model: Vec<&str> = model.split_whitespace().collect();
    let graphs = step(&place, &model, ["6", "7"]);
    let plain = step(&place, &[&model[..], &[SINGLE]].concat(), ["6", "7"]);
    let [one_by_one, none, _, memory] = counted(&plain);
    let [left, launches, changes, still] = counted(&graphs);
    println!("a step of 8 micro-batches, launches, graphs, arguments, allocations and freeings:");
    println!(
        "single {:?}\ngraphs {:?}",
        counted(&plain),
        counted(&graphs)
    );
    println!("single {plain:?}\ngraphs {graphs:?}");
    assert_eq!(none, 0);
    // An action is one graph, and its tokens have another address each time.
    assert_eq!(launches, 2 * 8, "{graphs:?}");
    assert!(left * 20 < one_by_one, "{left} {one_by_one}");
    assert!(still * 10 < memory, "{still} {memory}");
    assert!(changes <= 4 * 8, "{changes}");
}

#[test]
fn what_goes_wrong_with_graphs_is_one_error_or_nothing() {
    let Some(place) = Place::new() else { return };
    let arguments = ["--devices", "cuda:0,cuda:1", "--stages", "2"];
    let arguments = [&arguments[..], &LONGER].concat();
    let wanted = place.trained("run", &arguments, "");
    let mut failed = 0;
    let calls = place.calls("run", &arguments, "").into_iter();
    let kinds = ["Graph", "Capture", "Mem"];
    let calls = calls.filter(|(name, _)| kinds.iter().any(|kind| name.contains(kind)));
    for (turn, (name, count)) in calls.enumerate() {
        for moment in moments(turn, count) {
            let settings = format!("seed={moment} fail={name}:{moment}:999");
            let outcome = place.train("failing", &arguments, &settings);
            if outcome.code == Some(0) {
                assert!(place.result("failing", &outcome) == wanted, "{settings}");
            } else {
                crate::failures::assert_clear(&settings, &outcome);
            }
            failed += 1;
        }
    }
    for (moment, error) in [(1500, 700), (2000, 214), (2500, 719)] {
        let settings = format!("seed={moment} break={moment}:{error}");
        let outcome = place.train("failing", &arguments, &settings);
        crate::failures::assert_clear(&settings, &outcome);
    }
    println!("exam G2 {failed}/{failed}");
}

/// Evaluations, texts and runs that go on from a checkpoint between steps of graphs.
#[test]
fn what_is_no_training_goes_on_without_graphs() {
    let Some(place) = Place::new() else { return };
    let common = [
        "--devices",
        "cuda:0*2",
        "--stages",
        "2",
        "--eval-every",
        "2",
        "--data",
        "text",
    ];
    let common = [&common[..], &LONGER].concat();
    let single = [&common[..], &[SINGLE]].concat();
    let wanted = place.trained("single", &single, "seed=1");
    // A file that says so, and a flag beside it that does not.
    let file = "single/config.toml";
    let text = std::fs::read_to_string(place.path(file)).expect("a configuration");
    assert!(text.contains("cuda_graphs = false"), "{text}");
    let of_file = ["--config", file, "--stages", "2"];
    let calls = place.calls("of-file", &of_file, "seed=2");
    assert!(!calls.contains_key("cuGraphLaunch"), "{calls:?}");
    let graphs = [&common[..], &["--config", file, "--cuda-graphs"]].concat();
    assert!(place.calls("run", &graphs, "seed=2")["cuGraphLaunch"] > 0);
    assert!(place.trained("run", &graphs, "seed=2") == wanted);
    place.evaluated(&["--devices", "cuda:0*2"]);
    let sample = ["sample", "run", "--tokens", "3", "--devices", "cuda:0*2"];
    assert!(place.run(&sample, "seed=1").is_right());
}

/// Bytes between amounts of memory that are tried.
const GRAIN: u64 = 8 << 10;

/// Graphs train on a device whose memory is just what single launches need, and on those with little more, as these do.
#[test]
fn graphs_need_no_memory_that_single_launches_do_not() {
    let Some(place) = Place::new() else { return };
    // Of the pool's memory, 32 MiB are for products.
    let products = 32 << 20;
    for way in [
        "--stages 1 --micro-batches 4 --remat keep --steps 6",
        "--stages 1 --micro-batches 4 --remat stage --dtype bf16 --steps 6",
        "--stages 1 --micro-batches 2 --remat keep --steps 12 --eval-every 3 --data text",
    ] {
        let way: Vec<&str> = way.split_whitespace().collect();
        let graphs = [&way[..], &["--devices", "cuda:0"]].concat();
        let single = [&graphs[..], &[SINGLE]].concat();
        let settings = |bytes: u64| format!("seed=1 scattered=1 memory={}", products + bytes);
        let wanted = place.trained("single", &single, "seed=1");
        let (mut least, mut enough) = (0, 512);
        while enough - least > 1 {
            let middle = u64::midpoint(least, enough);
            let outcome = place.train("single", &single, &settings(middle * GRAIN));
            match outcome.code {
                Some(0) => enough = middle,
                _ => least = middle,
            }
        }
        let none = place.train("graphs", &graphs, &settings(least * GRAIN));
        assert_ne!(none.code, Some(0), "{way:?}: {none:?}");
        let mut launched = Vec::new();
        for more in [0, 1, 3, 9, 80] {
            let settings = settings((enough + more) * GRAIN);
            let calls = place.calls("graphs", &graphs, &settings);
            let launches = calls.get("cuGraphLaunch").copied().unwrap_or(0);
            let parameters = crate::parameters(&place.path("graphs"));
            assert!(parameters == wanted.parameters, "{way:?} {more}");
            launched.push(launches);
        }
        println!("{way:?}: {enough} times {GRAIN} bytes, launches of graphs {launched:?}");
        // There is room for graphs at the end.
        assert!(launched.last() > Some(&0), "{way:?}: {launched:?}");
    }
}

/// An allocation that fails where an arena has memory: in an action the step is made once more, elsewhere the arena makes room.
#[test]
fn a_step_that_runs_out_of_memory_is_made_without_graphs() {
    let Some(place) = Place::new() else { return };
    let graphs = ["--devices", "cuda:0*2", "--stages", "2", "--steps", "6"];
    let single = [&graphs[..], &[SINGLE]].concat();
    let wanted = place.trained("run", &single, "seed=1");
    let calls = |settings: &str| place.calls("run", &graphs, settings);
    let asked = |of: &BTreeMap<String, u64>| of["cuMemAllocFromPoolAsync"];
    let usual = calls("seed=1");
    // From the first steps with an arena on.
    let apart = if is_exam() { 7 } else { 19 };
    let moments = (asked(&usual) * 3 / 4..asked(&usual)).step_by(apart);
    let (mut tried, mut made_again) = (0, 0);
    for moment in moments {
        tried += 1;
        // The second time is after the pool gave back what it keeps free, the third after idle arenas were given back.
        let failures: String = (moment..moment + 3)
            .map(|moment| format!(" fail=cuMemAllocFromPoolAsync:{moment}:2"))
            .collect();
        let settings = format!("seed={moment}{failures}");
        let got = calls(&settings);
        assert!(place.end("run")["kind"] == "end", "{settings}");
        let parameters = crate::parameters(&place.path("run"));
        assert!(parameters == wanted.parameters, "{settings}");
        made_again += usize::from(got["cuGraphLaunch"] < usual["cuGraphLaunch"]);
    }
    println!("{made_again} runs had a step without graphs");
    println!("exam G2 {tried}/{tried}");
    assert!(made_again > 0);
}
