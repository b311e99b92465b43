//! Mixed precision: values and activations in bf16, masters, gradients and moments in f32.

use serde_json::Value;

use crate::{Place, parameters, seeds};

/// Cuts, schedules, rematerialization and ways of copying: all of them give the same bits.
const WAYS: [(&[&str], &str); 5] = [
    (&["--devices", "cuda:0,cuda:1,cuda:2,cuda:3"], "peers=1"),
    (
        &["--devices", "cuda:0*4", "--schedule", "1f1b"],
        "peers=1 order=starved",
    ),
    (
        &[
            "--devices",
            "cuda:1*2,cuda:0*2",
            "--schedule",
            "zb-h1",
            "--remat",
            "keep",
        ],
        "peers=0",
    ),
    (
        &[
            "--devices",
            "cuda:0,cuda:1",
            "--schedule",
            "interleaved:2",
            "--remat",
            "every:1",
        ],
        "peers=0 order=lazy",
    ),
    (
        &["--devices", "cuda:3", "--stages", "1", "--remat", "keep"],
        "peers=1",
    ),
];

const BF16: [&str; 2] = ["--dtype", "bf16"];

/// A loss in bf16 is within so much of that in f32: 8 bits are a rounding error of 1/512 in every
/// activation, of which the loss, a mean over logarithms of sums, keeps about as much.
const NEAR: f64 = 1.0 / 256.0;

/// Orders of each way.
const ORDERS: u64 = 2;

fn assert_near(what: &str, got: &[f64], wanted: &[f64]) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (got, wanted) in got.iter().zip(wanted) {
        let off = (got - wanted).abs() / wanted;
        assert!(off <= NEAR, "{what}: {got} is not near {wanted}");
    }
}

#[test]
fn every_way_and_order_gives_the_same_bits_near_those_of_single_precision() {
    let Some(place) = Place::new() else { return };
    let single = place.trained("f32", WAYS[0].0, "seed=1");
    let (orders, mut first) = (seeds(ORDERS), None);
    for (arguments, settings) in WAYS {
        let arguments = [arguments, &BF16].concat();
        place.trained_alike((&arguments, settings), orders, &mut first, |what, got| {
            assert_near(what, &got.losses, &single.losses);
        });
    }
    println!("{} ways and {orders} orders of each", WAYS.len());
}

#[test]
fn losses_fall_alike() {
    let Some(place) = Place::new() else { return };
    let longer = ["--devices", "cuda:0,cuda:1,cuda:2,cuda:3", "--steps", "30"];
    let longer = [&longer[..], &["--lr", "5e-3", "--dropout", "0"]].concat();
    let single = place.trained("f32", &longer, "seed=1").losses;
    let mixed = place
        .trained("bf16", &[&longer[..], &BF16].concat(), "seed=2")
        .losses;
    let fall = |losses: &[f64]| losses[0] - losses[losses.len() - 1];
    println!("f32 {single:?}\nbf16 {mixed:?}");
    assert!(fall(&single) > 0.5, "{single:?}");
    let ratio = fall(&mixed) / fall(&single);
    assert!(
        (0.95..1.05).contains(&ratio),
        "{ratio}: {single:?} {mixed:?}"
    );
}

#[test]
fn a_perceptron_narrows_its_images() {
    let Some(place) = Place::new() else { return };
    let images = ["train", "--model", "mlp", "--json", "-q", "--overwrite"];
    let images = [&images[..], &["--steps", "3", "--batch-size", "8"]].concat();
    let train = |run: &str, more: &[&str]| {
        let out = ["--out", run, "--stages", "2", "--micro-batches", "2"];
        let outcome = place.run(&[&images[..], &out, more].concat(), "seed=1");
        place.result(run, &outcome)
    };
    let cuda = ["--devices", "cuda:0,cuda:1"];
    let single = train("f32", &cuda);
    for remat in ["stage", "keep"] {
        let more = ["--remat", remat];
        let mixed = train("bf16", &[&cuda[..], &more, &BF16].concat());
        assert_near(remat, &mixed.losses, &single.losses);
    }
}

#[test]
fn a_run_goes_on_across_types_and_devices() {
    let Some(place) = Place::new() else { return };
    let constant = ["--lr-schedule", "constant", "--steps"];
    let cpu = [&["--devices", "cpu"][..], &constant, &["5"]].concat();
    let whole = place.trained("whole", &cpu, "");
    let cuda = ["--devices", "cuda:0*4"];
    place.trained("run", &[&cuda[..], &constant, &["1"]].concat(), "");
    let mut steps = 1;
    for (devices, dtype) in [
        ("cuda:0,cuda:1,cuda:2,cuda:3", "bf16"),
        ("cpu", "f32"),
        ("cuda:0,cuda:1,cuda:2,cuda:3", "bf16"),
        ("cuda:1*4", "f32"),
    ] {
        steps += 1;
        let made = steps.to_string();
        let resume = ["train", "--resume", "run", "--json", "-q", "--steps", &made];
        let on = ["--devices", devices, "--dtype", dtype];
        let outcome = place.run(&[&resume[..], &on].concat(), "seed=3");
        assert!(outcome.is_right(), "{devices} {dtype}: {outcome:?}");
        let step = outcome.stdout.lines().map(serde_json::from_str);
        let step = step.map(|object| object.expect("an object"));
        let step = step.filter(|object: &Value| object["kind"] == "step");
        let losses: Vec<f64> = step.filter_map(|step| step["loss"].as_f64()).collect();
        let wanted = &whole.losses[steps - 1..steps];
        assert_near(&format!("step {steps}"), &losses, wanted);
        // What is saved is of single precision, whatever layers compute with.
        let exact = parameters(&place.path("run"));
        let narrow = exact.iter().filter(|value| value.to_bits() & 0xffff == 0);
        assert!(narrow.count() * 2 < exact.len(), "{devices} {dtype}");
    }
}

#[test]
fn a_checkpoint_that_nothing_is_added_to_keeps_every_bit() {
    let Some(place) = Place::new() else { return };
    let cuda = ["--devices", "cuda:0,cuda:1", "--schedule", "interleaved:2"];
    place.trained("run", &["--devices", "cpu"], "");
    let begun = parameters(&place.path("run"));
    // A step whose learning rate is nothing moves no master.
    let still = ["train", "--resume", "run", "-q", "--json", "--steps", "4"];
    let still = [&still[..], &cuda, &BF16, &["--set", "optimizer.lr=0"]].concat();
    let outcome = place.run(&still, "seed=5");
    assert!(outcome.is_right(), "{outcome:?}");
    assert!(parameters(&place.path("run")) == begun);
}

#[test]
fn what_mixed_precision_wrote_all_devices_evaluate() {
    let Some(place) = Place::new() else { return };
    place.trained("run", &["--devices", "cuda:0*4", "--dtype", "bf16"], "");
    let loss = |more: &[&str]| place.evaluated(more);
    let wanted = loss(&["--devices", "cpu", "--set", "run.dtype=f32"]);
    let others = [
        loss(&["--devices", "cpu"]),
        loss(&["--devices", "cuda:0,cuda:1,cuda:2,cuda:3"]),
        loss(&[]),
    ];
    assert_near("losses", &others, &[wanted; 3]);
    for devices in ["cpu", "cuda:0*4"] {
        let sample = ["sample", "run", "--tokens", "3", "--devices", devices];
        let outcome = place.run(&sample, "seed=1");
        assert!(outcome.is_right(), "{outcome:?}");
    }
}

/// Scores of 257 and 300 words, whose rows begin at multiples of 64 elements for tensor cores, in all ways, passes and
/// families.
#[test]
fn rows_of_an_odd_vocabulary_lie_apart() {
    let Some(place) = Place::new() else { return };
    let cases = [
        ("gpt-nano", "257", &BF16[..]),
        ("gpt-nano", "257", &["--tf32"]),
        ("llama-nano", "300", &BF16),
    ];
    for (model, vocabulary, precision) in cases {
        let vocabulary = format!("model.vocab={vocabulary}");
        let mut model = vec!["--model", model, "--set", &vocabulary];
        if model[1] == "llama-nano" {
            let heads = ["model.head_size=8", "model.kv_heads=1", "model.inner=20"];
            model.extend(heads.into_iter().flat_map(|key| ["--set", key]));
        }
        let train = |run: &str, more: &[&str], settings: &str| {
            place.trained(run, &[&model[..], more].concat(), settings)
        };
        let single = train("f32", &["--devices", "cpu"], "");
        let one = [&["--devices", "cuda:0", "--stages", "1"][..], precision].concat();
        let wanted = train("run", &one, "seed=1");
        assert_near(&vocabulary, &wanted.losses, &single.losses);
        for (more, settings) in [WAYS[1], WAYS[2], WAYS[3]] {
            let got = train(
                "way",
                &[more, precision].concat(),
                &format!("{settings} seed=2"),
            );
            assert!(got == wanted, "{vocabulary} {more:?}");
        }
        let evaluated = [&["--devices", "cuda:0*2"][..], &["--devices", "cpu"]];
        let [here, there] = evaluated.map(|devices| place.evaluated(devices));
        assert_near(&vocabulary, &[here], &[there]);
        let sample = ["sample", "run", "--tokens", "3", "--devices", "cuda:0*2"];
        let outcome = place.run(&sample, "seed=3");
        assert!(outcome.is_right(), "{outcome:?}");
    }
    // On GPUs alone: a stage on the processor keeps its rows one behind the other, as its predicted bytes say.
    let both = ["--devices", "cuda:0,cpu", "--stages", "2", "--tf32"];
    let odd = ["--set", "model.vocab=257"];
    place.trained("both", &[&both[..], &odd].concat(), "seed=1");
}

#[test]
fn lists_of_both_kinds_of_devices_are_refused() {
    let Some(place) = Place::new() else { return };
    let devices = ["--devices", "cpu,cuda:0,cpu,cuda:1", "--dtype", "bf16"];
    let outcome = place.train("run", &devices, "");
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert_eq!(outcome.stderr.trim_end().lines().count(), 1, "{outcome:?}");
    assert!(outcome.stderr.contains("--dtype f32"), "{outcome:?}");
    assert!(!place.path("run").exists());
}
