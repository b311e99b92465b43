//! What a set-up predicts and assembles, and the mends where it is refused.

use gpipe_remat::{OutputStage, Rates};
use gpipe_sched::{InMemory, World};
use gpipe_tensor::Precision;

use super::Setup;
use super::memory_check::enough;
use crate::config::{Overrides, Setting, TrainConfig};
use crate::profile::Speed;

fn resolved(set: &[&str]) -> TrainConfig {
    let setting = |text: &&str| {
        let (key, value) = text.split_once('=').unwrap();
        Setting::text(*text, key, value)
    };
    let layer = Overrides::new().layer(set.iter().map(setting));
    layer.unwrap().resolve().unwrap()
}

/// Forward passes hold no gradients and no optimizer states, and save nothing.
#[test]
fn the_memory_of_forward_passes_is_that_of_the_values() {
    let config = resolved(&["model.name=bench-a", "pipeline.stages=1"]);
    let trained = Setup::new(&config).unwrap();
    let [fixed, values] = [trained.memory[0].fixed(), trained.memory[0].values];
    let forward = trained.forward_only();
    assert!(forward.memory[0].fixed() == values && fixed > 3 * values);
    let assembled = forward.assemble_to(&config, |last, _| OutputStage::new(last));
    assert_eq!(assembled.unwrap().devices[0].live_bytes(), values);
}

/// What a run would be refused for is known before.
#[test]
fn what_this_machine_lacks_is_known_before_a_run() {
    let lacks = |set: &[&str]| {
        let config = resolved(&[&["model.blocks=1", "pipeline.stages=1"], set].concat());
        let mut setup = Setup::new(&config).unwrap();
        let lacks = setup.faults(&config, false);
        let assembled = setup.assemble(&config);
        (lacks, assembled.err().map(|error| error.to_string()))
    };
    assert_eq!(lacks(&[]), (vec![], None));
    let (bf16, refused) = lacks(&["run.dtype=bf16"]);
    assert_eq!(bf16.is_empty(), Precision::Bf16.is_available(), "{bf16:?}");
    assert_eq!(bf16.first(), refused.as_ref());
    let (gpu, refused) = lacks(&["pipeline.devices=cuda:99"]);
    assert!(gpu[0].starts_with("device cuda:99 is not here: use `pipeline.devices = cpu`"));
    assert!(refused.is_some());
    let weights = "model.weights=missing.safetensors";
    let config = resolved(&["model.name=convnet", weights]);
    let mut setup = Setup::new(&config).unwrap();
    let [missing] = &setup.faults(&config, false)[..] else {
        panic!("one fault");
    };
    let refused = setup.open_weights(&config).unwrap_err();
    assert_eq!(*missing, crate::one_line(&refused));
    // A checkpoint has its own.
    assert_eq!(setup.faults(&config, true), [""; 0]);
}

/// GPUs that are named are elsewhere: their memory counts, whatever this machine has.
#[test]
fn a_plan_for_named_gpus_is_judged_by_their_memory() {
    let faults = |set: &[&str]| {
        let large = ["model.name=gpt2", "model.width=12288", "model.heads=96"];
        let config = resolved(&[&large, set].concat());
        Setup::new(&config).unwrap().faults(&config, false)
    };
    // 430 GiB in all, of which each GPU has a thirtieth.
    let fits = [
        "model.blocks=16",
        "pipeline.devices=cuda:h200*30",
        "pipeline.stages=30",
    ];
    assert_eq!(faults(&fits), [""; 0]);
    let [said] = &faults(&["model.blocks=24", "pipeline.devices=cuda:h100*4"])[..] else {
        panic!("one fault");
    };
    assert!(said.contains(" but cuda:h100 has 74.5 GiB: "), "{said}");
    let (_, mend) = said.split_once(", or `pipeline.devices = ").unwrap();
    let (devices, stages) = mend.split_once("` with `pipeline.stages = ").unwrap();
    let devices = format!("pipeline.devices={devices}");
    let stages = format!("pipeline.stages={}", stages.trim_end_matches('`'));
    assert_eq!(faults(&["model.blocks=24", &devices, &stages]), [""; 0]);
}

/// Of 1F1B the last stage computes nothing again, so it gets more layers. What all stages compute again, or none, does not
/// count.
#[test]
fn a_stage_that_computes_less_again_gets_more_layers() {
    let set_up = |set: &[&str]| {
        let common = [
            "model.name=bench-a",
            "pipeline.stages=2",
            "pipeline.micro_batches=8",
            "pipeline.remat=stage",
        ];
        Setup::new(&resolved(&[&common, set].concat())).unwrap()
    };
    let even = set_up(&["pipeline.schedule=gpipe"]);
    let kept = set_up(&["pipeline.schedule=1f1b", "pipeline.remat=keep"]);
    for other in [&even, &kept] {
        assert_eq!(other.partition.sizes(), [9, 10]);
        let prices = other.costs.flops();
        let own = other
            .cut()
            .into_iter()
            .map(|part| prices[part].iter().sum());
        let own: Vec<u64> = own.collect();
        assert_eq!(other.loads.loads(), own);
        assert!(!other.prices.counts_recomputation());
    }
    let last = set_up(&["pipeline.schedule=1f1b"]);
    assert!(last.prices.counts_recomputation());
    assert_eq!(last.partition.sizes(), [8, 11]);
    let sum = |part: std::ops::Range<usize>, of: fn(&gpipe_layers::Cost) -> u64| -> u64 {
        let costs = (0..8).flat_map(|m| &last.costs.of(m)[part.clone()]);
        costs.map(of).sum()
    };
    let flops = |part: std::ops::Range<usize>| sum(part, gpipe_layers::Cost::flops);
    // Nothing needs the outputs of the last layer of the first stage.
    let again = sum(0..7, |cost| cost.forward) + sum(7..8, gpipe_layers::Cost::recomputed);
    assert_eq!(last.loads.loads(), [flops(0..8) + again, flops(8..19)]);
    assert_eq!(last.loads.over_optimum(), 1.0);
    // Even where one replica has 4 micro-batches and another 3, both have one cut.
    let replicas = |micro_batches: &str| {
        let micro_batches = format!("pipeline.micro_batches={micro_batches}");
        let set = [
            "pipeline.schedule=1f1b",
            "pipeline.replicas=2",
            "pipeline.groups=2",
            &micro_batches,
        ];
        set_up(&set).partition.sizes()
    };
    assert_eq!([replicas("8"), replicas("7")], [[8, 11], [9, 10]]);
    // Layers before the pipeline are in the first stage.
    let before = set_up(&["pipeline.schedule=1f1b", "pipeline.before=3"]);
    assert_eq!(
        before.loads.loads()[0],
        before.prices.of(0, 0..before.partition.sizes()[0])
    );
    assert_eq!(
        before
            .cuts(&resolved(&["model.name=bench-a"]))
            .unwrap()
            .best
            .layers,
        before.partition.sizes()
    );
}

/// The mends of more stages than layers, and of costs beyond all numbers, are followed.
#[test]
fn a_model_that_cannot_be_cut_has_a_mend_that_works() {
    let said = |set: &[&str]| {
        let config = resolved(&[&["model.name=gpt-nano"], set].concat());
        Setup::new(&config).err().map(|error| error.to_string())
    };
    let stages = |stages: &'static str, schedule: &'static str| said(&[stages, schedule]);
    let refused = stages("pipeline.stages=40", "pipeline.schedule=interleaved:4").unwrap();
    let mend = "40 stages but 11 layers: use `pipeline.stages = 8` or fewer";
    assert_eq!(refused, mend);
    assert_eq!(
        stages("pipeline.stages=8", "pipeline.schedule=interleaved:4"),
        None
    );
    // The next number that could be dealt out is beyond the layers.
    let refused = stages("pipeline.stages=11", "pipeline.schedule=zb-v").unwrap();
    let mend = "11 stages but 2 on each worker: use `pipeline.stages = 10` or fewer";
    assert_eq!(refused, mend);
    let refused = stages("pipeline.stages=100", "pipeline.schedule=interleaved:100").unwrap();
    let mend = "use another schedule than `pipeline.schedule = interleaved:100`, or more layers";
    assert!(refused.ends_with(mend), "{refused}");
    let refused = said(&["model.width=100000000"]).unwrap();
    assert!(
        refused.contains("can be counted: use a smaller model"),
        "{refused}"
    );
}

/// A cost model that does not know a layer is named.
#[test]
fn a_cost_model_without_a_formula_is_named() {
    let config = resolved(&["model.name=resnet18", "pipeline.cost_model=lingvo"]);
    let said = Setup::new(&config).err().unwrap().to_string();
    let named = "`pipeline.cost_model = lingvo`: Lingvo has no cost formula for ";
    assert!(said.starts_with(named), "{said}");
}

/// Replicas are started as processes: one alone assembles none.
#[test]
fn replicas_are_not_started_in_one_process() {
    let config = resolved(&["pipeline.replicas=2", "model.blocks=1"]);
    let setup = Setup::new(&config).unwrap();
    let said = setup.assemble(&config).err().unwrap().to_string();
    assert!(said.contains("2 replicas but one process: "), "{said}");
}

/// The mends of workers that ranks cannot share are followed.
#[test]
fn ranks_have_the_same_number_of_workers() {
    let over = |set: &[&str], ranks: usize| {
        let config = resolved(set);
        let mut worlds = InMemory::new(ranks).into_iter().map(World::new);
        let setup = Setup::over(&config, worlds.next().as_ref());
        setup.map(drop).map_err(|error| error.to_string())
    };
    let model = "model.name=gpt-nano";
    let said = over(&[model, "pipeline.stages=1"], 2).unwrap_err();
    assert!(said.ends_with("so use `pipeline.stages = 2`"), "{said}");
    assert_eq!(over(&[model, "pipeline.stages=2"], 2), Ok(()));
    let two = ["pipeline.schedule=interleaved:2", "pipeline.stages=4"];
    let said = over(&[model, two[0], two[1]], 3).unwrap_err();
    assert!(said.ends_with("so use `pipeline.stages = 6`"), "{said}");
    assert_eq!(over(&[model, two[0], "pipeline.stages=6"], 3), Ok(()));
    let replicas = "pipeline.replicas=2";
    let said = over(&[model, "pipeline.stages=6", replicas], 8).unwrap_err();
    assert!(said.ends_with("so use `pipeline.stages = 8`"), "{said}");
    let said = over(&[model, "pipeline.stages=2", "pipeline.replicas=3"], 2).unwrap_err();
    assert!(said.ends_with("so start a multiple of 3"), "{said}");
    // There are no more stages than layers.
    let layers = Setup::new(&resolved(&[model])).unwrap().costs.layers();
    let stages = format!("pipeline.stages={layers}");
    let said = over(&[model, &stages, replicas], 2 * (layers - 1)).unwrap_err();
    let (_, ranks) = said.split_once("so start ").unwrap();
    let ranks: usize = ranks.parse().unwrap();
    assert_eq!(over(&[model, &stages, replicas], ranks), Ok(()));
}

/// Layers before the pipeline return a row for each sample: not those between parts of a transparent encoder.
#[test]
fn as_many_layers_before_the_pipeline_as_fit_are_named() {
    let with = |before: &str| {
        let before = format!("pipeline.before={before}");
        Setup::new(&resolved(&[
            "model.name=seq2seq-nano",
            "model.transparent=true",
            &before,
        ]))
    };
    let said = with("3").err().unwrap().to_string();
    let (_, named) = said.split_once(": use `pipeline.before = ").unwrap();
    assert!(with(named.strip_suffix('`').unwrap()).is_ok(), "{said}");
}

/// Adapters of a large model train where three copies of the model would not fit.
#[test]
fn a_checkpoint_copies_values_and_the_states_of_what_trains() {
    let copies = |set: &[&str]| {
        let config = resolved(set);
        let setup = Setup::new(&config).unwrap();
        let bytes = setup.checkpoint_bytes();
        (bytes / 4, [setup.parameters, setup.trained])
    };
    let (copied, [all, trained]) = copies(&["lora.rank=2"]);
    assert!(copied == all + 2 * trained && trained < all / 100);
    let (copied, [all, _]) = copies(&["optimizer.name=sgd"]);
    assert_eq!(copied, all);
    assert_eq!(copies(&["run.keep=0"]).0, 0);
}

/// Where a run fits without the copies that checkpoints are written from, to save none is a mend.
#[test]
fn a_run_that_fits_without_copies_of_checkpoints_has_that_mend() {
    let config = resolved(&[]);
    let said = |available| {
        let refused = enough(
            &config,
            "this machine",
            [60 << 20, 70 << 20],
            30 << 20,
            Some(available),
        );
        refused.err().map(|error| error.to_string())
    };
    assert_eq!(said(100 << 20), None);
    assert_eq!(
        said(80 << 20).unwrap(),
        "the run needs 100.0 MiB, 30.0 MiB of it for copies of checkpoints, but this machine has 80.0 MiB: use \
         `run.keep = 0` to save none, or a smaller model"
    );
    assert!(said(60 << 20).unwrap().ends_with(": use a smaller model"));
}

/// Milliseconds of a step of 16 images of 32 x 32 on one thread of a Zen 4, by `plan --profile` on 2026-11-27. Without the
/// rows that convolutions gather, estimates are 0.09, 0.33, 0.67 and 0.66 of them.
#[test]
fn estimates_of_narrow_convolutions_are_within_a_factor_of_two() {
    let rates = Rates {
        flops: 104e9,
        bytes: 51e9,
        action: 15e-6,
    };
    for (network, measured) in [
        ("convnet:4,4,4", 3.2),
        ("convnet:16,16,32", 4.8),
        ("convnet", 15.4),
        ("resnet18", 85.0),
    ] {
        let config = resolved(&[
            &format!("model.name={network}"),
            "data.image_size=32",
            "data.batch_size=16",
            "pipeline.micro_batches=2",
            "pipeline.remat=keep",
            "pipeline.threads=1",
        ]);
        let setup = Setup::new(&config).unwrap();
        let times = Speed::Estimate(rates).times(&setup.costs, 1);
        let ratio = 1e3 * setup.step_seconds(&times).unwrap() / measured;
        assert!((0.5..1.3).contains(&ratio), "{network}: {ratio}");
    }
}

/// Of 32 pixels the last maps of a ResNet have one, so a sample has no variance to train by; an evaluation needs none.
#[test]
fn an_evaluation_takes_what_training_refuses() {
    let config = resolved(&[
        "model.name=resnet18",
        "data.source=synthetic",
        "data.image_size=32",
        "data.batch_size=2",
        "pipeline.micro_batches=2",
    ]);
    let refused = Setup::new(&config).err().unwrap().to_string();
    assert!(
        refused.contains("two values or more for each channel"),
        "{refused}"
    );
    assert!(Setup::forward_only_over(&config, None).is_ok());
}
