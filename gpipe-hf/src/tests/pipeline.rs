//! A pipeline of any number of stages gets the values of its folder, at every place of a tied one.

use gpipe_layers::Loss;
use gpipe_remat::{Assembled, Assembly, RematPlan, Retained};
use gpipe_sched::gpipe;
use gpipe_tensor::{DType, DeviceId, Host};

use super::*;
use crate::Error;

fn assembled(model: &ModelConfig, stages: usize) -> Assembled {
    let layers = model.layers().unwrap();
    let each = layers.len() / stages;
    let end = |stage: usize| match stage == stages {
        true => layers.len(),
        false => stage * each,
    };
    let assembly = Assembly {
        cut: (0..stages).map(|s| end(s)..end(s + 1)).collect(),
        layers,
        schedule: gpipe(stages, 1).unwrap(),
        remat_plan: RematPlan::of_stages(vec![Retained::Everything; stages], 1),
        devices: vec![DeviceId::Cpu; stages],
        loss: Loss::CrossEntropy,
        optimizer: None,
        seed: 1,
    };
    assembly.build(&Host::new(2).unwrap()).unwrap()
}

#[test]
fn every_place_of_a_parameter_gets_its_value() {
    let model = model();
    let mut params = params(&model);
    let folder = written(&to_files(&model, &params, &Companions::default()).unwrap());
    for stages in [1, 3] {
        let mut assembled = assembled(&model, stages);
        open(folder.path(), &model)
            .unwrap()
            .load(&mut assembled.pipeline)
            .unwrap();
        let places = assembled.pipeline.gather(|_, stage| {
            let mut places = Vec::new();
            stage.params(|param| {
                let value = param.value().map(|value| value.to_f32s().unwrap());
                places.push((param.name.clone(), param.tied, value.unwrap()));
            });
            Ok::<_, Error>(places)
        });
        let places: Vec<_> = places.unwrap().into_iter().flatten().collect();
        assert_eq!(places.iter().filter(|(_, tied, _)| *tied).count(), 1);
        assert_eq!(places.len(), params.len() + 1);
        for (name, _, value) in places {
            let (_, expected) = params.iter().find(|(known, _)| *known == name).unwrap();
            assert_eq!(value[..], expected.to_f32s().unwrap()[..], "{name}");
        }
    }
    // What cannot be loaded is named with its stage.
    params[3].1 = Tensor::from_f32(&device(), params[3].1.shape().clone(), [f32::NAN; 8]).unwrap();
    assert_eq!(params[3].1.dtype(), DType::F32);
    let folder = written(&to_files(&model, &params, &Companions::default()).unwrap());
    let weights = open(folder.path(), &model).unwrap();
    let error = weights
        .load(&mut assembled(&model, 2).pipeline)
        .unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with("stage 0") && message.contains("not finite"),
        "{message}"
    );
    assert!(error.is_input_error());
}
