//! A small U-Net against PyTorch: loss and gradients, recorded by `reference.py` in double precision.

use gpipe_layers::models::{ImageConfig, image};
use gpipe_layers::{Flow, Init, Layer, Loss, Param, PassContext, make};
use gpipe_tensor::{Device, DeviceId, Host, Shape, Tensor, Tensors};
use serde_json::Value;

const SIZE: usize = 76;
const BATCH: usize = 2;

/// Rounding in single precision, through the whole network, of a number that is a sum over a parameter: as a
/// share of the norm of what is summed. A value near 0 may end on the other side of a ReLU, and another of four may
/// be the largest.
const TOLERANCE: f64 = 1e-2;

/// A number from -1 to below 1 for an element: a hash of its index and the name.
fn noise(name: &str, index: usize) -> f32 {
    let fnv = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let seed = name.bytes().fold(0x811C_9DC5, fnv);
    let mut hash = (index as u32)
        .wrapping_mul(2_654_435_761)
        .wrapping_add(seed);
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x045D_9F3B);
    hash ^= hash >> 16;
    (f64::from(hash) / f64::from(1_u32 << 31) - 1.0) as f32
}

/// The index that PyTorch has for an element of a parameter: convolutions are (outputs, inputs, height, width).
fn index_in_pytorch(shape: &Shape, index: usize) -> usize {
    let &[_, height, width, inputs] = shape.dims() else {
        return index;
    };
    let (pixel, input) = (index / inputs, index % inputs);
    let (output, pixel) = (pixel / (height * width), pixel % (height * width));
    (output * inputs + input) * height * width + pixel
}

/// The value that a parameter begins with.
fn begin(param: &mut Param) {
    let (name, shape) = (param.name.clone(), param.shape.clone());
    let fan_in: usize = shape.dims()[1..].iter().product();
    let scale = (2.0 / fan_in as f64).sqrt();
    param.init = Init::from_fn(move |index| {
        let noise = noise(&name, index_in_pytorch(&shape, index));
        (scale * f64::from(noise)) as f32
    });
}

fn layers(device: &Device) -> Vec<Box<dyn Layer>> {
    let config = ImageConfig {
        network: "unet:2,4".parse().unwrap(),
        channels: 3,
        classes: 1,
        dropout: 0.0,
    };
    let mut layers = image(&config).unwrap();
    for layer in &mut layers {
        layer.params(&mut begin);
        make(layer.as_mut(), device, 0).unwrap();
    }
    layers
}

fn images(device: &Device, name: &str, channels: usize) -> Tensor {
    let values: Vec<f32> = (0..BATCH * SIZE * SIZE * channels)
        .map(|index| noise(name, index))
        .collect();
    Tensor::from_f32(device, [BATCH, SIZE, SIZE, channels], values).unwrap()
}

/// The first tensors of a flow, and those that pass by.
fn cut(flow: Tensors, takes: usize) -> (Tensors, Tensors) {
    let mut flow = flow.into_iter();
    (flow.by_ref().take(takes).collect(), flow.collect())
}

/// A training step without its update: the loss.
fn step(layers: &mut [Box<dyn Layer>], device: &Device) -> f64 {
    let cx = PassContext::training(0, 0, 0..BATCH as u64);
    let mut flow = Tensors::from_iter([images(device, "x", 3)]);
    let mut left = Vec::new();
    for layer in &*layers {
        let (x, passing) = cut(flow, layer.arity());
        let shapes: Vec<Flow> = x.iter().map(|x| Flow::f32(x.shape().clone())).collect();
        let outputs = layer.cost(&shapes).unwrap().outputs.len();
        let (mut y, saved) = layer.forward(&cx, x).unwrap();
        y.extend(passing);
        flow = y;
        left.push((saved, outputs));
    }
    let mut masks = images(device, "masks", 1);
    for value in masks.f32s_mut().unwrap() {
        *value = f32::from(*value > 0.0);
    }
    let y = flow.into_iter().next().unwrap();
    let divisor = Loss::BinaryCrossEntropy.terms(&masks).unwrap();
    let (loss, dy) = Loss::BinaryCrossEntropy
        .gradient(y, &masks, divisor)
        .unwrap();
    let mut flow = Tensors::from_iter([dy]);
    for (layer, (saved, outputs)) in layers.iter_mut().zip(left).rev() {
        let (dy, passing) = cut(flow, outputs);
        let mut dx = layer.backward(saved, dy).unwrap();
        dx.extend(passing);
        flow = dx;
    }
    loss
}

#[test]
fn loss_and_gradients_are_those_of_pytorch() {
    let expected: Value = serde_json::from_str(include_str!("expected.json")).unwrap();
    let device = Host::new(2).unwrap().device(DeviceId::Cpu).unwrap();
    let mut layers = layers(&device);
    let loss = step(&mut layers, &device);
    let wanted = expected["loss"].as_f64().unwrap();
    assert!((loss - wanted).abs() < 1e-4 * wanted, "{loss} {wanted}");
    let mut compared = 0;
    for layer in &mut layers {
        layer.params(&mut |param| {
            let gradient = param.grad().unwrap().f32s().unwrap();
            let pairs = gradient.iter().map(|&value| f64::from(value)).enumerate();
            let norm = pairs
                .clone()
                .map(|(_, value)| value * value)
                .sum::<f64>()
                .sqrt();
            let probe: f64 = pairs
                .map(|(index, value)| {
                    let index = index_in_pytorch(&param.shape, index);
                    value * f64::from(noise("probe", index))
                })
                .sum();
            let wanted = &expected["gradients"][&param.name];
            let [wanted_norm, wanted_probe] = [0, 1].map(|i| wanted[i].as_f64().unwrap());
            let near = |got: f64, wanted: f64| (got - wanted).abs() <= TOLERANCE * wanted_norm;
            assert!(
                near(norm, wanted_norm) && near(probe, wanted_probe),
                "{}: {norm} {probe} instead of {wanted}",
                param.name
            );
            compared += 1;
        });
    }
    assert_eq!(compared, 11 * 2 + 1);
}
