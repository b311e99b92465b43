//! Gradients against a plain double-precision reference and against differences of a layer's own
//! outputs, and the equalities that a layer promises between the ways of taking them.

use gpipe_layers::{check, freeze};
use gpipe_tensor::Tensor;

use super::cases::{Case, Sizes, all, cx, device, one};

const SIZES: Sizes = Sizes {
    batch: 2,
    time: 5,
    heads: 2,
    size: 3,
    vocab: 7,
};

fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.f32s().unwrap().iter().map(|x| x.to_bits()).collect()
}

/// Every layer, made, with an input.
fn made() -> impl Iterator<Item = (Case, Tensor)> {
    let device = device();
    all(SIZES).into_iter().map(move |mut case| {
        case.make(&device);
        let x = case.input(&device, SIZES);
        (case, x)
    })
}

#[test]
fn outputs_and_gradients_are_those_of_the_reference() {
    for (mut case, x) in made() {
        let reference = &case.reference;
        let reference = |params: &[Vec<f64>], x: &[Vec<f64>]| vec![reference(params, &x[0])];
        let layer = case.layer.as_mut();
        check::gradients_of(layer, &cx(SIZES.batch), &one(x), &reference).unwrap();
    }
}

#[test]
fn gradients_are_those_of_the_outputs_and_add_up_over_micro_batches() {
    for (mut case, x) in made() {
        check::gradients(case.layer.as_mut(), &cx(SIZES.batch), &one(x)).unwrap();
    }
}

#[test]
fn split_fused_and_parameter_gradients_have_the_same_bits() {
    for (mut case, x) in made() {
        check::split(case.layer.as_mut(), &cx(SIZES.batch), &one(x)).unwrap();
    }
}

/// A normalization sums the gradients of its parameters in the pass that computes dX, frozen or not.
#[test]
fn frozen_parameters_cost_no_gradient() {
    let normalizes = [
        "norm",
        "rms_norm",
        "rms_norm of heads",
        "rms_norm around one",
        "half",
        "attention half",
        "normalized half",
        "gated half",
    ];
    for mut case in all(SIZES) {
        if normalizes.contains(&case.layer.name()) {
            continue;
        }
        freeze(case.layer.as_mut(), |_| true);
        let cost = case.layer.cost(&[case.input]).unwrap();
        assert_eq!(cost.weight_grad, 0, "{}", case.layer.name());
    }
}

/// Each parameter by itself, and all of them: dX and the gradients of the others stay right, and
/// the bytes are those that are predicted.
#[test]
fn frozen_parameters_have_no_gradient_and_let_the_others_pass() {
    let count = |case: &mut Case| {
        let mut count = 0;
        case.layer.params(&mut |_| count += 1);
        count
    };
    let counts: Vec<usize> = all(SIZES).iter_mut().map(count).collect();
    for (index, &params) in counts.iter().enumerate() {
        for frozen in 0..=params {
            let device = device();
            let mut case = all(SIZES).swap_remove(index);
            let place = std::cell::Cell::new(0);
            freeze(case.layer.as_mut(), |_| {
                let now = place.replace(place.get() + 1);
                frozen == params || now == frozen
            });
            let before = device.live_bytes();
            case.make(&device);
            let mut bytes = 0;
            case.layer.params(&mut |param| {
                assert_eq!(param.grad.is_none(), param.frozen);
                assert_eq!(param.grad_bytes() == 0, param.frozen);
                bytes += param.elements() * 4 + param.grad_bytes();
            });
            assert_eq!(device.live_bytes() - before, bytes);
            let x = one(case.input(&device, SIZES));
            let layer = case.layer.as_mut();
            check::gradients(layer, &cx(SIZES.batch), &x).unwrap();
            check::split(layer, &cx(SIZES.batch), &x).unwrap();
            check::bytes(layer, &cx(SIZES.batch), &x).unwrap();
        }
    }
}

#[test]
fn nothing_is_dropped_in_evaluation() {
    let device = device();
    let mut evaluation = cx(SIZES.batch);
    evaluation.train = false;
    for mut case in all(SIZES)
        .into_iter()
        .filter(|case| case.layer.name() == "dropped")
    {
        case.make(&device);
        let x = case.input(&device, SIZES);
        let (y, _) = case.layer.forward(&evaluation, one(x.clone())).unwrap();
        assert_eq!(bits(&y[0]), bits(&x));
        let (y, _) = case
            .layer
            .forward(&cx(SIZES.batch), one(x.clone()))
            .unwrap();
        assert_ne!(bits(&y[0]), bits(&x));
    }
}
