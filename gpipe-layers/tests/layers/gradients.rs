//! Gradients against finite differences of the reference, and the promises between the ways of
//! taking them.

use approx::assert_abs_diff_eq;
use gpipe_layers::{Layer, Saved, try_params};
use gpipe_tensor::{Tensor, Tensors};

use super::cases::{Case, Sizes, all, cx, device, f64s, one, random};

const SIZES: Sizes = Sizes {
    batch: 2,
    time: 5,
    heads: 2,
    size: 3,
    vocab: 7,
};

/// How far single precision may be off, as a share of the largest number: a few hundred roundings
/// of 6e-8, which sums of some ten terms and the division by a small deviation in LayerNorm make.
const TOLERANCE: f64 = 2e-5;

fn assert_close(what: &str, ours: &[f64], wanted: &[f64]) {
    assert_eq!(ours.len(), wanted.len(), "{what}");
    let largest = wanted.iter().fold(0.0f64, |most, v| most.max(v.abs()));
    for (ours, wanted) in ours.iter().zip(wanted) {
        assert_abs_diff_eq!(ours, wanted, epsilon = TOLERANCE * largest.max(1e-3));
    }
}

/// The gradient of `f` by central differences: in double precision the step's square, 1e-10, is
/// all that is lost.
fn differences(at: &[f64], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    const STEP: f64 = 1e-5;
    let mut x = at.to_vec();
    let mut slope = |i: usize| {
        let beside = |x: &mut Vec<f64>, step: f64| {
            x[i] = at[i] + step;
            let value = f(x);
            x[i] = at[i];
            value
        };
        (beside(&mut x, STEP) - beside(&mut x, -STEP)) / (2.0 * STEP)
    };
    (0..at.len()).map(&mut slope).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn values(layer: &mut dyn Layer) -> Vec<Vec<f64>> {
    let mut values = Vec::new();
    layer.params(&mut |param| values.push(f64s(param.value().unwrap())));
    values
}

/// The gradients' bits; and forgets them.
fn take_gradients(layer: &mut dyn Layer) -> Vec<Vec<u32>> {
    let mut gradients = Vec::new();
    try_params(layer, |param| {
        gradients.push(bits(param.grad()?));
        param.zero_grad()
    })
    .unwrap();
    gradients
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    tensor.f32s().unwrap().iter().map(|x| x.to_bits()).collect()
}

fn floats(bits: &[u32]) -> Vec<f64> {
    bits.iter().map(|&b| f32::from_bits(b).into()).collect()
}

/// A layer after its forward pass, and what goes back into it.
struct Turned {
    case: Case,
    x: Tensor,
    y: Tensor,
    dy: Tensor,
}

impl Turned {
    fn new(mut case: Case) -> Self {
        let device = device();
        case.make(&device);
        let x = case.input(&device, SIZES);
        let (y, _) = case
            .layer
            .forward(&cx(SIZES.batch), one(x.clone()))
            .unwrap();
        let dy = random(&device, y[0].shape(), "gradient");
        Self {
            case,
            x,
            y: y[0].clone(),
            dy,
        }
    }

    fn saved(&self) -> Saved {
        let x = one(self.x.clone());
        self.case.layer.forward(&cx(SIZES.batch), x).unwrap().1
    }

    fn dy(&self) -> Tensors {
        one(self.dy.clone())
    }
}

#[test]
fn outputs_and_gradients_are_those_of_the_reference() {
    for case in all(SIZES) {
        let mut turned = Turned::new(case);
        let name = turned.case.layer.name().to_owned();
        let params = values(turned.case.layer.as_mut());
        let x = match turned.case.input.dtype.is_float() {
            true => f64s(&turned.x),
            false => Vec::new(),
        };
        let dy = f64s(&turned.dy);
        let y = (turned.case.reference)(&params, &x);
        assert_close(&format!("{name}: y"), &f64s(&turned.y), &y);

        let (saved, flow) = (turned.saved(), turned.dy());
        let dx = turned.case.layer.backward(saved, flow).unwrap();
        let gradients = take_gradients(turned.case.layer.as_mut());
        let reference = &turned.case.reference;
        let wanted = differences(&x, |x| dot(&reference(&params, x), &dy));
        let dx: Vec<f64> = dx.iter().flat_map(f64s).collect();
        assert_close(&format!("{name}: dx"), &dx, &wanted);
        for (i, gradient) in gradients.iter().enumerate() {
            let wanted = differences(&params[i], |value| {
                let mut params = params.clone();
                params[i] = value.to_vec();
                dot(&reference(&params, &x), &dy)
            });
            assert_close(
                &format!("{name}: parameter {i}"),
                &floats(gradient),
                &wanted,
            );
        }
    }
}

#[test]
fn split_fused_and_last_gradients_have_the_same_bits() {
    for case in all(SIZES) {
        let mut turned = Turned::new(case);
        let name = turned.case.layer.name().to_owned();

        let (saved, dy) = (turned.saved(), turned.dy());
        let fused = turned.case.layer.backward(saved, dy).unwrap();
        let fused_gradients = take_gradients(turned.case.layer.as_mut());

        let (dx, pending) = turned
            .case
            .layer
            .input_grad(turned.saved(), turned.dy())
            .unwrap();
        turned.case.layer.weight_grad(pending).unwrap();
        assert_eq!(fused.len(), dx.len(), "{name}");
        for (fused, split) in fused.iter().zip(&dx) {
            assert_eq!(bits(fused), bits(split), "{name}");
        }
        let gradients = take_gradients(turned.case.layer.as_mut());
        assert_eq!(fused_gradients, gradients, "{name}");

        let pending = turned
            .case
            .layer
            .param_only_grad(turned.saved(), turned.dy());
        turned.case.layer.weight_grad(pending.unwrap()).unwrap();
        let gradients = take_gradients(turned.case.layer.as_mut());
        assert_eq!(fused_gradients, gradients, "{name}");
    }
}

#[test]
fn gradients_of_micro_batches_add_up() {
    for case in all(SIZES) {
        let mut turned = Turned::new(case);
        let name = turned.case.layer.name().to_owned();
        let (saved, dy) = (turned.saved(), turned.dy());
        turned.case.layer.backward(saved, dy).unwrap();
        let once = take_gradients(turned.case.layer.as_mut());
        for _ in 0..2 {
            let (saved, dy) = (turned.saved(), turned.dy());
            turned.case.layer.backward(saved, dy).unwrap();
        }
        let twice = take_gradients(turned.case.layer.as_mut());
        for (once, twice) in once.iter().zip(&twice) {
            let doubled: Vec<f64> = floats(once).iter().map(|g| 2.0 * g).collect();
            assert_close(&name, &floats(twice), &doubled);
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
