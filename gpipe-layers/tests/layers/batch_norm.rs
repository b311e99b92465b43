//! Running statistics of batch normalization: what moves them, by how much, and what they are for.

use gpipe_layers::layers::{BatchNorm, Graph};
use gpipe_layers::{Flow, Layer, PassContext, make, try_params};
use gpipe_tensor::{Device, Tensor};

use super::cases::{device, f64s, one};

const CHANNELS: usize = 2;

fn layer(device: &Device) -> BatchNorm {
    let mut layer = BatchNorm::new("bn1", CHANNELS).with_momentum(0.25);
    make(&mut layer, device, 0).unwrap();
    layer
}

/// Images of one row of pixels.
fn images(device: &Device, pixels: usize, seed: usize) -> Tensor {
    let value = |i: usize| ((i * 7 + seed * 5) % 11) as f32 - 3.0;
    let values: Vec<f32> = (0..pixels * CHANNELS).map(value).collect();
    Tensor::from_f32(device, [1, 1, pixels, CHANNELS], values).unwrap()
}

/// The running mean and variance.
fn running(layer: &mut BatchNorm) -> [Vec<f64>; 2] {
    let mut found = [Vec::new(), Vec::new()];
    try_params(layer, |param| {
        for (part, found) in ["bn1.running_mean", "bn1.running_var"]
            .iter()
            .zip(&mut found)
        {
            if param.name == *part {
                *found = f64s(param.value()?);
            }
        }
        Ok::<_, gpipe_layers::Error>(())
    })
    .unwrap();
    found
}

fn train(layer: &mut BatchNorm, x: &Tensor) {
    let cx = PassContext::training(0, 0, 0..1);
    // Recomputed: what counts is the weight gradient.
    layer.forward(&cx, one(x.clone())).unwrap();
    let (y, saved) = layer.forward(&cx, one(x.clone())).unwrap();
    layer.backward(saved, y).unwrap();
}

/// Begins a mini-batch as a stage does.
fn begin(layer: &mut BatchNorm) {
    layer.begin_mini_batch().unwrap();
    try_params(layer, |param| param.zero_grad()).unwrap();
}

/// Mean and biased variance of each channel.
fn statistics(parts: &[Tensor]) -> (f64, [Vec<f64>; 2]) {
    let values: Vec<f64> = parts.iter().flat_map(f64s).collect();
    let rows = (values.len() / CHANNELS) as f64;
    let of = |c: usize| values.iter().skip(c).step_by(CHANNELS);
    let means = (0..CHANNELS).map(|c| of(c).sum::<f64>() / rows);
    let means: Vec<f64> = means.collect();
    let squares = |c: usize| of(c).map(|x| (x - means[c]).powi(2)).sum::<f64>();
    let variances = (0..CHANNELS).map(squares).map(|sum| sum / rows).collect();
    (rows, [means, variances])
}

fn close(got: &[Vec<f64>; 2], wanted: [Vec<f64>; 2]) {
    for (got, wanted) in got.iter().flatten().zip(wanted.iter().flatten()) {
        assert!((got - wanted).abs() < 1e-5, "{got}, not {wanted}");
    }
}

#[test]
fn a_mini_batch_counts_once_and_whole() {
    let device = device();
    for biased in [false, true] {
        let mut layer = layer(&device);
        if biased {
            layer = layer.biased();
        }
        let parts = [5, 3, 8].map(|pixels| images(&device, pixels, pixels));
        begin(&mut layer);
        parts.iter().for_each(|x| train(&mut layer, x));
        assert_eq!(running(&mut layer), [vec![0.0; 2], vec![1.0; 2]]);
        layer.commit_mini_batch().unwrap();
        let (rows, [means, variances]) = statistics(&parts);
        let unbiased = if biased { 1.0 } else { rows / (rows - 1.0) };
        let wanted = [
            means.iter().map(|mean| 0.25 * mean).collect(),
            variances
                .iter()
                .map(|v| 0.75 + 0.25 * unbiased * v)
                .collect(),
        ];
        close(&running(&mut layer), wanted);
        // A second commit has nothing to apply.
        let before = running(&mut layer);
        layer.commit_mini_batch().unwrap();
        assert_eq!(running(&mut layer), before);
    }
}

#[test]
fn an_unfinished_mini_batch_moves_nothing() {
    let device = device();
    let (mut layer, mut other) = (layer(&device), layer(&device));
    begin(&mut layer);
    train(&mut layer, &images(&device, 7, 1));
    for layer in [&mut layer, &mut other] {
        begin(layer);
        train(layer, &images(&device, 4, 2));
        layer.commit_mini_batch().unwrap();
    }
    assert_eq!(running(&mut layer), running(&mut other));
}

#[test]
fn an_evaluation_normalizes_by_running_statistics() {
    let device = device();
    let mut layer = layer(&device);
    begin(&mut layer);
    train(&mut layer, &images(&device, 9, 3));
    layer.commit_mini_batch().unwrap();
    let [means, variances] = running(&mut layer);
    // One row: there is no variance of it.
    let x = images(&device, 1, 4);
    let cx = PassContext::evaluation(0..1);
    let (y, _) = layer.forward(&cx, one(x.clone())).unwrap();
    for (c, (y, x)) in f64s(&y[0]).iter().zip(f64s(&x)).enumerate() {
        let wanted = (x - means[c]) / (variances[c] + 1e-5).sqrt();
        assert!((y - wanted).abs() < 1e-5, "{y}, not {wanted}");
    }
    assert_eq!(running(&mut layer), [means, variances]);
}

#[test]
fn a_frozen_one_keeps_its_statistics() {
    let device = device();
    let mut layer = BatchNorm::new("bn1", CHANNELS);
    gpipe_layers::freeze(&mut layer, |_| true);
    make(&mut layer, &device, 0).unwrap();
    begin(&mut layer);
    train(&mut layer, &images(&device, 9, 3));
    layer.commit_mini_batch().unwrap();
    assert_eq!(running(&mut layer), [vec![0.0; 2], vec![1.0; 2]]);
}

#[test]
fn one_row_has_no_variance_to_train_by() {
    let device = device();
    let layer = layer(&device);
    let input = [Flow::f32([1, 1, 1, CHANNELS])];
    let fault = "bn1: expected two values or more for each channel of a micro-batch (use fewer micro-batches \
                 or a larger batch), got f32 [1, 1, 1, 2]";
    let cost = layer.cost(&input).unwrap();
    assert_eq!(cost.training_fault.as_deref(), Some(fault));
    let two = layer.cost(&[Flow::f32([1, 1, 2, CHANNELS])]).unwrap();
    assert_eq!(two.training_fault, None);
    // Of a layer around it too.
    let mut graph = Graph::new("cell", 1);
    let x = graph.input(0);
    let y = graph.add(BatchNorm::new("bn1", CHANNELS), [x]);
    let graph = graph.returning([y]);
    assert_eq!(
        graph.cost(&input).unwrap().training_fault.as_deref(),
        Some(fault)
    );
    // An evaluation takes it.
    let cx = PassContext::evaluation(0..1);
    assert!(layer.forward(&cx, one(images(&device, 1, 0))).is_ok());
    let cx = PassContext::training(0, 0, 0..1);
    let error = layer.forward(&cx, one(images(&device, 1, 0))).unwrap_err();
    assert!(
        error.to_string().starts_with("bn1: expected two values"),
        "{error}"
    );
}
