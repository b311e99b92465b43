//! Adapted layers in a pipeline: the same bits at any cut and policy, bytes as predicted, and only the
//! adapters change.

mod common;

use std::collections::BTreeMap;

use common::{CONTEXT, Model, Run, VOCAB, WIDTH};
use gpipe_layers::layers::{Embedding, Head, Layout, Linear};
use gpipe_layers::{Layer, LoraSettings, Loss, freeze};
use gpipe_remat::{
    Assembly, Error, ParameterBytes, Policy, RematPlan, apply_update, merge_ties, predict_memory,
    share_ties,
};
use gpipe_tensor::{DeviceId, Host};

type Bits = BTreeMap<String, Vec<u32>>;

fn layers() -> Vec<Box<dyn Layer>> {
    let settings = LoraSettings {
        rank: 8,
        alpha: 16.0,
        dropout: 0.2,
    };
    let embedding = Embedding::new("wte", VOCAB, WIDTH, 0.5).with_positions("wpe", CONTEXT);
    let mut layers: Vec<Box<dyn Layer>> = vec![Box::new(embedding)];
    for i in 0..4 {
        let layout = [Layout::InOut, Layout::OutIn][i % 2];
        let base = Linear::new(format!("h.{i}"), WIDTH, WIDTH, layout);
        layers.push(Box::new(base.with_lora(settings).expect("valid")));
    }
    layers.push(Box::new(Head::new("head", WIDTH, VOCAB, 0.5)));
    for layer in &mut layers {
        freeze(layer.as_mut(), |param| !param.name.contains("lora_"));
    }
    layers
}

/// The values of all parameters after `steps` steps.
fn train(run: &Run, steps: u64) -> Bits {
    let (mut layers, schedule) = (layers(), run.schedule());
    let (costs, cut) = (run.costs(&layers), run.cut(layers.len()));
    let weights = ParameterBytes::new(&mut layers, Some(&run.optimizer));
    let remat_plan =
        RematPlan::new(run.policy, &weights, &costs, &cut, &schedule).expect("a remat plan");
    let memory = predict_memory(&weights, &costs, &cut, &schedule, &remat_plan);
    let assembly = Assembly {
        layers,
        cut,
        schedule,
        remat_plan,
        devices: vec![DeviceId::Cpu; run.stages],
        loss: Loss::CrossEntropy,
        optimizer: Some(run.optimizer.clone()),
        seed: 7,
    };
    let mut assembled = assembly.build(&Host::new(1).unwrap()).expect("valid");
    let pipeline = &mut assembled.pipeline;
    for step in 0..steps {
        pipeline.step(run.items(step)).expect("a step");
        merge_ties(pipeline).expect("ties");
        apply_update(pipeline, &run.optimizer, 0.01, step, 1.0).expect("an update");
        share_ties(pipeline).expect("ties");
    }
    for (device, memory) in assembled.devices.iter().zip(&memory) {
        if steps > 0 {
            assert_eq!(device.peak_bytes(), memory.peak(), "{run:?}");
        }
        assert_eq!(device.live_bytes(), memory.fixed(), "{run:?}");
    }
    let read = assembled.pipeline.gather(|_, stage| {
        let mut values = Bits::new();
        stage.params(|param| {
            let value = param.value().expect("made").to_f32s().expect("floats");
            let bits = value.iter().map(|x| x.to_bits()).collect();
            values.insert(param.name.clone(), bits);
        });
        Ok::<_, Error>(values)
    });
    read.expect("parameters").into_iter().flatten().collect()
}

#[test]
fn adapters_train_to_the_same_bits_in_the_predicted_bytes() {
    let model = Model {
        blocks: 1,
        tied: false,
        dropout: 0.0,
    };
    let one = Run::new(model, 8, 4);
    let (before, expected) = (train(&one, 0), train(&one, 3));
    for (name, values) in &expected {
        assert_eq!(values != &before[name], name.contains("lora_"), "{name}");
    }
    for stages in [2, 3, 6] {
        for policy in [Policy::Keep, Policy::Stage, Policy::Every(2)] {
            for order in [common::Order::Gpipe, common::Order::OneFOneB] {
                let run = Run {
                    stages,
                    policy,
                    order,
                    ..one.clone()
                };
                assert!(train(&run, 3) == expected, "{run:?}");
            }
        }
    }
}
