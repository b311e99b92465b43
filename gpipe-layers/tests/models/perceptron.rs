//! Perceptrons: their layers, the bytes that those keep, and what they learn.

use gpipe_layers::layers::Function;
use gpipe_layers::models::{MlpConfig, mlp};
use gpipe_layers::{
    AdamW, Decay, Flow, Loss, Optimizer, PassContext, UpdateSettings, compute_in, try_params,
};
use gpipe_tensor::{DType, DeviceId, Host, Tensor, Tensors, init_uniform};

use super::{costs, names};

#[test]
fn a_perceptron_is_a_flat_list_too() {
    let config = MlpConfig {
        inputs: 4,
        hidden: vec![8, 6],
        outputs: 3,
        activation: Function::Relu,
        dropout: 0.5,
    };
    let wanted = [
        "linear_0",
        "activation_0",
        "dropout_0",
        "linear_1",
        "activation_1",
        "dropout_1",
        "linear_2",
    ];
    assert_eq!(names(&mlp(&config).unwrap()), wanted);
    let without = MlpConfig {
        dropout: 0.0,
        ..config.clone()
    };
    assert_eq!(mlp(&without).unwrap().len(), 5);
    for broken in [
        MlpConfig {
            hidden: vec![8, 0],
            ..config.clone()
        },
        MlpConfig {
            dropout: -1.0,
            ..config
        },
    ] {
        assert!(mlp(&broken).is_err());
    }
}

#[test]
fn a_first_layer_keeps_its_input_in_its_own_type() {
    let config = MlpConfig {
        inputs: 3,
        hidden: vec![4],
        outputs: 2,
        activation: Function::Relu,
        dropout: 0.0,
    };
    let mut layers = mlp(&config).unwrap();
    for layer in &mut layers {
        compute_in(layer.as_mut(), DType::BF16);
    }
    let costs = costs(&layers, Flow::f32([5, 3]));
    let [first, last] = [&costs[0].1.memory, &costs[2].1.memory];
    assert_eq!(
        (first.saved_inputs.contains(0), first.saved_own),
        (false, 5 * 3 * 2)
    );
    assert_eq!((last.saved_inputs.contains(0), last.saved_own), (true, 0));
}

#[test]
fn a_perceptron_learns_a_product() {
    let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
    let config = MlpConfig {
        inputs: 2,
        hidden: vec![16],
        outputs: 1,
        activation: Function::Relu,
        dropout: 0.0,
    };
    let mut layers = mlp(&config).unwrap();
    let optimizer = Optimizer::from(AdamW {
        beta2: 0.95,
        weight_decay: 0.0,
        decay: Decay::All,
        ..AdamW::default()
    });
    for layer in &mut layers {
        try_params(layer.as_mut(), |param| {
            param.make(&device, 3)?;
            optimizer.make_state(param)
        })
        .unwrap();
    }
    let x = init_uniform(&device, [64, 2], 1.0, 1, "x").unwrap();
    let products = x.f32s().unwrap().chunks(2).map(|pair| pair[0] * pair[1]);
    let products = Tensor::from_f32(&device, [64, 1], products.collect::<Vec<f32>>()).unwrap();
    let cx = PassContext::training(0, 0, 0..64);
    let mut losses = Vec::new();
    for step in 0..200 {
        let mut flow = Tensors::from_iter([x.clone()]);
        let mut saved = Vec::new();
        for layer in &layers {
            let (y, left) = layer.forward(&cx, flow).unwrap();
            saved.push(left);
            flow = y;
        }
        let y = flow.pop().unwrap();
        let (loss, dy) = Loss::SquaredError.gradient(y, &products, 64.0).unwrap();
        losses.push(loss);
        flow.push(dy);
        for (layer, saved) in layers.iter_mut().zip(saved).rev() {
            flow = layer.backward(saved, flow).unwrap();
            try_params(layer.as_mut(), |param| {
                optimizer.update(
                    param,
                    UpdateSettings {
                        lr: 0.02,
                        step,
                        grad_scale: 1.0,
                    },
                )?;
                param.zero_grad()
            })
            .unwrap();
        }
    }
    assert!(
        losses[199] < 0.1 * losses[0],
        "{} to {}",
        losses[0],
        losses[199]
    );
}
