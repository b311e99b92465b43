//! Frozen parameters in a pipeline: no bytes but their values, no update, no share in the gradient
//! norm, and the gradients of all others as if nothing was frozen.

mod common;

use std::collections::BTreeMap;

use common::{Model, Run};
use gpipe_layers::{Loss, freeze};
use gpipe_remat::{
    Assembled, Assembly, Error, ParameterBytes, Policy, RematPlan, apply_update, gradient_norm,
    merge_ties, predict_memory, share_ties,
};
use gpipe_tensor::{DeviceId, Host, Tensor};

type Bits = BTreeMap<String, Vec<u32>>;

fn bits(tensor: &Tensor) -> Vec<u32> {
    let values = tensor.to_f32s().expect("floats");
    values.iter().map(|x| x.to_bits()).collect()
}

/// The values of all owners, and the gradients of all that have one.
fn read(assembled: &mut Assembled) -> (Bits, Bits) {
    let read = assembled.pipeline.gather(|_, stage| {
        let (mut values, mut gradients) = (Bits::new(), Bits::new());
        stage.params(|param| {
            assert_eq!(param.grad.is_none(), param.frozen);
            if !param.tied {
                values.insert(param.name.clone(), bits(param.value().expect("made")));
                if let Some(grad) = &param.grad {
                    gradients.insert(param.name.clone(), bits(grad));
                }
            }
        });
        Ok::<_, Error>((values, gradients))
    });
    let (values, gradients): (Vec<Bits>, Vec<Bits>) = read.expect("parameters").into_iter().unzip();
    let merge = |all: Vec<Bits>| all.into_iter().flatten().collect();
    (merge(values), merge(gradients))
}

/// One step; the norm, and what is read before and after the update.
fn step(run: &Run, frozen: fn(&str) -> bool) -> (f64, Bits, Bits, Bits) {
    let schedule = run.schedule();
    let mut layers = run.model.layers();
    for layer in &mut layers {
        freeze(layer.as_mut(), |param| frozen(&param.name));
    }
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
    let (before, _) = read(&mut assembled);
    let pipeline = &mut assembled.pipeline;
    pipeline.step(run.items(0)).expect("a step");
    merge_ties(pipeline).expect("ties");
    let norm = gradient_norm(pipeline).expect("a norm");
    apply_update(pipeline, &run.optimizer, 0.01, 0, 1.0).expect("an update");
    share_ties(pipeline).expect("ties");
    for (device, memory) in assembled.devices.iter().zip(&memory) {
        assert_eq!(device.peak_bytes(), memory.peak(), "{run:?}");
        assert_eq!(device.live_bytes(), memory.fixed(), "{run:?}");
    }
    let (after, gradients) = read(&mut assembled);
    (norm, before, after, gradients)
}

fn squares(gradients: &Bits) -> f64 {
    let elements = gradients.values().flatten();
    let square = |&bits: &u32| f64::from(f32::from_bits(bits)).powi(2);
    elements.map(square).sum()
}

#[test]
fn what_is_frozen_costs_its_value_and_stays() {
    let frozen: [fn(&str) -> bool; 4] = [
        |name| name.contains(".h.1."),
        |name| name.contains("wte") || name.contains("wpe"),
        |name| name.ends_with(".bias"),
        |name| !name.contains("ln_f"),
    ];
    for tied in [false, true] {
        for (stages, policy) in [(1, Policy::Keep), (3, Policy::Stage), (3, Policy::Every(2))] {
            let model = Model {
                blocks: 3,
                tied,
                dropout: 0.1,
            };
            let run = Run {
                stages,
                policy,
                ..Run::new(model, 8, 4)
            };
            let (_, _, trained, all) = step(&run, |_| false);
            for frozen in frozen {
                let (norm, before, after, gradients) = step(&run, frozen);
                for (name, gradient) in &all {
                    assert_eq!(frozen(name), !gradients.contains_key(name), "{name}");
                    let expected = match frozen(name) {
                        true => &before[name],
                        false => {
                            assert_eq!(gradient, &gradients[name], "{name}");
                            &trained[name]
                        }
                    };
                    assert_eq!(expected, &after[name], "{name}");
                }
                let expected = squares(&gradients).sqrt();
                assert!(
                    (norm - expected).abs() <= 1e-6 * expected,
                    "{norm} {expected}"
                );
            }
        }
    }
}
