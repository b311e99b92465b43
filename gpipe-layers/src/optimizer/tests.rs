//! Updates, states and settings.

use gpipe_tensor::{Device, DeviceId, Host};

use super::*;
use crate::{AdamW, Init, RmsProp, Sgd};

const FIRST: UpdateSettings = UpdateSettings {
    lr: 0.1,
    step: 0,
    grad_scale: 1.0,
};

fn device() -> Device {
    Host::new(1).unwrap().device(DeviceId::Cpu).unwrap()
}

fn rules(weight_decay: f64, decay: Decay) -> [Optimizer; 3] {
    [
        Optimizer::from(Sgd {
            weight_decay,
            decay,
            ..Sgd::default()
        }),
        Optimizer::from(Sgd {
            momentum: 0.9,
            weight_decay,
            decay,
            ..Sgd::default()
        }),
        Optimizer::from(AdamW {
            beta2: 0.95,
            weight_decay,
            decay,
            ..AdamW::default()
        }),
    ]
}

fn ready(optimizer: &Optimizer, kind: Kind) -> Param {
    let mut param = Param::new("w", [2, 2], kind, Init::Ones);
    param.make(&device(), 0).unwrap();
    optimizer.make_state(&mut param).unwrap();
    param
}

#[test]
fn only_what_should_decay_decays() {
    for (decay, vectors_decay) in [(Decay::Matrices, false), (Decay::All, true)] {
        for optimizer in rules(0.5, decay) {
            for (kind, decays) in [(Kind::Matrix, true), (Kind::Vector, vectors_decay)] {
                let mut param = ready(&optimizer, kind);
                // Without a gradient, decay alone moves the value: by lr · decay · value.
                optimizer.update(&mut param, FIRST).unwrap();
                let wanted = if decays { 0.95 } else { 1.0 };
                let value = param.value().unwrap().f32s().unwrap()[0];
                assert!(
                    (value - wanted).abs() < 1e-6,
                    "{optimizer:?} {kind:?}: {value}"
                );
            }
        }
    }
}

#[test]
fn a_statistic_is_left_to_its_layer() {
    for optimizer in rules(0.5, Decay::All) {
        let mut param = ready(&optimizer, Kind::Statistic);
        let grad = param.grad_mut().unwrap();
        grad.f32s_mut().unwrap().fill(0.25);
        optimizer
            .update(
                &mut param,
                UpdateSettings {
                    grad_scale: 0.5,
                    ..FIRST
                },
            )
            .unwrap();
        assert_eq!(param.value().unwrap().f32s().unwrap(), [1.0; 4]);
        assert!(param.state.is_empty());
    }
}

#[test]
fn a_frozen_parameter_stays_as_it_is() {
    for optimizer in rules(0.5, Decay::All) {
        let device = device();
        let mut param = Param::new("w", [2, 2], Kind::Matrix, Init::Ones).frozen();
        param.make(&device, 0).unwrap();
        optimizer.make_state(&mut param).unwrap();
        param.zero_grad().unwrap();
        optimizer.update(&mut param, FIRST).unwrap();
        assert_eq!(param.value().unwrap().f32s().unwrap(), [1.0; 4]);
        assert_eq!((param.grad_bytes(), optimizer.state_bytes(&param)), (0, 0));
        assert_eq!(device.live_bytes(), 4 * 4);
        let error = param.grad().unwrap_err().to_string();
        assert_eq!(error, "w: the parameter is frozen: it has no gradient");
        assert_eq!(param.grad_mut().unwrap_err().to_string(), error);
    }
}

#[test]
fn the_predicted_bytes_are_allocated() {
    let rmsprop = [0.0, 0.9].map(|momentum| {
        Optimizer::from(RmsProp {
            momentum,
            ..RmsProp::default()
        })
    });
    let rules = rules(0.0, Decay::All).into_iter().chain(rmsprop);
    for (optimizer, tensors) in rules.zip([0, 1, 2, 1, 2]) {
        let device = device();
        let mut param = Param::new("w", [3, 5], Kind::Matrix, Init::Ones);
        param.make(&device, 0).unwrap();
        let before = device.live_bytes();
        optimizer.make_state(&mut param).unwrap();
        assert_eq!(optimizer.state_bytes(&param), tensors * 15 * 4);
        assert_eq!(device.live_bytes() - before, tensors * 15 * 4);
    }
}

#[test]
fn only_an_owner_that_is_ready_is_updated() {
    for optimizer in rules(0.0, Decay::All) {
        let mut bare = Param::new("w", [2], Kind::Vector, Init::Ones);
        assert!(optimizer.make_state(&mut bare).is_err());
        assert!(optimizer.update(&mut bare, FIRST).is_err());
        let mut place = ready(&optimizer, Kind::Matrix).tied();
        let error = optimizer.update(&mut place, FIRST).unwrap_err();
        assert!(error.to_string().contains("update owners only"), "{error}");
    }
    let [_, momentum, adamw] = rules(0.0, Decay::All);
    let mut param = ready(&momentum, Kind::Matrix);
    assert!(adamw.update(&mut param, FIRST).is_err());
}

#[test]
fn numbers_that_make_no_sense_are_named() {
    let adamw = |beta1, beta2, eps, decay| {
        let optimizer = Optimizer::from(AdamW {
            beta1,
            beta2,
            eps,
            weight_decay: decay,
            decay: Decay::All,
        });
        optimizer.check().map_err(|error| error.to_string())
    };
    assert_eq!(adamw(0.9, 0.95, 1e-8, 0.1), Ok(()));
    for (result, named) in [
        (adamw(1.0, 0.95, 1e-8, 0.1), "beta1 is 1"),
        (adamw(0.9, f64::NAN, 1e-8, 0.1), "beta2 is NaN"),
        (adamw(0.9, 0.95, -1.0, 0.1), "eps is -1"),
        (adamw(0.9, 0.95, 1e-8, f64::INFINITY), "weight decay is inf"),
        (adamw(0.9, 0.95, 1e300, 0.1), "eps is 1e300, which single"),
        (adamw(0.9, 0.95, 1e-8, 1e39), "weight decay is 1e39, which"),
    ] {
        assert!(result.unwrap_err().starts_with(named));
    }
    for (alpha, eps, momentum, named) in [
        (1.0, 1e-8, 0.0, "alpha is 1"),
        (0.9, f64::NAN, 0.0, "eps is NaN"),
        (0.9, 1e-8, -0.5, "momentum is -0.5"),
    ] {
        let optimizer = Optimizer::from(RmsProp {
            alpha,
            eps,
            momentum,
            ..RmsProp::default()
        });
        let error = optimizer.check().unwrap_err().to_string();
        assert!(error.starts_with(named), "{error}");
    }
    let nesterov = Optimizer::from(Sgd {
        nesterov: true,
        ..Sgd::default()
    });
    let error = nesterov.check().unwrap_err().to_string();
    assert_eq!(
        error,
        "nesterov is on and momentum is 0: use a momentum above 0"
    );
    assert!(
        Optimizer::from(Sgd {
            momentum: 1.5,
            decay: Decay::All,
            ..Sgd::default()
        })
        .check()
        .is_err()
    );
}

/// A momentum is no mean square, which is never below 0.
#[test]
fn a_state_of_as_many_tensors_of_another_optimizer_is_refused() {
    let rmsprop = |momentum| {
        Optimizer::from(RmsProp {
            momentum,
            ..RmsProp::default()
        })
    };
    let sgd = Optimizer::from(Sgd {
        momentum: 0.9,
        ..Sgd::default()
    });
    let adamw = Optimizer::from(AdamW::default());
    for (of, other) in [(sgd, rmsprop(0.0)), (adamw, rmsprop(0.9))] {
        let mut param = ready(&of, Kind::Matrix);
        assert!(of.has_state(&param) && !other.has_state(&param));
        assert!(other.update(&mut param, FIRST).is_err());
        other.make_state(&mut param).unwrap();
        assert!(other.has_state(&param) && !of.has_state(&param));
        other.update(&mut param, FIRST).unwrap();
    }
}

#[test]
fn the_clip_factor_brings_a_norm_down_to_its_limit() {
    assert_eq!(clip_factor(5.0, 0.0), 1.0);
    assert_eq!(clip_factor(0.5, 1.0), 1.0);
    assert_eq!(clip_factor(0.0, 1.0), 1.0);
    assert!((clip_factor(4.0, 1.0) - 0.25).abs() < 1e-6);
    assert!(clip_factor(f64::NAN, 1.0).is_nan());
}

#[test]
fn decays_have_names() {
    assert_eq!("matrices".parse::<Decay>().unwrap(), Decay::Matrices);
    let error = "none".parse::<Decay>().unwrap_err().to_string();
    assert_eq!(error, "unknown decay `none`: use matrices or all");
}
