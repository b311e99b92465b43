//! Language models with adapters: the bits of one stage and the predicted bytes at any number of stages, under any
//! schedule and policy, on any number of threads, and nothing but adapters changes; dropout included.

#[path = "common/faulty.rs"]
mod faulty;
#[path = "common/ways.rs"]
mod ways;

use faulty::Faulty;
use gpipe_layers::models::{GptConfig, LlamaConfig, gpt, llama};
use gpipe_layers::{AdamW, Flow, Layer, LoraSettings, Optimizer, freeze};
use gpipe_remat::{
    Assembly, AssemblyBuilder, ModelCosts, ParameterBytes, Policy, Trainer, copy_owned,
    micro_batches, predict_memory,
};
use gpipe_tensor::{DeviceId, Host, Tensor};
use ways::{Outcome, Way};

const SAMPLES: usize = 5;
const MICRO_BATCHES: usize = 3;
const TIME: usize = 7;
const VOCAB: usize = 13;

type Layers = Vec<Box<dyn Layer>>;

/// A model without adapters.
type Family = fn() -> Layers;

fn a_gpt() -> Layers {
    let config = GptConfig {
        vocab: VOCAB,
        context: TIME,
        width: 12,
        blocks: 3,
        heads: 3,
        dropout: 0.1,
        ..GptConfig::default()
    };
    gpt(&config).expect("a model")
}

/// With groups of heads, a window, biases and a head of its own.
fn a_llama() -> Layers {
    let config = LlamaConfig {
        vocab: VOCAB,
        context: TIME,
        width: 12,
        inner: 20,
        blocks: 3,
        heads: 4,
        kv_heads: 2,
        head_size: 4,
        tied: false,
        qkv_bias: true,
        window: Some(4),
        dropout: 0.1,
        ..LlamaConfig::default()
    };
    llama(&config).expect("a model")
}

/// The model with adapters of rank 8 on the layers in whose names one of these is found, and all else frozen.
fn adapted(family: Family, targets: &[&str]) -> Layers {
    let settings = LoraSettings {
        rank: 8,
        alpha: 16.0,
        dropout: 0.2,
    };
    let mut layers = family();
    for layer in &mut layers {
        let of = |name: &str| targets.iter().any(|target| name.contains(target));
        let adapt = layer.adapt(&mut |name| of(name).then_some(settings));
        adapt.expect("settings that mean something");
        freeze(layer.as_mut(), |param| !param.name.contains("lora_"));
    }
    layers
}

fn input(samples: usize) -> Vec<Flow> {
    vec![Flow::u32([samples, TIME])]
}

fn builder(layers: Layers, way: Way) -> AssemblyBuilder {
    Assembly::builder(layers)
        .batch(SAMPLES, input)
        .stages(way.stages)
        .with_schedule(way.schedule(MICRO_BATCHES))
        .policy(way.policy)
        .seed(7)
}

/// Trains this many steps; the values of all parameters by name stand beside the outcome.
fn train(layers: &dyn Fn() -> Layers, way: Way, steps: u64) -> (Outcome, Vec<(String, Vec<f32>)>) {
    let host = Host::new(way.threads).expect("threads");
    let cpu = host.device(DeviceId::Cpu).expect("a processor");
    let ids = |step: usize| {
        let id = |i: usize| ((i * 7 + i * i + step) % VOCAB) as u32;
        let ids = (0..SAMPLES * TIME).map(id).collect();
        Tensor::from_u32(&cpu, [SAMPLES, TIME], ids).expect("small")
    };
    let (x, targets) = (ids(0), ids(1));
    let optimizer = Optimizer::from(AdamW::default());
    let assembled = builder(layers(), way).optimizer(&optimizer).build(&host);
    let mut trainer = Trainer::new(assembled.expect("an assembly"), optimizer.clone(), |_| 0.01);
    let mut bits = Vec::new();
    for _ in 0..steps {
        let step = trainer.step(std::slice::from_ref(&x), &targets);
        bits.push(step.expect("a step").loss.to_bits());
    }
    let run = trainer.run();
    let counted = run.devices.iter().map(|device| device.peak_bytes());
    let counted = counted.collect();
    let values = copy_owned(&mut run.pipeline, &run.transit)
        .expect("room")
        .into_iter();
    let values = values.map(|param| (param.name, param.value.to_f32s().expect("floats").to_vec()));
    let values: Vec<(String, Vec<f32>)> = values.collect();
    let all = values.iter().flat_map(|(_, values)| values);
    bits.extend(all.map(|value| u64::from(value.to_bits())));

    let plan = builder(layers(), way)
        .optimizer(&optimizer)
        .plan(way.threads);
    let mut plan = plan.expect("a plan");
    let ranges = micro_batches(SAMPLES, MICRO_BATCHES).expect("a size");
    let costs = ModelCosts::new(&plan.layers, &ranges, input).expect("a model");
    let bytes = ParameterBytes::new(&mut plan.layers, Some(&optimizer));
    let memory = predict_memory(&bytes, &costs, &plan.cut, &plan.schedule, &plan.remat_plan);
    let predicted = memory.iter().map(|memory| memory.peak()).collect();
    let outcome = Outcome {
        bits,
        counted,
        predicted,
    };
    (outcome, values)
}

/// As `peft` adapts it by default, and with adapters wherever there can be some.
fn every_way(family: Family, default: &[&str], all: &[&str], small: usize) {
    for targets in [default, all] {
        let layers = || adapted(family, targets);
        let (_, before) = train(&layers, Way::ONE, 0);
        let (_, after) = train(&layers, Way::ONE, 2);
        for ((name, before), (_, after)) in before.iter().zip(&after) {
            assert_eq!(before != after, name.contains("lora_"), "{name}");
        }
        Way::compare("N5", small, |way| train(&layers, way, 2).0);
    }
}

#[test]
fn adapters_of_a_gpt_train_to_the_bits_of_one_stage() {
    every_way(a_gpt, &["c_attn"], &["attn", "mlp"], 2);
}

#[test]
fn adapters_of_a_llama_train_to_the_bits_of_one_stage() {
    every_way(a_llama, &["q_proj", "v_proj"], &["self_attn", "mlp"], 2);
}

#[test]
fn teeth_a_layer_that_is_not_the_same_again_is_seen() {
    let layers = || {
        let mut layers = adapted(a_llama, &["q_proj", "v_proj"]);
        layers.insert(2, Box::new(Faulty::default()));
        layers
    };
    let way = Way {
        policy: Policy::Stage,
        ..Way::ONE
    };
    let (wanted, got) = (train(&layers, Way::ONE, 2).0, train(&layers, way, 2).0);
    assert!(got.bits != wanted.bits, "the bits are the same");
    println!("exam N5 teeth 1/1");
}
