//! Five steps of optimizers, values and state, as `fixtures/optimizers.py` wrote them.

use gpipe_layers::{Init, Kind, Optimizer, Param, RmsProp, Sgd, UpdateSettings};
use gpipe_tensor::{DeviceId, Host, Tensor};
use serde_json::Value;

fn number(settings: &Value, key: &str) -> f64 {
    settings[key].as_f64().unwrap_or_default()
}

fn floats(values: &Value) -> Vec<f64> {
    let values = values.as_array().expect("a list").iter();
    values
        .map(|value| value.as_f64().expect("a number"))
        .collect()
}

fn close(what: &str, got: &Tensor, wanted: &Value) {
    for (got, wanted) in got.f32s().expect("floats").iter().zip(floats(wanted)) {
        let error = (f64::from(*got) - wanted).abs();
        // Five steps of some roundings each.
        assert!(
            error < 2e-6 * wanted.abs().max(1.0),
            "{what}: {got}, not {wanted}"
        );
    }
}

#[test]
fn five_steps_of_nesterovs_sgd_and_of_rmsprop() {
    let text = include_str!("../fixtures/optimizers.json");
    let fixtures: Value = serde_json::from_str(text).expect("JSON");
    let sgd = |settings: &Value| {
        Optimizer::from(Sgd {
            momentum: number(settings, "momentum"),
            nesterov: true,
            weight_decay: number(settings, "weight_decay"),
            ..Sgd::default()
        })
    };
    let rmsprop = |settings: &Value| {
        Optimizer::from(RmsProp {
            alpha: number(settings, "alpha"),
            eps: number(settings, "eps"),
            momentum: number(settings, "momentum"),
            weight_decay: number(settings, "weight_decay"),
            ..RmsProp::default()
        })
    };
    type Make<'a> = &'a dyn Fn(&Value) -> Optimizer;
    let cases = [
        ("sgd-nesterov", &sgd as Make<'_>),
        ("rmsprop", &rmsprop),
        ("rmsprop-momentum", &rmsprop),
    ];
    let device = Host::new(1)
        .and_then(|host| host.device(DeviceId::Cpu))
        .expect("a processor");
    for (name, make) in cases {
        let case = &fixtures[name];
        let optimizer = make(&case["settings"]);
        let tensor = |values: &Value| {
            let values: Vec<f32> = floats(values).into_iter().map(|x| x as f32).collect();
            Tensor::from_f32(&device, [values.len()], values).expect("a value each")
        };
        let value = tensor(&fixtures["value"]);
        let mut param = Param::new("w", value.shape().clone(), Kind::Matrix, Init::Zeros);
        param.make(&device, 0).expect("room");
        param.set_value(&value).expect("the same shape");
        optimizer.make_state(&mut param).expect("room");
        let steps = case["steps"].as_array().expect("steps");
        assert_eq!(steps.len(), 5);
        for (step, wanted) in steps.iter().enumerate() {
            let grad = tensor(&fixtures["grads"][step]);
            param.zero_grad().expect("room");
            let sum = param.grad_mut().expect("a gradient");
            sum.copy_from(&grad).expect("the same shape");
            let settings = UpdateSettings {
                lr: number(&case["settings"], "lr"),
                step: step as u64,
                grad_scale: 1.0,
            };
            optimizer.update(&mut param, settings).expect("an update");
            close(name, param.value().expect("made"), wanted);
        }
        for (state, key) in param.state.iter().zip(optimizer.state_names()) {
            close(key, state, &case["state"][key]);
        }
    }
}
