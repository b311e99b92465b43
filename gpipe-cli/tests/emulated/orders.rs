//! Training on emulated devices equals the processor's, and every order gives the same bits.

use std::fs;

use crate::{Place, assert_near, seeds};

/// Devices and settings that copies go other ways with.
const WAYS: [(&[&str], &str); 6] = [
    (&["--devices", "cuda:0,cuda:1,cuda:2,cuda:3"], "peers=1"),
    (&["--devices", "cuda:0,cuda:1,cuda:2,cuda:3"], "peers=0"),
    (&["--devices", "cuda:0*4"], "peers=1"),
    (&["--devices", "cpu,cuda:0,cpu,cuda:1"], "peers=1"),
    (
        &[
            "--devices",
            "cuda:1*2,cuda:0*2",
            "--schedule",
            "1f1b",
            "--remat",
            "keep",
        ],
        "peers=1",
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
        "peers=0",
    ),
];

/// Orders of each way: each of the five ways of drawing.
const ORDERS: u64 = 5;

#[test]
fn every_order_gives_the_bits_of_the_first_and_the_processors_but_for_rounding() {
    let Some(place) = Place::new() else { return };
    let orders = seeds(ORDERS);
    for way in WAYS {
        let (arguments, _) = way;
        let rest: Vec<&str> = arguments[2..].to_vec();
        let processor = place.trained("cpu", &[&["--devices", "cpu"], &rest[..]].concat(), "");
        place.trained_alike(way, orders, &mut None, |what, got| {
            assert_near(what, got, &processor);
        });
    }
    println!("{} ways and {orders} orders of each", WAYS.len());
}

/// An encoder-decoder with packed rows, dropout, smoothed labels and a memory of all layers: four to six tensors pass from
/// stage to stage.
#[test]
fn an_encoder_decoder_trains_on_devices_with_the_bits_of_one() {
    let Some(place) = Place::new() else { return };
    let words: Vec<String> = (1..200).map(|n| n.to_string()).collect();
    let backwards: Vec<String> = words
        .iter()
        .map(|word| word.chars().rev().collect())
        .collect();
    fs::write(place.path("words"), words.join("\n")).expect("sources");
    fs::write(place.path("backwards"), backwards.join("\n")).expect("targets");
    let model = "--model seq2seq-nano --set model.width=16 --set model.inner=20 --set model.heads=2 \
                 --set model.transparent=true --dropout 0.1 --label-smoothing 0.1 --data words --target backwards --seq-len 12 \
                 --batch-size 8 --micro-batches 4 --threads 2 --steps 3 --warmup-steps 1";
    let model: Vec<&str> = model.split_whitespace().collect();
    let on = |run: &str, devices: &[&str], settings: &str| {
        let train = ["train", "--json", "-q", "--out", run];
        let outcome = place.run(&[&train, &model[..], devices].concat(), settings);
        place.result(run, &outcome)
    };
    let processor = on("cpu", &["--devices", "cpu"], "");
    let one = on("one", &["--devices", "cuda:0", "--stages", "1"], "seed=1");
    let four = on(
        "four",
        &[
            "--devices",
            "cuda:0,cuda:1,cuda:2,cuda:3",
            "--schedule",
            "1f1b",
        ],
        "seed=2",
    );
    assert!(one == four);
    assert_near("devices", &one, &processor);
    let decoded = |devices: &str| {
        let line = ["--prompt", "123", "--temperature", "0", "--tokens", "6"];
        let command = [&["sample", "cpu", "--devices", devices][..], &line].concat();
        let outcome = place.run(&command, "seed=3");
        assert!(outcome.is_right(), "{devices}: {outcome:?}");
        outcome.stdout
    };
    assert_eq!(decoded("cuda:0,cuda:1,cuda:2"), decoded("cpu"));
}

/// Frozen matrices with adapters, and dropout before those.
#[test]
fn adapters_train_on_devices_with_the_bits_of_one() {
    let Some(place) = Place::new() else { return };
    let model = "--model llama-nano --set model.blocks=2 --set model.width=16 --set model.heads=2 --set model.head_size=8 \
                 --set model.inner=20 --lora 2 --lora-dropout 0.1 --seq-len 12 --batch-size 8 --micro-batches 4 \
                 --threads 2 --steps 3 --warmup-steps 1";
    let model: Vec<&str> = model.split_whitespace().collect();
    let on = |run: &str, devices: &[&str], settings: &str| {
        let train = ["train", "--json", "-q", "--out", run];
        let outcome = place.run(&[&train, &model[..], devices].concat(), settings);
        place.result(run, &outcome)
    };
    let processor = on("cpu", &["--devices", "cpu"], "");
    let one = on("one", &["--devices", "cuda:0", "--stages", "1"], "seed=1");
    let devices = ["--devices", "cuda:0,cuda:1,cuda:2"];
    let three = on(
        "three",
        &[&devices[..], &["--schedule", "zb-h1"]].concat(),
        "seed=2",
    );
    assert!(one == three);
    assert_near("devices", &one, &processor);
}

#[test]
fn threads_that_come_at_other_times_change_nothing() {
    let Some(place) = Place::new() else { return };
    let devices = ["--devices", "cuda:0,cuda:1,cuda:2,cuda:3"];
    let first = place.trained("first", &devices, "order=eager");
    for settings in [
        "delay=100 seed=1",
        "delay=200 order=lazy seed=2",
        "threads=1 seed=3",
    ] {
        let got = place.trained("other", &devices, settings);
        assert!(got == first, "{settings}");
    }
}

#[test]
fn evaluation_and_the_perceptron_run_there_too() {
    let Some(place) = Place::new() else { return };
    let evaluates = ["--eval-every", "1", "--data", "text"];
    let [processor, devices] = ["cpu", "cuda:0,cuda:1,cuda:2,cuda:3"]
        .map(|devices| [&["--devices", devices], &evaluates[..]].concat());
    let processor = place.trained("cpu", &processor, "");
    let got = place.trained("cuda", &devices, "seed=1");
    assert_near("with evaluations", &got, &processor);
    let verify = [
        &["verify", "--devices", "cuda:0,cuda:1"][..],
        &[
            "--stages",
            "2",
            "--schedule",
            "1f1b",
            "--set",
            "model.blocks=1",
            "--seq-len",
            "8",
        ],
        &[
            "--set",
            "model.width=16",
            "--batch-size",
            "4",
            "--micro-batches",
            "2",
        ],
    ];
    let verified = place.run(&verify.concat(), "seed=2");
    assert!(verified.is_right(), "{verified:?}");
}
